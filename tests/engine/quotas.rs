//! What preflight says of quotas and LimitRanges, held against what a real API server and its controllers let in.
//!
//! A sample is a namespace with quotas and LimitRanges that are drawn near to what the control plane takes there. The command
//! looks at it; then the objects are made, as an install makes them, and the controllers make theirs of them. No node is needed:
//! what a quota refuses is refused before a pod is placed.

// What came of the samples is what the exhaustive run is for.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleetctl::api::kinds::Kind;
use futures::stream::{self, StreamExt as _};
use kube::Client;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::support::{among_others, client, kubeconfig, unique};

/// Samples that are looked at side by side: more would wait for the controllers' own limits of requests.
const TOGETHER: usize = 6;
/// How long the controllers may take to make all that they make, or to say that they may not.
const PATIENCE: Duration = Duration::from_secs(300);

/// The ways of installing that samples are drawn from.
const WAYS: [&[&str]; 5] = [
    &["--version", "v1.2"],
    &["--version", "v1.2", "--preset", "small"],
    &["--version", "v1.2", "--preset", "ha"],
    &["--version", "v1.2", "--set", "pki.source=InCluster"],
    &[
        "--version",
        "v1.2",
        "--set-json",
        r#"etcd.resources={"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"memory":"512Mi"}}"#,
        "--set-json",
        r#"scheduler.resources={"limits":{"cpu":"1","memory":"128Mi"}}"#,
    ],
];

/// Ways of being reached.
const EXPOSURES: [&[&str]; 2] = [
    &["--set", "exposure.type=NodePort", "--set", "exposure.host=192.0.2.1", "--set", "exposure.port=443"],
    &["--set", "exposure.type=LoadBalancer", "--set", "exposure.host=fleet.example", "--set", "exposure.port=443"],
];

/// The class of the claims. It is not the default one, which other tests want to be missing.
const CLASS: [&str; 2] = ["--set", "etcd.storage.storageClass=quotas-std"];

/// What quotas count beside the objects that are in [`objects_counted`].
const AMOUNTS: [&str; 20] = [
    "limits.cpu",
    "limits.memory",
    "pods",
    "count/pods",
    "cpu",
    "requests.cpu",
    "memory",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "persistentvolumeclaims",
    "requests.storage",
    "services",
    "services.nodeports",
    "services.loadbalancers",
    "secrets",
    "configmaps",
    CLASS_STORAGE,
    CLASS_CLAIMS,
    "count/secrets",
];
/// The number of the first ones, limits, which the charts do not state.
const LIMITS: usize = 2;
/// The storage of the class that the samples' claims get.
const CLASS_STORAGE: &str = "quotas-std.storageclass.storage.k8s.io/requests.storage";
/// The number of claims of that class.
const CLASS_CLAIMS: &str = "quotas-std.storageclass.storage.k8s.io/persistentvolumeclaims";
/// Kinds that quotas count by `count/`.
const COUNTED: [&str; 16] = [
    "deployments.apps",
    "statefulsets.apps",
    "replicasets.apps",
    "controllerrevisions.apps",
    "jobs.batch",
    "cronjobs.batch",
    "secrets",
    "configmaps",
    "services",
    "serviceaccounts",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "networkpolicies.networking.k8s.io",
    "poddisruptionbudgets.policy",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
];

/// What a sample came to.
#[derive(Debug)]
struct Sample {
    /// Its number, of which it can be drawn again.
    seed: u64,
    /// What the check said, with its text.
    preflight: (String, String),
    /// Why something was refused, if it was.
    refused: Option<String>,
    /// The quotas and LimitRanges.
    drawn: Vec<Value>,
}

/// A cluster that samples are drawn in.
struct Site {
    client: Client,
    kubeconfig: String,
    home: tempfile::TempDir,
    /// What each way takes of each resource where nothing is limited.
    taken: BTreeMap<(usize, usize), BTreeMap<String, i64>>,
}

impl Site {
    /// The cluster, with what each way of installing takes in it, as its own quotas count it.
    async fn new() -> Arc<Self> {
        let (client, _) = client().await;
        let kubeconfig = kubeconfig().display().to_string();
        let mut site = Self { client, kubeconfig, home: tempfile::tempdir().unwrap(), taken: BTreeMap::new() };
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "quotas-std"},
            "provisioner": "example.com/none"});
        match site.create(None, &class).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => made.unwrap(),
        }
        let ways = (0..WAYS.len()).flat_map(|way| (0..EXPOSURES.len()).map(move |exposure| (way, exposure)));
        let measured: Vec<_> =
            stream::iter(ways).map(|(way, exposure)| site.measure(way, exposure)).buffered(TOGETHER).collect().await;
        site.taken = measured.into_iter().collect();
        Arc::new(site)
    }

    async fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        self.client.request(request.body(bytes).unwrap()).await
    }

    async fn get(&self, path: &str) -> Value {
        self.request("GET", path, &Value::Null).await.unwrap()
    }

    async fn create(&self, namespace: Option<&str>, object: &Value) -> Result<(), kube::Error> {
        let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let plural = match Kind::find_known_kind(version, kind) {
            Some(kind) => kind.plural.to_string(),
            None => format!("{}s", kind.to_lowercase()),
        };
        let plural = plural.replace("classs", "classes");
        let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let inside = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
        self.request("POST", &format!("{root}{inside}/{plural}"), object).await.map(drop)
    }

    /// A namespace that the controllers have furnished.
    async fn namespace(&self, name: &str) -> String {
        let namespace = unique("quotas", name);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        self.create(None, &object).await.unwrap();
        let ends = Instant::now() + PATIENCE;
        for furniture in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/{namespace}/{furniture}");
            while self.request("GET", &path, &Value::Null).await.is_err() {
                assert!(Instant::now() < ends, "{namespace} has no {furniture}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        namespace
    }

    async fn remove(&self, namespace: &str) {
        self.request("DELETE", &format!("/api/v1/namespaces/{namespace}"), &Value::Null).await.unwrap();
    }

    fn fleetctl(&self, namespace: &str, args: &[&str]) -> (Option<i32>, String) {
        let ran = Command::new(env!("CARGO_BIN_EXE_fleetctl"))
            .args(["--kubeconfig", &self.kubeconfig, "-n", namespace])
            .args(args)
            .env("HOME", self.home.path().join(namespace))
            .output()
            .unwrap();
        (ran.status.code(), String::from_utf8(ran.stdout).unwrap())
    }

    /// The objects of a way, as an install makes them: with the record, and with what the Job of the keys makes.
    fn objects(&self, namespace: &str, way: usize, exposure: usize) -> Vec<Value> {
        let template = |args: &[&str]| {
            let install = ["install", "control-plane", "demo", "--dry-run", "-o", "json"];
            let all = [&install, args, EXPOSURES[exposure], &CLASS].concat();
            let (code, out) = self.fleetctl(namespace, &all);
            assert_eq!(code, Some(0), "{all:?}");
            let list: Value = serde_json::from_str(&out).unwrap();
            list["items"].as_array().unwrap().clone()
        };
        let mut objects = template(WAYS[way]);
        if WAYS[way].iter().any(|arg| arg.contains("InCluster")) {
            objects.extend(template(WAYS[0]).into_iter().filter(|object| object["kind"] == "Secret"));
        }
        objects.retain(|object| object["kind"] != "Namespace");
        let record = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleetctl.demo"}});
        objects.insert(0, record);
        objects
    }

    /// Makes the objects, and waits until the controllers have made theirs. Returns the last refusal where they do not come;
    /// the first one where that `ends_it`.
    ///
    /// A refusal need not be the end: a quota counts a pod before it is stored, and one that is there already, as controllers
    /// try to make on a busy machine, is taken out of the count only when all is counted again.
    async fn make(&self, namespace: &str, objects: &[Value], ends_it: bool) -> Option<String> {
        for object in objects {
            match self.create(Some(namespace), object).await {
                Ok(()) => {}
                Err(kube::Error::Api(status)) if status.code == 403 => return Some(status.message.clone()),
                Err(error) => panic!("{}/{}: {error}", object["kind"], object["metadata"]["name"]),
            }
        }
        let ends = Instant::now() + PATIENCE;
        loop {
            let missing = self.missing(namespace, objects).await;
            if missing.is_empty() {
                return None;
            }
            let events = self.get(&format!("/api/v1/namespaces/{namespace}/events")).await;
            let refused = events["items"].as_array().unwrap().iter().find_map(|event| {
                let message = event["message"].as_str().unwrap_or_default();
                let refused = ["forbidden", "is invalid"].iter().any(|word| message.contains(word));
                (event["type"] == "Warning" && refused).then(|| message.to_owned())
            });
            if refused.is_some() && ends_it {
                return refused;
            }
            if Instant::now() > ends {
                return Some(refused.unwrap_or_else(|| format!("missing without a word: {}", missing.join(", "))));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What the controllers have not made yet.
    async fn missing(&self, namespace: &str, objects: &[Value]) -> Vec<String> {
        let count = async |group: &str, plural: &str| {
            let list = self.get(&format!("{group}/namespaces/{namespace}/{plural}")).await;
            i64::try_from(list["items"].as_array().unwrap().len()).unwrap()
        };
        let of = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).collect::<Vec<_>>();
        let replicas = |list: &[&Value]| list.iter().map(|o| o["spec"]["replicas"].as_i64().unwrap_or(1)).sum::<i64>();
        let number = |list: &[&Value]| i64::try_from(list.len()).unwrap();
        let (deployments, sets, jobs, services) = (of("Deployment"), of("StatefulSet"), of("Job"), of("Service"));
        let mut missing = Vec::new();
        for (what, wanted, found) in [
            ("replicasets", number(&deployments), count("/apis/apps/v1", "replicasets").await),
            ("controllerrevisions", number(&sets), count("/apis/apps/v1", "controllerrevisions").await),
            ("claims", replicas(&sets), count("/api/v1", "persistentvolumeclaims").await),
            ("pods", replicas(&deployments) + replicas(&sets) + number(&jobs), count("/api/v1", "pods").await),
            ("endpoints", number(&services), count("/api/v1", "endpoints").await),
            ("endpointslices", number(&services), count("/apis/discovery.k8s.io/v1", "endpointslices").await),
        ] {
            if found < wanted {
                missing.push(format!("{found} of {wanted} {what}"));
            }
        }
        missing
    }

    /// Waits until the quotas are counted, and returns what is used.
    async fn used(&self, namespace: &str) -> BTreeMap<String, String> {
        let ends = Instant::now() + PATIENCE;
        loop {
            let quotas = self.get(&format!("/api/v1/namespaces/{namespace}/resourcequotas")).await;
            let quotas = quotas["items"].as_array().unwrap();
            if quotas.iter().all(|quota| {
                let keys = |map: &Value| map.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
                quota["status"]["hard"] == quota["spec"]["hard"]
                    && keys(&quota["status"]["used"]) == keys(&quota["spec"]["hard"])
            }) {
                let used = quotas.iter().filter_map(|quota| quota["status"]["used"].as_object()).flatten();
                return used.map(|(name, used)| (name.clone(), used.as_str().unwrap().to_owned())).collect();
            }
            assert!(Instant::now() < ends, "the quotas of {namespace} are not counted");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What a way takes where all is counted and nothing limited, in thousandths.
    async fn measure(&self, way: usize, exposure: usize) -> ((usize, usize), BTreeMap<String, i64>) {
        let namespace = self.namespace("all").await;
        let counted = COUNTED.iter().map(|kind| format!("count/{kind}"));
        // A quota on what containers do not state would refuse them.
        let stated = AMOUNTS
            .iter()
            .filter(|name| !name.starts_with("limits.") && !name.ends_with("cpu") && !name.ends_with("memory"));
        let hard: BTreeMap<String, &str> =
            counted.chain(stated.map(ToString::to_string)).map(|name| (name, "1000000000000")).collect();
        let quota =
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all"}, "spec": {"hard": hard}});
        self.create(Some(&namespace), &quota).await.unwrap();
        self.used(&namespace).await;
        let objects = self.objects(&namespace, way, exposure);
        assert_eq!(self.make(&namespace, &objects, false).await, None);
        let used = self.used(&namespace).await;
        self.remove(&namespace).await;
        let amounts = used.into_iter().map(|(name, used)| (name, milli(&used)));
        ((way, exposure), amounts.collect())
    }

    async fn sample(&self, seed: u64) -> Sample {
        let mut rng = StdRng::seed_from_u64(seed);
        let (way, exposure) = (rng.random_range(0..WAYS.len()), rng.random_range(0..EXPOSURES.len()));
        let namespace = self.namespace(&seed.to_string()).await;
        let mut drawn = Vec::new();
        for _ in 0..rng.random_range(0..3) {
            drawn.push(limit_range(&mut rng, drawn.len()));
        }
        for _ in 0..rng.random_range(1..3) {
            drawn.push(quota(&mut rng, drawn.len(), &self.taken[&(way, exposure)]));
        }
        let mut kept = Vec::new();
        for object in drawn {
            match self.create(Some(&namespace), &object).await {
                Ok(()) => kept.push(object),
                // A draw that contradicts itself.
                Err(kube::Error::Api(status)) if status.code == 422 => {}
                Err(error) => panic!("{object}: {error}"),
            }
        }
        self.used(&namespace).await;
        let check = [&["check", "demo", "--pre", "-o", "json"], WAYS[way], EXPOSURES[exposure], &CLASS].concat();
        let (_, out) = self.fleetctl(&namespace, &check);
        let answer: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
        let checks = answer["checks"].as_array().unwrap_or_else(|| panic!("{out}"));
        let judged = checks.iter().find(|check| check["id"] == "quota").unwrap_or_else(|| panic!("{out}"));
        let text = |field: &str| judged[field].as_str().unwrap_or_default().to_owned();
        let objects = self.objects(&namespace, way, exposure);
        let refused = self.make(&namespace, &objects, text("verdict") == "failed").await;
        self.remove(&namespace).await;
        kept.insert(0, json!([WAYS[way], EXPOSURES[exposure]]));
        Sample { seed, preflight: (text("verdict"), judged.to_string()), refused, drawn: kept }
    }
}

fn milli(amount: &str) -> i64 {
    let parsed = fleetctl::api::quantity::parse_quantity(amount).unwrap_or_else(|| panic!("{amount}"));
    i64::try_from(parsed).unwrap()
}

/// Amounts of CPU, memory and storage around those of the components.
const CPU: [&str; 8] = ["10m", "50m", "100m", "250m", "500m", "1", "2", "4"];
const MEMORY: [&str; 8] = ["16Mi", "64Mi", "96Mi", "128Mi", "384Mi", "512Mi", "1Gi", "4Gi"];
const STORAGE: [&str; 5] = ["1Gi", "2Gi", "10Gi", "10737418241", "50Gi"];

fn limit_range(rng: &mut StdRng, number: usize) -> Value {
    let mut item = json!({});
    let kind = *["Container", "Container", "Pod", "PersistentVolumeClaim"].choose(rng).unwrap();
    let resources: &[(&str, &[&str])] =
        if kind == "PersistentVolumeClaim" { &[("storage", &STORAGE)] } else { &[("cpu", &CPU), ("memory", &MEMORY)] };
    let fields: &[&str] =
        if kind == "Container" { &["min", "max", "default", "default", "defaultRequest"] } else { &["min", "max"] };
    for (resource, amounts) in resources {
        for field in fields {
            if rng.random_bool(0.25) {
                item[field][resource] = (*amounts.choose(rng).unwrap()).into();
            }
        }
        if kind != "PersistentVolumeClaim" && rng.random_bool(0.03) {
            item["maxLimitRequestRatio"][resource] = rng.random_range(1..6).to_string().into();
        }
    }
    item["type"] = kind.into();
    json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": format!("range-{number}")}, "spec": {"limits": [item]}})
}

fn quota(rng: &mut StdRng, number: usize, taken: &BTreeMap<String, i64>) -> Value {
    let mut hard = BTreeMap::new();
    let scope = if rng.random_bool(0.25) {
        [json!(["NotTerminating"]), json!(["Terminating"]), json!(["NotBestEffort"]), json!(["BestEffort"])]
            .choose(rng)
            .cloned()
    } else {
        None
    };
    let of_pods = ["pods", "pods", "cpu", "memory", "limits.memory"];
    for _ in 0..rng.random_range(1..4) {
        let name = match &scope {
            Some(scope) if scope[0] == "BestEffort" => "pods".to_owned(),
            Some(_) => (*of_pods.choose(rng).unwrap()).to_owned(),
            // What no container states is refused whatever the amount.
            None if rng.random_bool(0.5) => {
                let of = if rng.random_bool(0.3) { &AMOUNTS[..] } else { &AMOUNTS[LIMITS..] };
                (*of.choose(rng).unwrap()).to_owned()
            }
            None => format!("count/{}", COUNTED.choose(rng).unwrap()),
        };
        let amount = if name.ends_with("cpu") {
            (*["400m", "450m", "500m", "2", "5", "20"].choose(rng).unwrap()).to_owned()
        } else if name.ends_with("memory") {
            (*["300Mi", "672Mi", "2Gi", "4Gi", "20Gi"].choose(rng).unwrap()).to_owned()
        } else {
            let whole = taken.get(&name).copied().unwrap_or_default() / 1000;
            (whole + *[-1, -1, 0, 0, 0, 0, 1, 5].choose(rng).unwrap()).max(0).to_string()
        };
        hard.insert(name, amount);
    }
    let mut spec = json!({"hard": hard});
    if let Some(scope) = scope {
        spec["scopes"] = scope;
    }
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": format!("quota-{number}")}, "spec": spec})
}

/// Draws samples, and holds what preflight said of each against what came of it.
async fn hold(seeds: std::ops::Range<u64>) {
    let _turn = among_others().await;
    let site = Site::new().await;
    let samples: Vec<Sample> = stream::iter(seeds)
        .map(|seed| {
            let site = Arc::clone(&site);
            async move { site.sample(seed).await }
        })
        .buffer_unordered(TOGETHER)
        .collect()
        .await;
    let said = |status: &str| samples.iter().filter(|sample| sample.preflight.0 == status).count();
    let (passed, failed) = (said("passed"), said("failed"));
    let show = |sample: &&Sample| {
        let drawn = json!(sample.drawn);
        format!("{}\n  {}\n  {:?}\n  {drawn}", sample.seed, sample.preflight.1, sample.refused)
    };
    let let_begin: Vec<_> = samples.iter().filter(|s| s.preflight.0 != "failed" && s.refused.is_some()).collect();
    let held_back: Vec<_> = samples.iter().filter(|s| s.preflight.0 == "failed" && s.refused.is_none()).collect();
    println!(
        "{} samples: {passed} pass ({} of them are refused later), {failed} fail ({} of them would have passed)",
        samples.len(),
        let_begin.len(),
        held_back.len()
    );
    let all = |samples: &[&Sample]| samples.iter().map(show).collect::<Vec<_>>().join("\n");
    assert!(passed >= samples.len() / 5 && failed >= samples.len() / 5, "the draws are one-sided");
    assert!(let_begin.is_empty(), "installs were let begin that a quota refuses:\n{}", all(&let_begin));
    assert!(held_back.len() * 20 <= failed, "more than one in twenty was refused for nothing:\n{}", all(&held_back));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_preflight_lets_begin_no_quota_refuses() {
    hold(0..24).await;
}

mod exhaustive {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_preflight_lets_begin_no_quota_refuses() {
        super::hold(0..200).await;
    }
}
