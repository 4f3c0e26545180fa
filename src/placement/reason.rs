//! Reasons that a cluster does not take a group.

use std::fmt;
use std::sync::Arc;

use super::facts::ObjectKey;

/// Reason that a cluster does not take a group: the first that holds, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Its agent is being uninstalled.
    Leaving,
    /// No operator has accepted it.
    NotAccepted,
    /// The policy's `clusterSelector` does not match.
    SelectorMismatch,
    /// The volume of a claim that the group mounts is in another cluster.
    VolumeElsewhere,
    /// No value of the policy's `orderedClusterSelector` matches.
    NotOrdered,
    /// It has no label of the policy's `topologyKey`.
    NoTopologyLabel,
    /// A taint that the policy does not tolerate, by key.
    Tainted(Arc<str>),
    /// It does not serve an API version.
    ApiMissing(Arc<str>),
    /// It is not Ready.
    NotReady,
    /// It is left out for a while, and why.
    Excluded(Arc<str>),
    /// Less of a resource is free than is asked.
    Insufficient {
        /// The resource.
        resource: Arc<str>,
        /// Amount that is asked, in thousandths.
        asked: i64,
        /// Amount that is free where the pods may run, in thousandths.
        free: i64,
    },
    /// No node has the labels that an object's pods ask for, or each has a taint that they do not tolerate.
    NoNodeMatches(Box<ObjectKey>),
    /// An object's pods ask for node labels that the cluster does not report.
    NodeLabelsUnknown(Box<ObjectKey>),
    /// An object's pods need a node each, and there are not as many.
    TooFewNodes(Box<ObjectKey>),
    /// Enough is free in all, and too little on single nodes.
    Fragmented(Box<Fragmented>),
    /// It would fit, but perhaps not the way in which the cluster's own scheduler packs.
    Tight,
}

/// Pods that do not fit although enough is free in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragmented {
    /// The object whose pods do not fit.
    pub object: ObjectKey,
    /// The resource that runs out on the node with most of it.
    pub resource: Arc<str>,
    /// Amount that one pod asks of it, in thousandths.
    pub asked: i64,
    /// The most that is free of it on one node, in thousandths.
    pub most: i64,
    /// Amount that is free of it in all, in thousandths.
    pub free: i64,
}

impl Reason {
    /// Returns the reason as status, events and metrics name it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Leaving => "Leaving",
            Self::NotAccepted => "NotAccepted",
            Self::SelectorMismatch => "SelectorMismatch",
            Self::VolumeElsewhere => "VolumeElsewhere",
            Self::NotOrdered => "NotOrdered",
            Self::NoTopologyLabel => "NoTopologyLabel",
            Self::Tainted(_) => "Tainted",
            Self::ApiMissing(_) => "ApiMissing",
            Self::NotReady => "NotReady",
            Self::Excluded(_) => "Excluded",
            Self::Insufficient { .. } => "Insufficient",
            Self::NoNodeMatches(_) => "NoNodeMatches",
            Self::NodeLabelsUnknown(_) => "NodeLabelsUnknown",
            Self::TooFewNodes(_) => "TooFewNodes",
            Self::Fragmented(_) => "Fragmented",
            Self::Tight => "Tight",
        }
    }

    /// Returns what the reason is about: a taint's key, an API version, a resource, a cause.
    pub fn argument(&self) -> Option<&str> {
        match self {
            Self::Tainted(text) | Self::ApiMissing(text) | Self::Excluded(text) => Some(text),
            Self::Insufficient { resource, .. } => Some(resource),
            _ => None,
        }
    }

    /// Returns whether work that exists stays, because the cluster may still run it.
    pub(super) fn may_keep_work(&self) -> bool {
        matches!(self, Self::NotReady | Self::NotAccepted | Self::ApiMissing(_) | Self::Tainted(_))
    }
}

impl fmt::Display for Reason {
    /// Writes the code and, after a blank, the argument.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())?;
        self.argument().map_or(Ok(()), |argument| write!(f, " {argument}"))
    }
}
