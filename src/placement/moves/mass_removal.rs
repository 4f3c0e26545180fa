//! Mass-removal protection: how many removals that are neither moves nor of sources that are gone go at once.

use std::collections::{BTreeMap, BTreeSet};

use super::admission::TERM_GATE_SECONDS;

/// Removals that no limit is below.
const AT_LEAST: usize = 10;
/// Percent of all copies that one cause may remove unasked, and that may go within a minute.
const SHARE_OF_A_CAUSE: usize = 10;
/// Percent of all copies that causes that nobody allowed may remove together.
const SHARE_TOGETHER: usize = 25;
/// Seconds without anything new after which the removals of a cause are known.
const QUIET_SECONDS: i64 = 10;
/// Longest time, in seconds, that is waited for quiet.
const LONGEST_WAIT_SECONDS: i64 = 60;

/// The fleet at one moment, as mass-removal protection sees it. Times are seconds of the control plane's clock.
#[derive(Debug, Clone)]
pub struct RemovalLimits<'a> {
    /// The present time.
    pub now: i64,
    /// When this leader's term began.
    pub term: i64,
    /// Schedules of decided objects that are not being deleted. Namespaces and followers do not count.
    pub copies: usize,
    /// Causes by name, such as `policy/shop:7`, `cluster/east:12`, `program:1.4.0` or `unknown`. An entry ends an hour
    /// after nothing of its cause is due.
    pub causes: &'a BTreeMap<String, RemovalCause>,
}

/// What one cause would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovalCause {
    /// Names of the Schedules that would go now.
    pub due: BTreeSet<String>,
    /// When the first of them was found.
    pub first: i64,
    /// When the last of them was found.
    pub last: i64,
    /// Copies that the cause has removed, as recorded in the ConfigMap `kube-system/fleet-brake`.
    pub removed: usize,
    /// An operator allowed this cause, as recorded there.
    pub allowed: bool,
}

/// What becomes of the removals of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalVerdict {
    /// More may come: nothing goes yet.
    Wait,
    /// They go, as fast as [`removals_left`] says.
    Go,
    /// Too many: none goes before an operator allows the cause, or the edit is withdrawn.
    Frozen,
}

/// Returns what becomes of the removals of each cause that has some due.
pub fn limit_removals(limits: &RemovalLimits<'_>) -> BTreeMap<String, RemovalVerdict> {
    let of_a_cause = share_of_copies(limits.copies, SHARE_OF_A_CAUSE);
    let together = share_of_copies(limits.copies, SHARE_TOGETHER);
    let mut spent: usize = limits.causes.values().filter(|cause| !cause.allowed).map(|cause| cause.removed).sum();
    let mut verdicts = BTreeMap::new();
    for (name, cause) in limits.causes.iter().filter(|(_, cause)| !cause.due.is_empty()) {
        let due = cause.due.len();
        let verdict = if is_gathering(limits, cause) {
            RemovalVerdict::Wait
        } else if cause.allowed {
            RemovalVerdict::Go
        } else if cause.removed + due > of_a_cause || spent + due > together {
            RemovalVerdict::Frozen
        } else {
            spent += due;
            RemovalVerdict::Go
        };
        verdicts.insert(name.clone(), verdict);
    }
    verdicts
}

/// Returns how many removals may still go now, after those of the last 60 seconds.
pub fn removals_left(copies: usize, in_last_minute: usize) -> usize {
    share_of_copies(copies, SHARE_OF_A_CAUSE).saturating_sub(in_last_minute)
}

/// Returns whether more removals of the cause may come.
fn is_gathering(limits: &RemovalLimits<'_>, cause: &RemovalCause) -> bool {
    let is_loud = limits.now - cause.last < QUIET_SECONDS && limits.now - cause.first < LONGEST_WAIT_SECONDS;
    is_loud || limits.now - limits.term < TERM_GATE_SECONDS
}

fn share_of_copies(copies: usize, percent: usize) -> usize {
    (copies * percent / 100).max(AT_LEAST)
}
