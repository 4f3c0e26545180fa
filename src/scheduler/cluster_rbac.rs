//! What a registered cluster has in the hub: a namespace, a Lease, and rights for its own agent and nobody else.
//!
//! Everything is owned by the Cluster object, so the hub's garbage collector takes it away after a plain
//! `kubectl delete cluster`. Rights are bound to one user name, which holds the cluster's ID and the agent's key (see
//! [`crate::api::protocol::user_name`]): a certificate of another key regains nothing when the name is used again.

use futures::TryStreamExt as _;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::de::DeserializeOwned;

use super::index::View;
use crate::api::labels::{
    AGENT_LEASE, ANNOTATION_KEY_FINGERPRINT, ANNOTATION_ORIGINAL_NAME, CLUSTER_GROUP, LABEL_CLUSTER, SCHEDULER_MANAGER,
    cluster_namespace,
};
use crate::api::lenient::Lenient;
use crate::api::{Cluster, ClusterReport, labels, protocol};
use crate::k8s::daemon_client::{CallError, call};

/// How many objects of a kind are freed at a time, and how many requests for that are under way.
const PAGE: u32 = 500;
const AT_ONCE: usize = 16;

/// Name of the Role and its binding in the cluster's namespace.
const ROLE: &str = "fleet-agent";

/// Name of the ClusterRole and its binding.
fn cluster_role(name: &str) -> String {
    format!("fleet:agent:{name}")
}

/// Why a cluster has no place yet.
#[derive(Debug, thiserror::Error)]
pub enum EnsureError {
    /// What an earlier cluster of that name had is still going away.
    #[error("the namespace of an earlier cluster of that name is still being deleted")]
    Leftovers,
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// User name that the rights of a cluster are bound to. `None` where nobody may have them: the cluster is not accepted,
/// is pending deletion, or has no key on record.
pub fn holder(cluster: &Cluster) -> Option<String> {
    if !cluster.spec.accepted || cluster.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let id = cluster.spec.cluster_id.as_deref().filter(|id| !id.is_empty())?;
    let key = cluster.annotations().get(ANNOTATION_KEY_FINGERPRINT).filter(|key| protocol::is_fingerprint(key))?;
    Some(protocol::user_name(&cluster.name_any(), id, key))
}

/// Reconciles the rights of a cluster with its object: grants them to their [`holder`] and to nobody else, or revokes
/// them, and records the outcome in the view. Repeating it writes nothing.
///
/// The caller holds the lock of names and has just read the Cluster. Otherwise a change that was made since, of the key
/// or by an operator, would be undone by it.
///
/// # Errors
/// A call that failed, or [`EnsureError::Leftovers`]; the rights then count as unknown.
pub async fn reconcile(client: &Client, view: &View, cluster: &Cluster) -> Result<(), EnsureError> {
    let holder = holder(cluster);
    view.forget_rights(&cluster.name_any());
    match &holder {
        Some(user) => grant(client, cluster, user).await?,
        None => revoke(client, &cluster.name_any()).await?,
    }
    view.record_rights(cluster, holder);
    Ok(())
}

/// Makes everything that the agent with the user name `user` needs.
async fn grant(client: &Client, cluster: &Cluster, user: &str) -> Result<(), EnsureError> {
    let name = cluster.name_any();
    let namespace = cluster_namespace(&name);
    let owner = owner(cluster);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if let Some(found) = call(namespaces.get_opt(&namespace)).await? {
        let foreign = found.owner_references().iter().any(|o| Some(&o.uid) != cluster.metadata.uid.as_ref());
        if foreign || found.metadata.deletion_timestamp.is_some() {
            // Whoever is bound now may be somebody else; they must not stay so for as long as that takes.
            revoke(client, &name).await?;
        }
        if found.metadata.deletion_timestamp.is_some() {
            free(client, &name).await?;
            return Err(EnsureError::Leftovers);
        }
        if foreign {
            call(namespaces.delete(&namespace, &DeleteParams::default())).await?;
            return Err(EnsureError::Leftovers);
        }
    }
    let meta = |name: &str| json!({ "name": name, "labels": { LABEL_CLUSTER: cluster.name_any() }, "ownerReferences": [owner] });
    let mut place = meta(&namespace);
    place["annotations"] = json!({ ANNOTATION_ORIGINAL_NAME: name });
    apply(&namespaces, &namespace, &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": place })).await?;

    let rbac = "rbac.authorization.k8s.io/v1";
    let subjects = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]);
    let reference =
        |kind: &str, name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
    let wide = cluster_role(&name);
    let all_roles: Api<ClusterRole> = Api::all(client.clone());
    let rules = json!([
        { "apiGroups": [CLUSTER_GROUP], "resources": ["clusters"], "resourceNames": [name], "verbs": ["get", "list", "watch"] },
        { "apiGroups": [CLUSTER_GROUP], "resources": ["clusters/status"], "resourceNames": [name], "verbs": ["get", "patch"] },
        // Renewals. Bound here and not to the group of all agents, which a certificate keeps when its rights are revoked.
        { "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get"] },
    ]);
    apply(
        &all_roles,
        &wide,
        &json!({ "apiVersion": rbac, "kind": "ClusterRole", "metadata": meta(&wide), "rules": rules }),
    )
    .await?;
    let all_bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = json!({
        "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": meta(&wide),
        "roleRef": reference("ClusterRole", &wide), "subjects": subjects,
    });
    apply(&all_bindings, &wide, &binding).await?;

    let own_roles: Api<Role> = Api::namespaced(client.clone(), &namespace);
    let rules = json!([
        { "apiGroups": [CLUSTER_GROUP], "resources": ["schedules"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": [CLUSTER_GROUP], "resources": ["schedules/status"], "verbs": ["get", "patch"] },
        { "apiGroups": [CLUSTER_GROUP], "resources": ["clusterreports"], "verbs": ["get", "list", "create", "patch", "delete"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [AGENT_LEASE], "verbs": ["get", "update", "patch"] },
        { "apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create"] },
    ]);
    apply(
        &own_roles,
        ROLE,
        &json!({ "apiVersion": rbac, "kind": "Role", "metadata": in_namespace(&namespace, ROLE), "rules": rules }),
    )
    .await?;
    let own_bindings: Api<RoleBinding> = Api::namespaced(client.clone(), &namespace);
    let binding = json!({
        "apiVersion": rbac, "kind": "RoleBinding", "metadata": in_namespace(&namespace, ROLE),
        "roleRef": reference("Role", ROLE), "subjects": subjects,
    });
    apply(&own_bindings, ROLE, &binding).await?;
    // The agent writes its spec. The monitor finds it by its place: labels are the agent's to write as well.
    let leases: Api<Lenient<Lease>> = Api::namespaced(client.clone(), &namespace);
    let mut meta = in_namespace(&namespace, AGENT_LEASE);
    meta["labels"] = json!({ LABEL_CLUSTER: name });
    apply(&leases, AGENT_LEASE, &json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta }))
        .await?;
    Ok(())
}

/// Takes a cluster's rights away, then everything else that it has here, the Cluster itself last.
///
/// Whoever calls this or [`clear`] holds the lock of names, and has just read who has the name.
pub async fn remove(client: &Client, cluster: &Cluster) -> Result<(), CallError> {
    let name = cluster.name_any();
    clear(client, &name).await?;
    // Another one may have been made by hand meanwhile.
    let this = Preconditions { uid: cluster.metadata.uid.clone(), ..Preconditions::default() };
    let clusters: Api<Lenient<Cluster>> = Api::all(client.clone());
    delete_as(&clusters, &name, &DeleteParams::background().preconditions(this)).await
}

/// Takes away what a cluster that is not there any more has left here, its rights first.
pub async fn clear(client: &Client, name: &str) -> Result<(), CallError> {
    revoke(client, name).await?;
    delete(&Api::<Namespace>::all(client.clone()), &cluster_namespace(name)).await?;
    free(client, name).await
}

/// Strips the finalizers of what the agent could write in its namespace, which nobody would ever take away: one of them
/// keeps the namespace, and the name with it, for ever. Nothing is made there any more while it is being deleted.
async fn free(client: &Client, name: &str) -> Result<(), CallError> {
    free_all::<ClusterReport>(client, name).await?;
    free_all::<Lease>(client, name).await?;
    free_all::<Event>(client, name).await
}

/// At most a page of them: whoever wrote more keeps nobody else waiting, and the next look goes on.
async fn free_all<K>(client: &Client, name: &str) -> Result<(), CallError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug,
{
    let api: Api<Lenient<PartialObjectMeta<K>>> = namespaced(client, name);
    let found = match call(api.list(&ListParams::default().limit(PAGE))).await {
        Err(e) if e.is_not_found() => return Ok(()),
        found => found?.items,
    };
    let held: Vec<_> = found.into_iter().filter(|object| !object.finalizers().is_empty()).collect();
    let api = &api;
    futures::stream::iter(held.into_iter().map(Ok))
        .try_for_each_concurrent(AT_ONCE, |object| async move {
            let (object_name, finalizers) = (object.name_any(), object.finalizers());
            tracing::info!(cluster = name, kind = %K::kind(&()), object_name, ?finalizers, "finalizers stripped");
            let change = json!({ "metadata": { "uid": object.meta().uid, "finalizers": null } });
            match call(api.patch(&object_name, &PatchParams::default(), &Patch::Merge(&change))).await {
                Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
                _ => Ok(()),
            }
        })
        .await
}

/// Takes a cluster's rights away: its certificate is worth nothing from then on.
async fn revoke(client: &Client, name: &str) -> Result<(), CallError> {
    let wide = cluster_role(name);
    delete(&Api::<ClusterRoleBinding>::all(client.clone()), &wide).await?;
    delete(&namespaced::<RoleBinding>(client, name), ROLE).await?;
    delete(&Api::<ClusterRole>::all(client.clone()), &wide).await
}

fn namespaced<K>(client: &Client, cluster: &str) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), &cluster_namespace(cluster))
}

fn owner(cluster: &Cluster) -> Value {
    json!({
        "apiVersion": format!("{CLUSTER_GROUP}/{}", labels::API_VERSION),
        "kind": "Cluster",
        "name": cluster.name_any(),
        "uid": cluster.metadata.uid,
        "blockOwnerDeletion": false,
        "controller": true,
    })
}

fn in_namespace(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace })
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value) -> Result<(), CallError>
where
    K: Clone + Debug + DeserializeOwned,
{
    call(api.patch(name, &PatchParams::apply(SCHEDULER_MANAGER).force(), &Patch::Apply(object))).await?;
    Ok(())
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<(), CallError>
where
    K: Clone + Debug + DeserializeOwned,
{
    delete_as(api, name, &DeleteParams::background()).await
}

async fn delete_as<K>(api: &Api<K>, name: &str, params: &DeleteParams) -> Result<(), CallError>
where
    K: Clone + Debug + DeserializeOwned,
{
    match call(api.delete(name, params)).await {
        Ok(_) => Ok(()),
        Err(e) if e.is_not_found() => Ok(()),
        // A namespace that is on its way out already answers so, and what is not the object that was meant.
        Err(e) if e.is_conflict() => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::api::ClusterSpec;

    fn member() -> Cluster {
        let id = Some("0a1b2c3d-1111-2222-3333-444455556666".to_owned());
        let spec = ClusterSpec { name: "a".to_owned(), accepted: true, cluster_id: id, ..ClusterSpec::default() };
        let mut cluster = Cluster::new("a", spec);
        cluster.annotations_mut().insert(ANNOTATION_KEY_FINGERPRINT.to_owned(), "f".repeat(64));
        cluster
    }

    #[test]
    fn rights_belong_to_the_key_of_an_accepted_cluster_and_else_to_nobody() {
        assert_eq!(holder(&member()).as_deref(), Some("fleet:agent:a:0a1b2c3d:ffffffffffffffff"));
        let without = |change: fn(&mut Cluster)| {
            let mut cluster = member();
            change(&mut cluster);
            holder(&cluster)
        };
        assert_eq!(without(|c| c.spec.accepted = false), None);
        assert_eq!(without(|c| c.spec.cluster_id = None), None);
        assert_eq!(without(|c| c.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH))), None);
        assert_eq!(without(|c| drop(c.annotations_mut().remove(ANNOTATION_KEY_FINGERPRINT))), None);
        let garbage = |c: &mut Cluster| {
            c.annotations_mut().insert(ANNOTATION_KEY_FINGERPRINT.to_owned(), "x".to_owned());
        };
        assert_eq!(without(garbage), None);
    }
}
