//! One run: what a caller chooses about it, and its way through the stages to its record.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;

use super::progress::{self, Progress};
use super::recorded_values::Recorded;
use crate::apply::{self, Charts, Engine, Planned, Run, WaitOptions, WaitTarget};
use crate::inventory::{self, Owner, Release};
use crate::k8s::{Done, ObjectRef};

/// Options of one run.
#[derive(Debug, Clone, Default)]
pub struct InstallOptions {
    /// Undo this run if it fails.
    pub rollback: bool,
    /// Checks that only warn.
    pub skip_preflight: Vec<String>,
    /// Time for everything together.
    pub timeout: Duration,
    /// Take over objects of our names that kubectl or Helm made.
    pub adopt: bool,
    /// Fields to take from other managers.
    pub take_fields: Vec<String>,
    /// Time to wait for another run.
    pub lock_wait: Duration,
    /// Treatment of recorded values that the plan is not given.
    pub recorded: Recorded,
    /// Name of the run in the history: `install`, `upgrade`.
    pub command: &'static str,
}

impl InstallOptions {
    /// The engine of a run that ends at `deadline`, with its journal at `journal` on this machine if it writes; `charts` are
    /// what a record or a journal that it finds may name.
    pub fn build_run_engine(
        &self,
        client: &Client,
        owner: Owner,
        charts: Arc<dyn Charts>,
        deadline: Instant,
        journal: Option<PathBuf>,
        progress: &Arc<dyn Progress>,
    ) -> Engine {
        let options = apply::Options {
            charts,
            deadline: Some(deadline),
            journal,
            adopt: self.adopt,
            take_fields: self.take_fields.clone(),
            lock_wait: self.lock_wait,
            command: self.command,
            ..apply::Options::default()
        };
        Engine::new(client.clone(), owner, options, progress::progress_events(progress))
    }
}

/// The engine stopped.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub struct Stopped {
    /// The step during which it stopped.
    pub step: String,
    /// The error of the engine.
    #[source]
    pub source: Box<apply::Error>,
}

impl Stopped {
    /// Returns whether another run ended while this one waited for the lock: the plan is then out of date, and nothing
    /// was written.
    pub fn is_outdated(&self) -> bool {
        matches!(*self.source, apply::Error::Inventory(inventory::Error::PlanOutdated))
    }
}

/// A run in progress: the engine, the receiver of its progress, and how far it got.
pub struct Session<'a> {
    /// The engine.
    pub engine: &'a Engine,
    /// Receiver of steps and warnings.
    pub progress: &'a Arc<dyn Progress>,
    /// Time by which the run has to have ended.
    pub deadline: Instant,
    /// The engine's run, once it holds the lock.
    pub run: Option<Run>,
    /// Whether the run has ended well: a failure after that undoes nothing.
    pub(super) committed: bool,
    /// Release that the last write of the run records, once that write may be on its way.
    pub(super) release: Option<Release>,
    /// The step in progress.
    pub(super) step: String,
    /// Certificates were issued to workloads that stand. Volumes follow their Secrets after a minute or so: until then a
    /// cause that lasts may be that of the former ones.
    pub has_new_certificates: bool,
}

impl<'a> Session<'a> {
    /// A run that has written nothing yet.
    pub const fn new(engine: &'a Engine, progress: &'a Arc<dyn Progress>, deadline: Instant) -> Self {
        Self {
            engine,
            progress,
            deadline,
            run: None,
            committed: false,
            release: None,
            step: String::new(),
            has_new_certificates: false,
        }
    }

    /// Begins a step.
    pub fn begin_session_step(&mut self, title: &str) {
        title.clone_into(&mut self.step);
        self.progress.begin_step(title);
    }

    /// Turns an error of the engine into one that names the step in progress.
    pub fn map_engine_error(&self) -> impl FnOnce(apply::Error) -> Stopped + use<> {
        let step = self.step.clone();
        move |source| Stopped { step, source: Box::new(source) }
    }

    /// Runs requests without their own deadline within the deadline of the run.
    ///
    /// # Errors
    /// What the work meets; a time-out of the step in progress.
    pub async fn in_time<T, E: From<Stopped>>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        match tokio::time::timeout_at(self.deadline.into(), work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.map_engine_error()(apply::Error::out_of_time()).into()),
        }
    }

    /// Time that is left.
    pub fn remaining_time(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Starts writing a plan, or continues with it after a part.
    ///
    /// # Errors
    /// Refusals of the engine.
    pub async fn begin_plan(&mut self, plan: apply::Plan) -> Result<(), Stopped> {
        let outcome = match &mut self.run {
            Some(run) => run.extend_plan(plan),
            None => self.engine.begin_run(plan).await.map(|run| self.run = Some(run)),
        };
        outcome.map_err(self.map_engine_error())
    }

    /// Applies stage after stage and waits for the workloads that each starts, with one step for each `title`.
    ///
    /// A workload whose name `silent` knows shares the step of the next one. What runs already is changed
    /// `one_by_one`, each healthy before the next; what is new is healthy sooner when a stage starts together.
    ///
    /// # Errors
    /// Errors of the engine.
    pub async fn apply_stages(
        &mut self,
        planned: &[Planned],
        title: impl Fn(&str) -> String,
        silent: impl Fn(&str) -> bool,
        one_by_one: bool,
    ) -> Result<(), Stopped> {
        let stages: BTreeSet<u32> = planned.iter().map(|planned| planned.stage).collect();
        for stage in stages {
            let of_stage = planned.iter().filter(|planned| planned.stage == stage);
            let workloads: Vec<ObjectRef> = of_stage
                .filter_map(|planned| ObjectRef::of(&planned.object))
                .filter(|object| is_awaited(&object.kind))
                .collect();
            if workloads.is_empty() {
                self.apply_wanted_objects(stage, |_| true).await?;
            }
            for together in workloads.chunks(if one_by_one { 1 } else { workloads.len().max(1) }) {
                self.step_of(&together[0], &title);
                // What is no workload goes with the first; what has been applied is not sent again.
                self.apply_wanted_objects(stage, |object| !workloads.contains(object) || together.contains(object))
                    .await?;
                self.replace_broken(together).await?;
                let (targets, options) = self.build_wait(together);
                let (engine, mut next) = (self.engine, together[1..].iter());
                let waited = engine.wait_each(&targets, options, |workload: &ObjectRef| {
                    if !silent(&workload.name) {
                        self.progress.finish_step(if workload.kind == "Job" { "Complete" } else { "Running" });
                    }
                    if let Some(next) = next.next() {
                        self.step_of(next, &title);
                    }
                });
                waited.await.map_err(self.map_engine_error())?;
            }
        }
        Ok(())
    }

    /// Begins the step of a workload, unless it is in progress.
    fn step_of(&mut self, workload: &ObjectRef, title: impl Fn(&str) -> String) {
        let step = title(&workload.name);
        if self.step != step {
            self.begin_session_step(&step);
        }
    }

    /// Applies the `wanted` objects of one stage; nothing where there is nothing to write.
    ///
    /// # Errors
    /// Errors of the engine.
    pub async fn apply_wanted_objects(
        &mut self,
        stage: u32,
        wanted: impl Fn(&ObjectRef) -> bool,
    ) -> Result<(), Stopped> {
        let stopped = self.map_engine_error();
        match &mut self.run {
            Some(run) => run.apply_part(stage, wanted).await.map_err(stopped),
            None => Ok(()),
        }
    }

    /// Deletes the pods of each StatefulSet whose pods all fail and are older than its last change, so that the new
    /// revision can start.
    async fn replace_broken(&self, workloads: &[ObjectRef]) -> Result<(), Stopped> {
        let applied = self.run.as_ref().map(Run::applied_objects);
        for set in workloads.iter().filter(|workload| workload.is_kind("apps", "StatefulSet")) {
            let of_set = applied.and_then(|applied| applied.get(set));
            if of_set.is_some_and(|applied| applied.done != Done::Created) {
                self.engine.replace_broken_pods(set).await.map_err(self.map_engine_error())?;
            }
        }
        Ok(())
    }

    /// Waits until a workload is as it was applied.
    ///
    /// # Errors
    /// What keeps it from that.
    pub async fn wait_for(&self, workload: &ObjectRef) -> Result<(), Stopped> {
        let (targets, options) = self.build_wait(std::slice::from_ref(workload));
        self.engine.wait_for_targets(&targets, options).await.map_err(self.map_engine_error())
    }

    fn build_wait(&self, workloads: &[ObjectRef]) -> (Vec<WaitTarget>, WaitOptions) {
        let targets = workloads.iter().filter_map(|workload| self.build_wait_target(workload)).collect();
        let fail_early = !self.has_new_certificates;
        (targets, WaitOptions { timeout: self.remaining_time(), in_order: true, fail_early })
    }

    fn build_wait_target(&self, workload: &ObjectRef) -> Option<WaitTarget> {
        let applied = self.run.as_ref().and_then(|run| run.applied_objects().get(workload));
        let generation = applied.and_then(|applied| applied.generation);
        let namespace = workload.namespace.as_deref();
        let target = WaitTarget::new(&workload.group, &workload.kind, namespace, &workload.name)?;
        Some(WaitTarget { generation, ..target })
    }

    /// Records what was applied and releases the lock.
    ///
    /// # Errors
    /// Errors of the engine.
    pub async fn commit_install(&mut self) -> Result<(), Stopped> {
        if let Some(run) = self.run.take() {
            self.release.clone_from(&run.plan().release);
            run.commit_run().await.map_err(self.map_engine_error())?;
            self.committed = true;
        }
        Ok(())
    }
}

/// The kinds that an install waits for.
pub fn is_awaited(kind: &str) -> bool {
    matches!(kind, "StatefulSet" | "Deployment" | "Job")
}
