//! Facts of a pod that causes of pods and of PersistentVolumeClaims are found by.

use k8s_openapi::api::core::v1::{Pod, PodCondition};

/// The message of the scheduler when it finds no node for a pod.
pub(super) fn unschedulable_message(pod: &Pod) -> Option<&str> {
    let refused = pod_condition(pod, "PodScheduled").filter(|condition| condition.status == "False")?;
    (refused.reason.as_deref() == Some("Unschedulable")).then(|| refused.message.as_deref().unwrap_or("no node fits"))
}

/// The names of the PersistentVolumeClaims that a pod mounts.
pub(crate) fn pvc_names(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

pub(super) fn pod_condition<'p>(pod: &'p Pod, kind: &str) -> Option<&'p PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}
