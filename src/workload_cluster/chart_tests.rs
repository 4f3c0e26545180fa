//! Promises of the agent charts, seen in the objects that they render.

use crate::chart::embedded_versions;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::plan::Plan;
use super::values::AgentValues;
use crate::api::names::DEFAULT_NAMESPACE;
use crate::api::placeable::PLACEABLE;
use crate::api::values::pod_values::assert_file_current;
use crate::chart::testing::coverage::{Coverage, constant_values};
use crate::chart::testing::golden;
use crate::chart::testing::usage::compare_usage;
use crate::chart::values::written_schema;
use crate::chart::versions::select::{Request, select_row};
use crate::chart::{Chart, Kind, Object, RenderInput, Rendered, SetKind, ValuesBuilder, embedded_presets};
use crate::install::recorded_use::RecordedUse;
use crate::install::release_spec::{Package, load_chart};
use crate::k8s::ObjectRef;
use crate::workload_cluster::charts::{ORDINARY_VALUES, former_object};

fn charts() -> Vec<Chart> {
    let lines = embedded_versions().rows().iter().filter(|row| row.charts.contains_key(&Kind::Agent));
    lines.map(|row| Chart::load_embedded(Kind::Agent, row.version).unwrap()).collect()
}

const FULL: &str = include_str!("../../tests/packager/fixtures/agent-full.yaml");
const POLICY: &str = include_str!("../../tests/packager/fixtures/agent-policy.yaml");
const REPLICAS: &str = "replicas: 2\n";
/// Another namespace than the default one.
const ELSEWHERE: &str = "elsewhere";
/// On a cluster that serves it, whatever the version.
const ADMISSION: &str = "admissionPolicy: Enabled\nplacement: {protectedNamespaces: [cert-manager, cattle-*]}\n";

fn input(chart: &Chart, builder: ValuesBuilder) -> RenderInput {
    let tree = builder.build_checked(AgentValues::schema()).unwrap_or_else(|error| panic!("{error}"));
    let values: AgentValues = tree.deserialize().unwrap();
    RenderInput {
        values: serde_json::to_value(values).unwrap(),
        release: json!({
            "name": "member-1", "namespace": "fleet", "line": chart.line().to_string(), "managedBy": "fleetctl",
            "version": chart.version_row().unwrap().default.to_string(),
        }),
        facts: json!({ "admissionPolicies": chart.line() >= "v1.2".parse().unwrap() }),
        pki: BTreeMap::new(),
    }
}

fn render(chart: &Chart, sets: &[&str]) -> Rendered {
    let builder = sets.iter().fold(chart.values_builder(), |builder, set| builder.set(SetKind::Value, set));
    chart.render(&input(chart, builder)).unwrap_or_else(|error| panic!("{error}"))
}

/// The defaults, the presets that an agent takes, and the fixtures.
fn inputs(chart: &Chart) -> Vec<(&'static str, RenderInput)> {
    let has_replicas = chart.line() >= "v0.8".parse().unwrap();
    let presets = embedded_presets()
        .filter(|preset| {
            let builder = chart.values_builder().file(preset.name, preset.text.as_bytes());
            builder.build_checked(AgentValues::schema()).is_ok()
        })
        .map(|preset| (preset.name, preset.text));
    let fixtures = [("full", FULL), ("policy", POLICY), ("admission", ADMISSION)]
        .into_iter()
        .chain(has_replicas.then_some(("replicas", REPLICAS)));
    let all = [("", "")].into_iter().chain(presets).chain(fixtures);
    let all = all.map(|(name, text)| (name, input(chart, chart.values_builder().file(name, text.as_bytes()))));
    all.chain([(ELSEWHERE, input_elsewhere(chart))]).collect()
}

/// What an agent in another namespace than the default one renders, with an admission policy.
fn input_elsewhere(chart: &Chart) -> RenderInput {
    let mut input = input(chart, chart.values_builder().file("admission", ADMISSION.as_bytes()));
    input.release["namespace"] = ELSEWHERE.into();
    input
}

fn deployment(rendered: &Rendered) -> &Value {
    &rendered.objects.iter().find(|object| object.kind() == "Deployment").unwrap().json
}

#[test]
fn every_line_of_the_specification_has_an_agent() {
    let lines: Vec<String> = charts().iter().map(|chart| chart.line().to_string()).collect();
    assert_eq!(lines, ["v1.2", "v1.1", "v1.0", "v0.9", "v0.8", "v0.7", "v0.6"]);
}

#[test]
fn the_pod_is_found_by_the_label_of_the_specification_and_keeps_to_the_restricted_level() {
    for chart in charts() {
        let rendered = render(&chart, &[]);
        let template = &deployment(&rendered)["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["app.kubernetes.io/name"], "fleet-agent");
        assert_eq!(template["spec"]["securityContext"]["runAsNonRoot"], true);
        assert_eq!(template["spec"]["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
        assert!(
            container["resources"]["limits"]["memory"].is_string(),
            "who fills it up ends the program, and not its node"
        );
        assert_eq!(container["args"][0], "--cluster-name=member-1");
    }
}

#[test]
fn the_agent_is_told_which_service_version_it_is_part_of() {
    for chart in charts() {
        let rendered = render(&chart, &[]);
        let env = &deployment(&rendered)["spec"]["template"]["spec"]["containers"][0]["env"];
        let version = chart.version_row().unwrap().default.to_string();
        assert!(env.as_array().unwrap().contains(&json!({"name": "FLEET_SERVICE_VERSION", "value": version})), "{env}");
    }
}

fn rule_texts<'a>(rule: &'a Value, key: &str) -> BTreeSet<&'a str> {
    rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn the_agent_may_write_its_own_secret_and_what_can_be_placed() {
    let reads = BTreeSet::from(["get", "list", "watch"]);
    let copies = BTreeSet::from(["create", "delete", "get", "list", "patch", "watch"]);
    let secrets = BTreeSet::from(["create", "delete", "get", "patch"]);
    let placed: BTreeSet<(String, String)> =
        PLACEABLE.iter().map(|kind| (kind.group.to_owned(), kind.plural.to_owned())).collect();
    for chart in charts() {
        let rendered = render(&chart, &[]);
        let mut writable = BTreeSet::new();
        for role in rendered.objects.iter().filter(|object| object.kind().ends_with("Role")) {
            for rule in role.json["rules"].as_array().unwrap() {
                let (verbs, named) = (rule_texts(rule, "verbs"), rule["resourceNames"].is_array());
                let is_secrets = rule_texts(rule, "resources").contains("secrets");
                assert!(!rule.to_string().contains('*'), "{}: {rule}", role.id());
                let own =
                    [json!(["fleet-agent-identity"]), json!(["fleet-agent-contents"])].contains(&rule["resourceNames"]);
                let is_placing =
                    role.kind() == "ClusterRole" && !named && verbs == *if is_secrets { &secrets } else { &copies };
                assert!(own || is_placing || (!is_secrets && verbs.is_subset(&reads)), "{}: {rule}", role.id());
                if is_placing {
                    let groups = rule_texts(rule, "apiGroups");
                    let all = groups.iter().flat_map(|group| {
                        rule_texts(rule, "resources")
                            .into_iter()
                            .map(move |plural| ((*group).to_owned(), plural.to_owned()))
                    });
                    writable.extend(all);
                }
            }
        }
        assert_eq!(writable, placed, "{}", chart.line());
    }
}

/// Returns the rules of the agent's ClusterRole with values.
fn list_cluster_rules(chart: &Chart, sets: &[(SetKind, &str)]) -> Vec<String> {
    let builder = sets.iter().fold(chart.values_builder(), |builder, (kind, set)| builder.set(*kind, set));
    let rendered = chart.render(&input(chart, builder)).unwrap_or_else(|error| panic!("{error}"));
    let role = rendered.objects.iter().find(|object| object.kind() == "ClusterRole").unwrap();
    role.json["rules"].as_array().unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn the_agents_role_grows_by_what_values_add_and_by_nothing_else() {
    let added = r#"placement.extraKinds=[{"group":"","version":"v1","kind":"LimitRange","resource":"limitranges"}]"#;
    for chart in charts() {
        let before = list_cluster_rules(&chart, &[]);
        let all =
            list_cluster_rules(&chart, &[(SetKind::Json, added), (SetKind::Value, "placement.allowRBACKinds=true")]);
        let new: Vec<&String> = all.iter().filter(|rule| !before.contains(rule)).collect();
        assert!(all.len() == before.len() + 2 && new.len() == 2, "{new:?}");
        assert!(new[0].contains(r#""limitranges""#) && !new[0].contains("escalate"), "{new:?}");
        assert!(new[1].contains(r#""clusterrolebindings""#) && new[1].contains(r#""escalate""#), "{new:?}");
    }
}

#[test]
fn the_namespace_and_the_init_secret_are_the_operators() {
    for chart in charts() {
        let rendered = render(&chart, &[]);
        let ids: Vec<String> = rendered.objects.iter().map(Object::id).collect();
        assert!(!ids.contains(&"namespace/fleet".to_owned()), "{ids:?}");
        assert!(!ids.contains(&"secret/fleet-cluster-init-kubeconfig".to_owned()), "{ids:?}");
        let identity = rendered.objects.iter().find(|object| object.kind() == "Secret").unwrap();
        assert!(identity.json.get("data").is_none(), "an install must not touch the agent's key");
    }
}

#[test]
fn templates_and_schema_know_the_same_values() {
    for chart in charts() {
        let usage = compare_usage(&chart, &AgentValues::schema()).unwrap();
        assert_eq!(usage.unknown, [""; 0], "{}", chart.line());
        assert_eq!(usage.unused, ["name", "version"], "{}", chart.line());
    }
}

#[test]
fn the_schema_beside_the_presets_is_current() {
    let schema = written_schema(AgentValues::schema(), Kind::Agent);
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    assert_file_current("agent.schema.json", &text);
}

#[test]
fn values_reach_the_pod() {
    for chart in charts() {
        let sets = [
            "imageRegistry=mirror.example:5000",
            "cluster.provider=gce",
            "cluster.region=r1",
            "cluster.zone=z1",
            "cluster.kubernetesCluster=c1",
            "extraArgs={--log-format=text}",
            "networkPolicy.enabled=false",
            "priorityClassName=high",
        ];
        let rendered = render(&chart, &sets);
        let pod = &deployment(&rendered)["spec"]["template"]["spec"];
        let image = pod["containers"][0]["image"].as_str().unwrap();
        assert_eq!(
            image,
            format!(
                "mirror.example:5000/fleetscheduler/fleet-agent:{}",
                chart.version_row().unwrap().images["agent"].tag
            )
        );
        let arguments = pod["containers"][0]["args"].as_array().unwrap();
        for argument in ["--provider=gce", "--region=r1", "--zone=z1", "--kubernetes-cluster=c1"] {
            assert!(arguments.contains(&json!(argument)), "{argument}");
        }
        assert_eq!(arguments.last().unwrap(), "--log-format=text");
        assert_eq!(pod["priorityClassName"], "high");
        assert!(!rendered.objects.iter().any(|object| object.kind() == "NetworkPolicy"));
    }
}

/// Returns the kinds of the objects of an agent for a version of Kubernetes.
fn list_rendered_kinds(version: &str, kubernetes: Option<&str>, set: &str) -> Vec<String> {
    let selection = select_row(embedded_versions(), Request { version: Some(version), ..Request::default() }).unwrap();
    let chart = Chart::load_embedded(Kind::Agent, selection.row.version).unwrap().with_row(selection.row.clone());
    let values = chart.values_of(&selection.version).set(SetKind::Value, set);
    let plan = Plan::new("m".parse().unwrap(), "fleet".parse().unwrap(), &selection, chart, values).unwrap();
    let plan = plan.with_kubernetes(kubernetes.map(|minor| minor.parse().unwrap()));
    plan.render_agent().unwrap().objects.iter().map(|object| object.kind().to_owned()).collect()
}

#[test]
fn the_admission_policy_is_there_where_the_cluster_serves_it() {
    for (version, kubernetes, policy, expected) in [
        ("v1.2", None, "Auto", true),
        ("v1.2", Some("v1.36"), "Disabled", false),
        ("v1.1", None, "Auto", false),
        ("v1.1", Some("v1.29"), "Auto", false),
        ("v1.1", Some("v1.30"), "Auto", true),
        ("v0.6", Some("v1.25"), "Auto", false),
        ("v0.6", Some("v1.25"), "Enabled", true),
    ] {
        let kinds = list_rendered_kinds(version, kubernetes, &format!("admissionPolicy={policy}"));
        let found = kinds.iter().filter(|kind| kind.starts_with("ValidatingAdmissionPolicy")).count();
        assert_eq!(found, if expected { 2 } else { 0 }, "{version} {kubernetes:?} {policy}");
    }
}

#[test]
fn every_branch_and_expression_of_the_templates_is_reached() {
    for chart in charts() {
        let mut coverage = Coverage::from_chart(&chart).unwrap();
        for (_, input) in inputs(&chart) {
            coverage.add_input(&input).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(coverage.format_unreached_sites(), [""; 0], "{}", chart.line());
    }
}

#[test]
fn every_value_is_changed_by_a_preset_or_a_fixture() {
    for chart in charts() {
        let inputs = inputs(&chart);
        let values: Vec<&Value> = inputs.iter().map(|(_, input)| &input.values).collect();
        assert_eq!(constant_values(&AgentValues::schema(), chart.line(), &values), [""; 0], "{}", chart.line());
    }
}

#[test]
fn what_the_fixtures_render_would_be_taken_by_a_server() {
    for chart in charts() {
        // What a policy forces where no supported version serves it is for its operator to know.
        let serves_all = chart.line() >= "v1.2".parse().unwrap();
        let mut inputs = inputs(&chart);
        inputs.retain(|(name, _)| serves_all || ![ELSEWHERE, "admission"].contains(name));
        for (name, input) in inputs {
            let rendered = chart.render(&input).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(
                crate::chart::inspect::lint::lint_objects(&chart, &rendered, chart.version_row().unwrap()),
                [],
                "{name}"
            );
        }
    }
}

#[test]
fn what_any_line_renders_with_any_values_is_renderable_and_nothing_else() {
    let [renderable, elsewhere] = ["fleet", ELSEWHERE]
        .map(|namespace| super::charts::renderable_agent(&"member-1".parse().unwrap(), &namespace.parse().unwrap()));
    let mut rendered = BTreeSet::new();
    for chart in charts() {
        for (name, input) in inputs(&chart).into_iter().filter(|(name, _)| *name != ELSEWHERE) {
            for object in chart.render(&input).unwrap().objects {
                let object = ObjectRef::of(&object.json).unwrap();
                assert!(renderable.contains(&object), "{} {name}: {object}", chart.line());
                rendered.insert(object);
            }
        }
    }
    // Beside those, the namespace and the Secret that it starts from.
    let others: Vec<String> =
        renderable.iter().filter(|object| !rendered.contains(object)).map(ToString::to_string).collect();
    assert_eq!(others, ["Namespace fleet", "Secret fleet/fleet-cluster-init-kubeconfig"]);
    for chart in charts() {
        for object in chart.render(&input_elsewhere(&chart)).unwrap().objects {
            assert!(elsewhere.contains(&ObjectRef::of(&object.json).unwrap()), "{}", object.id());
        }
    }
    // Of another namespace it has what earlier versions gave the same name to, to take it away.
    let shared: Vec<String> =
        renderable.iter().filter(|object| elsewhere.contains(object)).map(ToString::to_string).collect();
    assert_eq!(
        shared,
        [
            "ValidatingAdmissionPolicy fleet-agent",
            "ValidatingAdmissionPolicyBinding fleet-agent",
            "ClusterRole fleet-agent",
            "ClusterRoleBinding fleet-agent",
            "Role kube-system/fleet-agent",
            "RoleBinding kube-system/fleet-agent"
        ]
    );
}

fn list_rendered_ids(chart: &Chart, input: &RenderInput) -> BTreeSet<ObjectRef> {
    chart.render(input).unwrap().objects.iter().map(|object| ObjectRef::of(&object.json).unwrap()).collect()
}

#[test]
fn two_agents_in_one_cluster_share_no_object() {
    for chart in charts() {
        let default = input(&chart, chart.values_builder().file("admission", ADMISSION.as_bytes()));
        let (here, there) = (list_rendered_ids(&chart, &default), list_rendered_ids(&chart, &input_elsewhere(&chart)));
        assert_eq!(here.intersection(&there).collect::<Vec<_>>(), Vec::<&ObjectRef>::new(), "{}", chart.line());
        // The names of the default namespace are those of earlier versions.
        assert!(here.iter().all(|object| !object.name.contains("fleet-agent-fleet")), "{here:?}");
        let other = DEFAULT_NAMESPACE.parse().unwrap();
        assert!(here.iter().all(|object| former_object(object, &other).is_none()), "{here:?}");
        let former = there.iter().filter_map(|object| former_object(object, &ELSEWHERE.parse().unwrap())).count();
        assert_eq!(former, 6, "the policy, the ClusterRole, the Role, and the binding of each");
        // A binding leads to its own role.
        for object in chart.render(&input_elsewhere(&chart)).unwrap().objects {
            let role = &object.json["roleRef"];
            if role.is_object() && object.json["metadata"]["namespace"] != ELSEWHERE {
                assert_eq!(role["name"], object.json["metadata"]["name"]);
            }
        }
    }
}

#[test]
fn the_quick_way_renders_what_the_careful_one_does() {
    for chart in charts() {
        for (name, input) in inputs(&chart) {
            let [quick, careful] = chart.render_both(&input);
            assert!(quick.is_some() && quick == careful, "{} {name}", chart.line());
        }
    }
}

/// Every flattened line, and what each preset changes in it: `cargo bed goldens` writes them again.
#[test]
fn the_flattened_agent_is_the_golden_one() {
    for chart in charts() {
        let plain = render(&chart, &[]);
        let all =
            plain.objects.iter().map(|object| golden::golden_yaml(&object.json)).collect::<Vec<_>>().join("---\n");
        golden::snapshot!(format!("agent-{}", chart.line()), all);
        for (name, input) in
            inputs(&chart).into_iter().filter(|(name, _)| embedded_presets().any(|preset| preset.name == *name))
        {
            let rendered = chart.render(&input).unwrap();
            let changes = golden::format_changes(&plain.objects, &rendered.objects);
            golden::snapshot!(format!("agent-{}-{name}", chart.line()), changes);
        }
    }
}

/// Returns the types, the ingress and the egress of the agent's NetworkPolicy.
fn render_network_rules(chart: &Chart, sets: &[&str]) -> (Value, Value, Value) {
    let rendered = render(chart, sets);
    let policy = rendered.objects.iter().find(|object| object.kind() == "NetworkPolicy").unwrap();
    let spec = &policy.json["spec"];
    (spec["policyTypes"].clone(), spec["ingress"].clone(), spec["egress"].clone())
}

#[test]
fn the_agent_is_limited_to_what_is_said() {
    let from = "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=watch";
    let to = "networkPolicy.egressTo[0].ipBlock.cidr=192.0.2.0/24";
    for chart in charts() {
        assert_eq!(
            render_network_rules(&chart, &[]),
            (json!(["Ingress"]), Value::Null, Value::Null),
            "{}",
            chart.line()
        );
        let (types, ingress, egress) = render_network_rules(&chart, &[from, to]);
        assert_eq!(types, json!(["Ingress", "Egress"]));
        assert_eq!(ingress[0]["from"], json!([{"namespaceSelector": {"matchLabels": {"team": "watch"}}}]));
        assert_eq!(egress, json!([{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]));
    }
}

/// Returns the recorded values that are not used without a confirmation.
fn list_unconfirmed_paths(record: &Value, sets: &[&str], local: Option<&Value>) -> Vec<String> {
    let chart = charts().remove(0);
    let selection = select_row(embedded_versions(), Request { version: Some("v1.2"), ..Request::default() }).unwrap();
    let values = chart.values_of(&selection.version).with_recorded(record);
    let values = sets.iter().fold(values, |values, set| values.set(SetKind::Value, set));
    let tree = values.build_checked(AgentValues::schema()).unwrap_or_else(|error| panic!("{error}"));
    let namespace = "fleet".parse().unwrap();
    let package = Package::new("west", namespace, &selection, load_chart(Kind::Agent, &selection).unwrap(), tree);
    let refused = RecordedUse::from_package_values(&package, local, ORDINARY_VALUES).unconfirmed;
    refused.into_iter().map(|value| value.path).collect()
}

#[test]
fn a_recorded_value_that_gives_the_agent_rights_is_used_only_where_it_is_known() {
    let kinds = json!([{"group": "example.com", "version": "v1", "kind": "Thing", "resource": "things"}]);
    let rbac = json!({"placement": {"allowRBACKinds": true}});
    let arguments = json!({"extraArgs": ["--v=4"], "extraEnv": [{"name": "A", "value": "b"}]});
    assert_eq!(list_unconfirmed_paths(&rbac, &[], None), ["placement.allowRBACKinds"]);
    assert_eq!(list_unconfirmed_paths(&rbac, &["placement.allowRBACKinds=true"], None), [""; 0]);
    assert_eq!(list_unconfirmed_paths(&rbac, &[], Some(&rbac)), [""; 0]);
    assert_eq!(
        list_unconfirmed_paths(&json!({"placement": {"extraKinds": kinds}}), &[], Some(&rbac)).last().unwrap(),
        "placement.allowRBACKinds"
    );
    assert_eq!(list_unconfirmed_paths(&arguments, &[], None), ["extraArgs", "extraEnv"]);
    let ordinary =
        json!({"cluster": {"region": "eu-1"}, "replicas": 2, "image": {"tag": "v1.2.0"}, "nodeSelector": {"a": "b"}});
    assert_eq!(list_unconfirmed_paths(&ordinary, &[], None), [""; 0]);
}
