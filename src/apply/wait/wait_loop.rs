//! The loop of one wait: watch updates, polls for evidence of causes beside them, and the end of the wait.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Fuse, FusedFuture as _};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval_at, sleep_until};

use super::target::Watched;
use super::{WaitOptions, WaitTarget};
use crate::api::kinds::Kind;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::diagnose::collect::collect_evidence;
use crate::diagnose::diagnosis::{Diagnosis, WaitFailure};
use crate::diagnose::evidence::Evidence;
use crate::diagnose::give_up::Grace;
use crate::diagnose::workload::{diagnose_slow, latest_warning};
use crate::k8s::object::{ObjectRef, text_at};
use crate::k8s::request::server::Server;
use crate::k8s::run_event::Events;
use crate::k8s::watch::{Update, follow_objects};

/// The pause between two polls for causes while something is not current.
const POLL_EVERY: Duration = Duration::from_secs(2);

/// The result of a wait, once it has ended.
type WaitStep = ControlFlow<Result<(), Error>>;

/// One wait for several targets.
pub(super) struct WaitLoop<'a, F> {
    server: Server,
    events: &'a Events,
    /// The label selector of the installation.
    selector: String,
    options: WaitOptions,
    begun: Instant,
    end: Instant,
    targets: Vec<Watched<'a>>,
    /// The number of targets, from the first on, that have been current.
    ready_prefix: usize,
    /// Called with each target of the prefix.
    current: F,
    updates: UnboundedReceiver<Update>,
    /// Stops all watches when it is dropped.
    _watches: JoinSet<()>,
    poll: Interval,
    /// True once evidence was requested.
    polled: bool,
    /// The evidence that is being read. It is polled beside the others: a server that does not answer must not keep the
    /// wait from its end.
    evidence: Fuse<BoxFuture<'static, Evidence>>,
    grace: Grace,
    /// The causes by the latest evidence.
    causes: Vec<Diagnosis>,
    /// By the latest evidence, the state of those without a cause, for a wait that times out.
    slow: Vec<Diagnosis>,
}

impl<'a, F: FnMut(&ObjectRef)> WaitLoop<'a, F> {
    /// Starts the watches.
    pub(super) fn new(engine: &'a Engine, targets: &'a [WaitTarget], options: WaitOptions, current: F) -> Self {
        let begun = Instant::now();
        let end = begun + options.timeout;
        let end = engine.options.deadline.map_or(end, |deadline| deadline.min(end));
        let server = engine.server.with_deadline(Some(end));
        let selector = engine.owner.owner_selector();
        let (watches, updates) = start_watches(&server, &selector, targets);
        let mut poll = interval_at((begun + POLL_EVERY).into(), POLL_EVERY);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            server,
            events: &engine.events,
            selector,
            options,
            begun,
            end,
            targets: targets.iter().map(Watched::new).collect(),
            ready_prefix: 0,
            current,
            updates,
            _watches: watches,
            poll,
            polled: false,
            evidence: Fuse::terminated(),
            grace: Grace::default(),
            causes: Vec::new(),
            slow: Vec::new(),
        }
    }

    /// Runs until all targets are current.
    ///
    /// # Errors
    /// As [`Engine::wait_for_targets`].
    pub(super) async fn wait_until_current(mut self) -> Result<(), Error> {
        loop {
            let step = tokio::select! {
                update = self.updates.recv(), if !self.updates.is_closed() || !self.updates.is_empty() => {
                    self.on_update(update)
                }
                _ = self.poll.tick(), if self.evidence.is_terminated() => self.on_poll(),
                evidence = &mut self.evidence => self.on_evidence(&evidence),
                () = sleep_until(self.end.into()) => self.on_timeout(),
            };
            if let ControlFlow::Break(result) = step {
                return result;
            }
        }
    }

    fn on_update(&mut self, update: Option<Update>) -> WaitStep {
        match update {
            Some(Update::Failed(error)) => {
                return ControlFlow::Break(Err(Error::from_api_error("watch the installed objects", error)));
            }
            Some(update) => store_update(&mut self.targets, update),
            None => return ControlFlow::Continue(()),
        }
        self.report_changes();
        self.extend_prefix();
        let all = self.targets.iter().all(|target| target.status.is_done());
        if all || self.options.in_order && self.ready_prefix == self.targets.len() {
            return ControlFlow::Break(Ok(()));
        }
        // Only evidence read at once shows the state before the wait.
        if !self.polled && self.targets.iter().all(Watched::is_evaluated) {
            self.polled = true;
            self.poll.reset_immediately();
        }
        ControlFlow::Continue(())
    }

    fn on_poll(&mut self) -> WaitStep {
        self.polled = true;
        let waiting: Vec<ObjectRef> = self.pending_targets().map(|missing| missing.target.object.clone()).collect();
        let (server, selector) = (self.server.clone(), self.selector.clone());
        self.evidence = async move { collect_evidence(&server, &selector, waiting.iter()).await }.boxed().fuse();
        ControlFlow::Continue(())
    }

    fn on_evidence(&mut self, evidence: &Evidence) -> WaitStep {
        self.causes = self.pending_targets().filter_map(|missing| missing.find_diagnosis(evidence)).collect();
        let slow = self
            .pending_targets()
            .filter_map(|missing| diagnose_slow(missing.live.as_ref()?, &missing.status, evidence));
        self.slow = slow.collect();
        let live: Vec<&Value> =
            filter_pending_targets(&self.targets).filter_map(|missing| missing.live.as_ref()).collect();
        self.grace.observe_causes(&self.causes, &live, evidence);
        for target in &mut self.targets {
            let live = target.live.as_ref();
            let warning = live.and_then(|live| latest_warning(live, evidence, |event| self.grace.is_new(event)));
            target.update_explanation(&self.causes, warning);
        }
        self.report_changes();
        let causes = self.deciding_causes(&self.causes);
        // A crash for want of an earlier target must not be taken for the root.
        if causes.first().is_some_and(|first| self.options.fail_early && self.grace.is_used_up(first)) {
            return ControlFlow::Break(Err(self.build_failure(false, causes)));
        }
        ControlFlow::Continue(())
    }

    fn on_timeout(&mut self) -> WaitStep {
        let causes = self.deciding_causes(&self.causes);
        let causes = if causes.is_empty() { self.deciding_causes(&self.slow) } else { causes };
        ControlFlow::Break(Err(self.build_failure(true, causes)))
    }

    /// Extends the prefix by the targets that are current now.
    fn extend_prefix(&mut self) {
        while let Some(next) = self.targets.get(self.ready_prefix).filter(|next| next.status.is_done()) {
            (self.current)(&next.target.object);
            self.ready_prefix += 1;
            if self.options.in_order {
                self.grace.restart_grace();
                // Evidence that is being read may be from before this turn.
                if !self.evidence.is_terminated() {
                    self.evidence = Fuse::terminated();
                    self.poll.reset_immediately();
                }
            }
        }
    }

    /// Reports what has changed since the last report.
    fn report_changes(&mut self) {
        let seconds = self.begun.elapsed().as_secs();
        for event in self.targets.iter_mut().filter_map(|target| target.next_report(seconds)) {
            self.events.send_event(event);
        }
    }

    fn pending_targets(&self) -> impl Iterator<Item = &Watched<'a>> {
        filter_pending_targets(&self.targets)
    }

    /// The causes that keep the wait from its end: all, or in order that of the first target that is missing.
    fn deciding_causes<'d>(&self, causes: &'d [Diagnosis]) -> &'d [Diagnosis] {
        if !self.options.in_order {
            return causes;
        }
        let object = self.targets.get(self.ready_prefix).map(|next| &next.target.object);
        let place = causes.iter().position(|cause| cause.chain.first().map(|link| &link.object) == object);
        place.map_or(&[], |at| &causes[at..=at])
    }

    /// The failure of the wait, with each kind of cause once.
    fn build_failure(&self, timed_out: bool, causes: &[Diagnosis]) -> Error {
        let mut diagnoses: Vec<Diagnosis> = Vec::new();
        for cause in causes {
            if !diagnoses.iter().any(|known| known.cause == cause.cause) {
                diagnoses.push(cause.clone());
            }
        }
        let pending = self.pending_targets().map(Watched::status_link).collect();
        Error::Wait(Box::new(WaitFailure { timed_out, waited: self.begun.elapsed(), pending, diagnoses }))
    }
}

/// Starts one watch for each kind and namespace.
fn start_watches(server: &Server, selector: &str, targets: &[WaitTarget]) -> (JoinSet<()>, UnboundedReceiver<Update>) {
    let mut groups: BTreeMap<(&Kind, Option<&str>), Vec<&str>> = BTreeMap::new();
    for target in targets {
        groups.entry((&target.kind, target.object.namespace.as_deref())).or_default().push(&target.object.name);
    }
    let (sender, updates) = unbounded_channel();
    let mut watches = JoinSet::new();
    for ((kind, namespace), names) in groups {
        let one = (names.len() == 1).then(|| format!("metadata.name={}", names[0]));
        let labels = one.is_none().then(|| selector.to_owned());
        let namespace = namespace.map(str::to_owned);
        watches.spawn(follow_objects(server.clone(), kind.clone(), namespace, labels, one, sender.clone()));
    }
    (watches, updates)
}

/// The targets that are not current.
fn filter_pending_targets<'w, 't>(targets: &'w [Watched<'t>]) -> impl Iterator<Item = &'w Watched<'t>> {
    targets.iter().filter(|target| !target.status.is_done())
}

/// Stores the objects of an update in their targets.
fn store_update(targets: &mut [Watched<'_>], update: Update) {
    match update {
        Update::All { kind, namespace, objects } => {
            for w in targets.iter_mut().filter(|w| w.target.kind == kind && w.target.object.namespace == namespace) {
                let name = Some(w.target.object.name.as_str());
                w.live = objects.iter().find(|object| text_at(object, "/metadata/name") == name).cloned();
                w.existed |= w.live.is_some();
                w.update_status();
            }
        }
        Update::One { object, deleted } => {
            let Some(reference) = ObjectRef::of(&object) else { return };
            if let Some(w) = targets.iter_mut().find(|w| w.target.object == reference) {
                w.live = (!deleted).then_some(object);
                w.existed = true;
                w.update_status();
            }
        }
        Update::Failed(_) => {}
    }
}
