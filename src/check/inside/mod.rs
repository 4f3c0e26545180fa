//! The health of an installed control plane: its components in the hosting cluster, and what its own API holds.

mod collect;
mod judge;
mod own_api;

use std::collections::BTreeMap;

use crate::api::crd::cluster::DataWithoutSchedule;
use crate::api::deletion_hold::DeletionHold;
use crate::api::mass_loss::MassLossRecord;
use crate::api::mass_removal::RemovalRecord;

pub use collect::{health_rights, list_registered_members, read_components, read_inside};
pub use judge::CHECKS;
#[cfg(test)]
pub(super) use judge::tests::examples;
pub use own_api::{OwnApi, PolicyBinding, Served, Webhook};

/// One component as its controller and pods show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Component {
    /// Whether the object is there.
    pub installed: bool,
    /// Replicas asked for.
    pub wanted: i32,
    /// Replicas ready.
    pub ready: i32,
    /// Its controller has updated all pods to the newest template, and the old pods are deleted.
    pub updated: bool,
    /// The worst state of its pods: a waiting reason or a phase, with the pod's name.
    pub trouble: Option<String>,
    /// Command and arguments of its first container.
    pub arguments: Vec<String>,
}

impl Component {
    /// `Running`, or in a few words what it is instead.
    pub fn describe_state(&self) -> String {
        match self {
            Self { installed: false, .. } => "not installed".to_owned(),
            Self { wanted: 0, .. } => "scaled to zero".to_owned(),
            Self { trouble, updated: false, .. } if self.is_running() => {
                let trouble = trouble.as_ref().map(|trouble| format!(": {trouble}")).unwrap_or_default();
                format!("Running, but a change is not rolled out{trouble}")
            }
            _ if self.is_running() => "Running".to_owned(),
            Self { trouble: Some(trouble), .. } => trouble.clone(),
            Self { wanted, ready, .. } => format!("{ready} of {wanted} ready"),
        }
    }

    /// All replicas are ready, be it those of before a change.
    pub fn is_running(&self) -> bool {
        self.installed && self.wanted > 0 && self.ready >= self.wanted
    }

    /// All replicas are ready, and of the newest template.
    pub fn is_rolled_out(&self) -> bool {
        self.is_running() && self.updated
    }
}

/// A registered workload cluster in brief.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its condition Ready is True.
    pub ready: bool,
    /// The reason of that condition.
    pub reason: String,
    /// Its Kubernetes version, as major.minor; empty before its agent reported.
    pub kubernetes_version: String,
    /// The version of its agent; empty before it reported.
    pub agent_version: String,
    /// Copies there that have no Schedule, if its agent counts them.
    pub copies_without_schedule: Option<i32>,
    /// Those of them that contain data.
    pub data_without_schedule: DataWithoutSchedule,
}

/// ScheduleGroups, and those without a place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// Number of all.
    pub all: usize,
    /// Numbers of those without a place, by reason.
    pub unplaced: BTreeMap<String, usize>,
}

/// State of a control plane as its own API holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inside {
    /// Definitions by kind: established or not.
    pub definitions: BTreeMap<String, bool>,
    /// Registered workload clusters.
    pub members: Vec<Member>,
    /// Number of SchedulePolicies.
    pub policies: usize,
    /// What there is of kinds that are not placed, as each policy that would take some says it.
    pub unplaced_kinds: Vec<String>,
    /// ScheduleGroups, which the policies place.
    pub groups: Groups,
    /// What acts on the API server.
    pub own_api: OwnApi,
    /// Definitions of which objects must be converted by a Service when they are listed.
    pub conversions: Vec<Served>,
    /// The server in the init Secret, empty if it cannot be read; none without the Secret.
    pub init_secret: Option<String>,
    /// Message of the scheduler on what it could not apply.
    pub bootstrap_trouble: Option<String>,
    /// The version of the API server, in full.
    pub kubernetes_version: Option<String>,
    /// Clusters that were lost at once, because of which nothing moves.
    pub mass_loss: Option<MassLossRecord>,
    /// Removals of copies, by their cause.
    pub removals: RemovalRecord,
    /// The hold of deletions, with which agents keep copies that have no Schedule.
    pub hold: Option<DeletionHold>,
}

/// Sides from which a control plane is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// From the hosting cluster and by its own API.
    Both,
    /// From the hosting cluster only; its own API does not answer.
    HostingCluster,
    /// By its own API only; the hosting cluster does not answer, or not to us.
    ControlPlane,
    /// Not at all.
    Nothing,
}

/// All that the health checks look at.
#[derive(Debug, Clone)]
pub struct HealthFacts {
    /// Components by workload name, or the reason that the hosting cluster was not read.
    pub components: Result<BTreeMap<&'static str, Component>, String>,
    /// The control plane's API, or why it could not be read.
    pub inside: Result<Inside, String>,
    /// The server that agents are to call, where that is known.
    pub agents_call: Option<String>,
}

impl HealthFacts {
    /// Returns the sides from which the facts are.
    pub fn view(&self) -> View {
        match (&self.components, &self.inside) {
            (Ok(_), Ok(_)) => View::Both,
            (Ok(_), Err(_)) => View::HostingCluster,
            (Err(_), Ok(_)) => View::ControlPlane,
            (Err(_), Err(_)) => View::Nothing,
        }
    }
}

/// The check that reports whether the hosting cluster was read.
pub const HOSTING: &str = "hosting-cluster";

/// Category of the checks of webhooks, APIServices, conversions and admission policies in the control plane's own API.
pub const OWN_API: &str = "own API";

/// Workload names of the components, in the order in which they are reported, with their titles.
pub const COMPONENTS: [(&str, &str); 4] = [
    ("apiserver", "API server"),
    ("kube-controller-manager", "kube-controller-manager"),
    ("etcd", "etcd"),
    ("fleet-scheduler", "scheduler"),
];

/// The definitions that an install brings, in the order in which they are reported.
pub const DEFINITIONS: [&str; 3] = ["Cluster", "SchedulePolicy", "ScheduleGroup"];
