//! The address of a control plane: how it is exposed, and where it was when it was recorded.

pub mod exposure;
pub(super) mod reachable;
pub(super) mod recorded_endpoint;
