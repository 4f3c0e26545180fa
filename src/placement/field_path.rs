//! Paths of fields, as overrides and `leave-fields` name them: `spec.containers[name=app].env[-]`,
//! `metadata.labels['example.com/tier']`.

use std::fmt;

use serde_json::{Map, Value};

use crate::api::labels::OWN_KEY_PREFIX;

/// Reason that a path cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is no path.
    #[error("`{path}` is not a field path: {reason}")]
    Bad {
        /// The path.
        path: String,
        /// Reason that it is no path.
        reason: &'static str,
    },
    /// It names a field that overrides may not touch.
    #[error("`{path}` names a field that must not be changed")]
    Forbidden {
        /// The path.
        path: String,
    },
    /// The object has no such field.
    #[error("`{path}` is not in the object: {missing} does not exist")]
    NotFound {
        /// The path.
        path: String,
        /// The part that is missing.
        missing: String,
    },
}

impl PathError {
    /// Returns the reason as conditions name it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bad { .. } => "BadFieldPath",
            Self::Forbidden { .. } => "ForbiddenField",
            Self::NotFound { .. } => "PathNotFound",
        }
    }
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A key of a map.
    Key(String),
    /// An element of a list.
    Index(usize),
    /// The first element whose field prints as a value.
    Element { field: String, value: String },
    /// A new element at the end.
    Append,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => f.write_str(key),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Element { field, value } => write!(f, "[{field}={value}]"),
            Self::Append => f.write_str("[-]"),
        }
    }
}

/// The path of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    text: String,
    steps: Vec<Step>,
}

/// Fields of the metadata that overrides may not touch.
const FORBIDDEN_METADATA: [&str; 6] = ["name", "namespace", "uid", "finalizers", "ownerReferences", "managedFields"];

impl FieldPath {
    /// Reads a path.
    ///
    /// # Errors
    /// [`PathError::Bad`].
    pub fn parse(text: &str) -> Result<Self, PathError> {
        match parse_steps(text) {
            Ok(steps) => Ok(Self { text: text.to_owned(), steps }),
            Err(reason) => Err(PathError::Bad { path: text.to_owned(), reason }),
        }
    }

    /// Returns whether it names a new element instead of one that exists.
    pub fn is_append(&self) -> bool {
        self.steps.last() == Some(&Step::Append)
    }

    /// Returns whether one of two fields lies in the other, or may: elements of a list are named in several ways.
    pub fn may_overlap(&self, other: &Self) -> bool {
        self.steps.iter().zip(&other.steps).all(|(one, two)| match (one, two) {
            (Step::Key(one), Step::Key(two)) => one == two,
            (Step::Key(_), _) | (_, Step::Key(_)) => false,
            (Step::Index(one), Step::Index(two)) => one == two,
            _ => true,
        })
    }

    /// Checks that an override may set the field.
    ///
    /// # Errors
    /// [`PathError::Forbidden`].
    pub fn check_allowed(&self) -> Result<(), PathError> {
        let is_forbidden = match (self.key_at(0), self.key_at(1)) {
            (Some("apiVersion" | "kind" | "status"), _) => true,
            (Some("spec" | "metadata"), None) => self.steps.len() == 1,
            (Some("metadata"), Some("labels" | "annotations")) => {
                self.key_at(2).is_none_or(|key| key.starts_with(OWN_KEY_PREFIX))
            }
            (Some("metadata"), Some(field)) => FORBIDDEN_METADATA.contains(&field),
            _ => false,
        };
        if is_forbidden { Err(PathError::Forbidden { path: self.text.clone() }) } else { Ok(()) }
    }

    /// Returns the key that is a step, unless the step is an element of a list.
    fn key_at(&self, number: usize) -> Option<&str> {
        match self.steps.get(number) {
            Some(Step::Key(key)) => Some(key.as_str()),
            _ => None,
        }
    }

    /// Sets the field of an object, or removes it with `null`; maps on the way are made.
    ///
    /// # Errors
    /// [`PathError::NotFound`]; the object may then have new, empty maps.
    pub fn set_field(&self, object: &mut Value, value: Value) -> Result<(), PathError> {
        if value.is_null() {
            return self.remove_field(object);
        }
        let mut at = object;
        for (number, step) in self.steps.iter().enumerate() {
            let not_found = || self.not_found(number);
            at = match step {
                Step::Key(key) => {
                    if at.is_null() {
                        *at = Value::Object(Map::new());
                    }
                    at.as_object_mut().ok_or_else(not_found)?.entry(key.clone()).or_insert(Value::Null)
                }
                Step::Append => {
                    if at.is_null() {
                        *at = Value::Array(Vec::new());
                    }
                    let list = at.as_array_mut().ok_or_else(not_found)?;
                    list.push(Value::Null);
                    list.last_mut().ok_or_else(not_found)?
                }
                element => step_into(at, element).ok_or_else(not_found)?,
            };
        }
        *at = value;
        Ok(())
    }

    /// Removes the field of an object; a map without it is left as it is.
    ///
    /// # Errors
    /// [`PathError::NotFound`] if an element on the way is missing.
    pub fn remove_field(&self, object: &mut Value) -> Result<(), PathError> {
        let Some((last, way)) = self.steps.split_last() else { return Ok(()) };
        let mut at = object;
        for (number, step) in way.iter().enumerate() {
            if let (Step::Key(key), Some(map)) = (step, at.as_object())
                && map.get(key).is_none_or(Value::is_null)
            {
                return Ok(());
            }
            at = step_into(at, step).ok_or_else(|| self.not_found(number))?;
        }
        let not_found = || self.not_found(way.len());
        match last {
            Step::Key(key) => {
                at.as_object_mut().ok_or_else(not_found)?.remove(key);
            }
            Step::Append => {}
            element => {
                let list = at.as_array_mut().ok_or_else(not_found)?;
                let index = find_element(list, element).ok_or_else(not_found)?;
                list.remove(index);
            }
        }
        Ok(())
    }

    fn not_found(&self, step: usize) -> PathError {
        PathError::NotFound { path: self.text.clone(), missing: self.steps[step].to_string() }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn prints_as(value: &Value, text: &str) -> bool {
    match value {
        Value::String(string) => string == text,
        Value::Number(number) => number.to_string() == text,
        Value::Bool(is) => is.to_string() == text,
        _ => false,
    }
}

fn find_element(list: &[Value], step: &Step) -> Option<usize> {
    match step {
        Step::Index(index) => (*index < list.len()).then_some(*index),
        Step::Element { field, value } => {
            list.iter().position(|one| one.get(field).is_some_and(|found| prints_as(found, value)))
        }
        Step::Key(_) | Step::Append => None,
    }
}

fn step_into<'a>(at: &'a mut Value, step: &Step) -> Option<&'a mut Value> {
    if let Step::Key(key) = step {
        return at.as_object_mut()?.get_mut(key);
    }
    let list = at.as_array_mut()?;
    let index = find_element(list, step)?;
    list.get_mut(index)
}

fn parse_steps(text: &str) -> Result<Vec<Step>, &'static str> {
    let mut steps = Vec::new();
    let mut rest = text;
    // Whether a name has to follow, as at the beginning and after a dot.
    let mut wants_name = true;
    while !rest.is_empty() {
        if steps.last() == Some(&Step::Append) {
            return Err("nothing may follow `[-]`");
        }
        if let Some(inner) = rest.strip_prefix('[') {
            if wants_name && !steps.is_empty() {
                return Err("a name is missing after a dot");
            }
            let (step, after) = parse_bracket(inner)?;
            steps.push(step);
            rest = after;
        } else {
            if !steps.is_empty() {
                rest = match (wants_name, rest.strip_prefix('.')) {
                    (false, Some(after)) => after,
                    _ => return Err("a dot or a bracket must separate names"),
                };
            }
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
            if end == 0 {
                return Err("a name is missing");
            }
            steps.push(Step::Key(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        wants_name = false;
    }
    if steps.is_empty() { Err("it is empty") } else { Ok(steps) }
}

/// Reads what follows an opening bracket, and returns what comes after the closing one.
fn parse_bracket(inner: &str) -> Result<(Step, &str), &'static str> {
    const OPEN: &str = "a bracket is not closed";
    if let Some(quoted) = inner.strip_prefix('\'') {
        let (key, after) = quoted_key(quoted)?;
        let after = after.strip_prefix(']').ok_or(OPEN)?;
        return if key.is_empty() { Err("a key is empty") } else { Ok((Step::Key(key), after)) };
    }
    let (content, after) = inner.split_once(']').ok_or(OPEN)?;
    let step = match content.split_once('=') {
        _ if content == "-" => Step::Append,
        Some(("", _)) => return Err("a field is missing before `=`"),
        Some((field, value)) => Step::Element { field: field.to_owned(), value: value.to_owned() },
        None if !content.is_empty() && content.bytes().all(|b| b.is_ascii_digit()) => {
            Step::Index(content.parse().map_err(|_| "an index is too large")?)
        }
        None => return Err("a bracket contains an index, `field=value`, `-` or a quoted key"),
    };
    Ok((step, after))
}

/// Reads up to the closing quote; two quotes are one.
fn quoted_key(text: &str) -> Result<(String, &str), &'static str> {
    let mut key = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('\'').ok_or("a quote is not closed")?;
        key.push_str(part);
        match after.strip_prefix('\'') {
            Some(more) => {
                key.push('\'');
                rest = more;
            }
            None => return Ok((key, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(path: &str, value: Value) -> Result<Value, PathError> {
        let mut object = json!({ "spec": { "list": [{ "name": "a", "n": 1 }, { "name": "b", "n": 2 }], "it's": 1 } });
        let path = FieldPath::parse(path)?;
        path.check_allowed()?;
        path.set_field(&mut object, value)?;
        Ok(object)
    }

    #[test]
    fn paths_that_are_none_are_refused() {
        for path in [
            "", ".", "a.", ".a", "a..b", "a[", "a[]", "a[x]", "a['x]", "a['']", "a[1]b", "a[-].b", "a.[0]", "a]",
            "[=x]",
        ] {
            assert_eq!(FieldPath::parse(path).map_err(|error| error.code()), Err("BadFieldPath"), "{path}");
        }
        for path in ["a", "[0]", "['a.b']", "a['it''s'].b", "a[0][1]", "a[n=]", "a[-]"] {
            assert!(FieldPath::parse(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn fields_that_the_service_needs_are_refused() {
        for path in [
            "apiVersion",
            "['kind']",
            "status.x",
            "spec",
            "metadata",
            "metadata.uid",
            "metadata['finalizers'][0]",
            "metadata.labels",
            "metadata.annotations['fleet-scheduler.io/cluster']",
        ] {
            assert_eq!(set(path, json!("x")).map_err(|error| error.code()), Err("ForbiddenField"), "{path}");
        }
        assert!(set("metadata.labels.x", json!("y")).is_ok());
    }

    #[test]
    fn elements_are_found_by_what_their_field_prints_as() {
        assert_eq!(set("spec.list[n=2].name", json!("c")).unwrap()["spec"]["list"][1]["name"], "c");
        assert_eq!(set("spec['it''s']", json!(2)).unwrap()["spec"]["it's"], 2);
        assert_eq!(set("spec.list[n=3].name", json!("c")).map_err(|error| error.code()), Err("PathNotFound"));
        assert_eq!(set("spec.new[0]", json!("c")).map_err(|error| error.code()), Err("PathNotFound"));
    }

    #[test]
    fn removing_what_is_not_there_changes_nothing() {
        assert_eq!(set("spec.a.b.c", Value::Null), set("spec.x", Value::Null));
        assert_eq!(set("spec.list[5]", Value::Null).map_err(|error| error.code()), Err("PathNotFound"));
        assert_eq!(set("spec.list[0]", Value::Null).unwrap()["spec"]["list"].as_array().unwrap().len(), 1);
    }
}
