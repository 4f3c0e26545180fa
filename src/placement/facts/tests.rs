use super::*;
use serde_json::json;

fn facts(manifest: &Value) -> Facts {
    Facts::from_manifest(manifest).unwrap()
}

fn deployment(change: impl FnOnce(&mut Value)) -> Facts {
    let mut manifest = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "shop", "generation": 3 },
        "spec": { "replicas": 2, "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "500m" } } }] },
        } },
    });
    change(&mut manifest);
    facts(&manifest)
}

#[test]
fn a_deployment_is_reduced_to_what_it_asks() {
    let web = deployment(|_| {});
    assert_eq!((web.key.as_str(), web.generation), ("apps/Deployment/shop/web", 3));
    assert_eq!(
        (web.key.group(), web.key.name(), web.key.format_title()),
        ("apps", "web", "Deployment shop/web".to_owned())
    );
    assert_eq!((web.workload.pods_at_once(), web.api_version().as_str()), (2, "apps/v1"));
    let shape = web.shape.unwrap();
    assert_eq!(shape.requests, [("cpu".to_owned(), 500), ("pods".to_owned(), 1000)]);
    assert!(!shape.one_per_node && shape.ignored.is_empty());
}

#[test]
fn the_hash_changes_with_the_content_only() {
    let plain = deployment(|_| {}).hash;
    let noise = deployment(|m| {
        m["status"] = json!({ "replicas": 2 });
        m["metadata"]["resourceVersion"] = json!("7");
        m["metadata"]["generation"] = json!(9);
        m["metadata"]["labels"] = json!({ "fleet-scheduler.io/target-cluster": "a" });
    });
    let without = deployment(|m| m["metadata"]["labels"] = json!({})).hash;
    assert_eq!(noise.hash, without, "what the scheduler writes itself asks for nothing");
    assert_ne!(plain, deployment(|m| m["spec"]["replicas"] = json!(3)).hash);
    assert_ne!(plain, deployment(|m| m["metadata"]["annotations"] = json!({ "a": "b" })).hash);
    let revision = json!({ "deployment.kubernetes.io/revision": "1" });
    assert_eq!(plain, deployment(|m| m["metadata"]["annotations"] = revision).hash, "no copy has it");
}

#[test]
fn facts_stay_below_a_kilobyte() {
    let web = deployment(|m| {
        m["metadata"]["labels"] = json!({ "app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop" });
        m["spec"]["template"]["spec"]["nodeSelector"] = json!({ "disk": "ssd" });
        m["spec"]["template"]["spec"]["serviceAccountName"] = json!("web");
        m["spec"]["template"]["spec"]["containers"][0]["image"] = json!("x".repeat(5000));
    });
    assert!(serde_json::to_string(&web).unwrap().len() < 1024);
}

#[test]
fn pods_of_jobs_are_those_that_run_at_a_time() {
    for (spec, pods, dividable) in [
        (json!({}), 1, true),
        (json!({ "completions": 10, "parallelism": 3 }), 3, true),
        (json!({ "completions": 2, "parallelism": 3 }), 2, true),
        (json!({ "parallelism": 3 }), 3, false),
        (json!({ "completions": 2, "completionMode": "Indexed" }), 1, false),
    ] {
        let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" }, "spec": spec });
        let workload = facts(&job).workload;
        assert_eq!((workload.pods_at_once(), workload.is_dividable()), (pods, dividable), "{spec}");
        assert_eq!(workload.is_undividable(), !dividable);
    }
}

fn pod_anti_affinity(labels: &Value, key: &str) -> Value {
    json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
        [{ "topologyKey": key, "labelSelector": { "matchLabels": labels } }] } })
}

fn shape_with_affinity(affinity: Value) -> Arc<Shape> {
    deployment(|m| m["spec"]["template"]["spec"]["affinity"] = affinity).shape.unwrap()
}

#[test]
fn what_keeps_pods_apart_counts_as_one_a_node() {
    assert!(shape_with_affinity(pod_anti_affinity(&json!({ "app": "web" }), "kubernetes.io/hostname")).one_per_node);
    for affinity in [
        pod_anti_affinity(&json!({ "app": "db" }), "kubernetes.io/hostname"),
        pod_anti_affinity(&json!({ "app": "web" }), "zone"),
    ] {
        let shape = shape_with_affinity(affinity);
        assert!(!shape.one_per_node);
        assert_eq!(shape.ignored, [Ignored::PodAntiAffinity]);
    }
    let port = deployment(|m| {
        m["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 1, "hostPort": 1 }]);
    });
    assert!(port.shape.unwrap().one_per_node);
}

#[test]
fn annotations_are_read() {
    let asks = deployment(|m| {
        m["metadata"]["annotations"] = json!({
            "fleet-scheduler.io/spread-onto": "b, a,b::Duplicate",
            "fleet-scheduler.io/adopt": "true",
            "fleet-scheduler.io/leave-fields": "spec.replicas, spec.paused",
            "fleet-scheduler.io/on-delete": "keep",
        });
    })
    .asks;
    let onto = asks.spread_onto.unwrap();
    assert_eq!((onto.clusters, onto.duplicate), (vec!["b".to_owned(), "a".to_owned()], true));
    assert!(asks.adopt && asks.keep_on_delete && !asks.allow_volume_move && asks.cluster.is_none());
    assert_eq!(asks.leave_fields, ["spec.replicas", "spec.paused"]);
}

fn find_never_reason(api: &str, kind: &str, namespace: &str, name: &str) -> Option<Never> {
    facts(&json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name, "namespace": namespace } })).never
}

fn never_reason_of_owned(kind: &str, owner: &str) -> Option<Never> {
    let owners = json!([{ "kind": owner, "name": "o", "controller": true }]);
    let metadata = json!({ "name": "x", "namespace": "a", "ownerReferences": owners });
    facts(&json!({ "apiVersion": "batch/v1", "kind": kind, "metadata": metadata })).never
}

#[test]
fn what_is_never_placed_says_why() {
    assert_eq!(find_never_reason("v1", "Namespace", "", "fleet-c-a"), Some(Never::SystemNamespace));
    assert_eq!(find_never_reason("v1", "ConfigMap", "kube-public", "x"), Some(Never::SystemNamespace));
    assert_eq!(find_never_reason("v1", "Namespace", "", "default"), Some(Never::DefaultNamespace));
    assert_eq!(find_never_reason("v1", "ConfigMap", "shop", "kube-root-ca.crt"), Some(Never::EveryCluster));
    assert_eq!(find_never_reason("v1", "Service", "default", "kubernetes"), Some(Never::EveryCluster));
    assert_eq!(find_never_reason("v1", "Service", "shop", "kubernetes"), None);
    assert_eq!(find_never_reason("scheduling.k8s.io/v1", "PriorityClass", "", "system-x"), Some(Never::EveryCluster));
    assert_eq!(find_never_reason("policy.fleet-scheduler.io/v1alpha1", "SchedulePolicy", "", "p"), Some(Never::OwnApi));
    assert_eq!(find_never_reason("v1", "Namespace", "", "fleetwood"), None);
    let mut secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "a" } });
    secret["type"] = json!("helm.sh/release.v1");
    assert_eq!(facts(&secret).never, Some(Never::Secret));
    assert_eq!(find_never_reason("v1", "Secret", "bugs-cp", "fleet-cluster-init-kubeconfig"), Some(Never::JoinToken));
    assert_eq!(find_never_reason("v1", "ConfigMap", "bugs-cp", "fleet-bootstrap-status"), Some(Never::Installation));
    // A copy under another name, as `kubectl` makes it; others may call their product so.
    let ours = json!({ "app.kubernetes.io/part-of": "fleet" });
    let mut token = json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": "mine", "namespace": "a", "labels": ours }, "data": { "kubeconfig": "eA==" } });
    assert_eq!(facts(&token).never, Some(Never::JoinToken));
    token["data"] = json!({ "password": "eA==" });
    assert_eq!(facts(&token).never, None);
    assert_eq!(never_reason_of_owned("Job", "Workflow"), Some(Never::Owned));
    assert_eq!(never_reason_of_owned("CronJob", "CronJob"), Some(Never::Owned));
    assert_eq!(never_reason_of_owned("Job", "CronJob"), None, "kubectl create job --from=cronjob/o");
    let rbac = "rbac.authorization.k8s.io/v1";
    let of_installation = json!({ "fleet-scheduler.io/install-kind": "agent" });
    let definition = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    for (api, kind, name, labels, never) in [
        (definition.0, definition.1, "clusters.cluster.fleet-scheduler.io", json!({}), Some(Never::OwnApi)),
        (definition.0, definition.1, "clusters.not-fleet-scheduler.io", json!({}), None),
        (rbac, "ClusterRole", "system:node", json!({}), Some(Never::EveryCluster)),
        (rbac, "ClusterRoleBinding", "fleet:admins", json!({}), Some(Never::EveryCluster)),
        (
            rbac,
            "ClusterRole",
            "edit",
            json!({"kubernetes.io/bootstrapping": "rbac-defaults"}),
            Some(Never::EveryCluster),
        ),
        (rbac, "ClusterRole", "edit", json!({}), None),
        ("v1", "Namespace", "any", of_installation.clone(), Some(Never::SystemNamespace)),
        ("apps/v1", "Deployment", "any", of_installation, Some(Never::Installation)),
    ] {
        let object = json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name, "labels": labels } });
        assert_eq!(facts(&object).never, never, "{object}");
    }
}

#[test]
fn references_leave_out_what_is_optional() {
    let web = deployment(|m| {
        let spec = &mut m["spec"]["template"]["spec"];
        spec["volumes"] = json!([
            { "name": "a", "configMap": { "name": "conf" } },
            { "name": "b", "secret": { "secretName": "maybe", "optional": true } },
            { "name": "c", "persistentVolumeClaim": { "claimName": "data" } },
        ]);
        spec["containers"][0]["envFrom"] = json!([{ "secretRef": { "name": "db" } }]);
        spec["serviceAccountName"] = json!("default");
    });
    let found: Vec<String> = web.references.iter().map(|r| format!("{} {}", r.kind, r.name)).collect();
    assert_eq!(found, ["ConfigMap conf", "PersistentVolumeClaim data", "Secret db"]);
}

#[test]
fn an_object_that_is_none_is_refused() {
    assert_eq!(Facts::from_manifest(&json!({ "kind": "X" })).unwrap_err(), FactsError::Missing("apiVersion"));
    let mut pod =
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": { "containers": 3 } });
    assert!(matches!(Facts::from_manifest(&pod), Err(FactsError::Pods { .. })));
    pod["spec"] = json!({});
    assert!(Facts::from_manifest(&pod).is_ok());
}

fn asks_of_annotation(annotation: &str, text: &str) -> Asks {
    deployment(|m| m["metadata"]["annotations"] = json!({ format!("fleet-scheduler.io/{annotation}"): text })).asks
}

fn join_numbered_names(count: usize) -> String {
    (0x1000..0x1000 + count).map(|n| format!("{n:x}")).collect::<Vec<_>>().join(",")
}

#[test]
fn an_annotation_names_so_many_clusters_and_fields() {
    let thousand = asks_of_annotation("spread-onto", &format!("{0},{0}::Duplicate", join_numbered_names(1_000)));
    let onto = thousand.spread_onto.unwrap();
    assert_eq!((onto.clusters.len(), onto.duplicate, thousand.invalid), (1_000, true, None));
    let many = asks_of_annotation("spread-onto", &join_numbered_names(43_000));
    assert_eq!((many.spread_onto.unwrap().clusters.len(), many.invalid), (0, Some(InvalidAsk::SpreadOnto)));
    assert_eq!(asks_of_annotation("spread-onto", &"x".repeat(200_000)).spread_onto.unwrap().clusters[0].len(), 64);
    assert_eq!(asks_of_annotation("cluster", &"ä".repeat(100_000)).cluster.unwrap().len(), 64);
    assert_eq!(asks_of_annotation("leave-fields", &join_numbered_names(32)).leave_fields.len(), 32);
    let fields = asks_of_annotation("leave-fields", &join_numbered_names(33));
    assert_eq!((fields.leave_fields.len(), fields.invalid), (0, Some(InvalidAsk::LeaveFields)));
    assert_eq!(asks_of_annotation("leave-fields", &"x".repeat(2_000)).invalid, Some(InvalidAsk::LongPath));
}

fn deployment_with_labels(count: usize) -> Facts {
    deployment(|m| {
        let labels = (0..count).map(|n| (format!("label-{n}"), json!("x".repeat(60))));
        m["metadata"]["labels"] = labels.collect::<serde_json::Map<_, _>>().into();
    })
}

#[test]
fn an_object_that_is_larger_than_its_facts_may_be_is_never_placed() {
    assert_eq!((deployment_with_labels(500).never, deployment_with_labels(500).labels.len()), (None, 500));
    let large = deployment_with_labels(1_000);
    assert_eq!((large.never, large.labels.len(), large.shape.is_none()), (Some(Never::Oversized), 0, true));
    let tolerations = deployment(|m| {
        let one = json!({ "key": "k", "operator": "Exists" });
        m["spec"]["template"]["spec"]["tolerations"] = vec![one; 10_000].into();
    });
    assert_eq!(tolerations.never, Some(Never::Oversized));
    let replicas = deployment(|m| m["spec"]["replicas"] = json!(i64::MAX));
    assert_eq!(replicas.workload.pods_at_once(), i64::from(i32::MAX));
}
