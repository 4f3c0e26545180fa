use super::*;
use crate::api::crd::policy::SchedulePolicySpec;
use crate::placement::decide::{Current, Target, decide_group};
use crate::placement::facts::Reference;
use crate::placement::fleet::Cluster;
use crate::placement::reason::Reason;
use crate::placement::room::{Node, NodeAmounts, Promise};
use serde_json::{Value, json};

fn policy(spec: Value) -> Policy {
    let mut whole = json!({ "namespaceSelector": {}, "resourceSelectors": { "labelSelectors": [{}] } });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let spec: SchedulePolicySpec = serde_json::from_value(whole).unwrap();
    Policy::new("shop".to_owned(), None, spec).unwrap()
}

fn web(replicas: i64, cpu: &str, memory: &str) -> Facts {
    Facts::from_manifest(&json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "shop", "labels": { "app": "web" } },
        "spec": { "replicas": replicas, "template": { "spec": { "containers": [
            { "name": "c", "resources": { "requests": { "cpu": cpu, "memory": memory } } }] } } } }))
    .unwrap()
}

fn make_node_amounts(cpu: i64) -> NodeAmounts {
    [("cpu", cpu * 1000), ("memory", (16 << 30) * 1000), ("pods", 110_000)].map(|(k, v)| (k.to_owned(), v)).into()
}

fn node(name: &str, free_cpu: i64) -> Node {
    Node {
        name: name.to_owned(),
        capacity: make_node_amounts(8),
        available: make_node_amounts(free_cpu),
        ..Node::default()
    }
}

/// Clusters with nodes that have so many CPUs free.
fn fleet(clusters: &[(&str, &[i64])]) -> Fleet {
    let mut fleet = Fleet::default();
    for (name, nodes) in clusters {
        let nodes = nodes.iter().enumerate().map(|(at, free)| node(&format!("n{at}"), *free)).collect();
        let room = fleet.build_capacity(nodes, Vec::new());
        fleet.set_cluster(Cluster::new(name, room));
    }
    fleet
}

fn tainted(fleet: &mut Fleet, name: &str) {
    let taint = json!([{ "key": "gpu", "effect": "NoSchedule" }]);
    fleet.get_mut(name).unwrap().taints = serde_json::from_value(taint).unwrap();
}

fn said(policy: &Policy, objects: &[Facts], fleet: &Fleet, current: &Current) -> String {
    let group = Group::new("shop-1a2b3c4d", policy, objects);
    format_decision(policy, &group, fleet, &decide_group(policy, &group, fleet, current))
}

fn on(cluster: &str) -> Current {
    let target = Target { cluster: cluster.to_owned(), ..Target::default() };
    Current { targets: vec![target], ..Current::default() }
}

fn named_policy(name: &str, priority: i64) -> Policy {
    let mut other = policy(json!({ "priority": priority }));
    name.clone_into(&mut other.name);
    other
}

#[test]
fn a_match_names_the_losers_and_why_they_lost() {
    assert_eq!(format_matched_policy(&policy(json!({})), &[]), r#"SchedulePolicy "shop" decides (priority 0)"#);
    let mut old = policy(json!({}));
    old.created = Some(jiff::Timestamp::UNIX_EPOCH);
    let text = r#"SchedulePolicy "shop" decides (priority 0, oldest); also match: "all""#;
    assert_eq!(format_matched_policy(&old, &[&named_policy("all", 0)]), text);
    let text = r#"SchedulePolicy "shop" decides (priority 0, highest); also match: "a", "b""#;
    assert_eq!(format_matched_policy(&old, &[&named_policy("a", -1), &named_policy("b", -2)]), text);
    assert!(format_matched_policy(&policy(json!({})), &[&named_policy("z", 0)]).contains("first by name"));
    let by = policy(json!({ "groupBy": { "labelKey": "app" } }));
    assert_eq!(
        format_added_to_group("shop-1a2b3c4d", &by, &web(1, "1", "1Gi")),
        r#"In ScheduleGroup "shop-1a2b3c4d" grouped by app=web"#
    );
}

#[test]
fn a_placed_group_says_why_there_and_why_not_elsewhere() {
    let mut fleet = fleet(&[("a", &[4]), ("b", &[8, 8]), ("c", &[8]), ("d", &[8, 6])]);
    fleet.get_mut("c").unwrap().ready = false;
    let text = said(&policy(json!({})), &[web(2, "3", "1Gi")], &fleet, &Current::default());
    insta::assert_snapshot!(text, @r#"Placed on "b": most free cpu (62 %), clusters with room: 2. 2 rejected: 1 NotReady ("c"), 1 Insufficient cpu ("a": 6 requested, 4 free)"#);
}

#[test]
fn a_group_without_a_place_says_what_can_be_done() {
    let mut fleet = fleet(&[("a", &[8]), ("b", &[8, 8]), ("c", &[8]), ("d", &[8])]);
    tainted(&mut fleet, "d");
    let text = said(&policy(json!({})), &[web(3, "1", "32Gi")], &fleet, &Current::default());
    insta::assert_snapshot!(text, @r#"0 of 4 clusters: 3 Insufficient memory (best "b": 96Gi requested, 32Gi free), 1 Tainted gpu ("d"). Next: free memory, add clusterTolerations to policy "shop", or see fleetctl why deployment/web -n shop"#);
    let text = said(&policy(json!({ "suspend": true })), &[web(3, "1", "1Gi")], &fleet, &Current::default());
    assert!(text.starts_with(r#"Suspended; otherwise: Placed on "b""#), "{text}");
}

#[test]
fn a_group_that_stays_says_what_keeps_it() {
    let mut fleet = fleet(&[("a", &[8]), ("b", &[2])]);
    let all = policy(json!({}));
    assert_eq!(said(&all, &[web(2, "1", "1Gi")], &fleet, &on("a")), r#"Stays on "a""#);
    let text = said(&all, &[web(20, "1", "1Gi")], &fleet, &on("a"));
    insta::assert_snapshot!(text, @r#"Stays on "a", although it no longer fits there: no other cluster has room for the whole group, and some pods may stay Pending. 1 rejected: 1 Insufficient cpu ("b": 20 requested, 2 free)"#);
    let only_b = policy(json!({ "clusterSelector": { "matchLabels": { "kubernetes.io/metadata.name": "b" } } }));
    let text = said(&only_b, &[web(4, "1", "1Gi")], &fleet, &on("a"));
    insta::assert_snapshot!(text, @r#"Stays on "a" until another cluster is found; 0 of 2 clusters: 1 SelectorMismatch ("a"), 1 Insufficient cpu ("b": 4 requested, 2 free). Next: widen clusterSelector of policy "shop", free cpu, or see fleetctl why deployment/web -n shop"#);
    let text = said(&only_b, &[web(1, "1", "1Gi")], &fleet, &on("a"));
    insta::assert_snapshot!(text, @r#"Placed on "b", from "a": most free cpu (12 %), clusters with room: 1. 1 rejected: 1 SelectorMismatch ("a")"#);
    fleet.get_mut("b").unwrap().autoscaled = true;
    let text = said(&only_b, &[web(4, "1", "1Gi")], &fleet, &Current::default());
    assert!(text.starts_with(r#"Placed on "b", which adds nodes"#), "{text}");
}

fn policy_with_spread(constraints: &Value) -> Policy {
    policy(json!({ "spreadConstraints": constraints }))
}

#[test]
fn a_spread_group_says_who_gets_what() {
    let fleet = fleet(&[("a", &[8]), ("b", &[8])]);
    let split = json!([{ "topologyValue": "a", "percentage": 70 }, { "topologyValue": "x", "percentage": 30 }]);
    let text = said(
        &policy_with_spread(&json!({ "percentageSplit": split })),
        &[web(10, "500m", "1Gi")],
        &fleet,
        &Current::default(),
    );
    assert_eq!(text, r#"Divided: 7 on "a". Withheld: 3. Domains without a cluster: "x" NoCandidates"#);
    let text = said(&policy_with_spread(&json!({})), &[web(2, "100", "1Gi")], &fleet, &Current::default());
    assert!(text.starts_with(r#"0 of 2 clusters: 2 Insufficient cpu (best "a": 100 requested, 8 free)"#), "{text}");
    let text = said(
        &policy_with_spread(&json!({ "spreadMode": "Duplicate" })),
        &[web(1, "1", "1Gi")],
        &fleet,
        &Current::default(),
    );
    assert_eq!(text, r#"Copied to "a", "b""#);
}

#[test]
fn the_table_has_a_row_for_each_reason() {
    let mut fleet = fleet(&[("a", &[2, 2, 2, 2]), ("b", &[8]), ("c", &[8]), ("d", &[8]), ("e", &[8])]);
    tainted(&mut fleet, "c");
    for name in ["a", "b", "c"] {
        fleet.get_mut(name).unwrap().labels.insert("region".to_owned(), "east".to_owned());
    }
    let other = web(1, "3", "4Gi");
    let promise = Promise {
        group: "x".into(),
        object: ObjectKey::new("apps", "Deployment", "shop", "web-2"),
        shape: other.shape.unwrap(),
        pods: 1,
        daemon: false,
    };
    fleet.set_promises("b", vec![promise]);
    let policy = policy(json!({ "clusterSelector": { "matchExpressions": [
        { "key": "region", "operator": "In", "values": ["east"] }] } }));
    let objects = [web(2, "4", "1Gi")];
    let group = Group::new("shop-1a2b3c4d", &policy, &objects);
    let decision = decide_group(&policy, &group, &fleet, &Current::default());
    let table: Vec<String> = rejection_rows(&policy, &fleet, &decision)
        .iter()
        .map(|row| format!("{:8} {:20} {}", row.clusters.join(", "), row.reason, row.detail))
        .collect();
    insta::assert_snapshot!(table.join("\n"), @r"
    a        Fragmented           8 CPU free, at most 2 on one node; Deployment shop/web requests 4 per pod
    b        Insufficient cpu     8 requested, 8 free, 3 of that reserved for web-2
    c        Tainted gpu          NoSchedule
    d, e     SelectorMismatch     region In [east]
    ");
    assert_eq!(format_group_demand(&group, &fleet), "1 object: 8 CPU, 2Gi, 2 pods");
}

fn missing_secret(user: &ObjectKey, name: &str) -> Missing {
    Missing {
        user: user.clone(),
        reference: Reference { kind: "Secret".to_owned(), name: name.to_owned() },
        cluster: "a".to_owned(),
    }
}

#[test]
fn texts_fit_into_events() {
    let fleet = fleet(&[]);
    let mut decision =
        decide_group(&policy(json!({})), &Group::new("g", &policy(json!({})), &[]), &fleet, &Current::default());
    decision.rejected = (0..200).map(|n| (format!("c{n}").into(), Reason::Excluded(format!("é{n}").into()))).collect();
    let text = format_decision(&policy(json!({})), &Group::new("g", &policy(json!({})), &[]), &fleet, &decision);
    assert!(text.len() <= LONGEST && text.ends_with('…'), "{}", text.len());
    let user = ObjectKey::new("apps", "Deployment", "shop", "web");
    assert_eq!(
        format_missing_dependencies(&[missing_secret(&user, "db")]),
        "Secret shop/db is used by Deployment shop/web but is not placed on a"
    );
    let several: Vec<Missing> = ["a", "b", "c", "d", "e"].into_iter().map(|name| missing_secret(&user, name)).collect();
    assert!(
        format_missing_dependencies(&several)
            .ends_with("Secret shop/c is used by Deployment shop/web but is not placed on a; and 2 more")
    );
    let since = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(
        format_unschedulable(&user, "a", 3, since),
        r#"Deployment shop/web lacks minimum replicas on "a": 3 pods unschedulable since 2026-01-01T00:00:00Z"#
    );
}

#[test]
fn what_an_agent_said_is_escaped_in_every_text() {
    assert_eq!(shorten_event_text("1 pod\u{1b}[2J\nline".to_owned()), "1 pod\\u{1b}[2J\nline");
}

#[test]
fn amounts_that_are_asked_for_are_told_from_free_ones() {
    let text = r#"0 of 4 clusters: 3 Insufficient memory (best "b": 96Gi requested, 32Gi free), 1 NodeTooSmall ("c": 9 free, at most 2 on one node, 4 per pod). Next: free memory"#;
    assert_eq!(super::list_asked_amounts(text), ["96Gi", "4"]);
    assert_eq!(super::list_asked_amounts("requested"), [""; 0]);
}
