//! What `docs/placement.md` tells to do from day to day, with its own policies and commands; agents are played.

use super::documented::documented_policy;
use super::*;
use crate::simulated::nodes_and_pods;

const REGION: &str = "fleet-scheduler.io/cluster.region";

impl Fleet {
    /// A namespace of a team, with a Deployment `web` of a pod template; returns the policy of the page that places it.
    async fn shop(&self, what: &str, replicas: i32, template: Value) -> String {
        let namespace = format!("{}-{what}", self.namespace);
        let body = json!({ "metadata": { "name": namespace, "labels": { "team": namespace } } });
        let namespaces: Api<Namespace> = Api::all(self.client());
        namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        let deployment = json!({
            "metadata": { "name": "web" },
            "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
                "template": { "metadata": { "labels": { "app": "web" } }, "spec": template } },
        });
        let sources: Api<Deployment> = Api::namespaced(self.client(), &namespace);
        sources.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
        namespace
    }

    /// Clusters with a copy of the Deployment of a namespace, each with its replicas; without those that are being deleted.
    async fn webs(&self, namespace: &str, members: &[Simulated]) -> BTreeMap<String, i64> {
        let mut found = BTreeMap::new();
        for member in members {
            for copy in self.schedules(&member.name).list(&ListParams::default()).await.unwrap() {
                let source = &copy.spec.source_ref;
                let is_it = source.kind == "Deployment" && source.namespace.as_deref() == Some(namespace);
                if is_it && copy.metadata.deletion_timestamp.is_none() {
                    let manifest: Value = serde_json::from_str(&copy.spec.manifest).unwrap();
                    found.insert(member.name.clone(), manifest["spec"]["replicas"].as_i64().unwrap());
                }
            }
        }
        found
    }

    /// Plays all agents until the Deployment of a namespace is spread as is expected.
    async fn until_at(&self, namespace: &str, members: &[Simulated], expected: &[(&str, i64)]) {
        let expected: BTreeMap<String, i64> =
            expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        wait(&format!("{namespace} is at {expected:?}"), async || {
            for member in members {
                self.play(&member.name).await;
            }
            self.webs(namespace, members).await == expected
        })
        .await;
    }

    fn run_command(&self, program: &Path, arguments: &[&str]) {
        let answer =
            Command::new(program).args(arguments).env("KUBECONFIG", &self.stage.hub.kubeconfig).output().unwrap();
        assert!(answer.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&answer.stderr));
    }
}

fn container(requests: &Value) -> Value {
    json!([{ "name": "web", "image": "web:1", "resources": { "requests": requests, "limits": requests } }])
}

#[tokio::test]
async fn what_the_page_tells_to_do_from_day_to_day_does_what_it_says() {
    let fleet = Fleet::new().await;
    let members =
        [fleet.join(2).await, fleet.join(2).await, fleet.join(2).await, fleet.join(1).await, fleet.join(1).await];
    let [west, other, north, one, two] = members.each_ref().map(|member| member.name.as_str());
    let kubectl = fleet.stage.kubectl();
    // Regions of this test alone: other clusters of the control plane are lost members of other tests.
    let [eu_west, eu_north, eu_mid] = ["eu-west", "eu-north", "eu-mid"].map(fresh);
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let all = [
        (west, &eu_west, "blue"),
        (other, &eu_west, "green"),
        (north, &eu_north, "none"),
        (one, &eu_mid, "none"),
        (two, &eu_mid, "none"),
    ];
    for (name, region, colour) in all {
        let change = json!({ "spec": { "region": region } });
        clusters.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        fleet.run_command(&kubectl, &["label", "cluster", name, &format!("colour={colour}-{}", fleet.namespace)]);
        wait("its region is a label", async || clusters.get(name).await.unwrap().labels().get(REGION) == Some(region))
            .await;
    }
    // Nodes with GPUs are in the north alone.
    let (mut nodes, pods) = nodes_and_pods(2);
    for node in nodes.values_mut() {
        node.labels = std::sync::Arc::new([("gpu".to_owned(), "a100".to_owned())].into());
        node.allocatable.insert("nvidia.com/gpu".to_owned(), 4_000);
    }
    members[2].observed.set_nodes_and_pods(nodes, pods);

    let team = |what: &str| format!("{}-{what}", fleet.namespace);
    // The policies of the page, in the regions and colours of this test.
    let spec = |name: &str, what: &str| {
        let text = documented_policy(name, &team(what)).to_string();
        let text = text.replace("eu-west", &eu_west).replace("eu-north", &eu_north);
        serde_json::from_str::<Value>(&text.replace("\"blue\"", &format!("\"blue-{}\"", fleet.namespace))).unwrap()
    };
    let mut models = spec("shop-burst", "models");
    models
        .as_object_mut()
        .unwrap()
        .retain(|key, _| !["spreadConstraints", "orderedClusterSelector"].contains(&key.as_str()));
    let in_these = json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": [west, other, north] });
    models["clusterSelector"] = json!({ "matchExpressions": [in_these] });
    let mut policies = Vec::new();
    let mut shop = spec("shop", "drain");
    shop["clusterSelector"]["matchLabels"][REGION] = json!(eu_mid);
    for spec in [shop, spec("shop-colour", "colour"), spec("shop-burst", "burst"), models] {
        policies.push(fleet.policy_with(&spec).await);
    }
    let small = json!({ "containers": container(&json!({ "cpu": "100m" })) });
    let drain = fleet.shop("drain", 3, small.clone()).await;
    let colour = fleet.shop("colour", 3, small).await;
    // One has room on each node, and a cluster has two.
    let large = json!({ "containers": container(&json!({ "cpu": "9" })) });
    let burst = fleet.shop("burst", 2, large).await;
    let gpu = json!({ "nodeSelector": { "gpu": "a100" }, "containers": container(&json!({ "nvidia.com/gpu": "2" })) });
    let models = fleet.shop("models", 2, gpu).await;

    fleet.until_at(&models, &members, &[(north, 2)]).await;
    fleet.until_at(&colour, &members, &[(west, 3)]).await;
    wait("it is in one cluster of its region", async || fleet.webs(&drain, &members).await.len() == 1).await;
    let first = fleet.webs(&drain, &members).await.into_keys().next().unwrap();
    fleet.until_at(&drain, &members, &[(first.as_str(), 3)]).await;
    let filled = fleet.webs(&burst, &members).await;
    assert_eq!(filled.len(), 1, "{filled:?}: it has room in the first region");
    let home = filled.keys().next().unwrap().clone();

    // A peak, and after it.
    let sources: Api<Deployment> = Api::namespaced(fleet.client(), &burst);
    let scale = async |replicas: i32| {
        let change = json!({ "spec": { "replicas": replicas } });
        sources.patch("web", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    };
    scale(3).await;
    fleet.until_at(&burst, &members, &[(home.as_str(), 2), (north, 1)]).await;
    scale(2).await;
    fleet.until_at(&burst, &members, &[(home.as_str(), 2)]).await;

    // The other colour.
    let green =
        json!({ "spec": { "clusterSelector": { "matchLabels": { "colour": format!("green-{}", fleet.namespace) } } } });
    let patch = ["patch", "schedulepolicy", &policies[1], "--type", "merge", "--patch", &green.to_string()];
    fleet.run_command(&kubectl, &patch);
    fleet.until_at(&colour, &members, &[(other, 3)]).await;

    // Maintenance of a cluster.
    let fleetctl = Path::new(env!("CARGO_BIN_EXE_fleetctl"));
    let next = if first == one { two } else { one };
    let mut command = Command::new(fleetctl);
    command.args(["drain", "cluster", &first]).env("KUBECONFIG", &fleet.stage.hub.kubeconfig);
    let mut draining = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    fleet.until_at(&drain, &members, &[(next, 3)]).await;
    wait("the command ends", async || {
        fleet.play(&first).await;
        draining.try_wait().unwrap().is_some()
    })
    .await;
    let answer = draining.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(answer.status.success() && said.contains(" is drained"), "{said}");
    fleet.run_command(fleetctl, &["uncordon", "cluster", &first]);
    fleet.until_at(&drain, &members, &[(next, 3)]).await;

    let namespaces: Api<Namespace> = Api::all(fleet.client());
    for namespace in [drain, colour, burst, models] {
        namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
    }
    fleet.end(&policies).await;
}
