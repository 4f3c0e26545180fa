//! What follows, as it was last planned: by namespace, and for what has no namespace.
//!
//! A request `Follow(namespace)` plans where everything goes that follows (`follow_input` asks, `follow_plan` writes). This
//! file keeps the plans, and says what is due because of one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::place::{cluster_of, referenced_key};
use super::queue::{Cause, ReconcileRequest};
use super::store::{Assignment, Store};
use crate::placement::facts::ObjectKey;
use crate::placement::follow::{
    Because, Follower, MissingFollower, NamespacePlan, Place, find_claimed_clusters, is_follower,
};

/// Changes in a namespace within this time are planned together, at most this late.
const DEBOUNCE: Duration = Duration::from_millis(300);
const DEBOUNCE_MAX: Duration = Duration::from_secs(2);
/// The same of what has no namespace: its plan looks at every source.
const CLASSES_DEBOUNCE: Duration = Duration::from_secs(2);
const CLASSES_DEBOUNCE_MAX: Duration = Duration::from_secs(10);
/// Time without a new object in its namespace after which a follower that nothing uses is placed alone.
const QUIET: Duration = Duration::from_secs(2);
/// Age at which it is placed alone, whatever else comes, in seconds.
const OLD: i64 = 30;
/// Copies of followers that are deleted within a second.
const LEAVES: usize = 5;
const LEAVES_TIME: Duration = Duration::from_secs(1);

/// State of a cluster that followers are asked about.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ClusterState {
    pub(super) is_ready: bool,
    pub(super) labels: BTreeMap<String, String>,
}

/// The last plans, and what they depend on.
#[derive(Debug, Default)]
pub(super) struct FollowState {
    plans: BTreeMap<String, NamespacePlan>,
    /// Time of the last new object, by namespace.
    arrivals: BTreeMap<String, Instant>,
    pub(super) clusters: BTreeMap<String, ClusterState>,
    /// Beginning of the current second, and deletions in it.
    leaving: Option<(Instant, usize)>,
    /// Messages about missing objects that were last told, by the object whose pods name them.
    pub(super) told: BTreeMap<ObjectKey, String>,
}

/// Returns whether something uses a follower in a place.
pub(super) fn is_used(place: &Place) -> bool {
    place.because.iter().any(|because| matches!(because, Because::Object(_)))
}

impl FollowState {
    /// Returns the plan of a namespace.
    pub(super) fn plan_of(&self, namespace: &str) -> Option<&NamespacePlan> {
        self.plans.get(namespace)
    }

    /// Returns where a follower goes, as it was last planned.
    pub(super) fn follower(&self, key: &ObjectKey) -> Option<&Follower> {
        self.plans.get(key.namespace())?.followers.get(key)
    }

    /// Returns whether something that is or goes there uses a follower in a cluster.
    pub(super) fn is_used_in(&self, key: &ObjectKey, cluster: &str) -> bool {
        self.follower(key).and_then(|follower| follower.places.get(cluster)).is_some_and(is_used)
    }

    /// Returns whether its own policy decides about a follower.
    pub(super) fn is_alone(&self, key: &ObjectKey) -> bool {
        self.plans.get(key.namespace()).is_some_and(|plan| plan.alone.contains(key))
    }

    /// Returns what the pods of an object lack.
    pub(super) fn missing_of(&self, key: &ObjectKey) -> &[MissingFollower] {
        let plan = self.plans.get(key.namespace());
        plan.and_then(|plan| plan.missing.get(key)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the clusters that claims leave to a group; `None` where none pins it.
    pub(super) fn only_of(&self, group: &str, namespaces: &BTreeSet<&str>) -> Option<BTreeSet<String>> {
        find_claimed_clusters(namespaces.iter().filter_map(|namespace| self.plans.get(*namespace)), group)
    }

    /// Returns whether a namespace is quiet, or an object of it old enough.
    pub(super) fn is_quiet(&self, key: &ObjectKey, created: Option<Timestamp>, now: Instant, wall: Timestamp) -> bool {
        let arrived = self.arrivals.get(key.namespace());
        let is_old = created.is_some_and(|created| wall.as_second() - created.as_second() >= OLD);
        is_old || arrived.is_none_or(|arrived| now.duration_since(*arrived) >= QUIET)
    }

    /// Takes a part of the deletions that are allowed in this second.
    pub(super) fn take_leaves(&mut self, wanted: usize, now: Instant) -> usize {
        let current = self.leaving.filter(|(since, _)| now.duration_since(*since) < LEAVES_TIME);
        let (since, taken) = current.unwrap_or((now, 0));
        let granted = wanted.min(LEAVES.saturating_sub(taken));
        self.leaving = Some((since, taken + granted));
        granted
    }
}

impl Store {
    /// Plans again what follows in a namespace, and what has none, after a while.
    pub(super) fn mark_follow(&mut self, namespace: &str, now: Instant) {
        self.postpone_follow(namespace, now);
        if !namespace.is_empty() && self.has_classes() {
            self.postpone_follow("", now);
        }
    }

    pub(super) fn postpone_follow(&mut self, namespace: &str, now: Instant) {
        let (wait, longest) =
            if namespace.is_empty() { (CLASSES_DEBOUNCE, CLASSES_DEBOUNCE_MAX) } else { (DEBOUNCE, DEBOUNCE_MAX) };
        let request = ReconcileRequest::Follow(namespace.to_owned());
        self.queue.postpone_request(request, Cause::Change, now, wait, longest);
    }

    /// Plans again what follows everywhere: after a change of policies or clusters.
    pub(super) fn mark_follow_everywhere(&mut self, now: Instant) {
        let mut namespaces: BTreeSet<String> = self.sources.keys().map(|key| key.namespace().to_owned()).collect();
        namespaces.remove("");
        for namespace in &namespaces {
            self.postpone_follow(namespace, now);
        }
        if self.has_classes() {
            self.postpone_follow("", now);
        }
    }

    /// Returns whether anything without a namespace may follow, beside Namespaces.
    fn has_classes(&self) -> bool {
        self.class_keys().any(|key| self.source_facts(key).is_some_and(|facts| facts.never.is_none()))
    }

    /// Returns the followers without a namespace, beside Namespaces.
    pub(super) fn class_keys(&self) -> impl Iterator<Item = &ObjectKey> {
        let kinds = self.kinds.iter().filter(|kind| !kind.namespaced && (kind.group, kind.kind) != ("", "Namespace"));
        kinds.flat_map(move |kind| {
            let first = ObjectKey::new(kind.group, kind.kind, "", "");
            let all = self.sources.range(first.clone()..).map(|(key, _)| key);
            all.take_while(move |key| key.as_str().starts_with(first.as_str())).filter(|key| is_follower(key))
        })
    }

    /// Records that a namespace has a new object.
    pub(super) fn record_arrival(&mut self, namespace: &str, now: Instant) {
        self.follow.arrivals.insert(namespace.to_owned(), now);
    }

    /// Plans again what follows where a copy of something decided changed.
    pub(super) fn mark_followers_of_copy(&mut self, key: &ObjectKey, is_moved: bool, now: Instant) {
        let plan = self.follow.plan_of(key.namespace());
        let is_awaited = plan.is_some_and(|plan| plan.has_lingering() || plan.missing.contains_key(key));
        if is_moved || is_awaited && !is_follower(key) {
            self.mark_follow(key.namespace(), now);
        }
    }

    /// Plans again what follows where the members of a group are.
    pub(super) fn mark_followers_of_group(&mut self, group: &str, now: Instant) {
        let recorded = self.groups.get(group).and_then(|group| group.status.as_ref());
        let recorded = recorded.into_iter().flat_map(|status| &status.object_refs).map(referenced_key);
        let members = self.members.get(group).into_iter().flatten().cloned();
        let namespaces: BTreeSet<String> = recorded.chain(members).map(|key| key.namespace().to_owned()).collect();
        for namespace in namespaces {
            self.mark_follow(&namespace, now);
        }
    }

    /// Records the states of the clusters.
    pub(super) fn set_cluster_states(&mut self, clusters: BTreeMap<String, ClusterState>, now: Instant) {
        let old = std::mem::replace(&mut self.follow.clusters, clusters);
        if old == self.follow.clusters {
            return;
        }
        if list_cluster_labels(&old).ne(list_cluster_labels(&self.follow.clusters)) {
            self.mark_follow_everywhere(now);
            return;
        }
        // What leaves waits for what is Ready.
        let waiting = self.follow.plans.iter().filter(|(_, plan)| plan.has_lingering());
        for namespace in waiting.map(|(namespace, _)| namespace.clone()).collect::<Vec<_>>() {
            self.postpone_follow(&namespace, now);
        }
    }

    /// Records a plan, and marks what must be planned because of it.
    pub(super) fn record_follow_plan(&mut self, namespace: &str, new: NamespacePlan, now: Instant) {
        let waits = new.waits_for_quiet();
        let old = self.follow.plans.insert(namespace.to_owned(), new);
        let is_first = old.is_none();
        let old = old.unwrap_or_default();
        let new = &self.follow.plans[namespace];
        let changed: Vec<ObjectKey> = old.alone.symmetric_difference(&new.alone).cloned().collect();
        let followers = new.followers.keys().chain(old.followers.keys());
        let moved = followers.filter(|key| old.followers.get(*key) != new.followers.get(*key));
        let lacking = new.missing.keys().chain(old.missing.keys());
        let lacking = lacking.filter(|key| old.missing.get(*key) != new.missing.get(*key));
        let concerned: BTreeSet<ObjectKey> = moved.chain(lacking).cloned().collect();
        let pinned = new.changed_pins(&old);
        for key in changed {
            self.assign_object(&key, Cause::Change, now);
        }
        for key in concerned {
            if let Some(Assignment::Group(group)) = self.assignments.get(&key) {
                self.enqueue(ReconcileRequest::Group(group.clone()), Cause::Report, now);
            }
        }
        for group in pinned {
            self.mark_undecided(group, now);
        }
        if is_first {
            self.mark_emptied_groups(namespace, now);
        }
        if waits {
            let at = self.follow.arrivals.get(namespace).map_or(now, |arrived| *arrived + QUIET);
            let wait = at.saturating_duration_since(now).max(DEBOUNCE);
            let request = ReconcileRequest::Follow(namespace.to_owned());
            self.queue.retry_request(request, Cause::Review, now, wait);
        }
        self.forget_empty_namespace(namespace);
    }

    /// Forgets a namespace that has nothing any more: names come and go.
    fn forget_empty_namespace(&mut self, namespace: &str) {
        let is_empty = self.follow.plan_of(namespace).is_none_or(|plan| *plan == NamespacePlan::default());
        if is_empty && !namespace.is_empty() && self.sources_in(namespace).is_empty() {
            self.follow.plans.remove(namespace);
            self.follow.arrivals.remove(namespace);
        }
    }

    /// Returns the namespaces whose followers must be planned before a group is decided: those that never were, and
    /// those of members that mount claims.
    pub(super) fn namespaces_to_plan_first(&self, group: &str) -> BTreeSet<String> {
        let sources = self.members.get(group).into_iter().flatten().filter_map(|key| self.sources.get(key));
        let pinned = sources.filter(|source| {
            self.follow.plan_of(source.facts.key.namespace()).is_none() || source.relations.mounts_claims()
        });
        let namespaces = pinned.map(|source| source.facts.key.namespace()).filter(|name| !name.is_empty());
        namespaces.map(ToOwned::to_owned).collect()
    }

    /// Marks the groups without members that had some in a namespace: now it is known whether they go.
    fn mark_emptied_groups(&mut self, namespace: &str, now: Instant) {
        let empty = self.groups.iter().filter(|(name, _)| !self.members.contains_key(*name));
        let emptied = empty.filter(|(_, group)| {
            let mut members = group.status.iter().flat_map(|status| &status.object_refs);
            members.any(|one| one.namespace.as_deref().unwrap_or_default() == namespace)
        });
        for name in emptied.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.enqueue(ReconcileRequest::Group(name), Cause::Report, now);
        }
    }

    /// Returns whether it is not known yet who decides about a member that a group records: its followers are not planned.
    pub(super) fn has_unplanned_members(&self, group: &crate::api::ScheduleGroup) -> bool {
        let members = group.status.iter().flat_map(|status| &status.object_refs).map(referenced_key);
        let mut followers = members.filter(is_follower).filter(|key| self.sources.contains_key(key));
        followers.any(|key| !key.is_of_kind("", "Namespace") && self.follow.plan_of(key.namespace()).is_none())
    }

    /// Returns the clusters with a copy of an object that is not being deleted.
    pub(super) fn clusters_of(&self, key: &ObjectKey) -> BTreeSet<&str> {
        let copies = self.copies_of(key).filter(|(_, schedule)| schedule.metadata.deletion_timestamp.is_none());
        copies.map(|(at, _)| cluster_of(at)).collect()
    }
}

fn list_cluster_labels(
    clusters: &BTreeMap<String, ClusterState>,
) -> impl Iterator<Item = (&String, &BTreeMap<String, String>)> {
    clusters.iter().map(|(name, cluster)| (name, &cluster.labels))
}
