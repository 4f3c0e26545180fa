//! Reasons that clusters do not take a group, as a table and in a sentence.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::amount::{amount_of, format_amount};
use crate::placement::decide::Decision;
use crate::placement::fleet::{Cluster, Fleet};
use crate::placement::matching::Policy;
use crate::placement::reason::Reason;

/// A cluster, and why it does not take the group.
type Rejection = (Arc<str>, Reason);

/// Clusters that do not take a group for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Their names.
    pub clusters: Vec<String>,
    /// The reason: code and argument.
    pub reason: String,
    /// Numbers, or the clause that does not match; may be empty.
    pub detail: String,
}

/// Returns the place of a reason in the order in which reasons are looked for.
pub(super) fn filter_position(reason: &Reason) -> usize {
    match reason {
        Reason::Leaving => 0,
        Reason::NotAccepted => 1,
        Reason::SelectorMismatch => 2,
        Reason::VolumeElsewhere => 3,
        Reason::NotOrdered => 4,
        Reason::NoTopologyLabel => 5,
        Reason::Tainted(_) => 6,
        Reason::ApiMissing(_) => 7,
        Reason::NotReady => 8,
        Reason::Excluded(_) => 9,
        Reason::Insufficient { .. } => 10,
        Reason::NoNodeMatches(_) => 11,
        Reason::NodeLabelsUnknown(_) => 12,
        Reason::TooFewNodes(_) => 13,
        Reason::Fragmented(_) => 14,
        Reason::Tight => 15,
    }
}

/// Returns the free amount of the insufficient resource, to find the best of several clusters.
fn free_amount(reason: &Reason) -> i64 {
    match reason {
        Reason::Insufficient { free, .. } => *free,
        Reason::Fragmented(fragmented) => fragmented.most,
        _ => 0,
    }
}

/// Returns the numbers of a reason: `96Gi requested, 64Gi free`.
fn format_reason_numbers(reason: &Reason) -> Option<String> {
    match reason {
        Reason::Insufficient { resource, asked, free } => Some(format!(
            "{} requested, {} free",
            format_amount(resource, *asked),
            format_amount(resource, (*free).max(0))
        )),
        Reason::Fragmented(one) => Some(format!(
            "{} free, at most {} on one node, {} per pod",
            amount_of(&one.resource, one.free),
            format_amount(&one.resource, one.most),
            format_amount(&one.resource, one.asked)
        )),
        _ => None,
    }
}

/// Returns the amounts that a text of reasons says are asked for, without what is free.
pub fn list_asked_amounts(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split(' ').collect();
    let is_asked = |at: usize| words[at].starts_with("requested") || words[at] == "per";
    (1..words.len()).filter(|at| is_asked(*at)).map(|at| words[at - 1]).collect()
}

/// Reasons with their numbers, the most frequent first: `7 SelectorMismatch, 1 NotReady ("c")`.
pub(super) fn format_rejections(rejected: &[Rejection], names_best: bool) -> String {
    let mut kinds: BTreeMap<(usize, String), Vec<&Rejection>> = BTreeMap::new();
    for one in rejected {
        kinds.entry((filter_position(&one.1), one.1.to_string())).or_default().push(one);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, those)| std::cmp::Reverse(those.len()));
    kinds
        .into_iter()
        .map(|((_, code), those)| format_rejection_kind(&code, &those, names_best))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns how many clusters were rejected for a reason, and the numbers of the best of them.
fn format_rejection_kind(code: &str, those: &[&Rejection], names_best: bool) -> String {
    let best = those.iter().max_by_key(|(name, reason)| (free_amount(reason), std::cmp::Reverse(name.clone())));
    let detail = match (best, those.len()) {
        (Some((name, reason)), 1) => match format_reason_numbers(reason) {
            Some(numbers) => format!(" ({name:?}: {numbers})"),
            None => format!(" ({name:?})"),
        },
        (Some((name, reason)), _) if names_best => {
            format_reason_numbers(reason).map(|numbers| format!(" (best {name:?}: {numbers})")).unwrap_or_default()
        }
        _ => String::new(),
    };
    format!("{} {code}{detail}", those.len())
}

/// Returns a row for each reason and detail, in the order of the first cluster that has it by room, then by filter.
pub fn rejection_rows(policy: &Policy, fleet: &Fleet, decision: &Decision) -> Vec<Row> {
    let mut rows: Vec<(bool, Row)> = Vec::new();
    let mut known: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (name, reason) in &decision.rejected {
        let (code, detail) = (reason.to_string(), format_rejection_detail(policy, fleet, name, reason));
        let at = *known.entry((code.clone(), detail.clone())).or_insert(rows.len());
        match rows.get_mut(at) {
            Some((_, row)) => row.clusters.push(name.to_string()),
            None => {
                let row = Row { clusters: vec![name.to_string()], reason: code, detail };
                rows.push((filter_position(reason) < 10, row));
            }
        }
    }
    rows.sort_by_key(|(by_filter, _)| *by_filter);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn format_rejection_detail(policy: &Policy, fleet: &Fleet, name: &Arc<str>, reason: &Reason) -> String {
    let cluster = fleet.get(name);
    let text = match reason {
        Reason::SelectorMismatch => {
            let failing = cluster.and_then(|one| policy.clusters.first_failing(|key| one.find_label(key)));
            failing.map(ToString::to_string)
        }
        Reason::Tainted(key) => {
            let taint = cluster.and_then(|one| one.taints.iter().find(|taint| *taint.key == **key));
            taint.map(|taint| taint.effect.clone())
        }
        Reason::NoTopologyLabel => policy.spec.spread_constraints.as_ref().map(|spread| spread.topology_key.clone()),
        Reason::Insufficient { resource, asked, free } => Some(format_insufficient(cluster, resource, *asked, *free)),
        Reason::Fragmented(one) => Some(format!(
            "{} free, at most {} on one node; {} requests {} per pod",
            amount_of(&one.resource, one.free),
            format_amount(&one.resource, one.most),
            one.object.format_title(),
            format_amount(&one.resource, one.asked)
        )),
        Reason::NoNodeMatches(key) | Reason::NodeLabelsUnknown(key) | Reason::TooFewNodes(key) => {
            Some(key.format_title())
        }
        _ => None,
    };
    text.unwrap_or_default()
}

/// Returns the amounts that are asked and free, and to whom a part of the free one is promised.
fn format_insufficient(cluster: Option<&Cluster>, resource: &str, asked: i64, free: i64) -> String {
    let promises = cluster.map(|cluster| cluster.room.reservations()).unwrap_or_default();
    let taking: Vec<_> =
        promises.iter().filter(|promise| !promise.daemon && reserved_amount(resource, promise) > 0).collect();
    let promised = taking.iter().map(|promise| reserved_amount(resource, promise)).fold(0, i64::saturating_add);
    let text = format!(
        "{} requested, {} free",
        format_amount(resource, asked),
        format_amount(resource, free.max(0).saturating_add(promised))
    );
    match taking.as_slice() {
        [] => text,
        [one] => format!("{text}, {} of that reserved for {}", format_amount(resource, promised), one.object.name()),
        several => {
            format!("{text}, {} of that reserved for {} objects", format_amount(resource, promised), several.len())
        }
    }
}

fn reserved_amount(resource: &str, promise: &crate::placement::room::Promise) -> i64 {
    promise.shape.requested_amount(resource).saturating_mul(promise.pods)
}
