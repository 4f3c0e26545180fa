//! Pods by their owners: what copies need to say how many of their pods found a node, and since when one has not.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

/// A pod without a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnboundPod {
    /// UID of its controller; its own where it has none.
    pub owner: String,
    /// Time since which the scheduler has found no node for it.
    pub unschedulable_since: Option<Timestamp>,
}

/// Number of pods by UID of their controller, or by their own.
pub type PodsByOwner = BTreeMap<String, i64>;

/// Pods by owner at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnedPods {
    /// Those with a node.
    pub bound: PodsByOwner,
    /// Those without one: their number, and the earliest time since which one is unschedulable.
    pub unbound: BTreeMap<String, (i64, Option<Timestamp>)>,
    /// Those in the inventory that was published last; `None` until one was.
    pub published: Option<Arc<PodsByOwner>>,
    /// Those that are not ready, each with the UID of its controller.
    pub unready: Vec<(String, Arc<Pod>)>,
}

/// Returns the UID of a pod's controller, or its own.
pub fn pod_owner(pod: &Pod) -> String {
    let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    controller.map_or_else(|| pod.uid().unwrap_or_default(), |owner| owner.uid.clone())
}

/// Returns the facts of a pod without a node; `None` for one that has a node, or is over.
pub fn unbound_pod(pod: &Pod) -> Option<UnboundPod> {
    let is_bound = pod.spec.as_ref()?.node_name.as_ref().is_some_and(|node| !node.is_empty());
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if is_bound || ["Succeeded", "Failed"].contains(&phase) {
        return None;
    }
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let mut unschedulable = conditions.filter(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    let since = unschedulable.find_map(|condition| condition.last_transition_time.as_ref()).map(|time| time.0);
    Some(UnboundPod { owner: pod_owner(pod), unschedulable_since: since })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value, status: Value) -> Option<UnboundPod> {
        let owners = json!([{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": "no" },
            { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "set", "controller": true }]);
        let mut spec = spec;
        spec["containers"] = json!([]);
        let pod = json!({ "metadata": { "uid": "own", "ownerReferences": owners }, "spec": spec, "status": status });
        unbound_pod(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_without_a_node_has_an_owner_and_a_time() {
        let refused = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
        let found = pod(json!({}), refused).unwrap();
        assert_eq!((found.owner.as_str(), found.unschedulable_since.unwrap().as_second()), ("set", 1_767_225_600));
        assert_eq!(pod(json!({}), json!({})).unwrap().unschedulable_since, None);
        let gated =
            json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }] });
        assert_eq!(pod(json!({}), gated).unwrap().unschedulable_since, None);
        assert_eq!(pod(json!({ "nodeName": "n" }), json!({})), None);
        assert_eq!(pod(json!({}), json!({ "phase": "Failed" })), None);
    }
}
