//! The record of mass-removal protection: a scheduler that starts knows what its predecessors removed and held back,
//! `fleetctl status` shows what is held back, and `fleetctl rebalance --continue` lets it continue.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Key of the record in the ConfigMap of [`super::mass_loss`].
pub const KEY: &str = "removals";
/// Most causes that are read.
const MOST: usize = 1_000;
/// Most copies that an entry names.
pub const NAMED: usize = 5;

/// What each cause has removed, by the name of the cause, such as `policy/shop:7`.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovalRecord {
    /// The causes.
    #[serde(default)]
    pub causes: BTreeMap<String, RecordedCause>,
}

/// What one cause has removed, and would remove.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RecordedCause {
    /// Copies that it has removed.
    #[serde(default)]
    pub removed: usize,
    /// Since when nothing of it is due; absent while something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// What is held back; absent where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<FrozenRemovals>,
    /// When an operator allowed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Timestamp>,
}

/// Removals that wait for an operator.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct FrozenRemovals {
    /// Since when.
    pub since: Timestamp,
    /// Number of the copies, by cluster.
    pub copies: BTreeMap<String, usize>,
    /// The first of them, such as `Deployment shop/web on east`.
    pub first: Vec<String>,
}

impl FrozenRemovals {
    /// Returns the number of the copies.
    pub fn count(&self) -> usize {
        self.copies.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl RemovalRecord {
    /// Reads a record; an empty one where the text is none.
    pub fn from_text(text: &str) -> Self {
        let mut read: Self = serde_json::from_str(text).unwrap_or_default();
        while read.causes.len() > MOST {
            read.causes.pop_last();
        }
        for frozen in read.causes.values_mut().filter_map(|cause| cause.frozen.as_mut()) {
            frozen.first.truncate(NAMED);
        }
        read
    }

    /// Reads the record from the data of the ConfigMap; an empty one where it is not there.
    pub fn from_data(data: &BTreeMap<String, String>) -> Self {
        data.get(KEY).map(|text| Self::from_text(text)).unwrap_or_default()
    }

    /// Returns the text of a record.
    pub fn to_text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Returns the causes whose removals wait for an operator.
    pub fn frozen_causes(&self) -> impl Iterator<Item = (&String, &FrozenRemovals)> {
        self.causes.iter().filter_map(|(name, cause)| Some((name, cause.frozen.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let frozen = FrozenRemovals {
            since: Timestamp::from_second(9).unwrap(),
            copies: BTreeMap::from([("east".to_owned(), 35)]),
            first: vec!["Deployment shop/web on east".to_owned()],
        };
        let cause = RecordedCause { removed: 3, frozen: Some(frozen), ..RecordedCause::default() };
        let record = RemovalRecord { causes: BTreeMap::from([("policy/shop:7".to_owned(), cause)]) };
        assert_eq!(RemovalRecord::from_text(&record.to_text()), record);
        for text in ["", "{}", "[]", r#"{"causes": {"a": {"removed": -1}}}"#] {
            assert_eq!(RemovalRecord::from_text(text), RemovalRecord::default(), "{text}");
        }
    }
}
