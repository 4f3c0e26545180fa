//! `template | kubectl apply`: the manifests alone give a control plane, and guard it as the installer would.

use crate::support::{Site, eventually};

#[test]
fn applied_manifests_alone_become_a_healthy_control_plane() {
    let site = Site::on("host");
    let manifests = site.manifests();
    let manifests = manifests.succeeds();
    assert_eq!(site.manifests().succeeds(), manifests, "the keys are made once");
    site.apply(manifests);

    eventually("a healthy control plane", || site.fleetctl(&["status"]).code == Some(0));
    let status = site.fleetctl(&["status"]);
    assert!(status.succeeds().contains("objects... applied by kubectl"), "{status:?}");
    site.fleetctl(&["upgrade", "cp", "demo"]).fails(6, &["was applied by kubectl", "template control-plane demo"]);
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
    assert!(others.stderr.contains("new keys were created in"), "{others:?}");
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
    holds_back_an_api_server_of_another_minor(&site);
}

/// Nobody refuses what `kubectl apply` applies: the pod of the API server does, and the one of before serves on.
fn holds_back_an_api_server_of_another_minor(site: &Site) {
    let record = ["-n", "kube-system", "get", "configmap", "fleet-kubernetes-version", "-o", "jsonpath={.data.record}"];
    eventually("the record of the minor", || site.asks_hub(&record).is_ok_and(|record| record == "kubernetes=v1.36;"));
    // The pods of the change before have gone.
    let of_api_server = ["-n", "fleet", "get", "pods", "-l", "app.kubernetes.io/name=apiserver", "-o", "name"];
    eventually("one API server", || site.kubectl(&of_api_server).lines().count() == 1);
    site.hub(&["create", "configmap", "keep-me", "--from-literal", "a=b"]);
    for (tag, reason) in [
        ("v1.38.0", "Kubernetes v1.38 is more than one minor newer than v1.36"),
        ("v1.31.4", "Kubernetes v1.31 is older than v1.36"),
    ] {
        let image = format!("apiserver.image.tag={tag},controllerManager.image.tag={tag}");
        site.apply_on_server(site.manifests_with(&["--without-keys", "--set", &image]).succeeds());
        eventually("the cause", || {
            let status = site.fleetctl(&["status", "demo"]);
            status.stdout.contains("version-guard") && status.stdout.contains(reason)
        });
        assert_eq!(site.hub(&["get", "configmap", "keep-me", "-o", "jsonpath={.data.a}"]), "b", "under {tag}");
        let ready = "jsonpath={.status.readyReplicas} of image {.spec.template.spec.containers[0].image}";
        let ready = site.kubectl(&["-n", "fleet", "get", "deployment", "apiserver", "-o", ready]);
        assert!(ready.starts_with("1 of image ") && ready.ends_with(tag), "{ready}");
    }
    site.apply_on_server(site.manifests_with(&["--without-keys"]).succeeds());
    eventually("a healthy control plane", || site.fleetctl(&["status"]).code == Some(0));
    assert_eq!(site.hub(&record), "kubernetes=v1.36;");
}
