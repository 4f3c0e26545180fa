//! What the scheduler would decide: all of a control plane's objects and policies onto its clusters, without any of them.
//!
//! [`FleetState`] is the state that decisions depend on, live or recorded; its methods make the state that is asked
//! about. [`simulate`] assigns, decides and follows as the scheduler does when it starts with that state, in the same
//! turns, and compares the result with what runs in the former state. The same states always give the same
//! [`Simulation`].

mod bare;
mod decide;
mod describe;
mod follow;
mod machine;
mod outcome;
mod promises;
mod removals;
mod rooms;
mod run;
mod state;
mod turns;

pub use outcome::{
    ClusterOutcome, CopyMove, Placement, RejectedRow, Removals, RoomAmount, Simulation, TargetOutcome, Unplaced,
};
pub use rooms::picture_fleet;
pub use state::{FleetState, SourceObject};

use std::collections::BTreeSet;

use super::facts::ObjectKey;
use run::Run;

/// What a question is about: whatever of it has no place makes the answer no.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Objects that were added or edited.
    pub objects: BTreeSet<ObjectKey>,
    /// Policies that were added or edited.
    pub policies: BTreeSet<String>,
    /// Clusters that are supposed to be lost: what runs there is asked about.
    pub clusters: BTreeSet<String>,
    /// Whether the question is about everything.
    pub everything: bool,
}

impl Asked {
    /// Returns whether an object with copies in these clusters is asked about.
    fn concerns(&self, key: &ObjectKey, copies: Option<&BTreeSet<String>>) -> bool {
        self.everything
            || self.objects.contains(key)
            || copies.is_some_and(|clusters| !clusters.is_disjoint(&self.clusters))
    }
}

/// Decides everything of a state, and compares it with what runs in the former state.
pub fn simulate(before: &FleetState, state: &FleetState, asked: &Asked) -> Simulation {
    let mut run = Run::new(before, state);
    run.decide_everything();
    describe::describe_run(&run, before, asked)
}

#[cfg(test)]
mod tests;
