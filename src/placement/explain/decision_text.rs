//! The sentence of a decision: where a group is placed, or stays, and why.

use super::rejected_clusters::format_rejections;
use super::unplaced_group::format_no_cluster;
use super::{quote_names, shorten_event_text};
use crate::placement::copy::Share;
use crate::placement::decide::{Decision, Group, How, LARGEST_GROUP, Outcome, Target};
use crate::placement::fleet::Fleet;
use crate::placement::matching::Policy;

/// Returns the sentence of a decision, for the event, the condition Scheduled and the command line.
pub fn format_decision(policy: &Policy, group: &Group<'_>, fleet: &Fleet, decision: &Decision) -> String {
    let prefix = if decision.suspended { "Suspended; otherwise: " } else { "" };
    let text = match (decision.outcome, decision.how) {
        (Outcome::GroupTooLarge, _) => {
            format!("The group has {} members; at most {} can be placed together", group.len(), LARGEST_GROUP)
        }
        (Outcome::HasVolumes, _) => {
            "Not placed again: its cluster was deleted or is leaving, and its volumes cannot be moved. Next: register \
             the cluster again under the same name, or set the annotation fleet-scheduler.io/allow-volume-move: \
             \"true\" on the claims to start elsewhere with empty volumes"
                .to_owned()
        }
        (_, Some(How::KeptUntilPlaced)) => {
            let names = quote_names(decision.targets.iter().map(|target| &target.cluster));
            format!(
                "Stays on {names} until another cluster is found; {}",
                format_no_cluster(policy, group, fleet, decision)
            )
        }
        (Outcome::NoFit | Outcome::NoCandidates, _) => format_no_cluster(policy, group, fleet, decision),
        (_, Some(How::Divide | How::Duplicate)) => format_spread(decision),
        _ => format_single_cluster(decision),
    };
    shorten_event_text(format!("{prefix}{text}"))
}

/// Returns the sentence for a group in one cluster.
fn format_single_cluster(decision: &Decision) -> String {
    let cluster = quote_names(decision.targets.iter().map(|target| &target.cluster));
    let not = match format_rejections(&decision.rejected, false).as_str() {
        "" => String::new(),
        list => format!(". {} rejected: {list}", decision.rejected.len()),
    };
    let from = match decision.moving_from.as_slice() {
        [] => String::new(),
        names => format!(", from {}", quote_names(names)),
    };
    let text = match decision.how {
        None | Some(How::Kept) => format!("Stays on {cluster}"),
        Some(How::Volumes) => format!("Stays on {cluster}: its volumes cannot be moved"),
        Some(How::Started) => format!("Stays on {cluster}: it has started and would start again elsewhere"),
        Some(How::Outgrown) => {
            format!(
                "Stays on {cluster}, although it no longer fits there: no other cluster has room for the whole group, \
                 and some pods may stay Pending"
            )
        }
        Some(How::Tight) => {
            format!("Placed on {cluster}{from}, where it fits only if tightly packed: no other cluster has room")
        }
        Some(How::Autoscaled) => format!("Placed on {cluster}{from}, which adds nodes: no cluster has room now"),
        Some(How::Standby) => {
            format!("Placed on {cluster}{from}, which is woken from standby: no active cluster has room")
        }
        _ => {
            let why = decision.chosen.as_ref().and_then(|chosen| {
                let (resource, left) = chosen.scarcest.as_ref()?;
                Some(format!(
                    ": most free {resource} ({} %), clusters with room: {}",
                    left.as_percent(),
                    chosen.with_room
                ))
            });
            format!("Placed on {cluster}{from}{}", why.unwrap_or_default())
        }
    };
    text + &not
}

/// Returns what a target runs of everything that is divided.
fn format_target_shares(target: &Target) -> String {
    let shares = target.replicas.values().map(|share| match share {
        Share::Replicas(replicas) => replicas.to_string(),
        Share::Job { completions, .. } => format!("{completions} completions"),
    });
    shares.collect::<Vec<_>>().join(" + ")
}

/// Returns the sentence for a group over several domains.
fn format_spread(decision: &Decision) -> String {
    let targets: Vec<String> = decision
        .targets
        .iter()
        .map(|target| match format_target_shares(target).as_str() {
            "" => format!("{:?}", target.cluster),
            shares => format!("{shares} on {:?}", target.cluster),
        })
        .collect();
    let verb = if decision.how == Some(How::Duplicate) { "Copied to" } else { "Divided:" };
    let mut text = format!("{verb} {}", targets.join(", "));
    if !decision.moving_from.is_empty() {
        text.push_str(&format!(", from {}", quote_names(&decision.moving_from)));
    }
    if decision.withheld > 0 {
        text.push_str(&format!(". Withheld: {}", decision.withheld));
    }
    if !decision.domains.is_empty() {
        let missing: Vec<String> =
            decision.domains.iter().map(|(value, why)| format!("{value:?} {}", why.code())).collect();
        text.push_str(&format!(". Domains without a cluster: {}", missing.join(", ")));
    }
    match format_rejections(&decision.rejected, false).as_str() {
        "" => text,
        list => format!("{text}. {} rejected: {list}", decision.rejected.len()),
    }
}
