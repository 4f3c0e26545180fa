//! What a plan never deletes, and what it never begins: data, what ran to its end, and what replaces nothing yet.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::decide::Decided;
use super::group_plan;
use super::object_plan;
use super::plan::Plan;
use super::schedule_deletions;
use super::sources::{Change, Seen};
use super::store::{Assignment, Store};
use super::write::{TargetMark, Write, Written};
use crate::api::crd::condition::find_condition;
use crate::api::crd::group::DecisionRecord;
use crate::api::crd::group::conditions::MOVING;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::{self, Kinds};
use crate::api::{Schedule, ScheduleGroup, SchedulePolicy};
use crate::placement::copy::Share;
use crate::placement::decide::{DirectDecision, DirectTarget, Target};
use crate::placement::facts::ObjectKey;

/// Annotation by which an object consents to be begun with an empty volume elsewhere.
const CONSENT: &str = "fleet-scheduler.io/allow-volume-move";

/// A control plane with the policy `all`, which groups by namespace, and what its watches bring.
pub(super) struct Hub {
    pub(super) store: Store,
    pub(super) now: Instant,
    pub(super) version: u64,
}

impl Hub {
    pub(super) fn new() -> Self {
        let store = Store::new(Kinds::default(), false).with_own_namespace("prod-cp".to_owned());
        let mut hub = Self { store, now: Instant::now(), version: 1 };
        for cluster in ["east", "west"] {
            hub.store.clusters.insert(cluster.to_owned(), true);
        }
        hub.policy(json!({}));
        hub
    }

    pub(super) fn policy(&mut self, change: Value) {
        let mut spec = json!({"namespaceSelector": {}, "groupBy": {"namespace": true},
            "resourceSelectors": {"labelSelectors": [{}]}});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        self.put_policy("all", &spec);
    }

    fn put_policy(&mut self, name: &str, spec: &Value) {
        let policy: SchedulePolicy = serde_json::from_value(json!({
            "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec,
        }))
        .unwrap();
        self.store.apply_change(Change::Policy(Seen::There(policy)), self.now);
        self.store.mark_all(self.now);
    }

    pub(super) fn put(&mut self, group: &str, kind: &str, mut body: Value) -> ObjectKey {
        let kind = placeable::find_builtin_kind(group, kind).unwrap();
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        self.version += 1;
        body["metadata"]["namespace"] = json!("shop");
        body["metadata"]["uid"] = json!(name);
        body["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let raw: Raw = serde_json::from_value(body).unwrap();
        self.store.on_fetched(kind, raw, self.now);
        ObjectKey::new(group, kind.kind, "shop", &name)
    }

    /// Copies everything to all clusters: then a claim is a member of its group, and not a follower.
    fn duplicate(&mut self) {
        self.policy(json!({"spreadConstraints": {"topologyKey": "k", "spreadMode": "Duplicate"}}));
    }

    fn claim(&mut self, annotations: &Value) -> ObjectKey {
        self.put(
            "",
            "PersistentVolumeClaim",
            json!({"metadata": {"name": "data", "annotations": annotations}, "spec": {}}),
        )
    }

    /// Puts the claim with the mark that its copy is on east.
    fn put_marked_claim(&mut self, annotations: &Value) {
        let marked = json!({"metadata": {"name": "data", "annotations": annotations,
            "labels": {"fleet-scheduler.io/target-cluster": "east"}}, "spec": {}});
        self.put("", "PersistentVolumeClaim", marked);
    }

    fn web(&mut self, replicas: i64) -> ObjectKey {
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}});
        self.put("apps", "Deployment", json!({"metadata": {"name": "web"}, "spec": spec}))
    }

    pub(super) fn job(&mut self, name: &str, volumes: &Value) -> ObjectKey {
        let pod = json!({"containers": [{"name": "c", "image": "i"}], "volumes": volumes});
        self.put("batch", "Job", json!({"metadata": {"name": name}, "spec": {"template": {"spec": pod}}}))
    }

    pub(super) fn group_name(&self, key: &ObjectKey) -> String {
        match &self.store.assignments[key] {
            Assignment::Group(group) | Assignment::Left(Some(group)) => group.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn plan(&self, key: &ObjectKey, decided: Option<&Decided>) -> Plan {
        let time = "2026-01-01T00:00:00Z".parse().unwrap();
        group_plan::plan_group(&self.store, &self.group_name(key), decided, time)
    }

    /// Plans an object whose annotation names a cluster.
    fn plan_directly(&self, object: &ObjectKey, cluster: &str) -> Plan {
        object_plan::plan_object(&self.store, object, Some(&decided_directly(object, &[(cluster, None)])))
    }

    /// Applies what a plan writes to the control plane; deletions are carried out at once.
    pub(super) fn execute(&mut self, plan: &Plan) {
        for write in plan.stages.iter().flatten() {
            self.version += 1;
            let version = Some(self.version.to_string());
            match write {
                Write::Schedule(schedule, _) => {
                    let mut schedule = (**schedule).clone();
                    schedule.metadata.uid.get_or_insert(format!("uid-{}", self.version));
                    schedule.metadata.resource_version = version;
                    self.store.on_written(Written::Schedule(Box::new(schedule)), self.now);
                }
                Write::Group(group) => {
                    let mut group = (**group).clone();
                    group.metadata.uid.get_or_insert_with(|| "group".to_owned());
                    group.metadata.resource_version = version;
                    self.store.on_written(Written::Group(Box::new(group)), self.now);
                }
                _ => {}
            }
        }
    }

    /// Plans a group and writes it until nothing differs.
    pub(super) fn settle(&mut self, key: &ObjectKey, decided: &Decided) {
        for _ in 0..5 {
            let plan = self.plan(key, Some(decided));
            self.execute(&plan);
        }
    }

    /// Reports of each copy in a cluster that it is as its Schedule says, and available.
    pub(super) fn report(&mut self, cluster: &str, resource: &Value) {
        for mut schedule in self.schedules(cluster) {
            self.version += 1;
            schedule.metadata.resource_version = Some(self.version.to_string());
            let conditions = ["Applied", "Available"]
                .map(|type_| json!({"type": type_, "status": "True", "reason": type_, "message": ""}));
            let status = json!({"observedHash": schedule.spec.hash, "resource": resource.to_string(),
                "conditions": conditions});
            schedule.status = Some(serde_json::from_value(status).unwrap());
            self.store.apply_change(Change::Schedule(Seen::There(schedule)), self.now);
        }
    }

    pub(super) fn schedules(&self, cluster: &str) -> Vec<Schedule> {
        self.store.schedules_of(&format!("fleet-c-{cluster}")).cloned().collect()
    }

    /// Removes a cluster with all that is known of its copies.
    pub(super) fn lose(&mut self, cluster: &str) {
        self.store.clusters.remove(cluster);
        for schedule in self.schedules(cluster) {
            self.store.apply_change(Change::Schedule(Seen::Gone(schedule)), self.now);
        }
    }

    fn recorded(&self, key: &ObjectKey) -> ScheduleGroup {
        self.store.groups[&self.group_name(key)].clone()
    }
}

pub(super) fn decided(clusters: &[&str]) -> Decided {
    let targets = clusters.iter().map(|cluster| Target { cluster: (*cluster).to_owned(), ..Target::default() });
    Decided {
        scheduled: !clusters.is_empty(),
        suspended: false,
        kept: false,
        waits: false,
        reason: if clusters.is_empty() { "HasVolumes" } else { "Placed" }.to_owned(),
        message: String::new(),
        targets: targets.collect(),
        withheld: 0,
        rows: Vec::new(),
        domains: Vec::new(),
        proposed: Vec::new(),
        record: DecisionRecord::default(),
    }
}

/// Kinds and clusters of the copies that a plan makes or edits, and the clusters of which it deletes.
pub(super) fn writes(plan: &Plan) -> (Vec<String>, Vec<String>) {
    assert!(!plan.is_partial, "a source has to be read first: {plan:?}");
    let mut found = (Vec::new(), Vec::new());
    for write in plan.stages.iter().flatten() {
        match write {
            Write::Schedule(schedule, _) => {
                let cluster = schedule.metadata.namespace.as_deref().unwrap_or_default().trim_start_matches("fleet-c-");
                found.0.push(format!("{} {cluster}", schedule.spec.source_ref.kind));
            }
            Write::RemoveSchedule { cluster, .. } => found.1.push(cluster.clone()),
            _ => {}
        }
    }
    found
}

/// What the annotation of an object says: its clusters, each with the replicas that it gets where it is divided.
pub(super) fn decided_directly(object: &ObjectKey, targets: &[(&str, Option<i64>)]) -> DirectDecision {
    let targets = targets
        .iter()
        .map(|(name, share)| DirectTarget { cluster: (*name).to_owned(), share: share.map(Share::Replicas) });
    DirectDecision {
        object: object.clone(),
        targets: targets.collect(),
        blocked: BTreeMap::new(),
        frozen: BTreeSet::new(),
        withheld: None,
    }
}

/// The marks that a plan writes on sources.
fn marks(plan: &Plan) -> Vec<&TargetMark> {
    let writes = plan.stages.iter().flatten();
    writes.filter_map(|write| if let Write::Label(_, mark) = write { Some(mark) } else { None }).collect()
}

pub(super) fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_claim_stays_whatever_the_decision_says() {
    let mut hub = Hub::new();
    hub.duplicate();
    let claim = hub.claim(&json!({}));
    hub.settle(&claim, &decided(&["east"]));
    hub.report("east", &json!({}));
    let plan = hub.plan(&claim, Some(&decided(&["west"])));
    assert_eq!(writes(&plan), (none(), none()), "neither an empty claim elsewhere, nor a deletion");
    assert_eq!(marks(&plan), [&TargetMark::from_targets(["east"])], "it says where the claim is");
    assert!(schedule_deletions::delete_all_schedules(&hub.store, &claim, false).is_empty(), "whatever leads to it");
    hub.settle(&claim, &decided(&["west"]));
    let status = hub.recorded(&claim).status.unwrap();
    let blocked = status.conditions.iter().find(|one| one.type_ == "MoveBlocked").expect("it says so");
    assert_eq!(blocked.reason, "HasVolumes");
    assert!(
        blocked.message.contains("PersistentVolumeClaim shop/data") && blocked.message.contains(CONSENT),
        "{blocked:?}"
    );
    // With consent it moves: the new copy first.
    let claim = hub.claim(&json!({CONSENT: "true"}));
    let plan = hub.plan(&claim, Some(&decided(&["west"])));
    assert_eq!(writes(&plan), (vec!["PersistentVolumeClaim west".to_owned()], none()));
    hub.settle(&claim, &decided(&["west"]));
    hub.report("west", &json!({}));
    assert_eq!(writes(&hub.plan(&claim, Some(&decided(&["west"])))), (none(), vec!["east".to_owned()]));
}

#[test]
fn what_data_keeps_elsewhere_keeps_no_old_copy_of_others() {
    let mut hub = Hub::new();
    hub.duplicate();
    hub.claim(&json!({}));
    let web = hub.web(3);
    hub.settle(&web, &decided(&["east"]));
    hub.report("east", &json!({}));
    hub.web(3);
    hub.settle(&web, &decided(&["west"]));
    assert_eq!(writes(&hub.plan(&web, Some(&decided(&["west"])))), (none(), none()), "it is not available there");
    hub.report("west", &json!({}));
    let plan = hub.plan(&web, Some(&decided(&["west"])));
    assert_eq!(writes(&plan), (none(), vec!["east".to_owned()]), "the Deployment leaves, the claim stays");
}

#[test]
fn a_claim_that_an_annotation_moves_stays_too() {
    let mut hub = Hub::new();
    let claim = hub.claim(&json!({"fleet-scheduler.io/cluster": "east"}));
    let plan = hub.plan_directly(&claim, "east");
    assert_eq!(writes(&plan).0, ["PersistentVolumeClaim east"]);
    hub.execute(&plan);
    hub.report("east", &json!({}));
    hub.claim(&json!({"fleet-scheduler.io/cluster": "west"}));
    let plan = hub.plan_directly(&claim, "west");
    hub.execute(&plan);
    let plan = hub.plan_directly(&claim, "west");
    assert_eq!(writes(&plan), (none(), none()));
    assert!(plan.faults[&claim]["HasVolumes"].contains("east"), "{:?}", plan.faults);
    hub.claim(&json!({"fleet-scheduler.io/cluster": ""}));
    let plan = object_plan::plan_object(&hub.store, &claim, None);
    assert_eq!(writes(&plan).1, ["east"], "its owner says that it goes");
}

#[test]
fn a_claim_whose_cluster_is_lost_does_not_begin_empty_where_its_annotation_is_moved_to() {
    let mut hub = Hub::new();
    let claim = hub.claim(&json!({"fleet-scheduler.io/cluster": "east"}));
    let plan = hub.plan_directly(&claim, "east");
    assert_eq!(writes(&plan).0, ["PersistentVolumeClaim east"], "nothing marks it yet");
    hub.execute(&plan);
    hub.report("east", &json!({}));
    hub.lose("east");

    hub.put_marked_claim(&json!({"fleet-scheduler.io/cluster": "west"}));
    let plan = hub.plan_directly(&claim, "west");
    assert_eq!(writes(&plan), (none(), none()), "an empty claim in west is not its data");
    assert!(marks(&plan).iter().all(|mark| **mark == TargetMark::from_targets(["east"])), "the mark stays");
    assert!(plan.faults[&claim]["HasVolumes"].contains("its data was on east"), "{:?}", plan.faults);
    // Back where it was, or with the consent of its owner, it begins.
    hub.put_marked_claim(&json!({"fleet-scheduler.io/cluster": "east"}));
    let plan = hub.plan_directly(&claim, "east");
    assert_eq!(writes(&plan).0, ["PersistentVolumeClaim east"]);
    hub.put_marked_claim(&json!({"fleet-scheduler.io/cluster": "west", CONSENT: "true"}));
    let plan = hub.plan_directly(&claim, "west");
    assert_eq!(writes(&plan).0, ["PersistentVolumeClaim west"]);
}

#[test]
fn a_fence_takes_nothing_from_an_annotated_object() {
    let mut hub = Hub::new();
    let page = hub.put(
        "",
        "ConfigMap",
        json!({"metadata": {"name": "page",
        "annotations": {"fleet-scheduler.io/spread-onto": "east,west"}}}),
    );
    let both = decided_directly(&page, &[("east", None), ("west", None)]);
    let made = object_plan::plan_object(&hub.store, &page, Some(&both));
    hub.execute(&made);
    hub.report("east", &json!({}));
    hub.report("west", &json!({}));
    let fenced = DirectDecision { frozen: ["west".to_owned()].into(), ..decided_directly(&page, &[("east", None)]) };
    let plan = object_plan::plan_object(&hub.store, &page, Some(&fenced));
    assert_eq!(writes(&plan), (none(), none()), "NoSchedule concerns what is new");
    assert_eq!(writes(&hub.plan_directly(&page, "east")).1, ["west"], "NoExecute drains it");
}

#[test]
fn the_cluster_of_lost_data_stays_recorded() {
    let mut hub = Hub::new();
    hub.duplicate();
    let claim = hub.claim(&json!({}));
    hub.settle(&claim, &decided(&["east"]));
    hub.lose("east");
    hub.settle(&claim, &decided(&[]));
    assert_eq!(hub.recorded(&claim).status.unwrap().target_clusters, ["east"]);
    let plan = hub.plan(&claim, Some(&decided(&["west"])));
    assert_eq!(writes(&plan), (none(), none()), "whatever is decided, no empty claim is begun");
    // The cluster is back under its name, with the claim.
    hub.claim(&json!({}));
    hub.store.clusters.insert("east".to_owned(), true);
    let plan = hub.plan(&claim, Some(&decided(&["west"])));
    assert_eq!(writes(&plan).0, ["PersistentVolumeClaim east"]);
    // Or somebody consents.
    hub.store.clusters.remove("east");
    let claim = hub.claim(&json!({CONSENT: "true"}));
    assert_eq!(writes(&hub.plan(&claim, Some(&decided(&["west"])))).0, ["PersistentVolumeClaim west"]);
}

#[test]
fn the_cluster_of_lost_data_is_known_after_its_group_went() {
    let mut hub = Hub::new();
    hub.duplicate();
    let mark = json!({"name": "data", "labels": {"fleet-scheduler.io/target-cluster": "east"}});
    let claim = hub.put("", "PersistentVolumeClaim", json!({"metadata": mark, "spec": {}}));
    hub.store.clusters.remove("east");
    hub.settle(&claim, &decided(&["west"]));
    assert!(hub.schedules("west").is_empty(), "no empty claim is begun");
    assert!(hub.recorded(&claim).status.unwrap().target_clusters.contains(&"east".to_owned()));
    hub.store.clusters.insert("east".to_owned(), true);
    hub.settle(&claim, &decided(&["west"]));
    assert_eq!((hub.schedules("east").len(), hub.schedules("west").len()), (1, 0));
}

#[test]
fn nothing_is_deleted_while_its_group_is_written() {
    let mut hub = Hub::new();
    let web = hub.web(3);
    hub.settle(&web, &decided(&["east", "west"]));
    for cluster in ["east", "west"] {
        hub.report(cluster, &json!({}));
    }
    assert_eq!(writes(&hub.plan(&web, Some(&decided(&["west"])))).1, ["east"], "west has it all, and says so");
    let web = hub.web(6);
    let plan = hub.plan(&web, Some(&decided(&["west"])));
    assert_eq!(writes(&plan), (vec!["Deployment west".to_owned()], none()), "it was Available for the old hash");
    hub.execute(&plan);
    assert_eq!(writes(&hub.plan(&web, Some(&decided(&["west"])))), (none(), none()), "it says nothing of the new one");
    hub.report("west", &json!({}));
    assert_eq!(writes(&hub.plan(&web, Some(&decided(&["west"])))).1, ["east"]);
    hub.store.clusters.insert("west".to_owned(), false);
    assert_eq!(writes(&hub.plan(&web, Some(&decided(&["west"])))).1, none(), "the word of a cluster that is cut off");
}

fn with_override(image: &str) -> Value {
    let edit = json!({"fieldPath": "spec.template.spec.containers[0].image", "value": {"staticValue": image}});
    let of = json!([{"kind": "Deployment", "apiVersion": "apps/v1", "namespace": "shop", "name": "web", "override": [edit]}]);
    json!({"spreadConstraints": {"topologyKey": "k", "spreadMode": "Duplicate",
        "overrides": [{"topologyValue": "east", "resources": of}]}})
}

#[test]
fn overrides_outlive_their_policy() {
    let mut hub = Hub::new();
    hub.policy(with_override("i:2"));
    let web = hub.web(3);
    hub.settle(&web, &decided(&["east"]));
    let policy = hub.store.policies["all"].clone();
    hub.store.apply_change(Change::Policy(Seen::Gone(policy.clone())), hub.now);
    hub.store.mark_all(hub.now);
    assert!(matches!(hub.store.assignments[&web], Assignment::Left(Some(_))));
    assert_eq!(writes(&hub.plan(&web, None)).0, none(), "its copies stay as they are");
    let plan = {
        hub.web(4);
        hub.plan(&web, None)
    };
    let manifest = plan.stages.iter().flatten().find_map(|write| match write {
        Write::Schedule(schedule, _) => Some(&*schedule.spec.manifest),
        _ => None,
    });
    let manifest = manifest.unwrap_or_else(|| panic!("{plan:?}"));
    assert!(manifest.contains("i:2") && manifest.contains("\"replicas\":4"), "{manifest}");
    hub.execute(&plan);
    hub.store.apply_change(Change::Policy(Seen::There(policy)), hub.now);
    hub.store.mark_all(hub.now);
    assert_eq!(writes(&hub.plan(&web, Some(&decided(&["east"])))).0, none(), "and nothing changes when it is back");
}

#[test]
fn a_suspended_group_is_not_edited() {
    let mut hub = Hub::new();
    let web = hub.web(3);
    hub.settle(&web, &decided(&["east"]));
    hub.web(6);
    let suspended = Decided { suspended: true, proposed: vec!["west".to_owned()], ..decided(&["west"]) };
    let plan = hub.plan(&web, Some(&suspended));
    assert_eq!(writes(&plan), (none(), none()));
    assert_eq!(marks(&plan), [&TargetMark::from_targets(["east"])], "it runs on, and says where");
    hub.execute(&plan);
    let status = hub.recorded(&web).status.unwrap();
    assert_eq!((status.target_clusters, status.proposed_clusters), (vec!["east".to_owned()], vec!["west".to_owned()]));
    let plan = hub.plan(&web, Some(&decided(&["east"])));
    assert_eq!(writes(&plan).0, ["Deployment east"], "edits arrive afterwards");
    hub.execute(&plan);
    assert_eq!(hub.recorded(&web).status.unwrap().proposed_clusters, none());
}

#[test]
fn a_new_group_of_what_runs_says_where_it_runs_though_nothing_is_decided() {
    let mut hub = Hub::new();
    let web = hub.web(3);
    hub.settle(&web, &decided(&["east"]));
    let forget = |hub: &mut Hub| {
        let mut group = hub.recorded(&web);
        group.status = None;
        hub.store.apply_change(Change::Group(Seen::There(group)), hub.now);
    };
    forget(&mut hub);
    let suspended = Decided { suspended: true, proposed: vec!["west".to_owned()], ..decided(&["west"]) };
    let plan = hub.plan(&web, Some(&suspended));
    hub.execute(&plan);
    assert_eq!(hub.recorded(&web).status.unwrap().target_clusters, ["east"]);
    forget(&mut hub);
    let policy = hub.store.policies["all"].clone();
    hub.store.apply_change(Change::Policy(Seen::Gone(policy)), hub.now);
    hub.store.mark_all(hub.now);
    let plan = hub.plan(&web, None);
    hub.execute(&plan);
    assert_eq!(hub.recorded(&web).status.unwrap().target_clusters, ["east"]);
}

/// Returns the spec of a policy that comes before others, with a selector of clusters.
fn build_first_spec(selector: &Value) -> Value {
    json!({"namespaceSelector": {}, "priority": 9,
        "groupBy": {"namespace": true}, "clusterSelector": selector, "resourceSelectors": {"labelSelectors": [{}]}})
}

#[test]
fn a_broken_policy_hands_nothing_over() {
    let broken = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]});
    let mut hub = Hub::new();
    hub.put_policy("first", &build_first_spec(&json!({})));
    let web = hub.web(3);
    hub.settle(&web, &decided(&["east"]));
    let group = hub.group_name(&web);
    assert!(group.starts_with("first-"), "{group}");
    hub.put_policy("first", &build_first_spec(&broken));
    assert_eq!(hub.store.assignments[&web], Assignment::Left(Some(group.clone())));
    let page = hub.put("", "ConfigMap", json!({"metadata": {"name": "page"}}));
    assert_eq!(hub.store.assignments[&page], Assignment::Unplaced, "nothing new is decided");
    // A scheduler that has never seen a good form.
    hub.store.last_good.clear();
    hub.put_policy(
        "first",
        &build_first_spec(&json!({"matchExpressions": [{"key": "b", "operator": "In", "values": []}]})),
    );
    assert_eq!(hub.store.assignments[&web], Assignment::Left(Some(group.clone())));
    hub.put_policy("first", &build_first_spec(&json!({})));
    assert_eq!(hub.store.assignments[&web], Assignment::Group(group));
}

#[test]
fn only_demand_of_its_own_makes_a_group_ask_for_room() {
    let mut hub = Hub::new();
    let web = hub.web(3);
    let group = hub.group_name(&web);
    hub.settle(&web, &decided(&["east"]));
    hub.store.grown.clear();
    hub.put_policy(
        "other",
        &json!({"namespaceSelector": {}, "priority": -5, "resourceSelectors": {"labelSelectors": [{}]}}),
    );
    hub.web(2);
    assert!(hub.store.undecided.contains(&group) && hub.store.grown.is_empty(), "nothing of it asks for more");
    hub.web(4);
    assert!(hub.store.grown.contains(&group));
}

#[test]
fn a_member_that_no_policy_matches_any_more_does_not_move() {
    let mut hub = Hub::new();
    hub.policy(json!({"resourceSelectors": {"labelSelectors": [{"matchLabels": {"tier": "a"}}]}}));
    let put = |hub: &mut Hub, name: &str, labels: Value| {
        let pods = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": pods});
        hub.put("apps", "Deployment", json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))
    };
    let web = put(&mut hub, "web", json!({"tier": "a"}));
    hub.settle(&web, &decided(&["east"]));
    put(&mut hub, "web", json!({}));
    assert!(matches!(hub.store.assignments[&web], Assignment::Left(Some(_))));
    let api = put(&mut hub, "api", json!({"tier": "a"}));
    hub.settle(&api, &decided(&["west"]));
    let conditions = hub.recorded(&api).status.unwrap().conditions;
    assert!(find_condition(&conditions, MOVING).is_none(), "{conditions:?}");
}
