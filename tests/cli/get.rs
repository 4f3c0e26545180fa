//! `get`: where it looks.

use serde_json::json;

use crate::Sandbox;
use crate::server::{forbidden, list, not_found, serve, use_cluster};

#[test]
fn deployments_are_those_of_the_namespace_that_was_given_be_it_the_default_of_other_commands() {
    let sandbox = Sandbox::new();
    // One deployment, named after the namespace that was asked for.
    let server = serve(|_, path| {
        let namespace = path.trim_start_matches("/apis/apps/v1/namespaces/").split('/').next().unwrap();
        list(&[json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": namespace},
            "spec": {"selector": {}, "template": {}}})])
    });
    use_cluster(&sandbox, &server);
    let named = |args: &[&str]| {
        let ran = sandbox.run(&[&["get", "deployments", "-o", "name"], args].concat());
        ran.succeeds().trim().trim_start_matches("deployment.apps/").to_owned()
    };
    assert_eq!(named(&[]), "default", "the namespace of the context");
    assert_eq!(named(&["-n", "shop"]), "shop");
    assert_eq!(named(&["-n", "fleet"]), "fleet");
    let before = sandbox.run(&["--namespace", "fleet", "get", "deployments", "-o", "name"]);
    assert_eq!(before.succeeds(), "deployment.apps/fleet\n");
}

#[test]
fn the_nodes_of_a_large_cluster_are_shown_from_its_reports_and_its_sums_where_those_cannot_be_read() {
    let sandbox = Sandbox::new();
    let server = serve(|_, path| {
        let path = path.split('?').next().unwrap();
        let cluster = |name: &str| {
            json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
                "spec": {"name": name}, "status": {"observed": {"nodeCount": 250, "totals": {"cpu": "1000"}}}})
        };
        let report = |index: usize| {
            let node = format!("node-of-report-{index}");
            json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "ClusterReport",
                "metadata": {"name": format!("nodes-{index}")},
                "spec": {"availableResources": {node.clone(): {"cpu": "399m"}}, "capacityResources": {},
                    "nodeTaints": {node: [{"key": "k", "value": format!("v{index}"), "effect": "NoSchedule"}]}}})
        };
        match path {
            "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters" => list(&[cluster("large"), cluster("closed")]),
            "/apis/cluster.fleet-scheduler.io/v1alpha1/namespaces/fleet-c-large/clusterreports" => {
                list(&[report(0), report(1)])
            }
            _ => forbidden(),
        }
    });
    use_cluster(&sandbox, &server);
    let ran = sandbox.run(&["get", "clusters"]);
    let shown = ran.succeeds();
    for part in ["node-of-report-0 ", "node-of-report-1 ", "399m", "    - k:v0:NoSchedule", "    - k:v1:NoSchedule"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let sums: Vec<_> = shown.lines().filter(|line| line.contains("all 250 nodes together")).collect();
    assert!(sums.len() == 1 && sums[0].contains("1000"), "{shown}");
    assert!(ran.stderr.contains("the nodes of the large cluster closed cannot be listed"), "{}", ran.stderr);
}

#[test]
fn one_cluster_that_was_asked_for_by_name_is_an_object_and_all_of_them_are_a_list() {
    let sandbox = Sandbox::new();
    let west = || {
        json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "west"},
            "spec": {"name": "west"}})
    };
    let server = serve(move |_, path| match path.split('?').next().unwrap() {
        "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters" => list(&[west()]),
        "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters/west" => (200, west()),
        _ => forbidden(),
    });
    use_cluster(&sandbox, &server);
    let kind = |args: &[&str]| {
        let shown = sandbox.run(&[&["get", "clusters", "-o", "json"], args].concat());
        let shown: serde_json::Value = serde_json::from_str(shown.succeeds()).unwrap();
        shown["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(kind(&["west"]), "Cluster");
    assert_eq!(kind(&[]), "List");
    assert!(sandbox.run(&["get", "clusters", "west", "-o", "yaml"]).succeeds().contains("kind: Cluster\n"));
    assert_eq!(
        sandbox.run(&["get", "clusters", "west", "-o", "name"]).succeeds(),
        "cluster.cluster.fleet-scheduler.io/west\n"
    );
}

#[test]
fn clusters_whose_agents_report_nonsense_are_listed_beside_the_others() {
    let sandbox = Sandbox::new();
    let server = serve(|_, path| {
        let cluster = |name: &str, available: serde_json::Value| {
            json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
                "spec": {"name": name}, "status": {"availableResources": available}})
        };
        match path.split('?').next().unwrap() {
            "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters" => {
                list(&[cluster("bad", json!({"n": 5})), cluster("good", json!({"node-of-good": {"cpu": "399m"}}))])
            }
            _ => forbidden(),
        }
    });
    use_cluster(&sandbox, &server);
    let shown = sandbox.run(&["get", "clusters"]).succeeds().to_owned();
    assert!(shown.contains("| bad ") && shown.contains("node-of-good "), "{shown}");
}

#[test]
fn where_there_is_no_control_plane_no_cluster_is_said_to_be_unknown_or_deleted() {
    let sandbox = Sandbox::new();
    use_cluster(&sandbox, &serve(|_, _| not_found()));
    for args in
        [&["get", "clusters"][..], &["get", "clusters", "west"], &["accept", "west"], &["delete", "cluster", "west"]]
    {
        sandbox.run(args).fails(1, &["this API server has no resource `clusters`", "--context NAME"]);
    }
    // A control plane that knows none of this name.
    use_cluster(&sandbox, &serve(|_, path| if path.contains("/clusters/west") { not_found() } else { list(&[]) }));
    sandbox
        .run(&["get", "clusters", "west", "--context", "hosting"])
        .fails(1, &["no workload cluster `west` is registered", "`fleetctl get clusters --context hosting`"]);
    sandbox
        .run(&["accept", "west", "--context", "hosting"])
        .fails(1, &["no pending registration", "`fleetctl get clusters -o wide --context hosting`"]);
    let file = sandbox.path().join(".kube/config").display().to_string();
    sandbox
        .run(&["accept", "west", "--kubeconfig", &file])
        .fails(1, &[&format!("`fleetctl get clusters -o wide --kubeconfig {file}`")]);
    let ran = sandbox.run(&["delete", "cluster", "west"]);
    assert_eq!(ran.succeeds(), "No workload cluster west is registered; nothing to delete.\n");
}

#[test]
fn who_would_delete_a_cluster_that_is_alive_is_told_to_uninstall_its_agent_in_the_other_cluster() {
    let sandbox = Sandbox::new();
    let ready = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": ""});
    // Its agent has written what this program has no time for.
    let written = json!([{"manager": "fleet-agent", "operation": "Update", "time": "9999-12-31T23:59:59Z"}]);
    let west = json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "west", "managedFields": written},
        "spec": {"name": "west"}, "status": {"conditions": [ready]}});
    use_cluster(&sandbox, &serve(move |_, _| (200, west.clone())));
    assert_eq!(sandbox.run(&["accept", "west"]).succeeds(), "Workload cluster west is already accepted.\n");
    let ran = sandbox.run(&["delete", "cluster", "west", "--context", "hosting"]);
    ran.fails(6, &["needs confirmation", "`fleetctl uninstall agent west --context CONTEXT`"]);
}
