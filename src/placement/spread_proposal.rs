//! What the rules say of a spread group that moves by its record: its shares, and the cause for which one leaves.
//!
//! A share that changes where nothing leaves is no move: the record takes the new shares at once, and a share that falls does
//! so only when enough is available elsewhere.

use std::collections::BTreeSet;

use super::copy::Share;
use super::decide::{Current, Decision, How, Mode, Outcome, Target, allowed_clusters, decide_group};
use super::facts::{Facts, Workload};
use super::fleet::Fleet;
use super::live;
use super::matching::Policy;
use super::moves::{ClusterAmounts, MoveCause, MoveRecord, ScaledShares, SeenDecision};
use super::proposal::{Proposal, RecordedGroup, is_placement_edited, list_excluded_clusters, read_group_record};
use super::reason::Reason;
use crate::api::{Cluster, Schedule, ScheduleGroupStatus};

/// Returns whether an object asks for a number of replicas.
pub fn has_replicas(facts: &&Facts) -> bool {
    matches!(facts.workload, Workload::Replicas(_))
}

/// Returns whether a copy has a share of the replicas.
pub fn has_own_share(copy: &Schedule) -> bool {
    copy.spec.share.as_ref().is_some_and(|share| share.replicas.is_some())
}

/// Returns the member whose replicas a policy divides.
pub fn find_divided_member<'f>(policy: &Policy, mut members: impl Iterator<Item = &'f Facts>) -> Option<&'f Facts> {
    if policy.divides() { members.find(has_replicas) } else { None }
}

/// Returns whether a spread group can move by its record: an amount for each cluster says all of its shares. Several divided
/// members have more, an autoscaler sets replicas in each cluster, and what runs once has a place of its own.
pub fn spread_moves_by_record<'f>(policy: &Policy, members: impl Iterator<Item = &'f Facts> + Clone) -> bool {
    (policy.duplicates() || members.clone().filter(has_replicas).count() <= 1)
        && !members.clone().any(|facts| {
            let is_scaled =
                facts.scales.as_ref().is_some_and(|scales| members.clone().any(|member| scales.is_target(&member.key)));
            facts.workload.is_stopped_first() || is_scaled
        })
}

/// Returns the pods of a divided member; 0 without one.
pub fn divided_pods(divided: Option<&Facts>) -> i64 {
    divided.map_or(0, |facts| facts.workload.pods_at_once())
}

/// Returns the amount of each target: its pods of what is divided, else 1.
pub fn target_amounts(targets: &[Target]) -> ClusterAmounts {
    targets.iter().map(|target| (target.cluster.clone(), target.divided_pods().unwrap_or(1))).collect()
}

fn sum_amounts(amounts: &ClusterAmounts) -> i64 {
    amounts.values().fold(0, |sum, amount| sum.saturating_add(*amount))
}

fn is_one_whole(amounts: &ClusterAmounts) -> bool {
    amounts.len() <= 1 && amounts.values().all(|amount| *amount == 1)
}

/// Returns a record whose amounts are those of its policy: one that was written when the group was spread, or was not,
/// says other amounts, and is written again after its copies. `find_copy` finds the copy of what is divided.
fn fit_record<'s>(
    mut record: MoveRecord,
    (is_spread, divided): (bool, Option<&Facts>),
    find_copy: impl Fn(&str) -> Option<&'s Schedule>,
) -> MoveRecord {
    // One whole copy, of which the shares of a divided group say nothing.
    let is_unshared = |cluster: &String| {
        divided.is_some() && divided_pods(divided) != 1 && !find_copy(cluster).is_none_or(has_own_share)
    };
    let fits = |amounts: &ClusterAmounts| {
        // Each of the copies to all clusters is whole: their amounts are no shares.
        let is_copied_to_all =
            amounts.len() > 1 && amounts.iter().all(|(cluster, amount)| *amount == 1 && is_unshared(cluster));
        !is_copied_to_all && (is_one_whole(amounts) != is_spread || (is_spread && !amounts.keys().any(is_unshared)))
    };
    let sides_fit = record.running.as_ref().is_none_or(|running| fits(&running.from) && fits(&running.to));
    if !fits(&record.target) || !sides_fit {
        (record.running, record.target) = (None, ClusterAmounts::new());
    }
    record
}

/// Reads the record of a group under a policy.
pub fn read_fitting_record<'s>(
    status: Option<&ScheduleGroupStatus>,
    policy: &Policy,
    divided: Option<&Facts>,
    find_copy: impl Fn(&str) -> Option<&'s Schedule>,
) -> MoveRecord {
    let is_spread = policy.spec.spread_constraints.is_some();
    if !is_spread {
        return fit_record(read_group_record(status), (false, None), find_copy);
    }
    // Where no record was made, its copies say the shares.
    fit_record(status.map(|status| status.record.clone()).unwrap_or_default(), (true, divided), find_copy)
}

/// Returns what would be decided of a spread group; in a move, as if it still had its old shares.
pub(super) fn propose_for_spread_group<'c>(
    one: RecordedGroup<'_>,
    fleet: &Fleet,
    find_cluster: impl Fn(&str) -> Option<&'c Cluster>,
) -> Proposal {
    let RecordedGroup { policy, group, status, record, mut current, is_rebalance_asked, now, .. } = one;
    let here = record.running.as_ref().map_or(&record.target, |running| &running.from);
    let divided = find_divided_member(policy, group.objects());
    if !here.is_empty() {
        current.targets = recorded_targets(policy, here, divided, &current, fleet);
    }
    let began = record.running.as_ref().map(|running| running.cause).or(record.retry.map(|retry| retry.cause));
    let is_asked = record.running.is_none() && is_rebalance_asked;
    current.mode = match began {
        Some(MoveCause::Rebalance) => Mode::Rebalance,
        _ if is_asked => Mode::Rebalance,
        Some(MoveCause::Policy) => Mode::PolicyEdit,
        _ => current.mode,
    };
    current.excluded = list_excluded_clusters(record, now, &find_cluster);
    let leaves_at: Vec<(&String, Option<i64>)> =
        here.keys().map(|cluster| (cluster, find_failover_time(policy, now, find_cluster(cluster)))).collect();
    let lost: BTreeSet<&String> =
        leaves_at.iter().filter(|(_, at)| at.is_some_and(|at| at <= now)).map(|(cluster, _)| *cluster).collect();
    let mut decision = decide_group(policy, group, fleet, &current);
    let may_try = record.retry.is_none_or(|retry| retry.not_before <= now);
    if decision.targets == current.targets && !current.excluded.is_empty() && may_try {
        current.excluded.clear();
        decision = decide_group(policy, group, fleet, &current);
    }
    if !lost.is_empty() {
        let mut without = Current { mode: Mode::Failover, ..current.clone() };
        without.excluded.extend(lost.iter().map(|cluster| ((*cluster).clone(), "because it is lost".to_owned())));
        let moved = decide_group(policy, group, fleet, &without);
        // What has no room elsewhere may still run in a cluster that nobody reaches.
        if moved.scheduled && moved.withheld <= decision.withheld {
            (decision, current) = (moved, without);
        }
    }
    let pods = divided_pods(divided);
    let mut best = target_amounts(&decision.targets);
    let is_less = divided.is_some() && sum_amounts(&best) < sum_amounts(here).min(pods);
    let is_less = is_less && current.mode != Mode::PolicyEdit && decision.scheduled;
    if is_less {
        // What finds no room elsewhere stays where it runs.
        decision = keep_targets(decision, current.targets.clone());
        best.clone_from(here);
    }
    let mut cause =
        find_spread_cause(policy, fleet, here, (&decision, &current), &best, |name| find_cluster(name).is_some());
    if record.running.is_some() {
        cause = cause.filter(|cause| *cause != MoveCause::Scale);
    } else if (is_less || cause.is_some_and(leaves_share) && decision.withheld == 0)
        && divided.is_some()
        && sum_amounts(here) != pods
    {
        // What waits for its move is scaled where it is.
        cause = Some(MoveCause::Scale);
        best = scale_amounts(here, pods);
    }
    let scaled = match &record.running {
        None => {
            (cause == Some(MoveCause::Scale)).then(|| ScaledShares { to: best.clone(), from: ClusterAmounts::new() })
        }
        Some(running) if divided.is_some() && sum_amounts(&running.to) != pods => {
            let targets = recorded_targets(policy, &running.to, divided, &current, fleet);
            let from_new = Current { targets, mode: Mode::Routine, ..current.clone() };
            let to = target_amounts(&decide_group(policy, group, fleet, &from_new).targets);
            Some(ScaledShares { to, from: scale_amounts(&running.from, pods) })
        }
        Some(_) => None,
    };
    let seen = SeenDecision {
        cause,
        best,
        wanted: match record.running {
            Some(_) => allowed_clusters(policy, group, fleet, &current),
            None => BTreeSet::new(),
        },
        scaled,
        renewed: (is_placement_edited(policy, status) || is_asked) && record.retry.is_some(),
    };
    let leaves_at = leaves_at.into_iter().filter_map(|(_, at)| at).min();
    Proposal { seen, decision, current, leaves_at }
}

/// Returns when a policy lets a group leave a cluster that is lost.
fn find_failover_time(policy: &Policy, now: i64, cluster: Option<&Cluster>) -> Option<i64> {
    let since = live::lost_since(cluster?, now)?;
    Some(since.saturating_add(policy.failover_seconds()?))
}

fn leaves_share(cause: MoveCause) -> bool {
    matches!(cause, MoveCause::Drain | MoveCause::Leaving | MoveCause::Failover | MoveCause::Label)
}

/// Returns the decision that leaves a group where it is, for want of room.
fn keep_targets(decision: Decision, targets: Vec<Target>) -> Decision {
    Decision {
        scheduled: false,
        outcome: Outcome::NoFit,
        how: Some(How::KeptUntilPlaced),
        targets,
        withheld: 0,
        moving_from: Vec::new(),
        ..decision
    }
}

/// Returns the targets that a record says, in the clusters that exist.
fn recorded_targets(
    policy: &Policy,
    here: &ClusterAmounts,
    divided: Option<&Facts>,
    current: &Current,
    fleet: &Fleet,
) -> Vec<Target> {
    let label = policy.spec.spread_constraints.as_ref().map(|spread| spread.topology_key.as_str()).unwrap_or_default();
    let there = here.iter().filter_map(|(name, amount)| Some((fleet.get(name)?, amount)));
    there
        .map(|(cluster, amount)| {
            let known = current.targets.iter().find(|target| target.cluster == *cluster.name);
            let known = known.and_then(|target| target.domain.clone());
            Target {
                cluster: cluster.name.to_string(),
                domain: known.or_else(|| cluster.find_label(label).map(ToOwned::to_owned)),
                replicas: divided.iter().map(|facts| (facts.key.clone(), Share::Replicas(*amount))).collect(),
                whole: Vec::new(),
            }
        })
        .collect()
}

/// Returns amounts in the same proportion that are so many in all.
fn scale_amounts(amounts: &ClusterAmounts, pods: i64) -> ClusterAmounts {
    let sum: i128 = amounts.values().map(|amount| i128::from(*amount)).sum();
    let count = i128::try_from(amounts.len()).unwrap_or(1).max(1);
    let part = amounts.values().map(|amount| match sum {
        0 => i128::from(pods) / count,
        _ => i128::from(*amount) * i128::from(pods) / sum,
    });
    let mut scaled: ClusterAmounts =
        amounts.keys().cloned().zip(part.map(|part| i64::try_from(part).unwrap_or(0))).collect();
    let mut left = pods - scaled.values().sum::<i64>();
    for amount in scaled.values_mut().filter(|_| pods > 0) {
        // Rounding down leaves less than one for each.
        let more = left.clamp(0, 1);
        (*amount, left) = (*amount + more, left - more);
    }
    scaled
}

/// Returns the cause for which a share leaves a cluster, or changes. Where nothing grows nothing is waited for, so that is no
/// move: what nobody wants goes when the rest serves.
fn find_spread_cause(
    policy: &Policy,
    fleet: &Fleet,
    here: &ClusterAmounts,
    (decision, current): (&Decision, &Current),
    best: &ClusterAmounts,
    exists: impl Fn(&str) -> bool,
) -> Option<MoveCause> {
    if here.keys().any(|cluster| !exists(cluster)) {
        return Some(MoveCause::Lost);
    }
    if here.is_empty() || best == here {
        return None;
    }
    let grows = best.iter().any(|(cluster, amount)| here.get(cluster).is_none_or(|had| had < amount));
    let shrinks = here.iter().any(|(cluster, had)| best.get(cluster).is_none_or(|amount| amount < had));
    let left: Vec<&String> = here.keys().filter(|cluster| !best.contains_key(*cluster)).collect();
    if !grows || !shrinks || (left.is_empty() && matches!(current.mode, Mode::Routine | Mode::Failover)) {
        return Some(MoveCause::Scale);
    }
    let known: Vec<_> = left.iter().filter_map(|cluster| fleet.get(cluster)).collect();
    Some(match () {
        () if known.iter().any(|cluster| cluster.leaving) => MoveCause::Leaving,
        () if known.iter().any(|cluster| live::is_drained_for(policy, cluster)) => MoveCause::Drain,
        () if current.mode == Mode::Failover => MoveCause::Failover,
        () if current.mode == Mode::PolicyEdit => MoveCause::Policy,
        () if current.mode == Mode::Rebalance => MoveCause::Rebalance,
        () if left.iter().any(|cluster| is_unlabelled(decision, cluster)) => MoveCause::Label,
        () => MoveCause::Scale,
    })
}

/// Returns whether a cluster has lost a label by which it was chosen.
fn is_unlabelled(decision: &Decision, cluster: &str) -> bool {
    let reason = decision.rejected.iter().find(|(name, _)| **name == *cluster).map(|(_, reason)| reason);
    matches!(reason, Some(Reason::SelectorMismatch | Reason::NotOrdered | Reason::NoTopologyLabel))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(all: &[(&str, i64)]) -> ClusterAmounts {
        all.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
    }

    #[test]
    fn scaled_amounts_are_all_that_is_asked_for() {
        let three = amounts(&[("a", 5), ("b", 3), ("c", 1)]);
        for (pods, scaled) in [(9, [5, 3, 1]), (4, [3, 1, 0]), (0, [0, 0, 0]), (18, [10, 6, 2])] {
            assert_eq!(scale_amounts(&three, pods).into_values().collect::<Vec<_>>(), scaled, "{pods}");
        }
        assert_eq!(scale_amounts(&amounts(&[("a", 0), ("b", 0)]), 3), amounts(&[("a", 2), ("b", 1)]));
    }
}
