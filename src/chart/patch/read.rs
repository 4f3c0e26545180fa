//! Reads files of patches: documents, their targets, and what they change.

use json_patch::PatchOperation;
use serde_json::{Map, Value};

use crate::chart::diagnostic::{Diagnostic, Diagnostics};
use crate::chart::yaml::node::{Data, Mapping, Node, Sources};
use crate::chart::yaml::read;

use super::{Change, Patch, Patches, Target, strategic};

/// Forms that a document may have, as advice for people.
const FORM: &str = "write a part of an object with `kind` and `metadata.name`, or `{target: {kind, name}, patch: [{op, path, value}]}`";

pub(super) fn parse_patch_files(
    files: impl IntoIterator<Item = (String, Result<Vec<u8>, Diagnostic>)>,
) -> Result<Patches, Diagnostics> {
    let mut reader = PatchReader { patches: Patches::default(), problems: Vec::new() };
    for (name, bytes) in files {
        match bytes.and_then(|bytes| read::decode_text(&name, &bytes)) {
            Ok(text) => reader.read_patch_file(name, text),
            Err(problem) => reader.problems.push(Diagnostic { code: "patch-file", ..problem }),
        }
    }
    if reader.problems.is_empty() { Ok(reader.patches) } else { Err(Diagnostics(reader.problems)) }
}

struct PatchReader {
    patches: Patches,
    problems: Vec<Diagnostic>,
}

type PatchResult<T> = Result<T, Diagnostic>;

impl PatchReader {
    fn read_patch_file(&mut self, name: String, text: String) {
        let source = self.patches.sources.add_source(name.clone(), text);
        let documents = match read::read_all(&self.patches.sources, source) {
            Ok(documents) => documents,
            Err(problems) => {
                let problems = problems.into_iter().map(|problem| Diagnostic { code: "patch-file", ..problem });
                return self.problems.extend(problems);
            }
        };
        if documents.is_empty() {
            let message = format!("{name} contains no patch");
            self.problems.push(Diagnostic::error("patch-file", message).help(FORM));
        }
        for (index, node) in documents.into_iter().enumerate() {
            match parse_patch(&self.patches.sources, index + 1, node) {
                Ok(patch) => self.patches.documents.push(patch),
                Err(problem) => self.problems.push(problem),
            }
        }
        self.patches.files.push(name);
    }
}

fn form_error(sources: &Sources, node: &Node, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error("patch-form", message).at(sources.place_at(node.origin)).help(FORM)
}

fn parse_patch(sources: &Sources, document: usize, node: Node) -> PatchResult<Patch> {
    let Data::Map(map) = &node.data else {
        return Err(form_error(sources, &node, format!("document {document} is {}, not a patch", node.type_name())));
    };
    if let (Some(target), Some(patch)) = (map.entries.get("target"), map.entries.get("patch")) {
        if let Some((key, entry)) = map.entries.iter().find(|(key, _)| !["target", "patch"].contains(&key.as_str())) {
            let problem = Diagnostic::error(
                "patch-form",
                format!("`{key}` is not allowed: a patch with a target has only `target` and `patch`"),
            );
            return Err(problem.at(sources.place_at(entry.key)).help(FORM));
        }
        let Data::Map(fields) = &target.node.data else {
            return Err(form_error(sources, &target.node, "`target` must be a mapping with `kind` and `name`"));
        };
        let known = ["group", "version", "kind", "namespace", "name"];
        if let Some((key, entry)) = fields.entries.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            let problem = Diagnostic::error("patch-form", format!("`{key}` is not a field of a target"));
            let help = "a target has `group`, `kind`, `namespace` and `name`";
            return Err(problem.at(sources.place_at(entry.key)).help(help));
        }
        let (target, body) = (self::parse_target(sources, &target.node, fields, fields)?, patch.node.clone());
        let change = match &body.data {
            Data::List(items) => Change::Operations(parse_operations(sources, items)?),
            Data::Map(_) => parse_merge_patch(sources, &body)?,
            _ => {
                return Err(form_error(
                    sources,
                    &body,
                    "`patch` must be a list of operations, or a part of the object",
                ));
            }
        };
        return Ok(Patch { target, document, node: body, change });
    }
    let empty = Mapping::default();
    let metadata = match map.entries.get("metadata").map(|entry| &entry.node.data) {
        Some(Data::Map(metadata)) => metadata,
        _ => &empty,
    };
    let target = parse_target(sources, &node, map, metadata)?;
    let change = parse_merge_patch(sources, &node)?;
    Ok(Patch { target, document, node, change })
}

/// The target, out of the mapping with its kind and the one with its name.
fn parse_target(sources: &Sources, node: &Node, of_kind: &Mapping, of_name: &Mapping) -> PatchResult<Target> {
    let kind = find_target_text(sources, of_kind, "kind")?
        .ok_or_else(|| form_error(sources, node, "a patch has no `kind`"))?;
    let name = find_target_text(sources, of_name, "name")?
        .ok_or_else(|| form_error(sources, node, "a patch does not name its object"))?;
    let api_version = find_target_text(sources, of_kind, "apiVersion")?;
    let group = match api_version {
        Some(version) => Some(version.rsplit_once('/').map_or_else(String::new, |(group, _)| group.to_owned())),
        None => find_target_text(sources, of_kind, "group")?,
    };
    let origin = of_name.entries.get("name").map_or(node.origin, |entry| entry.node.origin);
    Ok(Target { group, kind, namespace: find_target_text(sources, of_name, "namespace")?, name, origin })
}

/// The text of a key, however it is written.
fn find_target_text(sources: &Sources, map: &Mapping, key: &str) -> PatchResult<Option<String>> {
    match map.entries.get(key).map(|entry| &entry.node) {
        None => Ok(None),
        Some(Node { data: Data::Text(text), .. }) => Ok(Some(text.clone())),
        Some(other) => match &other.raw {
            Some(raw) => Ok(Some(raw.to_string())),
            None => Err(form_error(sources, other, format!("`{key}` is {}, not text", other.type_name()))),
        },
    }
}

fn parse_merge_patch(sources: &Sources, node: &Node) -> PatchResult<Change> {
    let part = with_nulls(sources, node)?;
    if let Some((path, directive)) = strategic::unknown_directive(&part, &mut Vec::new()) {
        let message = format!("unknown directive `{directive}`");
        let problem = Diagnostic::error("patch-form", message).at(sources.place_at(node.find_nearest(&path).origin));
        return Err(problem.help("use `$patch: delete` or `$patch: replace`; null removes a field"));
    }
    if part.get("$patch").is_some() {
        let problem = Diagnostic::error("patch-form", "a patch cannot delete or replace a whole object");
        return Err(problem.at(sources.place_at(node.origin)).help("change single fields"));
    }
    Ok(Change::Merge(part))
}

fn parse_operations(
    sources: &Sources,
    items: &[Node],
) -> PatchResult<Vec<(PatchOperation, crate::chart::yaml::node::Origin)>> {
    items.iter().map(|item| Ok((parse_operation(sources, item)?, item.origin))).collect()
}

fn parse_operation(sources: &Sources, item: &Node) -> PatchResult<PatchOperation> {
    let json = with_nulls(sources, item)?;
    let known = ["op", "path", "from", "value"];
    let stray = json.as_object().and_then(|map| map.keys().find(|key| !known.contains(&key.as_str())).cloned());
    let message = match stray {
        Some(key) => format!("`{key}` is not a field of an operation"),
        None => match serde_json::from_value(json) {
            Ok(operation) => return Ok(operation),
            Err(error) => format!("this is not a JSON patch operation: {error}"),
        },
    };
    let help = "an operation is `add`, `replace` or `test` with `path` and `value`, `remove` with `path`, `move` or `copy` \
                with `from` and `path`; paths are JSON pointers, `/spec/replicas`";
    Err(Diagnostic::error("patch-form", message).at(sources.place_at(item.origin)).help(help))
}

/// The node as JSON in which nulls stay.
///
/// # Errors
/// A scalar about which readers of YAML disagree: no schema says here what is meant.
fn with_nulls(sources: &Sources, node: &Node) -> PatchResult<Value> {
    Ok(match &node.data {
        Data::Unclear(unclear) => {
            let (message, help) = unclear.explain_problem(node.raw.as_deref().unwrap_or_default());
            return Err(Diagnostic::error("patch-form", message).at(sources.place_at(node.origin)).help(help));
        }
        Data::List(items) => {
            items.iter().map(|item| with_nulls(sources, item)).collect::<PatchResult<Vec<_>>>()?.into()
        }
        Data::Map(map) => {
            let entries = map.entries.iter().map(|(key, entry)| Ok((key.clone(), with_nulls(sources, &entry.node)?)));
            Value::Object(entries.collect::<PatchResult<Map<_, _>>>()?)
        }
        _ => node.to_json(),
    })
}
