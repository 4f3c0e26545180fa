//! The part of a copy's status that is reported: the fields that the control plane adds up or shows, at most 8 KB.

use serde_json::{Map, Value};

use crate::api::kinds::split_api_version;
use crate::k8s::object::{number_at, status_condition, text_at};

/// Largest part that is reported, as JSON.
const MOST: usize = 8 * 1024;
/// Longest message of a condition.
const MESSAGE: usize = 256;

/// Fields of the status by group and kind.
fn reported_fields(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") => &[
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "currentReplicas",
            "fullyLabeledReplicas",
            "observedGeneration",
            "conditions",
        ],
        ("apps", "DaemonSet") => &[
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "updatedNumberScheduled",
            "numberReady",
            "numberAvailable",
            "numberUnavailable",
            "numberMisscheduled",
            "observedGeneration",
            "conditions",
        ],
        ("policy", "PodDisruptionBudget") => &[
            "currentHealthy",
            "desiredHealthy",
            "disruptionsAllowed",
            "expectedPods",
            "observedGeneration",
            "conditions",
        ],
        ("autoscaling", "HorizontalPodAutoscaler") => {
            &["currentReplicas", "desiredReplicas", "lastScaleTime", "observedGeneration", "conditions"]
        }
        ("batch", "Job") => &["active", "ready", "succeeded", "failed", "startTime", "completionTime", "conditions"],
        ("batch", "CronJob") => &["active", "lastScheduleTime", "lastSuccessfulTime"],
        ("", "Pod") => &["phase", "reason", "message", "startTime", "conditions"],
        ("", "Service") | ("networking.k8s.io", "Ingress") => &["loadBalancer", "conditions"],
        ("", "PersistentVolumeClaim") => &["phase", "capacity", "conditions"],
        ("", "Namespace") => &["phase"],
        _ => &[],
    }
}

/// Returns the reported part of an object's status; `None` for kinds without any.
pub fn extract_reported_status(object: &Value) -> Option<Map<String, Value>> {
    let (group, kind) = group_and_kind(object);
    let status = object.get("status")?.as_object()?;
    let mut part = Map::new();
    for name in reported_fields(group, kind) {
        if let Some(value) = status.get(*name) {
            let value = if *name == "conditions" { reduce_conditions(value) } else { value.clone() };
            part.insert((*name).to_owned(), value);
        }
    }
    let too_large = |part: &Map<String, Value>| serde_json::to_vec(part).map_or(0, |text| text.len()) > MOST;
    // What is listed can be long; what is counted cannot.
    for name in ["conditions", "active", "loadBalancer", "message"] {
        if too_large(&part) {
            part.remove(name);
        }
    }
    (!part.is_empty()).then_some(part)
}

fn group_and_kind(object: &Value) -> (&str, &str) {
    let (group, _) = split_api_version(text_at(object, "/apiVersion").unwrap_or_default());
    (group, text_at(object, "/kind").unwrap_or_default())
}

fn reduce_conditions(all: &Value) -> Value {
    let one = |condition: &Value| {
        let mut short = Map::new();
        for name in ["type", "status", "reason", "message", "lastTransitionTime"] {
            match condition.get(name) {
                Some(Value::String(value)) => {
                    short.insert(name.to_owned(), value.chars().take(MESSAGE).collect::<String>().into());
                }
                Some(value) if !value.is_null() => {
                    short.insert(name.to_owned(), value.clone());
                }
                _ => {}
            }
        }
        Value::Object(short)
    };
    Value::Array(all.as_array().into_iter().flatten().map(one).collect())
}

/// Returns true for a Job or Pod that ran to its end.
pub fn is_finished(object: &Value) -> bool {
    let holds = |kind| status_condition(object, kind).is_some_and(|c| text_at(c, "/status") == Some("True"));
    match group_and_kind(object) {
        ("batch", "Job") => holds("Complete") || holds("Failed"),
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
                {"type": "Available", "status": "True", "lastUpdateTime": "x", "message": "m".repeat(1000)}]}});
        let part = extract_reported_status(&deployment).unwrap();
        assert_eq!(part["replicas"], 3);
        assert!(!part.contains_key("collisionCount"));
        assert_eq!(part["conditions"][0]["message"].as_str().unwrap().len(), MESSAGE);
        assert!(part["conditions"][0].get("lastUpdateTime").is_none());
        assert!(
            super::extract_reported_status(&json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {}})).is_none()
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
        let job = |status: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 3, "completions": 4}, "status": status});
        assert_eq!(desired_pods(&job(json!({}))), Some(3));
        assert_eq!(desired_pods(&job(json!({"succeeded": 3}))), Some(1));
        let complete = job(json!({"succeeded": 4, "conditions": [{"type": "Complete", "status": "True"}]}));
        assert!(is_finished(&complete) && desired_pods(&complete) == Some(0));
        let service = json!({"apiVersion": "v1", "kind": "Service"});
        assert_eq!(desired_pods(&service), None);
    }
}
