//! Objects of any kind as JSON. Of their managed fields only those are read that tell what an API server allocated.

use std::borrow::Cow;

use kube::Resource;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::Meta;
use super::written_fields::{Entry, condense_entries};

/// An object whose kind is known from the request.
#[derive(Debug, Clone)]
pub struct Raw {
    /// Its metadata, without what is not read anywhere.
    pub metadata: ObjectMeta,
    /// The whole object; of a list, without API version and kind. Its managed fields are one entry with the allocated
    /// fields that somebody wrote, and are absent where the object has none.
    pub object: Map<String, Value>,
}

#[derive(Deserialize, Default)]
struct RawMeta {
    #[serde(default, rename = "managedFields")]
    managed_fields: Vec<Entry>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct RawParts {
    #[serde(default)]
    metadata: RawMeta,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let RawParts { metadata: RawMeta { rest: metadata, managed_fields }, rest: mut object } =
            RawParts::deserialize(deserializer)?;
        let metadata = Value::Object(metadata);
        let read = Meta::deserialize(&metadata).map_err(D::Error::custom)?;
        object.insert("metadata".to_owned(), metadata);
        if let Some(written) = condense_entries(managed_fields) {
            object["metadata"]["managedFields"] = written;
        }
        Ok(Self { metadata: read.into(), object })
    }
}

impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_whatever_its_managed_fields_say() {
        let deep = format!("{}{}", r#"{"x":"#.repeat(200), "1".to_owned() + &"}".repeat(200));
        let text = format!(
            r#"{{"metadata": {{"name": "c", "namespace": "n", "uid": "u", "generation": 2, "labels": {{"a": "b"}},
            "managedFields": [{{"manager": "x", "time": "9999-12-31T23:59:59Z", "fieldsV1": {deep}}}]}},
            "data": {{"k": "v"}}}}"#
        );
        let raw: Raw = serde_json::from_str(&text).unwrap();
        assert_eq!((raw.metadata.name.as_deref(), raw.metadata.generation), (Some("c"), Some(2)));
        assert_eq!(raw.object["data"]["k"], "v");
        assert_eq!(raw.object["metadata"]["labels"]["a"], "b");
        assert_eq!(raw.object["metadata"]["managedFields"].to_string(), r#"[{"fieldsV1":{"f:spec":{}}}]"#);
        let without: Raw = serde_json::from_str(r#"{"metadata": {"name": "c"}}"#).unwrap();
        assert!(without.object["metadata"].get("managedFields").is_none());
    }
}
