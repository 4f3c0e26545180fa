//! Pods of a copy, counted by their owners; and what the Cluster says of its nodes and its API.

use fleetctl::api::crd::schedule::PodCounts;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Site;
use crate::membership::add_fake_node;
use crate::support::wait;

#[tokio::test]
async fn pods_are_counted_by_their_owners_and_as_of_the_published_inventory() {
    let mut site = Site::set().await;
    add_fake_node(&site.member()).await;
    site.make_place().await;
    let schedules = site.schedules();
    let counts = async || schedules.get("web").await.unwrap().status.unwrap_or_default().pods.unwrap_or_default();
    let pods: Api<Pod> = site.in_place();
    let labelled = ListParams::default().labels("app=web");
    site.schedule("web", &site.deployment("web", 3), json!({})).await;
    site.until("web", "Applied").await;
    wait("the pods are there", async || pods.list(&labelled).await.unwrap().items.len() == 3).await;
    // A stranger with the same labels is not counted.
    let deployments: Api<Deployment> = site.in_place();
    let stranger = json!({ "metadata": { "name": "stranger", "labels": { "app": "web" } },
        "spec": { "nodeName": "fake", "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&kube::api::PostParams::default(), &serde_json::from_value(stranger).unwrap()).await.unwrap();
    let all = pods.list(&labelled).await.unwrap().items;
    let own: Vec<String> =
        all.iter().filter(|pod| !pod.owner_references().is_empty()).map(ResourceExt::name_any).collect();
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": own[0], "namespace": site.place },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "fake" } });
    let path = format!("/api/v1/namespaces/{}/pods/{}/binding", site.place, own[0]);
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(binding.to_string().into_bytes()).unwrap();
    site.member().request::<serde_json::Value>(request).await.unwrap();
    let since = "2026-01-01T00:00:00Z";
    let refused = json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/1 nodes", "lastTransitionTime": since }] } });
    pods.patch_status(&own[1], &PatchParams::default(), &Patch::Merge(&refused)).await.unwrap();
    let unscheduled = |counted: i64| {
        let counts = json!({ "desired": 3, "bound": 1, "counted": counted, "unschedulableSince": since });
        serde_json::from_value::<PodCounts>(counts).unwrap()
    };
    // An inventory that is published in between counts the one that is bound.
    wait("they are counted", async || [unscheduled(0), unscheduled(1)].contains(&counts().await)).await;
    // The first thing that an agent does is to publish.
    drop(site.agent.take());
    site.start(&[]).await;
    wait("the published ones as well", async || counts().await == unscheduled(1)).await;

    let status = site.scene.clusters().get(&site.scene.name).await.unwrap().status.unwrap();
    let labels = status.node_labels.unwrap();
    assert_eq!((labels.of.as_slice(), labels.sets[0]["topology.kubernetes.io/region"].as_str()), (&[0][..], "r1"));
    let apis = status.observed.unwrap().apis;
    assert!(["apps/v1", "policy/v1", "v1"].iter().all(|api| apis.contains(&(*api).to_owned())), "{apis:?}");
    site.delete("web").await;
    assert!(deployments.get_opt("web").await.unwrap().is_none());
    for name in own.iter().map(String::as_str).chain(["stranger"]) {
        let _ = pods.delete(name, &DeleteParams::default().grace_period(0)).await;
    }
    let _ = Api::<Node>::all(site.member()).delete("fake", &DeleteParams::default()).await;
    site.leave().await;
}
