//! Groups: only what is decided counts in them, and a group that pins nothing exists only while a member is decided alone.

use std::collections::{BTreeMap, BTreeSet};

use super::board::Board;
use super::claims::Homes;
use super::kinds::is_claim;
use super::plan::FollowGroup;
use super::uses::Index;
use crate::placement::names::GroupKey;

/// Members of a group by their positions.
#[derive(Debug, Default)]
struct Members {
    decided: Vec<Index>,
    followers: Vec<Index>,
}

impl<'a> Board<'a> {
    /// Lists the groups for which a ScheduleGroup exists, in the order of names.
    pub(super) fn list_groups(&self, counts_own: &BTreeSet<Index>, homes: &Homes<'a>) -> Vec<FollowGroup> {
        let mut groups: BTreeMap<(usize, GroupKey), Members> = BTreeMap::new();
        let mut claims_by_maker: BTreeMap<Index, Vec<Index>> = BTreeMap::new();
        for (index, record) in self.sources.records.iter().enumerate() {
            if is_claim(&record.facts.key) {
                for maker in self.find_claim_makers(&record.facts.key) {
                    claims_by_maker.entry(*maker).or_default().push(index);
                }
            }
            let Some(policy) = self.sources.policy(index) else { continue };
            let is_decided = self.sources.kind(index).is_none();
            if !is_decided && !counts_own.contains(&index) {
                continue;
            }
            let key = GroupKey::new(record.facts, self.sources.policies[policy]);
            let members = groups.entry((policy, key)).or_default();
            if is_decided { members.decided.push(index) } else { members.followers.push(index) }
        }
        let mut listed: Vec<FollowGroup> = groups
            .into_iter()
            .map(|((policy, key), members)| {
                let is_spread = self.sources.is_spread(Some(policy));
                let only = (!is_spread && !members.decided.is_empty())
                    .then(|| self.find_only(&members.decided, &members.followers, &claims_by_maker, homes))
                    .flatten();
                let policy = self.sources.policies[policy].name.clone();
                FollowGroup {
                    name: key.group_name(&policy, |_| false),
                    policy,
                    key,
                    decided: members.decided.iter().map(|index| self.sources.key(*index).clone()).collect(),
                    followers: members.followers.iter().map(|index| self.sources.key(*index).clone()).collect(),
                    only,
                }
            })
            .collect();
        listed.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.key.cmp(&b.key)));
        listed
    }
}
