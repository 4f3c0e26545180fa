//! The caller's part of a record: what is installed, and how its objects are deleted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The release: the caller's part of the record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The chart and its line, such as `control-plane/v0.6`.
    pub chart: String,
    /// The service version.
    pub version: String,
    /// A digest of the merged values, without the values.
    pub values_digest: String,
    /// Merge patch (RFC 7396) from the chart's values to the user's, without secrets. None where it is not known, in
    /// records of older versions and where it is too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Value>,
    /// Small facts to find again, such as the chosen exposure. Never a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

/// The fact of a release that still waits for the data of a backup: its SHA-256. The operation that brings the data ends it.
pub const AWAITED_BACKUP: &str = "awaitedBackup";

/// Deletion policy of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Deleted by an uninstall and by a prune.
    #[default]
    Delete,
    /// Cannot be recreated (data, keys): kept unless the deletion of data was requested, and never pruned.
    Keep,
}

/// 128 random bits as hexadecimal digits.
pub(crate) fn random_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}
