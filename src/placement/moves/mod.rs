//! Moves of groups between clusters: [`step()`] says what may be written now, [`admit_moves`] which moves begin, and
//! [`limit_removals`] which other removals go.
//!
//! ```text
//! none ──admitted──> Up ──`to` serves──> Removing ──all deletions asked──> none, target `to`
//!                     │                   │     ^
//!    failed, withdrawn, `to` gone         turn, if the side that stays is lost
//!                     v                   v     │
//!                     └──────────────> RollingBack ──all deletions asked──> none, target `from`
//! ```
//!
//! Everything is pure: the record and the look are given, and nothing is kept between two calls. A leader that is killed
//! at any moment is followed by one that does the same. The old copy is never removed before the one that replaces it
//! served, by a report that counts.
//!
//! # What the caller supplies
//!
//! One [`MoveRecord`] and one [`Seen`] for each group and each look. A group of several members is one copy in each
//! cluster: `hash` and `amount` are those of all its Schedules there, `available` and `served` are 0 unless every member
//! that runs pods has its own (divided groups: the sum), and it is `deleting` only when all of its Schedules are. Members
//! that run once (Job, bare Pod, CronJob) count for nothing; a group without others is looked at with `once`. They go with
//! the old side, and are made in the target when no other cluster has a copy.
//!
//! | Field | Source |
//! |---|---|
//! | `now` | own monotonic clock, set by the server's time in each answer to a renewal of the Lease |
//! | `admitted` | the group is in [`admit_moves`] or [`admit_failovers`] of the same moment |
//! | `frozen`, `frozen_seconds` | mass-loss protection is active; the seconds since `move.since` in which it was |
//! | `policy` | watch of SchedulePolicies: `Gone` if none that is valid matches, `Suspended` by `spec.suspend` |
//! | `source.there` | watch of the sources; `false` only by a Deleted event, or 404 to a GET, of the same uid |
//! | `source.hash`, `volumes`, `once` | [`facts`](super::facts) of the source, with its overrides |
//! | `record.finished` | not stored: the statuses of all sources that run once say that they are over, or those of copies do |
//! | `source.amount`, `divided` | replicas of the source if the policy divides; else 1 |
//! | `source.consent` | annotation `allow-volume-move` of every claim, by a GET when a move may begin or a copy with volumes is to go |
//! | `decision.cause` | comparison of the record with what exists. At rest: any cause. In a move: whether one holds for `from` |
//! | `decision.best` | [`decide_group`](super::decide::decide_group) with `target` as current and without what `excluded` names and is not over; where nothing else has room and `retry.notBefore` has passed, with it |
//! | `decision.wanted` | clusters that the filter of that decision lets pass, with or without room |
//! | `decision.scaled` | [`divide`](super::divide) for the present replicas, begun with `target` (in a move: with `to`, and with `from`); clusters with a copy that nobody wants may get a share |
//! | `decision.renewed` | policyHash or the annotation `rebalance` differs from what the last failure recorded |
//! | `clusters` | watch of Clusters: uid, condition Ready, and since when not; every Cluster that exists |
//! | `schedules` | watch of Schedules, with their status; those of a Cluster that is gone, or has another uid, are left out |
//! | `schedules.said` | [`read_copy_report`](super::live::read_copy_report): `status.available`, `status.served`, `status.finished`, condition `Deleted`; zeros without a status |
//! | `schedules.asked` | own memory: this leader asked the cluster in its term, and the cluster was Ready ever since |
//! | `schedules.answered` | [`is_answered`](super::live::is_answered): Cluster `status.answered` is that text, and `status.epoch` of the Schedule is its `spec.epoch` |
//! | `schedules.kept` | own memory: epoch of the record when this leader last created or kept the Schedule; none in a new term |
//!
//! A watch without an event or a bookmark for 60 s is stale: `frozen` of [`MoveLimits`]. The view of an object is never
//! older than the last write to it: a write without an answer is read back first.
//!
//! # What the caller writes
//!
//! 1. [`MoveStep::Record`] comes alone. It is a PUT of the status of the ScheduleGroup with the resourceVersion that was
//!    read. The event is sent, and the next step is made, after it has succeeded. After 409 everything is read again.
//! 2. [`MoveStep::Writes`] may be made in any order, one at a time for each Schedule: POST for `Create`; PUT with
//!    resourceVersion for `Edit` and `Keep`; DELETE with uid and resourceVersion; `Release` takes our finalizer off. No
//!    server-side apply: it makes again what was deleted. Followers are written before what uses them, and leave after it.
//! 3. `Create` and `Edit` count `spec.epoch` of the Schedule up if the amount or the pods differ, `Keep` always. An `Edit`
//!    that counts up has asked its cluster: the caller then asks (rule 4), and sets `asked`.
//! 4. `Ask` writes a text that never occurs twice into the annotation `ask` of the Cluster. One ask serves all groups.
//! 5. A `Delete` of a group without a move, whose source exists, goes through [`limit_removals`] first.
//! 6. The label of the source changes when the record enters Removing, and when a group without a target gets one.
//!
//! # What the API needs for it
//!
//! - ScheduleGroup: [`MoveRecord`] in `status` (`target`, `epoch`, `move`, `retry`, `excluded`, `finished`).
//! - Schedule: `spec.epoch`; `status.epoch` (of what was last tried, whatever came of it), `status.available`,
//!   `status.served` (most at once since this copy, by uid, was asked for no less), `status.finished` (with the condition
//!   `Deleted`: it had when it was deleted).
//! - Cluster: annotation `ask`; `status.answered`, the last text that the agent answered. It answers after it has compared
//!   every copy with the status of its Schedule and written what differs.
//! - ConfigMap `kube-system/fleet-brake`: for each cause what it removed, since when it is frozen, and who allowed it.
//!   Written with resourceVersion before the first removal of a cause, and read at the start of a term.

mod admission;
mod begin;
mod exclude;
mod mass_removal;
mod once;
mod record;
mod removing;
mod seen;
mod sides;
mod step;
mod up;
mod view;
mod write;

pub use admission::{
    FailoverCredit, GroupMoves, MoveLimits, RunningMove, TERM_GATE_SECONDS, WaitingMove, admit_failovers, admit_moves,
    queue_moves,
};
pub use exclude::{exclude_cluster, forget_exclusions};
pub use mass_removal::{RemovalCause, RemovalLimits, RemovalVerdict, limit_removals, removals_left};
pub use record::{ClusterAmounts, ExcludedCluster, ExclusionReason, Move, MoveCause, MovePhase, MoveRecord, MoveRetry};
pub use seen::{ScaledShares, Seen, SeenCluster, SeenDecision, SeenPolicy, SeenReport, SeenSchedule, SeenSource};
pub use step::step;
pub use write::{MoveEvent, MoveStep, MoveWrite};
