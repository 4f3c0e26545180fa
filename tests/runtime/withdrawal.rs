//! An agent that leaves without a certificate that is good for it: the control plane forgets what it asked for, and nobody
//! else can say so.

use std::path::Path;
use std::time::Duration;

use clap::Parser as _;
use fleetctl::agent::register::{Validity, request_withdrawal};
use fleetctl::agent::settings::Cli;
use fleetctl::api::Cluster;
use fleetctl::api::registration::{ANNOTATION_LEAVE, IDENTITY_CERTIFICATE, IDENTITY_SECRET};
use fleetctl::k8s::connect::daemon_client;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::Value;

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::membership::Scene;
use crate::support::{Program, Stage, wait};

#[tokio::test]
async fn an_agent_that_waits_to_be_let_in_takes_its_cluster_with_it() {
    let scene = Scene::set_with("registration: manual", &[]).await;
    let agent = scene.agent("pod-1");
    let clusters = scene.clusters();
    wait("the Cluster is there", async || clusters.get_opt(&scene.name).await.unwrap().is_some()).await;
    assert!(!clusters.get(&scene.name).await.unwrap().spec.accepted);
    scene.ask_to_leave().await;
    scene.until_said("\"Left\"").await;
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

/// A member whose certificate may no longer write to its Cluster.
async fn refused_member() -> (Scene, Program) {
    let scene = Scene::set().await;
    let agent = scene.agent("pod-1");
    scene.until_ready().await;
    let bindings: Api<ClusterRoleBinding> = Api::all(scene.stage.hub.client.clone());
    let binding = format!("fleet:agent:{}", scene.name);
    bindings.delete(&binding, &DeleteParams::default()).await.unwrap();
    (scene, agent)
}

/// Puts a token into an init kubeconfig that no control plane ever made.
fn forget_token(init: &Path) {
    let text = fs_err::read_to_string(init).unwrap();
    let kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    fs_err::write(init, text.replace(token, "abcdef.0123456789abcdef")).unwrap();
}

#[tokio::test]
async fn an_uninstall_that_is_given_up_while_nobody_hears_the_agent_changes_nothing_later() {
    let mut scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    let uid = scene.clusters().get(&scene.name).await.unwrap().metadata.uid;
    end(scene.control_plane.scheduler.pid());
    scene.ask_to_leave().await;
    let asked = async || {
        let status = scene.clusters().get(&scene.name).await.unwrap().status.unwrap_or_default();
        status.leave_requested == Some(true)
    };
    wait("the control plane is asked", &asked).await;
    scene.ask_to_stay().await;
    wait("the control plane is asked no more", async || !asked().await).await;
    let config = format!("agentEndpoint: {}", scene.stage.hub.url);
    scene.control_plane.scheduler = Program::scheduler(&scene.stage.hub.kubeconfig, &config, "two");
    scene.control_plane.scheduler.ready(Duration::from_secs(60)).await;
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(scene.clusters().get(&scene.name).await.unwrap().metadata.uid, uid, "it left and came again");
}

#[tokio::test]
async fn an_agent_that_waits_to_be_let_in_goes_on_waiting_when_an_uninstall_is_given_up() {
    let mut scene = Scene::set_with("registration: manual", &[]).await;
    let agent = scene.agent("pod-1");
    let clusters = scene.clusters();
    wait("the Cluster is there", async || clusters.get_opt(&scene.name).await.unwrap().is_some()).await;
    end(scene.control_plane.scheduler.pid());
    let requests: Api<CertificateSigningRequest> = Api::all(scene.stage.hub.client.clone());
    let prefix = format!("fleet-{}-", scene.name);
    // How many requests take it back, and how many do not; of each, those that are answered.
    let count = async || {
        let mut counts = [0; 4];
        for request in requests.list(&ListParams::default()).await.unwrap() {
            if request.name_any().starts_with(&prefix) {
                let kind = usize::from(!request.annotations().contains_key(ANNOTATION_LEAVE));
                counts[kind] += 1;
                counts[kind + 2] += usize::from(request.status.is_some_and(|status| status.conditions.is_some()));
            }
        }
        counts
    };
    scene.ask_to_leave().await;
    wait("it takes it back", async || count().await == [1, 1, 0, 0]).await;
    scene.ask_to_stay().await;
    wait("it asks again", async || count().await == [1, 2, 0, 0]).await;
    let config = format!("agentEndpoint: {}\nregistration: manual", scene.stage.hub.url);
    scene.control_plane.scheduler = Program::scheduler(&scene.stage.hub.kubeconfig, &config, "two");
    // What is in cannot be taken out again: it is heard, and the agent asks once more.
    wait("it is heard, and asks once more", async || count().await == [1, 3, 1, 2]).await;
    wait("it waits", async || clusters.get_opt(&scene.name).await.unwrap().is_some()).await;
    assert!(!agent.log().contains("\"left\""), "{}", agent.log());
}

#[tokio::test]
async fn an_agent_that_has_left_registers_again_when_it_is_asked_to_stay() {
    let scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.ask_to_leave().await;
    scene.until_said("\"Left\"").await;
    scene.ask_to_stay().await;
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
}

/// Ends a program at once.
fn end(pid: u32) {
    assert!(std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

#[tokio::test]
async fn an_agent_whose_certificate_is_refused_leaves_with_the_init_token() {
    let (scene, _agent) = refused_member().await;
    scene.ask_to_leave().await;
    scene.until_said("\"Left\"").await;
    let clusters = scene.clusters();
    assert!(clusters.get_opt(&scene.name).await.unwrap().is_none(), "it says that it left, and its Cluster is there");
}

#[tokio::test]
async fn an_agent_that_nobody_believes_says_that_it_cannot_leave_and_stays_registered() {
    let (scene, _agent) = refused_member().await;
    forget_token(&scene.control_plane.init_file);
    scene.ask_to_leave().await;
    scene.until_said("neither this agent's certificate nor the init token").await;
    assert!(scene.clusters().get_opt(&scene.name).await.unwrap().is_some());
    // By that an uninstall knows, the next time as well, that the control plane may have something of this cluster.
    let data = scene.secrets().get(IDENTITY_SECRET).await.unwrap().data.unwrap();
    assert!(!data[IDENTITY_CERTIFICATE].0.is_empty(), "the certificate is gone");
}

#[tokio::test]
async fn whoever_holds_an_init_token_cannot_take_back_what_others_registered() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let holder = Applicant::new(&fresh("kept"));
    holder.join(&control_plane.init).await;
    let hub = daemon_client::token_client(&control_plane.init).unwrap();
    let args = Cli::parse_from(["fleet-agent", "--cluster-name", &holder.name]).args.unwrap();
    let validity = Validity::new(args.certificate_seconds);
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    for stranger in [Applicant::new(&holder.name), holder.with_new_key()] {
        // It is told that nothing of its own is there, which is true.
        request_withdrawal(&hub, &args, &validity, &stranger.id, &stranger.key).await.unwrap();
        assert!(clusters.get_opt(&holder.name).await.unwrap().is_some(), "a stranger took it back");
    }
    request_withdrawal(&hub, &args, &validity, &holder.id, &holder.key).await.unwrap();
    assert!(clusters.get_opt(&holder.name).await.unwrap().is_none(), "its own key is proof enough");
}
