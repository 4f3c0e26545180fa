//! The room that is promised while a run decides, in the order in which the scheduler promises it.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::run::Run;
use crate::api::Schedule;
use crate::api::crd::schedule::{ScheduleSpec, SourceRef};
use crate::placement::copy::Share;
use crate::placement::decide::{Current, Decision, DirectTarget, Group};
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::live;
use crate::placement::names::schedule_name;

impl<'a> Run<'a> {
    /// Promises what a decision takes.
    pub(super) fn reserve_room(&mut self, group: &Group<'_>, decision: &Decision, current: &Current) {
        self.fleet.reserve_decision(group, decision, current);
        self.reserved.insert(group.name.to_string(), decision.clone());
    }

    /// Promises again what a cluster has, as the scheduler does when it sees a Schedule there: first what is in
    /// Schedules, then what is decided.
    fn promise_anew(&mut self, cluster: &str) {
        let there = self.by_cluster.get(cluster).into_iter().flatten().filter_map(|(key, _)| {
            let (_, schedule) = self.list_known_copies(key).find(|(at, _)| *at == cluster)?;
            Some((schedule, self.facts(key)?))
        });
        let planned = self.planned.get(cluster).into_iter().flatten().map(|(schedule, facts)| (schedule, *facts));
        let copies: Vec<(&Schedule, &Facts)> = there.chain(planned).collect();
        let written: BTreeSet<&ObjectKey> = copies.iter().map(|(_, facts)| &facts.key).collect();
        let mut promises = live::copy_reservations(copies.iter().copied());
        for promise in &mut promises {
            if let Some(group) = self.relabelled.get(&promise.object) {
                promise.group = group.as_str().into();
            }
        }
        for (name, decision) in &self.reserved {
            let target = decision.targets.iter().find(|target| target.cluster == cluster);
            let (Some(target), Some(policy)) = (target, self.find_deciding_policy(name)) else { continue };
            let group = self.build_group(name, policy);
            let open = group.make_reservations(target, &Current::default()).into_iter();
            promises.extend(open.filter(|promise| !written.contains(&promise.object)));
        }
        self.fleet.set_promises(cluster, promises);
    }

    /// Promises to members in the name of their group: copies that were made in another one are relabelled first.
    pub(super) fn regroup_promises(&mut self, name: &str) {
        let Some(members) = self.members.get(name) else { return };
        let mut clusters = BTreeSet::new();
        let mut relabelled = Vec::new();
        for key in members {
            let others = self.list_known_copies(key).filter(|(_, copy)| copy.spec.group.as_deref() != Some(name));
            let others: Vec<_> = others.collect();
            if !others.is_empty() {
                relabelled.push((key.clone(), name.to_owned()));
            }
            // Copies without pods are promised nothing.
            let Some(facts) = self.facts(key) else { continue };
            let promised = others.iter().filter(|(_, copy)| live::copy_reservation(copy, facts).is_some());
            clusters.extend(promised.map(|(cluster, _)| (*cluster).to_owned()));
        }
        self.relabelled.extend(relabelled);
        for cluster in clusters {
            self.promise_anew(&cluster);
        }
    }

    /// Promises the room of an object that its annotation places, if it has no copy there: it gets a Schedule at once.
    pub(super) fn promise_direct_copy(&mut self, facts: &'a Facts, target: &DirectTarget) {
        if self.list_known_copies(&facts.key).any(|(at, _)| at == target.cluster) {
            return;
        }
        let copy = plan_direct_schedule(&facts.key, target.share);
        self.planned.entry(target.cluster.clone()).or_default().push((copy, facts));
        self.promise_anew(&target.cluster);
    }
}

/// Returns the Schedule that an object placed by annotation gets, as far as it takes room: the youngest.
fn plan_direct_schedule(key: &ObjectKey, share: Option<Share>) -> Schedule {
    let share = share.map(|share| live::build_schedule_share("", Some(share)));
    let spec = ScheduleSpec { source_ref: SourceRef::default(), share, ..ScheduleSpec::default() };
    let mut schedule = Schedule::new(&schedule_name(key), spec);
    schedule.metadata.creation_timestamp = Some(Time(jiff::Timestamp::MAX));
    schedule
}
