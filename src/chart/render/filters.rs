//! Filters, functions and tests of templates. All work on values, before they become tokens; what is handed a token
//! (the outcome of a macro) refuses it, because text functions would take the token for the text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base64::Engine as _;
use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use serde_json::{Map, Number, Value as Json};

use super::template::has_mark;

/// Name of the hidden variable that says whether the input itself holds a character of marks and tokens.
pub(super) const MARKS_IN_INPUT: &str = "__marks";

/// The deepest value that is taken out of a template.
const MAX_DEPTH: usize = 64;

fn filter_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Reason that a value of a template is not data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chart) enum NoData {
    Undefined,
    Function,
    Token,
    Key,
    Deep,
    Number,
}

impl NoData {
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Undefined => "this is undefined",
            Self::Function => "this is a macro or a function, not a value: call it",
            Self::Token => "this contains the output of a macro, which can only be printed unchanged",
            Self::Key => "this is a mapping with a key that is not text",
            Self::Deep => "this value is nested too deeply",
            Self::Number => "this number is not finite or too large",
        }
    }
}

/// Converts a template's value to JSON. `marks` says that the input itself holds characters of marks and tokens, so
/// that finding them proves nothing.
pub(super) fn to_json(value: &Value, marks: bool) -> Result<Json, NoData> {
    convert_value(value, marks, 0)
}

fn convert_value(value: &Value, marks: bool, depth: usize) -> Result<Json, NoData> {
    if depth > MAX_DEPTH {
        return Err(NoData::Deep);
    }
    match value.kind() {
        ValueKind::Undefined => Err(NoData::Undefined),
        ValueKind::None => Ok(Json::Null),
        ValueKind::Bool => Ok(Json::Bool(value.is_true())),
        ValueKind::Number => convert_number(value).ok_or(NoData::Number),
        ValueKind::String => {
            let text = value.as_str().ok_or(NoData::Function)?;
            if value.is_safe() || (!marks && has_mark(text)) {
                return Err(NoData::Token);
            }
            Ok(Json::String(text.to_owned()))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter().map_err(|_| NoData::Function)?;
            items.map(|item| convert_value(&item, marks, depth + 1)).collect::<Result<Vec<_>, _>>().map(Json::Array)
        }
        ValueKind::Map if is_engines_own(value) => Err(NoData::Function),
        ValueKind::Map => {
            let mut map = Map::new();
            for key in value.try_iter().map_err(|_| NoData::Function)? {
                let below = value.get_item(&key).map_err(|_| NoData::Function)?;
                let Json::String(key) = convert_value(&key, marks, depth + 1)? else { return Err(NoData::Key) };
                map.insert(key, convert_value(&below, marks, depth + 1)?);
            }
            Ok(Json::Object(map))
        }
        _ => Err(NoData::Function),
    }
}

/// Returns whether it is a macro, a module or a loop, which the engine presents as mappings.
fn is_engines_own(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().starts_with("minijinja::vm::"))
}

fn convert_number(value: &Value) -> Option<Json> {
    if value.is_integer() {
        let signed = value.as_i64().map(Number::from);
        return signed.or_else(|| u64::try_from(value.clone()).ok().map(Number::from)).map(Json::Number);
    }
    Number::from_f64(f64::try_from(value.clone()).ok()?).map(Json::Number)
}

/// Converts a value to data, or returns an error with the reason that it is none.
fn require_data(state: &State<'_, '_>, value: &Value) -> Result<Json, Error> {
    let marks = state.lookup(MARKS_IN_INPUT).is_some_and(|value| value.is_true());
    to_json(value, marks).map_err(|why| {
        let kind = if why == NoData::Undefined { ErrorKind::UndefinedError } else { ErrorKind::InvalidOperation };
        Error::new(kind, why.message())
    })
}

/// Text, or a number or boolean as text.
fn require_text(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    scalar_text(&require_data(state, value)?)
        .ok_or_else(|| filter_error(format!("text is needed here, not a value of type {}", value.kind())))
}

/// Returns a scalar as it reads inside other text; `None` for null, lists and mappings.
pub(in crate::chart) fn scalar_text(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(value) => Some(value.to_string()),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

fn require_list(state: &State<'_, '_>, value: &Value) -> Result<Vec<Json>, Error> {
    match require_data(state, value)? {
        Json::Array(items) => Ok(items),
        _ => Err(filter_error(format!("a list is needed here, not a value of type {}", value.kind()))),
    }
}

fn require_map(state: &State<'_, '_>, value: &Value) -> Result<Map<String, Json>, Error> {
    match require_data(state, value)? {
        Json::Object(map) => Ok(map),
        _ => Err(filter_error(format!("a mapping is needed here, not a value of type {}", value.kind()))),
    }
}

fn to_template_value(value: &Json) -> Value {
    Value::from(minijinja::value::Serde(value))
}

fn count_items(state: &State<'_, '_>, value: &Value) -> Result<usize, Error> {
    match require_data(state, value)? {
        Json::Array(items) => Ok(items.len()),
        Json::Object(map) => Ok(map.len()),
        Json::String(text) => Ok(text.chars().count()),
        _ => Err(filter_error(format!("a value of type {} has no length", value.kind()))),
    }
}

fn replace_null(value: &Value, instead: &Value) -> Value {
    if value.is_none() { instead.clone() } else { value.clone() }
}

fn join_texts(state: &State<'_, '_>, value: &Value, between: Option<&str>) -> Result<String, Error> {
    let texts: Result<Vec<String>, Error> = require_list(state, value)?
        .iter()
        .map(|item| scalar_text(item).ok_or_else(|| filter_error("only text, numbers and booleans can be joined")))
        .collect();
    Ok(texts?.join(between.unwrap_or("")))
}

fn sort_items(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let mut items = require_list(state, value)?;
    items.sort_by_cached_key(crate::chart::output::canonical_json);
    Ok(to_template_value(&Json::Array(items)))
}

fn remove_duplicates(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let mut seen = BTreeSet::new();
    let mut items = require_list(state, value)?;
    items.retain(|item| seen.insert(crate::chart::output::canonical_json(item)));
    Ok(to_template_value(&Json::Array(items)))
}

fn merge_maps(state: &State<'_, '_>, value: &Value, others: &[Value]) -> Result<Value, Error> {
    let mut merged = require_map(state, value)?;
    for other in others {
        if !other.is_none() {
            merged.extend(require_map(state, other)?);
        }
    }
    Ok(to_template_value(&Json::Object(merged)))
}

/// Indents every line but the first. It only moves text, so macros may be indented.
fn indent_lines(value: &Value, width: usize) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return Err(filter_error("only the output of a macro can be indented")) };
    if !value.is_safe() {
        return Err(filter_error("only the output of a macro can be indented; a value needs no indentation"));
    }
    let mut moved = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            moved.push('\n');
            if !line.trim().is_empty() {
                let _ = write!(moved, "{:width$}", "");
            }
        }
        moved.push_str(line);
    }
    Ok(Value::from_safe_string(moved))
}

/// Adds the filters, functions and tests to an empty environment.
pub(super) fn add_to(env: &mut Environment<'static>) {
    use minijinja::{functions, tests};

    env.add_filter("b64encode", |state: &State<'_, '_>, value: &Value| {
        require_text(state, value).map(|text| base64::engine::general_purpose::STANDARD.encode(text))
    });
    env.add_filter("digest", |state: &State<'_, '_>, value: &Value| {
        require_data(state, value).map(|value| crate::chart::values::digest_value(&value))
    });
    env.add_filter("json", |state: &State<'_, '_>, value: &Value| {
        require_data(state, value).map(|value| crate::chart::output::canonical_json(&value))
    });
    env.add_filter("default", |value: &Value, instead: &Value| replace_null(value, instead));
    env.add_filter("join", join_texts);
    env.add_filter("length", count_items);
    env.add_filter("indent", |value: &Value, width: usize| indent_lines(value, width));
    env.add_filter("string", require_text);
    env.add_filter("lower", |state: &State<'_, '_>, value: &Value| {
        require_text(state, value).map(|text| text.to_lowercase())
    });
    env.add_filter("upper", |state: &State<'_, '_>, value: &Value| {
        require_text(state, value).map(|text| text.to_uppercase())
    });
    env.add_filter("trim", |state: &State<'_, '_>, value: &Value| {
        require_text(state, value).map(|text| text.trim().to_owned())
    });
    env.add_filter("replace", |state: &State<'_, '_>, value: &Value, from: &str, to: &str| {
        require_text(state, value).map(|text| text.replace(from, to))
    });
    env.add_filter("split", |state: &State<'_, '_>, value: &Value, at: &str| {
        require_text(state, value).map(|text| text.split(at).map(ToOwned::to_owned).collect::<Value>())
    });
    env.add_filter("first", |state: &State<'_, '_>, value: &Value| {
        require_list(state, value)?
            .first()
            .map(to_template_value)
            .ok_or_else(|| filter_error("an empty list has no first entry"))
    });
    env.add_filter("last", |state: &State<'_, '_>, value: &Value| {
        require_list(state, value)?
            .last()
            .map(to_template_value)
            .ok_or_else(|| filter_error("an empty list has no last entry"))
    });
    env.add_filter("sort", sort_items);
    env.add_filter("unique", remove_duplicates);
    env.add_filter("merge", |state: &State<'_, '_>, value: &Value, others: Rest<Value>| {
        merge_maps(state, value, &others)
    });
    env.add_filter("keys", |state: &State<'_, '_>, value: &Value| {
        require_map(state, value).map(|map| map.keys().cloned().collect::<Value>())
    });
    env.add_filter("items", |state: &State<'_, '_>, value: &Value| {
        require_map(state, value).map(|map| {
            map.iter()
                .map(|(key, value)| Value::from(vec![Value::from(key.as_str()), to_template_value(value)]))
                .collect::<Value>()
        })
    });

    env.add_function("range", functions::range);
    env.add_function("namespace", functions::namespace);
    env.add_function("dict", functions::dict);

    env.add_test("none", tests::is_none);
    env.add_test("boolean", tests::is_boolean);
    env.add_test("string", tests::is_string);
    env.add_test("number", tests::is_number);
    env.add_test("integer", tests::is_integer);
    env.add_test("mapping", tests::is_mapping);
    env.add_test("sequence", tests::is_sequence);
    env.add_test("odd", tests::is_odd);
    env.add_test("even", tests::is_even);
    env.add_test("in", tests::is_in);
    env.add_test("startingwith", tests::is_startingwith);
    env.add_test("endingwith", tests::is_endingwith);
}
