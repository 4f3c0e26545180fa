//! An object that could be placed, as placement keeps it.

use std::sync::Arc;

use serde_json::Value;

use super::place::{Place, namespace_and_name};
use super::write::{Address, TargetMark};
use crate::api::Schedule;
use crate::api::labels::{ANNOTATION_TARGET_CLUSTERS, LABEL_TARGET_CLUSTER};
use crate::api::lenient::raw::Raw;
use crate::api::placeable::Placeable;
use crate::placement::facts::{Facts, Relations};

/// Largest object that is kept whole as a watch brought it, in bytes: a plan reads a larger one itself.
const LARGEST: usize = 16 << 10;
/// Largest status of a source that is kept, in bytes.
const LARGEST_STATUS: usize = 16 << 10;
/// Longest list of clusters that is kept, in bytes: a thousand names.
const LONGEST_MARK: usize = 64 << 10;

/// Returns about as many bytes as a value has as JSON.
pub(super) fn estimate_json_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => 8 + text.len(),
        Value::Array(items) => 8 + items.iter().map(estimate_json_size).sum::<usize>(),
        Value::Object(map) => {
            8 + map.iter().map(|(key, value)| 8 + key.len() + estimate_json_size(value)).sum::<usize>()
        }
    }
}

/// An object that could be placed.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) address: Address,
    pub(super) facts: Arc<Facts>,
    /// What it names and what it belongs to: at most a thousand names.
    pub(super) relations: Arc<Relations>,
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
    pub(super) fn from_raw(kind: &'static Placeable, raw: Raw) -> Option<Self> {
        let mut object = Value::Object(raw.object);
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.into();
        let status = object.get_mut("status").map(Value::take).unwrap_or_default();
        let status = if estimate_json_size(&status) > LARGEST_STATUS { Value::Null } else { status };
        if let Some(map) = object.as_object_mut() {
            map.remove("status");
        }
        let facts = match Facts::from_manifest(&object) {
            Ok(facts) => facts,
            Err(error) => {
                tracing::warn!(%error, "an object cannot be placed");
                return None;
            }
        };
        let relations = Arc::new(Relations::from_manifest(&facts.key, &object));
        let meta = raw.metadata;
        let target = TargetMark {
            label: meta.labels.and_then(|mut labels| labels.remove(LABEL_TARGET_CLUSTER)),
            clusters: meta
                .annotations
                .and_then(|mut annotations| annotations.remove(ANNOTATION_TARGET_CLUSTERS))
                .map(|names| if names.len() > LONGEST_MARK { String::new() } else { names }),
        };
        Some(Self {
            address: Address { kind, namespace: meta.namespace, name: meta.name?, uid: meta.uid? },
            facts: Arc::new(facts),
            relations,
            object: Some(Arc::new(object)),
            target,
            status,
            version: meta.resource_version.and_then(|version| version.parse().ok()),
        })
    }

    /// Returns whether a Schedule of its name is a copy of it, and not of an earlier object of the name.
    pub(super) fn is_source_of(&self, schedule: &Schedule) -> bool {
        self.address.uid == schedule.spec.source_ref.uid
    }
}

/// An object as it was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) place: Place,
    pub(super) uid: Option<String>,
    /// What is kept of it; absent where it cannot be placed whatever is done.
    pub(super) source: Option<Source>,
}

impl Read {
    /// Reads an object that a plan asked for, and keeps all of it.
    pub(super) fn from_fetched(kind: &'static Placeable, raw: Raw) -> Self {
        Self { place: namespace_and_name(&raw), uid: raw.metadata.uid.clone(), source: Source::from_raw(kind, raw) }
    }

    /// Reads an object that a watch brought. Of a large one, and of a Secret, only the facts are kept.
    pub(super) fn from_watched(kind: &'static Placeable, raw: Raw) -> Self {
        let mut read = Self::from_fetched(kind, raw);
        let is_secret = kind.group.is_empty() && kind.kind == "Secret";
        if let Some(source) = &mut read.source {
            source.object.take_if(|object| is_secret || estimate_json_size(object) > LARGEST);
        }
        read
    }
}
