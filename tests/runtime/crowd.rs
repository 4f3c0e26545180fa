//! A crowd: many agents' own code in one process, each with an identity and connections of its own, against one real
//! control plane. Prints what it measured; `FLEET_CROWD=500 cargo test --test runtime -- --ignored --nocapture crowd`.

// What it is for is to be read.
#![allow(clippy::print_stderr)]

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use fleetctl::agent::heartbeat::{Heart, Pulse};
use fleetctl::agent::inventory::facts::Overrides;
use fleetctl::agent::inventory::nodes::{NodeFacts, PodFacts};
use fleetctl::agent::inventory::watch::Observed;
use fleetctl::agent::report::Reporter;
use fleetctl::api::Cluster;
use fleetctl::api::condition::find;
use fleetctl::daemon::metrics::Metrics;
use futures::StreamExt as _;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::support::{Stage, wait};

/// A cluster of `count` nodes, each with one pod.
fn inventory(count: usize) -> Observed {
    let amounts = |cpu, memory| BTreeMap::from([("cpu".to_owned(), cpu), ("memory".to_owned(), memory)]);
    let node = NodeFacts {
        provider_id: "aws:///z/i".to_owned(),
        labels: BTreeMap::new(),
        capacity: [("cpu", "16"), ("memory", "64Gi")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        allocatable: amounts(15_800, 64 << 40),
        taints: Vec::new(),
        usable: true,
    };
    let names = (0..count).map(|i| format!("ip-10-0-0-{i}.eu-west-1.compute.internal"));
    let pods = names.clone().map(|name| (name.clone(), PodFacts { node: name, requests: amounts(399, 1 << 40) }));
    Observed::fixed(names.map(|name| (name, node.clone())).collect(), pods.collect::<HashMap<_, _>>())
}

/// CPU seconds and peak memory of a process, as the kernel counts them.
fn usage(pid: u32) -> (f64, u64) {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0").trim().trim_end_matches(" kB");
    ((ticks(11) + ticks(12)) / 100.0, peak.parse::<u64>().unwrap_or(0) / 1024)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, of minutes"]
async fn a_crowd_of_agents_stays_ready() {
    let count: usize = std::env::var("FLEET_CROWD").ok().and_then(|n| n.parse().ok()).unwrap_or(50);
    let minutes: u64 = std::env::var("FLEET_CROWD_MINUTES").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "newClustersPerMinute: 100000").await;
    let prefix = fresh("crowd");
    let started = Instant::now();
    let metrics = Metrics::default();
    let members: Vec<_> = futures::stream::iter(0..count)
        .map(|i| {
            let applicant = Applicant::new(&format!("{prefix}-{i}"));
            let init = control_plane.init.clone();
            async move {
                let certificate = applicant.ask(&init).await.expect("registered");
                (applicant, certificate)
            }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    let joined = started.elapsed();
    let mut tasks = JoinSet::new();
    for (applicant, certificate) in members {
        let client = || control_plane.init.client(&certificate, &applicant.key).expect("usable");
        let (sender, pulse) = watch::channel(Pulse::Starting);
        let mut heart = Heart::new(client(), &applicant.name, applicant.id.clone(), sender, metrics.clone());
        let hub = client();
        let reporter =
            Reporter { local: hub.clone(), hub, name: applicant.name.clone(), overrides: Overrides::default(), pulse };
        tasks.spawn(async move { heart.run().await });
        tasks.spawn(reporter.clone().inventory(inventory(100)));
        tasks.spawn(reporter.health());
    }
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    let ready = async || {
        let all = clusters.list(&ListParams::default().match_any()).await.unwrap();
        let ours = all.items.into_iter().filter(|c| c.name_any().starts_with(&prefix));
        let is_ready =
            |c: &Cluster| c.status.as_ref().and_then(|s| find(&s.conditions, "Ready").map(|r| r.status == "True"));
        ours.filter(|c| is_ready(c) == Some(true)).count()
    };
    let all_ready = wait("all are ready", async || ready().await == count).await;
    let (cpu_before, _) = usage(control_plane.scheduler.pid());
    let quiet = Instant::now();
    let mut fewest = count;
    while quiet.elapsed() < Duration::from_secs(60 * minutes) {
        tokio::time::sleep(Duration::from_secs(5)).await;
        fewest = fewest.min(ready().await);
    }
    let (cpu, peak) = usage(control_plane.scheduler.pid());
    let cores = (cpu - cpu_before) / quiet.elapsed().as_secs_f64();
    let quantile = |share| metrics.quantile("fleet_agent_heartbeat_seconds", share).unwrap_or_default() * 1000.0;
    #[allow(clippy::cast_precision_loss)]
    let rate = count as f64 / joined.as_secs_f64() * 60.0;
    eprintln!("agents {count}, nodes each 100, {minutes} min quiet");
    eprintln!("joined in {joined:.1?} ({rate:.0}/min), all ready {all_ready:.1?} later");
    eprintln!("lease p50 <= {} ms, p99 <= {} ms", quantile(0.5), quantile(0.99));
    eprintln!("scheduler {cores:.3} cores, peak {peak} MiB");
    eprintln!("fewest ready: {fewest} of {count}");
    assert_eq!(fewest, count, "a false NotReady");
}
