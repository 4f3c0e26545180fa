//! The documentation: what is made is current, what is written by hand is true.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use fleetctl::backup::{Identity, Seal};

use crate::backup::make_backup;
use crate::server::with_kubeconfig;
use crate::{Ran, Sandbox};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    for folder in ["docs", "docs/explain"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            found.push(entry.unwrap().path());
        }
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.sort();
    found
}

/// The commands of this program in a page: lines of code blocks and spans of code, up to what a shell does with them.
fn commands(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut add = |code: &str| {
        let code = code.trim().trim_start_matches("sudo ").trim_start_matches("source <(");
        let Some(rest) = code.strip_prefix("fleetctl ").or_else(|| code.strip_prefix("kubectl fleet ")) else { return };
        // How a command is written is no command.
        if rest.contains("[OPTIONS]") {
            return;
        }
        let ends = [" | ", " > ", " >> ", " && ", "   #", "  "];
        let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        found.insert(rest[..end].trim_end_matches([')', '…', '|']).trim().to_owned());
    };
    let mut in_block = false;
    let whole = page.split(" \\\n").map(str::trim_start).collect::<Vec<_>>().join(" ");
    for line in whole.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            add(line);
        } else {
            line.split('`').skip(1).step_by(2).for_each(&mut add);
        }
    }
    found
}

/// Words as a shell makes them of plain words and of quotes.
pub(crate) fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in command.chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.push(std::mem::take(&mut word)),
            (c, _) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_command_in_the_documentation_is_one_that_the_program_reads() {
    let mut all = BTreeSet::new();
    for page in pages() {
        all.extend(commands(&std::fs::read_to_string(page).unwrap()));
    }
    assert!(all.len() > 60, "the commands were not found: {all:?}");
    let mut wrong = Vec::new();
    for command in &all {
        let mut args = words(command);
        // Reading stops at the first word that is wrong; help, asked for last, runs nothing.
        if !args.iter().any(|arg| arg == "--help" || arg == "--version" && args.len() == 1) {
            // What follows `--` is not read by this program.
            let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
            args.insert(end, "--help".to_owned());
        }
        let ran = Command::new(assert_cmd::cargo::cargo_bin!("fleetctl")).args(&args).env_clear().output().unwrap();
        if !ran.status.success() {
            wrong.push(format!("fleetctl {command}\n{}", String::from_utf8_lossy(&ran.stderr)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_are_found_in_blocks_and_spans_and_end_where_the_shell_goes_on() {
    let page = "See `fleetctl explain ID` and `x`.\n```console\nfleetctl show values > a.yaml\nsource <(fleetctl completion bash)\nsudo fleetctl kubectl-install   # as root\nfleetctl status \\\n    demo\n```\n";
    let found: Vec<String> = commands(page).into_iter().collect();
    assert_eq!(found, ["completion bash", "explain ID", "kubectl-install", "show values", "status demo"]);
    assert_eq!(words("a 'b c' --d=\"e\""), ["a", "b c", "--d=e"]);
}

#[test]
fn what_is_made_from_the_program_is_current() {
    let sandbox = Sandbox::new();
    let made = sandbox.run(&["docs", "--dir", "made"]);
    let names: Vec<String> = made.succeeds().lines().map(|line| line.trim_start_matches("made/").to_owned()).collect();
    assert!(names.len() >= 5, "{made:?}");
    for name in names {
        let (fresh, kept) = (sandbox.path().join("made").join(&name), root().join("docs").join(&name));
        let same = std::fs::read_to_string(fresh).unwrap() == std::fs::read_to_string(kept).unwrap_or_default();
        assert!(same, "docs/{name} is out of date: cargo run -- docs --dir docs");
    }
}

/// The anchors of the headings of a page, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let titles = headings.filter_map(|heading| heading.trim_start_matches('#').strip_prefix(' '));
    let is_kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    titles.map(|title| title.chars().filter(is_kept).collect::<String>().to_lowercase().replace(' ', "-")).collect()
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut linking = pages();
    let others = ["CONTRIBUTING.md", "CHANGELOG.md", "examples/gitops/README.md", "examples/place-workloads/README.md"];
    linking.extend(others.map(|page| root().join(page)));
    let (mut broken, mut with_anchor) = (Vec::new(), 0);
    for page in linking {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.contains(['`', ' ', '\\', '|', '<']) {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            with_anchor += usize::from(!anchor.is_empty());
            let is_there = |text: String| anchor.is_empty() || anchors(&text).contains(anchor);
            let leads = path.is_dir() || path.extension().is_none_or(|extension| extension != "md") && path.exists();
            if !leads && !std::fs::read_to_string(path).is_ok_and(is_there) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
    assert!(with_anchor > 20, "{with_anchor} links to headings");
    assert_eq!(anchors("# A `b` c-d?\n#e\n## The F's\n").into_iter().collect::<Vec<_>>(), ["a-b-c-d", "the-fs"]);
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path().join("man")).unwrap();
    sandbox.run(&["man", "--dir", "man"]).succeeds();
    for page in ["fleetctl.1", "fleetctl-install-control-plane.1", "fleetctl-explain.1"] {
        let text = std::fs::read_to_string(sandbox.path().join("man").join(page)).unwrap();
        assert!(text.contains(".SH NAME") && text.contains(".SH OPTIONS"), "{page}: {text}");
    }
    assert!(!sandbox.path().join("man/fleetctl-docs.1").exists(), "hidden commands have no page");
}

/// The examples of all help pages, each as one command of a shell.
fn help_examples() -> Vec<Vec<String>> {
    let reference = std::fs::read_to_string(root().join("docs/reference.md")).unwrap();
    let mut commands: Vec<Vec<String>> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
    for line in reference.lines() {
        if line == "Examples:" || line == "Example:" {
            inside = true;
            commands.push(Vec::new());
        } else if !line.starts_with("  ") {
            inside = false;
        } else if inside && goes_on {
            let last = commands.last_mut().and_then(|examples| examples.last_mut()).unwrap();
            *last = format!("{} {}", last.trim_end_matches('\\').trim_end(), line.trim());
        } else if inside {
            commands.last_mut().unwrap().push(line.trim().to_owned());
        }
        goes_on = inside && line.ends_with(['\\', '|']);
    }
    commands
}

/// A home that has what the examples of help name, and kubeconfigs of clusters that do not answer. Returns the PATH.
fn furnish(sandbox: &Sandbox) -> String {
    let home = sandbox.path();
    for folder in ["bin", ".zfunc", ".config/fish/completions", ".config/nushell/autoload"] {
        std::fs::create_dir_all(home.join(folder)).unwrap();
    }
    std::fs::create_dir_all(home.join(".local/share/bash-completion/completions")).unwrap();
    std::os::unix::fs::symlink(root().join("values"), home.join("values")).unwrap();
    for name in ["my.yaml", "agent.yaml"] {
        sandbox.file(name, "imagePullPolicy: Always\n");
    }
    let west = r#"{"metadata": {"name": "west"}, "spec": {"name": "west", "accepted": true}}"#;
    sandbox.file("fleet.json", &format!(r#"{{"fleetRecording": 1, "fleet": {{"clusters": [{west}]}}}}"#));
    let packed = Command::new("gzip").arg("fleet.json").current_dir(home).status();
    assert!(packed.unwrap().success());
    std::fs::create_dir(home.join("policies")).unwrap();
    let app = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n";
    sandbox.file("app.yaml", app);
    sandbox.file("policies/app.yaml", app);
    std::fs::create_dir(home.join("backups")).unwrap();
    std::fs::set_permissions(home.join("backups"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(home.join("backups/demo-20270312T101500.512Z.fleet"), make_backup(&Seal::Open).0).unwrap();
    sandbox.file("backup.key", Identity::generate().to_text().expose());
    let passphrase = sandbox.file("passphrase", "correct horse\n");
    std::fs::set_permissions(passphrase, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let closed = "{name: c, cluster: {server: \"http://127.0.0.1:1\"}}";
    let contexts =
        ["hosting", "west", "demo"].map(|name| format!("{{name: {name}, context: {{cluster: c, user: u}}}}"));
    let config = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{closed}]\nusers: [{{name: u, user: {{}}}}]\ncontexts: [{}]\ncurrent-context: hosting\n",
        contexts.join(", ")
    );
    with_kubeconfig(sandbox, &config);
    // Whatever is given to kubectl is read, and counts as done.
    let kubectl = sandbox.file("bin/kubectl", "#!/bin/sh\n[ -t 0 ] || cat >/dev/null\n");
    std::fs::set_permissions(kubectl, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = assert_cmd::cargo::cargo_bin!("fleetctl").parent().unwrap().display().to_string();
    format!("{}:{program}:{}", home.join("bin").display(), std::env::var("PATH").unwrap())
}

/// Runs an example. Returns whether it wanted a cluster.
fn run_example(example: &str, home: &Path, path: &str) -> bool {
    let mut shell = Command::new("bash");
    shell.args(["-o", "pipefail", "-c", example]).env_clear().current_dir(home).stdin(std::process::Stdio::null());
    shell.envs([("PATH", path), ("LC_ALL", "C.UTF-8")]).env("HOME", home).env("PROFILE", home.join("profile"));
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let wants = said.contains("onnection refused") || said.contains("no kubeconfig of control plane demo");
    // What is on this machine is shown without a cluster.
    let is_shown = ["fleetctl certs status", "fleetctl version"].iter().any(|shown| example.starts_with(shown));
    assert!(output.status.success() != wants || wants && is_shown, "{example}: {said}");
    wants
}

#[test]
fn every_example_of_help_runs_as_far_as_it_gets_without_a_cluster() {
    let mut commands = help_examples();
    // What goes on until it is stopped, what would write beside the program under test, and what rightly leaves this
    // sandbox's context `demo` alone, and what needs the backup of a real control plane; each has its own tests.
    let have_tests = ["--watch", "--wait", "kubectl-install", "--remove", "restore demo --new"];
    for examples in &mut commands {
        examples.retain(|example| !have_tests.iter().any(|part| example.contains(part)));
    }
    // Most of them wait for a cluster: several homes at a time. Those of a command build on each other.
    let homes = 6;
    let run_homes = |first: usize| {
        let sandbox = Sandbox::new();
        let path = furnish(&sandbox);
        let examples = commands.iter().skip(first).step_by(homes).flatten();
        examples.filter(|example| run_example(example, sandbox.path(), &path)).count()
    };
    let reached: usize = std::thread::scope(|scope| {
        let running: Vec<_> = (0..homes).map(|first| scope.spawn(move || run_homes(first))).collect();
        running.into_iter().map(|home| home.join().unwrap()).sum()
    });
    let all = commands.iter().flatten().count();
    assert!(all > 60 && reached > 25 && reached < all * 2 / 3, "{reached} of {all}");
}

#[test]
fn what_a_newcomer_runs_takes_the_version_by_the_cluster() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, own) = readme.split_once("## On your own clusters").unwrap();
    let installs: Vec<&str> = own.lines().filter(|line| line.starts_with("fleetctl install ")).collect();
    assert!(installs.len() == 2 && installs.iter().all(|line| line.ends_with(" --version auto")), "{installs:?}");

    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path().join("bin")).unwrap();
    let kubectl = sandbox.file("bin/kubectl", "#!/bin/sh\necho \"kubectl $*\" >&2\n");
    std::fs::set_permissions(kubectl, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", sandbox.path().join("bin").display(), std::env::var("PATH").unwrap());
    for (given, flags) in [(None, " --version auto"), (Some("--version v0.6"), " --version v0.6"), (Some(""), "")] {
        let mut script = Command::new(root().join("examples/register-clusters.sh"));
        script.args(["demo", "west"]).env_clear().env("PATH", &path).envs(given.map(|flags| ("AGENT_FLAGS", flags)));
        let ran = Ran::of(script.output().unwrap());
        let install = format!("kubectl fleet install agent west --context west --namespace fleet{flags}");
        assert!(ran.stderr.lines().any(|line| line == install), "{ran:?}");
    }
}

#[test]
fn the_page_on_kubeconfigs_has_a_row_for_each_field_and_names_only_cases_that_there_are() {
    let page = std::fs::read_to_string(root().join("docs/kubeconfig.md")).unwrap();
    let section = |name: &str| page.split("\n## ").find(|section| section.starts_with(name)).unwrap().to_owned();
    let fields = section("Fields");
    let rows = fields.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let rows: Vec<(&str, &str)> = rows.collect();
    let named: Vec<&str> = rows.iter().map(|(field, _)| *field).collect();
    assert_eq!(named, fleetctl::k8s::connect::kubeconfig_check::FIELDS.map(|(field, _)| field));
    let sources = std::fs::read_dir(root().join("tests/engine/kubeconfigs/cases")).unwrap();
    let cases: String = sources.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    for (field, rest) in rows {
        let cases_of: Vec<&str> = rest.rsplit(" | ").next().unwrap().split('`').skip(1).step_by(2).collect();
        assert!(!cases_of.is_empty(), "{field} has no case");
        let unknown = cases_of.into_iter().find(|name| !cases.contains(&format!("\"{name}\"")));
        assert_eq!(unknown, None, "of {field}");
    }
}

/// The metrics of the two daemons, as `NAME TYPE`, by the calls that update them.
fn metrics_of(code: &str) -> BTreeSet<String> {
    let updates = [
        ("increment_counter", "counter"),
        ("set_gauge", "gauge"),
        ("observe_duration", "histogram"),
        ("observe_short", "histogram"),
    ];
    let mut found = BTreeSet::new();
    for (function, kind) in updates {
        for rest in code.split(&format!(".{function}(")).skip(1) {
            let name = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
            found.extend(name.filter(|name| name.starts_with("fleet_")).map(|name| format!("{name} {kind}")));
        }
    }
    // Those that two rooms write are constants.
    for rest in code.split("_METRIC: &str = \"fleet_").skip(1) {
        found.extend(rest.split('"').next().map(|name| format!("fleet_{name} gauge")));
    }
    found
}

fn sources(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_page_on_metrics_has_every_metric_and_no_other() {
    let mut code = String::new();
    for room in ["src/scheduler", "src/agent", "src/daemon", "src/certificates"] {
        sources(&root().join(room), &mut code);
    }
    let metrics = metrics_of(&code);
    assert!(metrics.len() > 20, "{metrics:?}");
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `fleet_")).map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        format!("fleet_{} {}", cells[0].trim_end_matches('`'), cells[1])
    });
    assert_eq!(rows.collect::<BTreeSet<_>>(), metrics);

    // What queries and texts name is a metric too, or a series of a histogram.
    let names: BTreeSet<&str> = metrics.iter().filter_map(|metric| metric.split(' ').next()).collect();
    let is_known = |word: &str| {
        let series = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
        names.contains(word) || metrics.contains(&format!("{series} histogram"))
    };
    let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("fleet_"));
    assert_eq!(words.filter(|word| !is_known(word)).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn metrics_are_found_however_their_calls_are_broken() {
    let code = "m.increment_counter(\"fleet_a_total\", \"A.\", &[]); m.set_gauge(\n    \"fleet_b\",\n); list.count(); m.observe_short(\"fleet_c\", h, d);";
    let found: Vec<String> = metrics_of(code).into_iter().collect();
    assert_eq!(found, ["fleet_a_total counter", "fleet_b gauge", "fleet_c histogram"]);
}
