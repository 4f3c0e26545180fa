//! TODO.

pub(super) mod members;
pub(super) mod volume;
