//! What the rules say of a group that moves by its record: where it would be best, and the cause for which it moves.

use std::collections::{BTreeMap, BTreeSet};

use super::decide::{Current, Decision, Group, How, Mode, Target, allowed_clusters, decide_group};
use super::facts::Facts;
use super::fleet::Fleet;
use super::follow::is_follower;
use super::live;
use super::matching::Policy;
use super::moves::{ClusterAmounts, ExclusionReason, MoveCause, MoveRecord, SeenDecision};
use super::reason::Reason;
use super::spread_proposal::propose_for_spread_group;
use super::stuck::Stuck;
use crate::api::{Cluster, Schedule, ScheduleGroupStatus};

/// A group, as it is seen when something is proposed for it.
#[derive(Clone)]
pub struct RecordedGroup<'a> {
    /// Policy that decides about it.
    pub policy: &'a Policy,
    /// The group.
    pub group: &'a Group<'a>,
    /// Its status, where it has one.
    pub status: Option<&'a ScheduleGroupStatus>,
    /// Its record.
    pub record: &'a MoveRecord,
    /// What its copies say, with what claims leave it and whether it asks for more. Its targets are those of its record.
    pub current: Current,
    /// Why a member does not run where the group is.
    pub stuck: Option<Stuck>,
    /// Somebody has asked for a better place since it was last decided.
    pub is_rebalance_asked: bool,
    /// The present time, in seconds.
    pub now: i64,
}

/// What would be decided of a group.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The decision, as the move machine sees it.
    pub seen: SeenDecision,
    /// The whole decision.
    pub decision: Decision,
    /// Where the group was taken to be.
    pub current: Current,
    /// When it leaves its cluster, because that is lost.
    pub leaves_at: Option<i64>,
}

/// Returns the record of a group; where none was made, the one cluster where it was decided to be.
pub fn read_group_record(status: Option<&ScheduleGroupStatus>) -> MoveRecord {
    let Some(status) = status else { return MoveRecord::default() };
    let mut record = status.record.clone();
    if let ([one], true, None) = (&status.target_clusters[..], record.target.is_empty(), &record.running) {
        record.target = ClusterAmounts::from([(one.clone(), 1)]);
    }
    record
}

/// Returns whether a member can move by the record of its group. What its data keeps and what follows others cannot; nor can
/// what an agent of an earlier version runs, which says nothing of epochs, so that no move would end.
pub fn moves_by_record<'s>(facts: &Facts, is_held: bool, mut copies: impl Iterator<Item = &'s Schedule>) -> bool {
    !is_held
        && !is_follower(&facts.key)
        && !copies.any(|schedule| {
            schedule.status.as_ref().is_some_and(|status| status.observed_hash.is_some() && status.epoch.is_none())
        })
}

/// Returns the amounts of clusters that are not divided.
pub fn whole_amounts<'a>(clusters: impl IntoIterator<Item = &'a str>) -> ClusterAmounts {
    clusters.into_iter().map(|cluster| (cluster.to_owned(), 1)).collect()
}

/// Returns the name of a cause as its record holds it.
pub fn cause_text(cause: MoveCause) -> String {
    serde_json::to_value(cause).ok().and_then(|value| value.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}

/// Returns the names of the clusters of a side.
pub fn side_text(side: &ClusterAmounts) -> String {
    side.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Returns what is said of a group that would leave `from`, but stays because most clusters were lost at once.
pub fn format_frozen(from: &ClusterAmounts, cause: MoveCause) -> String {
    let (from, cause) = (side_text(from), cause_text(cause));
    format!(
        "Stays on {from}: it would move ({cause}), but most clusters were lost at once; nothing moves until they are back"
    )
}

/// Returns the clusters that a group leaves out now, each with why. Another cluster of the same name is not left out.
pub fn list_excluded_clusters<'c>(
    record: &MoveRecord,
    now: i64,
    find_cluster: impl Fn(&str) -> Option<&'c Cluster>,
) -> BTreeMap<String, String> {
    let excluded = record.excluded.iter().filter(|one| {
        let uid = find_cluster(&one.cluster).and_then(|cluster| cluster.metadata.uid.as_ref());
        one.until > now && uid == Some(&one.uid)
    });
    excluded.map(|one| (one.cluster.clone(), exclusion_text(one.reason).to_owned())).collect()
}

/// Returns why a cluster is left out, as reasons of clusters say it.
fn exclusion_text(reason: ExclusionReason) -> &'static str {
    match reason {
        ExclusionReason::MoveFailed => "because a move there failed",
        ExclusionReason::Unschedulable => "because pods were unschedulable there",
        ExclusionReason::KindNotServed => "because it does not serve a kind",
    }
}

/// Returns what would be decided of a group; in a move, as if it were still on its old side. `find_cluster` finds the
/// clusters that exist.
pub fn propose_for_group<'c>(
    one: RecordedGroup<'_>,
    fleet: &Fleet,
    find_cluster: impl Fn(&str) -> Option<&'c Cluster>,
) -> Proposal {
    if one.policy.spec.spread_constraints.is_some() {
        return propose_for_spread_group(one, fleet, find_cluster);
    }
    let RecordedGroup { policy, group, status, record, mut current, stuck, is_rebalance_asked, now } = one;
    let here = record.running.as_ref().map_or(&record.target, |running| &running.from);
    let targets = here.keys().filter(|cluster| find_cluster(cluster).is_some());
    current.targets = targets.map(|cluster| Target::without_shares(cluster)).collect();
    // What began a move, or failed, is no longer seen in what was decided last.
    let cause = record.running.as_ref().map(|running| running.cause).or(record.retry.map(|retry| retry.cause));
    let is_asked = record.running.is_none() && is_rebalance_asked;
    let lost_since = here.keys().next().and_then(|cluster| live::lost_since(find_cluster(cluster)?, now));
    let leaves_at = lost_since.and_then(|since| Some(since.saturating_add(policy.failover_seconds()?)));
    let is_lost = leaves_at.is_some_and(|at| at <= now);
    current.mode = match cause {
        // What is not served, or lost, is left whatever else may keep it.
        _ if is_lost || stuck == Some(Stuck::KindNotServed) => Mode::Failover,
        Some(MoveCause::Rebalance) => Mode::Rebalance,
        _ if is_asked => Mode::Rebalance,
        Some(MoveCause::Policy) => Mode::PolicyEdit,
        _ => current.mode,
    };
    current.is_settled &= cause != Some(MoveCause::Outgrown);
    current.excluded = list_excluded_clusters(record, now, &find_cluster);
    let mut decision = decide_group(policy, group, fleet, &current);
    // Where nothing else takes the group, what was left out is tried again, and at last the cluster where it is.
    let may_try = record.retry.is_none_or(|retry| retry.not_before <= now);
    for keeps_here in [true, false] {
        let stays = decision.targets.is_empty() || decision.targets == current.targets;
        if stays && !current.excluded.is_empty() && may_try {
            current.excluded.retain(|cluster, _| keeps_here && here.contains_key(cluster));
            decision = decide_group(policy, group, fleet, &current);
        }
    }
    let cause = match here.keys().next() {
        // A better place is not given up for a report that merely differs.
        Some(_) if record.running.as_ref().is_some_and(|running| running.cause == MoveCause::Rebalance) => cause,
        Some(cluster) if find_cluster(cluster).is_none() => Some(MoveCause::Lost),
        Some(cluster) => {
            let urgent = if is_lost { Some(MoveCause::Failover) } else { stuck.map(Stuck::cause) };
            find_move_cause(policy, fleet, cluster, (&decision, &current), urgent)
        }
        None => None,
    };
    let seen = SeenDecision {
        cause,
        best: whole_amounts(decision.targets.iter().map(|target| target.cluster.as_str())),
        // It is asked for in a move only.
        wanted: match record.running {
            Some(_) => allowed_clusters(policy, group, fleet, &current),
            None => BTreeSet::new(),
        },
        scaled: None,
        renewed: (is_placement_edited(policy, status) || is_asked) && record.retry.is_some(),
    };
    Proposal { seen, decision, current, leaves_at }
}

/// Returns whether what a policy says of places is another thing than when a group was decided.
pub(super) fn is_placement_edited(policy: &Policy, status: Option<&ScheduleGroupStatus>) -> bool {
    let known = status.and_then(|status| status.decision.as_ref()).map(|known| known.policy_hash.as_str());
    known.is_some_and(|known| !known.is_empty() && known != policy.placement_hash())
}

/// Returns the cause for which a group leaves a cluster, whether or not there is a better one. What is `urgent` comes after a
/// drain.
fn find_move_cause(
    policy: &Policy,
    fleet: &Fleet,
    here: &str,
    (decision, current): (&Decision, &Current),
    urgent: Option<MoveCause>,
) -> Option<MoveCause> {
    let Some(cluster) = fleet.get(here) else { return Some(MoveCause::Lost) };
    if cluster.leaving {
        return Some(MoveCause::Leaving);
    }
    if live::is_drained_for(policy, cluster) {
        return Some(MoveCause::Drain);
    }
    if urgent.is_some() {
        return urgent;
    }
    let is_edited = current.mode == Mode::PolicyEdit;
    let against = decision.rejected.iter().find(|(name, _)| **name == *here).map(|(_, reason)| reason);
    let is_elsewhere = !decision.targets.is_empty() && decision.targets.iter().all(|target| target.cluster != here);
    match against {
        Some(Reason::SelectorMismatch | Reason::NotOrdered) if !is_edited => Some(MoveCause::Label),
        Some(Reason::SelectorMismatch | Reason::NotOrdered) => Some(MoveCause::Policy),
        _ if is_elsewhere && is_edited => Some(MoveCause::Policy),
        _ if is_elsewhere && current.mode == Mode::Rebalance => Some(MoveCause::Rebalance),
        _ if is_elsewhere || decision.how == Some(How::Outgrown) => Some(MoveCause::Outgrown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the clusters that are left out at a time at which the cluster has a uid.
    fn list_excluded_at(cluster: &Cluster, record: &MoveRecord, uid: &str, now: i64) -> Vec<String> {
        let mut found = cluster.clone();
        found.metadata.uid = Some(uid.to_owned());
        list_excluded_clusters(record, now, |name| (name == "west").then_some(&found)).into_keys().collect()
    }

    #[test]
    fn a_cluster_is_left_out_until_its_time_and_not_for_another_of_its_name() {
        let cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
            "metadata": { "name": "west", "uid": "first" }, "spec": { "name": "west" },
        }))
        .unwrap();
        let record: MoveRecord = serde_json::from_value(json!({
            "excluded": [{ "cluster": "west", "uid": "first", "reason": "Unschedulable", "until": 1_000 }],
        }))
        .unwrap();
        assert_eq!(list_excluded_at(&cluster, &record, "first", 999), ["west"]);
        assert!(list_excluded_at(&cluster, &record, "first", 1_000).is_empty());
        assert!(list_excluded_at(&cluster, &record, "second", 999).is_empty());
        assert!(list_excluded_clusters(&record, 999, |_| None).is_empty());
    }
}
