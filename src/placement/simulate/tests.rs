use serde_json::{Value, json};

use super::*;
use crate::api::{Cluster, Schedule, ScheduleGroup, SchedulePolicy};
use crate::placement::moves::MoveCause;

/// The time at which the fleets were read.
const READ: i64 = 2_000_000_000;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn cluster(name: &str, cpu: &str) -> Cluster {
    let nodes = json!({"n": {"cpu": cpu, "memory": "64Gi", "pods": "110"}});
    read(json!({"metadata": {"name": name, "uid": name}, "spec": {"name": name, "accepted": true},
        "status": {"capacityResources": nodes, "availableResources": nodes,
            "conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady"}]}}))
}

fn policy(more: &Value) -> SchedulePolicy {
    let mut spec = json!({"namespaceSelector": {}, "resourceSelectors": {"labelSelectors": [{}]}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    read(json!({"metadata": {"name": "all", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}))
}

fn web(at: usize) -> SourceObject {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}});
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": format!("web{at}"), "namespace": "shop", "uid": "u"},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}}});
    SourceObject::from_manifest(&manifest).unwrap()
}

fn schedule(cluster: &str, at: usize, group: &str) -> Schedule {
    read(json!({"metadata": {"name": format!("web{at}"), "namespace": format!("fleet-c-{cluster}")},
        "spec": {"manifest": "", "hash": "", "group": group, "sourceRef": {"group": "apps", "version": "v1",
            "kind": "Deployment", "namespace": "shop", "name": format!("web{at}"), "uid": "", "generation": 0}},
        "status": {"observedHash": "", "epoch": 0, "available": 1, "served": 1,
            "pods": {"desired": 1, "bound": 1, "counted": 1}}}))
}

/// A fleet of clusters with 8 CPU each, in which `web0` runs in `a`, and its record has more fields.
fn fleet(clusters: &[&str], more: &Value, record: &Value) -> FleetState {
    let mut state = FleetState {
        clusters: clusters.iter().map(|name| cluster(name, "8")).collect(),
        policies: vec![policy(more)],
        objects: vec![web(0)],
        ..FleetState::default()
    };
    state.set_missing_ages();
    let empty = simulate(&FleetState::default(), &state, &Asked::default());
    let name = &empty.placements[0].name;
    let mut status = json!({"scheduled": true, "targetClusters": ["a"], "target": {"a": 1}, "epoch": 1});
    status.as_object_mut().unwrap().extend(record.as_object().unwrap().clone());
    let group: ScheduleGroup = read(json!({"metadata": {"name": name},
        "spec": {"policy": {"name": "all"}, "key": group_key(&state)}, "status": status}));
    state.groups.push(group);
    state.schedules.push(schedule("a", 0, name));
    state.strip_at(READ);
    state
}

fn group_key(state: &FleetState) -> String {
    let policy = crate::placement::matching::Policy::from_schedule_policy(&state.policies[0]).unwrap();
    crate::placement::names::GroupKey::new(&state.objects[0].facts, &policy).to_spec_key()
}

/// Returns where `web0` goes and why, and the reason of its group.
fn ask(before: &FleetState, state: &FleetState) -> (Vec<String>, Option<MoveCause>, String) {
    let outcome = simulate(before, state, &Asked::default());
    let placement = &outcome.placements[0];
    let targets = placement.targets.iter().map(|target| target.cluster.clone()).collect();
    (targets, outcome.moves.first().and_then(|one| one.cause), placement.reason.clone())
}

fn lose(before: &FleetState, names: &[&str]) -> FleetState {
    let mut state = before.clone();
    for name in names {
        state.mark_cluster_lost(name);
    }
    state.freeze_by_losses(names.len());
    state
}

#[test]
fn a_lost_cluster_is_left_only_where_its_policy_says_so() {
    let before = fleet(&["a", "b"], &json!({}), &json!({}));
    assert_eq!(ask(&before, &before), (vec!["a".to_owned()], None, "Placed".to_owned()));
    assert_eq!(ask(&before, &lose(&before, &["a"])), (vec!["a".to_owned()], None, "Placed".to_owned()));
    let before = fleet(&["a", "b"], &json!({"failover": {"enabled": true, "afterSeconds": 300}}), &json!({}));
    let moved = (vec!["b".to_owned()], Some(MoveCause::Failover), "Placed".to_owned());
    assert_eq!(ask(&before, &lose(&before, &["a"])), moved);
}

#[test]
fn nothing_moves_while_most_clusters_are_lost() {
    let failover = json!({"failover": {"enabled": true, "afterSeconds": 300}});
    let before = fleet(&["a", "b", "c", "d", "e"], &failover, &json!({}));
    let lost = lose(&before, &["a", "b", "c"]);
    assert_eq!(ask(&before, &lost), (vec!["a".to_owned()], None, "Frozen".to_owned()));
    let outcome = simulate(&before, &lost, &Asked::default());
    assert!(outcome.placements[0].message.starts_with("Stays on a: it would move (failover)"), "{outcome:?}");
    assert_eq!(ask(&before, &lose(&before, &["a", "b"])).1, Some(MoveCause::Failover), "two may be dead");
}

#[test]
fn a_move_under_way_ends_where_its_cause_is_gone() {
    let running = json!({"target": {"b": 1}, "move": {"phase": "Up", "from": {"a": 1}, "to": {"b": 1},
        "uids": {"a": "a", "b": "b"}, "cause": "drain", "since": 1, "deadline": 601, "consent": false}});
    let mut before = fleet(&["a", "b"], &json!({}), &running);
    assert_eq!(ask(&before, &before).0, ["a"], "nobody drains it any more");
    before.clusters[0].spec.taints = read(json!([{"key": "old", "effect": "NoExecute"}]));
    assert_eq!(ask(&before, &before), (vec!["b".to_owned()], Some(MoveCause::Drain), "Placed".to_owned()));
}

#[test]
fn a_cluster_that_is_left_out_is_not_chosen_before_others() {
    for (until, expected) in [(READ + 60, "c"), (READ - 60, "b")] {
        let record = json!({"excluded": [{"cluster": "b", "uid": "b", "reason": "MoveFailed", "until": until}]});
        let mut state = fleet(&["a", "b", "c"], &json!({}), &record);
        state.clusters[0].spec.taints = read(json!([{"key": "old", "effect": "NoExecute"}]));
        state.clusters[1] = cluster("b", "16");
        assert_eq!(ask(&state, &state).0, [expected], "{until}");
    }
}

#[test]
fn copies_that_go_without_a_move_are_counted() {
    let mut state = FleetState {
        clusters: ["a", "b", "c"].map(|name| cluster(name, "8")).to_vec(),
        policies: vec![policy(&json!({"spreadConstraints": {"spreadMode": "Duplicate"}}))],
        objects: (0..12).map(web).collect(),
        ..FleetState::default()
    };
    state.set_missing_ages();
    for placement in simulate(&FleetState::default(), &state, &Asked::default()).placements {
        let at = placement.objects.first().unwrap().rsplit("web").next().unwrap().parse().unwrap();
        for target in &placement.targets {
            state.schedules.push(schedule(&target.cluster, at, &placement.name));
        }
    }
    let mut edited = state.clone();
    edited.clusters[1].metadata.labels = Some([("out".to_owned(), "yes".to_owned())].into());
    let selector = json!({"matchExpressions": [{"key": "out", "operator": "DoesNotExist"}]});
    edited.policies =
        vec![policy(&json!({"spreadConstraints": {"spreadMode": "Duplicate"}, "clusterSelector": selector}))];
    let outcome = simulate(&state, &edited, &Asked::default());
    assert_eq!(outcome.removals.by_cluster, [("b".to_owned(), 12)].into(), "{outcome:?}");
    assert_eq!((outcome.removals.copies, outcome.removals.is_mass), (36, true));
    assert!(outcome.notes[0].starts_with("12 of 36 copies would be removed"), "{:?}", outcome.notes);
    let asked = Asked { objects: edited.objects.iter().map(|one| one.facts.key.clone()).collect(), ..Asked::default() };
    assert!(!simulate(&state, &edited, &asked).removals.is_mass, "their owners edited them");
}
