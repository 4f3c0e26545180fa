//! `--set path=value`: reading the argument, with Helm's syntax, and writing the value into the tree.

use crate::chart::depth::{self, MAX_DEPTH};
use crate::chart::diagnostic::{Diagnostic, Place};
use crate::chart::yaml::json::Json;
use crate::chart::yaml::node::{Data, Entry, Mapping, Node, Origin, merge_nodes, show_path};
use crate::chart::yaml::scalar::shorten_text;

/// The longest list that an index may make.
const MAX_INDEX: usize = 1000;

/// Flag that an argument belongs to, one of four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetKind {
    /// `--set a.b=1`: a YAML scalar, or a list as `{x,y}`.
    Value,
    /// `--set-string a.b=1`: always text.
    Text,
    /// `--set-file a.b=path`: the text of a file.
    File,
    /// `--set-json a.b={"c":1}`: any JSON.
    Json,
}

impl SetKind {
    /// The flag, for people.
    pub fn flag_name(self) -> &'static str {
        match self {
            Self::Value => "--set",
            Self::Text => "--set-string",
            Self::File => "--set-file",
            Self::Json => "--set-json",
        }
    }
}

/// A path of keys and list indexes, and the value for it.
#[derive(Debug, Clone)]
pub(super) struct Assignment {
    pub(super) path: Vec<PathPart>,
    pub(super) node: Node,
}

impl Assignment {
    /// The path as keys and numbers.
    pub(super) fn path_keys(&self) -> Vec<String> {
        self.path.iter().map(|part| part.name.clone()).collect()
    }
}

/// One step of a path.
#[derive(Debug, Clone)]
pub(super) struct PathPart {
    pub(super) name: String,
    pub(super) index: Option<usize>,
    pub(super) origin: Origin,
}

/// Reads the content of a file named in `--set-file`.
pub(super) type ReadFile<'r> = &'r dyn Fn(&str) -> Result<String, Diagnostic>;

struct Argument<'t> {
    flag: &'static str,
    text: &'t str,
    source: u32,
    at: usize,
}

impl Argument<'_> {
    fn argument_origin(&self, start: usize, end: usize) -> Origin {
        Origin::from_byte_range(self.source, start..end)
    }

    fn argument_place(&self, start: usize, end: usize) -> Place {
        let mut place = Place::in_text(self.flag, self.text, start, end);
        crate::chart::mask::hide_behind_secret_key(&mut place);
        place
    }

    fn set_syntax_error(&self, start: usize, end: usize, message: impl Into<String>, label: &str) -> Diagnostic {
        Diagnostic::error("set-syntax", message).at(self.argument_place(start, end)).label(label).help(format!(
            "write `{} path.to.key=value`; a comma, dot or `=` that belongs to the text needs `\\` before it",
            self.flag
        ))
    }

    fn remaining_text(&self) -> &str {
        &self.text[self.at..]
    }

    /// Text up to one of the stop characters, backslashes taken away.
    fn read_until(&mut self, stops: &[char]) -> String {
        let mut found = String::new();
        let mut characters = self.text[self.at..].char_indices();
        let start = self.at;
        while let Some((offset, c)) = characters.next() {
            if c == '\\' {
                if let Some((_, escaped)) = characters.next() {
                    found.push(escaped);
                }
                continue;
            }
            if stops.contains(&c) {
                self.at = start + offset;
                return found;
            }
            found.push(c);
        }
        self.at = self.text.len();
        found
    }

    fn read_path(&mut self) -> Result<Vec<PathPart>, Diagnostic> {
        let mut path: Vec<PathPart> = Vec::new();
        loop {
            let start = self.at;
            if self.remaining_text().starts_with('[') && !path.is_empty() {
                let Some(length) = self.remaining_text().find(']') else {
                    return Err(self.set_syntax_error(
                        start,
                        self.text.len(),
                        "the bracket is not closed",
                        "`]` is missing",
                    ));
                };
                let digits = &self.text[start + 1..start + length];
                let index = digits.parse::<usize>().ok().filter(|&index| index <= MAX_INDEX);
                let Some(index) = index else {
                    let message = format!("`{}` is not an index of a list", shorten_text(digits));
                    return Err(self.set_syntax_error(start + 1, start + length, message, "a number from 0 is needed"));
                };
                self.at = start + length + 1;
                path.push(PathPart {
                    name: index.to_string(),
                    index: Some(index),
                    origin: self.argument_origin(start, self.at),
                });
            } else {
                let name = self.read_until(&['.', '[', '=', ',']);
                if name.is_empty() {
                    return Err(self.set_syntax_error(start, start + 1, "a key is missing", "before this"));
                }
                path.push(PathPart { name, index: None, origin: self.argument_origin(start, self.at) });
            }
            match self.remaining_text().chars().next() {
                Some('=') => {
                    self.at += 1;
                    return Ok(path);
                }
                Some('.') => self.at += 1,
                Some('[') => {}
                _ => {
                    let message = format!("`{}` has no value", shorten_text(&show_path_of(&path)));
                    return Err(self.set_syntax_error(start, self.at, message, "`=` and a value are missing"));
                }
            }
        }
    }

    /// Any JSON, for the value at a path.
    fn read_json(&mut self, path: &[PathPart]) -> Result<Node, Diagnostic> {
        let start = self.at;
        let mut stream = serde_json::Deserializer::from_str(self.remaining_text()).into_iter::<Json>();
        let json = match stream.next() {
            Some(Ok(json)) => json,
            Some(Err(error)) => {
                let lines = self.remaining_text().split_inclusive('\n').take(error.line().saturating_sub(1));
                let before: usize = lines.map(str::len).sum();
                let at = (start + before + error.column().saturating_sub(1)).min(self.text.len());
                return Err(self.set_syntax_error(at, at + 1, "this is not JSON", "here"));
            }
            None => return Err(self.set_syntax_error(start, start, "the JSON value is missing", "here")),
        };
        self.at = start + stream.byte_offset();
        if json.is_too_deep {
            return Err(depth::too_deep(self.argument_place(start, self.at)));
        }
        if let Some(twice) = json.twice {
            let whole: Vec<String> = path.iter().map(|part| part.name.clone()).chain(twice).collect();
            let message = format!("the key `{}` is given twice", shorten_text(&show_path(&whole)));
            let place = self.argument_place(start, self.at);
            return Err(Diagnostic::error("duplicate-key", message).at(place).label("in this JSON"));
        }
        Ok(Node::from_json(&json.value, self.argument_origin(start, self.at)))
    }

    /// A path and the value for it; together they nest no deeper than the values of a file.
    fn read_assignment(&mut self, kind: SetKind, read: ReadFile<'_>) -> Result<Assignment, Diagnostic> {
        let path = self.read_path()?;
        if let Some(part) = path.get(MAX_DEPTH) {
            return Err(self.too_deep(part.origin));
        }
        let node = self.read_assigned_value(kind, &path, read)?;
        match depth::find_too_deep(&node, path.len()) {
            Some(origin) => Err(self.too_deep(origin)),
            None => Ok(Assignment { path, node }),
        }
    }

    fn too_deep(&self, origin: Origin) -> Diagnostic {
        depth::too_deep(self.argument_place(origin.start as usize, origin.end as usize))
    }

    fn read_assigned_value(
        &mut self,
        kind: SetKind,
        path: &[PathPart],
        read: ReadFile<'_>,
    ) -> Result<Node, Diagnostic> {
        let start = self.at;
        match kind {
            SetKind::Json => self.read_json(path),
            SetKind::File => {
                let path = self.read_until(&[',']);
                let origin = self.argument_origin(start, self.at);
                let content =
                    read(&path).map_err(|problem| problem.at(Place::in_text(self.flag, self.text, start, self.at)))?;
                Ok(Node::new(Data::Text(content), origin))
            }
            SetKind::Value | SetKind::Text if self.remaining_text().starts_with('{') => {
                self.at += 1;
                let mut items = Vec::new();
                loop {
                    let from = self.at;
                    let item = self.read_until(&[',', '}']);
                    let origin = self.argument_origin(from, self.at);
                    let end = self.remaining_text().chars().next();
                    if !(end == Some('}') && items.is_empty() && item.is_empty()) {
                        items.push(scalar_node(kind, &item, origin));
                    }
                    match end {
                        Some(',') => self.at += 1,
                        Some(_) => {
                            self.at += 1;
                            break;
                        }
                        None => {
                            return Err(self.set_syntax_error(
                                start,
                                start + 1,
                                "the brace is not closed",
                                "`}` is missing",
                            ));
                        }
                    }
                }
                Ok(Node::new(Data::List(items), self.argument_origin(start, self.at)))
            }
            SetKind::Value | SetKind::Text => {
                let text = self.read_until(&[',']);
                Ok(scalar_node(kind, &text, self.argument_origin(start, self.at)))
            }
        }
    }
}

fn show_path_of(path: &[PathPart]) -> String {
    show_path(&path.iter().map(|part| part.name.clone()).collect::<Vec<_>>())
}

fn scalar_node(kind: SetKind, text: &str, origin: Origin) -> Node {
    match kind {
        // An empty value is empty text, as in Helm; to delete, say `null`.
        SetKind::Value if !text.is_empty() => Node::from_plain_scalar(text, origin),
        _ => Node::new(Data::Text(text.to_owned()), origin),
    }
}

/// Reads one argument: `a.b=1,c[0].d=x`. `source` is its number among the sources, of which it is the text.
pub(super) fn parse_assignments(
    kind: SetKind,
    text: &str,
    source: u32,
    read: ReadFile<'_>,
) -> Result<Vec<Assignment>, Diagnostic> {
    let mut argument = Argument { flag: kind.flag_name(), text, source, at: 0 };
    let mut assignments = Vec::new();
    // The whole of the values as one object.
    if kind == SetKind::Json && text.trim_start().starts_with('{') {
        let node = argument.read_assigned_value(kind, &[], read)?;
        let rest = argument.remaining_text();
        let at = argument.at + rest.len() - rest.trim_start().len();
        return match text[at..].chars().next() {
            None => Ok(vec![Assignment { path: Vec::new(), node }]),
            Some(_) => Err(argument.set_syntax_error(
                at,
                text.len(),
                "the JSON object ends before this text",
                "use a separate flag for this",
            )),
        };
    }
    // As in Helm: nothing at all, and nothing behind the last comma, set nothing.
    while !argument.remaining_text().is_empty() {
        assignments.push(argument.read_assignment(kind, read)?);
        match argument.remaining_text().chars().next() {
            None => break,
            Some(',') => argument.at += 1,
            Some(_) => {
                let at = argument.at;
                return Err(argument.set_syntax_error(at, at + 1, "a comma is missing", "before this"));
            }
        }
    }
    Ok(assignments)
}

/// Writes the value into the tree. Missing mappings and lists on the way are made.
pub(super) fn apply_assignment(
    root: &mut Node,
    assignment: Assignment,
    place: impl Fn(Origin) -> Place,
) -> Result<(), Diagnostic> {
    let mut node = root;
    // What was not there before is not overridden.
    let mut is_fresh = false;
    for part in &assignment.path {
        let container = if part.index.is_some() {
            Data::List(Vec::new())
        } else {
            Data::Map(Mapping { replaces: true, ..Mapping::default() })
        };
        if std::mem::discriminant(&node.data) != std::mem::discriminant(&container) {
            if node.data != Data::Null && part.index.is_some() {
                return Err(Diagnostic::error("set-index", format!("this is {}, not a list", node.type_name()))
                    .at(place(part.origin))
                    .path(show_path_of(&assignment.path)));
            }
            if node.data != Data::Null {
                node.overrode.push(node.origin);
            }
            *node = Node { overrode: std::mem::take(&mut node.overrode), ..Node::new(container, part.origin) };
        }
        node = match &mut node.data {
            Data::Map(map) => {
                is_fresh = !map.entries.contains_key(&part.name);
                let entry = map
                    .entries
                    .entry(part.name.clone())
                    .or_insert_with(|| Entry { key: part.origin, node: Node::new(Data::Null, part.origin) });
                &mut entry.node
            }
            Data::List(items) => {
                let index = part.index.unwrap_or_default();
                let length = items.len();
                if index > length {
                    return Err(Diagnostic::error(
                        "set-index",
                        format!("the list has {length} entries, so the next index is {length}"),
                    )
                    .at(place(part.origin))
                    .path(show_path_of(&assignment.path)));
                }
                is_fresh = index == length;
                if is_fresh {
                    items.push(Node::new(Data::Null, part.origin));
                }
                &mut items[index]
            }
            _ => return Ok(()),
        };
    }
    let below = std::mem::replace(node, Node::new(Data::Null, assignment.node.origin));
    *node = if is_fresh { assignment.node } else { merge_nodes(below, assignment.node) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(kind: SetKind, start: &Value, arguments: &[&str]) -> Result<Value, String> {
        let mut root = Node::from_json(start, Origin::default());
        for argument in arguments {
            let assignments = parse_assignments(kind, argument, 0, &|path| Ok(format!("<{path}>")));
            for assignment in assignments.map_err(|error| error.message)? {
                apply_assignment(&mut root, assignment, |_| Place::in_text("", "", 0, 0))
                    .map_err(|error| error.message)?;
            }
        }
        Ok(root.to_json())
    }

    fn set_values(start: &Value, arguments: &[&str]) -> Value {
        set(SetKind::Value, start, arguments).unwrap()
    }

    #[test]
    fn helms_syntax_is_understood() {
        let start = json!({"a": {"x": 1}, "l": [{"n": 1}, {"n": 2}]});
        assert_eq!(
            set_values(&start, &["a.y=2,b=text"]),
            json!({"a": {"x": 1, "y": 2}, "b": "text", "l": [{"n": 1}, {"n": 2}]})
        );
        assert_eq!(set_values(&start, &["l[1].n=5"])["l"], json!([{"n": 1}, {"n": 5}]));
        assert_eq!(set_values(&start, &["l[2].n=5"])["l"], json!([{"n": 1}, {"n": 2}, {"n": 5}]));
        assert_eq!(set_values(&start, &["l={a,2,}"])["l"], json!(["a", 2, ""]));
        assert_eq!(set_values(&start, &["l={}"])["l"], json!([]));
        assert_eq!(set_values(&start, &[r"a.k\.x\=y=1\,2"])["a"], json!({"x": 1, "k.x=y": "1,2"}));
        assert_eq!(set_values(&start, &["", "b=1,", "c=2,"])["b"], json!(1));
        assert_eq!(set_values(&start, &["a=null"]), json!({"l": [{"n": 1}, {"n": 2}]}));
        assert_eq!(set_values(&start, &["a.x=true", "a.x="])["a"], json!({"x": ""}));
        assert_eq!(set_values(&start, &["a.x.y=1"])["a"], json!({"x": {"y": 1}}));
        assert_eq!(set(SetKind::Text, &start, &["a.x=true,b=null"]).unwrap()["b"], json!("null"));
        assert_eq!(set(SetKind::File, &start, &["a.x=./f"]).unwrap()["a"], json!({"x": "<./f>"}));
        assert_eq!(
            set(SetKind::Json, &start, &[r#"a={"y":[1,2]},b="x,y""#]).unwrap()["a"],
            json!({"x": 1, "y": [1, 2]})
        );
        assert_eq!(set(SetKind::Json, &start, &[r#"{"b": 1}"#]).unwrap()["b"], json!(1));
    }

    #[test]
    fn what_cannot_be_meant_is_an_error() {
        let start = json!({"l": [1], "s": "x"});
        for (argument, part) in [
            ("=1", "a key is missing"),
            ("a", "`a` has no value"),
            ("a..b=1", "a key is missing"),
            ("a.b", "`a.b` has no value"),
            ("l[=1", "not closed"),
            ("l[x]=1", "`x` is not an index"),
            ("l[-1]=1", "`-1` is not an index"),
            ("l[99999999999]=1", "not an index"),
            ("l[5]=1", "the list has 1 entries"),
            ("s[0]=1", "not a list"),
            ("l={a", "brace is not closed"),
            ("l={a}b=1", "a comma is missing"),
        ] {
            let error = set(SetKind::Value, &start, &[argument]).unwrap_err();
            assert!(error.contains(part), "{argument}: {error}");
        }
        for argument in ["a=", "a={", "a=[1,]", "a=1 2"] {
            assert!(set(SetKind::Json, &start, &[argument]).is_err(), "{argument}");
        }
        for (argument, column) in [(r#"{"b": 1} garbage,x"#, 10), (r#"{"b": 1},s=2"#, 9)] {
            let error = parse_assignments(SetKind::Json, argument, 0, &|_| Ok(String::new())).unwrap_err();
            assert_eq!(error.message, "the JSON object ends before this text", "{argument}");
            assert_eq!(error.place.map(|place| place.column), Some(column), "{argument}");
        }
        assert_eq!(set(SetKind::Json, &start, &["{\"b\": 1} \n"]).unwrap()["b"], json!(1));
    }

    #[test]
    fn a_key_that_json_has_twice_is_named_with_its_path() {
        for (argument, path) in [
            (r#"etcd={"replicas":1,"replicas":3}"#, "etcd.replicas"),
            (r#"a=1,l[0].m={"x":[{"y":1,"y":2}]}"#, "l[0].m.x[0].y"),
            (r#"{"a":{"b":1},"a":{}}"#, "a"),
        ] {
            let error = set(SetKind::Json, &json!({"l": [{}]}), &[argument]).unwrap_err();
            assert_eq!(error, format!("the key `{path}` is given twice"));
        }
    }

    #[test]
    fn an_error_in_json_is_shown_on_its_own_line() {
        for (argument, line, column) in
            [("a=[1,,2]", 1, 6), ("a={\n  \"b\": x}", 2, 8), ("a=1,b=[\n1,\n  oops]", 3, 3), ("{\"a\":\n\n ä}", 3, 2)]
        {
            let error = parse_assignments(SetKind::Json, argument, 0, &|_| Ok(String::new())).unwrap_err();
            let place = error.place.unwrap();
            assert_eq!((place.line, place.column), (line, column), "{argument}");
        }
    }
}
