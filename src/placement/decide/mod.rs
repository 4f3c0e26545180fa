//! Decisions: which clusters a group goes to.
//!
//! [`decide_group`] is a pure function of a policy, a group, the fleet and where the group is now. It reserves nothing; whoever
//! makes several decisions promises the room of each with [`Fleet::reserve_decision`] before the next.

mod direct;
mod filter;
mod group;
mod pick;
mod single_cluster;
mod spread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use direct::{Blocked, DirectDecision, DirectTarget, decide_direct};
pub use group::{Group, deciding_order};

use super::copy::Share;
use super::facts::ObjectKey;
use super::fleet::Fleet;
use super::fraction::Fraction;
use super::matching::Policy;
use super::reason::Reason;
use super::room::Steps;
use filter::Filter;

/// Most members of a group.
pub const LARGEST_GROUP: usize = 1000;

/// Reason that a decision is made again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Something about the objects or the clusters changed.
    #[default]
    Routine,
    /// The policy's selectors, order, tolerations or spread changed.
    PolicyEdit,
    /// Somebody asked for it.
    Rebalance,
    /// The group's cluster is lost; for a spread group, those that are not Ready and left out are.
    Failover,
}

/// Clusters where a group is now, and what is known of it there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Current {
    /// The recorded targets.
    pub targets: Vec<Target>,
    /// Pods that the inventory holds already, by cluster and object.
    pub counted: BTreeMap<String, BTreeMap<ObjectKey, i64>>,
    /// Pods with a node, by cluster and object, where others have found none for long. Spread groups only.
    pub bound: BTreeMap<String, BTreeMap<ObjectKey, i64>>,
    /// Reason that the decision is made.
    pub mode: Mode,
    /// Clusters that are left out for a while, and why.
    pub excluded: BTreeMap<String, String>,
    /// Clusters that the claims which it mounts leave it; absent where none pins it. Groups in one cluster only.
    pub only: Option<BTreeSet<String>>,
    /// Jobs and bare Pods that have started and not finished.
    pub started: BTreeSet<ObjectKey>,
    /// Whether the group asks for nothing more than when it was decided: where it may be, it stays without a look at room.
    pub is_settled: bool,
}

impl Current {
    fn counted_pods(&self, cluster: &str, object: &ObjectKey) -> i64 {
        self.counted.get(cluster).and_then(|objects| objects.get(object)).copied().unwrap_or_default()
    }
}

/// One cluster that gets copies.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Target {
    /// The cluster.
    pub cluster: String,
    /// Its value of the topology label; spread groups only.
    pub domain: Option<String>,
    /// Its share of each divided object.
    pub replicas: BTreeMap<ObjectKey, Share>,
    /// Objects that run pods, cannot be divided, and go here and nowhere else.
    pub whole: Vec<ObjectKey>,
}

impl Target {
    /// Returns a target that has shares of nothing yet.
    pub fn without_shares(cluster: &str) -> Self {
        Self { cluster: cluster.to_owned(), ..Self::default() }
    }

    /// Returns the pods of all its shares together that run at the same time; `None` where nothing of it is divided.
    pub fn divided_pods(&self) -> Option<i64> {
        let pods = self.replicas.values().map(|share| share.pods());
        (!self.replicas.is_empty()).then(|| pods.fold(0, i64::saturating_add))
    }
}

/// Result of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All of the group has a target.
    Placed,
    /// Part of it has.
    PartlyPlaced,
    /// Some clusters may take it, and none has room.
    NoFit,
    /// No cluster may take it.
    NoCandidates,
    /// Its cluster is gone, and its data with it.
    HasVolumes,
    /// It has too many members.
    GroupTooLarge,
}

impl Outcome {
    /// Returns the reason of the condition Scheduled.
    pub fn code(self) -> &'static str {
        match self {
            Self::Placed => "Placed",
            Self::PartlyPlaced => "PartlyPlaced",
            Self::NoFit => "NoFit",
            Self::NoCandidates => "NoCandidates",
            Self::HasVolumes => "HasVolumes",
            Self::GroupTooLarge => "GroupTooLarge",
        }
    }
}

/// Way in which the targets were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// There is room.
    Room,
    /// There is room if the cluster packs well.
    Tight,
    /// The cluster adds nodes.
    Autoscaled,
    /// The cluster sleeps and is woken.
    Standby,
    /// It was there.
    Kept,
    /// It was there, no longer fits, and nothing else has room for all of it.
    Outgrown,
    /// It should move, and has no other place.
    KeptUntilPlaced,
    /// It should move, and its volumes keep it.
    Volumes,
    /// It should move, but would start again.
    Started,
    /// Its replicas are divided.
    Divide,
    /// It is copied to every domain.
    Duplicate,
}

impl How {
    /// Returns the name as the group's status holds it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Room => "Room",
            Self::Tight => "Tight",
            Self::Autoscaled => "Autoscaled",
            Self::Standby => "Standby",
            Self::Kept => "Kept",
            Self::Outgrown => "Outgrown",
            Self::KeptUntilPlaced => "KeptUntilPlaced",
            Self::Volumes => "Volumes",
            Self::Started => "Started",
            Self::Divide => "Divide",
            Self::Duplicate => "Duplicate",
        }
    }
}

/// Reason that a cluster was chosen before others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The scarcest resource there, and the share of it that stays free.
    pub scarcest: Option<(Arc<str>, Fraction)>,
    /// Clusters with enough in all, the chosen one among them.
    pub with_room: usize,
}

/// What another cluster has over the one where a group is, when a rebalancing was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gain {
    /// Whether the policy's order prefers the other cluster.
    pub better_rank: bool,
    /// Share of the scarcest resource that stays free here.
    pub here: Option<Fraction>,
    /// The same in the other cluster.
    pub there: Option<Fraction>,
}

impl Gain {
    /// Returns whether it is enough to move.
    pub fn is_worth_it(self) -> bool {
        let has_more_left = match (self.there, self.here) {
            (Some(there), Some(here)) => there.exceeds_by_a_tenth(here),
            (Some(_), None) => true,
            (None, _) => false,
        };
        self.better_rank || has_more_left
    }
}

/// Targets of a group, and the reasons for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Whether it is placed on an allowed cluster; `false` while it is only kept on one that is not allowed.
    pub scheduled: bool,
    /// Result of the decision.
    pub outcome: Outcome,
    /// Way in which the targets were found; absent without any.
    pub how: Option<How>,
    /// The targets, in the order of their domains.
    pub targets: Vec<Target>,
    /// Replicas that no target gets.
    pub withheld: i64,
    /// Clusters that were rejected, by name; empty if no search was needed.
    pub rejected: Vec<(Arc<str>, Reason)>,
    /// Clusters that it leaves once the new copies are available.
    pub moving_from: Vec<String>,
    /// Domains without a target, and why.
    pub domains: BTreeMap<String, Outcome>,
    /// Whether the decision is recorded and not carried out.
    pub suspended: bool,
    /// Reason that the target was chosen; groups in one cluster only.
    pub chosen: Option<Chosen>,
    /// What the target has over the cluster where the group is; only where a rebalancing moves a group in one cluster.
    pub gain: Option<Gain>,
}

impl Decision {
    fn new(outcome: Outcome, how: Option<How>, targets: Vec<Target>) -> Self {
        Self {
            scheduled: matches!(outcome, Outcome::Placed | Outcome::PartlyPlaced),
            outcome,
            how,
            targets,
            withheld: 0,
            rejected: Vec::new(),
            moving_from: Vec::new(),
            domains: BTreeMap::new(),
            suspended: false,
            chosen: None,
            gain: None,
        }
    }
}

/// Decides where a group goes.
pub fn decide_group(policy: &Policy, group: &Group<'_>, fleet: &Fleet, current: &Current) -> Decision {
    decide_within(policy, group, fleet, current, &Steps::default())
}

/// Returns the clusters that a group may be in, with or without room, and whether or not they are Ready now.
pub fn allowed_clusters(policy: &Policy, group: &Group<'_>, fleet: &Fleet, current: &Current) -> BTreeSet<String> {
    let mut filter = Filter::new(policy, group, current, None);
    let allowed = fleet
        .iter()
        .filter(|cluster| matches!(filter.check_cluster(cluster), Ok(_) | Err(Reason::NotReady | Reason::Excluded(_))));
    allowed.map(|cluster| cluster.name.to_string()).collect()
}

/// The same within so many steps.
fn decide_within(policy: &Policy, group: &Group<'_>, fleet: &Fleet, current: &Current, steps: &Steps) -> Decision {
    let mut decision = if group.len() > LARGEST_GROUP {
        let mut decision = Decision::new(Outcome::GroupTooLarge, Some(How::Kept), current.targets.clone());
        decision.how = decision.how.filter(|_| !current.targets.is_empty());
        decision
    } else if let Some(constraints) = &policy.spec.spread_constraints {
        spread::keep_held_targets(
            spread::decide_spread(policy, constraints, group, fleet, current, steps),
            group,
            fleet,
            current,
        )
    } else {
        single_cluster::decide_single_cluster(policy, group, fleet, current, steps)
    };
    if decision.scheduled {
        let targets: BTreeSet<&str> = decision.targets.iter().map(|target| target.cluster.as_str()).collect();
        decision.rejected.retain(|(name, _)| !targets.contains(&**name));
    }
    decision.rejected.sort_by(|(a, _), (b, _)| a.cmp(b));
    decision.suspended = policy.spec.suspend;
    decision
}

#[cfg(test)]
mod tests;
