//! Restarts of what reads a certificate at its start only: the controller manager its kubeconfig, etcd and the API server
//! the CA of etcd. Pods are replaced as their workload says, one at a time.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::KeysError;
use super::complete::KeysDone;
use crate::api::labels::{ANNOTATION_KEYS, KEYS_MANAGER, LABEL_PART_OF};
use crate::api::names::NamespaceName;
use crate::api::util::digest::full_digest;
use crate::pki::{AuthorityKind, CertificateFacts, Files, Leaf, facts_of};

/// Time between two looks at a rollout.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// Longest time that the members of etcd are waited for, before the API server is restarted.
const ROLLED_OUT_WITHIN: Duration = Duration::from_secs(300);

/// Age of a certificate, in comparison with a container, from which the container is known to have read an older one: more
/// than clocks differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(5);

/// Restarts who reads at its start only what was renewed: by this run, or by one that was interrupted before this.
///
/// # Errors
/// [`KeysError::Api`], and [`KeysError::NotRolledOut`].
pub(super) async fn restart_start_readers(
    client: &Client,
    namespace: &NamespaceName,
    done: &KeysDone,
) -> Result<(), KeysError> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace.as_str());
    let params = patch_params();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace.as_str());
    let pods = pods.list(&ListParams::default().labels(&format!("{LABEL_PART_OF}=fleet"))).await?.items;
    let issued = |file: &str| facts_of(&done.files).into_iter().find(|(name, _)| name == file)?.1.ok();
    let is_behind =
        |component: &str, file: &str| issued(file).is_some_and(|facts| has_started_before(&pods, component, &facts));
    let kubeconfig = Leaf::ControllerManager.leaf_store().stored_file();
    if done.renewed.contains(&"controller-manager-kubeconfig") || is_behind("kube-controller-manager", kubeconfig) {
        restart_controller_manager(client, namespace, &done.files).await?;
    }
    let file = AuthorityKind::Etcd.certificate_file();
    let ca = done.files.get(file).unwrap_or_default();
    let is_renewed = done.authorities.contains(&AuthorityKind::Etcd);
    if is_renewed || is_behind("etcd", file) {
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace.as_str());
        if allow_missing(sets.patch("etcd", &params, &annotate_template(ca)).await)?.is_some() {
            wait_for_etcd(&sets).await?;
        }
    }
    if is_renewed || is_behind("apiserver", file) {
        allow_missing(deployments.patch("apiserver", &params, &annotate_template(ca)).await)?;
    }
    Ok(())
}

/// Gives the controller manager new pods, which read its kubeconfig of this key set. Nothing happens if they have been
/// given for the same one, or if it is not installed yet.
///
/// # Errors
/// An API that does not answer or refuses.
pub async fn restart_controller_manager(
    client: &Client,
    namespace: &NamespaceName,
    files: &Files,
) -> Result<(), kube::Error> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace.as_str());
    let file = Leaf::ControllerManager.leaf_store().stored_file();
    let patch = annotate_template(files.get(file).unwrap_or_default());
    allow_missing(deployments.patch("kube-controller-manager", &patch_params(), &patch).await).map(drop)
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(KEYS_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Returns whether a container of a component runs since before a certificate was issued.
pub(super) fn has_started_before(pods: &[Pod], component: &str, certificate: &CertificateFacts) -> bool {
    let Ok(limit) = certificate.not_before.checked_sub(CLOCKS_DIFFER) else { return false };
    let of_component =
        |pod: &&Pod| pod.labels().get("app.kubernetes.io/name").is_some_and(|name| name.as_str() == component);
    let started = pods.iter().filter(of_component).filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
    let mut running = started.flatten().filter_map(|one| one.state.as_ref()?.running.as_ref()?.started_at.clone());
    running.any(|at| at.0 < limit)
}

/// The patch that gives a workload new pods when this text is another.
fn annotate_template(text: &str) -> Patch<Value> {
    let annotations = json!({ ANNOTATION_KEYS: full_digest(text.as_bytes()) });
    Patch::Merge(json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}))
}

/// A workload that is not installed yet will read the new file.
fn allow_missing<T>(patched: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match patched {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

async fn wait_for_etcd(sets: &Api<StatefulSet>) -> Result<(), KeysError> {
    let end = Instant::now() + ROLLED_OUT_WITHIN;
    while Instant::now() < end {
        if is_rolled_out(&sets.get("etcd").await?) {
            return Ok(());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    Err(KeysError::NotRolledOut("StatefulSet etcd".to_owned()))
}

pub(super) fn is_rolled_out(set: &StatefulSet) -> bool {
    let Some(status) = &set.status else { return false };
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    status.observed_generation >= set.metadata.generation
        && status.updated_replicas.unwrap_or_default() >= wanted
        && status.ready_replicas.unwrap_or_default() >= wanted
}
