//! What a chart can tell about itself: its values as commented YAML, and the images that its objects run.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::api::version::ServiceLine;

use crate::chart::output;
use crate::chart::render::{Object, Rendered};
use crate::chart::values::{Schema, Views};

/// How wide a line of a comment may get, in characters.
const WIDTH: usize = 100;

/// The values as YAML with a comment above each that says what it is for; itself valid as a `--values` file.
///
/// `schema_location` goes into the first line, by which editors know the schema. Values that `line` does not know yet
/// are left out; values that are null are shown as comments, because a null would delete.
pub fn commented_values(schema: &Value, values: &Value, schema_location: &str, line: Option<ServiceLine>) -> String {
    let mut text = format!("# yaml-language-server: $schema={schema_location}\n");
    let views = Schema::new(schema).views();
    if let Some(description) = views.description() {
        comment(&mut text, description, 0);
    }
    mapping(&mut text, &views, values, 0, line);
    text
}

fn comment(text: &mut String, words: &str, depth: usize) {
    let indent = "  ".repeat(depth);
    for paragraph in words.split('\n') {
        let mut line = format!("{indent}#");
        for word in paragraph.split_whitespace() {
            if line.chars().count() + word.chars().count() >= WIDTH {
                text.push_str(&line);
                text.push('\n');
                line = format!("{indent}#");
            }
            line.push(' ');
            line.push_str(word);
        }
        text.push_str(&line);
        text.push('\n');
    }
}

fn mapping(text: &mut String, views: &Views<'_>, values: &Value, depth: usize, line: Option<ServiceLine>) {
    let empty = serde_json::Map::new();
    let present = values.as_object().unwrap_or(&empty);
    let named = views.keys();
    let mut keys: BTreeSet<&str> = named.clone();
    keys.extend(present.keys().map(String::as_str));
    for key in keys {
        let child = views.child(key);
        let too_new = child.as_ref().and_then(Views::since).is_some_and(|since| line.is_some_and(|line| since > line));
        if too_new {
            continue;
        }
        if depth == 0 {
            text.push('\n');
        }
        // Keys that the user makes up have no words of their own.
        if let Some(child) = child.as_ref().filter(|_| named.contains(key)) {
            describe(text, child, depth);
        }
        let fallback = child.as_ref().and_then(Views::default);
        entry(text, key, present.get(key).or(fallback).unwrap_or(&Value::Null), child.as_ref(), depth, line);
    }
}

fn describe(text: &mut String, views: &Views<'_>, depth: usize) {
    if let Some(description) = views.description() {
        comment(text, description, depth);
    }
    let options = views.options();
    if !options.is_empty() {
        comment(text, &format!("Expected: {}.", views.expected()), depth);
    }
    if let Some(since) = views.since() {
        comment(text, &format!("Since {since}."), depth);
    }
}

fn entry(
    text: &mut String,
    key: &str,
    value: &Value,
    views: Option<&Views<'_>>,
    depth: usize,
    line: Option<ServiceLine>,
) {
    let indent = "  ".repeat(depth);
    let key_text = output::object_yaml(&Value::from(key)).trim_end().to_owned();
    match (value, views) {
        (Value::Null, Some(views)) => {
            let _ = writeln!(text, "{indent}# {key_text}:  # {}", views.expected());
        }
        (Value::Object(map), Some(views)) if !map.is_empty() || !views.keys().is_empty() => {
            let mut below = String::new();
            mapping(&mut below, views, value, depth + 1, line);
            // A key with nothing below it would be a null, which deletes.
            let only_comments = below.lines().all(|line| line.trim_start().starts_with('#'));
            let mark = if only_comments { "# " } else { "" };
            let _ = writeln!(text, "{indent}{mark}{key_text}:");
            text.push_str(&below);
        }
        _ => {
            let single = serde_json::json!({ key: value });
            for line in output::object_yaml(&single).lines() {
                let _ = writeln!(text, "{indent}{line}");
            }
        }
    }
}

/// An image that an object runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UsedImage {
    /// `registry.k8s.io/etcd:3.5.6-0`.
    pub image: String,
    /// The object: `statefulset/etcd`.
    pub object: String,
    /// The container.
    pub container: String,
    /// `Always`, `IfNotPresent`, `Never`, or nothing where it is left to the cluster.
    pub pull_policy: Option<String>,
    /// The Secrets that the pod pulls with, by name.
    pub pull_secrets: Vec<String>,
}

/// Every image of every pod that the objects make, bootstrap included, sorted.
pub fn images(rendered: &Rendered) -> Vec<UsedImage> {
    let mut found = BTreeSet::new();
    for object in rendered.objects.iter().chain(&rendered.bootstrap) {
        pods(&object.json, object, &mut found);
    }
    found.into_iter().collect()
}

/// Looks for pod specifications wherever they are: in a Deployment, a CronJob or a Pod.
fn pods(value: &Value, object: &Object, found: &mut BTreeSet<UsedImage>) {
    match value {
        Value::Object(map) => {
            for list in ["initContainers", "containers", "ephemeralContainers"] {
                for container in map.get(list).and_then(Value::as_array).into_iter().flatten() {
                    if let Some(image) = container.get("image").and_then(Value::as_str) {
                        let text = |name: &str| container.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
                        let secrets = map.get("imagePullSecrets").and_then(Value::as_array).into_iter().flatten();
                        found.insert(UsedImage {
                            image: image.to_owned(),
                            object: object.id(),
                            container: text("name").unwrap_or_default(),
                            pull_policy: text("imagePullPolicy"),
                            pull_secrets: secrets
                                .filter_map(|secret| secret.get("name").and_then(Value::as_str))
                                .map(ToOwned::to_owned)
                                .collect(),
                        });
                    }
                }
            }
            map.values().for_each(|below| pods(below, object, found));
        }
        Value::Array(items) => items.iter().for_each(|below| pods(below, object, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::{chart, input, line, schema};

    #[test]
    fn the_defaults_are_commented_and_valid_as_values_themselves() {
        let chart = chart("v0.6");
        let defaults = chart.values().build(schema).unwrap().to_json();
        let text = commented_values(&schema(), &defaults, "values.schema.json", Some(line("v0.6")));
        insta::assert_snapshot!(text);
        let again = chart.values().file("shown.yaml", text.as_bytes()).build(schema).unwrap();
        assert_eq!(again.to_json(), defaults);
        assert!(again.warnings().is_empty());
    }

    #[test]
    fn values_that_a_line_does_not_know_are_not_shown() {
        let text = |of: &str| commented_values(&schema(), &Value::Null, "s", Some(line(of)));
        assert!(!text("v0.6").contains("standby") && text("v0.7").contains("standby"));
    }

    #[test]
    fn every_image_of_every_pod_is_listed() {
        let chart = chart("v0.6");
        let values = chart.values().build(schema).unwrap().to_json();
        let images = images(&chart.render(&input(values)).unwrap());
        assert_eq!(images.len(), 1);
        assert_eq!(
            (images[0].image.as_str(), images[0].object.as_str()),
            ("registry.k8s.io/etcd:3.5.6-0", "statefulset/etcd")
        );
    }
}
