//! Groups that go to one cluster.

use super::filter::Filter;
use super::pick::{Candidate, Pick, Site, pick_best_cluster};
use super::{Current, Decision, Gain, Group, How, Mode, Outcome, Target};
use crate::placement::fleet::{Cluster, Fleet};
use crate::placement::matching::Policy;
use crate::placement::reason::Reason;
use crate::placement::room::{Fit, Needs, Room, Steps};

/// The cluster where the group is.
struct Here<'a> {
    cluster: &'a Cluster,
    /// The reason against it, if there is one.
    why: Option<Reason>,
    rank: Vec<u32>,
    drained: bool,
    /// Its room without what is promised to the group; nothing if nothing is.
    lifted: Option<Room>,
    needs: Needs<'a>,
}

impl Here<'_> {
    fn current_capacity(&self) -> &Room {
        self.lifted.as_ref().unwrap_or(&self.cluster.room)
    }
}

pub(super) fn decide_single_cluster(
    policy: &Policy,
    group: &Group<'_>,
    fleet: &Fleet,
    current: &Current,
    steps: &Steps,
) -> Decision {
    let recorded = recorded_cluster(group, current);
    let mut filter = Filter::new(policy, group, current, None);
    let here = recorded.and_then(|name| fleet.get(name)).map(|cluster| {
        let checked = filter.check_cluster(cluster);
        Here {
            cluster,
            drained: filter.is_drained(cluster),
            rank: checked.as_ref().cloned().unwrap_or_default(),
            why: checked.err(),
            lifted: cluster.room.without_reservations_of(&fleet.resources, &group.name),
            needs: group.compute_group_needs(fleet, current, &cluster.name, None),
        }
    });
    if let Some(decision) = decide_to_stay(group, fleet, current, recorded.is_some(), here.as_ref(), steps) {
        return decision;
    }
    search_best_cluster(group, fleet, current, &mut filter, here.as_ref(), steps)
}

/// The cluster that holds most of the group's pods, where several are recorded; of equals the first name.
fn recorded_cluster<'a>(group: &Group<'_>, current: &'a Current) -> Option<&'a str> {
    let most = current
        .targets
        .iter()
        .max_by(|a, b| sum_held_cpu(group, a).cmp(&sum_held_cpu(group, b)).then_with(|| b.cluster.cmp(&a.cluster)));
    most.map(|target| target.cluster.as_str())
}

/// Returns how much CPU the pods of a group request that a target has.
fn sum_held_cpu(group: &Group<'_>, target: &Target) -> i64 {
    let held = group.members.iter().map(|member| {
        let request = member.shape().map_or(0, |shape| shape.requested_amount("cpu").max(1));
        member.pods_in(Some(target)).saturating_mul(request)
    });
    held.fold(0, i64::saturating_add)
}

fn single_target(cluster: &Cluster) -> Vec<Target> {
    vec![Target { cluster: cluster.name.to_string(), ..Target::default() }]
}

/// Decides without looking at other clusters, where nothing else is allowed or nothing has to change.
fn decide_to_stay(
    group: &Group<'_>,
    fleet: &Fleet,
    current: &Current,
    is_recorded: bool,
    here: Option<&Here<'_>>,
    steps: &Steps,
) -> Option<Decision> {
    if is_recorded && here.is_none_or(|here| here.cluster.leaving) && (group.is_held() || current.only.is_some()) {
        // Of a cluster that is leaving, the copies stay as long as it is there.
        let targets = here.map(|here| single_target(here.cluster)).unwrap_or_default();
        return Some(Decision::new(Outcome::HasVolumes, None, targets));
    }
    let here = here.filter(|here| !here.cluster.leaving)?;
    let is_eligible = here.why.is_none();
    let keep = |how: How| Some(Decision::new(Outcome::Placed, Some(how), single_target(here.cluster)));
    let has_started = group.members.iter().any(|member| current.started.contains(member.key()));
    if has_started && !here.drained {
        return keep(if is_eligible { How::Kept } else { How::Started });
    }
    // It is where its claims are, and goes nowhere without them.
    let is_home = current.only.as_ref().is_some_and(|only| only.contains(&*here.cluster.name));
    if group.is_held() || is_home {
        return keep(if is_eligible && !here.drained { How::Kept } else { How::Volumes });
    }
    let holds = here.why.as_ref().is_some_and(Reason::may_keep_work) && !here.drained;
    if holds && current.mode != Mode::Failover {
        return keep(How::Kept);
    }
    if is_eligible && current.mode == Mode::Routine && (current.is_settled || fits_where_it_is(here, fleet, steps)) {
        return keep(How::Kept);
    }
    None
}

/// Returns whether a group fits into its cluster, or into nodes that are added there.
fn fits_where_it_is(here: &Here<'_>, fleet: &Fleet, steps: &Steps) -> bool {
    match here.current_capacity().fit_within(&fleet.resources, &here.needs, steps) {
        Fit::Fits | Fit::Tight => true,
        Fit::No(_) => {
            here.cluster.standby
                || (here.cluster.autoscaled && here.current_capacity().fits_empty_nodes(&here.needs, steps))
        }
    }
}

/// Looks for the best cluster.
fn search_best_cluster<'a>(
    group: &'a Group<'a>,
    fleet: &'a Fleet,
    current: &Current,
    filter: &mut Filter<'_>,
    here: Option<&Here<'_>>,
    steps: &Steps,
) -> Decision {
    let needs = group.compute_group_needs(fleet, current, "", None);
    let without_here = matches!(current.mode, Mode::Routine | Mode::Failover);
    let (mut rejected, mut candidates) = (Vec::new(), Vec::with_capacity(fleet.len()));
    for cluster in fleet.iter() {
        let is_here = here.is_some_and(|here| here.cluster.name == cluster.name);
        match filter.check_cluster(cluster) {
            Err(reason) => rejected.push((cluster.name.clone(), reason)),
            Ok(_) if without_here && is_here => {}
            Ok(rank) => {
                let first = current.mode == Mode::PolicyEdit && is_here;
                candidates.push(Candidate { cluster, rank, first, last: filter.is_last(cluster) });
            }
        }
    }
    let outcome = if candidates.is_empty() { Outcome::NoCandidates } else { Outcome::NoFit };
    let found = pick_best_cluster(
        fleet,
        candidates,
        |cluster| match here.filter(|here| here.cluster.name == cluster.name) {
            Some(here) => Site { room: here.current_capacity(), needs: &here.needs },
            None => Site { room: &cluster.room, needs: &needs },
        },
        &mut rejected,
        steps,
    );
    let eligible_here = here.filter(|here| current.mode == Mode::Rebalance && here.why.is_none());
    let gain = found.as_ref().zip(eligible_here).map(|(found, here)| measure_gain(found, here));
    let mut decision = match (found, here) {
        (Some(_), Some(here)) if gain == Some(None) => {
            Decision::new(Outcome::Placed, Some(How::Kept), single_target(here.cluster))
        }
        (Some(found), _) => {
            let mut decision = Decision::new(Outcome::Placed, Some(found.how), single_target(found.cluster));
            (decision.chosen, decision.gain) = (Some(found.chosen), gain.flatten());
            decision
        }
        (None, Some(here)) if here.why.is_none() => {
            Decision::new(Outcome::Placed, Some(How::Outgrown), single_target(here.cluster))
        }
        (None, Some(here)) => Decision::new(outcome, Some(How::KeptUntilPlaced), single_target(here.cluster)),
        (None, None) => Decision::new(outcome, None, Vec::new()),
    };
    if let Some(here) = here.filter(|here| without_here && here.why.is_none())
        && let Fit::No(reason) = here.current_capacity().fit_within(&fleet.resources, &here.needs, steps)
    {
        rejected.push((here.cluster.name.clone(), reason));
    }
    let left = current.targets.iter().map(|old| &old.cluster);
    // A group that is not spread has one target.
    if decision.scheduled {
        let moving = left
            .filter(|name| decision.targets.iter().all(|target| target.cluster != **name))
            .filter(|name| fleet.get(name).is_some());
        decision.moving_from = moving.cloned().collect();
    }
    decision.rejected = rejected;
    decision
}

/// Returns what a group gains by moving, if a rebalancing was asked for and that is enough.
fn measure_gain(found: &Pick<'_>, here: &Here<'_>) -> Option<Gain> {
    if found.cluster.name == here.cluster.name || found.how != How::Room {
        return None;
    }
    let left_here = here.current_capacity().share_left(&here.needs);
    let gain = Gain { better_rank: found.rank < here.rank, here: left_here, there: found.left };
    Some(gain).filter(|gain| gain.is_worth_it())
}
