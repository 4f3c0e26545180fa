//! What the member's API server answers, found in the Schedule's status.

use std::collections::BTreeMap;

use fleetctl::api::labels::{AGENT_MANAGER, LABEL_PLACED_BY};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, ResourceQuota, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Site;
use crate::support::wait;

#[tokio::test]
async fn each_refusal_has_a_reason_and_ends_when_its_cause_does() {
    let site = Site::set().await;
    site.make_place().await;
    // Nothing serves it; and nothing ever did.
    let budget = json!({ "apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "old", "namespace": site.place }, "spec": {} });
    site.schedule("old", &budget, json!({})).await;
    let custom = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "x", "namespace": site.place } });
    site.schedule("custom", &custom, json!({})).await;
    site.until("old", "KindNotServed").await;
    assert!(site.until("custom", "KindNotServed").await.contains("Widget of example.com/v1"));
    // Invalid, and valid after an edit.
    let mut invalid = site.deployment("bad", 1);
    invalid["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
    site.schedule("bad", &invalid, json!({})).await;
    assert!(site.until("bad", "Invalid").await.contains("selector"));
    site.schedule("bad", &site.deployment("bad", 1), json!({})).await;
    site.until("bad", "Applied").await;
    // An immutable field: the remedy works.
    let deployments: Api<Deployment> = site.in_place();
    let mut other = site.deployment("bad", 1);
    for path in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        *other.pointer_mut(path).unwrap() = json!({ "app": "bad", "more": "x" });
    }
    site.schedule("bad", &other, json!({})).await;
    let message = site.until("bad", "Refused").await;
    assert!(message.contains("immutable") && message.contains("delete the copy in the workload cluster"), "{message}");
    let uid = deployments.get("bad").await.unwrap().uid();
    deployments.delete("bad", &DeleteParams::default()).await.unwrap();
    site.until("bad", "Applied").await;
    assert_ne!(deployments.get("bad").await.unwrap().uid(), uid);
    // Fields of a newer API are left out, and named.
    let mut newer = site.deployment("newer", 1);
    newer["spec"]["fromTheFuture"] = json!({ "a": 1 });
    newer["spec"]["template"]["spec"]["containers"][0]["alsoNew"] = json!([1]);
    site.schedule("newer", &newer, json!({})).await;
    let message = site.until("newer", "Applied").await;
    assert!(message.starts_with("FieldsDropped: "), "{message}");
    assert!(message.contains(".spec.fromTheFuture") && message.contains("[name=\"c\"].alsoNew"), "{message}");
    // Lists that server-side apply refuses, and a POST and a PUT take, as in one cluster.
    let doubled = |value: &str| {
        let mut doubled = site.deployment("doubled", 1);
        let container = &mut doubled["spec"]["template"]["spec"]["containers"][0];
        container["ports"] =
            json!([{ "name": "http", "containerPort": 8080 }, { "name": "metrics", "containerPort": 8080 }]);
        container["env"] = json!([{ "name": "A", "value": "one" }, { "name": "A", "value": value }]);
        doubled
    };
    let mut labelled = doubled("two");
    labelled["metadata"]["labels"] = json!({ "of": "source" });
    labelled["spec"]["template"]["spec"]["containers"][0]["workingDir"] = json!("/there");
    site.schedule("doubled", &labelled, json!({})).await;
    site.until("doubled", "Applied").await;
    let uid = deployments.get("doubled").await.unwrap().uid();
    let note = json!({ "metadata": { "annotations": { "of": "others" } } });
    deployments.patch("doubled", &PatchParams::default(), &Patch::Merge(&note)).await.unwrap();
    site.schedule("doubled", &doubled("three"), json!({})).await;
    wait("the edit arrives", async || {
        let copy = deployments.get("doubled").await.unwrap();
        let container = serde_json::to_value(&copy).unwrap()["spec"]["template"]["spec"]["containers"][0].clone();
        container["ports"].as_array().unwrap().len() == 2 && container["env"][1]["value"] == "three"
    })
    .await;
    let copy = deployments.get("doubled").await.unwrap();
    assert!(copy.uid() == uid && copy.annotations()["of"] == "others", "{copy:?}");
    assert!(!copy.labels().contains_key("of"), "what the source dropped goes: {:?}", copy.labels());
    // So does what it drops when no list of it is doubled any more.
    site.schedule("doubled", &site.deployment("doubled", 1), json!({})).await;
    wait("what was written whole goes", async || {
        let copy = deployments.get("doubled").await.unwrap();
        let container = serde_json::to_value(&copy).unwrap()["spec"]["template"]["spec"]["containers"][0].clone();
        container.get("ports").is_none() && container.get("env").is_none()
    })
    .await;
    let copy = deployments.get("doubled").await.unwrap();
    assert!(copy.uid() == uid && copy.annotations()["of"] == "others", "{copy:?}");
    // The same where the Schedule changes before an agent has owned what it wrote whole.
    let mut halfway = doubled("two");
    halfway["metadata"]["name"] = json!("halfway");
    halfway["metadata"]["labels"] = json!({ LABEL_PLACED_BY: site.placed_by, "of": "source" });
    let by_agent = PostParams { field_manager: Some(AGENT_MANAGER.to_owned()), ..PostParams::default() };
    let uid = deployments.create(&by_agent, &serde_json::from_value(halfway).unwrap()).await.unwrap().uid();
    let mut single = site.deployment("doubled", 1);
    single["metadata"]["name"] = json!("halfway");
    site.schedule("halfway", &single, json!({})).await;
    site.until("halfway", "Applied").await;
    let copy = deployments.get("halfway").await.unwrap();
    let container = serde_json::to_value(&copy).unwrap()["spec"]["template"]["spec"]["containers"][0].clone();
    assert!(copy.uid() == uid && !copy.labels().contains_key("of"), "{copy:?}");
    assert!(container.get("ports").is_none() && container.get("env").is_none(), "{container}");
    // One whose replicas are left to others begins with those of its manifest, and keeps what others have set.
    let scaled = |value: &str| {
        let mut scaled = site.deployment("scaled", 3);
        let env = json!([{ "name": "A", "value": "one" }, { "name": "A", "value": value }]);
        scaled["spec"]["template"]["spec"]["containers"][0]["env"] = env;
        scaled
    };
    let left = json!({ "leaveFields": ["spec.replicas"] });
    site.schedule("scaled", &scaled("two"), left.clone()).await;
    site.until("scaled", "Applied").await;
    let replicas = async || deployments.get("scaled").await.unwrap().spec.unwrap().replicas;
    assert_eq!(replicas().await, Some(3));
    let five = json!({ "spec": { "replicas": 5 } });
    deployments.patch("scaled", &PatchParams::default(), &Patch::Merge(&five)).await.unwrap();
    site.schedule("scaled", &scaled("three"), left).await;
    wait("the edit arrives", async || {
        let copy = serde_json::to_value(deployments.get("scaled").await.unwrap()).unwrap();
        copy["spec"]["template"]["spec"]["containers"][0]["env"][1]["value"] == "three"
    })
    .await;
    assert_eq!(replicas().await, Some(5));
    for name in ["old", "custom", "bad", "newer", "doubled", "scaled"] {
        site.delete(name).await;
    }
    site.leave().await;
}

/// An agent that begins after an edit was refused reports what runs all the same, and that a Job has ended.
#[tokio::test]
async fn a_copy_whose_edit_is_refused_is_reported_by_the_next_agent() {
    let mut site = Site::set().await;
    site.make_place().await;
    let job = |completions: i64| {
        let container = json!({ "name": "c", "image": "i" });
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "once", "namespace": site.place },
            "spec": { "completions": completions,
                "template": { "spec": { "restartPolicy": "Never", "containers": [container] } } } })
    };
    let (before, after) = (job(1), job(2));
    site.schedule("web", &site.deployment("web", 1), json!({})).await;
    site.schedule("once", &before, json!({})).await;
    for name in ["web", "once"] {
        site.until(name, "Applied").await;
    }
    let mut other = site.deployment("web", 1);
    for path in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        *other.pointer_mut(path).unwrap() = json!({ "app": "web", "more": "x" });
    }
    site.schedule("web", &other, json!({})).await;
    site.schedule("once", &after, json!({})).await;
    for name in ["web", "once"] {
        site.until(name, "Refused").await;
    }
    drop(site.agent.take());
    site.start(&[]).await;
    let pods: Api<Pod> = site.in_place();
    wait("the pods are there", async || pods.list(&ListParams::default()).await.unwrap().items.len() == 2).await;
    let ready = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    let succeeded = json!({ "status": { "phase": "Succeeded" } });
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        let status = if pod.name_any().starts_with("web") { &ready } else { &succeeded };
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
    let reported = async |name: &str| {
        let status = site.schedules().get(name).await.unwrap().status.unwrap();
        serde_json::from_str::<serde_json::Value>(&status.resource.unwrap_or_default()).unwrap_or_default()
    };
    wait("the pod of the Deployment is reported", async || reported("web").await["readyReplicas"] == 1).await;
    wait("the end of the Job is reported", async || reported("once").await["succeeded"] == 1).await;
    assert_eq!(site.condition("web", "Applied").await.1, "Refused");
    site.until("once", "Applied").await;
    for name in ["web", "once"] {
        site.delete(name).await;
    }
    site.leave().await;
}

#[tokio::test]
async fn the_data_of_a_secret_comes_from_a_secret_of_the_hub() {
    let site = Site::set().await;
    site.make_place().await;
    let hub = site.scene.stage.hub.client.clone();
    let payloads: Api<Secret> = Api::namespaced(hub, &format!("fleet-c-{}", site.scene.name));
    let secrets: Api<Secret> = site.in_place();
    let manifest = json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": { "name": "db", "namespace": site.place } });
    site.schedule("db", &manifest, json!({})).await;
    site.until("db", "PayloadMissing").await;
    let payload = |value: &str| -> Secret {
        serde_json::from_value(json!({ "metadata": { "name": "db" }, "stringData": { "password": value } })).unwrap()
    };
    payloads.create(&PostParams::default(), &payload("one")).await.unwrap();
    site.until("db", "Applied").await;
    assert_eq!(secrets.get("db").await.unwrap().data.unwrap()["password"].0, b"one");
    // The hash covers the data, so a change of it is a change of the Schedule.
    payloads.patch("db", &PatchParams::default(), &Patch::Merge(&payload("two"))).await.unwrap();
    let change = json!({ "spec": { "hash": "of-two" } });
    site.schedules().patch("db", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    wait("the new data arrives", async || secrets.get("db").await.unwrap().data.unwrap()["password"].0 == b"two").await;
    // The agent may not list Secrets, and sees that one is gone all the same, long before it applies them all again.
    let uid = secrets.get("db").await.unwrap().uid();
    secrets.delete("db", &DeleteParams::default()).await.unwrap();
    let made = wait("it is made again", async || {
        secrets.get_opt("db").await.unwrap().is_some_and(|secret| secret.uid() != uid)
    });
    let took = made.await.as_secs();
    assert!(took < 60, "{took} s");
    site.until("db", "Applied").await;
    let status = site.schedules().get("db").await.unwrap();
    assert!(!serde_json::to_string(&status).unwrap().contains("dHdv"), "no data in the Schedule");
    assert_eq!(site.delete("db").await.0, "Deleted");
    assert!(secrets.get_opt("db").await.unwrap().is_none());
    site.leave().await;
}

#[tokio::test]
async fn a_namespace_is_deleted_only_by_whom_it_was_made_and_empty() {
    let site = Site::set().await;
    let namespaces: Api<Namespace> = Api::all(site.member());
    let manifest = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": { "of-the-source": "yes" } } })
    };
    // One that is there is left as it is.
    site.make_place().await;
    site.schedule("theirs", &manifest(&site.place), json!({})).await;
    let message = site.until("theirs", "Applied").await;
    assert!(message.starts_with("NamespaceNotOwned: "), "{message}");
    let found = namespaces.get(&site.place).await.unwrap();
    assert!(!found.labels().contains_key("of-the-source"));
    wait("it is available", async || site.condition("theirs", "Available").await.0 == "True").await;
    assert_eq!(site.delete("theirs").await.0, "NamespaceKept");
    assert!(namespaces.get(&site.place).await.unwrap().metadata.deletion_timestamp.is_none());
    // Not even one that was adopted.
    site.schedule("theirs", &manifest(&site.place), json!({ "adopt": true })).await;
    wait("it is adopted", async || namespaces.get(&site.place).await.unwrap().labels().contains_key("of-the-source"))
        .await;
    site.until("theirs", "Applied").await;
    assert_eq!(site.delete("theirs").await.0, "NamespaceKept");
    assert!(namespaces.get(&site.place).await.unwrap().metadata.deletion_timestamp.is_none());
    // Ours, with something of others in it.
    let ours = format!("{}-ours", site.place);
    site.schedule("ours", &manifest(&ours), json!({})).await;
    site.until("ours", "Applied").await;
    assert!(namespaces.get(&ours).await.unwrap().labels().contains_key("of-the-source"));
    let maps: Api<ConfigMap> = Api::namespaced(site.member(), &ours);
    let foreign: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "precious" } })).unwrap();
    maps.create(&PostParams::default(), &foreign).await.unwrap();
    let (reason, message) = site.delete("ours").await;
    assert!(reason == "NamespaceKept" && message.contains("precious"), "{reason} {message}");
    let kept = namespaces.get(&ours).await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_none() && !kept.labels().contains_key("fleet-scheduler.io/placed-by"));
    namespaces.delete(&ours, &DeleteParams::default()).await.unwrap();
    // What the agent may not list is counted: a Secret and a RoleBinding.
    let ours = format!("{}-more", site.place);
    site.schedule("more", &manifest(&ours), json!({})).await;
    site.until("more", "Applied").await;
    let secret: Secret = serde_json::from_value(json!({ "metadata": { "name": "own" } })).unwrap();
    Api::namespaced(site.member(), &ours).create(&PostParams::default(), &secret).await.unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({ "metadata": { "name": "own" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" } }))
    .unwrap();
    Api::namespaced(site.member(), &ours).create(&PostParams::default(), &binding).await.unwrap();
    let (reason, message) = site.delete("more").await;
    assert!(reason == "NamespaceKept" && message.contains("1 secrets"), "{reason} {message}");
    assert!(message.contains("1 rolebindings.rbac.authorization.k8s.io"), "{message}");
    let quotas: Api<ResourceQuota> = Api::namespaced(site.member(), &ours);
    assert!(quotas.list(&ListParams::default()).await.unwrap().items.is_empty(), "nothing of the count is left");
    assert!(namespaces.get(&ours).await.unwrap().metadata.deletion_timestamp.is_none());
    namespaces.delete(&ours, &DeleteParams::default()).await.unwrap();
    site.leave().await;
}

#[tokio::test]
async fn nothing_is_placed_into_a_protected_namespace() {
    let site = Site::set_with(&["--protected-namespaces", "cattle-*"]).await;
    let namespaces: Api<Namespace> = Api::all(site.member());
    let manifest = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": site.place } });
    site.schedule("place", &manifest, json!({})).await;
    site.schedule("conf", &site.config_map("conf", &json!({ "a": "1" })), json!({})).await;
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": site.place },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    site.schedule("data", &claim, json!({})).await;
    site.until("conf", "Applied").await;
    site.until("data", "Applied").await;
    let map = |namespace: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "namespace": namespace } });
    for (name, namespace) in [("system", "kube-system"), ("own", "fleet"), ("named", "cattle-system")] {
        site.schedule(name, &map(namespace), json!({ "adopt": true })).await;
        let message = site.until(name, "Refused").await;
        assert!(message.contains(namespace), "{message}");
        let maps: Api<ConfigMap> = Api::namespaced(site.member(), namespace);
        assert!(maps.get_opt("x").await.unwrap().is_none(), "{namespace}");
        assert_eq!(site.delete(name).await.0, "Deleted");
    }
    // A control plane is installed into a namespace that has copies: they are taken back, and nothing else is.
    let maps: Api<ConfigMap> = site.in_place();
    maps.create(&PostParams::default(), &serde_json::from_value(json!({ "metadata": { "name": "others" } })).unwrap())
        .await
        .unwrap();
    let label = |value: Option<&str>| json!({ "metadata": { "labels": { "fleet-scheduler.io/install-kind": value } } });
    let install = Patch::Merge(label(Some("control-plane")));
    namespaces.patch(&site.place, &PatchParams::default(), &install).await.unwrap();
    site.until("conf", "Refused").await;
    wait("the copy is taken back", async || maps.get_opt("conf").await.unwrap().is_none()).await;
    assert!(maps.get_opt("others").await.unwrap().is_some());
    // Data is kept, and belongs to nobody then.
    let claims: Api<PersistentVolumeClaim> = site.in_place();
    wait("the claim is no longer managed", async || {
        let found = claims.get("data").await.unwrap();
        found.metadata.deletion_timestamp.is_none() && !found.labels().contains_key("fleet-scheduler.io/placed-by")
    })
    .await;
    site.until("data", "Refused").await;
    site.until("place", "Refused").await;
    let there = namespaces.get(&site.place).await.unwrap();
    assert!(
        there.metadata.deletion_timestamp.is_none() && !there.labels().contains_key("fleet-scheduler.io/placed-by")
    );
    for name in ["conf", "data", "place"] {
        site.delete(name).await;
    }
    assert!(claims.get("data").await.unwrap().metadata.deletion_timestamp.is_none());
    assert!(namespaces.get(&site.place).await.unwrap().metadata.deletion_timestamp.is_none());
    site.leave().await;
}

#[tokio::test]
async fn where_they_are_denied_an_existing_namespace_takes_copies_when_it_is_adopted() {
    let site = Site::set_with(&["--existing-namespaces=Deny"]).await;
    site.make_place().await;
    let manifest = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": site.place } });
    site.schedule("place", &manifest, json!({})).await;
    site.schedule("conf", &site.config_map("conf", &json!({ "a": "1" })), json!({})).await;
    let message = site.until("conf", "NamespaceNotOwned").await;
    assert!(message.contains("fleet-scheduler.io/adopt=true"), "{message}");
    site.until("place", "NamespaceNotOwned").await;
    let maps: Api<ConfigMap> = site.in_place();
    assert!(maps.get_opt("conf").await.unwrap().is_none());
    site.schedule("place", &manifest, json!({ "adopt": true })).await;
    site.until("conf", "Applied").await;
    for name in ["conf", "place"] {
        site.delete(name).await;
    }
    site.leave().await;
}

#[tokio::test]
async fn waves_come_in_order_at_the_first_sync() {
    let mut site = Site::set().await;
    drop(site.agent.take());
    // By name the last comes first.
    site.schedule("a-web", &site.deployment("web", 1), json!({})).await;
    site.schedule("b-conf", &site.config_map("conf", &json!({})), json!({})).await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": site.place } });
    site.schedule("c-place", &namespace, json!({})).await;
    site.start(&[]).await;
    site.until("a-web", "Applied").await;
    site.until("b-conf", "Applied").await;
    let log = site.agent.as_ref().unwrap().log();
    assert!(!log.contains("NamespaceMissing"), "the namespace came first:\n{log}");
    let at: BTreeMap<&str, usize> = ["a-web", "b-conf", "c-place"]
        .into_iter()
        .map(|name| (name, log.find(&format!("\"schedule\":\"{name}\"")).expect("it is logged")))
        .collect();
    assert!(at["c-place"] < at["b-conf"] && at["b-conf"] < at["a-web"], "{at:?}");
    for name in ["a-web", "b-conf", "c-place"] {
        site.delete(name).await;
    }
    site.leave().await;
}
