//! All sources of a plan in the order of keys, each with who decides about it.

use std::collections::{BTreeMap, HashMap};

use super::kinds::{FollowerKind, is_default_account};
use super::record::{FollowCopy, SourceRecord};
use super::uses::Index;
use crate::placement::facts::{MOST_NAMES, Never, ObjectKey, Relations};
use crate::placement::matching::{Direct, Match, Policies, Policy};

/// Who decides about a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decider {
    /// It is never placed.
    Never(Never),
    /// Its annotation keeps it in the control plane.
    Nowhere,
    /// Its annotation.
    Annotation {
        /// Whether it names several clusters.
        is_spread: bool,
    },
    /// A policy, by its position in the order in which policies decide.
    Policy(usize),
    /// Nobody.
    Nobody,
}

/// The sources of a plan.
pub(super) struct Sources<'a> {
    pub(super) records: Vec<&'a SourceRecord<'a>>,
    pub(super) policies: Vec<&'a Policy>,
    deciders: Vec<Decider>,
    kinds: Vec<Option<FollowerKind>>,
    by_key: HashMap<&'a ObjectKey, Index>,
}

impl<'a> Sources<'a> {
    /// Sorts records by their keys and finds who decides about each.
    pub(super) fn new(
        policies: &'a Policies,
        namespaces: &BTreeMap<String, BTreeMap<String, String>>,
        records: &'a [SourceRecord<'a>],
    ) -> Self {
        let mut records: Vec<&SourceRecord<'_>> = records.iter().collect();
        records.sort_by(|a, b| a.facts.key.cmp(&b.facts.key));
        records.dedup_by(|a, b| a.facts.key == b.facts.key);
        let order: Vec<&Policy> = policies.iter().collect();
        let ranks: HashMap<&str, usize> =
            order.iter().enumerate().map(|(rank, policy)| (policy.name.as_str(), rank)).collect();
        let none = BTreeMap::new();
        let mut deciders = Vec::with_capacity(records.len());
        for record in &records {
            let labels = namespaces.get(record.facts.key.namespace()).unwrap_or(&none);
            deciders.push(match policies.match_object(record.facts, labels) {
                Match::Never(never) => find_never(record, never),
                Match::Nowhere { .. } => Decider::Nowhere,
                Match::Annotation { direct, .. } => {
                    Decider::Annotation { is_spread: matches!(direct, Direct::SpreadOnto(_)) }
                }
                Match::Policy { policy, .. } => {
                    ranks.get(policy.name.as_str()).map_or(Decider::Nobody, |rank| Decider::Policy(*rank))
                }
                Match::Nothing { .. } => Decider::Nobody,
            });
        }
        let kinds = records.iter().map(|record| FollowerKind::find(&record.facts.key)).collect();
        let by_key = records.iter().enumerate().map(|(index, record)| (&record.facts.key, index)).collect();
        Self { records, policies: order, deciders, kinds, by_key }
    }

    pub(super) fn key(&self, index: Index) -> &'a ObjectKey {
        &self.records[index].facts.key
    }

    pub(super) fn decider(&self, index: Index) -> Decider {
        self.deciders[index]
    }

    /// Returns the policy that decides about a source.
    pub(super) fn policy(&self, index: Index) -> Option<usize> {
        match self.deciders[index] {
            Decider::Policy(policy) => Some(policy),
            _ => None,
        }
    }

    /// Returns the kind of a source that follows; `None` if it is decided.
    pub(super) fn kind(&self, index: Index) -> Option<FollowerKind> {
        self.kinds[index]
    }

    pub(super) fn find(&self, key: &ObjectKey) -> Option<Index> {
        self.by_key.get(key).copied()
    }

    pub(super) fn copy(&self, index: Index, cluster: &str) -> Option<&'a FollowCopy> {
        self.records[index].copies.get(cluster)
    }

    /// Returns whether a policy takes along what pods need and no policy matches; without a policy that is so.
    pub(super) fn carries(&self, policy: Option<usize>) -> bool {
        policy.is_none_or(|policy| self.policies[policy].spec.followers.as_deref() != Some("Matched"))
    }

    pub(super) fn is_suspended(&self, policy: Option<usize>) -> bool {
        policy.is_some_and(|policy| self.policies[policy].spec.suspend)
    }

    pub(super) fn is_spread(&self, policy: Option<usize>) -> bool {
        policy.is_some_and(|policy| self.policies[policy].spec.spread_constraints.is_some())
    }

    /// Returns whether a policy copies everything to every cluster.
    pub(super) fn duplicates(&self, policy: usize) -> bool {
        let spread = self.policies[policy].spec.spread_constraints.as_ref();
        spread.is_some_and(|spread| spread.spread_mode == "Duplicate")
    }

    /// Returns the relations of the copy that a policy writes in a cluster.
    pub(super) fn relations(&self, index: Index, policy: Option<usize>, cluster: &str) -> &'a Relations {
        let record = self.records[index];
        let edited = policy
            .filter(|_| !record.edited.is_empty())
            .and_then(|policy| record.edited.get(&(self.policies[policy].name.clone(), cluster.to_owned())));
        edited.unwrap_or(record.relations)
    }

    /// Returns the keys of what a copy names: what was recorded with it and, if its edits are written, what its source
    /// names now. Both count until the copy is written again.
    pub(super) fn named_keys(
        &self,
        index: Index,
        policy: Option<usize>,
        cluster: &str,
        is_suspended: bool,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        let recorded = self.copy(index, cluster).and_then(|copy| copy.uses.as_ref());
        let written = recorded.into_iter().flatten().take(MOST_NAMES);
        let current = self.relations(index, policy, cluster).name_keys();
        written.chain(current.filter(move |_| recorded.is_none() || !is_suspended))
    }
}

/// Every cluster's own account goes nowhere by its annotation too.
fn find_never(record: &SourceRecord<'_>, never: Never) -> Decider {
    let stays = record.facts.asks.cluster.as_deref() == Some("");
    if stays && is_default_account(&record.facts.key) { Decider::Nowhere } else { Decider::Never(never) }
}
