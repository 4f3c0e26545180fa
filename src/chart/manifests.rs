//! Reads manifests of users: documents of YAML or JSON, each field with its place.

use serde_json::Value;

use super::diagnostic::{Diagnostic, Diagnostics, Place};
use super::yaml::node::{Data, Node, Sources};
use super::yaml::read;

/// One object, as it was written.
#[derive(Debug)]
pub struct ManifestObject {
    node: Node,
    /// The object.
    pub json: Value,
}

/// Objects of files, in the order in which they were given.
#[derive(Debug, Default)]
pub struct Manifests {
    sources: Sources,
    /// The objects; those of a List one by one.
    pub objects: Vec<ManifestObject>,
}

impl Manifests {
    /// Reads files, each given as its name for people and its bytes, or the reason that it could not be read.
    ///
    /// # Errors
    /// Everything that is wrong, each problem at its place.
    pub fn read_manifest_files(
        files: impl IntoIterator<Item = (String, Result<Vec<u8>, Diagnostic>)>,
    ) -> Result<Self, Diagnostics> {
        let (mut manifests, mut problems) = (Self::default(), Vec::new());
        for (name, bytes) in files {
            let text = match bytes.and_then(|bytes| read::decode_text(&name, &bytes)) {
                Ok(text) => text,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            let source = manifests.sources.add_source(name, text);
            match read::read_all(&manifests.sources, source) {
                Ok(documents) => documents.into_iter().for_each(|node| manifests.add_node(node, &mut problems)),
                Err(found) => problems.extend(found),
            }
        }
        if problems.is_empty() { Ok(manifests) } else { Err(Diagnostics(problems)) }
    }

    fn add_node(&mut self, node: Node, problems: &mut Vec<Diagnostic>) {
        let Data::Map(map) = &node.data else {
            let message = format!("this is {}, not an object with `apiVersion` and `kind`", node.type_name());
            problems.push(Diagnostic::error("manifest-form", message).at(self.sources.place_at(node.origin)));
            return;
        };
        let is_list = map.entries.get("kind").is_some_and(|kind| kind.node.data == Data::Text("List".to_owned()));
        match map.entries.get("items").map(|items| &items.node.data) {
            Some(Data::List(items)) if is_list => {
                items.clone().into_iter().for_each(|item| self.add_node(item, problems));
            }
            _ => {
                let json = node.to_json();
                self.objects.push(ManifestObject { node, json });
            }
        }
    }

    /// Returns the place of a field of an object, or of the nearest one above it.
    pub fn place_of(&self, manifest: &ManifestObject, path: &[String]) -> Place {
        self.sources.place_at(manifest.node.find_nearest(path).origin)
    }
}
