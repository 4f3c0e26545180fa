//! A cluster, a client that counts and cuts, a small installation to apply, and a dump to compare.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Charts, Engine, Options, Planned, Renderable, Rendering};
use fleetctl::inventory::{Owner, Release};
use fleetctl::k8s::{Event, Events, ObjectRef, Selection, Server};
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tower::{Layer, Service};

/// A search for leftovers sees the whole cluster: a test that leaves some must be alone.
static CLUSTER: RwLock<()> = RwLock::const_new(());

/// The turn of a test that leaves nothing that others would find. It may take several.
pub(crate) async fn among_others() -> RwLockReadGuard<'static, ()> {
    CLUSTER.read().await
}

/// The turn of a test that leaves something that others would find.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, ()> {
    loop {
        // Waiting in the lock's own queue would stop those who hold one turn and take another.
        if let Ok(turn) = CLUSTER.try_write() {
            return turn;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A name that no other test has, of Kubernetes' syntax.
pub(crate) fn unique(prefix: &str, name: &str) -> String {
    format!("{prefix}-{name}-{:06x}", rand::random::<u32>() & 0xff_ffff)
}

/// What the client does with writes.
#[derive(Clone, Default)]
pub(crate) struct Traffic {
    writes: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
    /// From this many writes on nothing is answered any more: for the cluster, the process is dead.
    dead_after: Arc<Mutex<Option<(usize, bool)>>>,
    pub(crate) died: Arc<tokio::sync::Notify>,
    /// Seconds by which the clock that answers tell is ahead of the server's.
    ahead: Arc<AtomicI64>,
}

impl Traffic {
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Has answers tell a clock that is so many seconds ahead, as another API server of the same cluster may.
    pub(crate) fn set_clock(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::SeqCst);
    }

    /// Lets this many more writes through, then nothing. With `sent`, the server still does the next one.
    pub(crate) fn die_after(&self, writes: usize, sent: bool) {
        self.writes.store(0, Ordering::SeqCst);
        *self.dead_after.lock().unwrap() = Some((writes, sent));
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

impl<S, B> Service<Request<Body>> for Watched<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let traffic = self.traffic.clone();
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
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut answer = answer.await.map_err(Into::into)?;
            let ahead = traffic.ahead.load(Ordering::SeqCst);
            if ahead != 0 {
                let time = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(ahead);
                let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time)?;
                answer.headers_mut().insert(http::header::DATE, date.parse()?);
            }
            Ok(answer)
        })
    }
}

/// The cluster of the bed that the tests run in.
pub(crate) fn cluster() -> String {
    std::env::var("FLEET_TEST_CLUSTER").unwrap_or_else(|_| "api-old".to_owned())
}

pub(crate) fn kubeconfig() -> std::path::PathBuf {
    let name = cluster();
    let path = bed::Bed::here().and_then(|bed| bed.kubeconfig(&name));
    path.unwrap_or_else(|error| panic!("`cargo bed up {name}` first: {error:#}"))
}

/// A client that counts, and does to writes what the test asks for.
pub(crate) async fn client() -> (Client, Traffic) {
    client_of(Kubeconfig::read_from(kubeconfig()).unwrap()).await
}

pub(crate) async fn client_of(kubeconfig: Kubeconfig) -> (Client, Traffic) {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    let traffic = Traffic::default();
    let client = ClientBuilder::try_from(config).unwrap().with_layer(&traffic).build();
    (client, traffic)
}

/// The chart of the installations here.
#[derive(Debug)]
struct Chart {
    renderable: Renderable,
    namespace: String,
}

impl Chart {
    fn of(namespace: &str) -> Self {
        let maps = Kind::needed_versions("", "ConfigMap").remove(0);
        let more = ObjectRef::new(&maps, Some(namespace), "new");
        let object = |planned: Planned| {
            let mut object = ObjectRef::of(&planned.object).unwrap();
            let kind = Kind::needed_versions(&object.group, &object.kind).remove(0);
            object.namespace = kind.namespaced.then(|| namespace.to_owned());
            object
        };
        let renderable = objects_in(namespace).into_iter().map(object).chain([more]).collect();
        Self { renderable, namespace: namespace.to_owned() }
    }
}

impl Charts for Chart {
    fn renderable_objects(&self) -> &Renderable {
        &self.renderable
    }

    fn render_recorded<'a>(&'a self, recorded: &'a Release) -> Rendering<'a> {
        let known = recorded.chart == release().chart && recorded.version == release().version;
        Box::pin(async move {
            if known { Ok(objects_in(&self.namespace)) } else { Err("there is no such chart".to_owned()) }
        })
    }
}

/// One installation of a test.
pub(crate) struct Case {
    pub(crate) engine: Engine,
    pub(crate) traffic: Traffic,
    pub(crate) namespace: String,
    pub(crate) events: Arc<Mutex<Vec<Event>>>,
    pub(crate) folder: tempfile::TempDir,
    _turn: Option<RwLockReadGuard<'static, ()>>,
}

impl Case {
    /// An installation `name` in a namespace of the same name; the name is made unique.
    pub(crate) async fn new(name: &str) -> Self {
        Self::with(name, |_| {}).await
    }

    pub(crate) async fn with(name: &str, change: impl FnOnce(&mut Options)) -> Self {
        Self::again(&unique("e", name), tempfile::tempdir().unwrap(), change).await
    }

    /// The same installation as a new process would see it.
    pub(crate) async fn reborn(self) -> Self {
        self.reborn_with(|_| {}).await
    }

    pub(crate) async fn reborn_with(self, change: impl FnOnce(&mut Options)) -> Self {
        Self::again(&self.namespace.clone(), self.folder, change).await
    }

    pub(crate) async fn again(namespace: &str, folder: tempfile::TempDir, change: impl FnOnce(&mut Options)) -> Self {
        let turn = Some(among_others().await);
        Self::by(client().await, turn, namespace, namespace, folder, change)
    }

    /// An installation of the same name in another namespace.
    pub(crate) async fn namesake(&self) -> Self {
        let namespace = format!("{}-too", self.namespace);
        let turn = Some(among_others().await);
        Self::by(client().await, turn, &self.namespace, &namespace, tempfile::tempdir().unwrap(), |_| {})
    }

    /// An installation of a test that holds its turn itself.
    pub(crate) async fn alone(name: &str, _turn: &RwLockWriteGuard<'static, ()>) -> Self {
        let namespace = unique("e", name);
        Self::by(client().await, None, &namespace, &namespace, tempfile::tempdir().unwrap(), |_| {})
    }

    /// An installation through another door, such as a proxy.
    pub(crate) async fn through(kubeconfig: &std::path::Path, name: &str) -> Self {
        Self::by_door(kubeconfig, &unique("e", name), tempfile::tempdir().unwrap()).await
    }

    /// The same installation as a new process would see it through another door.
    pub(crate) async fn reborn_through(self, kubeconfig: &std::path::Path) -> Self {
        Self::by_door(kubeconfig, &self.namespace.clone(), self.folder).await
    }

    async fn by_door(kubeconfig: &std::path::Path, namespace: &str, folder: tempfile::TempDir) -> Self {
        let client = client_of(Kubeconfig::read_from(kubeconfig).unwrap()).await;
        let turn = Some(among_others().await);
        Self::by(client, turn, namespace, namespace, folder, |_| {})
    }

    fn by(
        (client, traffic): (Client, Traffic),
        turn: Option<RwLockReadGuard<'static, ()>>,
        name: &str,
        namespace: &str,
        folder: tempfile::TempDir,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let mut options = Options {
            deadline: Some(Instant::now() + Duration::from_secs(300)),
            journal: Some(folder.path().join("journal")),
            lock_wait: Duration::from_secs(45),
            ..Options::default()
        };
        options.charts = Arc::new(Chart::of(namespace));
        // No such process: whoever comes after it may take its lock at once.
        options.holder.pid = u32::MAX - (rand::random::<u32>() >> 8);
        change(&mut options);
        let owner = Owner::new("control-plane", name, namespace);
        let engine = Engine::new(client, owner, options, Events::new(move |e| sink.lock().unwrap().push(e.event)));
        Self { engine, traffic, namespace: namespace.to_owned(), events, folder, _turn: turn }
    }

    pub(crate) fn server(&self) -> Server {
        self.engine.server()
    }

    pub(crate) async fn install(&self, objects: &[Planned]) -> Result<(), fleetctl::apply::Error> {
        self.install_as(&release(), objects).await
    }

    pub(crate) async fn install_as(
        &self,
        release: &Release,
        objects: &[Planned],
    ) -> Result<(), fleetctl::apply::Error> {
        let plan = self.engine.plan_install(release, objects).await?;
        if plan.is_noop() {
            return Ok(());
        }
        let mut run = self.engine.begin_run(plan).await?;
        if let Err(error) = run.apply_all_stages().await {
            let _ = run.release_run().await;
            return Err(error);
        }
        run.commit_run().await.map(|_| ())
    }

    pub(crate) async fn get(&self, group: &str, kind: &str, name: &str) -> Option<Value> {
        let kind = Kind::needed_versions(group, kind).remove(0);
        self.server().get_object(&kind, Some(&self.namespace), name).await.unwrap()
    }

    /// Removes everything, whatever a test left.
    pub(crate) async fn sweep(&self) {
        let namespaces = Kind::needed_versions("", "Namespace").remove(0);
        if let Ok(Some(live)) = self.server().get_object(&namespaces, None, &self.namespace).await {
            let object = ObjectRef::of(&live).unwrap();
            let uid = live["metadata"]["uid"].as_str().unwrap().to_owned();
            let _ = self.server().delete_object(&namespaces, &object, &uid).await;
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
    objects_in(&case.namespace)
}

fn objects_in(name: &str) -> Vec<Planned> {
    let pod = |app: &str| {
        json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [
            {"name": "c", "image": "registry.k8s.io/pause:3.9", "env": [{"name": "A", "value": "1"}],
             "ports": [{"name": "p", "containerPort": 80}], "resources": {"requests": {"cpu": "0.1", "memory": "1024Ki"}}}]}})
    };
    vec![
        Planned::new(0, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})),
        Planned::new(1, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}})),
        Planned::new_retained(
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

/// Waits until the controllers have put into the namespace what they put into each, unless it is not there or going: it
/// comes a moment after the namespace, and would be a difference between two dumps.
pub(crate) async fn furnished(case: &Case) {
    let namespaces = Kind::needed_versions("", "Namespace").remove(0);
    let furnished = async {
        loop {
            match case.server().get_object(&namespaces, None, &case.namespace).await.unwrap() {
                Some(namespace) if namespace["metadata"]["deletionTimestamp"].is_null() => {}
                _ => return,
            }
            let account = case.get("", "ServiceAccount", "default").await;
            let bundle = case.get("", "ConfigMap", "kube-root-ca.crt").await;
            if account.is_some() && bundle.is_some() && worked_on(case).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), furnished).await.expect("the controllers furnish a namespace");
}

/// Whether the controllers have looked at the workloads: they note a revision on a deployment, and make the claims of a set.
async fn worked_on(case: &Case) -> bool {
    let all = async |kind: &str| {
        let kind = Kind::needed_versions("apps", kind).remove(0);
        let selection = Selection { namespace: Some(&case.namespace), ..Selection::default() };
        let found = case.server().list_objects(&kind, &selection).await.unwrap();
        found.into_iter().filter(|object| object["metadata"]["deletionTimestamp"].is_null()).collect::<Vec<_>>()
    };
    for set in all("StatefulSet").await {
        for template in set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
            let [template, set] = [template, &set].map(|object| object["metadata"]["name"].as_str().unwrap());
            if case.get("", "PersistentVolumeClaim", &format!("{template}-{set}-0")).await.is_none() {
                return false;
            }
        }
    }
    all("Deployment").await.iter().all(|d| d["status"]["observedGeneration"] == d["metadata"]["generation"])
}

/// Everything in a namespace and everything cluster-scoped that carries its name, without what moves by itself.
pub(crate) async fn dump(case: &Case) -> BTreeMap<String, Value> {
    furnished(case).await;
    let server = case.server();
    let mut found = BTreeMap::new();
    for kind in Kind::all_kinds() {
        if matches!(
            kind.kind.as_ref(),
            "Event" | "Lease" | "Node" | "Pod" | "ReplicaSet" | "ControllerRevision" | "EndpointSlice" | "Endpoints"
        ) {
            continue;
        }
        let namespace = kind.namespaced.then_some(case.namespace.as_str());
        // A kind that the server does not serve has no objects; any other refusal would hide some.
        let objects = server.list_objects(&kind, &Selection { namespace, ..Selection::default() }).await;
        let objects = objects.unwrap_or_else(|error| panic!("{}: {error}", kind.plural));
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
