//! Common parts of installs of a control plane and of an agent: the chosen package, the home directory, container
//! resources, progress reports, stages, and the end of a run.

pub mod admin_access;
pub mod diff;
pub mod failure;
pub mod fleet_home;
pub mod image_pulls;
pub(crate) mod install_loop;
pub mod installed;
pub mod local_values;
pub mod progress;
pub mod recorded_use;
pub mod recorded_values;
pub mod release_spec;
pub mod renderable;
pub mod session;
pub mod validate_extra_kinds;
pub mod validate_registry;
pub mod validate_resources;
