//! Installs, checks and removes a control plane.

pub mod agent_certificate_ends;
pub mod backup;
pub mod certificate_status;
pub mod charts;
pub mod diff;
pub mod endpoint;
pub mod error;
pub mod etcd;
pub mod health;
pub mod install;
pub mod installed_status;
pub mod keys;
pub mod kubeconfig;
mod origin;
pub mod plan;
pub mod precheck;
pub mod preflight;
pub mod rbac;
pub mod renewal;
pub mod renewal_job;
pub mod restore;
pub mod rollback;
pub mod uninstall;
mod validate;
pub mod values;
pub mod version;

#[cfg(test)]
mod chart_tests;
