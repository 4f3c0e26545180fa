//! Asks a real kube-scheduler whether it binds what the pure functions say has room.
//!
//! `fit GROUPS`: the cluster of `KUBECONFIG` gets nodes that no kubelet is behind, filled to 60, 80 and 95 %, and a line of
//! JSON is printed for each fill. Of every random group the decision is made first; then its pods are created, in a random
//! order, and it is counted whether all of them are bound.

mod numbers;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleetctl::api::crd::policy::SchedulePolicySpec;
use fleetctl::placement::decide::{Current, Group, How, decide_group};
use fleetctl::placement::facts::Facts;
use fleetctl::placement::fleet::{Cluster, Fleet};
use fleetctl::placement::matching::Policy;
use fleetctl::placement::reason::Reason;
use fleetctl::placement::room;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use numbers::Numbers;
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NODES: u64 = 40;
const NAMESPACE: &str = "bench-fit";
/// Shares of the nodes that are taken, in percent.
const FILLS: [u64; 3] = [60, 80, 95];
/// How long pods may wait for the scheduler's first word on them.
const PATIENCE: Duration = Duration::from_secs(60);
/// After a refusal the scheduler may try again because of what happened meanwhile.
const SECOND_TRY: Duration = Duration::from_secs(2);
/// Requests under way at a time.
const IN_FLIGHT: usize = 16;

/// A node of so many cores, with 4,000 MiB for each, of which `used` % are taken by one pod.
struct Fake {
    name: String,
    cores: u64,
    used: u64,
}

impl Fake {
    /// Millicores and mebibytes of a share in percent.
    fn amounts(&self, share: u64) -> (u64, u64) {
        (self.cores * 10 * share, self.cores * 40 * share)
    }

    /// The same as an agent reports it.
    fn room(&self) -> room::Node {
        let ((cpu, memory), (used_cpu, used_memory)) = (self.amounts(100), self.amounts(self.used));
        let of = |cpu: u64, memory: u64, pods: u64| -> room::NodeAmounts {
            let amounts = [("cpu", cpu), ("memory", (memory << 20) * 1000), ("pods", pods * 1000)];
            amounts.map(|(name, amount)| (name.to_owned(), i64::try_from(amount).unwrap_or(i64::MAX))).into()
        };
        room::Node {
            name: self.name.clone(),
            capacity: of(cpu, memory, 110),
            available: of(cpu - used_cpu, memory - used_memory, 109),
            labels: Some(Arc::default()),
            taints: Arc::default(),
        }
    }
}

fn fakes(numbers: &mut Numbers, fill: u64) -> Vec<Fake> {
    let one = |at: u64| {
        let used = (fill + numbers.below(21)).saturating_sub(10).min(99);
        Fake { name: format!("fake-{at:02}"), cores: [8, 16, 32][usize::try_from(at % 3).unwrap_or_default()], used }
    };
    (0..NODES).map(one).collect()
}

/// Makes a group: one shape for every second one, otherwise two to four.
fn group(numbers: &mut Numbers, number: usize) -> Vec<Value> {
    let shapes = if number.is_multiple_of(2) { 1 } else { 2 + numbers.below(3) };
    (0..shapes)
        .map(|shape| {
            // Small ones more often than large ones.
            let cpu = 50 << numbers.below(7);
            let memory = 64 << numbers.below(7);
            let requests = json!({ "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") });
            json!({ "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": format!("shape-{shape}"), "namespace": NAMESPACE },
                "spec": { "replicas": 1 + numbers.below(10), "template": { "spec": {
                    "tolerations": tolerations(), "containers": [
                    { "name": "c", "image": "none", "resources": { "requests": requests } }] } } } })
        })
        .collect()
}

async fn each<T, F: Future<Output = kube::Result<T>>>(requests: impl Iterator<Item = F>) -> Result<()> {
    let mut answers = futures::stream::iter(requests).buffer_unordered(IN_FLIGHT);
    while let Some(answer) = answers.next().await {
        answer?;
    }
    Ok(())
}

/// Lets pods onto nodes that no kubelet reports about.
fn tolerations() -> Value {
    let key = |name: &str| json!({ "key": format!("node.kubernetes.io/{name}"), "operator": "Exists" });
    json!([key("not-ready"), key("unreachable")])
}

/// Gives the cluster the nodes, and each the pod that fills it.
async fn set_up(client: &Client, fakes: &[Fake]) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for fake in fakes {
        let (cpu, memory) = fake.amounts(100);
        let resources = json!({ "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi"), "pods": "110" });
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": fake.name } });
        let params = PatchParams::apply("bench-fit").force();
        nodes.patch(&fake.name, &params, &Patch::Apply(&node)).await?;
        let ready = json!([{ "type": "Ready", "status": "True", "reason": "Claimed", "message": "no kubelet is behind it",
            "lastHeartbeatTime": Timestamp::now(), "lastTransitionTime": Timestamp::now() }]);
        let status = json!({ "status": { "capacity": resources, "allocatable": resources, "conditions": ready } });
        nodes.patch_status(&fake.name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        let (cpu, memory) = fake.amounts(fake.used);
        let filler = json!({ "metadata": { "name": format!("filler-{}", fake.name) }, "spec": { "nodeName": fake.name,
            "tolerations": tolerations(),
            "containers": [{ "name": "c", "image": "none", "resources": { "requests": {
                "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") } } }] } });
        pods.create(&PostParams::default(), &serde_json::from_value(filler)?).await?;
    }
    Ok(())
}

async fn clear(client: &Client, selector: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let these = ListParams::default().labels(selector);
    pods.delete_collection(&now, &these).await?;
    while !pods.list_metadata(&these).await?.items.is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Creates the pods of a group in a random order; returns whether all of them are bound.
async fn binds(client: &Client, numbers: &mut Numbers, members: &[Value]) -> Result<bool> {
    let mut pods = Vec::new();
    for member in members {
        for replica in 0..member["spec"]["replicas"].as_u64().unwrap_or_default() {
            let name = format!("{}-{replica}", member["metadata"]["name"].as_str().unwrap_or_default());
            let spec = &member["spec"]["template"]["spec"];
            pods.push(json!({ "metadata": { "name": name, "labels": { "of": "group" } }, "spec": spec }));
        }
    }
    for at in (1..pods.len()).rev() {
        let other = usize::try_from(numbers.below(u64::try_from(at + 1)?))?;
        pods.swap(at, other);
    }
    let pods = pods.into_iter().map(serde_json::from_value).collect::<std::result::Result<Vec<Pod>, _>>()?;
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PostParams::default();
    each(pods.iter().map(|pod| api.create(&params, pod))).await?;
    let (started, mut refused) = (Instant::now(), None);
    loop {
        let found = api.list(&ListParams::default().labels("of=group")).await?.items;
        let is_bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let is_refused = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.clone().any(|one| one.type_ == "PodScheduled" && one.status == "False")
        };
        if found.iter().all(is_bound) {
            return Ok(true);
        }
        if found.iter().all(|pod| is_bound(pod) || is_refused(pod)) {
            let since = *refused.get_or_insert_with(Instant::now);
            if since.elapsed() >= SECOND_TRY {
                return Ok(false);
            }
        } else if started.elapsed() > PATIENCE {
            return Err("the scheduler says nothing about some pods".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn policy() -> Result<Policy> {
    let spec: SchedulePolicySpec = serde_json::from_value(json!({
        "namespaceSelector": {}, "resourceSelectors": { "labelSelectors": [{}] }, "clusterSelector": {},
    }))?;
    Ok(Policy::new("fit".to_owned(), None, spec)?)
}

/// What is said of a group, as one word.
fn verdict(how: Option<How>, rejected: Option<&Reason>) -> Option<&'static str> {
    match (how, rejected) {
        (Some(How::Room), _) => Some("Room"),
        (Some(How::Tight), _) => Some("Tight"),
        (_, Some(Reason::Insufficient { .. })) => Some("Insufficient"),
        (_, Some(Reason::Fragmented(_))) => Some("Fragmented"),
        _ => None,
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let groups: usize = std::env::args().nth(1).unwrap_or_else(|| "200".to_owned()).parse()?;
    let client = Client::try_default().await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let params = PatchParams::apply("bench-fit").force();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    namespaces.patch(NAMESPACE, &params, &Patch::Apply(&namespace)).await?;
    // Pods are only taken once their account is there.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    while accounts.get_opt("default").await?.is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The real nodes take nothing.
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&ListParams::default()).await? {
        if !node.name_any().starts_with("fake-") {
            nodes.cordon(&node.name_any()).await?;
        }
    }
    let policy = policy()?;
    for fill in FILLS {
        let mut numbers = Numbers(fill);
        clear(&client, "").await?;
        let fakes = fakes(&mut numbers, fill);
        set_up(&client, &fakes).await?;
        let mut fleet = Fleet::default();
        let room = fleet.build_capacity(fakes.iter().map(Fake::room).collect(), Vec::new());
        let mut cluster = Cluster::new("fit", room);
        cluster.apis = Some(std::collections::BTreeSet::from(["apps/v1".to_owned(), "v1".to_owned()]).into());
        fleet.set_cluster(cluster);
        // Groups of which all pods were bound, and others.
        let mut counts: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
        for number in 0..groups {
            let members = group(&mut numbers, number);
            let facts = members.iter().map(Facts::from_manifest).collect::<std::result::Result<Vec<_>, _>>()?;
            let of = Group::new("group", &policy, &facts);
            let decision = decide_group(&policy, &of, &fleet, &Current::default());
            let rejected = decision.rejected.first().map(|(_, reason)| reason);
            let Some(word) = verdict(decision.how, rejected) else {
                return Err(format!("a decision that was not foreseen: {decision:?}").into());
            };
            let bound = binds(&client, &mut numbers, &members).await?;
            clear(&client, "of=group").await?;
            let kind = if members.len() == 1 { "one" } else { "mixed" };
            let count = counts.entry((word, kind)).or_default();
            *(if bound { &mut count.0 } else { &mut count.1 }) += 1;
        }
        for ((said, shapes), (bound, unbound)) in counts {
            let line = json!({ "fill": fill, "said": said, "shapes": shapes, "bound": bound, "unbound": unbound });
            writeln!(std::io::stdout(), "{line}")?;
        }
    }
    Ok(())
}
