//! A cluster, a client that counts and cuts, a small installation to apply, and a dump to compare.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use fleetctl::apply::{Engine, Event, Events, Kind, Options, Owner, Planned, Release, Selection, Server};
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Bytes;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tower::{Layer, Service};

/// What the client does with writes.
#[derive(Clone, Default)]
pub(crate) struct Traffic {
    writes: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
    /// From this many writes on nothing is answered any more: for the cluster, the process is dead.
    dead_after: Arc<Mutex<Option<(usize, bool)>>>,
    /// What happens to the n-th request, counted from 1.
    fault: Arc<Mutex<Option<(usize, Fault)>>>,
    requests: Arc<AtomicUsize>,
    pub(crate) died: Arc<tokio::sync::Notify>,
}

/// A fault on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection breaks before the request arrives.
    Dropped,
    /// The connection breaks after the server did what was asked.
    AnswerLost,
    /// Too many requests, come back in a second.
    TooMany,
    /// An error of the server.
    Internal,
    /// Nobody there.
    Unavailable,
    /// A gateway gave up, though the server did what was asked.
    GatewayTimeout,
    /// Somebody else wrote at the same moment.
    Conflict,
}

impl Traffic {
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Lets this many more writes through, then nothing. With `sent`, the server still does the next one.
    pub(crate) fn die_after(&self, writes: usize, sent: bool) {
        self.writes.store(0, Ordering::SeqCst);
        *self.dead_after.lock().unwrap() = Some((writes, sent));
    }

    pub(crate) fn fail(&self, request: usize, fault: Fault) {
        self.requests.store(0, Ordering::SeqCst);
        *self.fault.lock().unwrap() = Some((request, fault));
    }
}

impl<S> Layer<S> for Traffic {
    type Service = Watched<S>;

    fn layer(&self, inner: S) -> Watched<S> {
        Watched { inner, traffic: self.clone() }
    }
}

#[derive(Clone)]
pub(crate) struct Watched<S> {
    inner: S,
    traffic: Traffic,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer<B> = Response<Either<B, Full<Bytes>>>;

impl<S, B> Service<Request<Body>> for Watched<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Answer<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let traffic = self.traffic.clone();
        let number = traffic.requests.fetch_add(1, Ordering::SeqCst) + 1;
        if request.method() == http::Method::GET {
            traffic.reads.fetch_add(1, Ordering::SeqCst);
        } else {
            traffic.writes.fetch_add(1, Ordering::SeqCst);
        }
        let dead = *traffic.dead_after.lock().unwrap();
        if let Some((_, sent)) = dead.filter(|(limit, _)| traffic.writes() > *limit) {
            let last = sent
                && dead.is_some_and(|(limit, _)| traffic.writes() == limit + 1)
                && request.method() != http::Method::GET;
            if !last {
                traffic.died.notify_one();
                return Box::pin(std::future::pending());
            }
            let answer = self.inner.call(request);
            return Box::pin(async move {
                let _ = answer.await;
                traffic.died.notify_one();
                std::future::pending().await
            });
        }
        let fault = *traffic.fault.lock().unwrap();
        let Some((_, fault)) = fault.filter(|(n, _)| *n == number) else {
            let answer = self.inner.call(request);
            return Box::pin(async move { Ok(answer.await.map_err(Into::into)?.map(Either::Left)) });
        };
        let moved = "Operation cannot be fulfilled: the object has been modified; please apply your changes";
        let reply = match fault {
            Fault::Dropped => Err("connection reset by peer".into()),
            Fault::AnswerLost => Err("connection closed before message completed".into()),
            Fault::TooMany => Ok(refusal(429, "TooManyRequests", "slow down")),
            Fault::Internal => Ok(refusal(500, "InternalError", "etcdserver: leader changed")),
            Fault::Unavailable => Ok(refusal(503, "ServiceUnavailable", "not ready")),
            Fault::GatewayTimeout => Ok(refusal(504, "Timeout", "gateway timeout")),
            Fault::Conflict => Ok(refusal(409, "Conflict", moved)),
        };
        if !matches!(fault, Fault::AnswerLost | Fault::GatewayTimeout) {
            return Box::pin(async move { reply });
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            answer.await.map_err(Into::into)?;
            reply
        })
    }
}

fn refusal<B>(code: u16, reason: &str, message: &str) -> Answer<B> {
    let status = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code});
    let body = Either::Right(Full::from(serde_json::to_vec(&status).unwrap()));
    let mut answer = Response::builder().status(code).header("content-type", "application/json");
    if code == 429 {
        answer = answer.header("retry-after", "1");
    }
    answer.body(body).unwrap()
}

/// The cluster of the bed that the tests run in.
pub(crate) fn kubeconfig() -> std::path::PathBuf {
    let name = std::env::var("FLEET_TEST_CLUSTER").unwrap_or_else(|_| "api-old".to_owned());
    let path = bed::Bed::here().and_then(|bed| bed.kubeconfig(&name));
    path.unwrap_or_else(|error| panic!("`cargo bed up {name}` first: {error:#}"))
}

/// A client that counts, and does to requests what the test asks for.
pub(crate) async fn client() -> (Client, Traffic) {
    let kubeconfig = Kubeconfig::read_from(kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    let traffic = Traffic::default();
    let client = ClientBuilder::try_from(config).unwrap().with_layer(&traffic).build();
    (client, traffic)
}

/// One installation of a test.
pub(crate) struct Case {
    pub(crate) engine: Engine,
    pub(crate) traffic: Traffic,
    pub(crate) namespace: String,
    pub(crate) events: Arc<Mutex<Vec<Event>>>,
    pub(crate) folder: tempfile::TempDir,
}

impl Case {
    /// An installation `name` in a namespace of the same name; the name is made unique.
    pub(crate) async fn new(name: &str) -> Self {
        Self::with(name, |_| {}).await
    }

    pub(crate) async fn with(name: &str, change: impl FnOnce(&mut Options)) -> Self {
        let namespace = format!("e-{name}-{:06x}", rand::random::<u32>() & 0xff_ffff);
        let folder = tempfile::tempdir().unwrap();
        Self::again(&namespace, folder, change).await
    }

    /// The same installation as a new process would see it.
    pub(crate) async fn reborn(self) -> Self {
        Self::again(&self.namespace.clone(), self.folder, |_| {}).await
    }

    pub(crate) async fn again(namespace: &str, folder: tempfile::TempDir, change: impl FnOnce(&mut Options)) -> Self {
        let (client, traffic) = client().await;
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let mut options = Options {
            deadline: Some(Instant::now() + Duration::from_secs(300)),
            journal: Some(folder.path().join("journal")),
            lock_wait: Duration::from_secs(45),
            ..Options::default()
        };
        // No such process: whoever comes after it may take its lock at once.
        options.holder.pid = u32::MAX - (rand::random::<u32>() >> 8);
        change(&mut options);
        let owner = Owner::new("control-plane", namespace, namespace);
        let engine = Engine::new(client, owner, options, Events::new(move |e| sink.lock().unwrap().push(e.event)));
        Self { engine, traffic, namespace: namespace.to_owned(), events, folder }
    }

    pub(crate) fn server(&self) -> Server {
        self.engine.server()
    }

    pub(crate) async fn install(&self, objects: &[Planned]) -> Result<(), fleetctl::apply::Error> {
        let plan = self.engine.plan(&release(), objects).await?;
        if plan.is_noop() {
            return Ok(());
        }
        let mut run = self.engine.begin(plan).await?;
        if let Err(error) = run.apply().await {
            let _ = run.release().await;
            return Err(error);
        }
        run.commit().await.map(|_| ())
    }

    pub(crate) async fn get(&self, group: &str, kind: &str, name: &str) -> Option<Value> {
        let kind = Kind::versions(group, kind).remove(0);
        self.server().get(&kind, Some(&self.namespace), name).await.unwrap()
    }

    /// Removes everything, whatever a test left.
    pub(crate) async fn sweep(&self) {
        let namespaces = Kind::versions("", "Namespace").remove(0);
        if let Ok(Some(live)) = self.server().get(&namespaces, None, &self.namespace).await {
            let object = fleetctl::apply::ObjectRef::of(&live).unwrap();
            let uid = live["metadata"]["uid"].as_str().unwrap().to_owned();
            let _ = self.server().delete(&namespaces, &object, &uid).await;
        }
    }
}

pub(crate) fn release() -> Release {
    Release {
        chart: "test/v1".into(),
        version: "v1.0.0".into(),
        values_digest: "sha256:0".into(),
        ..Release::default()
    }
}

/// An installation with a bit of everything, in three stages.
pub(crate) fn objects(case: &Case) -> Vec<Planned> {
    let name = &case.namespace;
    let pod = |app: &str| {
        json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [
            {"name": "c", "image": "registry.k8s.io/pause:3.9", "env": [{"name": "A", "value": "1"}],
             "ports": [{"name": "p", "containerPort": 80}], "resources": {"requests": {"cpu": "0.1", "memory": "1024Ki"}}}]}})
    };
    vec![
        Planned::new(0, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})),
        Planned::new(1, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}})),
        Planned::kept(
            1,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pki"}, "data": {"key": "aHVudGVyMg=="}}),
        ),
        Planned::new(
            1,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"a": "1", "b": "2"}}),
        ),
        Planned::new(
            1,
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        Planned::new(
            1,
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": name}]}),
        ),
        Planned::new(
            2,
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"selector": {"app": "d"}, "ports": [{"name": "p", "port": 443, "targetPort": "p"}]}}),
        ),
        Planned::new(
            2,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": pod("d")}}),
        ),
        Planned::new(
            2,
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd"},
            "spec": {"replicas": 1, "serviceName": "etcd", "selector": {"matchLabels": {"app": "etcd"}}, "template": pod("etcd"),
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}}]}}),
        ),
        Planned::new(
            2,
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "d"}}}}),
        ),
        Planned::new(
            2,
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 80, "protocol": "TCP"}]}]}}),
        ),
    ]
}

/// Everything in a namespace and everything cluster-scoped that carries its name, without what moves by itself.
pub(crate) async fn dump(case: &Case) -> BTreeMap<String, Value> {
    let server = case.server();
    let mut found = BTreeMap::new();
    for kind in Kind::all() {
        if matches!(
            kind.kind.as_ref(),
            "Event" | "Lease" | "Node" | "Pod" | "ReplicaSet" | "ControllerRevision" | "EndpointSlice" | "Endpoints"
        ) {
            continue;
        }
        let namespace = kind.namespaced.then_some(case.namespace.as_str());
        let Ok(objects) = server.list(&kind, &Selection { namespace, ..Selection::default() }).await else { continue };
        for mut object in objects {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            if !kind.namespaced && !name.contains(&case.namespace) {
                continue;
            }
            strip(&mut object);
            found.insert(format!("{}/{name}", kind.group_kind()), object);
        }
    }
    found
}

fn strip(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in ["resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"] {
            metadata.remove(key);
        }
    }
}
