//! Decisions in words: the same sentence for the event, the condition and the command line. What `fleetctl why` and the
//! condition Scheduled say of a decision is in `decision_text`, of a group without room in `unplaced_group`.

mod amount;
mod decision_text;
mod rejected_clusters;
mod unplaced_group;

use k8s_openapi::jiff::Timestamp;

use amount::amount_of;
pub use amount::format_amount;
pub use decision_text::format_decision;
pub use rejected_clusters::{Row, rejection_rows};

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

fn quote_names<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
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
            return (!facts.key.namespace().is_empty()).then(|| " by namespace".to_owned());
        }
        let (key, value) = by.find_label(&facts.labels)?;
        let reach = if by.across_namespaces { " in all namespaces" } else { "" };
        Some(format!(" by {key}={value}{reach}"))
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
            "kinds must name a cluster-scoped kind".to_owned()
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

<<<<<<< HEAD
/// Returns the sentence of a decision, for the event, the condition Scheduled and the command line.
pub fn format_decision(policy: &Policy, group: &Group<'_>, fleet: &Fleet, decision: &Decision) -> String {
    let prefix = if decision.suspended { "Suspended; it would be: " } else { "" };
    let text = match (decision.outcome, decision.how) {
        (Outcome::GroupTooLarge, _) => {
            format!("{} members; at most {} are placed together", group.len(), super::decide::LARGEST_GROUP)
        }
        (Outcome::HasVolumes, _) => {
            "Not placed again: its cluster was deleted or is leaving, and its volumes cannot be moved. Next: register \
             the cluster again under the same name; or start elsewhere with empty volumes, with the annotation \
             fleet-scheduler.io/allow-volume-move: \"true\" on its claims"
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
                Some(format!(": most free {resource} ({} %) of {} with room", left.as_percent(), chosen.with_room))
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
        text.push_str(&format!(". Domains without it: {}", missing.join(", ")));
    }
    match format_rejections(&decision.rejected, false).as_str() {
        "" => text,
        list => format!("{text}. {} rejected: {list}", decision.rejected.len()),
    }
}

/// Returns the sentence for a group without any cluster: the reasons, and what can be done.
fn format_no_cluster(policy: &Policy, group: &Group<'_>, fleet: &Fleet, decision: &Decision) -> String {
    let mut steps: Vec<String> = next::suggest_next_steps(policy, decision).into_iter().take(2).collect();
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

/// Reasons with their numbers, the most frequent first: `7 SelectorMismatch, 1 NotReady ("c")`.
fn format_rejections(rejected: &[Rejection], names_best: bool) -> String {
    let mut kinds: BTreeMap<(usize, String), Vec<&Rejection>> = BTreeMap::new();
    for one in rejected {
        kinds.entry((clusters::filter_position(&one.1), one.1.to_string())).or_default().push(one);
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
    let best =
        those.iter().max_by_key(|(name, reason)| (clusters::free_amount(reason), std::cmp::Reverse(name.clone())));
    let detail = match (best, those.len()) {
        (Some((name, reason)), 1) => match clusters::format_reason_numbers(reason) {
            Some(numbers) => format!(" ({name:?}: {numbers})"),
            None => format!(" ({name:?})"),
        },
        (Some((name, reason)), _) if names_best => clusters::format_reason_numbers(reason)
            .map(|numbers| format!(" (best {name:?}: {numbers})"))
            .unwrap_or_default(),
        _ => String::new(),
    };
    format!("{} {code}{detail}", those.len())
}

=======
>>>>>>> tasks10
#[cfg(test)]
mod tests;
