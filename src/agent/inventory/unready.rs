//! Pods that are not ready, reduced to what a diagnosis reads.

use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaimVolumeSource, Pod, PodSpec, PodStatus, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::diagnose::pod::is_ready;
use crate::diagnose::pod_facts::pvc_names;

/// Most pods that are kept: of more, the rest is not explained.
pub const MOST: usize = 1_000;
/// Most containers and volumes of a pod that are kept.
const PARTS: usize = 20;
/// Longest text of a container's state, in characters.
const TEXT: usize = 1_024;

/// Returns the reduced pod; `None` for one that is ready, is over, or is being deleted.
pub fn reduce_unready_pod(pod: &Pod) -> Option<Pod> {
    let status = pod.status.as_ref()?;
    let is_over = ["Succeeded", "Failed"].contains(&status.phase.as_deref().unwrap_or_default());
    if is_ready(pod) || is_over || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let claims = pvc_names(pod).map(|name| {
        let claim = PersistentVolumeClaimVolumeSource { claim_name: name.to_owned(), ..Default::default() };
        Volume { persistent_volume_claim: Some(claim), ..Volume::default() }
    });
    let conditions = status.conditions.iter().flatten().filter(|one| one.type_ == "PodScheduled").map(|one| {
        let mut one = one.clone();
        one.message = one.message.as_deref().map(bound_text);
        one
    });
    Some(Pod {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            creation_timestamp: pod.metadata.creation_timestamp.clone(),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { volumes: Some(claims.take(PARTS).collect()), ..PodSpec::default() }),
        status: Some(PodStatus {
            phase: status.phase.clone(),
            conditions: Some(conditions.collect()),
            init_container_statuses: status.init_container_statuses.as_deref().map(reduce_statuses),
            container_statuses: status.container_statuses.as_deref().map(reduce_statuses),
            ..PodStatus::default()
        }),
    })
}

fn reduce_statuses(all: &[ContainerStatus]) -> Vec<ContainerStatus> {
    all.iter().take(PARTS).map(reduce_container).collect()
}

fn reduce_container(container: &ContainerStatus) -> ContainerStatus {
    let mut reduced = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        ready: container.ready,
        restart_count: container.restart_count,
        state: container.state.clone(),
        last_state: container.last_state.clone(),
        ..ContainerStatus::default()
    };
    for state in [&mut reduced.state, &mut reduced.last_state].into_iter().flatten() {
        if let Some(waiting) = &mut state.waiting {
            waiting.message = waiting.message.as_deref().map(bound_text);
        }
        if let Some(terminated) = &mut state.terminated {
            terminated.message = terminated.message.as_deref().map(bound_text);
        }
    }
    reduced
}

fn bound_text(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn mounting_pod(status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c"}], "nodeName": "n", "volumes": [{"name": "tmp", "emptyDir": {}},
                {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}, "status": status}))
        .unwrap()
    }

    #[test]
    fn only_what_a_diagnosis_reads_is_kept_of_a_pod_that_is_not_ready() {
        let [ready, mut status] =
            ["True", "False"].map(|is| json!({"phase": "Running", "conditions": [{"type": "Ready", "status": is}]}));
        assert!(reduce_unready_pod(&mounting_pod(&ready)).is_none());
        assert!(reduce_unready_pod(&mounting_pod(&json!({"phase": "Failed"}))).is_none());
        status["containerStatuses"] = json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "m".repeat(5000)}}}]);
        let reduced = reduce_unready_pod(&mounting_pod(&status)).unwrap();
        assert_eq!(pvc_names(&reduced).collect::<Vec<_>>(), ["data"]);
        assert!(reduced.metadata.labels.is_none() && reduced.spec.unwrap().containers.is_empty());
        let containers = reduced.status.unwrap().container_statuses.unwrap();
        let waiting = containers[0].state.as_ref().unwrap().waiting.as_ref().unwrap();
        assert_eq!(waiting.message.as_ref().unwrap().len(), TEXT);
    }
}
