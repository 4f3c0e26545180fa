//! What follows: where an object goes because of what uses it, and what goes along with a workload.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;

use super::fleet::{self, Known};
use super::report::Report;
use crate::api::first_of::first_of;
use crate::cli::output::error::CliError;
use crate::placement::explain;
use crate::placement::facts::{Facts, ObjectKey, Relations};
use crate::placement::follow::{
    Because, EditedRelations, FollowCopy, FollowInput, FollowPlan, Place, PlaceState, SourceRecord, Wait, is_follower,
    plan_followers,
};
use crate::placement::matching::Match;
use crate::placement::names::GroupKey;

/// Most objects that a line names.
const NAMED: usize = 5;

/// Objects of a namespace, and what follows there.
pub(in crate::cli::commands) struct Followers {
    namespace: String,
    sources: Vec<(Facts, Relations)>,
    pub(in crate::cli::commands) plan: FollowPlan,
}

impl Followers {
    /// Plans what follows in a namespace, as the scheduler does. Kinds that the user may not list are left out.
    pub(in crate::cli::commands) async fn plan_namespace(
        client: &Client,
        known: &Known,
        namespace: &str,
    ) -> Result<Self, CliError> {
        let sources = fleet::list_related(client, &known.kinds, namespace).await?;
        let (unedited, elsewhere) = (EditedRelations::new(), BTreeSet::new());
        let records: Vec<SourceRecord<'_>> = sources
            .iter()
            .map(|(facts, relations)| SourceRecord {
                facts,
                relations,
                edited: &unedited,
                targets: find_targets(known, facts),
                copies: find_copies(known, &facts.key),
                recorded: BTreeSet::new(),
                is_quiet: true,
            })
            .collect();
        let plan = plan_followers(&FollowInput {
            policies: &known.policies,
            namespaces: &known.namespaces,
            records: &records,
            groups_elsewhere: &elsewhere,
        });
        drop(records);
        Ok(Self { namespace: namespace.to_owned(), sources, plan })
    }

    /// Returns the namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the objects of the namespace that are of kinds that can be placed.
    pub(super) fn all_facts(&self) -> impl Iterator<Item = &Facts> {
        self.sources.iter().map(|(facts, _)| facts)
    }

    /// Returns what belongs to workloads of the namespace.
    pub(in crate::cli::commands) fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.sources.iter().map(|(facts, _)| facts).filter(|facts| is_follower(&facts.key))
    }

    /// Returns the clusters that claims leave to a group; `None` where none pins it.
    pub(in crate::cli::commands) fn only_of(&self, policy: &str, key: &GroupKey) -> Option<BTreeSet<String>> {
        self.plan.groups.iter().find(|group| group.policy == policy && group.key == *key)?.only.clone()
    }

    /// Returns whether an object goes where what uses it goes; else it is decided by itself, or by nothing.
    pub(in crate::cli::commands) fn is_following(&self, key: &ObjectKey, found: &Match<'_>) -> bool {
        is_follower(key)
            && match found {
                Match::Policy { policy, .. } => {
                    let mut undecided = self.plan.groups.iter().filter(|group| group.decided.is_empty());
                    !policy.duplicates() && !undecided.any(|group| group.followers.contains(key))
                }
                Match::Nothing { .. } => self.plan.followers.contains_key(key),
                _ => false,
            }
    }

    /// Adds to the report where an object follows, and what it follows there.
    pub(super) fn report_follower(&self, key: &ObjectKey, found: &Match<'_>, report: &mut Report) {
        match found {
            Match::Policy { policy, losers } => report.policy = Some(explain::format_matched_policy(policy, losers)),
            _ => report.why.push("no policy matches it; pods need it to start".to_owned()),
        }
        let follower = self.plan.followers.get(key);
        let places = follower.into_iter().flat_map(|follower| &follower.places);
        report.why.extend(places.map(|(cluster, place)| format_place(cluster, place)));
        report.placed = follower.is_some_and(|follower| !follower.places.is_empty());
        if !report.placed {
            report.why.push(self.format_wait(key).to_owned());
        }
    }

    /// Returns what a follower without a place waits for.
    pub(super) fn format_wait(&self, key: &ObjectKey) -> &'static str {
        match self.plan.followers.get(key).and_then(|follower| follower.waits) {
            Some(Wait::Quiet) => "it waits until no new objects appear in its namespace",
            Some(Wait::User) => "it is placed with the objects that use it, but these objects are not placed yet",
            Some(Wait::Mount) => "it waits until a workload mounts it",
            None => "it is placed with the objects that use it, and no placed object uses it",
        }
    }

    /// Returns what goes along with a workload; `None` where nothing does.
    pub(in crate::cli::commands) fn format_followers(&self, key: &ObjectKey) -> Option<String> {
        let because = Because::Object(key.clone());
        let followers = self.plan.followers.iter();
        let along = followers.filter(|(_, one)| one.places.values().any(|place| place.because.contains(&because)));
        let titles: Vec<String> = along.map(|(key, _)| key.format_title()).collect();
        (!titles.is_empty()).then(|| format!("placed with it: {}", first_of(titles, NAMED, ", ")))
    }
}

/// Returns what an object is in a cluster for.
fn format_place(cluster: &str, place: &Place) -> String {
    let users: Vec<String> = place
        .because
        .iter()
        .filter_map(|because| match because {
            Because::Object(key) => Some(key.format_title()),
            Because::Policy | Because::Annotation => None,
        })
        .collect();
    match place.state {
        PlaceState::Written if users.is_empty() => format!("on {cluster} its own policy places it"),
        PlaceState::Written => format!("on {cluster} it follows {}", first_of(users, NAMED, ", ")),
        PlaceState::Frozen => {
            format!("on {cluster} it is kept as it is: a policy is suspended, or a controller creates it")
        }
        PlaceState::Stays => format!("on {cluster} nothing uses it, and it is kept"),
        PlaceState::Lingers | PlaceState::Leaves => {
            format!("on {cluster} nothing uses it: it is deleted when all workloads there are available")
        }
    }
}

fn find_copies(known: &Known, key: &ObjectKey) -> BTreeMap<String, FollowCopy> {
    let copies = known.schedules_of_object(key).map(|(cluster, schedule)| {
        let uses = schedule.spec.uses.as_ref();
        let uses = uses.map(|uses| uses.iter().map(|name| ObjectKey::from(name.as_str())).collect());
        (cluster.to_owned(), FollowCopy { follows: schedule.spec.follows, unsettled: false, uses })
    });
    copies.collect()
}

/// Returns the clusters that the group of an object has recorded.
fn find_targets(known: &Known, facts: &Facts) -> BTreeSet<String> {
    let found = known.policies.match_object(facts, &known.labels_of_namespace(&facts.key));
    let Match::Policy { policy, .. } = found else { return BTreeSet::new() };
    let name = known.group_name(&GroupKey::new(facts, policy), policy);
    let recorded = known.groups.get(&name).and_then(|group| group.status.as_ref());
    recorded.into_iter().flat_map(|status| &status.target_clusters).cloned().collect()
}
