//! Puts the entries of a control plane into somebody's kubeconfig, or takes them out, byte by byte: whatever is not ours
//! stays as it is written, comments and order included.
//!
//! The text is parsed for places only and then cut and joined; afterwards both texts are read and compared, so that an
//! edit that changed anything else is refused and never written.

use std::ops::Range;

use granit_parser::{Event, Parser, Span, StructureStyle};
use serde_json::{Map, Value, json};

use super::Kubeconfig;
use super::kubeconfig::admin_user;

/// The lists of a kubeconfig, each with the key under which an entry has its content.
const LISTS: [(&str, &str); 3] = [("clusters", "cluster"), ("users", "user"), ("contexts", "context")];

/// Reason that a kubeconfig is left as it is. No variant carries a value of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// It cannot be read, or is written in a way that cannot be edited.
    #[error("it cannot be edited: {0}")]
    Unusable(&'static str),
    /// An entry of that name belongs to something else.
    #[error("it has a {kind} `{name}` that belongs to another control plane")]
    Taken {
        /// `cluster`, `user` or `context`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
}

/// Result of an edit of a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The whole text.
    pub text: String,
    /// True if the current context is the control plane's.
    pub current: bool,
}

/// A part of the text: what it is, and where.
#[derive(Debug)]
struct EditedPart {
    data: Data,
    range: Range<usize>,
}

#[derive(Debug)]
enum Data {
    Scalar(String),
    List(StructureStyle, Vec<EditedPart>),
    Map(StructureStyle, Vec<(EditedPart, EditedPart)>),
}

impl EditedPart {
    fn as_scalar(&self) -> Option<&str> {
        if let Data::Scalar(text) = &self.data { Some(text) } else { None }
    }

    fn find_entry(&self, key: &str) -> Option<&(Self, Self)> {
        let Data::Map(_, entries) = &self.data else { return None };
        entries.iter().find(|(name, _)| name.as_scalar() == Some(key))
    }

    fn get(&self, key: &str) -> Option<&Self> {
        self.find_entry(key).map(|(_, value)| value)
    }
}

struct Reader<'t> {
    events: Vec<(Event<'t>, Span)>,
    next: usize,
    end: usize,
}

impl<'t> Reader<'t> {
    fn next_event(&mut self) -> Option<(Event<'t>, Range<usize>)> {
        let (event, span) = self.events.get(self.next)?;
        self.next += 1;
        // What is not written, such as the null behind `users:`, lies at the end of what is.
        let range = span.byte_range().unwrap_or(self.end..self.end);
        self.end = range.end;
        Some((event.clone(), range))
    }

    /// The next part; none at the end of a list or mapping, and for what has no place in a kubeconfig.
    fn read_part(&mut self) -> Option<EditedPart> {
        let (event, range) = self.next_event()?;
        let start = range.start;
        match event {
            Event::Scalar(text, _, 0, None) => Some(EditedPart { data: Data::Scalar(text.into_owned()), range }),
            Event::SequenceStart(style, 0, None) => {
                let mut items = Vec::new();
                while !matches!(self.events.get(self.next)?.0, Event::SequenceEnd) {
                    items.push(self.read_part()?);
                }
                let end = self.next_event()?.1.end;
                let last = items.last().map_or(range.end, |item| item.range.end);
                let end = if style == StructureStyle::Flow { end } else { last };
                Some(EditedPart { data: Data::List(style, items), range: start..end })
            }
            Event::MappingStart(style, 0, None) => {
                let mut entries = Vec::new();
                while !matches!(self.events.get(self.next)?.0, Event::MappingEnd) {
                    let key = self.read_part()?;
                    entries.push((key, self.read_part()?));
                }
                let end = self.next_event()?.1.end;
                let last = entries.last().map_or(range.end, |(key, value)| value.range.end.max(key.range.end));
                let end = if style == StructureStyle::Flow { end } else { last };
                Some(EditedPart { data: Data::Map(style, entries), range: start..end })
            }
            _ => None,
        }
    }
}

fn parse_parts(text: &str) -> Result<EditedPart, EditError> {
    let options = granit_parser::options! { emit_comments: false };
    let events: Result<Vec<_>, _> = Parser::new_from_str_with_options(text, options).collect();
    let events = events.map_err(|_| EditError::Unusable("it is not YAML"))?;
    if events.iter().filter(|(event, _)| matches!(event, Event::DocumentStart(..))).count() != 1 {
        return Err(EditError::Unusable("it is not a single document"));
    }
    if events.iter().any(|(event, _)| matches!(event, Event::Alias(..))) {
        return Err(EditError::Unusable("it has aliases"));
    }
    let begin = events.iter().position(|(event, _)| matches!(event, Event::DocumentStart(..))).unwrap_or_default() + 1;
    let mut reader = Reader { events, next: begin, end: 0 };
    let root = reader.read_part().ok_or(EditError::Unusable("it has anchors or tags"))?;
    match root.data {
        Data::Map(StructureStyle::Flow, _) => Err(EditError::Unusable("it is written as JSON")),
        Data::Map(..) => Ok(root),
        _ => Err(EditError::Unusable("it is not a mapping")),
    }
}

fn parse_values(text: &str) -> Result<Value, EditError> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    serde_saphyr::from_str(text).map_err(|_| EditError::Unusable("it cannot be read"))
}

/// The end of the line in which `at` lies, its line break included.
fn line_end(text: &str, at: usize) -> usize {
    if at > 0 && text.as_bytes()[at - 1] == b'\n' {
        return at;
    }
    text[at..].find('\n').map_or(text.len(), |offset| at + offset + 1)
}

/// The lines of an item of a block list, and the column of its dash.
fn lines_of(text: &str, item: &EditedPart) -> Result<(Range<usize>, usize), EditError> {
    let before = text[..item.range.start].trim_end();
    let Some(dash) = before.len().checked_sub(1).filter(|_| before.ends_with('-')) else {
        return Err(EditError::Unusable("a list is not written with dashes"));
    };
    let start = text[..dash].rfind('\n').map_or(0, |at| at + 1);
    if !text[start..dash].chars().all(|c| c == ' ') {
        return Err(EditError::Unusable("a list has an unsupported YAML style"));
    }
    let content = text[item.range.clone()].trim_end().len();
    Ok((start..line_end(text, item.range.start + content), dash - start))
}

/// One entry as an item of a list whose dashes stand at `indent`. Bodies are flat, so each value fits its line as JSON.
fn format_list_item(indent: usize, key: &str, name: &str, body: &Map<String, Value>) -> String {
    let pad = " ".repeat(indent);
    let mut text = format!("{pad}- {key}:\n");
    for (field, value) in body {
        text.push_str(&format!("{pad}    {field}: {value}\n"));
    }
    text.push_str(&format!("{pad}  name: {}\n", Value::from(name)));
    text
}

type Edits = Vec<(Range<usize>, String)>;

fn apply_edits(text: &str, mut edits: Edits) -> String {
    edits.sort_by_key(|(range, _)| std::cmp::Reverse((range.start, range.end)));
    let mut result = text.to_owned();
    for (range, new) in edits {
        let needs_break =
            range.start > 0 && !result[..range.start].ends_with('\n') && new.starts_with([' ', '-', 'c', 'u']);
        result.replace_range(range, &if needs_break && new.ends_with('\n') { format!("\n{new}") } else { new });
    }
    result
}

/// Puts an entry into a list: in the place of the one of that name, else at its end.
fn put_entry(
    text: &str,
    root: &EditedPart,
    list: &str,
    key: &str,
    name: &str,
    body: &Map<String, Value>,
) -> Result<Edits, EditError> {
    let Some((list_key, value)) = root.find_entry(list) else {
        let end = text.trim_end().len();
        let end = line_end(text, end);
        return Ok(vec![(end..end, format!("{list}:\n{}", format_list_item(0, key, name, body)))]);
    };
    match &value.data {
        Data::List(StructureStyle::Block, items) if !items.is_empty() => {
            let mut last = (0..0, 0);
            for one in items {
                last = lines_of(text, one)?;
                if one.get("name").and_then(EditedPart::as_scalar) == Some(name) {
                    return Ok(vec![(last.0, format_list_item(last.1, key, name, body))]);
                }
            }
            let end = last.0.end;
            Ok(vec![(end..end, format_list_item(last.1, key, name, body))])
        }
        Data::List(_, items) if !items.is_empty() => Err(EditError::Unusable("a list is written as JSON")),
        Data::Map(..) => Err(EditError::Unusable("a list is a mapping")),
        // `[]`, `null` or nothing: the list begins on the next line.
        _ => {
            let end = line_end(text, value.range.end.max(list_key.range.end));
            let mut edits = vec![(end..end, format_list_item(0, key, name, body))];
            if !text[value.range.clone()].trim().is_empty() {
                edits.push((value.range.clone(), String::new()));
            }
            Ok(edits)
        }
    }
}

fn remove_entry(text: &str, root: &EditedPart, list: &str, name: &str) -> Result<Edits, EditError> {
    let Some((list_key, value)) = root.find_entry(list) else { return Ok(Vec::new()) };
    let Data::List(style, items) = &value.data else { return Ok(Vec::new()) };
    let Some(found) = items.iter().find(|item| item.get("name").and_then(EditedPart::as_scalar) == Some(name)) else {
        return Ok(Vec::new());
    };
    if *style == StructureStyle::Flow {
        return Err(EditError::Unusable("a list is written as JSON"));
    }
    let mut edits = vec![(lines_of(text, found)?.0, String::new())];
    if items.len() == 1 {
        let colon = text[list_key.range.end..].find(':').map(|at| list_key.range.end + at + 1);
        let colon = colon.ok_or(EditError::Unusable("a list has an unsupported YAML style"))?;
        edits.push((colon..colon, " []".to_owned()));
    }
    Ok(edits)
}

fn find_named_entry<'v>(config: &'v Value, list: &str, name: &str) -> Option<&'v Value> {
    config[list].as_array()?.iter().find(|entry| entry["name"] == name)
}

/// Returns whether the context of that name is one that [`merge_kubeconfig`] made.
fn is_ours(config: &Value, name: &str) -> bool {
    find_named_entry(config, "contexts", name).is_some_and(|entry| {
        let user = entry["context"]["user"].as_str().unwrap_or_default();
        entry["context"]["cluster"] == name && user.strip_suffix(name).is_some_and(|user| user.ends_with('@'))
    })
}

/// Everything but the entries of these names, to compare two texts by. An empty list is as good as none.
fn without_entries(mut config: Value, name: &str, user: &str, current: bool) -> Value {
    for (list, key) in LISTS {
        let own = if key == "user" { user } else { name };
        let kept: Vec<Value> =
            config[list].as_array().into_iter().flatten().filter(|entry| entry["name"] != own).cloned().collect();
        config[list] = kept.into();
    }
    if current {
        config["current-context"] = Value::Null;
    }
    config
}

/// Puts the entries of `ours` into `text` as those of control plane `name`.
///
/// The current context is changed only with `make_current`.
///
/// # Errors
/// [`EditError`]; entries of these names that [`merge_kubeconfig`] did not make are never replaced.
pub fn merge_kubeconfig(text: &str, ours: &Kubeconfig, name: &str, make_current: bool) -> Result<Edited, EditError> {
    let before = parse_values(text)?;
    let own = serde_json::to_value(ours.to_document())
        .map_err(|_| EditError::Unusable("its new entries cannot be written"))?;
    let user = admin_user(name);
    if !is_ours(&before, name) {
        for (list, kind) in LISTS {
            let taken = if kind == "user" { &user } else { name };
            if find_named_entry(&before, list, taken).is_some() {
                return Err(EditError::Taken { kind, name: taken.to_owned() });
            }
        }
    }
    let mut context = copy_first_entry(&own, "contexts", "context");
    context.insert("cluster".to_owned(), name.into());
    context.insert("user".to_owned(), user.clone().into());
    let mut result = if text.trim().is_empty() {
        format!("{text}apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\ncurrent-context: \"\"\nusers: []\n")
    } else {
        text.to_owned()
    };
    for (list, key, own_name, body) in [
        ("clusters", "cluster", name, copy_first_entry(&own, "clusters", "cluster")),
        ("users", "user", user.as_str(), copy_first_entry(&own, "users", "user")),
        ("contexts", "context", name, context),
    ] {
        let edits = put_entry(&result, &parse_parts(&result)?, list, key, own_name, &body)?;
        result = apply_edits(&result, edits);
    }
    if make_current {
        result = set_current_context(&result, name)?;
    }
    let after = parse_values(&result)?;
    let complete = LISTS
        .iter()
        .all(|(list, key)| find_named_entry(&after, list, if *key == "user" { &user } else { name }).is_some());
    let start = if text.trim().is_empty() {
        json!({"apiVersion": "v1", "kind": "Config", "current-context": ""})
    } else {
        before
    };
    if !complete
        || without_entries(start, name, &user, make_current)
            != without_entries(after.clone(), name, &user, make_current)
    {
        return Err(EditError::Unusable("its YAML has an unsupported style"));
    }
    Ok(Edited { text: result, current: after["current-context"] == name })
}

fn copy_first_entry(document: &Value, list: &str, key: &str) -> Map<String, Value> {
    document[list][0][key].as_object().cloned().unwrap_or_default()
}

fn set_current_context(text: &str, name: &str) -> Result<String, EditError> {
    let root = parse_parts(text)?;
    let quoted = Value::from(name).to_string();
    let edit = match root.find_entry("current-context") {
        Some((_, value)) if !value.range.is_empty() => (value.range.clone(), quoted),
        Some((key, _)) => {
            let colon = text[key.range.end..].find(':').map(|at| key.range.end + at + 1);
            let colon = colon.ok_or(EditError::Unusable("its YAML has an unsupported style"))?;
            (colon..colon, format!(" {quoted}"))
        }
        None => {
            let end = line_end(text, text.trim_end().len());
            (end..end, format!("current-context: {quoted}\n"))
        }
    };
    Ok(apply_edits(text, vec![edit]))
}

/// Takes the entries of `name` out that [`merge_kubeconfig`] made. The cluster and the user stay where another context uses them.
/// None when there is nothing of that name.
///
/// # Errors
/// [`EditError`]; a context that [`merge_kubeconfig`] did not make is never removed.
pub fn remove_from_kubeconfig(text: &str, name: &str) -> Result<Option<Edited>, EditError> {
    let before = parse_values(text)?;
    let Some(context) = find_named_entry(&before, "contexts", name) else { return Ok(None) };
    if !is_ours(&before, name) {
        return Err(EditError::Taken { kind: "context", name: name.to_owned() });
    }
    let user = context["context"]["user"].as_str().unwrap_or_default().to_owned();
    let contexts = before["contexts"].as_array().into_iter().flatten();
    let others: Vec<&Value> = contexts.filter(|entry| entry["name"] != name).collect();
    let mut result = text.to_owned();
    for (list, key) in LISTS {
        let own = if key == "user" { user.as_str() } else { name };
        if key == "context" || !others.iter().any(|entry| entry["context"][key] == own) {
            let edits = remove_entry(&result, &parse_parts(&result)?, list, own)?;
            result = apply_edits(&result, edits);
        }
    }
    let after = parse_values(&result)?;
    let gone = find_named_entry(&after, "contexts", name).is_none();
    let current = before["current-context"] == name;
    if !gone || without_entries(before, name, &user, false) != without_entries(after, name, &user, false) {
        return Err(EditError::Unusable("its YAML has an unsupported style"));
    }
    Ok(Some(Edited { text: result, current }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{KubeconfigUser, SecretText};
    use proptest::prelude::*;

    fn at(host: &str) -> Kubeconfig {
        Kubeconfig {
            context: "demo".to_owned(),
            server: format!("https://{host}:6443"),
            authority: "ca".to_owned(),
            user: admin_user("demo"),
            credential: KubeconfigUser::Certificate {
                certificate: "certificate".to_owned(),
                key: SecretText::new("key".to_owned()),
            },
        }
    }

    fn ours() -> Kubeconfig {
        at("192.0.2.1")
    }

    const THEIRS: &str = "# mine\napiVersion: v1\nkind: Config\npreferences: {}\nclusters:\n- cluster: # prod\n    server: https://one\n  name: one\n# behind one\ncontexts:\n  - context: {cluster: one, user: 'u'}\n    name: one\ncurrent-context: one # keep\nusers:\n- name: u\n  user:\n    token: |\n      abc\n\n# the end\n";

    #[test]
    fn entries_are_added_replaced_and_removed_and_the_rest_stays_to_the_byte() {
        let merged = merge_kubeconfig(THEIRS, &ours(), "demo", false).unwrap();
        assert!(!merged.current);
        for line in THEIRS.lines() {
            assert!(merged.text.contains(line), "{line} in\n{}", merged.text);
        }
        assert_eq!(
            merge_kubeconfig(&merged.text, &ours(), "demo", false).unwrap().text,
            merged.text,
            "a second time changes nothing"
        );
        let moved = merge_kubeconfig(&merged.text, &at("192.0.2.2"), "demo", false).unwrap();
        assert_eq!(moved.text, merged.text.replace("192.0.2.1", "192.0.2.2"));
        let removed = remove_from_kubeconfig(&merged.text, "demo").unwrap().unwrap();
        assert_eq!(removed.text, THEIRS);
        assert_eq!(remove_from_kubeconfig(THEIRS, "demo"), Ok(None));
    }

    #[test]
    fn empty_lists_however_written_and_an_empty_file_take_entries() {
        for text in
            ["", "clusters:\ncontexts: null\nusers: [] # none\n", "apiVersion: v1\nkind: Config", "clusters: ~\n"]
        {
            let merged = merge_kubeconfig(text, &ours(), "demo", true).unwrap();
            assert!(merged.current, "{}", merged.text);
            let removed = remove_from_kubeconfig(&merged.text, "demo").unwrap().unwrap();
            assert!(removed.current && !removed.text.contains("192.0.2.1"), "{}", removed.text);
            assert!(merge_kubeconfig(&removed.text, &ours(), "demo", false).is_ok(), "{}", removed.text);
        }
    }

    #[test]
    fn what_is_not_ours_is_neither_replaced_nor_removed() {
        let taken = THEIRS.replace("one", "demo");
        let error = merge_kubeconfig(&taken, &ours(), "demo", false).unwrap_err();
        assert_eq!(error, EditError::Taken { kind: "cluster", name: "demo".to_owned() });
        assert!(matches!(remove_from_kubeconfig(&taken, "demo"), Err(EditError::Taken { kind: "context", .. })));
        for text in ["{\"clusters\": []}", "clusters: [{name: a}]\n", "a: &x 1\nb: *x\n", "a: 1\n---\nb: 2\n", "\t- x"]
        {
            assert!(matches!(merge_kubeconfig(text, &ours(), "demo", false), Err(EditError::Unusable(_))), "{text}");
        }
    }

    #[test]
    fn a_cluster_that_another_context_uses_stays() {
        let merged = merge_kubeconfig(THEIRS, &ours(), "demo", false).unwrap().text;
        let second =
            merged.replace("contexts:\n", "contexts:\n  - {name: second, context: {cluster: demo, user: u}}\n");
        let removed = remove_from_kubeconfig(&second, "demo").unwrap().unwrap().text;
        assert!(removed.contains("192.0.2.1") && !removed.contains("client-key-data"), "{removed}");
    }

    fn name() -> impl Strategy<Value = String> {
        "[a-z0-9][a-zA-Z0-9 .:/@_-]{0,12}"
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_kubeconfig_comes_back_to_the_byte(
            names in proptest::collection::btree_set(name(), 1..5),
            indent in 0..4usize,
            comment in "( #[ a-z]{0,8})?",
            order in Just(["clusters", "contexts", "users"]).prop_shuffle(),
            end in "(\n){0,2}",
        ) {
            let mut text = format!("apiVersion: v1{comment}\n");
            for list in order {
                text.push_str(&format!("{list}:{comment}\n"));
                for name in &names {
                    let pad = " ".repeat(indent);
                    let quoted = Value::from(format!("x{name}"));
                    text.push_str(&format!("{pad}-   name: {quoted}{comment}\n{pad}    {}: {{\"cluster\": \"c\"}}\n", list.trim_end_matches('s')));
                    text.push_str(&comment);
                    text.push('\n');
                }
            }
            text.push_str(&end);
            let merged = merge_kubeconfig(&text, &ours(), "demo", false).unwrap().text;
            prop_assert_ne!(&merged, &text);
            let lines: Vec<&str> = text.lines().collect();
            let mut rest = merged.lines();
            for line in lines {
                prop_assert!(rest.any(|other| other == line), "{} is not in order in\n{}", line, merged);
            }
            prop_assert_eq!(remove_from_kubeconfig(&merged, "demo").unwrap().unwrap().text, text);
        }
    }
}
