//! Installs, checks and removes a control plane.

pub mod charts;
pub mod diff;
pub mod error;
mod etcd_members;
mod etcd_volume;
mod existing_keys;
pub mod exposure;
pub mod find_keys;
pub mod health;
pub mod install;
pub mod installed_status;
pub mod kubeconfig;
mod kubernetes_downgrade;
pub mod local_files;
pub mod plan;
pub mod precheck;
pub mod preflight;
pub mod rbac;
mod recorded_endpoint;
mod recorded_minor;
pub mod rollback;
mod running_images;
pub mod uninstall;
pub mod upgrade;
mod validate;
pub mod values;

#[cfg(test)]
mod chart_tests;
