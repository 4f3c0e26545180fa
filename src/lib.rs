//! `fleetctl` installs, checks and removes a multi-cluster Kubernetes scheduling service.
//!
//! The top-level modules ("rooms"), in the order in which they may import one another (each only what stands below it):
//!
//! ```text
//! cli → control_plane, workload_cluster → install → check, chart, pki, apply
//!       apply → diagnose, inventory → k8s → api
//! scheduler, agent → daemon → k8s → api; agent → diagnose
//! cli, scheduler, agent → placement → api
//! ```
//!
//! `check`, `chart` and `pki` import `k8s` and `api` at most, `etcd` imports `pki` and `api`. `tests/house` checks this; CONTRIBUTING.md says what each
//! room is for.

pub mod agent;
pub mod api;
pub mod apply;
pub mod backup;
pub mod certificates;
pub mod chart;
pub mod check;
pub mod cli;
pub mod control_plane;
pub mod daemon;
pub mod diagnose;
pub mod etcd;
pub mod install;
pub mod inventory;
pub mod k8s;
pub mod pki;
pub mod placement;
pub mod scheduler;
pub mod workload_cluster;
