//! TODO.

pub(super) mod existing_keys;
pub mod find_keys;
pub mod local_files;
