//! Reads YAML (or JSON) into a tree with origins, strictly: duplicates, unknown tags and alias bombs are errors.

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::json::Json;
use super::node::{Data, Entry, Mapping, Node, Origin, Sources, show_path};
use super::scalar::shorten_text;
use crate::api::util::text::is_unseen;
use crate::chart::depth;
use crate::chart::depth::MAX_DEPTH;
use crate::chart::diagnostic::{Diagnostic, Place};
use crate::chart::mask::hide_behind_secret_key;

/// Largest size of a source, in bytes. A Kubernetes object cannot hold more either.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// Number of nodes that aliases may add up to before the source is taken for a bomb.
const MAX_ALIASED_NODES: usize = 20_000;

/// Largest number of errors that are noted in one source.
const MAX_PROBLEMS: usize = 50;

struct YamlReader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    text: &'t str,
    name: &'t str,
    source: u32,
    /// Number of collections that the next node lies in.
    depth: usize,
    anchors: HashMap<usize, (Node, usize)>,
    aliased: usize,
    problems: Vec<Diagnostic>,
    /// Number of problems beyond [`MAX_PROBLEMS`].
    left_out: usize,
}

/// A syntax error, or an error after which reading on makes no sense.
struct Stop(Diagnostic);

type YamlResult<T> = Result<T, Stop>;

/// Line, column and character of the last one that nobody sees. A byte order mark at the beginning is none.
fn find_last_unseen(text: &str) -> Option<(usize, usize, char)> {
    let (at, c) = text.char_indices().rev().find(|(at, c)| is_strange(*c) && (*at, *c) != (0, '\u{feff}'))?;
    let before = &text[..at];
    let line = before.rsplit('\n').next().unwrap_or_default();
    Some((before.matches('\n').count() + 1, line.chars().count() + 1, c))
}

/// Returns whether nobody sees which character this is. Control characters the parser names itself.
fn is_strange(c: char) -> bool {
    is_unseen(c) && !c.is_control()
}

impl<'t> YamlReader<'t> {
    fn place_at_origin(&self, origin: Origin) -> Place {
        self.place_in_text(origin.start as usize, origin.end as usize)
    }

    fn place_in_text(&self, start: usize, end: usize) -> Place {
        let mut place = Place::in_text(self.name, self.text, start, end);
        hide_behind_secret_key(&mut place);
        place
    }

    /// Notes an error after which reading continues; those beyond [`MAX_PROBLEMS`] are counted.
    fn report_problem(&mut self, origin: Origin, diagnostic: impl FnOnce() -> Diagnostic) {
        if self.problems.len() < MAX_PROBLEMS {
            let place = self.place_at_origin(origin);
            self.problems.push(diagnostic().at(place));
        } else {
            self.left_out += 1;
        }
    }

    /// Returns all problems, with the one that ended the reading, if there was one.
    fn into_problems(self, last: Option<Diagnostic>) -> Vec<Diagnostic> {
        self.problems.into_iter().chain(Diagnostic::more_errors(self.left_out)).chain(last).collect()
    }

    fn span_origin(&self, span: Span) -> Origin {
        Origin::from_byte_range(self.source, span.byte_range().unwrap_or_default())
    }

    fn syntax_stop(&self, error: &ScanError) -> Stop {
        let at = error.marker().byte_offset().unwrap_or(0);
        if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
            return Stop(depth::too_deep(self.place_in_text(at, at + 1)));
        }
        let mut place = Place::in_text(self.name, self.text, at, at);
        // A scanner stops behind what it could not read. A tab used for indentation is what people need to see.
        let line_start = self.text[..at.min(self.text.len())].rfind('\n').map_or(0, |index| index + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default();
        let indentation = line.len() - line.trim_start().len();
        let mut diagnostic = Diagnostic::error("yaml-syntax", format!("this is not YAML: {}", error.info()));
        if let Some(tab) = line[..indentation].find('\t') {
            place = Place::in_text(self.name, self.text, line_start + tab, line_start + tab + 1);
            diagnostic = Diagnostic::error("yaml-syntax", "this is not YAML: a tab is used for indentation");
            diagnostic = diagnostic.help("indent with spaces");
        } else if let Some((line, column, c)) = find_last_unseen(&self.text[..line_start + line.len()]) {
            // What people do not see, above all a no-break space in the place of a space, is often in a line before.
            let help = format!("line {line}, column {column} contains the invisible character U+{:04X}", u32::from(c));
            diagnostic = diagnostic.help(help);
        }
        hide_behind_secret_key(&mut place);
        Stop(diagnostic.at(place))
    }

    fn too_deep(&self, origin: Origin) -> Stop {
        Stop(depth::too_deep(self.place_at_origin(origin)))
    }

    /// Goes one collection deeper.
    fn enter_collection(&mut self, origin: Origin) -> YamlResult<()> {
        if self.depth >= MAX_DEPTH {
            return Err(self.too_deep(origin));
        }
        self.depth += 1;
        Ok(())
    }

    fn next(&mut self) -> YamlResult<(Event<'t>, Span)> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self.syntax_stop(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn read_node(&mut self, event: Event<'t>, span: Span) -> YamlResult<(Node, usize)> {
        let origin = self.span_origin(span);
        let (node, size, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (self.read_scalar(&text, style, tag.as_deref(), origin), 1, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.enter_collection(origin)?;
                self.collection_tag(tag, "seq", origin);
                let mut items = Vec::new();
                let mut size = 1;
                let end = loop {
                    let (event, span) = self.next()?;
                    if event == Event::SequenceEnd {
                        break self.span_origin(span).end;
                    }
                    let (item, items_size) = self.read_node(event, span)?;
                    size += items_size;
                    items.push(item);
                };
                self.depth -= 1;
                (Node::new(Data::List(items), Origin { end, ..origin }), size, anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.enter_collection(origin)?;
                self.collection_tag(tag, "map", origin);
                let (node, size) = self.read_mapping(origin)?;
                self.depth -= 1;
                (node, size, anchor)
            }
            Event::Alias(id) => {
                let Some((node, size)) = self.anchors.get(&id).cloned() else {
                    let place = self.place_at_origin(origin);
                    return Err(Stop(
                        Diagnostic::error("alias-cycle", "an alias refers to the collection that contains it")
                            .at(place),
                    ));
                };
                self.aliased += size;
                if self.aliased > MAX_ALIASED_NODES {
                    let place = self.place_at_origin(origin);
                    return Err(Stop(
                        Diagnostic::error("alias-bomb", "aliases expand to too many values")
                            .at(place)
                            .label(format!("this alias makes more than {MAX_ALIASED_NODES} values")),
                    ));
                }
                if depth::find_too_deep(&node, self.depth).is_some() {
                    return Err(self.too_deep(origin));
                }
                (node, size, 0)
            }
            _ => (Node::new(Data::Null, origin), 1, 0),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok((node, size))
    }

    fn collection_tag(&mut self, tag: Option<Cow<'t, Tag>>, expected: &str, origin: Origin) {
        if let Some(tag) = tag
            && !tag.is_yaml_core_schema_tag(expected)
        {
            self.unknown_tag(&tag, origin);
        }
    }

    fn unknown_tag(&mut self, tag: &Tag, origin: Origin) {
        self.report_problem(origin, || {
            Diagnostic::error("unknown-tag", format!("the tag `{}` does not fit here", shorten_text(&tag.original())))
                .help("leave the tag out; quote the value if it is text")
        });
    }

    fn read_scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, origin: Origin) -> Node {
        let is_text =
            tag.map_or(style != ScalarStyle::Plain, |tag| tag.is_yaml_core_schema_tag("str") || tag.original() == "!");
        if is_text {
            return Node::new(Data::Text(text.to_owned()), origin);
        }
        let node = Node::from_plain_scalar(text, origin);
        let Some(tag) = tag else { return node };
        let fits = match &node.data {
            Data::Null => tag.is_yaml_core_schema_tag("null"),
            Data::Bool(_) => tag.is_yaml_core_schema_tag("bool"),
            Data::Number(number) => {
                tag.is_yaml_core_schema_tag("float") || (!number.is_f64() && tag.is_yaml_core_schema_tag("int"))
            }
            _ => false,
        };
        if !fits {
            self.unknown_tag(tag, origin);
        }
        node
    }

    fn read_mapping(&mut self, origin: Origin) -> YamlResult<(Node, usize)> {
        let mut map = Mapping::default();
        let mut merged: Vec<Node> = Vec::new();
        let mut size = 1;
        let end = loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                break self.span_origin(span).end;
            }
            let key_origin = self.span_origin(span);
            let is_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let plain_text = match &event {
                Event::Scalar(text, ..) => Some(text.clone().into_owned()),
                _ => None,
            };
            let (key_node, key_size) = self.read_node(event, span)?;
            let (event, span) = self.next()?;
            let (value, value_size) = self.read_node(event, span)?;
            size += key_size + value_size;
            if is_merge {
                merged.push(value);
                continue;
            }
            let key = plain_text.or_else(|| match (&key_node.data, &key_node.raw) {
                (Data::Text(text), _) => Some(text.clone()),
                (_, Some(raw)) => Some(raw.clone().into_string()),
                _ => None,
            });
            self.insert_entry(&mut map, key, key_origin, value);
        };
        let origin = Origin { end: end.max(origin.start), ..origin };
        for value in merged {
            self.merge_key(&mut map, value);
        }
        Ok((Node::new(Data::Map(map), origin), size))
    }

    fn insert_entry(&mut self, map: &mut Mapping, key: Option<String>, origin: Origin, value: Node) {
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            return self.report_problem(origin, || Diagnostic::error("bad-key", "a key must be text"));
        };
        if let Some(first) = map.entries.get(&key) {
            let before = &self.text[..first.key.start as usize];
            self.report_problem(origin, || {
                let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
                Diagnostic::error("duplicate-key", format!("the key `{}` is given twice", shorten_text(&key)))
                    .label("second time here")
                    .note(format!("the first is on line {line}"))
            });
            return;
        }
        map.entries.insert(key, Entry { key: origin, node: value });
    }

    /// `<<: *defaults`: what the mapping does not say itself is taken from there.
    fn merge_key(&mut self, map: &mut Mapping, value: Node) {
        let origin = value.origin;
        let sources = match value.data {
            Data::List(items) => items,
            data => vec![Node { data, ..value }],
        };
        for source in sources {
            let Data::Map(from) = source.data else {
                return self.report_problem(origin, || {
                    Diagnostic::error("bad-merge", "`<<` takes a mapping or a list of mappings")
                });
            };
            for (key, entry) in from.entries {
                map.entries.entry(key).or_insert(entry);
            }
        }
    }

    /// Every document that is not empty.
    fn read_documents(&mut self) -> YamlResult<Vec<Node>> {
        let mut found = Vec::new();
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(found),
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd | Event::Comment(..) => {}
                event => {
                    let (node, _) = self.read_node(event, span)?;
                    found.extend(Some(node).filter(|node| node.data != Data::Null));
                }
            }
        }
    }

    fn read_document(&mut self) -> YamlResult<Option<Node>> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd | Event::Comment(..) => {}
                event if root.is_some() => {
                    let empty = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty());
                    if !empty {
                        let place = self.place_at_origin(self.span_origin(span));
                        return Err(Stop(
                            Diagnostic::error(
                                "several-documents",
                                "values must be one YAML document, but this contains several",
                            )
                            .at(place)
                            .label("the second begins here")
                            .help("use a separate file for each"),
                        ));
                    }
                }
                event => {
                    let (node, _) = self.read_node(event, span)?;
                    if node.data != Data::Null {
                        root = Some(node);
                    }
                }
            }
        }
    }
}

/// Reads bytes as text.
///
/// # Errors
/// One diagnostic if there are too many, or if they are not UTF-8.
pub(crate) fn decode_text(name: &str, bytes: &[u8]) -> Result<String, Diagnostic> {
    if bytes.len() > MAX_BYTES {
        return Err(Diagnostic::error(
            "too-large",
            format!("{name} has {} bytes; the limit is {MAX_BYTES}", bytes.len()),
        ));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text).to_owned()),
        Err(error) => {
            let shown = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned() + "\u{fffd}";
            let at = error.valid_up_to();
            let mut place = Place::in_text(name, &shown, at, at + 3);
            hide_behind_secret_key(&mut place);
            Err(Diagnostic::error("not-utf8", "this is not text in UTF-8")
                .at(place)
                .label(format!("byte {at} is invalid")))
        }
    }
}

/// Reads a source that has been added to `sources` as number `source`.
///
/// The root is `None` for an empty document.
///
/// # Errors
/// Everything that is wrong, up to the first syntax error.
pub(crate) fn read_source(sources: &Sources, source: u32) -> Result<Option<Node>, Vec<Diagnostic>> {
    let (root, problems) = read_on(sources, source);
    if problems.is_empty() { Ok(root) } else { Err(problems) }
}

/// Reads every document of a source, without those that are empty.
///
/// # Errors
/// Everything that is wrong, up to the first syntax error.
pub(crate) fn read_all(sources: &Sources, source: u32) -> Result<Vec<Node>, Vec<Diagnostic>> {
    let mut reader = open_reader(sources, source);
    match reader.read_documents() {
        Ok(documents) if reader.problems.is_empty() => Ok(documents),
        Ok(_) => Err(reader.into_problems(None)),
        Err(Stop(last)) => Err(reader.into_problems(Some(last))),
    }
}

fn open_reader(sources: &Sources, source: u32) -> YamlReader<'_> {
    let whole = sources.source_at(Origin { source, start: 0, end: 0 });
    let options = granit_parser::options! {
        emit_comments: false,
        block_nesting_limit: MAX_DEPTH,
        flow_nesting_limit: MAX_DEPTH,
    };
    let parser = Parser::new_from_str_with_options(&whole.text, options);
    let (name, text) = (whole.name.as_str(), whole.text.as_str());
    YamlReader {
        parser,
        text,
        name,
        source,
        depth: 0,
        anchors: HashMap::new(),
        aliased: 0,
        problems: Vec::new(),
        left_out: 0,
    }
}

/// Reads a source as [`read_source`] does, and returns both what could be read, without what is wrong, and everything that is
/// wrong. After a syntax error the root is `None`.
pub(crate) fn read_on(sources: &Sources, source: u32) -> (Option<Node>, Vec<Diagnostic>) {
    let whole = Origin { source, start: 0, end: 0 };
    let mut reader = open_reader(sources, source);
    let text = reader.text;
    match reader.read_document() {
        Ok(root) => (root, reader.into_problems(None)),
        Err(Stop(first)) => {
            // A few JSON texts are not YAML.
            if text.trim_start().starts_with('{')
                && let Ok(json) = serde_json::from_str::<Json>(text)
            {
                if json.is_too_deep {
                    let known = Some(first).filter(|first| first.code == depth::CODE);
                    return (None, vec![known.unwrap_or_else(|| depth::too_deep(reader.place_at_origin(whole)))]);
                }
                let Some(path) = json.twice else { return (Some(Node::from_json(&json.value, whole)), Vec::new()) };
                let message = format!("the key `{}` is given twice", shorten_text(&show_path(&path)));
                return (None, vec![Diagnostic::error("duplicate-key", message).at(reader.place_at_origin(whole))]);
            }
            (None, reader.into_problems(Some(first)))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn value(text: &str) -> Result<Value, Vec<Diagnostic>> {
        let mut sources = Sources::default();
        let source = sources.add_source("f.yaml", text);
        Ok(read_source(&sources, source)?.map_or(Value::Null, |node| node.to_json()))
    }

    fn code(text: &str) -> &'static str {
        value(text).unwrap_err()[0].code
    }

    #[test]
    fn yaml_and_json_are_read_with_anchors_and_merge_keys() {
        assert_eq!(
            value("a: 1\nb: [x, 'y', true]\nc: {d: ~}\n").unwrap(),
            json!({"a": 1, "b": ["x", "y", true], "c": {}})
        );
        assert_eq!(
            value("base: &b {x: 1, y: 2}\nother:\n  <<: *b\n  y: 3\n").unwrap(),
            json!({"base": {"x": 1, "y": 2}, "other": {"x": 1, "y": 3}})
        );
        assert_eq!(value("{\"a\": \"\\ud83d\\ude00\", \"b\":\t[1]}").unwrap(), json!({"a": "😀", "b": [1]}));
        assert_eq!(value("# nothing\n---\n").unwrap(), Value::Null);
        assert_eq!(value("1: a\ntrue: b\n").unwrap(), json!({"1": "a", "true": "b"}));
        assert_eq!(value("a: !!str 1\nb: !!int 2\n").unwrap(), json!({"a": "1", "b": 2}));
    }

    #[test]
    fn what_readers_would_guess_at_is_an_error() {
        assert_eq!(code("a: 1\nb: 2\na: 3\n"), "duplicate-key");
        assert_eq!(code("{\"a\": \"\\ud83d\\ude00\", \"b\":\t[1], \"a\": 2}"), "duplicate-key");
        assert_eq!(code("a: !custom 1\n"), "unknown-tag");
        assert_eq!(code("a: !!int x\n"), "unknown-tag");
        assert_eq!(code("a: 1\n---\nb: 2\n"), "several-documents");
        assert_eq!(code("a:\n\t- b\n"), "yaml-syntax");
        let stopped = |text: &str| value(text).unwrap_err().last().unwrap().helps.join(" ");
        assert_eq!(
            stopped("\u{feff}a:\r\n  b:\u{a0}\r\n    c: 1\r\n"),
            "line 2, column 5 contains the invisible character U+00A0"
        );
        assert_eq!(stopped("\u{feff}a: b:\r\n  c: d\r\n"), "", "nothing of that kind is in it");
        assert_eq!(code("? [a]\n: b\n"), "bad-key");
        assert_eq!(code("a: &x [*x]\n"), "alias-cycle");
        assert_eq!(code("<<: 1\n"), "bad-merge");
        let levels = (0..30).map(|n| format!("a{}: &a{} [*a{n}, *a{n}]\n", n + 1, n + 1));
        let bomb: Vec<String> = std::iter::once("a0: &a0 [x, x]\n".to_owned()).chain(levels).collect();
        let bomb = bomb.concat();
        assert_eq!(code(&bomb), "alias-bomb");
        assert_eq!(code(&"[".repeat(5000)), "too-deep");
    }

    #[test]
    fn errors_beyond_the_limit_are_counted() {
        let twice = "a: 1\n".repeat(MAX_PROBLEMS + 8);
        let problems = value(&twice).unwrap_err();
        assert_eq!(problems.len(), MAX_PROBLEMS + 1);
        assert_eq!(problems.last().unwrap().message, "7 more errors like these");
        // A syntax error after them is shown all the same.
        let problems = value(&format!("{twice}b: [\n")).unwrap_err();
        assert_eq!(problems.last().unwrap().code, "yaml-syntax");
    }

    #[test]
    fn a_line_that_cannot_be_read_does_not_show_a_secret() {
        let problems = value("password: \"hunter2\" x\n").unwrap_err();
        let shown = problems[0].render_diagnostic(false);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
