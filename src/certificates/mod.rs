//! Key Secrets of a control plane in its hosting cluster: completion, writes, and the proof that pods serve the certificates.
//!
//! [`renew::renew_certificates`] is the entry point, which `fleet-scheduler keys` runs: [`complete`] reads the six
//! Secrets and writes missing or due ones, [`restart`] restarts components that read a file only at their start, [`served`] waits
//! until every pod shows the new certificate, and [`summary`] writes the result into a ConfigMap. All other components
//! read their files again.

pub mod complete;
mod error;
mod lost;
pub mod renew;
pub mod restart;
mod secret;
pub mod served;
pub mod summary;
#[cfg(test)]
mod tests;

pub use error::KeysError;
