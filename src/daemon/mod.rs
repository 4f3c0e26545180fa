//! What the two long-running programs have in common: logs, the admin port, metrics, waiting, stopping, clients.
//!
//! Knows nothing of fleets; imports no other room.

pub mod admin;
pub mod log;
pub mod metrics;
pub mod stop;
