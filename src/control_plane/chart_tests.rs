//! What the control-plane charts promise, seen in the objects that they render: for every line and every preset.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::secrets::{KEPT_SECRET, SECRET_ENTRIES};
use super::values::ControlPlaneValues;
use crate::chart::{Chart, Kind, Object, RenderInput, Rendered, SetKind, presets, versions};
use crate::pki::{Endpoint, Files, Lifetimes, Subject, ensure, placeholders};

fn charts() -> Vec<Chart> {
    let lines = versions().rows().iter().filter(|row| row.charts.contains_key(&Kind::ControlPlane));
    lines.map(|row| Chart::load(Kind::ControlPlane, row.version).unwrap()).collect()
}

/// The presets for control planes, and none.
fn preset_names() -> Vec<Option<&'static str>> {
    std::iter::once(None).chain(presets().map(|preset| preset.name).filter(|name| !name.starts_with("agent")).map(Some)).collect()
}

fn values(chart: &Chart, preset: Option<&str>, sets: &[&str]) -> ControlPlaneValues {
    let mut builder = chart.values();
    if let Some(preset) = preset.and_then(|name| presets().find(|preset| preset.name == name)) {
        builder = builder.file(preset.name, preset.text.as_bytes());
    }
    for set in sets {
        builder = builder.set(SetKind::Value, set);
    }
    builder.build_checked(ControlPlaneValues::schema()).unwrap().deserialize().unwrap()
}

fn input(chart: &Chart, values: &ControlPlaneValues, pki: &Files) -> RenderInput {
    RenderInput {
        values: serde_json::to_value(values).unwrap(),
        release: json!({
            "name": "demo", "namespace": "fleet", "line": chart.line().to_string(), "managedBy": "fleetctl",
            "version": chart.row().unwrap().default.to_string(),
        }),
        facts: json!({"exposure": {
            "type": "NodePort", "host": "10.0.0.1", "port": 32222, "nodePort": values.exposure.node_port, "sans": [],
        }}),
        pki: pki.expose().map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
    }
}

fn render_with(chart: &Chart, preset: Option<&str>, sets: &[&str], pki: &Files) -> Rendered {
    chart.render(&input(chart, &values(chart, preset, sets), pki)).unwrap_or_else(|error| panic!("{error}"))
}

fn render(chart: &Chart, preset: Option<&str>) -> Rendered {
    render_with(chart, preset, &[], &placeholders())
}

fn real_pki() -> Files {
    let subject = Subject {
        control_plane: "demo".to_owned(),
        namespace: "fleet".to_owned(),
        public: Endpoint { host: "10.0.0.1".parse().unwrap(), port: 32222 },
        internal: Subject::internal_endpoint("fleet"),
        extra_sans: Vec::new(),
    };
    let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    ensure(&Files::new(), &subject, now, &Lifetimes::default()).unwrap().files
}

/// Runs a check on every line with every preset; the text says which one it was.
fn everywhere(check: impl Fn(&str, &Rendered)) {
    for chart in charts() {
        for preset in preset_names() {
            check(&format!("{} {}", chart.line(), preset.unwrap_or("defaults")), &render(&chart, preset));
        }
    }
}

/// Every pod template, with the object that holds it.
fn pods(rendered: &Rendered) -> Vec<(&Object, &Value)> {
    rendered.objects.iter().filter_map(|object| Some((object, object.json.pointer("/spec/template/spec")?))).collect()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().filter_map(|key| pod.get(key)?.as_array()).flatten()
}

fn secret_data(object: &Object) -> BTreeMap<String, String> {
    let data = object.json.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    let text = |value: &Value| String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap();
    data.iter().map(|(key, value)| (key.clone(), text(value))).collect()
}

fn secret<'r>(rendered: &'r Rendered, name: &str) -> &'r Object {
    rendered.objects.iter().find(|object| object.kind() == "Secret" && object.name() == name).unwrap()
}

#[test]
fn every_pod_keeps_to_the_restricted_level() {
    everywhere(|which, rendered| {
        assert!(pods(rendered).len() >= 4, "{which}");
        for (object, pod) in pods(rendered) {
            let id = format!("{which}: {}", object.id());
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{id}");
            assert_eq!(pod["securityContext"]["runAsUser"], 65532, "{id}");
            assert_eq!(pod["securityContext"]["fsGroup"], 65532, "{id}");
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{id}");
            assert_eq!(pod["automountServiceAccountToken"], false, "{id}");
            assert!(pod.get("hostNetwork").is_none() && pod.get("hostPID").is_none(), "{id}");
            for volume in pod["volumes"].as_array().into_iter().flatten() {
                assert!(volume.get("hostPath").is_none(), "{id}");
            }
            for container in containers(pod) {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false, "{id}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{id}");
                assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{id}");
                assert!(container["resources"]["requests"]["cpu"].is_string(), "{id}");
                assert!(container["resources"]["requests"]["memory"].is_string(), "{id}");
                for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                    assert!(container[probe].is_object(), "{id}: {probe}");
                }
            }
        }
    });
}

#[test]
fn secrets_are_mounted_for_owner_and_group_only() {
    everywhere(|which, rendered| {
        for (object, pod) in pods(rendered) {
            for volume in pod["volumes"].as_array().into_iter().flatten() {
                let source = ["secret", "projected", "configMap"].iter().find_map(|kind| volume.get(*kind));
                assert_eq!(source.unwrap()["defaultMode"], 0o440, "{which}: {} {}", object.id(), volume["name"]);
            }
        }
    });
}

#[test]
fn every_private_key_is_in_one_secret_and_nowhere_else() {
    let pki = real_pki();
    for chart in charts() {
        let rendered = render_with(&chart, None, &[], &pki);
        let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for object in &rendered.objects {
            if object.kind() != "Secret" {
                assert!(!object.json.to_string().contains("PRIVATE KEY"), "{}", object.id());
                continue;
            }
            for (entry, text) in secret_data(object) {
                let inner = serde_saphyr::from_str::<Value>(&text).ok();
                let embedded = inner.as_ref().and_then(|config| config.pointer("/users/0/user/client-key-data"));
                let key = match embedded.and_then(Value::as_str) {
                    Some(data) => String::from_utf8(STANDARD.decode(data).unwrap()).unwrap(),
                    None => text,
                };
                if key.contains("PRIVATE KEY") {
                    keys.entry(key).or_default().push(format!("{} {entry}", object.name()));
                }
            }
        }
        assert_eq!(keys.len(), 13, "three authorities, the token signer and nine leaves");
        assert!(keys.values().all(|places| places.len() == 1), "{:?}", keys.values());
    }
}

#[test]
fn the_key_set_can_be_read_back_from_the_secrets() {
    let pki = real_pki();
    for chart in charts() {
        let rendered = render_with(&chart, None, &[], &pki);
        let mut found = Files::new();
        for entry in SECRET_ENTRIES {
            let mut data = secret_data(secret(&rendered, entry.secret));
            found.insert(entry.file, data.remove(entry.key).unwrap());
        }
        assert_eq!(found, pki);
    }
}

#[test]
fn nobody_but_the_controller_manager_gets_an_authority_s_key() {
    everywhere(|which, rendered| {
        for (object, pod) in pods(rendered) {
            let mut mounted = BTreeSet::new();
            for volume in pod["volumes"].as_array().into_iter().flatten() {
                let projected = volume["projected"]["sources"].as_array().cloned().unwrap_or_default();
                for source in projected.iter().map(|source| &source["secret"]).chain(volume.get("secret")) {
                    let name = source.get("name").or(source.get("secretName")).unwrap();
                    let items = source["items"].as_array();
                    assert!(items.is_some() || name != KEPT_SECRET, "{which}: {} takes it all", object.id());
                    mounted.extend(items.into_iter().flatten().map(|item| item["key"].as_str().unwrap().to_owned()));
                }
            }
            let authority_keys: Vec<&String> = mounted.iter().filter(|key| key.ends_with("ca.key")).collect();
            let expected: &[&str] = if object.name() == "kube-controller-manager" { &["ca.key"] } else { &[] };
            assert_eq!(authority_keys, expected, "{which}: {}", object.id());
        }
    });
}

#[test]
fn every_image_comes_from_the_mirror_when_there_is_one() {
    for chart in charts() {
        let sets = ["imageRegistry=mirror.example:5000", "imagePullPolicy=Always"];
        let rendered = render_with(&chart, Some("airgap"), &sets, &placeholders());
        for (object, pod) in pods(&rendered) {
            assert_eq!(pod["imagePullSecrets"], json!([{"name": "mirror-login"}]), "{}", object.id());
            for container in containers(pod) {
                let image = container["image"].as_str().unwrap();
                assert!(image.starts_with("mirror.example:5000/"), "{}: {image}", object.id());
                assert_eq!(container["imagePullPolicy"], "Always", "{}", object.id());
            }
        }
    }
}

#[test]
fn images_are_those_of_the_table() {
    for chart in charts() {
        let rendered = render(&chart, None);
        let images: BTreeSet<String> = pods(&rendered)
            .iter()
            .flat_map(|(_, pod)| containers(pod).map(|container| container["image"].as_str().unwrap().to_owned()).collect::<Vec<_>>())
            .collect();
        let table = &chart.row().unwrap().images;
        let expected: BTreeSet<String> = ["etcd", "apiserver", "controllerManager", "scheduler"]
            .map(|name| format!("{}:{}", table[name].repository, table[name].tag))
            .into();
        assert_eq!(images, expected, "{}", chart.line());
    }
}

#[test]
fn nothing_speaks_plain_text_with_etcd() {
    everywhere(|which, rendered| {
        for object in &rendered.objects {
            assert!(!object.json.to_string().contains("http://"), "{which}: {}", object.id());
        }
        let etcd = rendered.objects.iter().find(|object| object.kind() == "StatefulSet").unwrap().json.to_string();
        for flag in ["--client-cert-auth=true", "--peer-client-cert-auth=true"] {
            assert!(etcd.contains(flag), "{which}: {flag}");
        }
    });
}

#[test]
fn every_object_says_whose_it_is_and_stays_in_its_namespace() {
    everywhere(|which, rendered| {
        for object in &rendered.objects {
            let id = format!("{which}: {}", object.id());
            let labels = &object.json["metadata"]["labels"];
            assert_eq!(labels["app.kubernetes.io/instance"], "demo", "{id}");
            assert_eq!(labels["app.kubernetes.io/part-of"], "fleet", "{id}");
            assert_eq!(labels["app.kubernetes.io/managed-by"], "fleetctl", "{id}");
            match object.kind() {
                "Namespace" => assert_eq!(object.name(), "fleet", "{id}"),
                _ => assert_eq!(object.namespace(), Some("fleet"), "{id}"),
            }
        }
    });
}

#[test]
fn data_and_its_keys_are_marked_to_be_kept_and_nothing_else_is() {
    everywhere(|which, rendered| {
        let kept: Vec<&str> = rendered
            .objects
            .iter()
            .filter(|object| object.json["metadata"]["labels"]["fleet-scheduler.io/keep"] == "data")
            .map(Object::name)
            .collect();
        assert_eq!(kept, [KEPT_SECRET], "{which}");
        let etcd = rendered.objects.iter().find(|object| object.kind() == "StatefulSet").unwrap();
        let claim = &etcd.json["spec"]["volumeClaimTemplates"][0];
        assert_eq!(claim["metadata"]["labels"]["fleet-scheduler.io/keep"], "data", "{which}");
    });
}

#[test]
fn selectors_match_the_pods_and_a_new_version_alone_restarts_none() {
    everywhere(|which, rendered| {
        for (object, _) in pods(rendered) {
            let labels = &object.json["spec"]["template"]["metadata"]["labels"];
            assert!(labels.get("app.kubernetes.io/version").is_none(), "{which}: {}", object.id());
            let selector = object.json["spec"]["selector"]["matchLabels"].as_object().unwrap();
            for (key, value) in selector {
                assert_eq!(&labels[key], value, "{which}: {}", object.id());
            }
        }
    });
}

#[test]
fn other_certificates_give_other_pods() {
    let (one, other) = (real_pki(), real_pki());
    for chart in charts() {
        let annotations = |pki: &Files| -> Vec<Value> {
            let rendered = render_with(&chart, None, &[], pki);
            pods(&rendered).iter().map(|(o, _)| o.json["spec"]["template"]["metadata"]["annotations"].clone()).collect()
        };
        assert_eq!(annotations(&one), annotations(&one));
        for (first, second) in annotations(&one).iter().zip(annotations(&other)) {
            assert_ne!(first, &second);
        }
    }
}

#[test]
fn a_dry_run_holds_no_key_material() {
    everywhere(|which, rendered| {
        for object in rendered.objects.iter().filter(|object| object.kind() == "Secret") {
            for (entry, text) in secret_data(object) {
                assert_eq!(text, "<generated at install>", "{which}: {} {entry}", object.name());
            }
        }
    });
}

#[test]
fn the_cloud_s_key_is_mounted_when_it_is_given_and_only_then() {
    for chart in charts() {
        let plain = render(&chart, None);
        assert!(!plain.objects.iter().any(|object| object.name() == "fleet-cloud-credentials"));
        let mut given = values(&chart, None, &["cloud.projectId=p-1"]);
        given.cloud.access_key = Some("{\"CANARY\": 1}".to_owned());
        let rendered = chart.render(&input(&chart, &given, &placeholders())).unwrap();
        assert_eq!(secret_data(secret(&rendered, "fleet-cloud-credentials"))["access-key.json"], "{\"CANARY\": 1}");
        let holders: Vec<String> =
            rendered.objects.iter().filter(|o| o.json.to_string().contains("fleet-cloud-credentials")).map(Object::id).collect();
        assert_eq!(holders, ["secret/fleet-cloud-credentials", "deployment/fleet-scheduler"]);
        assert!(!rendered.objects.iter().any(|object| object.json.to_string().contains("CANARY")));
        assert!(!format!("{given:?}").contains("CANARY"));
    }
}

#[test]
fn three_members_of_etcd_know_one_another() {
    for chart in charts() {
        let rendered = render(&chart, Some("ha"));
        let etcd = rendered.objects.iter().find(|object| object.kind() == "StatefulSet").unwrap();
        let command = etcd.json["spec"]["template"]["spec"]["containers"][0]["command"].as_array().unwrap();
        let members = (0..3).map(|n| format!("etcd-{n}=https://etcd-{n}.etcd.fleet.svc:2380")).collect::<Vec<_>>().join(",");
        assert!(command.contains(&json!(format!("--initial-cluster={members}"))), "{command:?}");
        let budgets = rendered.objects.iter().filter(|object| object.kind() == "PodDisruptionBudget").count();
        assert_eq!(budgets, 4);
        assert!(render(&chart, None).objects.iter().all(|object| object.kind() != "PodDisruptionBudget"));
    }
}

#[test]
fn further_arguments_come_last() {
    for chart in charts() {
        let sets = ["apiserver.extraArgs={--v=4}", "etcd.extraArgs={--log-level=debug}"];
        let rendered = render_with(&chart, None, &sets, &placeholders());
        for (object, pod) in pods(&rendered) {
            let command = pod["containers"][0]["command"].as_array();
            let last = command.and_then(|command| command.last()).and_then(Value::as_str);
            match object.name() {
                "apiserver" => assert_eq!(last, Some("--v=4")),
                "etcd" => assert_eq!(last, Some("--log-level=debug")),
                _ => {}
            }
        }
    }
}

#[test]
fn the_service_carries_the_port_that_was_asked_for() {
    for chart in charts() {
        let ports = |preset, sets: &[&str], kind: &str| {
            let values = values(&chart, preset, sets);
            let mut input = input(&chart, &values, &placeholders());
            input.facts["exposure"]["type"] = json!(kind);
            let rendered = chart.render(&input).unwrap();
            let service = rendered.objects.iter().find(|o| o.kind() == "Service" && o.name() == "apiserver").unwrap();
            service.json["spec"]["ports"].as_array().unwrap().clone()
        };
        assert_eq!(ports(Some("nodeport"), &[], "NodePort")[0]["nodePort"], 32222);
        assert!(ports(None, &[], "NodePort")[0].get("nodePort").is_none());
        let public = ports(None, &["exposure.port=6443"], "LoadBalancer");
        assert_eq!((&public[0]["port"], &public[1]["port"]), (&json!(443), &json!(6443)));
    }
}

#[test]
fn the_schema_is_closed_and_marks_the_secret() {
    let schema = ControlPlaneValues::schema();
    assert_eq!(schema["additionalProperties"], false);
    for (name, part) in schema["$defs"].as_object().unwrap() {
        if part["type"] == "object" {
            assert_eq!(part["additionalProperties"], false, "{name}");
            for (property, schema) in part["properties"].as_object().unwrap() {
                assert!(schema["description"].is_string(), "{name}.{property} has no description");
            }
        }
    }
    assert_eq!(schema["$defs"]["CloudValues"]["properties"]["accessKey"]["x-secret"], true);
}

#[test]
fn the_flattened_chart_is_the_golden_one() {
    for chart in charts() {
        for preset in preset_names() {
            let name = format!("control-plane-{}-{}", chart.line(), preset.unwrap_or("defaults"));
            let objects: Vec<Value> = render(&chart, preset).objects.into_iter().map(|object| object.json).collect();
            let documents: Vec<String> = objects.iter().map(|object| golden(object)).collect();
            insta::assert_snapshot!(name, documents.join("---\n"));
        }
    }
}

/// An object as YAML. The bootstrap's text has goldens of its own, so here it is a digest.
fn golden(object: &Value) -> String {
    let mut object = object.clone();
    if object["kind"] == "ConfigMap" {
        let names: Vec<String> = object["data"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        object["data"] = json!(names);
    }
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false, compact_list_indent: true };
    serde_saphyr::to_string_with_options(&object, options).unwrap()
}
