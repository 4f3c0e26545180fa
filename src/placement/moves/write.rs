//! What a step writes, and which event it is worth.

use super::record::MoveRecord;

/// What may be written now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveStep {
    /// The record, and nothing else of the group before this write has succeeded.
    Record {
        /// The next record.
        record: MoveRecord,
        /// Event of the group, sent after the write has succeeded.
        event: Option<MoveEvent>,
    },
    /// Writes of Schedules and asks, in any order, each by itself. None is due if it is empty.
    Writes(Vec<MoveWrite>),
}

/// One write, by the cluster that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveWrite {
    /// POST of the Schedule.
    Create {
        /// Name of the cluster.
        cluster: String,
        /// Amount that it asks for.
        amount: i64,
    },
    /// PUT of the Schedule with the resourceVersion that was read.
    Edit {
        /// Name of the cluster.
        cluster: String,
        /// Amount that it asks for.
        amount: i64,
    },
    /// A new text in the annotation `ask` of the Cluster.
    Ask {
        /// Name of the cluster.
        cluster: String,
    },
    /// PUT of the Schedule with the next `spec.epoch` and nothing else changed.
    Keep {
        /// Name of the cluster.
        cluster: String,
    },
    /// DELETE of the Schedule by uid and resourceVersion.
    Delete {
        /// Name of the cluster.
        cluster: String,
    },
    /// Removal of our finalizer from a Schedule that is being deleted.
    Release {
        /// Name of the cluster.
        cluster: String,
    },
}

/// What a write of the record is to those who read events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveEvent {
    /// A move began.
    Moving,
    /// The group is in its new place.
    Moved,
    /// The new side did not serve in time; the old one is kept.
    MoveFailed,
    /// Nobody wants the move any more; the old side is kept.
    MoveWithdrawn,
    /// A workload that runs once was stopped and begins again.
    Restarted,
}

impl MoveWrite {
    /// Returns the name of the cluster that the write is about.
    pub fn cluster(&self) -> &str {
        match self {
            Self::Create { cluster, .. }
            | Self::Edit { cluster, .. }
            | Self::Ask { cluster }
            | Self::Keep { cluster }
            | Self::Delete { cluster }
            | Self::Release { cluster } => cluster,
        }
    }
}

impl MoveEvent {
    /// Returns the reason of the event.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Moving => "Moving",
            Self::Moved => "Moved",
            Self::MoveFailed => "MoveFailed",
            Self::MoveWithdrawn => "MoveWithdrawn",
            Self::Restarted => "Restarted",
        }
    }
}

/// Drops a write that already exists; the order is kept.
pub(super) fn distinct(writes: Vec<MoveWrite>) -> Vec<MoveWrite> {
    let mut found: Vec<MoveWrite> = Vec::with_capacity(writes.len());
    for write in writes {
        if !found.contains(&write) {
            found.push(write);
        }
    }
    found
}
