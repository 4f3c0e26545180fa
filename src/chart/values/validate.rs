//! Checks merged values against their schema and says what is wrong where it was written.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::Value;

use crate::api::util::text::describe_foreign_character;
use crate::api::version::ServiceLine;
use crate::chart::diagnostic::Diagnostic;
use crate::chart::yaml::node::{Data, Entry, Node, Origin, Sources, show_path};
use crate::chart::yaml::scalar::{Unclear, shorten_text};

use super::assign::Assignment;
use super::schema::{Schema, Views, plain_json};
use super::suggest::find_nearest_word;
use super::tree::RECORDED;
use crate::chart::fast::schema::check_schema_fit;

/// Largest number of problems that are shown in one run.
const MAX_SHOWN: usize = 50;

/// One layer of values, before merging.
pub(super) enum Layer<'l> {
    Tree(&'l Node),
    Set(&'l Assignment),
}

/// The spans that must never be shown: values that the schema calls secret, and values of keys that it does not know,
/// because a misspelt key may have been meant to be a secret one.
pub(super) fn secret_spans(schema: &Value, layer: &Layer<'_>) -> Vec<Origin> {
    let schema = Schema::new(schema);
    let mut spans = Vec::new();
    match layer {
        Layer::Tree(node) => collect_secrets(node, Some(&schema.root_views()), &mut spans),
        Layer::Set(assignment) => {
            collect_secrets(&assignment.node, schema.views_at(&assignment.path_keys()).as_ref(), &mut spans);
        }
    }
    spans
}

fn collect_secrets(node: &Node, views: Option<&Views<'_>>, spans: &mut Vec<Origin>) {
    let Some(views) = views.filter(|views| !views.is_secret()) else {
        spans.push(node.origin);
        return;
    };
    match &node.data {
        Data::Map(map) => {
            for (key, entry) in &map.entries {
                collect_secrets(&entry.node, views.child_views(key).as_ref(), spans);
            }
        }
        Data::List(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_secrets(item, views.child_views(&index.to_string()).as_ref(), spans);
            }
        }
        _ => {}
    }
}

struct ValueCheck<'c> {
    schema: Schema<'c>,
    sources: &'c Sources,
    line: Option<ServiceLine>,
    /// Sources from this number on are the user's.
    user_from: u32,
    found: Vec<(Origin, Diagnostic)>,
    /// Number of unknown keys that were found but not kept.
    left_out: usize,
    /// Paths of which a problem is reported already; no more is reported of them, or below them.
    done: Vec<Vec<String>>,
}

/// Decides what plain scalars are, then checks everything but the text that `right` values have too. Errors and warnings
/// come in the order of their places.
pub(super) fn validate_values(
    root: &mut Node,
    schema: &Value,
    sources: &Sources,
    line: Option<ServiceLine>,
    user_from: u32,
    right: Option<&Value>,
) -> Vec<Diagnostic> {
    let mut check = ValueCheck {
        schema: Schema::new(schema),
        sources,
        line,
        user_from,
        found: Vec::new(),
        left_out: 0,
        done: Vec::new(),
    };
    let views = check.schema.root_views();
    check.settle_scalars(root, &views, &mut Vec::new());
    let value = root.to_json();
    if check_schema_fit(schema, &value, right) != Some(true) {
        let validator = match jsonschema::validator_for(schema) {
            Ok(validator) => validator,
            Err(error) => return vec![Diagnostic::error("schema", format!("the schema is wrong: {}", error.masked()))],
        };
        for error in validator.iter_errors(&value) {
            check.report_schema_error(root, &error);
        }
    }
    check.into_diagnostics()
}

/// Returns advice on what to write where a null deleted a required value.
fn instead_of_null(wanted: &Views<'_>) -> &'static str {
    match (wanted.named_types().contains("array"), wanted.named_types().contains("object")) {
        (true, _) => "for an empty list, write `[]`, or `{}` in `--set`; leave it out for the default",
        (_, true) => "leave it out for the default, or delete single keys below it",
        _ => "leave it out for the default",
    }
}

impl ValueCheck<'_> {
    fn push_diagnostic(&mut self, origin: Origin, diagnostic: Diagnostic) {
        self.found.push((origin, diagnostic));
    }

    /// Returns the problems in the order of their places, each once, with its place; only the first [`MAX_SHOWN`], and
    /// the number of the others.
    fn into_diagnostics(mut self) -> Vec<Diagnostic> {
        self.found.sort_by_key(|(origin, _)| (origin.source, origin.start));
        self.found.dedup();
        let more = self.found.len().saturating_sub(MAX_SHOWN) + self.left_out;
        self.found.truncate(MAX_SHOWN);
        let sources = self.sources;
        let placed = self.found.into_iter().map(|(origin, diagnostic)| diagnostic.at(sources.place_at(origin)));
        placed.chain(Diagnostic::more_errors(more)).collect()
    }

    fn report_wrong_value(
        &mut self,
        path: &[String],
        origin: Origin,
        diagnostic: Diagnostic,
        views: Option<&Views<'_>>,
    ) {
        let mut diagnostic = diagnostic.path(show_path(path));
        if let Some(sentence) = views.and_then(Views::first_sentence) {
            diagnostic = diagnostic.note(format!("`{}`: {sentence}", show_path(path)));
        }
        self.push_diagnostic(origin, diagnostic);
        self.done.push(path.to_vec());
    }

    /// Decides by the schema what a plain scalar is: text keeps the text as it was written.
    fn settle_scalars(&mut self, node: &mut Node, views: &Views<'_>, path: &mut Vec<String>) {
        if let (Some(since), Some(line)) = (views.since_line(), self.line)
            && since > line
            && node.origin.source >= self.user_from
            && node.data != Data::Null
        {
            let message = format!("`{}` needs {since} or newer; the selected version is {line}", show_path(path));
            let diagnostic = Diagnostic::error("needs-newer-version", message)
                .help(format!("leave it out, or choose `--version {since}`"));
            self.report_wrong_value(path, node.origin, diagnostic, None);
            return;
        }
        self.unknown_nulls(node, views, path);
        match &mut node.data {
            Data::Map(map) => {
                for (key, entry) in &mut map.entries {
                    if let Some(views) = views.child_views(key) {
                        path.push(key.clone());
                        self.settle_scalars(&mut entry.node, &views, path);
                        path.pop();
                    }
                }
                return;
            }
            Data::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let part = index.to_string();
                    if let Some(views) = views.child_views(&part) {
                        path.push(part);
                        self.settle_scalars(item, &views, path);
                        path.pop();
                    }
                }
                return;
            }
            _ => {}
        }
        let Some(raw) = node.raw.clone() else {
            if let Data::Number(number) = &node.data
                && number.is_f64()
                && views.allows_type("integer")
                && !views.allows_type("number")
            {
                let shown = if views.is_secret() { "this".to_owned() } else { format!("`{number}`") };
                let message = format!("{shown} is not written as an integer");
                let expected = format!("expected {}", views.describe_expected());
                self.report_wrong_value(
                    path,
                    node.origin,
                    Diagnostic::error("wrong-type", message).label(expected),
                    Some(views),
                );
            }
            return;
        };
        let native = match &node.data {
            Data::Bool(_) => views.allows_type("boolean"),
            Data::Number(number) if number.is_f64() => views.allows_type("number"),
            Data::Number(_) => views.allows_type("integer") || views.allows_type("number"),
            _ => false,
        };
        if native || node.data == Data::Null {
            return;
        }
        if let Data::Unclear(why) = node.data {
            self.settle_unclear(node, why, &raw, views, path);
        } else if views.allows_type("string") {
            node.data = Data::Text(raw.into());
        } else if let Data::Number(number) = &node.data
            && number.is_f64()
            && views.allows_type("integer")
        {
            let shown = if views.is_secret() { "this" } else { &*raw };
            let message = format!("`{shown}` is not written as an integer");
            let diagnostic =
                Diagnostic::error("wrong-type", message).label(format!("expected {}", views.describe_expected()));
            self.report_wrong_value(path, node.origin, diagnostic, Some(views));
        }
    }

    /// Reports unknown keys whose value is null, which no validator sees. One that deletes what another source has given is
    /// right, and so are recorded ones, which may be of values that an earlier line had.
    fn unknown_nulls(&mut self, node: &Node, views: &Views<'_>, path: &[String]) {
        let Data::Map(map) = &node.data else { return };
        if !views.is_closed() {
            return;
        }
        let known = views.property_keys();
        for (key, Entry { node: null, .. }) in &map.entries {
            let takes_back = null.overrode.iter().any(|origin| origin.source != null.origin.source);
            let is_new = null.data == Data::Null && !takes_back && null.origin.source >= self.user_from;
            if !is_new || known.contains(key.as_str()) || self.sources.source_at(null.origin).name == RECORDED {
                continue;
            }
            if self.found.len() < 4 * MAX_SHOWN {
                self.unknown_key(node, path, key, Some(views));
            } else {
                self.left_out += 1;
            }
        }
    }

    fn settle_unclear(&mut self, node: &mut Node, why: Unclear, raw: &str, views: &Views<'_>, path: &[String]) {
        if let (Unclear::Bool(value), true) =
            (why, views.allows_type("boolean") && !views.named_types().contains("string"))
        {
            node.data = Data::Bool(value);
            let message = format!("`{raw}` is read as the boolean `{value}`");
            let place = node.origin;
            self.push_diagnostic(
                place,
                Diagnostic::warning("yaml-1.1-boolean", message).path(show_path(path)).help(format!("write `{value}`")),
            );
            return;
        }
        if views.allows_type("string") {
            node.data = Data::Text(raw.to_owned());
            return;
        }
        let (message, help) = why.explain_problem(raw);
        let diagnostic = Diagnostic::error("unclear-scalar", message)
            .label(format!("expected {}", views.describe_expected()))
            .help(help);
        self.report_wrong_value(path, node.origin, diagnostic, Some(views));
    }

    /// Turns an error of the validator into one that points at what was written.
    fn report_schema_error(&mut self, root: &Node, error: &ValidationError<'_>) {
        let path: Vec<String> = error.instance_path().into_iter().map(|part| part.to_string()).collect();
        if self.done.iter().any(|done| path.starts_with(done)) {
            return;
        }
        let views = self.schema.views_at(&path);
        let views = views.as_ref();
        let node = root.find_nearest(&path);
        let shown = match (views.is_some_and(Views::is_secret), &node.data) {
            (true, _) | (_, Data::Map(_) | Data::List(_)) => node.type_name().to_owned(),
            (false, Data::Text(text)) => format!("`{}`", shorten_text(text)),
            (false, _) => format!("`{}`", shorten_text(&plain_json(&node.to_json()))),
        };
        let place = show_path(&path);
        let expected = views.map_or_else(String::new, |views| format!("expected {}", views.describe_expected()));
        match error.kind() {
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                self.left_out += unexpected.len().saturating_sub(MAX_SHOWN);
                for key in unexpected.iter().take(MAX_SHOWN) {
                    self.unknown_key(node, &path, key, views);
                }
            }
            Kind::Required { property } => {
                let name = plain_json(property);
                let mut below = path.clone();
                below.push(name.clone());
                let wanted = self.schema.views_at(&below);
                let message = format!("`{}` is missing", show_path(&below));
                let null = root.find_at_path(&below).filter(|node| node.data == Data::Null);
                let label = match (null, place.is_empty()) {
                    (Some(_), _) => "this null deletes it".to_owned(),
                    (None, true) => "in these values".to_owned(),
                    (None, false) => format!("in `{place}`"),
                };
                let mut diagnostic = Diagnostic::error("missing-key", message).label(label).path(show_path(&below));
                if let Some(wanted) = &wanted {
                    diagnostic = diagnostic.note(format!("expected {}", wanted.describe_expected()));
                    diagnostic.notes.extend(wanted.first_sentence());
                    if null.is_some() {
                        diagnostic = diagnostic.help(instead_of_null(wanted));
                    }
                }
                self.push_diagnostic(null.map_or_else(|| self.caret_origin(node), |null| null.origin), diagnostic);
            }
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
                self.report_alternatives(root, node, &path, context, &shown);
            }
            Kind::Type { .. } => {
                let message = format!("`{place}` is {}", node.type_name());
                let quoted = self.sources.text_of_origin(node.origin).starts_with(['"', '\'']);
                let mut diagnostic = Diagnostic::error("wrong-type", message).label(expected);
                if let (true, Data::Text(text)) = (quoted, &node.data) {
                    let plain = Node::from_plain_scalar(text, node.origin);
                    let fits = match plain.data {
                        Data::Bool(_) => views.is_some_and(|views| views.named_types().contains("boolean")),
                        Data::Number(_) => views.is_some_and(|views| views.named_types().contains("integer")),
                        _ => false,
                    };
                    if fits && !views.is_some_and(Views::is_secret) {
                        diagnostic = diagnostic.help(format!("write it without quotes: `{text}`"));
                    }
                }
                if let Some(meant) = self.dotted_key(&path, node, views) {
                    diagnostic =
                        diagnostic.help(format!("a dot that belongs to a key needs `\\` before it: `{meant}`"));
                }
                self.report_wrong_value(&path, self.caret_origin(node), diagnostic, views);
            }
            Kind::Enum { .. } | Kind::Constant { .. } => self.not_an_option(node, &path, &shown, views),
            Kind::Pattern { pattern } => {
                let message = format!("{shown} does not have the form of `{place}`");
                let diagnostic = Diagnostic::error("wrong-form", message).label(format!("must match {pattern}"));
                self.report_wrong_value(&path, node.origin, diagnostic, views);
            }
            Kind::Minimum { .. }
            | Kind::Maximum { .. }
            | Kind::ExclusiveMaximum { .. }
            | Kind::ExclusiveMinimum { .. } => {
                let message = format!("{shown} is out of range for `{place}`");
                let diagnostic = Diagnostic::error("out-of-range", message).label(expected);
                self.report_wrong_value(&path, node.origin, diagnostic, views);
            }
            Kind::MinLength { limit } => {
                let message = format!("`{place}` is too short: at least {limit} characters are needed");
                self.report_wrong_value(&path, node.origin, Diagnostic::error("too-short", message), views);
            }
            Kind::MaxLength { limit } => {
                let message = format!("`{place}` is too long: at most {limit} characters are allowed");
                self.report_wrong_value(&path, node.origin, Diagnostic::error("too-long", message), views);
            }
            Kind::MinItems { limit } | Kind::MaxItems { limit } => {
                let word = if matches!(error.kind(), Kind::MinItems { .. }) { "least" } else { "most" };
                let message = format!("`{place}` must have at {word} {limit} entries");
                self.report_wrong_value(
                    &path,
                    self.caret_origin(node),
                    Diagnostic::error("wrong-count", message),
                    views,
                );
            }
            Kind::UniqueItems => {
                let message = format!("the entries of `{place}` must differ");
                self.report_wrong_value(
                    &path,
                    self.caret_origin(node),
                    Diagnostic::error("not-unique", message),
                    views,
                );
            }
            _ => {
                let message = format!("`{place}`: {}", error.masked());
                self.report_wrong_value(
                    &path,
                    self.caret_origin(node),
                    Diagnostic::error("invalid-value", message),
                    views,
                );
            }
        }
    }

    /// Returns the path that was meant where a key with dots, such as `kubernetes.io/os`, was taken for several keys.
    fn dotted_key(&self, path: &[String], node: &Node, views: Option<&Views<'_>>) -> Option<String> {
        let is_set = self.sources.source_at(node.origin).name.starts_with("--set");
        let (first, above) = path.split_last()?;
        if !is_set
            || !views?.allows_type("string")
            || self.schema.views_at(above)?.property_keys().contains(first.as_str())
        {
            return None;
        }
        let (mut key, mut below) = (first.clone(), node);
        while let Data::Map(map) = &below.data {
            let (name, entry) = map.entries.iter().next().filter(|_| map.entries.len() == 1)?;
            key.push_str("\\.");
            key.push_str(name);
            below = &entry.node;
        }
        Some(if above.is_empty() { key } else { format!("{}.{key}", show_path(above)) })
    }

    /// Returns the span of the caret for a whole node: only the first character of a collection.
    #[allow(clippy::unused_self)]
    fn caret_origin(&self, node: &Node) -> Origin {
        match node.data {
            Data::Map(_) | Data::List(_) => Origin { end: node.origin.start + 1, ..node.origin },
            _ => node.origin,
        }
    }

    fn unknown_key(&mut self, node: &Node, path: &[String], key: &str, views: Option<&Views<'_>>) {
        let Data::Map(map) = &node.data else { return };
        let Some(Entry { key: origin, .. }) = map.entries.get(key) else { return };
        let known = views.map(Views::property_keys).unwrap_or_default();
        let mut below = path.to_vec();
        below.push(key.to_owned());
        let parent = show_path(path);
        let label =
            if parent.is_empty() { "not a value of this chart".to_owned() } else { format!("not a key of `{parent}`") };
        let message = format!("unknown key `{}`{}", shorten_text(key), describe_foreign_character(key));
        let mut diagnostic = Diagnostic::error("unknown-key", message).label(label).path(show_path(&below));
        let elsewhere = self.schema.paths_of_key(key);
        if let Some(meant) = find_nearest_word(key, known.iter().copied()) {
            diagnostic = diagnostic.help(format!("did you mean `{meant}`?"));
            let mut meant_path = path.to_vec();
            meant_path.push(meant.to_owned());
            if let Some(sentence) = self.schema.views_at(&meant_path).and_then(|views| views.first_sentence()) {
                diagnostic = diagnostic.note(format!("`{}`: {sentence}", show_path(&meant_path)));
            }
        } else if let Some(other) = elsewhere.first() {
            diagnostic = diagnostic.help(format!("did you mean `{}`?", show_path(other)));
        } else if !known.is_empty() {
            let known: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
            diagnostic = diagnostic.note(format!("known keys are {}", known.join(", ")));
        }
        self.push_diagnostic(*origin, diagnostic);
    }

    fn not_an_option(&mut self, node: &Node, path: &[String], shown: &str, views: Option<&Views<'_>>) {
        let message = format!("{shown} is not an option of `{}`", show_path(path));
        let expected = views.map_or_else(String::new, |views| format!("expected {}", views.describe_expected()));
        let mut diagnostic = Diagnostic::error("not-an-option", message).label(expected);
        if let (Data::Text(text), Some(views)) = (&node.data, views) {
            let options: Vec<&str> = views.allowed_values().into_iter().filter_map(Value::as_str).collect();
            if let Some(meant) = find_nearest_word(text, options) {
                diagnostic = diagnostic.help(format!("did you mean `{meant}`?"));
            }
        }
        self.report_wrong_value(path, node.origin, diagnostic, views);
    }

    /// Reports a value that fits none of several alternatives, by what is wrong with the one that was most likely
    /// meant.
    fn report_alternatives(
        &mut self,
        root: &Node,
        node: &Node,
        path: &[String],
        context: &[Vec<ValidationError<'_>>],
        shown: &str,
    ) {
        let views = self.schema.views_at(path);
        let options = views.as_ref().map(Views::allowed_values).unwrap_or_default();
        let scalar = !matches!(node.data, Data::Map(_) | Data::List(_));
        if scalar && !options.is_empty() && matches!(node.data, Data::Text(_)) {
            return self.not_an_option(node, path, shown, views.as_ref());
        }
        let meant = context.iter().filter(|errors| {
            !errors.is_empty()
                && !errors
                    .iter()
                    .any(|error| matches!(error.kind(), Kind::Type { .. }) && error_depth(error) == path.len())
        });
        if let Some(errors) = meant.max_by_key(|errors| errors.iter().map(error_depth).max()) {
            for error in errors {
                self.report_schema_error(root, error);
            }
            return;
        }
        let message = format!("`{}` is {}", show_path(path), node.type_name());
        let expected =
            views.as_ref().map_or_else(String::new, |views| format!("expected {}", views.describe_expected()));
        self.report_wrong_value(
            path,
            self.caret_origin(node),
            Diagnostic::error("wrong-type", message).label(expected),
            views.as_ref(),
        );
    }
}

/// The number of keys and indexes above the value that an error is about.
fn error_depth(error: &ValidationError<'_>) -> usize {
    error.instance_path().into_iter().count()
}
