//! An object that could be placed, as placement keeps it.

use std::sync::Arc;

use serde_json::Value;

use super::writer::Address;
use crate::api::labels::{ANNOTATION_TARGET_CLUSTERS, LABEL_TARGET_CLUSTER};
use crate::api::lenient::raw::Raw;
use crate::api::placeable::Placeable;
use crate::placement::facts::Facts;

/// The label and the annotation that say where an object went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TargetMark {
    /// The cluster, or how many there are.
    pub(super) label: Option<String>,
    /// All of them, where they are several.
    pub(super) clusters: Option<String>,
}

impl TargetMark {
    /// Returns the marks of what went to these clusters.
    pub(super) fn of<'a>(targets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut targets: Vec<&str> = targets.into_iter().collect();
        targets.sort_unstable();
        match &targets[..] {
            [] => Self::default(),
            [one] => Self { label: Some((*one).to_owned()), clusters: None },
            several => Self { label: Some(format!("{}_clusters", several.len())), clusters: Some(several.join(",")) },
        }
    }
}

/// An object that could be placed.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) address: Address,
    pub(super) facts: Arc<Facts>,
    /// The whole object, while a copy of it may have to be made.
    pub(super) object: Option<Arc<Value>>,
    /// Its marks that say where it went.
    pub(super) target: TargetMark,
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
        let target = TargetMark {
            label: meta.labels.and_then(|mut labels| labels.remove(LABEL_TARGET_CLUSTER)),
            clusters: meta.annotations.and_then(|mut annotations| annotations.remove(ANNOTATION_TARGET_CLUSTERS)),
        };
        Some(Self {
            address: Address { kind, namespace: meta.namespace, name: meta.name?, uid: meta.uid? },
            facts: Arc::new(facts),
            object: Some(Arc::new(object)),
            target,
            status,
            version: meta.resource_version.and_then(|version| version.parse().ok()),
        })
    }
}
