//! Why an object is not ready: its status by kstatus' rules, and the cause, found in pods, claims, events and logs.
//!
//! [`collect`] reads [`evidence::Evidence`]; everything else decides over it without a request.

pub(crate) mod collect;
mod container_log;
pub(crate) mod diagnosis;
pub mod evidence;
pub(crate) mod give_up;
pub mod kstatus;
mod load_balancer;
mod pod;
mod pvc;
mod typed;
pub mod workload;

pub use diagnosis::{CauseId, Diagnosis, Link, WaitFailure};
