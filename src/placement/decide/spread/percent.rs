//! Division by percentages: shares are strict, and what a domain cannot take is withheld.

use std::collections::BTreeMap;

use super::{Decision, Domain, How, Outcome, Share, Spread, Target, share_amount};
use crate::placement::facts::ObjectKey;

impl Spread<'_> {
    pub(super) fn by_percentage(&mut self) -> Decision {
        let split = &self.constraints.percentage_split;
        let mut named: Vec<(String, i64)> = split
            .iter()
            .filter(|one| one.percentage > 0)
            .map(|one| (one.topology_value.clone(), one.percentage.into()))
            .collect();
        named.sort();
        let mut shares: BTreeMap<String, BTreeMap<ObjectKey, Share>> = BTreeMap::new();
        let mut decision = Decision::new(Outcome::Placed, Some(How::Divide), Vec::new());
        for member in self.dividable_members() {
            let parts =
                named.iter().map(|(value, weight)| (value.clone(), *weight, self.starting_amount(value, member.key())));
            let parts: Vec<(String, i64, i64)> = parts.collect();
            let domains: Vec<Domain<'_>> = parts
                .iter()
                .map(|(value, weight, prev)| Domain { value, weight: *weight, prev: *prev, cap: None })
                .collect();
            let (divided, withheld) = self.divide_member(member, &domains, false);
            decision.withheld += withheld;
            for ((value, ..), share) in parts.iter().zip(divided) {
                shares.entry(value.clone()).or_default().insert(member.key().clone(), share);
            }
        }
        // Of equal shares the first name: the list is sorted, and the first of the largest is taken.
        let largest = named.iter().rev().max_by_key(|(_, percent)| *percent).map(|(value, _)| value.clone());
        let mut whole: BTreeMap<String, Vec<ObjectKey>> = BTreeMap::new();
        for member in self.undividable_members() {
            let value = named
                .iter()
                .find(|(value, _)| self.old_target(value).is_some_and(|target| target.whole.contains(member.key())))
                .map(|(value, _)| value.clone())
                .or_else(|| largest.clone());
            whole.entry(value.unwrap_or_default()).or_default().push(member.key().clone());
        }
        for (value, _) in &named {
            let target = Target {
                cluster: String::new(),
                domain: Some(value.clone()),
                replicas: shares.remove(value).unwrap_or_default(),
                whole: whole.remove(value).unwrap_or_default(),
            };
            match self.settle_domain(value, &target) {
                Ok(seat) => decision.targets.push(Target { cluster: seat.cluster.name.to_string(), ..target }),
                Err(reason) => {
                    decision.withheld += target.replicas.values().map(|share| share_amount(*share)).sum::<i64>();
                    decision.domains.insert(value.clone(), reason);
                }
            }
        }
        if decision.withheld > 0 || !decision.domains.is_empty() {
            decision.outcome = Outcome::PartlyPlaced;
        }
        decision
    }
}
