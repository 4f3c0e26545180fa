//! Changes of the store: what watches and the answers to reads and writes say.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use tokio::time::Instant;

use super::events;
use super::place::{Place, cluster_of, key_of, namespace_and_name};
use super::queue::{Cause, ReconcileRequest};
use super::source::{Read, Source};
use super::sources::{Change, Seen};
use super::store::{Assignment, Store};
use super::write::{Address, TargetMark, Written};
use crate::api::labels::ANNOTATION_REBALANCE;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::Placeable;
use crate::api::{ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};
use crate::k8s::resource_version::is_before;
use crate::placement::facts::ObjectKey;
use crate::placement::inventory::Part;
use crate::placement::live::{self, source_key};

impl Store {
    /// Applies a change, and marks what must be planned because of it.
    pub(super) fn apply_change(&mut self, change: Change, now: Instant) {
        let was_complete = self.is_complete();
        match change {
            Change::Source(kind, seen) => {
                for seen in self.arriving.hold_until_listed(kind, seen) {
                    self.on_source(kind, seen, now);
                }
            }
            Change::Kind(kind) => self.on_kind(kind, now),
            Change::Failed(kind) => self.arriving.record_list_failure(kind),
            Change::Policy(seen) => self.on_policy(seen, now),
            Change::Group(seen) => self.on_group(seen, now),
            Change::Schedule(seen) => self.on_schedule(seen, now),
            Change::Report(seen) => self.on_report(seen),
            Change::Others(found) => self.set_other_objects(&found, now),
        }
        // Whoever decides about an object could not be known before.
        if !was_complete && self.is_complete() {
            self.mark_all(now);
        }
    }

    /// Begins to know a kind that is served now: policies that name it can be applied, and nothing else changes before its
    /// objects are listed.
    fn on_kind(&mut self, kind: &'static Placeable, now: Instant) {
        if self.kind_of(&key_of(kind, &Place::default())).is_none() {
            self.kinds.add_placeable(kind);
            self.arriving.add_arriving_kind(kind);
            for name in self.policies.keys().cloned().collect::<Vec<_>>() {
                self.enqueue(ReconcileRequest::Policy(name), Cause::Review, now);
            }
        }
    }

    fn on_report(&mut self, seen: Seen<ClusterReport>) {
        match seen {
            Seen::There(report) => {
                self.reported.insert(cluster_of(&namespace_and_name(&report)).to_owned());
                self.reports.insert(namespace_and_name(&report), Part::of_report(&report.spec));
            }
            Seen::Gone(report) => {
                self.reported.insert(cluster_of(&namespace_and_name(&report)).to_owned());
                self.reports.remove(&namespace_and_name(&report));
            }
            Seen::Listed(places) => {
                let gone = self.reports.keys().filter(|at| !places.contains(*at)).cloned().collect::<Vec<_>>();
                for at in gone {
                    self.reported.insert(cluster_of(&at).to_owned());
                    self.reports.remove(&at);
                }
                self.listed.insert(("", "clusterreports"));
            }
        }
    }

    /// Applies the answer to a write, so that nothing waits for the watch, unless the watch was faster.
    pub(super) fn on_written(&mut self, written: Written, now: Instant) {
        match written {
            Written::Schedule(mut schedule) if !self.is_gone(&*schedule) => {
                schedule.spec.manifest = String::new();
                self.forget_object(&source_key(&schedule.spec.source_ref));
                self.put_schedule(*schedule, now);
            }
            Written::Group(group) if !self.is_gone(&*group) => self.put_group(*group, now),
            Written::Label(source, mark, version) => self.on_labelled(&source, mark, version),
            Written::Schedule(_) | Written::Group(_) | Written::Cluster(_) => {}
        }
    }

    /// Records the marks of a source that were written, so that they are not written again before the watch brings them.
    fn on_labelled(&mut self, source: &Address, mark: TargetMark, version: Option<u64>) {
        let key = key_of(source.kind, &(source.namespace.clone().unwrap_or_default(), source.name.clone()));
        if let Some(known) = self.sources.get_mut(&key)
            && known.address.uid == source.uid
            && known.version.zip(version).is_none_or(|(known, new)| known < new)
        {
            known.target = mark;
            // What the watch says of earlier versions has the marks of before.
            known.version = version.or(known.version);
        }
    }

    /// Applies the answer to a read of a source, unless the watch said meanwhile that the source is gone.
    pub(super) fn on_fetched(&mut self, kind: &'static Placeable, raw: Raw, now: Instant) {
        if !self.is_gone(&raw)
            && let Some(source) = Read::from_fetched(kind, raw).source
        {
            self.put_source(source, true, now);
        }
    }

    /// Forgets what was gone before the oldest request in progress began: no answer can bring it back.
    pub(super) fn forget_gone(&mut self, oldest: Option<Instant>) {
        while self.gone_since.front().is_some_and(|(since, _)| oldest.is_none_or(|oldest| *since < oldest))
            && let Some((_, uid)) = self.gone_since.pop_front()
        {
            self.gone.remove(&uid);
        }
    }

    /// Records that an object is gone.
    fn record_deleted_object(&mut self, uid: String, now: Instant) {
        if self.gone.insert(uid.clone()) {
            self.gone_since.push_back((now, uid));
        }
    }

    fn is_gone<K: kube::Resource>(&self, object: &K) -> bool {
        object.meta().uid.as_ref().is_some_and(|uid| self.gone.contains(uid))
    }

    fn on_source(&mut self, kind: &'static Placeable, seen: Seen<Read>, now: Instant) {
        match seen {
            Seen::There(read) => {
                if let Some(source) = read.source {
                    self.put_source(source, false, now);
                }
            }
            Seen::Gone(read) => {
                let key = key_of(kind, &read.place);
                if self.sources.get(&key).is_some_and(|known| Some(&known.address.uid) == read.uid.as_ref()) {
                    self.drop_source(&key, now);
                }
            }
            Seen::Listed(places) => {
                let gone = self.sources.keys().filter(|key| is_missing_in_list(key, kind, &places));
                for key in gone.cloned().collect::<Vec<_>>() {
                    self.drop_source(&key, now);
                }
                // Copies of what was deleted while nobody led.
                let orphans = self.copies.keys().filter(|key| is_missing_in_list(key, kind, &places));
                for key in orphans.cloned().collect::<Vec<_>>() {
                    self.enqueue(ReconcileRequest::Object(key), Cause::Review, now);
                }
                self.listed.insert((kind.group, kind.plural));
            }
        }
    }

    /// Records a source. A whole one that a plan `asked` for is kept until its copies are written.
    fn put_source(&mut self, mut source: Source, asked: bool, now: Instant) {
        let key = source.facts.key.clone();
        let old = self.sources.get(&key);
        if old.is_some_and(|old| old.version.zip(source.version).is_some_and(|(old, new)| new < old)) {
            return;
        }
        let same = old.is_some_and(|old| {
            old.facts.hash == source.facts.hash
                && old.address.uid == source.address.uid
                // Labels of the service say it, and are no part of what is copied.
                && old.facts.never == source.facts.never
        });
        let relabelled_by_others = old.is_some_and(|old| old.target != source.target);
        let observed =
            old.is_none_or(|old| old.status != source.status || old.facts.generation != source.facts.generation);
        let is_over = live::is_finished(&source.status) && old.is_some_and(|old| !live::is_finished(&old.status));
        let is_namespace = key.is_of_kind("", "Namespace");
        let relabelled = is_namespace && old.is_none_or(|old| old.facts.labels != source.facts.labels);
        let whole = old.filter(|_| same).and_then(|old| old.object.clone());
        let is_used = !same || whole.is_some();
        source.object = source.object.or(whole);
        let old = self.sources.insert(key.clone(), source).map(|old| old.facts);
        if old.is_none() && self.is_complete() {
            self.record_arrival(key.namespace(), now);
        }
        if !same {
            let new = self.sources[&key].facts.clone();
            if new.shape.is_some() {
                self.mark_reservations_stale(&key);
            }
            self.index_references(&key, old.as_deref(), Some(&new));
        }
        if observed && self.copies.contains_key(&key) {
            self.mark_status(&key, now);
        }
        if same {
            if relabelled_by_others {
                self.mark_owner(&key, Cause::Change, now);
            } else if is_over {
                // Copies that wait for it may go.
                self.mark_owner(&key, Cause::Report, now);
            }
        } else {
            self.refusals.forget_refusals(&key);
            self.assign_object(&key, Cause::Change, now);
            let new = &self.sources[&key].facts;
            let is_edited = old.as_ref().is_some_and(|old| old.labels != new.labels || old.asks != new.asks);
            if is_edited && matches!(self.assignments.get(&key), Some(Assignment::Group(_))) {
                self.edited.insert(key.clone());
            }
            if old.is_some_and(|old| self.sources[&key].facts.asks_for_more_than(&old)) {
                self.mark_grown(&key);
            }
        }
        if asked || is_used && self.may_keep_whole(&key) {
            self.whole.insert(key.clone());
        } else {
            self.forget_object(&key);
        }
        if relabelled {
            for one in self.sources_in(key.name()) {
                self.assign_object(&one, Cause::Change, now);
            }
        }
    }

    fn drop_source(&mut self, key: &ObjectKey, now: Instant) {
        self.whole.remove(key);
        self.mark_scaled_object(key, now);
        self.edited.remove(key);
        if let Some(source) = self.sources.remove(key) {
            if source.facts.shape.is_some() {
                self.mark_reservations_stale(key);
            }
            self.index_references(key, Some(&source.facts), None);
            self.mark_follow(key.namespace(), now);
            self.record_deleted_object(source.address.uid, now);
        }
        self.record_faults(key, BTreeMap::new());
        self.take_news(key);
        self.refusals.forget_refusals(key);
        if let Some(Assignment::Group(group) | Assignment::Left(Some(group))) = self.assignments.remove(key) {
            self.remove_from_group(&group, key);
            self.undecided.insert(group.clone());
            self.enqueue(ReconcileRequest::Group(group), Cause::Change, now);
        }
        self.enqueue(ReconcileRequest::Object(key.clone()), Cause::Change, now);
    }

    fn on_policy(&mut self, seen: Seen<SchedulePolicy>, now: Instant) {
        let mut is_first_list = false;
        match seen {
            Seen::There(policy) => {
                let name = policy.name_any();
                let known = self.policies.get(&name);
                let same = known.is_some_and(|known| {
                    known.spec == policy.spec
                        && known.metadata.uid == policy.metadata.uid
                        && known.metadata.deletion_timestamp == policy.metadata.deletion_timestamp
                });
                let is_asked = known.is_some_and(|known| rebalance_annotation(known) != rebalance_annotation(&policy));
                self.policies.insert(name.clone(), policy);
                if same {
                    if is_asked {
                        self.mark_groups_of_policy(&name, now);
                    }
                    return;
                }
                self.enqueue(ReconcileRequest::Policy(name), Cause::Change, now);
            }
            Seen::Gone(policy) => {
                self.policies.remove(&policy.name_any());
            }
            Seen::Listed(places) => {
                self.policies.retain(|name, _| places.contains(&(String::new(), name.clone())));
                is_first_list = self.listed.insert(("", "schedulepolicies"));
            }
        }
        self.order_policies();
        if !is_first_list && self.is_complete() {
            self.mark_all(now);
        }
    }

    fn on_group(&mut self, seen: Seen<ScheduleGroup>, now: Instant) {
        match seen {
            Seen::There(group) => self.put_group(group, now),
            Seen::Gone(group) => {
                let name = group.name_any();
                if self.groups.get(&name).is_some_and(|known| known.metadata.uid == group.metadata.uid) {
                    self.drop_group(&name, now);
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
                    self.drop_group(&name, now);
                }
                self.listed.insert(("", "schedulegroups"));
            }
        }
    }

    fn put_group(&mut self, group: ScheduleGroup, now: Instant) {
        let name = group.name_any();
        let known = self.groups.get(&name);
        if known.is_some_and(|known| is_before(&group, known)) {
            return;
        }
        let is_new = known.is_none();
        let same = known.is_some_and(|known| {
            known.spec == group.spec
                && known.status == group.status
                && known.metadata.labels == group.metadata.labels
                && known.metadata.annotations == group.metadata.annotations
        });
        if known.is_some_and(|known| rebalance_annotation(known) != rebalance_annotation(&group)) {
            self.undecided.insert(name.clone());
        }
        let is_moved = known.is_none_or(|known| {
            let [old, new] = [known, &group].map(|one| one.status.as_ref().map(|status| &status.target_clusters));
            old != new
        });
        let policy = group.spec.policy.name.clone();
        self.tally.count_group(&group, 1);
        if let Some(old) = self.groups.insert(name.clone(), group) {
            self.tally.count_group(&old, -1);
        }
        if is_new && let Some(before) = self.predecessor_group(&name).map(|(before, _)| before.to_owned()) {
            // It has taken over, so the one before may go.
            self.enqueue(ReconcileRequest::Group(before), Cause::Report, now);
        }
        if is_moved {
            self.mark_followers_of_group(&name, now);
        }
        if !same {
            self.mark_policy(policy, now);
            self.enqueue(ReconcileRequest::Group(name), Cause::Report, now);
        }
    }

    fn drop_group(&mut self, name: &str, now: Instant) {
        let Some(group) = self.groups.remove(name) else { return };
        self.tally.count_group(&group, -1);
        self.record_deleted_object(group.uid().unwrap_or_default(), now);
        self.mark_policy(group.spec.policy.name, now);
        self.enqueue(ReconcileRequest::Group(name.to_owned()), Cause::Report, now);
    }

    fn on_schedule(&mut self, seen: Seen<Schedule>, now: Instant) {
        match seen {
            Seen::There(schedule) => self.put_schedule(schedule, now),
            Seen::Gone(schedule) => {
                let at = namespace_and_name(&schedule);
                if self.schedules.get(&at).is_some_and(|known| known.metadata.uid == schedule.metadata.uid) {
                    self.drop_schedule(&at, now);
                }
            }
            Seen::Listed(places) => {
                let gone: Vec<_> = self.schedules.keys().filter(|at| !places.contains(*at)).cloned().collect();
                for at in gone {
                    self.drop_schedule(&at, now);
                }
                self.listed.insert(("", "schedules"));
            }
        }
    }

    fn put_schedule(&mut self, schedule: Schedule, now: Instant) {
        let at = namespace_and_name(&schedule);
        // A watch may be behind the answer to a write.
        if self.schedules.get(&at).is_some_and(|known| is_before(&schedule, known)) {
            return;
        }
        let key = source_key(&schedule.spec.source_ref);
        let promised = self.schedule_reservation(&schedule);
        self.count_copy(&schedule, true);
        let old = self.schedules.insert(at.clone(), schedule);
        if let Some(old) = &old {
            self.count_copy(old, false);
        }
        let new = &self.schedules[&at];
        match &old {
            Some(old) if self.schedule_reservation(old) != promised => {
                self.touched.insert(cluster_of(&at).to_owned());
            }
            None if promised.is_some() => {
                let group = new.spec.group.clone().unwrap_or_default();
                self.added.push((cluster_of(&at).to_owned(), group));
            }
            _ => {}
        }
        let status = old.as_ref().is_none_or(|old| old.status != new.status);
        let spec = old.as_ref().is_none_or(|old| {
            old.spec != new.spec || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        });
        let deleting = new.metadata.deletion_timestamp.is_some();
        let left = old.as_ref().filter(|old| old.spec.group != new.spec.group).and_then(|old| old.spec.group.clone());
        let (is_new, news) = (old.is_none(), old.as_ref().map(|old| events::copy_events(old, new)).unwrap_or_default());
        if let Some(before) = old.map(|old| source_key(&old.spec.source_ref)).filter(|before| *before != key) {
            self.forget_copy(&before, &at);
        }
        self.record_stuck(&at);
        self.copies.entry(key.clone()).or_default().insert(at);
        if let Some(left) = left {
            self.enqueue(ReconcileRequest::Group(left), Cause::Report, now);
        }
        for event in news {
            self.defer_source_event(&key, event, now);
        }
        if is_new {
            self.mark_users(&key, now);
        }
        self.mark_followers_of_copy(&key, spec || deleting, now);
        if status && self.sources.contains_key(&key) {
            self.mark_status(&key, now);
        }
        if spec || deleting {
            self.mark_owner(&key, Cause::Report, now);
        }
    }

    fn drop_schedule(&mut self, at: &Place, now: Instant) {
        let Some(schedule) = self.schedules.remove(at) else { return };
        self.record_stuck(at);
        self.count_copy(&schedule, false);
        self.record_deleted_object(schedule.uid().unwrap_or_default(), now);
        if self.schedule_reservation(&schedule).is_some() {
            self.touched.insert(cluster_of(at).to_owned());
        }
        let key = source_key(&schedule.spec.source_ref);
        self.forget_copy(&key, at);
        self.mark_users(&key, now);
        self.mark_followers_of_copy(&key, true, now);
        if let Some(group) = &schedule.spec.group {
            self.enqueue(ReconcileRequest::Group(group.clone()), Cause::Report, now);
        }
        if let Some(namespace) = &schedule.spec.source_ref.namespace {
            let namespace = ObjectKey::new("", "Namespace", "", namespace);
            let is_withdrawn = self.assignments.get(&namespace) == Some(&Assignment::Withdrawn);
            if is_withdrawn || self.drained.contains(cluster_of(at)) {
                self.mark_owner(&namespace, Cause::Report, now);
            }
        }
        if self.sources.contains_key(&key) {
            self.postpone_status(&key, now);
        }
        self.mark_owner(&key, Cause::Report, now);
    }

    fn forget_copy(&mut self, key: &ObjectKey, at: &Place) {
        if let Some(places) = self.copies.get_mut(key) {
            places.remove(at);
            if places.is_empty() {
                self.copies.remove(key);
            }
        }
    }
}

/// Returns whether an object is of a kind of which a list does not have it.
fn is_missing_in_list(key: &ObjectKey, kind: &Placeable, listed: &BTreeSet<Place>) -> bool {
    key.is_of_kind(kind.group, kind.kind) && !listed.contains(&(key.namespace().to_owned(), key.name().to_owned()))
}

fn rebalance_annotation<K: kube::Resource>(object: &K) -> Option<&String> {
    object.annotations().get(ANNOTATION_REBALANCE)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use std::time::Duration;

    use super::*;
    use crate::api::placeable::{self, Kinds};

    /// Longer than anything is postponed.
    const QUIET_ENOUGH: Duration = Duration::from_secs(10);

    fn config_map(version: &str) -> Raw {
        serde_json::from_value(json!({"metadata": {"name": "page", "namespace": "shop", "uid": "u1",
            "resourceVersion": version}, "data": {"version": version}}))
        .unwrap()
    }

    fn schedule(version: &str, hash: &str) -> Schedule {
        let source: Value = json!({"group": "", "version": "v1", "kind": "ConfigMap", "namespace": "shop",
            "name": "page", "uid": "u1", "generation": 0});
        serde_json::from_value(json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
            "metadata": {"name": "configmap.shop.page-1", "namespace": "fleet-cluster-east", "uid": "s1",
                "resourceVersion": version},
            "spec": {"manifest": "{}", "hash": hash, "sourceRef": source, "group": "g"}}))
        .unwrap()
    }

    #[test]
    fn an_answer_does_not_bring_back_what_is_gone() {
        let kind = placeable::find_builtin_kind("", "ConfigMap").unwrap();
        let (mut store, now) = (Store::new(Kinds::default(), false), Instant::now());
        store.apply_change(Change::Source(kind, Seen::There(Read::from_watched(kind, config_map("5")))), now);
        store.apply_change(Change::Schedule(Seen::There(schedule("6", "a"))), now);
        // A read and a write are under way while the watches say that both are gone.
        store.apply_change(Change::Source(kind, Seen::Gone(Read::from_watched(kind, config_map("7")))), now);
        store.apply_change(Change::Schedule(Seen::Gone(schedule("8", "a"))), now);
        store.on_fetched(kind, config_map("5"), now);
        store.on_written(Written::Schedule(Box::new(schedule("6", "a"))), now);
        assert!(store.sources.is_empty() && store.schedules.is_empty() && store.copies.is_empty());
        store.forget_gone(Some(now));
        assert_eq!(store.gone.len(), 2, "a request is older");
        store.forget_gone(None);
        assert!(store.gone.is_empty() && store.gone_since.is_empty());
    }

    fn listed<K>(names: &[&str]) -> Seen<K> {
        Seen::Listed(names.iter().map(|name| ("shop".to_owned(), (*name).to_owned())).collect())
    }

    static WIDGET: Placeable = Placeable {
        group: "example.com",
        version: "v1",
        kind: "Widget",
        plural: "widgets",
        namespaced: true,
        wave: placeable::WAVE_REST,
    };

    fn widget(name: &str) -> Read {
        let raw =
            json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"}, "spec": {}});
        Read::from_watched(&WIDGET, serde_json::from_value(raw).unwrap())
    }

    fn complete(kinds: Kinds) -> Store {
        let (mut store, now) = (Store::new(kinds, false), Instant::now());
        for kind in placeable::PLACEABLE {
            assert!(!store.is_complete());
            store.apply_change(Change::Source(kind, listed(&[])), now);
        }
        store.apply_change(Change::Policy(listed(&[])), now);
        store.apply_change(Change::Group(listed(&[])), now);
        store.apply_change(Change::Schedule(listed(&[])), now);
        store.apply_change(Change::Report(listed(&[])), now);
        store
    }

    #[test]
    fn a_kind_that_begins_to_be_served_is_known_all_at_once_and_marks_nothing_else() {
        let (mut store, now) = (complete(Kinds::default()), Instant::now());
        assert!(store.is_complete());
        let mut copy = schedule("1", "a");
        copy.spec.source_ref.kind = "ConfigMap".to_owned();
        let maps = placeable::find_builtin_kind("", "ConfigMap").unwrap();
        store.apply_change(Change::Source(maps, Seen::There(Read::from_watched(maps, config_map("5")))), now);
        store.apply_change(Change::Schedule(Seen::There(copy)), now);
        while let Some(taken) = store.take_due(now + QUIET_ENOUGH) {
            store.queue.finish_request(&taken.request);
        }
        store.apply_change(Change::Kind(&WIDGET), now);
        assert!(store.is_complete(), "nothing else waits for it");
        store.apply_change(Change::Source(&WIDGET, Seen::There(widget("one"))), now);
        store.apply_change(Change::Source(&WIDGET, Seen::There(widget("two"))), now);
        store.apply_change(Change::Source(&WIDGET, Seen::Gone(widget("two"))), now);
        assert_eq!((store.sources.len(), store.queue.len()), (1, 0), "not all of them are known");
        store.apply_change(Change::Source(&WIDGET, listed(&["one"])), now);
        assert_eq!(
            (store.sources.len(), store.queue.len()),
            (2, 0),
            "nobody places them, and nothing else is concerned"
        );
        assert!(store.is_complete());
    }

    #[test]
    fn an_added_kind_is_waited_for_unless_it_cannot_be_listed() {
        let mut store = complete(Kinds::with_added(vec![&WIDGET]));
        assert!(!store.is_complete());
        store.apply_change(Change::Failed(&WIDGET), Instant::now());
        assert!(store.is_complete(), "somebody's conversion webhook stops nobody else");
        store.apply_change(Change::Source(&WIDGET, listed(&[])), Instant::now());
        assert!(store.is_complete());
        let mut store = complete(Kinds::with_added(vec![&WIDGET]));
        store.apply_change(Change::Source(&WIDGET, Seen::There(widget("one"))), Instant::now());
        assert!(!store.is_complete() && store.sources.is_empty());
        store.apply_change(Change::Source(&WIDGET, listed(&["one"])), Instant::now());
        assert!(store.is_complete() && store.sources.len() == 1);
    }

    /// Watches another version of a ConfigMap with that annotation, or none for `-`; returns whether the object is kept.
    fn keeps_watched_page(store: &mut Store, version: &str, annotation: &str, bytes: usize) -> bool {
        let kind = placeable::find_builtin_kind("", "ConfigMap").unwrap();
        let raw = json!({"metadata": {"name": "page", "namespace": "shop", "uid": "u1", "resourceVersion": version,
            "annotations": {"fleet-scheduler.io/cluster": annotation}}, "data": {"a": "x".repeat(bytes)}});
        let mut raw: Raw = serde_json::from_value(raw).unwrap();
        if annotation == "-" {
            raw.object["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        store.apply_change(Change::Source(kind, Seen::There(Read::from_watched(kind, raw))), Instant::now());
        store.sources[&ObjectKey::new("", "ConfigMap", "shop", "page")].object.is_some()
    }

    #[test]
    fn objects_without_a_place_are_kept_as_facts() {
        let kind = placeable::find_builtin_kind("", "ConfigMap").unwrap();
        let (mut store, now) = (Store::new(Kinds::default(), false), Instant::now());
        let key = ObjectKey::new("", "ConfigMap", "shop", "page");
        assert!(!keeps_watched_page(&mut store, "1", "-", 100), "no policy");
        assert!(!keeps_watched_page(&mut store, "2", "", 100), "withdrawn");
        assert!(keeps_watched_page(&mut store, "3", "east", 100), "a copy is made of it");
        store.forget_object(&key);
        assert!(!keeps_watched_page(&mut store, "4", "east", 100), "nothing of it changed");
        assert!(!keeps_watched_page(&mut store, "5", "east", 900_000), "a plan reads it again");
        store.on_fetched(kind, config_map("6"), now);
        assert!(store.sources[&key].object.is_some(), "a plan asked for it");
        assert_eq!(store.whole.len(), 1);
        let secret = placeable::find_builtin_kind("", "Secret").unwrap();
        let raw = json!({"metadata": {"name": "s", "namespace": "shop", "uid": "u2",
            "annotations": {"fleet-scheduler.io/cluster": "east"}}, "data": {"a": "eA=="}});
        let raw: Raw = serde_json::from_value(raw).unwrap();
        store.apply_change(Change::Source(secret, Seen::There(Read::from_watched(secret, raw))), now);
        assert!(store.sources[&ObjectKey::new("", "Secret", "shop", "s")].object.is_none());
    }

    #[test]
    fn an_emptied_group_is_known_by_its_copies() {
        let (mut store, now) = (Store::new(Kinds::default(), false), Instant::now());
        store.apply_change(Change::Schedule(Seen::There(schedule("6", "a"))), now);
        store.apply_change(Change::Schedule(Seen::There(schedule("7", "b"))), now);
        assert!(store.has_copies("g") && !store.has_copies("h"));
        store.apply_change(Change::Schedule(Seen::Gone(schedule("8", "b"))), now);
        assert!(!store.has_copies("g"));
    }

    #[test]
    fn a_watch_that_is_behind_an_answer_changes_nothing() {
        let (mut store, now) = (Store::new(Kinds::default(), false), Instant::now());
        store.on_written(Written::Schedule(Box::new(schedule("9", "new"))), now);
        store.apply_change(Change::Schedule(Seen::There(schedule("7", "old"))), now);
        assert_eq!(store.schedules.values().next().unwrap().spec.hash, "new");
        store.apply_change(Change::Schedule(Seen::There(schedule("10", "newer"))), now);
        assert_eq!(store.schedules.values().next().unwrap().spec.hash, "newer");
    }
}
