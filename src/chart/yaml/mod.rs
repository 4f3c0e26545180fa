//! YAML and JSON as charts and values are written: reading with the place of each node, and writing what every reader
//! understands alike.

pub(in crate::chart) mod json;
pub(in crate::chart) mod node;
pub(in crate::chart) mod read;
pub(in crate::chart) mod scalar;
pub(in crate::chart) mod write;
