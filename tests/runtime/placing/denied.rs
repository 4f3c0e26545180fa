//! A control plane in which annotations do not place: policies alone do.

use super::*;

#[tokio::test]
async fn an_annotation_that_is_denied_is_told_and_counts_for_nothing() {
    let fleet = Fleet::new_with(&["--direct-placement=Deny"]).await;
    let (west, east) = (fleet.join(2).await, fleet.join(2).await);
    let there = json!({"fleet-scheduler.io/cluster": west.name});
    fleet.deployment("web", 1, there.clone()).await;
    wait("it is told", async || fleet.events().await.contains(&"DirectPlacementDenied".to_owned())).await;
    assert_eq!(fleet.copies(&west.name).await.len(), 0);
    let report = why(&fleet.stage.hub.kubeconfig, "deployment/web", &fleet.namespace, 7).to_string();
    assert!(report.contains("only policies place objects"), "{report}");
    // A policy places it, where the annotation does not say.
    let only = json!({"clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": east.name}}});
    let policy = fleet.policy(only).await;
    fleet.copy(&east.name, "Deployment web").await;
    // An empty one is a fence, and holds.
    let stay = json!({"metadata": {"annotations": {"fleet-scheduler.io/cluster": ""}}});
    let first = fleet.copy(&east.name, "Deployment web").await;
    fleet.deployments().patch("web", &PatchParams::default(), &Patch::Merge(&stay)).await.unwrap();
    let is_leaving = async || fleet.copy(&east.name, "Deployment web").await.metadata.deletion_timestamp.is_some();
    wait("it is withdrawn", is_leaving).await;
    fleet.report_deleted(&first).await;
    assert_eq!(fleet.copies(&west.name).await.len(), 0);
    fleet.end(&[policy]).await;
}

#[tokio::test]
async fn nobody_but_the_scheduler_says_whether_annotations_are_denied() {
    let fleet = Fleet::new().await;
    let west = fleet.join(2).await;
    let claim = json!({"metadata": {"name": "fleet-bootstrap-status"}, "data": {"directPlacement": "Deny"}});
    let maps: Api<ConfigMap> = Api::namespaced(fleet.client(), &fleet.namespace);
    maps.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    fleet.deployment("web", 1, json!({"fleet-scheduler.io/cluster": west.name})).await;
    let copy = fleet.copy(&west.name, "Deployment web").await;
    fleet.report(&copy, json!({"replicas": 1}), true).await;
    let report = why(&fleet.stage.hub.kubeconfig, "deployment/web", &fleet.namespace, 0).to_string();
    assert!(!report.contains("only policies place objects"), "{report}");
    fleet.end(&[]).await;
}
