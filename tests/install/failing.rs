//! Installs that fail: refused before any write, explained, undone, resumed.

use std::time::Duration;

use crate::support::{Site, eventually};

#[test]
fn a_cluster_outside_the_row_is_refused_before_any_write() {
    let site = Site::on("new");
    let before = site.dump();
    let refused = site.install(&[]);
    refused.fails(3, &["v0.6 supports Kubernetes v1.24, v1.25", "v1.31.4", "--version"]);
    site.assert_same_as(&before);
}

#[test]
fn missing_storage_is_refused_and_explained_and_the_documented_remedy_works() {
    let site = Site::on("host");
    site.bed.remove_storage_class("host").unwrap();
    let before = site.dump();
    let refused = site.install(&[]);
    refused.fails(3, &["StorageClass", "storage provisioner", "--skip-preflight storage"]);
    assert!(refused.took < Duration::from_secs(5), "{:?}", refused.took);
    site.assert_same_as(&before);

    let stopped = site.install(&["--skip-preflight", "storage"]);
    stopped.fails(
        4,
        &[
            "Installing the API server: timed out waiting for the condition",
            "Pod fleet/etcd-0",
            "Pending",
            "PersistentVolumeClaim fleet/etcd-data-etcd-0",
            "StorageClass",
            "hint: ",
            "uninstall control-plane demo",
        ],
    );
    assert!(stopped.took < Duration::from_secs(60), "{:?}", stopped.took);

    // The specification's remedy, as written: a class, uninstall, install.
    site.bed.restore_storage_class("host").unwrap();
    site.fleetctl(&["uninstall", "control-plane", "demo"]).succeeds();
    site.install(&[]).succeeds();
    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
}

#[test]
fn a_missing_image_is_named_and_rollback_undoes_the_run() {
    let site = Site::on("host");
    let before = site.dump();
    let failed = site.install(&["--rollback", "--image-tag", "v0.6.77"]);
    failed.fails(4, &["fleet-scheduler:v0.6.77", "not found", "was undone"]);
    site.assert_same_as(&before);
    assert!(!site.fleet_folder().join("fleet-kubeconfig").exists());
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
