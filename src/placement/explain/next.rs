//! Steps that can be taken for a group that has no place.

use std::collections::BTreeMap;

use crate::placement::decide::Decision;
use crate::placement::matching::Policy;
use crate::placement::reason::Reason;

/// Returns a step for each reason, that of the most frequent first, each once.
pub(super) fn suggest_next_steps(policy: &Policy, decision: &Decision) -> Vec<String> {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (_, reason) in &decision.rejected {
        if let Some(step) = suggest_next_step(policy, reason) {
            let place = super::clusters::filter_position(reason);
            counts.entry(step).or_insert((0, place)).0 += 1;
        }
    }
    let mut steps: Vec<(String, (usize, usize))> = counts.into_iter().collect();
    steps.sort_by_key(|(_, (count, place))| (std::cmp::Reverse(*count), *place));
    steps.into_iter().map(|(step, _)| step).collect()
}

fn suggest_next_step(policy: &Policy, reason: &Reason) -> Option<String> {
    let name = &policy.name;
    Some(match reason {
        Reason::Leaving | Reason::Tight => return None,
        Reason::NotAccepted => "accept the cluster".to_owned(),
        Reason::SelectorMismatch => format!("widen clusterSelector of policy {name:?}"),
        Reason::VolumeElsewhere => "place it in the cluster of its volumes, or allow volumes to move".to_owned(),
        Reason::NotOrdered => format!("add a value to orderedClusterSelector of policy {name:?}"),
        Reason::NoTopologyLabel => {
            let key = policy.spec.spread_constraints.as_ref().map(|spread| spread.topology_key.as_str());
            format!("give the cluster the label {}", key.unwrap_or_default())
        }
        Reason::Tainted(_) => format!("add clusterTolerations to policy {name:?}"),
        Reason::ApiMissing(api) => format!("serve {api} in a cluster"),
        Reason::NotReady => "make a cluster Ready".to_owned(),
        Reason::Excluded(_) => "wait until the cluster is retried".to_owned(),
        Reason::Insufficient { resource, .. } => format!("free {resource}"),
        Reason::NoNodeMatches(_) => "add nodes with the labels that the pods require".to_owned(),
        Reason::NodeLabelsUnknown(_) => "let the agent report the labels that the pods require".to_owned(),
        Reason::TooFewNodes(_) => "add nodes".to_owned(),
        Reason::Fragmented(_) => "add a larger node, or lower the requests of a pod".to_owned(),
    })
}
