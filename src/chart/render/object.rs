//! Outcome of rendering: objects in the order in which they are applied.

use serde_json::Value;

/// A Kubernetes object out of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// Index of its stage among the stages, from 0; objects of `bootstrap/` have no stage, and 0 here.
    pub stage: usize,
    /// The name of its stage; empty for those of `bootstrap/`.
    pub stage_name: String,
    /// The object; a mapping with `apiVersion`, `kind` and `metadata.name`.
    pub json: Value,
    /// The template that it comes from: the file below `charts/`.
    pub source: String,
    /// The line of the template at which it begins, from 1.
    pub line: usize,
}

impl Object {
    fn pointer_text(&self, pointer: &str) -> &str {
        self.json.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the `apiVersion`: `apps/v1`.
    pub fn api_version(&self) -> &str {
        self.pointer_text("/apiVersion")
    }

    /// Returns the kind: `Deployment`.
    pub fn kind(&self) -> &str {
        self.pointer_text("/kind")
    }

    /// Returns `metadata.name`.
    pub fn name(&self) -> &str {
        self.pointer_text("/metadata/name")
    }

    /// Returns `metadata.namespace`, if it is given.
    pub fn namespace(&self) -> Option<&str> {
        self.json.pointer("/metadata/namespace").and_then(Value::as_str)
    }

    /// Returns the API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns kind and name as kubectl writes them: `deployment/fleet-scheduler`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.kind().to_lowercase(), self.name())
    }
}

/// The outcome of a render.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rendered {
    /// Objects that are applied to the cluster, in order.
    pub objects: Vec<Object>,
    /// Objects that the control plane applies inside its own API. `objects` holds them too, as text of a ConfigMap.
    pub bootstrap: Vec<Object>,
}

impl Rendered {
    /// The SHA-256 of all objects in order, in hexadecimal: the same digest, the same objects.
    pub fn objects_digest(&self) -> String {
        let all: Vec<Value> = self.objects.iter().map(|object| object.json.clone()).collect();
        crate::chart::values::digest_value(&Value::Array(all))
    }
}
