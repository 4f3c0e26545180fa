//! What it means to install, check and remove an agent in a workload cluster.

pub mod charts;
pub mod hub;
pub mod install;
pub mod plan;
pub mod probe;
pub mod registration;
pub mod rights;
pub mod uninstall;
pub mod values;

#[cfg(test)]
mod chart_tests;
