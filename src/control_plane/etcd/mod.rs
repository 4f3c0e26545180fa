//! What an install must not change of etcd: its members and its volume.

pub(super) mod members;
pub(super) mod volume;
