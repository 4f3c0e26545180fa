//! The quick paths. Each equals a careful path, which a test holds it to; a reader may skip this folder. The numbers in
//! their headers are medians of 30 runs, where `kubectl version --client` took 50 ms of CPU.

pub(in crate::chart) mod documents;
pub(in crate::chart) mod render;
pub(in crate::chart) mod schema;
