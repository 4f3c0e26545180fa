//! State of a registration as the agent reports it, in an annotation of its identity Secret, for whoever installs or
//! uninstalls.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The Secret of the workload cluster that keeps the agent's key and certificate.
pub const IDENTITY_SECRET: &str = "fleet-agent-identity";
/// Key of the certificate in that Secret.
pub const IDENTITY_CERTIFICATE: &str = "tls.crt";
/// Key in that Secret of the digest that tells which control plane issued the certificate.
pub const IDENTITY_HUB: &str = "hub";
/// Annotation by which an uninstall asks the agent to leave the control plane: `"true"`.
pub const ANNOTATION_LEAVE: &str = "fleet-scheduler.io/leave";
/// Annotation by which an uninstall asks that what is placed here moves to other clusters: `"true"`.
pub const ANNOTATION_DRAIN: &str = "fleet-scheduler.io/drain";
/// Annotation in which the agent says how its registration stands, as the JSON of a [`Registration`].
pub const ANNOTATION_STATE: &str = "fleet-scheduler.io/registration";

/// Returns whether an uninstall asks for something by an annotation of that Secret.
pub fn is_asked(annotations: &BTreeMap<String, String>, annotation: &str) -> bool {
    annotations.get(annotation).is_some_and(|value| value == "true")
}

/// States of a registration, one word each.
pub mod state {
    /// The request for a certificate is in progress.
    pub const REGISTERING: &str = "Registering";
    /// Something keeps the agent from working; it tries again by itself, soon.
    pub const BLOCKED: &str = "Blocked";
    /// The control plane said no. Only an operator can change that.
    pub const REFUSED: &str = "Refused";
    /// Registered, and the heartbeat is taken.
    pub const CONNECTED: &str = "Connected";
    /// The control plane says that the cluster is Ready.
    pub const READY: &str = "Ready";
    /// The control plane has forgotten this cluster.
    pub const LEFT: &str = "Left";
}

/// Reason of an agent that is [`state::BLOCKED`] because it was asked to leave and cannot.
pub const LEAVE_FAILED: &str = "LeaveFailed";

/// Reasons for which the control plane refuses a request by which an agent takes its registration back. Either says
/// that nothing of the cluster is there now.
pub mod gone {
    /// The cluster was forgotten.
    pub const CLUSTER_LEFT: &str = "ClusterLeft";
    /// No cluster is registered by that name with that key.
    pub const NOT_REGISTERED: &str = "NotRegistered";
}

/// Denial of a certificate whose validity the control plane does not allow.
pub mod validity {
    /// Reason of the denial.
    pub const NOT_ALLOWED: &str = "LifetimeNotAllowed";
    /// Minimum of the API server itself, in seconds.
    pub const MIN_SECONDS: i32 = 600;
    /// Annotation on the denied CSR: longest validity that the control plane allows, in seconds. The agent asks again with
    /// that.
    pub const ANNOTATION_MAX_SECONDS: &str = "fleet-scheduler.io/max-certificate-seconds";

    /// Message of the denial, where at most `max` seconds are allowed. Its form stays as it is: agents that are one line
    /// older than the scheduler read the number out of it.
    pub fn format_denial_message(max: i32) -> String {
        format!("expirationSeconds must be from {MIN_SECONDS} to {max}")
    }

    /// Longest validity in such a message, in seconds: schedulers that are one line older than the agent do not annotate.
    pub fn max_in_message(message: &str) -> Option<i32> {
        let (_, max) = message.strip_prefix("expirationSeconds must be from ")?.split_once(" to ")?;
        max.parse().ok()
    }
}

/// State of a registration, as the agent reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The state: one of those in [`state`].
    pub state: String,
    /// Reason of the state, as one word.
    pub reason: String,
    /// Reason of the state, for people; the control plane's own words where it refused.
    #[serde(default)]
    pub message: String,
    /// Time of the report (RFC 3339), so that reporting the same again can be seen.
    #[serde(default)]
    pub at: String,
}

impl Registration {
    /// Reads it from the annotations of the identity Secret; `None` where there is none, or none that can be read.
    pub fn from_secret_annotations(annotations: &BTreeMap<String, String>) -> Option<Self> {
        serde_json::from_str(annotations.get(ANNOTATION_STATE)?).ok()
    }

    /// Returns whether it is in a state.
    pub fn is_in_state(&self, state: &str) -> bool {
        self.state == state
    }
}
