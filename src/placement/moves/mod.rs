//! Moves of groups between clusters.

mod admission;
mod begin;
mod brake;
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
pub use brake::{RemovalCause, RemovalLimits, RemovalVerdict, limit_removals, removals_left};
pub use record::{ClusterAmounts, ExcludedCluster, Move, MoveCause, MovePhase, MoveRecord, MoveRetry};
pub use seen::{ScaledShares, Seen, SeenCluster, SeenDecision, SeenPolicy, SeenReport, SeenSchedule, SeenSource};
pub use step::step;
pub use write::{MoveEvent, MoveStep, MoveWrite};
