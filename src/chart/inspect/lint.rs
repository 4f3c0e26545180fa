//! Checks of rendered objects that need no cluster: kinds that a server would refuse, objects that collide,
//! names and labels that are not allowed, selectors that match nothing.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::api::kinds;
use crate::api::names::{is_label_key, is_label_value};
use crate::chart::diagnostic::{Diagnostic, Place};
use crate::chart::render::{Object, Rendered};
use crate::chart::{Chart, Row};

/// Checks everything that a chart rendered. `row` says which Kubernetes minors it is for; what is in `bootstrap/` is for
/// the control plane's own API server, whose version is that of its image.
pub fn lint_objects(chart: &Chart, rendered: &Rendered, row: &Row) -> Vec<Diagnostic> {
    let hosting: Vec<u32> = row.kubernetes.iter().map(|minor| minor.minor).collect();
    let own: Vec<u32> = row.control_plane_minor().map(|minor| minor.minor).into_iter().collect();
    let mut found = Vec::new();
    for (objects, minors) in [(&rendered.objects, &hosting), (&rendered.bootstrap, &own)] {
        let mut seen: BTreeMap<[&str; 4], &Object> = BTreeMap::new();
        for object in objects {
            let identity = [object.group(), object.kind(), object.namespace().unwrap_or_default(), object.name()];
            let duplicate = seen
                .insert(identity, object)
                .map(|first| ("duplicate-object", format!("it is already in {}", first.source)));
            let unserved = minors
                .iter()
                .filter_map(|&minor| kinds::check_served(object.api_version(), object.kind(), minor).err())
                .map(|problem| ("not-served", problem));
            let problems = duplicate
                .into_iter()
                .chain(unserved)
                .chain(check_scope(object))
                .chain(check_metadata(&object.json))
                .chain(check_selector(&object.json));
            found.extend(problems.map(|(code, message)| {
                let message = format!("{}: {message}", object.id());
                Diagnostic::error(code, message).at(find_object_place(chart, object))
            }));
        }
    }
    found
}

/// The line of the template at which an object begins.
fn find_object_place(chart: &Chart, object: &Object) -> Option<Place> {
    let (_, path, text) = chart.flattened_files().find(|(_, path, _)| *path == object.source)?;
    let start: usize = text.split_inclusive('\n').take(object.line.saturating_sub(1)).map(str::len).sum();
    let length = text[start..].lines().next().map_or(0, str::len);
    Some(Place::in_text(&format!("charts/{path}"), text, start, start + length))
}

type Problem = (&'static str, String);

fn check_scope(object: &Object) -> Vec<Problem> {
    let Some(served) = kinds::find_served(object.api_version(), object.kind()) else { return Vec::new() };
    match (served.namespaced, object.namespace()) {
        (true, None) => {
            vec![(
                "no-namespace",
                "it has no `metadata.namespace`, so its namespace would be that of the user's context".to_owned(),
            )]
        }
        (false, Some(namespace)) => {
            vec![(
                "no-namespace",
                format!("a {} is cluster-scoped, but it sets the namespace `{namespace}`", object.kind()),
            )]
        }
        _ => Vec::new(),
    }
}

/// Lower-case labels with dots between them.
fn is_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|part| {
            !part.is_empty() && is_label_value(part) && !part.contains(['_']) && part == part.to_lowercase()
        })
}

/// Names and labels, also those of pods that it makes.
fn check_metadata(object: &Value) -> Vec<Problem> {
    let mut found = Vec::new();
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    // Kinds of RBAC may have any name that fits into a path.
    let group = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if !group.starts_with("rbac.") && !is_subdomain(name) {
        found.push(("bad-name", "its name is not a lower-case DNS name of at most 253 characters".to_owned()));
    }
    for pointer in ["/metadata/labels", "/spec/template/metadata/labels", "/spec/selector/matchLabels"] {
        for (key, value) in object.pointer(pointer).and_then(Value::as_object).into_iter().flatten() {
            match value.as_str() {
                _ if !is_label_key(key) => found.push(("bad-label", format!("`{key}` cannot be the key of a label"))),
                Some(text) if is_label_value(text) => {}
                Some(_) => found.push(("bad-label", format!("the label `{key}` has a value that is not allowed: at most 63 letters, digits, `-`, `_` and `.`"))),
                None => found.push(("bad-label", format!("the label `{key}` is not text"))),
            }
        }
    }
    for (key, value) in object.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten() {
        if !is_label_key(key) || !value.is_string() {
            found.push((
                "bad-annotation",
                format!("the annotation `{key}` has a key that is not allowed, or a value that is not text"),
            ));
        }
    }
    found
}

/// A workload's selector has to match the pods that it makes.
fn check_selector(object: &Value) -> Vec<Problem> {
    let empty = Map::new();
    let [selected, made] = ["/spec/selector/matchLabels", "/spec/template/metadata/labels"]
        .map(|pointer| object.pointer(pointer).and_then(Value::as_object));
    let Some(selected) = selected.filter(|_| object.pointer("/spec/template").is_some()) else { return Vec::new() };
    let made = made.unwrap_or(&empty);
    let missing: Vec<&str> =
        selected.iter().filter(|(key, value)| made.get(*key) != Some(value)).map(|(key, _)| key.as_str()).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    vec![("selector", format!("its selector needs labels that its pods do not have: {}", missing.join(", ")))]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chart::tests::{chart, input, schema};

    fn of(json: Value) -> Object {
        Object {
            stage: 0,
            stage_name: "all".to_owned(),
            json,
            source: "control-plane/v0.6/templates/etcd.yaml".to_owned(),
            line: 3,
        }
    }

    #[test]
    fn what_a_server_would_refuse_is_found_without_one() {
        let chart = chart("v0.6");
        let row = chart.version_row().unwrap();
        let good = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "x", "labels": {"a.b/c": "D-e_f"}}});
        let mut renamed = good.clone();
        renamed["metadata"]["name"] = json!("A_b");
        let mut labelled = good.clone();
        labelled["metadata"] =
            json!({"name": "b", "namespace": "x", "labels": {"a b": "", "ok": "ä", "n": 1}, "annotations": {"": "x"}});
        let objects = [
            good.clone(),
            good,
            renamed,
            labelled,
            json!({"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "p", "namespace": "x"}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "namespace": "x"}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:x"}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "x"},
                "spec": {"selector": {"matchLabels": {"a": "1", "b": "2"}}, "template": {"metadata": {"labels": {"a": "1", "b": "3"}}}}}),
        ];
        let rendered = Rendered { objects: objects.map(of).to_vec(), bootstrap: Vec::new() };
        let found: Vec<String> = lint_objects(&chart, &rendered, row)
            .iter()
            .map(|problem| format!("{} {}", problem.code, problem.message))
            .collect();
        insta::assert_snapshot!(found.join("\n"));
    }

    #[test]
    fn a_right_chart_has_nothing_to_say_and_places_are_those_of_templates() {
        let chart = chart("v0.6");
        let rendered = chart.render(&input(chart.values_builder().build(schema).unwrap().to_json())).unwrap();
        assert_eq!(lint_objects(&chart, &rendered, chart.version_row().unwrap()), []);
        let wrong = Rendered {
            objects: vec![of(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}))],
            bootstrap: Vec::new(),
        };
        let found = lint_objects(&chart, &wrong, chart.version_row().unwrap());
        assert_eq!(
            found[0].place.as_ref().unwrap().format_position(),
            "charts/control-plane/v0.6/templates/etcd.yaml:3:1"
        );
    }
}
