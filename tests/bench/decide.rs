//! Decides where groups go, on fleets of several sizes, and prints what one decision takes.
//!
//! `decide [CLUSTERS…]`: a line of JSON for each combination of clusters, members and policy.

mod numbers;

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleetctl::api::crd::policy::SchedulePolicySpec;
use fleetctl::placement::decide::{Current, Group, decide_group};
use fleetctl::placement::facts::Facts;
use fleetctl::placement::fleet::{Cluster, Fleet};
use fleetctl::placement::matching::Policy;
use fleetctl::placement::room::{Node, NodeAmounts};
use numbers::Numbers;
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NODES: usize = 100;
/// How long one combination is measured.
const TIME: Duration = Duration::from_secs(4);
/// Decisions after which the fleet is as it was, so that it does not fill up.
const ROUND: usize = 2_000;

/// Clusters between 30 and 90 % full, with three kinds of nodes, labels, taints and APIs.
fn fleet(clusters: usize) -> Fleet {
    let mut numbers = Numbers(1);
    let mut fleet = Fleet::default();
    let apis: std::collections::BTreeSet<String> =
        (0..40).map(|n| format!("group{n}.example.com/v1")).chain(["v1".to_owned(), "apps/v1".to_owned()]).collect();
    for number in 0..clusters {
        let used = 300 + i64::try_from(numbers.below(600)).unwrap_or_default();
        let node = |at: usize| {
            let cores = [8, 16, 32][at % 3];
            let of = |share: i64| -> NodeAmounts {
                let amounts = [
                    ("cpu", cores * 1000),
                    ("memory", (cores << 32) * 1000),
                    ("pods", 110_000),
                    ("ephemeral-storage", (100 << 30) * 1000),
                ];
                amounts.map(|(name, amount)| (name.to_owned(), amount / 1000 * share)).into()
            };
            let zone = [("topology.kubernetes.io/zone".to_owned(), format!("z{}", at % 3))];
            Node {
                name: format!("node-{at:03}"),
                capacity: of(1000),
                available: of(1000 - used),
                labels: Some(Arc::new(zone.into())),
                taints: Arc::default(),
            }
        };
        let nodes = (0..NODES).map(node).collect();
        let room = fleet.build_capacity(nodes, Vec::new());
        let mut cluster = Cluster::new(&format!("cluster-{number:04}"), room);
        cluster.labels = (0..8).map(|n| (format!("example.com/label-{n}"), format!("value-{n}"))).collect();
        cluster.labels.insert("tier".to_owned(), ["gold", "silver"][number % 2].to_owned());
        cluster.apis = Some(apis.clone().into());
        fleet.set_cluster(cluster);
    }
    fleet
}

fn policy(name: &str) -> Result<Policy> {
    let all = json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["gold", "silver"] }] });
    let mut spec = json!({
        "namespaceSelector": {},
        "resourceSelectors": { "labelSelectors": [{}] },
        "clusterSelector": all,
    });
    match name {
        "Divide" => spec["spreadConstraints"] = json!({ "spreadMode": "Divide" }),
        "ordered" => spec["orderedClusterSelector"] = all,
        _ => {}
    }
    let spec: SchedulePolicySpec = serde_json::from_value(spec)?;
    Ok(Policy::new(name.to_owned(), None, spec)?)
}

fn members(count: usize) -> Result<Vec<Facts>> {
    let object = |at: usize| -> Value {
        let requests = json!({ "cpu": format!("{}m", 100 + 100 * at), "memory": "256Mi" });
        json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": format!("web-{at}"), "namespace": "shop" },
            "spec": { "replicas": 5, "template": { "spec": { "containers": [
                { "name": "c", "resources": { "requests": requests } }] } } } })
    };
    Ok((0..count).map(|at| Facts::from_manifest(&object(at))).collect::<std::result::Result<_, _>>()?)
}

/// Resident memory in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|text| text.parse::<u64>().ok()).unwrap_or_default() * 1024
}

fn measure(whole: &Fleet, members: &[Facts], policy: &Policy) -> (usize, Vec<Duration>) {
    let mut times = Vec::new();
    let mut fleet = whole.clone();
    let (begin, mut placed) = (Instant::now(), 0);
    while begin.elapsed() < TIME {
        if times.len() % ROUND == ROUND - 1 {
            fleet = whole.clone();
        }
        let name = format!("group-{}", times.len());
        let start = Instant::now();
        let group = Group::new(&name, policy, members);
        let decision = decide_group(policy, &group, &fleet, &Current::default());
        fleet.reserve_decision(&group, &decision, &Current::default());
        times.push(start.elapsed());
        placed += usize::from(decision.scheduled);
    }
    times.sort();
    (placed, times)
}

fn main() -> Result<()> {
    let sizes: Vec<usize> = std::env::args().skip(1).map(|text| text.parse()).collect::<std::result::Result<_, _>>()?;
    let sizes = if sizes.is_empty() { vec![10, 100, 1_000] } else { sizes };
    for clusters in sizes {
        let before = resident();
        let fleet = fleet(clusters);
        let bytes = resident().saturating_sub(before);
        for count in [1, 5] {
            let members = members(count)?;
            for name in ["unspread", "ordered", "Divide"] {
                let (placed, times) = measure(&fleet, &members, &policy(name)?);
                let micros =
                    |at: usize| times.get(at.min(times.len() - 1)).map_or(0.0, |time| time.as_secs_f64() * 1e6);
                let sum: Duration = times.iter().sum();
                let line = json!({
                    "clusters": clusters,
                    "members": count,
                    "policy": name,
                    "decisions": times.len(),
                    "placed": placed,
                    "seconds": sum.as_secs_f64(),
                    "p50": micros(times.len() / 2),
                    "p99": micros(times.len() * 99 / 100),
                    "bytes": bytes,
                });
                writeln!(std::io::stdout(), "{line}")?;
            }
        }
    }
    Ok(())
}
