//! Diagnosis of objects that are not ready: the status by kstatus' rules, and the cause from pods, PVCs, events and
//! logs.
//!
//! `collect` reads [`evidence::Evidence`]; everything else decides over it without a request.

pub(crate) mod collect;
mod container_log;
pub(crate) mod diagnosis;
pub mod evidence;
pub(crate) mod give_up;
pub(crate) mod image;
pub mod kstatus;
mod load_balancer;
pub mod not_running;
pub(crate) mod pod;
pub(crate) mod pod_facts;
mod pvc;
mod typed;
pub mod workload;

pub use diagnosis::{CauseId, Diagnosis, Link, WaitFailure};
