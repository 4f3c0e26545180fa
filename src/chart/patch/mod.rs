//! Patches of rendered objects: files of the user, laid over what the templates give, before anything is planned, printed
//! or compared.
//!
//! A file holds YAML documents. Each is a part of an object with `kind` and `metadata.name`, merged as the API merges
//! patches of type strategic merge, or `{target: {kind, name}, patch: …}` with a list of JSON patch operations or such a
//! part. Patches are data that is laid over data: no text of theirs is parsed again.

mod guard;
mod read;
mod source;
mod strategic;

use json_patch::PatchOperation;
use serde_json::Value;

use crate::api::util::text::visible_line;
use crate::chart::diagnostic::{Diagnostic, Diagnostics, Place};
use crate::chart::output::canonical_json;
use crate::chart::render::Object;
use crate::chart::values::suggest::find_nearest_word;
use crate::chart::yaml::node::{Data, Node, Origin, Sources};

pub use source::PatchedBy;

/// Code of an operation that cannot be applied to what is rendered.
pub const NOT_APPLIED: &str = "patch-not-applied";

/// Prefix of the code of every problem with a patch.
pub const CODES: &str = "patch-";

/// Patches in the order in which they are applied.
#[derive(Debug, Clone, Default)]
pub struct Patches {
    sources: Sources,
    files: Vec<String>,
    documents: Vec<Patch>,
}

/// One document of a file.
#[derive(Debug, Clone)]
struct Patch {
    target: Target,
    /// Number of the document in its file, from 1.
    document: usize,
    /// The change as it is written, with its places.
    node: Node,
    change: Change,
}

/// The object that a patch is for.
#[derive(Debug, Clone)]
struct Target {
    /// The API group, where it is given; empty for the core group.
    group: Option<String>,
    kind: String,
    namespace: Option<String>,
    name: String,
    origin: Origin,
}

#[derive(Debug, Clone)]
enum Change {
    /// A part of the object; null removes.
    Merge(Value),
    /// Operations in order, each with its place.
    Operations(Vec<(PatchOperation, Origin)>),
}

/// A problem of a patch that was applied: the path in the object that it is about, and the diagnostic.
struct Wrong {
    path: Vec<String>,
    diagnostic: Diagnostic,
}

impl Target {
    fn is_for_object(&self, object: &Object) -> bool {
        let in_group = self.group.as_deref().is_none_or(|group| group == object.group());
        let in_namespace = self.namespace.is_none() || self.namespace.as_deref() == object.namespace();
        in_group && in_namespace && self.kind == object.kind() && self.name == object.name()
    }
}

impl Patches {
    /// Reads the files, each given as its name for people and its bytes, or the reason that it could not be read.
    ///
    /// # Errors
    /// Everything that is wrong with their form, each problem at its place; also files that could not be read.
    pub fn read_patch_files(
        files: impl IntoIterator<Item = (String, Result<Vec<u8>, Diagnostic>)>,
    ) -> Result<Self, Diagnostics> {
        read::parse_patch_files(files)
    }

    /// Returns whether there are no patches.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Returns the SHA-256 of targets and changes, in hexadecimal; `None` without patches.
    pub fn patch_digest(&self) -> Option<String> {
        let all: Value = self.documents.iter().map(list_changed_fields).collect();
        (!self.is_empty()).then(|| crate::api::util::digest::full_digest(canonical_json(&all).as_bytes()))
    }

    /// Returns the files' names and the digest, for a record: `web.yaml, hosts.yaml sha256:…`; `None` without patches.
    pub fn patch_summary(&self) -> Option<String> {
        Some(format!("{} sha256:{}", self.files.join(", "), self.patch_digest()?))
    }

    /// Returns the patches of a recorded release, whose record holds their `summary`: these, if they have the same
    /// digest, and none if the record has no summary.
    ///
    /// # Errors
    /// A clause for people: the release was made with other patches, which are not recorded.
    pub fn of_record(&self, summary: Option<&String>) -> Result<Self, String> {
        let Some(summary) = summary else { return Ok(Self::default()) };
        let is_same = self.patch_digest().is_some_and(|digest| summary.ends_with(&format!(" sha256:{digest}")));
        if is_same {
            return Ok(self.clone());
        }
        Err(format!(
            "it was installed with patches, which are not recorded: give `--patch` with {}",
            visible_line(summary)
        ))
    }

    /// Returns the digest of `values` (a digest) together with that of the patches, in hexadecimal; `values` itself
    /// without patches.
    pub fn digest_with(&self, values: &str) -> String {
        match self.patch_digest() {
            Some(patches) => crate::api::util::digest::full_digest(format!("{values} {patches}").as_bytes()),
            None => values.to_owned(),
        }
    }

    /// Applies all of them in order.
    ///
    /// # Errors
    /// Every patch that is for no object, that cannot be applied, or that changes what finds an object again.
    pub fn apply_to_objects(&self, objects: &mut [Object]) -> Result<(), Diagnostics> {
        let mut problems = Vec::new();
        for patch in &self.documents {
            match self.find_target_index(patch, objects) {
                Ok(index) => match self.apply_patch(patch, &objects[index]) {
                    Ok(json) => objects[index].json = json,
                    Err(found) => problems.extend(found),
                },
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Diagnostics(problems)) }
    }

    /// The index of the one object that a patch is for.
    fn find_target_index(&self, patch: &Patch, objects: &[Object]) -> Result<usize, Diagnostic> {
        let target = &patch.target;
        let found: Vec<usize> = (0..objects.len()).filter(|&index| target.is_for_object(&objects[index])).collect();
        if let [index] = found[..] {
            return Ok(index);
        }
        let place = self.sources.place_at(target.origin);
        let what = format!("document {} patches {} `{}`", patch.document, target.kind, target.name);
        match found.as_slice() {
            [] => {
                let ids: Vec<String> = objects.iter().map(format_object_name).collect();
                let asked = format!("{}/{}", target.kind, target.name);
                let problem =
                    Diagnostic::error("patch-target", format!("{what}, which the chart does not render")).at(place);
                let problem = match find_nearest_word(&asked, ids.iter().map(String::as_str)) {
                    Some(near) => problem.help(format!("did you mean `{near}`?")),
                    None => problem,
                };
                Err(problem.note(format!("the objects are: {}", ids.join(", "))))
            }
            several => {
                let namespaces: Vec<&str> = several.iter().filter_map(|&index| objects[index].namespace()).collect();
                let message = format!("{what}, but {} objects match", several.len());
                let problem = Diagnostic::error("patch-target", message).at(place);
                Err(problem.help(format!("set `namespace`: {}", namespaces.join(" or "))))
            }
        }
    }

    /// The object after one patch.
    fn apply_patch(&self, patch: &Patch, object: &Object) -> Result<Value, Vec<Diagnostic>> {
        let mut after = object.json.clone();
        match &patch.change {
            Change::Merge(part) => {
                after = strategic::merge_object(object.kind(), after, part)
                    .map_err(|wrong| vec![self.locate_problem(patch, &object.json, wrong)])?;
            }
            Change::Operations(all) => {
                for (operation, origin) in all {
                    if object.kind() == "Secret" && is_reading_operation(operation) {
                        let message = "an operation on a Secret can only add, replace and remove";
                        let problem = Diagnostic::error("patch-secret", message).at(self.sources.place_at(*origin));
                        return Err(vec![problem.help("other operations could copy secret data to a readable place")]);
                    }
                    json_patch::patch(&mut after, std::slice::from_ref(operation)).map_err(|error| {
                        let message = format!("this operation cannot be applied to {}: {}", object.id(), error.kind);
                        let problem = Diagnostic::error(NOT_APPLIED, message).at(self.sources.place_at(*origin));
                        vec![problem.help("print the manifest without the patch: `fleetctl template`")]
                    })?;
                }
            }
        }
        let found = guard::check_patched_object(&object.json, &after);
        if found.is_empty() {
            return Ok(after);
        }
        Err(found.into_iter().map(|wrong| self.locate_problem(patch, &after, wrong)).collect())
    }

    fn locate_problem(&self, patch: &Patch, object: &Value, wrong: Wrong) -> Diagnostic {
        let path = crate::chart::yaml::node::show_path(&wrong.path);
        wrong.diagnostic.at(self.find_patch_place(patch, object, &wrong.path)).path(path)
    }

    /// The place in a patch that says something about a path of the object.
    fn find_patch_place(&self, patch: &Patch, object: &Value, path: &[String]) -> Place {
        let origin = match &patch.change {
            Change::Merge(_) => nearest_node(&patch.node, object, path),
            Change::Operations(all) => {
                let rated = all.iter().filter_map(|(operation, origin)| {
                    Some((count_common_parts(operation.path().as_str(), path)?, origin))
                });
                rated.max_by_key(|(common, _)| *common).map_or(patch.node.origin, |(_, origin)| *origin)
            }
        };
        self.sources.place_at(origin)
    }
}

/// The number of leading parts that a pointer shares with a path; none where it is about something beside the path.
fn count_common_parts(pointer: &str, path: &[String]) -> Option<usize> {
    let pointer: Vec<String> = pointer.split('/').skip(1).map(unescape_pointer_part).collect();
    let common = pointer.iter().zip(path).take_while(|(one, other)| one == other).count();
    (common + 1 >= pointer.len() || common == path.len()).then_some(common)
}

/// What a patch is for and what it changes, however it is written.
fn list_changed_fields(patch: &Patch) -> Value {
    let Target { group, kind, namespace, name, .. } = &patch.target;
    let change = match &patch.change {
        Change::Merge(part) => part.clone(),
        Change::Operations(all) => {
            all.iter().map(|(operation, _)| serde_json::to_value(operation).unwrap_or_default()).collect()
        }
    };
    serde_json::json!([group, kind, namespace, name, change])
}

/// Returns whether an operation reads a value of the object.
fn is_reading_operation(operation: &PatchOperation) -> bool {
    matches!(operation, PatchOperation::Copy(_) | PatchOperation::Move(_) | PatchOperation::Test(_))
}

/// An object as it is named in errors: `Deployment/apiserver`.
fn format_object_name(object: &Object) -> String {
    format!("{}/{}", object.kind(), object.name())
}

/// A part of a JSON pointer as the key that it stands for.
fn unescape_pointer_part(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// The node of a part of an object that is nearest to a path. Items of lists are found by their keys.
fn nearest_node(node: &Node, object: &Value, path: &[String]) -> Origin {
    let (mut node, mut object) = (node, object);
    let mut origin = node.origin;
    for part in path {
        let next = match &node.data {
            Data::Map(map) => map.entries.get(part).map(|entry| {
                origin = entry.key;
                &entry.node
            }),
            Data::List(items) => {
                let item = object.get(part.parse::<usize>().unwrap_or(usize::MAX));
                items.iter().find(|candidate| {
                    let candidate = candidate.to_json();
                    let keys = candidate.as_object().into_iter().flatten();
                    let mut scalars = keys.filter(|(_, value)| !value.is_object() && !value.is_array());
                    item.is_some_and(|item| {
                        *item == candidate
                            || scalars.any(|(key, value)| strategic::is_key(key) && item.get(key) == Some(value))
                    })
                })
            }
            _ => None,
        };
        let Some(next) = next else { break };
        object = match object {
            Value::Array(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
            other => other.get(part),
        }
        .unwrap_or(&Value::Null);
        if !matches!(next.data, Data::Map(_) | Data::List(_)) {
            origin = next.origin;
        }
        node = next;
    }
    origin
}

#[cfg(test)]
mod tests;
