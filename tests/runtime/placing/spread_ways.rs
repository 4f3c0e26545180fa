//! Groups that are spread over three real API servers of two Kubernetes versions by real agents. Nodes and pods are played.

use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::task::JoinSet;

use super::*;
use crate::support::{Program, Server};

pub(super) const REGION: &str = "fleet-scheduler.io/cluster.region";

/// A node has room for four pods of five CPUs.
const CPU: &str = "24";

/// Regions of the members, in their order.
pub(super) const REGIONS: [&str; 3] = ["east", "north", "west"];

/// A workload cluster, with its agent and its node.
struct Member {
    name: String,
    server: Server,
    _agent: Program,
}

/// Three members, and namespaces of which each has a policy of its own.
struct Spread {
    fleet: Fleet,
    members: Vec<Member>,
    policies: Vec<String>,
    _kubelets: JoinSet<()>,
}

/// Makes the node of a member, with so many CPUs, and waits until it is Ready.
pub(crate) async fn make_node(client: &Client, region: &str, cpu: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let body = json!({ "metadata": { "name": "played", "labels": { "topology.kubernetes.io/region": region } },
        "spec": { "providerID": "kind://docker/under/played" } });
    let _ = nodes.delete("played", &DeleteParams::default()).await;
    nodes.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    // An agent reports a node that is Ready, and then again after a minute.
    wait("its node is Ready", async || {
        play_node(&nodes, cpu).await;
        let node = nodes.get("played").await.unwrap();
        node.spec.unwrap_or_default().taints.unwrap_or_default().is_empty()
    })
    .await;
}

/// Says that a node is alive.
pub(crate) async fn play_node(nodes: &Api<Node>, cpu: &str) {
    let now = Timestamp::now().to_string();
    let status = json!({ "status": {
        "capacity": { "cpu": cpu, "memory": "64Gi", "pods": "2000" },
        "allocatable": { "cpu": cpu, "memory": "64Gi", "pods": "2000" },
        "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now }],
    }});
    let _ = nodes.patch_status("played", &PatchParams::default(), &Patch::Merge(&status)).await;
}

/// Whether a namespace is one of these tests.
pub(crate) fn is_ours(namespace: &str) -> bool {
    namespace.starts_with("shop-")
}

/// Deletes what a test that failed has left: its pods take room.
pub(crate) async fn clear_namespaces(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let left = async || {
        let all = namespaces.list_metadata(&ListParams::default()).await.unwrap().items;
        all.iter().map(kube::ResourceExt::name_any).filter(|name| is_ours(name)).collect::<Vec<_>>()
    };
    for name in left().await {
        let _ = namespaces.delete(&name, &DeleteParams::default()).await;
    }
    wait("nothing is left of other tests", async || left().await.is_empty()).await;
}

/// Plays the kubelet of a member: its node is Ready, pods are bound to it, run at once, and end at once.
async fn play_kubelet(client: Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::all(client.clone());
    loop {
        let now = Timestamp::now().to_string();
        play_node(&nodes, CPU).await;
        let found = pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        for pod in found.iter().filter(|pod| is_ours(&pod.namespace().unwrap_or_default())) {
            let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
            let name = pod.name_any();
            let is_running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
            // What is gone meanwhile is gone.
            if pod.metadata.deletion_timestamp.is_some() {
                let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
            } else if pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_none() {
                let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
                    "target": { "apiVersion": "v1", "kind": "Node", "name": "played" } });
                let _: Result<Value, _> =
                    api.create_subresource("binding", &name, &PostParams::default(), &binding).await;
            } else if !is_running {
                let condition = |type_: &str| json!({ "type": type_, "status": "True", "lastTransitionTime": now });
                let status = json!({ "status": { "phase": "Running",
                    "conditions": [condition("PodScheduled"), condition("Ready"), condition("ContainersReady")] } });
                let _ = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

impl Spread {
    async fn set() -> Self {
        let (stage, servers) = Stage::with_three_members().await;
        let fleet = Fleet::on(stage, &[]).await;
        let mut members = Vec::new();
        let mut kubelets = JoinSet::new();
        for (server, region) in servers.into_iter().zip(REGIONS) {
            crate::membership::forget(&fleet.client(), &server.client).await;
            make_node(&server.client, region, CPU).await;
            kubelets.spawn(play_kubelet(server.client.clone()));
            clear_namespaces(&server.client).await;
            let name = fresh(region);
            let agent = Program::agent(&server.kubeconfig, &fleet.control_plane.init_file, &name, "pod-1");
            members.push(Member { name, server, _agent: agent });
        }
        let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
        for (member, region) in members.iter().zip(REGIONS) {
            wait("the member is Ready and has its region", async || {
                let Ok(cluster) = clusters.get(&member.name).await else { return false };
                let status = cluster.status.clone().unwrap_or_default();
                cluster.labels().get(REGION).map(String::as_str) == Some(region)
                    && find_condition(&status.conditions, "Ready").is_some_and(Condition::is_true)
            })
            .await;
        }
        // The control plane of the product has no controller of Deployments; that of the bed would write statuses of its own.
        fleet.stage.to_the_hub(|bed, hub| bed.kill(hub, "kube-controller-manager")).await;
        Self { fleet, members, policies: Vec::new(), _kubelets: kubelets }
    }

    fn names(&self) -> Vec<&str> {
        self.members.iter().map(|member| member.name.as_str()).collect()
    }

    /// A namespace with a Deployment `web` of so many replicas, and a policy that spreads it; returns the namespace.
    async fn spread(&mut self, what: &str, replicas: i32, cpu: &str, mut spec: Value) -> String {
        let namespace = format!("{}-{what}", self.fleet.namespace);
        let body = json!({ "metadata": { "name": namespace, "labels": { "team": namespace } } });
        let namespaces: Api<Namespace> = Api::all(self.fleet.client());
        namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        spec["namespaceSelector"] = json!({ "matchLabels": { "team": namespace } });
        let in_these = json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": self.names() });
        spec["clusterSelector"] = json!({ "matchExpressions": [in_these] });
        spec["resourceSelectors"] = json!({ "labelSelectors": [{}] });
        let policy = json!({ "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
            "metadata": { "name": namespace }, "spec": spec });
        let policies: Api<SchedulePolicy> = Api::all(self.fleet.client());
        policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
        self.policies.push(namespace.clone());
        let deployment = json!({
            "metadata": { "name": "web", "labels": { "app": "web" } },
            "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "web:1",
                    "envFrom": [{ "configMapRef": { "name": "conf" } }], "resources": { "requests": { "cpu": cpu } } }] } } },
        });
        let config = json!({ "metadata": { "name": "conf" }, "data": { "a": "1" } });
        let sources: Api<Deployment> = Api::namespaced(self.fleet.client(), &namespace);
        sources.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(self.fleet.client(), &namespace);
        maps.create(&PostParams::default(), &serde_json::from_value(config).unwrap()).await.unwrap();
        namespace
    }

    async fn scale(&self, namespace: &str, replicas: i32) {
        let change = json!({ "spec": { "replicas": replicas } });
        let sources: Api<Deployment> = Api::namespaced(self.fleet.client(), namespace);
        sources.patch("web", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }

    /// The replicas that each member's Deployment asks for; `None` where there is none.
    async fn asked(&self, namespace: &str) -> Vec<Option<i32>> {
        let mut found = Vec::new();
        for member in &self.members {
            let api: Api<Deployment> = Api::namespaced(member.server.client.clone(), namespace);
            let copy = api.get_opt("web").await.unwrap().filter(|copy| copy.metadata.deletion_timestamp.is_none());
            found.push(copy.and_then(|copy| copy.spec?.replicas));
        }
        found
    }

    /// Waits until the members ask for so many, and all of them run.
    async fn until(&self, namespace: &str, expected: [Option<i32>; 3]) {
        self.until_available(namespace, expected, expected.iter().flatten().sum()).await;
    }

    /// Waits until these members have all of it; the source counts what one of them has.
    async fn until_copied(&self, namespace: &str, members: [bool; 3]) {
        self.until_available(namespace, members.map(|has_it| has_it.then_some(2)), 2).await;
    }

    async fn until_available(&self, namespace: &str, expected: [Option<i32>; 3], all: i32) {
        wait(&format!("{namespace} is spread as {expected:?}"), async || self.asked(namespace).await == expected).await;
        let sources: Api<Deployment> = Api::namespaced(self.fleet.client(), namespace);
        wait(&format!("all {all} of {namespace} run"), async || {
            let status = sources.get("web").await.unwrap().status.unwrap_or_default();
            status.available_replicas == Some(all)
        })
        .await;
    }

    /// The image that each member runs.
    async fn images(&self, namespace: &str) -> Vec<String> {
        let mut found = Vec::new();
        for member in &self.members {
            let api: Api<Deployment> = Api::namespaced(member.server.client.clone(), namespace);
            let spec = api.get("web").await.unwrap().spec.unwrap().template.spec.unwrap();
            found.extend(spec.containers.into_iter().filter_map(|container| container.image));
        }
        found
    }

    /// Domains of a group: region, pods and reason.
    async fn domains(&self, namespace: &str) -> Vec<(String, Option<i64>, String)> {
        let is_it = |group: &ScheduleGroup| {
            let members = group.status.as_ref().map(|status| status.object_refs.as_slice()).unwrap_or_default();
            members.iter().any(|member| member.kind == "Deployment")
        };
        let group = self.fleet.groups(namespace).await.into_iter().find(is_it);
        let domains = group.and_then(|group| group.status).unwrap_or_default().domains;
        domains.into_iter().map(|row| (row.value, row.replicas, row.reason)).collect()
    }

    async fn drain(&self, at: usize, is_drained: bool) {
        let clusters: Api<fleetctl::api::Cluster> = Api::all(self.fleet.client());
        let taints = if is_drained { json!([{ "key": "maintenance", "effect": "NoExecute" }]) } else { json!([]) };
        let change = json!({ "spec": { "taints": taints } });
        clusters.patch(&self.members[at].name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }

    async fn edit(&self, policy: &str, constraints: Value) {
        let policies: Api<SchedulePolicy> = Api::all(self.fleet.client());
        let change = json!({ "spec": { "spreadConstraints": constraints } });
        policies.patch(policy, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }

    async fn end(self) {
        self.fleet.stage.to_the_hub(|bed, hub| bed.restart(hub, "kube-controller-manager")).await;
        let namespaces: Api<Namespace> = Api::all(self.fleet.client());
        for namespace in &self.policies {
            namespaces.delete(namespace, &DeleteParams::default()).await.unwrap();
        }
        for member in &self.members {
            let there: Api<Namespace> = Api::all(member.server.client.clone());
            for namespace in &self.policies {
                wait("its copies are gone", async || there.get_opt(namespace).await.unwrap().is_none()).await;
            }
        }
        self.fleet.end(&self.policies).await;
    }
}

fn shares(east: i64, north: i64, west: i64) -> Value {
    let split = [("east", east), ("north", north), ("west", west)];
    let split = split.map(|(value, share)| json!({ "topologyValue": value, "percentage": share }));
    json!({ "spreadMode": "Divide", "topologyKey": REGION, "percentageSplit": split })
}

#[tokio::test]
async fn every_way_to_spread_holds_over_three_clusters_of_two_versions() {
    let mut site = Spread::set().await;
    let mut split = shares(50, 30, 20);
    split["overrides"] = json!([{ "topologyValue": "west", "resources": [{ "apiVersion": "apps/v1", "kind": "Deployment",
        "namespace": format!("{}-split", site.fleet.namespace), "name": "web", "override": [{
            "fieldPath": "spec.template.spec.containers[name=web].image", "value": { "staticValue": "web:west" } }] }] }]);
    let split = site.spread("split", 10, "10m", json!({ "spreadConstraints": split })).await;
    let even = json!({ "spreadConstraints": { "spreadMode": "Divide", "topologyKey": REGION } });
    let even = site.spread("even", 7, "10m", even).await;
    let everywhere = json!({ "spreadConstraints": { "spreadMode": "Duplicate", "topologyKey": REGION } });
    let everywhere = site.spread("dup", 2, "10m", everywhere).await;
    let spill = json!({ "spreadConstraints": { "spreadMode": "Divide", "topologyKey": REGION },
        "orderedClusterSelector": { "matchExpressions": [{ "key": REGION, "operator": "In", "values": REGIONS }] } });
    let spill = site.spread("spill", 6, "5", spill).await;

    site.until(&split, [Some(5), Some(3), Some(2)]).await;
    assert_eq!(site.images(&split).await, ["web:1", "web:1", "web:west"]);
    let row = |region: &str, pods: i64| (region.to_owned(), Some(pods), "Placed".to_owned());
    assert_eq!(site.domains(&split).await, [row("east", 5), row("north", 3), row("west", 2)]);
    wait("seven in three parts", async || {
        let mut found: Vec<i32> = site.asked(&even).await.into_iter().flatten().collect();
        found.sort_unstable();
        found == [2, 2, 3]
    })
    .await;
    site.until_copied(&everywhere, [true; 3]).await;
    // Four pods of five CPUs have room in the first cluster, beside the others' hundredths.
    site.until(&spill, [Some(4), Some(2), None]).await;
    for (namespace, places) in [(&split, 3), (&everywhere, 3), (&spill, 2)] {
        let mut found = 0;
        for member in &site.members {
            let maps: Api<ConfigMap> = Api::namespaced(member.server.client.clone(), namespace);
            found += usize::from(maps.get_opt("conf").await.unwrap().is_some());
        }
        assert_eq!(found, places, "what belongs to {namespace} is where it is");
    }

    // More replicas: the shares grow, and nobody loses any.
    site.scale(&split, 20).await;
    site.until(&split, [Some(10), Some(6), Some(4)]).await;
    site.scale(&spill, 10).await;
    site.until(&spill, [Some(4), Some(4), Some(2)]).await;
    // Less: the last of the order first.
    site.scale(&spill, 5).await;
    site.until(&spill, [Some(4), Some(1), None]).await;

    // A drain: what is divided evenly and what is copied leaves; a share by percentage has no other cluster of its region.
    site.drain(2, true).await;
    wait("the even part leaves", async || {
        let found = site.asked(&even).await;
        found[2].is_none() && found.iter().flatten().sum::<i32>() == 7
    })
    .await;
    site.until_copied(&everywhere, [true, true, false]).await;
    site.until(&split, [Some(10), Some(6), Some(4)]).await;
    // Back: a copy comes at once; nothing that is divided moves by itself.
    site.drain(2, false).await;
    site.until_copied(&everywhere, [true; 3]).await;
    assert_eq!(site.asked(&even).await[2], None, "nothing flows back by itself");

    // Other shares are a decision of the policy; 0 % leaves no copy.
    site.edit(&split, shares(75, 25, 0)).await;
    site.until(&split, [Some(15), Some(5), None]).await;
    site.end().await;
}
