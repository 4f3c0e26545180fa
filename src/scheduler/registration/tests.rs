//! Pending requests, and the writes about those that are answered.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Mutex;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::client::Body;
use kube::runtime::events::Reporter;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use serde_json::{Value, json};

use super::*;
use crate::api::ClusterSpec;
use crate::api::labels::{AGENTS_GROUP, ANNOTATION_CLUSTER_ID, BOOTSTRAP_GROUP};
use crate::api::protocol::{SIGNER, key_fingerprint, user_name};
use crate::api::registration::ANNOTATION_LEAVE;
use crate::api::registration::gone::CLUSTER_LEFT;

const ID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

type Asked = Arc<Mutex<Vec<String>>>;

/// Returns a registrar of a control plane without objects that accepts every write, its settings, and its requests.
fn registrar() -> (Registrar, watch::Sender<Option<Settings>>, Asked) {
    registrar_of(BTreeMap::new())
}

/// The same, of a control plane with some objects by their path.
fn registrar_of(found: BTreeMap<String, Value>) -> (Registrar, watch::Sender<Option<Settings>>, Asked) {
    let asked = Asked::default();
    let found = Arc::new(found);
    let log = asked.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (log, found) = (log.clone(), found.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = String::from_utf8(body.collect_bytes().await.unwrap().to_vec()).unwrap();
            log.lock().unwrap().push(format!("{} {} {body}", parts.method, parts.uri.path()));
            let missing = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "code": 404, "message": "", "reason": "NotFound" });
            let reads = parts.method == http::Method::GET;
            let (code, answer) = match found.get(parts.uri.path()) {
                Some(found) if reads => (200, found.clone()),
                None if reads => (404, missing),
                _ => (200, json!({ "metadata": { "name": "x" } })),
            };
            let text = answer.to_string();
            Ok::<_, Infallible>(http::Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap())
        }
    });
    let client = Client::new(service, "default");
    let reporter = Reporter { controller: "test".to_owned(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    let index = Arc::new(Index::complete());
    let (sender, settings) = watch::channel(None);
    (Registrar::new(client, index, settings, Metrics::default(), recorder), sender, asked)
}

fn names_a_minute(count: usize) -> Settings {
    serde_json::from_value(json!({ "newClustersPerMinute": count })).unwrap()
}

/// A request of an agent for the name `cluster`, made at that second.
fn asks_for(cluster: &str, second: i64) -> CertificateSigningRequest {
    asks_with(&KeyPair::generate().unwrap(), cluster, second)
}

fn asks_with(key: &KeyPair, cluster: &str, second: i64) -> CertificateSigningRequest {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, AGENTS_GROUP);
    let fingerprint = key_fingerprint(&key.subject_public_key_info());
    params.distinguished_name.push(DnType::CommonName, user_name(cluster, ID, &fingerprint));
    let pem = params.serialize_request(key).unwrap().pem().unwrap();
    CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(format!("fleet-{cluster}")),
            annotations: Some([(ANNOTATION_CLUSTER_ID.to_owned(), ID.to_owned())].into()),
            creation_timestamp: Some(Time(Timestamp::from_second(second).unwrap())),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            expiration_seconds: Some(86_400),
            groups: Some(vec![BOOTSTRAP_GROUP.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

fn asked_with<'a>(asked: &'a [String], start: &str) -> Vec<&'a String> {
    asked.iter().filter(|line| line.starts_with(start)).collect()
}

#[tokio::test]
async fn the_next_key_uses_up_the_permission() {
    for (fingerprint, permission, changes) in
        [("known", false, 0), ("known", true, 1), ("new", false, 1), ("new", true, 1)]
    {
        let (registrar, _settings, asked) = registrar();
        let mut cluster = Cluster::new("a", ClusterSpec { name: "a".to_owned(), ..ClusterSpec::default() });
        let annotations = cluster.annotations_mut();
        annotations.insert(ANNOTATION_KEY_FINGERPRINT.to_owned(), "known".to_owned());
        if permission {
            annotations.insert(ANNOTATION_ALLOW_NEW_KEY.to_owned(), "true".to_owned());
        }
        let request = Request {
            requester: csr::Requester::Token,
            cluster: "a".parse().unwrap(),
            id: ID.to_owned(),
            fingerprint: fingerprint.to_owned(),
            leaves: false,
            rejoins: false,
        };
        registrar.record_key(&request, cluster).await.unwrap();
        let asked = asked.lock().unwrap();
        let patches = asked_with(&asked, "PATCH /apis/cluster.fleet-scheduler.io/v1alpha1/clusters/a ");
        assert_eq!(patches.len(), changes, "{fingerprint} {permission}: {asked:?}");
        for patch in patches {
            assert!(patch.contains(&format!(r#""{ANNOTATION_ALLOW_NEW_KEY}":null"#)), "{patch}");
            assert!(patch.contains(&format!(r#""{ANNOTATION_KEY_FINGERPRINT}":"{fingerprint}""#)), "{patch}");
        }
        let published = asked.iter().any(|line| line.contains("ClusterKeyChanged"));
        assert_eq!(published, fingerprint == "new", "{asked:?}");
    }
}

#[tokio::test]
async fn the_rate_limit_admits_the_oldest_first() {
    let (mut registrar, settings, asked) = registrar();
    settings.send_replace(Some(names_a_minute(0)));
    for (name, second) in [("b", 2), ("c", 1), ("a", 3)] {
        registrar.on_request(asks_for(name, second)).await;
    }
    let reads = asked.lock().unwrap().len();
    assert_eq!(reads, 3);
    registrar.retry_pending().await;
    assert_eq!(asked.lock().unwrap().len(), reads);
    settings.send_replace(Some(names_a_minute(2)));
    registrar.retry_pending().await;
    let asked = asked.lock().unwrap();
    let read = asked_with(&asked[reads..], "GET /apis/cluster.fleet-scheduler.io/v1alpha1/clusters/");
    let names: Vec<_> = read.iter().map(|line| line.trim_end().rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["c", "b", "a"]);
}

#[tokio::test]
async fn excess_requests_are_denied() {
    let (mut registrar, settings, asked) = registrar();
    settings.send_replace(Some(names_a_minute(0)));
    let one = asks_for("a", 1);
    for number in 0..MAX_PENDING {
        let mut csr = one.clone();
        csr.metadata.name = Some(number.to_string());
        registrar.queue.insert(csr);
    }
    registrar.on_request(asks_for("b", 2)).await;
    assert_eq!(registrar.queue.len(), MAX_PENDING);
    let wrong = CertificateSigningRequest { spec: CertificateSigningRequestSpec { usages: None, ..one.spec }, ..one };
    registrar.on_request(wrong).await;
    let asked = asked.lock().unwrap();
    let answers = asked_with(&asked, "PATCH /apis/certificates.k8s.io/v1/certificatesigningrequests/");
    assert!(answers[0].contains("/fleet-b/approval ") && answers[0].contains("TooManyRequests"), "{answers:?}");
    assert!(answers[1].contains("UsagesNotAllowed"), "{answers:?}");
}

#[tokio::test]
async fn a_denied_validity_is_annotated() {
    let (mut registrar, settings, asked) = registrar();
    settings.send_replace(Some(serde_json::from_value(json!({ "agentCertificateTTL": "12h" })).unwrap()));
    registrar.on_request(asks_for("a", 1)).await;
    let asked = asked.lock().unwrap();
    let answers = asked_with(&asked, "PATCH /apis/certificates.k8s.io/v1/certificatesigningrequests/");
    assert!(answers[0].contains(r#""fleet-scheduler.io/max-certificate-seconds":"43200""#), "{answers:?}");
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[tokio::test]
async fn a_deregistration_denies_pending() {
    let key = KeyPair::generate().unwrap();
    let joins = asks_with(&key, "a", 1);
    let mut leaves = asks_with(&key, "a", 2);
    leaves.metadata.name = Some("leave".to_owned());
    leaves.annotations_mut().insert(ANNOTATION_LEAVE.to_owned(), "true".to_owned());
    // Of another agent that asks for the same name.
    let mut other = asks_for("a", 1);
    other.metadata.name = Some("other".to_owned());
    let all = json!({ "kind": "CertificateSigningRequestList", "apiVersion": "certificates.k8s.io/v1",
        "metadata": {}, "items": [joins, leaves, other] });
    let (mut registrar, settings, asked) = registrar_of([(REQUESTS.to_owned(), all)].into());
    settings.send_replace(Some(names_a_minute(0)));
    registrar.on_request(joins).await;
    registrar.on_request(leaves).await;
    let asked = asked.lock().unwrap();
    let answers = asked_with(&asked, &format!("PATCH {REQUESTS}/"));
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers[0].contains("/fleet-a/approval ") && answers[0].contains(CLUSTER_LEFT), "{answers:?}");
    assert!(answers[1].contains("/leave/approval ") && answers[1].contains("NotRegistered"), "{answers:?}");
}

#[tokio::test]
async fn acceptance_is_awaited_without_reads() {
    let joins = asks_for("a", 1);
    let requester = csr::requester(&joins).unwrap();
    let asked_for = csr::read(&joins, requester, Duration::from_secs(86_400)).unwrap();
    let spec = ClusterSpec { name: "a".to_owned(), cluster_id: Some(ID.to_owned()), ..ClusterSpec::default() };
    let mut cluster = Cluster::new("a", spec);
    cluster.metadata.uid = Some("1".to_owned());
    cluster.annotations_mut().insert(ANNOTATION_KEY_FINGERPRINT.to_owned(), asked_for.fingerprint);
    let path = "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters/a".to_owned();
    let (mut registrar, settings, asked) = registrar_of([(path, json!(cluster))].into());
    settings.send_replace(Some(names_a_minute(10)));
    registrar.on_request(joins).await;
    let reads = asked.lock().unwrap().len();
    registrar.retry_pending().await;
    assert_eq!(asked.lock().unwrap().len(), reads, "nothing has changed");
    cluster.spec.accepted = true;
    registrar.index.put(cluster.clone());
    registrar.retry_pending().await;
    assert!(asked.lock().unwrap().len() > reads, "the watch says that it is accepted");
}

#[tokio::test]
async fn frequent_renewals_are_held_back() {
    let key = KeyPair::generate().unwrap();
    let joins = asks_with(&key, "a", 1);
    let requester = csr::requester(&joins).unwrap();
    let asked_for = csr::read(&joins, requester, Duration::from_secs(86_400)).unwrap();
    let spec =
        ClusterSpec { name: "a".to_owned(), cluster_id: Some(ID.to_owned()), accepted: true, ..ClusterSpec::default() };
    let mut cluster = Cluster::new("a", spec);
    cluster.annotations_mut().insert(ANNOTATION_KEY_FINGERPRINT.to_owned(), asked_for.fingerprint);
    let path = "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters/a".to_owned();
    let (mut registrar, settings, asked) = registrar_of([(path, json!(cluster))].into());
    settings.send_replace(Some(names_a_minute(10)));
    registrar.limits.record_approval("a");
    registrar.on_request(joins).await;
    let reads = asked.lock().unwrap().len();
    assert_eq!(reads, 1, "{asked:?}");
    registrar.retry_pending().await;
    assert_eq!(asked.lock().unwrap().len(), reads, "it is asked for nothing until then");
    registrar.limits.forget_approvals();
    registrar.retry_pending().await;
    assert!(asked.lock().unwrap().len() > reads);
}
