//! Helpers for tests of charts: golden files, values that nothing reads, branches that no fixture reaches.

pub(crate) mod coverage;
pub(crate) mod golden;
pub(crate) mod usage;
