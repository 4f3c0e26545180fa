//! What an object asks of placement: a manifest reduced to less than a kilobyte.
//!
//! [`Facts::from_manifest`] is the only reader of manifests; everything else in this room works on what it returns.

mod asks;
mod never;
mod object_key;
mod pod_names;
mod references;
mod relations;
mod shape;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use asks::{Asks, InvalidAsk, LEAVE_FIELDS, SpreadOnto};
pub use never::Never;
pub use object_key::ObjectKey;
pub use references::Reference;
pub use relations::{MOST_NAMES, PodSelection, Relations};
pub(crate) use shape::resource_order;
pub use shape::{Ignored, Shape};

use crate::api::kinds;
use crate::api::labels::{ANNOTATION_TARGET_CLUSTERS, LABEL_INSTALL_KIND, OWN_KEY_PREFIX};
use crate::api::util::digest;
use crate::placement::canonical::to_canonical_json;

/// Most bytes of the labels, the references and the shape of an object that is placed.
const LARGEST: usize = 64 << 10;

/// An object that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    /// A field without which there is no object.
    #[error("the object has no {0}")]
    Missing(&'static str),
    /// Pods that no API server would accept.
    #[error("the pod template of {object} cannot be read: {reason}")]
    Pods {
        /// The object.
        object: ObjectKey,
        /// Reason that they cannot be read.
        reason: String,
    },
}

/// Properties of one object that placement knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Group, kind, namespace and name.
    pub key: ObjectKey,
    /// API version within the group.
    pub version: String,
    /// UID in the control plane's API; empty for an object that is not there yet.
    #[serde(default)]
    pub uid: String,
    /// Generation; 0 for kinds without one.
    #[serde(default)]
    pub generation: i64,
    /// Time of its creation.
    #[serde(default)]
    pub created: Option<Timestamp>,
    /// Its labels, without those of the service; of these a Namespace keeps the one that says that it is an installation's.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Requests of its annotations.
    #[serde(default)]
    pub asks: Asks,
    /// Number of pods that it runs, and the kind of its controller.
    #[serde(default)]
    pub workload: Workload,
    /// Demands of one of its pods; absent for kinds without pods.
    #[serde(default, serialize_with = "shape::write", deserialize_with = "shape::read")]
    pub shape: Option<Arc<Shape>>,
    /// Whether it contains data that does not move along: a PersistentVolumeClaim, or templates of them.
    #[serde(default)]
    pub volumes: bool,
    /// Target that it scales, if it is a HorizontalPodAutoscaler.
    #[serde(default)]
    pub scales: Option<Scales>,
    /// Objects that its pods need.
    #[serde(default)]
    pub references: Vec<Reference>,
    /// Reason that it is never placed, if there is one.
    #[serde(default)]
    pub never: Option<Never>,
    /// Digest of what a copy and a decision depend on: the same digest, nothing to do.
    pub hash: String,
}

/// Number of pods that an object runs, and the kind of its controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workload {
    /// No pods.
    #[default]
    None,
    /// A Deployment, StatefulSet or ReplicaSet with so many.
    Replicas(i64),
    /// A Job.
    Job {
        /// Pods that have to succeed; absent for a work queue.
        completions: Option<i64>,
        /// Pods at a time.
        parallelism: i64,
        /// Whether each completion has a number.
        indexed: bool,
    },
    /// A CronJob whose Jobs run so many pods at a time.
    CronJob {
        /// Pods at a time.
        pods: i64,
    },
    /// A bare Pod.
    Pod,
    /// One pod a node.
    DaemonSet,
}

impl Workload {
    /// Returns the pods that need room at the same time. A DaemonSet has as many as there are nodes, which is not known here: 0.
    pub fn pods_at_once(self) -> i64 {
        match self {
            Self::None | Self::DaemonSet => 0,
            Self::Replicas(replicas) => replicas,
            Self::Job { completions, parallelism, .. } => completions.unwrap_or(i64::MAX).min(parallelism),
            Self::CronJob { pods } => pods,
            Self::Pod => 1,
        }
    }

    /// Returns whether its pods can be divided over clusters.
    pub fn is_dividable(self) -> bool {
        matches!(self, Self::Replicas(_) | Self::Job { completions: Some(_), indexed: false, .. })
    }

    /// Returns whether it runs pods and goes to one cluster whole.
    pub fn is_undividable(self) -> bool {
        match self {
            Self::Job { .. } => !self.is_dividable(),
            Self::CronJob { .. } | Self::Pod => true,
            Self::None | Self::Replicas(_) | Self::DaemonSet => false,
        }
    }

    /// Returns whether it starts again when it moves.
    pub fn runs_once(self) -> bool {
        matches!(self, Self::Job { .. } | Self::Pod)
    }

    /// Returns whether a move stops it before it begins elsewhere: two of it would do everything twice.
    pub fn is_stopped_first(self) -> bool {
        self.runs_once() || matches!(self, Self::CronJob { .. })
    }
}

/// Target that a HorizontalPodAutoscaler scales.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scales {
    /// API group of the target, if it is given.
    pub group: Option<String>,
    /// Kind of the target.
    pub kind: String,
    /// Name of the target.
    pub name: String,
    /// Fewest replicas that it asks for.
    pub min_replicas: i64,
    /// Most replicas that it asks for.
    #[serde(default)]
    pub max_replicas: i64,
}

impl Scales {
    /// Returns whether an object in the autoscaler's namespace is its target.
    pub fn is_target(&self, key: &ObjectKey) -> bool {
        key.kind() == self.kind
            && key.name() == self.name
            && self.group.as_deref().is_none_or(|group| group == key.group())
    }
}

fn text_at_pointer<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// Reads the strings of a map, such as labels.
fn read_string_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

impl Facts {
    /// Reads a manifest.
    ///
    /// # Errors
    /// An object without API version, kind or name, and pods that no API server would accept.
    pub fn from_manifest(manifest: &Value) -> Result<Self, FactsError> {
        let api_version = text_at_pointer(manifest, "/apiVersion").ok_or(FactsError::Missing("apiVersion"))?;
        let kind = text_at_pointer(manifest, "/kind").ok_or(FactsError::Missing("kind"))?;
        let name = text_at_pointer(manifest, "/metadata/name").ok_or(FactsError::Missing("name"))?;
        let (group, version) = kinds::split_api_version(api_version);
        let key =
            ObjectKey::new(group, kind, text_at_pointer(manifest, "/metadata/namespace").unwrap_or_default(), name);
        let pods = shape::find_pod_template(&key, manifest);
        let spec = pods.map(shape::pod_spec).transpose();
        let spec = spec.map_err(|reason| FactsError::Pods { object: key.clone(), reason })?;
        let mut labels = read_string_map(manifest.pointer("/metadata/labels"));
        let is_namespace = key.is_of_kind("", "Namespace");
        labels.retain(|key, _| !key.starts_with(OWN_KEY_PREFIX) || is_namespace && key == LABEL_INSTALL_KIND);
        let templates = manifest.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
        let volumes =
            key.is_of_kind("", "PersistentVolumeClaim") || templates.is_some_and(|templates| !templates.is_empty());
        let shape =
            spec.as_ref().zip(pods).map(|(spec, pods)| Arc::new(Shape::new(spec, pods, key.namespace(), volumes)));
        let facts = Self {
            version: version.to_owned(),
            uid: text_at_pointer(manifest, "/metadata/uid").unwrap_or_default().to_owned(),
            generation: manifest.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default(),
            created: text_at_pointer(manifest, "/metadata/creationTimestamp").and_then(|time| time.parse().ok()),
            labels,
            asks: Asks::read_annotations(manifest),
            workload: read_workload(&key, manifest),
            shape,
            volumes,
            scales: read_scale_target(&key, manifest),
            references: spec.as_ref().map(references::of_pods).unwrap_or_default(),
            never: never::check_never_placed(&key, manifest),
            hash: hash_manifest(manifest),
            key,
        };
        Ok(facts.drop_oversized())
    }

    /// Returns the same without what makes it large where it is larger than any that is placed.
    fn drop_oversized(mut self) -> Self {
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len());
        let references = self.references.iter().map(|one| one.kind.len() + one.name.len());
        let shape = self.shape.as_ref().map_or(0, |shape| shape.shape_bytes());
        if labels.chain(references).sum::<usize>() + shape > LARGEST {
            self.never.get_or_insert(Never::Oversized);
            (self.labels, self.references) = (BTreeMap::new(), Vec::new());
            (self.shape, self.workload) = (None, Workload::None);
        }
        self
    }

    /// Returns whether it asks for more room than it did: more pods, larger ones, or ones that other nodes take.
    pub fn asks_for_more_than(&self, before: &Self) -> bool {
        let [new, old] = [self, before]
            .map(|facts| (facts.workload.pods_at_once(), facts.scales.as_ref().map(|one| one.min_replicas)));
        new.0 > old.0 || new.1 > old.1 || self.shape != before.shape && self.shape.is_some()
    }

    /// Returns the API version: `v1`, or `apps/v1`.
    pub fn api_version(&self) -> String {
        kinds::api_version(self.key.group(), &self.version)
    }
}

fn read_workload(key: &ObjectKey, manifest: &Value) -> Workload {
    match (key.group(), key.kind()) {
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") => {
            Workload::Replicas(count_at_pointer(manifest, "/spec/replicas").unwrap_or(1))
        }
        ("apps", "DaemonSet") => Workload::DaemonSet,
        ("batch", "Job") => {
            let (completions, parallelism) = read_job_counts(manifest, "/spec");
            let indexed = text_at_pointer(manifest, "/spec/completionMode") == Some("Indexed");
            Workload::Job { completions, parallelism, indexed }
        }
        ("batch", "CronJob") => {
            let (completions, parallelism) = read_job_counts(manifest, "/spec/jobTemplate/spec");
            Workload::CronJob { pods: completions.unwrap_or(i64::MAX).min(parallelism) }
        }
        ("", "Pod") => Workload::Pod,
        _ => Workload::None,
    }
}

/// Reads the completions and the parallelism from the specification of a Job.
fn read_job_counts(manifest: &Value, spec: &str) -> (Option<i64>, i64) {
    let completions = count_at_pointer(manifest, &format!("{spec}/completions"));
    let parallelism = count_at_pointer(manifest, &format!("{spec}/parallelism"));
    // The API server sets both to 1 where neither is set.
    let completions = if completions.is_none() && parallelism.is_none() { Some(1) } else { completions };
    (completions, parallelism.unwrap_or(1))
}

/// Reads a number of pods: Kubernetes counts them in 32 bits.
fn count_at_pointer(manifest: &Value, pointer: &str) -> Option<i64> {
    manifest.pointer(pointer).and_then(Value::as_i64).map(|number| number.clamp(0, i32::MAX.into()))
}

fn read_scale_target(key: &ObjectKey, manifest: &Value) -> Option<Scales> {
    if !key.is_of_kind("autoscaling", "HorizontalPodAutoscaler") {
        return None;
    }
    let api_version = text_at_pointer(manifest, "/spec/scaleTargetRef/apiVersion");
    Some(Scales {
        group: api_version.map(|version| kinds::split_api_version(version).0.to_owned()),
        kind: text_at_pointer(manifest, "/spec/scaleTargetRef/kind")?.to_owned(),
        name: text_at_pointer(manifest, "/spec/scaleTargetRef/name")?.to_owned(),
        min_replicas: count_at_pointer(manifest, "/spec/minReplicas").unwrap_or(1),
        max_replicas: count_at_pointer(manifest, "/spec/maxReplicas").unwrap_or(0),
    })
}

/// Annotations that are true only where they were written: no copy has them.
pub(super) const LOCAL_ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

/// The digest of everything but the status, what the API server keeps, the labels and the annotation that the scheduler writes
/// itself, and [`LOCAL_ANNOTATIONS`].
fn hash_manifest(manifest: &Value) -> String {
    let mut object = manifest.clone();
    let mut kept = serde_json::Map::new();
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
        let metadata = map.remove("metadata").unwrap_or_default();
        for name in ["labels", "annotations", "uid"] {
            let mut value = metadata.get(name).cloned().unwrap_or_default();
            match (value.as_object_mut(), name) {
                (Some(labels), "labels") => labels.retain(|key, _| !key.starts_with(OWN_KEY_PREFIX)),
                (Some(annotations), "annotations") => {
                    annotations.retain(|key, _| {
                        !LOCAL_ANNOTATIONS.contains(&key.as_str()) && key != ANNOTATION_TARGET_CLUSTERS
                    });
                    // An object whose only annotations these are is like one without any.
                    if annotations.is_empty() {
                        value = Value::Null;
                    }
                }
                _ => {}
            }
            kept.insert(name.to_owned(), value);
        }
        map.insert("metadata".to_owned(), kept.into());
    }
    digest::short_digest(to_canonical_json(&object).as_bytes())
}

#[cfg(test)]
mod tests;
