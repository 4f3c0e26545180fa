//! TODO.

pub mod digest;
pub mod file;
pub mod text;
