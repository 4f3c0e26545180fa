//! From a step of the machine to the plan of a group: the record alone, or what it allows to be written.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::exclusions::plan_exclusions;
use super::memory::Moves;
use super::once::restart_events;
use super::proposal::{Proposal, target_amounts};
use super::survey::{ClusterDiff, Survey};
use super::{Recorded, read_record, time_text};
use crate::placement::decide::Target;
use crate::placement::moves::{
    MoveEvent, MovePhase, MoveRecord, MoveStep, MoveWrite, Seen, SeenPolicy, WaitingMove, step,
};
use crate::placement::proposal::{cause_text, format_frozen, side_text};
use crate::scheduler::placing::decide::{Clusters, Decided};
use crate::scheduler::placing::events::event_about;
use crate::scheduler::placing::faults::{self, CopyFaults};
use crate::scheduler::placing::group_context::GroupContext;
use crate::scheduler::placing::group_events::group_reference;
use crate::scheduler::placing::mass_removal::class::stray_class;
use crate::scheduler::placing::plan::Plan;
use crate::scheduler::placing::schedule_deletions;
use crate::scheduler::placing::store::Store;
use crate::scheduler::placing::write::{RemovalClass, Write};

/// Plans a group that is recorded. Returns what is decided of it beside the plan: it `waits` while the group moves, or
/// waits for its move.
pub(in crate::scheduler::placing) fn plan_move(
    (moves, clusters): (&mut Moves, &mut Clusters),
    store: &Store,
    name: &str,
    (proposal, decided): (Option<Proposal>, Option<&Decided>),
    (now, wall): (i64, Timestamp),
) -> (Plan, Option<Decided>) {
    let mut record = read_record(store, name);
    let decision = proposal.as_ref().map(|proposal| proposal.seen.clone()).unwrap_or_default();
    let (mut seen, diffs, left, (over, is_over)) = {
        let survey = Survey::new(store, name, clusters, moves, &record, now);
        let diffs = survey.diff_clusters();
        let seen = survey.see(decision, &diffs);
        let over = survey.over_copies_to_delete(&seen);
        let is_over = seen.source.once && survey.is_over();
        (seen, own_names(diffs), survey.diff_left(), (over, is_over))
    };
    record.finished = is_over;
    let waits = waiting_move(store, name, &record, &seen);
    moves.set_group(name, &record, waits, waits_for_lost_cluster(&record, &seen));
    seen.admitted = waits.is_some() && moves.is_admitted(name, now);
    if record.running.is_some() || seen.schedules.len() > 1 {
        for (cluster, _) in seen.schedules.iter().filter(|(_, schedule)| !schedule.asked || !schedule.answered) {
            moves.wait_for_answer(cluster, name);
        }
    }
    let mut decided = proposal.as_ref().map(|proposal| proposal.decided.clone()).or_else(|| decided.cloned());
    let excluded = proposal.as_ref().and_then(|proposal| plan_exclusions(clusters, name, &record, proposal, now));
    let (next, event, writes, news) = match excluded {
        Some((record, news)) => (Some(record), None, Vec::new(), news),
        None => match step(&record, &seen) {
            MoveStep::Record { record, event } => {
                (Some(MoveRecord { finished: false, ..record }), event, Vec::new(), Vec::new())
            }
            MoveStep::Writes(writes) => (None, None, writes.into_iter().chain(over).collect(), Vec::new()),
        },
    };
    // The sources remember it.
    record.finished = false;
    let written = next.as_ref().unwrap_or(&record);
    let begins = record.running.is_none() && written.running.is_some();
    if let Some(decided) = &mut decided {
        let is_elsewhere = target_amounts(decided) != written.target;
        if is_elsewhere && is_over && written.running.is_none() && !decided.suspended {
            decided.keep_where_it_ended(written.target.keys());
        } else {
            let is_open = is_elsewhere || (written.running.is_some() && !begins);
            decided.waits = is_open && !decided.suspended;
        }
    }
    let carried_out = proposal.as_ref().filter(|_| decided.as_ref().is_some_and(|decided| !decided.waits));
    if is_over {
        clusters.forget_group(name);
    } else if let Some(proposal) = carried_out {
        clusters.reserve_proposal(store, name, proposal);
    }
    let (known_clusters, known_moves) = (&*clusters, &*moves);
    let work = Work {
        store,
        name,
        clusters: known_clusters,
        moves: known_moves,
        record: &record,
        seen: &seen,
        decided: decided.as_ref(),
        wall,
    };
    let mut plan = match &next {
        Some(next) => work.plan_move_record(next, event, news, &diffs),
        None => work.plan_writes(&writes, diffs, left),
    };
    if !plan.is_partial {
        let questions = writes.iter().filter(|write| is_question(&record, write)).map(MoveWrite::cluster);
        let questions: BTreeSet<&str> = questions.collect();
        let asks = questions.into_iter().filter_map(|cluster| ask_cluster_anew(clusters, moves, cluster)).collect();
        plan.push_stage(asks);
    }
    if let Some(next) = &next {
        moves.set_group(name, next, None, waits_for_lost_cluster(next, &seen));
    }
    if let Some(decided) = &mut decided {
        decided.targets = copied_targets(written, &decided.targets);
    }
    (plan, decided)
}

/// Returns where the copies of a group must be, for what follows them.
fn copied_targets(record: &MoveRecord, decided: &[Target]) -> Vec<Target> {
    let up = record.running.as_ref().filter(|running| running.phase == MovePhase::Up);
    let both: BTreeSet<&String> =
        up.into_iter().flat_map(|running| running.from.keys()).chain(record.target.keys()).collect();
    let targets = both.into_iter().map(|cluster| {
        let known = decided.iter().find(|target| target.cluster == *cluster).cloned();
        known.unwrap_or_else(|| Target { cluster: cluster.clone(), ..Target::default() })
    });
    targets.collect()
}

fn own_names(diffs: BTreeMap<&str, ClusterDiff>) -> BTreeMap<String, ClusterDiff> {
    diffs.into_iter().map(|(cluster, diff)| (cluster.to_owned(), diff)).collect()
}

/// Returns whether a write asks a cluster. In a move an edit does: the answer from before it says nothing.
fn is_question(record: &MoveRecord, write: &MoveWrite) -> bool {
    matches!(write, MoveWrite::Ask { .. }) || (record.running.is_some() && matches!(write, MoveWrite::Edit { .. }))
}

fn ask_cluster_anew(clusters: &Clusters, moves: &mut Moves, name: &str) -> Option<Write> {
    let cluster = clusters.known.get(name)?;
    let text = moves.next_question(cluster)?;
    Some(Write::Ask { cluster: name.to_owned(), uid: cluster.uid().unwrap_or_default(), text })
}

/// Returns whether a cluster that a move waits for is not Ready.
fn waits_for_lost_cluster(record: &MoveRecord, seen: &Seen) -> bool {
    record.running.as_ref().is_some_and(|running| {
        // While both sides are there nothing is waited for on the old one.
        let removed = (running.phase != MovePhase::Up).then(|| running.from.keys().chain(running.to.keys()));
        let mut awaited = record.target.keys().chain(removed.into_iter().flatten());
        awaited.any(|name| !seen.clusters.get(name).is_some_and(|cluster| cluster.ready))
    })
}

/// Returns the move that a group waits for.
fn waiting_move(store: &Store, name: &str, record: &MoveRecord, seen: &Seen) -> Option<WaitingMove> {
    let (cause, best) = (seen.decision.cause?, &seen.decision.best);
    let is_held = seen.source.volumes && !seen.source.consent;
    let is_elsewhere = !record.target.is_empty() && !best.is_empty() && *best != record.target;
    let stays = record.finished || !seen.source.moves_for(cause);
    if record.running.is_some() || seen.policy != SeenPolicy::There || is_held || !is_elsewhere || stays {
        return None;
    }
    let created = store.facts_of(name).into_iter().filter_map(|facts| facts.created.map(Timestamp::as_second));
    let retry = record.retry.filter(|retry| retry.cause == cause && !seen.decision.renewed);
    Some(WaitingMove {
        cause,
        since: created.min().unwrap_or(i64::MAX),
        attempt: record.failed_attempts(),
        not_before: retry.map_or(0, |retry| retry.not_before),
    })
}

/// One look at a group, to be planned.
struct Work<'a> {
    store: &'a Store,
    name: &'a str,
    clusters: &'a Clusters,
    moves: &'a Moves,
    record: &'a MoveRecord,
    seen: &'a Seen,
    decided: Option<&'a Decided>,
    wall: Timestamp,
}

impl<'a> Work<'a> {
    fn survey(&self, record: &'a MoveRecord) -> Survey<'a> {
        Survey::new(self.store, self.name, self.clusters, self.moves, record, self.seen.now)
    }

    fn context(&self, record: &'a MoveRecord) -> GroupContext<'a> {
        let moving = self.survey(record).describe(record, self.seen);
        let waits = waiting_move(self.store, self.name, record, self.seen).filter(|_| self.seen.frozen);
        let frozen = waits.map(|waits| format_frozen(&record.target, waits.cause));
        let recorded = Some(Recorded { record: record.clone(), moving, frozen });
        GroupContext { recorded, ..GroupContext::new(self.store, self.name, self.decided, self.wall) }
    }

    /// Plans the write of the next record, and the events after it.
    fn plan_move_record(
        &self,
        next: &'a MoveRecord,
        event: Option<MoveEvent>,
        news: Vec<Write>,
        diffs: &BTreeMap<String, ClusterDiff>,
    ) -> Plan {
        let context = self.context(next);
        let faults: CopyFaults = diffs.values().flat_map(|(_, faults)| faults.clone()).collect();
        let mut plan = Plan::default();
        let Some(group) = context.desired_group(&faults) else { return plan };
        let mut events = group.status.as_ref().map(|status| context.events(status)).unwrap_or_default();
        plan.push_stage(vec![Write::Group(Box::new(group))]);
        events.extend(event.into_iter().flat_map(|event| self.move_events(event, next)).chain(news));
        plan.push_stage(events);
        plan
    }

    /// Plans the writes that a step allows, and what else differs.
    fn plan_writes(&self, writes: &[MoveWrite], diffs: BTreeMap<String, ClusterDiff>, left: ClusterDiff) -> Plan {
        let (mut plan, mut faults) = (Plan::default(), CopyFaults::new());
        let mut amounts: BTreeMap<&str, i64> = BTreeMap::new();
        for write in writes {
            if let MoveWrite::Create { cluster, amount } | MoveWrite::Edit { cluster, amount } = write {
                amounts.entry(cluster).or_insert(*amount);
            }
        }
        let is_suspended = self.seen.policy == SeenPolicy::Suspended;
        let survey = self.survey(self.record);
        let diffs = diffs.into_iter().map(|(cluster, diff)| {
            let amount = amounts.get(cluster.as_str());
            let divided = amount.filter(|_| survey.is_divided());
            (amount.is_some(), divided.map_or(diff, |amount| survey.diff_amount(&cluster, *amount)))
        });
        for (is_written, (diff, of_diff)) in diffs.chain([(!is_suspended, left)]) {
            faults.extend(of_diff);
            if is_written || (!diff.is_partial && diff.stages.is_empty()) {
                merge_plan(&mut plan, diff);
            }
        }
        if plan.is_partial {
            return plan;
        }
        let context = self.context(self.record);
        for key in &context.members {
            let released = schedule_deletions::release_schedules(self.store, key);
            let events = restart_events(self.store, &released);
            plan.push_stage(released);
            plan.push_stage(events);
        }
        let there = self.record.running.iter().flat_map(|running| running.from.keys().chain(running.to.keys()));
        let targets: BTreeSet<&str> = self.record.target.keys().chain(there).map(String::as_str).collect();
        for key in context.members.iter().filter(|key| !is_suspended && key.is_of_kind("", "Namespace")) {
            plan.push_stage(schedule_deletions::delete_drained_namespaces(self.store, key, &targets));
        }
        // One kind of write at a time: what is edited is looked at again before anything of the group is deleted.
        let may_delete = !plan.writes_schedules() && (!is_suspended || self.record.running.is_some());
        for write in writes {
            match write {
                MoveWrite::Keep { cluster } => plan.push_stage(self.keep_live_copies(&survey, cluster)),
                MoveWrite::Delete { cluster } if may_delete => {
                    for stage in self.delete_copies(&survey, cluster) {
                        plan.push_stage(stage);
                    }
                }
                _ => {}
            }
        }
        for key in &context.members {
            let of_member = faults.get(*key).map(faults::copy_fault_reason).into_iter();
            let denied = faults::direct_placement_denial(self.store, key);
            plan.faults.insert((*key).clone(), of_member.chain(denied).collect());
        }
        let Some(group) = context.desired_group(&faults) else { return plan };
        let events = group.status.as_ref().map(|status| context.events(status)).unwrap_or_default();
        plan.push_stage(context.diff_group(group));
        plan.push_stage(context.diff_labels());
        plan.push_stage(events);
        plan
    }

    fn keep_live_copies(&self, survey: &Survey<'_>, cluster: &str) -> Vec<Write> {
        let open = survey.live_copies(cluster).into_iter().filter(|(_, at, schedule)| {
            self.moves.kept_epoch(at, schedule.metadata.uid.as_ref()) != Some(self.record.epoch)
        });
        open.map(|(_, at, schedule)| Write::Keep {
            cluster: cluster.to_owned(),
            name: at.1.clone(),
            uid: schedule.uid().unwrap_or_default(),
            version: schedule.resource_version(),
            epoch: schedule.spec.epoch + 1,
        })
        .collect()
    }

    /// Returns the deletions of the copies in a cluster: of what runs pods first.
    fn delete_copies(&self, survey: &Survey<'_>, cluster: &str) -> [Vec<Write>; 2] {
        let consent = self.record.running.as_ref().is_some_and(|running| running.consent);
        let mut copies = survey.live_copies(cluster);
        copies.retain(|(key, _, schedule)| !survey.waits_for_jobs(key, schedule));
        [true, false].map(|with_pods| {
            let copies = copies.iter().filter(|(key, ..)| {
                self.store.source_facts(key).is_some_and(|facts| facts.shape.is_some()) == with_pods
            });
            let deletions = copies.filter_map(|(key, at, copy)| {
                let class = match self.record.running {
                    Some(_) => RemovalClass::Moved,
                    None => stray_class(self.store, self.name, key, cluster),
                };
                schedule_deletions::remove_in_move(self.store, key, (at, copy), (class, consent))
            });
            deletions.collect()
        })
    }

    /// Returns the events about a change of the record: on the group and on its members.
    fn move_events(&self, event: MoveEvent, next: &MoveRecord) -> Vec<Write> {
        let Some(running) = next.running.as_ref().or(self.record.running.as_ref()) else { return Vec::new() };
        let (from, to, cause) = (side_text(&running.from), side_text(&running.to), cause_text(running.cause));
        let text = match event {
            MoveEvent::Moving if self.seen.source.once => {
                format!("Moves from {from} to {to} ({cause}): it is stopped on {from} before it starts on {to}")
            }
            MoveEvent::Moving => {
                format!(
                    "Moves from {from} to {to} ({cause}): the copies on {from} are kept until those on {to} are \
                     available"
                )
            }
            MoveEvent::Moved | MoveEvent::Restarted => format!("Moved from {from} to {to} ({cause})"),
            MoveEvent::MoveWithdrawn => {
                format!("No longer moves from {from} to {to}: the cause ({cause}) no longer exists")
            }
            MoveEvent::MoveFailed => {
                let retry = next.retry.map(|retry| (retry.attempt, time_text(retry.not_before)));
                let (attempt, again) = retry.unwrap_or_default();
                format!(
                    "The copies on {to} did not become available, so those on {from} are kept: attempt {attempt} \
                     failed, and the next attempt is not before {again}"
                )
            }
        };
        let is_warning = event == MoveEvent::MoveFailed;
        // What had begun gets its own event when it is let go.
        let event = if event == MoveEvent::Restarted { MoveEvent::Moved } else { event };
        let members = self.survey(self.record).members.into_iter();
        let members = members.filter_map(|key| Some(self.store.sources.get(key)?.address.event_reference()));
        let about = std::iter::once(group_reference(self.name)).chain(members);
        about.map(|about| event_about(about, is_warning, event.reason(), &text)).collect()
    }
}

fn merge_plan(plan: &mut Plan, other: Plan) {
    plan.stages.extend(other.stages);
    plan.fetch.extend(other.fetch);
    plan.written.extend(other.written);
    plan.refused.extend(other.refused);
    plan.is_partial |= other.is_partial;
}
