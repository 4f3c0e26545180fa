//! Applies the bootstrap objects: namespaces and CustomResourceDefinitions first, then the rest, each by server-side apply.
//!
//! A second pass over unchanged objects writes nothing: the API server recognises an apply that changes nothing. An
//! object that is removed from the folder is retained, as deleting a definition would delete all its objects; only
//! the roles and bindings in `RETIRED` are deleted.
//!
//! Roles and bindings follow the convention of kube-apiserver's own: one that an operator annotated with
//! [`ANNOTATION_AUTOUPDATE`]` = "false"` is left as it is, so that rights that were taken away stay away. One that was
//! deleted is created again, as that convention has it, too.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::{ApiCapabilities, Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::manifests::{Manifest, Manifests};
use crate::api::labels::SCHEDULER_MANAGER;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};

/// Kubernetes' annotation on a role or binding: `"false"` keeps whoever made the object from changing it again.
pub const ANNOTATION_AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Cluster-wide bindings that an earlier build applied and that grant more than is meant today.
///
/// `fleet:agents-renew` let the group of all agents ask for certificates, which a revoked agent's certificate still names.
const RETIRED: [&str; 1] = ["fleet:agents-renew"];
/// Number of retries after a conflict.
const CONFLICTS: usize = 5;
/// Time that a CustomResourceDefinition may take until the API server serves it.
const ESTABLISH: Duration = Duration::from_secs(30);

/// An object that could not be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `file: Kind/name`.
    pub object: String,
    /// The server's message.
    pub message: String,
}

/// Result of one pass.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of objects that are now as they are in the folder.
    pub applied: usize,
    /// Objects that were left as they are because an operator annotated them so: `Kind/name`.
    pub unmanaged: Vec<String>,
    /// The others.
    pub failures: Vec<Failure>,
    /// Error, where the API server could not be reached at all.
    pub unreachable: Option<String>,
}

/// Resources by kind; discovered once a pass.
type Kinds = Mutex<HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>>;

/// One pass over all objects.
pub async fn apply_bootstrap_objects(client: &Client, objects: &Manifests) -> Outcome {
    let kinds = Kinds::default();
    let (first, rest): (Vec<_>, Vec<_>) = objects.manifests.iter().partition(|m| m.comes_first());
    let mut outcome = Outcome::default();
    for stage in [first, rest] {
        let results = join_all(stage.iter().map(|manifest| apply_one(client, &kinds, manifest))).await;
        for (manifest, result) in stage.iter().zip(results) {
            match result {
                Ok(Applied::Written) => outcome.applied += 1,
                Ok(Applied::Unmanaged) => outcome.unmanaged.push(manifest.title()),
                Err(error) => {
                    if matches!(&error, CallError::Kube(e) if !matches!(e, kube::Error::Api(_) | kube::Error::Discovery(_)))
                    {
                        outcome.unreachable = Some(error.to_string());
                    }
                    let object = format!("{}: {}", manifest.file, manifest.title());
                    outcome.failures.push(Failure { object, message: error.to_string() });
                }
            }
        }
        // Objects of a kind that is not there yet would only add noise.
        if !outcome.failures.is_empty() {
            return outcome;
        }
    }
    for name in RETIRED {
        if let Err(error) = delete_retired_binding(client, name).await {
            let object = format!("ClusterRoleBinding/{name}, which is to be deleted");
            outcome.failures.push(Failure { object, message: error.to_string() });
        }
    }
    outcome
}

/// Result for one object.
enum Applied {
    /// It is as in the folder.
    Written,
    /// An operator keeps it as it is.
    Unmanaged,
}

async fn apply_one(client: &Client, kinds: &Kinds, manifest: &Manifest) -> Result<Applied, CallError> {
    let api = api_for(client, kinds, &manifest.object).await?;
    if manifest.object.types.as_ref().is_some_and(|types| types.api_version.starts_with(RBAC)) {
        return apply_rbac(&api, &manifest.object).await;
    }
    let name = manifest.object.metadata.name.as_deref().unwrap_or_default();
    // These objects are the chart's: an edit by hand is undone, and the chart's values are the place for it.
    let params = PatchParams::apply(SCHEDULER_MANAGER).force();
    let applied = call_with_timeout(api.patch(name, &params, &Patch::Apply(&manifest.object))).await?;
    if manifest.is_definition() && !is_established(&applied) {
        wait_established(&api, name).await?;
    }
    Ok(Applied::Written)
}

/// Applies a role or binding unless an operator keeps it. With the version that was looked at, so that an annotation that
/// is set meanwhile is not missed.
async fn apply_rbac(api: &Api<DynamicObject>, object: &DynamicObject) -> Result<Applied, CallError> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let params = PatchParams::apply(SCHEDULER_MANAGER).force();
    let mut conflicts = 0;
    loop {
        let live = call_with_timeout(api.get_metadata_opt(name)).await?;
        if live.as_ref().is_some_and(|live| is_unmanaged(live.annotations())) {
            return Ok(Applied::Unmanaged);
        }
        let mut wanted = object.clone();
        wanted.metadata.resource_version = live.as_ref().and_then(ResourceExt::resource_version);
        match call_with_timeout(api.patch(name, &params, &Patch::Apply(&wanted))).await {
            Ok(_) => {
                if live.is_none() {
                    tracing::info!(name, "role or binding created");
                }
                return Ok(Applied::Written);
            }
            Err(error) if error.is_conflict() && conflicts < CONFLICTS => conflicts += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Deletes a binding of an earlier build, unless an operator keeps it.
async fn delete_retired_binding(client: &Client, name: &str) -> Result<(), CallError> {
    let api: Api<ClusterRoleBinding> = Api::all(client.clone());
    let Some(found) = call_with_timeout(api.get_metadata_opt(name)).await? else { return Ok(()) };
    if is_unmanaged(found.annotations()) {
        return Ok(());
    }
    let seen = Preconditions { uid: found.uid(), resource_version: found.resource_version() };
    match call_with_timeout(api.delete(name, &DeleteParams::default().preconditions(seen))).await {
        Ok(_) => tracing::info!(name, "binding of an earlier version deleted"),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Returns true where an operator keeps an object as it is.
fn is_unmanaged(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(ANNOTATION_AUTOUPDATE).is_some_and(|value| value == "false")
}

async fn api_for(client: &Client, kinds: &Kinds, object: &DynamicObject) -> Result<Api<DynamicObject>, CallError> {
    let types = object.types.clone().unwrap_or_default();
    let gvk = GroupVersionKind::try_from(&types)
        .map_err(|e| kube::Error::Discovery(kube::error::DiscoveryError::InvalidGroupVersion(e.to_string())))?;
    // Held while asking, so that a kind is asked for once.
    let mut known = kinds.lock().await;
    let found = match known.get(&gvk).cloned() {
        Some(found) => found,
        None => call_with_timeout(pinned_kind(client, &gvk)).await?,
    };
    let (resource, capabilities) = known.entry(gvk).or_insert(found).clone();
    drop(known);
    Ok(match (capabilities.scope, object.metadata.namespace.as_deref()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
    })
}

fn is_established(definition: &DynamicObject) -> bool {
    definition.data["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|c| c["type"] == "Established" && c["status"] == "True"))
}

/// Waits until the API server serves the definition; a refused name is reported at once.
async fn wait_established(api: &Api<DynamicObject>, name: &str) -> Result<(), CallError> {
    let deadline = Instant::now() + ESTABLISH;
    loop {
        let definition = call_with_timeout(api.get(name)).await?;
        if is_established(&definition) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(CallError::TimedOut);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
