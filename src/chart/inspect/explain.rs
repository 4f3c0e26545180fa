//! Origin of a field of an object: the template's place, and for each part of it the values that decide it.
//!
//! The values that decide a part are not guessed from the template's text. Rendering is pure, so every input is changed
//! once and the changes in the objects are compared: that works through macros, loops and conditions alike.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::chart::diagnostic::{Diagnostics, Place};
use crate::chart::load::Chart;
use crate::chart::mask::MASK;
use crate::chart::output;
use crate::chart::patch::PatchedBy;
use crate::chart::render::{Leaf, Piece, RenderInput, Trace};
use crate::chart::values::{OriginOf, ValuesTree, plain_json};
use crate::chart::yaml::node::show_path;

/// Reason that a field cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// Not `kind/name#path`.
    #[error("`{0}` is not a field: write `kind/name#path`, such as `deployment/fleet-scheduler#spec.replicas`")]
    Syntax(String),
    /// No object of that name.
    #[error("the chart does not render `{asked}`; rendered objects: {known}")]
    NoObject {
        /// The `kind/name` that was asked for.
        asked: String,
        /// All objects, for people.
        known: String,
    },
    /// The object has no such field.
    #[error("`{object}` has no `{path}`; `{above}` has {known}")]
    NoField {
        /// The object.
        object: String,
        /// The path that was asked for.
        path: String,
        /// The deepest part of the path that exists.
        above: String,
        /// Keys or number of entries below that, for people.
        known: String,
    },
    /// The chart does not render.
    #[error(transparent)]
    Render(#[from] Diagnostics),
}

/// An input that decides a part of a field, its presence, or a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Input {
    /// Its name in templates: `values.images.etcd.tag`, `release.namespace`.
    pub name: String,
    /// Place at which it was given, and what it overrode; only for values.
    pub origin: Option<OriginOf>,
    /// The values that decide it, for facts; a cluster may have a say in them too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decided_by: Vec<Self>,
}

/// The values that decide a fact: its path below `facts`, and theirs below `values`, both as written: `exposure.host`.
pub type DecidedBy = (&'static str, &'static [&'static str]);

/// A part of a field: text of the template, or an expression.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartOf {
    /// The text that it gives, masked if it comes from a secret.
    pub text: String,
    /// The expression as written, and its place; `None` for text of the template.
    pub expression: Option<(String, Place)>,
    /// The inputs that decide it.
    pub inputs: Vec<Input>,
}

/// Origin of one field: its template, the inputs that decide it, and the patches that change it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// `deployment/fleet-scheduler`.
    pub object: String,
    /// `spec.replicas`.
    pub path: String,
    /// Its value, masked if it comes from a secret.
    pub value: Value,
    /// The line of the template that it stands on.
    pub template: Option<Place>,
    /// Parts that the value is made of, in order.
    pub parts: Vec<PartOf>,
    /// The inputs that decide whether it is there at all.
    pub presence: Vec<Input>,
    /// Patches that change it after the template, in order; the value is that after the last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<PatchedBy>,
}

impl Explanation {
    /// The text for people, ending with a line break.
    pub fn render_explanation(&self) -> String {
        let mut text = format!("{}#{} = {}\n", self.object, self.path, plain_json(&self.value));
        for patch in self.patches.iter().rev() {
            let _ = writeln!(text, "  patch {}: {}", patch.place.format_position(), patch.place.text.trim());
            if let Some(before) = &patch.before {
                let _ = writeln!(text, "    instead of {}", plain_json(before));
            }
        }
        if let Some(place) = &self.template {
            let _ = writeln!(text, "  template {}", place.format_position());
        }
        for part in &self.parts {
            if let Some((expression, place)) = &part.expression {
                let _ = writeln!(text, "  {expression} = {} at {}", part.text, place.format_position());
                write_inputs(&mut text, &part.inputs, 4);
            } else if self.parts.len() > 1 {
                let _ = writeln!(text, "  {:?}: text of the template", part.text);
            }
        }
        if !self.presence.is_empty() {
            text.push_str("  is rendered because of\n");
            write_inputs(&mut text, &self.presence, 4);
        }
        text
    }
}

fn write_inputs(text: &mut String, inputs: &[Input], indent: usize) {
    for input in inputs {
        let _ = write!(text, "{:indent$}{}", "", input.name);
        match &input.origin {
            Some(origin) => {
                let _ = writeln!(text, " from {}: {}", origin.place.format_position(), origin.place.text.trim());
                for place in &origin.overrode {
                    let _ =
                        writeln!(text, "{:indent$}  instead of {}: {}", "", place.format_position(), place.text.trim());
                }
            }
            None if input.decided_by.is_empty() => text.push('\n'),
            None => text.push_str(", which depends on the cluster and on:\n"),
        }
        write_inputs(text, &input.decided_by, indent + 2);
    }
}

/// Parses a path such as `spec.containers[0].image` or `metadata.labels["a.b/c"]`; `None` if it is malformed.
pub(crate) fn parse_path(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let (key, after) = quoted.split_once("\"]")?;
            parts.push(key.to_owned());
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('[') {
            let (index, after) = inner.split_once(']')?;
            index.parse::<usize>().ok()?;
            parts.push(index.to_owned());
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            parts.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
        rest = match rest.strip_prefix('.') {
            Some("") => return None,
            Some(after) => after,
            None => rest,
        };
    }
    Some(parts)
}

pub(in crate::chart) fn find_value_at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, part| match value {
        Value::Object(map) => map.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The object of that name; objects of the cluster take precedence over those inside the control plane.
fn find_trace<'t>(traces: &'t [Trace], id: &str) -> Option<&'t Trace> {
    let mut named = traces.iter().filter(|trace| trace.object.id().eq_ignore_ascii_case(id));
    named.clone().find(|trace| !trace.object.stage_name.is_empty()).or_else(|| named.next())
}

/// The object of a trace in another rendering of its file: that of its name, or in its place where it has got another.
fn find_same_trace<'t>(changed: &'t [Trace], trace: &Trace, before: &[Trace]) -> Option<&'t Trace> {
    let after: Vec<&Trace> = changed.iter().filter(|other| other.file == trace.file).collect();
    let id = trace.object.id();
    let same = after.iter().copied().find(|other| other.object.id() == id);
    let place = before.iter().filter(|other| other.file == trace.file).position(|other| other.object.id() == id);
    let count = before.iter().filter(|other| other.file == trace.file).count();
    same.or_else(|| if after.len() == count { after.get(place?).copied() } else { None })
}

/// The leaves that make up a field: the leaf itself, those below it, or the one above whose value holds it.
fn find_field_leaves<'t>(trace: &'t Trace, path: &[String]) -> Vec<&'t Leaf> {
    let below: Vec<&Leaf> = trace.leaves.iter().filter(|leaf| leaf.path.starts_with(path)).collect();
    if !below.is_empty() {
        return below;
    }
    let holding = trace.leaves.iter().filter(|leaf| match leaf.path.split_last() {
        Some((last, above)) if last == "<<" => path.starts_with(above)
            && leaf.pieces.iter().any(
                |piece| matches!(piece, Piece::Value(value, _) if find_value_at(value, &path[above.len()..]).is_some()),
            ),
        _ => path.starts_with(&leaf.path),
    });
    holding.max_by_key(|leaf| leaf.path.len()).into_iter().collect()
}

/// One changed input: its name, whether it is secret, and the origin of a value.
struct ChangedInput {
    input: Input,
    secret: bool,
    changed: RenderInput,
}

/// Returns a different value of the same type: text for text, a number for a number.
fn change_value(value: &Value) -> Value {
    match value {
        Value::Null => Value::String("changed".to_owned()),
        Value::Bool(value) => Value::Bool(!value),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| Value::from(0), |number| Value::from(number.wrapping_add(1)))
        }
        Value::String(text) => Value::String(format!("{text}-changed")),
        Value::Array(_) => serde_json::json!(["changed"]),
        Value::Object(_) => serde_json::json!({"changed": "changed"}),
    }
}

pub(in crate::chart) fn each_leaf(value: &Value, path: &mut Vec<String>, visit: &mut impl FnMut(&[String], &Value)) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, below) in map {
                path.push(key.clone());
                each_leaf(below, path, visit);
                path.pop();
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, below) in items.iter().enumerate() {
                path.push(index.to_string());
                each_leaf(below, path, visit);
                path.pop();
            }
        }
        leaf => visit(path, leaf),
    }
}

pub(crate) fn replace_value(value: &mut Value, path: &[String], with: Value) {
    let slot = path.iter().try_fold(value, |value, part| match value {
        Value::Object(map) => map.get_mut(part),
        Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
        _ => None,
    });
    if let Some(slot) = slot {
        *slot = with;
    }
}

/// Returns the values that decide a fact, as far as they are in `values`.
fn find_deciding_inputs(fact: &[String], decided_by: &[DecidedBy], values: &ValuesTree) -> Vec<Input> {
    let rules = decided_by.iter().filter(|(name, _)| fact.starts_with(&parse_path(name).unwrap_or_default()));
    let inputs = rules.flat_map(|(_, paths)| paths.iter()).filter_map(|path| {
        let origin = values.find_origin(&parse_path(path).unwrap_or_default())?;
        Some(Input { name: format!("values.{path}"), origin: Some(origin), decided_by: Vec::new() })
    });
    inputs.collect()
}

fn build_changed_inputs(input: &RenderInput, values: &ValuesTree, decided_by: &[DecidedBy]) -> Vec<ChangedInput> {
    type Pick = fn(&mut RenderInput) -> &mut Value;
    let roots: [(&str, &Value, Pick); 3] = [
        ("values", &input.values, |input| &mut input.values),
        ("release", &input.release, |input| &mut input.release),
        ("facts", &input.facts, |input| &mut input.facts),
    ];
    let mut found = Vec::new();
    for (name, root, pick) in roots {
        each_leaf(root, &mut Vec::new(), &mut |path, leaf| {
            let mut changed = input.clone();
            replace_value(pick(&mut changed), path, change_value(leaf));
            let is_value = name == "values";
            let mut full = vec![name.to_owned()];
            full.extend_from_slice(path);
            let origin = if is_value { values.find_origin(path) } else { None };
            let decided_by = if name == "facts" { find_deciding_inputs(path, decided_by, values) } else { Vec::new() };
            let secret = is_value && values.is_secret(path);
            found.push(ChangedInput { input: Input { name: show_path(&full), origin, decided_by }, secret, changed });
        });
    }
    for name in input.pki.keys() {
        let mut changed = input.clone();
        changed.pki.insert(name.clone(), "changed".to_owned());
        let name = show_path(&["pki".to_owned(), name.clone()]);
        found.push(ChangedInput { input: Input { name, origin: None, decided_by: Vec::new() }, secret: true, changed });
    }
    found
}

fn known_below(value: &Value) -> String {
    match value {
        Value::Object(map) => map.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "),
        Value::Array(items) => format!("{} entries", items.len()),
        _ => "nothing below it".to_owned(),
    }
}

/// Explains a field, `deployment/fleet-scheduler#spec.replicas`; for a mapping or list, every leaf of it.
///
/// `values` must be what `input.values` was made of; build it with
/// [`ValuesBuilder::build_checked`](crate::chart::ValuesBuilder::build_checked), so that secrets are known. `decided_by` says for
/// facts what templates cannot show: which values they were made of.
///
/// # Errors
/// [`ExplainError`].
pub fn explain_rendered_field(
    chart: &Chart,
    input: &RenderInput,
    values: &ValuesTree,
    decided_by: &[DecidedBy],
    field: &str,
) -> Result<Vec<Explanation>, ExplainError> {
    let parsed = field.split_once('#').filter(|(id, _)| id.contains('/'));
    let parsed = parsed.and_then(|(id, path)| Some((id, parse_path(path)?)));
    let (id, path) = parsed.ok_or_else(|| ExplainError::Syntax(field.to_owned()))?;
    let renderer = chart.renderer()?;
    let traces = renderer.trace_leaves(input, None)?;
    let Some(trace) = find_trace(&traces, id) else {
        let known: Vec<String> = traces.iter().map(|trace| trace.object.id()).collect();
        return Err(ExplainError::NoObject { asked: id.to_owned(), known: known.join(", ") });
    };
    if find_value_at(&trace.object.json, &path).is_none() {
        let depth = (0..path.len())
            .rev()
            .find(|&depth| find_value_at(&trace.object.json, &path[..depth]).is_some())
            .unwrap_or(0);
        let above = find_value_at(&trace.object.json, &path[..depth]).unwrap_or(&Value::Null);
        return Err(ExplainError::NoField {
            object: trace.object.id(),
            path: show_path(&path),
            above: if depth == 0 { "the object".to_owned() } else { show_path(&path[..depth]) },
            known: known_below(above),
        });
    }
    let asked = find_field_leaves(trace, &path);
    let is_secret_data = trace.object.kind() == "Secret";
    let mut explained: Vec<Explanation> = asked
        .iter()
        .map(|leaf| {
            let field = find_explained_path(leaf, &path);
            let parts = leaf.pieces.iter().map(|piece| match piece {
                Piece::Text(text) => PartOf { text: text.clone(), expression: None, inputs: Vec::new() },
                Piece::Value(value, site) => PartOf {
                    text: plain_json(value),
                    expression: site.map(|site| (renderer.site_text(site).to_owned(), renderer.site_place(site))),
                    inputs: Vec::new(),
                },
            });
            Explanation {
                object: trace.object.id(),
                path: show_path(&field),
                value: find_value_at(&trace.object.json, &field).cloned().unwrap_or_default(),
                template: leaf.origin.map(|(template, line)| renderer.line_place(template, line)),
                parts: parts.collect(),
                presence: Vec::new(),
                patches: Vec::new(),
            }
        })
        .collect();
    for change in build_changed_inputs(input, values, decided_by) {
        // A change that a template does not understand says nothing.
        let Ok(changed) = renderer.trace_leaves(&change.changed, Some(&trace.file)) else { continue };
        let changed = find_same_trace(&changed, trace, &traces);
        for (leaf, explained) in asked.iter().zip(&mut explained) {
            let now = changed.and_then(|trace| trace.leaves.iter().find(|now| now.path == leaf.path));
            let Some(now) = now.filter(|now| now.pieces.len() == leaf.pieces.len()) else {
                explained.presence.push(change.input.clone());
                continue;
            };
            for ((before, after), part) in leaf.pieces.iter().zip(&now.pieces).zip(&mut explained.parts) {
                if before != after {
                    part.inputs.push(change.input.clone());
                    if change.secret {
                        MASK.clone_into(&mut part.text);
                        explained.value = Value::String(MASK.to_owned());
                    }
                }
            }
        }
    }
    for place in explained.iter_mut().flat_map(template_places_mut) {
        in_line(chart, place);
    }
    for (leaf, explained) in asked.iter().zip(&mut explained) {
        if is_secret_data && leaf.path.first().is_some_and(|first| first == "data" || first == "stringData") {
            explained.value = Value::String(MASK.to_owned());
            for part in &mut explained.parts {
                MASK.clone_into(&mut part.text);
            }
        }
    }
    Ok(explained)
}

/// The field that a leaf stands for where `asked` is to be explained.
fn find_explained_path(leaf: &Leaf, asked: &[String]) -> Vec<String> {
    match leaf.path.split_last() {
        // What is merged into a mapping is explained as that mapping.
        Some((last, above)) if last == "<<" && above.starts_with(asked) => above.to_vec(),
        _ if leaf.path.starts_with(asked) => leaf.path.clone(),
        _ => asked.to_vec(),
    }
}

/// The places in templates that an explanation names.
fn template_places_mut(explained: &mut Explanation) -> impl Iterator<Item = &mut Place> {
    let expressions = explained.parts.iter_mut().filter_map(|part| part.expression.as_mut());
    explained.template.iter_mut().chain(expressions.map(|(_, place)| place))
}

/// Names a template by the chart line that is rendered, as `show templates` does, also where it lies in an older line.
fn in_line(chart: &Chart, place: &mut Place) {
    let rest = place.source.strip_prefix(&format!("charts/{}/", chart.kind())).and_then(|rest| rest.split_once('/'));
    if let Some((_, name)) = rest {
        place.source = format!("charts/{}/{}/{name}", chart.kind(), chart.line());
    }
}

/// Explanations as text for people, an empty line between two.
pub fn render_explanations(explanations: &[Explanation]) -> String {
    let texts: Vec<String> = explanations.iter().map(Explanation::render_explanation).collect();
    texts.join("\n")
}

/// Explanations as JSON for programs.
pub fn render_json(explanations: &[Explanation]) -> String {
    output::format_json(&explanations)
}
