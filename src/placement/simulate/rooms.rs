//! The clusters of a state with their room, and a picture of what runs in them.

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::{ClusterOutcome, Placement, RejectedRow, RoomAmount, Simulation};
use super::state::{FleetState, cluster_of};
use crate::api::crd::condition::find_condition;
use crate::api::crd::group::conditions::SCHEDULED;
use crate::api::labels::cluster_namespace;
use crate::api::{Cluster, Schedule};
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::fleet::Fleet;
use crate::placement::inventory::{self, Part};
use crate::placement::live;

/// Builds the clusters with their nodes, and what their copies are promised.
pub(super) fn build_simulated_fleet(state: &FleetState) -> Fleet {
    let mut parts: BTreeMap<&str, Vec<Part>> = BTreeMap::new();
    for report in &state.reports {
        let namespace = report.metadata.namespace.as_deref().unwrap_or_default();
        parts.entry(namespace).or_default().push(Part::of_report(&report.spec));
    }
    let facts: BTreeMap<&ObjectKey, &Facts> = state.objects.iter().map(|one| (&one.facts.key, &one.facts)).collect();
    let mut copies: BTreeMap<&str, Vec<(&Schedule, &Facts)>> = BTreeMap::new();
    for schedule in &state.schedules {
        if let Some(facts) = facts.get(&live::source_key(&schedule.spec.source_ref)) {
            copies.entry(cluster_of(schedule)).or_default().push((schedule, facts));
        }
    }
    let mut fleet = Fleet::default();
    for cluster in &state.clusters {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let parts = parts.get(cluster_namespace(name).as_str()).into_iter().flatten();
        let read = live::read_cluster(&mut fleet, cluster, inventory::read_inventory(cluster, parts));
        fleet.set_cluster(read);
        let copies = copies.get(name).into_iter().flatten().copied();
        fleet.set_promises(name, live::copy_reservations(copies));
    }
    fleet
}

/// Returns what a cluster of a fleet has, by resource; nothing of one that is not in it.
pub(super) fn list_amounts(fleet: &Fleet, name: &str) -> Vec<RoomAmount> {
    let Some(cluster) = fleet.get(name) else { return Vec::new() };
    let amounts = cluster.room.sum_amounts(fleet.resources()).into_iter();
    amounts
        .map(|(resource, [capacity, reported, free])| RoomAmount {
            resource: resource.to_string(),
            capacity,
            used: capacity.saturating_sub(reported),
            promised: reported.saturating_sub(free),
            free,
        })
        .collect()
}

/// Returns the state of a cluster in a word.
pub(super) fn describe_cluster_state(cluster: &Cluster) -> &'static str {
    match (live::is_leaving(cluster), cluster.spec.accepted, live::is_ready(cluster)) {
        (true, ..) => "Leaving",
        (_, false, _) => "NotAccepted",
        (.., false) => "NotReady",
        _ if live::is_drained(cluster) || cluster.spec.taints.iter().any(|taint| taint.effect == "NoExecute") => {
            "Drained"
        }
        _ if cluster.spec.taints.iter().any(|taint| taint.effect == "NoSchedule") => "Tainted",
        _ => "Ready",
    }
}

/// Returns what runs in the clusters of a state, and what has no place there and why, as the scheduler has recorded it.
pub fn picture_fleet(state: &FleetState) -> Simulation {
    let fleet = build_simulated_fleet(state);
    let mut placements: BTreeMap<String, Placement> = BTreeMap::new();
    for schedule in &state.schedules {
        let key = live::source_key(&schedule.spec.source_ref);
        let Some(name) = schedule.spec.group.clone() else { continue };
        let placement = placements.entry(name.clone()).or_default();
        placement.name = name;
        placement.objects.insert(key.format_title());
        placement.before.insert(cluster_of(schedule).to_owned());
    }
    for group in &state.groups {
        let name = group.metadata.name.clone().unwrap_or_default();
        let placement = placements.entry(name.clone()).or_default();
        (placement.name, placement.policy) = (name, Some(group.spec.policy.name.clone()));
        let Some(status) = &group.status else { continue };
        placement.placed = status.scheduled;
        let scheduled = find_condition(&status.conditions, SCHEDULED).cloned();
        placement.reason = scheduled.as_ref().map(|one| one.reason.clone()).unwrap_or_default();
        placement.message = scheduled.map(|one| one.message).unwrap_or_default();
        placement.objects.extend(status.object_refs.iter().map(|one| {
            ObjectKey::new(&one.group, &one.kind, one.namespace.as_deref().unwrap_or_default(), &one.name)
                .format_title()
        }));
        let rows = status.clusters.iter().filter(|row| row.state == "Rejected");
        placement.rejected = rows
            .map(|row| RejectedRow {
                clusters: vec![row.name.clone()],
                reason: row.reason.clone(),
                detail: row.detail.clone(),
            })
            .collect();
    }
    let clusters = state.clusters.iter().map(|cluster| {
        let name = cluster.metadata.name.clone().unwrap_or_default();
        let there = placements.values().filter(|one| one.before.contains(&name));
        let groups: BTreeSet<String> = there.map(Placement::format_title).collect();
        let amounts = list_amounts(&fleet, &name);
        ClusterOutcome {
            state: describe_cluster_state(cluster).to_owned(),
            nodes: fleet.get(&name).map_or(0, |one| one.room.count_nodes()),
            after: amounts.clone(),
            before: amounts,
            groups_before: groups.clone(),
            groups,
            name,
        }
    });
    Simulation { clusters: clusters.collect(), placements: placements.into_values().collect(), ..Simulation::default() }
}
