//! What is fuzzed: each takes any bytes and panics if something does not hold.

#![allow(dead_code, reason = "each program uses one of them")]

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleetctl::api::Cluster;
use fleetctl::api::lenient::Lenient;
use fleetctl::apply::{Engine, WaitTarget};
use fleetctl::chart::{Chart, Kind, RenderInput, SetKind, ValuesBuilder, embedded_versions, output};
use fleetctl::control_plane::health;
use fleetctl::diagnose::kstatus;
use fleetctl::inventory::Owner;
use fleetctl::k8s::ApiError;
use fleetctl::k8s::connect::daemon_client::token_client;
use fleetctl::k8s::connect::init_kubeconfig::Init;
use fleetctl::k8s::connect::kubeconfig::connect_with;
use fleetctl::k8s::connect::kubeconfig_check;
use fleetctl::pki;
use fleetctl::workload_cluster::values::AgentValues;
use kube::Client;
use kube::api::{ObjectList, PartialObjectMeta, WatchEvent};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

fn agent() -> &'static Chart {
    static CHART: OnceLock<Chart> = OnceLock::new();
    let newest = embedded_versions().newest_row().version;
    CHART.get_or_init(|| Chart::load_embedded(Kind::Agent, newest).expect("the newest line has an agent"))
}

/// Bytes as a file of values: whatever they are, either an error that can be shown, or objects of the same kinds as
/// without them, which read back as they were written.
pub(crate) fn values(data: &[u8]) {
    let chart = agent();
    let tree = match chart.values_builder().file("fuzz.yaml", data).build(AgentValues::schema) {
        Ok(tree) => tree,
        Err(problems) => {
            assert!(problems.has_errors() && !problems.render_diagnostics(true).is_empty());
            return;
        }
    };
    let typed: AgentValues = tree.deserialize().expect("what the schema takes fits the type");
    let input = RenderInput {
        values: serde_json::to_value(typed).expect("values are JSON"),
        release: json!({"name": "x", "namespace": "fleet", "line": "v1.1", "managedBy": "fleetctl", "version": "v1.1.0"}),
        facts: json!({"admissionPolicies": true}),
        pki: BTreeMap::new(),
    };
    let rendered = chart.render(&input).expect("valid values render");
    assert!((5..=12).contains(&rendered.objects.len()), "{} objects", rendered.objects.len());
    for object in &rendered.objects {
        // One Role is about the autoscaler, which lives in kube-system.
        let expected = object.namespace().is_none_or(|namespace| ["fleet", "kube-system"].contains(&namespace));
        assert!(expected, "{}", object.id());
        let text = output::object_yaml(&object.json);
        let back: Value = serde_saphyr::from_str(&text).expect("what is written can be read");
        assert_eq!(back, object.json, "{text}");
    }
}

/// The first byte chooses the flag, the rest is its argument: an error that can be shown, or values.
pub(crate) fn set(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(argument) = std::str::from_utf8(rest) else { return };
    let kind = [SetKind::Value, SetKind::Text, SetKind::Json, SetKind::File][usize::from(first % 4)];
    #[allow(clippy::result_large_err)] // As the builder wants it.
    let read = |path: &str| Ok(path.as_bytes().to_vec());
    let builder =
        || ValuesBuilder::new(None).file("below.yaml", b"a: {b: [1, {c: 2}]}\n").set_with(kind, argument, &read);
    match builder().peek_values() {
        Ok(values) => {
            assert!(depth(&values) <= 64, "deeper than values may nest");
            assert_eq!(builder().peek_values().expect("the same again"), values);
        }
        Err(problems) => assert!(!problems.render_diagnostics(true).is_empty()),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"))
}

/// What an install writes, to be merged into whatever the bytes are.
fn ours() -> pki::Kubeconfig {
    let server = "https://192.0.2.1:6443";
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: demo\nclusters: [{{name: demo, cluster: {{server: '{server}', \
         certificate-authority-data: LS0t}}}}]\ncontexts: [{{name: demo, context: {{cluster: demo, user: u}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n"
    );
    pki::Kubeconfig::parse("ours", &text).expect("it is as an install writes it")
}

/// Bytes as a kubeconfig: an error, or a client whose requests have an address; and the entries of a control plane are
/// merged into it so that they can be removed again, or it is left alone. Nothing is connected to, run or read.
pub(crate) fn kubeconfig(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(mut config) = kubeconfig_check::parse_kubeconfig(text) {
        for user in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
            (user.exec, user.token_file, user.client_certificate, user.client_key) = (None, None, None, None);
        }
        for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            cluster.certificate_authority = None;
        }
        match runtime().block_on(connect_with(config)) {
            Ok(connected) => {
                // As the library joins it with the path of a request, which it takes for granted to go well.
                let base: http::Uri = connected.server.parse().expect("an address");
                let path = format!("{}/version?a=b", base.path().trim_end_matches('/'));
                let scheme = base.scheme_str().expect("a scheme");
                let authority = base.authority().expect("a host").as_str();
                assert!(scheme == "http" || scheme == "https", "{scheme}");
                http::Uri::builder()
                    .scheme(scheme)
                    .authority(authority)
                    .path_and_query(path)
                    .build()
                    .expect("a request");
            }
            Err(error) => assert!(!error.to_string().is_empty() && !error.remedy().parts().is_empty()),
        }
    }
    if let Ok(init) = Init::parse(text) {
        let _guard = runtime().enter();
        let _ = token_client(&init);
    }
    if let Ok(parsed) = pki::Kubeconfig::parse("fuzz", text) {
        let written = parsed.to_yaml("fuzz").expect("it can be written");
        assert_eq!(pki::Kubeconfig::parse("fuzz", written.expose()).expect("what is written can be read"), parsed);
    }
    let ours = ours();
    for current in [false, true] {
        if let Ok(merged) = pki::merge_kubeconfig(text, &ours, "demo", current) {
            let again = pki::merge_kubeconfig(&merged.text, &ours, "demo", current).expect("a second time");
            assert_eq!(again.text, merged.text, "a second time changes nothing");
            let removed = pki::remove_from_kubeconfig(&merged.text, "demo").expect("what was merged can be removed");
            let gone = !removed.expect("it is there").text.contains("192.0.2.1:6443");
            assert!(gone || text.contains("192.0.2.1:6443") || names_our_cluster(text));
        }
    }
    let _ = pki::remove_from_kubeconfig(text, "demo");
}

/// A cluster stays where another context uses it, though it was not defined before.
fn names_our_cluster(text: &str) -> bool {
    let config: serde_json::Value = serde_saphyr::from_str(text).unwrap_or_default();
    config["contexts"].as_array().into_iter().flatten().any(|entry| entry["context"]["cluster"] == "demo")
}

/// What stands between two answers.
const BETWEEN: &[u8] = b"\n---\n";

/// One answer: the first byte chooses the status, or that the rest is a record and a journal for a Secret that holds them.
fn answer(part: &[u8]) -> (u16, Vec<u8>) {
    let Some((first, rest)) = part.split_first() else { return (404, b"{}".to_vec()) };
    let statuses = [200, 200, 200, 403, 404, 409, 422];
    if let Some(status) = statuses.get(usize::from(first % 8)) {
        return (*status, rest.to_vec());
    }
    let mut parts = rest.splitn(3, |byte| *byte == b'\n');
    let mut next = || parts.next().map(|part| STANDARD.encode(part));
    let mut secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "uid": "u", "resourceVersion": "1"}});
    secret["data"] = json!({"record": next(), "journal": next()});
    let lock = parts.next().map(|lock| String::from_utf8_lossy(lock).into_owned());
    secret["metadata"]["annotations"] = json!({"fleet-scheduler.io/lock": lock});
    (200, secret.to_string().into_bytes())
}

/// A client of a server that gives these answers in turn, and then says that nothing is there.
fn server(answers: VecDeque<(u16, Vec<u8>)>) -> Client {
    let answers = Arc::new(Mutex::new(answers));
    let serve = move |_: http::Request<Body>| {
        let (status, body) = answers.lock().expect("one thread").pop_front().unwrap_or((404, b"{}".to_vec()));
        let answer = http::Response::builder().status(status).body(Body::from(body));
        futures::future::ready(Ok::<_, Infallible>(answer.expect("a status")))
    };
    Client::new(tower::service_fn(serve), "fleet")
}

/// Bytes as what an API server answers: whatever it is, an error that can be shown or something that was understood.
pub(crate) fn answers(data: &[u8]) {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut rest = data;
    while let Some(at) = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN).filter(|_| parts.len() < 16) {
        parts.push(&rest[..at]);
        rest = &rest[at + BETWEEN.len()..];
    }
    parts.push(rest);
    let all: VecDeque<(u16, Vec<u8>)> = parts.into_iter().map(answer).collect();
    for (_, body) in &all {
        let _ = serde_json::from_slice::<ObjectList<Lenient<Cluster>>>(body);
        let _ = serde_json::from_slice::<WatchEvent<Lenient<Cluster>>>(body);
        let _ = serde_json::from_slice::<ObjectList<PartialObjectMeta<Cluster>>>(body);
        if let Ok(value) = serde_json::from_slice::<Value>(body) {
            let _ = kstatus::evaluate_status(&value, Some(1));
        }
    }
    runtime().block_on(async {
        let owner = || Owner::new("ControlPlane", "demo", "fleet");
        let engine = || Engine::new_reader(server(all.clone()), owner());
        match engine().read_state().await {
            Ok(state) => {
                let size = state.content_size();
                assert!(state.is_empty() || size > 0);
                if let Some(lock) = &state.lock {
                    let _ = engine().seems_over(lock);
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        let targets = [
            ("apps", "StatefulSet", "etcd"),
            ("apps", "Deployment", "kube-apiserver"),
            ("", "PersistentVolumeClaim", "data"),
        ];
        let targets =
            targets.map(|(group, kind, name)| WaitTarget::new(group, kind, Some("fleet"), name).expect("in the table"));
        for diagnosis in engine().diagnose_targets(&targets).await {
            assert!(!diagnosis.to_string().is_empty());
        }
        let _ = engine().find_drift().await;
        let error: Result<Value, ApiError> = engine().server().get_path("/version").await;
        if let Err(error) = error {
            assert!(!error.to_string().is_empty() && !error.without_values().to_string().is_empty());
        }
        let (hosting, hub) = (server(all.clone()), server(all.iter().rev().cloned().collect()));
        let _ = health::observe_health(Ok(&hosting), Ok(&hub), "fleet", Some("https://192.0.2.1:6443")).await;
    });
}
