//! An agent that leaves before it was let in: the control plane forgets what it asked for, and nobody else can say so.

use std::time::Duration;

use clap::Parser as _;
use fleetctl::agent::register::withdraw;
use fleetctl::agent::settings::Cli;
use fleetctl::api::Cluster;
use fleetctl::api::registration::{ANNOTATION_LEAVE, ANNOTATION_STATE};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::membership::Scene;
use crate::support::{Stage, wait};

#[tokio::test]
async fn an_agent_that_waits_to_be_let_in_takes_its_cluster_with_it() {
    let scene = Scene::set_with("registration: manual").await;
    let agent = scene.agent("pod-1");
    let clusters = scene.clusters();
    wait("the Cluster is there", async || clusters.get_opt(&scene.name).await.unwrap().is_some()).await;
    assert!(!clusters.get(&scene.name).await.unwrap().spec.accepted);
    let secret = "fleet-agent-identity";
    let leave = json!({ "metadata": { "annotations": { ANNOTATION_LEAVE: "true" } } });
    scene.secrets().patch(secret, &PatchParams::default(), &Patch::Merge(&leave)).await.unwrap();
    wait("the agent says that it left", async || {
        let secret = scene.secrets().get(secret).await.unwrap();
        secret.annotations().get(ANNOTATION_STATE).is_some_and(|state| state.contains("\"Left\""))
    })
    .await;
    assert!(clusters.get_opt(&scene.name).await.unwrap().is_none(), "{}", agent.log());
    // No request of it is open, or the next look at that would bring the Cluster back.
    let requests: Api<CertificateSigningRequest> = Api::all(scene.stage.hub.client.clone());
    let all = requests.list(&ListParams::default()).await.unwrap();
    let ours: Vec<_> = all.iter().filter(|r| r.name_any().starts_with(&format!("fleet-{}-", scene.name))).collect();
    assert_eq!(ours.len(), 2, "the one that waited and the one that took it back");
    for request in ours {
        let conditions = request.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        assert!(conditions.iter().any(|c| c.reason.as_deref() == Some("ClusterLeft")), "{conditions:?}");
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(clusters.get_opt(&scene.name).await.unwrap().is_none(), "it came back");
}

#[tokio::test]
async fn whoever_holds_an_init_token_cannot_take_back_what_others_registered() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let holder = Applicant::new(&fresh("kept"));
    holder.join(&control_plane.init).await;
    let hub = control_plane.init.token_client().unwrap();
    let args = Cli::parse_from(["fleet-agent", "--cluster-name", &holder.name]).args.unwrap();
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    for stranger in [Applicant::new(&holder.name), holder.with_new_key()] {
        // It is told that nothing of its own is there, which is true.
        withdraw(&hub, &args, &stranger.id, &stranger.key).await.unwrap();
        assert!(clusters.get_opt(&holder.name).await.unwrap().is_some(), "a stranger took it back");
    }
    withdraw(&hub, &args, &holder.id, &holder.key).await.unwrap();
    assert!(clusters.get_opt(&holder.name).await.unwrap().is_none(), "its own key is proof enough");
}
