//! A real agent makes a real cluster a member: ready, lost, cut off, cloned, gone.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use fleetctl::api::Cluster;
use fleetctl::api::crd::condition::find_condition;
use fleetctl::api::labels::LABEL_PLACED_BY;
use fleetctl::api::lenient::Lenient;
use fleetctl::api::registration::{ANNOTATION_DRAIN, ANNOTATION_LEAVE, ANNOTATION_STATE, IDENTITY_SECRET};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tempfile::TempDir;

use crate::applicant::{ControlPlane, fresh};
use crate::support::{Program, Server, Stage, Wire, wait};

/// A hub with a scheduler, and a workload cluster that knows nothing of it.
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    pub(crate) control_plane: ControlPlane,
    pub(crate) member: Server,
    pub(crate) name: String,
}

impl Scene {
    pub(crate) async fn set() -> Self {
        Self::set_with("", &[]).await
    }

    /// With a scheduler that is configured so, and has further arguments.
    pub(crate) async fn set_with(config: &str, more: &[&str]) -> Self {
        let stage = Stage::hub().await;
        let member = stage.member().await;
        let control_plane = ControlPlane::start_with(&stage, config, more).await;
        forget(&stage.hub.client, &member.client).await;
        Self { stage, control_plane, member, name: fresh("member") }
    }

    pub(crate) fn agent(&self, identity: &str) -> Program {
        self.agent_by(&self.control_plane.init_file.clone(), identity)
    }

    pub(crate) fn agent_by(&self, init: &Path, identity: &str) -> Program {
        Program::agent(&self.member.kubeconfig, init, &self.name, identity)
    }

    /// A ready agent that reaches the hub by a wire that can be cut; with the folder of its init kubeconfig, which it reads
    /// again and again.
    pub(crate) async fn wired_agent(&self) -> (Wire, Program, TempDir) {
        let wire = Wire::to(&self.stage.hub.url, true).await;
        let folder = tempfile::tempdir().unwrap();
        let init = wire.init(&self.control_plane.init_file, &self.stage.hub.url, folder.path());
        let mut agent = self.agent_by(&init, "pod-1");
        agent.ready(Duration::from_secs(60)).await;
        (wire, agent, folder)
    }

    /// Two agents with one identity: the first works, the second waits.
    async fn twins(&self) -> (Program, Program) {
        let mut first = self.agent("pod-1");
        first.ready(Duration::from_secs(60)).await;
        self.until_ready().await;
        let mut second = self.agent("pod-2");
        wait("the second is passive", async || second.ask("/readyz").await.1.contains("standing by")).await;
        (first, second)
    }

    pub(crate) fn clusters(&self) -> Api<Cluster> {
        Api::all(self.stage.hub.client.clone())
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.member.client.clone(), "fleet")
    }

    /// Asks the agent to leave, as an uninstall does it.
    pub(crate) async fn ask_to_leave(&self) {
        self.annotate_leave(Some("true")).await;
    }

    /// Takes the request to leave back.
    pub(crate) async fn ask_to_stay(&self) {
        self.annotate_leave(None).await;
    }

    async fn annotate_leave(&self, value: Option<&str>) {
        let leave = json!({ "metadata": { "annotations": { ANNOTATION_LEAVE: value } } });
        self.secrets().patch(IDENTITY_SECRET, &PatchParams::default(), &Patch::Merge(&leave)).await.unwrap();
    }

    /// Waits for a word of the agent's on its registration.
    pub(crate) async fn until_said(&self, word: &str) {
        wait(&format!("the agent says {word}"), async || {
            let secret = self.secrets().get(IDENTITY_SECRET).await.unwrap();
            secret.annotations().get(ANNOTATION_STATE).is_some_and(|state| state.contains(word))
        })
        .await;
    }

    /// Status and reason of `Ready`.
    pub(crate) async fn readiness(&self) -> (String, String) {
        let cluster = self.clusters().get_opt(&self.name).await.unwrap();
        let conditions = cluster.and_then(|c| c.status).map(|s| s.conditions).unwrap_or_default();
        find_condition(&conditions, "Ready").map(|c| (c.status.clone(), c.reason.clone())).unwrap_or_default()
    }

    pub(crate) async fn until_ready(&self) -> Duration {
        wait("READY is True", async || self.readiness().await.0 == "True").await
    }

    pub(crate) async fn until_lost(&self) -> Duration {
        wait("READY is False", async || {
            self.readiness().await == ("False".to_owned(), "ClusterHeartbeatLost".to_owned())
        })
        .await
    }
}

/// Undoes what an earlier test left behind: the workload cluster is one and has one ID, and so has the hub's own.
pub(crate) async fn forget(hub: &Client, member: &Client) {
    let mut ids = Vec::new();
    for client in [hub, member] {
        ids.push(Api::<Namespace>::all(client.clone()).get("kube-system").await.unwrap().uid());
    }
    // First what still asks: the control plane looks at it every few seconds, and would make the Cluster anew, whose ID would
    // then keep this test's agent out.
    let requests: Api<CertificateSigningRequest> = Api::all(hub.clone());
    for request in requests.list(&ListParams::default()).await.unwrap() {
        let is_open = request.status.as_ref().is_none_or(|status| status.conditions.is_none());
        if is_open && request.name_any().starts_with("fleet-") {
            let _ = requests.delete(&request.name_any(), &DeleteParams::default()).await;
        }
    }
    let clusters: Api<Lenient<Cluster>> = Api::all(hub.clone());
    for cluster in clusters.list(&ListParams::default()).await.unwrap() {
        if ids.contains(&cluster.0.spec.cluster_id) {
            clusters.delete(&cluster.name_any(), &DeleteParams::default()).await.unwrap();
        }
    }
    let namespaces: Api<Namespace> = Api::all(member.clone());
    let ours: Namespace = serde_json::from_value(json!({ "metadata": { "name": "fleet" } })).unwrap();
    let _ = namespaces.create(&PostParams::default(), &ours).await;
    let secrets: Api<Secret> = Api::namespaced(member.clone(), "fleet");
    let _ = secrets.delete(IDENTITY_SECRET, &DeleteParams::default()).await;
    let nodes: Api<Node> = Api::all(member.clone());
    let _ = nodes.delete("fake", &DeleteParams::default()).await;
}

/// What a cluster has in the hub, by kind and name.
async fn traces(hub: &Client, name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let all = ListParams::default();
    let keep = |kind: &str, names: Vec<String>| -> Vec<String> {
        names.into_iter().filter(|n| n.contains(name)).map(|n| format!("{kind}/{n}")).collect()
    };
    let names = |items: Vec<String>| items;
    let clusters = Api::<Lenient<Cluster>>::all(hub.clone()).list(&all).await.unwrap();
    found.extend(keep("Cluster", names(clusters.iter().map(kube::ResourceExt::name_any).collect())));
    let spaces = Api::<Namespace>::all(hub.clone()).list(&all).await.unwrap();
    found.extend(keep("Namespace", names(spaces.iter().map(kube::ResourceExt::name_any).collect())));
    let roles = Api::<ClusterRole>::all(hub.clone()).list(&all).await.unwrap();
    found.extend(keep("ClusterRole", names(roles.iter().map(kube::ResourceExt::name_any).collect())));
    let bindings = Api::<ClusterRoleBinding>::all(hub.clone()).list(&all).await.unwrap();
    found.extend(keep("ClusterRoleBinding", names(bindings.iter().map(kube::ResourceExt::name_any).collect())));
    found
}

pub(crate) async fn add_fake_node(member: &Client) {
    let nodes: Api<Node> = Api::all(member.clone());
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "fake", "labels": { "topology.kubernetes.io/region": "r1", "topology.kubernetes.io/zone": "z1" } },
        "spec": { "providerID": "kind://docker/under/fake", "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] },
    }))
    .unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    // The node controller takes a node without a recent heartbeat for dead within seconds.
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let status = json!({ "status": {
        "capacity": { "cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2", "pods": "110" },
        "allocatable": { "cpu": "3900m", "memory": "8Gi", "nvidia.com/gpu": "2", "pods": "110" },
        "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now }],
    }});
    nodes.patch_status("fake", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

#[tokio::test]
async fn a_drain_is_asked_for_and_taken_back() {
    let scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    wait("the label of its copies is recorded", async || {
        scene.secrets().get(IDENTITY_SECRET).await.unwrap().annotations().contains_key(LABEL_PLACED_BY)
    })
    .await;
    let requested = async || scene.clusters().get(&scene.name).await.unwrap().status.unwrap().drain_requested;
    for (value, expected) in [(Some("true"), Some(true)), (None, None)] {
        let change = json!({ "metadata": { "annotations": { ANNOTATION_DRAIN: value } } });
        scene.secrets().patch(IDENTITY_SECRET, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        wait("the control plane knows", async || requested().await == expected).await;
    }
}

#[tokio::test]
async fn an_agent_makes_its_cluster_ready_and_leaves_without_a_trace() {
    let scene = Scene::set().await;
    add_fake_node(&scene.member.client).await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    let cluster = scene.clusters().get(&scene.name).await.unwrap();
    let spec = &cluster.spec;
    assert_eq!((spec.kubernetesversion.as_str(), spec.kubernetescluster.as_str()), ("1.36", "under"));
    assert_eq!((spec.provider.as_str(), spec.region.as_str(), spec.zone.as_str()), ("kind", "r1", "z1"));
    assert_eq!(cluster.labels()["fleet-scheduler.io/cluster.region"], "r1");
    let status = cluster.status.unwrap();
    let free = &status.available_resources.unwrap()["fake"];
    assert_eq!(
        (free["cpu"].as_str(), free["memory"].as_str(), free["nvidia.com/gpu"].as_str()),
        ("3900m", "8388608Ki", "2")
    );
    assert!(status.node_taints.unwrap()["fake"].iter().any(|t| t.key == "k" && t.value == "v"));

    scene.ask_to_leave().await;
    wait("the control plane has forgotten the cluster", async || {
        traces(&scene.stage.hub.client, &scene.name).await.is_empty()
    })
    .await;
    scene.until_said("\"Left\"").await;
    let log = agent.log();
    assert!(!log.contains("PRIVATE KEY") && !log.contains("BEGIN CERTIFICATE"), "secrets in the log");
}

#[tokio::test]
async fn a_lost_agent_is_noticed_in_forty_to_fifty_seconds_and_its_successor_is_ready_soon() {
    let scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    // A renewal may be up to eleven seconds old when the agent dies.
    tokio::time::sleep(Duration::from_secs(12)).await;
    agent.kill();
    let took = scene.until_lost().await;
    // The promise is 40 to 50 s on a quiet machine; the upper bound leaves room for a busy one.
    assert!(took > Duration::from_secs(38) && took < Duration::from_secs(90), "{took:?}");
    let healed = Instant::now();
    let mut agent = scene.agent("pod-2");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    assert!(healed.elapsed() < Duration::from_secs(60), "{:?}", healed.elapsed());
}

#[tokio::test]
async fn a_cut_link_is_noticed_and_heals_without_a_restart() {
    let scene = Scene::set().await;
    let (wire, mut agent, _folder) = scene.wired_agent().await;
    scene.until_ready().await;
    wire.set(false);
    scene.until_lost().await;
    let (code, body) = agent.ask("/readyz").await;
    assert!(code == 503 && body.contains("ControlPlaneUnreachable"), "{code} {body}");
    wire.set(true);
    let took = scene.until_ready().await;
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[tokio::test]
async fn whoever_installs_after_a_heartbeat_that_failed_hears_that_the_cluster_is_ready() {
    let scene = Scene::set().await;
    let (wire, mut agent, _folder) = scene.wired_agent().await;
    scene.until_said("\"Ready\"").await;
    wire.set(false);
    wait("the failure is noticed", async || agent.ask("/readyz").await.0 == 503).await;
    wire.set(true);
    agent.ready(Duration::from_secs(30)).await;
    // Connected is said after the answer of the probe, and Ready some seconds later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene.until_said("\"Ready\"").await;
}

#[tokio::test]
async fn of_two_agents_with_one_identity_one_works_and_the_other_waits() {
    let scene = Scene::set().await;
    let (mut first, mut second) = scene.twins().await;
    wait("the second finds the first", async || second.ask("/readyz").await.1.contains("standing by: pod-1")).await;
    let conflict = async || {
        let secret = scene.secrets().get(IDENTITY_SECRET).await.unwrap();
        secret.annotations().get("fleet-scheduler.io/identity-conflict").cloned().unwrap_or_default()
    };
    wait("the conflict is told", async || conflict().await.contains("pod-2 is standing by: pod-1")).await;
    assert_eq!(first.ask("/readyz").await.0, 200);
    // Ready as well, or a Deployment of two never were; but it says that it does nothing.
    let (code, body) = second.ask("/readyz").await;
    assert!(code == 200 && body.contains("standing by: pod-1"), "{code} {body}");
    assert!(second.log().contains("IdentityConflict"), "{}", second.log());
    assert!(second.ask("/metrics").await.1.contains("fleet_agent_identity_conflict 1"));
    // The word in the Secret that they share is that of the one that works.
    scene.until_said("\"Ready\"").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    scene.until_said("\"Ready\"").await;
    assert!(first.terminate().await.1);
    let took = wait("the second works", async || second.ask("/readyz").await.1.contains("connected")).await;
    assert!(took < Duration::from_secs(20), "a released Lease needs no waiting: {took:?}");
    assert_eq!(scene.readiness().await.0, "True", "READY did not flip");
}

#[tokio::test]
async fn the_twin_of_an_agent_that_died_takes_over_before_anybody_calls_the_cluster_lost() {
    let scene = Scene::set().await;
    let (first, mut second) = scene.twins().await;
    first.kill();
    let died = Instant::now();
    while !second.ask("/readyz").await.1.contains("connected") {
        assert_eq!(scene.readiness().await.0, "True", "lost after {:?}", died.elapsed());
        assert!(died.elapsed() < Duration::from_secs(60), "{}", second.log());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // Not before the Lease ran out: until then the first might have been alive.
    assert!(died.elapsed() > Duration::from_secs(28), "{:?}", died.elapsed());
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(scene.readiness().await.0, "True");
}

#[tokio::test]
async fn a_refused_agent_says_why_in_the_control_planes_words() {
    let scene = Scene::set().await;
    let name = scene.name.clone();
    crate::applicant::Applicant::new(&name).join(&scene.control_plane.init).await;
    let mut agent = scene.agent("pod-1");
    wait("the refusal is told", async || agent.ask("/readyz").await.1.contains("ClusterNameInUse")).await;
    let state =
        async || scene.secrets().get(IDENTITY_SECRET).await.unwrap().annotations().get(ANNOTATION_STATE).cloned();
    wait("the state names it", async || state().await.is_some_and(|text| text.contains("ClusterNameInUse"))).await;
    wait("it is logged", async || agent.log().contains(&format!("fleetctl delete cluster {name}"))).await;
}

#[tokio::test]
async fn a_restarted_scheduler_knows_everything_again_and_flips_nothing() {
    let mut scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    let before = scene.clusters().get(&scene.name).await.unwrap();
    let config = format!("agentEndpoint: {}", scene.stage.hub.url);
    let next = Program::scheduler(&scene.stage.hub.kubeconfig, &config, "two");
    let old = std::mem::replace(&mut scene.control_plane.scheduler, next);
    old.kill();
    for _ in 0..30 {
        assert_eq!(scene.readiness().await.0, "True");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let ready = |c: &Cluster| {
        let all = c.status.as_ref().unwrap().conditions.clone();
        find_condition(&all, "Ready").unwrap().last_transition_time.clone()
    };
    assert_eq!(ready(&scene.clusters().get(&scene.name).await.unwrap()), ready(&before));
}
