//! The types that every room shares: the custom resources of the control plane's API, and names and versions.
//!
//! [`Cluster`], [`SchedulePolicy`] and [`ScheduleGroup`] are what users see; [`Schedule`] and [`ClusterReport`] carry
//! work and inventory between the scheduler and one agent. The CRDs in the charts are generated from these types by
//! [`crds::crds`].

// Each printer column of a kind is one more attribute with the same keys.
#![allow(clippy::duplicated_attributes)]

pub mod admission;
pub mod applyset;
pub mod bootstrap_token;
pub mod cluster;
pub mod condition;
mod crd_schema;
pub mod crds;
pub mod digest;
pub mod extra_kind;
pub mod file;
pub mod first_of;
pub mod group;
pub mod init_kubeconfig;
pub mod kinds;
pub mod kubeconfig_check;
pub mod kubernetes_record;
pub mod labels;
pub mod lenient;
pub mod lifetime;
pub mod names;
pub mod namespace_pattern;
pub mod network_policy;
pub mod partial_list;
pub mod placeable;
pub mod placement_values;
pub mod pod_scheduling;
pub mod pod_values;
pub mod policy;
pub mod probe;
pub mod protocol;
pub mod proxy;
pub mod quantity;
pub mod rbac;
pub mod readiness_log;
pub mod registration;
pub mod remedy;
pub mod schedule;
pub mod shell;
pub mod text;
pub mod version;

pub use cluster::{Cluster, ClusterSpec, ClusterStatus};
pub use condition::Condition;
pub use group::{ScheduleGroup, ScheduleGroupSpec, ScheduleGroupStatus};
pub use policy::{SchedulePolicy, SchedulePolicySpec, SchedulePolicyStatus};
pub use schedule::{ClusterReport, ClusterReportSpec, Schedule, ScheduleSpec, ScheduleStatus};
