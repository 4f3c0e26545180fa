//! Copies whose pods find no node for long, or whose kind their cluster does not serve: the group has to run elsewhere,
//! though nothing of what it was decided by has changed.

use std::collections::BTreeMap;

use super::place::Place;
use crate::api::Schedule;
use crate::api::crd::condition::find_condition;
use crate::api::crd::schedule::{applied, conditions};
use crate::placement::facts::ObjectKey;
use crate::placement::live;
use crate::placement::moves::{ExclusionReason, MoveCause};

/// Why a copy does not run in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stuck {
    /// So many pods have found no node, the first since this second.
    Unschedulable { pods: i64, since: i64 },
    /// The cluster does not serve its kind.
    KindNotServed,
}

impl Stuck {
    /// Returns why a copy does not run, as its agent last reported. While old pods of a rollout serve, none is missing; nor
    /// is one of a DaemonSet that has some: it has a pod where a node takes it.
    pub(super) fn from_schedule(schedule: &Schedule) -> Option<Self> {
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
    pub(super) fn cause(self) -> MoveCause {
        match self {
            Self::Unschedulable { .. } => MoveCause::Unschedulable,
            Self::KindNotServed => MoveCause::KindNotServed,
        }
    }

    /// Returns why the cluster is left out.
    pub(super) fn exclusion(self) -> ExclusionReason {
        match self {
            Self::Unschedulable { .. } => ExclusionReason::Unschedulable,
            Self::KindNotServed => ExclusionReason::KindNotServed,
        }
    }

    /// Returns the text of the event ReschedulingTriggered.
    pub(super) fn format_event(self, key: &ObjectKey, cluster: &str, now: i64) -> String {
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

/// The copies that do not run, each with whether its group was asked to leave.
pub(super) type StuckCopies = BTreeMap<Place, (Stuck, bool)>;
