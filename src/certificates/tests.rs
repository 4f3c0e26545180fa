use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use serde_json::json;

use super::KeysError;
use super::complete::{KeyTarget, KeysDone, complete_key_secrets};
use super::renew::Outside;
use super::restart::{has_started_before, is_rolled_out, restart_start_readers, written_at};
use super::served::{TlsPort, compare_served, list_tls_ports};
use super::summary::{Summary, list_in_secrets, write_summary};
use crate::api::applyset;
use crate::api::labels::{LABEL_INSTALL, LABEL_INSTANCE, LABEL_KEEP};
use crate::pki::secrets::{KEPT_SECRET, SECRET_ENTRIES};
use crate::pki::{
    AuthorityKind, CertificateFacts, Choice, Endpoint, Files, Leaf, Lifetimes, PkiError, facts_of, is_same_authority,
};

type Meanwhile = Box<dyn FnOnce(&mut BTreeMap<String, Value>) + Send>;

/// A namespace, by the paths of its objects; what is written gets a version, and has to name it.
#[derive(Default)]
struct Namespace {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Runs once before the next creation, as somebody else.
    meanwhile: Option<Meanwhile>,
    patched: Vec<String>,
    pods: Vec<Value>,
    deleted: Vec<String>,
}

impl Namespace {
    fn answer(&mut self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.version += 1;
        match method {
            "GET" if path.ends_with("/pods") => (200, json!({"metadata": {}, "items": self.pods})),
            "DELETE" if path.contains("/pods/") => {
                // Another pod takes its place.
                let name = path.rsplit('/').next().unwrap();
                let pod = self.pods.iter_mut().find(|pod| pod["metadata"]["name"] == name).unwrap();
                pod["metadata"]["uid"] = json!(format!("uid-{}", self.version));
                pod["status"]["conditions"][0]["status"] = json!("True");
                self.deleted.push(name.to_owned());
                (200, pod.clone())
            }
            "GET" => self.objects.get(path).map_or(answer_status(404, "NotFound"), |found| (200, found.clone())),
            "POST" => {
                if let Some(meanwhile) = self.meanwhile.take() {
                    meanwhile(&mut self.objects);
                }
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&path) {
                    return answer_status(409, "AlreadyExists");
                }
                self.store(path, body, 201)
            }
            "PUT" => {
                let known = &self.objects[path];
                if known["immutable"] == true && known["data"] != body["data"] {
                    return answer_status(422, "Invalid");
                }
                if known["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return answer_status(409, "Conflict");
                }
                self.store(path.to_owned(), body, 200)
            }
            "PATCH" => {
                self.patched.push(path.to_owned());
                answer_status(404, "NotFound")
            }
            _ => match self.objects.remove(path) {
                Some(gone) => (200, gone),
                None => answer_status(404, "NotFound"),
            },
        }
    }

    fn store(&mut self, path: String, mut body: Value, code: u16) -> (u16, Value) {
        body["metadata"]["resourceVersion"] = self.version.to_string().into();
        body["metadata"]["uid"] = format!("uid-{}", self.version).into();
        self.objects.insert(path, body.clone());
        (code, body)
    }

    fn data(&self, name: &str, key: &str) -> String {
        let data = &self.objects[&secret_path(name)]["data"][key];
        String::from_utf8(STANDARD.decode(data.as_str().unwrap()).unwrap()).unwrap()
    }
}

fn secret_path(name: &str) -> String {
    format!("/api/v1/namespaces/fleet/secrets/{name}")
}

fn answer_status(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code}))
}

fn client(namespace: &Arc<Mutex<Namespace>>) -> Client {
    let namespace = Arc::clone(namespace);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let namespace = Arc::clone(&namespace);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let (code, answer) = namespace.lock().unwrap().answer(parts.method.as_str(), parts.uri.path(), body);
            http::Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))
        }
    });
    Client::new(service, "fleet")
}

fn target(sans: &[&str]) -> KeyTarget {
    KeyTarget {
        name: "demo".parse().unwrap(),
        namespace: "fleet".parse().unwrap(),
        service_version: "v0.6.1".to_owned(),
        endpoint: Endpoint { host: "192.0.2.10".parse().unwrap(), port: 32222 },
        sans: sans.iter().map(|san| san.parse().unwrap()).collect(),
        lifetimes: Lifetimes::default(),
        makes_missing: true,
        choice: Choice::Due,
        new_admin_key: false,
    }
}

/// Secrets that were made, and those that were renewed.
type Wrote = (Vec<&'static str>, Vec<&'static str>);

async fn run_with(
    namespace: &Arc<Mutex<Namespace>>,
    target: &KeyTarget,
    now: Timestamp,
) -> Result<KeysDone, KeysError> {
    let client = client(namespace);
    let done = complete_key_secrets(&client, target, now).await?;
    restart_start_readers(&client, &target.namespace, &done).await?;
    Ok(done)
}

async fn run_on(namespace: &Arc<Mutex<Namespace>>, sans: &[&str]) -> Result<Wrote, KeysError> {
    let done = run_with(namespace, &target(sans), Timestamp::now()).await?;
    Ok((done.made, done.renewed))
}

#[tokio::test]
async fn what_is_missing_is_made_once_and_then_nothing_is_written() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let first = run_on(&namespace, &[]).await.unwrap();
    assert_eq!((first.0.len(), first.1.len()), (6, 0), "{first:?}");
    assert_eq!(first.0[0], KEPT_SECRET);
    let before = namespace.lock().unwrap().objects.clone();
    let kept = &before[&secret_path(KEPT_SECRET)]["metadata"]["labels"];
    assert_eq!((&kept[LABEL_KEEP], &kept[LABEL_INSTANCE]), (&json!("data"), &Value::Null));
    assert_eq!(before[&secret_path(KEPT_SECRET)]["metadata"]["annotations"][LABEL_KEEP], "true");
    for (key, value) in applyset::installation_labels("control-plane", "demo", "fleet") {
        assert!(before.values().all(|secret| secret["metadata"]["labels"][key] == value), "{key}");
    }
    let server = namespace.lock().unwrap().data("fleet-scheduler-kubeconfig", "server");
    assert_eq!(server, "https://192.0.2.10:32222");
    assert_eq!(run_on(&namespace, &[]).await.unwrap(), Wrote::default());
    assert_eq!(namespace.lock().unwrap().objects, before);
    let kubeconfig = namespace.lock().unwrap().data("fleet-kubeconfig", "kubeconfig");
    assert!(kubeconfig.contains("https://192.0.2.10:32222"), "{kubeconfig}");
}

#[tokio::test]
async fn a_new_address_renews_the_leaves_that_lack_it_and_no_authority() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    run_on(&namespace, &[]).await.unwrap();
    let authority = namespace.lock().unwrap().data(KEPT_SECRET, "ca.crt");
    // As `template` prints it.
    namespace.lock().unwrap().objects.get_mut(&secret_path("apiserver-certs")).unwrap()["immutable"] = true.into();
    let done = run_on(&namespace, &["fleet.example.com"]).await.unwrap();
    assert_eq!(done, (vec![], vec!["apiserver-certs"]));
    assert_eq!(namespace.lock().unwrap().data(KEPT_SECRET, "ca.crt"), authority);
    assert!(namespace.lock().unwrap().patched.is_empty(), "the API server reads its files again");
}

#[tokio::test]
async fn a_lost_leaf_is_made_again_and_a_damaged_kubeconfig_is_renewed_with_its_reader_begun_anew() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    run_on(&namespace, &[]).await.unwrap();
    {
        let mut there = namespace.lock().unwrap();
        there.objects.remove(&secret_path("etcd-certs"));
        let path = secret_path("controller-manager-kubeconfig");
        there.objects.get_mut(&path).unwrap()["data"]["kubeconfig"] = STANDARD.encode("no").into();
    }
    let done = run_on(&namespace, &[]).await.unwrap();
    assert_eq!(done, (vec!["etcd-certs"], vec!["controller-manager-kubeconfig"]));
    let patched = &namespace.lock().unwrap().patched;
    assert_eq!(patched, &["/apis/apps/v1/namespaces/fleet/deployments/kube-controller-manager"]);
}

#[tokio::test]
async fn lost_authorities_are_never_made_anew() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    run_on(&namespace, &[]).await.unwrap();
    namespace.lock().unwrap().objects.remove(&secret_path(KEPT_SECRET));
    let before = namespace.lock().unwrap().objects.clone();
    let lost = run_on(&namespace, &[]).await.unwrap_err();
    assert!(lost.to_string().contains("apiserver-certs still exists"), "{lost}");
    assert_eq!(namespace.lock().unwrap().objects, before);
}

fn build_etcd_pod(made: &str, container: Value) -> Value {
    json!({"metadata": {"name": "etcd-0", "creationTimestamp": made}, "status": {"containerStatuses": [container]}})
}

fn describe_etcd_container(state: Value, restarts: u8) -> Value {
    json!({"name": "etcd", "image": "", "imageID": "", "ready": false, "restartCount": restarts, "state": state})
}

#[tokio::test]
async fn data_is_a_reason_to_make_no_keys_unless_the_pod_that_would_write_it_has_never_begun() {
    let claimed = "2026-01-01T00:00:00Z";
    let at_once = "2026-01-01T00:00:01Z";
    let waiting = describe_etcd_container(json!({"waiting": {"reason": "ContainerCreating"}}), 0);
    let mut ended = waiting.clone();
    ended["lastState"] = json!({"terminated": {"exitCode": 1}});
    for (name, phase, pod, is_lost) in [
        ("a claim that waits", "Pending", None, false),
        ("no pod", "Bound", None, true),
        ("a pod that waits for the keys", "Bound", Some(build_etcd_pod(at_once, waiting.clone())), false),
        ("a pod of which nothing is known", "Bound", Some(json!({"metadata": {"name": "etcd-0"}})), true),
        ("a later pod", "Bound", Some(build_etcd_pod("2026-01-01T00:01:01Z", waiting.clone())), true),
        (
            "a pod that runs",
            "Bound",
            Some(build_etcd_pod(at_once, describe_etcd_container(json!({"running": {}}), 0))),
            true,
        ),
        (
            "one that has ended",
            "Bound",
            Some(build_etcd_pod(at_once, describe_etcd_container(json!({"terminated": {"exitCode": 1}}), 0))),
            true,
        ),
        ("one that had ended", "Bound", Some(build_etcd_pod(at_once, ended)), true),
        (
            "one that began again",
            "Bound",
            Some(build_etcd_pod(at_once, describe_etcd_container(json!({"waiting": {}}), 1))),
            true,
        ),
    ] {
        let namespace = Arc::new(Mutex::new(Namespace::default()));
        {
            let objects = &mut namespace.lock().unwrap().objects;
            let claim = json!({"metadata": {"name": "etcd-data-etcd-0", "creationTimestamp": claimed},
                "status": {"phase": phase}});
            objects.insert("/api/v1/namespaces/fleet/persistentvolumeclaims/etcd-data-etcd-0".to_owned(), claim);
            objects.extend(pod.map(|pod| ("/api/v1/namespaces/fleet/pods/etcd-0".to_owned(), pod)));
        }
        let outcome = run_on(&namespace, &[]).await;
        assert_eq!(outcome.is_err(), is_lost, "{name}: {outcome:?}");
        assert!(outcome.is_ok() || outcome.unwrap_err().to_string().contains("etcd-data-etcd-0"), "{name}");
    }
}

#[tokio::test]
async fn of_two_at_once_one_makes_the_authorities() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let other = Arc::new(Mutex::new(Namespace::default()));
    run_on(&other, &[]).await.unwrap();
    let theirs = other.lock().unwrap().objects[&secret_path(KEPT_SECRET)].clone();
    let authority = other.lock().unwrap().data(KEPT_SECRET, "ca.crt");
    namespace.lock().unwrap().meanwhile = Some(Box::new(move |objects| {
        objects.insert(secret_path(KEPT_SECRET), theirs);
    }));
    let done = run_on(&namespace, &[]).await.unwrap();
    assert_eq!(done.0.len(), 5, "{done:?}");
    assert_eq!(namespace.lock().unwrap().data(KEPT_SECRET, "ca.crt"), authority);
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let theirs = json!({"metadata": {"name": "etcd-certs", "labels": {LABEL_INSTALL: "other"}}});
    namespace.lock().unwrap().objects.insert(secret_path("etcd-certs"), theirs);
    let refused = run_on(&namespace, &[]).await.unwrap_err();
    assert!(matches!(&refused, KeysError::NotOurs(name) if name == "etcd-certs"), "{refused}");
    assert_eq!(namespace.lock().unwrap().objects.len(), 1);
}

#[test]
fn keys_that_cannot_be_made_are_not_told_as_damaged_ones() {
    assert!(matches!(KeysError::from(PkiError::Random), KeysError::NotMade(_)));
    let missing = PkiError::Missing { entry: "ca.crt".to_owned() };
    assert!(matches!(KeysError::from(missing), KeysError::Damaged(_)));
}

/// The time at which a set that was made now is due.
fn when_due() -> Timestamp {
    Timestamp::now().checked_add(Duration::from_secs(310 * 24 * 3600)).unwrap()
}

fn read_operator_user(files: &Files) -> String {
    facts_of(files).into_iter().find(|(file, _)| file == "admin.kubeconfig").unwrap().1.unwrap().common_name
}

#[tokio::test]
async fn a_renewal_changes_the_data_of_existing_secrets_and_makes_none() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let renewing = KeyTarget { makes_missing: false, service_version: "v9.9.9".to_owned(), ..target(&[]) };
    let missing = run_with(&namespace, &renewing, Timestamp::now()).await.unwrap_err();
    assert!(matches!(missing, KeysError::NotInstalled(_)) && namespace.lock().unwrap().objects.is_empty());

    let made = run_with(&namespace, &target(&[]), Timestamp::now()).await.unwrap();
    let before = namespace.lock().unwrap().objects.clone();
    assert_eq!(run_with(&namespace, &renewing, Timestamp::now()).await.unwrap().renewed, [""; 0]);
    assert_eq!(namespace.lock().unwrap().objects, before);

    let done = run_with(&namespace, &renewing, when_due()).await.unwrap();
    assert_eq!(done.made, [""; 0]);
    assert_eq!(done.renewed.len(), 5, "all but the CAs: {:?}", done.renewed);
    let after = namespace.lock().unwrap().objects.clone();
    assert_eq!(after[&secret_path(KEPT_SECRET)], before[&secret_path(KEPT_SECRET)]);
    for (path, secret) in &after {
        assert_eq!(secret["metadata"]["labels"], before[path]["metadata"]["labels"], "{path}");
    }
    assert_eq!(
        namespace.lock().unwrap().patched,
        ["/apis/apps/v1/namespaces/fleet/deployments/kube-controller-manager"],
        "nothing else is restarted"
    );
    assert_eq!(read_operator_user(&done.files), read_operator_user(&made.files), "bindings name the operator's user");
}

#[tokio::test]
async fn a_renewal_leaves_a_lost_secret_to_the_install() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    run_on(&namespace, &[]).await.unwrap();
    let renewing = KeyTarget { makes_missing: false, ..target(&[]) };
    for lost in SECRET_ENTRIES.iter().map(|entry| entry.secret) {
        let Some(secret) = namespace.lock().unwrap().objects.remove(&secret_path(lost)) else { continue };
        let before = namespace.lock().unwrap().objects.clone();
        let error = run_with(&namespace, &renewing, when_due()).await.unwrap_err();
        assert!(matches!(&error, KeysError::NotInstalled(name) if name == lost), "{error}");
        assert_eq!(namespace.lock().unwrap().objects, before, "{lost}");
        namespace.lock().unwrap().objects.insert(secret_path(lost), secret);
    }
}

#[tokio::test]
async fn who_reads_the_ca_of_etcd_at_start_is_restarted_when_it_was_signed_again() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    run_on(&namespace, &[]).await.unwrap();
    let nearly = Timestamp::now().checked_add(Duration::from_secs(3300 * 24 * 3600)).unwrap();
    let renewing = KeyTarget { makes_missing: false, ..target(&[]) };
    let done = run_with(&namespace, &renewing, nearly).await.unwrap();
    assert_eq!(done.authorities.len(), 3);
    let patched = namespace.lock().unwrap().patched.clone();
    let workloads: Vec<&str> = patched.iter().filter_map(|path| path.rsplit('/').next()).collect();
    assert_eq!(workloads, ["kube-controller-manager", "etcd", "apiserver"]);
}

fn pod(component: &str, ready: &str, started: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": format!("{component}-0"), "labels": {"app.kubernetes.io/name": component}},
        "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [
            {"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
             "state": {"running": {"startedAt": started}}}]},
    }))
    .unwrap()
}

fn read_etcd_facts(files: &Files) -> CertificateFacts {
    CertificateFacts::from_pem("x", files.get("etcd-server.crt").unwrap()).unwrap()
}

#[tokio::test]
async fn what_ready_pods_serve_is_compared_with_the_secrets() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let before = run_with(&namespace, &target(&[]), Timestamp::now()).await.unwrap().files;
    let after = run_with(&namespace, &target(&[]), when_due()).await.unwrap().files;
    let started = "2026-01-01T00:00:00Z";
    let pods =
        [pod("etcd", "True", started), pod("apiserver", "False", started), pod("fleet-scheduler", "True", started)];
    let ports = list_tls_ports(&pods);
    let (pod, address) = ("etcd-0".to_owned(), "10.0.0.7".to_owned());
    let client_port = TlsPort { component: "etcd", pod, address, port: 2379, leaf: Leaf::EtcdServer };
    let peer_port = TlsPort { port: 2380, leaf: Leaf::EtcdPeer, ..client_port.clone() };
    assert_eq!(ports, [client_port, peer_port]);
    let held = compare_served(&ports[0], &after, Ok(read_etcd_facts(&after))).unwrap();
    assert_eq!((held.holder.as_str(), held.serial), ("Pod etcd-0:2379", read_etcd_facts(&after).serial));
    let behind = compare_served(&ports[0], &after, Ok(read_etcd_facts(&before))).unwrap_err();
    for serial in [read_etcd_facts(&before).serial, read_etcd_facts(&after).serial] {
        assert!(behind.contains("etcd-0") && behind.contains(&serial), "{behind}");
    }
    assert!(compare_served(&ports[0], &after, Err("refused".to_owned())).unwrap_err().contains("refused"));
}

#[tokio::test]
async fn who_runs_since_before_a_renewal_that_was_interrupted_is_restarted() {
    let limit: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for (started, component, is_restarted) in [
        ("2025-12-31T23:59:59Z", "etcd", true),
        ("2025-12-31T23:59:59Z", "apiserver", false),
        ("2026-01-01T00:00:00Z", "etcd", false),
    ] {
        let pods = [pod("etcd", "True", started)];
        assert_eq!(has_started_before(&pods, component, limit), is_restarted, "{component} since {started}");
    }
}

#[tokio::test]
async fn the_time_of_a_secret_is_that_of_a_file_only_where_it_was_issued_then() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let mut done = run_with(&namespace, &target(&[]), Timestamp::now()).await.unwrap();
    let file = AuthorityKind::Etcd.certificate_file();
    let facts = facts_of(&done.files).into_iter().find(|(name, _)| name == file).unwrap();
    let begins = facts.1.unwrap().not_before;
    let (soon, before) = (SignedDuration::from_mins(6), -SignedDuration::from_mins(5));
    for (offset, expected) in [
        (soon, soon),
        // Another CA in the Secret was renewed since, or this one came by an install after the last renewal.
        (SignedDuration::from_hours(9600), before),
        (-SignedDuration::from_hours(24), before),
    ] {
        done.written.insert(KEPT_SECRET, begins.checked_add(offset).unwrap());
        let written = written_at(&done, KEPT_SECRET, file).unwrap();
        assert_eq!(written.duration_since(begins), expected, "{offset}");
    }
}

#[test]
fn a_stateful_set_is_rolled_out_when_all_replicas_are_new_and_ready() {
    for (generation, updated, ready, is_complete) in
        [(2, 3, 3, true), (1, 3, 3, false), (2, 2, 3, false), (2, 3, 2, false)]
    {
        let set: StatefulSet = serde_json::from_value(
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 3, "serviceName": "etcd",
                "selector": {}, "template": {}}, "status": {"replicas": 3, "observedGeneration": generation,
                "updatedReplicas": updated, "readyReplicas": ready}}),
        )
        .unwrap();
        assert_eq!(is_rolled_out(&set), is_complete, "{generation} {updated} {ready}");
    }
}

fn read_summary(pairs: &[(&str, &str)]) -> Summary {
    let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Summary::from_config_map(&ConfigMap { data: Some(data), ..ConfigMap::default() })
}

#[tokio::test]
async fn the_outcome_of_a_run_is_written_down_and_read_back() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let files = run_with(&namespace, &target(&[]), Timestamp::now()).await.unwrap().files;
    let held = list_in_secrets(&files);
    assert_eq!(held.len(), 12);
    assert!(held.iter().any(|one| one.certificate == "apiserver.crt" && one.holder == "Secret apiserver-certs"));
    // No install has made the ConfigMap yet.
    write_summary(&client(&namespace), "fleet", Ok(&held), Timestamp::now()).await.unwrap();
    let at = "2026-03-01T00:00:00Z";
    let list = serde_json::to_string(&held).unwrap();
    let summary = read_summary(&[("certificates.json", &list), ("last-success", at)]);
    assert_eq!((summary.certificates, summary.failed), (held, None));
    let failed = read_summary(&[("last-failure", at), ("last-error", "no")]);
    assert_eq!(failed.failed, Some((at.parse().unwrap(), "no".to_owned())));
    assert_eq!(read_summary(&[]), Summary::default());
}

/// Proves the certificates of a set from outside, where pods cannot be reached.
async fn prove_with(namespace: &Arc<Mutex<Namespace>>, recovers: bool, done: KeysDone) -> KeysError {
    let (client, name, place) = (client(namespace), "demo".parse().unwrap(), "fleet".parse().unwrap());
    let outside = Outside {
        client: &client,
        name: &name,
        namespace: &place,
        recovers,
        was_failed: false,
        roll_after: Duration::ZERO,
        waiting: &|_| {},
    };
    outside.prove(done).await.unwrap_err()
}

#[tokio::test]
async fn a_run_that_recovers_replaces_what_serves_nothing_etcd_first() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let files = run_with(&namespace, &target(&[]), Timestamp::now()).await.unwrap().files;
    let done = KeysDone { files, ..KeysDone::default() };
    let started = Timestamp::now().to_string();
    let dead = ["fleet-scheduler", "apiserver", "etcd"].map(|component| pod(component, "False", &started));
    let pods = [&dead[..], &[pod("kube-controller-manager", "True", &started)]].concat();
    let pods: Vec<Value> = pods.iter().map(|pod| serde_json::to_value(pod).unwrap()).collect();
    namespace.lock().unwrap().pods.clone_from(&pods);
    let error = prove_with(&namespace, false, done.clone()).await;
    assert!(error.to_string().contains("no pod of etcd is ready"), "{error}");
    assert_eq!(namespace.lock().unwrap().deleted, [""; 0], "nothing is replaced without being asked for");

    let error = prove_with(&namespace, true, done.clone()).await;
    assert!(matches!(error, KeysError::NotServed(_)), "{error}");
    assert_eq!(namespace.lock().unwrap().deleted, ["etcd-0", "apiserver-0", "fleet-scheduler-0"]);
    // What was replaced is ready now, and is not replaced again.
    prove_with(&namespace, true, done.clone()).await;
    assert_eq!(namespace.lock().unwrap().deleted.len(), 3);
    // Who runs has read a CA that has ended.
    let ended = KeysDone { ended_authorities: vec![AuthorityKind::Etcd], ..done };
    prove_with(&namespace, true, ended).await;
    assert_eq!(namespace.lock().unwrap().deleted[3..], ["etcd-0", "apiserver-0"]);
}

fn build_renewal_target(choice: Choice) -> KeyTarget {
    KeyTarget { makes_missing: false, choice, ..target(&[]) }
}

#[tokio::test]
async fn certificates_can_be_chosen_and_the_others_stay() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let before = run_with(&namespace, &target(&[]), Timestamp::now()).await.unwrap().files;
    // Years later, when all leaves have ended.
    let later = Timestamp::now().checked_add(Duration::from_secs(500 * 24 * 3600)).unwrap();
    let done = run_with(&namespace, &build_renewal_target(Choice::Only(["apiserver.crt".to_owned()].into())), later)
        .await
        .unwrap();
    assert_eq!(done.renewed, ["apiserver-certs"]);
    assert_eq!(done.files.get("front-proxy-client.crt"), before.get("front-proxy-client.crt"));
    let front_proxy = Choice::Only(["front-proxy-ca.crt".to_owned()].into());
    let done = run_with(&namespace, &build_renewal_target(front_proxy), Timestamp::now()).await.unwrap();
    assert_eq!((done.renewed, done.authorities), (vec![KEPT_SECRET], vec![AuthorityKind::FrontProxy]));
    let [now, former] = [&done.files, &before].map(|files| files.get("front-proxy-ca.crt").unwrap());
    assert!(now != former && is_same_authority(now, former));
    assert!(!is_same_authority(now, before.get("ca.crt").unwrap()));
    let all = run_with(&namespace, &build_renewal_target(Choice::All), Timestamp::now()).await.unwrap();
    assert_eq!((all.renewed.len(), all.authorities.len()), (5, 0));
    assert_eq!(read_operator_user(&all.files), read_operator_user(&before), "bindings name the operator's user");
    let new_key = KeyTarget { new_admin_key: true, ..build_renewal_target(Choice::Due) };
    let done = run_with(&namespace, &new_key, Timestamp::now()).await.unwrap();
    assert_eq!(done.renewed, ["fleet-kubeconfig"]);
    assert_ne!(read_operator_user(&done.files), read_operator_user(&before));
}

#[tokio::test]
async fn a_renewal_of_what_is_there_keeps_its_addresses() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let files = run_with(&namespace, &target(&["fleet.example.com"]), Timestamp::now()).await.unwrap().files;
    let (name, place) = ("demo".parse().unwrap(), "fleet".parse().unwrap());
    let present = KeyTarget::from_present(&name, &place, &files, Choice::Due).unwrap();
    assert!(present.complete(&files, Timestamp::now()).unwrap().is_unchanged());
    let renewed = present.complete(&files, when_due()).unwrap().files;
    let [renewed, present] =
        [&renewed, &files].map(|files| CertificateFacts::from_pem("x", files.get("apiserver.crt").unwrap()).unwrap());
    assert_eq!(renewed.sans, present.sans);
    let mut damaged = files;
    damaged.remove("admin.kubeconfig");
    let missing = KeyTarget::from_present(&name, &place, &damaged, Choice::Due).unwrap_err();
    assert!(missing.to_string().contains("admin.kubeconfig"), "{missing}");
}
