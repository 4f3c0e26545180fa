//! Nodes and pods, reduced to what the inventory needs, and what is free on each node.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;

use super::pods::pod_owner;
use crate::api::crd::cluster::{NodeResources, Taint};
use crate::api::quantity::{Milli, format_quantity};
pub use crate::placement::pods::Amounts;
use crate::placement::pods::{add_amounts, parse_amounts, pod_requests};

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Provider ID: `aws:///eu-west-1a/i-1`.
    pub provider_id: String,
    /// Its labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Capacity.
    pub capacity: BTreeMap<String, String>,
    /// Allocatable resources.
    pub allocatable: Amounts,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Ready, not cordoned, not being deleted.
    pub usable: bool,
}

/// A pod that is bound to a node and not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// Its node.
    pub node: String,
    /// UID of its controller; its own where it has none.
    pub owner: String,
    /// Effective requests.
    pub requests: Amounts,
}

/// Returns the facts of a node.
pub fn node_facts(node: &Node) -> NodeFacts {
    let spec = node.spec.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let taints = spec.taints.unwrap_or_default().into_iter();
    let capacity = status.capacity.unwrap_or_default().into_iter().map(|(name, q)| (name, q.0));
    NodeFacts {
        provider_id: spec.provider_id.unwrap_or_default(),
        labels: Arc::new(node.labels().clone()),
        capacity: capacity.collect(),
        allocatable: parse_amounts(status.allocatable.as_ref()),
        taints: taints.map(|t| Taint { key: t.key, value: t.value.unwrap_or_default(), effect: t.effect }).collect(),
        usable: ready && spec.unschedulable != Some(true) && node.metadata.deletion_timestamp.is_none(),
    }
}

/// Returns the facts of a pod; `None` if it takes nothing from any node.
pub fn pod_facts(pod: &Pod) -> Option<PodFacts> {
    let spec = pod.spec.as_ref()?;
    let node = spec.node_name.clone().filter(|n| !n.is_empty())?;
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default();
    (!["Succeeded", "Failed"].contains(&phase)).then(|| PodFacts {
        node,
        owner: pod_owner(pod),
        requests: pod_requests(spec),
    })
}

/// Returns the free resources by node: allocatable less the requests of its pods; nothing on a node that takes no pods.
pub fn available_by_node<'a>(
    nodes: &BTreeMap<String, NodeFacts>,
    pods: impl Iterator<Item = &'a PodFacts>,
) -> BTreeMap<String, Amounts> {
    let mut used: BTreeMap<&str, Amounts> = BTreeMap::new();
    let mut count: BTreeMap<&str, Milli> = BTreeMap::new();
    for pod in pods {
        add_amounts(used.entry(&pod.node).or_default(), &pod.requests);
        *count.entry(&pod.node).or_default() += 1000;
    }
    let free = nodes.iter().map(|(name, node)| {
        let amounts = node.allocatable.iter().map(|(resource, has)| {
            let taken = match resource.as_str() {
                "pods" => count.get(name.as_str()).copied().unwrap_or(0),
                _ => used.get(name.as_str()).and_then(|used| used.get(resource)).copied().unwrap_or(0),
            };
            (resource.clone(), if node.usable { (has - taken).max(0) } else { 0 })
        });
        (name.clone(), amounts.collect())
    });
    free.collect()
}

/// Amounts as the Cluster's status holds them.
pub fn format_amounts(amounts: &BTreeMap<String, Amounts>) -> NodeResources {
    let formatted = amounts.iter().map(|(node, values)| {
        let values = values.iter().map(|(name, value)| (name.clone(), format_quantity(name, *value)));
        (node.clone(), values.collect())
    });
    formatted.collect()
}

/// The sums over all nodes.
pub fn format_totals(amounts: &BTreeMap<String, Amounts>) -> BTreeMap<String, String> {
    let mut sum = Amounts::new();
    for values in amounts.values() {
        add_amounts(&mut sum, values);
    }
    sum.into_iter()
        .map(|(name, value)| {
            let text = format_quantity(&name, value);
            (name, text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value, phase: &str) -> Option<PodFacts> {
        let mut spec = spec;
        spec["nodeName"] = json!("n");
        if spec.get("containers").is_none() {
            spec["containers"] = json!([]);
        }
        pod_facts(
            &serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec, "status": { "phase": phase } }))
                .unwrap(),
        )
    }

    fn container(cpu: &str) -> Value {
        json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } })
    }

    fn sidecar(cpu: &str) -> Value {
        let mut value = container(cpu);
        value["restartPolicy"] = json!("Always");
        value
    }

    fn cpu(spec: Value) -> Milli {
        pod(spec, "Running").unwrap().requests["cpu"]
    }

    #[test]
    fn init_containers_raise_requests() {
        assert_eq!(cpu(json!({ "containers": [container("1"), container("500m")] })), 1500);
        assert_eq!(cpu(json!({ "containers": [container("1")], "initContainers": [container("3")] })), 3000);
        assert_eq!(cpu(json!({ "containers": [container("1")], "initContainers": [sidecar("1")] })), 2000);
        let mixed =
            json!({ "containers": [container("1")], "initContainers": [sidecar("1"), container("3"), sidecar("1")] });
        assert_eq!(cpu(mixed), 4000, "an init container starts beside the sidecars before it");
    }

    #[test]
    fn pod_level_requests_replace_containers() {
        let whole = json!({
            "containers": [container("1")],
            "resources": { "requests": { "cpu": "5" } },
            "overhead": { "cpu": "250m" },
        });
        assert_eq!(cpu(whole), 5250);
    }

    #[test]
    fn finished_and_unbound_pods_are_ignored() {
        assert!(pod(json!({ "containers": [container("1")] }), "Succeeded").is_none());
        assert!(pod(json!({ "containers": [container("1")] }), "Failed").is_none());
        let unbound: Pod = serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": [] } })).unwrap();
        assert!(pod_facts(&unbound).is_none());
    }

    fn node(ready: &str, change: impl FnOnce(&mut Value)) -> NodeFacts {
        let mut value = json!({
            "metadata": { "name": "n" },
            "spec": {},
            "status": {
                "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "1" },
                "capacity": { "cpu": "4" },
                "conditions": [{ "type": "Ready", "status": ready }],
            },
        });
        change(&mut value);
        node_facts(&serde_json::from_value(value).unwrap())
    }

    fn free(node: NodeFacts) -> BTreeMap<String, String> {
        let pods = [pod(json!({ "containers": [container("1500m")] }), "Running").unwrap()];
        format_amounts(&available_by_node(&[("n".to_owned(), node)].into(), pods.iter())).remove("n").unwrap()
    }

    #[test]
    fn what_is_free_is_what_the_pods_leave() {
        let expected = [("cpu", "2500m"), ("memory", "8388608Ki"), ("nvidia.com/gpu", "1"), ("pods", "109")];
        assert_eq!(free(node("True", |_| {})), expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into());
    }

    #[test]
    fn an_unusable_node_has_nothing_free() {
        let none: &[NodeFacts] = &[
            node("False", |_| {}),
            node("Unknown", |_| {}),
            node("True", |n| n["spec"]["unschedulable"] = json!(true)),
            node("True", |n| n["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
        ];
        for node in none {
            assert!(free(node.clone()).values().all(|v| v == "0"));
        }
    }
}
