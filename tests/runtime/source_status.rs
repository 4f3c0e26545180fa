//! The statuses of sources, as a real API server takes them: written as the scheduler writes them, and read back the same.

use std::path::Path;

use fleetctl::placement::aggregate::{CopyStatus, Source};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::pinned_kind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::support::{Stage, wait};

fn widgets() -> CustomResourceDefinition {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": open, "status": open } } } }] }
    }))
    .unwrap()
}

/// Finds the resource of a kind; an added one is served some time after its definition.
async fn resource_of(client: &Client, kind: &GroupVersionKind) -> ApiResource {
    wait(&format!("{} is served", kind.kind), async || pinned_kind(client, kind).await.is_ok()).await;
    pinned_kind(client, kind).await.unwrap().0
}

/// Creates an object without a status of its own, and writes the status that it gets from so many copies. Returns what is wrong
/// with the answer.
async fn write_status(client: &Client, case: &Value, name: &str, count: usize) -> Option<String> {
    let (api_version, kind) = (case["apiVersion"].as_str().unwrap(), case["kind"].as_str().unwrap());
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = resource_of(client, &GroupVersionKind::gvk(group, version, kind)).await;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let metadata = json!({ "name": name, "namespace": "default" });
    let object = json!({ "apiVersion": api_version, "kind": kind, "spec": case["spec"], "metadata": metadata });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let created = api.create(&PostParams::default(), &object).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
    let copy = |number: usize| CopyStatus {
        cluster: format!("c{number}"),
        applied: true,
        generation: 4,
        status: Some(case["status"].clone()),
        ..CopyStatus::default()
    };
    let copies: Vec<CopyStatus> = (0..count).map(copy).collect();
    let generation = created.metadata.generation.unwrap_or_default();
    let source = Source { group, kind, generation, duplicate: false, withheld: 0, copies: &copies };
    let now = "2026-01-05T00:00:00Z".parse().unwrap();
    let wrong = match source.status_to_write(&created.data["status"], now) {
        None => None,
        Some(status) => {
            let body = json!({ "apiVersion": api_version, "kind": kind, "status": status, "metadata": metadata });
            let params = PatchParams::apply("fleet-scheduler").force();
            match api.patch_status(name, &params, &Patch::Apply(&body)).await {
                Err(error) => Some(format!("{kind} of {count}: {error}; {status}")),
                Ok(written) => source
                    .status_to_write(&written.data["status"], now)
                    .map(|again| format!("{kind} of {count}: {again} is held as {}", written.data["status"])),
            }
        }
    };
    api.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    wrong
}

#[tokio::test]
async fn a_real_api_server_takes_every_status_and_holds_it_as_written() {
    let stage = Stage::hub().await;
    let client = &stage.hub.client;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("test").force();
    definitions.patch("widgets.example.com", &params, &Patch::Apply(widgets())).await.unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/placement/cases/reported.json");
    let document: Value = serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap();
    let run = std::process::id();
    let mut wrong = Vec::new();
    for (at, case) in document["cases"].as_array().unwrap().iter().enumerate() {
        for count in [1, 3] {
            wrong.extend(write_status(client, case, &format!("status-{run}-{at}-{count}"), count).await);
        }
    }
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
