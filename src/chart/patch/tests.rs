//! Patches: what they change, what they may not, and what is said of mistakes.

use k8s_openapi::DeepMerge;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;
use crate::chart::output::object_yaml;
use crate::chart::tests::hostile;

fn object(json: Value) -> Object {
    Object { stage: 0, stage_name: String::new(), json, source: "agent/v0.6/templates/t.yaml".to_owned(), line: 1 }
}

fn objects() -> Vec<Object> {
    let labels = json!({"app.kubernetes.io/name": "api", "fleet-scheduler.io/install": "demo", "team": "a"});
    vec![
        object(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "api", "namespace": "fleet", "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app.kubernetes.io/name": "api"}},
                "template": {
                    "metadata": {"labels": labels, "annotations": {"fleet-scheduler.io/checksum": "1", "note": "a"}},
                    "spec": {
                        "containers": [
                            {"name": "api", "image": "api:1", "args": ["--v=1"], "env": [{"name": "A", "value": "1"}],
                             "ports": [{"name": "https", "containerPort": 6443, "protocol": "TCP"}],
                             "volumeMounts": [{"name": "pki", "mountPath": "/pki"}]},
                            {"name": "side", "image": "side:1"},
                        ],
                        "volumes": [{"name": "pki", "secret": {"secretName": "pki"}}],
                        "tolerations": [{"key": "a"}],
                    },
                },
            },
        })),
        object(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "api", "namespace": "fleet"},
            "spec": {"selector": {"a": "b"}, "ports": [{"name": "https", "port": 443}]}})),
        object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleet-pki", "namespace": "fleet"},
            "type": "Opaque", "data": {"ca.key": "a2V5"}})),
        object(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "agent", "namespace": "fleet"}, "rules": []})),
        object(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "agent", "namespace": "kube-system"}, "rules": []})),
    ]
}

fn read(text: &str) -> Result<Patches, Diagnostics> {
    Patches::read_patch_files([("my.yaml".to_owned(), Ok(text.as_bytes().to_vec()))])
}

fn patched(text: &str) -> Result<Vec<Object>, Diagnostics> {
    let mut all = objects();
    read(text)?.apply_to_objects(&mut all)?;
    Ok(all)
}

/// The first object after a patch, and the text of what is wrong.
fn refused(text: &str) -> String {
    match patched(text) {
        Ok(objects) => format!("TAKEN: {}", objects[0].json),
        Err(problems) => problems.render_diagnostics(false),
    }
}

#[test]
fn a_part_of_an_object_is_merged_and_lists_by_their_keys() {
    let all = patched(
        "kind: Deployment\nmetadata: {name: api, labels: {team: null, more: x}}\nspec:\n  replicas: 3\n  template:\n    spec:\n      containers:\n      - name: api\n        image: api:2\n        env: [{name: B, value: '2'}, {name: A, $patch: delete}]\n        ports: [{containerPort: 6443, name: tls}]\n      - {name: side, $patch: delete}\n      - {name: new, image: new:1}\n      volumes: [{$patch: replace}, {name: other, emptyDir: {}}]\n      tolerations: [{key: b}]\n",
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    let (json, before) = (&all[0].json, objects());
    assert_eq!(json["spec"]["replicas"], 3);
    assert_eq!(json["metadata"]["labels"]["more"], "x");
    assert!(json["metadata"]["labels"].get("team").is_none());
    let pod = &json["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"],
        json!([
            {"name": "api", "image": "api:2", "args": ["--v=1"], "env": [{"name": "B", "value": "2"}],
             "ports": [{"name": "tls", "containerPort": 6443, "protocol": "TCP"}],
             "volumeMounts": [{"name": "pki", "mountPath": "/pki"}]},
            {"name": "new", "image": "new:1"},
        ])
    );
    assert_eq!(pod["volumes"], json!([{"name": "other", "emptyDir": {}}]));
    assert_eq!(pod["tolerations"], json!([{"key": "b"}]), "a list without a key is replaced");
    assert_eq!(all[1..], before[1..], "no other object");
}

#[test]
fn operations_are_applied_in_order_and_documents_one_after_the_other() {
    let all = patched(
        "target: {kind: Deployment, name: api}\npatch:\n- {op: test, path: /spec/replicas, value: 1}\n- {op: replace, path: /spec/replicas, value: 2}\n- {op: add, path: /spec/template/spec/containers/0/args/-, value: --v=4}\n- {op: remove, path: /metadata/labels/team}\n---\ntarget: {group: apps, kind: Deployment, name: api}\npatch: {spec: {paused: true}}\n---\n# nothing\n---\napiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: fleet}\nspec: {ports: [{port: 443, nodePort: 30000}]}\n",
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    let json = &all[0].json;
    assert_eq!((&json["spec"]["replicas"], &json["spec"]["paused"]), (&json!(2), &json!(true)));
    assert_eq!(json["spec"]["template"]["spec"]["containers"][0]["args"], json!(["--v=1", "--v=4"]));
    assert!(json["metadata"]["labels"].get("team").is_none());
    assert_eq!(all[1].json["spec"]["ports"], json!([{"name": "https", "port": 443, "nodePort": 30000}]));
}

/// The API's own merge of typed objects, which knows the keys of lists by their schemas.
fn typed<T: DeepMerge + DeserializeOwned + Serialize>(below: &Value, part: &Value) -> Value {
    let mut merged: T = serde_json::from_value(below.clone()).unwrap();
    merged.merge_from(serde_json::from_value(part.clone()).unwrap());
    serde_json::to_value(merged).unwrap()
}

fn deployment_of_pod(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"},
        "spec": {"selector": {}, "template": {"spec": spec}}})
}

/// The spec of a pod with a list.
fn spec_with_list(field: &str, items: Value) -> Value {
    match field {
        "containers" => json!({"containers": items}),
        field => json!({"containers": [], field: items}),
    }
}

fn service_with_ports(ports: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": {"ports": ports}})
}

fn account_with_secrets(secrets: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {}, "imagePullSecrets": secrets})
}

fn merge_strategically(kind: &str, below: &Value, part: &Value) -> Value {
    strategic::merge_object(kind, below.clone(), part).map_err(|wrong| wrong.diagnostic).unwrap()
}

#[test]
fn lists_have_the_keys_that_the_api_gives_them() {
    for (field, key, one, other) in [
        ("containers", "name", json!("a"), json!("b")),
        ("initContainers", "name", json!("a"), json!("b")),
        ("volumes", "name", json!("a"), json!("b")),
        ("imagePullSecrets", "name", json!("a"), json!("b")),
        ("hostAliases", "ip", json!("10.0.0.1"), json!("10.0.0.2")),
    ] {
        let below = deployment_of_pod(spec_with_list(field, json!([{key: one}, {key: other}])));
        let part = deployment_of_pod(spec_with_list(field, json!([{key: other}, {key: "10.0.0.3"}])));
        let ours = merge_strategically("Deployment", &below, &part);
        let lengths = [ours, typed::<Deployment>(&below, &part)]
            .map(|value| value["spec"]["template"]["spec"][field].as_array().unwrap().len());
        assert_eq!(lengths, [3; 2], "{field}: the API merges it, too");
    }
    for (field, items, more, length) in [
        ("env", json!([{"name": "a", "value": "1"}]), json!([{"name": "b", "value": "2"}]), 2),
        (
            "ports",
            json!([{"containerPort": 1, "protocol": "TCP"}]),
            json!([{"containerPort": 2, "protocol": "TCP"}]),
            2,
        ),
        ("volumeMounts", json!([{"mountPath": "/a", "name": "a"}]), json!([{"mountPath": "/b", "name": "b"}]), 2),
        ("volumeDevices", json!([{"devicePath": "/a", "name": "a"}]), json!([{"devicePath": "/b", "name": "b"}]), 2),
    ] {
        let [below, part] =
            [items, more].map(|items| deployment_of_pod(json!({"containers": [{"name": "c", field: items}]})));
        let ours = merge_strategically("Deployment", &below, &part);
        let [ours, theirs] = [ours, typed::<Deployment>(&below, &part)]
            .map(|value| value["spec"]["template"]["spec"]["containers"][0][field].clone());
        assert_eq!(ours, theirs, "{field}");
        assert_eq!(ours.as_array().unwrap().len(), length, "{field}");
    }
    let (below, part) = (
        service_with_ports(json!([{"port": 1, "protocol": "TCP"}])),
        service_with_ports(json!([{"port": 2, "protocol": "TCP"}])),
    );
    let ours = merge_strategically("Service", &below, &part);
    assert_eq!(ours["spec"]["ports"], typed::<Service>(&below, &part)["spec"]["ports"]);
    let (below, part) = (account_with_secrets(json!([{"name": "a"}])), account_with_secrets(json!([{"name": "b"}])));
    let ours = merge_strategically("ServiceAccount", &below, &part);
    assert_eq!(ours["imagePullSecrets"].as_array().unwrap().len(), 2);
    assert!(typed::<ServiceAccount>(&below, &part)["imagePullSecrets"].is_array());
    // A list of the API that is replaced as a whole, of the same name as one that is not.
    assert_eq!(merge_key_of("NetworkPolicy", &["spec", "ingress", "ports"]), None);
    assert_eq!(merge_key_of("Deployment", &["spec", "template", "spec", "tolerations"]), None);
}

fn merge_key_of(kind: &str, path: &[&str]) -> Option<&'static str> {
    strategic::merge_key(kind, path)
}

#[test]
fn what_finds_objects_and_what_is_secret_is_refused_at_its_place() {
    let texts = [
        "kind: Deployment\nmetadata: {name: api, labels: {app.kubernetes.io/name: x}}\n",
        "kind: Deployment\nmetadata: {name: api}\nspec:\n  selector: {matchLabels: {a: b}}\n",
        "kind: Deployment\nmetadata: {name: api}\nspec:\n  template:\n    metadata:\n      labels: {fleet-scheduler.io/install: null}\n      annotations: {fleet-scheduler.io/checksum: '2'}\n",
        "apiVersion: apps/v2\nkind: Deployment\nmetadata: {name: api}\n",
        "target: {kind: Deployment, name: api}\npatch:\n- {op: replace, path: /metadata/name, value: x}\n",
        "target: {kind: Deployment, name: api}\npatch:\n- {op: replace, path: '', value: []}\n",
        "kind: Secret\nmetadata: {name: fleet-pki}\ndata: {ca.key: eA==}\n",
        "target: {kind: Secret, name: fleet-pki}\npatch: [{op: copy, from: /data/ca.key, path: /metadata/annotations}]\n",
        "target: {kind: Secret, name: fleet-pki}\npatch: [{op: remove, path: /data}]\n",
        "kind: Deployment\nmetadata: {name: api}\nstatus: {replicas: 1}\n",
    ];
    let all: Vec<String> = texts.into_iter().map(refused).collect();
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn a_patch_that_is_no_patch_or_for_nothing_says_what_there_is() {
    let texts = [
        "kind: Deployment\nmetadata: {name: apj}\nspec: {replicas: 2}\n",
        "kind: Service\nmetadata: {name: api}\nspec: {type: NodePort}\n---\nkind: Ingress\nmetadata: {name: web}\n",
        "kind: Role\nmetadata: {name: agent}\nrules: []\n",
        "kind: Deployment\nmetadata: {name: api}\nspec: {template: {spec: {containers: [{image: x}]}}}\n",
        "kind: Deployment\nmetadata: {name: api}\nspec: {template: {spec: {containers: [{name: x, $patch: delete}]}}}\n",
        "kind: Deployment\nmetadata: {name: api}\nspec: {$retainKeys: [a]}\n",
        "kind: Deployment\nmetadata: {name: api}\n$patch: delete\n",
        "kind: Deployment\nmetadata: {name: api}\nspec: {paused: yes}\n",
        "target: {kind: Deployment, name: api}\npatch: [{op: replace, path: /spec/x/y, value: 1}]\n",
        "target: {kind: Deployment, name: api}\npatch: [{op: set, path: /spec/x, value: 1}]\n",
        "target: {kind: Deployment, label: api}\npatch: []\n",
        "target: {kind: Deployment, name: api}\npatch: []\noptions: {}\n",
        "- {op: replace, path: /spec/replicas, value: 2}\n",
        "metadata: {name: api}\n",
        "kind: Deployment\n",
        "# nothing\n",
        "kind: Deployment\nmetadata: {name: api}\nspec: {a: 1, a: 2}\n",
        "kind: [\n",
    ];
    let all: Vec<String> = texts.into_iter().map(refused).collect();
    insta::assert_snapshot!(all.join("\n\n"));
}

fn read_digest(text: &str) -> Option<String> {
    read(text).unwrap().patch_digest()
}

#[test]
fn the_digest_is_that_of_what_changes_and_not_of_how_it_is_written() {
    let one = read_digest("kind: Deployment\nmetadata: {name: api}\nspec: {replicas: 2}\n");
    assert_eq!(
        one,
        read_digest(
            "# more\n{\"kind\": \"Deployment\", \"spec\": {\"replicas\": 2}, \"metadata\": {\"name\": \"api\"}}\n"
        )
    );
    assert_ne!(one, read_digest("kind: Deployment\nmetadata: {name: api}\nspec: {replicas: 3}\n"));
    assert_eq!(Patches::default().patch_digest(), None);
    assert_eq!(Patches::default().digest_with("x"), "x");
    let summary = read("kind: Deployment\nmetadata: {name: api}\nspec: {replicas: 2}\n").unwrap().patch_summary();
    assert_eq!(summary, one.map(|digest| format!("my.yaml sha256:{digest}")));
}

#[test]
fn no_text_of_a_patch_changes_anything_but_the_places_that_it_names() {
    let strategy = (hostile::hostile(), hostile::hostile());
    let mut runner = proptest::test_runner::TestRunner::new(proptest::test_runner::Config {
        cases: 2_000,
        failure_persistence: None,
        ..Default::default()
    });
    runner
        .run(&strategy, |(key, value)| {
            let (key, before) = (format!("k{key}"), objects());
            let part = json!({"kind": "Deployment", "metadata": {"name": "api", "annotations": {&key: &value}},
                "spec": {"template": {"spec": {"containers": [{"name": "api", "env": [{"name": "E", "value": &value}]}]}}}});
            let pointer = format!("/spec/{}", key.replace('~', "~0").replace('/', "~1"));
            let operations = json!({"target": {"kind": "Service", "name": "api"},
                "patch": [{"op": "add", "path": pointer, "value": [&value]}]});
            let text = format!("{}---\n{}", object_yaml(&part), object_yaml(&operations));
            let after = patched(&text).map_err(|problems| TestCaseError::fail(problems.to_string()))?;
            let mut expected = before;
            expected[0].json["metadata"]["annotations"] = json!({&key: &value});
            expected[0].json["spec"]["template"]["spec"]["containers"][0]["env"] =
                json!([{"name": "A", "value": "1"}, {"name": "E", "value": &value}]);
            expected[1].json["spec"][&key] = json!([&value]);
            prop_assert_eq!(&after, &expected);
            // What is printed of it reads back the same, by a reader of YAML 1.1 too: that is proven for any object.
            let printed = crate::chart::output::yaml_stream(after.iter().map(|object| &object.json));
            prop_assert_eq!(printed.matches("\n---\n").count() + 1, after.len());
            Ok(())
        })
        .unwrap();
}

#[test]
fn nothing_makes_reading_a_patch_panic() {
    let mut runner = proptest::test_runner::TestRunner::new(proptest::test_runner::Config {
        cases: 2_000,
        failure_persistence: None,
        ..Default::default()
    });
    runner
        .run(&(hostile::hostile(), hostile::hostile()), |(one, other)| {
            for text in [
                format!("{one}{other}"),
                format!("kind: Deployment\nmetadata: {{name: api}}\nspec: {one}{other}"),
                format!(
                    "target: {{kind: Deployment, name: api}}\npatch:\n- {{op: add, path: {one}, value: {other}}}\n"
                ),
            ] {
                let _ = patched(&text).map_err(|problems| problems.render_diagnostics(true));
            }
            Ok(())
        })
        .unwrap();
}
