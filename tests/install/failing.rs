//! Installs that fail: refused before any write, interrupted, undone, resumed. The failures that the specification names are
//! in `specification`.

use std::io::{BufRead as _, BufReader};

use crate::support::{Site, eventually};

#[test]
fn a_cluster_outside_the_row_is_refused_before_any_write() {
    let site = Site::on("current");
    let before = site.dump();
    let refused = site.install(&[]);
    refused.fails(3, &["v0.6 supports Kubernetes v1.24, v1.25", "v1.36.3", "--version v1.2"]);
    site.assert_same_as(&before);

    // The flag that the error names.
    let installed = site.install(&["--version", "auto"]);
    assert!(installed.succeeds().contains("Control plane demo is healthy"), "{installed:?}");
    assert!(installed.stderr.contains("service version v1.2.0"), "{installed:?}");
    // What it would not come back from.
    let grown = site.install(&["--version", "auto", "--set", "etcd.replicas=3"]);
    grown.fails(
        6,
        &["the number of etcd members cannot change from 1 to 3", "--set etcd.replicas=1", "nothing was written"],
    );
    // Nor is it shown as a change that could be made.
    let shown = ["diff", "cp", "demo", "--version", "auto", "--set", "etcd.replicas=3"];
    site.fleetctl(&shown).fails(6, &["the number of etcd members cannot change from 1 to 3"]);
    assert!(site.fleetctl(&["status"]).succeeds().contains("Control plane demo is healthy"));
    // Nor where its record is lost while it stands.
    site.kubectl(&["-n", "fleet", "delete", "secret", "fleetctl.demo"]);
    let standing = site.dump();
    let grown = site.install(&["--version", "auto", "--set", "etcd.replicas=3"]);
    grown.fails(
        6,
        &["the number of etcd members cannot change from 1 to 3", "--set etcd.replicas=1", "nothing was written"],
    );
    site.assert_same_as(&standing);
    site.install(&["--version", "auto"]).succeeds();
    // Nor over the data that an uninstall keeps: the other members would make an empty store beside it.
    site.fleetctl(&["uninstall", "cp", "demo"]).succeeds();
    let kept = site.dump();
    let grown = site.install(&["--version", "auto", "--set", "etcd.replicas=3"]);
    grown.fails(
        6,
        &["the number of etcd members cannot change from 1 to 3", "--set etcd.replicas=1", "nothing was written"],
    );
    site.fleetctl(&shown).fails(6, &["the number of etcd members cannot change from 1 to 3"]);
    site.assert_same_as(&kept);
    // Nor where the record of it is lost, or one was made anew that knows of neither: the labels and the claims do.
    site.kubectl(&["-n", "fleet", "delete", "secret", "fleetctl.demo"]);
    for made_anew in [false, true] {
        if made_anew {
            site.fleetctl(&["uninstall", "cp", "demo"]).succeeds();
        }
        let kept = site.dump();
        let record = kept.keys().any(|key| key.ends_with("/Secret/fleet/fleetctl.demo"));
        assert_eq!(record, made_anew);
        let grown = site.install(&["--version", "auto", "--set", "etcd.replicas=3"]);
        grown.fails(
            6,
            &["the number of etcd members cannot change from 1 to 3", "--set etcd.replicas=1", "nothing was written"],
        );
        // It does not support this cluster either, which is told first.
        let older = site.install(&["--version", "v1.0", "--skip-preflight", "kubernetes-version"]);
        older.fails(6, &["older than the installed v1.2.0", "--version v1.2.0 --reuse-values`", "nothing was written"]);
        site.assert_same_as(&kept);
    }
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    site.assert_same_as(&before);
}

/// It waits for an object.
const WAITS: &str = "  ";
/// It has heard a signal.
const HEARD: &str = "Interrupted; ";
/// It undoes what it has changed.
const UNDOES: &str = "Undoing the changes of this run";
/// It has heard another one.
const STOPPED: &str = "Stopped at once; run the same command again to continue";

/// Starts an install and sends it the signal so often: each time that it says a line which begins like the next of `at`.
fn interrupted(site: &Site, signal: &str, more: &[&str], at: &[&str]) -> (Option<i32>, String) {
    let mut child = site.command(&[&["install", "cp", "demo"], more].concat()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    let mut at = at.iter().peekable();
    for line in lines.map(Result::unwrap) {
        said += &format!("{line}\n");
        if at.next_if(|awaited| line.starts_with(**awaited)).is_some() {
            let killed = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status();
            assert!(killed.unwrap().success());
        }
    }
    assert_eq!(at.next(), None, "{said}");
    (child.wait().unwrap().code(), said)
}

#[test]
fn a_second_install_at_the_same_time_is_refused_and_undoes_nothing_of_the_first() {
    let site = Site::on("current");
    let before = site.dump();
    let install = [&["install", "cp", "demo"], site.version()].concat();
    let mut first = site.command(&install).spawn().unwrap();
    let lines = BufReader::new(first.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (mut tried, mut third) = (false, None);
    for line in lines {
        // It waits for its first object.
        if line.starts_with("  ") && !tried {
            tried = true;
            let second = site.install(&[&["--rollback"], site.version()].concat());
            second.fails(6, &["another run", "nothing was written"]);
            // One that waits goes on from what the first has made, and finds nothing to do.
            third = Some(site.command(&[&install[..], &["--lock-wait", "5m"]].concat()).spawn().unwrap());
            assert!(
                !second.stderr.contains("undone") && !second.stderr.contains("to remove what is left"),
                "{second:?}"
            );
        }
    }
    assert!(tried && first.wait().unwrap().success());
    let third = third.unwrap().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&third.stdout);
    assert!(third.status.success() && said.contains("Nothing to change"), "{third:?}");
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    site.assert_same_as(&before);
}

#[test]
fn an_interrupted_install_says_how_to_go_on_and_is_resumed_or_undone() {
    let site = Site::on("host");
    let before = site.dump();
    let (code, said) = interrupted(&site, "-INT", &["--rollback"], &[WAITS]);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("were undone"), "{said}");
    // The step that was cut off ends before the undoing begins, which is told with its end.
    let (before_it, undoing) = said.split_once(&format!("\n{UNDOES}\n")).unwrap();
    assert!(before_it.lines().last().unwrap().starts_with("× "), "{said}");
    assert!(undoing.contains(&format!("√ {UNDOES}")), "{said}");
    site.assert_same_as(&before);

    // In the middle of the undoing; what comes next takes over the lock of the process that is gone.
    let (code, said) = interrupted(&site, "-INT", &["--rollback"], &[WAITS, HEARD]);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.lines().last().unwrap().starts_with(STOPPED), "{said}");

    let (code, said) = interrupted(&site, "-TERM", &[], &[WAITS]);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("run the same install again") && said.contains("uninstall control-plane demo"), "{said}");
    site.install(&[]).succeeds();
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    site.assert_same_as(&before);

    // Signals while what failed by itself is being undone: the first is answered, the second ends it.
    let fails = ["--rollback", "--image-tag", "v0.6.66"];
    let (code, said) = interrupted(&site, "-TERM", &fails, &[UNDOES, HEARD]);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("\n× Installing ") && said.contains(&format!("\n× {UNDOES}")), "{said}");
    assert!(
        said.contains("Interrupted; still undoing the changes of this run (interrupt again to stop at once)"),
        "{said}"
    );
    let way_back = "and `fleetctl rollback demo` undoes the rest";
    assert_eq!(said.lines().last(), Some(format!("{STOPPED}, {way_back}").as_str()), "{said}");
    site.fleetctl(&["rollback", "demo", "--yes"]).succeeds();
    site.assert_same_as(&before);
}

#[test]
fn a_component_that_fails_in_something_is_heard() {
    let site = Site::on("current");
    let before = site.dump();
    site.install(&[&["--set", "exposure.type=NodePort"], site.version()].concat()).succeeds();
    // As with an API server of another minor than the chart is made for: a kind that it does not serve.
    let flow =
        r#"[{"apiVersion":"flowcontrol.apiserver.k8s.io/v1beta9","kind":"FlowSchema","metadata":{"name":"of-old"}}]"#;
    let patch = serde_json::json!({"data": {"zz-old.yaml": flow}}).to_string();
    site.kubectl(&["-n", "fleet", "patch", "configmap", "fleet-bootstrap", "--type=merge", "-p", &patch]);
    site.kubectl(&["-n", "fleet", "delete", "pod", "-l", "app.kubernetes.io/name=fleet-scheduler"]);
    let mut said = String::new();
    eventually("the scheduler is heard", || {
        let status = site.fleetctl(&["status", "demo"]);
        said = status.stdout;
        said.contains("component-failing")
    });
    let line = said.lines().find(|line| line.contains("its log")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("Deployment fleet/fleet-scheduler"), "{line}");
    assert!(line.contains("its log: Bootstrapped: ApplyFailed: zz-old.yaml: FlowSchema/of-old: "), "{line}");
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    site.assert_same_as(&before);
}
