//! Holds all Schedules and copies, decides what is done next, and has it done: one task, so that nothing is locked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answer::Look;
use super::apply::{Applied, Job, apply_copy};
use super::ask::Answers;
use super::context::{Context, is_listed};
use super::delete::{Removed, Surroundings, remove_copy, take_back};
use super::entry::Entry;
use super::index::{Index, Seen};
use super::namespaces::{NamespaceSource, Namespaces};
use super::orphans::{self, Copy, Orphans};
use super::pods::{Owners, owner_between};
use super::problem::Problem;
use super::served;
use super::status;
use super::task::{CopyKey, Task};
use super::unlisted::Unlisted;
use super::warnings::Warnings;
use super::watch::{self, Change, Input};
use crate::agent::inventory::watch::Observed;
use crate::api::crd::condition::{Condition, find_condition};
use crate::api::crd::schedule::{ScheduleStatus, conditions};
use crate::api::placeable::Placeable;
use crate::daemon::log::OnChange;
use crate::daemon::metrics::Metrics;
use crate::k8s::backoff::add_jitter;
use crate::k8s::connect::daemon_client::CallError;

/// Number of copies that are applied or removed at once.
const AT_ONCE: usize = 16;
/// Number of statuses that are written at once.
const WRITES_AT_ONCE: usize = 8;

/// Time until copies are listed after a Schedule or a copy without one is gone, so that many are listed once.
const LIST_DELAY: Duration = Duration::from_secs(5);

/// The end of an operation.
pub(super) enum Done {
    Applied { name: String, task: Task, took: Duration, result: Result<Applied, Problem> },
    Removed { name: String, uid: String, result: Result<Removed, Problem> },
    Listed(Result<Vec<Copy>, CallError>),
    OrphansCleared(orphans::Cleared),
    Looked(Result<Look, CallError>),
    LookedForUnlisted { gone: Vec<Unlisted>, next: Instant },
    Answered { text: String, result: Result<(), CallError> },
    Written { name: String, uid: String, status: ScheduleStatus, result: Result<(), CallError> },
}

/// Reason that a copy is not applied.
pub(super) enum Objection {
    /// Its namespace is protected: what an earlier agent has placed there is withdrawn.
    Protected(Problem),
    /// Its namespace was there before.
    NotOwned(Problem),
    /// Its namespace was not seen, so nobody knows whose it is if it was created a moment ago.
    Unseen(Problem),
}

/// All Schedules and copies.
pub struct Worker {
    pub(super) context: Context,
    pub(super) namespaces: Namespaces,
    pub(super) metrics: Metrics,
    pub(super) inputs: (Sender<Input>, Receiver<Input>),
    pub(super) entries: BTreeMap<String, Entry>,
    /// The Schedule of each object.
    pub(super) by_key: BTreeMap<CopyKey, String>,
    pub(super) index: Index,
    /// Kinds that are watched, as group and kind.
    pub(super) watched: BTreeSet<(&'static str, &'static str)>,
    pub(super) watches: JoinSet<()>,
    pub(super) operations: JoinSet<Done>,
    pub(super) working: usize,
    pub(super) writing: usize,
    pub(super) logged: OnChange,
    pub(super) observed: Observed,
    pub(super) owners: Owners,
    pub(super) warnings: Warnings,
    /// Time of the next count of pods.
    pub(super) count_at: Instant,
    /// State of the pods that were counted last; `None` where copies or owners changed since.
    pub(super) counted: Option<u64>,
    pub(super) orphans: Orphans,
    pub(super) orphan_grace: Duration,
    pub(super) answers: Answers,
    /// Time at which copies are listed next to find those without a Schedule; `None` until the Schedules are known.
    pub(super) list_at: Option<Instant>,
    /// Time at which copies that are not listed are looked for next; `None` while that is being done.
    pub(super) look_at: Option<Instant>,
    /// The first list of Schedules is complete.
    pub(super) synced: bool,
    /// All Schedules of that list were tried.
    pub(super) begun: bool,
}

impl Worker {
    /// Creates a worker that knows nothing yet.
    pub fn new(
        context: Context,
        namespaces: Namespaces,
        observed: Observed,
        metrics: Metrics,
        orphan_grace: Duration,
    ) -> Self {
        Self {
            context,
            namespaces,
            metrics,
            inputs: channel(256),
            entries: BTreeMap::new(),
            by_key: BTreeMap::new(),
            index: Index::default(),
            watched: BTreeSet::new(),
            watches: JoinSet::new(),
            operations: JoinSet::new(),
            working: 0,
            writing: 0,
            logged: OnChange::default(),
            observed,
            owners: Owners::default(),
            warnings: Warnings::default(),
            count_at: Instant::now(),
            counted: None,
            orphans: Orphans::default(),
            orphan_grace,
            answers: Answers::default(),
            list_at: None,
            look_at: Some(Instant::now()),
            synced: false,
            begun: false,
        }
    }

    /// Works until dropped.
    pub async fn run(mut self) {
        self.watches.spawn(watch::watch_schedules(self.context.clone(), self.inputs.0.clone()));
        self.watches.spawn(watch::watch_namespaces(self.context.clone(), self.inputs.0.clone()));
        self.watches.spawn(watch::watch_installations(self.context.clone(), self.inputs.0.clone()));
        self.watches.spawn(watch::watch_warnings(self.context.clone(), self.inputs.0.clone()));
        self.watches.spawn(watch::watch_ask(self.context.clone(), self.inputs.0.clone()));
        loop {
            let now = Instant::now();
            self.start_work(now);
            self.advance_answer(now);
            self.start_writes(now);
            self.start_listing(now);
            self.start_look_for_unlisted(now);
            self.count_pods(now);
            let wake = self.next_time(now);
            tokio::select! {
                input = self.inputs.1.recv() => match input {
                    Some(Input::Schedules(change)) => self.on_schedules(*change),
                    Some(Input::Copies(kind, change)) => self.on_copies(kind, *change),
                    Some(Input::Owners(kind, change)) => {
                        self.owners.take_owner_change(kind, change);
                        self.counted = None;
                    }
                    Some(Input::Warnings(change)) => {
                        if self.warnings.take_event_change(*change) {
                            self.counted = None;
                        }
                    }
                    Some(Input::Namespaces(change)) => {
                        let changed = self.namespaces.take_namespace_change(change);
                        self.on_namespaces(&changed);
                    }
                    Some(Input::Installations(change)) => {
                        let changed = self.namespaces.take_installations(change);
                        self.on_namespaces(&changed);
                    }
                    Some(Input::Ask(change)) => self.answers.take_ask(change),
                    None => return,
                },
                Some(done) = self.operations.join_next() => match done {
                    Ok(done) => self.on_done(done),
                    // Its Schedule would never be worked on again; a new process works on everything.
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => {}
                },
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// Returns when there is something to do next, unless something happens before.
    fn next_time(&self, now: Instant) -> Instant {
        let retry = self.answers.next_time().filter(|at| *at > now);
        let others = [self.list_at, self.look_at, retry].into_iter().flatten();
        let mut next = others.min().map_or(self.count_at, |at| at.min(self.count_at));
        for entry in self.entries.values() {
            let work = entry.next.filter(|_| !entry.running && self.working < AT_ONCE);
            let write = entry.write_at.filter(|_| !entry.writing && self.writing < WRITES_AT_ONCE);
            // What is due and held up by something else goes on when that ends.
            for at in work.into_iter().chain(write).filter(|at| *at > now) {
                next = next.min(at);
            }
        }
        next
    }

    fn on_schedules(&mut self, change: Change<(Task, ScheduleStatus)>) {
        let now = Instant::now();
        match change {
            Change::All(all) => {
                let names: BTreeSet<&String> = all.iter().map(|(task, _)| &task.name).collect();
                let gone: Vec<String> = self.entries.keys().filter(|name| !names.contains(name)).cloned().collect();
                for name in gone {
                    self.forget_schedule(&name);
                }
                for (task, status) in all {
                    self.take_schedule(task, status, now);
                }
                if !std::mem::replace(&mut self.synced, true) {
                    self.list_at = Some(now);
                    tracing::info!(schedules = self.entries.len(), "all Schedules of this cluster were read");
                }
            }
            Change::One((task, status)) => self.take_schedule(task, status, now),
            Change::Gone((task, _)) => self.forget_schedule(&task.name),
        }
        #[allow(clippy::cast_precision_loss)] // Far below 2^52.
        let count = self.entries.len() as f64;
        self.metrics.set_gauge("fleet_agent_schedules", "Schedules of this cluster.", &[], count);
    }

    fn take_schedule(&mut self, task: Task, status: ScheduleStatus, now: Instant) {
        let name = task.name.clone();
        if let Ok(target) = &task.target {
            let kind = target.kind;
            self.by_key.insert(target.key.clone(), name.clone());
            if is_listed(kind) && self.watched.insert((kind.group, kind.kind)) {
                self.watches.spawn(watch::watch_copies(self.context.clone(), kind, self.inputs.0.clone()));
                if let Some(between) = owner_between(kind.group, kind.kind) {
                    self.watches.spawn(watch::watch_owners(self.context.clone(), between, self.inputs.0.clone()));
                }
            }
        }
        match self.entries.get_mut(&name) {
            Some(entry) if entry.task.uid == task.uid => {
                entry.update_task(task, now);
            }
            _ => {
                self.entries.insert(name, Entry::new(task, status, now));
            }
        }
    }

    fn forget_schedule(&mut self, name: &str) {
        let Some(entry) = self.entries.remove(name) else { return };
        if let Some(key) = entry.task.key()
            && self.by_key.get(key).is_some_and(|of| of == name)
        {
            self.by_key.remove(key);
        }
        if !entry.removed {
            tracing::warn!(schedule = name, "a Schedule was deleted before its copy");
            self.list_soon(Instant::now());
        }
    }

    /// Has the copies listed soon: how many have no Schedule is something else now.
    pub(super) fn list_soon(&mut self, now: Instant) {
        self.list_at = self.list_at.map(|at| at.min(now + LIST_DELAY));
    }

    fn on_copies(&mut self, kind: &'static Placeable, change: Change<(CopyKey, Seen)>) {
        match change {
            Change::All(all) => {
                let keys: Vec<CopyKey> = all.iter().map(|(key, _)| key.clone()).collect();
                for key in self.index.replace_kind(kind.group, kind.kind, all) {
                    // Not known to be drift: the list may be older than an apply.
                    if let Some(entry) = entry_of(&self.by_key, &mut self.entries, &key) {
                        entry.work_at(Instant::now());
                    }
                }
                for key in &keys {
                    self.on_copy(key);
                }
            }
            Change::One((key, seen)) => {
                if self.index.put_copy(key.clone(), seen) {
                    self.on_copy(&key);
                }
            }
            Change::Gone((key, seen)) => {
                if self.index.remove_deleted_copy(&key, &seen.uid) {
                    self.on_copy_gone(&key, &seen.uid, seen.finished);
                }
            }
        }
    }

    /// Follows a copy that changed.
    pub(super) fn on_copy(&mut self, key: &CopyKey) {
        let (now, wall) = (Instant::now(), Timestamp::now());
        self.record_seen(key, now, wall);
        let Some(seen) = self.index.get(key) else { return };
        let Some(entry) = entry_of(&self.by_key, &mut self.entries, key) else { return };
        if entry.task.deleting || entry.running {
            return;
        }
        let Some(baseline) = entry.baseline.clone() else { return };
        if seen.uid != baseline.uid {
            entry.work_at(now);
            return;
        }
        if seen.version <= baseline.version || seen.terminating {
            return;
        }
        if seen.fields != baseline.fields {
            let manager = seen.changed_by(&baseline.managers);
            let corrected = entry.record_drift(manager, now, wall);
            count_drift(&self.metrics, key, manager, corrected);
        } else if let Some(baseline) = &mut entry.baseline {
            baseline.managers.clone_from(&seen.managers);
        }
    }

    /// Follows a copy that is not there any more, by its UID, and whether it had run to its end.
    pub(super) fn on_copy_gone(&mut self, key: &CopyKey, uid: &str, has_finished: bool) {
        let (now, wall) = (Instant::now(), Timestamp::now());
        let Some(entry) = entry_of(&self.by_key, &mut self.entries, key) else { return };
        if entry.task.deleting || entry.running || entry.is_replaced() {
            entry.work_at(now);
            return;
        }
        entry.finished |= has_finished;
        if entry.is_over() || !entry.is_own_copy(uid) {
            return;
        }
        status::record_missing_copy(&mut entry.status, wall);
        served::record_no_copy(&mut entry.status);
        entry.record_lost_copy(now, wall);
        count_drift(&self.metrics, key, None, true);
    }

    /// Starts what is due.
    fn start_work(&mut self, now: Instant) {
        if !self.synced || !self.namespaces.are_known() {
            return;
        }
        // At first those that others need are tried: a wave begins when all of the one before were.
        let waiting = self.entries.values().filter(|entry| !entry.tried && !entry.task.deleting);
        let wave = if self.begun { None } else { waiting.map(|entry| entry.task.wave()).min() };
        self.begun |= wave.is_none();
        let is_due = |entry: &Entry| {
            let held = wave.is_some_and(|wave| !entry.tried && !entry.task.deleting && entry.task.wave() > wave);
            !held && !entry.running && entry.next.is_some_and(|at| at <= now)
        };
        let free = AT_ONCE.saturating_sub(self.working);
        let due: Vec<String> =
            self.entries.iter().filter(|(_, entry)| is_due(entry)).map(|(name, _)| name.clone()).take(free).collect();
        for name in due {
            self.start_operation(&name, now);
        }
    }

    /// Returns why a copy is not applied, whatever the workload cluster would answer.
    pub(super) fn find_objection(&self, task: &Task) -> Option<Objection> {
        let target = task.target.as_ref().ok()?;
        if let Some(problem) = self.namespaces.check_refusal(target, &task.manifest) {
            return Some(Objection::Protected(problem));
        }
        if let Some(problem) = self.namespaces.check_existence(&target.key) {
            return Some(Objection::Unseen(problem));
        }
        let source = self.namespace_source(&target.key);
        self.namespaces.check_adoption(target, source).map(Objection::NotOwned)
    }

    /// The source of the namespace that an object is, or lies in.
    fn namespace_source(&self, key: &CopyKey) -> Option<NamespaceSource> {
        let name = if key.is_core("Namespace") { &key.name } else { key.namespace.as_ref()? };
        let task = &self.entries.get(self.by_key.get(&CopyKey::for_namespace(name))?)?.task;
        Some(NamespaceSource::from_namespace_manifest(&task.manifest, task.policy.adopt))
    }

    /// Returns what is known of the place of a copy that is removed.
    pub(super) fn copy_surroundings(&self, key: &CopyKey) -> Surroundings {
        let protected = self.namespaces.find_protecting_namespace(key).map(|(_, why)| why);
        let is_in_it = |entry: &&Entry| {
            let inner = entry.task.key().filter(|inner| inner.is_core("Secret") && !entry.removed);
            inner.is_some_and(|inner| inner.namespace.as_ref() == Some(&key.name))
        };
        let secrets = self.entries.values().filter(|_| key.is_core("Namespace")).filter(is_in_it);
        Surroundings { protected, secrets: secrets.filter_map(|entry| Some(entry.task.key()?.name.clone())).collect() }
    }

    fn start_operation(&mut self, name: &str, now: Instant) {
        let Some(task) = self.entries.get(name).map(|entry| entry.task.clone()) else { return };
        let objection = self.find_objection(&task).filter(|_| !task.deleting);
        let place = task.key().map(|key| self.copy_surroundings(key)).unwrap_or_default();
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.next = None;
        let wall = Timestamp::now();
        let is_deleted = find_condition(&entry.status.conditions, conditions::DELETED).is_some_and(Condition::is_true);
        if entry.task.deleting && is_deleted {
            entry.removed = true;
            return;
        }
        let context = self.context.clone();
        let name = name.to_owned();
        if entry.task.deleting {
            (entry.running, entry.again) = (true, false);
            self.operations.spawn(async move {
                let result = remove_copy(&context, &task, &place).await;
                Done::Removed { name, uid: task.uid, result }
            });
        } else if let Some(Objection::NotOwned(problem)) = objection {
            entry.record_apply_result(Err(problem), &task, now, wall);
            return;
        } else if let Some(Objection::Unseen(problem)) = objection {
            entry.record_apply_result(Err(problem), &task, now, wall);
            self.restore_namespace(&task, now);
            return;
        } else if let Some(Objection::Protected(problem)) = objection {
            (entry.running, entry.again, entry.baseline) = (true, false, None);
            status::record_missing_copy(&mut entry.status, wall);
            served::record_no_copy(&mut entry.status);
            self.operations.spawn(async move {
                let started = Instant::now();
                let problem = take_back(&context, &task, &place, problem).await;
                Done::Applied { name, task, took: started.elapsed(), result: Err(problem) }
            });
        } else if entry.is_over() {
            let seen = task.key().and_then(|key| self.index.get(key));
            entry.record_apply_result(Ok(seen), &task, now, wall);
            return;
        } else {
            (entry.running, entry.again) = (true, false);
            let replaced = entry.status.applied_uid.clone().filter(|_| entry.is_replaced());
            let uid = entry.copy_uid().map(str::to_owned).filter(|_| replaced.is_none());
            let is_first = entry.baseline.is_none();
            let recreated = uid.clone().filter(|_| entry.is_replaceable());
            let job = Job { task, uid, replaced, recreated, is_first, dropped: entry.dropped.clone() };
            self.operations.spawn(async move {
                let started = Instant::now();
                let task = job.task.clone();
                let result = apply_copy(&context, job).await;
                Done::Applied { name, task, took: started.elapsed(), result }
            });
        }
        self.working += 1;
    }

    fn start_writes(&mut self, now: Instant) {
        for (name, entry) in &mut self.entries {
            if self.writing >= WRITES_AT_ONCE {
                return;
            }
            if entry.writing || entry.write_at.is_none_or(|at| at > now) {
                continue;
            }
            let status = entry.begin_write();
            self.answers.record_write_begin(name);
            let (context, name, uid) = (self.context.clone(), name.clone(), entry.task.uid.clone());
            self.writing += 1;
            self.operations.spawn(async move {
                let result = status::write_schedule_status(&context, &name, &uid, &status).await;
                Done::Written { name, uid, status, result }
            });
        }
    }

    /// Lists the copies from time to time, to find those without a Schedule.
    fn start_listing(&mut self, now: Instant) {
        if self.list_at.is_some_and(|at| at <= now) {
            self.list_at = Some(now + add_jitter(self.orphan_grace / 2, 0.1));
            let context = self.context.clone();
            self.operations.spawn(async move { Done::Listed(orphans::list_labelled_copies(&context).await) });
        }
    }
}

pub(super) fn entry_of<'e>(
    by_key: &BTreeMap<CopyKey, String>,
    entries: &'e mut BTreeMap<String, Entry>,
    key: &CopyKey,
) -> Option<&'e mut Entry> {
    entries.get_mut(by_key.get(key)?)
}

fn count_drift(metrics: &Metrics, key: &CopyKey, manager: Option<&str>, corrected: bool) {
    metrics.increment_counter("fleet_agent_drift_total", "Changes of copies by other field managers.", &[]);
    tracing::info!(copy = %key, manager, corrected, "another field manager changed a copy");
}
