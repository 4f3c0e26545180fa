//! One run: what a caller chooses about it, its way through the stages, and what becomes of its changes at the end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::FusedFuture;
use kube::Client;

use super::progress::{self, Progress};
use crate::apply::{
    self, Done, Engine, ObjectRef, Owner, Phase, Planned, Release, RolledBack, Run, State, WaitOptions, WaitTarget,
};

/// The step that undoes a run.
const UNDOING: &str = "Undoing what this run has changed";

/// What a caller can choose about one run.
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
    /// How long to wait for another run.
    pub lock_wait: Duration,
}

impl InstallOptions {
    /// The engine of a run that ends at `deadline`, with its journal at `journal` on this machine if it writes.
    pub fn engine(
        &self,
        client: &Client,
        owner: Owner,
        deadline: Instant,
        journal: Option<PathBuf>,
        progress: &Arc<dyn Progress>,
    ) -> Engine {
        let options = apply::Options {
            deadline: Some(deadline),
            journal,
            adopt: self.adopt,
            take_fields: self.take_fields.clone(),
            lock_wait: self.lock_wait,
            ..apply::Options::default()
        };
        Engine::new(client.clone(), owner, options, progress::events(progress))
    }
}

/// What became of the changes of a failed run.
#[derive(Debug)]
pub enum Aftermath {
    /// Nothing had been written.
    NothingWritten,
    /// What was written stays; another install resumes it.
    Left,
    /// It was to be undone, and had been recorded as a whole by then.
    Recorded,
    /// It was to be undone and stays all the same: why.
    NotUndone(String),
    /// Everything was undone.
    RolledBack,
    /// Undoing failed as well.
    RollbackFailed(Box<apply::Error>),
}

/// A failed install: why, and what it left.
#[derive(Debug)]
pub struct Failure<E> {
    /// The first error, which is the one to mend.
    pub error: E,
    /// What became of the changes.
    pub aftermath: Aftermath,
}

/// Sees a failed run to its end while signals are listened to. One that comes now changes nothing: whoever listens says so,
/// and ends the program at the next.
pub async fn heeding<T>(ending: impl Future<Output = T>, interrupted: impl FusedFuture<Output = ()>) -> T {
    let mut ending = pin!(ending);
    tokio::select! {
        ended = &mut ending => ended,
        () = interrupted => ending.await,
    }
}

/// The engine stopped.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub struct Stopped {
    /// The step during which it stopped.
    pub step: String,
    /// Why.
    #[source]
    pub source: Box<apply::Error>,
}

impl Stopped {
    /// Whether another run came and went while its lock was waited for: what was planned before that is out of date, and
    /// nothing was written.
    pub fn is_outdated(&self) -> bool {
        matches!(*self.source, apply::Error::PlanOutdated)
    }
}

/// A run as it goes: the engine, what is told about it, and how far it got.
pub struct Course<'a> {
    /// The engine.
    pub engine: &'a Engine,
    /// Who is told.
    pub progress: &'a Arc<dyn Progress>,
    /// When it has to have ended.
    pub deadline: Instant,
    /// The engine's run, once it holds the lock.
    pub run: Option<Run>,
    /// The run has ended well: what fails after that undoes nothing.
    committed: bool,
    /// What its last write records, once that may be on its way.
    release: Option<Release>,
    step: String,
}

impl<'a> Course<'a> {
    /// A run that has written nothing yet.
    pub const fn new(engine: &'a Engine, progress: &'a Arc<dyn Progress>, deadline: Instant) -> Self {
        Self { engine, progress, deadline, run: None, committed: false, release: None, step: String::new() }
    }

    /// Begins a step.
    pub fn step(&mut self, title: &str) {
        title.clone_into(&mut self.step);
        self.progress.step(title);
    }

    /// Turns an error of the engine into one that names the step under way.
    pub fn stopped(&self) -> impl FnOnce(apply::Error) -> Stopped + use<> {
        let step = self.step.clone();
        move |source| Stopped { step, source: Box::new(source) }
    }

    /// Looks at a cluster with requests that know no deadline, for as long as the run may take.
    ///
    /// # Errors
    /// What the work meets; a time-out of the step under way.
    pub async fn in_time<T, E: From<Stopped>>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        match tokio::time::timeout_at(self.deadline.into(), work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.stopped()(apply::Error::out_of_time()).into()),
        }
    }

    /// Time that is left.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Starts writing a plan, or goes on with it after a part.
    ///
    /// # Errors
    /// What the engine refuses.
    pub async fn begin(&mut self, plan: apply::Plan) -> Result<(), Stopped> {
        let outcome = match &mut self.run {
            Some(run) => run.extend(plan),
            None => self.engine.begin(plan).await.map(|run| self.run = Some(run)),
        };
        outcome.map_err(self.stopped())
    }

    /// Applies stage after stage and waits for the workloads that each starts, with one step for each `title`.
    ///
    /// A workload whose name `silent` knows shares the step of the next one. What runs already is changed
    /// `one_by_one`, each healthy before the next; what is new is healthy sooner when a stage starts together.
    ///
    /// # Errors
    /// What the engine meets.
    pub async fn stages(
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
                self.apply(stage, |_| true).await?;
            }
            for together in workloads.chunks(if one_by_one { 1 } else { workloads.len().max(1) }) {
                self.step_of(&together[0], &title);
                let later = |object: &ObjectRef| workloads.contains(object) && !together.contains(object);
                // What is no workload goes with the first; what has been applied is not sent again.
                self.apply(stage, |object| !later(object)).await?;
                self.replace_broken(together).await?;
                let (targets, options) = self.awaited(together);
                let (engine, mut next) = (self.engine, together[1..].iter());
                let ready = |workload: &ObjectRef| {
                    if !silent(&workload.name) {
                        self.progress.done("Running");
                    }
                    if let Some(next) = next.next() {
                        self.step_of(next, &title);
                    }
                };
                engine.wait_each(&targets, options, ready).await.map_err(self.stopped())?;
            }
        }
        Ok(())
    }

    /// Begins the step of a workload, unless it is under way.
    fn step_of(&mut self, workload: &ObjectRef, title: impl Fn(&str) -> String) {
        let step = title(&workload.name);
        if self.step != step {
            self.step(&step);
        }
    }

    /// Applies the `wanted` objects of one stage; nothing where there is nothing to write.
    ///
    /// # Errors
    /// What the engine meets.
    pub async fn apply(&mut self, stage: u32, wanted: impl Fn(&ObjectRef) -> bool) -> Result<(), Stopped> {
        let stopped = self.stopped();
        match &mut self.run {
            Some(run) => run.apply_part(stage, wanted).await.map_err(stopped),
            None => Ok(()),
        }
    }

    /// Makes way for what a set has become since its pods were made, by this run or one that was cut off, where none of
    /// them works.
    async fn replace_broken(&self, workloads: &[ObjectRef]) -> Result<(), Stopped> {
        let applied = self.run.as_ref().map(Run::applied);
        let was_there = |set: &&ObjectRef| {
            let of_set = applied.and_then(|applied| applied.get(set));
            set.is("apps", "StatefulSet") && of_set.is_some_and(|applied| applied.done != Done::Created)
        };
        for set in workloads.iter().filter(was_there) {
            self.engine.replace_broken_pods(set).await.map_err(self.stopped())?;
        }
        Ok(())
    }

    /// Waits until a workload is as it was applied.
    ///
    /// # Errors
    /// What keeps it from that.
    pub async fn wait_for(&self, workload: &ObjectRef) -> Result<(), Stopped> {
        let (targets, options) = self.awaited(std::slice::from_ref(workload));
        self.engine.wait(&targets, options).await.map_err(self.stopped())
    }

    fn awaited(&self, workloads: &[ObjectRef]) -> (Vec<WaitTarget>, WaitOptions) {
        let target = |workload: &ObjectRef| {
            let applied = self.run.as_ref().and_then(|run| run.applied().get(workload));
            let generation = applied.and_then(|applied| applied.generation);
            let namespace = workload.namespace.as_deref();
            let target = WaitTarget::new(&workload.group, &workload.kind, namespace, &workload.name)?;
            Some(WaitTarget { generation, ..target })
        };
        let options = WaitOptions { timeout: self.left(), in_order: true, ..WaitOptions::default() };
        (workloads.iter().filter_map(target).collect(), options)
    }

    /// Records what was applied and lets go of the lock.
    ///
    /// # Errors
    /// What the engine meets.
    pub async fn commit(&mut self) -> Result<(), Stopped> {
        if let Some(run) = self.run.take() {
            self.release.clone_from(&run.plan().release);
            run.commit().await.map_err(self.stopped())?;
            self.committed = true;
        }
        Ok(())
    }

    /// Whether the run has been recorded as a whole: then there is nothing to undo.
    ///
    /// # Errors
    /// What the server refuses, when it has to be asked: the answer to the last write did not come.
    pub async fn is_recorded(&self) -> Result<bool, apply::Error> {
        if self.committed || self.release.is_none() {
            return Ok(self.committed);
        }
        Ok(self.is_recorded_in(&self.engine.with_deadline(None).state().await?))
    }

    /// The write that closes the journal is the one that records the release.
    fn is_recorded_in(&self, state: &State) -> bool {
        let record = state.record.as_ref().filter(|record| record.phase == Phase::Installed);
        let release = record.map(|record| &record.release);
        state.journal.is_none() && release.is_some() && release == self.release.as_ref()
    }

    /// Tells, once, that the step under way has failed and the run is undone; not where it has changed nothing.
    pub fn undoing(&mut self) {
        if self.engine.has_begun() && self.step != UNDOING {
            UNDOING.clone_into(&mut self.step);
            self.progress.undo(UNDOING);
        }
    }

    /// Ends a run that failed: undoes it if that was asked for, else lets go of the lock.
    ///
    /// Begun without a run means that it was cut off between its first write and its return, or in its last write: the journal
    /// knows. A run that was refused at the door, or left while it waited there, has begun nothing: what stands in the journal
    /// is another's.
    pub async fn wind_up(mut self, rollback: bool) -> Aftermath {
        if !self.engine.has_begun() {
            return Aftermath::NothingWritten;
        }
        if !rollback {
            if let Some(run) = self.run {
                // The lock expires by itself where the server is not there to take it back.
                let _ = run.release().await;
            }
            return Aftermath::Left;
        }
        if self.committed {
            return Aftermath::Recorded;
        }
        let undone = match self.run.take() {
            Some(run) => {
                self.undoing();
                run.rollback().await.map(Some)
            }
            None => self.undo_cut_off().await,
        };
        match undone {
            Ok(None) => Aftermath::Recorded,
            Ok(Some(undone)) => match undone.problems.into_iter().next() {
                None => {
                    self.progress.done("");
                    Aftermath::RolledBack
                }
                Some(problem) => Aftermath::RollbackFailed(Box::new(problem)),
            },
            Err(failed) => Aftermath::RollbackFailed(Box::new(failed)),
        }
    }

    /// Undoes a run that was cut off in its first write or its last; nothing where the last was done all the same.
    async fn undo_cut_off(&mut self) -> Result<Option<RolledBack>, apply::Error> {
        let engine = self.engine.with_deadline(None);
        let mut late = false;
        loop {
            let state = engine.state().await?;
            let recorded = self.is_recorded_in(&state);
            if !recorded {
                self.undoing();
            }
            // Of what is recorded, only the journal's copy on this machine goes.
            match engine.rollback_of(state).await {
                // The write that was cut off has come after that look.
                Err(apply::Error::PlanOutdated) if !late => late = true,
                undone => return undone.map(|undone| Some(undone).filter(|_| !recorded)),
            }
        }
    }
}

/// The kinds that an install waits for.
pub fn is_awaited(kind: &str) -> bool {
    matches!(kind, "StatefulSet" | "Deployment")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::Notify;

    use super::*;

    /// The steps of a run.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Told {
        fn say(&self, what: &str) {
            self.0.lock().unwrap().push(what.to_owned());
        }
    }

    impl Progress for Told {
        fn step(&self, title: &str) {
            self.say(title);
        }
        fn update(&self, _: &str) {}
        fn done(&self, _: &str) {
            self.say("done");
        }
        fn undo(&self, title: &str) {
            self.say("failed");
            self.say(title);
        }
        fn warn(&self, _: &str) {}
    }

    /// A cluster with a namespace and the Secret of a run. The write that closes the journal gets no answer, whether it is
    /// `kept` or not; what waits for it is told.
    #[derive(Default)]
    struct Cluster {
        secret: Mutex<Option<Value>>,
        kept: bool,
        closed: AtomicBool,
        unanswered: Notify,
    }

    impl Cluster {
        fn client(self: &Arc<Self>) -> Client {
            let cluster = Arc::clone(self);
            let serve = move |request: http::Request<Body>| {
                let cluster = Arc::clone(&cluster);
                async move {
                    let (parts, body) = request.into_parts();
                    let brought = body.collect_bytes().await.unwrap();
                    let brought = serde_json::from_slice(&brought).unwrap_or_default();
                    let (code, said) = cluster.answer(&parts.method, parts.uri.path(), brought).await;
                    http::Response::builder().status(code).body(Body::from(said.to_string().into_bytes()))
                }
            };
            Client::new(tower::service_fn(serve), "default")
        }

        async fn answer(&self, method: &http::Method, path: &str, brought: Value) -> (u16, Value) {
            if !path.contains("/secrets") {
                return (200, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}));
            }
            let closes = *method == http::Method::PATCH && brought["data"]["journal"].is_null();
            if closes && !self.closed.swap(true, Ordering::SeqCst) {
                if self.kept {
                    merge(self.secret.lock().unwrap().as_mut().unwrap(), brought);
                }
                self.unanswered.notify_one();
                return std::future::pending().await;
            }
            let mut secret = self.secret.lock().unwrap();
            match method.as_str() {
                "POST" => *secret = Some(brought),
                "PATCH" => merge(secret.as_mut().unwrap(), brought),
                "DELETE" => *secret = None,
                _ => {}
            }
            let Some(secret) = secret.as_mut() else {
                let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
                return if method == http::Method::DELETE { (200, json!({"kind": "Status"})) } else { (404, missing) };
            };
            merge(secret, json!({"metadata": {"uid": "u", "resourceVersion": "1"}}));
            (200, secret.clone())
        }
    }

    /// As RFC 7396 has it.
    fn merge(target: &mut Value, patch: Value) {
        let Value::Object(patch) = patch else {
            *target = patch;
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in patch {
            if value.is_null() {
                target.as_object_mut().map(|map| map.remove(&key));
            } else {
                merge(&mut target[key], value);
            }
        }
    }

    /// What becomes of a run that is to be undone, and was cut off while its last write was on its way; with what was told.
    async fn cut_off_at_the_end(kept: bool) -> (Aftermath, Vec<String>, Option<Value>) {
        let cluster = Arc::new(Cluster { kept, ..Cluster::default() });
        let told = Arc::new(Told::default());
        let progress: Arc<dyn Progress> = told.clone();
        let deadline = Instant::now() + Duration::from_secs(60);
        let owner = Owner::new("control-plane", "demo", "fleet");
        let engine = InstallOptions::default().engine(&cluster.client(), owner, deadline, None, &progress);
        let mut course = Course::new(&engine, &progress, deadline);
        course.step("Checking the control plane");
        let release = Release { version: "v0.7.1".to_owned(), ..Release::default() };
        course.begin(engine.plan(&release, &[]).await.unwrap()).await.unwrap();
        tokio::select! {
            ended = course.commit() => panic!("{ended:?}"),
            () = cluster.unanswered.notified() => {}
        }
        assert_eq!(course.is_recorded().await.unwrap(), kept);
        let aftermath = course.wind_up(true).await;
        let steps = told.0.lock().unwrap().clone();
        let secret = cluster.secret.lock().unwrap().clone();
        (aftermath, steps, secret)
    }

    #[tokio::test]
    async fn a_run_that_was_recorded_before_it_could_be_undone_is_not_called_undone() {
        let (aftermath, steps, secret) = cut_off_at_the_end(true).await;
        assert!(matches!(aftermath, Aftermath::Recorded), "{aftermath:?}");
        assert_eq!(steps, ["Checking the control plane"]);
        assert!(secret.is_some_and(|secret| secret["data"]["record"].is_string()));
    }

    #[tokio::test]
    async fn a_run_whose_record_did_not_arrive_is_undone_in_a_step_of_its_own() {
        let (aftermath, steps, secret) = cut_off_at_the_end(false).await;
        assert!(matches!(aftermath, Aftermath::RolledBack), "{aftermath:?}");
        assert_eq!(steps, ["Checking the control plane", "failed", UNDOING, "done"]);
        assert_eq!(secret, None);
    }

    #[tokio::test]
    async fn a_signal_is_heard_while_a_run_ends_and_does_not_end_that() {
        let (heard, goes_on) = (AtomicBool::new(false), Notify::new());
        let signal = async {
            heard.store(true, Ordering::SeqCst);
            goes_on.notify_one();
        };
        assert_eq!(heeding(async { goes_on.notified().await }.map(|()| "undone"), signal.fuse()).await, "undone");
        assert!(heard.load(Ordering::SeqCst));

        // The one that failed the run has been heard before.
        let mut signal = std::future::ready(()).fuse();
        (&mut signal).await;
        assert_eq!(heeding(tokio::task::yield_now().map(|()| "undone"), signal).await, "undone");
    }
}
