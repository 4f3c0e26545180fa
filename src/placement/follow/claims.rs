//! Claims: each has one home, and groups that mount it go there.

use std::collections::{BTreeMap, BTreeSet};

use super::board::Board;
use super::kinds::is_claim;
use super::sources::Decider;
use super::uses::{Index, Uses};
use crate::placement::facts::ObjectKey;

/// Clusters that a claim leaves to those that mount it.
#[derive(Debug, Clone)]
pub(super) struct Home<'a> {
    /// Where it may be.
    pub(super) allowed: BTreeSet<&'a str>,
    /// Where those go that mount it.
    clusters: BTreeSet<&'a str>,
    /// The user whose place makes it the home, while there is no copy: that one is not pinned.
    chosen_by: Option<Index>,
}

/// Homes of claims by their position; those that may have several copies are not in it.
pub(super) type Homes<'a> = BTreeMap<Index, Home<'a>>;

impl<'a> Board<'a> {
    /// Finds the home of a claim: the clusters of its copies, else those where it was last, else that of its oldest user. What is spread has claims of its
    /// own; `None` for what may have an empty one anywhere.
    pub(super) fn find_claim_home(&self, index: Index, uses: &Uses<'a>, own: &BTreeSet<&'a str>) -> Option<Home<'a>> {
        let record = self.sources.records[index];
        if !is_claim(&record.facts.key) || record.facts.asks.allow_volume_move {
            return None;
        }
        let known = if record.copies.is_empty() {
            record.recorded.iter().collect()
        } else {
            record.copies.keys().collect::<Vec<_>>()
        };
        let copies: BTreeSet<&str> = known.into_iter().map(String::as_str).collect();
        let spread = uses.places.iter().filter(|(_, reasons)| reasons.is_spread).map(|(cluster, _)| *cluster);
        let own_is_spread = match self.sources.decider(index) {
            Decider::Annotation { is_spread } => is_spread,
            _ => self.sources.is_spread(self.sources.policy(index)),
        };
        let mut allowed: BTreeSet<&str> = spread.chain(own.iter().copied().filter(|_| own_is_spread)).collect();
        if !copies.is_empty() {
            allowed.extend(&copies);
            return Some(Home { allowed, clusters: copies, chosen_by: None });
        }
        if matches!(self.sources.decider(index), Decider::Annotation { .. }) {
            return Some(Home { allowed: own.clone(), clusters: own.clone(), chosen_by: None });
        }
        let oldest = uses.places.iter().filter_map(|(cluster, reasons)| Some((reasons.oldest?, *cluster))).min();
        let (chosen_by, home) = match oldest {
            Some(((_, _, user, _), cluster)) => (Some(user), Some(cluster)),
            None => (None, own.first().copied()),
        };
        allowed.extend(home);
        Some(Home { clusters: allowed.clone(), allowed, chosen_by })
    }

    /// Returns the clusters that claims leave a group: those of all claims that its decided members mount and of those that
    /// are members; `None` if none pins it.
    pub(super) fn find_only(
        &self,
        decided: &[Index],
        followers: &[Index],
        claims_by_maker: &BTreeMap<Index, Vec<Index>>,
        homes: &Homes<'a>,
    ) -> Option<BTreeSet<String>> {
        let mounted = decided.iter().flat_map(|member| {
            let names = self.sources.records[*member].relations.name_keys();
            let named = names.filter(|key| is_claim(key)).filter_map(|key: &ObjectKey| self.sources.find(key));
            named.chain(claims_by_maker.get(member).into_iter().flatten().copied())
        });
        let claims: BTreeSet<Index> = mounted.chain(followers.iter().copied()).collect();
        let mut only: Option<BTreeSet<&str>> = None;
        for home in claims.iter().filter_map(|claim| homes.get(claim)) {
            if home.clusters.is_empty() || home.chosen_by.is_some_and(|user| decided.binary_search(&user).is_ok()) {
                continue;
            }
            only = Some(match only {
                None => home.clusters.clone(),
                Some(only) => only.intersection(&home.clusters).copied().collect(),
            });
        }
        only.map(|only| only.into_iter().map(str::to_owned).collect())
    }
}
