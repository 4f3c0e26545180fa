//! Installs that fail: refused before any write, interrupted, undone, resumed. The failures that the specification names are
//! in `specification`.

use crate::support::{Site, eventually};

#[test]
fn a_cluster_outside_the_row_is_refused_before_any_write() {
    let site = Site::on("new");
    let before = site.dump();
    let refused = site.install(&[]);
    refused.fails(3, &["v0.6 supports Kubernetes v1.24, v1.25", "v1.31.4", "--version v1.1"]);
    site.assert_same_as(&before);

    // The flag that the error names.
    let installed = site.install(&["--version", "auto"]);
    assert!(installed.succeeds().contains("Control plane demo is healthy"), "{installed:?}");
    assert!(installed.stderr.contains("service version v1.1.0"), "{installed:?}");
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    site.assert_same_as(&before);
}

/// Starts an install and interrupts it once the API server's Deployment is there.
fn interrupted(site: &Site, more: &[&str]) -> (Option<i32>, String) {
    let child = site.command(&[&["install", "cp", "demo"], more].concat()).spawn().unwrap();
    eventually("the StatefulSet etcd", || {
        site.bed
            .kubectl("host", &["-n", "fleet", "get", "statefulset", "etcd", "--ignore-not-found", "-o", "name"])
            .is_ok_and(|found| !found.is_empty())
    });
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn an_interrupted_install_says_how_to_go_on_and_is_resumed_or_undone() {
    let site = Site::on("host");
    let before = site.dump();
    let (code, said) = interrupted(&site, &["--rollback"]);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("was undone"), "{said}");
    site.assert_same_as(&before);

    let (code, said) = interrupted(&site, &[]);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("run the same install again") && said.contains("uninstall control-plane demo"), "{said}");
    site.install(&[]).succeeds();
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    site.assert_same_as(&before);
}
