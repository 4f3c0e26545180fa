//! Copies: a Schedule that is made by hand in the hub, the real agent, and a real member API server.

mod answers;
mod drift;
mod faults;
mod moves;
mod pods;
mod pull_secrets;
pub(crate) mod rights;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fleetctl::api::Schedule;
use fleetctl::api::crd::condition::find_condition;
use fleetctl::api::labels::{ANNOTATION_SCHEDULE_UID, FINALIZER_AGENT_CLEANUP, LABEL_PLACED_BY};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::applicant::fresh;
use crate::membership::Scene;
use crate::support::{Program, wait};

/// A member with an agent, and a namespace of its own in it.
struct Site {
    scene: Scene,
    agent: Option<Program>,
    /// Namespace in the member.
    place: String,
    placed_by: String,
}

impl Site {
    async fn set() -> Self {
        Self::set_with(&[]).await
    }

    async fn set_with(arguments: &[&str]) -> Self {
        let scene = Scene::set().await;
        let uid =
            Api::<Namespace>::all(scene.stage.hub.client.clone()).get("kube-system").await.unwrap().uid().unwrap();
        let mut site = Self { scene, agent: None, place: fresh("copies"), placed_by: uid[..8].to_owned() };
        site.start(arguments).await;
        site
    }

    async fn start(&mut self, arguments: &[&str]) {
        let member = self.scene.member.kubeconfig.clone();
        self.start_by(&member, arguments).await;
    }

    async fn start_by(&mut self, member: &Path, arguments: &[&str]) {
        let init = self.scene.control_plane.init_file.clone();
        let mut agent = Program::agent_with(member, &init, &self.scene.name, "pod-1", arguments);
        agent.ready(Duration::from_secs(60)).await;
        self.agent = Some(agent);
    }

    fn member(&self) -> Client {
        self.scene.member.client.clone()
    }

    fn in_place<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.member(), &self.place)
    }

    async fn make_place(&self) {
        let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": self.place } })).unwrap();
        Api::all(self.member()).create(&PostParams::default(), &namespace).await.unwrap();
    }

    fn schedules(&self) -> Api<Schedule> {
        Api::namespaced(self.scene.stage.hub.client.clone(), &format!("fleet-c-{}", self.scene.name))
    }

    /// Creates a Schedule, or changes it.
    async fn schedule(&self, name: &str, manifest: &Value, policy: Value) {
        self.schedule_of("source-1", name, manifest, policy).await;
    }

    /// The same of a source with some UID.
    async fn schedule_of(&self, source: &str, name: &str, manifest: &Value, policy: Value) {
        let text = manifest.to_string();
        let [kind, version] = ["kind", "apiVersion"].map(|key| manifest[key].as_str().unwrap().to_owned());
        let schedule = json!({
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
            "metadata": { "name": name, "finalizers": [FINALIZER_AGENT_CLEANUP, "fleet-scheduler.io/test-looks"] },
            "spec": {
                "hash": fleetctl::api::util::digest::short_digest(text.as_bytes()), "manifest": text, "applyPolicy": policy,
                // Of a kind that the scheduler does not watch: it cannot know that there is no such source.
                "sourceRef": { "version": version, "kind": format!("Test{kind}"), "name": name, "uid": source, "generation": 7 },
            },
        });
        let params = PatchParams::apply("test").force();
        self.schedules().patch(name, &params, &Patch::Apply(&schedule)).await.unwrap();
    }

    /// Status, reason and message of a condition.
    async fn condition(&self, name: &str, type_: &str) -> (String, String, String) {
        let status = self.schedules().get(name).await.unwrap().status.unwrap_or_default();
        let found = find_condition(&status.conditions, type_);
        found.map(|c| (c.status.clone(), c.reason.clone(), c.message.clone())).unwrap_or_default()
    }

    /// Waits for a reason of `Applied`; returns its message.
    async fn until(&self, name: &str, reason: &str) -> String {
        wait(&format!("{name} is {reason}"), async || self.condition(name, "Applied").await.1 == reason).await;
        self.condition(name, "Applied").await.2
    }

    /// Deletes a Schedule; returns the reason and message of `Deleted`. The scheduler strips its own finalizer; that of the
    /// test keeps the Schedule until it was looked at.
    async fn delete(&self, name: &str) -> (String, String) {
        self.schedules().delete(name, &DeleteParams::default()).await.unwrap();
        self.released(name).await
    }

    async fn released(&self, name: &str) -> (String, String) {
        wait(&format!("{name} is deleted"), async || self.condition(name, "Deleted").await.0 == "True").await;
        let (_, reason, message) = self.condition(name, "Deleted").await;
        let none = json!({ "metadata": { "finalizers": null } });
        self.schedules().patch(name, &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
        (reason, message)
    }

    fn config_map(&self, name: &str, data: &Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": self.place }, "data": data })
    }

    fn deployment(&self, name: &str, replicas: i64) -> Value {
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": self.place },
            "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } },
                "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } } })
    }

    /// Deletes the namespace in the member.
    async fn leave(self) {
        let _ = Api::<Namespace>::all(self.member()).delete(&self.place, &DeleteParams::default()).await;
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with an optional field")]
fn data(pairs: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
    Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

#[tokio::test]
async fn a_copy_is_applied_reported_edited_and_deleted() {
    let site = Site::set().await;
    // Before its namespace, which is a copy of its own.
    site.schedule("web", &site.deployment("web", 2), json!({})).await;
    let message = site.until("web", "NamespaceMissing").await;
    assert!(message.contains(&site.place), "{message}");
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": site.place } });
    site.schedule("place", &namespace, json!({})).await;
    site.until("web", "Applied").await;

    // An annotation makes a new generation of a Deployment, and the same copy; its rollout waits to hear of it.
    for generation in [8, 7] {
        let edit = json!({ "spec": { "sourceRef": { "generation": generation } } });
        site.schedules().patch("web", &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
        wait(&format!("generation {generation} is reported"), async || {
            let schedule = site.schedules().get("web").await.unwrap();
            schedule.status.is_some_and(|status| status.applied_generation == Some(generation))
        })
        .await;
    }

    let deployments: Api<Deployment> = site.in_place();
    let copy = deployments.get("web").await.unwrap();
    let schedule = site.schedules().get("web").await.unwrap();
    assert_eq!(copy.labels()[LABEL_PLACED_BY], site.placed_by);
    assert_eq!(copy.annotations()[ANNOTATION_SCHEDULE_UID], schedule.uid().unwrap());
    let status = schedule.status.unwrap();
    assert_eq!((status.observed_hash.as_ref(), status.applied_generation), (Some(&schedule.spec.hash), Some(7)));
    assert_eq!((status.applied_uid, status.source_uid.as_deref()), (copy.uid(), Some("source-1")));

    // No kubelet runs its pods, so they are made ready by hand; the controllers there do the rest.
    let pods: Api<Pod> = site.in_place();
    wait("its pods are there", async || pods.list(&ListParams::default()).await.unwrap().items.len() == 2).await;
    let ready = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    }
    wait("the copy is reported as available", async || site.condition("web", "Available").await.0 == "True").await;
    let resource = site.schedules().get("web").await.unwrap().status.unwrap().resource.unwrap();
    let resource: serde_json::Value = serde_json::from_str(&resource).unwrap();
    assert_eq!(resource["readyReplicas"], 2);

    site.schedule("web", &site.deployment("web", 3), json!({})).await;
    wait("the edit arrives", async || {
        let status = site.schedules().get("web").await.unwrap().status.unwrap();
        deployments.get("web").await.unwrap().spec.unwrap().replicas == Some(3) && status.copy_generation == Some(2)
    })
    .await;

    // The namespace waits for what is in it.
    site.schedules().delete("place", &DeleteParams::default()).await.unwrap();
    wait("it waits", async || site.condition("place", "Deleted").await.2.contains("Deployment")).await;
    assert_eq!(site.delete("web").await.0, "Deleted");
    assert!(deployments.get_opt("web").await.unwrap().is_none());
    assert_eq!(site.released("place").await.0, "Deleted");
    let left = Api::<Namespace>::all(site.member()).get_opt(&site.place).await.unwrap();
    assert!(left.is_none(), "it is said when it is gone, and not before");
    site.leave().await;
}

#[tokio::test]
async fn a_status_that_changes_alone_is_reported() {
    let site = Site::set().await;
    site.make_place().await;
    let manifest = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": site.place },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    site.schedule("web", &manifest, json!({})).await;
    let reported = async || site.schedules().get("web").await.unwrap().status?.resource;
    wait("the copy is reported without an address", async || reported().await.is_some()).await;
    let address = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } } });
    let services: Api<Service> = site.in_place();
    services.patch_status("web", &PatchParams::default(), &Patch::Merge(&address)).await.unwrap();
    wait("its address is reported", async || reported().await.is_some_and(|text| text.contains("192.0.2.7"))).await;
    site.delete("web").await;
    site.leave().await;
}

#[tokio::test]
async fn a_foreign_object_is_left_alone_until_it_may_be_adopted() {
    let mut site = Site::set().await;
    site.make_place().await;
    let maps: Api<ConfigMap> = site.in_place();
    let foreign = site.config_map("theirs", &json!({ "a": "1", "b": "2" }));
    maps.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    let manifest = site.config_map("theirs", &json!({ "a": "ours" }));
    site.schedule("theirs", &manifest, json!({})).await;
    let message = site.until("theirs", "AlreadyExists").await;
    assert!(message.contains("fleet-scheduler.io/adopt=true"), "{message}");
    let found = maps.get("theirs").await.unwrap();
    assert!(found.data == data(&[("a", "1"), ("b", "2")]) && found.labels().is_empty());
    // A Schedule that is deleted leaves it, too.
    assert_eq!(site.delete("theirs").await.0, "Deleted");
    assert_eq!(maps.get("theirs").await.unwrap().uid(), found.uid());

    site.schedule("theirs", &manifest, json!({ "adopt": true, "onDelete": "Keep" })).await;
    site.until("theirs", "Applied").await;
    let adopted = maps.get("theirs").await.unwrap();
    assert_eq!((adopted.uid(), adopted.data.clone()), (found.uid(), data(&[("a", "ours"), ("b", "2")])));
    assert_eq!(adopted.labels()[LABEL_PLACED_BY], site.placed_by);
    // And is kept, without our marks.
    assert_eq!(site.delete("theirs").await.0, "Kept");
    let kept = maps.get("theirs").await.unwrap();
    assert!(kept.uid() == found.uid() && kept.labels().is_empty() && kept.annotations().is_empty(), "{kept:?}");

    // Without `keep` it is kept too, by an agent that began in between: what it had before, and what others have added.
    let manifest = site.config_map("theirs", &json!({ "a": "new", "mine": "1" }));
    site.schedule("theirs", &manifest, json!({ "adopt": true })).await;
    site.until("theirs", "Applied").await;
    let more = json!({ "data": { "c": "3" } });
    maps.patch("theirs", &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
    drop(site.agent.take());
    site.start(&[]).await;
    site.schedule(
        "theirs",
        &site.config_map("theirs", &json!({ "a": "newer", "mine": "1" })),
        json!({ "adopt": true }),
    )
    .await;
    wait("the edit arrives", async || maps.get("theirs").await.unwrap().data.unwrap()["a"] == "newer").await;
    assert_eq!(site.delete("theirs").await.0, "Kept");
    let kept = maps.get("theirs").await.unwrap();
    assert_eq!((kept.uid(), kept.data.clone()), (found.uid(), data(&[("a", "newer"), ("b", "2"), ("c", "3")])));
    assert!(kept.labels().is_empty() && kept.annotations().is_empty(), "{kept:?}");
    site.leave().await;
}
