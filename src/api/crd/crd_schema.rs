//! Pieces of CRD schemas that no derive can say: opaque maps, label selectors, times, lists keyed by a field.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A map that the API server neither looks into nor tracks by field: one owner, replaced as a whole.
///
/// For a hundred nodes this halves the object and, under load, is the difference between a busy API server and one
/// that refuses requests, because `managedFields` lists every leaf of a typed map.
pub(in crate::api) fn opaque_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// A map by node of what a Cluster holds: agents from before there were ClusterReports write all nodes, of which
/// Kubernetes is made for 5,000.
pub(in crate::api) fn nodes_of_cluster(_: &mut SchemaGenerator) -> Schema {
    bounded_map(5_000)
}

/// A map by node of what a ClusterReport holds.
pub(in crate::api) fn nodes_of_report(_: &mut SchemaGenerator) -> Schema {
    bounded_map(200)
}

/// An [`opaque_map`] with so many entries at most.
fn bounded_map(most: u32) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": most,
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// Any value at all.
pub(in crate::api) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// A time as Kubernetes writes it.
pub(in crate::api) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// A generation: never negative.
pub(in crate::api) fn generation(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64", "minimum": 0 })
}

/// The status of a condition.
pub(in crate::api) fn condition_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["True", "False", "Unknown"] })
}

/// Outcome of a copy whose Schedule is deleted.
pub(in crate::api) fn on_delete(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Delete", "Keep"] })
}

/// State of a cluster in the status of a ScheduleGroup.
pub(in crate::api) fn row_state(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Target", "Rejected", "Lower"] })
}

/// Operator by which a toleration is compared with a taint.
pub(in crate::api) fn toleration_operator(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Equal", "Exists"] })
}

/// Mode in which replicas are spread.
pub(in crate::api) fn spread_mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Divide", "Duplicate"] })
}

/// Followers that are written although no policy matches them.
pub(in crate::api) fn followers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["NeedsToStart", "Matched"] })
}

/// A field that is left out or `true`.
pub(in crate::api) fn only_true(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "boolean", "enum": [true] })
}

fn requirements_schema(operators: &[&str]) -> Value {
    json!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": { "type": "string", "minLength": 1, "maxLength": 317 },
                "operator": { "type": "string", "enum": operators },
                "values": {
                    "type": "array",
                    "maxItems": 1000,
                    "items": { "type": "string" },
                    "x-kubernetes-list-type": "atomic",
                },
            },
        },
    })
}

/// A label selector, as Kubernetes defines it.
pub(in crate::api) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } },
            "matchExpressions": requirements_schema(&["In", "NotIn", "Exists", "DoesNotExist"]),
        },
    })
}

/// Label selectors of which one has to match.
pub(in crate::api) fn label_selectors(generator: &mut SchemaGenerator) -> Schema {
    let item: Value = label_selector(generator).into();
    json_schema!({ "type": "array", "maxItems": 64, "items": item })
}

/// A selector whose values are an order of preference: `In` only.
pub(in crate::api) fn ordered_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["matchExpressions"],
        "properties": { "matchExpressions": requirements_schema(&["In"]) },
    })
}
