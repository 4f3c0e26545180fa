//! The best of several clusters: totals first, then the exact fit in order until one holds.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Chosen, How};
use crate::placement::fleet::{Cluster, Fleet};
use crate::placement::fraction::Fraction;
use crate::placement::reason::Reason;
use crate::placement::room::{Fit, Needs, ResourceId, Room, Steps};

/// A cluster that may be chosen.
pub(super) struct Candidate<'a> {
    pub(super) cluster: &'a Cluster,
    /// Position in the policy's order, one number an expression.
    pub(super) rank: Vec<u32>,
    /// Whether it comes before all others of its rank.
    pub(super) first: bool,
    /// Whether it comes after all others of its rank.
    pub(super) last: bool,
}

/// Needs of a group in a cluster, and the room there without what is promised to the group itself.
pub(super) struct Site<'s, 'a> {
    pub(super) room: &'s Room,
    pub(super) needs: &'s Needs<'a>,
}

/// The chosen cluster.
pub(super) struct Pick<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) how: How,
    pub(super) rank: Vec<u32>,
    pub(super) left: Option<Fraction>,
    pub(super) chosen: Chosen,
}

struct Ranked<'a> {
    candidate: Candidate<'a>,
    left: Option<Fraction>,
    resource: ResourceId,
    /// Reason that its totals do not suffice.
    lacking: Option<Reason>,
}

impl Ranked<'_> {
    fn compare_ranked(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.candidate, &other.candidate);
        a.rank
            .cmp(&b.rank)
            .then_with(|| b.first.cmp(&a.first))
            .then_with(|| a.last.cmp(&b.last))
            .then_with(|| other.left.cmp(&self.left))
            .then_with(|| a.cluster.name.cmp(&b.cluster.name))
    }
}

/// Picks the best cluster; reasons against those that were tried are added to `rejected`.
pub(super) fn pick_best_cluster<'a: 's, 's, 'n: 's>(
    fleet: &Fleet,
    candidates: Vec<Candidate<'a>>,
    site: impl Fn(&'a Cluster) -> Site<'s, 'n>,
    rejected: &mut Vec<(Arc<str>, Reason)>,
    steps: &Steps,
) -> Option<Pick<'a>> {
    let (mut ready, mut others) = (Vec::with_capacity(candidates.len()), Vec::new());
    for candidate in candidates {
        let Site { room, needs } = site(candidate.cluster);
        let (scarcest, lacking) = room.evaluate_totals(needs);
        let sleeps = candidate.cluster.standby;
        let ranked = Ranked { candidate, left: scarcest.left, resource: scarcest.resource, lacking };
        if sleeps || ranked.lacking.is_some() {
            if let (false, Some(reason)) = (sleeps, &ranked.lacking) {
                rejected.push((ranked.candidate.cluster.name.clone(), reason.clone()));
            }
            others.push(ranked);
        } else {
            ready.push(ranked);
        }
    }
    let mut with_room = ready.len();
    let mut tight = None;
    // The first nearly always fits, so that only if it does not the others are sorted.
    if let Some(at) = (0..ready.len()).min_by(|a, b| ready[*a].compare_ranked(&ready[*b])) {
        ready.swap(0, at);
    }
    for at in 0..ready.len() {
        if at == 1 {
            ready[1..].sort_by(Ranked::compare_ranked);
        }
        let cluster = ready[at].candidate.cluster;
        let Site { room, needs } = site(cluster);
        match room.fit_exactly(&fleet.resources, needs, steps) {
            Fit::Fits => return Some(make_pick(fleet, ready.swap_remove(at), How::Room, with_room)),
            Fit::Tight => {
                rejected.push((cluster.name.clone(), Reason::Tight));
                tight = tight.or(Some(at));
            }
            Fit::No(reason) => {
                rejected.push((cluster.name.clone(), reason));
                with_room -= 1;
            }
        }
    }
    if let Some(at) = tight {
        return Some(make_pick(fleet, ready.swap_remove(at), How::Tight, with_room));
    }
    others.extend(ready);
    others.sort_by(Ranked::compare_ranked);
    for (sleeps, how) in [(false, How::Autoscaled), (true, How::Standby)] {
        let growing = others.iter().position(|one| {
            let cluster = one.candidate.cluster;
            let Site { room, needs } = site(cluster);
            cluster.standby == sleeps && (sleeps || cluster.autoscaled) && room.fits_empty_nodes(needs, steps)
        });
        if let Some(at) = growing {
            return Some(make_pick(fleet, others.swap_remove(at), how, with_room));
        }
    }
    let asleep = others.into_iter().filter(|one| one.candidate.cluster.standby);
    rejected.extend(asleep.map(|one| {
        let Site { room, needs } = site(one.candidate.cluster);
        let reason = match room.fit_within(&fleet.resources, needs, steps) {
            Fit::No(reason) => reason,
            Fit::Fits | Fit::Tight => Reason::NotReady,
        };
        (one.candidate.cluster.name.clone(), reason)
    }));
    None
}

fn make_pick<'a>(fleet: &Fleet, ranked: Ranked<'a>, how: How, with_room: usize) -> Pick<'a> {
    let scarcest = ranked.left.map(|left| (fleet.resources.name(ranked.resource).clone(), left));
    Pick {
        cluster: ranked.candidate.cluster,
        how,
        rank: ranked.candidate.rank,
        left: ranked.left,
        chosen: Chosen { scarcest, with_room },
    }
}
