//! Result of comparing an install with the cluster.

use crate::api::remedy::Remedy;
use crate::apply::{Change, Difference, Foreign, Plan};

/// Differences that an install would make.
#[derive(Debug)]
pub struct Comparison {
    /// Changes that would be made, in the order of applying; deletions last, and with them what is planned no more and stays.
    pub differences: Vec<Difference>,
    /// Number of objects that would stay as they are.
    pub same: usize,
    /// Objects in the way: an install would refuse because of them.
    pub foreign: Vec<Foreign>,
    /// Remarks on what only an install decides and how it is shown instead, and on what is left to others.
    pub notes: Vec<Remedy>,
}

impl Comparison {
    /// The differences that were found between a plan and the cluster.
    pub fn new(plan: Plan, differences: Vec<Difference>, mut notes: Vec<Remedy>) -> Self {
        let changed = differences.iter().filter(|d| matches!(d.change, Change::Create | Change::Update)).count();
        notes.extend(plan.collect_omissions().into_iter().map(Remedy::from));
        Self { same: plan.steps.len() - changed, differences, foreign: plan.foreign, notes }
    }

    /// Returns whether an install would change nothing.
    pub fn is_same(&self) -> bool {
        self.differences.iter().all(|d| d.change == Change::Keep) && self.foreign.is_empty()
    }
}
