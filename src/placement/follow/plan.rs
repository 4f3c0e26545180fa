//! What a plan says: which follower goes to which clusters, why, what waits, and what is lacking.

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::facts::ObjectKey;
use crate::placement::names::GroupKey;

/// Where everything of some namespaces goes that follows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FollowPlan {
    /// Groups for which a ScheduleGroup exists, in the order of names.
    pub groups: Vec<FollowGroup>,
    /// Followers that have a place or wait for one; all others are nowhere.
    pub followers: BTreeMap<ObjectKey, Follower>,
    /// What pods cannot start without and is not there, in the order of user, object and cluster.
    pub missing: Vec<MissingFollower>,
}

/// A group: only what is decided counts in it.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowGroup {
    /// Name of its policy.
    pub policy: String,
    /// Key, from which its name is made.
    pub key: GroupKey,
    /// Its name if no other key has taken it.
    pub name: String,
    /// Members that run pods: counted, asked room for, waited for.
    pub decided: Vec<ObjectKey>,
    /// Members whose own place counts: with the decided ones, or alone.
    pub followers: Vec<ObjectKey>,
    /// Clusters that claims leave it; absent if no claim pins it.
    pub only: Option<BTreeSet<String>>,
}

/// Where one follower goes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Follower {
    /// By cluster.
    pub places: BTreeMap<String, Place>,
    /// What it waits for, if it has no place.
    pub waits: Option<Wait>,
}

/// One cluster of a follower.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// What becomes of the copy.
    pub state: PlaceState,
    /// What it is there for: the first in the order of keys.
    pub because: BTreeSet<Because>,
    /// Name of the policy whose overrides hold for it there, of what no policy matches.
    pub policy: Option<String>,
    /// Whether of this object only its pull secrets go along, added to the list that exists.
    pub only_pull_secrets: bool,
}

/// What becomes of a copy of a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceState {
    /// It is made, and edits reach it.
    Written,
    /// It is left as it is.
    Frozen,
    /// Nothing there uses it, and it is kept; edits reach it.
    Stays,
    /// It leaves when everything that runs pods there is settled; edits reach it.
    Lingers,
    /// It leaves.
    Leaves,
}

impl PlaceState {
    /// Returns the name.
    pub fn code(self) -> &'static str {
        match self {
            Self::Written => "Written",
            Self::Frozen => "Frozen",
            Self::Stays => "Stays",
            Self::Lingers => "Lingers",
            Self::Leaves => "Leaves",
        }
    }
}

/// What a follower is in a cluster for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Because {
    /// Something that it belongs to has a copy there or is to have one.
    Object(ObjectKey),
    /// Its own policy's decision.
    Policy,
    /// Its own annotation.
    Annotation,
}

/// What a follower without a place waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Its namespace gets new objects.
    Quiet,
    /// What uses it has no place yet.
    User,
    /// Nothing mounts it.
    Mount,
}

impl Wait {
    /// Returns the name.
    pub fn code(self) -> &'static str {
        match self {
            Self::Quiet => "Quiet",
            Self::User => "User",
            Self::Mount => "Mount",
        }
    }
}

/// Something that pods cannot start without and that is not in their cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFollower {
    /// Object whose pods name it.
    pub user: ObjectKey,
    /// Object that they name.
    pub object: ObjectKey,
    /// The cluster.
    pub cluster: String,
    /// Reason that it is not there.
    pub why: MissingReason,
}

/// Reason that something is not where pods need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingReason {
    /// The control plane does not have it.
    NotThere,
    /// No policy matches it, and the policy of its user takes nothing else along.
    NotMatched,
    /// Its own annotation keeps it in the control plane.
    KeptHere,
    /// Its own annotation places it elsewhere.
    Annotation,
    /// It is never placed.
    Never,
    /// It is a claim whose volume is in another cluster.
    VolumeElsewhere,
}

impl MissingReason {
    /// Returns the name.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotThere => "NotThere",
            Self::NotMatched => "NotMatched",
            Self::KeptHere => "KeptHere",
            Self::Annotation => "Annotation",
            Self::Never => "Never",
            Self::VolumeElsewhere => "VolumeElsewhere",
        }
    }

    /// Returns what to do about it, as a sentence.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NotThere => "Create the object in the control plane, in the namespace of the workload.",
            Self::NotMatched => {
                "Let a policy match the object, or set `followers: NeedsToStart` in the policy of the workload."
            }
            Self::KeptHere | Self::Annotation => {
                "Remove the placement annotation of the object, or set it to the cluster of the workload."
            }
            Self::Never => "Create the object in the workload cluster, or use an object of another name or type.",
            Self::VolumeElsewhere => {
                "Place the workload in the cluster of the volume, or annotate the claim with \
                 `fleet-scheduler.io/allow-volume-move: \"true\"` to begin with an empty volume."
            }
        }
    }
}
