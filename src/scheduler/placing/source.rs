//! An object that could be placed, as placement keeps it.

use std::sync::Arc;

use serde_json::Value;

use super::writer::Address;
use crate::api::labels::LABEL_TARGET_CLUSTER;
use crate::api::lenient::raw::Raw;
use crate::api::placeable::Placeable;
use crate::placement::facts::Facts;

/// An object that could be placed.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) address: Address,
    pub(super) facts: Arc<Facts>,
    /// The whole object, while a copy of it may have to be made.
    pub(super) object: Option<Arc<Value>>,
    /// The label that says where it went.
    pub(super) target_label: Option<String>,
    /// Conditions and numbers of its status as they were read.
    pub(super) status: Value,
    pub(super) version: Option<u64>,
}

impl Source {
    /// Reads an object; `None` where it cannot be placed whatever is done.
    pub(super) fn read(kind: &'static Placeable, raw: Raw) -> Option<Self> {
        let mut object = Value::Object(raw.object);
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.into();
        let status = object.get_mut("status").map(Value::take).unwrap_or_default();
        if let Some(map) = object.as_object_mut() {
            map.remove("status");
        }
        let facts = match Facts::read(&object) {
            Ok(facts) => facts,
            Err(error) => {
                tracing::warn!(%error, "an object cannot be placed");
                return None;
            }
        };
        let meta = raw.metadata;
        Some(Self {
            address: Address { kind, namespace: meta.namespace, name: meta.name?, uid: meta.uid? },
            facts: Arc::new(facts),
            object: Some(Arc::new(object)),
            target_label: meta.labels.and_then(|mut labels| labels.remove(LABEL_TARGET_CLUSTER)),
            status,
            version: meta.resource_version.and_then(|version| version.parse().ok()),
        })
    }
}
