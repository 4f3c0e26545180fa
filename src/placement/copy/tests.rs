use super::*;
use crate::api::crd::policy::OverrideValue;

fn copy(source: &Value) -> Copy {
    make_copy(source, None, &[]).unwrap()
}

fn edit(path: &str, value: Value) -> FieldOverride {
    FieldOverride { field_path: path.to_owned(), value: OverrideValue { static_value: value } }
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "2", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [], "finalizers": ["x"],
            "labels": { "app": "web", "fleet-scheduler.io/target-cluster": "a" },
            "annotations": { "deployment.kubernetes.io/revision": "4", "fleet-scheduler.io/adopt": "true" },
        },
        "spec": { "replicas": 3, "template": {} },
        "status": { "replicas": 3 },
    })
}

#[test]
fn what_only_the_control_plane_needs_is_stripped() {
    let expected = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "shop", "labels": { "app": "web" } },
        "spec": { "replicas": 3, "template": {} },
    });
    assert_eq!(copy(&deployment()).manifest, expected);
}

#[test]
fn a_share_comes_before_the_overrides() {
    let source = deployment();
    assert_eq!(make_copy(&source, Some(Share::Replicas(2)), &[]).unwrap().manifest["spec"]["replicas"], 2);
    let nine = edit("spec.replicas", json!(9));
    assert_eq!(make_copy(&source, Some(Share::Replicas(2)), &[&nine]).unwrap().manifest["spec"]["replicas"], 9);
    let missing = edit("spec.template.list[0]", json!(9));
    assert_eq!(make_copy(&source, None, &[&missing]).unwrap_err().code(), "PathNotFound");
    let version = edit("metadata.resourceVersion", json!("9"));
    assert!(make_copy(&source, None, &[&version]).unwrap().manifest["metadata"].get("resourceVersion").is_none());
}

#[test]
fn the_hash_follows_the_copy_and_not_the_source() {
    let mut touched = deployment();
    touched["metadata"]["resourceVersion"] = json!("77");
    touched["status"] = json!({});
    assert_eq!(copy(&touched).hash, copy(&deployment()).hash);
    touched["spec"]["replicas"] = json!(4);
    assert_ne!(copy(&touched).hash, copy(&deployment()).hash);
}

fn copy_opaque_secret(data: &str) -> Copy {
    copy(
        &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "type": "Opaque", "data": { "k": data } }),
    )
}

#[test]
fn the_data_of_a_secret_is_apart_and_in_the_hash() {
    let one = copy_opaque_secret("YQ==");
    assert!(one.manifest.get("data").is_none());
    assert_eq!(one.manifest["type"], "Opaque");
    assert_eq!(Value::from(one.payload.unwrap()), json!({ "data": { "k": "YQ==" } }));
    assert_ne!(one.hash, copy_opaque_secret("Yg==").hash);
}

fn copied_service_spec(ip: &str) -> Value {
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" }, "spec": {
        "clusterIP": ip, "clusterIPs": [ip], "ports": [{ "port": 80, "nodePort": 30_000 }] } });
    copy(&service).manifest["spec"].clone()
}

#[test]
fn a_service_loses_its_addresses_unless_it_is_headless() {
    assert_eq!(copied_service_spec("10.0.0.1"), json!({ "ports": [{ "port": 80 }] }));
    assert_eq!(
        copied_service_spec("None"),
        json!({ "clusterIP": "None", "clusterIPs": ["None"], "ports": [{ "port": 80 }] })
    );
}

/// Returns the specification in the copy of an object of which managers wrote these fields.
fn copied_spec_as_written(mut object: Value, written: &Value) -> Value {
    object["metadata"]["managedFields"] = json!([{ "fieldsV1": { "f:spec": written } }]);
    copy(&object).manifest["spec"].clone()
}

#[test]
fn what_the_user_wrote_is_copied_and_what_was_allocated_is_not() {
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" }, "spec": {
        "clusterIP": "10.96.3.4", "clusterIPs": ["10.96.3.4"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "healthCheckNodePort": 31_000,
        "ports": [{ "port": 80, "protocol": "TCP", "nodePort": 30_080 }, { "port": 81, "nodePort": 30_081 }] } });
    let ports = json!([{ "port": 80, "protocol": "TCP" }, { "port": 81 }]);
    assert_eq!(
        copied_spec_as_written(service.clone(), &json!({})),
        json!({ "ports": ports }),
        "nobody wrote any of it"
    );
    let written = json!({ "f:clusterIP": {}, "f:ipFamilyPolicy": {},
        "f:ports": { "k:{\"port\":81,\"protocol\":\"TCP\"}": { "f:nodePort": {} } } });
    let ports = json!([{ "port": 80, "protocol": "TCP" }, { "port": 81, "nodePort": 30_081 }]);
    let expected = json!({ "clusterIP": "10.96.3.4", "ipFamilyPolicy": "SingleStack", "ports": ports });
    assert_eq!(copied_spec_as_written(service, &written), expected);

    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c" },
        "spec": { "storageClassName": "fast", "volumeName": "pv-1" } });
    assert_eq!(copied_spec_as_written(claim.clone(), &json!({})), json!({}));
    assert_eq!(
        copied_spec_as_written(claim, &json!({ "f:storageClassName": {} })),
        json!({ "storageClassName": "fast" })
    );
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": {
        "priority": 0, "preemptionPolicy": "PreemptLowerPriority", "tolerations": [{ "key": "k" }] } });
    assert_eq!(copied_spec_as_written(pod.clone(), &json!({})), json!({}));
    assert_eq!(
        copied_spec_as_written(pod, &json!({ "f:tolerations": {} })),
        json!({ "tolerations": [{ "key": "k" }] })
    );
    let ingress = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "i" },
        "spec": { "ingressClassName": "nginx" } });
    assert_eq!(copied_spec_as_written(ingress.clone(), &json!({})), json!({}));
    assert_eq!(
        copied_spec_as_written(ingress.clone(), &json!({ "f:ingressClassName": {} })),
        json!({ "ingressClassName": "nginx" })
    );
    assert_eq!(copy(&ingress).manifest["spec"], json!({ "ingressClassName": "nginx" }), "nobody knows who wrote it");
}

#[test]
fn a_job_gets_a_selector_of_its_own() {
    let mut job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" }, "spec": {
        "ttlSecondsAfterFinished": 5, "selector": { "matchLabels": {} },
        "template": { "metadata": { "labels": { "controller-uid": "1", "app": "j" } } } } });
    assert_eq!(copy(&job).manifest["spec"], json!({ "template": { "metadata": { "labels": { "app": "j" } } } }));
    job["spec"]["manualSelector"] = json!(true);
    assert!(copy(&job).manifest["spec"].get("selector").is_some());
}

#[test]
fn kinds_of_other_groups_are_left_as_they_are() {
    let job = json!({ "apiVersion": "example.com/v1", "kind": "Job", "metadata": { "name": "j" }, "spec": {
        "ttlSecondsAfterFinished": 5, "selector": { "matchLabels": {} },
        "template": { "metadata": { "labels": { "controller-uid": "1", "app": "j" } } } } });
    assert_eq!(copy(&job).manifest, job);
    let ingress = json!({ "apiVersion": "example.com/v1", "kind": "Ingress", "metadata": { "name": "i" },
        "spec": { "ingressClassName": "nginx" } });
    let mut unwritten = ingress.clone();
    unwritten["metadata"]["managedFields"] = json!([{ "fieldsV1": { "f:spec": {} } }]);
    assert_eq!(copy(&unwritten).manifest, ingress);
    let role = json!({ "apiVersion": "example.com/v1", "kind": "ClusterRole", "metadata": { "name": "r" },
        "aggregationRule": {}, "rules": [{ "verbs": ["get"] }] });
    assert_eq!(copy(&role).manifest, role);
}

fn service_account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "shop",
        "labels": {"team": "x"}}, "secrets": [{"name": "token"}], "automountServiceAccountToken": false,
        "imagePullSecrets": [{"name": "registry"}]})
}

#[test]
fn of_the_account_that_every_cluster_has_only_the_pull_secrets_go_along() {
    let expected = json!({"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": [{"name": "registry"}],
        "metadata": {"name": "default", "namespace": "shop"}});
    assert_eq!(copy(&service_account("default")).manifest, expected);
    assert_eq!(copy(&service_account("web")).manifest, service_account("web"));
}

#[test]
fn a_pod_loses_its_node_and_its_token() {
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": {
        "nodeName": "n",
        "volumes": [
            { "name": "kube-api-access-x", "projected": { "sources": [{ "serviceAccountToken": {} }] } },
            { "name": "data" },
        ],
        "containers": [{ "name": "c", "volumeMounts": [{ "name": "kube-api-access-x" }, { "name": "data" }] }] } });
    let expected = json!({
        "volumes": [{ "name": "data" }],
        "containers": [{ "name": "c", "volumeMounts": [{ "name": "data" }] }],
    });
    assert_eq!(copy(&pod).manifest["spec"], expected);
}

#[test]
fn what_is_too_large_is_refused() {
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "k": "x".repeat(LARGEST) } });
    assert_eq!(make_copy(&map, None, &[]).unwrap_err().code(), "TooLarge");
}

fn facts_with_left_fields(count: usize) -> Facts {
    let fields: Vec<String> = (0..count).map(|n| format!("spec.f{n}")).collect();
    Facts::from_manifest(&json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web",
        "annotations": { "fleet-scheduler.io/leave-fields": fields.join(",") } } }))
    .unwrap()
}

#[test]
fn fields_are_left_to_others_as_far_as_a_schedule_holds_them() {
    assert_eq!(leave_fields(&facts_with_left_fields(32), &[], false).unwrap().len(), 32);
    let with_autoscaler = leave_fields(&facts_with_left_fields(32), &[], true).unwrap_err();
    assert_eq!(
        (with_autoscaler.code(), leave_fields(&facts_with_left_fields(33), &[], false).unwrap_err().code()),
        ("Invalid", "Invalid")
    );
    assert!(with_autoscaler.to_string().contains("more than 32 fields"), "{with_autoscaler}");
}

#[test]
fn a_field_that_an_override_sets_is_not_left_to_others() {
    let (replicas, image, paused) = ("spec.replicas", "spec.template.spec.containers[0].image", ".spec.paused");
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web", "namespace": "shop",
        "annotations": { "fleet-scheduler.io/leave-fields": format!("{replicas},{image},{paused}") } } });
    let facts = Facts::from_manifest(&object).unwrap();
    let left = |path: &str, is_scaled| leave_fields(&facts, &[&edit(path, json!(1))], is_scaled).unwrap();
    assert_eq!(left("spec.other", false), [replicas, image, paused]);
    assert_eq!(left("spec.paused", false), [replicas, image]);
    assert_eq!(left("spec.template.spec.containers[name=c].image", false), [replicas, paused]);
    assert_eq!(left("spec.template", false), [replicas, paused]);
    // What an autoscaler scales is left to it all the same.
    assert_eq!(left(replicas, true), [image, paused, replicas]);
}

fn copy_config_map(text: &str) -> Result<Copy, &'static str> {
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "k": text } });
    make_copy(&map, None, &[]).map_err(|error| error.code())
}

#[test]
fn a_copy_is_measured_as_a_schedule_stores_it() {
    assert!(copy_config_map(&"x".repeat(1_000_000)).is_ok(), "letters take one byte each");
    for text in ["\\".repeat(395_000), "&".repeat(300_000), "<".repeat(250_000), "\"".repeat(500_000)] {
        assert_eq!(copy_config_map(&text), Err("TooLarge"), "{}", &text[..1]);
    }
    assert!(copy_config_map(&"<r a=\"1\"/>".repeat(30_000)).is_ok());
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
        "stringData": { "k": "\"".repeat(500_000) } });
    assert!(make_copy(&secret, None, &[]).is_ok(), "the data copy_config_map a Secret is in no Schedule");
}
