//! What each request of a placement costs the control plane's API server and etcd in CPU:
//! `cargo test --features daemons --test runtime placing::costs -- --ignored --nocapture`, on an idle machine.

// What it is for is to be read.
#![allow(clippy::print_stdout, clippy::cast_precision_loss)]

use std::time::Instant;

use futures::StreamExt as _;
use kube::runtime::watcher;
use tokio::task::JoinSet;

use super::*;

/// Requests of each kind, and of them at once.
const REQUESTS: usize = 300;
const TOGETHER: usize = 8;
/// Those who watch what is written.
const WATCHERS: [usize; 3] = [0, 1, 4];
/// Ticks of a second in /proc, on every architecture of Linux that is built for.
const TICKS: f64 = 100.0;

/// Seconds of CPU that a process has used.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Its name may have spaces; utime and stime are the 14th and 15th field.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS
}

/// A Schedule of 3 KB, as the scheduler writes it.
fn schedule(name: &str) -> Schedule {
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"replicas": 3, "note": "x".repeat(2_500)}});
    serde_json::from_value(json!({
        "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule", "metadata": {"name": name},
        "spec": {"manifest": manifest.to_string(), "hash": "a", "group": "shop-x", "epoch": 0,
            "sourceRef": {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": name, "uid": name}},
    }))
    .unwrap()
}

fn group(name: &str) -> ScheduleGroup {
    serde_json::from_value(json!({
        "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup", "metadata": {"name": name},
        "spec": {"key": format!("object/apps/Deployment/shop/{name}"), "policy": {"name": "shop"}},
    }))
    .unwrap()
}

fn group_status(round: usize) -> Value {
    let rows: Vec<Value> = (0..20)
        .map(|at| json!({"name": format!("cluster-{at}"), "state": "Rejected", "reason": "Insufficient cpu", "detail": "4 requested, 1 free"}))
        .collect();
    json!({"status": {"clusters": rows, "scheduled": true, "epoch": round, "targetClusters": ["cluster-1"],
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "Placed", "message": "on \"cluster-1\"",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

fn report(round: usize) -> Value {
    json!({"status": {"observedHash": "a", "epoch": 0, "available": 3, "served": 3, "appliedGeneration": round,
        "resource": json!({"replicas": 3, "availableReplicas": 3, "observedGeneration": round}).to_string(),
        "conditions": [{"type": "Applied", "status": "True", "reason": "Applied", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

struct Bench {
    stage: Stage,
    client: kube::Client,
    names: Vec<String>,
    namespace: String,
}

impl Bench {
    /// Sends one request for each name, and prints what one took.
    async fn measure<F: Future<Output = kube::Result<()>>>(
        &self,
        what: &str,
        watchers: usize,
        send: impl Fn(String) -> F,
    ) {
        let pids = ["kube-apiserver", "etcd"].map(|component| self.stage.pid(component));
        let (before, began) = (pids.map(cpu_seconds), Instant::now());
        let answers: Vec<kube::Result<()>> =
            futures::stream::iter(self.names.clone()).map(send).buffer_unordered(TOGETHER).collect().await;
        let took = began.elapsed().as_secs_f64();
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        assert_eq!(failed, 0, "{what}: {:?}", answers.iter().find_map(|answer| answer.as_ref().err()));
        let [server, etcd] = [0, 1].map(|at| (cpu_seconds(pids[at]) - before[at]) * 1000.0 / REQUESTS as f64);
        let wall = took * 1000.0 / REQUESTS as f64;
        println!("{what:44} {watchers:>8} {server:>14.2} {etcd:>8.2} {wall:>8.2}");
    }

    async fn run(&self, watchers: usize) {
        let schedules: Api<Schedule> = Api::namespaced(self.client.clone(), &self.namespace);
        let groups: Api<ScheduleGroup> = Api::all(self.client.clone());
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut watches = JoinSet::new();
        for _ in 0..watchers {
            watches.spawn(watcher::watcher(schedules.clone(), watcher::Config::default()).for_each(|_| async {}));
            watches.spawn(watcher::watcher(groups.clone(), watcher::Config::default()).for_each(|_| async {}));
            watches.spawn(watcher::watcher(maps.clone(), watcher::Config::default()).for_each(|_| async {}));
        }
        let create = PostParams::default();
        let patch = PatchParams::default();
        let apply = PatchParams::apply("measured").force();
        self.measure("POST Schedule, 3 KB", watchers, async |name| {
            schedules.create(&create, &schedule(&name)).await.map(drop)
        })
        .await;
        self.measure("merge PATCH Schedule status", watchers, async |name| {
            schedules.patch_status(&name, &patch, &Patch::Merge(report(1))).await.map(drop)
        })
        .await;
        self.measure("apply PATCH Schedule status", watchers, async |name| {
            let mut body = report(2);
            body["apiVersion"] = json!("cluster.fleet-scheduler.io/v1alpha1");
            body["kind"] = json!("Schedule");
            schedules.patch_status(&name, &apply, &Patch::Apply(body)).await.map(drop)
        })
        .await;
        self.measure("POST ScheduleGroup", watchers, async |name| {
            groups.create(&create, &group(&name)).await.map(drop)
        })
        .await;
        let known: BTreeMap<String, ScheduleGroup> = groups
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .map(|one| (one.name_any(), one))
            .collect();
        self.measure("PUT ScheduleGroup, unchanged", watchers, async |name| {
            groups.replace(&name, &create, &known[&name]).await.map(drop)
        })
        .await;
        self.measure("PUT ScheduleGroup status, 20 rows", watchers, async |name| {
            let mut whole = serde_json::to_value(&known[&name]).unwrap();
            whole["status"] = group_status(1)["status"].clone();
            groups.replace_status(&name, &create, &serde_json::from_value(whole).unwrap()).await.map(drop)
        })
        .await;
        self.measure("merge PATCH ScheduleGroup status, 20 rows", watchers, async |name| {
            groups.patch_status(&name, &patch, &Patch::Merge(group_status(2))).await.map(drop)
        })
        .await;
        self.measure("POST ConfigMap", watchers, async |name| {
            let body = json!({"metadata": {"name": name}, "data": {"a": "b"}});
            maps.create(&create, &serde_json::from_value(body).unwrap()).await.map(drop)
        })
        .await;
        self.measure("merge PATCH label of a ConfigMap", watchers, async |name| {
            maps.patch_metadata(&name, &patch, &Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}})))
                .await
                .map(drop)
        })
        .await;
        self.measure("GET ConfigMap", watchers, async |name| maps.get(&name).await.map(drop)).await;
        self.measure("DELETE Schedule", watchers, async |name| {
            schedules.delete(&name, &DeleteParams::default()).await.map(drop)
        })
        .await;
        self.measure("DELETE ScheduleGroup", watchers, async |name| {
            groups.delete(&name, &DeleteParams::default()).await.map(drop)
        })
        .await;
        self.measure("DELETE ConfigMap", watchers, async |name| {
            maps.delete(&name, &DeleteParams::default()).await.map(drop)
        })
        .await;
        watches.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, of two minutes"]
async fn requests_of_a_placement_cost_the_control_plane() {
    let stage = Stage::hub().await;
    // A scheduler that starts brings the definitions.
    drop(ControlPlane::start(&stage, "").await);
    let client = fleetctl::k8s::connect::daemon_client::build_daemon_client(&stage.hub.kubeconfig).await.unwrap();
    let namespace = fresh("costs");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let body = json!({ "metadata": { "name": namespace } });
    namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let names = (0..REQUESTS).map(|at| format!("{namespace}-{at}")).collect();
    let bench = Bench { stage, client, names, namespace: namespace.clone() };
    println!("milliseconds of one of {REQUESTS} requests, {TOGETHER} at a time");
    println!("{:44} {:>8} {:>14} {:>8} {:>8}", "request", "watchers", "API server CPU", "etcd CPU", "clock");
    for watchers in WATCHERS {
        bench.run(watchers).await;
    }
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
}
