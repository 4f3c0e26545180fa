//! What a plan is asked about: sources with their relations, their targets and their copies.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::kinds::is_follower;
use crate::api::Schedule;
use crate::api::labels::LABEL_NAME;
use crate::placement::copy::find_overrides;
use crate::placement::copy_state;
use crate::placement::facts::{Facts, ObjectKey, Relations};
use crate::placement::field_path::FieldPath;
use crate::placement::live;
use crate::placement::matching::{Policies, Policy};

/// Relations of the copies of an object that overrides edit, by the name of the policy and the cluster.
pub type EditedRelations = BTreeMap<(String, String), Relations>;

/// One copy of a source, as its Schedule says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FollowCopy {
    /// Whether it is there only by following: `spec.follows`.
    pub follows: bool,
    /// Whether pods of an older template may be there: not Applied and Available as its source asks now, its cluster not
    /// Ready, or pods of an older template (a partition of a StatefulSet, active Jobs of a CronJob).
    pub unsettled: bool,
    /// Keys of what it names as it was written: `spec.uses`; absent where that was not recorded.
    pub uses: Option<Vec<ObjectKey>>,
}

impl FollowCopy {
    /// The copy of an object that a Schedule makes in a cluster, which is Ready or not.
    pub fn from_schedule(schedule: &Schedule, facts: &Facts, cluster: &str, is_ready: bool) -> Self {
        let uses = schedule.spec.uses.as_ref();
        Self {
            follows: schedule.spec.follows,
            unsettled: !is_follower(&facts.key) && is_unsettled_copy(schedule, facts, cluster, is_ready),
            uses: uses.map(|uses| uses.iter().map(|name| ObjectKey::from(name.as_str())).collect()),
        }
    }
}

/// Returns whether a copy is not yet as its source is, or does not serve.
fn is_unsettled_copy(schedule: &Schedule, facts: &Facts, cluster: &str, is_ready: bool) -> bool {
    let state = copy_state::read_copy_state(schedule, cluster);
    let is_current = schedule.spec.source_ref.generation == facts.generation;
    let is_deleting = schedule.metadata.deletion_timestamp.is_some();
    let is_well = is_ready && is_current && !is_deleting && state.applied && state.available;
    !is_well || live::has_old_pods(schedule)
}

/// One source of the control plane, decided or following.
#[derive(Debug, Clone)]
pub struct SourceRecord<'a> {
    /// Its facts.
    pub facts: &'a Facts,
    /// What it names and what it belongs to.
    pub relations: &'a Relations,
    /// The same of copies that overrides edit; empty if no override is about it.
    pub edited: &'a EditedRelations,
    /// Clusters that its decision gives: of a move the new ones, of an annotation what it gives; of a follower what the
    /// decision of its own group would give, whether that counts or not.
    pub targets: BTreeSet<String>,
    /// Its copies by cluster, also those that are to be removed and are there.
    pub copies: BTreeMap<String, FollowCopy>,
    /// Clusters where it was last, of a claim whose copies are not known any more: its data is there.
    pub recorded: BTreeSet<String>,
    /// Whether its namespace has had no new object for two seconds, or it was created 30 seconds ago.
    pub is_quiet: bool,
}

/// Returns the relations of the copies of an object that overrides of a policy edit, for clusters given by name and labels.
/// An override that cannot be applied edits nothing: no such copy is written.
pub fn find_edited_relations<'c>(
    manifest: &Value,
    facts: &Facts,
    policies: &Policies,
    clusters: impl Iterator<Item = (&'c str, &'c BTreeMap<String, String>)> + Clone,
) -> EditedRelations {
    let mut found = EditedRelations::new();
    for policy in policies.iter() {
        if !has_overrides(policy, facts) {
            continue;
        }
        for (name, labels) in clusters.clone() {
            let Some(domain) = find_domain(policy, name, labels) else { continue };
            if let Some(relations) = read_edited(manifest, facts, policy, domain) {
                found.insert((policy.name.clone(), name.to_owned()), relations);
            }
        }
    }
    found
}

fn has_overrides(policy: &Policy, facts: &Facts) -> bool {
    let overrides = policy.spec.spread_constraints.iter().flat_map(|spread| &spread.overrides);
    let mut resources = overrides.flat_map(|domain| &domain.resources);
    resources.any(|one| one.kind == facts.key.kind() && one.name == facts.key.name())
}

fn find_domain<'c>(policy: &Policy, name: &'c str, labels: &'c BTreeMap<String, String>) -> Option<&'c str> {
    let key = &policy.spec.spread_constraints.as_ref()?.topology_key;
    if key == LABEL_NAME { Some(name) } else { labels.get(key).map(String::as_str) }
}

fn read_edited(manifest: &Value, facts: &Facts, policy: &Policy, domain: &str) -> Option<Relations> {
    let edits = find_overrides(policy, domain, facts);
    if edits.is_empty() {
        return None;
    }
    let mut copy = manifest.clone();
    for edit in edits {
        let path = FieldPath::parse(&edit.field_path).ok()?;
        path.check_allowed().ok()?;
        path.set_field(&mut copy, edit.value.static_value.clone()).ok()?;
    }
    Some(Relations::from_manifest(&facts.key, &copy))
}
