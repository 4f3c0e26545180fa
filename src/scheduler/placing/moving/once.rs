//! Members that run once, and CronJobs: one cluster at a time has a copy. It is stopped before another one is made, and what
//! ran to its end is made nowhere.

use super::survey::Survey;
use crate::api::Schedule;
use crate::api::labels::cluster_namespace;
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::live;
use crate::placement::moves::{MovePhase, MoveWrite, Seen};
use crate::scheduler::placing::events::event_about;
use crate::scheduler::placing::store::Store;
use crate::scheduler::placing::write::Write;

/// Returns the facts of a member that is stopped first.
fn stopped_first<'a>(store: &'a Store, key: &ObjectKey) -> Option<&'a Facts> {
    store.source_facts(key).filter(|facts| facts.workload.is_stopped_first())
}

impl Survey<'_> {
    pub(super) fn is_stopped_first(&self, key: &ObjectKey) -> bool {
        stopped_first(self.store, key).is_some()
    }

    /// Returns whether a cluster is where members that are stopped first belong.
    fn is_home(&self, cluster: &str) -> bool {
        let up = self.record.running.as_ref().filter(|running| running.phase == MovePhase::Up);
        up.map_or(&self.record.target, |running| &running.from).contains_key(cluster)
    }

    /// Returns whether a member that is stopped first gets a copy in a cluster: no other one has it, and it is not over.
    pub(super) fn is_begun_in(&self, key: &ObjectKey, cluster: &str) -> bool {
        let is_over = self.store.sources.get(key).is_some_and(|source| self.store.is_over(source));
        self.is_home(cluster) && !is_over && self.store.copies_of(key).next().is_none()
    }

    /// Returns whether a copy is left where it is though its group is elsewhere: it has begun, and only a cluster that is given
    /// up stops it.
    pub(super) fn is_left_running(&self, key: &ObjectKey, cluster: &str, schedule: &Schedule) -> bool {
        let has_begun = stopped_first(self.store, key).is_some_and(|facts| live::has_begun(schedule, facts));
        has_begun && !self.is_home(cluster) && !self.is_given_up(cluster)
    }

    /// Returns whether what runs in a cluster has to leave it.
    fn is_given_up(&self, cluster: &str) -> bool {
        self.clusters
            .fleet
            .get(cluster)
            .is_none_or(|known| known.leaving || self.policy.is_some_and(|policy| live::is_drained_for(policy, known)))
    }

    /// Returns whether all that runs once of the group is over.
    pub(super) fn is_over(&self) -> bool {
        let mut sources = self.members.iter().filter_map(|key| self.store.sources.get(*key));
        sources.all(|source| self.store.is_over(source))
    }

    /// Returns whether nothing of the group that runs once has begun.
    pub(super) fn is_idle(&self) -> bool {
        let mut members = self.members.iter().filter_map(|key| stopped_first(self.store, key));
        members.all(|facts| !self.store.copies_of(&facts.key).any(|(_, schedule)| live::has_begun(schedule, facts)))
    }

    /// Returns whether a copy waits until its Jobs have ended, in a move that has time left.
    pub(super) fn waits_for_jobs(&self, key: &ObjectKey, schedule: &Schedule) -> bool {
        let is_active = stopped_first(self.store, key)
            .is_some_and(|facts| !facts.workload.runs_once() && live::has_old_pods(schedule));
        is_active && self.record.running.as_ref().is_some_and(|running| self.now < running.deadline)
    }

    /// Returns the deletions of what is over in a target that is given up: no move takes it along.
    pub(super) fn over_copies_to_delete(&self, seen: &Seen) -> Option<MoveWrite> {
        let cluster = self.record.target.keys().next().filter(|cluster| self.is_given_up(cluster))?;
        let is_rest = seen.source.once && self.record.running.is_none() && self.is_over();
        (is_rest && !self.live_copies(cluster).is_empty()).then(|| MoveWrite::Delete { cluster: cluster.clone() })
    }
}

/// Returns the events about what had begun and was stopped, when its Schedule is let go.
pub(super) fn restart_events(store: &Store, released: &[Write]) -> Vec<Write> {
    let mut events = Vec::new();
    for write in released {
        let Write::Release { cluster, uid, .. } = write else { continue };
        let namespace = cluster_namespace(cluster);
        let stopped = store.schedules_of(&namespace).find(|schedule| schedule.metadata.uid.as_ref() == Some(uid));
        let Some(schedule) = stopped else { continue };
        let Some(source) = store.sources.get(&live::source_key(&schedule.spec.source_ref)) else { continue };
        if source.is_source_of(schedule) && live::has_begun(schedule, &source.facts) && !store.is_over(source) {
            let text = format!("starts again elsewhere: its progress on {cluster:?} is lost");
            events.push(event_about(source.address.event_reference(), true, "Restarted", &text));
        }
    }
    events
}
