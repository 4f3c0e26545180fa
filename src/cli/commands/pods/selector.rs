//! The pods of an object, as `kubectl top pods` takes them.

use kube::ResourceExt as _;
use kube::api::DynamicObject;

use crate::api::placeable::{Placeable, runs_pods};

/// Returns whether objects of a kind have pods of their own. A CronJob has Jobs, and these have pods.
pub(super) fn has_own_pods(kind: &Placeable) -> bool {
    let is_service = kind.group.is_empty() && kind.kind == "Service";
    is_service || (runs_pods(kind.group, kind.kind) && kind.kind != "CronJob")
}

/// Returns the argument for the pods of an object: the name of a Pod, and the selector of any other; none where it has no
/// pods of its own.
pub(super) fn pods_argument(kind: &Placeable, object: &DynamicObject) -> Option<String> {
    if !has_own_pods(kind) {
        return None;
    }
    if kind.kind == "Pod" {
        return Some(object.name_any());
    }
    Some(format!("--selector={}", pod_selector(kind, object)?))
}

/// Returns the labels that the pods of an object have, as `a=b,c=d`; none where it selects by no such labels.
fn pod_selector(kind: &Placeable, object: &DynamicObject) -> Option<String> {
    let spec = object.data.get("spec")?;
    if kind.kind == "Job" && spec.get("manualSelector") != Some(&true.into()) {
        // The stored selector has the UID of the source; each copy gets one of its own.
        return Some(format!("job-name={}", object.name_any()));
    }
    let selector = spec.get("selector")?;
    let labels = if kind.kind == "Service" { selector } else { selector.get("matchLabels")? };
    let pairs = labels.as_object()?.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let selector = pairs.collect::<Vec<_>>().join(",");
    (!selector.is_empty()).then_some(selector)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::placeable::find_builtin_kind;

    fn argument(group: &str, kind: &str, spec: &Value) -> Option<String> {
        let object = serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": spec })).unwrap();
        pods_argument(find_builtin_kind(group, kind).unwrap(), &object)
    }

    #[test]
    fn pods_are_selected_by_the_labels_of_the_selector() {
        let deployment = argument(
            "apps",
            "Deployment",
            &json!({ "selector": { "matchLabels": { "app": "web", "tier": "front" } } }),
        );
        assert_eq!(deployment.as_deref(), Some("--selector=app=web,tier=front"));
        let service = argument("", "Service", &json!({ "selector": { "app": "web" } }));
        assert_eq!(service.as_deref(), Some("--selector=app=web"));
        assert_eq!(argument("", "Service", &json!({ "ports": [] })), None, "its endpoints are made by hand");
        assert_eq!(argument("", "Pod", &json!({ "containers": [] })).as_deref(), Some("web"));
        assert_eq!(argument("", "ConfigMap", &json!({})), None);
    }

    #[test]
    fn pods_of_a_job_are_selected_by_its_name_because_each_copy_has_another_uid() {
        let stored = json!({
            "parallelism": 1, "completions": 1, "manualSelector": false,
            "selector": { "matchLabels": { "batch.kubernetes.io/controller-uid": "of-the-source" } },
            "template": { "metadata": { "labels": { "app": "web", "job-name": "web", "controller-uid": "of-the-source",
                "batch.kubernetes.io/job-name": "web", "batch.kubernetes.io/controller-uid": "of-the-source" } } },
        });
        assert_eq!(argument("batch", "Job", &stored).as_deref(), Some("--selector=job-name=web"));
        let mut manual = stored;
        manual["manualSelector"] = json!(true);
        manual["selector"] = json!({ "matchLabels": { "run": "first" } });
        assert_eq!(argument("batch", "Job", &manual).as_deref(), Some("--selector=run=first"));
    }

    #[test]
    fn a_cron_job_has_no_pods_of_its_own() {
        let stored = json!({ "schedule": "* * * * *", "jobTemplate": { "spec": { "template": { "metadata": {
            "labels": { "app": "web" } } } } } });
        assert_eq!(argument("batch", "CronJob", &stored), None);
    }
}
