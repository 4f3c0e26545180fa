//! Failure handling: whether the run was recorded nevertheless, what is undone, and what is left.

use std::pin::pin;

use futures::future::FusedFuture;

use super::session::Session;
use crate::apply::{self, RolledBack};
use crate::inventory::{self, Phase, State};

/// The step that undoes a run.
const UNDOING: &str = "Undoing the changes of this run";

/// Outcome of the changes of a failed run.
#[derive(Debug)]
pub enum FailureOutcome {
    /// Nothing had been written.
    NothingWritten,
    /// Everything that was written stays; another install resumes it.
    Left,
    /// It was to be undone, and had been recorded as a whole by that time.
    Recorded,
    /// It was to be undone and stays nevertheless, for the reason given.
    NotUndone(String),
    /// Everything was undone.
    RolledBack,
    /// Undoing failed as well.
    RollbackFailed(Box<apply::Error>),
}

/// A failed install: its error, and the outcome of its changes.
#[derive(Debug)]
pub struct Failure<E> {
    /// The first error, which is the one to fix.
    pub error: E,
    /// Outcome of the changes.
    pub aftermath: FailureOutcome,
}

/// Runs the failure handling to its end and ignores the first signal; the signal handler reports that, and a second
/// signal ends the program.
pub async fn ignoring_signals<T>(ending: impl Future<Output = T>, interrupted: impl FusedFuture<Output = ()>) -> T {
    let mut ending = pin!(ending);
    tokio::select! {
        ended = &mut ending => ended,
        () = interrupted => ending.await,
    }
}

impl Session<'_> {
    /// Returns whether the run has been recorded as a whole: then there is nothing to undo.
    ///
    /// # Errors
    /// Refusals of the server, when it must be asked: the answer to the last write did not come.
    pub async fn is_recorded(&self) -> Result<bool, apply::Error> {
        if self.committed || self.release.is_none() {
            return Ok(self.committed);
        }
        Ok(self.is_recorded_in(&self.engine.with_deadline(None).read_state().await?))
    }

    /// Returns whether the run is recorded in a state: the write that closes the journal is the one that records the
    /// release.
    fn is_recorded_in(&self, state: &State) -> bool {
        let record = state.record.as_ref().filter(|record| record.phase == Phase::Installed);
        let release = record.map(|record| &record.release);
        state.journal.is_none() && release.is_some() && release == self.release.as_ref()
    }

    /// Tells, once, that the step in progress has failed and the run is undone; not where it has changed nothing.
    pub fn report_undo_begin(&mut self) {
        if self.engine.has_begun() && self.step != UNDOING {
            UNDOING.clone_into(&mut self.step);
            self.progress.begin_undo(UNDOING);
        }
    }

    /// Ends a failed run: undoes it if requested, else releases the lock.
    ///
    /// Where the engine has begun and there is no run, it was interrupted between its first write and its return, or in
    /// its last write: the journal knows which. A run that was refused before its first write, or left while it waited
    /// for the lock, has begun nothing: what stands in the journal is another's.
    pub async fn abort_run(mut self, rollback: bool) -> FailureOutcome {
        if !self.engine.has_begun() {
            return FailureOutcome::NothingWritten;
        }
        if !rollback {
            // The lock ends by itself where the server is not there to take it back.
            match self.run {
                Some(run) => drop(run.release_run().await),
                // It was interrupted in the write that takes the lock, or in its last one.
                None => drop(self.engine.release_lock().await),
            }
            return FailureOutcome::Left;
        }
        if self.committed {
            return FailureOutcome::Recorded;
        }
        let undone = match self.run.take() {
            Some(run) => {
                self.report_undo_begin();
                run.rollback_run().await.map(Some)
            }
            None => self.undo_interrupted().await,
        };
        match undone {
            Ok(None) => FailureOutcome::Recorded,
            Ok(Some(undone)) => match undone.problems.into_iter().next() {
                None => {
                    self.progress.finish_step("");
                    FailureOutcome::RolledBack
                }
                Some(problem) => FailureOutcome::RollbackFailed(Box::new(problem)),
            },
            Err(failed) => FailureOutcome::RollbackFailed(Box::new(failed)),
        }
    }

    /// Undoes a run that was interrupted in its first write or its last; nothing where the last was done nevertheless.
    /// Where nothing is known there, the first has not arrived: what the journal's copy on this machine tells of is an
    /// earlier run.
    async fn undo_interrupted(&mut self) -> Result<Option<RolledBack>, apply::Error> {
        let engine = self.engine.with_deadline(None);
        let mut late = false;
        loop {
            let state = engine.read_state().await?;
            let recorded = self.is_recorded_in(&state);
            if !recorded {
                self.report_undo_begin();
            }
            // Of what is recorded, only the journal's copy on this machine goes.
            match engine.rollback_of(state, None).await {
                // The write that was interrupted has come after that look.
                Err(apply::Error::Inventory(inventory::Error::PlanOutdated)) if !late => late = true,
                undone => return undone.map(|undone| Some(undone).filter(|_| !recorded)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use futures::FutureExt as _;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::Notify;

    use super::*;
    use crate::install::progress::Progress;
    use crate::install::session::InstallOptions;
    use crate::inventory::Owner;
    use crate::inventory::Release;

    /// The steps of a run.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Told {
        fn say(&self, what: &str) {
            self.0.lock().unwrap().push(what.to_owned());
        }
    }

    impl Progress for Told {
        fn begin_step(&self, title: &str) {
            self.say(title);
        }
        fn update_step(&self, _: &str) {}
        fn finish_step(&self, _: &str) {
            self.say("done");
        }
        fn begin_undo(&self, title: &str) {
            self.say("failed");
            self.say(title);
        }
        fn report_warning(&self, _: &str) {}
        fn report_advice(&self, _: &crate::api::remedy::Remedy) {}
    }

    /// A cluster with a namespace and the Secret of a run. The write that closes the journal gets no answer, whether it is
    /// `kept` or not; what waits for it is told. One that is `closed_off` lets nobody begin, and has an installation of
    /// which nothing is recorded.
    #[derive(Default)]
    struct Cluster {
        secret: Mutex<Option<Value>>,
        kept: bool,
        closed_off: bool,
        closed: AtomicBool,
        writes: Mutex<Vec<String>>,
        unanswered: Notify,
    }

    impl Cluster {
        fn client(self: &Arc<Self>) -> Client {
            let cluster = Arc::clone(self);
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let cluster = Arc::clone(&cluster);
                async move {
                    let (parts, body) = request.into_parts();
                    let brought = body.collect_bytes().await.unwrap();
                    let brought = serde_json::from_slice(&brought).unwrap_or_default();
                    let (code, said) = cluster.answer(&parts.method, parts.uri.path(), brought).await;
                    http::Response::builder().status(code).body(Body::from(said.to_string().into_bytes()))
                }
            });
            Client::new(service, "default")
        }

        async fn answer(&self, method: &http::Method, path: &str, brought: Value) -> (u16, Value) {
            if method != http::Method::GET {
                self.writes.lock().unwrap().push(format!("{method} {path}"));
            }
            if !path.contains("/secrets") {
                let mut found = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}});
                if self.closed_off {
                    owner().set_owner_labels(&mut found);
                    found["metadata"]["annotations"] = json!({"fleet-scheduler.io/namespace-created-by": "u"});
                }
                if self.closed_off && path.ends_with("/configmaps") {
                    let mut made = json!({"metadata": {"name": "config", "namespace": "fleet"}});
                    owner().set_owner_labels(&mut made);
                    made["metadata"]["managedFields"] =
                        json!([{"manager": "fleetctl", "operation": "Apply", "fieldsV1": {}}]);
                    found = json!({"metadata": {}, "items": [made]});
                }
                return (200, found);
            }
            if self.closed_off && method == http::Method::POST {
                return (403, json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}));
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

    fn owner() -> Owner {
        Owner::new("control-plane", "demo", "fleet")
    }

    fn charts() -> Arc<dyn apply::Charts> {
        apply::Options::default().charts
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

    /// Outcome of a run that is to be undone, and was interrupted while its last write was on its way; with what was told.
    async fn interrupted_at_the_end(kept: bool) -> (FailureOutcome, Vec<String>, Option<Value>) {
        let cluster = Arc::new(Cluster { kept, ..Cluster::default() });
        let told = Arc::new(Told::default());
        let progress: Arc<dyn Progress> = told.clone();
        let deadline = Instant::now() + Duration::from_secs(60);
        let engine =
            InstallOptions::default().build_run_engine(&cluster.client(), owner(), charts(), deadline, None, &progress);
        let mut session = Session::new(&engine, &progress, deadline);
        session.begin_session_step("Checking the control plane");
        let release = Release { version: "v0.7.1".to_owned(), ..Release::default() };
        session.begin_plan(engine.plan_install(&release, &[]).await.unwrap()).await.unwrap();
        tokio::select! {
            ended = session.commit_install() => panic!("{ended:?}"),
            () = cluster.unanswered.notified() => {}
        }
        assert_eq!(session.is_recorded().await.unwrap(), kept);
        let aftermath = session.abort_run(true).await;
        let steps = told.0.lock().unwrap().clone();
        let secret = cluster.secret.lock().unwrap().clone();
        (aftermath, steps, secret)
    }

    #[tokio::test]
    async fn a_run_that_was_recorded_before_it_could_be_undone_is_not_called_undone() {
        let (aftermath, steps, secret) = interrupted_at_the_end(true).await;
        assert!(matches!(aftermath, FailureOutcome::Recorded), "{aftermath:?}");
        assert_eq!(steps, ["Checking the control plane"]);
        assert!(secret.is_some_and(|secret| secret["data"]["record"].is_string()));
    }

    #[tokio::test]
    async fn a_run_whose_record_did_not_arrive_is_undone_in_a_step_of_its_own() {
        let (aftermath, steps, secret) = interrupted_at_the_end(false).await;
        assert!(matches!(aftermath, FailureOutcome::RolledBack), "{aftermath:?}");
        assert_eq!(steps, ["Checking the control plane", "failed", UNDOING, "done"]);
        assert_eq!(secret, None);
    }

    #[tokio::test]
    async fn a_run_that_was_kept_from_its_first_write_undoes_nothing_of_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal");
        let head = json!({"run": "r", "command": "install", "started": "", "installUid": "u"});
        let step =
            json!({"kind": "ConfigMap", "namespace": "fleet", "name": "config", "apiVersion": "v1", "undo": "delete"});
        let earlier = format!("{head}\n{step}\n");
        std::fs::write(&journal, &earlier).unwrap();
        let cluster = Arc::new(Cluster { closed_off: true, ..Cluster::default() });
        let progress: Arc<dyn Progress> = Arc::new(Told::default());
        let deadline = Instant::now() + Duration::from_secs(60);
        let path = Some(journal.clone());
        let engine =
            InstallOptions::default().build_run_engine(&cluster.client(), owner(), charts(), deadline, path, &progress);
        let mut session = Session::new(&engine, &progress, deadline);
        let release = Release { version: "v0.7.1".to_owned(), ..Release::default() };
        session.begin_plan(engine.plan_install(&release, &[]).await.unwrap()).await.unwrap_err();
        assert!(engine.has_begun());
        let aftermath = session.abort_run(true).await;
        assert!(matches!(aftermath, FailureOutcome::RolledBack), "{aftermath:?}");
        assert_eq!(*cluster.writes.lock().unwrap(), ["POST /api/v1/namespaces/fleet/secrets"]);
        assert!(std::fs::read_to_string(&journal).unwrap().starts_with(&earlier), "it tells of the earlier run still");
    }

    #[tokio::test]
    async fn a_signal_is_heard_while_a_run_ends_and_does_not_end_that() {
        let (heard, goes_on) = (AtomicBool::new(false), Notify::new());
        let signal = async {
            heard.store(true, Ordering::SeqCst);
            goes_on.notify_one();
        };
        assert_eq!(
            ignoring_signals(async { goes_on.notified().await }.map(|()| "undone"), signal.fuse()).await,
            "undone"
        );
        assert!(heard.load(Ordering::SeqCst));

        // The one that failed the run has been heard before.
        let mut signal = std::future::ready(()).fuse();
        (&mut signal).await;
        assert_eq!(ignoring_signals(tokio::task::yield_now().map(|()| "undone"), signal).await, "undone");
    }
}
