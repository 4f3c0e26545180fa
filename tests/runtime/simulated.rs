//! Agents' own code in this process, with an identity and connections of its own, and nodes that are made up.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use fleetctl::agent::heartbeat::{LeaseRenewer, LeaseStatus};
use fleetctl::agent::inventory::facts::Overrides;
use fleetctl::agent::inventory::nodes::{NodeFacts, PodFacts};
use fleetctl::agent::inventory::watch::Observed;
use fleetctl::agent::status_writer::Reporter;
use fleetctl::daemon::metrics::Metrics;
use fleetctl::k8s::connect::daemon_client;
use fleetctl::k8s::connect::init_kubeconfig::Init;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::applicant::Applicant;

/// A member that lives until it is dropped or silenced.
pub(crate) struct Simulated {
    pub(crate) name: String,
    /// Its nodes and pods.
    pub(crate) observed: Observed,
    tasks: JoinSet<()>,
}

impl Simulated {
    /// Joins and lives, with `nodes` nodes.
    pub(crate) async fn join(init: &Init, name: &str, nodes: usize, metrics: &Metrics) -> Self {
        let applicant = Applicant::new(name);
        let certificate = applicant.ask(init).await.expect("the name is free");
        Self::live(init, &applicant, &certificate, nodes, metrics)
    }

    /// Lives with a certificate.
    pub(crate) fn live(init: &Init, applicant: &Applicant, certificate: &str, nodes: usize, metrics: &Metrics) -> Self {
        Self::of(init, applicant, certificate, inventory(nodes), own_api_of(&[]), metrics)
    }

    /// The same with an inventory and an API server of its own.
    pub(crate) fn of(
        init: &Init,
        applicant: &Applicant,
        certificate: &str,
        observed: Observed,
        local: Client,
        metrics: &Metrics,
    ) -> Self {
        let client = || daemon_client::identity_client(init, certificate, &applicant.key).expect("usable");
        let (sender, lease) = watch::channel(LeaseStatus::Starting);
        let mut renewer = LeaseRenewer::new(client(), &applicant.name, applicant.id.clone(), sender, metrics.clone());
        let reporter = Reporter {
            local,
            control_plane: client(),
            name: applicant.name.clone(),
            overrides: Overrides::default(),
            version: None,
            extra_kinds: Vec::new(),
            lease,
            metrics: metrics.clone(),
        };
        let mut tasks = JoinSet::new();
        // It ends where an agent would begin a new session.
        tasks.spawn(async move {
            loop {
                renewer.run().await;
            }
        });
        tasks.spawn(reporter.clone().publish_inventory(observed.clone()));
        tasks.spawn(reporter.monitor_health());
        Self { name: applicant.name.clone(), observed, tasks }
    }

    /// Ends without a word, as a lost machine does.
    pub(crate) async fn silence(&mut self) {
        self.tasks.shutdown().await;
    }
}

/// A member's own API server, of which there cannot be hundreds. That of the control plane must not answer in its place:
/// it would be asked for its health by all of them together. A reporter asks for no more than this. It serves `apis`, such as
/// `apps/v1`; with none it does not say which it serves.
pub(crate) fn own_api_of(apis: &'static [&'static str]) -> Client {
    let answer = move |request: http::Request<Body>| async move {
        let (status, body) = match request.uri().path() {
            "/api" if !apis.is_empty() => {
                (200, json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] }))
            }
            "/apis" if !apis.is_empty() => {
                let groups = apis.iter().filter_map(|api| {
                    let (group, version) = api.split_once('/')?;
                    let version = json!({ "groupVersion": api, "version": version });
                    Some(json!({ "name": group, "versions": [version], "preferredVersion": version }))
                });
                let groups: Vec<_> = groups.collect();
                (200, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
            }
            "/readyz" => (200, json!("ok")),
            "/version" => (
                200,
                json!({ "major": "1", "minor": "25", "gitVersion": "v1.25.4", "gitCommit": "",
                "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": "" }),
            ),
            _ => (
                404,
                json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                "message": "not found", "code": 404 }),
            ),
        };
        let answer = http::Response::builder().status(status).header("Content-Type", "application/json");
        Ok::<_, Infallible>(answer.body(Body::from(body.to_string().into_bytes())).expect("a whole answer"))
    };
    Client::new(tower::service_fn(answer), "default")
}

/// A cluster of `count` nodes, each with one pod.
fn inventory(count: usize) -> Observed {
    let (nodes, pods) = nodes_and_pods(count);
    Observed::new_fixed(nodes, pods)
}

/// So many nodes, each with one pod of its name.
pub(crate) fn nodes_and_pods(count: usize) -> (BTreeMap<String, NodeFacts>, HashMap<String, PodFacts>) {
    let amounts = |cpu, memory| BTreeMap::from([("cpu".to_owned(), cpu), ("memory".to_owned(), memory)]);
    let mut allocatable = amounts(15_800, 64 << 40);
    allocatable.insert("pods".to_owned(), 110_000);
    let node = NodeFacts {
        provider_id: "aws:///z/i".to_owned(),
        labels: Arc::default(),
        capacity: [("cpu", "16"), ("memory", "64Gi"), ("pods", "110")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        allocatable,
        taints: Vec::new(),
        usable: true,
    };
    let names = (0..count).map(|i| format!("ip-10-0-0-{i}.eu-west-1.compute.internal"));
    let pods = names
        .clone()
        .map(|name| (name.clone(), PodFacts { owner: name.clone(), node: name, requests: amounts(399, 1 << 40) }));
    (names.map(|name| (name, node.clone())).collect(), pods.collect())
}
