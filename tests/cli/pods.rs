//! `logs`, `exec`, `port-forward`, `top`: which cluster and context are found, and what is handed over to kubectl.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::server::{list, not_found, serve, with_kubeconfig};
use crate::{Ran, Sandbox};

/// A kubeconfig with a control plane `demo` that has placed things, and contexts for its clusters.
///
/// `west` is reached by a context of another name; the context that is called `west` leads elsewhere.
fn fleet() -> Sandbox {
    let plane = serve(|_, path| {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let deployment = |name: &str| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
                "spec": {"selector": {"matchLabels": {"app": name}}, "template": {}}})
        };
        let schedule = |object: &str, cluster: &str| {
            json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
                "metadata": {"name": object, "namespace": format!("fleet-c-{cluster}")},
                "spec": {"manifest": "{}", "hash": "h", "sourceRef": {"group": "apps", "version": "v1",
                    "kind": "Deployment", "namespace": "shop", "name": object, "uid": "u"}}})
        };
        let cluster = |name: &str| {
            json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
                "spec": {"name": name, "clusterID": format!("id-of-{name}")}})
        };
        match path {
            "/apis/apps/v1/namespaces/shop/deployments/web" => (200, deployment("web")),
            "/apis/apps/v1/namespaces/shop/deployments/spread" => (200, deployment("spread")),
            "/apis/apps/v1/namespaces/shop/deployments/lost" => (200, deployment("lost")),
            "/apis/apps/v1/namespaces/shop/deployments/nowhere" => (200, deployment("nowhere")),
            "/apis/cluster.fleet-scheduler.io/v1alpha1/schedules" => {
                let all = [("web", "west"), ("spread", "east"), ("spread", "west"), ("lost", "north")];
                let asked = all.iter().filter(|(object, _)| query.contains(&format!("deployment.shop.{object}-")));
                list(&asked.map(|(object, cluster)| schedule(object, cluster)).collect::<Vec<Value>>())
            }
            "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters/west" => (200, cluster("west")),
            "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters/east" => (200, cluster("east")),
            "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters/north" => (200, cluster("north")),
            _ => not_found(),
        }
    });
    let member = |id: &'static str| {
        serve(move |_, path| match path {
            "/api/v1/namespaces/kube-system" => {
                (200, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": id}}))
            }
            _ => not_found(),
        })
    };
    let servers =
        [("demo", plane), ("west", member("other")), ("prod-1", member("id-of-west")), ("east", member("id-of-east"))];
    let entries = |what: &str, entry: &dyn Fn(&str) -> Value| -> Vec<Value> {
        servers
            .iter()
            .map(|(name, server)| json!({"name": name, what: entry(if what == "cluster" { server } else { name })}))
            .collect()
    };
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "demo",
        "clusters": entries("cluster", &|server| json!({"server": server})),
        "contexts": entries("context", &|name| json!({"cluster": name, "user": name})),
        "users": entries("user", &|_| json!({}))});
    let sandbox = Sandbox::new();
    with_kubeconfig(&sandbox, &kubeconfig.to_string());
    let kubectl = sandbox.file("kubectl", "#!/bin/sh\nprintf '%s\\n' \"$*\"\nexit 3\n");
    std::fs::set_permissions(kubectl, std::fs::Permissions::from_mode(0o755)).unwrap();
    sandbox
}

/// A run with the kubectl of the sandbox.
fn run(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let path = format!("{}:/usr/bin:/bin", sandbox.path().display());
    Ran::of(sandbox.command().env("PATH", path).args(args).args(["-n", "shop", "--context", "demo"]).output().unwrap())
}

#[test]
fn kubectl_runs_in_the_cluster_with_the_users_own_context_and_its_exit_code_is_kept() {
    let sandbox = fleet();
    let mut logs = vec!["logs", "deploy/web", "--follow", "--tail=-1"];
    let ran = run(&sandbox, &logs);
    assert_eq!(ran.stdout, "--context prod-1 --namespace shop logs deploy/web --follow --tail=-1\n");
    assert_eq!(ran.code, 3, "{ran:?}");
    logs.splice(2.., ["--cluster", "west", "--quiet"]);
    assert_eq!(run(&sandbox, &logs).stderr, "");
    let exec = Ran::of(
        sandbox
            .command()
            .env("PATH", format!("{}:/usr/bin:/bin", sandbox.path().display()))
            .args(["exec", "deploy/web", "-n", "shop", "--context", "demo", "-it", "--", "sh", "-c", "ls"])
            .output()
            .unwrap(),
    );
    assert_eq!(exec.stdout, "--context prod-1 --namespace shop exec deploy/web --stdin --tty -- sh -c ls\n");
    let forward = run(&sandbox, &["port-forward", "deploy/web", "8080:80"]);
    assert_eq!(forward.stdout, "--context prod-1 --namespace shop port-forward deploy/web 8080:80\n");
    let top = run(&sandbox, &["top", "deploy/web"]);
    assert_eq!(top.stdout, "--context prod-1 --namespace shop top pods --selector=app=web\n");
}

#[test]
fn what_runs_in_several_clusters_or_none_is_said() {
    let sandbox = fleet();
    run(&sandbox, &["logs", "deploy/spread"])
        .fails(2, &["runs in several workload clusters: east, west", "--cluster east"]);
    let east = run(&sandbox, &["logs", "deploy/spread", "--cluster", "east"]);
    assert_eq!(east.stdout, "--context east --namespace shop logs deploy/spread\n");
    run(&sandbox, &["logs", "deploy/spread", "--cluster", "north"])
        .fails(1, &["does not run in workload cluster north", "it runs in: east, west"]);
    run(&sandbox, &["logs", "deploy/nowhere"])
        .fails(1, &["runs in no workload cluster", "fleetctl why deploy/nowhere", "--context demo"]);
    run(&sandbox, &["logs", "deploy/absent"]).fails(1, &["there is no Deployment shop/absent"]);
    run(&sandbox, &["logs", "web"]).fails(2, &["expected KIND/NAME"]);
}

#[test]
fn top_needs_an_object_with_pods_of_its_own() {
    let sandbox = fleet();
    run(&sandbox, &["top", "cronjob/nightly"])
        .fails(2, &["top works with kinds that have their own pods; name one of its Jobs"]);
    run(&sandbox, &["top", "configmap/settings"]).fails(2, &["`configmap/settings` has no pods of its own"]);
}

#[test]
fn a_context_that_leads_elsewhere_is_not_used() {
    let sandbox = fleet();
    run(&sandbox, &["logs", "deploy/lost"]).fails(
        1,
        &[
            "none of the 3 contexts in your kubeconfig is for workload cluster north",
            "id-of-north",
            "--cluster-context CONTEXT",
        ],
    );
    run(&sandbox, &["logs", "deploy/web", "--cluster-context", "west"])
        .fails(6, &["context `west` is not for workload cluster west"]);
    let named = run(&sandbox, &["logs", "deploy/web", "--cluster-context", "prod-1"]);
    assert!(named.stdout.starts_with("--context prod-1"), "{named:?}");
}
