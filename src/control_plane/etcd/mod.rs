//! etcd of a control plane: what an install must not change of it, and access to its members.

pub mod access;
pub(super) mod members;
pub(super) mod volume;
