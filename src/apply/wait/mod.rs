//! Waiting until objects are current: one watch a kind and namespace, and polls for causes beside it.

pub(super) mod target;
mod wait_loop;

use std::time::Duration;

use serde_json::Value;

use super::engine::Engine;
use super::error::Error;
use super::run::Run;
use crate::api::kinds::Kind;
use crate::diagnose::collect;
use crate::diagnose::diagnosis::Diagnosis;
use crate::diagnose::kstatus::{Status, evaluate_status, has_rule};
use crate::diagnose::workload::diagnose_object;
use crate::k8s::object::ObjectRef;
use crate::k8s::request::api_error::ApiError;
use crate::k8s::watch::Update;
use wait_loop::WaitLoop;

/// An object to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitTarget {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub object: ObjectRef,
    /// The generation that its controller must have seen.
    pub generation: Option<i64>,
}

impl WaitTarget {
    /// An object of a kind in the compiled table, whatever its generation; none for other kinds.
    pub fn new(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Option<Self> {
        let kind = Kind::needed_versions(group, kind).into_iter().next()?;
        let object = ObjectRef::new(&kind, namespace, name);
        Some(Self { kind, object, generation: None })
    }
}

/// Limits and rules of a wait.
#[derive(Debug, Clone, Copy)]
pub struct WaitOptions {
    /// The time limit; the engine's deadline ends a wait too.
    pub timeout: Duration,
    /// Lets a lasting cause end the wait early.
    pub fail_early: bool,
    /// Declares that each target needs those before it. Then a target that was current once counts as current, and only
    /// a cause at the first missing target can end the wait early: those after it may crash because it is missing.
    pub in_order: bool,
}

impl Default for WaitOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(300), fail_early: true, in_order: false }
    }
}

impl Run {
    /// The applied objects that become current only after they are stored, in the order of stages, for
    /// [`Engine::wait_for_targets`]; the caller picks from them.
    pub fn wait_targets(&self) -> Vec<WaitTarget> {
        self.plan()
            .steps
            .iter()
            .filter(|step| has_rule(&step.target.group, &step.target.kind))
            .map(|step| WaitTarget {
                kind: step.kind.clone(),
                object: step.target.clone(),
                generation: self.applied_objects().get(&step.target).and_then(|applied| applied.generation),
            })
            .collect()
    }
}

impl super::plan::Plan {
    /// The objects of the plan that become current only after they are stored, for a wait when there was nothing to
    /// apply.
    pub fn planned_wait_targets(&self) -> Vec<WaitTarget> {
        self.steps
            .iter()
            .filter(|step| has_rule(&step.target.group, &step.target.kind))
            .map(|step| WaitTarget { kind: step.kind.clone(), object: step.target.clone(), generation: None })
            .collect()
    }
}

impl Engine {
    /// Waits until all targets are current.
    ///
    /// # Errors
    /// [`Error::Wait`] when time runs out or a lasting cause has used up its grace, with the chain of causes;
    /// [`Error::Request`] when the objects may not be read.
    pub async fn wait_for_targets(&self, targets: &[WaitTarget], options: WaitOptions) -> Result<(), Error> {
        self.wait_each(targets, options, |_| {}).await
    }

    /// As [`Engine::wait_for_targets`]; calls `current` with each target, in the order of `targets`, once it and all before it are
    /// current.
    ///
    /// # Errors
    /// As [`Engine::wait_for_targets`].
    pub async fn wait_each(
        &self,
        targets: &[WaitTarget],
        options: WaitOptions,
        current: impl FnMut(&ObjectRef),
    ) -> Result<(), Error> {
        if targets.is_empty() {
            return Ok(());
        }
        WaitLoop::new(self, targets, options, current).wait_until_current().await
    }

    /// Diagnoses once the objects that are not current: a chain for each that is not, in the order of
    /// `targets`. Objects that are ready, that may not be read, or whose trouble has no known cause have none.
    pub async fn diagnose_targets(&self, targets: &[WaitTarget]) -> Vec<Diagnosis> {
        let server = self.server();
        let read = targets.iter().map(|target| {
            let object = &target.object;
            server.get_object(&target.kind, object.namespace.as_deref(), &object.name)
        });
        let live = futures::future::join_all(read).await.into_iter().filter_map(|read| read.ok().flatten());
        let waiting: Vec<(Value, Status)> = live
            .map(|live| {
                let status = evaluate_status(&live, None);
                (live, status)
            })
            .filter(|(_, status)| !status.is_done())
            .collect();
        let references: Vec<ObjectRef> = waiting.iter().filter_map(|(live, _)| ObjectRef::of(live)).collect();
        if references.is_empty() {
            return Vec::new();
        }
        let evidence = collect::collect_evidence(&server, &self.owner.owner_selector(), references.iter()).await;
        waiting.iter().filter_map(|(live, status)| diagnose_object(live, status, &evidence)).collect()
    }
}

impl From<ApiError> for Update {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::Notify;

    use super::*;
    use crate::apply::engine::Options;
    use crate::diagnose::diagnosis::CauseId;
    use crate::inventory::owner::Owner;
    use crate::k8s::run_event::{Event, Events};

    /// Far below the sum of the limits of the requests of one poll.
    const SOON: Duration = Duration::from_secs(15);

    /// A StatefulSet whose pod crashes, in a cluster that never answers one kind of request; the StatefulSet becomes
    /// ready as soon as that request arrives.
    struct Cluster {
        unanswered: &'static str,
        asked: Mutex<Vec<String>>,
        ready: Notify,
        events: Arc<Mutex<Vec<Event>>>,
    }

    impl Cluster {
        fn new(unanswered: &'static str) -> Arc<Self> {
            Arc::new(Self { unanswered, asked: Mutex::default(), ready: Notify::new(), events: Arc::default() })
        }

        fn engine(self: &Arc<Self>) -> Engine {
            let cluster = Arc::clone(self);
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let cluster = Arc::clone(&cluster);
                async move {
                    let body = cluster.answer(request.uri()).await.to_string() + "\n";
                    Ok::<_, Infallible>(http::Response::new(Body::from(body.into_bytes())))
                }
            });
            let client = Client::new(service, "default");
            let reported = Arc::clone(&self.events);
            let events = Events::new(move |numbered| reported.lock().unwrap().push(numbered.event));
            Engine::new(client, Owner::new("control-plane", "demo", "fleet"), Options::default(), events)
        }

        async fn answer(&self, uri: &http::Uri) -> Value {
            let (path, query) = (uri.path(), uri.query().unwrap_or_default());
            self.asked.lock().unwrap().push(uri.to_string());
            if path.ends_with(self.unanswered) {
                self.ready.notify_one();
                std::future::pending::<()>().await;
            }
            if path.ends_with("/statefulsets/etcd") {
                return stateful_set(0);
            }
            if query.contains("watch=true") {
                self.ready.notified().await;
                return json!({"type": "MODIFIED", "object": stateful_set(1)});
            }
            let items = match path.rsplit('/').next() {
                Some("statefulsets") => vec![stateful_set(0)],
                Some("pods") => vec![crashing()],
                _ => Vec::new(),
            };
            json!({"metadata": {"resourceVersion": "1"}, "items": items})
        }
    }

    fn stateful_set(ready: i64) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd", "namespace": "fleet",
            "uid": "s", "generation": 1, "resourceVersion": "2"}, "spec": {"replicas": 1},
            "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready,
                "availableReplicas": ready}})
    }

    fn crashing() -> Value {
        json!({"metadata": {"name": "etcd-0", "namespace": "fleet", "uid": "p", "ownerReferences": [{"uid": "s"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": false, "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}]}})
    }

    fn target() -> [WaitTarget; 1] {
        [WaitTarget::new("apps", "StatefulSet", Some("fleet"), "etcd").unwrap()]
    }

    #[tokio::test]
    async fn wait_ends_while_a_poll_hangs() {
        for unanswered in ["/log", "/events", "/pods"] {
            let engine = Cluster::new(unanswered).engine();
            let waited = tokio::time::timeout(SOON, engine.wait_for_targets(&target(), WaitOptions::default())).await;
            waited.unwrap_or_else(|_| panic!("{unanswered} keeps it")).unwrap();
        }
        let cluster = Cluster::new("/events");
        let never = [WaitTarget::new("apps", "StatefulSet", Some("fleet"), "other").unwrap()];
        let options = WaitOptions { timeout: Duration::from_secs(1), ..WaitOptions::default() };
        let waited = tokio::time::timeout(SOON, cluster.engine().wait_for_targets(&never, options)).await;
        assert!(waited.expect("it ends").unwrap_err().is_timeout());
    }

    #[tokio::test]
    async fn unreadable_logs_are_left_out() {
        let cluster = Cluster::new("/log");
        let engine = cluster.engine();
        let found = tokio::time::timeout(SOON, engine.diagnose_targets(&target())).await.expect("a diagnosis");
        let causes: Vec<_> = found.iter().map(|found| (found.cause, found.logs.len())).collect();
        assert_eq!(causes, [(CauseId::CrashLoop, 0)]);
        let asked = cluster.asked.lock().unwrap().clone();
        let logs = asked.iter().filter(|path| path.contains("/log?"));
        assert_eq!(logs.count(), 2, "one for each of two runs: {asked:?}");
        assert_eq!(*cluster.events.lock().unwrap(), []);
    }
}
