//! What runs pods is placed, and the rest follows: ConfigMaps, Secrets, accounts, claims, Services, Ingresses, budgets,
//! autoscalers, network policies, rights, classes and Namespaces go where what they belong to is.
//!
//! [`plan_followers`] is a pure function over [`SourceRecord`]s: the same records give the same [`FollowPlan`], in whatever
//! order they are given.
//!
//! # What the caller supplies
//! - **Records of one namespace**: all of its sources, also those that no policy matches and those that are never placed
//!   (a Secret that a controller made, the ServiceAccount `default`). For what has no namespace (classes, ClusterRoles,
//!   Namespaces) it plans once with the records of all namespaces, and takes from that plan only what has no namespace.
//! - `relations`: [`Relations::from_manifest`] of each source, kept with its facts. `edited`: [`find_edited_relations`], for
//!   what an override is about; it is empty for nearly all.
//! - `targets`: of what is decided, the clusters of its group's record (of a move those that it goes to), or what
//!   [`decide_direct`](crate::placement::decide::decide_direct) gives. Of a follower, the targets of the group of one, or by
//!   label, that it would be decided in; a plan says in [`FollowGroup::followers`] whose decision is asked for, so an empty
//!   set is right until then.
//! - `copies`: every Schedule of the source, also those being deleted. `follows` and `uses` are `spec.follows` and
//!   `spec.uses`. `unsettled` is asked of what runs pods: not Applied and Available for the hash that is wanted now, its
//!   cluster not Ready, or pods of an older template.
//! - `recorded`: of a claim that moves only with consent and has no copy, the clusters that its marks name: its home is lost.
//! - `is_quiet`: nothing was created in the namespace for two seconds, or the object is 30 seconds old.
//! - [`FollowInput::groups_elsewhere`]: groups of `acrossNamespaces` that have decided members in other namespaces.
//!
//! # What the caller does with the plan
//! 1. A request `Follow(namespace)` is enqueued by every event of a source, of a group's record and of a Schedule in the
//!    namespace, and put off until two seconds have been quiet (at most 30). It makes the records, plans, and compares.
//! 2. [`FollowPlan::groups`] with decided members are decided as before, with `decided` alone as their members and no cluster
//!    outside `only` (`VolumeElsewhere`). Groups without any pin nothing; they are decided alone, and their record goes when
//!    the plan no longer lists them.
//! 3. Stages of one plan: Written places, those of kinds that others need first; then the Schedules of what uses them; then,
//!    when everything of before is written, places that are `Leaves`, at most five a second, deleted with the
//!    resourceVersion that was read. One Schedule that cannot be written holds nobody up.
//! 4. A Schedule of a follower has no `spec.group`; `spec.follows` is true if [`Place::because`] holds no
//!    [`Because::Policy`] and no [`Because::Annotation`], and is never set on a copy that was there without it. Its
//!    `spec.uses` are the [`Relations::name_keys`] of the manifest that is written, after overrides.
//! 5. Overrides are those of the policy that matches the follower, else of [`Place::policy`], by the label of the cluster.
//! 6. `Written`: POST or PUT. `Stays`, `Lingers`: PUT, never POST. `Frozen`: neither. `Leaves`: DELETE; of a place with
//!    `only_pull_secrets` the names are taken out of the list, and nothing is deleted.
//! 7. A move waits for its followers to be Applied or AlreadyExists in the new clusters, never for their Available. A plan of
//!    a moving group keeps them on both sides, because the old copies are in `copies` until they are gone.
//! 8. [`FollowPlan::missing`] makes rows of `why` and the condition `DependenciesPlaced`, and an event only if the workload
//!    there is not Available 30 seconds after it was applied.
//!
//! # What holds
//! A follower that something with a copy or a target in a cluster uses is not removed there, but by its own annotation or if
//! its copies are withdrawn. A claim is never removed with its data, and never gets a second, empty copy; a Namespace is
//! never removed here at all. What leaves and is used in turn keeps what it uses. Users of a follower are added up once and
//! shared by all that ask for the same; at most [`MOST_REASONS`] are named.

mod belonging;
mod board;
mod claims;
mod groups;
mod kinds;
mod missing;
mod namespace;
mod places;
mod plan;
mod record;
mod sources;
mod uses;

use std::collections::{BTreeMap, BTreeSet};

pub use kinds::is_follower;
pub use namespace::{NamespacePlan, find_claimed_clusters, find_groups_elsewhere};
pub use plan::{Because, FollowGroup, FollowPlan, Follower, MissingFollower, MissingReason, Place, PlaceState, Wait};
pub use record::{EditedRelations, FollowCopy, SourceRecord, find_edited_relations};
pub use uses::MOST_REASONS;

use self::board::Board;
use self::claims::Homes;
use self::sources::Sources;
use self::uses::Index;
use super::matching::Policies;
#[cfg(doc)]
use crate::placement::facts::Relations;

/// What a plan is made of.
#[derive(Clone, Copy)]
pub struct FollowInput<'a> {
    /// All policies.
    pub policies: &'a Policies,
    /// Labels by namespace.
    pub namespaces: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// The sources, in any order; of two with the same key the first counts.
    pub records: &'a [SourceRecord<'a>],
    /// Groups with decided members that are not among the records: name of the policy and key as [`GroupKey::as_str`] has it.
    ///
    /// [`GroupKey::as_str`]: crate::placement::names::GroupKey::as_str
    pub groups_elsewhere: &'a BTreeSet<(String, String)>,
}

/// Plans where everything goes that follows.
pub fn plan_followers(input: &FollowInput<'_>) -> FollowPlan {
    let mut board = Board::new(Sources::new(input.policies, input.namespaces, input.records));
    let mut order: Vec<(usize, Index)> =
        (0..board.standings.len()).filter_map(|index| Some((board.sources.kind(index)?.rank, index))).collect();
    order.sort_unstable();
    let (mut followers, mut counts_own, mut homes) = (BTreeMap::new(), BTreeSet::new(), Homes::new());
    for (_, index) in order {
        let planned = board.plan_follower(index, input.groups_elsewhere, &mut homes);
        if planned.counts_own {
            counts_own.insert(index);
        }
        if !planned.follower.places.is_empty() || planned.follower.waits.is_some() {
            followers.insert(index, planned.follower);
        }
        board.publish_standing(index, planned.standing);
    }
    let missing = board.find_missing(&followers, &homes);
    let groups = board.list_groups(&counts_own, &homes);
    let followers =
        followers.into_iter().map(|(index, follower)| (board.sources.key(index).clone(), follower)).collect();
    FollowPlan { groups, followers, missing }
}
