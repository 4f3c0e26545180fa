use std::convert::Infallible;
use std::sync::Mutex;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::client::Body;
use kube::runtime::events::Reporter;

use super::*;
use crate::api::labels::ANNOTATION_KEY_FINGERPRINT;
use crate::api::{ClusterSpec, ClusterStatus};

/// Returns a monitor of a control plane that has this cluster or none, and the requests that it wrote.
fn monitor(found: Option<&Cluster>) -> (Monitor, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, found) = (asked.clone(), found.map(|cluster| json!(cluster).to_string()));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (log, found) = (log.clone(), found.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = String::from_utf8(body.collect_bytes().await.unwrap().to_vec()).unwrap();
            let reads = parts.method == http::Method::GET;
            if !reads {
                log.lock().unwrap().push(format!("{} {} {body}", parts.method, parts.uri.path()));
            }
            let listed = parts.uri.path().rsplit_once("/namespaces/fleet-c-a/").map(|(_, kind)| kind);
            let (code, text) = match (found, listed) {
                (_, Some("clusterreports")) if reads => (200, held("ClusterReport")),
                (_, Some("schedules")) if reads => (200, held("Schedule")),
                (_, Some("leases")) if reads => (200, held("Lease")),
                (_, Some("events")) if reads => (200, held("Event")),
                (Some(_), _) if reads && parts.uri.path().ends_with("/namespaces/fleet-c-a") => {
                    (404, format_status("Failure", 404))
                }
                (Some(found), _) if reads => (200, found),
                // What is applied is answered with itself.
                (Some(_), _) if body.contains("apiVersion") => (200, body),
                (Some(_), _) => (200, format_status("Success", 200)),
                (None, _) => (404, format_status("Failure", 404)),
            };
            Ok::<_, Infallible>(http::Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap())
        }
    });
    let client = Client::new(service, "default");
    let recorder = Recorder::new(client.clone(), Reporter { controller: "test".to_owned(), instance: None });
    let index = Arc::new(Index::default());
    (Monitor { client, index, metrics: Metrics::default(), recorder }, asked)
}

fn format_status(result: &str, code: u16) -> String {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": result,
        "code": code, "message": "", "reason": if code == 404 { "NotFound" } else { "" }});
    status.to_string()
}

/// A list of two objects, one of which a finalizer holds; with managed fields that an agent may write.
fn held(kind: &str) -> String {
    let managed = json!([{ "manager": "x", "time": "9999-12-31T23:59:59Z" }]);
    let items = [("held", &["example.com/hold"][..]), ("free", &[])].map(|(name, finalizers)| {
        json!({ "metadata": { "name": name, "uid": "7", "finalizers": finalizers, "managedFields": managed } })
    });
    json!({ "kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {}, "items": items }).to_string()
}

fn leaving(uid: &str) -> Cluster {
    let mut cluster = Cluster::new("a", ClusterSpec { name: "a".to_owned(), ..ClusterSpec::default() });
    cluster.metadata.uid = Some(uid.to_owned());
    cluster.status = Some(ClusterStatus { leave_requested: Some(true), ..ClusterStatus::default() });
    cluster
}

fn deleted(asked: &Mutex<Vec<String>>) -> Vec<String> {
    asked.lock().unwrap().iter().filter_map(|line| line.strip_prefix("DELETE ").map(str::to_owned)).collect()
}

#[tokio::test]
async fn an_existing_cluster_keeps_its_rights() {
    let (monitor, asked) = monitor(Some(&leaving("1")));
    monitor.index.add_deleted(["a".to_owned()]);
    monitor.revoke_deleted().await;
    assert!(asked.lock().unwrap().is_empty() && monitor.index.take_deleted().is_empty());
}

#[tokio::test]
async fn a_deleted_cluster_loses_its_rights() {
    let (monitor, asked) = monitor(None);
    monitor.index.add_deleted(["a".to_owned()]);
    monitor.revoke_deleted().await;
    let deleted = deleted(&asked);
    assert!(deleted[0].contains("/clusterrolebindings/fleet:agent:a "), "{deleted:?}");
    assert!(deleted.iter().any(|line| line.contains("/namespaces/fleet-c-a ")), "{deleted:?}");
    assert!(!deleted.iter().any(|line| line.contains("/clusters/")), "{deleted:?}");
}

#[tokio::test]
async fn finalizers_of_agents_are_removed() {
    let (monitor, asked) = monitor(None);
    monitor.index.add_deleted(["a".to_owned()]);
    monitor.revoke_deleted().await;
    let asked = asked.lock().unwrap();
    let last_right = asked.iter().rposition(|line| line.starts_with("DELETE "));
    let freed: Vec<_> = asked.iter().filter(|line| line.starts_with("PATCH ")).collect();
    for (line, kind) in freed.iter().zip(["clusterreports", "schedules", "leases", "events"]) {
        assert!(line.contains(&format!("/namespaces/fleet-c-a/{kind}/held ")), "{line}");
        assert!(line.contains(r#""finalizers":null"#) && line.contains(r#""uid":"7""#), "{line}");
    }
    assert_eq!((freed.len(), last_right), (4, Some(asked.len() - 5)), "{asked:?}");
}

#[tokio::test]
async fn deregistration_spares_a_successor() {
    let (monitor, asked) = monitor(Some(&leaving("2")));
    monitor.evaluate_cluster(Arc::new(leaving("1")), Instant::now()).await.unwrap();
    assert!(asked.lock().unwrap().is_empty());
    monitor.evaluate_cluster(Arc::new(leaving("2")), Instant::now()).await.unwrap();
    let deleted = deleted(&asked);
    let cluster = deleted.last().unwrap();
    assert!(cluster.contains("/clusters/a ") && cluster.contains(r#""preconditions":{"uid":"2"}"#), "{cluster}");
}

/// Returns whether a cluster is removed that the index has as `known` and the API server as `found`.
async fn removes_never_reported(known: &Cluster, found: &Cluster, now: Timestamp) -> bool {
    let (monitor, asked) = monitor(Some(found));
    monitor.index.put_cluster(known.clone());
    monitor.remove_never_reported(now).await;
    deleted(&asked).iter().any(|line| line.contains("/clusters/a "))
}

#[tokio::test]
async fn clusters_that_never_reported_are_removed_after_a_day() {
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let [young, old] = [23, 24].map(|hours| {
        let mut cluster = member(true, "k");
        cluster.metadata.creation_timestamp = Some(Time(now - SignedDuration::from_hours(hours)));
        cluster
    });
    assert!(removes_never_reported(&old, &old, now).await);
    assert!(!removes_never_reported(&young, &young, now).await);
    let mut reported = old.clone();
    reported.status = Some(ClusterStatus { last_update_time: Some(Time(now)), ..ClusterStatus::default() });
    assert!(!removes_never_reported(&old, &reported, now).await, "the watch was behind");
    let mut by_hand = old;
    by_hand.spec.cluster_id = None;
    assert!(!removes_never_reported(&by_hand, &by_hand, now).await, "reserved by an operator");
}

fn member(accepted: bool, key: &str) -> Cluster {
    let spec = ClusterSpec {
        name: "a".to_owned(),
        cluster_id: Some("0a1b2c3d-1111-2222-3333-444455556666".to_owned()),
        accepted,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::new("a", spec);
    cluster.metadata.uid = Some("1".to_owned());
    cluster.annotations_mut().insert(ANNOTATION_KEY_FINGERPRINT.to_owned(), key.repeat(64));
    cluster
}

/// Returns the writes of one reconciliation, where the index has `known` and the API server `now`.
async fn reconciled(known: &Cluster, now: &Cluster) -> (Monitor, Vec<String>) {
    let (monitor, asked) = monitor(Some(now));
    monitor.index.put_cluster(known.clone());
    monitor.reconcile_and_log(known, &mut std::collections::BTreeMap::new()).await;
    let asked = asked.lock().unwrap().clone();
    (monitor, asked)
}

#[tokio::test]
async fn rights_are_granted_to_the_latest_key() {
    let (monitor, asked) = reconciled(&member(true, "a"), &member(true, "b")).await;
    let bindings: Vec<_> = asked.iter().filter(|line| line.contains("bindings/")).collect();
    assert_eq!(bindings.len(), 2, "{asked:?}");
    for binding in bindings {
        assert!(binding.contains("fleet:agent:a:0a1b2c3d:bbbbbbbbbbbbbbbb"), "{binding}");
    }
    let holder = monitor.index.written_rights("a").unwrap().holder;
    assert_eq!(holder.as_deref(), Some("fleet:agent:a:0a1b2c3d:bbbbbbbbbbbbbbbb"));
}

#[tokio::test]
async fn a_suspended_cluster_loses_its_rights() {
    let (_, asked) = reconciled(&member(true, "a"), &member(false, "a")).await;
    assert!(asked.iter().all(|line| line.starts_with("DELETE ")), "{asked:?}");
    for binding in ["/clusterrolebindings/fleet:agent:a ", "/namespaces/fleet-c-a/rolebindings/fleet-agent "] {
        assert!(asked.iter().any(|line| line.contains(binding)), "{binding}: {asked:?}");
    }
}

#[tokio::test]
async fn reconciled_rights_are_not_rewritten() {
    let (monitor, _) = reconciled(&member(true, "a"), &member(true, "a")).await;
    assert!(rights::is_reconciled(&monitor.index, &member(true, "a")));
    assert!(!rights::is_reconciled(&monitor.index, &member(true, "b")), "another key");
    assert!(!rights::is_reconciled(&monitor.index, &member(false, "a")), "suspended");
    let mut another = member(true, "a");
    another.metadata.uid = Some("2".to_owned());
    assert!(!rights::is_reconciled(&monitor.index, &another), "made again by that name");
    monitor.index.forget_all_rights();
    assert!(!rights::is_reconciled(&monitor.index, &member(true, "a")), "after an upgrade, say");
}

#[tokio::test]
async fn deregistration_waits_for_the_name_lock() {
    let (monitor, asked) = monitor(Some(&leaving("1")));
    let index = monitor.index.clone();
    let names = index.names.lock().await;
    let evaluated = monitor.evaluate_cluster(Arc::new(leaving("1")), Instant::now());
    assert!(tokio::time::timeout(Duration::from_millis(50), evaluated).await.is_err());
    drop(names);
    assert!(asked.lock().unwrap().is_empty());
}
