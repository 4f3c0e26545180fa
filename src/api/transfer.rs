//! How a file gets into a pod: one line of JSON and the bytes to a port of the pod, one line of JSON back.

use serde::{Deserialize, Serialize};

/// Port at which a pod that takes a file listens, on its loopback address only: a port-forward reaches it there.
pub const RECEIVE_PORT: u16 = 8480;
/// Largest size of either line, in bytes.
pub const MAX_LINE_BYTES: usize = 4096;

/// The line before the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferHead {
    /// Number of bytes that follow.
    pub bytes: u64,
    /// Their SHA-256 in hexadecimal.
    pub sha256: String,
}

/// The line that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TransferAnswer {
    /// The file is whole and on disk; its size in bytes.
    Received(u64),
    /// It is not, and why.
    Refused(String),
}

/// A message as its line.
pub fn format_line(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap_or_default() + "\n"
}
