//! The table of `docs/coming-from-helm.md`: what of it needs a cluster is run on one. The rest is run by the tests of the
//! command line.

use std::path::Path;

use crate::support::Site;

/// The commands of the table that need a cluster: those that look first, then what changes the version, then the removal.
fn commands() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/coming-from-helm.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Helm |"));
    let cells = rows.filter_map(|row| row.split(" | ").nth(1));
    let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let mut commands: Vec<String> =
        spans.filter_map(|span| span.strip_prefix("fleetctl ")).map(str::to_owned).collect();
    let is_offline = |command: &String| {
        let verb = command.split(' ').next().unwrap();
        // The client's dry run asks no cluster; that of the server is another flag.
        ["template", "lint", "show", "versions", "completion"].contains(&verb)
            || command.split(' ').any(|word| word == "--dry-run")
    };
    commands.retain(|command| !is_offline(command));
    commands.sort_by_key(|command| match command.split(' ').next().unwrap() {
        "install" => 0,
        "upgrade" => 2,
        "uninstall" => 3,
        _ => 1,
    });
    commands
}

mod exhaustive {
    use super::*;

    /// Thirty commands. In every run the tests of the command line parse them, and others on clusters run the same ones.
    #[test]
    fn every_command_of_the_table_that_needs_a_cluster_works_on_one() {
        let site = Site::on("host");
        let before = site.dump();
        let folder = site.home().join("work");
        std::fs::create_dir(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("my.yaml", "exposure: {type: NodePort, port: 32222}\n");
        write("patch.yaml", "kind: Deployment\nmetadata: {name: apiserver}\nspec: {minReadySeconds: 5}\n");
        let kubeconfig = std::fs::read_to_string(&site.kubeconfig).unwrap();
        let of_site = |key: &str| format!("{key}: {}\n", site.cluster);
        let renamed = ["name", "cluster", "current-context"]
            .iter()
            .fold(kubeconfig, |text, key| text.replace(&of_site(key), &format!("{key}: hosting\n")));
        write("config", &renamed.replace(&of_site("user"), "user: hosting\n"));
        let commands = commands();
        assert!(commands.len() > 25, "{commands:#?}");
        for command in &commands {
            let words: Vec<&str> = command.split(' ').map(|word| word.trim_matches('\'')).collect();
            let mut run = site.command(&words);
            run.current_dir(&folder);
            let ran = site.finish(run);
            // `diff` says by its exit code whether something would change.
            let expected: &[i32] = if words[0] == "diff" { &[0, 1] } else { &[0] };
            let code = ran.code.unwrap_or(-1);
            assert!(expected.contains(&code), "{command}: {code}\n{}\n{}", ran.stdout, ran.stderr);
            assert!(words.contains(&"--quiet") || !ran.stdout.is_empty() || !ran.stderr.is_empty(), "{command}");
        }
        site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
        site.assert_same_as(&before);
    }
}
