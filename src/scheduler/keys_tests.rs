use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use super::*;
use crate::api::labels::LABEL_INSTANCE;

type Meanwhile = Box<dyn FnOnce(&mut BTreeMap<String, Value>) + Send>;

/// A namespace, by the paths of its objects; what is written gets a version, and has to name it.
#[derive(Default)]
struct Namespace {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Runs once before the next creation, as somebody else.
    meanwhile: Option<Meanwhile>,
    patched: Vec<String>,
}

impl Namespace {
    fn answer(&mut self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let status = |code: u16, reason: &str| {
            (code, json!({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code}))
        };
        self.version += 1;
        match method {
            "GET" => self.objects.get(path).map_or(status(404, "NotFound"), |found| (200, found.clone())),
            "POST" => {
                if let Some(meanwhile) = self.meanwhile.take() {
                    meanwhile(&mut self.objects);
                }
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&path) {
                    return status(409, "AlreadyExists");
                }
                self.store(path, body, 201)
            }
            "PUT" => {
                let known = &self.objects[path];
                if known["immutable"] == true && known["data"] != body["data"] {
                    return status(422, "Invalid");
                }
                if known["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return status(409, "Conflict");
                }
                self.store(path.to_owned(), body, 200)
            }
            "PATCH" => {
                self.patched.push(path.to_owned());
                status(404, "NotFound")
            }
            _ => match self.objects.remove(path) {
                Some(gone) => (200, gone),
                None => status(404, "NotFound"),
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

fn client(namespace: &Arc<Mutex<Namespace>>) -> Client {
    let namespace = Arc::clone(namespace);
    let serve = move |request: http::Request<Body>| {
        let namespace = Arc::clone(&namespace);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let (code, answer) = namespace.lock().unwrap().answer(parts.method.as_str(), parts.uri.path(), body);
            http::Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))
        }
    };
    Client::new(tower::service_fn(serve), "fleet")
}

fn args(sans: &[&str]) -> KeysArgs {
    KeysArgs {
        name: "demo".parse().unwrap(),
        namespace: "fleet".parse().unwrap(),
        service_version: "v0.6.1".to_owned(),
        host: Some("192.0.2.10".parse().unwrap()),
        port: 32222,
        sans: sans.iter().map(|san| san.parse().unwrap()).collect(),
    }
}

async fn run_on(namespace: &Arc<Mutex<Namespace>>, sans: &[&str]) -> Result<KeysDone, KeysError> {
    ensure_keys(&client(namespace), &args(sans)).await
}

#[tokio::test]
async fn what_is_missing_is_made_once_and_then_nothing_is_written() {
    let namespace = Arc::new(Mutex::new(Namespace::default()));
    let first = run_on(&namespace, &[]).await.unwrap();
    assert_eq!((first.made.len(), first.renewed.len()), (6, 0), "{first:?}");
    assert_eq!(first.made[0], KEPT_SECRET);
    let before = namespace.lock().unwrap().objects.clone();
    let kept = &before[&secret_path(KEPT_SECRET)]["metadata"]["labels"];
    assert_eq!((&kept[LABEL_KEEP], &kept[LABEL_INSTANCE]), (&json!("data"), &Value::Null));
    assert_eq!(before[&secret_path(KEPT_SECRET)]["metadata"]["annotations"][LABEL_KEEP], "true");
    for (key, value) in applyset::installation_labels("control-plane", "demo", "fleet") {
        assert!(before.values().all(|secret| secret["metadata"]["labels"][key] == value), "{key}");
    }
    let server = namespace.lock().unwrap().data("fleet-scheduler-kubeconfig", "server");
    assert_eq!(server, "https://192.0.2.10:32222");
    assert_eq!(run_on(&namespace, &[]).await.unwrap(), KeysDone::default());
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
    assert_eq!((done.made.as_slice(), done.renewed.as_slice()), (&[][..], &["apiserver-certs"][..]));
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
    assert_eq!(done.made, ["etcd-certs"]);
    assert_eq!(done.renewed, ["controller-manager-kubeconfig"]);
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

#[tokio::test]
async fn data_is_a_reason_to_make_no_keys_unless_the_pod_that_would_write_it_has_never_begun() {
    let claim = |phase: &str| {
        let made = "2026-01-01T00:00:00Z";
        json!({"metadata": {"name": "etcd-data-etcd-0", "creationTimestamp": made}, "status": {"phase": phase}})
    };
    let pod = |made: &str, container: Value| {
        json!({"metadata": {"name": "etcd-0", "creationTimestamp": made},
            "status": {"containerStatuses": [container]}})
    };
    let container = |state: Value, restarts: u8| json!({"name": "etcd", "image": "", "imageID": "", "ready": false, "restartCount": restarts, "state": state});
    let waiting = || container(json!({"waiting": {"reason": "ContainerCreating"}}), 0);
    let at_once = "2026-01-01T00:00:01Z";
    let mut ended = waiting();
    ended["lastState"] = json!({"terminated": {"exitCode": 1}});
    for (name, phase, pod, is_lost) in [
        ("a claim that waits", "Pending", None, false),
        ("no pod", "Bound", None, true),
        ("a pod that waits for the keys", "Bound", Some(pod(at_once, waiting())), false),
        ("a pod of which nothing is known", "Bound", Some(json!({"metadata": {"name": "etcd-0"}})), true),
        ("a later pod", "Bound", Some(pod("2026-01-01T00:01:01Z", waiting())), true),
        ("a pod that runs", "Bound", Some(pod(at_once, container(json!({"running": {}}), 0))), true),
        ("one that has ended", "Bound", Some(pod(at_once, container(json!({"terminated": {"exitCode": 1}}), 0))), true),
        ("one that had ended", "Bound", Some(pod(at_once, ended)), true),
        ("one that began again", "Bound", Some(pod(at_once, container(json!({"waiting": {}}), 1))), true),
    ] {
        let namespace = Arc::new(Mutex::new(Namespace::default()));
        {
            let objects = &mut namespace.lock().unwrap().objects;
            let path = |rest: &str| format!("/api/v1/namespaces/fleet/{rest}");
            objects.insert(path("persistentvolumeclaims/etcd-data-etcd-0"), claim(phase));
            objects.extend(pod.map(|pod| (path("pods/etcd-0"), pod)));
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
    assert_eq!(done.made.len(), 5, "{done:?}");
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
