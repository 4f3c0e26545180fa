//! What a leader remembers of moves in its own term: who waits and who moves, what it asked, and what it wrote last.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::Cluster;
use crate::api::crd::cluster::conditions;
use crate::api::crd::condition::{Condition, find_condition};
use crate::api::labels::ANNOTATION_ASK;
use crate::placement::moves::{
    FailoverCredit, GroupMoves, MoveCause, MoveLimits, MoveRecord, RunningMove, WaitingMove, admit_failovers,
    admit_moves,
};
use crate::scheduler::placing::place::Place;
use crate::scheduler::placing::store::Store;

/// Seconds for which a move that is over counts.
const COUNTED_SECONDS: i64 = 60;
/// Written Schedules more than there are, after which those that are gone are forgotten.
const FORGOTTEN: usize = 1_000;

/// Memory of one leadership term. Everything else is in the records of the groups.
pub(in crate::scheduler::placing) struct Moves {
    /// Text with which each question of this term begins.
    term: String,
    began: i64,
    asks: u64,
    groups: BTreeMap<String, GroupMoves>,
    /// By Schedule: its UID, and the epoch of the record when this leader last wrote it.
    kept: BTreeMap<Place, (String, i64)>,
    /// Groups that wait for the answer of a cluster.
    unanswered: BTreeMap<String, BTreeSet<String>>,
    /// Times in which mass-loss protection was active.
    freezes: Vec<(i64, Option<i64>)>,
    last_round: i64,
    credit: FailoverCredit,
    /// When a group must be decided, though nothing is reported then.
    alarms: BTreeMap<String, i64>,
    /// Groups whose record counts, to notice when that changes.
    recorded: BTreeSet<String>,
}

impl Moves {
    /// Creates the memory of a term that begins now; `term` never occurs twice.
    pub(in crate::scheduler::placing) fn new(term: String, now: i64) -> Self {
        Self {
            term,
            began: now,
            asks: 0,
            groups: BTreeMap::new(),
            kept: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            freezes: Vec::new(),
            last_round: now,
            credit: FailoverCredit::default(),
            alarms: BTreeMap::new(),
            recorded: BTreeSet::new(),
        }
    }

    /// Records whether the record of a group counts; returns whether that is another answer than before.
    pub(in crate::scheduler::placing) fn set_recorded(&mut self, name: &str, is_recorded: bool) -> bool {
        if is_recorded {
            return self.recorded.insert(name.to_owned());
        }
        self.groups.remove(name);
        self.alarms.remove(name);
        self.recorded.remove(name)
    }

    /// Records when a group must be decided again, if ever.
    pub(in crate::scheduler::placing) fn set_alarm(&mut self, name: &str, at: Option<i64>) {
        match at {
            Some(at) => drop(self.alarms.insert(name.to_owned(), at)),
            None => drop(self.alarms.remove(name)),
        }
    }

    /// Takes the groups that must be decided by now.
    pub(in crate::scheduler::placing) fn take_alarms(&mut self, now: i64) -> Vec<String> {
        let due: Vec<String> = self.alarms.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in &due {
            self.alarms.remove(name);
        }
        due
    }

    /// Returns the groups that wait for a move.
    pub(in crate::scheduler::placing) fn waiting_groups(&self) -> Vec<String> {
        self.groups.iter().filter(|(_, group)| group.waits.is_some()).map(|(name, _)| name.clone()).collect()
    }

    /// Records whether mass-loss protection is active; returns whether that is another answer than before.
    pub(in crate::scheduler::placing) fn set_frozen(&mut self, frozen: bool, now: i64) -> bool {
        let was_frozen = self.is_frozen();
        match self.freezes.last_mut() {
            Some((_, end @ None)) if !frozen => *end = Some(now),
            Some((_, None)) => {}
            _ if frozen => self.freezes.push((now, None)),
            _ => {}
        }
        was_frozen != frozen
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.freezes.last().is_some_and(|(_, end)| end.is_none())
    }

    /// Returns the seconds since a time in which mass-loss protection was active.
    pub(super) fn frozen_seconds(&self, since: i64, now: i64) -> i64 {
        self.freezes.iter().map(|(begin, end)| (end.unwrap_or(now) - *begin.max(&since)).max(0)).sum()
    }

    /// Returns the groups that may begin to move, at most once a second.
    pub(in crate::scheduler::placing) fn take_admitted(&mut self, now: i64) -> Vec<String> {
        if now == self.last_round {
            return Vec::new();
        }
        let seconds = u64::try_from(now - self.last_round).unwrap_or_default();
        self.credit = self.credit.after_milliseconds(seconds.saturating_mul(1_000));
        self.last_round = now;
        self.groups.retain(|_, group| {
            group.ended = group.ended.filter(|began| now - began < COUNTED_SECONDS);
            *group != GroupMoves::default()
        });
        self.admitted(now).into_iter().map(ToOwned::to_owned).collect()
    }

    fn admitted(&self, now: i64) -> Vec<&str> {
        let limits = MoveLimits { now, term: self.began, frozen: self.is_frozen(), groups: &self.groups };
        let mut admitted = admit_moves(&limits);
        admitted.extend(admit_failovers(&limits, self.credit));
        admitted
    }

    pub(super) fn is_admitted(&self, name: &str, now: i64) -> bool {
        self.admitted(now).contains(&name)
    }

    /// Returns whether a group waits for its move, or moves.
    pub(in crate::scheduler::placing) fn is_busy(&self, name: &str) -> bool {
        self.groups.get(name).is_some_and(|group| group.waits.is_some() || group.running.is_some())
    }

    /// Returns whether a group moves.
    pub(in crate::scheduler::placing) fn is_moving(&self, name: &str) -> bool {
        self.groups.get(name).is_some_and(|group| group.running.is_some())
    }

    /// Records what a group waits for, and its move as it is recorded; `away`: a cluster that it waits for is not Ready.
    pub(super) fn set_group(&mut self, name: &str, record: &MoveRecord, waits: Option<WaitingMove>, away: bool) {
        let group = self.groups.entry(name.to_owned()).or_default();
        let running =
            record.running.as_ref().map(|running| RunningMove { cause: running.cause, began: running.since, away });
        if let (Some(before), None) = (group.running, running) {
            group.ended = Some(before.began);
        }
        let waited_for_failover = group.waits.is_some_and(|waits| waits.cause == MoveCause::Failover);
        if waited_for_failover && group.running.is_none() && running.is_some() {
            self.credit = self.credit.spend_failovers(1);
        }
        (group.waits, group.running) = (waits, running);
    }

    /// Returns what begins each question that this leader asks a cluster since it is Ready; `None` where it is not.
    fn question_prefix(&self, cluster: &Cluster) -> Option<String> {
        let ready = find_condition(&cluster.status.as_ref()?.conditions, conditions::READY)?;
        let since = ready.last_transition_time.as_ref().map_or(0, |time| time.0.as_second());
        Condition::is_true(ready).then(|| format!("{}.{since}.", self.term))
    }

    /// Returns what this leader asked a cluster in its term, if the cluster was Ready ever since.
    pub(super) fn asked_text<'c>(&self, cluster: &'c Cluster) -> Option<&'c str> {
        let text = cluster.metadata.annotations.as_ref()?.get(ANNOTATION_ASK)?;
        text.starts_with(&self.question_prefix(cluster)?).then_some(text)
    }

    /// Returns a question that was never asked.
    pub(super) fn next_question(&mut self, cluster: &Cluster) -> Option<String> {
        let prefix = self.question_prefix(cluster)?;
        self.asks += 1;
        Some(format!("{prefix}{}", self.asks))
    }

    /// Records that a group waits for the answer of a cluster.
    pub(super) fn wait_for_answer(&mut self, cluster: &str, group: &str) {
        self.unanswered.entry(cluster.to_owned()).or_default().insert(group.to_owned());
    }

    /// Returns the groups that waited for the answer of a cluster.
    pub(in crate::scheduler::placing) fn take_unanswered(&mut self, cluster: &str) -> BTreeSet<String> {
        self.unanswered.remove(cluster).unwrap_or_default()
    }

    /// Records that this leader wrote a Schedule, at an epoch of its group's record.
    pub(in crate::scheduler::placing) fn record_written(&mut self, at: Place, uid: String, epoch: i64, store: &Store) {
        self.kept.insert(at, (uid, epoch));
        if self.kept.len() > store.schedules.len() + FORGOTTEN {
            self.kept.retain(|at, _| store.schedules.contains_key(at));
        }
    }

    /// Returns the epoch of the record at which this leader last wrote a Schedule.
    pub(super) fn kept_epoch(&self, at: &Place, uid: Option<&String>) -> Option<i64> {
        self.kept.get(at).filter(|(known, _)| Some(known) == uid).map(|(_, epoch)| *epoch)
    }
}
