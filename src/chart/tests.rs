//! Tests of the room as a whole, on the charts in `testdata/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::version::ServiceLine;

mod embedded;
mod explain;
pub(crate) mod hostile;
mod layout;
mod mistakes;
mod properties;
mod rendering;

pub(super) fn line(text: &str) -> ServiceLine {
    text.parse().unwrap()
}

/// The charts of `testdata/`.
pub(super) fn files() -> Files {
    Files::from_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/chart/testdata/charts")).unwrap()
}

pub(super) fn chart(of: &str) -> Chart {
    let table = Versions::parse(include_str!("testdata/versions.yaml")).unwrap();
    Chart::from_files(&files(), Kind::ControlPlane, line(of)).unwrap().with_table(Arc::new(table))
}

/// The schema of the test chart, in the shape that schemars gives.
pub(super) fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values",
        "description": "Values of the test chart.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "name": {"description": "Name of the control plane.", "type": ["string", "null"], "pattern": "^[a-z][a-z0-9-]*$"},
            "etcd": {"description": "The store of the control plane.", "$ref": "#/$defs/Etcd"},
            "exposure": {"description": "How the API server is reached. Auto decides by the cluster.", "$ref": "#/$defs/Exposure"},
            "logLevel": {"description": "How much is logged, from 0 to 10.", "type": "integer", "minimum": 0, "maximum": 10},
            "paused": {"description": "Whether scheduling waits.", "type": "boolean"},
            "token": {"description": "The bootstrap token.", "type": "string", "x-secret": true, "maxLength": 64},
            "standby": {"description": "Takes idle clusters down.", "x-since": "v0.7", "type": ["boolean", "null"]},
            "ratio": {"description": "A share.", "type": "number"},
            "images": {"description": "The images that run.", "$ref": "#/$defs/Images"},
        },
        "required": ["etcd", "exposure"],
        "$defs": {
            "Etcd": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "replicas": {"description": "How many members it has. An odd number.", "type": "integer", "minimum": 1, "maximum": 5},
                    "storageClass": {"description": "The StorageClass of its volumes.", "type": ["string", "null"]},
                    "labels": {"description": "More labels.", "type": "object", "additionalProperties": {"type": "string"}},
                    "extraArgs": {"description": "More arguments.", "type": "array", "items": {"type": "string"}, "maxItems": 3, "uniqueItems": true},
                    "backup": {"description": "Where backups go.", "anyOf": [{"$ref": "#/$defs/Backup"}, {"type": "null"}]},
                },
                "required": ["replicas"],
            },
            "Backup": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "bucket": {"description": "The bucket.", "type": "string"},
                    "secretKey": {"description": "Its key.", "type": "string", "x-secret": true},
                },
                "required": ["bucket"],
            },
            "Exposure": {"oneOf": [
                {"const": "Auto", "type": "string"}, {"const": "LoadBalancer", "type": "string"}, {"const": "NodePort", "type": "string"},
            ]},
            "Images": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "etcd": {"description": "The image of etcd.", "$ref": "#/$defs/Image"},
                    "scheduler": {"description": "The image of the scheduler.", "$ref": "#/$defs/Image"},
                },
            },
            "Image": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "repository": {"description": "Registry and name.", "type": "string"},
                    "tag": {"description": "The tag.", "type": "string"},
                },
            },
        },
    })
}

/// Completes values as the type behind them does: every optional value is present, as null.
pub(super) fn complete(mut values: Value) -> Value {
    let etcd = values["etcd"].as_object_mut().unwrap();
    etcd.entry("storageClass").or_insert(Value::Null);
    values
}

pub(super) fn input(values: Value) -> RenderInput {
    RenderInput {
        values: complete(values),
        release: json!({"name": "prod", "namespace": "fleet", "createNamespace": true, "line": "v0.6"}),
        facts: json!({}),
        pki: BTreeMap::from([("etcd-ca".to_owned(), "-----BEGIN".to_owned())]),
    }
}

#[test]
fn a_chart_is_rendered_from_defaults_files_sets_and_flags() {
    let chart = chart("v0.6");
    let values = chart
        .values_builder()
        .file("my.yaml", b"etcd:\n  replicas: 3\n  labels: {team: a}\n")
        .set(SetKind::Value, "etcd.storageClass=fast,images.etcd.tag=1.10")
        .flag("--image-tag", "images.scheduler.tag", "v0.6.0")
        .build(schema)
        .unwrap();
    let rendered = chart.render(&input(values.to_json())).unwrap();
    let ids: Vec<String> =
        rendered.objects.iter().map(|object| format!("{} {}", object.stage_name, object.id())).collect();
    assert_eq!(
        ids,
        ["namespace namespace/fleet", "rest secret/etcd-ca", "rest configmap/bootstrap", "rest statefulset/etcd"]
    );
    insta::assert_snapshot!(output::object_yaml(&rendered.objects[3].json));
    let bootstrap: Value =
        serde_json::from_str(rendered.objects[2].json["data"]["rbac.yaml"].as_str().unwrap()).unwrap();
    assert_eq!(bootstrap, json!([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}]));
    assert_eq!(rendered.bootstrap.len(), 1);
    assert_eq!(rendered.objects[3].source, "control-plane/v0.6/templates/etcd.yaml");
}

#[test]
fn a_line_holds_only_what_it_changes() {
    let chart = chart("v0.7");
    assert_eq!(chart.default_values()["etcd"]["replicas"], 3);
    assert_eq!(chart.default_values()["logLevel"], 2);
    let paths: Vec<&str> = chart.flattened_files().map(|(_, path, _)| path).collect();
    assert_eq!(
        paths,
        [
            "control-plane/v0.6/templates/_lib.yaml",
            "control-plane/v0.6/templates/etcd.yaml",
            "control-plane/v0.7/templates/namespace.yaml",
            "control-plane/v0.6/templates/secrets.yaml",
        ]
    );
    let values = chart.values_builder().build(schema).unwrap();
    let rendered = chart.render(&input(values.to_json())).unwrap();
    assert_eq!(rendered.objects[0].json["metadata"]["labels"]["line"], "v0.6");
    assert_eq!(rendered.objects.len(), 3);
}

fn etcd_tag(chart: &Chart) -> serde_json::Value {
    chart.values_builder().build(schema).unwrap().to_json()["images"]["etcd"]["tag"].clone()
}

#[test]
fn a_row_of_another_line_gives_its_own_images_and_values() {
    let table = Versions::parse(include_str!("testdata/versions.yaml")).unwrap();
    let row = table.find_row(line("v0.7")).unwrap().clone();
    let chart = chart("v0.6");
    assert_eq!(etcd_tag(&chart), "3.5.6-0");
    let newer = chart.clone().with_row(row.clone());
    assert_eq!(etcd_tag(&newer), "3.5.9-0");
    assert!(newer.values_builder().set(SetKind::Value, "standby=true").build(schema).is_ok());
    let mut own = row;
    own.images.get_mut("etcd").unwrap().tag = "1.10".to_owned();
    assert_eq!(etcd_tag(&chart.with_row(own)), "1.10");
}
