//! Groups that are spread over domains, one cluster a domain.

mod even;
mod percent;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::filter::Filter;
use super::group::Member;
use super::pick::{Candidate, Pick, Site, pick_best_cluster};
use super::{Current, Decision, Group, How, Mode, Outcome, Target};
use crate::api::crd::policy::SpreadConstraints;
use crate::placement::copy::Share;
use crate::placement::divide::{Division, Domain, Ties, divide_job, divide_replicas, fill_domains, tie_seed};
use crate::placement::facts::{ObjectKey, Workload};
use crate::placement::fleet::{Cluster, Fleet};
use crate::placement::matching::Policy;
use crate::placement::reason::Reason;
use crate::placement::room::{Need, Needs, ResourceId, Room, Steps};

/// Changes that may happen to a copy that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    /// It may grow.
    Free,
    /// It stays as it is: the cluster is not Ready, fenced, or lacks an API.
    Frozen,
    /// It leaves if there is another cluster.
    Drained,
}

/// The clusters of one domain: the one that has it, and those that could.
#[derive(Default)]
struct Territory<'a> {
    has: Option<(&'a Cluster, Hold)>,
    candidates: Vec<(&'a Cluster, Vec<u32>)>,
    rank: Vec<u32>,
}

/// A domain with its cluster.
struct Seat<'a> {
    value: String,
    cluster: &'a Cluster,
    hold: Hold,
    /// Whether the group was there before.
    old: bool,
    rank: Vec<u32>,
    last: bool,
    /// The cluster's room without what is promised to the group.
    lifted: Option<Room>,
    /// Amounts that are given to members already, by resource.
    asked: BTreeMap<ResourceId, i64>,
}

impl Seat<'_> {
    fn seat_capacity(&self) -> &Room {
        self.lifted.as_ref().unwrap_or(&self.cluster.room)
    }

    fn add_need(&mut self, need: &Need<'_>) {
        for (id, amount) in need.total_amounts() {
            let sum = self.asked.entry(id).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
}

/// Everything that a spread decision works on.
struct Spread<'a> {
    policy: &'a Policy,
    constraints: &'a SpreadConstraints,
    group: &'a Group<'a>,
    fleet: &'a Fleet,
    current: &'a Current,
    rejected: Vec<(Arc<str>, Reason)>,
    /// Clusters by topology value.
    sites: BTreeMap<String, Territory<'a>>,
    /// The recorded targets by domain.
    old: BTreeMap<&'a str, &'a Target>,
    steps: &'a Steps,
}

pub(super) fn decide_spread(
    policy: &Policy,
    constraints: &SpreadConstraints,
    group: &Group<'_>,
    fleet: &Fleet,
    current: &Current,
    steps: &Steps,
) -> Decision {
    let mut spread = Spread {
        policy,
        constraints,
        group,
        fleet,
        current,
        rejected: Vec::new(),
        sites: BTreeMap::new(),
        old: old_targets(constraints, fleet, current),
        steps,
    };
    spread.assign_domains();
    let has_candidates = spread.sites.values().any(|site| site.has.is_some() || !site.candidates.is_empty());
    let mut decision = if constraints.spread_mode == "Duplicate" {
        spread.decide_duplicate()
    } else if constraints.percentage_split.is_empty() {
        spread.decide_even_spread()
    } else {
        spread.by_percentage()
    };
    decision.rejected = std::mem::take(&mut spread.rejected);
    if decision.targets.is_empty() {
        let is_full = has_candidates && decision.domains.values().all(|reason| *reason == Outcome::NoFit)
            || decision.domains.values().any(|reason| *reason == Outcome::NoFit);
        let outcome = if is_full { Outcome::NoFit } else { Outcome::NoCandidates };
        let still: Vec<Target> =
            current.targets.iter().filter(|target| fleet.get(&target.cluster).is_some()).cloned().collect();
        decision.how = (!still.is_empty()).then_some(How::KeptUntilPlaced);
        decision.targets = still;
        decision.outcome = outcome;
        decision.scheduled = false;
        return decision;
    }
    decision.moving_from = spread.moving_from(&decision.targets);
    decision
}

/// Returns the decision, unless a group that its volumes keep would leave a target by it: then nothing of it changes, for
/// an empty volume elsewhere is not its data.
pub(super) fn keep_held_targets(decision: Decision, group: &Group<'_>, fleet: &Fleet, current: &Current) -> Decision {
    if current.targets.iter().all(|old| decision.targets.iter().any(|target| target.cluster == old.cluster))
        || !group.is_held()
    {
        return decision;
    }
    let targets: Vec<Target> =
        current.targets.iter().filter(|target| fleet.get(&target.cluster).is_some()).cloned().collect();
    let is_lost = targets.len() < current.targets.len();
    let outcome = if is_lost { Outcome::HasVolumes } else { Outcome::Placed };
    let how = (!targets.is_empty()).then_some(How::Volumes);
    Decision { rejected: decision.rejected, ..Decision::new(outcome, how, targets) }
}

/// Returns the recorded targets by their domains, of several the first.
fn old_targets<'a>(
    constraints: &SpreadConstraints,
    fleet: &'a Fleet,
    current: &'a Current,
) -> BTreeMap<&'a str, &'a Target> {
    let mut targets = BTreeMap::new();
    for target in &current.targets {
        if let Some(domain) = target
            .domain
            .as_deref()
            .or_else(|| fleet.get(&target.cluster).and_then(|one| one.find_label(&constraints.topology_key)))
        {
            targets.entry(domain).or_insert(target);
        }
    }
    targets
}

/// Replicas, or completions of a Job.
fn share_amount(share: Share) -> i64 {
    match share {
        Share::Replicas(replicas) => replicas,
        Share::Job { completions, .. } => completions,
    }
}

impl<'a> Spread<'a> {
    /// Sorts the clusters into domains, and finds the reasons against the others.
    fn assign_domains(&mut self) {
        let key = self.constraints.topology_key.as_str();
        let is_percent = self.by_percent();
        let held = self.group.is_held();
        let mut filter = Filter::new(self.policy, self.group, self.current, Some(key));
        let there: BTreeSet<&str> = self.current.targets.iter().map(|target| target.cluster.as_str()).collect();
        for cluster in self.fleet.iter() {
            let checked = filter.check_cluster(cluster);
            let old = there.get(&*cluster.name);
            let Some(value) = cluster.find_label(key) else {
                self.rejected.extend(checked.err().map(|reason| (cluster.name.clone(), reason)));
                continue;
            };
            let is_lost = self.is_lost(cluster);
            let site = self.sites.entry(value.to_owned()).or_default();
            let drained = filter.is_drained(cluster);
            let hold = match (&checked, old) {
                (Ok(_), Some(_)) => Some(Hold::Free),
                // Only what is divided evenly goes to the others; a share of its own goes to another cluster of its domain.
                (Err(Reason::NotReady), Some(_)) if is_lost && !held => {
                    (is_percent || self.policy.duplicates()).then_some(Hold::Drained)
                }
                (Err(Reason::Excluded(_)), Some(_)) => Some(Hold::Frozen),
                (Err(reason), Some(_)) if reason.may_keep_work() && (!drained || held) => Some(Hold::Frozen),
                (Err(reason), Some(_)) if reason.may_keep_work() && is_percent => Some(Hold::Drained),
                _ => None,
            };
            match (hold, checked) {
                (Some(hold), checked) => {
                    // Of two clusters of one domain, which a changed label or a drain can make, the one that leaves last
                    // keeps it, else the first: a domain has one target.
                    if site.has.is_none_or(|(_, known)| hold < known) {
                        site.has = Some((cluster, hold));
                        site.rank = checked.as_ref().cloned().unwrap_or_default();
                    }
                    self.rejected.extend(checked.err().map(|reason| (cluster.name.clone(), reason)));
                }
                (None, Ok(rank)) if !cluster.standby => site.candidates.push((cluster, rank)),
                (None, Ok(_)) => self.rejected.push((cluster.name.clone(), Reason::NotReady)),
                (None, Err(reason)) => self.rejected.push((cluster.name.clone(), reason)),
            }
        }
        self.sites.retain(|_, site| site.has.is_some() || !site.candidates.is_empty());
    }

    fn by_percent(&self) -> bool {
        self.constraints.spread_mode != "Duplicate" && !self.constraints.percentage_split.is_empty()
    }

    /// Returns whether a cluster is lost for so long that its share goes elsewhere.
    fn is_lost(&self, cluster: &Cluster) -> bool {
        self.current.mode == Mode::Failover && self.current.excluded.contains_key(&*cluster.name)
    }

    /// Members whose replicas are divided.
    fn dividable_members(&self) -> impl Iterator<Item = &'a Member<'a>> + use<'a> {
        self.group.members.iter().filter(|member| member.facts.workload.is_dividable())
    }

    /// Members that go to one domain whole.
    fn undividable_members(&self) -> impl Iterator<Item = &'a Member<'a>> + use<'a> {
        self.group.members.iter().filter(|member| member.facts.workload.is_undividable())
    }

    fn old_target(&self, domain: &str) -> Option<&'a Target> {
        self.old.get(domain).copied()
    }

    /// Returns the replicas or completions of an object that a domain has, as recorded.
    fn recorded_amount(&self, domain: &str, key: &ObjectKey) -> i64 {
        self.old_target(domain).and_then(|target| target.replicas.get(key)).map_or(0, |share| share_amount(*share))
    }

    /// Returns the replicas or completions that a division starts from: 0 where it is made afresh.
    fn starting_amount(&self, domain: &str, key: &ObjectKey) -> i64 {
        match self.current.mode {
            Mode::PolicyEdit | Mode::Rebalance => 0,
            Mode::Routine | Mode::Failover => self.recorded_amount(domain, key),
        }
    }

    /// A need for so many pods of a member, less those that are counted.
    fn compute_member_need(&self, member: &Member<'a>, cluster: &Cluster, pods: i64) -> Option<Need<'a>> {
        member.compute_pod_need(self.fleet, pods, self.current.counted_pods(&cluster.name, member.key()))
    }

    /// Returns the needs of a target's copies in a cluster.
    fn compute_target_needs(&self, cluster: &Cluster, target: &Target) -> Needs<'a> {
        self.group.compute_group_needs(self.fleet, self.current, &cluster.name, Some(target))
    }

    fn make_seat(&self, value: &str, cluster: &'a Cluster, hold: Hold, old: bool, rank: Vec<u32>) -> Seat<'a> {
        let last = super::filter::Filter::new(self.policy, self.group, self.current, None).is_last(cluster);
        let lifted = cluster.room.without_reservations_of(&self.fleet.resources, &self.group.name);
        Seat { value: value.to_owned(), cluster, hold, old, rank, last, lifted, asked: BTreeMap::new() }
    }

    /// Gives a domain to the cluster that has it, else to the best that has room for the target; `Err` if none has.
    fn settle_domain(&mut self, value: &str, target: &Target) -> Result<Seat<'a>, Outcome> {
        let Some(site) = self.sites.get(value) else { return Err(Outcome::NoCandidates) };
        let (has, site_rank) = (site.has, site.rank.clone());
        if let Some((cluster, hold @ (Hold::Free | Hold::Frozen))) = has {
            return Ok(self.make_seat(value, cluster, hold, true, site_rank));
        }
        let candidates: Vec<Candidate<'a>> = site
            .candidates
            .iter()
            .map(|(cluster, rank)| Candidate { cluster, rank: rank.clone(), first: false, last: self.is_last(cluster) })
            .collect();
        let is_empty = candidates.is_empty();
        let needs = self.group.compute_group_needs(self.fleet, self.current, "", Some(target));
        let found = pick_best_cluster(
            self.fleet,
            candidates,
            |cluster| Site { room: &cluster.room, needs: &needs },
            &mut self.rejected,
            self.steps,
        );
        match (found, has) {
            (Some(Pick { cluster, rank, .. }), _) => Ok(self.make_seat(value, cluster, Hold::Free, false, rank)),
            (None, Some((cluster, hold))) => Ok(self.make_seat(value, cluster, hold, true, site_rank)),
            (None, None) => Err(if is_empty { Outcome::NoCandidates } else { Outcome::NoFit }),
        }
    }

    fn is_last(&self, cluster: &Cluster) -> bool {
        Filter::new(self.policy, self.group, self.current, None).is_last(cluster)
    }

    /// Divides one member over domains.
    fn divide_member(&self, member: &Member<'a>, domains: &[Domain<'_>], fills: bool) -> (Vec<Share>, i64) {
        let seed = tie_seed(member.key());
        let ties = Ties::Hash(&seed);
        match member.facts.workload {
            Workload::Job { completions: Some(completions), parallelism, .. } => {
                let division = self
                    .fixed_job(member, completions, domains)
                    .unwrap_or_else(|| divide_or_fill(fills, domains, ties, completions));
                (divide_job(&division, parallelism, domains, ties), division.withheld)
            }
            Workload::Replicas(replicas) => {
                let division = divide_or_fill(fills, domains, ties, replicas);
                (division.replicas.into_iter().map(Share::Replicas).collect(), division.withheld)
            }
            _ => (Vec::new(), 0),
        }
    }

    /// The division of a Job that already exists: its parts are never changed, and the part of a lost domain is
    /// withheld.
    fn fixed_job(&self, member: &Member<'a>, completions: i64, domains: &[Domain<'_>]) -> Option<Division> {
        let replicas: Vec<i64> =
            domains.iter().map(|domain| self.recorded_amount(domain.value, member.key())).collect();
        let sum: i64 = replicas.iter().sum();
        (sum > 0).then(|| Division { replicas, withheld: completions.saturating_sub(sum).max(0) })
    }

    fn decide_duplicate(&mut self) -> Decision {
        let values: Vec<String> = self.sites.keys().filter(|value| !self.leaves_domain_out(value)).cloned().collect();
        let mut decision = Decision::new(Outcome::Placed, Some(How::Duplicate), Vec::new());
        for value in values {
            let target = Target { domain: Some(value.clone()), ..Target::default() };
            match self.settle_domain(&value, &target) {
                Ok(seat) => {
                    decision.targets.push(Target { cluster: seat.cluster.name.to_string(), ..target });
                }
                Err(reason) => {
                    decision.domains.insert(value, reason);
                    decision.outcome = Outcome::PartlyPlaced;
                }
            }
        }
        decision
    }

    /// Returns whether the policy gives a domain nothing.
    fn leaves_domain_out(&self, value: &str) -> bool {
        self.constraints.percentage_split.iter().any(|one| one.topology_value == value && one.percentage == 0)
    }

    /// Clusters that the group leaves while something elsewhere has to come up first. Where it only shrinks, nothing has to.
    fn moving_from(&self, targets: &[Target]) -> Vec<String> {
        let mut before: BTreeMap<&str, &Target> = BTreeMap::new();
        for old in &self.current.targets {
            before.entry(&old.cluster).or_insert(old);
        }
        let grows = targets.iter().any(|target| {
            let old = before.get(target.cluster.as_str());
            let grows = target.replicas.iter().any(|(key, share)| {
                let before = old.and_then(|old| old.replicas.get(key));
                share_amount(*share) > before.map_or(0, |share| share_amount(*share))
            });
            old.is_none() || grows
        });
        let after: BTreeSet<&str> = targets.iter().map(|target| target.cluster.as_str()).collect();
        let left = self
            .current
            .targets
            .iter()
            .filter(|old| self.fleet.get(&old.cluster).is_some() && !after.contains(old.cluster.as_str()))
            .map(|old| old.cluster.clone());
        if grows { left.collect() } else { Vec::new() }
    }
}

/// Divides an amount over domains, or fills them one after the other.
fn divide_or_fill(fills: bool, domains: &[Domain<'_>], ties: Ties<'_>, n: i64) -> Division {
    if fills { fill_domains(n, domains) } else { divide_replicas(n, domains, ties) }
}
