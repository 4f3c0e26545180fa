//! Per-cluster objects of the control plane: a namespace, a Lease, and rights for the cluster's own agent and nobody else.
//!
//! Everything is owned by the Cluster object, so the garbage collector of the control plane removes it after a plain
//! `kubectl delete cluster`. Rights are bound to one user name, which holds the cluster's ID and the agent's key (see
//! [`crate::api::protocol::user_name`]): a certificate of another key regains nothing when the name is used again.

mod objects;

use std::fmt::Debug;

use futures::TryStreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, ResourceQuota};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::index::Index;
use crate::api::labels::{
    AGENT_LEASE, ANNOTATION_KEY_FINGERPRINT, LABEL_CLUSTER, SCHEDULER_MANAGER, cluster_namespace,
};
use crate::api::lenient::Lenient;
use crate::api::{Cluster, ClusterReport, Schedule, protocol};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use objects::{Objects, QUOTA, ROLE, cluster_role_name};

/// Number of objects of a kind whose finalizers are removed at a time, and of requests for that in progress.
const PAGE: u32 = 500;
const CONCURRENCY: usize = 16;

/// Reason why rights could not be granted.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// The namespace of an earlier cluster of that name is terminating.
    #[error("the namespace of an earlier cluster of that name is still terminating")]
    NamespaceTerminating,
    /// Somebody else made the namespace: nobody gets rights in it, and it is never deleted.
    #[error(
        "namespace {0} was not created for this cluster: delete it, or set its label {LABEL_CLUSTER}={1} to adopt it"
    )]
    NamespaceForeign(String, String),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// User name that the rights of a cluster are bound to. `None` where nobody may have them: the cluster is not accepted,
/// is pending deletion, or has no key on record.
pub fn rights_holder(cluster: &Cluster) -> Option<String> {
    if !cluster.spec.accepted || cluster.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let id = cluster.spec.cluster_id.as_deref().filter(|id| !id.is_empty())?;
    let key = cluster.annotations().get(ANNOTATION_KEY_FINGERPRINT).filter(|key| protocol::is_fingerprint(key))?;
    Some(protocol::user_name(&cluster.name_any(), id, key))
}

/// Reconciles the rights of a cluster with its object: grants them to their [`rights_holder`] and to nobody else, or revokes
/// them, and records the outcome in the index. Repeating it writes nothing.
///
/// The caller holds the lock of names and has just read the Cluster. Otherwise a change that was made since, of the key
/// or by an operator, would be undone by it.
///
/// # Errors
/// A call that failed, or [`GrantError::NamespaceTerminating`]; the rights then count as unknown.
pub async fn reconcile_cluster_rights(client: &Client, index: &Index, cluster: &Cluster) -> Result<(), GrantError> {
    let holder = rights_holder(cluster);
    index.forget_rights(&cluster.name_any());
    match &holder {
        Some(user) => grant_rights(client, cluster, user).await?,
        None => revoke_rights(client, &cluster.name_any()).await?,
    }
    index.record_rights(cluster, holder);
    Ok(())
}

/// Applies everything that the agent with the user name `user` needs.
async fn grant_rights(client: &Client, cluster: &Cluster, user: &str) -> Result<(), GrantError> {
    let namespace = cluster_namespace(&cluster.name_any());
    remove_foreign_namespace(client, cluster, &namespace).await?;
    let objects = Objects::new(cluster, user);
    let wide = cluster_role_name(&cluster.name_any());
    force_apply_object(&Api::<Namespace>::all(client.clone()), &namespace, &objects.namespace).await?;
    force_apply_object(&Api::<ClusterRole>::all(client.clone()), &wide, &objects.cluster_role).await?;
    force_apply_object(&Api::<ClusterRoleBinding>::all(client.clone()), &wide, &objects.cluster_role_binding).await?;
    force_apply_object(&Api::<ResourceQuota>::namespaced(client.clone(), &namespace), QUOTA, &objects.quota).await?;
    force_apply_object(&Api::<Role>::namespaced(client.clone(), &namespace), ROLE, &objects.role).await?;
    force_apply_object(&Api::<RoleBinding>::namespaced(client.clone(), &namespace), ROLE, &objects.role_binding)
        .await?;
    force_apply_object(&Api::<Lenient<Lease>>::namespaced(client.clone(), &namespace), AGENT_LEASE, &objects.lease)
        .await?;
    Ok(())
}

/// Removes the namespace of an earlier cluster of that name, after the rights that were bound in it.
///
/// # Errors
/// [`GrantError::NamespaceTerminating`] until it does not exist any more; [`GrantError::NamespaceForeign`].
async fn remove_foreign_namespace(client: &Client, cluster: &Cluster, namespace: &str) -> Result<(), GrantError> {
    let name = cluster.name_any();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let Some(found) = call_with_timeout(namespaces.get_opt(namespace)).await? else { return Ok(()) };
    if !is_made_for(&found, &name) {
        return Err(GrantError::NamespaceForeign(namespace.to_owned(), name));
    }
    let foreign = found.owner_references().iter().any(|o| Some(&o.uid) != cluster.metadata.uid.as_ref());
    let terminating = found.metadata.deletion_timestamp.is_some();
    if !foreign && !terminating {
        return Ok(());
    }
    // Whoever is bound now may be somebody else; they must not stay so for as long as the deletion takes.
    revoke_rights(client, &name).await?;
    if terminating {
        remove_finalizers(client, &name).await?;
    } else {
        call_with_timeout(namespaces.delete(namespace, &DeleteParams::default())).await?;
    }
    Err(GrantError::NamespaceTerminating)
}

/// Revokes a cluster's rights, then deletes its other objects, the Cluster itself last.
///
/// The caller of this or of [`delete_cluster_objects`] holds the lock of names, and has just read who has the name.
pub async fn delete_cluster_with_objects(client: &Client, cluster: &Cluster) -> Result<(), CallError> {
    let name = cluster.name_any();
    delete_cluster_objects(client, &name).await?;
    // Another one may have been created by hand meanwhile.
    let this = Preconditions { uid: cluster.metadata.uid.clone(), ..Preconditions::default() };
    let clusters: Api<Lenient<Cluster>> = Api::all(client.clone());
    delete_as(&clusters, &name, &DeleteParams::background().preconditions(this)).await
}

/// Deletes the objects of a cluster that does not exist any more, its rights first.
pub async fn delete_cluster_objects(client: &Client, name: &str) -> Result<(), CallError> {
    revoke_rights(client, name).await?;
    let (namespaces, namespace) = (Api::<Namespace>::all(client.clone()), cluster_namespace(name));
    if call_with_timeout(namespaces.get_metadata_opt(&namespace)).await?.is_some_and(|found| !is_made_for(&found, name))
    {
        tracing::warn!(cluster = name, namespace, "the namespace is not deleted: it was not created for the cluster");
        return Ok(());
    }
    delete_in_background(&namespaces, &namespace).await?;
    remove_finalizers(client, name).await
}

/// Returns whether a namespace was made for a cluster of that name, or labelled so that it is taken over.
fn is_made_for<K: Resource>(namespace: &K, name: &str) -> bool {
    let mut owners = namespace.owner_references().iter();
    namespace.labels().get(LABEL_CLUSTER).is_some_and(|of| of == name)
        || owners.any(|owner| owner.kind == Cluster::kind(&()) && owner.name == name)
}

/// Removes the finalizers of objects that the agent could write in its namespace. Nobody else ever would: one of them
/// keeps the namespace, and the name with it, for ever. Nothing is created there any more while it is terminating.
async fn remove_finalizers(client: &Client, name: &str) -> Result<(), CallError> {
    remove_finalizers_of::<ClusterReport>(client, name).await?;
    remove_finalizers_of::<Schedule>(client, name).await?;
    remove_finalizers_of::<Lease>(client, name).await?;
    remove_finalizers_of::<Event>(client, name).await
}

/// Handles at most one page of objects, so that a cluster with more delays no other; the next attempt continues.
async fn remove_finalizers_of<K>(client: &Client, name: &str) -> Result<(), CallError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug,
{
    let api: Api<Lenient<PartialObjectMeta<K>>> = cluster_namespace_api(client, name);
    let found = match call_with_timeout(api.list(&ListParams::default().limit(PAGE))).await {
        Err(e) if e.is_not_found() => return Ok(()),
        found => found?.items,
    };
    let held: Vec<_> = found.into_iter().filter(|object| !object.finalizers().is_empty()).collect();
    let api = &api;
    futures::stream::iter(held.into_iter().map(Ok))
        .try_for_each_concurrent(CONCURRENCY, |object| async move {
            let (object_name, finalizers) = (object.name_any(), object.finalizers());
            tracing::info!(cluster = name, kind = %K::kind(&()), object_name, ?finalizers, "finalizers removed");
            let change = json!({ "metadata": { "uid": object.meta().uid, "finalizers": null } });
            match call_with_timeout(api.patch(&object_name, &PatchParams::default(), &Patch::Merge(&change))).await {
                Err(e) if !e.is_gone() => Err(e),
                _ => Ok(()),
            }
        })
        .await
}

/// Revokes a cluster's rights: its certificate is worth nothing from then on.
async fn revoke_rights(client: &Client, name: &str) -> Result<(), CallError> {
    let wide = cluster_role_name(name);
    delete_in_background(&Api::<ClusterRoleBinding>::all(client.clone()), &wide).await?;
    delete_in_background(&cluster_namespace_api::<RoleBinding>(client, name), ROLE).await?;
    delete_in_background(&Api::<ClusterRole>::all(client.clone()), &wide).await
}

fn cluster_namespace_api<K>(client: &Client, cluster: &str) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), &cluster_namespace(cluster))
}

async fn force_apply_object<K>(api: &Api<K>, name: &str, object: &(impl Serialize + Debug)) -> Result<(), CallError>
where
    K: Clone + Debug + DeserializeOwned,
{
    call_with_timeout(api.patch(name, &PatchParams::apply(SCHEDULER_MANAGER).force(), &Patch::Apply(object))).await?;
    Ok(())
}

async fn delete_in_background<K>(api: &Api<K>, name: &str) -> Result<(), CallError>
where
    K: Clone + Debug + DeserializeOwned,
{
    delete_as(api, name, &DeleteParams::background()).await
}

async fn delete_as<K>(api: &Api<K>, name: &str, params: &DeleteParams) -> Result<(), CallError>
where
    K: Clone + Debug + DeserializeOwned,
{
    match call_with_timeout(api.delete(name, params)).await {
        Ok(_) => Ok(()),
        Err(e) if e.is_gone() => Ok(()),
        // A namespace that is terminating already answers so, and an object that somebody else writes in this moment.
        Err(e) if e.is_conflict() => {
            let found = call_with_timeout(api.get_metadata_opt(name)).await?;
            if found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()) { Ok(()) } else { Err(e) }
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use kube::client::Body;

    use super::*;
    use crate::api::ClusterSpec;

    fn member() -> Cluster {
        let id = Some("0a1b2c3d-1111-2222-3333-444455556666".to_owned());
        let spec = ClusterSpec { name: "a".to_owned(), accepted: true, cluster_id: id, ..ClusterSpec::default() };
        let mut cluster = Cluster::new("a", spec);
        cluster.annotations_mut().insert(ANNOTATION_KEY_FINGERPRINT.to_owned(), "f".repeat(64));
        cluster
    }

    /// Returns who has the rights of a member after a change.
    fn holder_after(change: impl FnOnce(&mut Cluster)) -> Option<String> {
        let mut cluster = member();
        change(&mut cluster);
        rights_holder(&cluster)
    }

    #[test]
    fn rights_need_acceptance_and_a_key() {
        assert_eq!(rights_holder(&member()).as_deref(), Some("fleet:agent:a:0a1b2c3d:ffffffffffffffff"));

        assert_eq!(holder_after(|c| c.spec.accepted = false), None);
        assert_eq!(holder_after(|c| c.spec.cluster_id = None), None);
        assert_eq!(holder_after(|c| c.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH))), None);
        assert_eq!(holder_after(|c| drop(c.annotations_mut().remove(ANNOTATION_KEY_FINGERPRINT))), None);
        let garbage = "x".to_owned();
        assert_eq!(
            holder_after(|c| drop(c.annotations_mut().insert(ANNOTATION_KEY_FINGERPRINT.to_owned(), garbage))),
            None
        );
    }

    /// Writes of a removal, where the namespace has this metadata.
    async fn writes_of_removal(metadata: serde_json::Value) -> Vec<String> {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = asked.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let body = match method {
                http::Method::GET if path.ends_with("/namespaces/fleet-c-a") => {
                    json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": metadata })
                }
                http::Method::GET => json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": [] }),
                _ => {
                    log.lock().unwrap().push(format!("{method} {path}"));
                    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200 })
                }
            };
            let answer = http::Response::new(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        });
        delete_cluster_objects(&Client::new(service, "default"), "a").await.unwrap();
        asked.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn a_namespace_that_somebody_else_made_is_never_deleted() {
        let deleted = "DELETE /api/v1/namespaces/fleet-c-a".to_owned();
        assert!(writes_of_removal(json!({ "labels": { LABEL_CLUSTER: "a" } })).await.contains(&deleted));
        let owner = json!({ "apiVersion": "v1", "kind": "Cluster", "name": "a", "uid": "1" });
        assert!(writes_of_removal(json!({ "ownerReferences": [owner] })).await.contains(&deleted), "by its owner");
        let writes = writes_of_removal(json!({ "labels": { "team": "x" } })).await;
        assert!(!writes.contains(&deleted) && !writes.is_empty(), "but rights are revoked: {writes:?}");
    }
}
