//! What runs once and is over: it never runs again because something moves.

use super::source::Source;
use super::store::Store;
use crate::api::Schedule;
use crate::placement::facts::ObjectKey;
use crate::placement::live;

impl Store {
    /// Returns whether a Job or a bare Pod is over, by its own status or by that of a copy: no further copy of it is made.
    pub(super) fn is_over(&self, source: &Source) -> bool {
        if !source.facts.workload.runs_once() {
            return false;
        }
        live::is_finished(&source.status)
            || self
                .copies_of(&source.facts.key)
                .any(|(_, schedule)| source.is_source_of(schedule) && live::has_ended(schedule, &source.facts))
    }

    /// Returns whether an object is over and has no copy in a cluster, so that none is made there.
    pub(super) fn is_over_elsewhere(&self, key: &ObjectKey, cluster: &str) -> bool {
        self.copy_in(key, cluster).is_none() && self.sources.get(key).is_some_and(|source| self.is_over(source))
    }

    /// Returns whether only this copy says that its source is over.
    pub(super) fn is_end_unreported(&self, key: &ObjectKey, schedule: &Schedule) -> bool {
        self.sources.get(key).is_some_and(|source| {
            source.is_source_of(schedule)
                && source.facts.asks.cluster.as_deref() != Some("")
                && live::has_ended(schedule, &source.facts)
                && !live::is_finished(&source.status)
        })
    }
}
