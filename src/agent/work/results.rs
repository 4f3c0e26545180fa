//! Consequences of the end of an operation, and the count of pods.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::apply::Applied;
use super::context::is_listed;
use super::entry::Entry;
use super::explain;
use super::index::Seen;
use super::orphans::{self, Copy};
use super::pods;
use super::problem::Problem;
use super::served;
use super::status;
use super::task::{CopyKey, Task};
use super::worker::{Done, Objection, Worker, entry_of};
use crate::api::crd::cluster::DataWithoutSchedule;
use crate::api::crd::condition::find_condition;
use crate::api::crd::schedule::{applied, conditions};

/// Time between two counts of pods.
const COUNT: Duration = Duration::from_secs(2);

impl Worker {
    pub(super) fn on_done(&mut self, done: Done) {
        let now = Instant::now();
        match done {
            Done::Applied { name, task, took, result } => {
                self.working -= 1;
                self.metrics.observe_duration("fleet_agent_apply_seconds", "Duration of applying a copy.", took);
                let word = result.as_ref().map_or_else(|problem| problem.reason, |_| applied::APPLIED);
                self.metrics.increment_counter("fleet_agent_applies_total", "Copies applied.", &[("result", word)]);
                self.on_applied(&name, &task, result, now);
            }
            Done::Removed { name, uid, result } => {
                self.working -= 1;
                if let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.task.uid == uid) {
                    tracing::debug!(schedule = name, ?result, "removal");
                    entry.record_removal(result, now, Timestamp::now());
                }
            }
            Done::Listed(Ok(copies)) => {
                let known: BTreeSet<&str> = self.entries.values().map(|entry| entry.task.uid.as_str()).collect();
                let has_none =
                    |copy: &Copy| !known.contains(copy.schedule_uid.as_str()) && !self.by_key.contains_key(&copy.key);
                let orphans: Vec<Copy> = copies.into_iter().filter(has_none).collect();
                self.observed.record_copies_without_schedule(orphans.len());
                let with_place = |copy: Copy| {
                    let place = self.copy_surroundings(&copy.key);
                    (copy, place)
                };
                let found = orphans.into_iter().map(with_place).collect();
                let orphans = self.orphans.take_orphans(found, self.orphan_grace, now);
                if orphans.is_empty() {
                    self.report_kept_data(&[]);
                } else {
                    let context = self.context.clone();
                    self.operations
                        .spawn(async move { Done::OrphansCleared(orphans::clear_orphans(&context, orphans).await) });
                }
            }
            Done::Listed(Err(error)) => tracing::debug!(%error, "listing copies failed"),
            Done::OrphansCleared(cleared) => {
                self.orphans.record_inspection(&cleared.inspected);
                if !cleared.deleted.is_empty() {
                    self.list_soon(now);
                }
                for copy in cleared.deleted {
                    tracing::warn!(%copy, "a copy without a Schedule was deleted");
                }
                if let Some(error) = cleared.uncertain {
                    tracing::warn!(%error, "copies without a Schedule are not deleted, because the identity of the \
                                            control plane is uncertain");
                }
                let hold = cleared.hold.map(|hold| hold.to_string()).unwrap_or_default();
                if self.logged.record_if_changed("hold", &hold) && !hold.is_empty() {
                    tracing::warn!(hold, "copies without a Schedule are kept, because deletions are held");
                }
                self.report_kept_data(&cleared.kept);
            }
            Done::Looked(result) => self.on_looked(result),
            Done::LookedForUnlisted { gone, next } => self.on_looked_for_unlisted(gone, next),
            Done::Answered { text, result } => self.on_answered(text, result),
            Done::Written { name, uid, status, result } => {
                self.writing -= 1;
                self.answers.record_write_end(&name, result.is_ok());
                if let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.task.uid == uid) {
                    let failure = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
                    if self.logged.record_if_changed("status", &failure) && !failure.is_empty() {
                        tracing::warn!(error = failure, schedule = name, "writing a status failed; will retry");
                    }
                    entry.record_status_write(result.is_ok().then_some(status), now);
                }
            }
        }
    }

    fn on_applied(&mut self, name: &str, task: &Task, result: Result<Applied, Problem>, now: Instant) {
        let Some(entry) = self.entries.get_mut(name).filter(|entry| entry.task.uid == task.uid) else { return };
        let mut changed = Vec::new();
        if let (Some(key), Ok(applied)) = (task.key(), &result)
            && key.is_core("Namespace")
        {
            // What lies in it does not wait for the watch.
            changed = self.namespaces.take_applied_namespace(&key.name, &applied.object);
        }
        let before = entry.applied_reason().to_owned();
        let is_left = result.as_ref().is_ok_and(|applied| applied.left);
        let result = result.map(|applied| {
            entry.dropped = applied.dropped;
            let seen = Seen::of(&applied.object);
            if applied.left {
                status::record_seen_copy(&mut entry.status, &seen, entry.trouble.as_ref(), Timestamp::now());
                served::record_amounts(&mut entry.status, task, &seen);
            }
            (!applied.left).then_some(seen)
        });
        let missing = matches!(&result, Err(problem) if problem.reason == applied::NAMESPACE_MISSING);
        let is_applied = result.is_ok();
        let seen = match &result {
            Ok(seen) => seen.clone(),
            Err(_) => None,
        };
        entry.record_apply_result(
            result.as_ref().map(Option::as_ref).map_err(Clone::clone),
            task,
            now,
            Timestamp::now(),
        );
        if is_left && let Some(key) = task.key() {
            status::not_owned(&mut entry.status, &key.name, Timestamp::now());
            entry.schedule_status_write(now);
        }
        if before != entry.applied_reason() {
            let message = find_condition(&entry.status.conditions, conditions::APPLIED).map(|c| c.message.as_str());
            tracing::info!(schedule = name, reason = entry.applied_reason(), message, "copy");
        }
        // The namespace was seen only while it was applied.
        if is_left
            && self.find_objection(task).is_some()
            && let Some(entry) = self.entries.get_mut(name)
        {
            entry.work_at(now);
        }
        let Some(key) = task.key() else { return };
        if task.target.as_ref().is_ok_and(|target| is_listed(target.kind)) {
            if let Some(seen) = seen {
                self.index.put_copy(key.clone(), seen);
                // What was seen while it was applied.
                self.on_copy(key);
            } else if !matches!(self.find_objection(task), Some(Objection::Protected(_))) {
                // The next try comes after a pause, whatever was seen. What is withdrawn serves nothing.
                self.record_seen(key, now, Timestamp::now());
            }
        }
        if key.is_core("Namespace") && is_applied {
            self.wake_namespace(&key.name, now);
        }
        self.on_namespaces(&changed);
        if missing {
            self.restore_namespace(task, now);
        }
    }

    /// Has the namespace of a copy applied again, if it is missing and this control plane places it.
    pub(super) fn restore_namespace(&mut self, task: &Task, now: Instant) {
        let Some(namespace) = task.key().and_then(|key| key.namespace.as_ref()) else { return };
        let key = CopyKey::for_namespace(namespace);
        let known = self.index.get(&key).is_some();
        if let Some(entry) = entry_of(&self.by_key, &mut self.entries, &key).filter(|entry| !known && entry.tried) {
            entry.work_at(now);
        }
    }

    /// Records what a copy is and serves, and has nothing done about it.
    pub(super) fn record_seen(&mut self, key: &CopyKey, now: Instant, wall: Timestamp) {
        let Some(seen) = self.index.get(key) else { return };
        let Some(entry) = entry_of(&self.by_key, &mut self.entries, key) else { return };
        if entry.task.deleting || entry.running {
            return;
        }
        if entry.copy_uid() != Some(seen.uid.as_str()) {
            return;
        }
        served::record_amounts(&mut entry.status, &entry.task, seen);
        // Also of a copy whose last apply failed: it runs on as it was. What is taken away is told with its removal.
        if entry.baseline.is_some() || !seen.terminating {
            let is_end = seen.finished && !entry.finished;
            entry.finished = seen.finished;
            self.counted = None;
            status::record_seen_copy(&mut entry.status, seen, entry.trouble.as_ref(), wall);
            if is_end && entry.applied_reason() != applied::APPLIED {
                // Nothing is refused any more of what has ended.
                entry.work_at(now);
            }
        }
        entry.schedule_status_write(now);
    }

    /// Reports the copies that are kept though they have no Schedule; in the log only where they are others than before.
    #[allow(clippy::cast_precision_loss)] // A count of objects.
    fn report_kept_data(&self, kept: &[CopyKey]) {
        let mut names: Vec<String> = kept.iter().map(ToString::to_string).collect();
        names.sort();
        if self.logged.record_if_changed("data without a Schedule", &names.join(", ")) {
            for copy in &names {
                tracing::warn!(copy, "a copy without a Schedule is kept, because it contains data");
            }
        }
        let help = "Copies without a Schedule that are kept, because they contain data.";
        self.metrics.set_gauge("fleet_agent_data_without_schedule", help, &[], kept.len() as f64);
        self.observed.record_data_without_schedule(DataWithoutSchedule::from_names(&names));
    }

    /// Has all that waits for a namespace tried again.
    fn wake_namespace(&mut self, namespace: &str, now: Instant) {
        for entry in self.entries.values_mut() {
            let is_inside = entry.task.key().and_then(|key| key.namespace.as_deref()) == Some(namespace);
            if is_inside && !entry.task.deleting && entry.applied_reason() == applied::NAMESPACE_MISSING {
                entry.work_at(now);
            }
        }
    }

    /// Has the copies of namespaces about which something else is decided now tried again.
    pub(super) fn on_namespaces(&mut self, changed: &[String]) {
        let now = Instant::now();
        let is_about = |key: &CopyKey| {
            let name = if key.is_core("Namespace") { Some(&key.name) } else { key.namespace.as_ref() };
            // The subjects of a binding are in namespaces of their own.
            key.kind == "ClusterRoleBinding" || name.is_some_and(|name| changed.contains(name))
        };
        let waits = [applied::NAMESPACE_MISSING, applied::NAMESPACE_NOT_OWNED, applied::REFUSED];
        let is_concerned = |entry: &&Entry| {
            entry.tried
                && !entry.task.deleting
                && entry.task.key().is_some_and(is_about)
                && (waits.contains(&entry.applied_reason()) || self.find_objection(&entry.task).is_some())
        };
        let all = self.entries.values().filter(|_| !changed.is_empty());
        let concerned: Vec<String> = all.filter(is_concerned).map(|entry| entry.task.name.clone()).collect();
        for name in concerned {
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.work_at(now);
            }
        }
    }

    /// Counts the pods of each copy, and explains those that do not run, if anything about them changed. Nothing is counted
    /// before an inventory was published and owners are listed: what runs would count as none.
    pub(super) fn count_pods(&mut self, now: Instant) {
        if self.count_at > now {
            return;
        }
        self.count_at = now + COUNT;
        let revision = self.observed.pods_revision();
        if self.counted == Some(revision) {
            return;
        }
        let Some(pods) = self.observed.owned_pods() else { return };
        self.counted = Some(revision);
        let counts = pods::count_pods_by_root(&self.owners, &pods);
        let unready = explain::group_unready_pods(&self.owners, &pods.unready);
        for entry in self.entries.values_mut() {
            let Some(key) = entry.task.key() else { continue };
            let Some(seen) = self.index.get(key) else { continue };
            if !self.owners.are_listed_for(key) {
                continue;
            }
            let count = counts.get(&seen.uid).copied().unwrap_or_default();
            let found = explain::explain_copy(key, seen, count, &unready, &self.warnings);
            let counted = seen.desired.filter(|_| pods.published.is_some());
            let counted = counted.map(|desired| count.to_pod_counts(desired, key.kind == "CronJob"));
            if counted.is_some() && counted != entry.status.pods {
                entry.status.pods = counted;
                entry.schedule_status_write(now);
            }
            let found = explain::newer_explanation(entry.trouble.as_ref(), found);
            if found != entry.trouble && entry.baseline.as_ref().is_some_and(|known| known.uid == seen.uid) {
                entry.trouble = found;
                status::record_seen_copy(&mut entry.status, seen, entry.trouble.as_ref(), Timestamp::now());
                entry.schedule_status_write(now);
            }
        }
    }
}
