//! Whole moves of groups, with a control plane and agents that are played: nothing is removed before what replaces it
//! serves, whenever the scheduler is restarted.

mod leaving;
mod once;
mod spread;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::events::{Recorder, Reporter};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::moving;
use super::place::Place;
use super::plan::Plan;
use super::queue::{Cause, ReconcileRequest};
use super::sources::{Change, Seen};
use super::store::{Assignment, Store};
use super::write::{Write, Written};
use super::writer::WriteOutcome;
use super::{Done, Placing};
use crate::api::labels::{ANNOTATION_ASK, cluster_namespace};
use crate::api::lenient::raw::Raw;
use crate::api::placeable::{self, Kinds, Placeable};
use crate::api::{Cluster, Schedule, ScheduleGroup, SchedulePolicy};
use crate::daemon::metrics::Metrics;
use crate::k8s::test_api;
use crate::placement::facts::ObjectKey;
use crate::placement::moves::{MovePhase, MoveRecord};
use crate::placement::tenant::Tenant;
use crate::scheduler::index::Index;
use crate::scheduler::server_clock::ServerClock;

/// Seconds after which a term begins moves.
const GATE: i64 = 61;
/// Seconds that a move has.
const DEADLINE: i64 = 601;

/// A control plane whose policy groups by namespace, the clusters east and west, and a scheduler.
struct Scene {
    placing: Placing,
    clock: ServerClock,
    now: i64,
    version: u64,
    clusters: BTreeMap<String, Value>,
    bodies: BTreeMap<ObjectKey, (&'static Placeable, Value)>,
    policy: Value,
    /// Reasons of the events, by the kind that they are about.
    events: Vec<(String, &'static str)>,
    /// Clusters of which Schedules were deleted, with whether the other cluster served then.
    deleted: Vec<(String, bool)>,
}

fn start(clock: &ServerClock) -> Placing {
    let client = test_api::api(|_, body| body);
    let recorder = Recorder::new(client.clone(), Reporter { controller: "test".to_owned(), instance: None });
    let store = Store::new(Kinds::default(), false).with_own_namespace("prod-cp".to_owned());
    let index = Arc::new(Index::new_complete());
    Placing::new(client, index, Metrics::default(), recorder, store, Vec::new(), clock.clone())
}

fn other(cluster: &str) -> &'static str {
    if cluster == "east" { "west" } else { "east" }
}

impl Scene {
    fn new() -> Self {
        let clock = ServerClock::default();
        let now = 1_000_000;
        set_clock(&clock, now);
        let policy = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
            "metadata": {"name": "all", "uid": "all", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"namespaceSelector": {}, "groupBy": {"namespace": true},
                "resourceSelectors": {"labelSelectors": [{}]}}});
        let mut scene = Self {
            placing: start(&clock),
            clock,
            now,
            version: 10,
            clusters: BTreeMap::new(),
            bodies: BTreeMap::new(),
            policy,
            events: Vec::new(),
            deleted: Vec::new(),
        };
        for name in ["east", "west"] {
            let nodes = json!({"n": {"cpu": "64", "memory": "256Gi", "pods": "500"}});
            let ready = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "1970-01-01T00:00:09Z"});
            let cluster = json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": name, "uid": name}, "spec": {"name": name, "accepted": true},
                "status": {"conditions": [ready], "availableResources": nodes, "capacityResources": nodes}});
            scene.clusters.insert(name.to_owned(), cluster);
            scene.edit_cluster(name, |_| {});
        }
        scene.put_policy();
        scene.advance(GATE);
        scene
    }

    fn put_policy(&mut self) {
        let policy: SchedulePolicy = serde_json::from_value(self.policy.clone()).unwrap();
        let now = Instant::now();
        self.placing.store.apply_change(Change::Policy(Seen::There(policy)), now);
        self.placing.store.mark_all(now);
    }

    fn advance(&mut self, seconds: i64) {
        self.now += seconds;
        set_clock(&self.clock, self.now);
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn edit_cluster(&mut self, name: &str, edit: impl FnOnce(&mut Value)) {
        let version = self.next_version();
        let cluster = self.clusters.get_mut(name).unwrap();
        cluster["metadata"]["resourceVersion"] = json!(version);
        edit(cluster);
        let cluster: Cluster = serde_json::from_value(cluster.clone()).unwrap();
        self.placing.index.put_cluster(cluster);
    }

    fn drain(&mut self, name: &str, drained: bool) {
        self.edit_cluster(name, |cluster| cluster["status"]["drainRequested"] = json!(drained));
    }

    fn put(&mut self, namespace: &str, group: &str, kind: &str, mut body: Value) -> ObjectKey {
        let kind = placeable::find_builtin_kind(group, kind).unwrap();
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        body["metadata"]["namespace"] = json!(namespace);
        body["metadata"]["uid"] = json!(format!("{namespace}-{name}"));
        body["metadata"]["resourceVersion"] = json!(self.next_version());
        let key = ObjectKey::new(group, kind.kind, namespace, &name);
        self.bodies.insert(key.clone(), (kind, body.clone()));
        let raw: Raw = serde_json::from_value(body).unwrap();
        self.placing.store.on_fetched(kind, raw, Instant::now());
        key
    }

    fn web(&mut self, namespace: &str, replicas: i64) -> ObjectKey {
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}});
        self.put(namespace, "apps", "Deployment", json!({"metadata": {"name": "web"}, "spec": spec}))
    }

    fn group_name(&self, key: &ObjectKey) -> String {
        match &self.placing.store.assignments[key] {
            Assignment::Group(group) | Assignment::Left(Some(group)) => group.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn group(&self, key: &ObjectKey) -> ScheduleGroup {
        self.placing.store.groups[&self.group_name(key)].clone()
    }

    fn record(&self, key: &ObjectKey) -> MoveRecord {
        self.group(key).status.unwrap_or_default().record
    }

    fn phase(&self, key: &ObjectKey) -> Option<MovePhase> {
        self.record(key).running.map(|running| running.phase)
    }

    fn label(&self, key: &ObjectKey) -> Option<String> {
        self.placing.store.sources[key].target.label.clone()
    }

    fn schedules(&self, cluster: &str) -> Vec<Schedule> {
        self.placing.store.schedules_of(&cluster_namespace(cluster)).cloned().collect()
    }

    /// Returns the replicas that the copies in a cluster ask for.
    fn hashes(&self, cluster: &str) -> Vec<String> {
        let live = self.schedules(cluster).into_iter().filter(|one| one.metadata.deletion_timestamp.is_none());
        live.map(|schedule| schedule.spec.hash).collect()
    }

    fn serves(&self, cluster: &str) -> bool {
        let live: Vec<_> =
            self.schedules(cluster).into_iter().filter(|one| one.metadata.deletion_timestamp.is_none()).collect();
        let is_served = live.iter().all(|one| one.status.as_ref().is_some_and(|status| status.available == Some(1)));
        !live.is_empty() && is_served
    }

    fn plan(&mut self, key: &ObjectKey) -> Plan {
        let now = Instant::now();
        self.placing.clusters.refresh_clusters(&self.placing.index, &mut self.placing.store, now);
        self.placing.mark_moves(now);
        self.placing.plan_request(&ReconcileRequest::Group(self.group_name(key)))
    }

    /// Plans a group and writes it until nothing differs.
    fn settle(&mut self, key: &ObjectKey) {
        for _ in 0..30 {
            let plan = self.plan(key);
            if plan.stages.is_empty() && plan.fetch.is_empty() {
                return;
            }
            self.execute(key, plan);
        }
        panic!("it is written for ever");
    }

    /// Plays the API server: carries out what a plan writes, and hands the answers over.
    fn execute(&mut self, key: &ObjectKey, plan: Plan) {
        let mut written = Vec::new();
        for write in plan.stages.into_iter().flatten() {
            let version = self.next_version();
            match write {
                Write::Schedule(mut schedule, _) => {
                    schedule.metadata.uid.get_or_insert(format!("uid-{version}"));
                    let at: Place = (schedule.namespace().unwrap(), schedule.name_any());
                    schedule.status = self.placing.store.schedules.get(&at).and_then(|known| known.status.clone());
                    schedule.metadata.resource_version = Some(version);
                    written.push(Written::Schedule(schedule));
                }
                Write::Keep { cluster, name, version: seen, epoch, .. } => {
                    let mut schedule = self.placing.store.schedules[&(cluster_namespace(&cluster), name)].clone();
                    assert_eq!(seen, schedule.metadata.resource_version, "in the version that was seen");
                    schedule.spec.epoch = epoch;
                    schedule.metadata.resource_version = Some(version);
                    written.push(Written::Schedule(Box::new(schedule)));
                }
                Write::RemoveSchedule { cluster, name, version: seen, .. } => {
                    let mut schedule = self.placing.store.schedules[&(cluster_namespace(&cluster), name)].clone();
                    assert_eq!(seen, schedule.metadata.resource_version, "in the version that was seen");
                    self.deleted.push((cluster.clone(), self.serves(other(&cluster))));
                    schedule.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
                    schedule.metadata.resource_version = Some(version);
                    self.placing.store.apply_change(Change::Schedule(Seen::There(schedule)), Instant::now());
                }
                Write::Release { cluster, name, .. } => {
                    let schedule = self.placing.store.schedules[&(cluster_namespace(&cluster), name)].clone();
                    self.placing.store.apply_change(Change::Schedule(Seen::Gone(schedule)), Instant::now());
                }
                Write::Group(mut group) => {
                    group.metadata.uid.get_or_insert_with(|| "group".to_owned());
                    group.metadata.resource_version = Some(version);
                    written.push(Written::Group(group));
                }
                Write::Ask { cluster, text, .. } => {
                    self.edit_cluster(&cluster, |one| one["metadata"]["annotations"][ANNOTATION_ASK] = json!(text));
                }
                Write::Label(source, mark) => written.push(Written::Label(source, mark, None)),
                Write::Event { about, reason, .. } => self.events.push((about.kind.unwrap_or_default(), reason)),
                other => panic!("{other:?}"),
            }
        }
        let bodies = self.bodies.clone();
        let fetched = plan.fetch.iter().map(|address| {
            let namespace = address.namespace.clone().unwrap_or_default();
            let (kind, body) =
                &bodies[&ObjectKey::new(address.kind.group, address.kind.kind, &namespace, &address.name)];
            (*kind, serde_json::from_value(body.clone()).unwrap())
        });
        self.placing.on_result(Done {
            request: ReconcileRequest::Group(self.group_name(key)),
            tenant: Tenant::ClusterScoped,
            cause: Cause::Change,
            outcome: WriteOutcome { written, ..WriteOutcome::default() },
            fetched: fetched.collect(),
        });
    }

    /// Plays the agent of a cluster: reports each copy, removes what is deleted, and answers.
    fn agent(&mut self, cluster: &str, available: bool) {
        for mut schedule in self.schedules(cluster) {
            schedule.metadata.resource_version = Some(self.next_version());
            let is_deleted = schedule.metadata.deletion_timestamp.is_some();
            let served = schedule.status.as_ref().and_then(|status| status.served).unwrap_or_default();
            let is_available = available && !is_deleted;
            let conditions = [("Applied", true), ("Available", is_available), ("Deleted", is_deleted)];
            let conditions = conditions.map(|(type_, holds)| {
                let status = if holds { "True" } else { "False" };
                json!({"type": type_, "status": status, "reason": type_, "message": ""})
            });
            let status = json!({"observedHash": schedule.spec.hash, "epoch": schedule.spec.epoch,
                "available": i64::from(is_available), "served": served.max(i64::from(is_available)),
                "conditions": conditions});
            schedule.status = Some(serde_json::from_value(status).unwrap());
            self.placing.store.apply_change(Change::Schedule(Seen::There(schedule)), Instant::now());
        }
        self.edit_cluster(cluster, |one| {
            let asked = one["metadata"]["annotations"][ANNOTATION_ASK].clone();
            if !asked.is_null() {
                one["status"]["answered"] = asked;
            }
        });
    }

    /// Lets agents and scheduler act until nothing differs.
    fn play(&mut self, key: &ObjectKey) {
        for _ in 0..10 {
            self.agent("east", true);
            self.agent("west", true);
            self.settle(key);
        }
    }

    /// Another scheduler begins a term: it knows what the API server holds.
    fn restart(&mut self) {
        let store = &self.placing.store;
        let (groups, schedules) = (store.groups.clone(), store.schedules.clone());
        let marks: Vec<_> = store.sources.iter().map(|(key, one)| (key.clone(), one.target.clone())).collect();
        self.placing = start(&self.clock);
        let now = Instant::now();
        for cluster in self.clusters.values() {
            self.placing.index.put_cluster(serde_json::from_value(cluster.clone()).unwrap());
        }
        for schedule in schedules.into_values() {
            self.placing.store.apply_change(Change::Schedule(Seen::There(schedule)), now);
        }
        for group in groups.into_values() {
            self.placing.store.apply_change(Change::Group(Seen::There(group)), now);
        }
        for (kind, body) in self.bodies.values() {
            self.placing.store.on_fetched(kind, serde_json::from_value(body.clone()).unwrap(), now);
        }
        for (key, mark) in marks {
            if let Some(source) = self.placing.store.sources.get_mut(&key) {
                source.target = mark;
            }
        }
        self.put_policy();
    }

    fn reasons(&self, kind: &str) -> Vec<&'static str> {
        let moves = ["Moving", "Moved", "MoveFailed", "MoveWithdrawn"];
        let of_kind = self.events.iter().filter(|(about, reason)| about == kind && moves.contains(reason));
        of_kind.map(|(_, reason)| *reason).collect()
    }

    /// Places a Deployment, which serves in east.
    fn placed() -> (Self, ObjectKey) {
        let mut scene = Self::new();
        let web = scene.web("shop", 3);
        scene.settle(&web);
        assert_eq!(scene.record(&web).target.keys().collect::<Vec<_>>(), ["east"]);
        scene.agent("east", true);
        scene.settle(&web);
        (scene, web)
    }
}

fn set_clock(clock: &ServerClock, now: i64) {
    let stamp =
        json!({"manager": "m", "operation": "Update", "time": Timestamp::from_second(now).unwrap().to_string()});
    clock.set_by_lease(&serde_json::from_value(json!({"metadata": {"managedFields": [stamp]}})).unwrap());
}

#[tokio::test]
async fn a_drain_moves_a_group_and_never_leaves_it_without_a_copy() {
    let (mut scene, web) = Scene::placed();
    assert_eq!((scene.hashes("east").len(), scene.label(&web).as_deref()), (1, Some("east")));
    scene.drain("east", true);
    scene.settle(&web);
    assert_eq!(scene.phase(&web), Some(MovePhase::Up));
    assert_eq!((scene.hashes("west").len(), scene.label(&web).as_deref()), (1, Some("east")), "it serves there");
    let moving = scene.group(&web).status.unwrap().conditions.into_iter().find(|one| one.type_ == "Moving").unwrap();
    assert_eq!(moving.reason, "WaitingForAvailable");
    assert!(moving.message.contains("Deployment shop/web is not available on west"), "{moving:?}");
    assert_eq!((scene.reasons("ScheduleGroup"), scene.reasons("Deployment")), (vec!["Moving"], vec!["Moving"]));
    // An edit reaches both sides, and nothing is believed of the new one before its agent tried it and answered.
    let before = scene.hashes("east");
    scene.web("shop", 4);
    scene.settle(&web);
    assert_eq!(scene.hashes("east"), scene.hashes("west"));
    assert_ne!(scene.hashes("east"), before);
    scene.agent("west", false);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), &scene.deleted), (Some(MovePhase::Up), &Vec::new()), "it does not serve");
    scene.agent("west", true);
    scene.settle(&web);
    assert_eq!(scene.deleted, [("east".to_owned(), true)]);
    assert_eq!((scene.phase(&web), scene.label(&web).as_deref()), (None, Some("west")));
    scene.play(&web);
    assert!(scene.schedules("east").is_empty(), "its agent removed it");
    assert_eq!(scene.record(&web).target.keys().collect::<Vec<_>>(), ["west"]);
    assert_eq!(scene.reasons("ScheduleGroup"), ["Moving", "Moved"]);
}

#[tokio::test]
async fn a_report_counts_only_with_an_answer() {
    let (mut scene, web) = Scene::placed();
    scene.drain("east", true);
    scene.settle(&web);
    // The agent reports, and what it was asked in this term is not answered.
    scene.agent("west", true);
    scene.edit_cluster("west", |one| one["status"]["answered"] = json!("of a former term"));
    scene.settle(&web);
    assert_eq!((scene.phase(&web), &scene.deleted), (Some(MovePhase::Up), &Vec::new()));
    // It was not Ready since: it is asked again.
    scene.agent("west", true);
    scene.edit_cluster("west", |one| {
        one["status"]["conditions"][0]["lastTransitionTime"] = json!("1970-01-02T00:00:00Z");
    });
    scene.settle(&web);
    assert_eq!((scene.phase(&web), &scene.deleted), (Some(MovePhase::Up), &Vec::new()));
    scene.play(&web);
    assert_eq!((scene.phase(&web), &scene.deleted[..]), (None, &[("east".to_owned(), true)][..]));
}

#[tokio::test]
async fn nothing_begins_in_the_first_minute_of_a_term() {
    let (mut scene, web) = Scene::placed();
    scene.restart();
    scene.drain("east", true);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.hashes("west")), (None, Vec::new()));
    scene.advance(GATE);
    scene.settle(&web);
    assert_eq!(scene.phase(&web), Some(MovePhase::Up));
}

#[tokio::test]
async fn a_move_ends_whenever_the_scheduler_is_restarted() {
    for restarted_after in 0..8 {
        let (mut scene, web) = Scene::placed();
        scene.drain("east", true);
        for number in 0..8 {
            let plan = scene.plan(&web);
            scene.execute(&web, plan);
            if number == restarted_after {
                scene.restart();
                scene.advance(GATE);
            }
            scene.agent("west", number > 2);
            scene.agent("east", true);
        }
        scene.play(&web);
        assert_eq!((scene.phase(&web), scene.schedules("east").len()), (None, 0), "{restarted_after}");
        assert_eq!(scene.deleted, [("east".to_owned(), true)], "{restarted_after}");
        assert_eq!(scene.record(&web).target.keys().collect::<Vec<_>>(), ["west"]);
    }
}

#[tokio::test]
async fn a_move_that_does_not_serve_in_time_goes_back_and_is_tried_later() {
    let (mut scene, web) = Scene::placed();
    scene.drain("east", true);
    for seconds in [0, DEADLINE] {
        scene.advance(seconds);
        for _ in 0..4 {
            scene.settle(&web);
            scene.agent("east", true);
            scene.agent("west", false);
        }
    }
    let record = scene.record(&web);
    assert_eq!((scene.phase(&web), scene.schedules("west").len()), (None, 0));
    assert_eq!(scene.deleted, [("west".to_owned(), true)], "the one that never served");
    assert_eq!((record.target.keys().collect::<Vec<_>>(), record.failed_attempts()), (vec![&"east".to_owned()], 1));
    assert_eq!(record.excluded[0].cluster, "west");
    assert_eq!(scene.reasons("Deployment"), ["Moving", "MoveFailed"]);
    scene.play(&web);
    assert_eq!(scene.phase(&web), None, "it waits");
    assert_eq!(scene.label(&web).as_deref(), Some("east"));
    scene.advance(DEADLINE);
    scene.settle(&web);
    assert_eq!(scene.phase(&web), Some(MovePhase::Up), "nothing else has room");
    scene.play(&web);
    assert_eq!((scene.phase(&web), scene.record(&web).retry), (None, None));
}

#[tokio::test]
async fn a_move_whose_cause_is_gone_is_withdrawn() {
    let (mut scene, web) = Scene::placed();
    scene.drain("east", true);
    scene.settle(&web);
    assert_eq!(scene.phase(&web), Some(MovePhase::Up));
    scene.drain("east", false);
    for _ in 0..4 {
        scene.settle(&web);
        scene.agent("east", true);
        scene.agent("west", false);
    }
    scene.settle(&web);
    assert_eq!((scene.phase(&web), &scene.deleted[..]), (None, &[("west".to_owned(), true)][..]));
    assert_eq!((scene.record(&web).retry, scene.reasons("ScheduleGroup")), (None, vec!["Moving", "MoveWithdrawn"]));
    assert_eq!(scene.schedules("west").len(), 0);
}

/// Reports that everything in a cluster is available but `page`, of which nothing is said.
fn report_all_but_page(scene: &mut Scene, cluster: &str) {
    let mut silent = scene.schedules(cluster).into_iter().find(|one| one.spec.source_ref.name == "page").unwrap();
    scene.agent(cluster, true);
    silent.metadata.resource_version = Some(scene.next_version());
    silent.status = serde_json::from_value(json!({"epoch": silent.spec.epoch})).unwrap();
    scene.placing.store.apply_change(Change::Schedule(Seen::There(silent)), Instant::now());
}

#[tokio::test]
async fn a_member_that_never_served_does_not_let_the_others_go() {
    let (mut scene, web) = Scene::placed();
    let spec = json!({"selector": {"matchLabels": {"a": "c"}}, "template": {"metadata": {"labels": {"a": "c"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}}});
    scene.put("shop", "apps", "Deployment", json!({"metadata": {"name": "page"}, "spec": spec}));
    scene.settle(&web);
    scene.drain("east", true);
    scene.settle(&web);
    // The new member is reported by neither side yet.
    report_all_but_page(&mut scene, "east");
    scene.settle(&web);
    assert_eq!((scene.phase(&web), &scene.deleted), (Some(MovePhase::Up), &Vec::new()), "web serves in east alone");
    report_all_but_page(&mut scene, "west");
    scene.settle(&web);
    let clusters: Vec<&str> = scene.deleted.iter().map(|(cluster, _)| cluster.as_str()).collect();
    assert_eq!(clusters, ["east", "east"], "what served is replaced");
}

#[tokio::test]
async fn a_drained_cluster_loses_ten_groups_at_a_time() {
    let mut scene = Scene::new();
    let webs: Vec<ObjectKey> = (0..12).map(|number| scene.web(&format!("shop-{number:02}"), 1)).collect();
    scene.edit_cluster("west", |one| one["spec"]["accepted"] = json!(false));
    for web in &webs {
        scene.settle(web);
    }
    scene.agent("east", true);
    scene.edit_cluster("west", |one| one["spec"]["accepted"] = json!(true));
    scene.drain("east", true);
    for _ in 0..2 {
        for web in &webs {
            scene.settle(web);
        }
        scene.advance(1);
    }
    assert_eq!(webs.iter().filter(|web| scene.phase(web).is_some()).count(), 10);
    for _ in 0..4 {
        scene.agent("east", true);
        scene.agent("west", true);
        scene.advance(GATE);
        for web in &webs {
            scene.settle(web);
        }
    }
    let targets = webs.iter().filter(|web| scene.record(web).target.contains_key("west")).count();
    assert_eq!((webs.iter().any(|web| scene.phase(web).is_some()), targets), (false, 12));
}

#[tokio::test]
async fn groups_of_old_agents_go_by_the_decision_alone() {
    let (mut scene, web) = Scene::placed();
    let group = scene.group_name(&web);
    assert!(moving::is_recorded(&scene.placing.store, &group));
    let mut silent = scene.schedules("east").remove(0);
    silent.metadata.resource_version = Some(scene.next_version());
    if let Some(status) = &mut silent.status {
        status.epoch = None;
    }
    scene.placing.store.apply_change(Change::Schedule(Seen::There(silent)), Instant::now());
    assert!(!moving::is_recorded(&scene.placing.store, &group), "no move would end");
    scene.settle(&web);
    assert_eq!(scene.record(&web), MoveRecord::default());
    scene.agent("east", true);
    scene.settle(&web);
    assert!(scene.record(&web).target.contains_key("east"));
}

#[tokio::test]
async fn a_suspended_group_begins_no_move_and_ends_the_one_that_runs() {
    let (mut scene, web) = Scene::placed();
    scene.drain("east", true);
    scene.settle(&web);
    scene.policy["spec"]["suspend"] = json!(true);
    scene.put_policy();
    for _ in 0..4 {
        scene.settle(&web);
        scene.agent("east", true);
        scene.agent("west", false);
    }
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.schedules("west").len()), (None, 0), "it goes back");
    scene.web("shop", 9);
    let before = scene.hashes("east");
    scene.play(&web);
    assert_eq!((scene.phase(&web), scene.hashes("east")), (None, before), "edits wait");
}
