//! What tests can do with a cluster that is only an API: components, the cutting proxy, dumps. Needs root.

// The tests share a cluster and must not overlap, so each holds the lock to its end.
#![allow(clippy::await_holding_lock)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bed::proxy::{Action, Match, Proxy, When};
use bed::{Bed, State, differences};

/// This checkout's API-only cluster. It stays up for the next run. The lock keeps one test from seeing another's faults.
fn api() -> (Bed, MutexGuard<'static, ()>) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let bed = Bed::here().expect("this checkout has a bed");
    bed.up(&["api-old"]).expect("an API comes up");
    (bed, guard)
}

async fn client(proxy: &Proxy) -> kube::Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(proxy.kubeconfig()).expect("the proxy's kubeconfig is valid");
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.expect("it leads somewhere");
    // It would try again what was refused, and so hide it.
    config.default_retry = false;
    kube::Client::try_from(config).expect("a client")
}

async fn send(client: &kube::Client, method: &str, path: &str, body: &str) -> Result<String, String> {
    let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(body.as_bytes().to_vec()).expect("a request");
    client.request_text(request).await.map_err(|error| error.to_string())
}

const MAP: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> String {
    format!(r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "{name}"}}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_cuts_where_it_is_told_to() {
    let (bed, _guard) = api();
    let _ = bed.kubectl("api-old", &["delete", "configmap", "one", "two", "three", "--ignore-not-found"]);
    let proxy = Proxy::start(&bed, "api-old").expect("a proxy starts");
    let client = client(&proxy).await;

    proxy.on(Match::verb("create").path("/configmaps"), When::Nth(2), Action::DropAnswer);
    proxy.on(Match::verb("create").path("/configmaps"), When::Nth(3), Action::Drop);
    assert!(send(&client, "POST", MAP, &map("one")).await.is_ok());
    assert!(send(&client, "POST", MAP, &map("two")).await.is_err(), "the answer is cut");
    assert!(send(&client, "POST", MAP, &map("three")).await.is_err(), "the request is cut");
    let list = send(&client, "GET", MAP, "").await.expect("reads go through");
    assert!(list.contains(r#""name":"two""#), "what was asked before the answer was cut is done");
    assert!(!list.contains(r#""name":"three""#), "what was cut before is not");
    assert_eq!(proxy.counts(), [("create", 3), ("list", 1)].into());
    assert_eq!(proxy.writes().len(), 3);

    proxy.mend();
    proxy.on(Match::any(), When::First(1), Action::Refuse { status: 429, retry_after: Some(1) });
    let refused = send(&client, "GET", "/version", "").await.expect_err("refused");
    assert!(refused.contains("429"), "{refused}");
    proxy.on(Match::writes(), When::Always, Action::Lie { status: 504 });
    assert!(send(&client, "DELETE", &format!("{MAP}/one"), "").await.expect_err("refused").contains("504"));
    proxy.mend();
    assert!(send(&client, "GET", &format!("{MAP}/one"), "").await.is_err(), "it was deleted all the same");

    let called = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&called);
    proxy.on(
        Match::writes(),
        When::Nth(1),
        Action::then(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        }),
    );
    proxy.set_round_trip(Duration::from_millis(200));
    let began = Instant::now();
    assert!(send(&client, "DELETE", &format!("{MAP}/two"), "").await.is_ok());
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert_eq!(called.load(Ordering::SeqCst), 1);

    proxy.cut();
    assert!(send(&client, "GET", "/version", "").await.is_err());
    proxy.mend();
    assert!(send(&client, "GET", "/version", "").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_come_through_as_they_happen() {
    use futures::{AsyncBufReadExt, TryStreamExt};
    let (bed, _guard) = api();
    let _ = bed.kubectl("api-old", &["delete", "configmap", "watched", "--ignore-not-found"]);
    let proxy = Proxy::start(&bed, "api-old").expect("a proxy starts");
    let client = client(&proxy).await;
    let request = http::Request::get(format!("{MAP}?watch=true")).body(Vec::new()).expect("a request");
    let mut events = client.request_stream(request).await.expect("a watch").lines();
    send(&client, "POST", MAP, &map("watched")).await.expect("an object is made");
    let seen = async {
        while let Some(line) = events.try_next().await.expect("an event") {
            if line.contains("watched") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), seen).await.expect("the event comes at once");
    assert_eq!(proxy.counts().get("watch"), Some(&1));
}

#[test]
fn components_can_be_paused_killed_and_mended() {
    let (bed, _guard) = api();
    bed.pause("api-old", "etcd").expect("etcd is paused");
    assert_eq!(bed.component("api-old", "etcd").expect("etcd is known"), State::Paused);
    assert!(bed.kubectl("api-old", &["get", "ns", "--request-timeout=2s"]).is_err(), "the API has no store");
    bed.resume("api-old", "etcd").expect("etcd goes on");
    bed.kill("api-old", "kube-apiserver").expect("the server is killed");
    assert_eq!(bed.component("api-old", "kube-apiserver").expect("it is known"), State::Stopped);
    bed.up(&["api-old"]).expect("`up` mends it");
    bed.restart("api-old", "kube-controller-manager").expect("a component is restarted");
    assert!(bed.kubectl("api-old", &["get", "ns"]).expect("the API answers").contains("kube-system"));
    let unknown = bed.stop("api-old", "kubelet").expect_err("an API has no kubelet").to_string();
    assert!(unknown.contains("has no component `kubelet`; it has etcd"), "{unknown}");
}

#[test]
fn a_dump_shows_what_was_changed_and_nothing_else() {
    let (bed, _guard) = api();
    let _ = bed.kubectl("api-old", &["delete", "secret", "dumped", "--ignore-not-found"]);
    let before = bed.dump("api-old").expect("a dump");
    assert!(before.contains_key("core/Namespace//kube-system"));
    assert!(before.contains_key("rbac.authorization.k8s.io/ClusterRole//cluster-admin"));
    bed.kubectl("api-old", &["create", "secret", "generic", "dumped", "--from-literal=key=hidden"]).expect("a secret");
    bed.kubectl("api-old", &["annotate", "namespace", "default", "seen=1", "--overwrite"]).expect("an annotation");
    let after = bed.dump("api-old").expect("a dump");
    let lines = differences(&before, &after);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.contains(&"+ core/Secret/default/dumped".to_owned()), "{lines:?}");
    assert!(!format!("{after:?}").contains("aGlkZGVu"), "no value of a Secret is in a dump");
    bed.kubectl("api-old", &["delete", "secret", "dumped"]).expect("it goes again");
    bed.kubectl("api-old", &["annotate", "namespace", "default", "seen-"]).expect("and so does the annotation");
    assert_eq!(differences(&before, &bed.dump("api-old").expect("a dump")), Vec::<String>::new());
}

#[test]
fn a_dump_is_not_taken_before_a_ready_node_is_seen_to_be_ready() {
    let (bed, _guard) = api();
    // As the controller manager leaves a node that has just come: ready, and marked as not ready until it looks again.
    let mark = "node.kubernetes.io/not-ready";
    let now = "2026-01-01T00:00:00Z";
    let ready = format!(
        r#"{{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": "{now}",
        "lastTransitionTime": "{now}"}}"#
    );
    let node = format!(
        r#"{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "new"}}, "status": {{"conditions": [{ready}]}},
        "spec": {{"taints": [{{"key": "{mark}", "effect": "NoExecute", "timeAdded": "{now}"}}]}}}}"#
    );
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("node.json");
    std::fs::write(&file, node).expect("a file");
    let _ = bed.kubectl("api-old", &["delete", "node", "new", "--ignore-not-found"]);
    bed.kubectl("api-old", &["create", "-f", &file.display().to_string()]).expect("a node");
    let dump = bed.dump("api-old").expect("a dump");
    bed.kubectl("api-old", &["delete", "node", "new"]).expect("it goes again");
    let node = dump["core/Node//new"].to_string();
    assert!(!node.contains(mark), "{node}");
}

#[test]
fn what_was_stored_after_a_back_up_is_gone_when_that_is_restored() {
    let (bed, _guard) = api();
    let kubectl = |args: &[&str]| bed.kubectl("api-old", args).expect("kubectl");
    kubectl(&["delete", "configmap", "before", "after", "--ignore-not-found"]);
    kubectl(&["create", "configmap", "before"]);
    bed.back_up("api-old").expect("a copy");
    kubectl(&["delete", "configmap", "before"]);
    kubectl(&["create", "configmap", "after"]);
    bed.restore_back_up("api-old").expect("the copy is back");
    let names = kubectl(&["get", "configmaps", "-o", "name"]);
    assert!(names.contains("configmap/before") && !names.contains("configmap/after"), "{names}");
    kubectl(&["delete", "configmap", "before"]);
}
