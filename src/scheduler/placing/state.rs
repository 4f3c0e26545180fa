//! What placement knows: sources, policies, groups and Schedules as the watches deliver them, with the indexes that are
//! asked for, and what is due because of a change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::Value;
use tokio::time::Instant;

use super::queue::{Queue, Unit};
use super::sources::{Change, Place, Seen, WATCHES, place};
use super::writer::{Address, Written};
use crate::api::labels::LABEL_TARGET_CLUSTER;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::{self, Placeable};
use crate::api::{ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::live::source_key;
use crate::placement::matching::{Match, Policies, Policy};
use crate::placement::names::GroupKey;
use crate::scheduler::index::cluster_of_namespace;

/// Time without a new member after which a group by label is decided, and the longest time that this takes.
const QUIET: Duration = Duration::from_millis(100);
const QUIET_MAX: Duration = Duration::from_secs(1);
/// Changes of the status of copies within this time are written together, at most this late.
const STATUS_DEBOUNCE: Duration = Duration::from_millis(500);
const STATUS_MAX: Duration = Duration::from_secs(2);

/// An object that could be placed.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) address: Address,
    pub(super) facts: Arc<Facts>,
    /// The whole object, while a copy of it may have to be made.
    pub(super) object: Option<Arc<Value>>,
    /// The label that says where it went.
    pub(super) target_label: Option<String>,
    /// Conditions and numbers of its status as they were read.
    pub(super) status: Value,
    version: Option<u64>,
}

/// Who decides about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Assignment {
    /// Nothing is to be done, and nothing is there.
    Unplaced,
    /// Its copies go: its annotation keeps it here.
    Withdrawn,
    /// Its own annotation.
    Direct,
    /// The group of this name.
    Group(String),
    /// No policy matches any more: its copies stay, in the group that they are in.
    Left(Option<String>),
}

/// The state of one leadership term.
pub(super) struct State {
    pub(super) sources: BTreeMap<ObjectKey, Source>,
    pub(super) policies: BTreeMap<String, SchedulePolicy>,
    pub(super) order: Policies,
    pub(super) groups: BTreeMap<String, ScheduleGroup>,
    pub(super) schedules: BTreeMap<Place, Schedule>,
    pub(super) assignments: BTreeMap<ObjectKey, Assignment>,
    /// Objects by group.
    pub(super) members: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Schedules by the object that they are copies of.
    pub(super) copies: BTreeMap<ObjectKey, BTreeSet<Place>>,
    pub(super) queue: Queue,
    /// Parts of inventories, and the clusters of which one changed.
    pub(super) reports: BTreeMap<Place, ClusterReport>,
    pub(super) reported: BTreeSet<String>,
    /// Clusters whose Schedules changed.
    pub(super) touched: BTreeSet<String>,
    /// Groups that have to be decided, not only brought up to date.
    pub(super) undecided: BTreeSet<String>,
    listed: BTreeSet<&'static str>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            sources: BTreeMap::new(),
            policies: BTreeMap::new(),
            order: Policies::default(),
            groups: BTreeMap::new(),
            schedules: BTreeMap::new(),
            assignments: BTreeMap::new(),
            members: BTreeMap::new(),
            copies: BTreeMap::new(),
            queue: Queue::default(),
            reports: BTreeMap::new(),
            reported: BTreeSet::new(),
            touched: BTreeSet::new(),
            undecided: BTreeSet::new(),
            listed: BTreeSet::new(),
        }
    }

    /// Returns true once every watch has delivered its first list.
    pub(super) fn is_complete(&self) -> bool {
        self.listed.len() == WATCHES
    }

    /// Applies a change, and marks what has to be planned because of it.
    pub(super) fn apply(&mut self, change: Change, now: Instant) {
        match change {
            Change::Source(kind, seen) => self.on_source(kind, seen, now),
            Change::Policy(seen) => self.on_policy(seen, now),
            Change::Group(seen) => self.on_group(seen, now),
            Change::Schedule(seen) => self.on_schedule(seen, now),
            Change::Report(seen) => self.on_report(seen),
        }
    }

    fn on_report(&mut self, seen: Seen<ClusterReport>) {
        match seen {
            Seen::There(report) => {
                self.reported.insert(cluster_of(&place(&report)).to_owned());
                self.reports.insert(place(&report), report);
            }
            Seen::Gone(report) => {
                self.reported.insert(cluster_of(&place(&report)).to_owned());
                self.reports.remove(&place(&report));
            }
            Seen::Listed(places) => {
                let gone = self.reports.keys().filter(|at| !places.contains(*at)).cloned().collect::<Vec<_>>();
                for at in gone {
                    self.reported.insert(cluster_of(&at).to_owned());
                    self.reports.remove(&at);
                }
                self.listed.insert("clusterreports");
            }
        }
    }

    /// Applies the answer to a write, so that nothing waits for the watch.
    pub(super) fn on_written(&mut self, written: Written, now: Instant) {
        match written {
            Written::Schedule(mut schedule) => {
                schedule.spec.manifest.clear();
                let newer = self.schedules.get(&place(&schedule)).is_none_or(|known| is_newer(&schedule, known));
                if newer {
                    self.put_schedule(schedule, now);
                }
            }
            Written::Group(group) => {
                if self.groups.get(&group.name_any()).is_none_or(|known| is_newer(&group, known)) {
                    self.mark_policy(group.spec.policy.name.clone(), now);
                    self.groups.insert(group.name_any(), group);
                }
            }
        }
    }

    fn on_source(&mut self, kind: &'static Placeable, seen: Seen<Raw>, now: Instant) {
        match seen {
            Seen::There(raw) => {
                if let Some(source) = Source::read(kind, raw) {
                    self.put_source(source, now);
                }
            }
            Seen::Gone(raw) => {
                let key = key_of(kind, &place(&raw));
                if self.sources.get(&key).is_some_and(|known| Some(&known.address.uid) == raw.metadata.uid.as_ref()) {
                    self.drop_source(&key, now);
                }
            }
            Seen::Listed(places) => {
                let of_kind = |key: &ObjectKey| key.is(kind.group, kind.kind);
                let is_listed = |key: &ObjectKey| places.contains(&(key.namespace().to_owned(), key.name().to_owned()));
                let gone: Vec<_> = self.sources.keys().filter(|key| of_kind(key) && !is_listed(key)).cloned().collect();
                for key in gone {
                    self.drop_source(&key, now);
                }
                // Copies of what was deleted while nobody led.
                let orphans: Vec<_> =
                    self.copies.keys().filter(|key| of_kind(key) && !is_listed(key)).cloned().collect();
                for key in orphans {
                    self.mark(Unit::Object(key), now);
                }
                if self.listed.insert(kind.plural) && self.is_complete() {
                    self.mark_all(now);
                }
            }
        }
    }

    fn put_source(&mut self, source: Source, now: Instant) {
        let key = source.facts.key.clone();
        let old = self.sources.get(&key);
        if old.is_some_and(|old| old.version.zip(source.version).is_some_and(|(old, new)| new < old)) {
            return;
        }
        let same = old.is_some_and(|old| old.facts.hash == source.facts.hash && old.address.uid == source.address.uid);
        let relabelled_by_others = old.is_some_and(|old| old.target_label != source.target_label);
        let observed =
            old.is_none_or(|old| old.status != source.status || old.facts.generation != source.facts.generation);
        let is_namespace = key.is("", "Namespace");
        let relabelled = is_namespace && old.is_none_or(|old| old.facts.labels != source.facts.labels);
        self.sources.insert(key.clone(), source);
        if observed && self.copies.contains_key(&key) {
            self.mark_status(&key, now);
        }
        if same {
            if relabelled_by_others {
                self.mark_owner(&key, now);
            }
            return;
        }
        self.assign(&key, now);
        if relabelled {
            let inside: Vec<_> = self.sources.keys().filter(|one| one.namespace() == key.name()).cloned().collect();
            for one in inside {
                self.assign(&one, now);
            }
        }
    }

    fn drop_source(&mut self, key: &ObjectKey, now: Instant) {
        self.sources.remove(key);
        if let Some(Assignment::Group(group) | Assignment::Left(Some(group))) = self.assignments.remove(key) {
            self.leave(&group, key);
            self.undecided.insert(group.clone());
            self.mark(Unit::Group(group), now);
        }
        self.mark(Unit::Object(key.clone()), now);
    }

    fn on_policy(&mut self, seen: Seen<SchedulePolicy>, now: Instant) {
        match seen {
            Seen::There(policy) => {
                let name = policy.name_any();
                let known = self.policies.get(&name);
                let same =
                    known.is_some_and(|known| known.spec == policy.spec && known.metadata.uid == policy.metadata.uid);
                self.policies.insert(name.clone(), policy);
                if same {
                    return;
                }
                self.mark(Unit::Policy(name), now);
            }
            Seen::Gone(policy) => {
                self.policies.remove(&policy.name_any());
            }
            Seen::Listed(places) => {
                self.policies.retain(|name, _| places.contains(&(String::new(), name.clone())));
                if self.listed.insert("schedulepolicies") && self.is_complete() {
                    self.mark_all(now);
                    return;
                }
            }
        }
        self.order = Policies::new(self.policies.values().filter_map(|known| Policy::read(known).ok()).collect());
        if self.is_complete() {
            self.mark_all(now);
        }
    }

    fn on_group(&mut self, seen: Seen<ScheduleGroup>, now: Instant) {
        match seen {
            Seen::There(group) => {
                let name = group.name_any();
                let known = self.groups.get(&name);
                let same = known.is_some_and(|known| {
                    known.spec == group.spec
                        && known.status == group.status
                        && known.metadata.labels == group.metadata.labels
                });
                let policy = group.spec.policy.name.clone();
                self.groups.insert(name.clone(), group);
                if !same {
                    self.mark_policy(policy, now);
                    self.mark(Unit::Group(name), now);
                }
            }
            Seen::Gone(group) => {
                let name = group.name_any();
                if self.groups.get(&name).is_some_and(|known| known.metadata.uid == group.metadata.uid) {
                    self.groups.remove(&name);
                    self.mark_policy(group.spec.policy.name, now);
                    self.mark(Unit::Group(name), now);
                }
            }
            Seen::Listed(places) => {
                let gone: Vec<_> = self
                    .groups
                    .keys()
                    .filter(|name| !places.contains(&(String::new(), (*name).clone())))
                    .cloned()
                    .collect();
                for name in gone {
                    self.groups.remove(&name);
                    self.mark(Unit::Group(name), now);
                }
                if self.listed.insert("schedulegroups") && self.is_complete() {
                    self.mark_all(now);
                }
            }
        }
    }

    fn on_schedule(&mut self, seen: Seen<Schedule>, now: Instant) {
        match seen {
            Seen::There(schedule) => self.put_schedule(schedule, now),
            Seen::Gone(schedule) => {
                let at = place(&schedule);
                if self.schedules.get(&at).is_some_and(|known| known.metadata.uid == schedule.metadata.uid) {
                    self.drop_schedule(&at, now);
                }
            }
            Seen::Listed(places) => {
                let gone: Vec<_> = self.schedules.keys().filter(|at| !places.contains(*at)).cloned().collect();
                for at in gone {
                    self.drop_schedule(&at, now);
                }
                if self.listed.insert("schedules") && self.is_complete() {
                    self.mark_all(now);
                }
            }
        }
    }

    fn put_schedule(&mut self, schedule: Schedule, now: Instant) {
        let at = place(&schedule);
        let key = source_key(&schedule.spec.source_ref);
        self.touched.insert(cluster_of(&at).to_owned());
        let old = self.schedules.insert(at.clone(), schedule);
        let new = &self.schedules[&at];
        let status = old.as_ref().is_none_or(|old| old.status != new.status);
        let spec = old.as_ref().is_none_or(|old| {
            old.spec != new.spec || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        });
        let deleting = new.metadata.deletion_timestamp.is_some();
        if let Some(before) = old.map(|old| source_key(&old.spec.source_ref)).filter(|before| *before != key) {
            self.forget_copy(&before, &at);
        }
        self.copies.entry(key.clone()).or_default().insert(at);
        if status && self.sources.contains_key(&key) {
            self.mark_status(&key, now);
        }
        if spec || deleting {
            self.mark_owner(&key, now);
        }
    }

    fn drop_schedule(&mut self, at: &Place, now: Instant) {
        let Some(schedule) = self.schedules.remove(at) else { return };
        self.touched.insert(cluster_of(at).to_owned());
        let key = source_key(&schedule.spec.source_ref);
        self.forget_copy(&key, at);
        if let Some(group) = &schedule.spec.group {
            self.mark(Unit::Group(group.clone()), now);
        }
        self.mark_owner(&key, now);
    }

    fn forget_copy(&mut self, key: &ObjectKey, at: &Place) {
        if let Some(places) = self.copies.get_mut(key) {
            places.remove(at);
            if places.is_empty() {
                self.copies.remove(key);
            }
        }
    }

    /// Marks what plans the copies of an object.
    pub(super) fn mark_owner(&mut self, key: &ObjectKey, now: Instant) {
        match self.assignments.get(key) {
            Some(Assignment::Group(group)) => self.mark(Unit::Group(group.clone()), now),
            _ => self.mark(Unit::Object(key.clone()), now),
        }
    }

    /// Finds out who decides about an object.
    fn assign(&mut self, key: &ObjectKey, now: Instant) {
        let new = self.assignment(key);
        let old = self.assignments.insert(key.clone(), new.clone()).unwrap_or(Assignment::Unplaced);
        if let Assignment::Group(group) | Assignment::Left(Some(group)) = &old
            && !matches!(&new, Assignment::Group(same) | Assignment::Left(Some(same)) if same == group)
        {
            self.leave(group, key);
            self.undecided.insert(group.clone());
            self.mark(Unit::Group(group.clone()), now);
        }
        match &new {
            Assignment::Group(group) | Assignment::Left(Some(group)) => {
                let grown = self.members.entry(group.clone()).or_default().insert(key.clone());
                self.undecided.insert(group.clone());
                self.mark_group(group, grown, now);
            }
            Assignment::Unplaced if old == Assignment::Unplaced && !self.copies.contains_key(key) => {}
            _ => self.mark(Unit::Object(key.clone()), now),
        }
    }

    fn leave(&mut self, group: &str, key: &ObjectKey) {
        if let Some(members) = self.members.get_mut(group) {
            members.remove(key);
            if members.is_empty() {
                self.members.remove(group);
            }
        }
    }

    fn assignment(&self, key: &ObjectKey) -> Assignment {
        let Some(source) = self.sources.get(key) else { return Assignment::Unplaced };
        match self.order.evaluate(&source.facts, self.namespace_labels(key.namespace())) {
            Match::Nowhere { .. } => Assignment::Withdrawn,
            Match::Annotation { .. } => Assignment::Direct,
            Match::Policy { policy, .. } => Assignment::Group(self.group_name(&source.facts, policy)),
            // What runs stays, also where it would not be placed again.
            Match::Never(_) | Match::Nothing { .. } => {
                let copy = self.copies.get(key).into_iter().flatten().find_map(|at| self.schedules.get(at));
                copy.map_or(Assignment::Unplaced, |copy| Assignment::Left(copy.spec.group.clone()))
            }
        }
    }

    /// Finds who decides about an object that is there.
    pub(super) fn evaluate(&self, key: &ObjectKey) -> Option<Match<'_>> {
        let source = self.sources.get(key)?;
        Some(self.order.evaluate(&source.facts, self.namespace_labels(key.namespace())))
    }

    /// Returns the facts of a source.
    pub(super) fn facts(&self, key: &ObjectKey) -> Option<&Facts> {
        self.sources.get(key).map(|source| &*source.facts)
    }

    /// Returns the facts of the members of a group that a policy still matches.
    pub(super) fn facts_of(&self, group: &str) -> Vec<&Arc<Facts>> {
        let members = self.members.get(group).into_iter().flatten();
        let is_decided = |key: &&ObjectKey| matches!(self.assignments.get(*key), Some(Assignment::Group(_)));
        members.filter(is_decided).filter_map(|key| self.sources.get(key)).map(|source| &source.facts).collect()
    }

    /// Returns the policy that decides about a group.
    pub(super) fn policy_of(&self, group: &str) -> Option<&Policy> {
        let members = self.members.get(group).into_iter().flatten();
        members.filter(|key| matches!(self.assignments.get(*key), Some(Assignment::Group(_)))).find_map(
            |key| match self.evaluate(key) {
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

    /// Returns the parts of an inventory in a namespace.
    pub(super) fn reports_of(&self, namespace: &str) -> impl Iterator<Item = &ClusterReport> {
        let first = (namespace.to_owned(), String::new());
        let namespace = namespace.to_owned();
        self.reports.range(first..).take_while(move |(at, _)| at.0 == namespace).map(|(_, report)| report)
    }

    /// Marks a group to be decided.
    pub(super) fn decide(&mut self, group: String, now: Instant) {
        self.undecided.insert(group.clone());
        self.mark(Unit::Group(group), now);
    }

    /// Returns the labels of a namespace.
    pub(super) fn namespace_labels(&self, name: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.sources.get(&ObjectKey::new("", "Namespace", "", name)).map_or(&NONE, |source| &source.facts.labels)
    }

    /// Returns the name of the group of an object under a policy.
    pub(super) fn group_name(&self, facts: &Facts, policy: &Policy) -> String {
        let key = GroupKey::new(facts, policy);
        let printed = key.printed();
        key.group_name(&policy.name, |name| {
            self.groups
                .get(name)
                .is_some_and(|group| group.spec.key != printed || group.spec.policy.name != policy.name)
        })
    }

    fn mark_group(&mut self, group: &str, grown: bool, now: Instant) {
        let by_label =
            self.members.get(group).is_some_and(|members| members.len() > 1) || self.group_waits_for_members(group);
        let unit = Unit::Group(group.to_owned());
        if grown && by_label {
            self.queue.postpone(unit, now, QUIET, QUIET_MAX);
        } else {
            self.mark(unit, now);
        }
    }

    /// Whether more members may come: its policy groups by label.
    fn group_waits_for_members(&self, group: &str) -> bool {
        let Some(member) = self.members.get(group).and_then(|members| members.first()) else { return false };
        let Some(source) = self.sources.get(member) else { return false };
        let Match::Policy { policy, .. } =
            self.order.evaluate(&source.facts, self.namespace_labels(member.namespace()))
        else {
            return false;
        };
        GroupKey::new(&source.facts, policy).is_by_label()
    }

    fn mark_status(&mut self, key: &ObjectKey, now: Instant) {
        self.queue.postpone(Unit::Status(key.clone()), now, STATUS_DEBOUNCE, STATUS_MAX);
        if let Some(Assignment::Group(group) | Assignment::Left(Some(group))) = self.assignments.get(key) {
            self.queue.postpone(Unit::Group(group.clone()), now, STATUS_DEBOUNCE, STATUS_MAX);
        }
    }

    fn mark_policy(&mut self, name: String, now: Instant) {
        self.queue.postpone(Unit::Policy(name), now, STATUS_DEBOUNCE, STATUS_MAX);
    }

    /// Marks a unit as due now.
    pub(super) fn mark(&mut self, unit: Unit, now: Instant) {
        self.queue.mark(unit, now);
    }

    /// Marks everything: after the first lists, and after a change of the policies.
    pub(super) fn mark_all(&mut self, now: Instant) {
        let keys: Vec<_> = self.sources.keys().cloned().collect();
        for key in &keys {
            let before = self.assignments.get(key).cloned();
            if before.as_ref() != Some(&self.assignment(key)) || before == Some(Assignment::Direct) {
                self.assign(key, now);
            }
        }
        let orphans: Vec<_> = self.copies.keys().filter(|key| !self.sources.contains_key(*key)).cloned().collect();
        for key in orphans {
            self.mark(Unit::Object(key), now);
        }
        let groups: BTreeSet<_> = self.groups.keys().chain(self.members.keys()).cloned().collect();
        for name in groups {
            self.undecided.insert(name.clone());
            self.mark(Unit::Group(name), now);
        }
        let policies: Vec<_> = self.policies.keys().cloned().collect();
        for name in policies {
            self.mark(Unit::Policy(name), now);
        }
    }

    /// Takes units that are due, at most so many, the groups in the order in which their oldest members were created.
    pub(super) fn take_due(&mut self, now: Instant, most: usize, is_free: impl Fn(&Unit) -> bool) -> Vec<Unit> {
        let mut due = self.queue.due(now, is_free);
        due.sort_by_cached_key(|unit| (self.age(unit), unit.clone()));
        due.truncate(most);
        self.queue.remove(&due);
        due
    }

    fn age(&self, unit: &Unit) -> Option<i64> {
        let Unit::Group(name) = unit else { return None };
        let created = |key: &ObjectKey| self.sources.get(key)?.facts.created.map(Timestamp::as_second);
        Some(self.members.get(name).into_iter().flatten().filter_map(created).min().unwrap_or(i64::MAX))
    }

    /// Schedules of an object, with their places.
    pub(super) fn copies_of(&self, key: &ObjectKey) -> impl Iterator<Item = (&Place, &Schedule)> {
        self.copies.get(key).into_iter().flatten().filter_map(|at| self.schedules.get_key_value(at))
    }

    /// Drops the whole object of a source: its copies are written.
    pub(super) fn forget_object(&mut self, key: &ObjectKey) {
        if let Some(source) = self.sources.get_mut(key) {
            source.object = None;
        }
    }
}

impl Source {
    fn read(kind: &'static Placeable, raw: Raw) -> Option<Self> {
        let mut object = Value::Object(raw.object);
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.into();
        let status = object.get_mut("status").map(Value::take).unwrap_or_default();
        if let Some(map) = object.as_object_mut() {
            map.remove("status");
        }
        let facts = match Facts::read(&object) {
            Ok(facts) => facts,
            Err(error) => {
                tracing::warn!(%error, "an object cannot be placed");
                return None;
            }
        };
        let meta = raw.metadata;
        Some(Self {
            address: Address { kind, namespace: meta.namespace, name: meta.name?, uid: meta.uid? },
            facts: Arc::new(facts),
            object: Some(Arc::new(object)),
            target_label: meta.labels.and_then(|mut labels| labels.remove(LABEL_TARGET_CLUSTER)),
            status,
            version: meta.resource_version.and_then(|version| version.parse().ok()),
        })
    }
}

fn key_of(kind: &Placeable, (namespace, name): &Place) -> ObjectKey {
    ObjectKey::new(kind.group, kind.kind, namespace, name)
}

/// The entry of the table for an object.
pub(super) fn kind_of(key: &ObjectKey) -> Option<&'static Placeable> {
    placeable::find(key.group(), key.kind())
}

/// The cluster that a Schedule is for.
pub(super) fn cluster_of(at: &Place) -> &str {
    cluster_of_namespace(&at.0).unwrap_or_default()
}

fn is_newer<K: kube::Resource>(one: &K, other: &K) -> bool {
    let version = |object: &K| object.meta().resource_version.as_ref()?.parse::<u64>().ok();
    version(one).zip(version(other)).is_none_or(|(one, other)| one > other)
}
