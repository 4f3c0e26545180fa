//! The objects of the control-plane charts: images, labels, members, ports, arguments, and the schema of their values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::api::admission::{UNUSED_PLUGINS, WEBHOOK_PLUGINS, is_disabled};
use crate::api::values::pod_values::assert_file_current;
use crate::chart::testing::usage::compare_usage;
use crate::chart::values::written_schema;
use crate::pki::Leaf;
use crate::pki::secrets::{KEPT_SECRET, SECRET_ENTRIES};

#[test]
fn the_key_set_can_be_read_back_from_the_secrets() {
    let pki = real_pki();
    for chart in charts() {
        let rendered = render_with(chart, None, &[], &pki);
        let mut found = Files::new();
        for entry in SECRET_ENTRIES {
            let mut data = secret_data(secret(&rendered, entry.secret));
            found.insert(entry.file, data.remove(entry.key).unwrap());
        }
        assert_eq!(found, pki);
    }
}

#[test]
fn every_image_comes_from_the_mirror_when_there_is_one() {
    for chart in charts() {
        let sets = ["imageRegistry=mirror.example:5000", "imagePullPolicy=Always"];
        let rendered = render_with(chart, Some("airgap"), &sets, &placeholder_files());
        for (object, pod) in pods(&rendered) {
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
        let rendered = render(chart, None);
        let images: BTreeSet<String> = pods(&rendered)
            .iter()
            .flat_map(|(_, pod)| {
                containers(pod).map(|container| container["image"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
            })
            .collect();
        let table = &chart.version_row().unwrap().images;
        let expected: BTreeSet<String> = ["etcd", "apiserver", "controllerManager", "scheduler"]
            .map(|name| format!("{}:{}", table[name].repository, table[name].tag))
            .into();
        assert_eq!(images, expected, "{}", chart.line());
    }
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

/// The pod templates with these keys, by the name of their workload.
fn templates(chart: &Chart, pki: &Files) -> BTreeMap<String, Value> {
    let rendered = render_with(chart, None, &[], pki);
    pods(&rendered).iter().map(|(o, _)| (o.name().to_owned(), o.json["spec"]["template"].clone())).collect()
}

#[test]
fn other_authorities_give_other_pods() {
    let (one, other) = (real_pki(), real_pki());
    for chart in charts() {
        let (first, mut second) = (templates(chart, &one), templates(chart, &other));
        // It exits by itself when its kubeconfig changes.
        assert_eq!(first.get("fleet-scheduler"), second.remove("fleet-scheduler").as_ref());
        assert_eq!(second.len(), 3);
        assert!(second.iter().all(|(name, template)| first[name] != *template));
    }
}

#[test]
fn renewed_leaves_give_the_same_pods() {
    let one = real_pki();
    let mut renewed = one.clone();
    for leaf in Leaf::ALL {
        renewed.remove(leaf.leaf_store().stored_file());
    }
    let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    let completed = ensure_key_set(&renewed, &pki_subject(), now, &Lifetimes::default()).unwrap();
    assert_eq!(completed.issued.len(), Leaf::ALL.len());
    for chart in charts() {
        assert_eq!(templates(chart, &one), templates(chart, &completed.files));
    }
}

#[test]
fn three_members_of_etcd_know_one_another_and_lose_one_at_a_time() {
    for chart in charts().iter().filter(|chart| preset_names(chart).contains(&Some("ha"))) {
        let rendered = render(chart, Some("ha"));
        let etcd = rendered.objects.iter().find(|object| object.kind() == "StatefulSet").unwrap();
        let etcd = &etcd.json["spec"]["template"]["spec"]["containers"][0];
        let members =
            (0..3).map(|n| format!("etcd-{n}=https://etcd-{n}.etcd.fleet.svc:2380")).collect::<Vec<_>>().join(",");
        let listed = rendered.objects.iter().find(|object| object.name() == "etcd-members").unwrap();
        assert_eq!(listed.json["data"], json!({"initial-cluster": members, "initial-cluster-state": "new"}));
        for (variable, key) in
            [("ETCD_INITIAL_CLUSTER", "initial-cluster"), ("ETCD_INITIAL_CLUSTER_STATE", "initial-cluster-state")]
        {
            let source = json!({"configMapKeyRef": {"name": "etcd-members", "key": key}});
            assert!(etcd["env"].as_array().unwrap().contains(&json!({"name": variable, "valueFrom": source})));
            // etcd does not start if it gets both.
            assert!(!etcd["command"].to_string().contains(&format!("--{key}=")), "{etcd}");
        }
        let budgets: Vec<&Object> =
            rendered.objects.iter().filter(|object| object.kind() == "PodDisruptionBudget").collect();
        assert_eq!(budgets.len(), 4, "{}", chart.line());
        assert!(budgets.iter().all(|budget| budget.json["spec"]["maxUnavailable"] == 1));
        assert!(render(chart, None).objects.iter().all(|object| object.kind() != "PodDisruptionBudget"));
    }
}

#[test]
fn an_alarm_takes_no_member_of_etcd_away_from_those_who_could_end_it() {
    everywhere(|which, rendered| {
        let etcd = rendered.objects.iter().find(|object| object.kind() == "StatefulSet").unwrap();
        let container = &etcd.json["spec"]["template"]["spec"]["containers"][0];
        // `endpoint health` fails while there is an alarm; `endpoint status` tells it, and succeeds.
        assert_eq!(read_probe_request(container, "startupProbe"), ["endpoint", "status"], "{which}");
        assert_eq!(read_probe_request(container, "livenessProbe"), ["endpoint", "status"], "{which}");
        assert_eq!(read_probe_request(container, "readinessProbe"), ["get", "health"], "{which}");
    });
}

/// What a probe asks a member for.
fn read_probe_request<'c>(container: &'c Value, probe: &str) -> Vec<&'c str> {
    let command = container[probe]["exec"]["command"].as_array().unwrap();
    command.iter().skip(2).map(|word| word.as_str().unwrap()).collect()
}

#[test]
fn replicas_that_need_a_node_each_are_replaced_without_one_more() {
    let (one_more, one_less) =
        (json!({"maxSurge": 1, "maxUnavailable": 0}), json!({"maxSurge": 0, "maxUnavailable": 1}));
    for chart in charts() {
        assert_eq!(list_strategies(chart, None, &[]), vec![one_more.clone(); 3], "{}", chart.line());
    }
    for chart in charts().iter().filter(|chart| preset_names(chart).contains(&Some("ha"))) {
        assert_eq!(list_strategies(chart, Some("ha"), &[]), vec![one_less.clone(); 3], "{}", chart.line());
        let loose = list_strategies(chart, Some("ha"), &["spread=Preferred"]);
        assert_eq!(loose, vec![one_more.clone(); 3], "{}", chart.line());
        // One replica leaves the other nodes to its successor, and must not be missed meanwhile.
        let single = list_strategies(chart, Some("ha"), &["controllerManager.replicas=1"]);
        assert_eq!(single, [one_less.clone(), one_more.clone(), one_less.clone()], "{}", chart.line());
    }
}

fn list_strategies(chart: &Chart, preset: Option<&str>, sets: &[&str]) -> Vec<Value> {
    let rendered = render_with(chart, preset, sets, &placeholder_files());
    let deployments = rendered.objects.iter().filter(|object| object.kind() == "Deployment");
    deployments.map(|object| object.json["spec"]["strategy"]["rollingUpdate"].clone()).collect()
}

#[test]
fn a_single_replica_keeps_its_successor_from_no_node() {
    for chart in charts().iter().filter(|chart| preset_names(chart).contains(&Some("ha"))) {
        assert_eq!(list_spread_requirements(chart, None, &["spread=Required"]), [false; 4], "{}", chart.line());
        assert_eq!(list_spread_requirements(chart, Some("ha"), &[]), [true; 4], "{}", chart.line());
    }
}

/// Whether the pods of each workload have to run on different nodes.
fn list_spread_requirements(chart: &Chart, preset: Option<&str>, sets: &[&str]) -> Vec<bool> {
    let rendered = render_with(chart, preset, sets, &placeholder_files());
    let workloads = rendered.objects.iter().filter(|object| ["Deployment", "StatefulSet"].contains(&object.kind()));
    let required = "/spec/template/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    workloads.map(|object| object.json.pointer(required).is_some()).collect()
}

#[test]
fn an_api_server_that_has_to_go_serves_on_where_others_take_over() {
    for chart in charts().iter().filter(|chart| preset_names(chart).contains(&Some("ha"))) {
        for (preset, expected) in [(None, false), (Some("ha"), true)] {
            let rendered = render(chart, preset);
            let object = rendered.objects.iter().find(|object| object.id() == "deployment/apiserver").unwrap();
            let pod = &object.json["spec"]["template"]["spec"];
            let command = pod["containers"][0]["command"].as_array().unwrap();
            let delays = command.contains(&json!("--shutdown-delay-duration=5s"));
            assert_eq!(delays, expected, "{} {preset:?}", chart.line());
            assert!(pod["terminationGracePeriodSeconds"].as_u64() >= Some(30), "{}", chart.line());
        }
    }
}

#[test]
fn replicas_are_refused_by_lines_that_do_not_know_them() {
    let old = charts().iter().filter(|chart| chart.line() < "v0.8".parse().unwrap());
    for chart in old {
        let builder = chart.values_builder().set(SetKind::Value, "etcd.replicas=3");
        let error = builder.build_checked(ControlPlaneValues::schema()).unwrap_err().to_string();
        assert!(error.contains("v0.8"), "{error}");
    }
}

#[test]
fn every_line_of_the_specification_has_a_chart() {
    let lines: Vec<String> = charts().iter().map(|chart| chart.line().to_string()).collect();
    assert_eq!(lines, ["v1.2", "v1.1", "v1.0", "v0.9", "v0.8", "v0.7", "v0.6"]);
}

#[test]
fn flow_control_is_of_a_version_that_the_hosted_api_server_serves() {
    for chart in charts() {
        let rendered = render(chart, None);
        let installer: Vec<&str> = rendered
            .bootstrap
            .iter()
            .filter_map(|o| o.api_version().strip_prefix("flowcontrol.apiserver.k8s.io/"))
            .collect();
        assert!(
            installer.len() >= 2 && installer.iter().all(|version| *version == "v1"),
            "{} {installer:?}",
            chart.line()
        );
    }
}

#[test]
fn further_arguments_come_last() {
    for chart in charts() {
        let sets = ["apiserver.extraArgs={--v=4}", "etcd.extraArgs={--log-level=debug}"];
        let rendered = render_with(chart, None, &sets, &placeholder_files());
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
fn admission_webhooks_are_called_only_where_a_value_says_so() {
    for chart in charts() {
        for (sets, is_called) in [(&[][..], false), (&["apiserver.allowAdmissionWebhooks=true"][..], true)] {
            let rendered = render_with(chart, None, sets, &placeholder_files());
            let (_, pod) = pods(&rendered).into_iter().find(|(object, _)| object.name() == "apiserver").unwrap();
            let command: Vec<&str> =
                pod["containers"][0]["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            for plugin in WEBHOOK_PLUGINS {
                assert_ne!(is_disabled(command.iter().copied(), plugin), is_called, "{} {plugin}", chart.line());
            }
            for plugin in UNUSED_PLUGINS {
                assert!(is_disabled(command.iter().copied(), plugin), "{} {plugin}", chart.line());
            }
        }
    }
}

#[test]
fn the_service_carries_the_port_that_was_asked_for() {
    for chart in charts() {
        assert_eq!(list_service_ports(chart, Some("nodeport"), &[], "NodePort")[0]["nodePort"], 32222);
        assert!(list_service_ports(chart, None, &[], "NodePort")[0].get("nodePort").is_none());
        let public = list_service_ports(chart, None, &["exposure.port=6443"], "LoadBalancer");
        assert_eq!((&public[0]["port"], &public[1]["port"]), (&json!(443), &json!(6443)));
    }
}

fn list_service_ports(chart: &Chart, preset: Option<&str>, sets: &[&str], kind: &str) -> Vec<Value> {
    let values = values(chart, preset, sets);
    let mut input = input(chart, &values, &placeholder_files());
    input.facts["exposure"]["type"] = json!(kind);
    let rendered = chart.render(&input).unwrap();
    let service = rendered.objects.iter().find(|o| o.kind() == "Service" && o.name() == "apiserver").unwrap();
    service.json["spec"]["ports"].as_array().unwrap().clone()
}

#[test]
fn templates_and_schema_know_the_same_values() {
    for chart in charts() {
        let usage = compare_usage(chart, &ControlPlaneValues::schema()).unwrap();
        assert_eq!(usage.unknown, [""; 0], "{}", chart.line());
        // These decide what the program does before it renders.
        assert_eq!(
            usage.unused,
            ["exposure.extraSANs", "exposure.host", "exposure.nodePort", "exposure.type", "name", "version"],
            "{}",
            chart.line()
        );
    }
}

#[test]
fn values_out_of_bounds_are_refused() {
    for wrong in [
        "etcd.replicas=2",
        "apiserver.replicas=0",
        "etcd.storage.size=lots",
        "etcd.quotaBytes=1",
        "exposure.port=0",
        "exposure.nodePort=70000",
        "exposure.type=Ingress",
        "exposure.host=https://example",
        "exposure.agentEndpoint=example",
        "imagePullPolicy=Sometimes",
        "apiserver.extraArgs={v=4}",
        "scheduler.initTokenTTL=30",
        "scheduler.resources.requests.cpu=half",
        "tolerations[0].efect=NoSchedule",
        "namespace.podSecurity=strict",
        "etcd.image.digest=x",
    ] {
        let chart = &charts()[0];
        let builder = chart.values_builder().set(SetKind::Value, wrong);
        assert!(builder.build_checked(ControlPlaneValues::schema()).is_err(), "{wrong}");
    }
}

#[test]
fn the_schema_beside_the_presets_is_current() {
    let schema = written_schema(ControlPlaneValues::schema(), Kind::ControlPlane);
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    assert_file_current("control-plane.schema.json", &text);
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
