//! Objects in a control plane's own API that act on its API server: webhooks, APIServices, conversions, admission policies.

mod admission_policies;
mod collect;
mod judge;

pub(super) use collect::{Definition, find_converted_kinds, own_api};
pub(super) use judge::{admission_policies, api_services, check_webhooks, conversion_webhooks};

/// What acts on the API server. Of each kind only what can stop requests of others is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnApi {
    /// Admission webhooks that have to answer and that a Service answers for.
    pub webhooks: Vec<Webhook>,
    /// APIServices whose Service does not answer.
    pub api_services: Vec<Served>,
    /// Bindings of admission policies that match requests of the service itself.
    pub policies: Vec<PolicyBinding>,
    /// Error of a list that could not be read.
    pub unread: Option<String>,
}

/// An admission webhook that has to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Kind of its configuration.
    pub kind: &'static str,
    /// The admission plugin that calls it.
    pub plugin: &'static str,
    /// Name of its configuration.
    pub configuration: String,
    /// Requests that it is asked about, such as `CREATE of ingresses.networking.k8s.io`.
    pub requests: String,
}

/// An object by which a Service has to answer, which no pod of a control plane does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Name of the object.
    pub name: String,
    /// `namespace/name` of the Service.
    pub service: String,
}

/// A binding of an admission policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyBinding {
    /// Kind of the binding.
    pub kind: &'static str,
    /// Name of the binding.
    pub name: String,
    /// Name of its policy.
    pub policy: String,
    /// The first of the kinds of the service itself that it matches, as `leases.coordination.k8s.io`.
    pub matches: String,
}
