//! The part of a copy's status that is reported: the fields that the control plane adds up or shows, at most 8 KB.

use serde_json::{Map, Value};

use crate::api::kinds::split_api_version;
use crate::api::placeable::{CONTAINER_STATUS_FIELDS, is_added_kind, reported_fields};
use crate::k8s::object::{number_at, status_condition, text_at};

/// Largest part that is reported, as JSON.
const MOST: usize = 8 * 1024;
/// Longest message of a condition.
const MESSAGE: usize = 1024;
/// Parts that are left out of a status that is too large, in this order: what is counted cannot be long.
const LISTS: [&str; 10] = [
    "currentMetrics",
    "initContainerStatuses",
    "containerStatuses",
    "completedIndexes",
    "failedIndexes",
    "active",
    "loadBalancer",
    "capacity",
    "conditions",
    "message",
];

/// Returns the reported part of an object's status; `None` for kinds without any.
pub fn extract_reported_status(object: &Value) -> Option<Map<String, Value>> {
    let (group, kind) = group_and_kind(object);
    let status = object.get("status")?.as_object()?;
    let is_added = is_added_kind(group, kind);
    if is_added && !is_too_large(status) {
        return (!status.is_empty()).then(|| status.clone());
    }
    let fields = if is_added { &["observedGeneration", "conditions"] } else { reported_fields(group, kind) };
    let mut part = Map::new();
    for name in fields {
        if let Some(value) = status.get(*name) {
            let value = match *name {
                "conditions" => reduce_conditions(value),
                "initContainerStatuses" | "containerStatuses" => reduce_containers(value),
                "message" => bound_text(value),
                _ => value.clone(),
            };
            part.insert((*name).to_owned(), value);
        }
    }
    for name in LISTS {
        if is_too_large(&part) {
            part.remove(name);
        }
    }
    (!part.is_empty()).then_some(part)
}

fn is_too_large(part: &Map<String, Value>) -> bool {
    serde_json::to_vec(part).map_or(0, |text| text.len()) > MOST
}

fn group_and_kind(object: &Value) -> (&str, &str) {
    let (group, _) = split_api_version(text_at(object, "/apiVersion").unwrap_or_default());
    (group, text_at(object, "/kind").unwrap_or_default())
}

fn reduce_conditions(all: &Value) -> Value {
    let conditions = all.as_array().into_iter().flatten().map(|condition| {
        let mut short = Map::new();
        let names =
            ["type", "status", "reason", "message", "lastUpdateTime", "lastTransitionTime", "observedGeneration"];
        for name in names {
            if let Some(value) = condition.get(name).filter(|value| !value.is_null()) {
                short.insert(name.to_owned(), bound_text(value));
            }
        }
        Value::Object(short)
    });
    Value::Array(conditions.collect())
}

/// Returns the reported fields of containers' statuses.
fn reduce_containers(all: &Value) -> Value {
    let containers = all.as_array().into_iter().flatten().map(|container| {
        let fields = container.as_object().into_iter().flatten();
        let fields = fields.filter(|(name, _)| CONTAINER_STATUS_FIELDS.contains(&name.as_str()));
        Value::Object(fields.map(|(name, value)| (name.clone(), bound_text(value))).collect())
    });
    Value::Array(containers.collect())
}

/// Returns a value with its texts shortened.
fn bound_text(value: &Value) -> Value {
    match value {
        Value::String(text) => text.chars().take(MESSAGE).collect::<String>().into(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(name, value)| (name.clone(), bound_text(value))).collect())
        }
        other => other.clone(),
    }
}

/// Returns true for a Job or Pod that ran to its end.
pub fn is_finished(object: &Value) -> bool {
    match group_and_kind(object) {
        ("batch", "Job") => ["Complete", "Failed"].into_iter().any(|kind| {
            status_condition(object, kind).is_some_and(|condition| text_at(condition, "/status") == Some("True"))
        }),
        ("", "Pod") => matches!(text_at(object, "/status/phase"), Some("Succeeded" | "Failed")),
        _ => false,
    }
}

/// Returns the number of pods that an object asks for; `None` for kinds that run none.
pub fn desired_pods(object: &Value) -> Option<i64> {
    match group_and_kind(object) {
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") => Some(number_at(object, "/spec/replicas").unwrap_or(1)),
        ("apps", "DaemonSet") => Some(number_at(object, "/status/desiredNumberScheduled").unwrap_or(0)),
        ("batch", "Job") if is_finished(object) => Some(0),
        ("batch", "Job") => {
            let parallel = number_at(object, "/spec/parallelism").unwrap_or(1);
            let succeeded = number_at(object, "/status/succeeded").unwrap_or(0);
            Some(number_at(object, "/spec/completions").map_or(parallel, |all| parallel.min((all - succeeded).max(0))))
        }
        ("", "Pod") => Some(i64::from(!is_finished(object))),
        // Those of its Jobs, whatever there are.
        ("batch", "CronJob") => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_the_kind_calls_for_is_reported() {
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "status": {
            "replicas": 3, "collisionCount": 1, "conditions": [
                {"type": "Available", "status": "True", "lastUpdateTime": "x", "message": "m".repeat(3000)}]}});
        let part = extract_reported_status(&deployment).unwrap();
        assert_eq!(part["replicas"], 3);
        assert!(!part.contains_key("collisionCount"));
        assert_eq!(part["conditions"][0]["message"].as_str().unwrap().len(), MESSAGE);
        assert_eq!(part["conditions"][0]["lastUpdateTime"], "x");
        assert!(
            super::extract_reported_status(&json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {}})).is_none()
        );
    }

    #[test]
    fn the_status_of_an_added_kind_is_reported_whole() {
        let [small, large] = [10, MOST].map(|size| {
            json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "status": {"color": "c".repeat(size), "observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True"}]}})
        });
        assert_eq!(Value::Object(extract_reported_status(&small).unwrap()), small["status"]);
        let part = extract_reported_status(&large).unwrap();
        assert_eq!(
            Value::Object(part),
            json!({"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True"}]})
        );
    }

    #[test]
    fn containers_are_reported_with_what_people_read() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "1.2.3.4",
            "containerStatuses": [{"name": "c", "ready": true, "allocatedResources": {"cpu": "1"}, "restartCount": 2}]}});
        let part = extract_reported_status(&pod).unwrap();
        assert_eq!(
            Value::Object(part),
            json!({"phase": "Running", "podIP": "10.0.0.1",
            "containerStatuses": [{"name": "c", "ready": true, "restartCount": 2}]})
        );
    }

    #[test]
    fn a_long_status_keeps_its_counts() {
        let condition = json!({"type": "t".repeat(200), "status": "True", "message": "m".repeat(250)});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "status": {
            "succeeded": 2, "conditions": vec![condition; 40]}});
        let part = extract_reported_status(&job).unwrap();
        assert!(!part.contains_key("conditions") && part["succeeded"] == 2);
    }

    #[test]
    fn a_job_asks_for_fewer_pods_at_its_end() {
        let complete = json!({"succeeded": 4, "conditions": [{"type": "Complete", "status": "True"}]});
        let [begun, late, complete] = [json!({}), json!({"succeeded": 3}), complete].map(|status| json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 3, "completions": 4}, "status": status}));
        assert_eq!(desired_pods(&begun), Some(3));
        assert_eq!(desired_pods(&late), Some(1));
        assert!(is_finished(&complete) && desired_pods(&complete) == Some(0));
        let service = json!({"apiVersion": "v1", "kind": "Service"});
        assert_eq!(desired_pods(&service), None);
    }
}
