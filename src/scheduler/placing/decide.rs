//! From the store to a decision and back: what the pure functions are asked, and what is kept of their answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::follow::ClusterState;
use super::place::cluster_of;
use super::queue::{Cause, ReconcileRequest};
use super::store::{Assignment, Store};
use super::waiting_groups::WaitingGroups;
use crate::api::crd::cluster::Taint;
use crate::api::crd::group::{ClusterRow, DecisionRecord, DomainRow};
use crate::api::labels::cluster_namespace;
use crate::api::{Cluster, ScheduleGroupStatus};
use crate::placement::decide::{self, Current, Decision, DirectDecision, Group, How, Mode, Outcome, Target};
use crate::placement::explain;
use crate::placement::facts::ObjectKey;
use crate::placement::fleet::Fleet;
use crate::placement::inventory::{self, Part};
use crate::placement::live;
use crate::placement::matching::{Match, Policy};
use crate::scheduler::index::Index;

/// Most rows of clusters that a group shows.
pub(super) const ROWS: usize = 50;
/// Time after which what waits is decided again though nothing seems to have changed.
const RESYNC: Duration = Duration::from_secs(600);

/// A decision about a group, as it is recorded.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decided {
    pub(super) scheduled: bool,
    /// Its policy says that nothing is dispatched.
    pub(super) suspended: bool,
    /// It is kept where it is, without a search for another cluster: the message of the last decision still applies.
    pub(super) kept: bool,
    /// It is not carried out: the group moves, or waits for its move. What is recorded stays.
    pub(super) waits: bool,
    /// Reason and message of the condition `Scheduled`.
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) targets: Vec<Target>,
    /// Replicas that no target gets.
    pub(super) withheld: i64,
    pub(super) rows: Vec<ClusterRow>,
    /// Domains of a group that is spread.
    pub(super) domains: Vec<DomainRow>,
    /// Clusters that a suspended group would go to, whatever becomes of `targets`.
    pub(super) proposed: Vec<String>,
    pub(super) record: DecisionRecord,
}

impl Decided {
    /// Returns whether a cluster is one of the targets.
    pub(super) fn has_target(&self, cluster: &str) -> bool {
        self.targets.iter().any(|target| target.cluster == cluster)
    }
}

/// The clusters with their nodes, and what is promised of them.
pub(super) struct Clusters {
    pub(super) fleet: Fleet,
    pub(super) known: BTreeMap<String, Arc<Cluster>>,
    /// State of the index that was read last.
    revision: Option<u64>,
    /// Clusters of the index that take part, and of which nothing is known here.
    unknown: BTreeSet<String>,
    /// Groups that are decided and whose Schedules may not all be written yet.
    pending: BTreeMap<String, Decision>,
    /// Clusters that promise what a decision no longer asks for.
    stale: BTreeSet<String>,
    /// Clusters whose nodes have become more or larger since it was last asked here.
    pub(super) enlarged: BTreeSet<String>,
    /// When a cluster was last found to have grown, in seconds of the control plane's clock.
    pub(super) grown_at: BTreeMap<String, i64>,
    /// Clusters whose agents answered since it was last asked here.
    pub(super) answered: BTreeSet<String>,
    /// Groups without a place, or with too little.
    waiting: WaitingGroups,
    resynced: Instant,
}

impl Clusters {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            fleet: Fleet::default(),
            known: BTreeMap::new(),
            revision: None,
            unknown: BTreeSet::new(),
            pending: BTreeMap::new(),
            stale: BTreeSet::new(),
            enlarged: BTreeSet::new(),
            grown_at: BTreeMap::new(),
            answered: BTreeSet::new(),
            waiting: WaitingGroups::new(now),
            resynced: now,
        }
    }

    /// Looks at the clusters, and marks the groups for which a change matters.
    pub(super) fn refresh_clusters(&mut self, index: &Index, store: &mut Store, now: Instant) {
        let before = self.revision;
        let changed = self.read_cluster_changes(index, store);
        if !changed.is_empty() {
            let drained = self.known.iter().filter(|(_, cluster)| live::is_drained(cluster));
            store.clusters = self.known.iter().map(|(name, one)| (name.clone(), live::is_ready(one))).collect();
            store.set_drained(drained.map(|(name, _)| name.clone()).collect(), now);
            let states = self.known.iter().map(|(name, one)| {
                (name.clone(), ClusterState { is_ready: live::is_ready(one), labels: one.labels().clone() })
            });
            store.set_cluster_states(states.collect(), now);
        }
        // A cluster that was not Ready before it was lost may be chosen as little as before.
        if self.revision != before {
            store.set_lost(self.known.values(), now);
        }
        for (cluster, group) in std::mem::take(&mut store.added) {
            // A decision that is being written has promised it: the sum stays.
            let mut promised = self.pending.get(&group).into_iter().flat_map(|decision| &decision.targets);
            if !promised.any(|target| target.cluster == cluster) {
                store.touched.insert(cluster);
            }
        }
        store.touched.append(&mut self.stale);
        if !store.touched.is_empty() {
            self.waiting.record_growth(now);
        }
        self.renew_promises(store);
        if !changed.is_empty() {
            self.waiting.record_change(now);
            mark_concerned(store, &changed, now);
        }
        let resync = now.duration_since(self.resynced) >= RESYNC;
        for name in self.waiting.take_due(now, resync) {
            store.mark_undecided(name, now);
        }
        if resync {
            self.resynced = now;
            store.mark_all(now);
        }
    }

    /// Returns the latest time at which [`Clusters::refresh_clusters`] has something to do; `None` where nothing waits for room
    /// that may be there.
    pub(super) fn next_refresh_time(&self) -> Option<Instant> {
        self.waiting.next_round()
    }

    /// Reads what changed; returns the clusters in which something else than an inventory did, and those that are gone.
    fn read_cluster_changes(&mut self, index: &Index, store: &mut Store) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        let mut renew = std::mem::take(&mut store.reported);
        let revision = index.revision();
        for (name, cluster) in index.take_inventories() {
            let namespace = cluster_namespace(&name);
            self.set_cluster_inventory(&cluster, &name, index, store.reports_of(&namespace));
            renew.remove(&name);
            store.touched.insert(name.clone());
            let stripped = index.cluster(&name).unwrap_or_else(|| Arc::new(cluster));
            if stripped.status.as_ref().is_some_and(|status| status.answered.is_some()) {
                self.answered.insert(name.clone());
            }
            let old = self.known.insert(name.clone(), stripped);
            if old.is_none_or(|old| cluster_eligibility(&old) != cluster_eligibility(&self.known[&name])) {
                changed.insert(name);
            }
        }
        // The nodes of a cluster that is large enough for reports are all in them.
        for name in renew {
            if let Some(cluster) = self.known.get(&name).cloned() {
                self.set_cluster_inventory(&cluster, &name, index, store.reports_of(&cluster_namespace(&name)));
                store.touched.insert(name);
            }
        }
        if self.revision != Some(revision) {
            self.revision = Some(revision);
            changed.append(&mut self.forget_deleted_clusters(&index.clusters()));
        }
        changed
    }

    /// Stores a cluster with its inventory, and reports to the monitor what is left out of it.
    fn set_cluster_inventory<'a>(
        &mut self,
        cluster: &Cluster,
        name: &str,
        index: &Index,
        reports: impl Iterator<Item = &'a Part>,
    ) {
        let inventory = inventory::read_inventory(cluster, reports);
        index.record_left_out(name, inventory.left_out());
        let read = live::read_cluster(&mut self.fleet, cluster, inventory);
        let resources = self.fleet.resources();
        let before = self.fleet.get(name).map(|before| before.room.capacity_sums(resources));
        let capacity = read.room.capacity_sums(resources);
        if let Some(before) = before.filter(|before| !before.is_empty())
            && capacity.iter().any(|(resource, amount)| *amount > before.get(resource).copied().unwrap_or(0))
        {
            self.enlarged.insert(name.to_owned());
        }
        self.fleet.set_cluster(read);
    }

    /// Forgets clusters that are not among `all`, and returns them; finds those of which nothing is known.
    fn forget_deleted_clusters(&mut self, all: &[Arc<Cluster>]) -> BTreeSet<String> {
        let names: BTreeSet<String> = all.iter().map(|cluster| cluster.name_any()).collect();
        let gone: BTreeSet<String> = self.known.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in &gone {
            self.known.remove(name);
            self.grown_at.remove(name);
            self.fleet.remove_cluster(name);
        }
        let taking_part = all.iter().filter(|cluster| cluster.spec.accepted && live::is_ready(cluster));
        let unknown = taking_part.map(|cluster| cluster.name_any());
        let unknown = unknown.filter(|name| !self.known.contains_key(name)).collect();
        let before = std::mem::replace(&mut self.unknown, unknown);
        if self.unknown != before && !self.unknown.is_empty() {
            tracing::warn!(clusters = ?self.unknown, "no object is placed until the scheduler has read these clusters");
        }
        gone
    }

    /// Returns whether every cluster that takes part is known: a decision without one would take from it what it has.
    pub(super) fn is_complete(&self) -> bool {
        self.unknown.is_empty()
    }

    /// Recomputes the reservations of the clusters whose Schedules changed: first what is in Schedules, then what is
    /// decided but not written yet.
    fn renew_promises(&mut self, store: &mut Store) {
        for cluster in std::mem::take(&mut store.touched) {
            let schedules: Vec<_> = store.schedules_of(&cluster_namespace(&cluster)).collect();
            let known = schedules.iter().filter_map(|schedule| {
                Some((*schedule, store.source_facts(&live::source_key(&schedule.spec.source_ref))?))
            });
            let mut promises = live::copy_reservations(known);
            let written: BTreeSet<ObjectKey> =
                schedules.iter().map(|schedule| live::source_key(&schedule.spec.source_ref)).collect();
            for (name, decision) in &self.pending {
                let Some(target) = decision.targets.iter().find(|target| target.cluster == cluster) else { continue };
                let members = store.facts_of(name);
                let Some(policy) = store.policy_of(name) else { continue };
                let members = members.iter().map(|facts| &***facts);
                let group = Group::with_followers(name, policy, members, store.followers_of(name));
                let open = group.make_reservations(target, &Current::default()).into_iter();
                promises.extend(open.filter(|promise| !written.contains(&promise.object)));
            }
            self.fleet.set_promises(&cluster, promises);
        }
    }

    /// Records that all that a group decided is written.
    pub(super) fn record_group_written(&mut self, group: &str) {
        self.pending.remove(group);
    }

    /// Forgets a group.
    pub(super) fn forget_group(&mut self, group: &str) {
        let before = self.pending.remove(group);
        self.stale.extend(before.into_iter().flat_map(|before| before.targets).map(|target| target.cluster));
        self.waiting.remove(group);
    }

    /// Decides about a group; `None` where no policy matches any of its members any more.
    pub(super) fn decide_and_reserve(
        &mut self,
        store: &Store,
        name: &str,
        (time, now): (i64, Timestamp),
    ) -> Option<Decided> {
        let policy = store.policy_of(name)?;
        let members = store.facts_of(name);
        let objects = members.iter().map(|facts| &***facts);
        let group = Group::with_followers(name, policy, objects, store.followers_of(name));
        let recorded = store.groups.get(name).and_then(|group| group.status.as_ref());
        let copies = members
            .iter()
            .flat_map(|facts| store.copies_of(&facts.key).map(|(at, schedule)| (cluster_of(at), schedule, &***facts)));
        let mut current = live::current_placement(copies, recorded, policy, group.is_held());
        current.is_settled = !store.grown.contains(name);
        if policy.spec.spread_constraints.is_some() {
            current.bound = self.bound_pods(store, members.iter().map(|facts| &facts.key), time);
            if store.is_rebalance_asked(name) {
                current.mode = Mode::Rebalance;
            }
        }
        let namespaces = members.iter().map(|facts| facts.key.namespace()).collect();
        current.only = store.follow.only_of(name, &namespaces);
        let decision = decide::decide_group(policy, &group, &self.fleet, &current);
        self.reserve(&group, &decision, &current);
        let mut decided = self.build_decided(policy, &group, decision, now);
        decided.record.rebalanced_at = store.rebalance_digest(name);
        decided.record.cause = self.find_loss_cause(policy, recorded, &current, &decided);
        Some(decided)
    }

    /// Promises what a decision takes that is carried out; a group without a place waits for room.
    pub(super) fn reserve(&mut self, group: &Group<'_>, decision: &Decision, current: &Current) {
        let name = &*group.name;
        if !decision.suspended {
            self.fleet.reserve_decision(group, decision, current);
            let before = self.pending.insert(name.to_owned(), decision.clone());
            let before = before.into_iter().flat_map(|before| before.targets);
            let left = before.filter(|one| decision.targets.iter().all(|target| target.cluster != one.cluster));
            self.stale.extend(left.map(|target| target.cluster));
        }
        if decision.scheduled && decision.withheld == 0 && decision.outcome == Outcome::Placed {
            self.waiting.remove(name);
        } else {
            self.waiting.record_decided(name, Instant::now());
        }
    }

    pub(super) fn build_decided(
        &self,
        policy: &Policy,
        group: &Group<'_>,
        decision: Decision,
        now: Timestamp,
    ) -> Decided {
        let mut rejected: BTreeMap<String, i32> = BTreeMap::new();
        for (_, reason) in &decision.rejected {
            *rejected.entry(reason.to_string()).or_default() += 1;
        }
        let record = DecisionRecord {
            time: Some(Time(now)),
            how: decision.how.map(|how| how.code().to_owned()).unwrap_or_default(),
            candidates: i32::try_from(self.fleet.len()).unwrap_or(i32::MAX),
            rejected,
            policy_hash: policy.placement_hash(),
            rebalanced_at: String::new(),
            cause: String::new(),
        };
        let proposed = decision.targets.iter().filter(|_| decision.suspended);
        let reason = if decision.suspended { "Suspended" } else { decision.outcome.code() };
        Decided {
            scheduled: decision.scheduled,
            suspended: decision.suspended,
            waits: false,
            kept: decision.how == Some(How::Kept) && decision.rejected.is_empty() && decision.scheduled,
            reason: reason.to_owned(),
            message: explain::format_decision(policy, group, &self.fleet, &decision),
            rows: self.cluster_rows(policy, &decision),
            domains: list_domain_rows(&decision),
            proposed: proposed.map(|target| target.cluster.clone()).collect(),
            withheld: decision.withheld,
            targets: decision.targets,
            record,
        }
    }
}

/// Returns what each domain of a decision has, in the order of their values; none of a group that is not spread.
fn list_domain_rows(decision: &Decision) -> Vec<DomainRow> {
    let placed = decision.targets.iter().filter_map(|target| {
        let (replicas, reason) = (target.divided_pods(), Outcome::Placed.code().to_owned());
        Some(DomainRow { value: target.domain.clone()?, cluster: target.cluster.clone(), replicas, reason })
    });
    let without = decision.domains.iter().map(|(value, outcome)| DomainRow {
        value: value.clone(),
        reason: outcome.code().to_owned(),
        ..DomainRow::default()
    });
    let mut rows: Vec<DomainRow> = placed.chain(without).collect();
    rows.sort_by(|a, b| a.value.cmp(&b.value));
    rows
}

/// Facts that decide whether a cluster may be chosen: UID, states, labels, taints and APIs.
type Eligibility<'a> = (Option<&'a str>, [bool; 5], &'a BTreeMap<String, String>, &'a [Taint], Option<&'a [String]>);

fn cluster_eligibility(cluster: &Cluster) -> Eligibility<'_> {
    let states = [
        live::is_ready(cluster),
        live::lost_since(cluster, i64::MAX).is_some(),
        cluster.spec.accepted,
        live::is_leaving(cluster),
        live::is_drained(cluster),
    ];
    let observed = cluster.status.as_ref().and_then(|status| status.observed.as_ref());
    let apis = observed.map(|observed| observed.apis.as_slice());
    (cluster.metadata.uid.as_deref(), states, cluster.labels(), &cluster.spec.taints, apis)
}

impl Clusters {
    /// The targets, then the others, each with the reason against it.
    fn cluster_rows(&self, policy: &Policy, decision: &Decision) -> Vec<ClusterRow> {
        let targets = decision.targets.iter().map(|target| build_cluster_row(&target.cluster, "Target"));
        let rejected = explain::rejection_rows(policy, &self.fleet, decision);
        let rejected = rejected.iter().flat_map(|one| one.clusters.iter().map(move |name| (name, one)));
        let rejected = rejected.map(|(name, one)| ClusterRow {
            reason: one.reason.clone(),
            detail: one.detail.clone(),
            ..build_cluster_row(name, "Rejected")
        });
        targets.chain(rejected).take(ROWS).collect()
    }

    /// Decides where an object goes whose own annotation says so.
    pub(super) fn decide_direct_object(&self, store: &Store, key: &ObjectKey) -> Option<DirectDecision> {
        let Some(Match::Annotation { direct, .. }) = store.evaluate_object(key) else { return None };
        let facts = store.source_facts(key)?;
        let shares = store.copies_of(key).filter_map(|(at, schedule)| {
            let written = schedule.spec.share.as_ref()?;
            Some((cluster_of(at).to_owned(), written.completions.or(written.replicas)?))
        });
        Some(decide::decide_direct(facts, &direct, &self.fleet, &shares.collect()))
    }
}

/// Marks what has a place in one of the clusters, and what belongs into every cluster; what has none is decided again with
/// all that waits.
fn mark_concerned(store: &mut Store, changed: &BTreeSet<String>, now: Instant) {
    let everywhere: BTreeSet<&str> =
        store.order.iter().filter(|policy| policy.duplicates()).map(|policy| policy.name.as_str()).collect();
    let concerned = store.members.keys().filter(|name| {
        store.groups.get(*name).is_some_and(|group| {
            everywhere.contains(group.spec.policy.name.as_str())
                || group.status.as_ref().is_some_and(|status| names_any_cluster(status, changed))
        })
    });
    let concerned: Vec<String> = concerned.cloned().collect();
    let direct = store.assignments.iter().filter(|(key, assignment)| {
        **assignment == Assignment::Direct
            && (store.copies_of(key).any(|(at, _)| changed.contains(cluster_of(at)))
                || store.source_facts(key).is_some_and(|facts| facts.asks.names_any(changed)))
    });
    let direct: Vec<ObjectKey> = direct.map(|(key, _)| key.clone()).collect();
    for name in concerned {
        store.mark_undecided(name, now);
    }
    for key in direct {
        store.enqueue(ReconcileRequest::Object(key), Cause::Review, now);
    }
}

fn names_any_cluster(status: &ScheduleGroupStatus, clusters: &BTreeSet<String>) -> bool {
    status.target_clusters.iter().any(|name| clusters.contains(name))
        || status.record.names_cluster(|name| clusters.contains(name))
}

/// Returns the row of a cluster without a reason.
pub(super) fn build_cluster_row(name: &str, state: &str) -> ClusterRow {
    ClusterRow { name: name.to_owned(), state: state.to_owned(), ..ClusterRow::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::crd::cluster::reasons;
    use crate::api::placeable::Kinds;

    fn cluster(name: &str, version: &str, ready: &str, reason: &str) -> Cluster {
        serde_json::from_value(json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "uid": name, "resourceVersion": version}, "spec": {"name": name, "accepted": true},
            "status": {"conditions": [{"type": "Ready", "status": ready, "reason": reason, "message": ""}]}}))
        .unwrap()
    }

    #[test]
    fn a_cluster_that_was_not_ready_is_known_to_be_lost_and_found() {
        let (index, now) = (Index::new_complete(), Instant::now());
        let mut store = Store::new(Kinds::default(), false);
        let mut clusters = Clusters::new(now);
        let steps = [("1", reasons::NOT_READY), ("2", reasons::HEARTBEAT_LOST), ("3", reasons::NOT_READY)];
        for (version, reason) in steps {
            index.put_cluster(cluster("east", version, "False", reason));
            clusters.refresh_clusters(&index, &mut store, now);
            assert_eq!(store.lost.contains_key("east"), reason == reasons::HEARTBEAT_LOST, "{version}: {reason}");
        }
    }

    #[test]
    fn nothing_is_decided_while_a_ready_cluster_is_unknown() {
        let (index, now) = (Index::new_complete(), Instant::now());
        let mut store = Store::new(Kinds::default(), false);
        let mut first = Clusters::new(now);
        index.put_cluster(cluster("east", "1", "True", "R"));
        first.refresh_clusters(&index, &mut store, now);
        assert!(first.is_complete() && first.fleet.get("east").is_some());
        // Whoever comes later is told of no inventory before the agent reports again.
        let mut second = Clusters::new(now);
        second.refresh_clusters(&index, &mut store, now);
        assert!(!second.is_complete());
        index.put_cluster(cluster("west", "2", "True", "R"));
        second.refresh_clusters(&index, &mut store, now);
        assert!(!second.is_complete(), "one of them is not all");
        index.put_cluster(cluster("east", "3", "True", "R"));
        second.refresh_clusters(&index, &mut store, now);
        assert!(second.is_complete());
        index.forget_cluster(&cluster("east", "3", "True", "R"));
        second.refresh_clusters(&index, &mut store, now);
        assert!(second.is_complete() && second.fleet.get("east").is_none(), "a deleted one is not waited for");
    }
}
