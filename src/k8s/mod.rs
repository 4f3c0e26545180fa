//! Talks to the API server of a cluster: kubeconfigs, requests with retries and deadlines, watches, and the names and
//! managed fields of objects. The room does not know installations.
//!
//! Two clients share this code. `fleetctl` uses [`Server`], a few verbs on JSON values, each with its own retries;
//! the scheduler and the agent use kube's typed `Api` over [`connect::daemon_client`].

pub(crate) mod await_object;
pub mod backoff;
pub mod connect;
pub(crate) mod discovery;
pub mod extra_kinds;
pub(crate) mod managed_fields;
pub(crate) mod object;
pub mod other_kinds;
pub mod request;
pub mod resource_version;
pub(crate) mod run_event;
#[cfg(test)]
pub(crate) mod test_api;
pub(crate) mod watch;

pub(crate) use connect::daemon_client::describe_error;
pub use connect::kubeconfig::{ClientError, Connected, Target};
pub(crate) use managed_fields::{apply_merge_patch, merge_diff};
pub use object::ObjectRef;
pub use request::api_error::{ApiError, Cause, error_sentences};
pub use request::request_error::RequestError;
pub use request::retry::report_retries_to;
pub use request::server::{ApplyOptions, MANAGER, Selection, Server, Written};
pub(crate) use request::transport_error::{CHECK_SERVER, is_not_kubernetes};
pub use run_event::{Done, Event, Events, Numbered};
