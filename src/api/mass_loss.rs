//! The record that most clusters were lost at once: a scheduler that starts meanwhile knows it, and `fleetctl status` shows it.

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Name of the ConfigMap with the record.
pub const NAME: &str = "fleet-brake";
/// Its namespace.
pub const NAMESPACE: &str = "kube-system";
/// Key of the record.
pub const KEY: &str = "mass-loss";
/// Most clusters that are read.
const MOST: usize = 10_000;
/// Smallest number of losses that count as a mass.
const AT_LEAST: usize = 3;

/// Returns whether so many clusters that are lost at once, beside those that are ready, are too many to be believed.
pub fn is_mass_loss(lost: usize, ready: usize) -> bool {
    lost >= AT_LEAST && lost > ready
}

/// Clusters that were lost at once, because of which nothing moves.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct MassLossRecord {
    /// Since when nothing moves.
    pub since: Timestamp,
    /// The clusters.
    pub clusters: Vec<String>,
}

impl MassLossRecord {
    /// Reads a record; `None` where the text is none.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut read: Self = serde_json::from_str(text).ok()?;
        read.clusters.truncate(MOST);
        Some(read)
    }

    /// Returns the text of a record.
    pub fn to_text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = MassLossRecord { since: Timestamp::from_second(9).unwrap(), clusters: vec!["a".to_owned()] };
        assert_eq!(MassLossRecord::from_text(&record.to_text()), Some(record));
        for text in ["", "{}", "[]", r#"{"since": "yesterday", "clusters": []}"#] {
            assert_eq!(MassLossRecord::from_text(text), None, "{text}");
        }
    }
}
