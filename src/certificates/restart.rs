//! Restarts of what reads a certificate at its start only: the controller manager its kubeconfig, etcd and the API server
//! the CA of etcd. Pods are replaced as their workload says, one at a time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::KeysError;
use super::complete::KeysDone;
use crate::api::labels::{ANNOTATION_KEYS, KEYS_MANAGER, LABEL_PART_OF};
use crate::api::names::NamespaceName;
use crate::api::util::digest::full_digest;
use crate::pki::secrets::KEPT_SECRET;
use crate::pki::{AuthorityKind, Files, Leaf, facts_of};

/// Time between two looks at a rollout.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// Longest time that the members of etcd are waited for, before the API server is restarted.
const ROLLED_OUT_WITHIN: Duration = Duration::from_secs(300);
/// Longest time that the pods of one component are waited for after all were replaced at once.
const REPLACED_WITHIN: Duration = Duration::from_secs(150);

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
    restart_client_readers(client, namespace, done).await?;
    restart_ca_readers(client, namespace, done, &[]).await?;
    Ok(())
}

/// Restarts the controller manager if its kubeconfig was renewed. Returns whether it did.
///
/// # Errors
/// An API that does not answer or refuses.
pub(super) async fn restart_client_readers(
    client: &Client,
    namespace: &NamespaceName,
    done: &KeysDone,
) -> Result<bool, kube::Error> {
    let (secret, file) = ("controller-manager-kubeconfig", Leaf::ControllerManager.leaf_store().stored_file());
    let pods = list_pods(client, namespace).await?;
    let is_behind = done.renewed.contains(&secret)
        || written_at(done, secret, file).is_some_and(|at| has_started_before(&pods, "kube-controller-manager", at));
    Ok(is_behind && restart_controller_manager(client, namespace, &done.files).await?)
}

/// Restarts etcd, and then the API server, if the CA of etcd was signed again, except for those that were `replaced`.
/// Returns the components that it restarted.
///
/// # Errors
/// [`KeysError::Api`], and [`KeysError::NotRolledOut`].
pub(super) async fn restart_ca_readers(
    client: &Client,
    namespace: &NamespaceName,
    done: &KeysDone,
    replaced: &[&str],
) -> Result<Vec<&'static str>, KeysError> {
    let file = AuthorityKind::Etcd.certificate_file();
    let ca = done.files.get(file).unwrap_or_default();
    let pods = list_pods(client, namespace).await?;
    let mut restarted = Vec::new();
    for component in ["etcd", "apiserver"] {
        let is_behind = done.authorities.contains(&AuthorityKind::Etcd)
            || written_at(done, KEPT_SECRET, file).is_some_and(|at| has_started_before(&pods, component, at));
        if !is_behind || replaced.contains(&component) {
            continue;
        }
        let annotated = annotate_workload(client, namespace, component, ca).await?;
        restarted.extend((annotated == Annotated::Now).then_some(component));
        if annotated != Annotated::Missing && component == "etcd" {
            wait_for_etcd(&Api::namespaced(client.clone(), namespace.as_str())).await?;
        }
    }
    Ok(restarted)
}

/// Replaces the pods of a component one at a time, because they do not show the certificate in this text. Members of etcd
/// are replaced only while all are healthy. Returns whether they are being replaced.
///
/// # Errors
/// An API that does not answer or refuses.
pub(super) async fn roll_component(
    client: &Client,
    namespace: &NamespaceName,
    component: &str,
    text: &str,
) -> Result<bool, kube::Error> {
    if component == "etcd" {
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace.as_str());
        if !sets.get_opt(component).await?.as_ref().is_some_and(is_rolled_out) {
            return Ok(false);
        }
    }
    Ok(annotate_workload(client, namespace, component, text).await? != Annotated::Missing)
}

/// Deletes all pods of a component at once, and waits until as many others are ready.
///
/// # Errors
/// [`KeysError::Api`], and [`KeysError::NotRolledOut`].
pub(super) async fn replace_pods(
    client: &Client,
    namespace: &NamespaceName,
    component: &str,
    pods: &[Pod],
) -> Result<(), KeysError> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace.as_str());
    let former: Vec<&Pod> = pods.iter().filter(|pod| is_of_component(pod, component)).collect();
    for pod in &former {
        let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match api.delete(&pod.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            deleted => drop(deleted?),
        }
    }
    let end = Instant::now() + REPLACED_WITHIN;
    while Instant::now() < end {
        let now = list_pods(client, namespace).await?;
        let new = now.iter().filter(|pod| {
            is_of_component(pod, component) && is_ready(pod) && !former.iter().any(|old| old.uid() == pod.uid())
        });
        if new.count() >= former.len() {
            return Ok(());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    Err(KeysError::NotRolledOut(component.to_owned()))
}

/// Lists the pods of the installation in a namespace.
///
/// # Errors
/// An API that does not answer or refuses.
pub(super) async fn list_pods(client: &Client, namespace: &NamespaceName) -> Result<Vec<Pod>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace.as_str());
    Ok(pods.list(&ListParams::default().labels(&format!("{LABEL_PART_OF}=fleet"))).await?.items)
}

/// The time from which a Secret has the certificate of a file: that of its last renewal, if that was when the certificate
/// was issued, for a Secret has other files, too; else as long before the certificate's first moment as clocks may differ.
pub(super) fn written_at(done: &KeysDone, secret: &str, file: &str) -> Option<Timestamp> {
    let begins = facts_of(&done.files).into_iter().find(|(name, _)| name == file)?.1.ok()?.not_before;
    // It begins some minutes before it is issued, by the clock of whoever issues it.
    let written = done.written.get(secret).copied();
    let written = written.filter(|at| (SignedDuration::ZERO..=CLOCKS_DIFFER * 2).contains(&at.duration_since(begins)));
    written.or_else(|| begins.checked_sub(CLOCKS_DIFFER).ok())
}

/// What became of a workload that was to get new pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Annotated {
    /// It is not installed.
    Missing,
    /// It got them before, by the same text: they may still be on their way.
    Before,
    /// It gets them now.
    Now,
}

/// Gives a workload new pods by the digest of a text in its template.
async fn annotate_workload(
    client: &Client,
    namespace: &NamespaceName,
    component: &str,
    text: &str,
) -> Result<Annotated, kube::Error> {
    if component == "etcd" {
        return annotate_pods(&Api::<StatefulSet>::namespaced(client.clone(), namespace.as_str()), component, text)
            .await;
    }
    annotate_pods(&Api::<Deployment>::namespaced(client.clone(), namespace.as_str()), component, text).await
}

async fn annotate_pods<K>(api: &Api<K>, name: &str, text: &str) -> Result<Annotated, kube::Error>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let patched = allow_missing(api.patch(name, &patch_params(), &annotate_template(text)).await)?;
    let Some(patched) = patched else { return Ok(Annotated::Missing) };
    // What was changed by this patch is not observed in the answer to it. The Job may read no workloads.
    let observed = serde_json::to_value(&patched).ok().and_then(|read| read["status"]["observedGeneration"].as_i64());
    Ok(if patched.meta().generation == observed { Annotated::Before } else { Annotated::Now })
}

/// Gives the controller manager new pods, which read its kubeconfig of this key set. Returns false, and nothing happens, if
/// they have been given for the same one, or if it is not installed yet.
///
/// # Errors
/// An API that does not answer or refuses.
pub async fn restart_controller_manager(
    client: &Client,
    namespace: &NamespaceName,
    files: &Files,
) -> Result<bool, kube::Error> {
    let file = Leaf::ControllerManager.leaf_store().stored_file();
    let text = files.get(file).unwrap_or_default();
    Ok(annotate_workload(client, namespace, "kube-controller-manager", text).await? == Annotated::Now)
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(KEYS_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Returns whether a container of a component runs since before a time.
pub(super) fn has_started_before(pods: &[Pod], component: &str, limit: Timestamp) -> bool {
    let of_component = pods.iter().filter(|pod| is_of_component(pod, component));
    let started = of_component.filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
    let mut running = started.flatten().filter_map(|one| one.state.as_ref()?.running.as_ref()?.started_at.clone());
    running.any(|at| at.0 < limit)
}

/// Returns whether a pod is one of a component that is not being deleted.
pub(super) fn is_of_component(pod: &Pod, component: &str) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && pod.labels().get("app.kubernetes.io/name").is_some_and(|name| name == component)
}

/// Returns whether a pod is ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
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
