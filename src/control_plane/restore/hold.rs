//! The hold of deletions after a restore: copies whose Schedules are not in the backup keep running until it is released.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::RESTORE_MANAGER;
use crate::api::deletion_hold::DeletionHold;
use crate::api::labels::ANNOTATION_HOLD_DELETIONS;

/// Namespace with the annotation.
const KUBE_SYSTEM: &str = "kube-system";

/// Reads whether agents hold deletions.
///
/// # Errors
/// A control plane that does not answer or refuses.
pub async fn read_deletion_hold(hub: &Client) -> Result<Option<DeletionHold>, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    Ok(DeletionHold::from_metadata(&namespaces.get_metadata(KUBE_SYSTEM).await?.metadata))
}

/// Makes agents delete no copy without a Schedule from now on.
///
/// # Errors
/// A control plane that does not answer or refuses.
pub(super) async fn hold_deletions(hub: &Client) -> Result<(), kube::Error> {
    annotate_hold(hub, json!(Timestamp::now().to_string())).await
}

/// Lets agents delete copies without a Schedule again.
///
/// # Errors
/// A control plane that does not answer or refuses.
pub async fn release_hold(hub: &Client) -> Result<(), kube::Error> {
    annotate_hold(hub, Value::Null).await
}

async fn annotate_hold(hub: &Client, value: Value) -> Result<(), kube::Error> {
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    let params = PatchParams { field_manager: Some(RESTORE_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = json!({"metadata": {"annotations": {ANNOTATION_HOLD_DELETIONS: value}}});
    namespaces.patch(KUBE_SYSTEM, &params, &Patch::Merge(patch)).await.map(drop)
}
