//! What rendering gives: objects in the order in which they are applied.

use serde_json::Value;

/// A Kubernetes object out of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The place of its stage among the stages, from 0; those of `bootstrap/` have none and are all 0.
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
    fn text(&self, pointer: &str) -> &str {
        self.json.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// `apps/v1`.
    pub fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    /// `Deployment`.
    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// The namespace, if it says one.
    pub fn namespace(&self) -> Option<&str> {
        self.json.pointer("/metadata/namespace").and_then(Value::as_str)
    }

    /// The API group: empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// `deployment/fleet-scheduler`, as kubectl writes it.
    pub fn id(&self) -> String {
        format!("{}/{}", self.kind().to_lowercase(), self.name())
    }
}

/// The outcome of a render.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rendered {
    /// What is applied to the cluster, in order.
    pub objects: Vec<Object>,
    /// What the control plane applies inside its own API. It is part of `objects` already, as text of a ConfigMap.
    pub bootstrap: Vec<Object>,
}

impl Rendered {
    /// The SHA-256 of all objects in order, in hexadecimal: the same digest, the same objects.
    pub fn digest(&self) -> String {
        let all: Vec<Value> = self.objects.iter().map(|object| object.json.clone()).collect();
        crate::chart::values::digest(&Value::Array(all))
    }
}
