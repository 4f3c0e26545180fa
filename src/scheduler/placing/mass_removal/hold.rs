//! Holds removals back: deletions of Schedules whose cause is neither their source nor a move wait until it is known
//! how many there are, and continue only if these are few or an operator allowed them.
//!
//! ```text
//! plan of a request ──→ hold_removals ──┬─→ what may go
//!                                       └─→ held, by cause ──→ next_task: limit_removals ──→ record ──→ passing
//! ```
//!
//! The record is written before the first removal of a cause, and read before anything is removed in a term.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use crate::api::labels::cluster_namespace;
use crate::api::mass_removal::{FrozenRemovals, NAMED, RemovalRecord};
use crate::placement::live::source_key;
use crate::placement::moves::{RemovalCause, RemovalLimits, RemovalVerdict, limit_removals, removals_left};
use crate::scheduler::placing::place::{Place, cluster_of};
use crate::scheduler::placing::queue::ReconcileRequest;
use crate::scheduler::placing::store::Store;
use crate::scheduler::placing::write::{RemovalClass, Stages, Write};

/// Seconds after which the entry of a cause of which nothing is due ends.
const KEPT_SECONDS: i64 = 3_600;
/// Seconds without anything due after which nothing of a cause is due.
const QUIET_SECONDS: i64 = 10;
/// Seconds after which the record is read again, while something is frozen or it could not be read or written.
const INTERVAL_SECONDS: i64 = 5;

/// Requests with their removals.
type ByRequest = BTreeMap<ReconcileRequest, BTreeMap<Place, String>>;

/// What is due of one cause, as far as this term has seen it.
#[derive(Debug, Clone, Copy)]
struct Found {
    first: i64,
    last: i64,
    /// When something was last due.
    due: i64,
}

/// What is to be done with the record.
#[derive(Debug)]
pub(in crate::scheduler::placing) enum RemovalTask {
    Read,
    /// Write it over this version; there is none before the first.
    Write(RemovalRecord, Option<String>),
}

/// Removals that are held back or may go. Times are seconds of the control plane's clock.
pub(in crate::scheduler::placing) struct Removals {
    began: i64,
    record: RemovalRecord,
    /// The record was read, and nobody else is known to have written it since.
    is_read: bool,
    /// Version of the object that holds the record; `None` before there is one.
    version: Option<String>,
    held: ByRequest,
    passing: ByRequest,
    found: BTreeMap<String, Found>,
    /// Removals that were let go in the last minute.
    recent: Vec<(i64, usize)>,
    /// What may go once the record is written.
    next: Option<ByRequest>,
    /// When the record was last asked for.
    asked: i64,
}

impl Removals {
    /// Creates the protection of a term that begins now.
    pub(in crate::scheduler::placing) fn new(now: i64) -> Self {
        Self {
            began: now,
            record: RemovalRecord::default(),
            is_read: false,
            version: None,
            held: ByRequest::new(),
            passing: ByRequest::new(),
            found: BTreeMap::new(),
            recent: Vec::new(),
            next: None,
            asked: i64::MIN,
        }
    }

    /// Takes the removals out of the plan of a request that may not go yet. A plan that is not `whole` says nothing of the
    /// removals that it lacks.
    pub(in crate::scheduler::placing) fn hold_removals(
        &mut self,
        request: &ReconcileRequest,
        stages: &mut Stages,
        (whole, now): (bool, i64),
    ) {
        let before = self.passing.remove(request).unwrap_or_default();
        let known = self.held.remove(request).unwrap_or_default();
        let (mut held, mut passing) =
            if whole { (BTreeMap::new(), BTreeMap::new()) } else { (known.clone(), before.clone()) };
        for stage in stages.iter_mut() {
            stage.retain(|write| {
                let Write::RemoveSchedule { cluster, name, class: RemovalClass::Caused(cause), .. } = write else {
                    return true;
                };
                let at = (cluster_namespace(cluster), name.clone());
                let may_go = before.get(&at) == Some(cause);
                if may_go { &mut passing } else { &mut held }.insert(at, cause.clone());
                may_go
            });
        }
        stages.retain(|stage| !stage.is_empty());
        for (at, cause) in &held {
            let found = self.found.entry(cause.clone()).or_insert(Found { first: now, last: now, due: now });
            if known.get(at) != Some(cause) {
                found.last = now;
            }
        }
        if !held.is_empty() {
            self.held.insert(request.clone(), held);
        }
        if !passing.is_empty() {
            self.passing.insert(request.clone(), passing);
        }
    }

    /// Returns what must be done with the record by now, if anything. `None` while it is being done.
    pub(in crate::scheduler::placing) fn next_task(&mut self, store: &Store, now: i64) -> Option<RemovalTask> {
        if self.next.is_some() || now < self.asked.saturating_add(1) {
            return None;
        }
        let is_frozen = self.record.frozen_causes().next().is_some();
        let is_late = now >= self.asked.saturating_add(INTERVAL_SECONDS);
        if !self.is_read || (is_frozen && is_late) {
            return is_late.then(|| {
                self.asked = now;
                RemovalTask::Read
            });
        }
        if self.held.is_empty() && self.record.causes.is_empty() {
            self.found.clear();
            return None;
        }
        let (record, going) = self.plan_removal_record(store, now);
        if record == self.record {
            return None;
        }
        self.next = Some(going);
        Some(RemovalTask::Write(record, self.version.clone()))
    }

    /// Returns the record as it should be, and the removals that may go once it is written.
    fn plan_removal_record(&mut self, store: &Store, now: i64) -> (RemovalRecord, ByRequest) {
        let mut due: BTreeMap<&String, Vec<(&ReconcileRequest, &Place)>> = BTreeMap::new();
        for (request, held) in &self.held {
            let passing = self.passing.get(request);
            for (at, cause) in held.iter().filter(|(at, _)| !passing.is_some_and(|passing| passing.contains_key(*at))) {
                if store.schedules.get(at).is_some_and(|schedule| schedule.metadata.deletion_timestamp.is_none()) {
                    due.entry(cause).or_default().push((request, at));
                }
            }
        }
        for cause in due.keys() {
            if let Some(found) = self.found.get_mut(*cause) {
                found.due = now;
            }
        }
        let names = due.keys().copied().chain(self.record.causes.keys());
        let causes = names.map(|name| {
            let (recorded, found) = (self.record.causes.get(name).cloned().unwrap_or_default(), self.found.get(name));
            let due = due.get(name).into_iter().flatten().map(|(_, at)| format!("{}/{}", at.0, at.1)).collect();
            let (first, last) = found.map_or((now, now), |found| (found.first, found.last));
            let (removed, allowed) = (recorded.removed, recorded.allowed.is_some());
            (name.clone(), RemovalCause { due, first, last, removed, allowed })
        });
        let causes: BTreeMap<String, RemovalCause> = causes.collect();
        let copies = if due.is_empty() { 0 } else { count_copies(store) };
        self.recent.retain(|(at, _)| now - at < 60);
        let mut left = removals_left(copies, self.recent.iter().map(|(_, count)| count).sum());
        let verdicts = limit_removals(&RemovalLimits { now, term: self.began, copies, causes: &causes });
        let (mut record, mut going) = (self.record.clone(), ByRequest::new());
        let time = Timestamp::from_second(now).unwrap_or(Timestamp::UNIX_EPOCH);
        for (name, verdict) in &verdicts {
            let due = &due[name];
            let entry = record.causes.get_mut(name);
            match verdict {
                RemovalVerdict::Wait => {}
                RemovalVerdict::Go => {
                    let batch = &due[..left.min(due.len())];
                    left -= batch.len();
                    if !batch.is_empty() || entry.is_some() {
                        let entry = record.causes.entry(name.clone()).or_default();
                        entry.removed = entry.removed.saturating_add(batch.len());
                        (entry.frozen, entry.idle_since) = (None, None);
                    }
                    for (request, at) in batch {
                        going.entry((*request).clone()).or_default().insert((*at).clone(), name.clone());
                    }
                }
                RemovalVerdict::Frozen => {
                    let before = entry.and_then(|entry| entry.frozen.clone());
                    let frozen = describe_frozen(store, due, before.map_or(time, |before| before.since));
                    let entry = record.causes.entry(name.clone()).or_default();
                    (entry.frozen, entry.idle_since) = (Some(frozen), None);
                }
            }
        }
        record.causes.retain(|name, entry| {
            let is_over = self.found.get(name).is_none_or(|found| now - found.due >= QUIET_SECONDS);
            if !due.contains_key(name) && is_over {
                entry.frozen = None;
                entry.idle_since.get_or_insert(time);
            }
            entry.idle_since.is_none_or(|since| now - since.as_second() < KEPT_SECONDS)
        });
        self.found.retain(|_, found| now - found.due < QUIET_SECONDS);
        (record, going)
    }

    /// Takes the record as it was read.
    pub(in crate::scheduler::placing) fn take_read_record(&mut self, record: RemovalRecord, version: Option<String>) {
        (self.record, self.version, self.is_read) = (record, version, true);
    }

    /// Takes the answer to a write of the record, with the version that it has then; returns the requests that may
    /// continue, and the causes that are held back from now on.
    pub(in crate::scheduler::placing) fn take_written_record(
        &mut self,
        written: Option<(RemovalRecord, String)>,
        now: i64,
    ) -> (Vec<ReconcileRequest>, Vec<(String, FrozenRemovals)>) {
        self.asked = now;
        let going = self.next.take().unwrap_or_default();
        let Some((record, version)) = written else {
            // Somebody else wrote it, or it was not written: it is read again first.
            self.is_read = false;
            return (Vec::new(), Vec::new());
        };
        let was_frozen: BTreeSet<String> = self.record.frozen_causes().map(|(name, _)| name.clone()).collect();
        let frozen = record.frozen_causes().filter(|(name, _)| !was_frozen.contains(*name));
        let frozen = frozen.map(|(name, frozen)| (name.clone(), frozen.clone())).collect();
        self.take_read_record(record, Some(version));
        let count = going.values().map(BTreeMap::len).sum();
        if count > 0 {
            self.recent.push((now, count));
        }
        let requests = going.keys().cloned().collect();
        for (request, places) in going {
            self.passing.entry(request).or_default().extend(places);
        }
        (requests, frozen)
    }
}

/// Returns what is held back of a cause.
fn describe_frozen(store: &Store, due: &[(&ReconcileRequest, &Place)], since: Timestamp) -> FrozenRemovals {
    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    for (_, at) in due {
        *copies.entry(cluster_of(at).to_owned()).or_default() += 1;
    }
    let titles = due.iter().filter_map(|(_, at)| {
        let schedule = store.schedules.get(*at)?;
        Some(format!("{} on {}", source_key(&schedule.spec.source_ref).format_title(), cluster_of(at)))
    });
    FrozenRemovals { since, copies, first: titles.take(NAMED).collect() }
}

/// Returns the number of copies of which the limits are shares: those of decided objects that are not being deleted.
fn count_copies(store: &Store) -> usize {
    let counted = store.schedules.values().filter(|schedule| {
        let source = &schedule.spec.source_ref;
        let is_namespace = source.group.is_empty() && source.kind == "Namespace";
        schedule.metadata.deletion_timestamp.is_none() && !schedule.spec.follows && !is_namespace
    });
    counted.count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::api::mass_removal::RecordedCause;
    use crate::api::placeable::Kinds;
    use crate::scheduler::placing::sources::{Change, Seen};

    const CAUSE: &str = "policy/shop:7";

    /// A scheduler whose term has lasted for two minutes, and a hundred copies in east.
    struct Scene {
        store: Store,
        removals: Removals,
        now: i64,
        version: u64,
    }

    impl Scene {
        fn new() -> Self {
            let mut store = Store::new(Kinds::default(), false);
            for number in 0..100 {
                let schedule = json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
                    "metadata": {"name": format!("s-{number}"), "namespace": cluster_namespace("east"), "uid": "u"},
                    "spec": {"manifest": "{}", "hash": "a", "sourceRef": {"group": "", "version": "v1", "kind": "Secret",
                        "namespace": "shop", "name": format!("key-{number}"), "uid": "u", "generation": 0}}});
                let schedule = Seen::There(serde_json::from_value(schedule).unwrap());
                store.apply_change(Change::Schedule(schedule), Instant::now());
            }
            let mut scene = Self { store, removals: Removals::new(1_000), now: 1_120, version: 0 };
            assert!(matches!(scene.task(), Some(RemovalTask::Read)), "before anything is removed");
            assert!(scene.task().is_none(), "it is asked once");
            scene.removals.take_read_record(RemovalRecord::default(), None);
            scene
        }

        fn task(&mut self) -> Option<RemovalTask> {
            self.removals.next_task(&self.store, self.now)
        }

        /// Plans the removal of so many copies; returns how many go.
        fn remove(&mut self, count: usize, class: &RemovalClass) -> usize {
            let writes = (0..count).map(|number| Write::RemoveSchedule {
                cluster: "east".to_owned(),
                name: format!("s-{number}"),
                uid: "u".to_owned(),
                version: None,
                gone: None,
                class: class.clone(),
            });
            let mut stages = vec![writes.collect()];
            self.removals.hold_removals(&ReconcileRequest::Group("g".to_owned()), &mut stages, (true, self.now));
            stages.iter().map(Vec::len).sum()
        }

        fn caused(&mut self, count: usize) -> usize {
            self.remove(count, &RemovalClass::Caused(CAUSE.to_owned()))
        }

        /// Lets a time pass, and plays the API server; returns the requests that continue and the causes that are held
        /// back.
        fn pass(&mut self, seconds: i64) -> (usize, Vec<String>) {
            let (mut requests, mut frozen) = (0, Vec::new());
            for _ in 0..seconds {
                self.now += 1;
                match self.task() {
                    None => {}
                    Some(RemovalTask::Read) => {
                        let record = self.removals.record.clone();
                        self.removals.take_read_record(record, Some(self.version.to_string()));
                    }
                    Some(RemovalTask::Write(record, _)) => {
                        self.version += 1;
                        let answer =
                            self.removals.take_written_record(Some((record, self.version.to_string())), self.now);
                        requests += answer.0.len();
                        frozen.extend(answer.1.into_iter().map(|(cause, _)| cause));
                    }
                }
            }
            (requests, frozen)
        }

        fn entry(&self) -> Option<RecordedCause> {
            self.removals.record.causes.get(CAUSE).cloned()
        }
    }

    #[test]
    fn what_was_asked_for_and_what_moves_goes_at_once() {
        let mut scene = Scene::new();
        assert_eq!(scene.remove(90, &RemovalClass::Asked), 90);
        assert_eq!(scene.remove(90, &RemovalClass::Moved), 90);
    }

    #[test]
    fn few_removals_go_once_they_are_known_and_recorded() {
        let mut scene = Scene::new();
        assert_eq!(scene.caused(10), 0);
        assert_eq!(scene.pass(9), (0, vec![]), "more may come");
        assert_eq!(scene.pass(1), (1, vec![]));
        assert_eq!(scene.entry().unwrap().removed, 10, "it is recorded before");
        assert_eq!(scene.caused(10), 10);
    }

    #[test]
    fn too_many_are_held_back_until_an_operator_allows_them() {
        let mut scene = Scene::new();
        assert_eq!(scene.caused(35), 0);
        assert_eq!(scene.pass(12), (0, vec![CAUSE.to_owned()]));
        let frozen = scene.entry().unwrap().frozen.unwrap();
        assert_eq!((frozen.count(), frozen.first.len(), &*frozen.first[0]), (35, 5, "Secret shop/key-0 on east"));
        assert_eq!((scene.pass(120), scene.caused(35)), ((0, vec![]), 0), "it is said once");
        scene.removals.record.causes.get_mut(CAUSE).unwrap().allowed = Some(Timestamp::UNIX_EPOCH);
        assert_eq!(scene.pass(1).0, 1);
        assert_eq!((scene.caused(35), scene.entry().unwrap().removed), (10, 10), "a tenth of all in a minute");
        assert_eq!(scene.pass(50).0, 0);
        assert!(scene.pass(12).0 > 0);
        assert_eq!(scene.entry().unwrap().removed, 20);
    }

    #[test]
    fn an_edit_that_is_taken_back_leaves_nothing_behind() {
        let mut scene = Scene::new();
        scene.caused(35);
        scene.pass(12);
        scene.caused(0);
        scene.pass(12);
        let entry = scene.entry().unwrap();
        assert_eq!((entry.frozen, entry.removed, entry.idle_since.is_some()), (None, 0, true));
        scene.pass(3_601);
        assert_eq!(scene.entry(), None);
    }

    #[test]
    fn a_new_scheduler_goes_on_counting() {
        let mut scene = Scene::new();
        scene.caused(8);
        scene.pass(12);
        let record = scene.removals.record.clone();
        scene.removals = Removals::new(scene.now);
        assert!(matches!(scene.task(), Some(RemovalTask::Read)));
        scene.removals.take_read_record(record, Some("9".to_owned()));
        scene.caused(5);
        assert_eq!(scene.pass(59), (0, vec![]), "writes of the former one may be on their way");
        assert_eq!(scene.pass(2), (0, vec![CAUSE.to_owned()]), "8 and 5 are more than 10");
    }

    #[test]
    fn nothing_goes_before_the_record_is_written() {
        let mut scene = Scene::new();
        scene.caused(10);
        scene.now += 10;
        let Some(RemovalTask::Write(..)) = scene.task() else { panic!("it is written") };
        assert_eq!(scene.removals.take_written_record(None, scene.now).0, Vec::new());
        assert_eq!(scene.caused(10), 0);
        scene.now += 5;
        assert!(matches!(scene.task(), Some(RemovalTask::Read)), "somebody else may have written it");
    }
}
