//! A field that another manager owns: who, since when, our value and theirs, and the flag that takes only this field.

use std::fmt;

use serde_json::Value;

use crate::api::util::text::{visible_cell, visible_line};
use crate::k8s::object::{ObjectRef, items_at, text_at};
use crate::k8s::request::api_error::ApiError;

/// Most characters of a value in a message.
const SHOWN: usize = 60;

/// One field of one object that another manager owns with a different value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The object.
    pub object: ObjectRef,
    /// The field's path, as the server writes it: `.spec.replicas`.
    pub field: String,
    /// Its holder.
    pub manager: String,
    /// Time since which it is held, RFC 3339, where the server knows.
    pub since: Option<String>,
    /// The value that we would set as JSON, cut; `(not shown)` for Secrets.
    pub ours: String,
    /// The live value as JSON, cut; `(not shown)` for Secrets.
    pub theirs: String,
}

impl Conflict {
    /// Argument of `--take-fields` for just this field: `Deployment/apiserver:.spec.replicas`.
    pub fn take_fields_flag(&self) -> String {
        format_take_fields_flag(&self.object, &self.field)
    }
}

/// Argument of `--take-fields` for one field of one object.
pub(crate) fn format_take_fields_flag(object: &ObjectRef, field: &str) -> String {
    format!("{}/{}:{field}", object.kind, object.name)
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: wanted {}, existing {}, owned by `{}`",
            self.object,
            visible_line(&self.field),
            visible_line(&self.ours),
            visible_line(&self.theirs),
            visible_cell(&self.manager)
        )?;
        self.since.as_ref().map_or(Ok(()), |since| write!(f, " since {}", visible_cell(since)))
    }
}

/// The conflicts in a server's answer to an apply.
pub(crate) fn parse_conflicts(
    error: &ApiError,
    target: &ObjectRef,
    manifest: &Value,
    live: Option<&Value>,
) -> Vec<Conflict> {
    error
        .causes
        .iter()
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| {
            let manager = cause.message.split('"').nth(1).unwrap_or("another manager").to_owned();
            let since = live.and_then(|live| {
                items_at(live, "/metadata/managedFields")
                    .iter()
                    .find(|entry| text_at(entry, "/manager") == Some(&manager))
                    .and_then(|entry| text_at(entry, "/time"))
                    .map(str::to_owned)
            });
            Conflict {
                object: target.clone(),
                ours: describe_field_value(target, Some(manifest), &cause.field),
                theirs: describe_field_value(target, live, &cause.field),
                field: cause.field.clone(),
                manager,
                since,
            }
        })
        .collect()
}

/// The value of a field of `target`, for people; that of a Secret is not shown.
fn describe_field_value(target: &ObjectRef, object: Option<&Value>, field: &str) -> String {
    if target.is_secret() {
        return "(not shown)".to_owned();
    }
    object.and_then(|object| value_at_path(object, field)).map_or_else(|| "(not set)".to_owned(), format_short_value)
}

/// Returns whether the user allowed to take a field: a bare path allows it on every object, `Kind/name:path` on one.
pub(crate) fn may_take_field(object: &ObjectRef, field: &str, take: &[String]) -> bool {
    take.iter().any(|wanted| {
        let (scope, path) = wanted
            .split_once(':')
            .filter(|(s, _)| s.contains('/'))
            .map_or((None, wanted.as_str()), |(s, p)| (Some(s), p));
        let in_scope = scope.is_none_or(|scope| scope == format!("{}/{}", object.kind, object.name));
        in_scope && path.trim_start_matches('.') == field.trim_start_matches('.')
    })
}

fn format_short_value(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= SHOWN {
        return text;
    }
    let cut: String = text.chars().take(SHOWN).collect();
    format!("{cut}…")
}

/// The value at a path as the server writes it. Keys may contain dots, so the longest key that exists is taken.
fn value_at_path<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return Some(value);
    }
    if let Some(rest) = path.strip_prefix('[') {
        let end = find_closing_bracket(rest)?;
        let item = value.as_array()?.iter().find(|item| is_item_selected(&rest[..end], item))?;
        return value_at_path(item, &rest[end + 1..]);
    }
    let rest = path.strip_prefix('.')?;
    let map = value.as_object()?;
    let mut keys: Vec<&String> = map.keys().filter(|key| rest.starts_with(key.as_str())).collect();
    keys.sort_by_key(|key| std::cmp::Reverse(key.len()));
    keys.into_iter().find_map(|key| {
        let after = &rest[key.len()..];
        let ends = after.is_empty() || after.starts_with(['.', '[']);
        if ends { value_at_path(&map[key], after) } else { None }
    })
}

/// The position of the `]` that is outside of quotes.
fn find_closing_bracket(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some(index),
            _ => {}
        }
    }
    None
}

/// Returns whether `name="a",port=1` (keys) or `="a"` (a value of a set) selects a list item.
fn is_item_selected(selector: &str, item: &Value) -> bool {
    if let Some(value) = selector.strip_prefix('=') {
        return serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item);
    }
    selector.split(',').all(|part| {
        part.split_once('=').is_some_and(|(key, value)| {
            serde_json::from_str::<Value>(value).is_ok_and(|value| item.get(key) == Some(&value))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::k8s::request::api_error::Cause;
    use serde_json::json;

    fn error(field: &str) -> ApiError {
        let mut error = ApiError::new_synthetic(409, "Conflict", "conflict".into());
        error.causes.push(Cause {
            reason: "FieldManagerConflict".into(),
            field: field.into(),
            message: r#"conflict with "kubectl-edit" using apps/v1"#.into(),
        });
        error
    }

    fn deployment(image: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "api", "namespace": "n",
            "labels": {"app.kubernetes.io/name": image},
            "managedFields": [{"manager": "kubectl-edit", "time": "2026-11-20T10:00:00Z"}]},
            "spec": {"template": {"spec": {"containers": [{"name": "a", "image": image}]}}}})
    }

    #[test]
    fn a_conflict_names_field_manager_time_and_both_values() {
        let field = ".spec.template.spec.containers[name=\"a\"].image";
        let target = ObjectRef::of(&deployment("x")).unwrap();
        let conflicts = parse_conflicts(&error(field), &target, &deployment("ours:1"), Some(&deployment("theirs:2")));
        let text = conflicts[0].to_string();
        for part in ["Deployment n/api", field, "\"ours:1\"", "\"theirs:2\"", "`kubectl-edit`", "2026-11-20T10:00:00Z"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(conflicts[0].take_fields_flag(), format!("Deployment/api:{field}"));
    }

    #[test]
    fn keys_with_dots_are_found() {
        assert_eq!(value_at_path(&deployment("x"), ".metadata.labels.app.kubernetes.io/name"), Some(&json!("x")));
    }

    #[test]
    fn the_value_of_a_secret_is_not_shown() {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "aHVudGVyMg=="}});
        let conflicts = parse_conflicts(&error(".data.k"), &ObjectRef::of(&secret).unwrap(), &secret, Some(&secret));
        assert!(!conflicts[0].to_string().contains("aHVudGVyMg"), "{}", conflicts[0]);
    }

    #[test]
    fn only_the_fields_that_were_named_may_be_taken() {
        let target = ObjectRef::of(&deployment("x")).unwrap();
        let conflict = parse_conflicts(&error(".spec.replicas"), &target, &deployment("x"), None).remove(0);
        for (take, expected) in [
            (".spec.replicas", true),
            ("spec.replicas", true),
            ("Deployment/api:.spec.replicas", true),
            ("Deployment/other:.spec.replicas", false),
            (".spec", false),
            (".spec.paused", false),
        ] {
            assert_eq!(may_take_field(&conflict.object, &conflict.field, &[take.to_owned()]), expected, "{take}");
        }
    }
}
