//! Demands of one pod of an object on a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{ObjectKey, read_string_map};
use crate::placement::pods::pod_requests;
use crate::placement::selector::{HOSTNAME, NodeSelector, Selector, Toleration};

/// Demands of one pod on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Requests by resource in thousandths, with `pods: 1`; cpu, memory and pods first, then by name; none is 0.
    pub requests: Vec<(String, i64)>,
    /// Taints of nodes that it tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Nodes that it may run on.
    #[serde(default)]
    pub nodes: NodeSelector,
    /// Whether no two of them may run on one node.
    #[serde(default)]
    pub one_per_node: bool,
    /// Other demands, which placement does not regard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<Ignored>,
}

/// A wish of a pod that placement does not regard; the pods may wait because of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ignored {
    /// Affinity to other pods.
    PodAffinity,
    /// Anti-affinity other than one pod of a kind on a node.
    PodAntiAffinity,
    /// Topology spread constraints.
    TopologySpread,
    /// Zones in which its volumes can be attached.
    VolumeZones,
    /// A toleration with an operator that tolerates nothing here.
    TolerationOperator(String),
}

impl Ignored {
    /// Returns its name in a list of what was not regarded.
    pub fn name(&self) -> String {
        match self {
            Self::PodAffinity => "pod affinity".to_owned(),
            Self::PodAntiAffinity => "pod anti-affinity".to_owned(),
            Self::TopologySpread => "topology spread constraints".to_owned(),
            Self::VolumeZones => "zones of volumes".to_owned(),
            Self::TolerationOperator(operator) => format!("tolerations with the operator {operator}"),
        }
    }
}

/// Returns the pod or the pod template of an object.
pub(super) fn find_pod_template<'a>(key: &ObjectKey, manifest: &'a Value) -> Option<&'a Value> {
    match (key.group(), key.kind()) {
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet") | ("batch", "Job") => {
            manifest.pointer("/spec/template")
        }
        ("batch", "CronJob") => manifest.pointer("/spec/jobTemplate/spec/template"),
        ("", "Pod") => Some(manifest),
        _ => None,
    }
}

pub(super) fn pod_spec(template: &Value) -> Result<PodSpec, String> {
    let spec = template.get("spec").unwrap_or(&Value::Null);
    if spec.is_null() { Ok(PodSpec::default()) } else { PodSpec::deserialize(spec).map_err(|error| error.to_string()) }
}

impl Shape {
    /// Reads the pods of a template in a namespace; `volumes` says that each brings its own.
    pub(super) fn new(spec: &PodSpec, template: &Value, namespace: &str, volumes: bool) -> Self {
        let labels = read_string_map(template.pointer("/metadata/labels"));
        let tolerations = Toleration::of_pod(spec);
        let affinity = spec.affinity.clone().unwrap_or_default();
        let anti = affinity.pod_anti_affinity.and_then(|anti| anti.required_during_scheduling_ignored_during_execution);
        let (own, other): (Vec<_>, Vec<_>) =
            anti.into_iter().flatten().partition(|term| keeps_itself_apart(term, &labels, namespace));
        let affine = affinity.pod_affinity.and_then(|own| own.required_during_scheduling_ignored_during_execution);
        let unknown = tolerations.iter().filter_map(Toleration::unknown_operator);
        let mut ignored: Vec<Ignored> =
            unknown.map(|operator| Ignored::TolerationOperator(operator.to_owned())).collect();
        for (is_there, what) in [
            (affine.is_some_and(|terms| !terms.is_empty()), Ignored::PodAffinity),
            (!other.is_empty(), Ignored::PodAntiAffinity),
            (spec.topology_spread_constraints.iter().flatten().next().is_some(), Ignored::TopologySpread),
            (
                volumes || spec.volumes.iter().flatten().any(|v| v.persistent_volume_claim.is_some()),
                Ignored::VolumeZones,
            ),
        ] {
            if is_there {
                ignored.push(what);
            }
        }
        ignored.sort();
        ignored.dedup();
        Self {
            requests: effective_requests(spec),
            tolerations,
            nodes: NodeSelector::new(spec),
            one_per_node: takes_host_port(spec) || !own.is_empty(),
            ignored,
        }
    }

    /// Number of bytes that its texts have.
    pub(super) fn shape_bytes(&self) -> usize {
        let requests = self.requests.iter().map(|(name, _)| name.len() + 8);
        let tolerations = self.tolerations.iter().map(Toleration::toleration_bytes);
        let ignored = self.ignored.iter().map(|one| one.name().len());
        requests.chain(tolerations).chain(ignored).sum::<usize>() + self.nodes.node_selector_bytes()
    }

    /// Returns the request of a resource; 0 if it asks for none.
    pub fn requested_amount(&self, resource: &str) -> i64 {
        self.requests.iter().find(|(name, _)| name == resource).map_or(0, |(_, amount)| *amount)
    }
}

/// The effective requests and one pod, in the order in which resources are compared and named.
fn effective_requests(spec: &PodSpec) -> Vec<(String, i64)> {
    let mut amounts = pod_requests(spec);
    amounts.insert("pods".to_owned(), 1000);
    let positive = amounts.into_iter().filter(|(_, amount)| *amount > 0);
    let mut all: Vec<(String, i64)> =
        positive.map(|(name, amount)| (name, i64::try_from(amount).unwrap_or(i64::MAX))).collect();
    all.sort_by(|(a, _), (b, _)| resource_order(a).cmp(&resource_order(b)));
    all
}

/// Returns the place of a resource in a list: cpu, memory, pods, then by name.
pub(crate) fn resource_order(name: &str) -> (usize, &str) {
    let first = ["cpu", "memory", "pods"];
    (first.iter().position(|one| *one == name).unwrap_or(first.len()), name)
}

fn takes_host_port(spec: &PodSpec) -> bool {
    let network = spec.host_network == Some(true);
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.any(|port| network || port.host_port.is_some_and(|port| port > 0))
}

/// Returns whether a term keeps pods with these labels off the nodes of one another.
fn keeps_itself_apart(term: &PodAffinityTerm, labels: &BTreeMap<String, String>, namespace: &str) -> bool {
    let selector = term.label_selector.as_ref().and_then(|selector| Selector::new(selector).ok());
    let namespaces = term.namespaces.iter().flatten().collect::<Vec<_>>();
    let own_namespace = match &term.namespace_selector {
        // Without a selector, an empty list is the pod's own namespace; an empty selector is every namespace.
        None => namespaces.is_empty() || namespaces.iter().any(|one| *one == namespace),
        Some(selector) => {
            namespaces.iter().any(|one| *one == namespace) || Selector::new(selector) == Ok(Selector::default())
        }
    };
    term.topology_key == HOSTNAME
        && own_namespace
        && selector.is_some_and(|selector| selector.matches_labels(|key| labels.get(key).map(String::as_str)))
}

/// Writes a shared shape as if it were owned.
#[expect(clippy::ref_option, reason = "what serde passes")]
pub(super) fn write<S: Serializer>(shape: &Option<Arc<Shape>>, serializer: S) -> Result<S::Ok, S::Error> {
    shape.as_deref().serialize(serializer)
}

/// Reads a shape that will be shared.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<Shape>>, D::Error> {
    Ok(Option::<Shape>::deserialize(deserializer)?.map(Arc::new))
}
