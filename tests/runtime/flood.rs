//! What a token holder or an agent floods the control plane with: requests of a megabyte, and objects without end.

use std::time::{Duration, Instant};

use fleetctl::api::ClusterReport;
use fleetctl::api::labels::{AGENT_LEASE, AGENTS_GROUP, ANNOTATION_CLUSTER_ID};
use fleetctl::api::protocol::SIGNER;
use fleetctl::k8s::connect::daemon_client;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use crate::applicant::{Applicant, ControlPlane, fresh, new_id};
use crate::support::{Stage, wait};

/// A request that Kubernetes reads as an agent's, whose text has `padding` line breaks more than it needs.
fn padded(name: &str, padding: usize) -> CertificateSigningRequest {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, AGENTS_GROUP);
    params.distinguished_name.push(DnType::CommonName, "fleet:agent:x:y:z");
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let pem = pem.replacen("-----\n", &format!("-----\n{}", "\n".repeat(padding)), 1);
    CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some([(ANNOTATION_CLUSTER_ID.to_owned(), new_id())].into()),
            finalizers: Some(vec!["example.com/never".to_owned()]),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            expiration_seconds: Some(86_400),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

#[tokio::test]
async fn requests_of_a_megabyte_are_deleted_and_keep_no_other_agent_waiting() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let token = daemon_client::token_client(&control_plane.init).unwrap();
    let requests: Api<CertificateSigningRequest> = Api::all(token.clone());
    // What an agent takes on this machine, as busy as it is now.
    let began = Instant::now();
    Applicant::new(&fresh("usual")).join(&control_plane.init).await;
    let usual = began.elapsed();
    let prefix = fresh("large");
    for number in 0..20 {
        // Base64 of a million bytes, a few below the limit of etcd, into which no condition fits.
        let csr = padded(&format!("{prefix}-{number}"), 1_000_000);
        requests.create(&PostParams::default(), &csr).await.unwrap();
    }
    let began = Instant::now();
    let member = Applicant::new(&fresh("honest"));
    member.join(&control_plane.init).await;
    assert!(began.elapsed() < Duration::from_secs(30) + usual * 10, "{:?}, and {usual:?} usually", began.elapsed());
    let all: Api<CertificateSigningRequest> = Api::all(stage.hub.client.clone());
    wait("no large request is left", async || {
        let names = all.list_metadata(&kube::api::ListParams::default()).await.unwrap().items;
        !names.iter().any(|found| found.metadata.name.as_deref().is_some_and(|name| name.starts_with(&prefix)))
    })
    .await;
}

/// The code and message with which a creation is refused.
async fn refused<K>(api: &Api<K>, object: &K) -> (u16, String)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_agent_can_make_as_many_reports_as_its_quota_says_and_nothing_else() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let applicant = Applicant::new(&fresh("reports"));
    let member: Client = applicant.join(&control_plane.init).await;
    let namespace = format!("fleet-c-{}", applicant.name);
    let reports: Api<ClusterReport> = Api::namespaced(member.clone(), &namespace);
    let report = |number: usize| {
        let spec = serde_json::from_value(json!({ "availableResources": {}, "capacityResources": {} })).unwrap();
        ClusterReport::new(&format!("report-{number}"), spec)
    };
    // Until the control plane has counted for the first time, none is taken.
    wait("the first report is taken", async || match reports.create(&PostParams::default(), &report(0)).await {
        Err(kube::Error::Api(status)) if status.message.contains("status unknown for quota") => false,
        taken => taken.map(|_| true).unwrap(),
    })
    .await;
    for number in 1..64 {
        reports.create(&PostParams::default(), &report(number)).await.unwrap();
    }
    let (code, message) = refused(&reports, &report(64)).await;
    assert!(code == 403 && message.contains("exceeded quota: fleet-agent"), "{code} {message}");

    let event: Event = serde_json::from_value(json!({ "metadata": { "name": "x" }, "involvedObject": {} })).unwrap();
    assert_eq!(refused(&Api::<Event>::namespaced(member.clone(), &namespace), &event).await.0, 403);
    let mut lease = Lease::default();
    lease.metadata.name = Some(format!("{AGENT_LEASE}-2"));
    assert_eq!(refused(&Api::<Lease>::namespaced(member, &namespace), &lease).await.0, 403);
}
