//! Agents that die, and Schedules that vanish.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
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

#[tokio::test]
async fn a_copy_without_a_schedule_is_deleted_after_a_grace_and_no_other_is() {
    let mut site = Site::set().await;
    site.make_place().await;
    let maps: Api<ConfigMap> = site.in_place();
    for name in ["lost", "held"] {
        site.schedule(name, &site.config_map(name, &json!({})), json!({})).await;
        site.until(name, "Applied").await;
    }
    // Of another control plane.
    let foreign =
        json!({ "metadata": { "name": "foreign", "labels": { "fleet-scheduler.io/placed-by": "ffffffff" } } });
    maps.create(&kube::api::PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    // The agent is away, and so is the Schedule when it comes back.
    drop(site.agent.take());
    let none = json!({ "metadata": { "finalizers": null } });
    site.schedules().patch("lost", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    site.schedules().delete("lost", &DeleteParams::default()).await.unwrap();
    let started = std::time::Instant::now();
    site.start(&["--orphan-grace-seconds", "8"]).await;
    wait("it is deleted", async || maps.get_opt("lost").await.unwrap().is_none()).await;
    assert!(started.elapsed() > Duration::from_secs(8), "not before its time");
    for name in ["held", "foreign"] {
        assert!(maps.get_opt(name).await.unwrap().is_some(), "{name}");
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
