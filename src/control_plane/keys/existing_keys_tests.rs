use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::chart::versions::select::{Request, select_row};
use crate::chart::{self, SetKind};
use crate::control_plane::endpoint::exposure::Endpoint;
use crate::control_plane::keys::find_keys;
use crate::control_plane::kubeconfig::KubeconfigError;
use crate::install::fleet_home::Home;
use crate::install::release_spec;
use crate::k8s::test_api;
use crate::pki::Leaf;
use crate::pki::secrets::ADMIN_SECRET;

const HOST: &str = "192.0.2.10";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn plan(host: &str) -> Plan {
    let request = Request { version: Some("v0.7.1"), ..Request::default() };
    let selection = select_row(chart::embedded_versions(), request).unwrap();
    let chart = release_spec::load_chart(chart::Kind::ControlPlane, &selection).unwrap();
    let host = format!("exposure.host={host}");
    let sets =
        ["pki.source=Existing", "pki.existingSecret=mine", "exposure.type=NodePort", "exposure.port=32222", &host];
    let builder = chart.values_of(&selection.version);
    let builder = sets.iter().fold(builder, |builder, set| builder.set(SetKind::Value, set));
    let plan = Plan::new("demo".parse().unwrap(), "fleet".parse().unwrap(), &selection, chart, builder);
    plan.unwrap_or_else(|error| panic!("{error}"))
}

/// A whole set, as `template --pki` makes it.
fn made(plan: &Plan) -> Files {
    let endpoint: Endpoint = endpoint_from_values(&plan.values.exposure).unwrap();
    complete_keys::complete_key_set(&Files::new(), plan, &endpoint, now()).unwrap().files
}

/// The set with one file replaced, or left out.
fn with(files: &Files, name: &str, text: Option<String>) -> Files {
    let mut changed: Files = files
        .expose_all()
        .filter(|(known, _)| *known != name)
        .map(|(known, text)| (known.to_owned(), text.to_owned()))
        .collect();
    if let Some(text) = text {
        changed.insert(name, text);
    }
    changed
}

fn copy_file(files: &Files, name: &str) -> Option<String> {
    files.get(name).map(str::to_owned)
}

#[test]
fn a_whole_set_of_the_plan_is_taken_until_it_has_ended() {
    let plan = plan(HOST);
    let files = made(&plan);
    assert_eq!(find_key_faults(&files, &plan, now()), [""; 0]);
    assert_eq!(
        find_key_faults(&files, &plan, now() + 364 * DAY),
        [""; 0],
        "renewing it is the matter of whoever made it"
    );
    // What else is wrong is not hidden behind its end.
    let others = with(&files, "apiserver.key", copy_file(&made(&plan), "apiserver.key"));
    assert_eq!(find_key_faults(&others, &plan, now() + 364 * DAY), ["`apiserver.crt`: its key does not match"]);
    let elsewhere = files.get("admin.kubeconfig").unwrap().replace(HOST, "192.0.2.11");
    let found = find_key_faults(&with(&files, "admin.kubeconfig", Some(elsewhere)), &plan, now() + 364 * DAY);
    assert!(found.len() == 1 && found[0].contains("its server is https://192.0.2.11:32222"), "{found:?}");
    let ended = find_key_faults(&files, &plan, now() + 366 * DAY);
    assert_eq!(ended.len(), Leaf::ALL.len(), "{ended:?}");
    assert!(ended.iter().all(|problem| problem.contains("it expired at")), "{ended:?}");
    // Names in a kubeconfig are a matter of taste.
    let text = files.get("admin.kubeconfig").unwrap().replace("demo", "other");
    assert_ne!(Some(text.as_str()), files.get("admin.kubeconfig"));
    assert_eq!(find_key_faults(&with(&files, "admin.kubeconfig", Some(text)), &plan, now()), [""; 0]);
}

#[test]
fn what_is_wrong_with_a_set_is_named_by_its_file() {
    let (plan, others) = (plan(HOST), made(&plan(HOST)));
    let files = made(&plan);
    let elsewhere = files.get("admin.kubeconfig").unwrap().replace(HOST, "192.0.2.11");
    for (name, text, expected) in [
        ("sa.pub", None, "`sa.pub` is missing"),
        ("apiserver.key", None, "`apiserver.key` is missing"),
        ("ca.crt", Some("no".to_owned()), "`ca.crt`"),
        ("ca.key", copy_file(&others, "ca.key"), "`ca.key` is not the private key of `ca.crt`"),
        ("sa.key", copy_file(&others, "sa.key"), "`sa.key`"),
        ("apiserver.key", copy_file(&others, "apiserver.key"), "`apiserver.crt`: its key does not match"),
        ("etcd-peer.crt", Some("no".to_owned()), "`etcd-peer.crt`: it cannot be read"),
        ("admin.kubeconfig", copy_file(&others, "admin.kubeconfig"), "`admin.kubeconfig`: another CA signed it"),
        ("admin.kubeconfig", Some(elsewhere), "`admin.kubeconfig`: its server is https://192.0.2.11:32222"),
        ("scheduler.kubeconfig", Some("{}".to_owned()), "`scheduler.kubeconfig`: it cannot be read"),
    ] {
        let found = find_key_faults(&with(&files, name, text), &plan, now());
        assert!(found.len() == 1 && found[0].contains(expected), "{name}: {found:?}");
    }
    let moved = find_key_faults(&files, &super::tests::plan("192.0.2.12"), now());
    assert!(moved.iter().any(|problem| problem == "`apiserver.crt`: it has no SAN for 192.0.2.12"), "{moved:?}");
    // A pair of another authority, whole in itself.
    let pair = with(
        &with(&files, "apiserver.crt", copy_file(&others, "apiserver.crt")),
        "apiserver.key",
        copy_file(&others, "apiserver.key"),
    );
    assert_eq!(find_key_faults(&pair, &plan, now()), ["`apiserver.crt`: another CA signed it"]);
}

#[test]
fn every_file_of_the_set_is_read_under_its_own_name() {
    let files = made(&plan(HOST));
    let data =
        files.expose_all().map(|(name, text)| (name.to_owned(), k8s_openapi::ByteString(text.as_bytes().to_vec())));
    let secret = Secret { data: Some(data.collect()), ..Secret::default() };
    assert_eq!(files_of(&secret), files);
    assert!(SECRET_ENTRIES.iter().any(|entry| entry.secret == ADMIN_SECRET && files.get(entry.file).is_some()));
}

/// A cluster in which etcd of control plane `demo` reads Secret `mine`, with this text as the operator's kubeconfig.
fn cluster_of(kubeconfig: &'static str) -> Client {
    test_api::api(move |uri, _| match uri.path() {
        "/apis/apps/v1/namespaces/fleet/statefulsets/etcd" => json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "etcd", "labels": {LABEL_INSTALL: "demo"}},
            "spec": {"selector": {}, "serviceName": "etcd", "template": {"spec": {
                "containers": [], "volumes": [{"name": "certs", "secret": {"secretName": "mine"}}],
            }}},
        }),
        "/api/v1/namespaces/fleet/secrets/mine" => json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"},
            "data": {"admin.kubeconfig": STANDARD.encode(kubeconfig)},
        }),
        "/api/v1/namespaces/fleet/secrets" => json!({
            "apiVersion": "v1", "kind": "SecretList", "metadata": {}, "items": [],
        }),
        _ => test_api::failure(404),
    })
}

#[tokio::test]
async fn a_kubeconfig_that_is_refused_is_named_by_the_secret_that_it_lies_in() {
    let refused = find_keys::admin_kubeconfig(&cluster_of("kind: Config\n"), "fleet", "demo").await.unwrap_err();
    let told = refused.to_string();
    assert!(told.starts_with("Secret fleet/mine is not used: "), "{told}");
    assert!(
        told.ends_with(
            "; correct it yourself: it is the existing Secret of control plane demo, which no install changes"
        ),
        "{told}"
    );
    let home = tempfile::tempdir().unwrap();
    let home = Home::from_path(home.path());
    let (name, namespace) = ("demo".parse().unwrap(), "fleet".parse().unwrap());
    let client = cluster_of("kind: Config\n");
    let refused =
        crate::control_plane::kubeconfig::find_kubeconfig(Some(&client), &home, &name, &namespace).await.unwrap_err();
    assert!(matches!(refused, KubeconfigError::Changed { is_existing: true, .. }), "{refused:?}");
    let source = std::error::Error::source(&refused).unwrap().to_string();
    assert!(source.contains("Secret fleet/mine"), "{source}");
}
