//! `template | kubectl apply`: the manifests alone give a control plane.

use crate::support::{Site, eventually};

#[test]
fn applied_manifests_alone_become_a_healthy_control_plane() {
    let site = Site::on("host");
    let manifests = site.manifests();
    let manifests = manifests.succeeds();
    assert_eq!(site.manifests().succeeds(), manifests, "the keys are made once");
    site.apply(manifests);

    eventually("a healthy control plane", || site.fleetctl(&["status"]).code == Some(0));
    assert!(site.hub(&["get", "crd", "-o", "name"]).contains("clusters.cluster.fleet-scheduler.io"));
    assert!(
        site.hub(&["-n", "fleet", "get", "secret", "fleet-cluster-init-kubeconfig", "-o", "name"]).contains("secret/")
    );
}
