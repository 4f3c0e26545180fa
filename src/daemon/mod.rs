//! Shared parts of the two long-running programs: logs, the admin port, metrics, stopping.

pub mod admin;
pub mod log;
pub mod metrics;
pub mod stop;
