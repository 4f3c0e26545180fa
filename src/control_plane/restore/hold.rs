//! The hold of deletions after a restore: copies whose Schedules are not in the backup keep running until it is released.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::RESTORE_MANAGER;
use super::start::cluster_api;
use crate::api::labels::ANNOTATION_HOLD_DELETIONS;
use crate::api::util::text::visible_cell;
use crate::k8s::request::pages::all_pages;

/// Copies of one workload cluster that have no Schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterCopies {
    /// The workload cluster.
    pub cluster: String,
    /// Number of copies; none if its agent does not report it.
    pub count: Option<u64>,
}

/// Returns whether agents hold deletions.
///
/// # Errors
/// A control plane that does not answer or refuses.
pub async fn is_held(hub: &Client) -> Result<bool, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    Ok(namespaces.get("kube-system").await?.annotations().contains_key(ANNOTATION_HOLD_DELETIONS))
}

/// Lists how many copies have no Schedule, by cluster, as agents report it.
///
/// # Errors
/// A control plane that does not answer or refuses.
pub async fn list_copies_without_schedule(hub: &Client) -> Result<Vec<ClusterCopies>, kube::Error> {
    let clusters = cluster_api(hub);
    let found = all_pages(ListParams::default(), async |page| clusters.list(&page).await).await?;
    let mut copies: Vec<ClusterCopies> = found
        .iter()
        .map(|cluster| ClusterCopies {
            cluster: visible_cell(&cluster.name_any()).into_owned(),
            count: cluster.data.pointer("/status/copiesWithoutSchedule").and_then(serde_json::Value::as_u64),
        })
        .collect();
    copies.sort_by(|one, other| one.cluster.cmp(&other.cluster));
    Ok(copies)
}

/// Lets agents delete copies without a Schedule again.
///
/// # Errors
/// A control plane that does not answer or refuses.
pub async fn release_hold(hub: &Client) -> Result<(), kube::Error> {
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    let params = PatchParams { field_manager: Some(RESTORE_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = json!({"metadata": {"annotations": {ANNOTATION_HOLD_DELETIONS: null}}});
    namespaces.patch("kube-system", &params, &Patch::Merge(patch)).await.map(drop)
}
