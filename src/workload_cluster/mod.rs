//! Installs, checks and removes an agent in a workload cluster.

pub mod charts;
pub mod control_plane_api;
pub mod copies;
pub mod error;
pub mod install;
pub mod plan;
pub mod probe;
pub mod rbac;
pub mod registration;
pub mod uninstall;
pub mod values;

#[cfg(test)]
mod chart_tests;
