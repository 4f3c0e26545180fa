//! Objects of the control plane for a cluster: its namespace and Lease, and the RBAC of its agent.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;

use crate::api::Cluster;
use crate::api::labels::{
    AGENT_LEASE, ANNOTATION_ORIGINAL_NAME, API_VERSION, CLUSTER_GROUP, LABEL_CLUSTER, cluster_namespace,
};

/// Name of the Role and its binding in the cluster's namespace.
pub(super) const ROLE: &str = "fleet-agent";

/// Name of the ResourceQuota in the cluster's namespace.
pub(super) const QUOTA: &str = "fleet-agent";

/// The resource of a ResourceQuota that counts ClusterReports.
const REPORTS_COUNT: &str = "count/clusterreports.cluster.fleet-scheduler.io";

/// ClusterReports that an agent may have. Each holds up to 200 nodes, so this is beyond the 5,000 nodes that Kubernetes
/// supports, and far below what would fill etcd.
const MOST_REPORTS: u32 = 64;

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Name of the ClusterRole and its binding.
pub(super) fn cluster_role_name(cluster: &str) -> String {
    format!("fleet:agent:{cluster}")
}

/// All objects of one cluster, in the order in which they are applied.
pub(super) struct Objects {
    pub(super) namespace: Namespace,
    pub(super) cluster_role: ClusterRole,
    pub(super) cluster_role_binding: ClusterRoleBinding,
    pub(super) role: Role,
    pub(super) role_binding: RoleBinding,
    /// Limit of the number of objects that the agent may make.
    pub(super) quota: ResourceQuota,
    /// Without a spec, which the agent writes. The monitor finds it by name and namespace: its labels are the agent's to
    /// write as well.
    pub(super) lease: Lease,
}

impl Objects {
    /// Objects of a cluster whose rights are bound to `user`.
    pub(super) fn new(cluster: &Cluster, user: &str) -> Self {
        let name = cluster.name_any();
        let namespace = cluster_namespace(&name);
        let cluster_role = cluster_role_name(&name);
        Self {
            namespace: Namespace {
                metadata: ObjectMeta {
                    annotations: Some([(ANNOTATION_ORIGINAL_NAME.to_owned(), name.clone())].into()),
                    ..cluster_owned_metadata(cluster, &namespace)
                },
                ..Namespace::default()
            },
            cluster_role: ClusterRole {
                metadata: cluster_owned_metadata(cluster, &cluster_role),
                rules: Some(cluster_rules(&name)),
                ..ClusterRole::default()
            },
            cluster_role_binding: ClusterRoleBinding {
                metadata: cluster_owned_metadata(cluster, &cluster_role),
                role_ref: role_ref("ClusterRole", &cluster_role),
                subjects: Some(vec![user_subject(user)]),
            },
            role: Role { metadata: in_namespace(&namespace, ROLE), rules: Some(namespace_rules()) },
            role_binding: RoleBinding {
                metadata: in_namespace(&namespace, ROLE),
                role_ref: role_ref("Role", ROLE),
                subjects: Some(vec![user_subject(user)]),
            },
            quota: ResourceQuota {
                metadata: in_namespace(&namespace, QUOTA),
                spec: Some(ResourceQuotaSpec {
                    hard: Some([(REPORTS_COUNT.to_owned(), Quantity(MOST_REPORTS.to_string()))].into()),
                    ..ResourceQuotaSpec::default()
                }),
                status: None,
            },
            lease: Lease {
                metadata: ObjectMeta {
                    labels: Some([(LABEL_CLUSTER.to_owned(), name)].into()),
                    ..in_namespace(&namespace, AGENT_LEASE)
                },
                spec: None,
            },
        }
    }
}

/// Rights on cluster-scoped objects: the agent's own Cluster, the identity of the control plane, and renewals. Renewals are bound here and not to the group of
/// all agents, which a certificate keeps when its rights are revoked.
fn cluster_rules(cluster: &str) -> Vec<PolicyRule> {
    vec![
        restrict_to_name(policy_rule(&[CLUSTER_GROUP], "clusters", &["get", "list", "watch"]), cluster),
        restrict_to_name(policy_rule(&[CLUSTER_GROUP], "clusters/status", &["get", "patch"]), cluster),
        policy_rule(&["certificates.k8s.io"], "certificatesigningrequests", &["create", "get"]),
        // Its UID is the control plane's identity, by which an agent knows its copies, and its annotation holds deletions.
        restrict_to_name(policy_rule(&[""], "namespaces", &["get"]), "kube-system"),
    ]
}

/// Rights in the cluster's namespace.
fn namespace_rules() -> Vec<PolicyRule> {
    vec![
        policy_rule(&[CLUSTER_GROUP], "schedules", &["get", "list", "watch"]),
        policy_rule(&[CLUSTER_GROUP], "schedules/status", &["get", "patch"]),
        policy_rule(&[CLUSTER_GROUP], "clusterreports", &["get", "list", "create", "patch", "delete"]),
        // The data of copied Secrets, by the names of their Schedules.
        policy_rule(&[""], "secrets", &["get"]),
        restrict_to_name(policy_rule(&["coordination.k8s.io"], "leases", &["get", "update", "patch"]), AGENT_LEASE),
    ]
}

fn policy_rule(groups: &[&str], resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

/// Restricts a rule to one object.
fn restrict_to_name(rule: PolicyRule, name: &str) -> PolicyRule {
    PolicyRule { resource_names: Some(vec![name.to_owned()]), ..rule }
}

fn user_subject(user: &str) -> Subject {
    Subject {
        api_group: Some(RBAC_GROUP.to_owned()),
        kind: "User".to_owned(),
        name: user.to_owned(),
        ..Subject::default()
    }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: RBAC_GROUP.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}

/// Metadata of a cluster-scoped object that is deleted with its Cluster.
fn cluster_owned_metadata(cluster: &Cluster, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([(LABEL_CLUSTER.to_owned(), cluster.name_any())].into()),
        owner_references: Some(vec![OwnerReference {
            api_version: format!("{CLUSTER_GROUP}/{API_VERSION}"),
            kind: "Cluster".to_owned(),
            name: cluster.name_any(),
            uid: cluster.metadata.uid.clone().unwrap_or_default(),
            block_owner_deletion: Some(false),
            controller: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}

fn in_namespace(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::ClusterSpec;

    /// Returns the metadata of an object that is deleted with the Cluster.
    fn owned_metadata(name: &str) -> serde_json::Value {
        json!({ "name": name, "labels": { "fleet-scheduler.io/cluster": "west" }, "ownerReferences": [{
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster", "name": "west", "uid": "42",
            "blockOwnerDeletion": false, "controller": true,
        }] })
    }

    /// The JSON that agents' rights consist of: a change here is a change of what an agent may do.
    #[test]
    fn objects_are_as_documented() {
        let mut cluster = Cluster::new("west", ClusterSpec::default());
        cluster.metadata.uid = Some("42".to_owned());
        let objects = Objects::new(&cluster, "fleet:agent:west:0a1b2c3d:ffff");
        let rbac = "rbac.authorization.k8s.io/v1";
        let group = "cluster.fleet-scheduler.io";
        let mut of_namespace = owned_metadata("fleet-c-west");
        of_namespace["annotations"] = json!({ "fleet-scheduler.io/cluster.original-name": "west" });
        let subjects = json!([{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "fleet:agent:west:0a1b2c3d:ffff",
        }]);
        let found = [
            json!(objects.namespace),
            json!(objects.cluster_role),
            json!(objects.cluster_role_binding),
            json!(objects.role),
            json!(objects.role_binding),
            json!(objects.quota),
            json!(objects.lease),
        ];
        let expected = [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": of_namespace }),
            json!({ "apiVersion": rbac, "kind": "ClusterRole", "metadata": owned_metadata("fleet:agent:west"), "rules": [
                { "apiGroups": [group], "resources": ["clusters"], "resourceNames": ["west"], "verbs": ["get", "list", "watch"] },
                { "apiGroups": [group], "resources": ["clusters/status"], "resourceNames": ["west"], "verbs": ["get", "patch"] },
                { "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get"] },
                { "apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"] },
            ] }),
            json!({ "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": owned_metadata("fleet:agent:west"),
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fleet:agent:west" },
                "subjects": subjects }),
            json!({ "apiVersion": rbac, "kind": "Role",
                "metadata": { "name": "fleet-agent", "namespace": "fleet-c-west" }, "rules": [
                { "apiGroups": [group], "resources": ["schedules"], "verbs": ["get", "list", "watch"] },
                { "apiGroups": [group], "resources": ["schedules/status"], "verbs": ["get", "patch"] },
                { "apiGroups": [group], "resources": ["clusterreports"], "verbs": ["get", "list", "create", "patch", "delete"] },
                { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] },
                { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["fleet-agent"], "verbs": ["get", "update", "patch"] },
            ] }),
            json!({ "apiVersion": rbac, "kind": "RoleBinding",
                "metadata": { "name": "fleet-agent", "namespace": "fleet-c-west" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "fleet-agent" },
                "subjects": subjects }),
            json!({ "apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": { "name": "fleet-agent", "namespace": "fleet-c-west" },
                "spec": { "hard": { "count/clusterreports.cluster.fleet-scheduler.io": "64" } } }),
            json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {
                "name": "fleet-agent", "namespace": "fleet-c-west", "labels": { "fleet-scheduler.io/cluster": "west" },
            } }),
        ];
        for (found, expected) in found.into_iter().zip(expected) {
            assert_eq!(found.to_string(), expected.to_string());
        }
    }
}
