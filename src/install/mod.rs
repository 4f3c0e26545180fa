//! Common parts of installs of a control plane and of an agent: the chosen package, the home directory, what
//! containers ask for, how a run tells what it does, how it goes through its stages and how it ends.

pub mod admin_access;
pub mod diff;
pub(crate) mod drive;
pub mod failure;
pub mod fleet_home;
pub mod image_pulls;
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
