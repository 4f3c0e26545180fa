//! Looking things up in a JSON Schema: what is allowed at a path, what it is for, whether it is secret.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::version::ServiceLine;

/// Largest number of references and alternatives that are followed at one place.
const MAX_VIEWS: usize = 64;

/// A JSON Schema as schemars writes it: `$ref` into itself, `anyOf` and `oneOf` for options and enums.
///
/// Two keywords are ours: `x-secret: true` (never shown) and `x-since: v0.8` (the line that brought it).
#[derive(Debug, Clone, Copy)]
pub(in crate::chart) struct Schema<'s> {
    root: &'s Value,
}

/// All the schemas that speak about one place: itself, what it refers to, its alternatives.
#[derive(Debug, Clone)]
pub(in crate::chart) struct Views<'s> {
    root: &'s Value,
    all: Vec<&'s Value>,
}

impl<'s> Schema<'s> {
    pub(in crate::chart) fn new(root: &'s Value) -> Self {
        Self { root }
    }

    /// The schemas of the whole document.
    pub(in crate::chart) fn root_views(self) -> Views<'s> {
        Views::from_schemas(self.root, [self.root])
    }

    /// Returns the schemas at a path; `None` if there are none.
    pub(in crate::chart) fn views_at(self, path: &[String]) -> Option<Views<'s>> {
        path.iter().try_fold(self.root_views(), |views, part| views.child_views(part))
    }

    /// Every path below which a key of that name is known, nearest to the root first.
    pub(in crate::chart) fn paths_of_key(self, key: &str) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        let mut queue = vec![(Vec::new(), self.root_views())];
        for depth in 0..6 {
            let mut next = Vec::new();
            for (path, views) in queue {
                for name in views.property_keys() {
                    let mut below: Vec<String> = path.clone();
                    below.push(name.to_owned());
                    if name == key {
                        found.push(below.clone());
                    }
                    if depth < 5
                        && let Some(child) = views.child_views(name)
                    {
                        next.push((below, child));
                    }
                }
            }
            queue = next;
        }
        found
    }
}

fn resolve_reference<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    root.pointer(reference.strip_prefix('#')?)
}

impl<'s> Views<'s> {
    fn from_schemas(root: &'s Value, start: impl IntoIterator<Item = &'s Value>) -> Self {
        let mut all: Vec<&'s Value> = start.into_iter().collect();
        let mut next = 0;
        while next < all.len() && all.len() < MAX_VIEWS {
            let schema = all[next];
            next += 1;
            if let Some(target) =
                schema.get("$ref").and_then(Value::as_str).and_then(|text| resolve_reference(root, text))
            {
                all.push(target);
            }
            for keyword in ["anyOf", "oneOf", "allOf"] {
                all.extend(schema.get(keyword).and_then(Value::as_array).into_iter().flatten());
            }
        }
        Self { root, all }
    }

    /// The schemas of a key or of a list's item.
    pub(in crate::chart) fn child_views(&self, part: &str) -> Option<Self> {
        let is_index = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let named = self.all.iter().filter_map(|schema| schema.get("properties")?.get(part));
        let mut found: Vec<&'s Value> = named.collect();
        if found.is_empty() {
            found.extend(
                self.all
                    .iter()
                    .filter_map(|schema| schema.get("additionalProperties"))
                    .filter(|schema| schema.is_object()),
            );
        }
        if found.is_empty() && is_index {
            found.extend(self.all.iter().filter_map(|schema| schema.get("items")).filter(|schema| schema.is_object()));
        }
        (!found.is_empty()).then(|| Self::from_schemas(self.root, found))
    }

    /// The keys that have a schema of their own, sorted.
    pub(in crate::chart) fn property_keys(&self) -> BTreeSet<&'s str> {
        let maps = self.all.iter().filter_map(|schema| schema.get("properties")?.as_object());
        maps.flat_map(|map| map.keys().map(String::as_str)).collect()
    }

    /// Returns whether no other keys are allowed.
    pub(in crate::chart) fn is_closed(&self) -> bool {
        self.all.iter().any(|schema| schema.get("additionalProperties") == Some(&Value::Bool(false)))
    }

    /// Returns whether a JSON type is allowed; all types are where no schema names one.
    pub(in crate::chart) fn allows_type(&self, name: &str) -> bool {
        let types = self.named_types();
        types.is_empty() || types.contains(name)
    }

    /// The JSON types that are named: `string`, `integer` …
    pub(in crate::chart) fn named_types(&self) -> BTreeSet<&'s str> {
        let mut types = BTreeSet::new();
        for schema in &self.all {
            match schema.get("type") {
                Some(Value::String(name)) => {
                    types.insert(name.as_str());
                }
                Some(Value::Array(names)) => types.extend(names.iter().filter_map(Value::as_str)),
                _ => {}
            }
            let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten().chain(schema.get("const"));
            types.extend(values.map(|value| match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "integer",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            }));
        }
        types
    }

    /// The allowed values, if they are listed.
    pub(in crate::chart) fn allowed_values(&self) -> Vec<&'s Value> {
        let listed = self.all.iter().flat_map(|schema| {
            let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
            values.chain(schema.get("const"))
        });
        listed.filter(|value| !value.is_null()).collect()
    }

    /// Returns the description: what the value is for.
    pub(in crate::chart) fn description(&self) -> Option<&'s str> {
        self.all.iter().find_map(|schema| schema.get("description")?.as_str())
    }

    /// Returns the first sentence of the description.
    pub(in crate::chart) fn first_sentence(&self) -> Option<String> {
        let text = self.description()?;
        let paragraph = text.split("\n\n").next().unwrap_or(text).replace('\n', " ");
        Some(match paragraph.find(". ") {
            Some(end) => paragraph[..=end].to_owned(),
            None => paragraph,
        })
    }

    /// Returns whether the value must never be shown (`x-secret`).
    pub(in crate::chart) fn is_secret(&self) -> bool {
        self.all.iter().any(|schema| schema.get("x-secret") == Some(&Value::Bool(true)))
    }

    /// Returns the service line that introduced the value (`x-since`).
    pub(in crate::chart) fn since_line(&self) -> Option<ServiceLine> {
        self.all.iter().find_map(|schema| schema.get("x-since")?.as_str()?.parse().ok())
    }

    /// Returns the default.
    pub(in crate::chart) fn default_value(&self) -> Option<&'s Value> {
        self.all.iter().find_map(|schema| schema.get("default"))
    }

    /// Returns the allowed values, for people: `a string`, `an integer from 1 to 5`, `one of A, B`.
    pub(in crate::chart) fn describe_expected(&self) -> String {
        let options: Vec<String> =
            self.allowed_values().iter().map(|value| format!("`{}`", plain_json(value))).collect();
        if !options.is_empty() {
            return if options.len() == 1 { options[0].clone() } else { format!("one of {}", options.join(", ")) };
        }
        let names: Vec<&str> = self
            .named_types()
            .into_iter()
            .filter(|name| *name != "null")
            .map(|name| match name {
                "string" => "a string",
                "integer" => "an integer",
                "number" => "a number",
                "boolean" => "`true` or `false`",
                "array" => "a list",
                "object" => "a mapping",
                other => other,
            })
            .collect();
        let bounds =
            ["minimum", "maximum"].map(|keyword| self.all.iter().find_map(|schema| schema.get(keyword)?.as_number()));
        let range = match bounds {
            [Some(low), Some(high)] => format!(" from {low} to {high}"),
            [Some(low), None] => format!(" of at least {low}"),
            [None, Some(high)] => format!(" of at most {high}"),
            [None, None] => String::new(),
        };
        format!("{}{range}", names.join(" or "))
    }
}

/// The schema as one service line knows it: without the values that came later.
#[must_use]
pub fn schema_of_line(mut schema: Value, line: ServiceLine) -> Value {
    fn remove_newer_properties(schema: &mut Value, line: ServiceLine) {
        let Some(map) = schema.as_object_mut() else {
            if let Some(items) = schema.as_array_mut() {
                for item in items {
                    remove_newer_properties(item, line);
                }
            }
            return;
        };
        let mut gone = Vec::new();
        if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
            gone = properties
                .iter()
                .filter(|(_, value)| is_newer_than(value, line))
                .map(|(name, _)| name.clone())
                .collect();
            properties.retain(|name, _| !gone.contains(name));
        }
        if let Some(required) = map.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| !name.as_str().is_some_and(|name| gone.iter().any(|gone| gone == name)));
        }
        map.values_mut().for_each(|below| remove_newer_properties(below, line));
    }

    /// Returns whether the value of a schema came with a line after this one.
    fn is_newer_than(schema: &Value, line: ServiceLine) -> bool {
        let since = schema.get("x-since").and_then(Value::as_str).and_then(|text| text.parse::<ServiceLine>().ok());
        since.is_some_and(|since| since > line)
    }
    remove_newer_properties(&mut schema, line);
    schema
}

/// A JSON value as people write it: text without quotes.
pub(in crate::chart) fn plain_json(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(ToOwned::to_owned).collect()
    }

    #[test]
    fn an_older_line_does_not_know_newer_values() {
        let schema = json!({"properties": {
            "a": {"type": "object", "required": ["old", "new"], "properties": {"old": {}, "new": {"x-since": "v0.8"}}},
        }});
        let [older, newer] = ["v0.7", "v0.8"]
            .map(|line| schema_of_line(schema.clone(), line.parse().unwrap())["properties"]["a"].clone());
        assert_eq!(older, json!({"type": "object", "required": ["old"], "properties": {"old": {}}}));
        assert_eq!(newer, schema["properties"]["a"]);
    }

    #[test]
    fn places_are_found_through_references_options_lists_and_free_keys() {
        let schema = json!({
            "type": "object",
            "properties": {
                "etcd": {"anyOf": [{"$ref": "#/$defs/Etcd"}, {"type": "null"}]},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            "$defs": {"Etcd": {"type": "object", "description": "The store.\n\nMore.", "properties": {
                "nodes": {"type": "array", "items": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}}},
                "type": {"oneOf": [{"const": "A"}, {"const": "B"}]},
                "password": {"type": ["string", "null"], "x-secret": true, "x-since": "v0.8"},
            }}},
        });
        let schema = Schema::new(&schema);
        assert_eq!(
            schema.views_at(&path("etcd.nodes.0.size")).unwrap().describe_expected(),
            "an integer of at least 1"
        );
        assert_eq!(schema.views_at(&path("etcd.type")).unwrap().describe_expected(), "one of `A`, `B`");
        assert_eq!(schema.views_at(&path("etcd")).unwrap().first_sentence().unwrap(), "The store.");
        assert_eq!(schema.views_at(&path("labels.any")).unwrap().describe_expected(), "a string");
        let password = schema.views_at(&path("etcd.password")).unwrap();
        assert!(password.is_secret() && password.since_line() == Some("v0.8".parse().unwrap()));
        assert!(schema.views_at(&path("etcd.other")).is_none());
        assert_eq!(schema.paths_of_key("password"), [path("etcd.password")]);
    }
}
