//! Parses the text of a template once, and puts the values where their tokens stand.

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::{Map, Value};

use crate::chart::diagnostic::Diagnostic;
use crate::chart::yaml::scalar::{Meaning, parse_plain_scalar, shorten_text};

use super::engine::Renderer;
use super::filters::scalar_text;
use super::template::{END, SLOT, is_mark};
use super::text::Text;

/// A part of a leaf.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::chart) enum Piece {
    /// Text of the template.
    Text(String),
    /// A value, and the site of the expression that gave it.
    Value(Value, Option<usize>),
}

/// A leaf of an object, and the pieces that it is made of.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::chart) struct Leaf {
    /// Path in the object: keys and list indexes.
    pub(in crate::chart) path: Vec<String>,
    pub(in crate::chart) pieces: Vec<Piece>,
    /// The template and the line in it that the leaf is on.
    pub(in crate::chart) origin: Option<(usize, usize)>,
}

/// A document of a template.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) json: Value,
    pub(super) leaves: Vec<Leaf>,
    pub(super) origin: Option<(usize, usize)>,
}

struct Binder<'t> {
    parser: Parser<'t, StrInput<'t>>,
    renderer: &'t Renderer,
    text: &'t Text,
    marks: bool,
    path: Vec<String>,
    /// The leaves so far with their origins; `None` if these are not asked for.
    leaves: Option<Vec<Leaf>>,
}

type BindResult<T> = Result<T, Diagnostic>;

/// Binds all documents of a text. Empty ones are left out. The origins of leaves are only kept if asked for.
pub(super) fn bind_documents(renderer: &Renderer, text: &Text, marks: bool, trace: bool) -> BindResult<Vec<Bound>> {
    let parser = Parser::new_from_str(&text.clean);
    let mut binder = Binder { parser, renderer, text, marks, path: Vec::new(), leaves: trace.then(Vec::new) };
    let mut documents = Vec::new();
    loop {
        let (event, span) = binder.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            event => {
                let json = binder.bind_node(event, span)?;
                let leaves = binder.leaves.as_mut().map(std::mem::take).unwrap_or_default();
                if json.is_null() {
                    continue;
                }
                let origin = text.line_origin(span.start.line());
                binder.check_object(&json, span)?;
                documents.push(Bound { json, leaves, origin });
            }
        }
    }
}

impl<'t> Binder<'t> {
    /// Returns an error for a line of the text, placed at the line of the template that it comes from.
    fn error_at(&self, line: usize, message: impl Into<String>) -> Diagnostic {
        let place = self.text.line_origin(line).map(|(template, line)| self.renderer.line_place(template, line));
        Diagnostic::error("template-yaml", message).at(place)
    }

    fn span_error(&self, span: Span, message: impl Into<String>) -> Diagnostic {
        self.error_at(span.start.line(), message)
    }

    /// Returns an error placed at the expression that printed a slot.
    fn slot_error(&self, slot: usize, code: &'static str, message: impl Into<String>) -> Diagnostic {
        let site = self.text.slots.get(slot).and_then(|slot| slot.1);
        Diagnostic::error(code, message)
            .at(site.map(|site| self.renderer.site_place(site)))
            .path(crate::chart::yaml::node::show_path(&self.path))
    }

    fn next(&mut self) -> BindResult<(Event<'t>, Span)> {
        match self.parser.next_event() {
            None => Ok((Event::StreamEnd, Span::default())),
            Some(Ok((Event::Comment(text, _), span))) => {
                if let Some((slot, _)) = split_tokens(&text).into_iter().find_map(|piece| match piece {
                    Token::Slot(slot) => Some((slot, span)),
                    Token::Text(_) => None,
                }) {
                    return Err(self.slot_error(slot, "template-yaml", "a comment cannot contain a value"));
                }
                self.next()
            }
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let message = format!("the output of this template is not YAML: {}", error.info());
                Err(self.error_at(error.marker().line(), message))
            }
        }
    }

    fn slot_value(&self, slot: usize) -> BindResult<&'t Value> {
        match self.text.slots.get(slot) {
            Some((Ok(value), _)) => Ok(value),
            Some((Err(why), _)) => Err(self.slot_error(slot, "template", why.message())),
            None => Err(self.slot_error(slot, "template", "a value is missing")),
        }
    }

    fn bind_node(&mut self, event: Event<'t>, span: Span) -> BindResult<Value> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if anchor != 0 || tag.is_some() {
                    return Err(self.span_error(span, "anchors and tags are not allowed in a template"));
                }
                self.bind_scalar(&text, style, span)
            }
            Event::SequenceStart(_, anchor, tag) => {
                if anchor != 0 || tag.is_some() {
                    return Err(self.span_error(span, "anchors and tags are not allowed in a template"));
                }
                let mut items = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if event == Event::SequenceEnd {
                        if items.is_empty() {
                            self.record_leaf(span, Vec::new);
                        }
                        return Ok(Value::Array(items));
                    }
                    self.path.push(items.len().to_string());
                    items.push(self.bind_node(event, span)?);
                    self.path.pop();
                }
            }
            Event::MappingStart(_, anchor, tag) => {
                if anchor != 0 || tag.is_some() {
                    return Err(self.span_error(span, "anchors and tags are not allowed in a template"));
                }
                self.bind_mapping()
            }
            _ => Err(self.span_error(span, "aliases are not allowed in a template")),
        }
    }

    fn record_leaf(&mut self, span: Span, pieces: impl FnOnce() -> Vec<Piece>) {
        if let Some(leaves) = &mut self.leaves {
            let origin = self.text.line_origin(span.start.line());
            leaves.push(Leaf { path: self.path.clone(), pieces: pieces(), origin });
        }
    }

    fn bind_mapping(&mut self) -> BindResult<Value> {
        let mut map = Map::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let (text, style) = match event {
                Event::MappingEnd => break,
                Event::Scalar(text, style, 0, None) => (text, style),
                _ => return Err(self.span_error(span, "a key must be text")),
            };
            if style == ScalarStyle::Plain && text == "<<" {
                if self.path.is_empty() {
                    return Err(
                        self.span_error(span, "`<<` is not allowed at the top of an object: it could change the kind")
                    );
                }
                let (event, span) = self.next()?;
                self.path.push("<<".to_owned());
                merged.push((self.bind_node(event, span)?, span));
                self.path.pop();
                continue;
            }
            let (key, slot) = self.bind_key(&text, span)?;
            self.path.push(key.clone());
            let (event, value_span) = self.next()?;
            let value = self.bind_node(event, value_span)?;
            self.path.pop();
            if map.insert(key.clone(), value).is_some() {
                let message = format!("the key `{}` is given twice", shorten_text(&key));
                return Err(match slot {
                    Some(slot) => self.slot_error(slot, "duplicate-key", "a key that is given here is given twice"),
                    None => Diagnostic { code: "duplicate-key", ..self.span_error(span, message) },
                });
            }
        }
        for (value, span) in merged {
            match value {
                Value::Object(from) => {
                    for (key, value) in from {
                        map.entry(key).or_insert(value);
                    }
                }
                Value::Null => {}
                _ => return Err(self.span_error(span, "`<<` takes a mapping")),
            }
        }
        if map.is_empty() {
            self.record_leaf(Span::default(), Vec::new);
        }
        Ok(Value::Object(map))
    }

    fn bind_key(&mut self, text: &str, span: Span) -> BindResult<(String, Option<usize>)> {
        let mut key = String::new();
        let mut last = None;
        for token in split_tokens(text) {
            match token {
                Token::Text(text) => key.push_str(text),
                Token::Slot(slot) if self.path.is_empty() => {
                    return Err(self.slot_error(slot, "wrong-type", "the fields of an object must be written out"));
                }
                Token::Slot(slot) => {
                    let Value::String(value) = self.slot_value(slot)? else {
                        return Err(self.slot_error(slot, "wrong-type", "only text can be part of a key"));
                    };
                    key.push_str(value);
                    last = Some(slot);
                }
            }
        }
        match (key.is_empty(), last) {
            (false, _) => Ok((key, last)),
            (true, Some(slot)) => Err(self.slot_error(slot, "wrong-type", "this gives an empty key")),
            (true, None) => Err(self.span_error(span, "a key is empty")),
        }
    }

    fn bind_scalar(&mut self, text: &str, style: ScalarStyle, span: Span) -> BindResult<Value> {
        let tokens = split_tokens(text);
        let by_value = tokens.iter().any(|token| matches!(token, Token::Slot(_)));
        if by_value && self.path.is_empty() {
            return Err(self.span_error(span, "an expression cannot produce a whole object: write the object out"));
        }
        if by_value && matches!(self.path.as_slice(), [key] if key == "apiVersion" || key == "kind") {
            let message = "`apiVersion` and `kind` must be written out, so that they can be checked when building";
            return Err(self.span_error(span, message));
        }
        let value = match tokens.as_slice() {
            [Token::Slot(slot)] if style == ScalarStyle::Plain => {
                let value = self.slot_value(*slot)?.clone();
                let site = self.text.slots[*slot].1;
                self.record_leaf(span, || vec![Piece::Value(value.clone(), site)]);
                return Ok(value);
            }
            [] | [Token::Text(_)] if style == ScalarStyle::Plain => match parse_plain_scalar(text) {
                Meaning::Null => Value::Null,
                Meaning::Bool(value) => Value::Bool(value),
                Meaning::Number(number) => Value::Number(number),
                Meaning::Text => Value::String(text.to_owned()),
                Meaning::Unclear(why) => {
                    let (message, help) = why.explain_problem(text);
                    return Err(self.span_error(span, message).help(help));
                }
            },
            _ => return self.splice_values(&tokens, span),
        };
        self.record_leaf(span, || vec![Piece::Text(text.to_owned())]);
        Ok(value)
    }

    /// Returns text with values put into it.
    fn splice_values(&mut self, tokens: &[Token<'_>], span: Span) -> BindResult<Value> {
        let mut whole = String::new();
        let trace = self.leaves.is_some();
        let mut pieces = Vec::new();
        for token in tokens {
            match *token {
                Token::Text(text) => {
                    whole.push_str(text);
                    if trace {
                        pieces.push(Piece::Text(text.to_owned()));
                    }
                }
                Token::Slot(slot) => {
                    let value = self.slot_value(slot)?;
                    let Some(text) = scalar_text(value) else {
                        let what = match value {
                            Value::Null => "null",
                            Value::Array(_) => "a list",
                            _ => "a mapping",
                        };
                        let message = format!("{what} cannot be part of other text");
                        return Err(self.slot_error(slot, "wrong-type", message).help("use it alone, without quotes"));
                    };
                    whole.push_str(&text);
                    if trace {
                        pieces.push(Piece::Value(value.clone(), self.text.slots[slot].1));
                    }
                }
            }
        }
        self.record_leaf(span, || pieces);
        Ok(Value::String(whole))
    }

    /// A document must be a Kubernetes object whose kind does not depend on a value.
    fn check_object(&self, json: &Value, span: Span) -> BindResult<()> {
        let [api_version, kind, name] = ["/apiVersion", "/kind", "/metadata/name"]
            .map(|pointer| json.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
        let message = if api_version.is_empty() || kind.is_empty() {
            "this is not a Kubernetes object: `apiVersion` or `kind` is missing"
        } else if name.is_empty() {
            "this is not a Kubernetes object: `metadata.name` is missing or empty"
        } else if kind.ends_with("List") && json.get("items").is_some() {
            "a list of objects is refused: write them as documents"
        } else {
            debug_assert!(self.marks || !json.to_string().contains(is_mark), "every token is bound");
            return Ok(());
        };
        Err(self.span_error(span, message))
    }
}

/// A part of a scalar.
enum Token<'t> {
    Text(&'t str),
    Slot(usize),
}

/// Splits a scalar into text and tokens.
fn split_tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(SLOT) {
        if at > 0 {
            found.push(Token::Text(&rest[..at]));
        }
        let after = &rest[at + SLOT.len_utf8()..];
        let Some(end) = after.find(END) else { break };
        let Ok(slot) = after[..end].parse() else { break };
        found.push(Token::Slot(slot));
        rest = &after[end + END.len_utf8()..];
    }
    if !rest.is_empty() {
        found.push(Token::Text(rest));
    }
    found
}
