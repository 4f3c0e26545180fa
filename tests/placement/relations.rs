//! What manifests name, and what they belong to.

use fleetctl::placement::facts::{MOST_NAMES, PodSelection, Relations};
use serde_json::{Value, json};

use crate::support::facts;

fn relations(manifest: &Value) -> Relations {
    Relations::from_manifest(&facts(manifest).key, manifest)
}

/// Names with `!` where pods cannot start without them.
fn names(relations: &Relations) -> Vec<String> {
    let mark = |required: bool| if required { "!" } else { "" };
    relations.names.iter().map(|(key, required)| format!("{key}{}", mark(*required))).collect()
}

fn selection(api_version: &str, kind: &str, spec: Value) -> PodSelection {
    relations(&json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "n", "namespace": "s" },
        "spec": spec }))
    .selects
}

#[test]
fn an_empty_selector_means_three_things() {
    let all = PodSelection::Pods(Box::default());
    assert_eq!(selection("v1", "Service", json!({ "selector": {} })), PodSelection::Namespace);
    assert_eq!(selection("v1", "Service", json!({})), PodSelection::Namespace);
    assert_eq!(selection("policy/v1", "PodDisruptionBudget", json!({ "selector": {} })), all);
    assert_eq!(selection("policy/v1", "PodDisruptionBudget", json!({})), PodSelection::Nothing);
    assert_eq!(selection("policy/v1beta1", "PodDisruptionBudget", json!({ "selector": {} })), PodSelection::Nothing);
    assert_eq!(selection("networking.k8s.io/v1", "NetworkPolicy", json!({ "podSelector": {} })), all);
    assert_eq!(selection("v1", "ConfigMap", json!({ "selector": {} })), PodSelection::Nothing);
}

#[test]
fn volumes_of_every_kind_are_read() {
    let volumes = json!([
        { "name": "azure", "azureFile": { "secretName": "azure", "shareName": "s" } },
        { "name": "rbd", "rbd": { "monitors": [], "image": "i", "secretRef": { "name": "rbd" } } },
        { "name": "flex", "flexVolume": { "driver": "d", "secretRef": { "name": "flex" } } },
        { "name": "csi", "csi": { "driver": "d", "nodePublishSecretRef": { "name": "csi" } } },
        { "name": "own", "ephemeral": { "volumeClaimTemplate": { "spec": { "storageClassName": "fast" } } } },
        { "name": "ca", "projected": { "sources": [{ "configMap": { "name": "kube-root-ca.crt" } },
            { "secret": { "name": "maybe", "optional": true } }, { "configMap": { "name": "part" } }] } },
        { "name": "empty", "emptyDir": {} },
        { "name": "claim", "persistentVolumeClaim": { "claimName": "claim" } },
    ]);
    let found =
        relations(&json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "n", "namespace": "s" },
        "spec": { "schedule": "@daily", "jobTemplate": { "spec": { "template": {
            "spec": { "containers": [], "volumes": volumes } } } } } }));
    let expected = [
        "/ConfigMap/s/part!",
        "/PersistentVolumeClaim/s/claim!",
        "/Secret/s/azure!",
        "/Secret/s/csi!",
        "/Secret/s/flex!",
        "/Secret/s/maybe",
        "/Secret/s/rbd!",
        "/ServiceAccount/s/default",
        "storage.k8s.io/StorageClass//fast",
    ];
    assert_eq!(names(&found), expected);
}

#[test]
fn a_volume_called_as_a_claim_template_is_that_claim() {
    let found = relations(&json!({ "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "db", "namespace": "s" }, "spec": { "serviceName": "db",
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "storageClassName": "fast" } }],
            "template": { "spec": { "containers": [], "serviceAccountName": "runner", "volumes": [
                { "name": "data", "persistentVolumeClaim": { "claimName": "other" } }] } } } }));
    assert_eq!(names(&found), ["/ServiceAccount/s/runner!", "storage.k8s.io/StorageClass//fast"]);
    assert_eq!(found.claim_prefixes, ["data-db"]);
}

#[test]
fn a_name_is_required_if_one_place_requires_it() {
    let found = relations(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "n", "namespace": "s" },
        "spec": { "containers": [{ "name": "c", "env": [{ "name": "A",
            "valueFrom": { "secretKeyRef": { "name": "both", "key": "k", "optional": true } } }],
            "envFrom": [{ "secretRef": { "name": "both" } }] }],
            "ephemeralContainers": [{ "name": "d", "envFrom": [{ "configMapRef": { "name": "tools" } }] }] } }));
    assert_eq!(names(&found), ["/ConfigMap/s/tools", "/Secret/s/both!", "/ServiceAccount/s/default"]);
}

#[test]
fn an_ingress_belongs_to_its_backends() {
    let found = relations(&json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "name": "n", "namespace": "s" }, "spec": { "ingressClassName": "nginx",
            "tls": [{ "secretName": "cert" }], "defaultBackend": { "service": { "name": "web" } },
            "rules": [{ "http": { "paths": [{ "backend": { "service": { "name": "api" } } }] } }] } }));
    assert_eq!(names(&found), ["/Secret/s/cert", "networking.k8s.io/IngressClass//nginx"]);
    let owners: Vec<String> = found.belongs_to.iter().map(ToString::to_string).collect();
    assert_eq!(owners, ["/Service/s/api", "/Service/s/web"]);
}

#[test]
fn the_first_thousand_names_count() {
    let volumes: Vec<Value> = (0..=MOST_NAMES)
        .map(|at| json!({ "name": format!("v{at}"), "secret": { "secretName": format!("s{at:04}") } }))
        .collect();
    let found = relations(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "n", "namespace": "s" },
        "spec": { "containers": [], "volumes": volumes } }));
    assert!(found.too_many_names);
    assert_eq!(found.names.len(), MOST_NAMES);
    assert_eq!(found.names.last().map(|(key, _)| key.name()), Some("s0999"));
}
