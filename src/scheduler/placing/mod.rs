//! Placement: decides where the objects of the control plane's API run, writes Schedules for the agents, and copies the
//! reported status back.
//!
//! ```text
//! sources: watches ────→ Store::apply_change ──────────┐                                    ┌→ Schedules → agents
//! index: Clusters ─────→ Clusters::refresh_clusters ───┼→ Queue → reconcile → Plan → Writer ┼→ groups, labels, statuses
//! answers: on_result ──→ Store::on_written, on_fetched ┘                                    └→ events
//! ```
//!
//! One task owns the `Store` (what the watches and the answers to writes have brought), the queue in it, and `Clusters`
//! (nodes, and what is promised of them). `reconcile` takes a request out of the queue in turns of tenants, so that no
//! namespace waits for thousands of objects of another, decides a group where that is due by the pure functions of
//! [`crate::placement`], and makes a `Plan`. `group_plan` says which Schedules a group has, `object_plan` which an object
//! outside groups has, `follow_plan` which go along with these, `schedule_deletions` alone which are deleted; groups with
//! a record go by `moving`. Separate tasks write the plans, one at a time per request.
//! Schedules are the source of truth about existing copies: after a restart everything is read from them.

mod arriving;
mod availability;
mod broken_policies;
mod changes;
mod decide;
mod event_queue;
mod events;
mod falling_shares;
#[cfg(test)]
mod falling_shares_tests;
mod faults;
mod finished;
#[cfg(test)]
mod finished_tests;
mod follow;
mod follow_input;
mod follow_missing;
mod follow_plan;
#[cfg(test)]
mod follow_tests;
mod group_conditions;
mod group_context;
mod group_events;
mod group_followers;
mod group_plan;
mod group_status;
mod lost_copy_status;
mod mass_removal;
mod move_blocked;
mod moving;
#[cfg(test)]
mod moving_tests;
mod next_request;
mod object_plan;
mod other_objects;
mod place;
mod plan;
mod policies;
mod queue;
mod rebalance;
mod refusals;
mod regroup;
mod scaled_copy;
mod schedule_deletions;
#[cfg(test)]
mod schedule_deletions_tests;
mod schedule_diff;
#[cfg(test)]
mod simulate_tests;
mod source;
mod source_status;
mod sources;
mod store;
mod stuck_groups;
mod tally;
mod turns;
#[cfg(test)]
mod upgrade_tests;
mod volumes;
mod waiting_groups;
mod write;
mod writer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::Recorder;
use kube::{Api, Client};
use rand::RngExt as _;
use tokio::runtime::RuntimeFlavor;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::index::Index;
use super::server_clock::ServerClock;
use crate::api::extra_kind::ExtraKind;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::Placeable;
use crate::daemon::metrics::Metrics;
use crate::k8s::backoff::Backoff;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::extra_kinds;
use crate::placement::facts::ObjectKey;
use crate::placement::tenant::Tenant;
use decide::{Clusters, Decided};
use follow_input::FollowContext;
use mass_removal::hold::Removals;
use mass_removal::record::{LogAnswer, carry_out_task, frozen_event};
use moving::Moves;
use place::namespace_and_name;
use plan::Plan;
use queue::{Cause, ReconcileRequest, Taken};
use refusals::{Refusal, Subject};
use store::Store;
use write::{Address, Write, Written};
use writer::{Events, WriteOutcome, Writer};

/// Changes that wait for the task that owns the store, each of up to an object of 1 MiB.
const CHANGES: usize = 128;
/// Time for which changes are applied, and then requests planned, before it is looked at the other again.
const SLICE: Duration = Duration::from_millis(20);
/// Bytes of sources after which a plan that reads many has read enough at a time.
const FETCHED: usize = 2 << 20;
/// Time after which a group that moves is looked at again though nothing is reported.
const MOVE_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time between two looks at what is due.
const TICK: Duration = Duration::from_secs(1);

/// Placement of one leadership term.
struct Placing {
    client: Client,
    index: Arc<Index>,
    metrics: Metrics,
    writer: Writer,
    events: Option<Events>,
    store: Store,
    clusters: Clusters,
    decided: BTreeMap<String, Decided>,
    moves: Moves,
    clock: ServerClock,
    extra_kinds: Vec<ExtraKind>,
    backoffs: BTreeMap<ReconcileRequest, Backoff>,
    removals: Removals,
    /// The read or write of the record of removals that is in progress.
    log: JoinSet<LogAnswer>,
}

/// Settings of placement that its operator makes.
#[derive(Debug, Clone)]
pub struct Options {
    /// Namespace of the service in the control plane's API, of which nothing is placed.
    pub namespace: String,
    /// Annotations of objects do not place them.
    pub denies_direct: bool,
    /// Kinds that are placed beside those of the table, as far as the control plane's API serves them.
    pub extra_kinds: Vec<ExtraKind>,
    /// The control plane's clock.
    pub clock: ServerClock,
}

/// Places until dropped.
pub async fn run_placement(client: Client, index: Arc<Index>, metrics: Metrics, recorder: Recorder, options: Options) {
    let kinds = extra_kinds::discover_kinds(&client, &options.extra_kinds).await;
    let store = Store::new(kinds, options.denies_direct).with_own_namespace(options.namespace);
    Placing::new(client, index, metrics, recorder, store, options.extra_kinds, options.clock).run().await;
}

/// The end of a request's writes.
struct Done {
    request: ReconcileRequest,
    tenant: Tenant,
    cause: Cause,
    outcome: WriteOutcome,
    /// Sources whose whole objects were read.
    fetched: Vec<(&'static Placeable, Raw)>,
}

impl Placing {
    /// Creates a placement that has seen nothing.
    fn new(
        client: Client,
        index: Arc<Index>,
        metrics: Metrics,
        recorder: Recorder,
        store: Store,
        extra_kinds: Vec<ExtraKind>,
        clock: ServerClock,
    ) -> Self {
        let (writer, events) = Writer::new(client.clone(), recorder, metrics.clone());
        Self {
            writer,
            events: Some(events),
            client,
            index,
            metrics,
            store,
            clusters: Clusters::new(Instant::now()),
            decided: BTreeMap::new(),
            moves: Moves::new(format!("{:016x}", rand::rng().random::<u64>()), clock.now()),
            removals: Removals::new(clock.now()),
            log: JoinSet::new(),
            clock,
            extra_kinds,
            backoffs: BTreeMap::new(),
        }
    }

    /// Returns whether all is known that a decision depends on.
    fn is_complete(&self) -> bool {
        self.store.is_complete() && self.index.is_complete() && self.clusters.is_complete()
    }

    async fn run(mut self) {
        let (sender, mut changes) = mpsc::channel(CHANGES);
        let mut tasks = JoinSet::new();
        let (kinds, wanted) = (self.store.kinds.clone(), std::mem::take(&mut self.extra_kinds));
        tasks.spawn(sources::watch_placement_inputs(self.client.clone(), kinds, wanted, sender));
        if let Some(events) = self.events.take() {
            tasks.spawn(events.write_events());
        }
        let mut writes: JoinSet<Done> = JoinSet::new();
        let (mut batch, mut pending) = (Vec::new(), VecDeque::new());
        loop {
            // Before everything is listed, and while no further request may be written, nothing that is due can begin.
            let is_complete = self.is_complete();
            let next = self
                .store
                .queue
                .next_start()
                .into_iter()
                .chain(self.clusters.next_refresh_time())
                .filter(|_| is_complete);
            let next = next.chain((!pending.is_empty()).then(Instant::now));
            let wake = next.fold(Instant::now() + TICK, Instant::min);
            tokio::select! {
                count = changes.recv_many(&mut batch, CHANGES), if pending.is_empty() => {
                    if count == 0 {
                        return;
                    }
                    pending.extend(batch.drain(..));
                }
                Some(done) = writes.join_next(), if !writes.is_empty() => {
                    match done {
                        Ok(done) => self.on_result(done),
                        // Its request would never be planned again; a new process plans everything.
                        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                        Err(_) => {}
                    }
                }
                Some(answer) = self.log.join_next(), if !self.log.is_empty() => {
                    match answer {
                        Ok(answer) => self.on_log_answer(answer),
                        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                        Err(_) => {}
                    }
                }
                () = self.index.placement.notified() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
            if !pending.is_empty() {
                run_blocking(|| self.apply_pending_changes(&mut pending));
            }
            self.store.forget_gone(self.store.queue.oldest_start());
            if !self.store.is_complete() || !self.index.is_complete() {
                continue;
            }
            self.plan_due(&mut writes);
        }
    }

    /// Applies changes, for a while.
    fn apply_pending_changes(&mut self, pending: &mut VecDeque<sources::Change>) {
        let now = Instant::now();
        while let Some(change) = pending.pop_front() {
            self.store.apply_change(change, now);
            if now.elapsed() >= SLICE {
                return;
            }
        }
    }

    /// Plans what is due, for a while.
    fn plan_due(&mut self, writes: &mut JoinSet<Done>) {
        let now = Instant::now();
        run_blocking(|| self.clusters.refresh_clusters(&self.index, &mut self.store, now));
        #[allow(clippy::cast_precision_loss)] // A count of requests.
        self.metrics.set_gauge(
            "fleet_placement_queue_length",
            "Groups, objects and statuses that wait to be planned.",
            &[],
            self.store.queue.len() as f64,
        );
        self.store.tally.publish_gauges(&self.metrics);
        if !self.clusters.is_complete() {
            return;
        }
        self.mark_moves(now);
        if let Some(task) = self.removals.next_task(&self.store, self.clock.now()) {
            self.log.spawn(carry_out_task(self.client.clone(), task));
        }
        for request in self.store.refusals.take_due(now) {
            self.store.enqueue(request, Cause::Report, now);
        }
        while let Some(taken) = self.store.take_due(now) {
            let help = "Time from the first change until a group, object or status is planned.";
            self.metrics.observe_short("fleet_placement_queue_seconds", help, taken.waited);
            run_blocking(|| self.reconcile(taken, writes));
            if now.elapsed() >= SLICE {
                return;
            }
        }
    }

    /// Marks the groups that may begin to move, and those for which an agent may have answered.
    fn mark_moves(&mut self, now: Instant) {
        let time = self.clock.now();
        let is_turned = self.moves.set_frozen(self.index.is_frozen(), time);
        let mut groups: BTreeSet<String> = self.moves.take_admitted(time).into_iter().collect();
        if is_turned {
            groups.extend(self.moves.waiting_groups());
        }
        self.mark_stuck_groups(time, now);
        for name in self.moves.take_alarms(time) {
            self.store.mark_undecided(name, now);
        }
        for cluster in std::mem::take(&mut self.clusters.answered) {
            groups.extend(self.moves.take_unanswered(&cluster));
        }
        for name in groups {
            self.store.enqueue(ReconcileRequest::Group(name), Cause::Review, now);
        }
    }

    /// Marks the groups whose pods have found no node for long, and those that left a cluster which has grown since.
    fn mark_stuck_groups(&mut self, time: i64, now: Instant) {
        for cluster in std::mem::take(&mut self.clusters.enlarged) {
            self.store.reset_stuck_copies(&cluster);
            let groups = self.store.groups.iter().filter(|(_, group)| {
                let mut excluded = group.status.iter().flat_map(|status| &status.record.excluded);
                excluded.any(|one| one.cluster == cluster)
            });
            for name in groups.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
                self.store.mark_undecided(name, now);
            }
            self.clusters.grown_at.insert(cluster, time);
        }
        let clusters = &self.clusters;
        for name in
            self.store.take_stuck_groups(|cluster, stuck| clusters.is_stuck_there_for_long(cluster, stuck, time))
        {
            self.store.mark_undecided(name, now);
        }
    }

    /// Plans a request and starts its writes.
    fn reconcile(&mut self, taken: Taken, writes: &mut JoinSet<Done>) {
        let Taken { request, tenant, cause, .. } = taken;
        let mut plan = self.plan_request(&request);
        plan.stages.extend(self.report_faults(std::mem::take(&mut plan.faults)));
        for refusal in std::mem::take(&mut plan.refused) {
            self.store.refusals.record_refusal(refusal, request.clone(), Instant::now());
        }
        self.store.refusals.hold_back(&mut plan.stages);
        let is_whole = plan.fetch.is_empty() && !plan.is_partial && !plan.writes_schedules();
        self.removals.hold_removals(&request, &mut plan.stages, (is_whole, self.clock.now()));
        if plan.fetch.is_empty() && plan.stages.is_empty() {
            self.backoffs.remove(&request);
            if let ReconcileRequest::Group(name) = &request {
                self.clusters.record_group_written(name);
                let targets = self.decided.get(name).map(|decided| decided.targets.as_slice()).unwrap_or_default();
                self.store.forget_edits(name, targets);
            }
            for key in &plan.written {
                self.store.forget_object(key);
            }
            self.store.queue.finish_request(&request);
            if matches!(&request, ReconcileRequest::Group(name) if self.moves.is_moving(name)) {
                // Its deadline may pass, and a cluster may be away for long.
                self.store.queue.retry_request(request, Cause::Review, Instant::now(), MOVE_INTERVAL);
            }
            return;
        }
        let (writer, client) = (self.writer.clone(), self.client.clone());
        writes.spawn(async move {
            let mut fetched = Vec::new();
            let mut bytes = 0;
            for address in &plan.fetch {
                if bytes > FETCHED {
                    // The next plan writes what these give, and reads more.
                    break;
                }
                match fetch_source(&client, address).await {
                    Ok(raw) => {
                        bytes +=
                            raw.as_ref().map_or(0, |raw| raw.object.values().map(source::estimate_json_size).sum());
                        fetched.extend(raw.map(|raw| (address.kind, raw)));
                    }
                    Err(error) => {
                        let outcome = WriteOutcome { failure: Some(error), ..WriteOutcome::default() };
                        return Done { request, tenant, cause, outcome, fetched };
                    }
                }
            }
            let outcome = writer.execute_stages(plan.stages, &tenant).await;
            Done { request, tenant, cause, outcome, fetched }
        });
    }

    /// Plans a request; a group is decided first, if it must be.
    fn plan_request(&mut self, request: &ReconcileRequest) -> Plan {
        let wall = Timestamp::now();
        match request {
            // What changes its group has to be in it before that is decided: a decision lifts the promises of the group.
            ReconcileRequest::Group(name) => {
                regroup::plan_regroup(&self.store, name).unwrap_or_else(|| self.plan_group(name, wall))
            }
            ReconcileRequest::Follow(namespace) => {
                let now = Instant::now();
                let followed = self.follow_context(wall).plan_namespace(namespace);
                self.store.record_follow_plan(namespace, followed, now);
                let mut plan = follow_plan::plan_follow(&mut self.store, namespace, now);
                plan.push_stage(follow_missing::report_missing(&mut self.store, namespace, wall, now));
                plan
            }
            ReconcileRequest::Object(key) => {
                let direct = self.clusters.decide_direct_object(&self.store, key);
                object_plan::plan_object(&self.store, key, direct.as_ref())
            }
            ReconcileRequest::Status(key) => {
                let mut plan = source_status::plan_source_status(&self.store, key, wall);
                let news = self.store.take_news(key);
                plan.stages.extend((!news.is_empty()).then_some(news));
                plan
            }
            ReconcileRequest::Policy(name) => policies::plan_policy_status(&self.store, name, wall),
        }
    }

    /// Plans a group; one that is recorded by its move.
    fn plan_group(&mut self, name: &str, wall: Timestamp) -> Plan {
        let is_recorded = moving::is_recorded(&self.store, name);
        if self.moves.set_recorded(name, is_recorded) {
            self.store.undecided.insert(name.to_owned());
        }
        if !is_recorded {
            self.decide_due_group(name, wall);
            return follow_plan::plan_followers_first(&self.follow_context(wall), name)
                .unwrap_or_else(|| group_plan::plan_group(&self.store, name, self.decided.get(name), wall));
        }
        let now = self.clock.now();
        let record = moving::read_record(&self.store, name);
        let is_due = self.store.undecided.remove(name)
            || self.moves.is_busy(name)
            || record.running.is_some()
            || record.retry.is_some()
            || record.excluded.iter().any(|one| one.until > now)
            || self.decided.get(name).is_none_or(|decided| {
                // The write of a decision that is not recorded was refused or lost.
                decided.waits || moving::target_amounts(decided) != record.target
            });
        if is_due {
            self.plan_follow_first(name, wall);
        }
        let began = Instant::now();
        let proposal = if is_due { self.clusters.propose(&self.store, name, &record, now, wall) } else { None };
        if let Some(proposal) = &proposal {
            self.count_decision(&proposal.decided, began.elapsed());
            self.moves.set_alarm(name, proposal.alarm);
        }
        let known = (proposal, self.decided.get(name));
        let known_to = (&mut self.moves, &mut self.clusters);
        let (plan, decided) = moving::plan_move(known_to, &self.store, name, known, (now, wall));
        if is_due && decided.as_ref().is_some_and(|decided| !decided.waits) {
            self.store.grown.remove(name);
        }
        self.set_decided(name, decided);
        // The record comes alone, and followers before what uses them.
        let is_record = plan.stages.first().is_some_and(|stage| matches!(stage[..], [Write::Group(_), ..]));
        let first = if is_record { None } else { follow_plan::plan_followers_first(&self.follow_context(wall), name) };
        first.unwrap_or(plan)
    }

    fn follow_context(&self, wall: Timestamp) -> FollowContext<'_> {
        let (store, decided, clusters) = (&self.store, &self.decided, &self.clusters);
        FollowContext { store, decided, clusters, now: Instant::now(), wall }
    }

    /// Plans what follows in the namespaces of a group that were not planned yet: claims leave it fewer clusters.
    fn plan_follow_first(&mut self, name: &str, wall: Timestamp) {
        for namespace in self.store.namespaces_to_plan_first(name) {
            let plan = self.follow_context(wall).plan_namespace(&namespace);
            self.store.record_follow_plan(&namespace, plan, Instant::now());
        }
    }

    /// Decides a group where that is due.
    fn decide_due_group(&mut self, name: &str, wall: Timestamp) {
        if !self.store.undecided.remove(name) {
            return;
        }
        self.plan_follow_first(name, wall);
        let began = Instant::now();
        match self.clusters.decide_and_reserve(&self.store, name, (self.clock.now(), wall)) {
            Some(mut decided) => {
                self.store.grown.remove(name);
                self.count_decision(&decided, began.elapsed());
                if self.store.keep_ended_group(name, &mut decided) {
                    self.clusters.forget_group(name);
                }
                self.set_decided(name, Some(decided));
            }
            None => self.set_decided(name, None),
        }
    }

    /// Records what is decided of a group; nothing where no policy matches any of its members any more.
    fn set_decided(&mut self, name: &str, decided: Option<Decided>) {
        let now = decided.as_ref().map_or(0, |decided| decided.withheld);
        let before = match decided {
            Some(decided) => self.decided.insert(name.to_owned(), decided),
            None => {
                self.clusters.forget_group(name);
                self.decided.remove(name)
            }
        };
        self.store.tally.count_withheld(before.map_or(0, |before| before.withheld), now);
    }

    /// Takes what was read or written of the record of removals.
    fn on_log_answer(&mut self, answer: LogAnswer) {
        let written = match answer {
            LogAnswer::Read(Ok((record, version))) => return self.removals.take_read_record(record, version),
            LogAnswer::Read(Err(error)) => {
                tracing::warn!(%error, "the record of removals cannot be read; nothing is removed for a policy or a cluster");
                return;
            }
            LogAnswer::Written(written) => written,
        };
        if let Err(error) = &written {
            tracing::debug!(%error, "the record of removals was not written");
        }
        let (requests, frozen) = self.removals.take_written_record(written.ok(), self.clock.now());
        for request in requests {
            self.store.enqueue(request, Cause::Review, Instant::now());
        }
        for (cause, frozen) in frozen {
            tracing::warn!(%cause, copies = frozen.count(), "too many removals: the scheduler holds all of them");
            self.writer.enqueue_event(frozen_event(&cause, &frozen), &Tenant::ClusterScoped);
        }
    }

    /// Returns the events about objects that cannot be placed as they ask, which were not said before.
    fn report_faults(&mut self, faults: BTreeMap<ObjectKey, BTreeMap<&'static str, String>>) -> Option<Vec<Write>> {
        let mut events = Vec::new();
        for (key, faults) in faults {
            for (reason, message) in self.store.record_faults(&key, faults) {
                if let Some(source) = self.store.sources.get(&key) {
                    events.push(events::event_about(source.address.event_reference(), true, reason, &message));
                }
            }
        }
        (!events.is_empty()).then_some(events)
    }

    fn count_decision(&self, decided: &Decided, took: Duration) {
        let result = [("result", decided.reason.as_str())];
        self.metrics.increment_counter(
            "fleet_placement_decisions_total",
            "Decisions about groups, by their reason.",
            &result,
        );
        self.metrics.observe_short("fleet_placement_decision_seconds", "Time that a decision takes.", took);
    }

    fn on_result(&mut self, done: Done) {
        let now = Instant::now();
        let Done { request, tenant, cause, outcome: WriteOutcome { written, refused, failure }, fetched } = done;
        self.store.queue.finish_request(&request);
        let moved = !written.is_empty() || !fetched.is_empty() || !refused.is_empty();
        for one in written {
            match (&one, &request) {
                (Written::Cluster(cluster), _) => self.index.put_cluster((**cluster).clone()),
                (Written::Schedule(schedule), ReconcileRequest::Group(name)) => {
                    let epoch = moving::read_record(&self.store, name).epoch;
                    let (at, uid) =
                        (namespace_and_name(schedule.as_ref()), schedule.metadata.uid.clone().unwrap_or_default());
                    self.moves.record_written(at, uid, epoch, &self.store);
                }
                _ => {}
            }
            self.store.on_written(one, now);
        }
        for (kind, raw) in fetched {
            self.store.on_fetched(kind, raw, now);
        }
        for refusal in refused {
            self.record_refused_write(refusal, &request, &tenant, now);
        }
        if let Some(error) = failure {
            let backoff = self.backoffs.entry(request.clone());
            let backoff = backoff.or_insert_with(|| Backoff::new(Duration::from_millis(200), Duration::from_secs(60)));
            let wait = backoff.next_wait();
            // Somebody else wrote first: the watch brings what there is now.
            if error.is_conflict() {
                tracing::debug!(?request, %error, "placing: another writer changed the object; will retry");
            } else {
                tracing::warn!(?request, %error, ?wait, "placing failed");
            }
            self.store.queue.retry_request(request, cause, now, wait);
        } else if moved {
            // Whether anything is left to do is seen with the answers.
            self.store.enqueue(request, cause, now);
        }
    }

    /// Records a write that was refused. What is refused of a copy is said with the plan of its object; the rest here, once.
    fn record_refused_write(&mut self, refusal: Refusal, request: &ReconcileRequest, tenant: &Tenant, now: Instant) {
        let (subject, error) = (refusal.subject.clone(), refusal.error.clone());
        if !self.store.refusals.record_refusal(refusal, request.clone(), now) {
            return;
        }
        tracing::warn!(?subject, %error, "a write was refused; will retry in minutes");
        let (key, reason, what) = match &subject {
            Subject::Mark(key) => (key, "LabelRefused", "the label with its target clusters"),
            Subject::Status(key) => (key, "StatusRefused", "the status of its copies"),
            Subject::Copy(..) | Subject::Other(..) => return,
        };
        if let Some(source) = self.store.sources.get(key) {
            let message = format!("{what} cannot be written: {error}");
            self.writer
                .enqueue_event(events::event_about(source.address.event_reference(), true, reason, &message), tenant);
        }
    }
}

/// Does work that takes a while in such a way that everything else continues meanwhile: probes, watches and Leases.
fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    let can_move = tokio::runtime::Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if can_move { tokio::task::block_in_place(work) } else { work() }
}

/// Reads a source whose copy must be made.
async fn fetch_source(client: &Client, address: &Address) -> Result<Option<Raw>, CallError> {
    let api: Api<Raw> = address.kind.objects_api(client, address.namespace.as_deref());
    call_with_timeout(api.get_opt(&address.name)).await
}
