//! Key Secrets of a control plane in its hosting cluster: completed, written, proved and followed by whoever reads them.
//!
//! [`renew::renew_certificates`] is the whole of it, and what `fleet-scheduler keys` runs: [`complete`] reads the six
//! Secrets and writes what is missing or due, [`restart`] restarts who reads a file at its start only, [`served`] waits
//! until every pod shows the new certificate, and [`summary`] writes down what was found into a ConfigMap. Everything
//! else reads its files again.

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
