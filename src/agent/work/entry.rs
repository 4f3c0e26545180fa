//! One Schedule with all that the agent knows of it: what was applied, what went wrong, and when it continues.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::delete::Removed;
use super::drift::{Drift, PAUSE};
use super::index::Seen;
use super::problem::{Again, LATE, Problem};
use super::resource::is_finished;
use super::served;
use super::status;
use super::task::{CopyKey, Task};
use crate::api::crd::condition::{Condition, find_condition};
use crate::api::crd::schedule::{OnDelete, ScheduleStatus, applied, conditions};
use crate::diagnose::not_running::NotRunning;
use crate::k8s::backoff::{Backoff, add_jitter};

/// Time between two applies of a copy that is not watched.
const REAPPLY: Duration = Duration::from_secs(600);
/// Time after which a copy that is deleted again and again is made once more.
const REMADE_AFTER: Duration = Duration::from_secs(60);
/// Time without a change after which a status is written.
const QUIET: Duration = Duration::from_millis(500);
/// Longest time after the first change.
const LATEST: Duration = Duration::from_secs(2);

/// State of the fields that the agent owns, after its last apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    /// UID of the copy.
    pub uid: String,
    /// Its version.
    pub version: u64,
    /// Digest of the fields.
    pub fields: String,
    /// The other managers when they were last known to have left these fields alone.
    pub managers: BTreeMap<String, String>,
}

/// A Schedule.
#[derive(Debug)]
pub struct Entry {
    /// The Schedule.
    pub task: Task,
    /// The status that the control plane has.
    pub reported: ScheduleStatus,
    /// The status to report.
    pub status: ScheduleStatus,
    /// It was tried once, with success or without.
    pub tried: bool,
    /// Its copy as it was last applied.
    pub baseline: Option<Baseline>,
    /// The copy ran to its end.
    pub finished: bool,
    /// Paths that the API server does not know.
    pub dropped: Vec<String>,
    /// Reason that its pods do not run, as far as it is known.
    pub trouble: Option<NotRunning>,
    /// Time at which it is worked on next.
    pub next: Option<Instant>,
    /// It is being worked on.
    pub running: bool,
    /// Something happened while it was being worked on.
    pub again: bool,
    /// Nothing is left to do but to wait until the Schedule is deleted.
    pub removed: bool,
    /// Earliest time at which the status is written; the latest is `write_by`.
    pub write_at: Option<Instant>,
    write_by: Option<Instant>,
    /// The status is being written.
    pub writing: bool,
    backoff: Backoff,
    drift: Drift,
    /// The last change that was put back, for people.
    pub corrected: Option<String>,
}

impl Entry {
    /// Begins with a Schedule and its status.
    pub fn new(task: Task, reported: ScheduleStatus, now: Instant) -> Self {
        let finished = task.key().is_some_and(|key| {
            let object = serde_json::json!({
                "apiVersion": if key.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", key.group) },
                "kind": key.kind, "status": reported.resource,
            });
            key.runs_once() && is_finished(&object)
        });
        Self {
            task,
            status: reported.clone(),
            reported,
            tried: false,
            baseline: None,
            finished,
            dropped: Vec::new(),
            trouble: None,
            next: Some(now),
            running: false,
            again: false,
            removed: false,
            write_at: None,
            write_by: None,
            writing: false,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(60)),
            drift: Drift::default(),
            corrected: None,
        }
    }

    /// Takes a changed Schedule.
    pub fn update_task(&mut self, task: Task, now: Instant) {
        let changed = task.content != self.task.content || task.deleting != self.task.deleting;
        let renumbered = task.source_generation != self.task.source_generation;
        let is_recounted = task.epoch != self.task.epoch || task.amount != self.task.amount;
        self.task = task;
        let is_applied = find_condition(&self.status.conditions, conditions::APPLIED).is_some_and(Condition::is_true);
        if changed {
            self.backoff.reset();
            self.dropped.clear();
            self.drift = Drift::default();
            self.corrected = None;
            self.work_at(now);
        } else if is_recounted || (renumbered && (self.running || is_applied)) {
            // The same copy, as of an annotated Deployment: its source waits to hear that the new generation is applied.
            // What failed is tried again in its time, unless the scheduler waits to hear of a try.
            self.work_at(now);
        }
    }

    /// Has it worked on at a time, or after what is being done now.
    pub fn work_at(&mut self, at: Instant) {
        if self.running {
            self.again = true;
        } else if !self.removed || !self.task.deleting {
            self.next = Some(self.next.map_or(at, |next| next.min(at)));
        }
    }

    /// UID of the copy, where it is known.
    pub fn copy_uid(&self) -> Option<&str> {
        let applied = self.baseline.as_ref().map(|baseline| baseline.uid.as_str());
        applied.or(self.status.applied_uid.as_deref())
    }

    fn is_of_earlier_source(&self) -> bool {
        self.status.source_uid.as_ref().is_some_and(|uid| *uid != self.task.source_uid)
    }

    /// Returns true for a copy of an earlier source that may be replaced if it cannot be changed in place. What its
    /// source says to keep is not.
    pub fn is_replaceable(&self) -> bool {
        let is_kept = self.task.policy.on_delete == OnDelete::Keep;
        self.is_of_earlier_source() && !is_kept && self.task.key().is_some_and(CopyKey::is_recreatable)
    }

    /// Returns true for a copy of an earlier source that is replaced, as it runs once.
    pub fn is_replaced(&self) -> bool {
        self.is_of_earlier_source() && self.task.key().is_some_and(CopyKey::runs_once)
    }

    /// Returns true if nothing is to be applied, because the copy ran to its end.
    pub fn is_over(&self) -> bool {
        self.finished && !self.is_replaced() && self.status.applied_uid.is_some()
    }

    /// Returns the reason of the condition `Applied`.
    pub fn applied_reason(&self) -> &str {
        find_condition(&self.status.conditions, conditions::APPLIED).map_or("", |condition| condition.reason.as_str())
    }

    /// Records the result of an apply of `content`, which may not be the current one any more.
    pub fn record_apply_result(
        &mut self,
        result: Result<Option<&Seen>, Problem>,
        task: &Task,
        now: Instant,
        wall: Timestamp,
    ) {
        self.running = false;
        served::record_try(&mut self.status, task);
        match result {
            Ok(seen) => {
                self.backoff.reset();
                if let Some(seen) = seen {
                    served::record_first_look(&mut self.status, seen, self.tried);
                    served::record_amounts(&mut self.status, task, seen);
                }
                self.baseline = seen.map(|seen| Baseline {
                    uid: seen.uid.clone(),
                    version: seen.version,
                    fields: seen.fields.clone(),
                    managers: seen.managers.clone(),
                });
                if let Some(seen) = seen {
                    self.finished = seen.finished;
                }
                let seen = seen.map(|seen| (seen, self.trouble.as_ref()));
                status::record_applied(&mut self.status, task, seen, &self.dropped, wall);
                self.status.message = self.corrected.clone();
                // Secrets are not watched, nor what others take out of the pull secrets of an account.
                let unwatched = task.key().is_some_and(|key| key.is_core("Secret") || key.is_core("ServiceAccount"));
                self.next = unwatched.then(|| now + add_jitter(REAPPLY, 0.1));
            }
            Err(problem) => {
                let wait = match problem.again {
                    Again::Soon => self.backoff.next_wait(),
                    Again::Late => add_jitter(LATE, 0.1),
                };
                self.next = Some(now + wait);
                let was_applied =
                    self.applied_reason() == applied::APPLIED && self.status.observed_hash.as_ref() == Some(&task.hash);
                // A server that does not answer says nothing about the copy.
                if !(problem.is_unreachable() && was_applied) {
                    status::record_problem(&mut self.status, &problem, wall);
                }
            }
        }
        self.tried = true;
        self.go_on(now);
    }

    /// Records how far a removal is.
    pub fn record_removal(&mut self, result: Result<Removed, Problem>, now: Instant, wall: Timestamp) {
        self.running = false;
        self.tried = true;
        match result {
            Ok(Removed::Done { reason, message, end }) => {
                served::record_removed(&mut self.status, end.as_ref());
                self.removed = true;
                self.next = None;
                self.baseline = None;
                status::record_removal_progress(&mut self.status, true, reason, message, wall);
            }
            Ok(Removed::Waiting { what, end }) => {
                served::record_end(&mut self.status, end.as_ref());
                self.next = Some(now + self.backoff.next_wait());
                status::record_removal_progress(
                    &mut self.status,
                    false,
                    crate::api::crd::schedule::deleted::WAITING,
                    what,
                    wall,
                );
            }
            Err(problem) => {
                self.next = Some(now + self.backoff.next_wait());
                status::record_removal_progress(&mut self.status, false, problem.reason, problem.message, wall);
            }
        }
        self.go_on(now);
    }

    fn go_on(&mut self, now: Instant) {
        if std::mem::take(&mut self.again) {
            self.backoff.reset();
            self.next = Some(now);
        }
        self.schedule_status_write(now);
    }

    /// Records that a manager changed the copy's fields. Returns true where that is put right.
    pub fn record_drift(&mut self, manager: Option<&str>, now: Instant, wall: Timestamp) -> bool {
        let by = manager.unwrap_or("an unknown manager");
        let what = format!("{by} changed fields of the copy");
        if !self.drift.record_change(by, now) {
            self.record_correction(&what, now, wall);
            return true;
        }
        let message =
            format!("{what} three times within ten minutes; the agent corrects the copy again in half an hour");
        status::record_problem(&mut self.status, &Problem::retry_on_change(applied::CONTESTED, message), wall);
        self.next = Some(now + PAUSE);
        self.baseline = None;
        self.schedule_status_write(now);
        false
    }

    /// Records that the copy, or its label, was deleted: it is recreated, and more slowly if that happens often. Who
    /// makes it again contests nobody's fields.
    pub fn record_lost_copy(&mut self, now: Instant, wall: Timestamp) {
        self.baseline = None;
        let is_frequent = self.drift.record_change("", now);
        let wait = if is_frequent { REMADE_AFTER } else { Duration::ZERO };
        self.record_correction("the copy, or its label, was deleted", now + wait, wall);
        self.schedule_status_write(now);
    }

    fn record_correction(&mut self, what: &str, at: Instant, wall: Timestamp) {
        self.corrected = Some(format!("DriftCorrected: {what} at {}", status::truncate_to_seconds(wall)));
        self.next = Some(at);
    }

    /// Returns whether the copy with this UID is the one that was last applied, and is looked after: fields of others may be
    /// contested.
    pub fn is_own_copy(&self, uid: &str) -> bool {
        match &self.baseline {
            Some(baseline) => baseline.uid == uid,
            None => self.applied_reason() == applied::CONTESTED && self.status.applied_uid.as_deref() == Some(uid),
        }
    }

    /// Records that the status changed: it is written after a while.
    pub fn schedule_status_write(&mut self, now: Instant) {
        if self.status == self.reported {
            return;
        }
        let by = *self.write_by.get_or_insert(now + LATEST);
        self.write_at = Some((now + QUIET).min(by));
    }

    /// Has the status written at a time, unless a write is planned already: one that failed has its own time.
    pub fn write_status_at(&mut self, at: Instant) {
        self.write_at.get_or_insert(at);
    }

    /// Takes the status that the control plane has: what differs is written, also if it was written before.
    pub fn take_stored_status(&mut self, stored: ScheduleStatus) {
        if !self.writing && status::stored_form(&self.reported) != stored {
            self.reported = stored;
        }
    }

    /// Begins to write. Returns the status.
    pub fn begin_write(&mut self) -> ScheduleStatus {
        (self.write_at, self.write_by, self.writing) = (None, None, true);
        self.status.clone()
    }

    /// Records that `written` was written.
    pub fn record_status_write(&mut self, written: Option<ScheduleStatus>, now: Instant) {
        self.writing = false;
        match written {
            Some(written) => {
                self.reported = written;
                self.schedule_status_write(now);
            }
            None => self.write_at = Some(now + add_jitter(2 * LATEST, 0.5)),
        }
    }
}
