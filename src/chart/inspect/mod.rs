//! Inspection of a chart without a cluster: explanations, values as YAML, documentation, lint.

pub mod explain;
pub mod lint;
pub mod merged;
pub mod readme;
pub mod show;
