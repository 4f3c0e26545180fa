//! Values that users give for pods, their nodes and their way out, seen in the objects of every line.

use proptest::prelude::*;

use super::*;
use crate::chart::output::object_yaml;
use crate::chart::tests::hostile::hostile;

/// Each component by its key in the values, the kind and name of its workload, and its label.
const COMPONENTS: [(&str, &str, &str); 4] = [
    ("etcd", "StatefulSet", "etcd"),
    ("apiserver", "Deployment", "apiserver"),
    ("controllerManager", "Deployment", "kube-controller-manager"),
    ("scheduler", "Deployment", "fleet-scheduler"),
];

fn rendered(chart: &Chart, text: &str) -> Rendered {
    let tree = chart.values_builder().file("my.yaml", text.as_bytes());
    let tree = tree.build_checked(ControlPlaneValues::schema()).unwrap_or_else(|error| panic!("{error}"));
    let values = tree.deserialize::<ControlPlaneValues>().unwrap().with_derived_values();
    let mut input = input(chart, &values, &placeholder_files());
    if let Some(kind) = text.split("type: ").nth(1).and_then(|rest| rest.split([',', '}', '\n']).next()) {
        input.facts["exposure"]["type"] = kind.into();
    }
    chart.render(&input).unwrap_or_else(|error| panic!("{error}"))
}

fn object<'r>(rendered: &'r Rendered, kind: &str, name: &str) -> &'r Value {
    &rendered.objects.iter().find(|object| object.kind() == kind && object.name() == name).unwrap().json
}

#[test]
fn every_pod_asks_for_linux_and_for_what_the_user_asks() {
    for chart in charts() {
        for preset in preset_names(chart) {
            for (object, pod) in pods(&render(chart, preset)) {
                assert_eq!(pod["nodeSelector"]["kubernetes.io/os"], "linux", "{} {}", chart.line(), object.id());
            }
        }
        let text = "nodeSelector: {disk: ssd, pool: all}\netcd: {nodeSelector: {pool: etcd}}\n";
        let rendered = rendered(chart, text);
        for (key, kind, name) in COMPONENTS {
            let pool = if key == "etcd" { "etcd" } else { "all" };
            let selector = &object(&rendered, kind, name)["spec"]["template"]["spec"]["nodeSelector"];
            assert_eq!(*selector, json!({"kubernetes.io/os": "linux", "disk": "ssd", "pool": pool}), "{key}");
        }
    }
}

#[test]
fn what_is_given_for_a_component_reaches_its_pods_and_no_others_and_no_selector() {
    let given = "{podLabels: {example.com/team: a}, podAnnotations: {example.com/note: 'no'}, extraEnv: [{name: A, value: 'yes'}], \
                 nodeSelector: {pool: a}, tolerations: [{key: a, operator: Exists}], priorityClassName: high, \
                 affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchFields: [{key: metadata.name, operator: In, values: [n]}]}}]}}, \
                 topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}";
    for chart in charts() {
        let plain = render(chart, None);
        for (key, kind, name) in COMPONENTS {
            let text = format!("priorityClassName: low\ntolerations: [{{key: all}}]\n{key}: {given}\n");
            let rendered = rendered(chart, &text);
            for (other, kind, workload) in COMPONENTS {
                let (before, after) = (object(&plain, kind, workload), object(&rendered, kind, workload));
                assert_eq!(before["spec"]["selector"], after["spec"]["selector"], "{workload}");
                let pod = &after["spec"]["template"]["spec"];
                let is_it = other == key;
                assert_eq!(pod["priorityClassName"], if is_it { "high" } else { "low" }, "{key}: {workload}");
                assert_eq!(
                    pod["tolerations"].as_array().unwrap().len(),
                    if is_it { 2 } else { 1 },
                    "{key}: {workload}"
                );
                assert_eq!(pod.get("topologySpreadConstraints").is_some(), is_it, "{key}: {workload}");
                let text = after["spec"]["template"].to_string();
                assert_eq!(text.contains("example.com/team") && text.contains("example.com/note"), is_it, "{text}");
            }
            let workload = object(&rendered, kind, name);
            let template = &workload["spec"]["template"];
            let before = object(&plain, kind, name);
            let mut labels = before["spec"]["template"]["metadata"]["labels"].clone();
            labels["example.com/team"] = "a".into();
            assert_eq!(template["metadata"]["labels"], labels, "those of the chart stay");
            assert_eq!(template["metadata"]["annotations"]["example.com/note"], "no");
            let env = template["spec"]["containers"][0]["env"].as_array().unwrap();
            assert_eq!(env.last(), Some(&json!({"name": "A", "value": "yes"})));
            let affinity = &template["spec"]["affinity"];
            assert!(affinity["nodeAffinity"].is_object() && affinity["podAntiAffinity"].is_object(), "{affinity}");
            let selector = &workload["spec"]["selector"];
            assert_eq!(template["spec"]["topologySpreadConstraints"][0]["labelSelector"], *selector);
        }
    }
}

#[test]
fn pods_to_keep_away_from_are_the_users_where_he_names_some() {
    let text = "etcd: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, labelSelector: {}}]}}}";
    for chart in charts() {
        let rendered = rendered(chart, text);
        let affinity = &object(&rendered, "StatefulSet", "etcd")["spec"]["template"]["spec"]["affinity"];
        let expected =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack", "labelSelector": {}}]});
        assert_eq!(*affinity, json!({ "podAntiAffinity": expected }));
    }
}

fn find_variable<'e>(env: &'e Value, name: &str) -> Option<&'e str> {
    env.as_array().unwrap().iter().find(|variable| variable["name"] == name)?["value"].as_str()
}

#[test]
fn the_scheduler_goes_through_the_proxy_but_never_to_its_own_cluster() {
    let text = "proxy: {https: 'http://proxy.example.com:3128', noProxy: [.example.com]}\ncloud: {accessKey: '{}'}\n";
    for chart in charts() {
        let rendered = rendered(chart, text);
        let env =
            &object(&rendered, "Deployment", "fleet-scheduler")["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!(find_variable(env, "HTTPS_PROXY"), Some("http://proxy.example.com:3128"));
        assert_eq!(find_variable(env, "HTTP_PROXY"), None);
        let direct: Vec<&str> = find_variable(env, "NO_PROXY").unwrap().split(',').collect();
        for name in ["localhost", ".svc", ".cluster.local", "$(KUBERNETES_SERVICE_HOST)", "10.0.0.0/8", ".example.com"]
        {
            assert!(direct.contains(&name), "{name} in {direct:?}");
        }
        let policy = object(&rendered, "NetworkPolicy", "fleet-scheduler");
        let ports = policy["spec"]["egress"][1]["ports"].as_array().unwrap();
        assert!(ports.contains(&json!({"port": 3128, "protocol": "TCP"})), "{ports:?}");
        for (_, kind, name) in &COMPONENTS[..3] {
            assert!(!object(&rendered, kind, name).to_string().contains("PROXY"), "{name}");
        }
    }
}

#[test]
fn the_class_and_the_policy_of_the_load_balancer_and_the_identity_of_the_account_are_rendered() {
    for chart in charts() {
        let text = "exposure: {loadBalancerClass: example.com/nlb, externalTrafficPolicy: Local, type: LoadBalancer}\nserviceAccount: {annotations: {example.com/role: fleet}}\n";
        let balanced = rendered(chart, text);
        let service = object(&balanced, "Service", "apiserver");
        assert_eq!(service["spec"]["loadBalancerClass"], "example.com/nlb");
        assert_eq!(service["spec"]["externalTrafficPolicy"], "Local");
        let account = object(&balanced, "ServiceAccount", "fleet-control-plane");
        assert_eq!(account["metadata"]["annotations"], json!({"example.com/role": "fleet"}));
        let node = rendered(chart, "exposure: {externalTrafficPolicy: Cluster, type: NodePort}\n");
        let service = object(&node, "Service", "apiserver");
        assert_eq!(
            (&service["spec"]["externalTrafficPolicy"], service["spec"].get("loadBalancerClass")),
            (&json!("Cluster"), None)
        );
    }
}

#[test]
fn hostile_variables_and_annotations_change_nothing_but_their_own_places() {
    let chart = &charts()[0];
    let strategy = prop::collection::vec(hostile(), 50);
    let mut runner = proptest::test_runner::TestRunner::new(proptest::test_runner::Config {
        cases: 20,
        failure_persistence: None,
        ..Default::default()
    });
    let plain = render(chart, None);
    runner
        .run(&strategy, |all| {
            let env: Vec<Value> =
                all.iter().enumerate().map(|(n, text)| json!({"name": format!("E{n}"), "value": text})).collect();
            let notes: serde_json::Map<String, Value> =
                all.iter().enumerate().map(|(n, text)| (format!("example.com/n{n}"), json!(text))).collect();
            let text = object_yaml(&json!({"apiserver": {"extraEnv": env, "podAnnotations": notes},
                "serviceAccount": {"annotations": notes}}));
            let rendered = rendered(chart, &text);
            let mut expected = (*plain).clone();
            for object in &mut expected.objects {
                match object.id().as_str() {
                    "deployment/apiserver" => {
                        let template = &mut object.json["spec"]["template"];
                        template["spec"]["containers"][0]["env"] = json!(env);
                        template["metadata"]["annotations"].as_object_mut().unwrap().extend(notes.clone());
                    }
                    "serviceaccount/fleet-control-plane" => object.json["metadata"]["annotations"] = json!(notes),
                    _ => {}
                }
            }
            for (found, expected) in rendered.objects.iter().zip(&expected.objects) {
                prop_assert_eq!(&found.json, &expected.json);
            }
            prop_assert_eq!(rendered.objects.len(), expected.objects.len());
            Ok(())
        })
        .unwrap();
}
