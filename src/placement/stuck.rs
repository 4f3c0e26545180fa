//! Copies whose pods find no node for long, or whose kind their cluster does not serve: the group has to run elsewhere,
//! though nothing of what it was decided by has changed.

use std::collections::BTreeMap;

use super::facts::{Facts, ObjectKey};
use super::fleet::Cluster;
use super::live;
use super::moves::{ExclusionReason, MoveCause, MoveRecord};
use crate::api::Schedule;
use crate::api::crd::condition::find_condition;
use crate::api::crd::schedule::{applied, conditions};

/// Seconds for which pods find no node before their group leaves, and the same where nodes are added by need.
const PATIENCE_SECONDS: i64 = 120;
const AUTOSCALED_PATIENCE_SECONDS: i64 = 600;

/// Why a copy does not run in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    /// So many pods have found no node, the first since this second.
    Unschedulable { pods: i64, since: i64 },
    /// The cluster does not serve its kind.
    KindNotServed,
}

impl Stuck {
    /// Returns why a copy does not run, as its agent last reported. While old pods of a rollout serve, none is missing; nor
    /// is one of a DaemonSet that has some: it has a pod where a node takes it.
    pub fn from_schedule(schedule: &Schedule) -> Option<Self> {
        let status = schedule.status.as_ref().filter(|_| schedule.metadata.deletion_timestamp.is_none())?;
        let is_tried = status.epoch == Some(schedule.spec.epoch);
        let refused = find_condition(&status.conditions, conditions::APPLIED).filter(|applied| !applied.is_true());
        if is_tried && refused.is_some_and(|refused| refused.reason == applied::KIND_NOT_SERVED) {
            return Some(Self::KindNotServed);
        }
        let counts = status.pods.as_ref()?;
        let since = counts.unschedulable_since.as_ref()?.0.as_second();
        let pods = counts.desired.saturating_sub(counts.bound);
        let is_enough =
            counts.bound > 0 && (schedule.spec.source_ref.kind == "DaemonSet" || live::is_rolling_out(schedule));
        (pods > 0 && !is_enough).then_some(Self::Unschedulable { pods, since })
    }

    /// Returns the cause of the move.
    pub fn cause(self) -> MoveCause {
        match self {
            Self::Unschedulable { .. } => MoveCause::Unschedulable,
            Self::KindNotServed => MoveCause::KindNotServed,
        }
    }

    /// Returns why the cluster is left out.
    pub fn exclusion(self) -> ExclusionReason {
        match self {
            Self::Unschedulable { .. } => ExclusionReason::Unschedulable,
            Self::KindNotServed => ExclusionReason::KindNotServed,
        }
    }

    /// Returns the text of the event ReschedulingTriggered.
    pub fn format_event(self, key: &ObjectKey, cluster: &str, now: i64) -> String {
        let title = key.format_title();
        match self {
            Self::Unschedulable { pods, since } => {
                let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
                let seconds = now.saturating_sub(since);
                format!("{title} lacks minimum replicas on {cluster:?}: {pods} unschedulable for {seconds} s")
            }
            Self::KindNotServed => format!("{title} cannot be applied on {cluster:?}: its kind is not served there"),
        }
    }
}

/// Returns whether a copy has not run for so long that its group leaves. A cluster that has grown since gets its time
/// again; of one that is not Ready nothing is known.
pub fn is_stuck_for_long(cluster: &Cluster, stuck: Stuck, grown_at: Option<i64>, now: i64) -> bool {
    let Stuck::Unschedulable { since, .. } = stuck else { return cluster.ready };
    let since = grown_at.map_or(since, |grown| since.max(grown));
    cluster.ready && now.saturating_sub(since) >= patience_seconds(cluster.autoscaled)
}

/// Returns the seconds for which pods find no node before their group leaves; more where nodes are added by need.
pub fn patience_seconds(is_autoscaled: bool) -> i64 {
    if is_autoscaled { AUTOSCALED_PATIENCE_SECONDS } else { PATIENCE_SECONDS }
}

/// Returns the pods that have a node, by cluster and object, where others of the copy have found none for long.
pub fn count_bound_pods<'s>(
    copies: impl Iterator<Item = (&'s str, &'s ObjectKey, &'s Schedule)>,
    is_for_long: impl Fn(&str, Stuck) -> bool,
) -> BTreeMap<String, BTreeMap<ObjectKey, i64>> {
    let mut bound: BTreeMap<String, BTreeMap<ObjectKey, i64>> = BTreeMap::new();
    for (cluster, key, schedule) in copies {
        let Some(stuck @ Stuck::Unschedulable { .. }) = Stuck::from_schedule(schedule) else { continue };
        let counts = schedule.status.as_ref().and_then(|status| status.pods.as_ref());
        if let Some(counts) = counts.filter(|_| is_for_long(cluster, stuck)) {
            bound.entry(cluster.to_owned()).or_default().insert(key.clone(), counts.bound.max(0));
        }
    }
    bound
}

/// Returns the first object, of those that do not run once, that has not run for long, and why. A group that leaves for it
/// has reason to as long as one does not run.
pub fn find_stuck_member<'f>(
    members: impl Iterator<Item = &'f Facts>,
    record: &MoveRecord,
    find_copy: impl Fn(&ObjectKey) -> Option<Stuck>,
    is_for_long: impl Fn(Stuck) -> bool,
) -> Option<(&'f ObjectKey, Stuck)> {
    let leaves = record
        .running
        .as_ref()
        .is_some_and(|running| matches!(running.cause, MoveCause::Unschedulable | MoveCause::KindNotServed));
    let repeats = members.filter(|facts| !facts.workload.runs_once());
    let mut stuck = repeats.filter_map(|facts| Some((&facts.key, find_copy(&facts.key)?)));
    stuck.find(|(_, stuck)| leaves || is_for_long(*stuck))
}
