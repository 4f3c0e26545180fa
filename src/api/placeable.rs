//! The kinds that can be placed onto workload clusters: what the scheduler watches, and what an agent may write.

use kube::api::ApiResource;
use kube::core::DynamicResourceScope;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::kinds::{api_version, split_api_version};
use super::labels::{ANNOTATION_ADDED_PULL_SECRETS, ANNOTATION_ADOPTED, ANNOTATION_SCHEDULE_UID, LABEL_PLACED_BY};

/// Wave of objects by which others are defined, or in which they lie, such as Namespaces.
pub const WAVE_DEFINITIONS: u8 = 0;
/// Wave of objects that others need, such as ConfigMaps.
const WAVE_NEEDED: u8 = 1;
/// Wave of roles and their bindings.
pub const WAVE_RIGHTS: u8 = 2;
/// Wave of everything else.
pub const WAVE_REST: u8 = 3;

/// A kind that can be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placeable {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The version that is watched and applied.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
    /// Wave in which a copy is first applied: those of a lower wave come before.
    pub wave: u8,
}

const fn placeable_kind(
    wave: u8,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Placeable {
    Placeable { group, version, kind, plural, namespaced, wave }
}

/// Kinds that can always be placed.
pub const PLACEABLE: &[Placeable] = &[
    placeable_kind(WAVE_DEFINITIONS, "", "v1", "Namespace", "namespaces", false),
    placeable_kind(WAVE_DEFINITIONS, "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false),
    placeable_kind(WAVE_NEEDED, "", "v1", "ConfigMap", "configmaps", true),
    placeable_kind(WAVE_NEEDED, "", "v1", "Secret", "secrets", true),
    placeable_kind(WAVE_NEEDED, "", "v1", "ServiceAccount", "serviceaccounts", true),
    placeable_kind(WAVE_NEEDED, "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    placeable_kind(WAVE_NEEDED, "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    placeable_kind(WAVE_NEEDED, "networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true),
    placeable_kind(WAVE_NEEDED, "networking.k8s.io", "v1", "IngressClass", "ingressclasses", false),
    placeable_kind(WAVE_REST, "", "v1", "Service", "services", true),
    placeable_kind(WAVE_REST, "", "v1", "Pod", "pods", true),
    placeable_kind(WAVE_REST, "apps", "v1", "Deployment", "deployments", true),
    placeable_kind(WAVE_REST, "apps", "v1", "StatefulSet", "statefulsets", true),
    placeable_kind(WAVE_REST, "apps", "v1", "DaemonSet", "daemonsets", true),
    placeable_kind(WAVE_REST, "apps", "v1", "ReplicaSet", "replicasets", true),
    placeable_kind(WAVE_REST, "batch", "v1", "Job", "jobs", true),
    placeable_kind(WAVE_REST, "batch", "v1", "CronJob", "cronjobs", true),
    placeable_kind(WAVE_REST, "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    placeable_kind(WAVE_REST, "networking.k8s.io", "v1", "Ingress", "ingresses", true),
];

/// Fields of a container's status that are reported.
pub const CONTAINER_STATUS_FIELDS: [&str; 9] =
    ["name", "state", "lastState", "ready", "restartCount", "image", "imageID", "containerID", "started"];

/// The kinds that a program places: those of the table, and those that its operator added and the API server serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kinds {
    added: Vec<&'static Placeable>,
}

impl Kinds {
    /// Builds the kinds of the table and `added`.
    pub fn with_added(added: Vec<&'static Placeable>) -> Self {
        Self { added }
    }

    /// Adds a kind.
    pub fn add_placeable(&mut self, kind: &'static Placeable) {
        self.added.push(kind);
    }

    /// Returns those beside the table.
    pub fn added_placeables(&self) -> &[&'static Placeable] {
        &self.added
    }

    /// Returns all of them, those of the table first.
    pub fn iter(&self) -> impl Iterator<Item = &'static Placeable> + Clone + '_ {
        PLACEABLE.iter().chain(self.added.iter().copied())
    }

    /// Returns the entry of a kind, whatever its version.
    pub fn find_placeable(&self, group: &str, kind: &str) -> Option<&'static Placeable> {
        self.iter().find(|entry| entry.group == group && entry.kind == kind)
    }
}

/// Returns whether objects of a kind run pods, by themselves or by what they make.
pub fn runs_pods(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "Pod")
            | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch", "Job" | "CronJob")
    )
}

/// Returns the entry of a kind of the table, whatever its version.
pub fn find_builtin_kind(group: &str, kind: &str) -> Option<&'static Placeable> {
    PLACEABLE.iter().find(|entry| entry.group == group && entry.kind == kind)
}

/// Returns whether a kind is none of those that can always be placed: an operator added it.
pub fn is_added_kind(group: &str, kind: &str) -> bool {
    find_builtin_kind(group, kind).is_none() && group != "rbac.authorization.k8s.io"
}

/// Returns the fields of a status that agents report of a kind, and that are written into the status of its source; none for
/// kinds that an operator added, whose status is reported whole.
pub fn reported_fields(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") => &[
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "currentReplicas",
            "fullyLabeledReplicas",
            "terminatingReplicas",
            "currentRevision",
            "updateRevision",
            "observedGeneration",
            "conditions",
        ],
        ("apps", "DaemonSet") => &[
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "updatedNumberScheduled",
            "numberReady",
            "numberAvailable",
            "numberUnavailable",
            "numberMisscheduled",
            "observedGeneration",
            "conditions",
        ],
        ("policy", "PodDisruptionBudget") => &[
            "currentHealthy",
            "desiredHealthy",
            "disruptionsAllowed",
            "expectedPods",
            "observedGeneration",
            "conditions",
        ],
        ("autoscaling", "HorizontalPodAutoscaler") => &[
            "currentReplicas",
            "desiredReplicas",
            "lastScaleTime",
            "observedGeneration",
            "conditions",
            "currentMetrics",
        ],
        ("batch", "Job") => &[
            "active",
            "ready",
            "terminating",
            "succeeded",
            "failed",
            "completedIndexes",
            "failedIndexes",
            "startTime",
            "completionTime",
            "conditions",
        ],
        ("batch", "CronJob") => &["active", "lastScheduleTime", "lastSuccessfulTime"],
        ("", "Pod") => &[
            "phase",
            "reason",
            "message",
            "startTime",
            "podIP",
            "podIPs",
            "conditions",
            "initContainerStatuses",
            "containerStatuses",
        ],
        ("", "Service") | ("networking.k8s.io", "Ingress") => &["loadBalancer", "conditions"],
        ("", "PersistentVolumeClaim") => &["phase", "capacity", "accessModes", "conditions"],
        ("", "Namespace") => &["phase"],
        _ => &[],
    }
}

/// Returns the merge patch that removes the marks of a control plane from a copy, which is then no longer managed.
/// `metadata` contains preconditions, such as its UID.
pub fn build_unmark_patch(mut metadata: Value) -> Value {
    metadata["labels"] = json!({ LABEL_PLACED_BY: null });
    metadata["annotations"] = json!({ ANNOTATION_SCHEDULE_UID: null, ANNOTATION_ADOPTED: null,
        ANNOTATION_ADDED_PULL_SECRETS: null });
    json!({ "metadata": metadata })
}

impl Placeable {
    /// Returns the resource that a request for objects of this kind needs.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// Returns the API of the objects of this kind: in one namespace where the kind has them and one is given, else of all.
    pub fn objects_api<K>(&self, client: &Client, namespace: Option<&str>) -> Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        self.api_in_version(client, namespace, &self.api_version())
    }

    /// Returns the same as [`Self::objects_api`] in another version of the kind's group, such as `apps/v1`.
    pub fn api_in_version<K>(&self, client: &Client, namespace: Option<&str>, api_version: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let (group, version) = split_api_version(api_version);
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            ..self.api_resource()
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }

    /// The API version with its group, such as `apps/v1`.
    pub fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kinds::TABLE;

    #[test]
    fn the_kinds_are_those_of_the_compiled_table() {
        for entry in PLACEABLE {
            let version = entry.api_version();
            let known = TABLE.iter().find(|known| known.kind == entry.kind && known.api_version == version);
            let known = known.unwrap_or_else(|| panic!("{version} {} is not in the table", entry.kind));
            assert_eq!((known.plural, known.namespaced), (entry.plural, entry.namespaced));
            assert_eq!(known.until, None);
        }
    }
}
