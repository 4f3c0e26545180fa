//! What it means to install, check and remove an agent in a workload cluster.

pub mod values;

#[cfg(test)]
mod chart_tests;
