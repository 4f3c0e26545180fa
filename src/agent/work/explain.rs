//! Why copies are not available, in the words of their cluster: from the pods and warnings that the agent watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::index::Seen;
use super::pods::{Count, Owners};
use super::task::CopyKey;
use super::warnings::Warnings;
use crate::diagnose::evidence::Evidence;
use crate::diagnose::kstatus::State;
use crate::diagnose::not_running::{NotRunning, explain_object, explain_pods};
use crate::diagnose::pod_facts::pvc_names;
use crate::k8s::object::ObjectRef;

/// Most pods of one copy that are looked at.
const PODS: usize = 50;

/// Pods that are not ready, by the UID at the end of their chain; each with the UID of its controller.
pub type UnreadyPods<'p> = BTreeMap<&'p str, Vec<(&'p str, &'p Arc<Pod>)>>;

/// Returns the pods that are not ready by the copy that they are of.
pub fn group_unready_pods<'p>(owners: &'p Owners, pods: &'p [(String, Arc<Pod>)]) -> UnreadyPods<'p> {
    let mut grouped = UnreadyPods::new();
    for (owner, pod) in pods {
        grouped.entry(owners.root_owner(owner)).or_default().push((owner, pod));
    }
    grouped
}

/// Explains a copy that is not available; `None` while nothing but time is missing.
pub fn explain_copy(
    key: &CopyKey,
    seen: &Seen,
    count: Count,
    unready: &UnreadyPods<'_>,
    warnings: &Warnings,
) -> Option<NotRunning> {
    if !matches!(seen.status.state, State::InProgress | State::Failed) {
        return None;
    }
    let object = ObjectRef {
        group: key.group.to_owned(),
        kind: key.kind.to_owned(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    };
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let mut evidence =
        Evidence { events: warnings.find_warnings(key.kind, namespace, &key.name).to_vec(), ..Evidence::default() };
    let Some(desired) = seen.desired else { return explain_object(&object, &seen.uid, &evidence) };
    let pods = unready.get(seen.uid.as_str()).map(Vec::as_slice).unwrap_or_default();
    // Of a Deployment those of an earlier ReplicaSet are on their way out.
    let newest = pods.iter().max_by_key(|(_, pod)| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let maker = newest.map(|(owner, _)| *owner);
    for (_, pod) in pods.iter().filter(|(owner, _)| Some(*owner) == maker).take(PODS) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        evidence.events.extend_from_slice(warnings.find_warnings("Pod", namespace, name));
        for claim in pvc_names(pod) {
            let about = warnings.find_warnings("PersistentVolumeClaim", namespace, claim);
            // Found by name: of a claim no UID is known.
            evidence.events.extend(about.iter().cloned().map(|mut event| {
                event.involved_object.uid = None;
                event
            }));
        }
        evidence.pods.push(Pod::clone(pod));
    }
    let lacks_pods = count.bound + count.unbound < desired;
    explain_pods(&object, &seen.uid, &evidence, lacks_pods, replica_failure(seen))
}

/// Returns the message of the condition by which a controller says that it cannot make pods.
fn replica_failure(seen: &Seen) -> Option<&str> {
    let conditions = seen.resource.as_ref()?.get("conditions")?.as_array()?;
    let failure = conditions.iter().find(|one| one["type"] == "ReplicaFailure" && one["status"] == "True")?;
    failure.get("message").and_then(Value::as_str)
}

/// Returns what is said of a copy from now on: during a back-off an image's node says less than before.
pub fn newer_explanation(old: Option<&NotRunning>, new: Option<NotRunning>) -> Option<NotRunning> {
    let is_back_off =
        new.as_ref().is_some_and(|new| new.reason.starts_with("Image") && new.sentence.contains("Back-off"));
    match old {
        Some(old) if is_back_off && old.reason.starts_with("Image") => Some(old.clone()),
        _ => new,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, created: &str, image: &str) -> (String, Arc<Pod>) {
        let pod = json!({"metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": created},
            "spec": {"containers": []}, "status": {"phase": "Pending", "containerStatuses": [{"name": "c", "image": image,
                "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]}});
        (format!("set-{name}"), Arc::new(serde_json::from_value(pod).unwrap()))
    }

    fn deployment(status: &Value) -> Seen {
        Seen::of(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1},
            "metadata": {"name": "web", "namespace": "n", "uid": "web", "generation": 1}, "status": status}))
    }

    fn explain_deployment(status: &Value, unready: &UnreadyPods<'_>) -> Option<NotRunning> {
        let key =
            CopyKey { group: "apps", kind: "Deployment", namespace: Some("n".to_owned()), name: "web".to_owned() };
        explain_copy(&key, &deployment(status), Count::default(), unready, &Warnings::default())
    }

    #[test]
    fn a_deployment_is_explained_by_the_pods_of_its_newest_replica_set() {
        let mut owners = Owners::default();
        let sets = ["set-old", "set-new"].map(|uid| (uid.to_owned(), Some("web".to_owned())));
        owners.take_owner_change("replicasets", super::super::watch::Change::All(sets.to_vec()));
        let pods = [pod("old", "2026-01-01T00:00:00Z", "a"), pod("new", "2026-01-02T00:00:00Z", "b")];
        let unready = group_unready_pods(&owners, &pods);
        let found = explain_deployment(&json!({"observedGeneration": 1}), &unready).unwrap();
        assert_eq!(
            (found.reason, found.sentence.contains("Pod n/new: image `b`")),
            ("ImageNotFound", true),
            "{found:?}"
        );
        let failure = json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: none"}]);
        let found =
            explain_deployment(&json!({"observedGeneration": 1, "conditions": failure}), &UnreadyPods::new()).unwrap();
        assert_eq!(found.reason, "QuotaExceeded");
        let good = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
            "availableReplicas": 1});
        assert_eq!(explain_deployment(&good, &unready), None);
    }

    #[test]
    fn a_back_off_does_not_replace_the_answer_of_a_registry() {
        let [answer, back_off] = [("ImageNotFound", "not found"), ("ImagePullFailed", "Back-off pulling image")]
            .map(|(reason, sentence)| NotRunning { reason, sentence: sentence.to_owned() });
        assert_eq!(newer_explanation(Some(&answer), Some(back_off.clone())), Some(answer.clone()));
        assert_eq!(newer_explanation(None, Some(back_off.clone())), Some(back_off));
        assert_eq!(newer_explanation(Some(&answer), None), None);
    }
}
