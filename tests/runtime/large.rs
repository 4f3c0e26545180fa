//! Clusters with more nodes than a Cluster object holds: told in reports of 200, which stay with their nodes.

use std::collections::BTreeMap;

use fleetctl::api::{Cluster, ClusterReport};
use fleetctl::daemon::metrics::Metrics;
use fleetctl::k8s::connect::init_kubeconfig::Init;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt as _};

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::simulated::{Simulated, nodes_and_pods};
use crate::support::{Stage, wait};

/// A large cluster, and those who look at what it tells.
struct Large {
    applicant: Applicant,
    certificate: String,
    hub: Client,
}

impl Large {
    async fn join(stage: &Stage, init: &Init) -> Self {
        let applicant = Applicant::new(&fresh("large"));
        let certificate = applicant.ask(init).await.expect("the name is free");
        Self { applicant, certificate, hub: stage.hub.client.clone() }
    }

    /// Its agent, as it starts with so many nodes.
    fn agent(&self, init: &Init, nodes: usize) -> Simulated {
        Simulated::live(init, &self.applicant, &self.certificate, nodes, &Metrics::default())
    }

    /// The report of every node.
    async fn places(&self) -> BTreeMap<String, String> {
        let reports = self.reports().list(&ListParams::default()).await.unwrap();
        let of = |report: ClusterReport| {
            let name = report.name_any();
            assert!(report.spec.available_resources.len() <= 200, "{name}");
            assert!(report.spec.available_resources.keys().eq(report.spec.capacity_resources.keys()), "{name}");
            report.spec.available_resources.into_keys().map(move |node| (node, name.clone()))
        };
        reports.into_iter().flat_map(of).collect()
    }

    /// The versions of the reports by name.
    async fn versions(&self) -> BTreeMap<String, String> {
        let reports = self.reports().list_metadata(&ListParams::default()).await.unwrap();
        reports.iter().map(|r| (r.name_any(), r.resource_version().unwrap())).collect()
    }

    fn reports(&self) -> Api<ClusterReport> {
        Api::namespaced(self.hub.clone(), &format!("fleet-c-{}", self.applicant.name))
    }

    /// Waits until the Cluster says that it has so many nodes; whether it names them itself.
    async fn told(&self, nodes: i32) -> bool {
        let clusters: Api<Cluster> = Api::all(self.hub.clone());
        let status = async || clusters.get(&self.applicant.name).await.unwrap().status.unwrap_or_default();
        wait("its nodes are told", async || {
            status().await.observed.and_then(|observed| observed.node_count) == Some(nodes)
        })
        .await;
        let status = status().await;
        let sums = status.observed.is_some_and(|observed| observed.totals.is_some());
        assert_ne!(status.available_resources.is_some(), sums, "either the nodes or their sums");
        !sums
    }
}

#[tokio::test]
async fn a_large_clusters_nodes_are_told_in_reports_that_grow_shrink_and_go_with_it() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let init = &control_plane.init;
    let large = Large::join(&stage, init).await;

    let mut agent = large.agent(init, 401);
    assert!(!large.told(401).await);
    let places = large.places().await;
    assert_eq!(places.len(), 401, "who reads the Cluster finds every node");
    assert_eq!(large.versions().await.into_keys().collect::<Vec<_>>(), ["nodes-0", "nodes-1", "nodes-2"]);
    agent.silence().await;

    // Its agent starts again, and there are more nodes: those that were known stay where they are.
    let mut agent = large.agent(init, 450);
    assert!(!large.told(450).await);
    let after = large.places().await;
    assert!(after.len() == 450 && places.iter().all(|(node, report)| after[node] == *report));
    agent.silence().await;

    // Small again: the Cluster holds its nodes itself, and nothing is left over.
    let mut agent = large.agent(init, 200);
    assert!(large.told(200).await);
    wait("the reports are gone", async || large.versions().await.is_empty()).await;
    agent.silence().await;

    // What there is when the cluster is forgotten goes with it.
    let mut agent = large.agent(init, 201);
    assert!(!large.told(201).await);
    agent.silence().await;
    assert_eq!(large.versions().await.len(), 2);
    let clusters: Api<Cluster> = Api::all(large.hub.clone());
    clusters.delete(&large.applicant.name, &DeleteParams::default()).await.unwrap();
    wait("its reports are gone", async || large.versions().await.is_empty()).await;
}

mod exhaustive {
    use super::*;

    /// Takes the minute that lies between two tellings.
    #[tokio::test]
    async fn a_node_that_changes_costs_one_report() {
        let stage = Stage::hub().await;
        let control_plane = ControlPlane::start(&stage, "").await;
        let init = &control_plane.init;
        let large = Large::join(&stage, init).await;
        let agent = large.agent(init, 401);
        assert!(!large.told(401).await);
        let (places, before) = (large.places().await, large.versions().await);
        let (mut nodes, pods) = nodes_and_pods(401);
        let changed = nodes.keys().nth(250).unwrap().clone();
        nodes.get_mut(&changed).unwrap().usable = false;
        agent.observed.set_nodes_and_pods(nodes, pods);
        wait("it is told", async || large.versions().await != before).await;
        let report = large.reports().get(&places[&changed]).await.unwrap();
        assert_eq!(report.spec.available_resources[&changed]["cpu"], "0");
        let after = large.versions().await;
        let rewritten: Vec<_> = before.keys().filter(|name| before[*name] != after[*name]).collect();
        assert_eq!(rewritten, [&places[&changed]]);
    }
}
