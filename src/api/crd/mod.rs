//! TODO.

pub mod cluster;
pub mod condition;
pub(super) mod crd_schema;
pub mod crds;
pub mod group;
pub mod policy;
pub mod schedule;
