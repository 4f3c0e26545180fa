//! Applying the bootstrap objects: namespaces and definitions first, then the rest, each by server-side apply.
//!
//! A second pass over unchanged objects writes nothing: the API server recognises an apply that changes nothing. An
//! object that leaves the folder stays in the hub, as deleting a definition would delete everything made from it.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::{ApiCapabilities, Scope, pinned_kind};
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::objects::{Manifest, Objects};
use crate::api::keys::SCHEDULER_MANAGER;
use crate::daemon::client::{CallError, call};

/// How long a definition may take until the API server serves it.
const ESTABLISH: Duration = Duration::from_secs(30);

/// An object that could not be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `file: Kind/name`.
    pub object: String,
    /// Why, in the server's words.
    pub message: String,
}

/// What one pass did.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many objects the hub now holds as they are in the folder.
    pub applied: usize,
    /// The others.
    pub failures: Vec<Failure>,
    /// Whether the hub could not be reached at all, so that there is nothing to say about single objects.
    pub unreachable: Option<String>,
}

/// Where a kind is served, by kind; asked once a pass.
type Kinds = Mutex<HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>>;

/// One pass over all objects.
pub async fn apply(client: &Client, objects: &Objects) -> Outcome {
    let kinds = Kinds::default();
    let (first, rest): (Vec<_>, Vec<_>) = objects.manifests.iter().partition(|m| m.comes_first());
    let mut outcome = Outcome::default();
    for stage in [first, rest] {
        let results = join_all(stage.iter().map(|manifest| apply_one(client, &kinds, manifest))).await;
        for (manifest, result) in stage.iter().zip(results) {
            match result {
                Ok(()) => outcome.applied += 1,
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
            break;
        }
    }
    outcome
}

async fn apply_one(client: &Client, kinds: &Kinds, manifest: &Manifest) -> Result<(), CallError> {
    let api = api_for(client, kinds, &manifest.object).await?;
    let name = manifest.object.metadata.name.as_deref().unwrap_or_default();
    // These objects are the chart's: an edit by hand is undone, and the chart's values are the place for it.
    let params = PatchParams::apply(SCHEDULER_MANAGER).force();
    let applied = call(api.patch(name, &params, &Patch::Apply(&manifest.object))).await?;
    if manifest.is_definition() && !is_established(&applied) {
        wait_established(&api, name).await?;
    }
    Ok(())
}

async fn api_for(client: &Client, kinds: &Kinds, object: &DynamicObject) -> Result<Api<DynamicObject>, CallError> {
    let types = object.types.clone().unwrap_or_default();
    let gvk = GroupVersionKind::try_from(&types)
        .map_err(|e| kube::Error::Discovery(kube::error::DiscoveryError::InvalidGroupVersion(e.to_string())))?;
    // Held while asking, so that a kind is asked for once.
    let mut known = kinds.lock().await;
    let found = match known.get(&gvk).cloned() {
        Some(found) => found,
        None => call(pinned_kind(client, &gvk)).await?,
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
        let definition = call(api.get(name)).await?;
        if is_established(&definition) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(CallError::TimedOut);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
