//! Nothing more than is needed: pods, keys, secrets and wires of the control-plane charts.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::control_plane::values::SecretValue;
use crate::pki::secrets::{KEPT_SECRET, SECRET_ENTRIES};

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
                // Who fills it up ends the program, and not its node.
                let is_scheduler = object.name() == "fleet-scheduler";
                assert!(container["resources"]["limits"]["memory"].is_string() || !is_scheduler, "{id}");
            }
            for container in pod["containers"].as_array().unwrap() {
                for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                    assert!(container[probe].is_object(), "{id}: {probe}");
                }
            }
        }
    });
}

/// The files of Secrets that each pod mounts.
fn list_key_mounts(rendered: &Rendered) -> BTreeMap<String, BTreeSet<String>> {
    pods(rendered).into_iter().map(|(object, pod)| (object.name().to_owned(), list_mounted_keys(pod))).collect()
}

fn list_mounted_keys(pod: &Value) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        let projected = volume["projected"]["sources"].as_array().cloned().unwrap_or_default();
        for source in projected.iter().map(|source| &source["secret"]).chain(volume.get("secret")) {
            let secret = source.get("name").or(source.get("secretName")).unwrap().as_str().unwrap();
            let of_secret = SECRET_ENTRIES.iter().filter(|entry| entry.secret == secret);
            match source["items"].as_array() {
                Some(items) => files.extend(items.iter().map(|item| item["key"].as_str().unwrap().to_owned())),
                None => files.extend(of_secret.map(|entry| entry.file.to_owned())),
            }
        }
    }
    // Copied into the Secret of etcd, so that it mounts one.
    files.remove("etcd-ca.crt");
    files
}

#[test]
fn keys_of_others_and_keys_made_in_the_cluster_are_rendered_nowhere_and_reach_the_same_pods() {
    let pki = real_pki();
    let existing = ["pki.source=Existing", "pki.existingSecret=mine", "exposure.host=10.0.0.1"];
    for chart in charts() {
        let installer = list_key_mounts(&render_with(chart, None, &[], &pki));
        for sets in [&existing[..], &["pki.source=InCluster", "exposure.host=10.0.0.1"]] {
            let rendered = render_with(chart, None, sets, &pki);
            let secret = rendered.objects.iter().find(|object| object.kind() == "Secret");
            assert_eq!(secret, None, "{sets:?}");
            let mut found = list_key_mounts(&rendered);
            found.remove("fleet-keys");
            assert_eq!(found, installer, "{sets:?}");
        }
    }
}

#[test]
fn who_makes_keys_may_read_and_write_them_and_no_other_secret() {
    for chart in charts() {
        for (source, kinds) in [("InCluster", &["Job", "CronJob"][..]), ("Installer", &["CronJob"])] {
            let rendered = render_with(chart, None, &[&format!("pki.source={source}")], &placeholder_files());
            let role = rendered.objects.iter().find(|object| object.kind() == "Role").unwrap();
            let secrets: BTreeSet<&str> = SECRET_ENTRIES.iter().map(|entry| entry.secret).collect();
            for rule in role.json["rules"].as_array().unwrap() {
                let names = rule["resourceNames"].as_array();
                let names: Option<BTreeSet<&str>> = names.map(|names| names.iter().filter_map(Value::as_str).collect());
                let is_list = rule["resources"] == json!(["pods"]) && rule["verbs"] == json!(["list"]);
                let creates = source == "InCluster" && rule["verbs"] == json!(["create"]);
                assert!(names.is_some() || is_list || creates, "{source}: {rule}");
                if rule["resources"] == json!(["secrets"]) {
                    assert!(names.is_none_or(|names| names == secrets), "{rule}");
                }
                let text = rule["verbs"].to_string();
                assert!(source == "InCluster" || !text.contains("create") && !text.contains("delete"), "{rule}");
            }
            let pods: Vec<(&str, &Value)> = rendered
                .objects
                .iter()
                .filter_map(|object| {
                    let template = ["/spec/template", "/spec/jobTemplate/spec/template"];
                    let template = template.iter().find_map(|pointer| object.json.pointer(pointer))?;
                    let has_token = template["spec"]["automountServiceAccountToken"] != false;
                    has_token.then(|| (object.kind(), template))
                })
                .collect();
            assert_eq!(pods.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), kinds);
            assert!(pods.iter().all(|(_, template)| *template == pods[0].1));
            let container = &pods[0].1["spec"]["containers"][0];
            assert!(container.get("env").is_none(), "variables are read as flags");
            let renews_only = container["args"].as_array().unwrap().contains(&json!("--renew-only"));
            assert_eq!(renews_only, source == "Installer");
        }
    }
}

#[test]
fn nobody_renews_where_a_value_says_so_or_where_others_keep_the_keys() {
    let existing = ["pki.source=Existing", "pki.existingSecret=mine", "exposure.host=10.0.0.1"];
    for chart in charts() {
        for sets in [&["pki.renewal=Manual"][..], &existing] {
            let rendered = render_with(chart, None, sets, &placeholder_files());
            let mut kinds = rendered.objects.iter().map(Object::kind);
            assert!(kinds.all(|kind| !matches!(kind, "CronJob" | "Job" | "Role")), "{sets:?}");
        }
    }
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
        let rendered = render_with(chart, None, &[], &pki);
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
fn names_are_looked_up_wherever_pods_of_dns_listen() {
    everywhere(|which, rendered| {
        let policy = rendered.objects.iter().find(|object| object.name() == "fleet-dns").unwrap();
        let ports = policy.json["spec"]["egress"][0]["ports"].as_array().unwrap();
        for port in [53, 5353, 8053] {
            for protocol in ["UDP", "TCP"] {
                assert!(ports.contains(&json!({"port": port, "protocol": protocol})), "{which}: {port} {protocol}");
            }
        }
    });
}

/// The rules for who reads the metrics.
fn list_metrics_rules(chart: &Chart, sets: &[&str]) -> Vec<Value> {
    let rendered = render_with(chart, None, sets, &placeholder_files());
    let policies = rendered.objects.iter().filter(|object| object.kind() == "NetworkPolicy");
    let rules = policies.filter_map(|object| object.json["spec"]["ingress"].as_array().cloned()).flatten();
    rules.filter(|rule| rule.to_string().contains("8080")).collect()
}

#[test]
fn metrics_are_read_by_those_who_are_named_and_by_nobody_else() {
    let peer = "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=watch";
    for chart in charts() {
        assert_eq!(list_metrics_rules(chart, &[]), Vec::<Value>::new(), "{}", chart.line());
        assert_eq!(
            list_metrics_rules(chart, &[peer, "networkPolicy.enabled=false"]),
            Vec::<Value>::new(),
            "{}",
            chart.line()
        );
        let ports = json!([{"port": 8080, "protocol": "TCP"}, {"port": 10257, "protocol": "TCP"}]);
        let from = json!([{"namespaceSelector": {"matchLabels": {"team": "watch"}}}]);
        assert_eq!(list_metrics_rules(chart, &[peer]), [json!({"from": from, "ports": ports})], "{}", chart.line());
    }
}

/// The peers of the rules for DNS and the cloud.
fn list_outside_peers(chart: &Chart, sets: &[&str]) -> Vec<Value> {
    let mut given = values(chart, None, sets);
    given.cloud.access_key = Some(SecretValue("{}".to_owned()));
    let rendered = chart.render(&input(chart, &given, &placeholder_files())).unwrap();
    let policies = rendered.objects.iter().filter(|object| object.kind() == "NetworkPolicy");
    // Who renews certificates reaches the API of the hosting cluster, whose address no policy knows.
    let others = policies.filter(|object| object.name() != "fleet-keys");
    let rules = others.filter_map(|object| object.json["spec"]["egress"].as_array().cloned()).flatten();
    let outside = rules.filter(|rule| [":53,", ":443,"].iter().any(|port| rule.to_string().contains(port)));
    outside.map(|rule| rule["to"].clone()).collect()
}

#[test]
fn dns_and_the_cloud_are_reached_where_it_is_said_and_nowhere_else() {
    let sets = [
        "networkPolicy.dnsTo[0].namespaceSelector.matchLabels.dns=here",
        "networkPolicy.cloudTo[0].ipBlock.cidr=192.0.2.0/24",
    ];
    for chart in charts() {
        assert_eq!(list_outside_peers(chart, &[]), [Value::Null, Value::Null], "{}", chart.line());
        let dns = json!([{"namespaceSelector": {"matchLabels": {"dns": "here"}}}]);
        let cloud = json!([{"ipBlock": {"cidr": "192.0.2.0/24"}}]);
        assert_eq!(list_outside_peers(chart, &sets), [dns, cloud], "{}", chart.line());
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
        let plain = render(chart, None);
        assert!(!plain.objects.iter().any(|object| object.name() == "fleet-cloud-credentials"));
        let mut given = values(chart, None, &["cloud.projectId=p-1"]);
        given.cloud.access_key = Some(SecretValue("{\"CANARY\": 1}".to_owned()));
        let rendered = chart.render(&input(chart, &given, &placeholder_files())).unwrap();
        assert_eq!(secret_data(secret(&rendered, "fleet-cloud-credentials"))["access-key.json"], "{\"CANARY\": 1}");
        let holders: Vec<String> = rendered
            .objects
            .iter()
            .filter(|o| o.json.to_string().contains("fleet-cloud-credentials"))
            .map(Object::id)
            .collect();
        assert_eq!(holders, ["secret/fleet-cloud-credentials", "deployment/fleet-scheduler"]);
        assert!(!rendered.objects.iter().any(|object| object.json.to_string().contains("CANARY")));
        assert!(!format!("{given:?}").contains("CANARY"));
    }
}

#[test]
fn registry_credentials_become_the_pull_secret_of_every_pod() {
    for chart in charts() {
        let mut given = values(chart, None, &["imagePullSecrets[0].name=other"]);
        given.registry_credentials = Some(SecretValue("{\"auths\": \"CANARY\"}".to_owned()));
        let rendered = chart.render(&input(chart, &given, &placeholder_files())).unwrap();
        let made = secret(&rendered, "fleet-registry");
        assert_eq!(made.json["type"], "kubernetes.io/dockerconfigjson");
        assert_eq!(secret_data(made)[".dockerconfigjson"], "{\"auths\": \"CANARY\"}");
        for (object, pod) in pods(&rendered) {
            let names = json!([{"name": "other"}, {"name": "fleet-registry"}]);
            assert_eq!(pod["imagePullSecrets"], names, "{}", object.id());
        }
        assert!(!format!("{given:?}").contains("CANARY"));
    }
}
