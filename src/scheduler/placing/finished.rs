//! What runs once: it never runs again, nor beside itself, because something moves.

use std::collections::BTreeSet;

use super::decide::{Decided, build_cluster_row};
use super::group_context::GroupContext;
use super::place::{Place, cluster_of};
use super::source::Source;
use super::store::Store;
use crate::api::Schedule;
use crate::api::crd::schedule::ScheduleShare;
use crate::placement::decide::{Outcome, Target};
use crate::placement::explain;
use crate::placement::facts::ObjectKey;
use crate::placement::live;

impl Store {
    /// Returns the copies of a Job or a bare Pod that is not over: another one would run beside them.
    pub(super) fn begun_copies(&self, key: &ObjectKey) -> Vec<(&Place, &Schedule)> {
        let source = self.sources.get(key).filter(|source| source.facts.workload.runs_once() && !self.is_over(source));
        let Some(source) = source else { return Vec::new() };
        let copies = self.copies_of(key).filter(|(at, _)| self.clusters.contains_key(cluster_of(at)));
        copies.filter(|(_, schedule)| source.is_source_of(schedule)).collect()
    }

    /// Returns whether a Job or a bare Pod is over, by its own status or by that of its copies: no further copy of it is made.
    pub(super) fn is_over(&self, source: &Source) -> bool {
        if !source.facts.workload.runs_once() {
            return false;
        }
        let copies = self.copies_of(&source.facts.key).map(|(_, schedule)| schedule);
        live::is_finished(&source.status)
            || live::are_over(copies.filter(|schedule| source.is_source_of(schedule)), &source.facts)
    }

    /// Returns whether an object is over and has no copy in a cluster, so that none is made there.
    pub(super) fn is_over_elsewhere(&self, key: &ObjectKey, cluster: &str) -> bool {
        self.copy_in(key, cluster).is_none() && self.sources.get(key).is_some_and(|source| self.is_over(source))
    }

    /// Returns the copy of an object that is over in a cluster. It keeps the share that it was made with.
    pub(super) fn ended_copy(&self, source: &Source, cluster: &str) -> Option<&Schedule> {
        let (_, schedule) = self.copy_in(&source.facts.key, cluster)?;
        (source.is_source_of(schedule) && self.is_over(source)).then_some(schedule)
    }

    /// Makes a decision about a group of which all is over one that keeps its copies where they are, but for clusters that are
    /// drained. Returns false, and changes nothing, where the group is another one.
    pub(super) fn keep_ended_group(&self, name: &str, decided: &mut Decided) -> bool {
        let members = self.members.get(name).into_iter().flatten().filter(|key| !key.is_of_kind("", "Namespace"));
        let members: Vec<ObjectKey> = members.cloned().collect();
        let runs = members.iter().any(|key| self.sources.get(key).is_none_or(|source| !self.is_over(source)));
        if decided.suspended || members.is_empty() || runs {
            return false;
        }
        let copies = members.iter().flat_map(|key| self.copies_of(key));
        let copies = copies.filter(|(_, schedule)| schedule.metadata.deletion_timestamp.is_none());
        let known = copies.filter_map(|(at, _)| self.clusters.get_key_value(cluster_of(at)));
        let clusters: BTreeSet<&String> =
            known.map(|(cluster, _)| cluster).filter(|cluster| !self.drained.contains(*cluster)).collect();
        decided.keep_where_it_ended(clusters.iter().copied());
        // Whole, as far as this is asked: what is over keeps the share that it has.
        let targets =
            clusters.iter().map(|cluster| Target { whole: members.clone(), ..Target::without_shares(cluster) });
        decided.targets = targets.collect();
        true
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

impl Decided {
    /// Makes it the decision about what has ended: that stays where it is recorded, and begins nowhere else. The targets are
    /// not changed.
    pub(super) fn keep_where_it_ended<'c>(&mut self, recorded: impl Iterator<Item = &'c String> + Clone) {
        self.message = match recorded.clone().next() {
            None => "It has ended, and no cluster has a copy".to_owned(),
            Some(_) => format!("Stays on {}: it has ended", explain::quote_names(recorded.clone())),
        };
        (self.scheduled, self.waits, self.kept) = (true, false, false);
        Outcome::Placed.code().clone_into(&mut self.reason);
        self.withheld = 0;
        let targets = recorded.clone().map(|cluster| build_cluster_row(cluster, "Target"));
        let others = self.rows.iter().filter(|row| row.state != "Target");
        let others = others.filter(|row| recorded.clone().all(|cluster| *cluster != row.name));
        self.rows = targets.chain(others.cloned()).collect();
        self.domains = Vec::new();
    }
}

impl<'a> GroupContext<'a> {
    /// Returns the copies of a member that runs once, if it would begin elsewhere, or with another share, beside them; none
    /// otherwise. It stays where it is until it is over.
    pub(super) fn copies_to_finish(&self, decided: &Decided, key: &ObjectKey) -> Vec<(&'a Place, &'a Schedule)> {
        let Some(facts) = self.store.source_facts(key) else { return Vec::new() };
        let copies = self.store.begun_copies(key);
        let are_as_decided = copies.iter().all(|(at, schedule)| {
            let target = decided.targets.iter().find(|target| target.cluster == cluster_of(at));
            target.filter(|target| live::has_copy_in_target(target, facts)).is_some_and(|target| {
                let share = target.replicas.get(key).map(|share| live::build_schedule_share("", Some(*share)));
                read_share_amounts(share.as_ref()) == read_share_amounts(schedule.spec.share.as_ref())
            })
        });
        if are_as_decided { Vec::new() } else { copies }
    }
}

/// Returns the replicas and completions of a share, as far as there are any.
fn read_share_amounts(share: Option<&ScheduleShare>) -> (Option<i64>, Option<i64>) {
    share.map(|share| (share.replicas, share.completions)).unwrap_or_default()
}
