//! Placements measured from end to end: `cargo bed bench place` makes a table of what is printed.

// What it is for is to be read.
#![allow(clippy::print_stdout, clippy::cast_precision_loss)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fleetctl::api::labels::LABEL_PLACED_BY;
use fleetctl::k8s::connect::daemon_client;
use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event as Watched};
use tokio::task::JoinSet;

use super::*;

/// Objects that are there at once, and objects that come one by one.
const COLD: usize = 400;
const STEADY: usize = 400;
/// Time between two of the latter.
const EVERY: Duration = Duration::from_millis(50);

/// When something was first seen, by name.
pub(super) type Seen = Arc<Mutex<BTreeMap<String, Instant>>>;

/// Records when `name_of` an object first has a name.
pub(super) fn record<K>(
    watches: &mut JoinSet<()>,
    api: Api<K>,
    config: watcher::Config,
    name_of: fn(&K) -> Option<String>,
) -> Seen
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let seen: Seen = Arc::default();
    let into = seen.clone();
    watches.spawn(async move {
        let mut events = std::pin::pin!(watcher::watcher(api, config));
        while let Some(event) = events.next().await {
            if let Ok(Watched::Apply(object) | Watched::InitApply(object)) = event
                && let Some(name) = name_of(&object)
            {
                into.lock().unwrap().entry(name).or_insert_with(Instant::now);
            }
        }
    });
    seen
}

pub(super) async fn until(seen: &Seen, count: usize) {
    let began = Instant::now();
    while seen.lock().unwrap().len() < count {
        assert!(began.elapsed() < Duration::from_secs(120), "{} of {count}", seen.lock().unwrap().len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Milliseconds within which half, and 99 of 100, are seen.
pub(super) fn quantiles(created: &BTreeMap<String, Instant>, seen: &Seen) -> Value {
    let seen = seen.lock().unwrap();
    let mut all: Vec<f64> = created
        .iter()
        .map(|(name, began)| seen[name].saturating_duration_since(*began).as_secs_f64() * 1000.0)
        .collect();
    all.sort_by(f64::total_cmp);
    json!({"p50": all[all.len() / 2], "p99": all[(all.len() * 99 / 100).min(all.len() - 1)]})
}

/// Writes of the scheduler so far, by what is written.
fn writes(metrics: &str) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for line in metrics.lines().filter_map(|line| line.strip_prefix("fleet_placement_writes_total{")) {
        let kind = line.split("kind=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let count: f64 = line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default();
        *found.entry(kind.to_owned()).or_default() += count;
    }
    found
}

/// The time within which a share of a histogram's durations lie, in milliseconds: the bound of their bucket.
pub(super) fn bound(metrics: &str, name: &str, share: f64) -> f64 {
    let buckets: Vec<(f64, f64)> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix("_bucket{le=\"")?.split_once("\"} "))
        .map(|(bound, count)| (bound.parse().unwrap_or(f64::INFINITY), count.parse().unwrap_or_default()))
        .collect();
    let all = buckets.last().map_or(0.0, |(_, count)| *count);
    buckets.iter().find(|(_, count)| *count >= all * share).map_or(0.0, |(bound, _)| bound * 1000.0)
}

fn peak(pid: u32) -> u64 {
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0").trim().trim_end_matches(" kB");
    peak.parse::<u64>().unwrap_or_default() / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, of a minute"]
async fn placements_are_timed_from_the_object_to_its_copy() {
    let mut scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    // The clients of the other tests are slowed down by none of this.
    let client = async |kubeconfig: &Path| daemon_client::build_daemon_client(kubeconfig).await.unwrap();
    let (hub, member) = (client(&scene.stage.hub.kubeconfig).await, client(&scene.member.kubeconfig).await);
    let (place, policy) = (fresh("measured"), fresh("policy"));
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    let body = json!({"metadata": {"name": place, "labels": {"team": place}}});
    namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let body = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
        "metadata": {"name": policy}, "spec": {"namespaceSelector": {"matchLabels": {"team": place}},
            "clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.name}},
            // What is placed alone waits until its namespace is quiet.
            "spreadConstraints": {"spreadMode": "Duplicate", "topologyKey": "kubernetes.io/metadata.name"},
            "resourceSelectors": {"labelSelectors": [{"matchLabels": {"placed": "yes"}}], "kinds": [{"group": "", "kind": "ConfigMap"}]}}});
    let policies: Api<SchedulePolicy> = Api::all(hub.clone());
    let sources: Api<ConfigMap> = Api::namespaced(hub.clone(), &place);
    let create = async |name: String| {
        let body = json!({"metadata": {"name": name, "labels": {"placed": "yes"}}, "data": {"of": name}});
        let began = Instant::now();
        sources.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        (name, began)
    };

    let mut watches = JoinSet::new();
    let any = watcher::Config::default().any_semantic();
    let schedules: Api<Schedule> = Api::namespaced(hub.clone(), &cluster_namespace(&scene.name));
    let scheduled = record(&mut watches, schedules, any.clone(), |one| {
        (one.spec.source_ref.kind == "ConfigMap").then(|| one.spec.source_ref.name.clone())
    });
    let there: Api<ConfigMap> = Api::namespaced(member, &place);
    let copied = record(&mut watches, there, any.clone().labels(LABEL_PLACED_BY), |one| one.metadata.name.clone());
    let labelled = record(&mut watches, sources.clone(), any.clone(), |one| {
        one.labels().contains_key(LABEL_TARGET_CLUSTER).then(|| one.name_any())
    });

    // All are there before a policy is.
    let names: BTreeSet<String> = (0..COLD).map(|number| format!("cold-{number}")).collect();
    let created = futures::stream::iter(names).map(&create).buffer_unordered(16).count().await;
    assert_eq!(created, COLD);
    let (before, began) = (scene.control_plane.scheduler.ask("/metrics").await.1, Instant::now());
    policies.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    until(&labelled, COLD).await;
    let recorded = began.elapsed().as_secs_f64();
    until(&copied, COLD).await;
    let applied = began.elapsed().as_secs_f64();

    let (mut created, mut tasks) = (BTreeMap::new(), JoinSet::new());
    let mut clock = tokio::time::interval(EVERY);
    let began = Instant::now();
    for number in 0..STEADY {
        clock.tick().await;
        let (sources, name) = (sources.clone(), format!("steady-{number}"));
        tasks.spawn(async move {
            let body = json!({"metadata": {"name": name, "labels": {"placed": "yes"}}, "data": {"of": name}});
            let began = Instant::now();
            sources.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
            (name, began)
        });
    }
    while let Some(one) = tasks.join_next().await {
        let (name, began) = one.unwrap();
        created.insert(name, began);
    }
    let rate = STEADY as f64 / began.elapsed().as_secs_f64();
    for seen in [&scheduled, &copied, &labelled] {
        until(seen, COLD + STEADY).await;
    }
    // What is said of the copies is written too.
    let groups: Api<ScheduleGroup> = Api::all(hub.clone());
    wait("all groups are available", async || {
        let all = groups.list(&ListParams::default()).await.unwrap().items;
        let mine = all.iter().filter(|group| group.spec.policy.name == policy);
        let is_available = |group: &&ScheduleGroup| {
            group
                .status
                .as_ref()
                .is_some_and(|status| find_condition(&status.conditions, "Available").is_some_and(Condition::is_true))
        };
        mine.filter(is_available).count() == COLD + STEADY
    })
    .await;
    let after = scene.control_plane.scheduler.ask("/metrics").await.1;
    let (old, new) = (writes(&before), writes(&after));
    let of_one = |(kind, count): (String, f64)| {
        let count = (count - old.get(&kind).copied().unwrap_or_default()) / (COLD + STEADY) as f64;
        (kind, json!(count))
    };
    let decision = "fleet_placement_decision_seconds";
    let measured = json!({
        "cold": {"objects": COLD, "recordedSeconds": recorded, "perSecond": COLD as f64 / recorded, "appliedSeconds": applied},
        "steady": {"objects": STEADY, "perSecond": rate, "schedule": quantiles(&created, &scheduled),
            "copy": quantiles(&created, &copied), "label": quantiles(&created, &labelled)},
        "writes": new.into_iter().map(of_one).collect::<serde_json::Map<_, _>>(),
        "decision": {"p50": bound(&after, decision, 0.5), "p99": bound(&after, decision, 0.99)},
        "scheduler": {"peak": peak(scene.control_plane.scheduler.pid())}, "agent": {"peak": peak(agent.pid())},
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
    });
    println!("place {measured}");
    policies.delete(&policy, &DeleteParams::default()).await.unwrap();
    namespaces.delete(&place, &DeleteParams::default()).await.unwrap();
}
