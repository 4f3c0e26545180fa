//! A finished run as an outcome, beside the former state.

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::{ClusterOutcome, CopyMove, Placement, RejectedRow, Simulation, TargetOutcome, Unplaced};
use super::run::Run;
use super::state::{FleetState, cluster_of};
use super::{Asked, removals, rooms};
use crate::placement::assignment::Assignment;
use crate::placement::copy::Share;
use crate::placement::decide::{Decision, Outcome, Target};
use crate::placement::explain;
use crate::placement::facts::{Facts, ObjectKey, Workload};
use crate::placement::follow::{PlaceState, Wait, is_follower};
use crate::placement::live;
use crate::placement::matching::Match;

/// Sources with the clusters of their copies.
pub(super) type Copies = BTreeMap<ObjectKey, BTreeSet<String>>;

fn list_copied_clusters(state: &FleetState) -> Copies {
    let mut copies = Copies::new();
    for schedule in state.schedules.iter().filter(|schedule| schedule.metadata.deletion_timestamp.is_none()) {
        let key = live::source_key(&schedule.spec.source_ref);
        copies.entry(key).or_default().insert(cluster_of(schedule).to_owned());
    }
    copies
}

/// Describes a finished run beside the former state.
pub(super) fn describe_run(run: &Run<'_>, before: &FleetState, asked: &Asked) -> Simulation {
    let (old, kept) = (list_copied_clusters(before), list_copied_clusters(run.state));
    let none = BTreeSet::new();
    let mut new = Copies::new();
    for (key, object) in &run.objects {
        let places = find_places(run, key, &object.facts, kept.get(*key).unwrap_or(&none));
        new.insert((*key).clone(), places);
    }
    let groups = run.decisions.iter().map(|(name, decision)| describe_group(run, name, decision, &old, asked));
    let mut placements: Vec<Placement> = groups.collect();
    placements.extend(run.direct.keys().map(|key| describe_direct(run, key, &old, asked)));
    let moves = new.iter().filter_map(|(key, places)| {
        let had = old.get(key).filter(|had| !had.is_empty() && *had != places)?;
        let is_plain = !key.is_of_kind("", "Namespace");
        is_plain.then(|| CopyMove {
            object: key.format_title(),
            from: had.difference(places).cloned().collect(),
            to: places.difference(had).cloned().collect(),
            follows: is_follower(key),
            cause: run.find_group(key).and_then(|group| run.causes.get(group)).copied(),
        })
    });
    let followers = new
        .iter()
        .filter(|(key, places)| !places.is_empty() && run.assignments.get(*key) == Some(&Assignment::Follows));
    let removals = removals::count_removals(run, &old, &new, asked);
    Simulation {
        followers: followers.map(|(key, places)| (key.format_title(), places.clone())).collect(),
        clusters: describe_clusters(run, before, &new, &placements),
        unplaced: list_unplaced(run, &new, asked),
        moves: moves.collect(),
        notes: removals.format_note().into_iter().chain(list_notes(run, asked)).collect(),
        removals,
        placements,
    }
}

/// Returns the clusters of an object when everything is as decided; `kept` are those of its copies.
fn find_places(run: &Run<'_>, key: &ObjectKey, facts: &Facts, kept: &BTreeSet<String>) -> BTreeSet<String> {
    match run.assignments.get(key) {
        Some(Assignment::Left(_)) => kept.clone(),
        Some(Assignment::Group(group)) => {
            let targets = run.find_decided_targets(key, facts);
            let is_suspended = run.decisions.get(group).is_some_and(|decision| decision.suspended);
            let stays = is_suspended
                || run.is_over(facts)
                || !kept.is_empty() && !kept.is_subset(&targets) && run.keeps_volumes(facts);
            if stays { kept.clone() } else { targets }
        }
        Some(Assignment::Direct) => {
            let mut targets = run.find_decided_targets(key, facts);
            let frozen = run.direct.get(key).into_iter().flat_map(|direct| &direct.frozen);
            targets.extend(frozen.filter(|name| kept.contains(*name)).cloned());
            if run.is_over(facts) { kept.clone() } else { targets }
        }
        Some(Assignment::Follows) => {
            let plan = run.plans.get(key.namespace());
            match plan.and_then(|plan| plan.followers.get(key)) {
                Some(follower) => {
                    let stays = follower.places.iter().filter(|(_, place)| place.state != PlaceState::Leaves);
                    stays.map(|(name, _)| name.clone()).collect()
                }
                None => kept.clone(),
            }
        }
        _ => BTreeSet::new(),
    }
}

/// Returns the pods of an object in a target, and of one that is copied whole all of them.
fn pods_in(facts: &Facts, target: Option<&Target>) -> i64 {
    let share = target.and_then(|target| target.replicas.get(&facts.key));
    share.map_or_else(|| facts.workload.pods_at_once(), |share| share.pods())
}

fn describe_target(target: &Target) -> TargetOutcome {
    let shares = target.replicas.iter().map(|(key, share)| {
        let amount = match share {
            Share::Replicas(replicas) => *replicas,
            Share::Job { completions, .. } => *completions,
        };
        (key.format_title(), amount)
    });
    TargetOutcome { cluster: target.cluster.clone(), replicas: shares.collect() }
}

fn clusters_before<'k>(old: &Copies, members: impl IntoIterator<Item = &'k ObjectKey>) -> BTreeSet<String> {
    members.into_iter().filter_map(|key| old.get(key)).flatten().cloned().collect()
}

fn describe_group(run: &Run<'_>, name: &str, decision: &Decision, old: &Copies, asked: &Asked) -> Placement {
    let members = run.members.get(name).into_iter().flatten();
    let policy = run.find_deciding_policy(name).map(|policy| policy.name.clone());
    let is_edited = policy.as_ref().is_some_and(|policy| asked.policies.contains(policy));
    let (message, rejected) = run.words.get(name).cloned().unwrap_or_default();
    let is_complete = decision.scheduled && decision.withheld == 0 && decision.outcome == Outcome::Placed;
    let is_frozen = run.state.frozen && run.causes.contains_key(name);
    Placement {
        name: name.to_owned(),
        asked: is_edited || members.clone().any(|key| asked.concerns(key, old.get(key))),
        policy,
        objects: members.clone().map(ObjectKey::format_title).collect(),
        placed: is_complete && !decision.suspended,
        reason: match (decision.suspended, is_frozen) {
            (true, _) => "Suspended",
            (_, true) => "Frozen",
            _ => decision.outcome.code(),
        }
        .to_owned(),
        message,
        before: clusters_before(old, members),
        targets: decision.targets.iter().map(describe_target).collect(),
        rejected,
    }
}

fn describe_direct(run: &Run<'_>, key: &ObjectKey, old: &Copies, asked: &Asked) -> Placement {
    let decision = &run.direct[key];
    let targets = decision.targets.iter().map(|target| TargetOutcome {
        cluster: target.cluster.clone(),
        replicas: match target.share {
            Some(Share::Replicas(amount) | Share::Job { completions: amount, .. }) => {
                [(key.format_title(), amount)].into()
            }
            None => BTreeMap::new(),
        },
    });
    let rejected = decision.blocked.iter().map(|(name, why)| RejectedRow {
        clusters: vec![name.clone()],
        reason: why.to_string(),
        detail: String::new(),
    });
    let count = decision.targets.len();
    Placement {
        asked: asked.concerns(key, old.get(key)),
        objects: [key.format_title()].into(),
        placed: decision.blocked.is_empty() && decision.withheld.unwrap_or_default() == 0,
        reason: "Direct".to_owned(),
        message: format!("Placed on {count} of {} clusters that its annotation names", count + decision.blocked.len()),
        before: clusters_before(old, [key]),
        targets: targets.collect(),
        rejected: rejected.collect(),
        ..Placement::default()
    }
}

/// Returns what the pods that leave a cluster, or that a smaller share stops there, request of a resource by now.
fn freed_amount(run: &Run<'_>, cluster: &str, resource: &str, new: &Copies) -> i64 {
    let there = run.by_cluster.get(cluster).into_iter().flatten();
    let freed = there.map(|(key, counted)| {
        let Some(facts) = run.facts(key) else { return 0 };
        let stays = new.get(*key).is_some_and(|places| places.contains(cluster));
        let target = match run.assignments.get(*key) {
            Some(Assignment::Group(group)) => run.decisions.get(group),
            _ => None,
        };
        let target = target.and_then(|decision| decision.targets.iter().find(|target| target.cluster == cluster));
        let is_fixed = facts.workload == Workload::DaemonSet || facts.workload == Workload::None || target.is_none();
        let wanted = match (stays, is_fixed) {
            (false, _) => 0,
            (true, true) => *counted,
            (true, false) => pods_in(facts, target),
        };
        let request = facts.shape.as_ref().map_or(0, |shape| shape.requested_amount(resource));
        counted.saturating_sub(wanted).max(0).saturating_mul(request)
    });
    freed.fold(0, i64::saturating_add)
}

fn describe_clusters(
    run: &Run<'_>,
    before: &FleetState,
    new: &Copies,
    placements: &[Placement],
) -> Vec<ClusterOutcome> {
    let old_fleet = rooms::build_simulated_fleet(before);
    let mut titles_before: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut titles: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for placement in placements {
        for name in &placement.before {
            titles_before.entry(name).or_default().insert(placement.format_title());
        }
        for target in &placement.targets {
            titles.entry(&target.cluster).or_default().insert(placement.format_title());
        }
    }
    let described = before.clusters.iter().map(|cluster| {
        let name = cluster.metadata.name.clone().unwrap_or_default();
        let now = run.state.clusters.iter().find(|one| one.metadata.name == cluster.metadata.name);
        let mut after = rooms::list_amounts(&run.fleet, &name);
        for amount in &mut after {
            let freed = freed_amount(run, &name, &amount.resource, new).min(amount.used);
            amount.used -= freed;
            amount.free = amount.free.saturating_add(freed);
        }
        ClusterOutcome {
            state: now.map_or("Removed", rooms::describe_cluster_state).to_owned(),
            nodes: old_fleet.get(&name).map_or(0, |one| one.room.count_nodes()),
            before: rooms::list_amounts(&old_fleet, &name),
            after,
            groups_before: titles_before.remove(name.as_str()).unwrap_or_default(),
            groups: titles.remove(name.as_str()).unwrap_or_default(),
            name,
        }
    });
    described.collect()
}

fn list_unplaced(run: &Run<'_>, new: &Copies, asked: &Asked) -> Vec<Unplaced> {
    let concerned = run.objects.iter().filter(|(key, _)| asked.objects.contains(**key));
    let concerned = concerned.filter(|(key, _)| new.get(**key).is_none_or(BTreeSet::is_empty));
    let found = concerned.filter_map(|(key, object)| {
        let is_plain = !is_follower(key);
        let (why, lacks_place) = match (run.assignments.get(*key)?, run.match_known_object(&object.facts)) {
            (Assignment::Group(_) | Assignment::Direct, _) => return None,
            (_, Match::Never(never)) => (format!("never placed, because {}", never.format_never_reason()), false),
            (_, Match::Nowhere { .. }) => ("its annotation keeps it in the control plane".to_owned(), false),
            (Assignment::Follows, _) if !key.is_of_kind("", "Namespace") => {
                let plan = run.plans.get(key.namespace());
                let waits = plan.and_then(|plan| plan.followers.get(*key)?.waits);
                (explain_wait(waits).to_owned(), false)
            }
            (_, Match::Nothing { failing }) if is_plain && failing.is_empty() => {
                ("there is no SchedulePolicy".to_owned(), true)
            }
            (_, Match::Nothing { failing }) if is_plain => {
                (format!("no policy matches it: {}", explain::format_unmatched_policies(&failing).join("; ")), true)
            }
            _ => return None,
        };
        Some(Unplaced { object: key.format_title(), why, lacks_place })
    });
    found.collect()
}

/// Returns what a follower without a place waits for.
fn explain_wait(waits: Option<Wait>) -> &'static str {
    match waits {
        Some(Wait::Quiet) => "it waits until no new objects appear in its namespace",
        Some(Wait::User) => "it is placed with the objects that use it, but these objects are not placed yet",
        Some(Wait::Mount) => "it waits until a workload mounts it",
        None => "it is placed with the objects that use it, and no placed object uses it",
    }
}

fn list_notes(run: &Run<'_>, asked: &Asked) -> Vec<String> {
    let mut notes = Vec::new();
    for policy in &run.state.policies {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        if policy.metadata.deletion_timestamp.is_none() && run.policies.get(name).is_none() {
            notes.push(format!("SchedulePolicy {name} is ignored, because it has an invalid selector"));
        }
    }
    let namespaces: BTreeSet<&str> = asked.objects.iter().map(ObjectKey::namespace).collect();
    for namespace in namespaces {
        if !namespace.is_empty() && !run.namespaces.contains_key(namespace) {
            notes.push(format!("Namespace {namespace} is not in the control plane: it is assumed to have no labels"));
        }
    }
    for missing in run.plans.values().flat_map(|plan| plan.missing.values().flatten()) {
        if asked.everything || asked.objects.contains(&missing.user) {
            let (user, object) = (missing.user.format_title(), missing.object.format_title());
            let (cluster, why) = (&missing.cluster, missing.why.code());
            notes.push(format!("{user} lacks {object} on {cluster}: {why}. {}", missing.why.remedy()));
        }
    }
    notes
}
