//! The knowledge of placement: sources, policies, groups and Schedules as the watches deliver them, with the indexes
//! that are asked for, and what is due because of a change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::arriving::Arriving;
use super::follow::FollowState;
use super::place::{Place, cluster_of, referenced_key};
use super::queue::{Cause, Queue, ReconcileRequest};
use super::refusals::Refusals;
use super::source::Source;
use super::sources::count_watches;
use super::tally::Tally;
use super::write::{TargetMark, Write};
use crate::api::labels::cluster_namespace;
use crate::api::placeable::{Kinds, Placeable};
use crate::api::{Schedule, ScheduleGroup, SchedulePolicy};
pub(super) use crate::placement::assignment::Assignment;
use crate::placement::assignment::assign_to_decider;
use crate::placement::explain::UnplacedKinds;
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::inventory::Part;
use crate::placement::live;
use crate::placement::matching::{Match, Policies, Policy};
use crate::placement::names::GroupKey;
use crate::placement::room::Promise;
use crate::placement::stuck::Stuck;

/// Time without a new member after which a group by label is decided, and the longest time that this takes.
const QUIET: Duration = Duration::from_millis(100);
const QUIET_MAX: Duration = Duration::from_secs(1);
/// Changes of the status of copies within this time are written together, at most this late.
const STATUS_DEBOUNCE: Duration = Duration::from_millis(500);
const STATUS_MAX: Duration = Duration::from_secs(2);
/// Events about a source that wait for its status; what comes on top is lost.
const NEWS: usize = 16;

/// Most sources of which the whole object is kept, each of at most 16 KiB, until their copies are made.
const MOST_WHOLE: usize = 2048;

/// What placement knows in one leadership term.
pub(super) struct Store {
    pub(super) sources: BTreeMap<ObjectKey, Source>,
    pub(super) policies: BTreeMap<String, SchedulePolicy>,
    /// Annotations of objects do not place them.
    pub(super) denies_direct: bool,
    /// Namespace of the service, of which nothing is placed.
    pub(super) own_namespace: Option<String>,
    pub(super) order: Policies,
    /// Policies as they could be read last, by name.
    pub(super) last_good: BTreeMap<String, Policy>,
    /// Policies that cannot be read now: they decide nothing, and hand nothing over to others.
    pub(super) broken: BTreeSet<String>,
    pub(super) groups: BTreeMap<String, ScheduleGroup>,
    pub(super) schedules: BTreeMap<Place, Schedule>,
    pub(super) assignments: BTreeMap<ObjectKey, Assignment>,
    /// Objects by group.
    pub(super) members: BTreeMap<String, BTreeSet<ObjectKey>>,
    pub(super) tally: Tally,
    /// What follows, as it was last planned.
    pub(super) follow: FollowState,
    /// Schedules by the object that they are copies of.
    pub(super) copies: BTreeMap<ObjectKey, BTreeSet<Place>>,
    /// Number of Schedules by group.
    of_group: BTreeMap<String, usize>,
    /// Sources of which the whole object is kept.
    pub(super) whole: BTreeSet<ObjectKey>,
    /// Sources by the objects that their pods name.
    users: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Events about sources that are to be written with their statuses.
    news: BTreeMap<ObjectKey, Vec<Write>>,
    /// Faults that were last told of objects that cannot be placed as they ask, by reason.
    told: BTreeMap<ObjectKey, BTreeMap<&'static str, String>>,
    pub(super) queue: Queue,
    /// Writes that were refused, and copies that cannot be made.
    pub(super) refusals: Refusals,
    /// Parts of inventories, and the clusters of which one changed.
    pub(super) reports: BTreeMap<Place, Part>,
    pub(super) reported: BTreeSet<String>,
    /// Clusters that are registered, with whether they are Ready.
    pub(super) clusters: BTreeMap<String, bool>,
    /// Clusters that are being drained.
    pub(super) drained: BTreeSet<String>,
    /// Objects whose labels or annotations were edited since their copies were last where they must be.
    pub(super) edited: BTreeSet<ObjectKey>,
    /// Clusters that are lost, each with what its condition says.
    pub(super) lost: BTreeMap<String, String>,
    /// Clusters that promise something else than they did.
    pub(super) touched: BTreeSet<String>,
    /// Clusters with a new Schedule of something that runs pods, with its group: what was decided may have promised it already.
    pub(super) added: Vec<(String, String)>,
    /// Copies whose pods find no node, or whose kind is not served, each with whether its group was asked to leave.
    pub(super) stuck: BTreeMap<Place, (Stuck, bool)>,
    /// Groups that must be decided, not only brought up to date.
    pub(super) undecided: BTreeSet<String>,
    /// Groups whose own demand has grown since they were decided.
    pub(super) grown: BTreeSet<String>,
    /// Kinds of which the first list is complete: by group and plural, and the service's own by plural.
    pub(super) listed: BTreeSet<(&'static str, &'static str)>,
    /// The kinds that are watched.
    pub(super) kinds: Kinds,
    /// Added kinds of which the first list is not complete.
    pub(super) arriving: Arriving,
    /// What there is of kinds that are not placed, by the policy that would take it; `None` before it was counted.
    pub(super) unplaced: Option<BTreeMap<String, UnplacedKinds>>,
    /// UIDs of objects that are gone: the answer to a request that was in progress may still hold them.
    pub(super) gone: BTreeSet<String>,
    /// The same in the order of time.
    pub(super) gone_since: VecDeque<(Instant, String)>,
}

impl Store {
    pub(super) fn new(kinds: Kinds, denies_direct: bool) -> Self {
        Self {
            denies_direct,
            own_namespace: None,
            arriving: Arriving::new(kinds.added_placeables()),
            kinds,
            refusals: Refusals::default(),
            sources: BTreeMap::new(),
            policies: BTreeMap::new(),
            order: Policies::default().with_direct_placement_denied(denies_direct),
            last_good: BTreeMap::new(),
            broken: BTreeSet::new(),
            groups: BTreeMap::new(),
            schedules: BTreeMap::new(),
            assignments: BTreeMap::new(),
            members: BTreeMap::new(),
            tally: Tally::default(),
            follow: FollowState::default(),
            copies: BTreeMap::new(),
            of_group: BTreeMap::new(),
            whole: BTreeSet::new(),
            users: BTreeMap::new(),
            news: BTreeMap::new(),
            told: BTreeMap::new(),
            unplaced: None,
            queue: Queue::default(),
            reports: BTreeMap::new(),
            reported: BTreeSet::new(),
            clusters: BTreeMap::new(),
            drained: BTreeSet::new(),
            edited: BTreeSet::new(),
            lost: BTreeMap::new(),
            touched: BTreeSet::new(),
            added: Vec::new(),
            stuck: BTreeMap::new(),
            undecided: BTreeSet::new(),
            grown: BTreeSet::new(),
            listed: BTreeSet::new(),
            gone: BTreeSet::new(),
            gone_since: VecDeque::new(),
        }
    }

    /// Sets the namespace of the service, of which nothing is placed.
    pub(super) fn with_own_namespace(self, namespace: String) -> Self {
        let own_namespace = Some(namespace);
        Self { order: self.order.with_own_namespace(own_namespace.clone()), own_namespace, ..self }
    }

    /// The entry of an object's kind, where it is watched.
    pub(super) fn kind_of(&self, key: &ObjectKey) -> Option<&'static Placeable> {
        self.kinds.find_placeable(key.group(), key.kind())
    }

    /// Returns true once every watch has delivered its first list; that of a kind that begins to be served later, or that
    /// cannot be listed, is not waited for.
    pub(super) fn is_complete(&self) -> bool {
        self.listed.len() + self.arriving.count_unawaited_kinds() == count_watches(&self.kinds)
    }

    /// Returns the request that plans the copies of an object.
    pub(super) fn owning_request(&self, key: &ObjectKey) -> ReconcileRequest {
        match self.assignments.get(key) {
            Some(Assignment::Group(group)) => ReconcileRequest::Group(group.clone()),
            Some(Assignment::Follows) if !key.is_of_kind("", "Namespace") => {
                ReconcileRequest::Follow(key.namespace().to_owned())
            }
            _ => ReconcileRequest::Object(key.clone()),
        }
    }

    /// Marks what plans the copies of an object.
    pub(super) fn mark_owner(&mut self, key: &ObjectKey, cause: Cause, now: Instant) {
        self.enqueue(self.owning_request(key), cause, now);
    }

    /// Finds out who decides about an object.
    pub(super) fn assign_object(&mut self, key: &ObjectKey, cause: Cause, now: Instant) {
        let new = self.compute_assignment(key);
        let old = self.assignments.insert(key.clone(), new.clone()).unwrap_or(Assignment::Unplaced);
        if let Assignment::Group(group) | Assignment::Left(Some(group)) = &old
            && !matches!(&new, Assignment::Group(same) | Assignment::Left(Some(same)) if same == group)
        {
            self.remove_from_group(group, key);
            self.undecided.insert(group.clone());
            self.enqueue(ReconcileRequest::Group(group.clone()), cause, now);
        }
        match &new {
            Assignment::Group(group) | Assignment::Left(Some(group)) => {
                let grown = self.members.entry(group.clone()).or_default().insert(key.clone());
                if grown && self.is_complete() && !self.is_recorded_member(group, key) {
                    self.mark_grown(key);
                }
                self.undecided.insert(group.clone());
                self.mark_group(group, grown, cause, now);
            }
            Assignment::Unplaced
                if old == Assignment::Unplaced && !self.copies.contains_key(key) && !self.is_denied(key) => {}
            // So are all objects of the service, such as the data of copied Secrets.
            Assignment::Withdrawn if self.has_nowhere_to_leave(key) => {}
            Assignment::Follows => self.mark_owner(key, cause, now),
            _ => self.enqueue(ReconcileRequest::Object(key.clone()), cause, now),
        }
        if new != old || new == Assignment::Follows {
            self.mark_scaled_object(key, now);
        }
        let is_unplaced = old == Assignment::Unplaced && new == Assignment::Unplaced;
        if !is_unplaced || self.copies.contains_key(key) {
            self.mark_follow(key.namespace(), now);
        }
    }

    fn is_recorded_member(&self, group: &str, key: &ObjectKey) -> bool {
        let status = self.groups.get(group).and_then(|group| group.status.as_ref());
        status.is_some_and(|status| status.object_refs.iter().any(|one| referenced_key(one) == *key))
    }

    /// Records that an object asks for more than it did, so that its group asks for room. What runs once waits where its
    /// group is.
    pub(super) fn mark_grown(&mut self, key: &ObjectKey) {
        let own = match self.assignments.get(key) {
            Some(Assignment::Group(group)) => Some(group),
            _ => None,
        };
        if let Some(group) = self.scaled_group(key).or(own).cloned()
            && let Some(facts) = self.source_facts(key)
            && (facts.shape.is_some() || facts.scales.is_some())
            && !facts.workload.runs_once()
        {
            self.grown.insert(group);
        }
    }

    /// Returns whether an object has neither a copy nor a mark that says where it went.
    fn has_nowhere_to_leave(&self, key: &ObjectKey) -> bool {
        let is_unmarked = self.sources.get(key).is_none_or(|source| source.target == TargetMark::default());
        is_unmarked && !self.copies.contains_key(key)
    }

    pub(super) fn remove_from_group(&mut self, group: &str, key: &ObjectKey) {
        if let Some(members) = self.members.get_mut(group) {
            members.remove(key);
            if members.is_empty() {
                self.members.remove(group);
            }
        }
    }

    pub(super) fn compute_assignment(&self, key: &ObjectKey) -> Assignment {
        let Some(source) = self.sources.get(key) else { return Assignment::Unplaced };
        let found = self.order.match_object(&source.facts, self.namespace_labels(key.namespace()));
        if matches!(&found, Match::Policy { policy, .. } if self.is_withheld(key, policy)) {
            return self.leave_object(key);
        }
        assign_to_decider(
            key,
            &found,
            self.follow.is_alone(key),
            |policy| self.group_name(&source.facts, policy),
            || self.leave_object(key),
        )
    }

    /// Returns the assignment of an object about which nobody decides: what it has stays.
    fn leave_object(&self, key: &ObjectKey) -> Assignment {
        let copy = self.copies_of(key).next();
        copy.map_or(Assignment::Unplaced, |(_, copy)| Assignment::Left(copy.spec.group.clone()))
    }

    /// Finds who decides about an object that exists.
    pub(super) fn evaluate_object(&self, key: &ObjectKey) -> Option<Match<'_>> {
        let source = self.sources.get(key)?;
        Some(self.order.match_object(&source.facts, self.namespace_labels(key.namespace())))
    }

    /// Returns whether an object names clusters in an annotation that does not count.
    pub(super) fn is_denied(&self, key: &ObjectKey) -> bool {
        self.source_facts(key).is_some_and(|facts| self.order.is_annotation_denied(facts))
    }

    /// Returns the facts of a source.
    pub(super) fn source_facts(&self, key: &ObjectKey) -> Option<&Facts> {
        self.sources.get(key).map(|source| &*source.facts)
    }

    /// Returns the facts of the members of a group that a policy still matches.
    pub(super) fn facts_of(&self, group: &str) -> Vec<&Arc<Facts>> {
        let members = self.members.get(group).into_iter().flatten().filter(|key| self.is_assigned_to_group(key));
        members.filter_map(|key| self.sources.get(key)).map(|source| &source.facts).collect()
    }

    /// Returns whether an object is placed as a member of a group that a policy still matches.
    pub(super) fn is_assigned_to_group(&self, key: &ObjectKey) -> bool {
        matches!(self.assignments.get(key), Some(Assignment::Group(_)))
    }

    /// Returns the policy that decides about a group.
    pub(super) fn policy_of(&self, group: &str) -> Option<&Policy> {
        let members = self.members.get(group).into_iter().flatten();
        members.filter(|key| matches!(self.assignments.get(*key), Some(Assignment::Group(_)))).find_map(
            |key| match self.evaluate_object(key) {
                Some(Match::Policy { policy, .. }) => Some(policy),
                _ => None,
            },
        )
    }

    /// Returns the Schedules in a namespace.
    pub(super) fn schedules_of(&self, namespace: &str) -> impl Iterator<Item = &Schedule> {
        let first = (namespace.to_owned(), String::new());
        let namespace = namespace.to_owned();
        self.schedules.range(first..).take_while(move |(at, _)| at.0 == namespace).map(|(_, schedule)| schedule)
    }

    /// Records which clusters are being drained; the namespaces go from one when nothing is in them there any more.
    pub(super) fn set_drained(&mut self, drained: BTreeSet<String>, now: Instant) {
        let new: BTreeSet<String> = drained.difference(&self.drained).cloned().collect();
        self.drained = drained;
        if new.is_empty() {
            return;
        }
        let namespaces = self.copies.iter().filter(|(key, places)| {
            key.is_of_kind("", "Namespace") && places.iter().any(|at| new.contains(cluster_of(at)))
        });
        for key in namespaces.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.mark_owner(&key, Cause::Review, now);
        }
    }

    /// Returns whether copies are in a namespace of a cluster.
    pub(super) fn is_inhabited(&self, cluster: &str, namespace: &str) -> bool {
        self.schedules_of(&cluster_namespace(cluster))
            .any(|schedule| schedule.spec.source_ref.namespace.as_deref() == Some(namespace))
    }

    /// Returns the parts of an inventory in a namespace.
    pub(super) fn reports_of(&self, namespace: &str) -> impl Iterator<Item = &Part> {
        let first = (namespace.to_owned(), String::new());
        let namespace = namespace.to_owned();
        self.reports.range(first..).take_while(move |(at, _)| at.0 == namespace).map(|(_, report)| report)
    }

    /// Marks a group to be decided.
    pub(super) fn mark_undecided(&mut self, group: String, now: Instant) {
        self.undecided.insert(group.clone());
        self.enqueue(ReconcileRequest::Group(group), Cause::Review, now);
    }

    /// Returns the labels of a namespace.
    pub(super) fn namespace_labels(&self, name: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.sources.get(&ObjectKey::new("", "Namespace", "", name)).map_or(&NONE, |source| &source.facts.labels)
    }

    /// Returns the name of the group of an object under a policy.
    pub(super) fn group_name(&self, facts: &Facts, policy: &Policy) -> String {
        let key = GroupKey::new(facts, policy);
        let printed = key.to_spec_key();
        key.group_name(&policy.name, |name| {
            self.groups
                .get(name)
                .is_some_and(|group| group.spec.key != printed || group.spec.policy.name != policy.name)
        })
    }

    fn mark_group(&mut self, group: &str, grown: bool, cause: Cause, now: Instant) {
        let by_label =
            self.members.get(group).is_some_and(|members| members.len() > 1) || self.group_waits_for_members(group);
        let request = ReconcileRequest::Group(group.to_owned());
        if grown && by_label {
            self.queue.postpone_request(request, cause, now, QUIET, QUIET_MAX);
        } else {
            self.enqueue(request, cause, now);
        }
    }

    /// Returns whether more members may come: its policy groups by label.
    fn group_waits_for_members(&self, group: &str) -> bool {
        let Some(member) = self.members.get(group).and_then(|members| members.first()) else { return false };
        let Some(source) = self.sources.get(member) else { return false };
        let Match::Policy { policy, .. } =
            self.order.match_object(&source.facts, self.namespace_labels(member.namespace()))
        else {
            return false;
        };
        !GroupKey::new(&source.facts, policy).is_of_one_object()
    }

    /// Marks the status of a source to be planned, together with what changes shortly after.
    pub(super) fn postpone_status(&mut self, key: &ObjectKey, now: Instant) {
        let request = ReconcileRequest::Status(key.clone());
        self.queue.postpone_request(request, Cause::Report, now, STATUS_DEBOUNCE, STATUS_MAX);
    }

    pub(super) fn mark_status(&mut self, key: &ObjectKey, now: Instant) {
        self.postpone_status(key, now);
        let owner = match self.assignments.get(key) {
            Some(Assignment::Group(group) | Assignment::Left(Some(group))) => ReconcileRequest::Group(group.clone()),
            // Its old copies go once the new ones are available.
            Some(Assignment::Direct) => ReconcileRequest::Object(key.clone()),
            _ => return,
        };
        self.queue.postpone_request(owner, Cause::Report, now, STATUS_DEBOUNCE, STATUS_MAX);
    }

    pub(super) fn mark_policy(&mut self, name: String, now: Instant) {
        self.queue.postpone_request(ReconcileRequest::Policy(name), Cause::Report, now, STATUS_DEBOUNCE, STATUS_MAX);
    }

    /// Marks a request as due now.
    pub(super) fn enqueue(&mut self, request: ReconcileRequest, cause: Cause, now: Instant) {
        // Its plan looks at everything in the namespace.
        if let ReconcileRequest::Follow(namespace) = &request {
            self.postpone_follow(namespace, now);
            return;
        }
        self.queue.mark_due(request.clone(), cause, now);
        // A group that had no members when it became due waits as if it were the youngest.
        if self.queue.is_youngest(&request) {
            let place = (self.request_tenant(&request), self.request_rank(&request));
            self.queue.move_request(&request, place);
        }
    }

    /// Marks everything: after the first lists, and after a change of the policies.
    pub(super) fn mark_all(&mut self, now: Instant) {
        let keys: Vec<_> = self.sources.keys().cloned().collect();
        for key in &keys {
            let before = self.assignments.get(key).cloned();
            if before.as_ref() != Some(&self.compute_assignment(key)) || before == Some(Assignment::Direct) {
                self.assign_object(key, Cause::Review, now);
            }
        }
        let orphans: Vec<_> = self.copies.keys().filter(|key| !self.sources.contains_key(*key)).cloned().collect();
        for key in orphans {
            self.enqueue(ReconcileRequest::Object(key), Cause::Review, now);
        }
        self.mark_follow_everywhere(now);
        let groups: BTreeSet<_> = self.groups.keys().chain(self.members.keys()).cloned().collect();
        for name in groups {
            self.undecided.insert(name.clone());
            self.enqueue(ReconcileRequest::Group(name), Cause::Review, now);
        }
        let policies: Vec<_> = self.policies.keys().cloned().collect();
        for name in policies {
            self.enqueue(ReconcileRequest::Policy(name), Cause::Review, now);
        }
    }

    /// Returns the objects in a namespace.
    pub(super) fn sources_in(&self, namespace: &str) -> Vec<ObjectKey> {
        let mut found = Vec::new();
        for kind in self.kinds.iter().filter(|kind| kind.namespaced) {
            let first = ObjectKey::new(kind.group, kind.kind, namespace, "");
            let all = self.sources.range(first.clone()..).map(|(key, _)| key);
            found.extend(all.take_while(|key| key.as_str().starts_with(first.as_str())).cloned());
        }
        found
    }

    /// Schedules of an object, with their places.
    pub(super) fn copies_of(&self, key: &ObjectKey) -> impl Iterator<Item = (&Place, &Schedule)> {
        self.copies.get(key).into_iter().flatten().filter_map(|at| self.schedules.get_key_value(at))
    }

    /// The Schedule of an object for a cluster, whatever it is called; of several, one that is being deleted.
    pub(super) fn copy_in(&self, key: &ObjectKey, cluster: &str) -> Option<(&Place, &Schedule)> {
        let namespace = cluster_namespace(cluster);
        let places = self.copies.get(key)?.range((namespace.clone(), String::new())..);
        let there = places.take_while(|at| at.0 == namespace).filter_map(|at| self.schedules.get_key_value(at));
        // The first by name of those that are equal.
        there.min_by_key(|(_, schedule)| schedule.metadata.deletion_timestamp.is_none())
    }

    /// Returns whether any Schedule is of a group.
    pub(super) fn has_copies(&self, group: &str) -> bool {
        self.of_group.contains_key(group)
    }

    /// Counts a Schedule that came, or one that went.
    pub(super) fn count_copy(&mut self, schedule: &Schedule, came: bool) {
        let Some(group) = &schedule.spec.group else { return };
        let count = self.of_group.entry(group.clone()).or_default();
        *count = if came { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.of_group.remove(group);
        }
    }

    /// Keeps an event about a source until its status is written.
    pub(super) fn defer_source_event(&mut self, key: &ObjectKey, event: Write, now: Instant) {
        let news = self.news.entry(key.clone()).or_default();
        if news.len() < NEWS {
            news.push(event);
        }
        self.postpone_status(key, now);
    }

    /// Takes the events about a source.
    pub(super) fn take_news(&mut self, key: &ObjectKey) -> Vec<Write> {
        self.news.remove(key).unwrap_or_default()
    }

    /// Records what is said of an object that cannot be placed as it asks; returns what was not said before.
    pub(super) fn record_faults(
        &mut self,
        key: &ObjectKey,
        faults: BTreeMap<&'static str, String>,
    ) -> Vec<(&'static str, String)> {
        if faults.is_empty() {
            self.told.remove(key);
            return Vec::new();
        }
        let before = self.told.insert(key.clone(), faults.clone()).unwrap_or_default();
        faults.into_iter().filter(|(reason, message)| before.get(reason) != Some(message)).collect()
    }

    /// Brings the index of what pods name up to date for a source, with its facts before and now.
    pub(super) fn index_references(&mut self, key: &ObjectKey, old: Option<&Facts>, new: Option<&Facts>) {
        let [old, new]: [BTreeSet<ObjectKey>; 2] = [old, new].map(|facts| {
            let references = facts.into_iter().flat_map(|facts| &facts.references);
            references.map(|one| one.object_key(key.namespace())).collect()
        });
        for gone in old.difference(&new) {
            if let Some(users) = self.users.get_mut(gone) {
                users.remove(key);
                if users.is_empty() {
                    self.users.remove(gone);
                }
            }
        }
        for named in new {
            self.users.entry(named).or_default().insert(key.clone());
        }
    }

    /// Returns the promise of a cluster to a copy; nothing where its source is not known.
    pub(super) fn schedule_reservation(&self, schedule: &Schedule) -> Option<Promise> {
        live::copy_reservation(schedule, self.source_facts(&live::source_key(&schedule.spec.source_ref))?)
    }

    /// Marks the reservations of all clusters with a copy of an object for recomputing.
    pub(super) fn mark_reservations_stale(&mut self, key: &ObjectKey) {
        let clusters = self.copies.get(key).into_iter().flatten().map(|at| cluster_of(at).to_owned());
        self.touched.extend(clusters);
    }

    /// Marks what says of an object's users that it is missing.
    pub(super) fn mark_users(&mut self, key: &ObjectKey, now: Instant) {
        for user in self.users.get(key).cloned().unwrap_or_default() {
            if let Some(Assignment::Group(group)) = self.assignments.get(&user) {
                self.queue.postpone_request(
                    ReconcileRequest::Group(group.clone()),
                    Cause::Report,
                    now,
                    STATUS_DEBOUNCE,
                    STATUS_MAX,
                );
            }
        }
    }

    /// Returns whether the whole object of a source may be kept until its copies are made: where something places it, and
    /// while not too many others are. A plan that needs another one reads it.
    pub(super) fn may_keep_whole(&self, key: &ObjectKey) -> bool {
        let is_placed = match self.assignments.get(key) {
            Some(Assignment::Direct | Assignment::Group(_)) => true,
            Some(Assignment::Follows) => self.follow.follower(key).is_some_and(|follower| !follower.places.is_empty()),
            _ => false,
        };
        is_placed && (self.whole.len() < MOST_WHOLE || self.whole.contains(key))
    }

    /// Drops the whole object of a source: its copies are written.
    pub(super) fn forget_object(&mut self, key: &ObjectKey) {
        self.whole.remove(key);
        if let Some(source) = self.sources.get_mut(key) {
            source.object = None;
        }
    }
}
