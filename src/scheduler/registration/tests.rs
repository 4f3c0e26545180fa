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
    let index = Arc::new(Index::new_complete());
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

/// The same request of a registered agent.
fn as_agent(mut csr: CertificateSigningRequest, user: &str) -> CertificateSigningRequest {
    csr.spec.groups = Some(vec![AGENTS_GROUP.to_owned()]);
    csr.spec.username = Some(user.to_owned());
    csr
}

#[tokio::test]
async fn agents_wait_behind_no_token_holder_and_have_a_limit_each() {
    let (mut registrar, settings, asked) = registrar();
    let one = asks_for("a", 1);
    for number in 0..=MAX_PENDING {
        let mut csr = one.clone();
        csr.metadata.name = Some(format!("token-{number}"));
        registrar.queue.insert(csr);
    }
    // Without settings nothing is decided, so that all of them stay pending.
    settings.send_replace(None);
    for number in 0..=MAX_PENDING_OF_AGENT {
        for user in ["one", "two"].iter().take(1 + usize::from(number == 0)) {
            let mut csr = as_agent(asks_for("b", 2), user);
            csr.metadata.name = Some(format!("{user}-{number}"));
            registrar.on_request(csr).await;
        }
    }
    let order = registrar.queue.oldest_first();
    assert_eq!(order.iter().take_while(|name| !name.starts_with("token")).count(), 1 + MAX_PENDING_OF_AGENT);
    let asked = asked.lock().unwrap();
    let answers = asked_with(&asked, "PATCH /apis/certificates.k8s.io/v1/certificatesigningrequests/");
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(answers[0].contains("/one-5/approval ") && answers[0].contains("TooManyRequests"), "{answers:?}");
}

/// Adds line breaks that every reader of PEM drops.
fn pad_request(mut csr: CertificateSigningRequest) -> CertificateSigningRequest {
    let text = String::from_utf8(csr.spec.request.0).unwrap();
    csr.spec.request = ByteString(text.replacen("-----\n", &format!("-----\n{}", "\n".repeat(20_000)), 1).into_bytes());
    csr
}

fn annotate_largely(mut csr: CertificateSigningRequest) -> CertificateSigningRequest {
    csr.annotations_mut().insert("x".to_owned(), "y".repeat(LARGEST));
    csr
}

#[tokio::test]
async fn a_request_that_is_larger_than_any_agents_is_deleted_and_never_waits() {
    let annotated = annotate_largely(asks_for("a", 1));
    for csr in [pad_request(asks_for("a", 1)), annotated.clone(), as_agent(annotated.clone(), "one")] {
        let (mut registrar, settings, asked) = registrar();
        settings.send_replace(Some(names_a_minute(10)));
        registrar.on_request(csr).await;
        assert_eq!((registrar.queue.len(), registrar.oversized.len()), (0, 0));
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 2, "{asked:?}");
        assert!(asked[0].contains(r#""finalizers":null"#), "{asked:?}");
        assert!(asked[1].starts_with(&format!("DELETE {REQUESTS}/fleet-a")), "{asked:?}");
    }
    // Those of people are none of the registrar's business.
    let (mut registrar, _settings, asked) = registrar();
    let mut csr = annotated;
    csr.spec.groups = None;
    registrar.on_request(csr).await;
    assert_eq!(asked.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn what_an_agent_asked_for_before_it_left_brings_no_cluster_back_whoever_leads() {
    let key = KeyPair::generate().unwrap();
    let mut leaves = asks_with(&key, "a", 2);
    leaves.metadata.name = Some("leave".to_owned());
    leaves.annotations_mut().insert(ANNOTATION_LEAVE.to_owned(), "true".to_owned());
    let answered = json!({ "conditions": [{ "type": "Denied", "status": "True", "reason": CLUSTER_LEFT }] });
    for leader in ["the same", "the next"] {
        let (mut registrar, settings, asked) = registrar();
        settings.send_replace(Some(names_a_minute(10)));
        if leader == "the same" {
            registrar.on_request(leaves.clone()).await;
        } else {
            let mut leaves = leaves.clone();
            leaves.status = serde_json::from_value(answered.clone()).unwrap();
            registrar.on_listed(leaves);
        }
        asked.lock().unwrap().clear();
        for (second, brings) in [(1, false), (2, false), (3, true)] {
            registrar.on_request(asks_with(&key, "a", second)).await;
            let asked = std::mem::take(&mut *asked.lock().unwrap());
            let created = asked.iter().any(|line| line.starts_with("POST /apis/cluster.fleet-scheduler.io"));
            let denied = asked.iter().any(|line| line.contains("/approval ") && line.contains(CLUSTER_LEFT));
            // Its Cluster is made once the request is read again, which this server does not have.
            let reads = asked.iter().any(|line| line.starts_with(&format!("GET {REQUESTS}/fleet-a")));
            assert_eq!((denied, created || reads), (!brings, brings), "{leader}, {second}: {asked:?}");
        }
    }
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
    let (mut registrar, settings, asked) = registrar();
    settings.send_replace(Some(names_a_minute(0)));
    registrar.on_request(joins).await;
    registrar.on_request(other).await;
    registrar.on_request(leaves).await;
    let asked = asked.lock().unwrap();
    let answers = asked_with(&asked, &format!("PATCH {REQUESTS}/"));
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers[0].contains("/fleet-a/approval ") && answers[0].contains(CLUSTER_LEFT), "{answers:?}");
    assert!(answers[1].contains("/leave/approval ") && answers[1].contains("NotRegistered"), "{answers:?}");
    // However many there are, none is listed for it.
    assert!(!asked.iter().any(|line| line.starts_with(&format!("GET {REQUESTS} "))), "{asked:?}");
}

#[tokio::test]
async fn acceptance_is_awaited_without_reads() {
    let joins = asks_for("a", 1);
    let requester = csr::find_requester(&joins).unwrap();
    let asked_for = csr::parse_request(&joins, requester, Duration::from_secs(86_400)).unwrap();
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
    registrar.index.put_cluster(cluster.clone());
    registrar.retry_pending().await;
    assert!(asked.lock().unwrap().len() > reads, "the watch says that it is accepted");
}

#[tokio::test]
async fn frequent_renewals_are_held_back() {
    let key = KeyPair::generate().unwrap();
    let joins = asks_with(&key, "a", 1);
    let requester = csr::find_requester(&joins).unwrap();
    let asked_for = csr::parse_request(&joins, requester, Duration::from_secs(86_400)).unwrap();
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
