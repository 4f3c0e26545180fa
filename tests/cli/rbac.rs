//! `show rbac`: roles that can be applied, made from what is planned.

use serde_json::{Value, json};

use crate::Sandbox;
use crate::install::documents;

fn verbs(role: &Value, group: &str, resource: &str) -> Vec<String> {
    let has = |list: &Value, wanted: &str| list.as_array().is_some_and(|all| all.iter().any(|item| item == wanted));
    let rules = role["rules"].as_array().unwrap().iter();
    let ours = rules.filter(|rule| has(&rule["apiGroups"], group) && has(&rule["resources"], resource));
    ours.flat_map(|rule| rule["verbs"].as_array().unwrap()).map(|verb| verb.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_roles_follow_the_objects_of_the_values_and_grant_nothing_in_other_namespaces() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["show", "rbac", "demo", "--namespace", "planes"]);
    let roles = documents(ran.succeeds());
    assert_eq!(roles.len(), 2);
    let (cluster, namespaced) = (&roles[0], &roles[1]);
    assert_eq!((&cluster["kind"], &namespaced["kind"]), (&json!("ClusterRole"), &json!("Role")));
    assert_eq!(namespaced["metadata"]["namespace"], "planes");
    // Those of the install, then those of who renews certificates, which it gives.
    assert_eq!(verbs(namespaced, "", "secrets"), ["create", "delete", "get", "list", "patch", "get", "update"]);
    assert!(verbs(namespaced, "apps", "deployments").contains(&"watch".to_owned()));
    assert!(verbs(cluster, "", "secrets").is_empty() && verbs(cluster, "apps", "deployments").is_empty());
    assert_eq!(verbs(cluster, "", "namespaces"), ["create", "delete", "get", "patch"]);
    // Those of other values are deleted when they are planned no more.
    assert_eq!(verbs(namespaced, "policy", "poddisruptionbudgets"), ["delete", "get", "list"]);
    assert_eq!(verbs(namespaced, "autoscaling", "horizontalpodautoscalers"), ["list"]);
    // Three members of etcd come with a disruption budget.
    let several =
        documents(sandbox.run(&["show", "rbac", "demo", "--version", "v1.1", "--set", "etcd.replicas=3"]).succeeds());
    assert!(verbs(&several[1], "policy", "poddisruptionbudgets").contains(&"patch".to_owned()), "{several:?}");
    let day2 = documents(sandbox.run(&["show", "rbac", "demo", "--namespace", "planes", "--day2"]).succeeds());
    assert_eq!((day2.len(), &day2[0]["metadata"]["namespace"]), (1, &json!("planes")));
    assert_eq!(verbs(&day2[0], "", "pods/portforward"), ["create", "get"]);
    assert_eq!(verbs(namespaced, "", "pods/portforward"), [""; 0]);
    assert_eq!(verbs(&day2[0], "", "secrets"), ["create", "get", "list", "patch", "update"]);
    assert_eq!(verbs(&day2[0], "", "pods"), ["create", "delete", "get", "list"]);
    sandbox.run(&["show", "rbac"]).fails(2, &["has no name"]);
    sandbox.run(&["show"]).fails(2, &["rbac"]);
}

#[test]
fn the_roles_for_an_agent_hold_what_it_is_granted_and_reach_into_no_namespace_but_those_of_its_objects() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["show", "rbac", "agent", "west", "--namespace", "members"]);
    let roles = documents(ran.succeeds());
    let places: Vec<_> = roles.iter().map(|role| (&role["kind"], &role["metadata"]["namespace"])).collect();
    let none = json!(null);
    let (members, system) = (json!("members"), json!("kube-system"));
    let (wide, narrow) = (json!("ClusterRole"), json!("Role"));
    assert_eq!(places, [(&wide, &none), (&narrow, &members), (&narrow, &system)]);
    assert!(roles.iter().all(|role| role["metadata"]["name"] == "fleetctl-agent-west:members"));
    let [cluster, own, elsewhere] = &roles[..] else { unreachable!() };
    assert_eq!(verbs(cluster, "", "nodes"), ["list", "list", "watch"]);
    // Copies of Secrets are written anywhere, and nobody reads all Secrets at once.
    let secrets = verbs(cluster, "", "secrets");
    assert!(secrets.contains(&"patch".to_owned()), "{secrets:?}");
    assert!(["list", "watch", "deletecollection"].iter().all(|verb| !secrets.contains(&(*verb).to_owned())));
    assert!(verbs(elsewhere, "", "secrets").is_empty());
    assert!(verbs(own, "", "secrets").contains(&"update".to_owned()));
    assert_eq!(verbs(own, "autoscaling", "horizontalpodautoscalers"), ["list"]);
    assert_eq!(verbs(elsewhere, "", "configmaps"), ["get"]);
    assert_eq!(verbs(elsewhere, "rbac.authorization.k8s.io", "roles"), ["create", "delete", "get", "patch"]);
    sandbox.run(&["show", "rbac", "agent"]).fails(2, &["the workload cluster has no name"]);
}
