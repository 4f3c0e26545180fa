//! Decisions in words: the same sentence for the event, the condition and the command line. What `fleetctl why` and the
//! condition Scheduled say of a decision is in `decision_text`, of a group without room in `unplaced_group`.

mod amount;
mod decision_text;
mod rejected_clusters;
mod unplaced_group;
mod unplaced_kinds;

use k8s_openapi::jiff::Timestamp;

use amount::amount_of;
pub use amount::format_amount;
pub use decision_text::format_decision;
pub use rejected_clusters::{Row, list_asked_amounts, rejection_rows};
pub use unplaced_kinds::{UnplacedKinds, format_counts, format_unplaced_kinds};

use super::decide::Group;
use super::dependencies::Missing;
use super::facts::{Facts, Ignored, ObjectKey};
use super::fleet::Fleet;
use super::follow::MissingFollower;
use super::matching::{Clause, Policy};
use crate::api::first_of::first_of;
use crate::api::util::text::escaped_text;

/// Longest text of an event, in bytes.
const LONGEST: usize = 1024;

/// Shortens a text to what an event holds, 1,024 bytes. It may quote an agent, so it is escaped.
pub fn shorten_event_text(text: String) -> String {
    const MARK: &str = " …";
    let mut text = escaped_text(&text).into_owned();
    if text.len() > LONGEST {
        let end = (0..=LONGEST - MARK.len()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

pub(crate) fn quote_names<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|name| format!("{:?}", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Returns the text of the event SchedulePolicyMatched: who decides, why that one, and who else matches.
pub fn format_matched_policy(policy: &Policy, losers: &[&Policy]) -> String {
    let priority = policy.spec.priority;
    let why = match losers.first() {
        None => String::new(),
        Some(next) if next.spec.priority < priority => ", highest".to_owned(),
        Some(next) if next.created != policy.created => ", oldest".to_owned(),
        Some(_) => ", first by name".to_owned(),
    };
    let mut text = format!("SchedulePolicy {:?} decides (priority {priority}{why})", policy.name);
    if !losers.is_empty() {
        text.push_str("; also match: ");
        text.push_str(&quote_names(losers.iter().map(|loser| &loser.name)));
    }
    shorten_event_text(text)
}

/// Returns the text of the event AddedToScheduleGroup.
pub fn format_added_to_group(group: &str, policy: &Policy, facts: &Facts) -> String {
    let by = policy.spec.group_by.as_ref().and_then(|by| {
        if by.namespace {
            return (!facts.key.namespace().is_empty()).then(|| " grouped by namespace".to_owned());
        }
        let (key, value) = by.find_label(&facts.labels)?;
        let reach = if by.across_namespaces { " in all namespaces" } else { "" };
        Some(format!(" grouped by {key}={value}{reach}"))
    });
    format!("In ScheduleGroup {group:?}{}", by.unwrap_or_else(|| " alone".to_owned()))
}

/// Returns what keeps policies from an object: each with its first clause that fails.
pub fn format_unmatched_policies(failing: &[(&Policy, Clause)]) -> Vec<String> {
    failing
        .iter()
        .map(|(policy, clause)| format!("{}: {}", policy.name, describe_failing_clause(policy, *clause)))
        .collect()
}

fn describe_failing_clause(policy: &Policy, clause: Clause) -> String {
    match clause {
        Clause::Kinds if policy.spec.resource_selectors.kinds.is_empty() => {
            "kinds must list this kind, because it is cluster-scoped".to_owned()
        }
        _ => format!("{} does not match", clause.name()),
    }
}

/// Returns what a copy lacks whose pods find no node.
pub fn format_unschedulable(object: &ObjectKey, cluster: &str, pods: i64, since: Timestamp) -> String {
    let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
    format!("{} lacks minimum replicas on {cluster:?}: {pods} unschedulable since {since}", object.format_title())
}

/// Returns the message of the condition DependenciesPlaced: what is used and not placed, and on which cluster; of many the
/// first three.
pub fn format_missing_dependencies(missing: &[Missing]) -> String {
    const MOST: usize = 3;
    let texts = missing.iter().map(|Missing { user, reference, cluster }| {
        let needed = reference.object_key(user.namespace());
        format!("{} is used by {} but is not placed on {cluster}", needed.format_title(), user.format_title())
    });
    shorten_event_text(first_of(texts, MOST, "; "))
}

/// Returns what is missing where pods need it, and why.
pub fn format_missing_followers(missing: &[&MissingFollower]) -> String {
    const MOST: usize = 3;
    let texts = missing.iter().map(|MissingFollower { user, object, cluster, why }| {
        let (object, user, reason) = (object.format_title(), user.format_title(), why.code());
        format!("{object} is used by {user} but is not placed on {cluster}: {reason}")
    });
    shorten_event_text(first_of(texts, MOST, "; "))
}

/// Returns what a group asks for: `3 objects: 12 CPU, 24Gi, 14 pods`.
pub fn format_group_demand(group: &Group<'_>, fleet: &Fleet) -> String {
    let objects = if group.len() == 1 { "1 object".to_owned() } else { format!("{} objects", group.len()) };
    let sums = group.total_demand(fleet);
    let amounts: Vec<String> = sums.iter().map(|(name, sum)| amount_of(name, *sum)).collect();
    if amounts.is_empty() { objects } else { format!("{objects}: {}", amounts.join(", ")) }
}

/// Returns what placement did not regard of what the group's pods ask for; nothing if there is nothing.
pub fn format_ignored_demands(group: &Group<'_>) -> Option<String> {
    let mut names: Vec<String> = group
        .objects()
        .filter_map(|facts| facts.shape.as_ref())
        .flat_map(|shape| &shape.ignored)
        .map(Ignored::name)
        .collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| format!("ignored: {}", names.join(", ")))
}

#[cfg(test)]
mod tests;
