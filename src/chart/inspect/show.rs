//! A chart's values as commented YAML, and the images that its objects run.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::version::ServiceLine;

use crate::chart::output;
use crate::chart::render::{Object, Rendered};
use crate::chart::values::{Schema, Views};

/// Width of a line of a comment, in characters.
const WIDTH: usize = 100;

/// Settings for printing the default values.
#[derive(Debug, Clone)]
pub struct Commented<'c> {
    /// The schema of the values.
    pub schema: &'c Value,
    /// Location at which editors find the schema, for the first line.
    pub schema_location: &'c str,
    /// The command that writes the schema there.
    pub schema_command: &'c str,
    /// The service line; values that came after it are left out.
    pub line: Option<ServiceLine>,
    /// Paths of the values that the service version decides, such as `etcd.image`: they are printed as comments, so that
    /// a file made of the output does not hold on to the images of its version.
    pub decided_by_version: Vec<String>,
}

impl Commented<'_> {
    /// The values as YAML with a comment above each that says what it is for; itself valid as a `--values` file.
    ///
    /// What is optional is a comment, too: null (which would delete), empty lists and mappings, and what the service
    /// version decides.
    pub fn format_commented_values(&self, values: &Value) -> String {
        let mut text = format!("# yaml-language-server: $schema={}\n", self.schema_location);
        let for_editors = "Editors check this file if the schema is in the same folder:";
        let _ = writeln!(text, "# {for_editors} {} > {}", self.schema_command, self.schema_location);
        write_comment(
            &mut text,
            "Values that are commented out are optional; images that are commented out follow the version.",
            0,
        );
        let views = Schema::new(self.schema).root_views();
        if let Some(description) = views.description() {
            write_comment(&mut text, description, 0);
        }
        self.write_commented_mapping(&mut text, &views, values, &[]);
        text
    }

    fn write_commented_mapping(&self, text: &mut String, views: &Views<'_>, values: &Value, path: &[&str]) {
        let empty = serde_json::Map::new();
        let present = values.as_object().unwrap_or(&empty);
        let named = views.property_keys();
        let mut keys: BTreeSet<&str> = named.clone();
        keys.extend(present.keys().map(String::as_str));
        for key in keys {
            let child = views.child_views(key);
            let since = child.as_ref().and_then(Views::since_line);
            if since.is_some_and(|since| self.line.is_some_and(|line| since > line)) {
                continue;
            }
            if path.is_empty() {
                text.push('\n');
            }
            // Keys that the user makes up have no words of their own.
            if let Some(child) = child.as_ref().filter(|_| named.contains(key)) {
                write_description(text, child, path.len());
            }
            let fallback = child.as_ref().and_then(Views::default_value);
            let value = present.get(key).or(fallback).unwrap_or(&Value::Null);
            let path: Vec<&str> = path.iter().copied().chain([key]).collect();
            self.write_commented_entry(text, &path, value, child.as_ref());
        }
    }

    fn write_commented_entry(&self, text: &mut String, path: &[&str], value: &Value, views: Option<&Views<'_>>) {
        let Some((key, above)) = path.split_last() else { return };
        let indent = "  ".repeat(above.len());
        let key_text = output::object_yaml(&Value::from(*key)).trim_end().to_owned();
        if let (Value::Null, Some(views)) = (value, views) {
            let _ = writeln!(text, "{indent}# {key_text}:  # {}", views.describe_expected());
            return;
        }
        let path_text = path.join(".");
        let map = value
            .as_object()
            .filter(|map| !map.is_empty() || views.is_some_and(|views| !views.property_keys().is_empty()));
        if let (Some(_), Some(views)) = (map, views) {
            let mut below = String::new();
            self.write_commented_mapping(&mut below, views, value, path);
            // A key with nothing below it would be a null, which deletes.
            let is_decided = self.decided_by_version.contains(&path_text);
            let is_comment = is_decided || below.lines().all(|line| line.trim_start().starts_with('#'));
            let mark = if is_comment { "# " } else { "" };
            let _ = writeln!(text, "{indent}{mark}{key_text}:");
            for line in below.lines() {
                let bare = line.trim_start();
                let mark = if is_decided && !bare.starts_with('#') { "# " } else { "" };
                let _ = writeln!(text, "{}{mark}{bare}", &line[..line.len() - bare.len()]);
            }
            return;
        }
        let is_empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        let mark = if is_empty { "# " } else { "" };
        for line in output::object_yaml(&serde_json::json!({ *key: value })).lines() {
            let _ = writeln!(text, "{indent}{mark}{line}");
        }
    }
}

/// Words as comments of at most [`WIDTH`] characters; line breaks inside a paragraph are those of its source.
fn write_comment(text: &mut String, words: &str, depth: usize) {
    let indent = "  ".repeat(depth);
    for (number, paragraph) in words.split("\n\n").enumerate() {
        if number > 0 {
            let _ = writeln!(text, "{indent}#");
        }
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

fn write_description(text: &mut String, views: &Views<'_>, depth: usize) {
    if let Some(description) = views.description() {
        write_comment(text, description, depth);
    }
    let options = views.allowed_values();
    if !options.is_empty() {
        write_comment(text, &format!("Expected: {}.", views.describe_expected()), depth);
    }
    if let Some(since) = views.since_line() {
        write_comment(text, &format!("Since {since}."), depth);
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
pub fn list_used_images(rendered: &Rendered) -> Vec<UsedImage> {
    let mut found = BTreeSet::new();
    for object in rendered.objects.iter().chain(&rendered.bootstrap) {
        collect_pod_images(&object.json, object, &mut found);
    }
    found.into_iter().collect()
}

/// Looks for pod specifications wherever they are: in a Deployment, a CronJob or a Pod.
fn collect_pod_images(value: &Value, object: &Object, found: &mut BTreeSet<UsedImage>) {
    match value {
        Value::Object(map) => {
            for list in ["initContainers", "containers", "ephemeralContainers"] {
                for container in map.get(list).and_then(Value::as_array).into_iter().flatten() {
                    if let Some(image) = container.get("image").and_then(Value::as_str) {
                        let [name, pull_policy] = ["name", "imagePullPolicy"]
                            .map(|field| container.get(field).and_then(Value::as_str).map(ToOwned::to_owned));
                        let secrets = map.get("imagePullSecrets").and_then(Value::as_array).into_iter().flatten();
                        found.insert(UsedImage {
                            image: image.to_owned(),
                            object: object.id(),
                            container: name.unwrap_or_default(),
                            pull_policy,
                            pull_secrets: secrets
                                .filter_map(|secret| secret.get("name").and_then(Value::as_str))
                                .map(ToOwned::to_owned)
                                .collect(),
                        });
                    }
                }
            }
            map.values().for_each(|below| collect_pod_images(below, object, found));
        }
        Value::Array(items) => items.iter().for_each(|below| collect_pod_images(below, object, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::{chart, input, line, schema};

    fn shown(values: &Value, of: &str) -> String {
        let decided_by_version = vec!["images.etcd".to_owned(), "images.scheduler".to_owned()];
        let schema = schema();
        let line = Some(line(of));
        let (schema_location, schema_command) = ("values.schema.json", "fleetctl show schema");
        Commented { schema: &schema, schema_location, schema_command, line, decided_by_version }
            .format_commented_values(values)
    }

    #[test]
    fn the_defaults_are_commented_and_valid_as_values_themselves() {
        let chart = chart("v0.6");
        let defaults = chart.values_builder().build(schema).unwrap().to_json();
        let text = shown(&defaults, "v0.6");
        insta::assert_snapshot!(text);
        let again = chart.values_builder().file("shown.yaml", text.as_bytes()).build(schema).unwrap();
        assert_eq!(again.to_json(), defaults);
        assert!(again.warnings().is_empty());
    }

    #[test]
    fn values_that_a_line_does_not_know_are_not_shown() {
        let known = ["v0.6", "v0.7"].map(|line| shown(&Value::Null, line).contains("standby"));
        assert_eq!(known, [false, true]);
    }

    #[test]
    fn every_image_of_every_pod_is_listed() {
        let chart = chart("v0.6");
        let values = chart.values_builder().build(schema).unwrap().to_json();
        let images = list_used_images(&chart.render(&input(values)).unwrap());
        assert_eq!(images.len(), 1);
        assert_eq!(
            (images[0].image.as_str(), images[0].object.as_str()),
            ("registry.k8s.io/etcd:3.5.6-0", "statefulset/etcd")
        );
    }
}
