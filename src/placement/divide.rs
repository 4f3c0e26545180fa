//! Replicas over domains, exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sha2::{Digest as _, Sha256};

use super::copy::Share;
use super::facts::ObjectKey;

/// A domain that may get replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain<'a> {
    /// Its value of the topology label.
    pub value: &'a str,
    /// Its part, in the same unit as that of the others; 0 gets none.
    pub weight: i64,
    /// Replicas that it has.
    pub prev: i64,
    /// The most that it can have.
    pub cap: Option<i64>,
}

impl Domain<'_> {
    fn bounded_cap(&self) -> i64 {
        self.cap.unwrap_or(i64::MAX).max(0)
    }

    fn wide_cap(&self) -> i128 {
        i128::from(self.bounded_cap())
    }
}

/// Rule that decides between domains that have the same claim.
#[derive(Debug, Clone, Copy)]
pub enum Ties<'a> {
    /// A hash of the domain and this text, so that the odd replicas of many objects do not all go to one domain.
    Hash(&'a str),
    /// The order in which the domains are given.
    Listed,
}

/// Replicas by domain, in the order in which the domains were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    /// Replicas of each domain.
    pub replicas: Vec<i64>,
    /// Replicas that no domain has room for.
    pub withheld: i64,
}

/// Returns the text that ties of an object are hashed with.
pub fn tie_seed(key: &ObjectKey) -> String {
    format!("{}/{}\n{}\n{}", key.group(), key.kind(), key.namespace(), key.name())
}

fn hash_domain(domain: &str, seed: &str) -> u64 {
    let digest = Sha256::digest(format!("{domain}\n{seed}").as_bytes());
    u64::from_be_bytes(std::array::from_fn(|i| digest[i]))
}

/// Replicas that a domain would get exactly, times the sum of weights; its limits; and what decides ties.
struct Open {
    quota: i128,
    cap: i64,
    tie: u64,
    replicas: i64,
    /// Whether its weight is more than 0.
    takes: bool,
}

impl Open {
    /// The domain with the least rank is the first to grow, that with the greatest the first to shrink.
    fn rank_claim(&self, whole: i128) -> (i128, i64, u64) {
        (i128::from(self.replicas) * whole - self.quota, self.replicas, self.tie)
    }

    fn may_grow(&self) -> bool {
        self.takes && self.replicas < self.cap
    }
}

/// Divides by weight: what is missing goes to the largest shortfall, what is too much comes from the largest excess. Nothing
/// is taken from a domain while another grows.
pub fn divide_replicas(n: i64, domains: &[Domain<'_>], ties: Ties<'_>) -> Division {
    let n = n.max(0);
    let (quotas, whole) = compute_quotas(n, domains);
    let mut open: Vec<Open> = Vec::with_capacity(domains.len());
    for (position, (domain, quota)) in domains.iter().zip(quotas).enumerate() {
        let cap = domain.bounded_cap();
        let takes = domain.weight > 0;
        let tie = match ties {
            Ties::Hash(seed) => hash_domain(domain.value, seed),
            Ties::Listed => position as u64,
        };
        open.push(Open { quota, cap, tie, replicas: if takes { domain.prev.clamp(0, cap) } else { 0 }, takes });
    }
    apply_bulk_steps(n, whole, &mut open);
    let mut sum: i64 = open.iter().map(|one| one.replicas).fold(0, i64::saturating_add);
    // A step changes the claim of one domain alone, which takes its place among the others again.
    let mut growing: BinaryHeap<_> = open
        .iter()
        .enumerate()
        .filter(|(_, one)| sum < n && one.may_grow())
        .map(|(at, one)| Reverse((one.rank_claim(whole), at)))
        .collect();
    while sum < n
        && let Some(Reverse((_, at))) = growing.pop()
    {
        open[at].replicas += 1;
        sum += 1;
        growing.extend(open[at].may_grow().then(|| Reverse((open[at].rank_claim(whole), at))));
    }
    let mut shrinking: BinaryHeap<_> = open
        .iter()
        .enumerate()
        .filter(|(_, one)| sum > n && one.replicas > 0)
        .map(|(at, one)| (one.rank_claim(whole), at))
        .collect();
    while sum > n
        && let Some((_, at)) = shrinking.pop()
    {
        open[at].replicas -= 1;
        sum -= 1;
        shrinking.extend((open[at].replicas > 0).then(|| (open[at].rank_claim(whole), at)));
    }
    Division { replicas: open.into_iter().map(|one| one.replicas).collect(), withheld: (n - sum).max(0) }
}

/// The exact share of each domain times the second number. A domain whose share exceeds its cap has the cap for a
/// share; the rest is shared again.
fn compute_quotas(n: i64, domains: &[Domain<'_>]) -> (Vec<i128>, i128) {
    let mut capped = vec![false; domains.len()];
    let mut rest = i128::from(n);
    let mut whole: i128 = domains.iter().map(|one| i128::from(one.weight.max(0))).sum();
    // The one with the least cap for its weight exceeds it first; each that has its cap leaves more to the others.
    let mut by_cap: Vec<usize> = (0..domains.len()).filter(|at| domains[*at].weight > 0).collect();
    by_cap.sort_by(|a, b| {
        let (a, b) = (&domains[*a], &domains[*b]);
        (a.wide_cap() * i128::from(b.weight)).cmp(&(b.wide_cap() * i128::from(a.weight)))
    });
    for at in by_cap {
        let domain = &domains[at];
        if domain.wide_cap() * whole >= rest * i128::from(domain.weight) {
            break;
        }
        capped[at] = true;
        rest -= domain.wide_cap();
        whole -= i128::from(domain.weight);
    }
    let whole = whole.max(1);
    let quotas = domains.iter().enumerate().map(|(at, domain)| match (domain.weight > 0, capped[at]) {
        (false, _) => 0,
        (true, true) => domain.wide_cap() * whole,
        (true, false) => rest * i128::from(domain.weight),
    });
    (quotas.collect(), whole)
}

/// Does in one step what the single steps would do in any case, until at most a few for each domain are left.
///
/// A domain that is further from its quota than `distance` is taken from, or given to, before any that is nearer: so all
/// come within the smallest distance that does not overshoot.
fn apply_bulk_steps(n: i64, whole: i128, open: &mut [Open]) {
    let now: Vec<i64> = open.iter().map(|one| one.replicas).collect();
    let grows = sum_saturating(&now) < n;
    let farthest = open.iter().map(|one| (i128::from(one.replicas) - one.quota.div_euclid(whole)).unsigned_abs()).max();
    let farthest = farthest.unwrap_or_default().saturating_add(1);
    let (mut least, mut enough) = (0, i64::try_from(farthest).unwrap_or(i64::MAX));
    while least < enough {
        let middle = least + (enough - least) / 2;
        let then = sum_saturating(&approach_quotas(open, whole, grows, middle));
        let overshoots = if grows { then > n } else { then < n };
        if overshoots { least = middle + 1 } else { enough = middle }
    }
    let then = approach_quotas(open, whole, grows, enough);
    open.iter_mut().zip(then).for_each(|(one, replicas)| one.replicas = replicas);
}

/// Returns the replicas of all domains, each as near to its quota as the distance allows.
fn approach_quotas(open: &[Open], whole: i128, grows: bool, distance: i64) -> Vec<i64> {
    let distance = i128::from(distance);
    let near = open.iter().map(|one| {
        if grows {
            let quota = (one.quota + whole - 1).div_euclid(whole);
            one.replicas.max(bound_replicas(quota - distance))
        } else {
            one.replicas.min(bound_replicas(one.quota.div_euclid(whole) + distance))
        }
    });
    near.collect()
}

fn bound_replicas(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX).max(0)
}

fn sum_saturating(all: &[i64]) -> i64 {
    all.iter().copied().fold(0, i64::saturating_add)
}

/// Fills the first domain to its cap, then the next; what is too much comes from the last.
pub fn fill_domains(n: i64, domains: &[Domain<'_>]) -> Division {
    let mut replicas: Vec<i64> = domains.iter().map(|domain| domain.prev.clamp(0, domain.bounded_cap())).collect();
    let mut missing = n.max(0) - replicas.iter().copied().fold(0, i64::saturating_add);
    for (own, domain) in replicas.iter_mut().zip(domains) {
        let more = missing.clamp(0, domain.bounded_cap() - *own);
        *own += more;
        missing -= more;
    }
    for own in replicas.iter_mut().rev() {
        let less = (-missing).clamp(0, *own);
        *own -= less;
        missing += less;
    }
    Division { replicas, withheld: missing.max(0) }
}

/// Divides a Job: `completions` are divided already; each domain that has some also runs at least one pod at a time.
pub fn divide_job(completions: &Division, parallelism: i64, domains: &[Domain<'_>], ties: Ties<'_>) -> Vec<Share> {
    let afresh: Vec<Domain<'_>> = domains.iter().map(|domain| Domain { prev: 0, cap: None, ..*domain }).collect();
    let at_a_time = divide_replicas(parallelism, &afresh, ties).replicas;
    completions
        .replicas
        .iter()
        .zip(at_a_time)
        .map(|(completions, parallelism)| {
            let least = i64::from(*completions > 0);
            Share::Job { completions: *completions, parallelism: parallelism.max(least).min(*completions) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(weights: &[i64]) -> Vec<Domain<'static>> {
        let names = ["a", "b", "c", "d"];
        names.iter().zip(weights).map(|(value, weight)| Domain { value, weight: *weight, prev: 0, cap: None }).collect()
    }

    #[test]
    fn a_million_replicas_take_no_million_steps() {
        let division = divide_replicas(1_000_000_007, &of(&[50, 30, 20]), Ties::Listed);
        assert_eq!(division.replicas.iter().sum::<i64>(), 1_000_000_007);
        let mut shrinking = of(&[50, 50]);
        shrinking[0].prev = 1_000_000_000;
        assert_eq!(
            divide_replicas(10, &shrinking, Ties::Listed).replicas,
            [10, 0],
            "nothing grows while something shrinks"
        );
        assert_eq!(divide_replicas(i64::MAX, &of(&[1, 1]), Ties::Listed).withheld, 0);
    }

    #[test]
    fn many_domains_with_caps_and_claims_are_divided_exactly() {
        let names: Vec<String> = (0..20_000).map(|n| format!("d{n}")).collect();
        let domains: Vec<Domain<'_>> = (0..)
            .zip(&names)
            .map(|(at, value)| Domain { value, weight: 1 + at % 7, prev: at % 3, cap: Some(at % 50) })
            .collect();
        for n in [0, 1, 19_999, 250_000, 1_000_000] {
            let division = divide_replicas(n, &domains, Ties::Listed);
            assert_eq!(division.replicas.iter().sum::<i64>() + division.withheld, n);
            assert!(division.replicas.iter().zip(&domains).all(|(has, one)| Some(*has) <= one.cap));
        }
    }

    #[test]
    fn nobody_takes_what_no_weight_allows() {
        assert_eq!(divide_replicas(3, &of(&[0, 0]), Ties::Listed), Division { replicas: vec![0, 0], withheld: 3 });
        assert_eq!(divide_replicas(3, &[], Ties::Listed), Division { replicas: vec![], withheld: 3 });
    }
}
