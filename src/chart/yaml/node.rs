//! A tree of values in which every node knows the place it comes from, and what it overrode.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use serde_json::{Map, Number, Value};

use super::scalar::{Meaning, Unclear, parse_plain_scalar};
use crate::chart::diagnostic::Place;

/// A source of values: its name for people and its text.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// Name for people: `values.yaml`, `--set`, `chart defaults` …
    pub(crate) name: String,
    /// The text that spans point into.
    pub(crate) text: String,
    /// The same text with secrets replaced byte for byte, which is shown in its place; `None` without secrets.
    masked: Option<String>,
}

/// All sources of a tree; nodes point into it by index.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources(Vec<Source>);

impl Sources {
    pub(crate) fn add_source(&mut self, name: impl Into<String>, text: impl Into<String>) -> u32 {
        self.0.push(Source { name: name.into(), text: text.into(), masked: None });
        u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX)
    }

    /// The number of the source of that name.
    pub(crate) fn find_source(&self, name: &str) -> Option<u32> {
        self.0.iter().position(|source| source.name == name).and_then(|index| u32::try_from(index).ok())
    }

    pub(crate) fn source_at(&self, origin: Origin) -> &Source {
        &self.0[origin.source as usize]
    }

    /// Returns the place of an origin, with the line it is on.
    pub(crate) fn place_at(&self, origin: Origin) -> Place {
        let source = self.source_at(origin);
        let (start, end) = (origin.start as usize, origin.end as usize);
        let place = Place::in_text(&source.name, &source.text, start, end);
        match &source.masked {
            // A mask counts bytes, so the column is that of the text itself.
            Some(masked) => Place { column: place.column, ..Place::in_text(&source.name, masked, start, end) },
            None => place,
        }
    }

    /// Masks the text at these origins wherever a place is shown from now on.
    pub(crate) fn mask_origins(&mut self, origins: &[Origin]) {
        for (number, source) in self.0.iter_mut().enumerate() {
            let own: Vec<&Origin> = origins.iter().filter(|origin| origin.source as usize == number).collect();
            if own.is_empty() {
                continue;
            }
            let mut bytes = source.text.clone().into_bytes();
            for origin in own {
                let range = origin.start as usize..origin.end as usize;
                if source.text.get(range.clone()).is_some() {
                    bytes[range].iter_mut().filter(|byte| !matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b'*');
                }
            }
            source.masked = String::from_utf8(bytes).ok();
        }
    }

    /// The text of an origin.
    pub(crate) fn text_of_origin(&self, origin: Origin) -> &str {
        self.source_at(origin).text.get(origin.start as usize..origin.end as usize).unwrap_or_default()
    }
}

/// A byte range in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Origin {
    pub(crate) source: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Origin {
    pub(in crate::chart) fn from_byte_range(source: u32, range: Range<usize>) -> Self {
        let [start, end] = [range.start, range.end].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        Self { source, start, end }
    }
}

/// The value of a node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    Null,
    Bool(bool),
    Number(Number),
    /// Text that was quoted, or that cannot be anything else.
    Text(String),
    /// A plain scalar whose meaning the schema has to decide; its text is the node's `raw`.
    Unclear(Unclear),
    List(Vec<Node>),
    Map(Mapping),
}

/// An entry of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// The place of the key.
    pub(crate) key: Origin,
    pub(crate) node: Node,
}

/// A mapping.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Mapping {
    pub(crate) entries: BTreeMap<String, Entry>,
    /// Whether it replaces something other than a mapping, so that it must not be merged with what lies below.
    pub(crate) replaces: bool,
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) data: Data,
    /// The text of a plain scalar as written: `1.10` of the number 1.1.
    pub(crate) raw: Option<Box<str>>,
    pub(crate) origin: Origin,
    /// Origins of the values that it overrode, latest last.
    pub(crate) overrode: Vec<Origin>,
}

impl Node {
    pub(crate) fn new(data: Data, origin: Origin) -> Self {
        Self { data, raw: None, origin, overrode: Vec::new() }
    }

    pub(crate) fn empty_map(origin: Origin) -> Self {
        Self::new(Data::Map(Mapping::default()), origin)
    }

    /// A plain scalar: its meaning, and its text where that may still be wanted.
    pub(crate) fn from_plain_scalar(text: &str, origin: Origin) -> Self {
        let data = match parse_plain_scalar(text) {
            Meaning::Null => Data::Null,
            Meaning::Bool(value) => Data::Bool(value),
            Meaning::Number(value) => Data::Number(value),
            Meaning::Text => return Self::new(Data::Text(text.to_owned()), origin),
            Meaning::Unclear(why) => Data::Unclear(why),
        };
        Self { raw: Some(text.into()), ..Self::new(data, origin) }
    }

    /// A JSON value, all of it at one place.
    pub(crate) fn from_json(value: &Value, origin: Origin) -> Self {
        let data = match value {
            Value::Null => Data::Null,
            Value::Bool(value) => Data::Bool(*value),
            Value::Number(number) => Data::Number(number.clone()),
            Value::String(text) => Data::Text(text.clone()),
            Value::Array(items) => Data::List(items.iter().map(|item| Self::from_json(item, origin)).collect()),
            Value::Object(map) => {
                let entries = map
                    .iter()
                    .map(|(key, value)| (key.clone(), Entry { key: origin, node: Self::from_json(value, origin) }));
                Data::Map(Mapping { entries: entries.collect(), replaces: false })
            }
        };
        Self::new(data, origin)
    }

    /// Returns the tree with all its places in another source.
    #[must_use]
    pub(crate) fn in_source(mut self, source: u32) -> Self {
        self.origin.source = source;
        match &mut self.data {
            Data::List(items) => {
                *items = std::mem::take(items).into_iter().map(|item| item.in_source(source)).collect();
            }
            Data::Map(map) => {
                let entries = std::mem::take(&mut map.entries).into_iter();
                let moved =
                    |entry: Entry| Entry { key: Origin { source, ..entry.key }, node: entry.node.in_source(source) };
                map.entries = entries.map(|(key, entry)| (key, moved(entry))).collect();
            }
            _ => {}
        }
        self
    }

    /// The value as JSON. Nulls in mappings delete, so they are left out; those in lists stay.
    pub(crate) fn to_json(&self) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Number(number) => Value::Number(number.clone()),
            Data::Text(text) => Value::String(text.clone()),
            Data::Unclear(_) => Value::String(self.raw.as_deref().unwrap_or_default().to_owned()),
            Data::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Data::Map(map) => {
                let present = map.entries.iter().filter(|(_, entry)| entry.node.data != Data::Null);
                Value::Object(present.map(|(key, entry)| (key.clone(), entry.node.to_json())).collect::<Map<_, _>>())
            }
        }
    }

    /// The node that a JSON pointer leads to, or the nearest one above it.
    pub(crate) fn find_nearest(&self, pointer: &[String]) -> &Self {
        let mut node = self;
        for part in pointer {
            let next = match &node.data {
                Data::Map(map) => map.entries.get(part).map(|entry| &entry.node),
                Data::List(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
        }
        node
    }

    /// The node at a path, if there is one.
    pub(crate) fn find_at_path(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |node, part| match &node.data {
            Data::Map(map) => map.entries.get(part).map(|entry| &entry.node),
            Data::List(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => None,
        })
    }

    /// Returns its type, for people.
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.data {
            Data::Null => "null",
            Data::Bool(_) | Data::Unclear(Unclear::Bool(_)) => "a boolean",
            Data::Number(number) if number.is_f64() => "a number",
            Data::Number(_) => "an integer",
            Data::Unclear(_) => "a number",
            Data::Text(_) => "a string",
            Data::List(_) => "a list",
            Data::Map(_) => "a mapping",
        }
    }
}

/// A path for people: `etcd.nodes[0].name`; keys that are no plain words are quoted.
pub(crate) fn show_path(path: &[String]) -> String {
    let mut text = String::new();
    for part in path {
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            let _ = write!(text, "[{part}]");
        } else if part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !part.is_empty()
        {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(part);
        } else {
            let _ = write!(text, "[{part:?}]");
        }
    }
    text
}

/// Lays one tree over another: mappings merge key by key, everything else replaces. A null stays as the sign that
/// whatever lay below is deleted, so that laying is associative: `(a + b) + c` is `a + (b + c)`.
pub(crate) fn merge_nodes(below: Node, above: Node) -> Node {
    let Node { data, raw, origin, mut overrode } = above;
    let mut seen = below.overrode;
    seen.push(below.origin);
    match (below.data, data) {
        (Data::Map(mut under), Data::Map(over)) if !over.replaces => {
            for (key, entry) in over.entries {
                let merged = match under.entries.remove(&key) {
                    Some(old) => Entry { key: entry.key, node: merge_nodes(old.node, entry.node) },
                    None => entry,
                };
                under.entries.insert(key, merged);
            }
            Node { data: Data::Map(under), raw: None, origin, overrode: Vec::new() }
        }
        (under, Data::Map(mut over)) => {
            over.replaces |= !matches!(under, Data::Map(_));
            seen.append(&mut overrode);
            Node { data: Data::Map(over), raw, origin, overrode: seen }
        }
        (_, data) => {
            seen.append(&mut overrode);
            Node { data, raw, origin, overrode: seen }
        }
    }
}
