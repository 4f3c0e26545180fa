//! Placement: decides where the objects of the control plane's API run, writes Schedules for the agents, and brings
//! back what they say.
//!
//! One task owns the state. Watches and the answers to writes change it; what is due because of a change is decided by the
//! pure functions of [`crate::placement`] and written by tasks of its own, one at a time for a unit. The Schedules are the
//! truth about which copies there are: after a restart everything is read from them.

mod changes;
mod conditions;
mod decide;
mod events;
mod plan;
mod policies;
mod queue;
mod regroup;
mod source;
mod sources;
mod state;
mod status;
mod tally;
#[cfg(test)]
mod upgrade_tests;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::Recorder;
use kube::{Api, Client};
use tokio::runtime::RuntimeFlavor;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::index::Index;
use crate::api::extra_kind::ExtraKind;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::Placeable;
use crate::daemon::metrics::Metrics;
use crate::k8s::backoff::Backoff;
use crate::k8s::daemon_client::{CallError, call};
use crate::k8s::extra_kinds;
use crate::placement::facts::ObjectKey;
use decide::{Clusters, Decided};
use queue::Unit;
use state::State;
use writer::{Address, Events, Write, Writer, Written};

/// Changes that wait for the task that owns the state.
const CHANGES: usize = 1024;
/// Units whose writes are under way at a time.
const UNITS: usize = 64;
/// Bytes of sources after which a plan that reads many has read enough at a time.
const FETCHED: usize = 2 << 20;
/// Longest time between two looks at what is due.
const TICK: Duration = Duration::from_secs(1);

/// Placement of one leadership term.
struct Placing {
    client: Client,
    index: Arc<Index>,
    metrics: Metrics,
    writer: Writer,
    events: Option<Events>,
    state: State,
    clusters: Clusters,
    decided: BTreeMap<String, Decided>,
    /// Units whose writes are under way, with their beginnings.
    busy: BTreeMap<Unit, Instant>,
    backoffs: BTreeMap<Unit, Backoff>,
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
}

/// Places until dropped; anew, with all that is recorded, when a further kind begins to be served.
pub async fn run(client: Client, index: Arc<Index>, metrics: Metrics, recorder: Recorder, options: Options) {
    loop {
        let kinds = extra_kinds::kinds(&client, &options.extra_kinds).await;
        let state = State::new(kinds.clone(), options.denies_direct).with_own_namespace(options.namespace.clone());
        let placing = Placing::new(client.clone(), index.clone(), metrics.clone(), recorder.clone(), state);
        tokio::select! {
            () = placing.run() => return,
            () = extra_kinds::more(&client, &options.extra_kinds, &kinds) => {}
        }
    }
}

/// The end of a unit's writes.
struct Done {
    unit: Unit,
    written: Vec<Written>,
    /// Sources whose whole objects were read.
    fetched: Vec<(&'static Placeable, Raw)>,
    failure: Option<CallError>,
}

impl Placing {
    /// Creates a placement that has seen nothing.
    fn new(client: Client, index: Arc<Index>, metrics: Metrics, recorder: Recorder, state: State) -> Self {
        let (writer, events) = Writer::new(client.clone(), recorder, metrics.clone());
        Self {
            writer,
            events: Some(events),
            client,
            index,
            metrics,
            state,
            clusters: Clusters::new(Instant::now()),
            decided: BTreeMap::new(),
            busy: BTreeMap::new(),
            backoffs: BTreeMap::new(),
        }
    }

    async fn run(mut self) {
        let (sender, mut changes) = mpsc::channel(CHANGES);
        let mut tasks = JoinSet::new();
        tasks.spawn(sources::watch(self.client.clone(), self.state.kinds.clone(), sender));
        if let Some(events) = self.events.take() {
            tasks.spawn(events.write());
        }
        let mut writes: JoinSet<Done> = JoinSet::new();
        let mut batch = Vec::new();
        loop {
            // Before everything is listed, and while no further unit may be written, nothing that is due can begin.
            let is_complete = self.state.is_complete() && self.index.is_complete();
            let begins = is_complete && writes.len() < UNITS;
            let next = begins.then(|| self.state.queue.next(|unit| !self.busy.contains_key(unit))).flatten();
            let next = next.into_iter().chain(self.clusters.next().filter(|_| is_complete));
            let wake = next.fold(Instant::now() + TICK, Instant::min);
            tokio::select! {
                count = changes.recv_many(&mut batch, CHANGES) => {
                    if count == 0 {
                        return;
                    }
                    let now = Instant::now();
                    aside(|| batch.drain(..).for_each(|change| self.state.apply(change, now)));
                }
                Some(done) = writes.join_next(), if !writes.is_empty() => {
                    match done {
                        Ok(done) => self.finish(done),
                        // Its unit would never be planned again; a new process plans everything.
                        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                        Err(_) => {}
                    }
                }
                () = self.index.placement.notified() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
            self.state.forget_gone(self.busy.values().min().copied());
            if !self.state.is_complete() || !self.index.is_complete() {
                continue;
            }
            let now = Instant::now();
            aside(|| self.clusters.refresh(&self.index, &mut self.state, now));
            #[allow(clippy::cast_precision_loss)] // A count of units.
            self.metrics.gauge(
                "fleet_placement_queue_length",
                "Groups, objects and statuses that wait to be planned.",
                &[],
                self.state.queue.len() as f64,
            );
            self.state.tally.publish(&self.metrics);
            let free = UNITS.saturating_sub(writes.len());
            if free > 0 {
                let due = self.state.take_due(now, free, |unit| !self.busy.contains_key(unit));
                for (unit, waited) in due {
                    let help = "Time from the first change until a group, object or status is planned.";
                    self.metrics.observe_short("fleet_placement_queue_seconds", help, waited);
                    aside(|| self.begin(unit, &mut writes));
                }
            }
        }
    }

    /// Plans a unit and starts its writes.
    fn begin(&mut self, unit: Unit, writes: &mut JoinSet<Done>) {
        let wall = Timestamp::now();
        let plan = match &unit {
            // What changes its group has to be in it before that is decided: a decision lifts the promises of the group.
            Unit::Group(name) => regroup::plan(&self.state, name).unwrap_or_else(|| {
                self.decide(name, wall);
                plan::group(&self.state, name, self.decided.get(name), wall)
            }),
            Unit::Object(key) => {
                let direct = self.clusters.direct(&self.state, key);
                plan::object(&self.state, key, direct.as_ref())
            }
            Unit::Status(key) => {
                let mut plan = status::source(&self.state, key);
                let news = self.state.take_news(key);
                plan.stages.extend((!news.is_empty()).then_some(news));
                plan
            }
            Unit::Policy(name) => policies::plan(&self.state, name, wall),
        };
        let mut plan = plan;
        plan.stages.extend(self.faults(std::mem::take(&mut plan.faults)));
        if plan.fetch.is_empty() && plan.stages.is_empty() {
            self.backoffs.remove(&unit);
            if let Unit::Group(name) = &unit {
                self.clusters.written(name);
            }
            for key in &plan.written {
                self.state.forget_object(key);
            }
            return;
        }
        self.busy.insert(unit.clone(), Instant::now());
        let (writer, client) = (self.writer.clone(), self.client.clone());
        writes.spawn(async move {
            let mut fetched = Vec::new();
            let mut bytes = 0;
            for address in &plan.fetch {
                if bytes > FETCHED {
                    // The next plan writes what these give, and reads more.
                    break;
                }
                match fetch(&client, address).await {
                    Ok(raw) => {
                        bytes += raw.as_ref().map_or(0, |raw| raw.object.values().map(source::weight).sum());
                        fetched.extend(raw.map(|raw| (address.kind, raw)));
                    }
                    Err(error) => return Done { unit, written: Vec::new(), fetched, failure: Some(error) },
                }
            }
            let (written, failure) = writer.execute(plan.stages).await;
            Done { unit, written, fetched, failure }
        });
    }

    /// Decides a group where that is due.
    fn decide(&mut self, name: &str, wall: Timestamp) {
        if !self.state.undecided.remove(name) {
            return;
        }
        let began = Instant::now();
        match self.clusters.group(&self.state, name, wall) {
            Some(decided) => {
                self.count(&decided, began.elapsed());
                let now = decided.withheld;
                let before = self.decided.insert(name.to_owned(), decided);
                self.state.tally.withhold(before.map_or(0, |before| before.withheld), now);
            }
            None => {
                self.clusters.forget(name);
                let before = self.decided.remove(name);
                self.state.tally.withhold(before.map_or(0, |before| before.withheld), 0);
            }
        }
    }

    /// Returns the events about objects that cannot be placed as they ask, which were not said before.
    fn faults(&mut self, faults: BTreeMap<ObjectKey, BTreeMap<&'static str, String>>) -> Option<Vec<Write>> {
        let mut events = Vec::new();
        for (key, faults) in faults {
            for (reason, message) in self.state.tell(&key, faults) {
                if let Some(source) = self.state.sources.get(&key) {
                    events.push(events::event(source.address.reference(), true, reason, &message));
                }
            }
        }
        (!events.is_empty()).then_some(events)
    }

    fn count(&self, decided: &Decided, took: Duration) {
        let result = [("result", decided.reason.as_str())];
        self.metrics.count("fleet_placement_decisions_total", "Decisions about groups, by their reason.", &result);
        self.metrics.observe_short("fleet_placement_decision_seconds", "Time that a decision takes.", took);
    }

    fn finish(&mut self, done: Done) {
        let now = Instant::now();
        let Done { unit, written, fetched, failure } = done;
        self.busy.remove(&unit);
        let moved = !written.is_empty() || !fetched.is_empty();
        for one in written {
            self.state.on_written(one, now);
        }
        for (kind, raw) in fetched {
            self.state.on_fetched(kind, raw, now);
        }
        if let Some(error) = failure {
            let backoff = self.backoffs.entry(unit.clone());
            let backoff = backoff.or_insert_with(|| Backoff::new(Duration::from_millis(200), Duration::from_secs(60)));
            let wait = backoff.next_wait();
            // Somebody else wrote first: the watch brings what there is now.
            if error.is_conflict() {
                tracing::debug!(?unit, %error, "placing: written meanwhile");
            } else {
                tracing::warn!(?unit, %error, ?wait, "placing failed");
            }
            self.state.queue.retry(unit, now, wait);
        } else if moved {
            // Whether anything is left to do is seen with the answers.
            self.state.mark(unit, now);
        }
    }
}

/// Does work that takes a while in such a way that everything else goes on meanwhile: probes, watches and Leases.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    let can_move = tokio::runtime::Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if can_move { tokio::task::block_in_place(work) } else { work() }
}

/// Reads a source whose copy has to be made.
async fn fetch(client: &Client, address: &Address) -> Result<Option<Raw>, CallError> {
    let api: Api<Raw> = address.kind.api(client, address.namespace.as_deref());
    call(api.get_opt(&address.name)).await
}
