//! Copies that contain data: they are deleted only with their source.

use serde_json::Value;

use super::context::{Context, copy_json};
use super::task::{CopyKey, Target};
use crate::api::placeable::runs_pods;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::placement::facts::{ObjectKey, Relations};

/// Returns whether a copy contains data, as it was read: a PersistentVolumeClaim, and what mounts one or has templates
/// of them.
pub(super) fn object_holds_data(key: &CopyKey, found: &Value) -> bool {
    let named = ObjectKey::new(key.group, key.kind, key.namespace.as_deref().unwrap_or(""), &key.name);
    key.is_core("PersistentVolumeClaim") || Relations::from_manifest(&named, found).mounts_claims()
}

/// The same for a copy that must be read first; what is gone holds none.
///
/// # Errors
/// It cannot be read.
pub(super) async fn copy_holds_data(context: &Context, target: &Target) -> Result<bool, CallError> {
    let key = &target.key;
    let is_claim = key.is_core("PersistentVolumeClaim");
    if is_claim || !runs_pods(key.group, key.kind) {
        return Ok(is_claim);
    }
    let found = call_with_timeout(context.copies_api(target).get_opt(&key.name)).await?;
    Ok(found.is_some_and(|found| object_holds_data(key, &copy_json(target, &found))))
}
