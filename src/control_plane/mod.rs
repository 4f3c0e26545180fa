//! What it means to install, check and remove a control plane.

pub mod exposure;
pub mod health;
pub mod install;
pub mod keys;
pub mod plan;
pub mod secrets;
pub mod uninstall;
pub mod values;

#[cfg(test)]
mod chart_tests;
