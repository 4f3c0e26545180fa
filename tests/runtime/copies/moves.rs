//! What a move of a group relies on: what a copy serves, by epoch; answers to the scheduler's questions; ends of Jobs.

use std::time::Duration;

use bed::proxy::{Action, Match, When};
use fleetctl::api::ScheduleStatus;
use fleetctl::api::labels::ANNOTATION_ASK;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::Site;
use crate::support::wait;

impl Site {
    async fn status(&self, name: &str) -> ScheduleStatus {
        self.schedules().get(name).await.unwrap().status.unwrap_or_default()
    }

    /// Changes the spec of a Schedule.
    async fn edit(&self, name: &str, spec: Value) {
        let edit = json!({ "spec": spec });
        self.schedules().patch(name, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    }

    async fn until_status(&self, name: &str, what: &str, holds: impl Fn(&ScheduleStatus) -> bool) {
        wait(&format!("{name}: {what}"), async || holds(&self.status(name).await)).await;
    }

    /// Asks the agent, and waits for its answer.
    async fn ask(&self, text: &str) {
        let clusters = self.scene.clusters();
        let ask = json!({ "metadata": { "annotations": { ANNOTATION_ASK: text } } });
        clusters.patch(&self.scene.name, &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
        wait(&format!("{text} is answered"), async || {
            let status = clusters.get(&self.scene.name).await.unwrap().status.unwrap_or_default();
            status.answered.as_deref() == Some(text)
        })
        .await;
    }

    /// Sets whether pods with a label are ready, as no kubelet does here.
    async fn set_ready(&self, label: &str, ready: bool) {
        let pods: Api<Pod> = self.in_place();
        let status = if ready { "True" } else { "False" };
        let change = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": status }] } });
        for pod in pods.list(&ListParams::default().labels(label)).await.unwrap() {
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_copy_reports_what_it_serves_of_each_epoch() {
    let site = Site::set().await;
    site.make_place().await;
    site.schedule("web", &site.deployment("web", 2), json!({})).await;
    site.edit("web", json!({ "epoch": 1, "share": { "domain": "d", "replicas": 2 } })).await;
    site.until_status("web", "tried", |status| status.epoch == Some(1)).await;
    let status = site.status("web").await;
    assert_eq!((status.available, status.served), (Some(0), Some(0)));
    let pods: Api<Pod> = site.in_place();
    wait("its pods are there", async || pods.list(&ListParams::default()).await.unwrap().items.len() == 2).await;
    site.set_ready("app=web", true).await;
    let serves = |status: &ScheduleStatus| (status.available, status.served) == (Some(2), Some(2));
    site.until_status("web", "two pods serve", serves).await;
    // Nothing but the number changes: a Schedule that is kept.
    site.edit("web", json!({ "epoch": 2 })).await;
    site.until_status("web", "tried again", |status| status.epoch == Some(2) && serves(status)).await;
    // What cannot be applied was tried as well, and what runs still serves.
    let mut invalid = site.deployment("web", 2);
    invalid["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
    site.edit("web", json!({ "epoch": 3, "hash": "wrong", "manifest": invalid.to_string() })).await;
    site.until_status("web", "tried in vain", |status| status.epoch == Some(3)).await;
    assert_eq!(site.condition("web", "Applied").await.1, "Invalid");
    assert!(serves(&site.status("web").await));
    site.set_ready("app=web", false).await;
    site.until_status("web", "none is ready", |status| status.available == Some(0)).await;
    assert_eq!(site.status("web").await.served, Some(2), "it served");
    // Less, and more again: the new pod serves when it is ready.
    let right = site.deployment("web", 1).to_string();
    site.edit("web", json!({ "epoch": 4, "hash": "one", "manifest": right, "share": { "replicas": 1 } })).await;
    site.until_status("web", "it is asked for one", |status| status.epoch == Some(4)).await;
    assert_eq!(site.status("web").await.served, Some(1));
    site.set_ready("app=web", true).await;
    site.until_status("web", "one serves", |status| status.available == Some(1)).await;
    // Another one of its name has served nothing.
    let deployments: Api<Deployment> = site.in_place();
    let former = site.status("web").await.applied_uid;
    deployments.delete("web", &DeleteParams::default()).await.unwrap();
    site.until_status("web", "another copy", |status| status.applied_uid.is_some() && status.applied_uid != former)
        .await;
    let status = site.status("web").await;
    assert_eq!((status.available, status.served), (Some(0), Some(0)));
    site.delete("web").await;
    site.leave().await;
}

#[tokio::test]
async fn what_changes_while_an_apply_fails_is_reported() {
    let mut site = Site::set().await;
    drop(site.agent.take());
    let proxy = site.scene.stage.member_proxy();
    site.start_by(&proxy.kubeconfig(), &[]).await;
    site.make_place().await;
    site.schedule("web", &site.deployment("web", 2), json!({})).await;
    site.edit("web", json!({ "epoch": 1, "share": { "domain": "d", "replicas": 2 } })).await;
    site.until_status("web", "tried", |status| status.epoch == Some(1)).await;
    let pods: Api<Pod> = site.in_place();
    wait("its pods are there", async || pods.list(&ListParams::default()).await.unwrap().items.len() == 2).await;
    site.set_ready("app=web", true).await;
    site.until_status("web", "two pods serve", |status| status.available == Some(2)).await;

    // The refusal arrives later than the change.
    let applies = Match::verb("patch").path("/deployments/web");
    proxy.on(applies, When::Always, Action::Delay(Duration::from_secs(5)));
    proxy.forget();
    let mut invalid = site.deployment("web", 2);
    invalid["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
    site.edit("web", json!({ "epoch": 2, "hash": "wrong", "manifest": invalid.to_string() })).await;
    wait("it is being applied", async || proxy.writes().iter().any(|seen| seen.path.ends_with("/deployments/web")))
        .await;
    site.set_ready("app=web", false).await;
    site.until_status("web", "tried in vain", |status| status.epoch == Some(2)).await;
    assert_eq!(site.condition("web", "Applied").await.1, "Invalid");
    site.until_status("web", "none is ready", |status| status.available == Some(0)).await;
    proxy.mend();
    site.delete("web").await;
    site.leave().await;
}

#[tokio::test]
async fn an_ask_is_answered_when_each_status_is_true() {
    let mut site = Site::set().await;
    site.make_place().await;
    for name in ["one", "two"] {
        site.schedule(name, &site.config_map(name, &json!({})), json!({})).await;
        site.until_status(name, "it is available", |status| status.served == Some(1)).await;
    }
    let right = site.status("one").await;
    // As by a restore of the control plane: the agent is not told.
    let lost = json!({ "status": { "served": 7, "available": 0, "observedHash": "other" } });
    site.schedules().patch_status("one", &PatchParams::default(), &Patch::Merge(&lost)).await.unwrap();
    site.ask("first").await;
    assert_eq!(site.status("one").await, right, "it is written before the answer");
    // Nothing is written where nothing differs.
    let versions = async || {
        let all = site.schedules().list(&ListParams::default()).await.unwrap();
        all.iter().map(ResourceExt::resource_version).collect::<Vec<_>>()
    };
    let before = versions().await;
    site.ask("second").await;
    assert_eq!(versions().await, before);
    // A new agent answers as well, and what was asked while there was none.
    drop(site.agent.take());
    let ask = json!({ "metadata": { "annotations": { ANNOTATION_ASK: "third" } } });
    let clusters = site.scene.clusters();
    clusters.patch(&site.scene.name, &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
    site.start(&[]).await;
    site.ask("third").await;
    for name in ["one", "two"] {
        site.delete(name).await;
    }
    site.leave().await;
}

#[tokio::test]
async fn a_job_that_is_removed_says_whether_it_had_finished() {
    let site = Site::set().await;
    site.make_place().await;
    let job = |name: &str| {
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "namespace": site.place },
            "spec": { "template": { "metadata": { "labels": { "of": name } },
                "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } })
    };
    let pods: Api<Pod> = site.in_place();
    for name in ["over", "running"] {
        site.schedule(name, &job(name), json!({})).await;
        site.until(name, "Applied").await;
    }
    let of_it = ListParams::default().labels("of=over");
    wait("its pod is there", async || pods.list(&of_it).await.unwrap().items.len() == 1).await;
    let pod = pods.list(&of_it).await.unwrap().items[0].name_any();
    let succeeded = json!({ "status": { "phase": "Succeeded" } });
    pods.patch_status(&pod, &PatchParams::default(), &Patch::Merge(&succeeded)).await.unwrap();
    site.until_status("over", "it is over", |status| status.finished == Some(true)).await;
    for (name, finished) in [("over", Some(true)), ("running", None)] {
        site.schedules().delete(name, &DeleteParams::default()).await.unwrap();
        wait(&format!("{name} is deleted"), async || site.condition(name, "Deleted").await.0 == "True").await;
        let status = site.status(name).await;
        assert_eq!((status.finished, status.available), (finished, Some(0)), "{name}");
        site.released(name).await;
    }
    site.leave().await;
}
