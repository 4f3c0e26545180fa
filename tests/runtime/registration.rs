//! Who gets a certificate, who does not, and what it is good for.

use std::time::Duration;

use fleetctl::agent::identity::Certificate;
use fleetctl::api::labels::{ANNOTATION_ALLOW_NEW_KEY, LABEL_CLUSTER, cluster_namespace};
use fleetctl::api::registration::validity;
use fleetctl::api::{Cluster, ClusterReport, ClusterReportSpec};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::identity::read;
use crate::support::{Stage, wait};

async fn sees_its_cluster(client: &Client, name: &str) -> bool {
    Api::<Cluster>::all(client.clone()).get(name).await.is_ok()
}

#[tokio::test]
async fn a_cluster_joins_renews_and_joins_again_with_the_same_key() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let applicant = Applicant::new(&fresh("join"));
    let member = applicant.join(&control_plane.init).await;
    assert!(sees_its_cluster(&member, &applicant.name).await);
    applicant.ask_as(&member).await.expect("it renews its own certificate");
    applicant.ask(&control_plane.init).await.expect("an agent that lost its certificate asks again by token");
    let other = applicant.named(&fresh("join"));
    assert_eq!(other.ask_as(&member).await, Err("IdentityMismatch".to_owned()));
    // Whoever stole its certificate could keep the name by a key of its own; the name holds the key.
    assert_eq!(applicant.with_new_key().ask_as(&member).await, Err("IdentityMismatch".to_owned()));
}

#[tokio::test]
async fn a_cluster_joins_where_certificates_live_for_less_than_it_asks_for() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "agentCertificateTTL: 48h").await;
    let applicant = Applicant::new(&fresh("short"));
    let pem = applicant.ask(&control_plane.init).await.expect("it is told for how long it may ask");
    let found = Certificate::parse(&pem).unwrap();
    assert!((47 * 3600..=49 * 3600).contains(&(found.until - found.from)), "{} to {}", found.from, found.until);
    let requests: Api<CertificateSigningRequest> = Api::all(stage.hub.client.clone());
    let all = requests.list(&ListParams::default()).await.unwrap().items.into_iter();
    let of_applicant =
        |metadata: &ObjectMeta| metadata.name.as_ref().is_some_and(|name| name.contains(&applicant.name));
    let annotated = all
        .map(|csr| csr.metadata)
        .filter(of_applicant)
        .filter_map(|metadata| metadata.annotations.unwrap_or_default().remove(validity::ANNOTATION_MAX_SECONDS));
    assert_eq!(annotated.collect::<Vec<_>>(), ["172800"], "the denial says it in a field of its own");
}

#[tokio::test]
async fn a_name_or_a_cluster_is_registered_once() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let init = &control_plane.init;
    let name = fresh("taken");
    let holder = Applicant::new(&name);
    holder.join(init).await;
    assert_eq!(Applicant::new(&name).ask(init).await, Err("ClusterNameInUse".to_owned()));
    assert_eq!(holder.named(&fresh("taken")).ask(init).await, Err("ClusterAlreadyRegistered".to_owned()));
    // The holder may be alive: another key needs an operator's word, and uses it up.
    let reborn = holder.with_new_key();
    assert_eq!(reborn.ask(init).await, Err("IdentityInUse".to_owned()));
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    let allow = json!({ "metadata": { "annotations": { ANNOTATION_ALLOW_NEW_KEY: "true" } } });
    clusters.patch(&name, &PatchParams::default(), &Patch::Merge(&allow)).await.unwrap();
    reborn.ask(init).await.expect("an operator allowed it");
    assert_eq!(holder.ask(init).await, Err("IdentityInUse".to_owned()));
    // Also where the next one has the key that is known.
    clusters.patch(&name, &PatchParams::default(), &Patch::Merge(&allow)).await.unwrap();
    reborn.ask(init).await.expect("its key is known");
    assert_eq!(holder.ask(init).await, Err("IdentityInUse".to_owned()), "the permission is used up");
    let events: Api<Event> = Api::namespaced(stage.hub.client.clone(), "default");
    wait("the holder's Cluster has an event", async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.items.iter().any(|e| {
            e.involved_object.name.as_deref() == Some(&name) && e.reason.as_deref() == Some("ClusterNameInUse")
        })
    })
    .await;
}

#[tokio::test]
async fn deleting_a_cluster_revokes_its_certificate_for_good() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let first = Applicant::new(&fresh("gone"));
    let old = first.join(&control_plane.init).await;
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    clusters.delete(&first.name, &DeleteParams::default()).await.unwrap();
    let took = wait("the old certificate is refused", async || read(&old, &first.name).await == 403).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    let requests: Api<CertificateSigningRequest> = Api::all(old.clone());
    let asked = requests.get("no-such").await;
    assert!(matches!(asked, Err(kube::Error::Api(status)) if status.code == 403), "it may ask for another one");
    let second = Applicant::new(&first.name);
    let new = second.join(&control_plane.init).await;
    assert!(sees_its_cluster(&new, &second.name).await);
    assert!(!sees_its_cluster(&old, &first.name).await, "the name is the same, the identity is not");
}

#[tokio::test]
async fn no_finalizer_that_a_member_wrote_keeps_its_namespace_and_its_name() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let first = Applicant::new(&fresh("held"));
    let member = first.join(&control_plane.init).await;
    let namespace = format!("fleet-c-{}", first.name);
    let finalizers = Some(vec!["example.com/hold".to_owned()]);
    let leases: Api<Lease> = Api::namespaced(member.clone(), &namespace);
    let hold = json!({ "metadata": { "finalizers": finalizers } });
    leases.patch("fleet-agent", &PatchParams::default(), &Patch::Merge(&hold)).await.unwrap();
    let mut report = ClusterReport::new("held", ClusterReportSpec::default());
    report.metadata.finalizers.clone_from(&finalizers);
    Api::namespaced(member, &namespace).create(&PostParams::default(), &report).await.unwrap();
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    clusters.delete(&first.name, &DeleteParams::default()).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(stage.hub.client.clone());
    wait("its namespace is gone", async || namespaces.get_opt(&namespace).await.unwrap().is_none()).await;
    Applicant::new(&first.name).join(&control_plane.init).await;
}

#[tokio::test]
async fn with_manual_registration_a_cluster_waits_for_an_operator() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "registration: manual").await;
    let applicant = Applicant::new(&fresh("manual"));
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    let accept = async {
        wait("the Cluster is there", async || clusters.get_opt(&applicant.name).await.unwrap().is_some()).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let waiting = clusters.get(&applicant.name).await.unwrap();
        assert!(!waiting.spec.accepted);
        let yes = json!({ "spec": { "accepted": true } });
        clusters.patch(&applicant.name, &PatchParams::default(), &Patch::Merge(&yes)).await.unwrap();
    };
    let (certificate, ()) = tokio::join!(applicant.ask(&control_plane.init), accept);
    certificate.expect("accepted in the end");

    // To delete what waits is to say no: it does not come back while the request is open.
    let unwanted = Applicant::new(&fresh("unwanted"));
    let refuse = async {
        wait("the Cluster is there", async || clusters.get_opt(&unwanted.name).await.unwrap().is_some()).await;
        clusters.delete(&unwanted.name, &DeleteParams::default()).await.unwrap();
    };
    let (refused, ()) = tokio::join!(unwanted.ask(&control_plane.init), refuse);
    assert_eq!(refused.err().as_deref(), Some("ClusterDeleted"));
    assert!(clusters.get_opt(&unwanted.name).await.unwrap().is_none(), "it came back");
}

#[tokio::test]
async fn nobody_gets_rights_in_a_namespace_that_somebody_else_made() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let applicant = Applicant::new(&fresh("squatter"));
    let namespace = cluster_namespace(&applicant.name);
    let namespaces: Api<Namespace> = Api::all(stage.hub.client.clone());
    let body = json!({ "metadata": { "name": namespace } });
    namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let operator = async {
        wait("the scheduler says so", async || {
            control_plane.scheduler.log().contains(&format!("namespace {namespace} was not created for this cluster"))
        })
        .await;
        let bindings: Api<RoleBinding> = Api::namespaced(stage.hub.client.clone(), &namespace);
        assert!(bindings.list(&ListParams::default()).await.unwrap().items.is_empty());
        let label = json!({ "metadata": { "labels": { LABEL_CLUSTER: applicant.name } } });
        namespaces.patch(&namespace, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    };
    let (asked, ()) = tokio::join!(applicant.ask(&control_plane.init), operator);
    asked.unwrap();
}
