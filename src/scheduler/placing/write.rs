//! What placement writes, and what an answer says of it. Nothing here decides or sends anything.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::{Map, Value};

use crate::api::crd::policy::SchedulePolicyStatus;
use crate::api::placeable::Placeable;
use crate::api::{Cluster, Schedule, ScheduleGroup};

/// A source object, as a request addresses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) kind: &'static Placeable,
    /// Absent for kinds without one.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Address {
    pub(super) fn source_api(&self, client: &Client) -> Api<DynamicObject> {
        self.kind.objects_api(client, self.namespace.as_deref())
    }

    /// A reference for events.
    pub(super) fn event_reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.kind.api_version()),
            kind: Some(self.kind.kind.to_owned()),
            namespace: self.namespace.clone(),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

/// The label and the annotation that say where an object went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TargetMark {
    /// The cluster, or how many there are.
    pub(super) label: Option<String>,
    /// All of them, where they are several.
    pub(super) clusters: Option<String>,
}

impl TargetMark {
    /// Returns the marks of what went to these clusters.
    pub(super) fn from_targets<'a>(targets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut targets: Vec<&str> = targets.into_iter().collect();
        targets.sort_unstable();
        match &targets[..] {
            [] => Self::default(),
            [one] => Self { label: Some((*one).to_owned()), clusters: None },
            several => Self { label: Some(format!("{}_clusters", several.len())), clusters: Some(several.join(",")) },
        }
    }

    /// Returns the clusters that the marks name.
    pub(super) fn parse_clusters(&self) -> BTreeSet<&str> {
        match &self.clusters {
            Some(all) => all.split(',').filter(|name| !name.is_empty()).collect(),
            None => self.label.iter().map(String::as_str).collect(),
        }
    }
}

/// Who limits the deletion of a Schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RemovalClass {
    /// The owner of the source asked for it: the source is gone or was edited. Nothing limits it.
    Asked,
    /// It is a part of a move, or a follower, or a namespace in which nothing is left: these have their own limits.
    Moved,
    /// Something else, by the name of its cause: mass-removal protection counts it.
    Caused(String),
}

/// One write.
#[derive(Debug, Clone)]
pub(super) enum Write {
    /// A Schedule that is new, or whose metadata has the version that it replaces; with the data of a Secret that it is
    /// about, which its manifest does not hold.
    Schedule(Box<Schedule>, Option<Map<String, Value>>),
    /// Deletes a Schedule, in a move only in this version; where its source is believed gone, only if it is.
    RemoveSchedule {
        cluster: String,
        name: String,
        uid: String,
        version: Option<String>,
        gone: Option<Address>,
        class: RemovalClass,
    },
    /// Writes a Schedule of a copy that stays once more, so that a deletion that is on its way fails by its version.
    Keep { cluster: String, name: String, uid: String, version: Option<String>, epoch: i64 },
    /// Asks the agent of a cluster to compare every copy with what it reported.
    Ask { cluster: String, uid: String, text: String },
    /// Puts a Schedule into another group, and leaves the rest of it as it is.
    Regroup { cluster: String, name: String, uid: String, group: String },
    /// Lets a Schedule go whose copy is gone.
    Release { cluster: String, name: String, uid: String },
    /// A group with its status, as above.
    Group(Box<ScheduleGroup>),
    /// Deletes a group.
    RemoveGroup { name: String, uid: String },
    /// The marks of a source that say where it went.
    Label(Address, TargetMark),
    /// The status of a source.
    Status(Address, Value),
    /// The status of a policy.
    PolicyStatus { name: String, uid: String, status: Box<SchedulePolicyStatus> },
    /// An event; with the cluster whose agent reports it.
    Event { about: ObjectReference, warning: bool, reason: &'static str, message: String, agent: Option<String> },
}

impl Write {
    /// Returns the kind of the write, for metrics.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Schedule(..) => "schedule",
            Self::RemoveSchedule { .. } => "schedule-deletion",
            Self::Keep { .. } => "schedule-epoch",
            Self::Ask { .. } => "ask",
            Self::Regroup { .. } => "schedule-group",
            Self::Release { .. } => "finalizer",
            Self::Group(_) => "group",
            Self::RemoveGroup { .. } => "group-deletion",
            Self::Label(..) => "label",
            Self::Status(..) => "status",
            Self::PolicyStatus { .. } => "policy-status",
            Self::Event { .. } => "event",
        }
    }
}

/// Result of a write: the object, or the marks of a source, as they are now.
#[derive(Debug)]
pub(super) enum Written {
    Schedule(Box<Schedule>),
    Group(Box<ScheduleGroup>),
    Cluster(Box<Cluster>),
    /// The marks of a source, with the version that it has by them.
    Label(Address, TargetMark, Option<u64>),
}

/// Writes of one plan, in stages: a stage begins when the one before it is done.
pub(super) type Stages = Vec<Vec<Write>>;
