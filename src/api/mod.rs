//! The types that every room shares: the custom resources of the control plane's API, and names and versions.
//!
//! [`Cluster`], [`SchedulePolicy`] and [`ScheduleGroup`] are what users see; [`Schedule`] and [`ClusterReport`] carry
//! work and inventory between the scheduler and one agent. The CRDs in the charts are generated from these types by
//! [`crd::crds::list_crds`].

// Each printer column of a kind is one more attribute with the same keys.
#![allow(clippy::duplicated_attributes)]

pub mod admission;
pub mod applyset;
pub mod bootstrap_token;
pub mod crd;
pub mod deletion_hold;
pub mod extra_kind;
pub mod first_of;
pub mod kinds;
pub mod kubernetes_record;
pub mod labels;
pub mod lenient;
pub mod lost_cluster_timeout;
pub mod mass_loss;
pub mod mass_removal;
pub mod names;
pub mod namespace_pattern;
pub mod partial_list;
pub mod placeable;
pub mod probe;
pub mod protocol;
pub mod quantity;
pub mod rbac;
pub mod readiness_log;
pub mod registration;
pub mod rehearsal;
pub mod remedy;
pub mod shell;
pub mod transfer;
pub mod util;
pub mod values;
pub mod version;

pub use crd::cluster::{Cluster, ClusterSpec, ClusterStatus};
pub use crd::condition::Condition;
pub use crd::group::{ScheduleGroup, ScheduleGroupSpec, ScheduleGroupStatus};
pub use crd::policy::{SchedulePolicy, SchedulePolicySpec, SchedulePolicyStatus};
pub use crd::schedule::{ClusterReport, ClusterReportSpec, Schedule, ScheduleSpec, ScheduleStatus};
