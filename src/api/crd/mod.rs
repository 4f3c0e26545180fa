//! The custom resources of the control plane's API, and the definitions that the charts hold.

pub mod cluster;
pub mod condition;
mod crd_schema;
pub mod crds;
pub mod group;
pub mod move_record;
pub mod policy;
pub mod schedule;
