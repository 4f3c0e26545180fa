//! The status of a source, as its copies report it.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use super::place::cluster_of;
use super::plan::Plan;
use super::store::{Assignment, Store};
use super::write::Write;
use crate::api::Schedule;
use crate::placement::aggregate::{self, CopyStatus};
use crate::placement::facts::{ObjectKey, Workload};
use crate::placement::live;

/// Plans the status of a source, as its copies have it.
pub(super) fn plan_source_status(store: &Store, key: &ObjectKey, now: Timestamp) -> Plan {
    let Some(source) = store.sources.get(key) else { return Plan::default() };
    let targets = find_target_clusters(store, key);
    let asked = match source.facts.workload {
        Workload::Replicas(asked) => store.placed_scaler_of(key).map(|_| asked),
        _ => None,
    };
    let copies: Vec<(CopyStatus, &Schedule)> = store
        .copies_of(key)
        .filter(|(_, schedule)| {
            schedule.metadata.deletion_timestamp.is_none() || live::has_ended(schedule, &source.facts)
        })
        .map(|(at, schedule)| {
            let cluster = cluster_of(at);
            let leaving = targets.as_ref().is_some_and(|targets| !targets.contains(cluster));
            let lost = store.lost.get(cluster).cloned();
            (
                CopyStatus { leaving, lost, asked, ..CopyStatus::from_schedule(schedule, cluster, &source.facts) },
                schedule,
            )
        })
        .collect();
    let shares =
        copies.iter().filter(|(copy, _)| !copy.leaving).filter_map(|(_, schedule)| schedule.spec.share.as_ref());
    let replicas: Vec<i64> = shares.filter_map(|share| share.replicas).collect();
    let copies: Vec<CopyStatus> = copies.into_iter().map(|(copy, _)| copy).collect();
    let is_divided = !replicas.is_empty();
    let withheld = source.facts.workload.pods_at_once().saturating_sub(replicas.iter().sum());
    let all = aggregate::Source {
        group: key.group(),
        kind: key.kind(),
        generation: source.facts.generation,
        duplicate: !is_divided && copies.len() > 1,
        withheld: if is_divided { withheld.max(0) } else { 0 },
        copies: &copies,
    };
    let status = all.status_to_write(&source.status, now);
    let write = status.map(|status| vec![Write::Status(source.address.clone(), status)]);
    Plan { stages: write.into_iter().collect(), ..Plan::default() }
}

/// Returns the clusters where an object is to run; `None` where that is not decided.
fn find_target_clusters<'a>(store: &'a Store, key: &ObjectKey) -> Option<BTreeSet<&'a str>> {
    let targets: BTreeSet<&str> = match store.assignments.get(key)? {
        Assignment::Group(group) => {
            let status = store.groups.get(group)?.status.as_ref().filter(|status| status.scheduled)?;
            status.target_clusters.iter().map(String::as_str).collect()
        }
        Assignment::Direct | Assignment::Follows => store.sources.get(key)?.target.parse_clusters(),
        Assignment::Left(_) | Assignment::Withdrawn | Assignment::Unplaced => return None,
    };
    (!targets.is_empty()).then_some(targets)
}
