//! Names that the programs agree on: API groups, label and annotation keys, users, groups and objects of the hub.

/// API group of [`super::Cluster`], [`super::Schedule`] and [`super::ClusterReport`].
pub const CLUSTER_GROUP: &str = "cluster.fleet-scheduler.io";

/// Returns whether an API group, or the end of a definition's name, is the service's own.
pub fn is_own_group(group: &str) -> bool {
    group.strip_suffix("fleet-scheduler.io").is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The served version of both groups.
pub const API_VERSION: &str = "v1alpha1";

/// Label that repeats an object's own name, so that label selectors can pick by name.
pub const LABEL_NAME: &str = "kubernetes.io/metadata.name";
/// Label with the name of an installation on each of its objects, on their pods and on their volume claims. They are looked up
/// by it and not by [`LABEL_INSTANCE`], which Argo CD before version 3 overwrites with the name of its Application.
pub const LABEL_INSTALL: &str = "fleet-scheduler.io/install";
/// Label with the kind of an installation, which distinguishes an agent from a control plane of the same name.
pub const LABEL_INSTALL_KIND: &str = "fleet-scheduler.io/install-kind";
/// Label on objects that only a deletion of data removes, so that a lost record loses no keys.
pub const LABEL_KEEP: &str = "fleet-scheduler.io/keep";
/// Cluster label: provider.
pub const LABEL_PROVIDER: &str = "fleet-scheduler.io/cluster.provider";
/// Cluster label: region.
pub const LABEL_REGION: &str = "fleet-scheduler.io/cluster.region";
/// Cluster label: zone.
pub const LABEL_ZONE: &str = "fleet-scheduler.io/cluster.zone";
/// Cluster label: Kubernetes version, as major.minor.
pub const LABEL_VERSION: &str = "fleet-scheduler.io/cluster.version";
/// Kubernetes' label: the name of what an object belongs to; on the init Secret, of the control plane.
pub const LABEL_INSTANCE: &str = "app.kubernetes.io/instance";
/// Kubernetes' label: its version; on the init Secret, the service version of the control plane.
pub const LABEL_APP_VERSION: &str = "app.kubernetes.io/version";
/// Kubernetes' label: the larger thing, which is always `fleet`.
pub const LABEL_PART_OF: &str = "app.kubernetes.io/part-of";
/// Label on the namespace and Lease that belong to one registered cluster; the value is the cluster's name. On the
/// Lease it is for people only, because the agent may write it.
pub const LABEL_CLUSTER: &str = "fleet-scheduler.io/cluster";
/// Label on placed source objects and on groups: the cluster that they went to, or the number of these clusters.
pub const LABEL_TARGET_CLUSTER: &str = "fleet-scheduler.io/target-cluster";
/// Annotation on placed source objects and on groups: the clusters that they went to, separated by commas, where these
/// are several; the label then says how many.
pub const ANNOTATION_TARGET_CLUSTERS: &str = "fleet-scheduler.io/target-clusters";
/// Annotation on source objects: place onto this cluster, without a policy.
pub const ANNOTATION_CLUSTER: &str = "fleet-scheduler.io/cluster";
/// Label on placed source objects: the policy that decided.
pub const LABEL_MATCHING_POLICY: &str = "fleet-scheduler.io/matching-policy";
/// Annotation on source objects: divide over these clusters, without a policy; `::Duplicate` at its end copies instead.
pub const ANNOTATION_SPREAD_ONTO: &str = "fleet-scheduler.io/spread-onto";
/// Annotation on source objects: `true` lets a copy adopt an object that already exists.
pub const ANNOTATION_ADOPT: &str = "fleet-scheduler.io/adopt";
/// Annotation on source objects: paths of fields that are left to others in the workload cluster, separated by commas.
pub const ANNOTATION_LEAVE_FIELDS: &str = "fleet-scheduler.io/leave-fields";
/// Annotation on source objects: `keep` retains the copies when the source is deleted.
pub const ANNOTATION_ON_DELETE: &str = "fleet-scheduler.io/on-delete";
/// Annotation on source objects: `true` lets a group with volumes move.
pub const ANNOTATION_ALLOW_VOLUME_MOVE: &str = "fleet-scheduler.io/allow-volume-move";
/// Annotation on groups and policies: a value that was not there before lets the group, or those of the policy, move to
/// where they fit better.
pub const ANNOTATION_REBALANCE: &str = "fleet-scheduler.io/rebalance";
/// Prefix of the label and annotation keys that belong to the service.
pub const OWN_KEY_PREFIX: &str = "fleet-scheduler.io/";
/// Annotation of an agent's identity Secret: the kinds of copies beside those of the table, as `GROUP/VERSION/Kind[,…]`.
pub const ANNOTATION_PLACED_KINDS: &str = "fleet-scheduler.io/placed-kinds";
/// Label on copies in a workload cluster: first 8 characters of the UID of the control plane's namespace `kube-system`.
pub const LABEL_PLACED_BY: &str = "fleet-scheduler.io/placed-by";
/// Annotation on Schedules: the edits of the policy that their manifest has, as JSON. They stay when the policy goes.
pub const ANNOTATION_APPLIED_OVERRIDES: &str = "fleet-scheduler.io/applied-overrides";
/// Annotation on copies: UID of their Schedule.
pub const ANNOTATION_SCHEDULE_UID: &str = "fleet-scheduler.io/schedule-uid";
/// Names that the agent added to the list of pull secrets of a ServiceAccount, with commas between.
pub const ANNOTATION_ADDED_PULL_SECRETS: &str = "fleet-scheduler.io/added-pull-secrets";
/// Annotation on copies, `"true"`: the object was there before, and was adopted.
pub const ANNOTATION_ADOPTED: &str = "fleet-scheduler.io/adopted";
/// Taint of a cluster whose agent asks for its drain: never in its spec, but counted as if it were.
pub const TAINT_DRAINING: &str = "fleet-scheduler.io/draining";
/// Taint that `fleetctl cordon` and `fleetctl drain` set, and `fleetctl uncordon` removes.
pub const TAINT_UNSCHEDULABLE: &str = "fleet-scheduler.io/unschedulable";
/// Finalizer of Schedules: the agent deletes the copy first.
pub const FINALIZER_AGENT_CLEANUP: &str = "fleet-scheduler.io/agent-cleanup";
/// Annotation on the namespace of one cluster in the hub: the cluster's name as registered.
pub const ANNOTATION_ORIGINAL_NAME: &str = "fleet-scheduler.io/cluster.original-name";
/// Annotation on a Cluster and on a CSR: the UID of the workload cluster's `kube-system` namespace.
pub const ANNOTATION_CLUSTER_ID: &str = "fleet-scheduler.io/cluster-id";
/// Annotation on a Cluster: SHA-256 of the public key that its agent proved to hold, whose certificates alone have the
/// cluster's rights. An operator who removes it revokes that key; the next agent with the same cluster ID registers its
/// own.
pub const ANNOTATION_KEY_FINGERPRINT: &str = "fleet-scheduler.io/key-fingerprint";
/// Annotation by which an operator lets the next agent with the same cluster ID take the name with a new key.
pub const ANNOTATION_ALLOW_NEW_KEY: &str = "fleet-scheduler.io/allow-new-key";
/// Annotation on a Cluster: a text that never occurs twice. The agent repeats it in `status.answered` after it has compared
/// every copy with the status of its Schedule.
pub const ANNOTATION_ASK: &str = "fleet-scheduler.io/ask";
/// Annotation on the hub's namespace `kube-system`: agents keep copies that have no Schedule while it is there. Its value is
/// the time since when, in RFC 3339.
pub const ANNOTATION_HOLD_DELETIONS: &str = "fleet-scheduler.io/hold-deletions";
/// Annotation on a CSR: version of the agent that asks.
pub const ANNOTATION_AGENT_VERSION: &str = "fleet-scheduler.io/agent-version";

/// Annotation of Kubernetes on the StorageClass that PersistentVolumeClaims without one get, where it is `true`.
pub const ANNOTATION_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// [`ANNOTATION_DEFAULT_CLASS`] and its older key, which servers still honour.
pub const DEFAULT_CLASS_ANNOTATIONS: [&str; 2] =
    [ANNOTATION_DEFAULT_CLASS, "storageclass.beta.kubernetes.io/is-default-class"];

/// Field manager of everything the scheduler applies.
pub const SCHEDULER_MANAGER: &str = "fleet-scheduler";
/// Field manager of the Secrets that `fleet-scheduler keys` makes in a hosting cluster: they are a part of the installation.
pub const KEYS_MANAGER: &str = "fleet-scheduler-keys";
/// Annotation on the pod template of a workload that reads a certificate at its start only: a digest of what it has to
/// read. Who renews that certificate sets it.
pub const ANNOTATION_KEYS: &str = "fleet-scheduler.io/keys";
/// The ConfigMap in the hosting cluster with the certificates of a control plane, as the last renewal found them.
pub const CERTIFICATES_CONFIG_MAP: &str = "fleet-certificates";
/// Field manager of everything an agent applies.
pub const AGENT_MANAGER: &str = "fleet-agent";
/// Group of every registered agent.
pub const AGENTS_GROUP: &str = "fleet:agents";
/// Group of whoever holds an init token.
pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers:fleet";
/// The Secret in the hub that agents start from.
pub const INIT_SECRET: &str = "fleet-cluster-init-kubeconfig";
/// Key of the kubeconfig in [`INIT_SECRET`].
pub const INIT_SECRET_KEY: &str = "kubeconfig";
/// The ConfigMap in the hub that says how far the bootstrap got.
pub const BOOTSTRAP_STATUS: &str = "fleet-bootstrap-status";
/// Prefix of the namespace that belongs to one cluster in the hub.
pub const CLUSTER_NAMESPACE_PREFIX: &str = "fleet-c-";
/// Name of an agent's Lease in its namespace of the hub.
pub const AGENT_LEASE: &str = "fleet-agent";
/// Annotation of an agent's Lease: the end of the agent's certificate, in RFC 3339.
pub const ANNOTATION_CERTIFICATE_END: &str = "fleet-scheduler.io/certificate-end";

/// Returns the cluster that a namespace of the hub belongs to.
pub fn cluster_of_namespace(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(CLUSTER_NAMESPACE_PREFIX)
}

/// The namespace in the hub that belongs to the cluster `name`.
pub fn cluster_namespace(name: &str) -> String {
    format!("{CLUSTER_NAMESPACE_PREFIX}{name}")
}
