//! Work that is due for one request, as its planner hands it over.

use std::collections::BTreeMap;

use super::refusals::Refusal;
use super::source::Source;
use super::write::{Address, Stages, TargetMark, Write};
use crate::placement::facts::ObjectKey;

/// Work that is due for one request.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) stages: Stages,
    /// Sources whose whole object must be read first; then nothing else is planned.
    pub(super) fetch: Vec<Address>,
    /// Copies are left for the next plan.
    pub(super) is_partial: bool,
    /// Sources whose copies will be as they must be.
    pub(super) written: Vec<ObjectKey>,
    /// Objects that cannot be placed as they ask, with the reasons of the events that say so.
    pub(super) faults: BTreeMap<ObjectKey, BTreeMap<&'static str, String>>,
    /// Copies that cannot be made.
    pub(super) refused: Vec<Refusal>,
}

impl Plan {
    /// Adds the writes of a stage, if there are any.
    pub(super) fn push_stage(&mut self, stage: Vec<Write>) {
        self.stages.extend((!stage.is_empty()).then_some(stage));
    }

    /// Returns whether a Schedule is made or edited.
    pub(super) fn writes_schedules(&self) -> bool {
        self.stages.iter().flatten().any(|write| matches!(write, Write::Schedule(..)))
    }

    /// Adds the write of the marks of a source where they differ.
    pub(super) fn with_label(mut self, source: &Source, target: TargetMark) -> Self {
        if !self.is_partial && source.target != target {
            self.stages.push(vec![Write::Label(source.address.clone(), target)]);
        }
        self
    }
}
