//! CAs that were lost: what was created with them is a reason to make no new ones.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PersistentVolumeClaim, Pod, Secret};
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use super::KeysError;
use super::complete::KeyTarget;
use crate::pki::secrets::ETCD_CLAIM;

/// The first member of etcd, to which [`ETCD_CLAIM`] with the number 0 belongs.
const ETCD_POD: &str = "etcd-0";
/// Time after a claim within which a StatefulSet makes the pod that the claim was made for. A later one may have taken the
/// place of a pod that wrote to it.
const FIRST_POD_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// Refuses to make authorities where something of earlier ones is left.
pub(super) async fn refuse_lost(
    client: &Client,
    target: &KeyTarget,
    found: &BTreeMap<&str, Secret>,
) -> Result<(), KeysError> {
    if let Some(name) = found.keys().next() {
        return Err(KeysError::Lost(format!("Secret {name}")));
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), target.namespace.as_str());
    let name = format!("{ETCD_CLAIM}0");
    let Some(claim) = claims.get_opt(&name).await? else { return Ok(()) };
    let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    if !is_bound {
        return Ok(());
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), target.namespace.as_str());
    let pod = pods.get_opt(ETCD_POD).await?;
    if pod.is_some_and(|pod| is_waiting_since(&pod, &claim)) {
        return Ok(());
    }
    Err(KeysError::Lost(format!("PersistentVolumeClaim {name}")))
}

/// Returns whether a pod is the first one of a claim, and has not begun: then nothing was ever written there. A claim is bound
/// when its pod is scheduled, which waits for no Secret.
fn is_waiting_since(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let (Some(pod_made), Some(claim_made)) = (pod.creation_timestamp(), claim.creation_timestamp()) else {
        return false;
    };
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    pod_made.0.duration_since(claim_made.0) <= FIRST_POD_WITHIN && !containers.iter().any(has_container_begun)
}

fn has_container_begun(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    container.restart_count > 0
        || container.last_state.as_ref().is_some_and(|last| *last != ContainerState::default())
        || state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}
