//! The scheduler places objects: Schedules, groups, labels, events and the status that comes back, on a real hub.

mod added_kinds;
mod attacks;
mod conditions;
mod copy_reasons;
mod costs;
mod day_to_day;
mod denied;
mod deposed;
mod documented;
mod fair;
mod follow;
mod late;
mod leaving;
mod measured;
mod moves;
mod once;
mod reasons;
mod refused;
mod served_later;
mod spread;
pub(crate) mod spread_ways;
mod upgrade;
mod waiting;
pub(crate) mod walks;
mod whole;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fleetctl::api::crd::condition::find_condition;
use fleetctl::api::labels::{FINALIZER_AGENT_CLEANUP, LABEL_TARGET_CLUSTER, cluster_namespace};
use fleetctl::api::{Condition, Schedule, ScheduleGroup, SchedulePolicy};
use fleetctl::daemon::metrics::Metrics;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::applicant::{ControlPlane, fresh};
use crate::membership::Scene;
use crate::simulated::Simulated;
use crate::support::{Stage, wait, wait_until_none};

/// A hub with a scheduler, and a namespace of its own for what is placed.
struct Fleet {
    control_plane: ControlPlane,
    stage: Stage,
    namespace: String,
    metrics: Metrics,
}

impl Fleet {
    async fn new() -> Self {
        Self::new_with(&[]).await
    }

    /// With further arguments of the scheduler.
    async fn new_with(more: &[&str]) -> Self {
        Self::on(Stage::hub().await, more).await
    }

    /// On a hub that is up.
    async fn on(stage: Stage, more: &[&str]) -> Self {
        let control_plane = ControlPlane::start_with(&stage, "", more).await;
        let namespace = fresh("shop");
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"team": namespace}}});
        let namespaces: Api<Namespace> = Api::all(stage.hub.client.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        Self { control_plane, stage, namespace, metrics: Metrics::default() }
    }

    fn client(&self) -> Client {
        self.stage.hub.client.clone()
    }

    async fn join(&self, nodes: usize) -> Simulated {
        let name = fresh("member");
        let member = Simulated::join(&self.control_plane.init, &name, nodes, &self.metrics).await;
        let clusters: Api<fleetctl::api::Cluster> = Api::all(self.client());
        wait("the member is Ready", async || {
            let status = clusters.get(&name).await.unwrap().status.unwrap_or_default();
            find_condition(&status.conditions, "Ready").is_some_and(Condition::is_true)
        })
        .await;
        member
    }

    /// A policy for the objects of this namespace, with a further spec.
    async fn policy(&self, more: Value) -> String {
        let mut spec = json!({"namespaceSelector": {"matchLabels": {"team": self.namespace}},
            "resourceSelectors": {"labelSelectors": [{}], "kinds": [{"group": "apps", "kind": "Deployment"}]}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.policy_with(&spec).await
    }

    /// A policy with this spec.
    async fn policy_with(&self, spec: &Value) -> String {
        let name = fresh("policy");
        let policy: SchedulePolicy = serde_json::from_value(json!({
            "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
            "metadata": {"name": name}, "spec": spec,
        }))
        .unwrap();
        let policies: Api<SchedulePolicy> = Api::all(self.client());
        policies.create(&PostParams::default(), &policy).await.unwrap();
        name
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client(), &self.namespace)
    }

    async fn deployment(&self, name: &str, replicas: i32, annotations: Value) {
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": annotations, "labels": {"app": name}},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]}}},
        });
        let body = serde_json::from_value(body).unwrap();
        self.deployments().create(&PostParams::default(), &body).await.unwrap();
    }

    fn schedules(&self, cluster: &str) -> Api<Schedule> {
        Api::namespaced(self.client(), &cluster_namespace(cluster))
    }

    /// Schedules of a cluster by kind and name of the source.
    async fn copies(&self, cluster: &str) -> BTreeMap<String, Schedule> {
        let found = self.schedules(cluster).list(&ListParams::default()).await.unwrap().items;
        let key = |schedule: &Schedule| format!("{} {}", schedule.spec.source_ref.kind, schedule.spec.source_ref.name);
        found.into_iter().map(|schedule| (key(&schedule), schedule)).collect()
    }

    /// The copy of an object in a cluster, when it is there.
    async fn copy(&self, cluster: &str, what: &str) -> Schedule {
        wait(&format!("{what} has a Schedule in {cluster}"), async || self.copies(cluster).await.contains_key(what))
            .await;
        self.copies(cluster).await.remove(what).unwrap()
    }

    /// Says as the agent does that a copy is applied, with this status of it.
    async fn report(&self, schedule: &Schedule, resource: Value, available: bool) {
        let now = Timestamp::now().to_string();
        let condition = |type_: &str, holds: bool| {
            json!({"type": type_, "status": if holds { "True" } else { "False" }, "reason": type_,
                "message": "", "lastTransitionTime": now})
        };
        let status = json!({"status": {
            "conditions": [condition("Applied", true), condition("Available", available)],
            "observedHash": schedule.spec.hash, "appliedGeneration": schedule.spec.source_ref.generation,
            "copyGeneration": resource["observedGeneration"], "resource": resource.to_string(),
        }});
        self.write_status(schedule, status).await;
    }

    /// Says that the copy of a deleted Schedule is gone.
    async fn report_deleted(&self, schedule: &Schedule) {
        let status = json!({"status": {"conditions": [
            {"type": "Deleted", "status": "True", "reason": "Deleted", "message": ""}]}});
        self.write_status(schedule, status).await;
    }

    /// Writes the status of a Schedule as its agent does: one that has gone meanwhile has none.
    async fn write_status(&self, schedule: &Schedule, status: Value) {
        let api: Api<Schedule> = Api::namespaced(self.client(), &schedule.namespace().unwrap());
        let written = api.patch_status(&schedule.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await;
        match written {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            written => drop(written.unwrap()),
        }
    }

    async fn groups(&self, policy: &str) -> Vec<ScheduleGroup> {
        let groups: Api<ScheduleGroup> = Api::all(self.client());
        let all = groups.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|group| group.spec.policy.name == policy).collect()
    }

    /// Deployments with a Schedule in these clusters, each with where it is.
    async fn placed(&self, clusters: &[String]) -> BTreeMap<String, Vec<String>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in clusters {
            for what in self.copies(name).await.into_keys().filter(|what| what.starts_with("Deployment ")) {
                found.entry(what).or_default().push(name.clone());
            }
        }
        found
    }

    async fn events(&self) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client(), &self.namespace);
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter_map(|event| event.reason).collect()
    }

    /// Removes what tests after this one must not meet.
    async fn end(&self, policies: &[String]) {
        for name in policies {
            let api: Api<SchedulePolicy> = Api::all(self.client());
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        let namespaces: Api<Namespace> = Api::all(self.client());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.unwrap();
    }
}

/// What `fleetctl why` says of an object, when it ends with this code.
fn why(kubeconfig: &Path, object: &str, namespace: &str, code: i32) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
    command.args(["why", object, "-n", namespace, "-o", "json"]).env("KUBECONFIG", kubeconfig);
    let answer = command.output().unwrap();
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert_eq!(answer.status.code(), Some(code), "{text}{}", String::from_utf8_lossy(&answer.stderr));
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_deployment_goes_where_its_policy_says_and_its_status_comes_back() {
    let fleet = Fleet::new().await;
    let (west, east) = (fleet.join(2).await, fleet.join(2).await);
    let only = json!({"clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": east.name}}});
    let policy = fleet.policy(only).await;
    fleet.deployment("web", 3, json!({})).await;
    let copy = fleet.copy(&east.name, "Deployment web").await;
    assert_eq!(copy.finalizers(), [FINALIZER_AGENT_CLEANUP]);
    let manifest: Value = serde_json::from_str(&copy.spec.manifest).unwrap();
    assert_eq!((manifest["spec"]["replicas"].as_i64(), manifest["metadata"].get("uid")), (Some(3), None));
    fleet.copy(&east.name, &format!("Namespace {}", fleet.namespace)).await;
    assert!(!fleet.copies(&west.name).await.contains_key(&format!("Namespace {}", fleet.namespace)));
    wait("the source has the label", async || {
        fleet.deployments().get("web").await.unwrap().labels().get(LABEL_TARGET_CLUSTER) == Some(&east.name)
    })
    .await;
    let [group] = &fleet.groups(&policy).await[..] else { panic!("one group") };
    let status = group.status.clone().unwrap();
    assert_eq!((status.scheduled, &status.target_clusters), (true, &vec![east.name.clone()]));
    assert_eq!(group.labels().get(LABEL_TARGET_CLUSTER), Some(&east.name));
    let rejected = status.clusters.iter().find(|row| row.name == west.name).unwrap();
    assert_eq!(rejected.reason, "SelectorMismatch");
    wait("both events are there", async || {
        let events = fleet.events().await;
        ["SchedulePolicyMatched", "AddedToScheduleGroup"].iter().all(|reason| events.contains(&(*reason).to_owned()))
    })
    .await;

    let ready = json!({"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
        "observedGeneration": 1, "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}]});
    fleet.report(&copy, ready, true).await;
    wait("the source is ready", async || {
        let status = fleet.deployments().get("web").await.unwrap().status.unwrap_or_default();
        status.ready_replicas == Some(3) && status.observed_generation == Some(1)
    })
    .await;
    wait_until_none("groups that are not available", async || {
        let is_available = |group: &ScheduleGroup| {
            let status = group.status.clone().unwrap_or_default();
            find_condition(&status.conditions, "Available").is_some_and(Condition::is_true)
        };
        let groups = fleet.groups(&policy).await;
        let copies = fleet.copies(&east.name).await;
        if groups.len() == 1 && is_available(&groups[0]) { Vec::new() } else { vec![json!([groups, copies])] }
    })
    .await;

    let scale = json!({"spec": {"replicas": 5}});
    fleet.deployments().patch("web", &PatchParams::default(), &Patch::Merge(&scale)).await.unwrap();
    wait("the copy is scaled", async || {
        fleet.copy(&east.name, "Deployment web").await.spec.manifest.contains("\"replicas\":5")
    })
    .await;

    fleet.deployments().delete("web", &DeleteParams::default()).await.unwrap();
    let leaving = async || fleet.copy(&east.name, "Deployment web").await.metadata.deletion_timestamp.is_some();
    wait("the Schedule is being deleted", leaving).await;
    fleet.report_deleted(&copy).await;
    wait("the Schedule is gone", async || !fleet.copies(&east.name).await.contains_key("Deployment web")).await;
    wait("the group is gone", async || fleet.groups(&policy).await.is_empty()).await;
    fleet.end(&[policy]).await;
}

/// The whole way, with the real agent and a real member: what a user does with plain kubectl, and what is left of it.
#[tokio::test]
async fn what_is_placed_runs_in_the_member_and_ends_with_its_source() {
    let scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    let hub = scene.stage.hub.client.clone();
    let (place, policy) = (fresh("shop"), fresh("policy"));
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place, "labels": {"team": place}}});
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
    let kinds = json!([{"group": "", "kind": "ConfigMap"}, {"group": "", "kind": "Secret"}]);
    let spec = json!({"namespaceSelector": {"matchLabels": {"team": place}},
        "resourceSelectors": {"labelSelectors": [{}], "kinds": kinds}, "groupBy": {"labelKey": "app"},
        "clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.name}}});
    let body = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
        "metadata": {"name": policy}, "spec": spec});
    let policies: Api<SchedulePolicy> = Api::all(hub.clone());
    policies.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();

    let meta = |name: &str| json!({"name": name, "namespace": place, "labels": {"app": "web"}});
    let config: ConfigMap =
        serde_json::from_value(json!({"metadata": meta("page"), "data": {"index.html": "it runs"}})).unwrap();
    let secret: Secret =
        serde_json::from_value(json!({"metadata": meta("key"), "stringData": {"k": "hunter2"}})).unwrap();
    Api::<ConfigMap>::namespaced(hub.clone(), &place).create(&PostParams::default(), &config).await.unwrap();
    Api::<Secret>::namespaced(hub.clone(), &place).create(&PostParams::default(), &secret).await.unwrap();

    let member = scene.member.client.clone();
    let there: Api<Secret> = Api::namespaced(member.clone(), &place);
    wait("the Secret is in the member", async || there.get_opt("key").await.unwrap().is_some()).await;
    assert_eq!(there.get("key").await.unwrap().data.unwrap()["k"].0, b"hunter2");
    let schedules: Api<Schedule> = Api::namespaced(hub.clone(), &cluster_namespace(&scene.name));
    let all = schedules.list(&ListParams::default()).await.unwrap().items;
    assert!(all.iter().all(|one| !one.spec.manifest.contains("aHVudGVyMg==")), "no data in a Schedule");
    let maps: Api<ConfigMap> = Api::namespaced(member.clone(), &place);
    wait("the ConfigMap is in the member", async || maps.get_opt("page").await.unwrap().is_some()).await;

    let edit = json!({"data": {"index.html": "it still runs"}});
    let sources: Api<ConfigMap> = Api::namespaced(hub.clone(), &place);
    sources.patch("page", &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    wait("the edit is in the member", async || {
        maps.get("page").await.unwrap().data.unwrap()["index.html"] == "it still runs"
    })
    .await;

    namespaces.delete(&place, &DeleteParams::default()).await.unwrap();
    wait("the member's namespace is gone", async || {
        Api::<Namespace>::all(member.clone()).get_opt(&place).await.unwrap().is_none()
    })
    .await;
    wait_until_none("Schedules", async || schedules.list(&ListParams::default()).await.unwrap().items).await;
    policies.delete(&policy, &DeleteParams::default()).await.unwrap();
    let groups: Api<ScheduleGroup> = Api::all(hub);
    wait_until_none("groups", async || {
        let all = groups.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|group| group.spec.policy.name == policy).collect()
    })
    .await;
}

#[tokio::test]
async fn what_has_no_room_says_so_and_is_placed_when_a_cluster_joins() {
    let fleet = Fleet::new().await;
    let small = fleet.join(2).await;
    let wide = fresh("wide");
    let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": [small.name, wide]});
    let policy = fleet.policy(json!({"clusterSelector": {"matchExpressions": [in_these]}})).await;
    fleet.deployment("web", 400, json!({})).await;
    wait("the group says NoFit", async || {
        let [group] = &fleet.groups(&policy).await[..] else { return false };
        let status = group.status.clone().unwrap_or_default();
        find_condition(&status.conditions, "Scheduled").is_some_and(|condition| condition.reason == "NoFit")
    })
    .await;
    let [group] = &fleet.groups(&policy).await[..] else { panic!("one group") };
    let status = group.status.clone().unwrap();
    let message = find_condition(&status.conditions, "Scheduled").unwrap().message.clone();
    assert!(message.contains("Insufficient cpu") && message.contains("requested"), "{message}");
    assert_eq!(status.clusters.iter().find(|row| row.name == small.name).unwrap().reason, "Insufficient cpu");
    assert!(fleet.copies(&small.name).await.is_empty());
    wait("the Deployment has the event", async || fleet.events().await.contains(&"NotPlaced".to_owned())).await;
    let policies: Api<SchedulePolicy> = Api::all(fleet.client());
    wait("the policy counts it", async || {
        policies.get(&policy).await.unwrap().status.is_some_and(|status| status.unscheduled_groups == Some(1))
    })
    .await;

    let _wide = Simulated::join(&fleet.control_plane.init, &wide, 20, &fleet.metrics).await;
    fleet.copy(&wide, "Deployment web").await;
    wait("the group is placed", async || {
        let [group] = &fleet.groups(&policy).await[..] else { return false };
        group.status.clone().is_some_and(|status| status.scheduled && status.target_clusters == [wide.clone()])
    })
    .await;
    fleet.end(&[policy]).await;
}

#[tokio::test]
async fn an_annotation_moves_an_object_without_a_gap_and_a_policy_that_goes_deletes_nothing() {
    let fleet = Fleet::new().await;
    let (west, east) = (fleet.join(2).await, fleet.join(2).await);
    fleet.deployment("direct", 1, json!({"fleet-scheduler.io/cluster": west.name})).await;
    let first = fleet.copy(&west.name, "Deployment direct").await;
    fleet.report(&first, json!({"replicas": 1, "availableReplicas": 1, "observedGeneration": 1}), true).await;
    let there = json!({"metadata": {"annotations": {"fleet-scheduler.io/cluster": east.name}}});
    fleet.deployments().patch("direct", &PatchParams::default(), &Patch::Merge(&there)).await.unwrap();
    let second = fleet.copy(&east.name, "Deployment direct").await;
    let old = fleet.copies(&west.name).await.remove("Deployment direct").expect("it stays for now");
    assert!(old.metadata.deletion_timestamp.is_none(), "its successor is not available yet");
    fleet.report(&second, json!({"replicas": 1, "availableReplicas": 1, "observedGeneration": 1}), true).await;
    wait("the old Schedule goes", async || {
        let old = fleet.copies(&west.name).await.remove("Deployment direct");
        old.is_some_and(|old| old.metadata.deletion_timestamp.is_some())
    })
    .await;
    fleet.report_deleted(&old).await;
    wait("it is gone", async || !fleet.copies(&west.name).await.contains_key("Deployment direct")).await;

    let only = json!({"clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": west.name}}});
    let policy = fleet.policy(only).await;
    fleet.deployment("web", 2, json!({})).await;
    let copy = fleet.copy(&west.name, "Deployment web").await;
    let policies: Api<SchedulePolicy> = Api::all(fleet.client());
    policies.delete(&policy, &DeleteParams::default()).await.unwrap();
    wait("the group says PolicyGone", async || {
        let [group] = &fleet.groups(&policy).await[..] else { return false };
        let status = group.status.clone().unwrap_or_default();
        find_condition(&status.conditions, "Scheduled").is_some_and(|condition| condition.reason == "PolicyGone")
    })
    .await;
    // Edits reach the copy all the same.
    let scale = json!({"spec": {"replicas": 3}});
    fleet.deployments().patch("web", &PatchParams::default(), &Patch::Merge(&scale)).await.unwrap();
    wait("the copy is scaled", async || {
        fleet.copy(&west.name, "Deployment web").await.spec.manifest.contains("\"replicas\":3")
    })
    .await;
    assert_eq!(fleet.copy(&west.name, "Deployment web").await.uid(), copy.uid());
    fleet.end(&[]).await;
}

#[tokio::test]
async fn a_drained_cluster_is_left_and_its_namespaces_go_last() {
    let fleet = Fleet::new().await;
    let members = [fleet.join(2).await, fleet.join(2).await];
    let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
    let policy = fleet.policy(json!({"clusterSelector": {"matchExpressions": [in_these]}})).await;
    fleet.deployment("web", 1, json!({})).await;
    let target = async || fleet.deployments().get("web").await.unwrap().labels().get(LABEL_TARGET_CLUSTER).cloned();
    wait("it is placed", async || target().await.is_some()).await;
    let from = target().await.unwrap();
    let to = names.iter().find(|name| **name != from).unwrap();
    let available = json!({"replicas": 1, "availableReplicas": 1, "observedGeneration": 1});
    let first = fleet.copy(&from, "Deployment web").await;
    fleet.report(&first, available.clone(), true).await;

    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let drain = json!({"status": {"drainRequested": true}});
    clusters.patch_status(&from, &PatchParams::default(), &Patch::Merge(&drain)).await.unwrap();
    let second = fleet.copy(to, "Deployment web").await;
    let old = fleet.copies(&from).await.remove("Deployment web").expect("it stays for now");
    assert!(old.metadata.deletion_timestamp.is_none(), "its successor is not available yet");
    fleet.report(&second, available, true).await;
    let is_leaving = async |what: &str| {
        let copy = fleet.copies(&from).await.remove(what);
        copy.is_some_and(|copy| copy.metadata.deletion_timestamp.is_some())
    };
    wait("the old Schedule goes", async || is_leaving("Deployment web").await).await;
    let namespace = format!("Namespace {}", fleet.namespace);
    assert!(!is_leaving(&namespace).await, "something is in it");
    fleet.report_deleted(&old).await;
    wait("the namespace follows", async || is_leaving(&namespace).await).await;
    let there = fleet.copy(to, &namespace).await;
    assert!(there.metadata.deletion_timestamp.is_none(), "where it runs it stays");
    fleet.end(&[policy]).await;
}

/// Places while its scheduler is killed again and again; everything is placed, once, and nothing is lost.
async fn placed_while_killed(count: usize, kills: usize) {
    let mut fleet = Fleet::new().await;
    let members = [fleet.join(20).await, fleet.join(20).await, fleet.join(20).await];
    let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    // The last is kept free at first, so that it is the best for whoever forgets where things are.
    let full = json!({"spec": {"taints": [{"key": "example.com/full", "effect": "NoSchedule"}]}});
    clusters.patch(&names[2], &PatchParams::default(), &Patch::Merge(&full)).await.unwrap();
    let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
    let policy = fleet.policy(json!({"clusterSelector": {"matchExpressions": [in_these]}})).await;
    let mut created = 0;
    for kill in 0..=kills {
        let before = created;
        for at in (kill..count).step_by(kills + 1) {
            fleet.deployment(&format!("web-{at}"), 1, json!({})).await;
            created += 1;
        }
        if kill < kills {
            // Somewhere in the middle of its writes, each time elsewhere.
            let done = before + rand::random_range(1..=created - before);
            wait("some are placed", async || fleet.placed(&names).await.len() >= done).await;
            if kill == 0 {
                let free = json!({"spec": {"taints": []}});
                clusters.patch(&names[2], &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
            }
            fleet.control_plane.kill_scheduler(&fleet.stage).await;
        }
    }
    wait("each Deployment has a Schedule", async || fleet.placed(&names).await.len() == count).await;
    wait("each Deployment has its label", async || {
        let all = fleet.deployments().list(&ListParams::default()).await.unwrap().items;
        all.iter().all(|one| one.labels().contains_key(LABEL_TARGET_CLUSTER))
    })
    .await;
    for (what, clusters) in fleet.placed(&names).await {
        let [cluster] = &clusters[..] else { panic!("{what} is placed twice: {clusters:?}") };
        let source = fleet.deployments().get(what.trim_start_matches("Deployment ")).await.unwrap();
        assert_eq!(source.labels().get(LABEL_TARGET_CLUSTER), Some(cluster), "{what}");
    }
    wait("each has its group", async || {
        let groups = fleet.groups(&policy).await;
        groups.len() == count && groups.iter().all(|group| group.status.as_ref().is_some_and(|status| status.scheduled))
    })
    .await;
    fleet.end(&[policy]).await;
}

#[tokio::test]
async fn a_scheduler_that_is_killed_places_everything_once() {
    placed_while_killed(40, 1).await;
}

mod exhaustive {
    use super::placed_while_killed;

    #[tokio::test]
    async fn a_scheduler_that_is_killed_at_twenty_points_places_everything_once() {
        placed_while_killed(200, 20).await;
    }
}
