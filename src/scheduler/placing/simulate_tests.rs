//! `simulate` and the scheduler decide alike: random fleets and policies of all kinds, new ones and ones that change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::decide::{Clusters, Decided};
use super::follow_input::FollowContext;
use super::moving::{self, Moves};
use super::queue::{Cause, Queue, ReconcileRequest};
use super::regroup;
use super::sources::{Change, Seen};
use super::store::{Assignment, Store};
use super::write::Write;
use crate::api::labels::cluster_namespace;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::{Kinds, find_builtin_kind};
use crate::api::{Cluster, Schedule, ScheduleGroup, SchedulePolicy};
use crate::placement::copy::Share;
use crate::placement::decide::{DirectDecision, Target};
use crate::placement::facts::ObjectKey;
use crate::placement::follow::PlaceState;
use crate::placement::live;
use crate::placement::matching::Match;
use crate::placement::names::{GroupKey, schedule_name};
use crate::placement::simulate::{Asked, FleetState, Simulation, SourceObject, simulate};
use crate::scheduler::index::Index;

/// The control plane's clock.
const TIME: i64 = 1_767_571_200;

fn wall() -> Timestamp {
    Timestamp::from_second(TIME).unwrap()
}

/// Numbers that are always the same for a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<'l>(&mut self, list: &[&'l str]) -> &'l str {
        list[usize::try_from(self.roll(list.len() as u64)).unwrap()]
    }
}

const NAMESPACES: [&str; 3] = ["bank", "play", "shop"];
const CLUSTERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const REGIONS: [&str; 3] = ["east", "north", "west"];

fn random_cluster(dice: &mut Dice, name: &str, version: u64) -> Cluster {
    let nodes: Vec<String> = (0..=dice.roll(3)).map(|at| format!("n{at}")).collect();
    let (mut capacity, mut free) = (json!({}), json!({}));
    for node in &nodes {
        let cpu = 4 + dice.roll(12);
        capacity[node] = json!({"cpu": cpu.to_string(), "memory": "64Gi", "pods": "30"});
        free[node] = json!({"cpu": (cpu - dice.roll(3)).to_string(), "memory": "60Gi", "pods": "20"});
    }
    let taints = match dice.roll(8) {
        0 => json!([{"key": "gpu", "effect": "NoSchedule"}]),
        1 => json!([{"key": "old", "effect": "NoExecute"}]),
        2 => json!([{"key": "spot", "effect": "PreferNoSchedule"}]),
        _ => json!([]),
    };
    let is_ready = dice.roll(10) > 0;
    let reason = if is_ready { "ClusterReady" } else { "ClusterNotReady" };
    let status = if is_ready { "True" } else { "False" };
    let conditions = json!([{"type": "Ready", "status": status, "reason": reason, "message": ""}]);
    serde_json::from_value(json!({
        "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string(),
            "labels": {"region": dice.pick(&REGIONS)}},
        "spec": {"name": name, "accepted": dice.roll(12) > 0, "taints": taints},
        "status": {"conditions": conditions, "capacityResources": capacity, "availableResources": free},
    }))
    .unwrap()
}

fn random_policy(dice: &mut Dice, name: &str) -> SchedulePolicy {
    let mut spec = json!({"namespaceSelector": {}, "resourceSelectors": {"labelSelectors": [{}]},
        "priority": dice.roll(3)});
    if dice.roll(2) == 0 {
        let namespaces: Vec<&str> = (0..2).map(|_| dice.pick(&NAMESPACES)).collect();
        spec["namespaceSelector"] = json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}]});
    }
    if dice.roll(3) == 0 {
        spec["resourceSelectors"]["labelSelectors"] = json!([{"matchLabels": {"app": dice.pick(&["x", "y", "z"])}}]);
    }
    match dice.roll(4) {
        0 => spec["groupBy"] = json!({"labelKey": "app"}),
        1 => spec["groupBy"] = json!({"namespace": true}),
        2 => spec["groupBy"] = json!({"labelKey": "app", "acrossNamespaces": true}),
        _ => {}
    }
    let regions = json!([{"key": "region", "operator": "In", "values": [dice.pick(&REGIONS), dice.pick(&REGIONS)]}]);
    match dice.roll(4) {
        0 => spec["clusterSelector"] = json!({"matchExpressions": regions}),
        1 => {
            spec["orderedClusterSelector"] = json!({"matchExpressions": [
                {"key": "region", "operator": "In", "values": ["west", "east", "north"]}]});
        }
        _ => {}
    }
    match dice.roll(6) {
        0 => spec["spreadConstraints"] = json!({"spreadMode": "Duplicate"}),
        1 => spec["spreadConstraints"] = json!({"spreadMode": "Divide"}),
        2 => spec["spreadConstraints"] = json!({"spreadMode": "Divide", "topologyKey": "region"}),
        3 => {
            spec["spreadConstraints"] = json!({"topologyKey": "region", "percentageSplit": [
                {"topologyValue": "east", "percentage": 60}, {"topologyValue": "west", "percentage": 40}]});
        }
        _ => {}
    }
    if dice.roll(4) == 0 {
        spec["clusterTolerations"] = json!([{"operator": "Exists"}]);
    }
    spec["suspend"] = json!(dice.roll(10) == 0);
    let metadata = json!({"name": name, "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", dice.roll(60))});
    serde_json::from_value(json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
        "metadata": metadata, "spec": spec}))
    .unwrap()
}

/// A random object with what it may need, as group, kind and body.
fn random_objects(dice: &mut Dice, at: u64, minute: u64) -> Vec<(&'static str, &'static str, Value)> {
    let namespace = dice.pick(&NAMESPACES);
    let created = format!("2026-01-02T00:{minute:02}:{:02}Z", dice.roll(60));
    let mut metadata = json!({"name": format!("o{at}"), "namespace": namespace, "creationTimestamp": created,
        "labels": {"app": dice.pick(&["x", "y", "z"])}});
    match dice.roll(12) {
        0 => metadata["annotations"] = json!({"fleet-scheduler.io/cluster": dice.pick(&CLUSTERS)}),
        1 => metadata["annotations"] = json!({"fleet-scheduler.io/spread-onto": "b,a,e"}),
        2 => metadata["annotations"] = json!({"fleet-scheduler.io/cluster": ""}),
        _ => {}
    }
    let mut pods = json!({"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": format!("m{at}")}}],
        "resources": {"requests": {"cpu": format!("{}m", 250 * (1 + dice.roll(8))), "memory": "1Gi"}}}]});
    let claims = dice.roll(6) == 0;
    if claims {
        pods["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": format!("p{at}")}}]);
    }
    let template = json!({"metadata": {"labels": {"app": format!("o{at}")}}, "spec": pods});
    let replicas = dice.roll(7);
    let mut objects = vec![match dice.roll(6) {
        0 => ("apps", "DaemonSet", json!({"metadata": metadata, "spec": {"template": template}})),
        1 => (
            "batch",
            "Job",
            json!({"metadata": metadata, "spec": {"template": template, "completions": 1 + replicas,
            "parallelism": 2}}),
        ),
        2 => {
            ("apps", "StatefulSet", json!({"metadata": metadata, "spec": {"template": template, "replicas": replicas}}))
        }
        _ => {
            ("apps", "Deployment", json!({"metadata": metadata, "spec": {"template": template, "replicas": replicas}}))
        }
    }];
    let follower =
        |name: String| json!({"metadata": {"name": name, "namespace": namespace, "creationTimestamp": created}});
    objects.push(("", "ConfigMap", follower(format!("m{at}"))));
    if claims {
        let mut claim = follower(format!("p{at}"));
        claim["spec"] = json!({});
        objects.push(("", "PersistentVolumeClaim", claim));
    }
    if dice.roll(5) == 0 {
        objects.push(("", "Secret", follower(format!("lonely{at}"))));
    }
    objects
}

/// A scheduler without an API server, and the same state as `simulate` reads it.
struct Both {
    store: Store,
    index: std::sync::Arc<Index>,
    clusters: Clusters,
    decided: BTreeMap<String, Decided>,
    direct: BTreeMap<ObjectKey, DirectDecision>,
    now: Instant,
    version: u64,
    state: FleetState,
    /// Every object as it was put last, by group and kind.
    bodies: BTreeMap<(String, String, String), Value>,
}

impl Both {
    fn new() -> Self {
        let now = Instant::now();
        let mut store = Store::new(Kinds::default(), false);
        let none = BTreeSet::new;
        for kind in Kinds::default().iter() {
            store.apply_change(Change::Source(kind, Seen::Listed(none())), now);
        }
        store.apply_change(Change::Policy(Seen::Listed(none())), now);
        store.apply_change(Change::Group(Seen::Listed(none())), now);
        store.apply_change(Change::Schedule(Seen::Listed(none())), now);
        store.apply_change(Change::Report(Seen::Listed(none())), now);
        assert!(store.is_complete());
        let mut both = Self {
            store,
            index: Index::new_complete().into(),
            clusters: Clusters::new(now),
            decided: BTreeMap::new(),
            direct: BTreeMap::new(),
            now,
            version: 0,
            state: FleetState::default(),
            bodies: BTreeMap::new(),
        };
        for name in NAMESPACES {
            let created = "2026-01-01T00:00:00Z";
            both.put_object("", "Namespace", json!({"metadata": {"name": name, "creationTimestamp": created}}));
        }
        both
    }

    /// A scheduler that begins with the same state.
    fn restart(&self) -> Self {
        let mut both = Self::new();
        both.version = self.version;
        for cluster in &self.state.clusters {
            both.put_cluster(cluster.clone());
        }
        for policy in &self.state.policies {
            both.put_policy(policy.clone());
        }
        for ((group, kind, _), body) in &self.bodies {
            both.put_object(group, kind, body.clone());
        }
        for group in &self.state.groups {
            both.store.apply_change(Change::Group(Seen::There(group.clone())), both.now);
        }
        for schedule in &self.state.schedules {
            both.store.apply_change(Change::Schedule(Seen::There(schedule.clone())), both.now);
        }
        // It has seen nothing grow.
        both.store.grown.clear();
        both.state = self.state.clone();
        both.version = both.version.max(self.version);
        both
    }

    fn put_object(&mut self, group: &str, kind: &str, mut body: Value) {
        let name = format!("{} {}", body["metadata"]["namespace"], body["metadata"]["name"]);
        let place = (group.to_owned(), kind.to_owned(), name);
        if let Some(known) = self.bodies.get(&place) {
            body["metadata"]["creationTimestamp"] = known["metadata"]["creationTimestamp"].clone();
        }
        self.bodies.insert(place, body.clone());
        let kind = find_builtin_kind(group, kind).unwrap();
        self.version += 1;
        body["metadata"]["uid"] = json!(format!("{}-{}", kind.kind, body["metadata"]["name"]));
        body["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let raw: Raw = serde_json::from_value(body.clone()).unwrap();
        self.store.on_fetched(kind, raw, self.now);
        (body["apiVersion"], body["kind"]) = (json!(kind.api_version()), json!(kind.kind));
        self.state.put_object(SourceObject::from_manifest(&body).unwrap());
    }

    fn put_policy(&mut self, policy: SchedulePolicy) {
        let mut edited = policy.clone();
        let known = self.state.policies.iter().find(|one| one.metadata.name == policy.metadata.name);
        if let Some(known) = known {
            edited.metadata.creation_timestamp.clone_from(&known.metadata.creation_timestamp);
        }
        self.store.apply_change(Change::Policy(Seen::There(edited.clone())), self.now);
        self.state.put_policy(edited);
    }

    fn put_cluster(&mut self, cluster: Cluster) {
        self.state.clusters.retain(|one| one.metadata.name != cluster.metadata.name);
        self.state.clusters.push(cluster.clone());
        self.index.put_cluster(cluster);
    }

    fn put_schedule(&mut self, key: &ObjectKey, cluster: &str, spec: &Value, counted: i64) {
        self.version += 1;
        let facts = self.store.source_facts(key).unwrap();
        let source = json!({"group": key.group(), "version": facts.version, "kind": key.kind(), "name": key.name(),
            "namespace": Some(key.namespace()).filter(|name| !name.is_empty()), "uid": facts.uid, "generation": 0});
        let mut whole = json!({"manifest": "{}", "hash": "h", "sourceRef": source});
        for (field, value) in spec.as_object().unwrap() {
            whole[field] = value.clone();
        }
        let conditions = ["Applied", "Available"].map(|one| json!({"type": one, "status": "True", "reason": one}));
        let schedule: Schedule = serde_json::from_value(json!({
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
            "metadata": {"name": schedule_name(key), "namespace": cluster_namespace(cluster), "uid": format!("s{}", self.version),
                "resourceVersion": self.version.to_string(), "creationTimestamp": "2026-01-03T00:00:00Z"},
            "spec": whole, "status": {"observedHash": "h", "epoch": 0, "available": 1, "served": 1, "conditions": conditions,
                "pods": {"desired": counted, "bound": counted, "counted": counted}}}))
        .unwrap();
        self.store.apply_change(Change::Schedule(Seen::There(schedule.clone())), self.now);
        self.state.schedules.push(schedule);
    }

    /// Everything is due at once, as if a scheduler had just begun.
    fn decide(&mut self) {
        self.clusters.refresh_clusters(&self.index, &mut self.store, self.now);
        self.decided.clear();
        self.direct.clear();
        // What changes have made due one by one.
        self.store.queue = Queue::default();
        self.store.mark_all(self.now);
        let groups = self.store.members.iter().filter(|(_, members)| !members.is_empty());
        for name in groups.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.store.undecided.insert(name.clone());
            self.store.enqueue(ReconcileRequest::Group(name), Cause::Change, self.now);
        }
        let direct = self.store.assignments.iter().filter(|(_, one)| **one == Assignment::Direct);
        for key in direct.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.store.enqueue(ReconcileRequest::Object(key), Cause::Change, self.now);
        }
        self.drain();
        for _ in 0..4 {
            self.now += Duration::from_secs(3);
            self.drain();
        }
    }

    fn context(&self) -> FollowContext<'_> {
        let (store, decided, clusters) = (&self.store, &self.decided, &self.clusters);
        FollowContext { store, decided, clusters, now: self.now, wall: wall() }
    }

    fn follow(&mut self, namespace: &str) {
        let plan = self.context().plan_namespace(namespace);
        self.store.record_follow_plan(namespace, plan, self.now);
    }

    fn drain(&mut self) {
        while let Some(taken) = self.store.take_due(self.now) {
            match &taken.request {
                ReconcileRequest::Group(name) => {
                    if self.store.undecided.remove(name) && !self.decided.contains_key(name) {
                        self.regroup(name);
                        for namespace in self.store.namespaces_to_plan_first(name) {
                            self.follow(&namespace);
                        }
                        let decided = if moving::is_recorded(&self.store, name) {
                            self.decide_recorded(name)
                        } else {
                            self.clusters.decide_and_reserve(&self.store, name, (TIME, wall()))
                        };
                        self.decided.extend(decided.map(|decided| (name.clone(), decided)));
                    }
                }
                ReconcileRequest::Object(key) => self.decide_direct(key),
                ReconcileRequest::Follow(namespace) => self.follow(namespace),
                ReconcileRequest::Status(_) | ReconcileRequest::Policy(_) => {}
            }
            self.store.queue.finish_request(&taken.request);
        }
    }

    /// Writes what must be written before a group is decided.
    fn regroup(&mut self, name: &str) {
        let Some(plan) = regroup::plan_regroup(&self.store, name) else { return };
        for write in plan.stages.into_iter().flatten() {
            match write {
                Write::Group(group) => self.write_group(*group),
                Write::Regroup { cluster, name, group, .. } => {
                    let mut schedule = self.store.schedules[&(cluster_namespace(&cluster), name)].clone();
                    self.version += 1;
                    schedule.metadata.resource_version = Some(self.version.to_string());
                    schedule.spec.group = Some(group);
                    self.store.apply_change(Change::Schedule(Seen::There(schedule)), self.now);
                }
                other => panic!("{other:?}"),
            }
        }
        self.clusters.refresh_clusters(&self.index, &mut self.store, self.now);
    }

    fn write_group(&mut self, mut group: ScheduleGroup) {
        self.version += 1;
        group.metadata.uid.clone_from(&group.metadata.name);
        group.metadata.resource_version = Some(self.version.to_string());
        self.store.apply_change(Change::Group(Seen::There(group)), self.now);
    }

    /// Plans a group that moves by its record, under a leader that lets it begin at once.
    fn decide_recorded(&mut self, name: &str) -> Option<Decided> {
        loop {
            let record = moving::read_record(&self.store, name);
            let proposal = self.clusters.propose(&self.store, name, &record, TIME, wall())?;
            let proposed = proposal.decided.clone();
            let mut moves = Moves::new("term".to_owned(), TIME - 1_000);
            moves.take_admitted(TIME);
            // Every copy was written by this leader.
            for facts in self.store.facts_of(name) {
                for (at, schedule) in self.store.copies_of(&facts.key) {
                    let uid = schedule.metadata.uid.clone().unwrap_or_default();
                    moves.record_written(at.clone(), uid, record.epoch, &self.store);
                }
            }
            let known_to = (&mut moves, &mut self.clusters);
            let (plan, _) = moving::plan_move(known_to, &self.store, name, (Some(proposal), None), (TIME, wall()));
            let written = plan.stages.into_iter().flatten().find_map(|write| match write {
                Write::Group(group) => Some(*group),
                _ => None,
            });
            let next = written.as_ref().and_then(|group| Some(group.status.as_ref()?.record.target.clone()));
            let has_copies = self.store.facts_of(name).iter().any(|facts| self.store.copies.contains_key(&facts.key));
            if record.target.is_empty() && has_copies && next.as_ref().is_some_and(|next| !next.is_empty()) {
                // Where it is was not recorded.
                self.write_group(written?);
                continue;
            }
            if proposed.suspended || self.store.policy_of(name)?.spec.spread_constraints.is_some() {
                return Some(proposed);
            }
            let target = next.unwrap_or(record.target);
            let targets = target.into_keys().map(|cluster| Target { cluster, ..Target::default() });
            return Some(Decided { targets: targets.collect(), ..proposed });
        }
    }

    /// Decides about an object that its annotation places, and writes its Schedules at once.
    fn decide_direct(&mut self, key: &ObjectKey) {
        if self.direct.contains_key(key) {
            return;
        }
        let Some(decision) = self.clusters.decide_direct_object(&self.store, key) else { return };
        let before = self.state.schedules.len();
        for target in &decision.targets {
            if self.store.copy_in(key, &target.cluster).is_none() {
                let share = target.share.map(|share| share_of(share, ""));
                self.put_schedule(key, &target.cluster, &json!({ "share": share }), 0);
                // It is the youngest.
                let mut schedule = self.state.schedules.last().unwrap().clone();
                schedule.metadata.creation_timestamp = Some(Time(Timestamp::MAX));
                self.version += 1;
                schedule.metadata.resource_version = Some(self.version.to_string());
                self.store.apply_change(Change::Schedule(Seen::There(schedule)), self.now);
            }
        }
        // What is simulated does not have them.
        self.state.schedules.truncate(before);
        self.clusters.refresh_clusters(&self.index, &mut self.store, self.now);
        self.direct.insert(key.clone(), decision);
    }

    fn simulate(&self, before: &FleetState) -> Simulation {
        let (mut before, mut state) = (before.clone(), self.state.clone());
        before.strip_at(TIME);
        state.strip_at(TIME);
        let asked = Asked { everything: true, ..Asked::default() };
        let first = simulate(&before, &state, &asked);
        // The same files, the same bytes.
        let again = simulate(&before, &state, &asked);
        assert_eq!(serde_json::to_string(&first).unwrap(), serde_json::to_string(&again).unwrap());
        first
    }

    /// Returns where both have decided otherwise.
    fn compare(&self, outcome: &Simulation) -> Vec<String> {
        let mut differing = Vec::new();
        // A follower that was alone for a moment leaves an empty group.
        for (name, decided) in self.decided.iter().filter(|(name, _)| !self.store.facts_of(name).is_empty()) {
            let members: Vec<String> = self.store.members[name].iter().map(ObjectKey::format_title).collect();
            let Some(found) = outcome.placements.iter().find(|one| one.name == *name) else {
                differing.push(format!("{name} ({members:?}) is not simulated"));
                continue;
            };
            let mine: Vec<_> = found.targets.iter().map(|one| (one.cluster.clone(), one.replicas.clone())).collect();
            let theirs = decided.targets.iter().map(|target| {
                let shares = target.replicas.iter().map(|(key, share)| {
                    let (Share::Replicas(amount) | Share::Job { completions: amount, .. }) = share;
                    (key.format_title(), *amount)
                });
                (target.cluster.clone(), shares.collect::<BTreeMap<String, i64>>())
            });
            let theirs: Vec<_> = theirs.collect();
            if (&mine, &found.reason) != (&theirs, &decided.reason) {
                let words = (&found.message, &decided.message);
                differing.push(format!("{name} ({members:?}): {mine:?}, not {theirs:?}: {words:?}"));
            }
        }
        for (key, decision) in &self.direct {
            let title = key.format_title();
            let found = outcome.placements.iter().find(|one| one.name.is_empty() && one.objects.contains(&title));
            let mine: Vec<&str> =
                found.into_iter().flat_map(|found| &found.targets).map(|target| target.cluster.as_str()).collect();
            let theirs: Vec<&str> = decision.targets.iter().map(|target| target.cluster.as_str()).collect();
            if mine != theirs {
                differing.push(format!("{title}: {mine:?}, not {theirs:?}"));
            }
        }
        for key in self.store.sources.keys().filter(|key| self.store.assignments[*key] == Assignment::Follows) {
            let Some(follower) = self.store.follow.follower(key) else { continue };
            let places = follower.places.iter().filter(|(_, place)| place.state != PlaceState::Leaves);
            let theirs: BTreeSet<String> = places.map(|(name, _)| name.clone()).collect();
            let mine = outcome.followers.get(&key.format_title()).cloned().unwrap_or_default();
            if mine != theirs {
                differing.push(format!("{key} follows to {mine:?}, not to {theirs:?}"));
            }
        }
        differing
    }

    /// Writes what was decided: Schedules, and the records of groups.
    fn write(&mut self, dice: &mut Dice) {
        for (name, decided) in std::mem::take(&mut self.decided) {
            let is_recorded = moving::is_recorded(&self.store, &name);
            let members: Vec<ObjectKey> = self.store.members.get(&name).into_iter().flatten().cloned().collect();
            let Some(first) = members.first() else { continue };
            let Some(Match::Policy { policy, .. }) = self.store.evaluate_object(first) else { continue };
            let (policy, key) =
                (policy.name.clone(), GroupKey::new(self.store.source_facts(first).unwrap(), policy).to_spec_key());
            for key in members.iter().filter(|_| !decided.suspended) {
                for target in &decided.targets {
                    let facts = self.store.source_facts(key).unwrap().clone();
                    if !live::has_copy_in_target(target, &facts) {
                        continue;
                    }
                    let share = target.replicas.get(key).copied();
                    let pods = match share {
                        Some(Share::Replicas(pods) | Share::Job { parallelism: pods, .. }) => pods,
                        None => facts.workload.pods_at_once(),
                    };
                    let counted = i64::try_from(dice.roll(u64::try_from(pods + 1).unwrap())).unwrap();
                    let domain = target.domain.clone();
                    let share = domain.map(|domain| match share {
                        Some(share) => share_of(share, &domain),
                        None => json!({ "domain": domain }),
                    });
                    let spec = json!({"group": name, "share": share});
                    self.put_schedule(key, &target.cluster, &spec, counted);
                }
            }
            let references = members.iter().map(|key| {
                json!({"group": key.group(), "version": "v1", "kind": key.kind(), "name": key.name(),
                    "namespace": Some(key.namespace()).filter(|name| !name.is_empty())})
            });
            let targets: Vec<&String> = decided.targets.iter().map(|target| &target.cluster).collect();
            let amounts = moving::target_amounts(&decided);
            let record = if is_recorded && !decided.suspended { amounts } else { BTreeMap::new() };
            self.version += 1;
            let group: ScheduleGroup = serde_json::from_value(json!({
                "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup",
                "metadata": {"name": name, "uid": name, "resourceVersion": self.version.to_string()},
                "spec": {"policy": {"name": policy}, "key": key},
                "status": {"scheduled": decided.scheduled, "target": record, "epoch": i64::from(is_recorded), "objectRefs": references.collect::<Vec<_>>(),
                    "targetClusters": if decided.suspended { Vec::new() } else { targets }, "decision": decided.record}}))
            .unwrap();
            self.store.apply_change(Change::Group(Seen::There(group.clone())), self.now);
            self.state.groups.push(group);
            self.clusters.record_group_written(&name);
        }
        for (key, decision) in std::mem::take(&mut self.direct) {
            for target in &decision.targets {
                let share = target.share.map(|share| share_of(share, ""));
                self.put_schedule(&key, &target.cluster, &json!({ "share": share }), 0);
            }
        }
        let followers = self.store.sources.keys().filter_map(|key| {
            let places = &self.store.follow.follower(key)?.places;
            let written = places.iter().filter(|(_, place)| place.state == PlaceState::Written);
            Some((key.clone(), written.map(|(name, _)| name.clone()).collect::<Vec<_>>()))
        });
        for (key, clusters) in followers.collect::<Vec<_>>() {
            for cluster in clusters {
                self.put_schedule(&key, &cluster, &json!({"follows": true}), 0);
            }
        }
    }
}

fn share_of(share: Share, domain: &str) -> Value {
    match share {
        Share::Replicas(replicas) => json!({"domain": domain, "replicas": replicas}),
        Share::Job { completions, parallelism } => {
            json!({"domain": domain, "replicas": parallelism, "completions": completions})
        }
    }
}

#[test]
fn simulate_decides_as_the_scheduler_on_random_fleets() {
    let mut differing: Vec<String> = Vec::new();
    for seed in 0..100 {
        let mut dice = Dice(seed * 7_919 + 1);
        let mut both = Both::new();
        for (at, name) in CLUSTERS.iter().enumerate() {
            let cluster = random_cluster(&mut dice, name, at as u64 + 1);
            both.put_cluster(cluster);
        }
        for at in 0..=dice.roll(4) {
            let policy = random_policy(&mut dice, &format!("p{at}"));
            both.put_policy(policy);
        }
        for at in 0..4 + dice.roll(12) {
            for (group, kind, body) in random_objects(&mut dice, at, 0) {
                both.put_object(group, kind, body);
            }
        }
        let empty = both.state.clone();
        both.decide();
        let outcome = both.simulate(&empty);
        let first = both.compare(&outcome).into_iter().map(|one| format!("seed {seed}: {one}"));
        differing.extend(first);

        // A scheduler that begins again with what was written, after changes of everything.
        both.write(&mut dice);
        let mut both = both.restart();
        let before = both.state.clone();
        let policy = random_policy(&mut dice, "p0");
        both.put_policy(policy);
        let name = dice.pick(&CLUSTERS);
        let cluster = random_cluster(&mut dice, name, 100);
        both.put_cluster(cluster);
        for at in [1, 50, 51] {
            for (group, kind, body) in random_objects(&mut dice, at, 30) {
                both.put_object(group, kind, body);
            }
        }
        both.decide();
        let outcome = both.simulate(&before);
        let second = both.compare(&outcome).into_iter().map(|one| format!("seed {seed}, after changes: {one}"));
        differing.extend(second);
    }
    assert!(differing.is_empty(), "{} differences:\n{}", differing.len(), differing.join("\n"));
}
