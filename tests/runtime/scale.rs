//! A crowd: many agents' own code in one process, each with an identity and connections of its own, against one real
//! control plane. `cargo bed bench crowd` runs it for several sizes and makes a table of what it prints.

// What it is for is to be read.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use fleetctl::api::Cluster;
use fleetctl::api::crd::condition::find_condition;
use fleetctl::daemon::metrics::{Durations, Metrics};
use futures::StreamExt as _;
use futures::future::join_all;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::simulated::Simulated;
use crate::support::{Stage, wait};

/// Nodes of each cluster.
const NODES: usize = 100;

/// CPU seconds and peak memory in MiB of a process, as the kernel counts them.
fn usage(pid: u32) -> (f64, u64) {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0").trim().trim_end_matches(" kB");
    ((ticks(11) + ticks(12)) / 100.0, peak.parse::<u64>().unwrap_or(0) / 1024)
}

fn is_ready(cluster: &Cluster) -> bool {
    cluster
        .status
        .as_ref()
        .and_then(|s| find_condition(&s.conditions, "Ready"))
        .is_some_and(|ready| ready.status == "True")
}

/// How often the scheduler has called one of ours not ready, by its own log.
fn called_not_ready(log: &str, prefix: &str) -> usize {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_ours = |line: &Value| line["cluster"].as_str().is_some_and(|name| name.starts_with(prefix));
    lines.filter(|l| l["message"] == "readiness changed" && l["ready"] == "False" && of_ours(l)).count()
}

fn failures(metrics: &Metrics) -> f64 {
    let failed = |name| metrics.metric_value(name, &[("result", "failed")]);
    failed("fleet_agent_heartbeats_total") + failed("fleet_agent_reports_total")
}

fn number<T: std::str::FromStr>(variable: &str, default: T) -> T {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, of minutes"]
async fn a_crowd_of_agents_stays_ready() {
    let count: usize = number("FLEET_CROWD", 10);
    let minutes: f64 = number("FLEET_CROWD_MINUTES", 2.0);
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "newClustersPerMinute: 100000").await;
    let prefix = fresh("crowd");
    let started = Instant::now();
    let metrics = Metrics::default();
    // Each begins to live when it has joined, as real ones do.
    let joins = futures::stream::iter(0..count).map(|i| {
        let applicant = Applicant::new(&format!("{prefix}-{i}"));
        let (init, metrics) = (control_plane.init.clone(), metrics.clone());
        async move {
            let certificate = applicant.ask(&init).await.expect("registered");
            Simulated::live(&init, &applicant, &certificate, NODES, &metrics)
        }
    });
    let mut members: Vec<_> = joins.buffer_unordered(16).collect().await;
    let (joined, began_to_wait) = (started.elapsed(), Instant::now());
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    wait("all are ready", async || {
        let all = clusters.list(&ListParams::default().match_any()).await.unwrap();
        all.iter().filter(|c| c.name_any().starts_with(&prefix) && is_ready(c)).count() == count
    })
    .await;
    let all_ready = began_to_wait.elapsed();

    let components = ["kube-apiserver", "etcd", "kube-controller-manager"];
    let mut pids: Vec<_> = components.iter().map(|name| (*name, stage.pid(name))).collect();
    pids.extend([("fleet-scheduler", control_plane.scheduler.pid()), ("agents", std::process::id())]);
    let before: Vec<_> = pids.iter().map(|(_, pid)| usage(*pid).0).collect();
    let [lease, status] = ["fleet_agent_heartbeat_seconds", "fleet_agent_report_seconds"];
    let joining = [lease, status].map(|name| metrics.histogram_durations(name));
    let (errors_before, told_before) = (failures(&metrics), called_not_ready(&control_plane.scheduler.log(), &prefix));
    let quiet = Instant::now();
    tokio::time::sleep(Duration::from_secs_f64(60.0 * minutes)).await;
    let seconds = quiet.elapsed().as_secs_f64();
    let components: Vec<_> = pids
        .iter()
        .zip(before)
        .map(|((name, pid), before)| {
            let (cpu, peak) = usage(*pid);
            json!({ "name": name, "cores": (cpu - before) / seconds, "peak": peak })
        })
        .collect();
    let still = [(lease, &joining[0]), (status, &joining[1])]
        .map(|(name, before)| metrics.histogram_durations(name).durations_since(before));
    let errors = failures(&metrics) - errors_before;
    let false_not_ready = called_not_ready(&control_plane.scheduler.log(), &prefix) - told_before;

    // Some die together, anywhere between two renewals.
    let lost = (count / 10).clamp(1, 10);
    let deaths = members.iter_mut().take(lost).map(|member| {
        let clusters = clusters.clone();
        async move {
            member.silence().await;
            let died = Instant::now();
            while is_ready(&clusters.get(&member.name).await.unwrap()) {
                assert!(died.elapsed() < Duration::from_secs(120), "not noticed");
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            died.elapsed().as_secs_f64()
        }
    });
    let mut detection = join_all(deaths).await;
    detection.sort_by(f64::total_cmp);

    let both = |durations: &Durations| {
        let quantile = |share| durations.quantile(share).unwrap_or_default() * 1000.0;
        json!({ "p50": quantile(0.5), "p99": quantile(0.99) })
    };
    #[allow(clippy::cast_precision_loss)]
    let joins_a_minute = count as f64 / joined.as_secs_f64() * 60.0;
    let measured = json!({
        "agents": count, "nodes": NODES, "minutes": minutes,
        "joinsPerMinute": joins_a_minute, "readySeconds": all_ready.as_secs_f64(),
        "leaseJoining": both(&joining[0]), "statusJoining": both(&joining[1]),
        "lease": both(&still[0]), "status": both(&still[1]),
        "falseNotReady": false_not_ready, "errors": errors, "detection": detection, "components": components,
    });
    println!("crowd {measured}");
    assert_eq!(false_not_ready, 0, "a false NotReady");
}
