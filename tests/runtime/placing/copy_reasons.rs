//! Every reason that a copy has not to be as its source says, provoked once: the Schedule, the event on the source and
//! `fleetctl why` name it alike.

use super::*;
use crate::copies::rights;
use crate::support::Program;

/// Sources of two namespaces, which a policy copies to one real workload cluster, edited on the way.
struct Site {
    scene: Scene,
    agent: Option<Program>,
    place: String,
    /// A namespace that is being deleted in the workload cluster.
    ending: String,
    policy: String,
}

fn map(namespace: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
        "data": {"a": value}})
}

impl Site {
    fn hub(&self) -> Client {
        self.scene.stage.hub.client.clone()
    }

    fn member(&self) -> Client {
        self.scene.member.client.clone()
    }

    /// Edits of the policy, each a kind, a name, a path and a value.
    fn overrides(&self) -> Value {
        let edit = |version: &str, kind: &str, name: &str, path: &str, value: Value| {
            json!({"apiVersion": version, "kind": kind, "name": name, "namespace": self.place,
                "override": [{"fieldPath": path, "value": {"staticValue": value}}]})
        };
        json!([{"topologyValue": self.scene.name, "resources": [
            edit("apps/v1", "Deployment", "invalid", "spec.replicas", json!(-1)),
            edit("apps/v1", "Deployment", "newer", "spec.fromTheFuture", json!({"a": 1})),
            edit("apps/v1", "Deployment", "edited", "spec.template.spec.containers[name=other].image", json!("x")),
        ]}])
    }

    async fn create(&self, body: Value) {
        let (kind, namespace) = (body["kind"].as_str().unwrap().to_owned(), body["metadata"]["namespace"].clone());
        let version = body["apiVersion"].as_str().unwrap();
        let (group, _) = version.split_once('/').unwrap_or(("", version));
        let api: Api<kube::api::DynamicObject> = fleetctl::api::placeable::find_builtin_kind(group, &kind)
            .unwrap()
            .objects_api(&self.hub(), namespace.as_str());
        api.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    }

    fn deployment(&self, name: &str, app: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": self.place},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": app}}, "template": {
                "metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    }

    /// The Schedule of a source.
    async fn schedule(&self, kind: &str, name: &str) -> Option<Schedule> {
        let api: Api<Schedule> = Api::namespaced(self.hub(), &cluster_namespace(&self.scene.name));
        let all = api.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|one| one.spec.source_ref.kind == kind && one.spec.source_ref.name == name)
    }

    /// The reason of a copy's `Applied`.
    async fn reason(&self, kind: &str, name: &str) -> String {
        let status = self.schedule(kind, name).await.and_then(|one| one.status).unwrap_or_default();
        find_condition(&status.conditions, "Applied").map(|one| one.reason.clone()).unwrap_or_default()
    }

    async fn leave(mut self, role: &str) {
        let policies: Api<SchedulePolicy> = Api::all(self.hub());
        policies.delete(&self.policy, &DeleteParams::default()).await.unwrap();
        drop(self.agent.take());
        let free = json!({"metadata": {"finalizers": null}});
        let there: Api<Namespace> = Api::all(self.member());
        there.patch(&self.ending, &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
        for client in [self.hub(), self.member()] {
            for name in [&self.place, &self.ending] {
                let _ = Api::<Namespace>::all(client.clone()).delete(name, &DeleteParams::default()).await;
            }
        }
        rights::remove(&self.scene, role).await;
    }

    /// Waits until the copy of a source has a reason, and looks for it in the events and in `why`.
    async fn until(&self, kind: &str, namespace: &str, name: &str, reason: &str) {
        wait(&format!("{name} is {reason}"), async || {
            let status = self.schedule(kind, name).await.and_then(|one| one.status).unwrap_or_default();
            find_condition(&status.conditions, "Applied")
                .is_some_and(|one| one.reason == reason || one.message.starts_with(reason))
        })
        .await;
        self.explained(kind, namespace, name, reason).await;
    }

    async fn has_event(&self, kind: &str, namespace: &str, name: &str, reason: &str) -> bool {
        let events: Api<Event> = Api::namespaced(self.hub(), namespace);
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let is_it = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.involved_object.kind.as_deref() == Some(kind)
                && event.reason.as_deref() == Some(reason)
        };
        all.iter().any(is_it)
    }

    async fn explained(&self, kind: &str, namespace: &str, name: &str, reason: &str) {
        // What ends by itself in a moment is no event.
        if reason != "NamespaceMissing" {
            wait(&format!("{name} has the event {reason}"), async || {
                self.has_event(kind, namespace, name, reason).await
            })
            .await;
        }
        let code = if ["FieldsDropped", "DriftCorrected"].contains(&reason) { 0 } else { 7 };
        let object = format!("{}/{name}", kind.to_lowercase());
        let text = why(&self.scene.stage.hub.kubeconfig, &object, namespace, code).to_string();
        let named = if reason == "OverrideFailed" { "PathNotFound" } else { reason };
        assert!(text.contains(named), "{reason} is not in {text}");
    }
}

#[tokio::test]
async fn every_reason_of_a_copy_is_in_status_event_and_why() {
    let scene = Scene::set().await;
    let (name, folder) = (fresh("reasons"), tempfile::tempdir().unwrap());
    let member = rights::kubeconfig(&scene, &name, folder.path(), &[]).await;
    rights::withhold(&scene, &name, Some("policy")).await;
    let mut agent = Program::agent(&member, &scene.control_plane.init_file, &scene.name, "pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    let (place, ending, policy) = (fresh("copies"), fresh("ending"), fresh("policy"));
    let mut site = Site { scene, agent: Some(agent), place, ending, policy };
    let namespaces: [Api<Namespace>; 2] = [Api::all(site.hub()), Api::all(site.member())];
    for name in [&site.place, &site.ending] {
        let body = json!({"metadata": {"name": name, "labels": {"team": site.place}}});
        namespaces[0].create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    }
    let held = json!({"metadata": {"name": site.ending, "finalizers": ["example.com/hold"]}});
    namespaces[1].create(&PostParams::default(), &serde_json::from_value(held).unwrap()).await.unwrap();
    namespaces[1].delete(&site.ending, &DeleteParams::default()).await.unwrap();
    // A foreign object in the way.
    let body = json!({"metadata": {"name": site.place}});
    namespaces[1].create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(site.member(), &site.place);
    let foreign = json!({"metadata": {"name": "taken"}});
    maps.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();

    let kinds = ["ConfigMap", "Secret"].map(|kind| json!({"group": "", "kind": kind})).to_vec();
    let more = [("apps", "Deployment"), ("policy", "PodDisruptionBudget")];
    let kinds: Vec<Value> =
        kinds.into_iter().chain(more.map(|(group, kind)| json!({"group": group, "kind": kind}))).collect();
    let body = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
        "metadata": {"name": site.policy},
        "spec": {"namespaceSelector": {"matchLabels": {"team": site.place}},
            "resourceSelectors": {"labelSelectors": [{}], "kinds": kinds},
            "clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": site.scene.name}},
            "spreadConstraints": {"spreadMode": "Duplicate", "topologyKey": "kubernetes.io/metadata.name",
                "overrides": site.overrides()}}});
    let policies: Api<SchedulePolicy> = Api::all(site.hub());
    policies.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();

    let (place, ending) = (site.place.clone(), site.ending.clone());
    site.create(map(&place, "taken", "x")).await;
    site.until("ConfigMap", &place, "taken", "AlreadyExists").await;
    site.create(site.deployment("invalid", "a")).await;
    site.until("Deployment", &place, "invalid", "Invalid").await;
    site.create(site.deployment("newer", "a")).await;
    site.until("Deployment", &place, "newer", "FieldsDropped").await;
    site.create(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": place},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}))
        .await;
    site.until("PodDisruptionBudget", &place, "budget", "Forbidden").await;
    site.create(map(&ending, "late", "x")).await;
    site.until("ConfigMap", &ending, "late", "NamespaceMissing").await;

    // What cannot be copied at all has no Schedule: its group says so.
    site.create(site.deployment("edited", "a")).await;
    site.explained("Deployment", &place, "edited", "OverrideFailed").await;
    site.create(map(&place, "large", &"x".repeat((1 << 20) - 10))).await;
    site.explained("ConfigMap", &place, "large", "TooLarge").await;

    // An edit of the policy that changes the selector of what is there.
    site.create(site.deployment("moved", "a")).await;
    wait("it is applied", async || site.reason("Deployment", "moved").await == "Applied").await;
    let mut overrides = site.overrides();
    let edits = ["spec.selector.matchLabels.more", "spec.template.metadata.labels.more"]
        .map(|path| json!({"fieldPath": path, "value": {"staticValue": "x"}}));
    overrides[0]["resources"].as_array_mut().unwrap().push(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "moved", "namespace": place, "override": edits}),
    );
    let change = json!({"spec": {"spreadConstraints": {"overrides": overrides}}});
    policies.patch(&site.policy, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    site.until("Deployment", &place, "moved", "Refused").await;

    // Somebody who insists.
    site.create(map(&place, "fought", "ours")).await;
    wait("it is applied", async || site.reason("ConfigMap", "fought").await == "Applied").await;
    let params = PatchParams { field_manager: Some("insister".to_owned()), ..PatchParams::default() };
    // A change that comes while the copy is being applied is put right by that, and is no drift.
    let mut changes = 0;
    let mut insist = async || {
        if maps.get("fought").await.unwrap().data.unwrap()["a"] == "ours" {
            changes += 1;
            let theirs = json!({"data": {"a": format!("theirs-{changes}")}});
            maps.patch("fought", &params, &Patch::Merge(&theirs)).await.unwrap();
        }
    };
    let has_event = async || site.has_event("ConfigMap", &place, "fought", "DriftCorrected").await;
    while !has_event().await {
        insist().await;
        wait("it is put right", async || maps.get("fought").await.unwrap().data.unwrap()["a"] == "ours").await;
        let soon = async {
            while !has_event().await {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(30), soon).await;
    }
    site.explained("ConfigMap", &place, "fought", "DriftCorrected").await;
    wait("it is contested", async || {
        insist().await;
        site.reason("ConfigMap", "fought").await == "Contested"
    })
    .await;
    site.until("ConfigMap", &place, "fought", "Contested").await;
    assert!((3..=6).contains(&changes), "three count, and few come while it is being applied: {changes}");

    // The data of a Secret that somebody deleted; the next agent looks for it.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": place},
        "stringData": {"k": "v"}});
    site.create(secret).await;
    wait("it is applied", async || site.reason("Secret", "key").await == "Applied").await;
    let payloads: Api<Secret> = Api::namespaced(site.hub(), &cluster_namespace(&site.scene.name));
    let payload = site.schedule("Secret", "key").await.unwrap().name_any();
    payloads.delete(&payload, &DeleteParams::default()).await.unwrap();
    drop(site.agent.take());
    let mut next = Program::agent(&member, &site.scene.control_plane.init_file, &site.scene.name, "pod-1");
    next.ready(Duration::from_secs(60)).await;
    site.agent = Some(next);
    wait("the data is written again", async || payloads.get_opt(&payload).await.unwrap().is_some()).await;
    wait("it is applied again", async || site.reason("Secret", "key").await == "Applied").await;

    // A Schedule that somebody edits is not what was decided.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "edited", "namespace": place},
        "data": {"a": "ours"}});
    site.create(map).await;
    wait("it is applied", async || site.reason("ConfigMap", "edited").await == "Applied").await;
    let schedules: Api<Schedule> = Api::namespaced(site.hub(), &cluster_namespace(&site.scene.name));
    let written = site.schedule("ConfigMap", "edited").await.unwrap();
    let name_of_written = written.name_any();
    let theirs = written.spec.manifest.replace("ours", "theirs");
    assert_ne!(theirs, written.spec.manifest);
    let change = json!({"spec": {"manifest": theirs}});
    schedules.patch(&name_of_written, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    wait("it is put right", async || {
        schedules.get(&name_of_written).await.unwrap().spec.manifest == written.spec.manifest
    })
    .await;
    wait("it is applied again", async || site.reason("ConfigMap", "edited").await == "Applied").await;
    let copies: Api<ConfigMap> = Api::namespaced(site.member(), &place);
    assert_eq!(copies.get("edited").await.unwrap().data.unwrap()["a"], "ours");

    rights::withhold(&site.scene, &name, None).await;
    site.leave(&name).await;
}
