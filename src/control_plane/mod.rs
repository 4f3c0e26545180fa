//! What it means to install, check and remove a control plane.

pub mod secrets;
pub mod values;

#[cfg(test)]
mod chart_tests;
