//! What a scheduler finds that earlier versions have made: groups over all namespaces, short names, copies of what is the
//! service's own.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::decide::Decided;
use super::group_plan;
use super::object_plan;
use super::plan::Plan;
use super::regroup;
use super::sources::{Change, Seen};
use super::store::{Assignment, Store};
use super::write::{Write, Written};
use crate::api::labels::cluster_namespace;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::{self, Kinds};
use crate::api::{Schedule, ScheduleGroup, SchedulePolicy};
use crate::placement::decide::Target;
use crate::placement::facts::ObjectKey;
use crate::placement::names::schedule_name;

/// The state of a control plane, with what its watches bring.
struct Hub {
    store: Store,
    now: Instant,
}

impl Hub {
    fn new() -> Self {
        let store = Store::new(Kinds::default(), false).with_own_namespace("prod-cp".to_owned());
        Self { store, now: Instant::now() }
    }

    fn apply(&mut self, kind: &str, mut body: Value) {
        let group = if kind == "Deployment" { "apps" } else { "" };
        let kind = placeable::find_builtin_kind(group, kind).unwrap();
        body["metadata"]["uid"] = json!(format!("{}-{}", kind.kind, body["metadata"]["name"].as_str().unwrap()));
        body["metadata"]["resourceVersion"] = json!("1");
        let raw: Raw = serde_json::from_value(body).unwrap();
        // As a plan reads it: of what has no place yet a watch keeps the facts alone.
        self.store.on_fetched(kind, raw, self.now);
    }

    fn config_map(&mut self, namespace: &str, name: &str, labels: &Value) {
        self.apply("ConfigMap", json!({"metadata": {"name": name, "namespace": namespace, "labels": labels}}));
    }

    fn deployment(&mut self, namespace: &str, name: &str, labels: &Value) {
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let template = json!({"spec": {"containers": [{"name": "web", "image": "web"}]}});
        self.apply("Deployment", json!({"metadata": metadata, "spec": {"replicas": 1, "template": template}}));
    }

    fn policy(&mut self, group_by: &Value) {
        let policy: SchedulePolicy = serde_json::from_value(json!({
            "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
            "metadata": {"name": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"namespaceSelector": {}, "resourceSelectors": {"labelSelectors": [{}],
                "kinds": [{"group": "", "kind": "ConfigMap"}, {"group": "apps", "kind": "Deployment"}]}, "groupBy": group_by},
        }))
        .unwrap();
        self.store.apply_change(Change::Policy(Seen::There(policy)), self.now);
        self.store.mark_all(self.now);
    }

    fn schedule(&mut self, schedule: Schedule) {
        self.store.apply_change(Change::Schedule(Seen::There(schedule)), self.now);
    }

    /// Applies the answers to what a plan writes.
    fn answer(&mut self, plan: &Plan) {
        for write in plan.stages.iter().flatten() {
            let written = match write {
                Write::Group(group) => Written::Group(group.clone()),
                Write::Regroup { cluster, name, group, .. } => {
                    let at = (cluster_namespace(cluster), name.clone());
                    let mut schedule = self.store.schedules[&at].clone();
                    schedule.spec.group = Some(group.clone());
                    Written::Schedule(Box::new(schedule))
                }
                other => panic!("{other:?}"),
            };
            self.store.on_written(written, self.now);
        }
    }

    /// The Schedules that a plan makes, as the API server would hold them.
    fn made(plan: &Plan) -> Vec<Schedule> {
        let schedules = plan.stages.iter().flatten().filter_map(|write| match write {
            Write::Schedule(schedule, _) => Some((**schedule).clone()),
            _ => None,
        });
        schedules
            .map(|mut schedule| {
                schedule.metadata.uid = Some(format!("uid of {}", schedule.name_any()));
                schedule
            })
            .collect()
    }

    /// Plans a group that is decided for east.
    fn plan_placed(&self, group: &str) -> Plan {
        group_plan::plan_group(&self.store, group, Some(&placed("east")), time())
    }

    fn plan_core_object(&self, kind: &str, namespace: &str, name: &str) -> Plan {
        object_plan::plan_object(&self.store, &ObjectKey::new("", kind, namespace, name), None)
    }

    fn group_of(&self, namespace: &str, name: &str) -> String {
        match self.store.assignments.get(&deployment(namespace, name)) {
            Some(Assignment::Group(group)) => group.clone(),
            other => panic!("{other:?}"),
        }
    }
}

fn config_map(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new("", "ConfigMap", namespace, name)
}

fn deployment(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new("apps", "Deployment", namespace, name)
}

/// A decision for one cluster.
pub(super) fn placed(cluster: &str) -> Decided {
    Decided {
        scheduled: true,
        suspended: false,
        kept: true,
        waits: false,
        reason: "Placed".to_owned(),
        message: String::new(),
        targets: vec![Target { cluster: cluster.to_owned(), ..Target::default() }],
        withheld: 0,
        rows: Vec::new(),
        domains: Vec::new(),
        proposed: Vec::new(),
        record: crate::api::crd::group::DecisionRecord::default(),
    }
}

/// The name that an earlier version gave the Schedule.
fn old_name(key: &ObjectKey) -> String {
    let name = schedule_name(key);
    name[..name.len() - 24].to_owned()
}

/// The group as an earlier version made it, over all namespaces.
fn old_group(members: &[(&str, &str)]) -> ScheduleGroup {
    let references: Vec<Value> = members
        .iter()
        .map(|(namespace, name)| json!({"group": "apps", "version": "v1", "kind": "Deployment", "namespace": namespace, "name": name}))
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup",
        "metadata": {"name": "shop-6719e33a", "uid": "g1", "resourceVersion": "1",
            "labels": {"app": "web", "fleet-scheduler.io/target-cluster": "east"}},
        "spec": {"policy": {"name": "shop"}, "key": "label/app/web"},
        "status": {"scheduled": true, "targetClusters": ["east"], "objectRefs": references,
            "conditions": [{"type": "Scheduled", "status": "True", "reason": "Placed", "message": "as decided",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "decision": {"how": "Room", "candidates": 2, "policyHash": "h"}},
    }))
    .unwrap()
}

/// A hub with two objects of one label value in two namespaces, each with a copy in `east`, all as an earlier version made it.
fn before() -> Hub {
    let mut hub = Hub::new();
    let of_web = json!({"app": "web"});
    for namespace in ["a", "b"] {
        hub.apply("Namespace", json!({"metadata": {"name": namespace}}));
        hub.deployment(namespace, "page", &of_web);
    }
    hub.policy(&json!({"labelKey": "app"}));
    let groups = ["a", "b"].map(|namespace| hub.group_of(namespace, "page"));
    assert_ne!(groups[0], groups[1], "a group stays in its namespace");
    for group in &groups {
        for mut schedule in Hub::made(&group_plan::plan_group(
            &hub.store,
            group,
            Some(&placed("east")),
            "2026-01-01T00:00:00Z".parse().unwrap(),
        )) {
            let source = &schedule.spec.source_ref;
            let key = crate::placement::live::source_key(source);
            schedule.metadata.name = Some(old_name(&key));
            if key.kind() == "Deployment" {
                schedule.spec.group = Some("shop-6719e33a".to_owned());
            }
            hub.schedule(schedule);
        }
    }
    hub.store.apply_change(Change::Group(Seen::There(old_group(&[("a", "page"), ("b", "page")]))), hub.now);
    hub
}

fn time() -> k8s_openapi::jiff::Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

#[test]
fn groups_of_one_namespace_take_over_from_the_one_over_all() {
    let mut hub = before();
    let [a, b] = ["a", "b"].map(|namespace| hub.group_of(namespace, "page"));
    let schedules = hub.store.schedules.clone();
    assert_eq!(schedules.len(), 4, "two objects and two namespaces");
    for (group, namespace, other) in [(&a, "a", &b), (&b, "b", &a)] {
        let plan = regroup::plan_regroup(&hub.store, group).expect("it takes over");
        let [record, relabelled] = &plan.stages[..] else { panic!("{plan:?}") };
        let [Write::Group(new)] = &record[..] else { panic!("{record:?}") };
        assert_eq!((new.name_any(), new.spec.key.as_str()), (group.clone(), &*format!("label/app/web/{namespace}")));
        let (old, new) = (hub.store.groups["shop-6719e33a"].status.clone().unwrap(), new.status.clone().unwrap());
        assert_eq!(new.target_clusters, ["east"]);
        assert_eq!((new.conditions, new.decision, new.scheduled), (old.conditions, old.decision, true));
        let names: Vec<_> = new.object_refs.iter().map(|one| one.namespace.as_deref().unwrap()).collect();
        assert_eq!(names, [namespace], "its own members alone");
        assert!(matches!(&relabelled[..], [Write::Regroup { group: to, .. }] if to == group), "{relabelled:?}");
        let gone = group_plan::plan_group(&hub.store, "shop-6719e33a", None, time());
        assert!(gone.stages.is_empty(), "{other} or {group} has not taken over");
        hub.answer(&plan);
        assert!(regroup::plan_regroup(&hub.store, group).is_none(), "once");
    }
    let gone = group_plan::plan_group(&hub.store, "shop-6719e33a", None, time());
    assert!(matches!(&gone.stages[..], [stage] if matches!(&stage[..], [Write::RemoveGroup { .. }])), "{gone:?}");
    // Everything but the group is as it was, and nothing is to be written.
    for (at, new) in &hub.store.schedules {
        let mut old = schedules[at].clone();
        old.spec.manifest.clear();
        let is_namespace = old.spec.source_ref.kind == "Namespace";
        assert!(is_namespace || old.spec.group != new.spec.group);
        let mut new = new.clone();
        new.spec.group = old.spec.group.clone();
        new.spec.manifest.clear();
        assert_eq!(old, new);
    }
    for group in [&a, &b] {
        let next = hub.plan_placed(group);
        assert!(Hub::made(&next).is_empty(), "{next:?}");
        let removes = next.stages.iter().flatten().any(|write| matches!(write, Write::RemoveSchedule { .. }));
        assert!(!removes, "{next:?}");
    }
}

#[test]
fn a_group_that_has_taken_over_and_was_interrupted_relabels_the_rest() {
    let mut hub = before();
    let a = hub.group_of("a", "page");
    let mut plan = regroup::plan_regroup(&hub.store, &a).unwrap();
    plan.stages.truncate(1);
    hub.answer(&plan);
    let plan = regroup::plan_regroup(&hub.store, &a).expect("its copy is not relabelled");
    assert!(matches!(&plan.stages[..], [stage] if matches!(&stage[..], [Write::Regroup { .. }])), "{plan:?}");
}

#[test]
fn a_group_over_all_namespaces_that_its_policy_asks_for_stays() {
    let mut hub = before();
    hub.policy(&json!({"labelKey": "app", "acrossNamespaces": true}));
    assert_eq!(["a", "b"].map(|namespace| hub.group_of(namespace, "page")), ["shop-6719e33a", "shop-6719e33a"]);
    assert!(regroup::plan_regroup(&hub.store, "shop-6719e33a").is_none());
}

/// Returns the Schedule that a plan writes for an object `page`.
fn find_made_page(plan: &Plan) -> Option<Schedule> {
    Hub::made(plan).into_iter().find(|schedule| schedule.spec.source_ref.name == "page")
}

#[test]
fn a_copy_keeps_its_name_and_another_objects_schedule_is_never_taken() {
    let mut hub = Hub::new();
    hub.apply("Namespace", json!({"metadata": {"name": "a"}}));
    hub.deployment("a", "page", &json!({}));
    hub.policy(&json!(null));
    let group = hub.group_of("a", "page");
    let copy = find_made_page(&hub.plan_placed(&group)).unwrap();
    assert_eq!(copy.name_any(), schedule_name(&deployment("a", "page")));

    // The name belongs to the copy of another object.
    let mut foreign = copy.clone();
    foreign.spec.source_ref.name = "other".to_owned();
    hub.schedule(foreign.clone());
    let plan = hub.plan_placed(&group);
    assert!(find_made_page(&plan).is_none(), "{plan:?}");
    let told = &plan.faults[&deployment("a", "page")];
    assert!(told["ScheduleTaken"].contains("Deployment a/other"), "{told:?}");
    hub.store.apply_change(Change::Schedule(Seen::Gone(foreign)), hub.now);

    // One with the name of an earlier version is used as it is, and edits reach it.
    let mut old = copy;
    old.metadata.name = Some(old_name(&deployment("a", "page")));
    old.metadata.resource_version = Some("7".to_owned());
    hub.schedule(old.clone());
    assert!(find_made_page(&hub.plan_placed(&group)).is_none(), "nothing is written");
    hub.deployment("a", "page", &json!({"edited": "yes"}));
    assert_eq!(find_made_page(&hub.plan_placed(&group)).unwrap().name_any(), old.name_any());
}

/// What a plan takes away, by name of the Schedule, and the reasons of its events.
fn taken(plan: &Plan) -> (Vec<String>, Vec<&'static str>) {
    let mut taken = (Vec::new(), Vec::new());
    for write in plan.stages.iter().flatten() {
        match write {
            Write::RemoveSchedule { name, .. } => taken.0.push(name.clone()),
            Write::Event { reason, .. } => taken.1.push(*reason),
            Write::Label(..) => {}
            other => panic!("{other:?}"),
        }
    }
    taken
}

fn build_core_copy(kind: &str, namespace: Option<&str>, name: &str) -> Schedule {
    let source = json!({"group": "", "version": "v1", "kind": kind, "namespace": namespace, "name": name, "uid": "u",
        "generation": 0});
    serde_json::from_value(json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
        "metadata": {"name": format!("copy-of-{name}"), "namespace": "fleet-c-east", "uid": format!("s-{name}")},
        "spec": {"manifest": "{}", "hash": "h", "sourceRef": source}}))
    .unwrap()
}

#[test]
fn what_is_the_services_own_is_taken_back() {
    let mut hub = Hub::new();
    hub.apply("Namespace", json!({"metadata": {"name": "prod-cp"}}));
    hub.apply(
        "Namespace",
        json!({"metadata": {"name": "agent-ns", "labels": {"fleet-scheduler.io/install-kind": "agent"}}}),
    );
    hub.apply("Secret", json!({"metadata": {"name": "fleet-cluster-init-kubeconfig", "namespace": "prod-cp"}}));
    hub.apply(
        "Secret",
        json!({"metadata": {"name": "mine", "namespace": "shop",
        "labels": {"app.kubernetes.io/part-of": "fleet"}}, "data": {"kubeconfig": ""}}),
    );
    hub.apply("PersistentVolumeClaim", json!({"metadata": {"name": "data", "namespace": "prod-cp"}, "spec": {}}));
    hub.config_map("agent-ns", "conf", &json!({}));
    hub.config_map("shop", "fleet-bootstrap-status", &json!({}));
    hub.config_map("shop", "page", &json!({"app.kubernetes.io/part-of": "fleet"}));
    for (kind, namespace, name) in [
        ("Namespace", None, "prod-cp"),
        ("Secret", Some("prod-cp"), "fleet-cluster-init-kubeconfig"),
        ("Secret", Some("shop"), "mine"),
        ("PersistentVolumeClaim", Some("prod-cp"), "data"),
        ("ConfigMap", Some("agent-ns"), "conf"),
        ("ConfigMap", Some("shop"), "fleet-bootstrap-status"),
        ("ConfigMap", Some("shop"), "page"),
    ] {
        hub.schedule(build_core_copy(kind, namespace, name));
    }
    hub.policy(&json!(null));
    for (kind, namespace, name) in [
        ("Secret", "prod-cp", "fleet-cluster-init-kubeconfig"),
        ("Secret", "shop", "mine"),
        ("ConfigMap", "agent-ns", "conf"),
        ("ConfigMap", "shop", "fleet-bootstrap-status"),
    ] {
        let plan = hub.plan_core_object(kind, namespace, name);
        assert_eq!(taken(&plan), (vec![format!("copy-of-{name}")], vec!["NeverPlaced"]), "{kind} {namespace}/{name}");
    }
    assert_eq!(hub.store.assignments[&config_map("shop", "page")], Assignment::Follows, "a label alone says nothing");
    // What holds data stays, and so does the namespace that it is in.
    assert_eq!(taken(&hub.plan_core_object("PersistentVolumeClaim", "prod-cp", "data")).0, Vec::<String>::new());
    assert_eq!(taken(&hub.plan_core_object("Namespace", "", "prod-cp")).0, Vec::<String>::new());
    for name in ["fleet-cluster-init-kubeconfig", "data"] {
        let kind = if name == "data" { "PersistentVolumeClaim" } else { "Secret" };
        hub.store.apply_change(Change::Schedule(Seen::Gone(build_core_copy(kind, Some("prod-cp"), name))), hub.now);
    }
    assert_eq!(taken(&hub.plan_core_object("Namespace", "", "prod-cp")).0, ["copy-of-prod-cp"]);
    // A namespace that becomes an installation's gives back what was placed out of it.
    hub.apply(
        "Namespace",
        json!({"metadata": {"name": "shop", "labels": {"fleet-scheduler.io/install-kind": "agent"}}}),
    );
    assert_eq!(hub.store.assignments[&config_map("shop", "page")], Assignment::Withdrawn);
}
