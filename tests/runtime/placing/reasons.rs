//! Every reason against a cluster, provoked once: the group's status, its event and `fleetctl why` name it alike.

use std::sync::Arc;

use fleetctl::agent::inventory::nodes::NodeFacts;
use fleetctl::agent::inventory::watch::Observed;

use super::*;
use crate::applicant::Applicant;
use crate::simulated::{nodes_and_pods, own_api_of};

/// Clusters that are each against the same group for a reason of their own.
struct Crowd<'f> {
    fleet: &'f Fleet,
    clusters: Api<fleetctl::api::Cluster>,
    members: Vec<Simulated>,
    names: BTreeMap<&'static str, String>,
}

impl Crowd<'_> {
    /// A cluster of so many nodes that lacks nothing but what `change` takes from its nodes, of which it is told the number.
    async fn join(&mut self, reason: &'static str, nodes: usize, change: impl Fn(usize, &mut NodeFacts)) -> String {
        self.join_with(reason, nodes, &["apps/v1", "v1"], change).await
    }

    async fn join_with(
        &mut self,
        reason: &'static str,
        nodes: usize,
        apis: &'static [&'static str],
        change: impl Fn(usize, &mut NodeFacts),
    ) -> String {
        let name = fresh(&reason.to_lowercase());
        let (mut nodes, _) = nodes_and_pods(nodes);
        for (number, node) in nodes.values_mut().enumerate() {
            node.labels = Arc::new([("disk".to_owned(), "ssd".to_owned())].into());
            change(number, node);
        }
        let applicant = Applicant::new(&name);
        let init = &self.fleet.control_plane.init;
        let certificate = applicant.ask(init).await.expect("the name is free");
        let observed = Observed::new_fixed(nodes, std::collections::HashMap::new());
        let own = own_api_of(apis);
        self.members.push(Simulated::of(init, &applicant, &certificate, observed, own, &self.fleet.metrics));
        self.label(&name, json!({"team": self.fleet.namespace, "rank": "first"})).await;
        wait(&format!("{name} is Ready"), async || {
            let status = self.clusters.get(&name).await.unwrap().status.unwrap_or_default();
            find_condition(&status.conditions, "Ready").is_some_and(Condition::is_true)
        })
        .await;
        self.names.insert(reason, name.clone());
        name
    }

    async fn label(&self, name: &str, labels: Value) {
        self.change(name, json!({"metadata": {"labels": labels}})).await;
    }

    async fn change(&self, name: &str, change: Value) {
        self.clusters.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }
}

#[tokio::test]
async fn every_reason_is_in_status_event_and_why() {
    let fleet = Fleet::new().await;
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let mut crowd = Crowd { fleet: &fleet, clusters, members: Vec::new(), names: BTreeMap::new() };
    let as_is = |_: usize, _: &mut NodeFacts| {};

    let name = crowd.join("NotAccepted", 4, as_is).await;
    crowd.change(&name, json!({"spec": {"accepted": false}})).await;
    let name = crowd.join("SelectorMismatch", 4, as_is).await;
    crowd.label(&name, json!({"team": null})).await;
    let name = crowd.join("NotOrdered", 4, as_is).await;
    crowd.label(&name, json!({"rank": "last"})).await;
    let name = crowd.join("Tainted", 4, as_is).await;
    crowd.change(&name, json!({"spec": {"taints": [{"key": "example.com/full", "effect": "NoSchedule"}]}})).await;
    let name = crowd.join("Leaving", 4, as_is).await;
    crowd.change(&name, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    crowd.clusters.delete(&name, &DeleteParams::default()).await.unwrap();
    crowd.join_with("ApiMissing", 4, &["v1"], as_is).await;
    crowd.join("NoNodeMatches", 4, |_, node| node.labels = Arc::default()).await;
    crowd
        .join("NodeLabelsUnknown", 200, |number, node| {
            // More values than a report holds.
            node.labels = Arc::new([("disk".to_owned(), format!("{number:060}"))].into());
        })
        .await;
    crowd.join("TooFewNodes", 2, as_is).await;
    let cpu = |amount: i128| {
        move |_: usize, node: &mut NodeFacts| {
            node.allocatable.insert("cpu".to_owned(), amount);
        }
    };
    crowd.join("Insufficient", 4, cpu(200)).await;
    crowd.join("Fragmented", 10, cpu(500)).await;
    // It never says anything.
    let silent = Applicant::new(&fresh("notready"));
    silent.ask(&fleet.control_plane.init).await.expect("the name is free");
    crowd.label(&silent.name, json!({"team": fleet.namespace, "rank": "first"})).await;
    crowd.names.insert("NotReady", silent.name.clone());

    let selector = json!({"matchLabels": {"team": fleet.namespace}});
    let order = json!({"matchExpressions": [{"key": "rank", "operator": "In", "values": ["first"]}]});
    let policy = fleet.policy(json!({"clusterSelector": selector, "orderedClusterSelector": order})).await;
    let apart = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}]});
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": fleet.namespace, "labels": {"app": "web"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"nodeSelector": {"disk": "ssd"}, "affinity": {"podAntiAffinity": apart},
                "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}},
    });
    fleet.deployments().create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();

    let codes: Vec<&str> = crowd.names.keys().copied().collect();
    assert_eq!(codes.len(), 12);
    let missing =
        |found: &dyn Fn(&str) -> bool| -> Vec<&str> { codes.iter().filter(|code| !found(code)).copied().collect() };
    let mut status = fleetctl::api::ScheduleGroupStatus::default();
    wait_until_none("reasons that are not counted", async || {
        let [group] = &fleet.groups(&policy).await[..] else { return codes.clone() };
        status = group.status.clone().unwrap_or_default();
        let rejected = status.decision.clone().unwrap_or_default().rejected;
        missing(&|code| rejected.keys().any(|reason| reason.split(' ').next() == Some(code)))
    })
    .await;
    let said = find_condition(&status.conditions, "Scheduled").unwrap();
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "NoFit"));
    assert_eq!(missing(&|code| said.message.contains(code)), [""; 0], "{}", said.message);

    wait("the event says them all", async || {
        let events: Api<Event> = Api::namespaced(fleet.client(), &fleet.namespace);
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.iter().any(|event| {
            let message = event.message.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some("NotPlaced") && missing(&|code| message.contains(code)).is_empty()
        })
    })
    .await;

    let report = why(&fleet.stage.hub.kubeconfig, "deployment/web", &fleet.namespace, 7);
    let rows = report["now"]["clusters"].as_array().unwrap();
    for (code, name) in &crowd.names {
        let of = |row: &&Value| row["clusters"].as_array().is_some_and(|all| all.contains(&json!(name)));
        let row = rows.iter().find(of).unwrap_or_else(|| panic!("{name} is not in {report}"));
        assert!(row["reason"].as_str().unwrap().contains(code), "{name}: {row}");
    }

    crowd.change(&crowd.names["Leaving"], json!({"metadata": {"finalizers": null}})).await;
    fleet.end(&[policy]).await;
}
