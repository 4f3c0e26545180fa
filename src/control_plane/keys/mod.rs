//! Sources of the keys of a control plane (the cluster, this machine, a Secret of the user), and their completion.

pub mod complete_keys;
pub(super) mod existing_keys;
pub mod find_keys;
pub mod local_files;
