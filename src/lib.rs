//! `fleetctl` installs, checks and removes a multi-cluster Kubernetes scheduling service.
//!
//! The rooms, in the order in which they may import one another (each only what stands below it):
//! `cli` → `control_plane`, `workload_cluster` → `install` → `check`, `apply`, `chart`, `pki` → `api`.
//! The long-running programs `scheduler` and `agent` import `apply`, `pki` and `api`, and share `daemon`, which imports
//! nothing.

pub mod agent;
pub mod api;
pub mod apply;
pub mod chart;
pub mod check;
pub mod cli;
pub mod control_plane;
pub mod daemon;
pub mod install;
pub mod pki;
pub mod scheduler;
pub mod workload_cluster;
