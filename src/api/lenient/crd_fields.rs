//! Shapes of the parts of our own resources that are read field by field.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::Value;

use super::field::{Maybe, Shape};
use crate::api::crd::cluster::{DataWithoutSchedule, MOST_DATA_NAMED, NodeLabels, Taint};
use crate::api::crd::schedule::PodCounts;

impl Shape for PodCounts {
    fn from_json_map<'de, A: MapAccess<'de>>(entries: A) -> Result<Option<Self>, A::Error> {
        let found: BTreeMap<String, Value> = BTreeMap::from_json_map(entries)?.unwrap_or_default();
        let (Some(desired), Some(bound), Some(counted)) =
            (read_pod_count(&found, "desired"), read_pod_count(&found, "bound"), read_pod_count(&found, "counted"))
        else {
            return Ok(None);
        };
        let since = found.get("unschedulableSince").and_then(Value::as_str).and_then(|text| text.parse().ok());
        Ok(Some(Self { desired, bound, counted, unschedulable_since: since.map(Time) }))
    }
}

/// Reads a number of pods: Kubernetes counts them in 32 bits.
fn read_pod_count(found: &BTreeMap<String, Value>, key: &str) -> Option<i64> {
    let count = found.get(key).and_then(Value::as_i64).filter(|count| *count >= 0);
    count.map(|count| count.min(i32::MAX.into()))
}

impl Shape for Taint {
    fn from_json_map<'de, A: MapAccess<'de>>(entries: A) -> Result<Option<Self>, A::Error> {
        let mut found: BTreeMap<String, String> = BTreeMap::from_json_map(entries)?.unwrap_or_default();
        let (key, value, effect) =
            (found.remove("key"), found.remove("value").unwrap_or_default(), found.remove("effect"));
        Ok(key.zip(effect).map(|(key, effect)| Self { key, value, effect }))
    }
}

impl Shape for NodeLabels {
    fn from_json_map<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Option<Self>, A::Error> {
        let mut found = Self::default();
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "sets" => found.sets = entries.next_value::<Maybe<_>>()?.0.unwrap_or_default(),
                "of" => found.of = entries.next_value::<Maybe<_>>()?.0.unwrap_or_default(),
                "droppedKeys" => found.dropped_keys = entries.next_value::<Maybe<_>>()?.0.unwrap_or_default(),
                _ => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Some(found))
    }
}

impl Shape for DataWithoutSchedule {
    fn from_json_map<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Option<Self>, A::Error> {
        let mut found = Self::default();
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "count" => found.count = entries.next_value::<Maybe<i32>>()?.0.unwrap_or_default(),
                "first" => found.first = entries.next_value::<Maybe<_>>()?.0.unwrap_or_default(),
                _ => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        found.first.truncate(MOST_DATA_NAMED);
        Ok(Some(found))
    }
}
