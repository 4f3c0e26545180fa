//! Kinds of objects in namespaces that are not placed, each with the value that would place it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{ApiGroup, Discovery, Scope, verbs};
use kube::{Api, Client};

use crate::api::extra_kind::{ExtraKind, ExtraKindError};
use crate::api::placeable::Kinds;

/// Most objects of a kind that are listed.
const MOST: u32 = 500;

/// A kind that is served and not placed.
#[derive(Debug, Clone)]
pub struct OtherKind {
    /// The kind.
    pub resource: ApiResource,
    /// Name of the value that places it.
    pub value: &'static str,
}

/// Returns the kinds in namespaces that an API server serves and that are not `placed`, without those of which each cluster
/// makes its own objects.
///
/// # Errors
/// What is served cannot be read.
pub async fn discover_other_kinds(client: &Client, placed: &Kinds) -> kube::Result<Vec<OtherKind>> {
    let served = Discovery::new(client.clone()).run_aggregated().await?;
    let resources = served.groups().flat_map(ApiGroup::recommended_resources);
    let others = resources.filter_map(|(resource, capabilities)| {
        let is_listed = capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST);
        let is_placed = placed.find_placeable(&resource.group, &resource.kind).is_some();
        let value = find_placing_value(&resource).filter(|_| is_listed && !is_placed)?;
        Some(OtherKind { resource, value })
    });
    Ok(others.collect())
}

/// Returns the value that places a kind; `None` for kinds of which each cluster makes its own objects.
fn find_placing_value(resource: &ApiResource) -> Option<&'static str> {
    let kind = format!("{}/{}/{}", resource.group, resource.version, resource.kind);
    match kind.trim_start_matches('/').parse::<ExtraKind>() {
        Ok(_) => Some("placement.extraKinds"),
        Err(ExtraKindError::Rbac) => Some("placement.allowRBACKinds"),
        Err(_) => None,
    }
}

impl OtherKind {
    /// Returns the metadata of the first 500 objects, of a namespace or of all, without those that a controller made; none of a
    /// kind that was served a moment ago, or whose extension API server is not there.
    ///
    /// # Errors
    /// Whatever else the server refuses.
    pub async fn list_uncontrolled(&self, client: &Client, namespace: Option<&str>) -> kube::Result<Vec<ObjectMeta>> {
        let client = client.clone();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        };
        let list = match api.list_metadata(&ListParams::default().limit(MOST)).await {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 503 => return Ok(Vec::new()),
            list => list?,
        };
        let all = list.items.into_iter().map(|object| object.metadata);
        Ok(all.filter(|metadata| !is_controlled(metadata)).collect())
    }
}

fn is_controlled(metadata: &ObjectMeta) -> bool {
    metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true))
}
