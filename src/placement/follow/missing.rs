//! What pods cannot start without and is not in their cluster.

use super::board::Board;
use super::claims::Homes;
use super::places::PlannedFollowers;
use super::plan::{MissingFollower, MissingReason, PlaceState};
use super::sources::Decider;
use super::uses::{Index, UserMode};
use crate::placement::facts::{Never, ObjectKey};

impl<'a> Board<'a> {
    /// Finds what is missing, in the order of user, object and cluster.
    pub(super) fn find_missing(&self, followers: &PlannedFollowers, homes: &Homes<'a>) -> Vec<MissingFollower> {
        let mut missing = Vec::new();
        for (user, standing) in self.standings.iter().enumerate() {
            if self.sources.kind(user).is_some() {
                continue;
            }
            let mut of_user: Vec<(&ObjectKey, &str, MissingReason)> = Vec::new();
            for (cluster, presence) in standing.places.iter().filter(|(_, presence)| presence.mode != UserMode::Leaving)
            {
                let recorded = self.sources.copy(user, cluster).and_then(|copy| copy.uses.as_ref());
                let recorded = recorded.filter(|_| presence.mode == UserMode::Suspended);
                for (key, required) in &self.sources.relations(user, presence.policy, cluster).names {
                    // What a suspended edit names is not there yet.
                    if !required || recorded.is_some_and(|names| !names.contains(key)) {
                        continue;
                    }
                    let carries = self.sources.carries(presence.policy);
                    let why = self.find_missing_reason(key, cluster, carries, followers, homes);
                    of_user.extend(why.map(|why| (key, *cluster, why)));
                }
            }
            of_user.sort_by_key(|(key, cluster, _)| (*key, *cluster));
            missing.extend(of_user.into_iter().map(|(object, cluster, why)| MissingFollower {
                user: self.sources.key(user).clone(),
                object: object.clone(),
                cluster: cluster.to_owned(),
                why,
            }));
        }
        missing
    }

    /// Returns why an object is not in a cluster where pods need it; `None` if it is there, is to be, or somebody makes it.
    fn find_missing_reason(
        &self,
        key: &ObjectKey,
        cluster: &str,
        carries: bool,
        followers: &PlannedFollowers,
        homes: &Homes<'a>,
    ) -> Option<MissingReason> {
        let Some(index) = self.sources.find(key) else { return Some(MissingReason::NotThere) };
        let place = followers.get(&index).and_then(|follower| follower.places.get(cluster));
        if place.is_some_and(|place| place.state != PlaceState::Leaves) {
            return None;
        }
        match self.sources.decider(index) {
            Decider::Never(Never::Owned) if self.has_controller(index, cluster) => None,
            Decider::Never(Never::Owned) if !carries => Some(MissingReason::NotMatched),
            Decider::Never(_) => Some(MissingReason::Never),
            Decider::Nowhere => Some(MissingReason::KeptHere),
            _ if is_elsewhere(index, cluster, homes) => Some(MissingReason::VolumeElsewhere),
            Decider::Annotation { .. } => Some(MissingReason::Annotation),
            // What a suspended policy holds back is said of the policy.
            Decider::Policy(_) => None,
            Decider::Nobody => (!carries).then_some(MissingReason::NotMatched),
        }
    }
}

fn is_elsewhere(claim: Index, cluster: &str, homes: &Homes<'_>) -> bool {
    homes.get(&claim).is_some_and(|home| !home.allowed.contains(cluster))
}
