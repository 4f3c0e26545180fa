//! TODO.

pub mod exposure;
pub(super) mod recorded_endpoint;
