//! The checked values: as JSON, as a type, and with the origin of each.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::chart::diagnostic::{Diagnostic, Diagnostics, Place};
use crate::chart::mask::MASK;
use crate::chart::yaml::node::{Data, Node, Sources, show_path};

use super::Schema;
use crate::api::util::digest::full_digest;

/// Name of the source of recorded values in errors and explanations.
pub(super) const RECORDED: &str = "the recorded values";

/// Merged and checked values.
#[derive(Debug, Clone)]
pub struct ValuesTree {
    root: Node,
    sources: Sources,
    schema: Option<Value>,
    /// Number of the first source that is not the chart's.
    user_from: u32,
    warnings: Vec<Diagnostic>,
}

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct OriginOf {
    /// The path of the value: `images.etcd.tag`.
    pub path: String,
    /// Place at which it was given; the line is that of the source, secrets masked.
    pub place: Place,
    /// Places of the values that it overrode, in the order in which those were given.
    pub overrode: Vec<Place>,
}

impl ValuesTree {
    pub(super) fn new(
        root: Node,
        sources: Sources,
        schema: Option<Value>,
        user_from: u32,
        warnings: Vec<Diagnostic>,
    ) -> Self {
        Self { root, sources, schema, user_from, warnings }
    }

    /// The values as JSON. What was deleted with `null` is absent.
    pub fn to_json(&self) -> Value {
        self.root.to_json()
    }

    /// The values as JSON with every secret masked, for output. Without a user's values there is no schema, so a caller
    /// that shows defaults has to build with [`ValuesBuilder::build_checked`](super::ValuesBuilder::build_checked).
    pub fn to_masked_json(&self) -> Value {
        let mut value = self.to_json();
        if let Some(schema) = &self.schema {
            mask_secret_values(&mut value, &Schema::new(schema).root_views());
        }
        value
    }

    /// Returns the values as a type.
    ///
    /// # Errors
    /// Values that fit the schema but not the type; a mistake in the program, not of the user.
    pub fn deserialize<T: DeserializeOwned>(&self) -> Result<T, Diagnostics> {
        serde_json::from_value(self.to_json()).map_err(|error| {
            Diagnostic::error("values-type", format!("the values do not have the expected type: {error}")).into()
        })
    }

    /// Returns the warnings about values that were accepted, such as `yes` for a boolean.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Adds a warning, if there is one.
    pub fn add_warning(&mut self, warning: Option<Diagnostic>) {
        self.warnings.extend(warning);
    }

    /// Returns the origin of the value at a path, whose parts are keys and list indexes; `None` if there is no such
    /// value.
    pub fn find_origin(&self, path: &[String]) -> Option<OriginOf> {
        let node = self.root.find_at_path(path)?;
        Some(self.origin_of(path, node))
    }

    /// Gives a diagnostic the path of a value and the place at which that was given, if there is such a value.
    pub fn locate_diagnostic(&self, path: &[&str], diagnostic: Diagnostic) -> Diagnostic {
        let path: Vec<String> = path.iter().map(|&part| part.to_owned()).collect();
        match self.find_origin(&path) {
            Some(origin) => diagnostic.at(origin.place).path(origin.path),
            None => diagnostic,
        }
    }

    fn origin_of(&self, path: &[String], node: &Node) -> OriginOf {
        OriginOf {
            path: show_path(path),
            place: self.sources.place_at(node.origin),
            overrode: node.overrode.iter().map(|origin| self.sources.place_at(*origin)).collect(),
        }
    }

    /// The text of the scalar at a path, as it was written.
    pub(super) fn text_at_path(&self, path: &[String]) -> Result<Option<String>, Diagnostics> {
        let Some(node) = self.root.find_at_path(path) else { return Ok(None) };
        match &node.data {
            Data::Null => Ok(None),
            Data::Text(text) => Ok(Some(text.clone())),
            Data::List(_) | Data::Map(_) => {
                let origin = self.origin_of(path, node);
                let message = format!("`{}` is {}", origin.path, node.type_name());
                let problem = Diagnostic::error("wrong-type", message).at(origin.place).path(origin.path);
                Err(problem.label("expected a string").into())
            }
            _ => Ok(Some(node.raw.as_deref().map_or_else(|| node.to_json().to_string(), str::to_owned))),
        }
    }

    /// Returns whether the schema says that the value at a path must never be shown; false where there is no schema.
    pub fn is_secret(&self, path: &[String]) -> bool {
        let Some(schema) = &self.schema else { return false };
        (0..=path.len())
            .any(|depth| Schema::new(schema).views_at(&path[..depth]).is_some_and(|views| views.is_secret()))
    }

    /// The paths of all leaves, in order; an empty mapping or list is one.
    pub fn leaf_paths(&self) -> Vec<Vec<String>> {
        fn collect_leaf_paths(node: &Node, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
            match &node.data {
                Data::Map(map) if !map.entries.is_empty() => {
                    for (key, entry) in &map.entries {
                        path.push(key.clone());
                        collect_leaf_paths(&entry.node, path, found);
                        path.pop();
                    }
                }
                Data::List(items) if !items.is_empty() => {
                    for (index, item) in items.iter().enumerate() {
                        path.push(index.to_string());
                        collect_leaf_paths(item, path, found);
                        path.pop();
                    }
                }
                _ => found.push(path.clone()),
            }
        }
        let mut found = Vec::new();
        collect_leaf_paths(&self.root, &mut Vec::new(), &mut found);
        found
    }

    /// The values that the user gave, without what the schema calls secret: those of all sources but the chart's, also where
    /// they are equal to its defaults. A mapping without what lies below is an RFC 7396 patch: `null` deletes a default.
    pub fn user_values(&self) -> Value {
        self.given_at(&self.root, &mut Vec::new()).unwrap_or_else(|| Value::Object(Map::new()))
    }

    fn given_at(&self, node: &Node, path: &mut Vec<String>) -> Option<Value> {
        if self.is_secret(path) {
            return None;
        }
        let Data::Map(map) = &node.data else {
            return self.is_users(node).then(|| node.to_json());
        };
        if map.entries.is_empty() {
            return self.is_users(node).then(|| node.to_json());
        }
        let mut given = Map::new();
        for (key, entry) in &map.entries {
            path.push(key.clone());
            if let Some(value) = self.given_at(&entry.node, path) {
                given.insert(key.clone(), value);
            }
            path.pop();
        }
        (!given.is_empty()).then_some(Value::Object(given))
    }

    /// Returns whether the user gave the value at a path, or said that nothing is to be there.
    pub fn is_given(&self, path: &[String]) -> bool {
        (0..=path.len()).any(|depth| {
            let node = self.root.find_at_path(&path[..depth]);
            node.is_some_and(|node| match &node.data {
                // A mapping says nothing of what may be below it, unless it stands for all of it.
                Data::Map(map) if depth < path.len() => map.replaces && node.origin.source >= self.user_from,
                _ => self.is_users(node),
            })
        })
    }

    /// Returns whether a node, or any in it, is of a source that is not the chart's.
    fn is_users(&self, node: &Node) -> bool {
        has_source(node, &|source| source >= self.user_from)
    }

    /// The paths of the values that come from the record of an installation, in order: also of a list with a single entry of it,
    /// and of a `null` in it, which deletes a default. Lists are not gone into.
    pub fn recorded_paths(&self) -> Vec<Vec<String>> {
        fn collect_recorded_paths(node: &Node, record: u32, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
            match &node.data {
                Data::Map(map) if !map.entries.is_empty() => {
                    for (key, entry) in &map.entries {
                        path.push(key.clone());
                        collect_recorded_paths(&entry.node, record, path, found);
                        path.pop();
                    }
                }
                _ if has_source(node, &|source| source == record) => found.push(path.clone()),
                _ => {}
            }
        }
        let mut found = Vec::new();
        if let Some(record) = self.sources.find_source(RECORDED) {
            collect_recorded_paths(&self.root, record, &mut Vec::new(), &mut found);
        }
        found
    }

    /// The value at a path with what is secret in it masked; none where all of it is secret, or there is no such value.
    pub fn masked_at(&self, path: &[String]) -> Option<Value> {
        if self.is_secret(path) {
            return None;
        }
        let mut value = self.root.find_at_path(path)?.to_json();
        let views = self.schema.as_ref().and_then(|schema| Schema::new(schema).views_at(path));
        if let Some(views) = views {
            mask_secret_values(&mut value, &views);
        }
        Some(value)
    }

    /// The SHA-256 of the values as canonical JSON, in hexadecimal: the same values, the same digest, however they were given.
    pub fn digest_values(&self) -> String {
        digest_value(&self.to_json())
    }
}

/// Returns whether a node, or any in it, is of such a source.
fn has_source(node: &Node, is_one: &dyn Fn(u32) -> bool) -> bool {
    is_one(node.origin.source)
        || match &node.data {
            Data::List(items) => items.iter().any(|item| has_source(item, is_one)),
            Data::Map(map) => map.entries.values().any(|entry| has_source(&entry.node, is_one)),
            _ => false,
        }
}

/// The SHA-256 of a value as JSON with sorted keys and no spaces, in hexadecimal.
pub(in crate::chart) fn digest_value(value: &Value) -> String {
    full_digest(crate::chart::output::canonical_json(value).as_bytes())
}

fn mask_secret_values(value: &mut Value, views: &super::schema::Views<'_>) {
    if views.is_secret() && !value.is_null() {
        *value = Value::String(MASK.to_owned());
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, below) in map {
                if let Some(views) = views.child_views(key) {
                    mask_secret_values(below, &views);
                }
            }
        }
        Value::Array(items) => {
            for (index, below) in items.iter_mut().enumerate() {
                if let Some(views) = views.child_views(&index.to_string()) {
                    mask_secret_values(below, &views);
                }
            }
        }
        _ => {}
    }
}
