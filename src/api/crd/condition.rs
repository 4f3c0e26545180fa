//! Conditions as our resources carry them: Kubernetes' own fields and the time of the last heartbeat.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::crd_schema;
use crate::api::lenient::field;
use crate::api::util::text::escaped_text;

/// One observed aspect of an object. Readers select by `type`, never by position.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition, for example `Ready`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// Status of the condition: `True`, `False` or `Unknown`.
    #[schemars(schema_with = "crd_schema::condition_status")]
    pub status: String,
    /// Reason, as one word.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Generation of the object that was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd_schema::generation")]
    pub observed_generation: Option<i64>,
    /// Time of the last report of the observed object.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::time")]
    pub last_heartbeat_time: Option<Time>,
    /// Time of the last change of `status`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "field::field")]
    #[schemars(schema_with = "crd_schema::time")]
    pub last_transition_time: Option<Time>,
}

impl Condition {
    /// A condition that holds or does not, stamped with `now`. The message may quote others: it is escaped.
    pub fn new(type_: &str, holds: bool, reason: &str, message: impl Into<String>, now: Timestamp) -> Self {
        Self {
            type_: type_.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: escaped_text(&message.into()).into_owned(),
            observed_generation: None,
            last_heartbeat_time: None,
            last_transition_time: Some(Time(now)),
        }
    }

    /// Returns whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The condition of a type, if it is there.
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Returns whether two lists say the same, whenever they were written.
pub fn has_same_conditions(old: &[Condition], new: &[Condition]) -> bool {
    old.len() == new.len() && old.iter().zip(new).all(|(old, new)| without_times(old) == without_times(new))
}

fn without_times(condition: &Condition) -> Condition {
    Condition { last_heartbeat_time: None, last_transition_time: None, ..condition.clone() }
}

/// Puts `new` in place of the condition of its type, keeping the time of the last transition while the status stays.
///
/// Returns whether anything but a time changed.
pub fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition) -> bool {
    let Some(old) = conditions.iter_mut().find(|c| c.type_ == new.type_) else {
        conditions.push(new);
        return true;
    };
    if old.status == new.status {
        new.last_transition_time.clone_from(&old.last_transition_time);
    }
    let changed = (&old.status, &old.reason, &old.message, old.observed_generation)
        != (&new.status, &new.reason, &new.message, new.observed_generation);
    *old = new;
    changed
}

/// Conditions, keyed by type, so that two field managers can each own theirs.
pub(in crate::api) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let item: Value = Condition::json_schema(generator).into();
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_timestamp(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_moves_only_when_the_status_does() {
        let mut all = Vec::new();
        assert!(set_condition(&mut all, Condition::new("Ready", true, "ClusterReady", "", make_timestamp(10))));
        assert!(!set_condition(&mut all, Condition::new("Ready", true, "ClusterReady", "", make_timestamp(20))));
        assert_eq!(find_condition(&all, "Ready").unwrap().last_transition_time, Some(Time(make_timestamp(10))));
        assert!(set_condition(
            &mut all,
            Condition::new("Ready", false, "ClusterHeartbeatLost", "", make_timestamp(30))
        ));
        assert_eq!(find_condition(&all, "Ready").unwrap().last_transition_time, Some(Time(make_timestamp(30))));
        assert_eq!(all.len(), 1);
    }
}
