//! What it means to install, check and remove a control plane.

mod address;
pub mod charts;
pub mod compare;
pub mod exposure;
pub mod health;
pub mod install;
pub mod installation;
pub mod keys;
pub mod kubeconfig;
pub mod kubeconfig_file;
pub mod local_folder;
mod members;
pub mod plan;
pub mod preflight;
pub mod rights;
pub mod rollback;
pub mod secrets;
mod sound;
mod survey;
pub mod uninstall;
pub mod upgrade;
pub mod values;
mod way_back;

#[cfg(test)]
mod chart_tests;
