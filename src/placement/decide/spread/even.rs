//! Even division as far as there is room, and filling of one domain after the other.

use std::cmp::Ordering;

use super::{Decision, Domain, Hold, How, Member, Outcome, Seat, Share, Spread, Target};
use crate::placement::facts::Workload;
use crate::placement::fraction::Fraction;
use crate::placement::room::{Fit, Needs};

/// The order between domains: rank, no taint that puts last, most left, name.
fn compare_preference(
    (a, a_left): (&Seat<'_>, Option<Fraction>),
    (b, b_left): (&Seat<'_>, Option<Fraction>),
) -> Ordering {
    let order = a.rank.cmp(&b.rank).then_with(|| a.last.cmp(&b.last)).then_with(|| b_left.cmp(&a_left));
    order.then_with(|| a.value.cmp(&b.value))
}

impl<'a> Spread<'a> {
    pub(super) fn decide_even_spread(&mut self) -> Decision {
        let mut seats = self.settle_all_domains();
        let mut targets: Vec<Target> = seats.iter().map(|seat| self.empty_target(seat)).collect();
        let mut decision = Decision::new(Outcome::Placed, Some(How::Divide), Vec::new());
        if seats.is_empty() {
            decision.withheld = self.dividable_members().map(|member| member.facts.workload.pods_at_once()).sum();
            return decision;
        }
        self.by_preference(&mut seats, &mut targets);
        for member in self.undividable_members() {
            let at = self.choose_home_domain(member, &seats, &targets);
            targets[at].whole.push(member.key().clone());
            if let Some(need) =
                self.compute_member_need(member, seats[at].cluster, member.facts.workload.pods_at_once())
            {
                seats[at].add_need(&need);
            }
        }
        let mut members: Vec<&Member<'a>> = self.dividable_members().collect();
        let largest = seats.iter().max_by(|a, b| {
            a.seat_capacity().count_nodes().cmp(&b.seat_capacity().count_nodes()).then_with(|| b.value.cmp(&a.value))
        });
        members.sort_by(|a, b| self.by_share(b, a, largest).then_with(|| a.key().cmp(b.key())));
        let fills = self.policy.order.is_some();
        for member in members {
            let (shares, withheld) = self.divide_evenly(member, &seats, &targets, fills);
            decision.withheld += withheld;
            for ((seat, target), share) in seats.iter_mut().zip(&mut targets).zip(shares) {
                if let Some(need) = self.compute_member_need(member, seat.cluster, share.pods()) {
                    seat.add_need(&need);
                }
                target.replicas.insert(member.key().clone(), share);
            }
        }
        if decision.withheld > 0
            && seats
                .iter()
                .zip(&targets)
                .all(|(seat, target)| !seat.old && target.whole.is_empty() && !runs_any_pods(target))
        {
            // Copies that run nothing are no place: why not even one pod fits is what there is to say.
            self.say_why_none(&seats);
            return decision;
        }
        decision.targets = self.without_empty(&seats, targets);
        decision.targets.sort_by(|a, b| a.domain.cmp(&b.domain));
        if decision.withheld > 0 {
            decision.outcome = Outcome::PartlyPlaced;
        }
        decision
    }

    /// Finds the reasons against one pod of each member in every domain.
    fn say_why_none(&mut self, seats: &[Seat<'a>]) {
        for seat in seats {
            let one = self.dividable_members().map(|member| (member.key().clone(), Share::Replicas(1))).collect();
            let target = Target { domain: Some(seat.value.clone()), replicas: one, ..Target::default() };
            let _ = self.settle_domain(&seat.value, &target);
        }
    }

    /// Each domain with its cluster; one that has no room for what is copied everywhere is left out.
    fn settle_all_domains(&mut self) -> Vec<Seat<'a>> {
        let values: Vec<String> = self.sites.keys().cloned().collect();
        let mut seats = Vec::with_capacity(values.len());
        for value in values {
            let mut target = Target { domain: Some(value.clone()), ..Target::default() };
            target.replicas =
                self.dividable_members().map(|member| (member.key().clone(), Share::Replicas(0))).collect();
            seats.extend(self.settle_domain(&value, &target).ok());
        }
        seats
    }

    fn empty_target(&self, seat: &Seat<'a>) -> Target {
        let zero = self.dividable_members().map(|member| (member.key().clone(), Share::Replicas(0)));
        Target {
            cluster: seat.cluster.name.to_string(),
            domain: Some(seat.value.clone()),
            replicas: zero.collect(),
            whole: Vec::new(),
        }
    }

    /// Sorts domains by the policy's order, then by what stays free.
    fn by_preference(&self, seats: &mut Vec<Seat<'a>>, targets: &mut Vec<Target>) {
        let mut all: Vec<_> = seats
            .drain(..)
            .zip(targets.drain(..))
            .map(|(seat, target)| {
                let left = seat.seat_capacity().share_left(&self.compute_target_needs(seat.cluster, &target));
                (left, seat, target)
            })
            .collect();
        all.sort_by(|(a_left, a, _), (b_left, b, _)| compare_preference((a, *a_left), (b, *b_left)));
        for (_, seat, target) in all {
            seats.push(seat);
            targets.push(target);
        }
    }

    /// The domain of an undividable object: where it is, else the best with room, else the best of all.
    fn choose_home_domain(&self, member: &Member<'a>, seats: &[Seat<'a>], targets: &[Target]) -> usize {
        if let Some(old) = seats
            .iter()
            .position(|seat| self.old_target(&seat.value).is_some_and(|old| old.whole.contains(member.key())))
        {
            return old;
        }
        if !self.steps.take_steps(seats.len().saturating_mul(self.group.len())) {
            // The best before anything else is looked at.
            return 0;
        }
        let mut all: Vec<_> = Vec::with_capacity(seats.len());
        for (at, (seat, target)) in seats.iter().zip(targets).enumerate() {
            let mut target = target.clone();
            target.whole.push(member.key().clone());
            let needs = self.compute_target_needs(seat.cluster, &target);
            all.push((at, seat.seat_capacity().share_left(&needs), needs));
        }
        all.sort_by(|(a, a_left, _), (b, b_left, _)| compare_preference((&seats[*a], *a_left), (&seats[*b], *b_left)));
        let with_room = all.iter().find(|(at, _, needs)| {
            let seat = &seats[*at];
            seat.hold == Hold::Free
                && !matches!(seat.seat_capacity().fit_within(&self.fleet.resources, needs, self.steps), Fit::No(_))
        });
        with_room.or(all.first()).map_or(0, |(at, ..)| *at)
    }

    /// Compares members by the largest part of all domains' capacity that one of their pods takes.
    fn by_share(&self, a: &Member<'a>, b: &Member<'a>, largest: Option<&Seat<'a>>) -> Ordering {
        let Some(seat) = largest else { return Ordering::Equal };
        match (self.compute_member_need(a, seat.cluster, 1), self.compute_member_need(b, seat.cluster, 1)) {
            (Some(a), Some(b)) => seat.seat_capacity().by_share(&a, &b),
            _ => Ordering::Equal,
        }
    }

    fn divide_evenly(
        &self,
        member: &Member<'a>,
        seats: &[Seat<'a>],
        targets: &[Target],
        fills: bool,
    ) -> (Vec<Share>, i64) {
        let caps: Vec<i64> =
            seats.iter().zip(targets).map(|(seat, target)| self.domain_cap(member, seat, target)).collect();
        let starts: Vec<(i64, i64)> = seats
            .iter()
            .zip(&caps)
            .map(|(seat, cap)| (self.starting_amount(&seat.value, member.key()), *cap))
            .collect();
        let domains: Vec<Domain<'_>> = seats
            .iter()
            .zip(&starts)
            .map(|(seat, (prev, cap))| Domain { value: &seat.value, weight: 1, prev: *prev, cap: Some(*cap) })
            .collect();
        let (shares, withheld) = self.divide_member(member, &domains, fills);
        let grows = seats.iter().map(|seat| {
            let need = self
                .compute_member_need(member, seat.cluster, 1)
                .map(|need| Needs::new(&self.fleet.resources, vec![need]));
            seat.hold == Hold::Free
                && seat.cluster.autoscaled
                && need.is_some_and(|need| seat.seat_capacity().fits_empty_nodes(&need, self.steps))
        });
        let grows: Vec<bool> = grows.collect();
        if withheld == 0 || !grows.contains(&true) {
            return (shares, withheld);
        }
        // Every other domain is full; what is over goes to those that add nodes.
        let filled: Vec<Domain<'_>> = domains
            .iter()
            .zip(&shares)
            .zip(&grows)
            .map(|((domain, share), grows)| {
                let has = super::share_amount(*share);
                Domain { prev: has, cap: (!grows).then_some(has), ..*domain }
            })
            .collect();
        self.divide_member(member, &filled, fills)
    }

    /// The most that a domain can have of a member: what fits beside all else, and never less than what exists.
    fn domain_cap(&self, member: &Member<'a>, seat: &Seat<'a>, target: &Target) -> i64 {
        let recorded = if seat.old { self.recorded_amount(&seat.value, member.key()) } else { 0 };
        let bound = self.current.bound.get(&*seat.cluster.name).and_then(|objects| objects.get(member.key()));
        if let Some(bound) = bound {
            return *bound;
        }
        if seat.hold != Hold::Free {
            return recorded;
        }
        let counted = self.current.counted_pods(&seat.cluster.name, member.key());
        let Some(need) = self.compute_member_need(member, seat.cluster, 0) else { return i64::MAX };
        let more = if self.steps.take_steps(self.group.len()) {
            // The share of the member itself is none until it is divided.
            let beside = self.compute_target_needs(seat.cluster, target);
            seat.seat_capacity().max_pods_beside(&self.fleet.resources, &beside, &need, self.steps).unwrap_or_default()
        } else {
            seat.seat_capacity().most_by_totals(seat.asked.iter().map(|(id, amount)| (*id, *amount)), &need)
        };
        let most = counted.max(0).saturating_add(more);
        match member.facts.workload {
            // A Job's completions need no room at the same time: a domain with room for one pod can run all of them.
            Workload::Job { .. } if most > 0 => i64::MAX,
            _ => recorded.max(most),
        }
    }

    /// Drops the domains that would get nothing but copies of what has no pods there.
    fn without_empty(&self, seats: &[Seat<'a>], targets: Vec<Target>) -> Vec<Target> {
        let any = targets.iter().any(runs_any_pods);
        let anywhere = seats.iter().any(|seat| seat.old);
        let held = self.group.is_held();
        let kept = seats.iter().zip(targets).filter(|(seat, target)| match (target.replicas.is_empty(), any) {
            (true, _) => true,
            (false, true) => runs_any_pods(target) || !target.whole.is_empty() || (held && seat.old),
            (false, false) => seat.old || !anywhere || !target.whole.is_empty(),
        });
        kept.map(|(_, target)| target).collect()
    }
}

/// Returns whether a target runs a part of anything that is divided.
fn runs_any_pods(target: &Target) -> bool {
    target.replicas.values().any(|share| super::share_amount(*share) > 0)
}
