//! The documentation, followed to the letter: the pages that lead through an installation are run line by line.

use std::path::Path;
use std::process::Command;

use crate::backup::BackupFolder;
use crate::member::Member;
use crate::support::{Site, eventually};

/// The commands of a page in their order: each code block of a console is one script, and so is each row of a table
/// that names a command.
fn scripts(page: &str) -> Vec<String> {
    let (mut scripts, mut block) = (Vec::new(), None::<String>);
    for line in page.lines() {
        match (&mut block, line) {
            (None, "```console") => block = Some(String::new()),
            (Some(_), "```") => scripts.extend(block.take()),
            (Some(block), line) => *block += &format!("{line}\n"),
            (None, row) if row.starts_with("| ") => {
                let spans = row.split('`').skip(1).step_by(2);
                scripts.extend(spans.filter(|span| span.starts_with("fleetctl ")).map(|span| format!("{span}\n")));
            }
            _ => {}
        }
    }
    scripts
}

/// A line as a script has to say what a reader sees or does: that `diff` found something, that a deletion is meant. The key of
/// the backups is made without age's program, and their folder is there.
fn unattended(line: &str) -> String {
    if line.starts_with("fleetctl diff ") {
        return format!("{line} || [ $? = 1 ]");
    }
    if line.starts_with("age-keygen ") {
        return String::new();
    }
    if let Some(rest) = line.strip_prefix("mkdir ") {
        return format!("mkdir -p {rest}");
    }
    if line.contains("--delete-data") {
        return format!("{line} --yes");
    }
    line.to_owned()
}

/// Follows scripts as somebody whose kubeconfig has contexts for these clusters; `names` are the placeholders of the
/// page and what stands for them.
#[track_caller]
fn follow(site: &Site, clusters: &[&str], scripts: &[String], names: &[(&str, &str)]) {
    let home = site.home();
    let files: Vec<_> = clusters.iter().map(|name| site.bed.kubeconfig(name).unwrap()).collect();
    site.bed.merge_kubeconfigs(&files, home).unwrap();
    let folder = home.join("work");
    std::fs::create_dir_all(&folder).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let values = folder.join("values");
    if !values.exists() {
        std::os::unix::fs::symlink(root.join("values"), values).unwrap();
    }
    let bin = home.join(".local/bin");
    std::fs::create_dir_all(&bin).unwrap();

    for script in scripts {
        let mut script: String = script.lines().map(|line| unattended(line) + "\n").collect();
        for (placeholder, name) in names {
            script = script.replace(placeholder, name);
        }
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", &script]).current_dir(&folder).env_clear();
        bash.env("HOME", home).env("LC_ALL", "C.UTF-8").env("PATH", site.path(std::slice::from_ref(&bin)));
        let ran = site.finish(bash);
        assert_eq!(ran.code, Some(0), "{script}\n{}\n{}", ran.stdout, ran.stderr);
    }
}

fn page(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

#[test]
fn the_operator_workflow_leads_from_the_decision_to_the_removal() {
    let site = Site::with("current", "member-2");
    let _member = Member::beside(&site, "member-2");
    let before = site.dump();
    let page = page("docs/operator-workflow.md");
    let file = page.split_whitespace().find(|word| word.starts_with("backups/demo-")).unwrap();
    let scripts = scripts(&page);
    assert!(scripts.len() >= 12, "{scripts:#?}");
    let backups = BackupFolder::make_in(&site.home().join("work"));
    let names = [
        ("HOSTING", site.cluster),
        ("WORKLOAD", "member-2"),
        ("age1…", backups.recipient.as_str()),
        (file, "$(ls backups/demo-*.fleet | tail -n 1)"),
    ];
    follow(&site, &[site.cluster, "member-2"], &scripts, &names);
    site.assert_same_as(&before);
}

#[test]
fn the_example_places_a_workload_and_leaves_nothing_in_its_cluster() {
    let site = Site::with("host", "member-1");
    let member = Member::beside(&site, "member-1");
    site.install(&[]).succeeds();
    member.install(&["--control-plane", "demo"]).succeeds();
    let before = member.dump();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/place-workloads");
    let folder = site.home().join("work");
    std::fs::create_dir(&folder).unwrap();
    for file in ["policy.yaml", "shop.yaml"] {
        std::os::unix::fs::symlink(example.join(file), folder.join(file)).unwrap();
    }
    let mut scripts = scripts(&page("examples/place-workloads/README.md"));
    assert!(scripts.len() >= 6, "{scripts:#?}");
    let removal = scripts.pop().unwrap();
    assert!(removal.contains("delete -f shop.yaml"), "{removal}");
    let merge = format!("fleetctl kubeconfig demo --context {} --merge\n", site.cluster);
    let clusters = [site.cluster, "member-1"];
    follow(&site, &clusters, &[std::slice::from_ref(&merge), &scripts[..]].concat(), &[]);
    let pods = member.kubectl(&["-n", "shop", "get", "pods", "-o", "jsonpath={.items[*].status.phase}"]);
    assert_eq!(pods.split_whitespace().collect::<Vec<_>>(), ["Running"; 4], "they run in the workload cluster");
    member.uninstall(&[]).fails(6, &["Deployment shop/web", "--drain", "--keep-workloads"]);
    // There is no other cluster.
    member
        .uninstall(&["--drain", "--timeout", "10s"])
        .fails(6, &["could not be drained", "accepts workloads again within seconds"]);
    eventually("the request is taken back", || {
        let why = member.fleetctl(&["why", "deployment/web", "-n", "shop", "--context", "demo"]);
        why.code == Some(0) && why.stdout.contains("Deployment shop/web is placed on member-1")
    });
    follow(&site, &clusters, &[merge.clone(), removal], &[]);
    member.assert_same_as(&before);

    follow(&site, &clusters, &[&[merge], &scripts[..]].concat(), &[]);
    let kept = member.uninstall(&["--keep-workloads"]);
    assert!(kept.succeeds().contains("Still running, but no longer managed:"), "{kept:?}");
    let pods = member.kubectl(&["-n", "shop", "get", "pods", "-o", "jsonpath={.items[*].status.phase}"]);
    assert_eq!(pods.split_whitespace().collect::<Vec<_>>(), ["Running"; 4]);
    let marked = "deployments,services,configmaps,namespaces";
    let marked = member.kubectl(&["get", marked, "-A", "-o", "name", "-l", "fleet-scheduler.io/placed-by"]);
    assert_eq!(marked, "", "nothing says any more that it is managed");
    member.kubectl(&["delete", "namespace", "shop"]);
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
}

/// Their commands are much the same as those of the workflow.
mod exhaustive {
    use super::*;

    #[test]
    fn the_quick_start_leads_to_a_control_plane_and_back() {
        let site = Site::on("current");
        let scripts = scripts(&page("docs/quick-start.md"));
        assert!(scripts.len() >= 5, "{scripts:#?}");
        follow(&site, &[site.cluster], &scripts, &[("HOSTING", site.cluster)]);
    }

    #[test]
    fn the_lines_of_the_readme_register_a_cluster() {
        let site = Site::with("host", "member-1");
        let _member = Member::beside(&site, "member-1");
        let page = page("README.md");
        let (_, own) = page.split_once("## On your own clusters").unwrap();
        let block = scripts(own).remove(0);
        assert!(block.starts_with("fleetctl install control-plane"), "{block}");
        let leave =
            "fleetctl uninstall agent west --context member-1\nfleetctl uninstall control-plane demo --delete-data\n";
        let names = [("HOSTING-CONTEXT", site.cluster), ("WORKLOAD-CONTEXT", "member-1")];
        follow(&site, &[site.cluster, "member-1"], &[block, leave.to_owned()], &names);
    }
}
