//! Shares of what has no record of amounts: a share falls only when enough is available without the pods that go. Groups with
//! a record have the same rule in [`crate::placement::moves`].

use std::collections::BTreeMap;

use super::schedule_diff::DesiredSchedule;
use super::store::Store;
use crate::api::Schedule;
use crate::api::crd::schedule::ScheduleShare;
use crate::placement::facts::{ObjectKey, Workload};
use crate::placement::live;
use crate::placement::spread_proposal::has_own_share;

/// What a copy asks for and has.
#[derive(Clone, Copy)]
struct Amounts {
    asked: i64,
    available: i64,
    /// Its report is of the copy as it is asked for now.
    is_current: bool,
}

fn share_amount(share: Option<&ScheduleShare>, all: i64) -> i64 {
    share.and_then(|share| share.replicas).unwrap_or(all)
}

fn read_amounts(store: &Store, (cluster, schedule): (&str, &Schedule), all: i64) -> Amounts {
    let asked = share_amount(schedule.spec.share.as_ref(), all);
    let available = if has_own_share(schedule) {
        live::read_copy_report(schedule).available
    } else {
        live::available_of_whole(schedule, all)
    };
    let epoch = schedule.status.as_ref().and_then(|status| status.epoch);
    let is_current =
        store.clusters.get(cluster) == Some(&true) && epoch.is_none_or(|epoch| epoch == schedule.spec.epoch);
    Amounts { asked, available: available.min(asked), is_current }
}

/// Keeps the shares that would fall while what is available elsewhere does not make up for the pods that go.
pub(super) fn hold_falling_shares(store: &Store, desired: &mut [DesiredSchedule<'_>]) {
    let mut by_object: BTreeMap<&ObjectKey, Vec<usize>> = BTreeMap::new();
    for (at, one) in desired.iter().enumerate().filter(|(_, one)| one.share.is_some() && one.scaler.is_none()) {
        by_object.entry(&one.source.facts.key).or_default().push(at);
    }
    let mut held = Vec::new();
    for (key, places) in by_object {
        let Some(Workload::Replicas(all)) = store.source_facts(key).map(|facts| facts.workload) else { continue };
        let wanted: BTreeMap<usize, i64> =
            places.iter().map(|at| (*at, share_amount(desired[*at].share.as_ref(), all))).collect();
        let found = places.iter().filter_map(|at| {
            let cluster = desired[*at].cluster;
            let (_, schedule) = store.copy_in(key, cluster)?;
            let is_there = schedule.metadata.deletion_timestamp.is_none();
            is_there.then(|| (*at, schedule, read_amounts(store, (cluster, schedule), all)))
        });
        let found: Vec<_> = found.collect();
        let enough = wanted.values().sum::<i64>().min(all);
        let current = found.iter().filter(|(_, _, copy)| copy.is_current);
        let mut left: i64 = current.map(|(_, _, copy)| copy.available).sum();
        for (at, schedule, copy) in found.iter().filter(|(at, _, copy)| copy.asked > wanted[at]) {
            let lost = (copy.available - wanted[at]).max(0);
            if copy.is_current && (lost == 0 || left - lost >= enough) {
                left -= lost;
            } else {
                held.push((*at, schedule.spec.share.clone()));
            }
        }
    }
    for (at, share) in held {
        desired[at].share = share;
    }
}
