//! Agents that die, and Schedules that vanish.

use std::time::Duration;

use fleetctl::api::labels::ANNOTATION_HOLD_DELETIONS;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Site;
use crate::support::{Wire, wait};

#[tokio::test]
async fn an_agent_that_dies_between_apply_and_status_goes_on_where_it_was() {
    let mut site = Site::set().await;
    site.make_place().await;
    let maps: Api<ConfigMap> = site.in_place();
    site.schedule("conf", &site.config_map("conf", &json!({ "a": "1" })), json!({})).await;
    let started = std::time::Instant::now();
    while maps.get_opt("conf").await.unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_secs(60));
        tokio::task::yield_now().await;
    }
    site.agent.take().unwrap().kill();
    let unreported = site.schedules().get("conf").await.unwrap();
    assert!(unreported.status.is_none_or(|status| status.observed_hash.is_none()), "it died too late to show anything");
    let copy = maps.get("conf").await.unwrap();
    site.start(&[]).await;
    site.until("conf", "Applied").await;
    let again = maps.get("conf").await.unwrap();
    assert_eq!((again.uid(), again.resource_version()), (copy.uid(), copy.resource_version()), "nothing was written");
    assert_eq!(site.schedules().get("conf").await.unwrap().status.unwrap().applied_uid, copy.uid());

    // What changed while no agent was there is found by the next.
    drop(site.agent.take());
    let change = json!({ "data": { "a": "theirs" } });
    maps.patch("conf", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    site.start(&[]).await;
    wait("it is put right", async || maps.get("conf").await.unwrap().data.unwrap()["a"] == "1").await;
    // So is a Schedule that was deleted.
    drop(site.agent.take());
    site.schedules().delete("conf", &DeleteParams::default()).await.unwrap();
    site.start(&[]).await;
    assert_eq!(site.released("conf").await.0, "Deleted");
    assert!(maps.get_opt("conf").await.unwrap().is_none());
    site.leave().await;
}

/// Sets the hold of deletions in the control plane, or ends it.
async fn set_hold(site: &Site, is_held: bool) {
    let value = is_held.then_some("2027-03-12T10:15:00Z");
    let change = json!({ "metadata": { "annotations": { ANNOTATION_HOLD_DELETIONS: value } } });
    let namespaces = Api::<Namespace>::all(site.scene.stage.hub.client.clone());
    namespaces.patch("kube-system", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
}

/// Deletes a Schedule as a restore of an older store does: its agent never hears that it is being deleted.
async fn lose_schedule(site: &Site, name: &str) {
    let none = json!({ "metadata": { "finalizers": null } });
    site.schedules().patch(name, &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    site.schedules().delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_held_copy_without_a_schedule_is_counted_and_kept_until_the_hold_ends() {
    let mut site = Site::set().await;
    site.make_place().await;
    let maps: Api<ConfigMap> = site.in_place();
    for name in ["newer", "older"] {
        site.schedule(name, &site.config_map(name, &json!({})), json!({})).await;
        site.until(name, "Applied").await;
    }
    drop(site.agent.take());
    set_hold(&site, true).await;
    lose_schedule(&site, "newer").await;
    site.start(&["--orphan-grace-seconds", "8"]).await;
    let count = async || {
        let cluster = site.scene.clusters().get(&site.scene.name).await.unwrap();
        cluster.status.and_then(|status| status.copies_without_schedule)
    };
    // The agent would delete it now: its time is over, and nothing but the hold keeps it.
    wait("it is held", async || site.agent.as_ref().unwrap().log().contains("deletions are held")).await;
    wait("it is counted", async || count().await == Some(1)).await;
    assert!(maps.get_opt("newer").await.unwrap().is_some());
    set_hold(&site, false).await;
    wait("it is deleted", async || maps.get_opt("newer").await.unwrap().is_none()).await;
    wait("none is counted", async || count().await == Some(0)).await;
    assert!(maps.get_opt("older").await.unwrap().is_some());
    site.delete("older").await;
    site.leave().await;
}

#[tokio::test]
async fn a_copy_without_a_schedule_is_deleted_after_a_grace_and_no_other_is() {
    let mut site = Site::set().await;
    // A test that failed may have left it.
    set_hold(&site, false).await;
    site.make_place().await;
    let maps: Api<ConfigMap> = site.in_place();
    for name in ["lost", "held"] {
        site.schedule(name, &site.config_map(name, &json!({})), json!({})).await;
        site.until(name, "Applied").await;
    }
    // Of another control plane.
    let foreign =
        json!({ "metadata": { "name": "foreign", "labels": { "fleet-scheduler.io/placed-by": "ffffffff" } } });
    maps.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": site.place },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let mut mounting = site.deployment("web", 0);
    mounting["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    for (name, manifest) in [("data", &claim), ("web", &mounting)] {
        site.schedule(name, manifest, json!({})).await;
        site.until(name, "Applied").await;
    }
    // The agent is away, and so are the Schedules when it comes back.
    drop(site.agent.take());
    for name in ["lost", "data", "web"] {
        lose_schedule(&site, name).await;
    }
    let started = std::time::Instant::now();
    site.start(&["--orphan-grace-seconds", "8"]).await;
    wait("it is deleted", async || maps.get_opt("lost").await.unwrap().is_none()).await;
    assert!(started.elapsed() > Duration::from_secs(8), "not before its time");
    for name in ["held", "foreign"] {
        assert!(maps.get_opt(name).await.unwrap().is_some(), "{name}");
    }
    // What holds data is kept and named, however long it has had no Schedule.
    let kept = async || {
        let cluster = site.scene.clusters().get(&site.scene.name).await.unwrap();
        cluster.status.and_then(|status| status.data_without_schedule).unwrap_or_default()
    };
    wait("only what holds data is left", async || {
        let cluster = site.scene.clusters().get(&site.scene.name).await.unwrap();
        cluster.status.and_then(|status| status.copies_without_schedule) == Some(2)
    })
    .await;
    wait("it is named", async || kept().await.count == 2).await;
    let place = &site.place;
    assert_eq!(kept().await.first, [format!("Deployment {place}/web"), format!("PersistentVolumeClaim {place}/data")]);
    let (claims, deployments): (Api<PersistentVolumeClaim>, Api<Deployment>) = (site.in_place(), site.in_place());
    let before = (claims.get("data").await.unwrap().uid(), deployments.get("web").await.unwrap().uid());
    // A source that is placed here again has them with their data.
    site.schedule("data", &claim, json!({})).await;
    site.schedule("web", &mounting, json!({})).await;
    site.until("data", "Applied").await;
    site.until("web", "Applied").await;
    assert_eq!((claims.get("data").await.unwrap().uid(), deployments.get("web").await.unwrap().uid()), before);
    wait("none is left", async || kept().await.count == 0).await;
    for name in ["data", "web"] {
        site.delete(name).await;
    }
    site.delete("held").await;
    site.leave().await;
}

#[tokio::test]
async fn copies_are_looked_after_while_the_control_plane_is_away() {
    let mut site = Site::set().await;
    drop(site.agent.take());
    site.make_place().await;
    let wire = Wire::to(&site.scene.stage.hub.url, true).await;
    let folder = tempfile::tempdir().unwrap();
    let init = wire.init(&site.scene.control_plane.init_file, &site.scene.stage.hub.url, folder.path());
    let mut agent = site.scene.agent_by(&init, "pod-1");
    agent.ready(Duration::from_secs(60)).await;
    let maps: Api<ConfigMap> = site.in_place();
    site.schedule("conf", &site.config_map("conf", &json!({ "a": "1" })), json!({})).await;
    site.until("conf", "Applied").await;
    let uid = maps.get("conf").await.unwrap().uid();
    wire.set(false);
    wait("it is noticed", async || agent.ask("/readyz").await.1.contains("ControlPlaneUnreachable")).await;
    maps.delete("conf", &DeleteParams::default()).await.unwrap();
    wait("it is made again", async || maps.get_opt("conf").await.unwrap().is_some_and(|map| map.uid() != uid)).await;
    let uid = maps.get("conf").await.unwrap().uid();
    wire.set(true);
    wait("the new one is reported", async || {
        site.schedules().get("conf").await.unwrap().status.unwrap().applied_uid == uid
    })
    .await;
    site.delete("conf").await;
    site.leave().await;
}

#[tokio::test]
async fn a_source_that_was_created_again_replaces_what_cannot_be_changed() {
    let site = Site::set().await;
    site.make_place().await;
    let deployments: Api<Deployment> = site.in_place();
    site.schedule("web", &site.deployment("web", 1), json!({})).await;
    site.until("web", "Applied").await;
    let first = deployments.get("web").await.unwrap().uid();
    let mut other = site.deployment("web", 1);
    other["spec"]["selector"]["matchLabels"] = json!({ "app": "other" });
    other["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
    // An edit of the same source is refused, as by the API server of the source.
    site.schedule("web", &other, json!({})).await;
    let message = site.until("web", "Refused").await;
    assert!(message.contains("kubectl replace --force"), "{message}");
    assert_eq!(deployments.get("web").await.unwrap().uid(), first);
    site.schedule_of("source-2", "web", &other, json!({})).await;
    site.until("web", "Applied").await;
    let second = deployments.get("web").await.unwrap();
    assert_ne!(second.uid(), first);
    assert_eq!(second.spec.unwrap().selector.match_labels.unwrap()["app"], "other");
    assert_eq!(site.schedules().get("web").await.unwrap().status.unwrap().applied_uid, second.metadata.uid);

    // What can be changed is changed in place, and a claim keeps its data in any case.
    site.schedule("conf", &site.config_map("conf", &json!({ "a": "1" })), json!({})).await;
    let claim = |class: &str| {
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data", "namespace": site.place },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": { "requests": { "storage": "1Gi" } } } })
    };
    site.schedule("data", &claim("one"), json!({})).await;
    site.until("conf", "Applied").await;
    site.until("data", "Applied").await;
    let (maps, claims): (Api<ConfigMap>, Api<PersistentVolumeClaim>) = (site.in_place(), site.in_place());
    let (map, volume) = (maps.get("conf").await.unwrap().uid(), claims.get("data").await.unwrap().uid());
    site.schedule_of("source-2", "conf", &site.config_map("conf", &json!({ "a": "2" })), json!({})).await;
    site.schedule_of("source-2", "data", &claim("two"), json!({})).await;
    site.until("data", "Refused").await;
    wait("the edit arrives", async || maps.get("conf").await.unwrap().data.unwrap()["a"] == "2").await;
    assert_eq!((maps.get("conf").await.unwrap().uid(), claims.get("data").await.unwrap().uid()), (map, volume));
    for name in ["web", "conf", "data"] {
        site.delete(name).await;
    }
    site.leave().await;
}

#[tokio::test]
async fn what_was_adopted_or_is_kept_is_not_replaced_by_a_source_that_was_created_again() {
    let site = Site::set().await;
    site.make_place().await;
    let deployments: Api<Deployment> = site.in_place();
    for (name, policy) in [("theirs", json!({ "adopt": true })), ("kept", json!({ "onDelete": "Keep" }))] {
        if name == "theirs" {
            let foreign = serde_json::from_value(site.deployment(name, 1)).unwrap();
            deployments.create(&PostParams::default(), &foreign).await.unwrap();
        }
        site.schedule(name, &site.deployment(name, 1), policy.clone()).await;
        site.until(name, "Applied").await;
        let first = deployments.get(name).await.unwrap().uid();
        let mut other = site.deployment(name, 1);
        other["spec"]["selector"]["matchLabels"] = json!({ "app": "other" });
        other["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
        site.schedule_of("source-2", name, &other, policy).await;
        let message = site.until(name, "Refused").await;
        assert!(message.contains("delete"), "{message}");
        assert_eq!(deployments.get(name).await.unwrap().uid(), first, "{name} is still the same one");
        assert_eq!(site.delete(name).await.0, "Kept");
    }
    site.leave().await;
}
