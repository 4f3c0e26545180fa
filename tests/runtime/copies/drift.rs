//! Others change copies: their changes are put back, until they insist.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{Site, data};
use crate::support::wait;

/// Changes an object as some manager.
async fn edit(maps: &Api<ConfigMap>, name: &str, manager: &str, change: Value) {
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    maps.patch(name, &params, &Patch::Merge(&change)).await.unwrap();
}

#[tokio::test]
async fn a_changed_copy_is_put_right_until_somebody_insists() {
    let site = Site::set().await;
    site.make_place().await;
    let maps: Api<ConfigMap> = site.in_place();
    site.schedule("conf", &site.config_map("conf", &json!({ "a": "1", "b": "2" })), json!({})).await;
    site.until("conf", "Applied").await;
    let uid = maps.get("conf").await.unwrap().uid();

    // What is not in the manifest is nobody's business.
    edit(&maps, "conf", "other", json!({ "data": { "c": "3" } })).await;
    edit(&maps, "conf", "kubectl-edit", json!({ "data": { "a": "theirs" } })).await;
    let whole = data(&[("a", "1"), ("b", "2"), ("c", "3")]);
    wait("a field is put right", async || maps.get("conf").await.unwrap().data == whole).await;
    wait("it is said", async || {
        let message = site.schedules().get("conf").await.unwrap().status.unwrap().message;
        message.is_some_and(|message| message.starts_with("DriftCorrected: kubectl-edit changed"))
    })
    .await;
    edit(&maps, "conf", "labeller", json!({ "metadata": { "labels": { "fleet-scheduler.io/placed-by": null } } }))
        .await;
    wait("its label is put back", async || {
        let found = maps.get("conf").await.unwrap();
        found.uid() == uid && found.labels().contains_key("fleet-scheduler.io/placed-by")
    })
    .await;
    maps.delete("conf", &DeleteParams::default()).await.unwrap();
    wait("it is made again", async || maps.get_opt("conf").await.unwrap().is_some_and(|found| found.uid() != uid))
        .await;
    site.until("conf", "Applied").await;
    assert_eq!(maps.get("conf").await.unwrap().data, data(&[("a", "1"), ("b", "2")]));

    // The first change by this manager was before.
    edit(&maps, "conf", "kubectl-edit", json!({ "data": { "a": "theirs" } })).await;
    wait("it is put right once more", async || maps.get("conf").await.unwrap().data.unwrap()["a"] == "1").await;
    // The label counted as a deletion, and so did the deletion; a change by another counts apart.
    edit(&maps, "conf", "kubectl-edit", json!({ "data": { "a": "insists" } })).await;
    let message = site.until("conf", "Contested").await;
    assert!(message.contains("kubectl-edit") && message.contains("half an hour"), "{message}");
    assert_eq!(maps.get("conf").await.unwrap().data.unwrap()["a"], "insists");
    // Fields are contested; one that is absent is made again, and nobody's fields with it.
    maps.delete("conf", &DeleteParams::default()).await.unwrap();
    wait("an absent one is made again", async || {
        maps.get_opt("conf").await.unwrap().is_some_and(|found| found.data.unwrap()["a"] == "1")
    })
    .await;
    for by in ["", "insists", "again"] {
        edit(&maps, "conf", "kubectl-edit", json!({ "data": { "a": by } })).await;
        if by != "again" {
            wait("it is put right", async || maps.get("conf").await.unwrap().data.unwrap()["a"] == "1").await;
        }
    }
    site.until("conf", "Contested").await;
    // An edit of the source begins anew.
    site.schedule("conf", &site.config_map("conf", &json!({ "a": "new" })), json!({})).await;
    site.until("conf", "Applied").await;
    assert_eq!(maps.get("conf").await.unwrap().data.unwrap()["a"], "new");
    site.delete("conf").await;
    site.leave().await;
}

#[tokio::test]
async fn fields_that_are_left_to_others_are_not_touched() {
    let site = Site::set().await;
    site.make_place().await;
    let deployments: Api<Deployment> = site.in_place();
    let left = json!({ "leaveFields": ["spec.replicas"] });
    let replicas = async || deployments.get("web").await.unwrap().spec.unwrap().replicas;
    site.schedule("web", &site.deployment("web", 5), json!({})).await;
    site.until("web", "Applied").await;
    assert_eq!(replicas().await, Some(5));
    // From now on an autoscaler has it; until it sets it, it stays as it is.
    site.schedule("web", &site.deployment("web", 1), left.clone()).await;
    wait("nobody of ours owns it any more", async || {
        let managers = deployments.get("web").await.unwrap().metadata.managed_fields.unwrap();
        let owns = |name: &str| {
            let entry = managers.iter().find(|entry| entry.manager.as_deref() == Some(name));
            entry.is_some_and(|entry| entry.fields_v1.as_ref().unwrap().0.to_string().contains("f:replicas"))
        };
        owns("fleet-agent-left") && !owns("fleet-agent")
    })
    .await;
    assert_eq!(replicas().await, Some(5));
    let mut scale: Scale = deployments.get_scale("web").await.unwrap();
    scale.spec.as_mut().unwrap().replicas = Some(4);
    deployments.replace_scale("web", &PostParams::default(), &scale).await.unwrap();
    let mut edited = site.deployment("web", 1);
    edited["metadata"]["labels"] = json!({ "edited": "true" });
    site.schedule("web", &edited, left).await;
    wait("the edit arrives", async || deployments.get("web").await.unwrap().labels().contains_key("edited")).await;
    assert_eq!(replicas().await, Some(4));
    site.delete("web").await;
    site.leave().await;
}

#[tokio::test]
async fn what_ran_to_its_end_is_not_run_again_unless_its_source_is_new() {
    let site = Site::set().await;
    site.make_place().await;
    let pods: Api<Pod> = site.in_place();
    let manifest = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "once", "namespace": site.place },
        "spec": { "restartPolicy": "Never", "automountServiceAccountToken": false, "containers": [{ "name": "c", "image": "i" }] } });
    wait("the service account is there", async || {
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = site.in_place();
        accounts.get_opt("default").await.unwrap().is_some()
    })
    .await;
    site.schedule("once", &manifest, json!({})).await;
    site.until("once", "Applied").await;
    // A pod that is deleted before its end is run again.
    let first = pods.get("once").await.unwrap().uid();
    pods.delete("once", &DeleteParams::default().grace_period(0)).await.unwrap();
    wait("it is run again", async || pods.get_opt("once").await.unwrap().is_some_and(|pod| pod.uid() != first)).await;
    let done = json!({ "status": { "phase": "Succeeded" } });
    pods.patch_status("once", &PatchParams::default(), &Patch::Merge(&done)).await.unwrap();
    wait("its end is reported", async || {
        let resource = site.schedules().get("once").await.unwrap().status.unwrap().resource;
        resource.is_some_and(|resource| resource.contains(r#""phase":"Succeeded""#))
    })
    .await;
    pods.delete("once", &DeleteParams::default()).await.unwrap();
    wait("it is gone", async || pods.get_opt("once").await.unwrap().is_none()).await;
    // A change of the Schedule runs nothing either; a second copy shows that it was looked at.
    let mut edited = manifest.clone();
    edited["metadata"]["labels"] = json!({ "edited": "true" });
    site.schedule("once", &edited, json!({})).await;
    let hash = site.schedules().get("once").await.unwrap().spec.hash;
    wait("the edit is seen", async || {
        site.schedules().get("once").await.unwrap().status.unwrap().observed_hash.as_ref() == Some(&hash)
    })
    .await;
    assert!(pods.get_opt("once").await.unwrap().is_none());
    // The source was deleted and made anew: that one has not run yet.
    site.schedule_of("source-2", "once", &edited, json!({})).await;
    wait("the new one is run", async || pods.get_opt("once").await.unwrap().is_some()).await;
    let second = pods.get("once").await.unwrap().uid();
    wait("it is reported", async || {
        site.schedules().get("once").await.unwrap().status.unwrap().source_uid.as_deref() == Some("source-2")
    })
    .await;
    // While it runs, a third one replaces it.
    site.schedule_of("source-3", "once", &edited, json!({})).await;
    wait("the third is run", async || pods.get_opt("once").await.unwrap().is_some_and(|pod| pod.uid() != second)).await;
    site.until("once", "Applied").await;
    site.delete("once").await;
    site.leave().await;
}
