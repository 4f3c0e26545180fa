//! An identity is bound to its key: whoever kept a certificate of another key has nothing, whatever is registered later.

use std::time::{Duration, Instant};

use clap::Parser as _;
use fleetctl::agent::register::{RegisterError, Validity, request_rejoin};
use fleetctl::agent::settings::Cli;
use fleetctl::api::labels::{ANNOTATION_ALLOW_NEW_KEY, ANNOTATION_KEY_FINGERPRINT};
use fleetctl::api::{Cluster, ClusterSpec};
use fleetctl::k8s::connect::daemon_client;
use fleetctl::k8s::connect::init_kubeconfig::Init;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::membership::Scene;
use crate::support::{Stage, wait};

/// Status code of a read of the cluster `name`.
pub(crate) async fn read(client: &Client, name: &str) -> u16 {
    match Api::<Cluster>::all(client.clone()).get(name).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn change(stage: &Stage, name: &str, change: &Value) {
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    clusters.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

fn annotate(key: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

/// Deletes a Cluster and waits until its certificate is refused.
async fn delete(stage: &Stage, name: &str, certificate: &Client) {
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    clusters.delete(name, &DeleteParams::default()).await.unwrap();
    wait("the certificate is refused", async || read(certificate, name).await == 403).await;
}

/// Asks by token with a key for which there was a certificate, as an agent does; the reason of the refusal.
async fn ask_again(applicant: &Applicant, init: &Init) -> Result<(), String> {
    let args = Cli::parse_from(["fleet-agent", "--cluster-name", &applicant.name]).args.unwrap();
    let validity = Validity::new(args.certificate_seconds);
    let client = daemon_client::token_client(init).unwrap();
    match request_rejoin(&client, &args, &validity, &applicant.id, &applicant.key, async |_, _| {}).await {
        Ok(_) => Ok(()),
        Err(RegisterError::Denied { reason, .. }) => Err(reason),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_new_key_makes_the_certificate_of_the_old_one_worthless_at_once() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let first = Applicant::new(&fresh("rekeyed"));
    let old = first.join(&control_plane.init).await;
    assert_eq!(read(&old, &first.name).await, 200);
    change(&stage, &first.name, &annotate(ANNOTATION_ALLOW_NEW_KEY, Some("true"))).await;
    let new = first.with_new_key().join(&control_plane.init).await;
    assert_eq!((read(&old, &first.name).await, read(&new, &first.name).await), (403, 200));
}

#[tokio::test]
async fn a_cluster_that_joins_again_does_not_revive_the_certificate_that_was_deleted() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    // The same name and ID: the cluster whose agent was installed again, and the one whose name somebody squatted on.
    let first = Applicant::new(&fresh("again"));
    let old = first.join(&control_plane.init).await;
    delete(&stage, &first.name, &old).await;
    let new = first.with_new_key().join(&control_plane.init).await;
    assert_eq!((read(&old, &first.name).await, read(&new, &first.name).await), (403, 200));
}

#[tokio::test]
async fn the_longest_name_has_room_for_its_key() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let applicant = Applicant::new(&fresh(&"x".repeat(41)));
    assert_eq!(applicant.name.len(), 50);
    let member = applicant.join(&control_plane.init).await;
    assert_eq!(read(&member, &applicant.name).await, 200);
}

#[tokio::test]
async fn a_key_that_had_certificates_is_not_registered_anew() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let init = &control_plane.init;
    let first = Applicant::new(&fresh("retired"));
    let old = first.join(init).await;
    assert_eq!(ask_again(&first, init).await, Ok(()), "it is on record");

    // An operator revokes the key alone; the cluster stays.
    change(&stage, &first.name, &annotate(ANNOTATION_KEY_FINGERPRINT, None)).await;
    let took = wait("the certificate is refused", async || read(&old, &first.name).await == 403).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(ask_again(&first, init).await, Err("NewKeyNeeded".to_owned()));
    let second = first.with_new_key();
    let new = second.join(init).await;
    assert_eq!((read(&old, &first.name).await, read(&new, &first.name).await), (403, 200));

    delete(&stage, &first.name, &new).await;
    assert_eq!(ask_again(&second, init).await, Err("NewKeyNeeded".to_owned()));
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    assert!(clusters.get_opt(&first.name).await.unwrap().is_none(), "a refused request left a Cluster behind");
}

#[tokio::test]
async fn an_agent_whose_cluster_was_deleted_joins_again_with_a_new_key() {
    let scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    let (first, data) = (uid(&scene).await, identity(&scene).await);
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    let stolen = daemon_client::identity_client(&scene.control_plane.init, &text("tls.crt"), &text("tls.key")).unwrap();
    assert_eq!(read(&stolen, &scene.name).await, 200);
    scene.clusters().delete(&scene.name, &DeleteParams::default()).await.unwrap();
    // The agent believes for two minutes that the refusal passes.
    let deleted = Instant::now();
    while uid(&scene).await.is_none_or(|now| Some(now) == first) {
        assert!(deleted.elapsed() < Duration::from_secs(200), "it did not join again\n{}", agent.log());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    assert!(identity(&scene).await["tls.key"] != data["tls.key"], "the key is the same");
    assert_eq!(read(&stolen, &scene.name).await, 403, "the certificate from before the deletion works again");
    assert!(agent.log().contains("NewKeyNeeded"), "{}", agent.log());
}

async fn uid(scene: &Scene) -> Option<String> {
    scene.clusters().get_opt(&scene.name).await.unwrap().and_then(|cluster| cluster.uid())
}

async fn identity(scene: &Scene) -> std::collections::BTreeMap<String, k8s_openapi::ByteString> {
    let secrets: Api<Secret> = scene.secrets();
    secrets.get("fleet-agent-identity").await.unwrap().data.unwrap()
}

/// Makes a Cluster as an operator does beforehand.
async fn make(stage: &Stage, name: &str, id: Option<&str>) {
    let spec = ClusterSpec {
        name: name.to_owned(),
        cluster_id: id.map(str::to_owned),
        accepted: true,
        ..ClusterSpec::default()
    };
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    clusters.create(&PostParams::default(), &Cluster::new(name, spec)).await.unwrap();
}

#[tokio::test]
async fn a_cluster_made_beforehand_for_an_id_is_given_to_that_id_at_once_and_to_no_other() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "registration: manual").await;
    let owner = Applicant::new(&fresh("reserved"));
    make(&stage, &owner.name, Some(&owner.id)).await;
    assert_eq!(Applicant::new(&owner.name).ask(&control_plane.init).await, Err("ClusterNameInUse".to_owned()));
    let member = owner.join(&control_plane.init).await;
    assert_eq!(read(&member, &owner.name).await, 200);
    assert_eq!(owner.with_new_key().ask(&control_plane.init).await, Err("IdentityInUse".to_owned()));
}

#[tokio::test]
async fn with_manual_registration_a_cluster_made_beforehand_for_anybody_is_not_accepted_unseen() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "registration: manual").await;
    let first = Applicant::new(&fresh("unseen"));
    make(&stage, &first.name, None).await;
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    let accept = async {
        wait("its ID is on record", async || clusters.get(&first.name).await.unwrap().spec.cluster_id.is_some()).await;
        assert!(!clusters.get(&first.name).await.unwrap().spec.accepted);
        change(&stage, &first.name, &json!({ "spec": { "accepted": true } })).await;
    };
    let (answer, ()) = tokio::join!(first.ask(&control_plane.init), accept);
    answer.expect("an operator accepted it");
}
