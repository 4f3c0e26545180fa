//! The outcome of a probe of the way from a workload cluster's pod to its control plane, as it travels between programs.

use serde::{Deserialize, Serialize};

/// The outcome of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Whether every hop was passed.
    pub passed: bool,
    /// The hop that failed: `Secret`, `DNS`, `TCP`, `TLS`, `Clock`, `Authentication`, `Authorization` or `Server`.
    #[serde(default)]
    pub hop: String,
    /// Text for people: what was found.
    #[serde(default)]
    pub message: String,
    /// Seconds by which the clock there is ahead of the control plane's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_skew: Option<i64>,
}
