//! Where the keys of a control plane come from: the cluster, this machine, a Secret of the user.

pub(super) mod existing_keys;
pub mod find_keys;
pub mod local_files;
