//! `template | kubectl apply`: the manifests alone give a control plane.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{Site, eventually};

#[test]
fn applied_manifests_alone_become_a_healthy_control_plane() {
    let site = Site::on("host");
    let node = site.bed.node_ip("host").unwrap();
    let preset = concat!(env!("CARGO_MANIFEST_DIR"), "/values/nodeport.yaml");
    let host = format!("exposure.host={node}");
    let args = ["template", "cp", "demo", "--values", preset, "--set", &host];
    let manifests = site.fleetctl(&args);
    let manifests = manifests.succeeds();
    assert_eq!(site.fleetctl(&args).succeeds(), manifests, "the keys are made once");

    let mut kubectl = Command::new(site.bed.kubectl_path().unwrap())
        .arg("--kubeconfig")
        .arg(&site.kubeconfig)
        .args(["apply", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    kubectl.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
    assert!(kubectl.wait_with_output().unwrap().status.success());

    eventually("a healthy control plane", || site.fleetctl(&["status"]).code == Some(0));
    assert!(site.hub(&["get", "crd", "-o", "name"]).contains("clusters.cluster.fleet-scheduler.io"));
    assert!(
        site.hub(&["-n", "fleet", "get", "secret", "fleet-cluster-init-kubeconfig", "-o", "name"]).contains("secret/")
    );
}
