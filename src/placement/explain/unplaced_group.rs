//! The sentence for a group without a place: the clusters that have no room for it, or do not take it, and the next steps.

use std::collections::BTreeMap;

use super::rejected_clusters::{filter_position, format_rejections};
use crate::placement::decide::{Decision, Group};
use crate::placement::fleet::Fleet;
use crate::placement::matching::Policy;
use crate::placement::reason::Reason;

/// Returns the sentence for a group without any cluster: the reasons, and what can be done.
pub(super) fn format_no_cluster(policy: &Policy, group: &Group<'_>, fleet: &Fleet, decision: &Decision) -> String {
    let mut steps: Vec<String> = suggest_next_steps(policy, decision).into_iter().take(2).collect();
    if let Some(facts) = group.objects().next() {
        let namespace = match facts.key.namespace() {
            "" => String::new(),
            namespace => format!(" -n {namespace}"),
        };
        steps.push(format!("see fleetctl why {}/{}{namespace}", facts.key.kind().to_lowercase(), facts.key.name()));
    }
    let list = match format_rejections(&decision.rejected, true).as_str() {
        "" => String::new(),
        list => format!(": {list}"),
    };
    let next = match steps.as_slice() {
        [] => String::new(),
        [one] => format!(". Next: {one}"),
        [first @ .., last] => format!(". Next: {}, or {last}", first.join(", ")),
    };
    format!("0 of {} clusters{list}{next}", fleet.len())
}

/// Returns a step for each reason, that of the most frequent first, each once.
fn suggest_next_steps(policy: &Policy, decision: &Decision) -> Vec<String> {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (_, reason) in &decision.rejected {
        if let Some(step) = suggest_next_step(policy, reason) {
            let place = filter_position(reason);
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
        Reason::ApiMissing(api) => format!("make {api} available in a cluster"),
        Reason::NotReady => "make a cluster Ready".to_owned(),
        Reason::Excluded(_) => "wait until the scheduler tries the cluster again".to_owned(),
        Reason::Insufficient { resource, .. } => format!("free {resource}"),
        Reason::NoNodeMatches(_) => "add nodes with the labels that the pods require".to_owned(),
        Reason::NodeLabelsUnknown(_) => "upgrade the agent, or use node labels with fewer values".to_owned(),
        Reason::TooFewNodes(_) => "add nodes".to_owned(),
        Reason::Fragmented(_) => "add a larger node, or lower the requests of a pod".to_owned(),
    })
}
