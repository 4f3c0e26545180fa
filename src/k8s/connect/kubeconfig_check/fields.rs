//! The fields of a kubeconfig, and their types. docs/kubeconfig.md has a row for each.
//!
//! The types of the client library are stricter than kubectl in some places and more lenient in others: an unused entry
//! without a value makes the whole file invalid, and a string counts as a boolean. So a file is first read as data and
//! normalized, so that the library reads it as kubectl does.

use serde_json::{Map, Value};

use super::FieldError;

/// Name of the field that holds a mode of interaction that does not exist; only a user that is used is refused for it.
pub(super) const UNKNOWN_MODE: &str = "unknown-interactive-mode";

/// Type of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldShape {
    /// A string.
    Text,
    /// A boolean.
    Flag,
    /// A list of strings.
    Texts,
    /// Strings by name.
    Map,
    /// Lists of strings by name.
    Lists,
    /// Any value that its owner likes.
    Any,
}

/// All fields, with `[]` behind those that are lists.
pub const FIELDS: [(&str, FieldShape); 49] = [
    ("apiVersion", FieldShape::Text),
    ("kind", FieldShape::Text),
    ("current-context", FieldShape::Text),
    ("preferences.colors", FieldShape::Flag),
    ("preferences.extensions[].name", FieldShape::Text),
    ("preferences.extensions[].extension", FieldShape::Any),
    ("extensions[].name", FieldShape::Text),
    ("extensions[].extension", FieldShape::Any),
    ("contexts[].name", FieldShape::Text),
    ("contexts[].context.cluster", FieldShape::Text),
    ("contexts[].context.user", FieldShape::Text),
    ("contexts[].context.namespace", FieldShape::Text),
    ("contexts[].context.extensions[].name", FieldShape::Text),
    ("contexts[].context.extensions[].extension", FieldShape::Any),
    ("clusters[].name", FieldShape::Text),
    ("clusters[].cluster.server", FieldShape::Text),
    ("clusters[].cluster.tls-server-name", FieldShape::Text),
    ("clusters[].cluster.insecure-skip-tls-verify", FieldShape::Flag),
    ("clusters[].cluster.certificate-authority", FieldShape::Text),
    ("clusters[].cluster.certificate-authority-data", FieldShape::Text),
    ("clusters[].cluster.proxy-url", FieldShape::Text),
    ("clusters[].cluster.disable-compression", FieldShape::Flag),
    ("clusters[].cluster.extensions[].name", FieldShape::Text),
    ("clusters[].cluster.extensions[].extension", FieldShape::Any),
    ("users[].name", FieldShape::Text),
    ("users[].user.client-certificate", FieldShape::Text),
    ("users[].user.client-certificate-data", FieldShape::Text),
    ("users[].user.client-key", FieldShape::Text),
    ("users[].user.client-key-data", FieldShape::Text),
    ("users[].user.token", FieldShape::Text),
    ("users[].user.tokenFile", FieldShape::Text),
    ("users[].user.username", FieldShape::Text),
    ("users[].user.password", FieldShape::Text),
    ("users[].user.as", FieldShape::Text),
    ("users[].user.as-uid", FieldShape::Text),
    ("users[].user.as-groups", FieldShape::Texts),
    ("users[].user.as-user-extra", FieldShape::Lists),
    ("users[].user.auth-provider.name", FieldShape::Text),
    ("users[].user.auth-provider.config", FieldShape::Map),
    ("users[].user.exec.apiVersion", FieldShape::Text),
    ("users[].user.exec.command", FieldShape::Text),
    ("users[].user.exec.args", FieldShape::Texts),
    ("users[].user.exec.env[].name", FieldShape::Text),
    ("users[].user.exec.env[].value", FieldShape::Text),
    ("users[].user.exec.installHint", FieldShape::Text),
    ("users[].user.exec.interactiveMode", FieldShape::Text),
    ("users[].user.exec.provideClusterInfo", FieldShape::Flag),
    ("users[].user.extensions[].name", FieldShape::Text),
    ("users[].user.extensions[].extension", FieldShape::Any),
];

/// Brings the data of a kubeconfig into the form that the client library reads as kubectl does.
///
/// # Errors
/// The first field whose value has another type than kubectl accepts, and a name that occurs twice.
pub(super) fn normalize_kubeconfig(mut file: Value) -> Result<Value, FieldError> {
    if file.is_null() {
        return Ok(Value::Object(Map::new()));
    }
    check_section(&mut file, "", "")?;
    for (field, wanted) in [("apiVersion", "v1"), ("kind", "Config")] {
        let given = file[field].as_str().unwrap_or_default();
        if !given.is_empty() && given != wanted {
            return Err(FieldError::new(field, format!("is not {wanted}, so the file is not a kubeconfig")));
        }
    }
    for list in ["clusters", "contexts", "users"] {
        check_unique_names(&file, list)?;
    }
    if file["current-context"] == "" {
        file.as_object_mut().and_then(|file| file.remove("current-context"));
    }
    for named in list_entries(&mut file, "contexts") {
        let context = named.entry("context").or_insert_with(|| Value::Object(Map::new()));
        context.as_object_mut().map(|context| context.entry("cluster").or_insert_with(|| "".into()));
    }
    for named in list_entries(&mut file, "users") {
        let Some(user) = named.get_mut("user").and_then(Value::as_object_mut) else { continue };
        if let Some(provider) = user.get_mut("auth-provider").and_then(Value::as_object_mut) {
            provider.entry("name").or_insert_with(|| "".into());
        }
        if let Some(exec) = user.get_mut("exec").and_then(Value::as_object_mut) {
            for variable in exec.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
                for field in ["name", "value"] {
                    variable.as_object_mut().map(|variable| variable.entry(field).or_insert_with(|| "".into()));
                }
            }
            let mode = exec.get("interactiveMode").and_then(Value::as_str).unwrap_or_default();
            if !["Never", "IfAvailable", "Always"].contains(&mode) {
                let mode = exec.remove("interactiveMode");
                mode.filter(|mode| *mode != "").map(|mode| exec.insert(UNKNOWN_MODE.to_owned(), mode));
            }
        }
    }
    Ok(file)
}

fn list_entries<'v>(file: &'v mut Value, list: &str) -> impl Iterator<Item = &'v mut Map<String, Value>> {
    file.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn check_unique_names(file: &Value, list: &str) -> Result<(), FieldError> {
    let mut names: Vec<&str> = file[list].as_array().into_iter().flatten().filter_map(|e| e["name"].as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(FieldError::new(list, format!("contains the name {} twice", super::visible_name(pair[0])))),
        None => Ok(()),
    }
}

/// Checks a value against the fields below `pattern`; `place` is how it is written in errors.
fn check_section(value: &mut Value, pattern: &str, place: &str) -> Result<(), FieldError> {
    if let Some((_, shape)) = FIELDS.iter().find(|(field, _)| *field == pattern) {
        return check_field_type(value, *shape, place);
    }
    if is_field_prefix(&format!("{pattern}[]")) {
        let Value::Array(items) = value else { return Err(wrong_type_error(value, "a list", place)) };
        items.retain(|item| !item.is_null());
        for (index, item) in items.iter_mut().enumerate() {
            let name = item.get("name").and_then(Value::as_str).map(super::visible_name);
            let place = name.map_or_else(|| format!("{place}[{index}]"), |name| format!("{place}[name={name}]"));
            check_section(item, &format!("{pattern}[]"), &place)?;
            item.as_object_mut().map(|item| item.entry("name").or_insert_with(|| "".into()));
            if pattern.ends_with("extensions") {
                item.as_object_mut().map(|item| item.entry("extension").or_insert(Value::Null));
            }
        }
        return Ok(());
    }
    let dot = if pattern.is_empty() { "" } else { "." };
    if !is_field_prefix(&format!("{pattern}{dot}")) {
        return Ok(());
    }
    let Value::Object(fields) = value else { return Err(wrong_type_error(value, "a mapping", place)) };
    fields.retain(|_, value| !value.is_null());
    for (name, value) in fields {
        check_section(value, &format!("{pattern}{dot}{name}"), &format!("{place}{dot}{name}"))?;
    }
    Ok(())
}

fn is_field_prefix(prefix: &str) -> bool {
    FIELDS.iter().any(|(field, _)| field.starts_with(prefix))
}

fn check_field_type(value: &mut Value, shape: FieldShape, place: &str) -> Result<(), FieldError> {
    match shape {
        FieldShape::Any => {}
        FieldShape::Text if value.is_string() => {}
        FieldShape::Text => return Err(wrong_type_error(value, "a string", place)),
        FieldShape::Flag if value.is_boolean() => {}
        FieldShape::Flag => return Err(wrong_type_error(value, "a boolean", place)),
        FieldShape::Texts => {
            let Value::Array(items) = value else { return Err(wrong_type_error(value, "a list of strings", place)) };
            null_is_empty(items.iter_mut());
            if let Some(other) = items.iter().find(|item| !item.is_string()) {
                return Err(wrong_type_error(other, "a string", place));
            }
        }
        FieldShape::Map => {
            let Value::Object(fields) = value else { return Err(wrong_type_error(value, "a mapping", place)) };
            null_is_empty(fields.values_mut());
            if let Some((name, other)) = fields.iter().find(|(_, value)| !value.is_string()) {
                return Err(wrong_type_error(other, "a string", &format!("{place}.{}", super::visible_name(name))));
            }
        }
        FieldShape::Lists => {
            let Value::Object(fields) = value else { return Err(wrong_type_error(value, "a mapping", place)) };
            fields.retain(|_, value| !value.is_null());
            for (name, value) in fields {
                check_field_type(value, FieldShape::Texts, &format!("{place}.{}", super::visible_name(name)))?;
            }
        }
    }
    Ok(())
}

fn null_is_empty<'v>(values: impl Iterator<Item = &'v mut Value>) {
    values.filter(|value| value.is_null()).for_each(|value| *value = "".into());
}

fn wrong_type_error(value: &Value, wanted: &str, place: &str) -> FieldError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    };
    let quotes =
        if wanted == "a string" && !value.is_array() && !value.is_object() { ": put it in quotes" } else { "" };
    let place = if place.is_empty() { "the file" } else { place };
    FieldError::new(place, format!("is {found}, but {wanted} is required{quotes}"))
}
