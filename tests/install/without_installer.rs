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

    // Another identity, as of another machine, is refused whole: nothing of the running one is replaced.
    let names = ["fleet-pki", "etcd-certs", "apiserver-certs", "fleet-scheduler-kubeconfig", "fleet-kubeconfig"];
    let keys = || names.map(|name| site.secret(name));
    let before = keys();
    let elsewhere = site.home().join("elsewhere").display().to_string();
    let others = site.manifests_with(&["--pki", &elsewhere]);
    assert!(others.stderr.contains("new keys made in"), "{others:?}");
    let refused = site.apply_on_server(others.succeeds());
    assert_eq!(refused.matches("field is immutable when `immutable` is set").count(), 6, "{refused}");
    assert!(keys() == before, "keys were replaced");
    // What else is in it makes pods anew, which still have their keys.
    eventually("a healthy control plane", || site.fleetctl(&["status"]).code == Some(0));
    eventually("its API, the pods before it being gone", || {
        site.asks_hub(&["get", "crd", "-o", "name"])
            .is_ok_and(|crds| crds.contains("clusters.cluster.fleet-scheduler.io"))
    });
    // Without keys, nothing of them is in it at all.
    let bare = site.manifests_with(&["--without-keys"]);
    assert_eq!(site.apply_on_server(bare.succeeds()), "");
    assert!(keys() == before, "keys were replaced");
}
