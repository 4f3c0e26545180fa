//! Talks to the API server of a cluster: kubeconfigs, requests with retries and deadlines, watches, and the names and
//! managed fields of objects. Knows nothing of installations.
//!
//! Two clients share what lies here. `fleetctl` uses [`Server`], a few verbs on JSON values, each with its own retries;
//! the scheduler and the agent use kube's typed `Api` over [`daemon_client`].

pub(crate) mod api_error;
pub mod backoff;
mod call;
pub(crate) mod client;
pub mod connect_error;
pub(crate) mod connection;
mod credential;
pub mod daemon_client;
pub(crate) mod discovery;
pub(crate) mod event;
mod exec_plugin;
pub mod extra_kinds;
pub mod kubeconfig;
pub(crate) mod managed_fields;
pub(crate) mod object;
pub mod pages;
mod request;
pub(crate) mod request_error;
mod request_log;
pub mod resource_version;
mod response_limit;
mod retry;
pub(crate) mod server_clock;
pub(crate) mod server_identity;
#[cfg(test)]
pub(crate) mod test_api;
mod tls;
mod trust;
pub(crate) mod watch;

pub use api_error::{ApiError, Cause, sentences};
pub use client::{ApplyOptions, MANAGER, Selection, Server, Written};
pub use event::{Done, Event, Events, Numbered};
pub use kubeconfig::{ClientError, Connected, Target};
pub(crate) use managed_fields::{merge, merge_diff};
pub use object::ObjectRef;
pub use request_error::RequestError;
