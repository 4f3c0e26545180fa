//! The bootstrap folder: its objects, their order, and a digest by which changes are detected.

use std::path::{Path, PathBuf};

use kube::api::DynamicObject;
use serde_json::Value;

use crate::api::util::digest;

/// Reason why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Folder or file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// A file is not a JSON list of objects.
    #[error("{file}: {message}")]
    Parse {
        /// The file.
        file: String,
        /// The error.
        message: String,
    },
    /// It is empty. A control plane without CustomResourceDefinitions is never intended.
    #[error("{0} contains no object")]
    Empty(PathBuf),
}

/// An object and the file it came from.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// Name of the file.
    pub file: String,
    /// The object.
    pub object: DynamicObject,
}

impl Manifest {
    /// `Kind/name` or `Kind/namespace/name`, for people.
    pub fn title(&self) -> String {
        let kind = self.object.types.as_ref().map_or("", |t| t.kind.as_str());
        let name = self.object.metadata.name.as_deref().unwrap_or("");
        match self.object.metadata.namespace.as_deref() {
            Some(namespace) => format!("{kind}/{namespace}/{name}"),
            None => format!("{kind}/{name}"),
        }
    }

    /// Returns true where others depend on it: namespaces and CustomResourceDefinitions.
    pub fn comes_first(&self) -> bool {
        self.object.types.as_ref().is_some_and(|t| t.kind == "Namespace" || self.is_definition())
    }

    /// Returns true for a CustomResourceDefinition.
    pub fn is_definition(&self) -> bool {
        self.object.types.as_ref().is_some_and(|t| t.kind == "CustomResourceDefinition")
    }
}

/// Objects of the folder.
#[derive(Debug, Clone)]
pub struct Manifests {
    /// The objects, by file and position.
    pub manifests: Vec<Manifest>,
    /// Digest of all files, to see a change.
    pub digest: String,
}

/// Reads the folder. Names that start with a dot are the kubelet's own (`..data` and its targets) and left out.
pub fn read_bootstrap_manifests(folder: &Path) -> Result<Manifests, ObjectsError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| build_read_error(folder, e))? {
        let name = entry.map_err(|e| build_read_error(folder, e))?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    let mut manifests = Vec::new();
    let mut content = Vec::new();
    for name in names {
        let path = folder.join(&name);
        let text = std::fs::read_to_string(&path).map_err(|e| build_read_error(&path, e))?;
        for part in [&name, &text] {
            content.extend_from_slice(&part.len().to_be_bytes());
            content.extend_from_slice(part.as_bytes());
        }
        manifests.extend(parse_bootstrap_manifests(&name, &text)?);
    }
    if manifests.is_empty() {
        return Err(ObjectsError::Empty(folder.to_owned()));
    }
    Ok(Manifests { manifests, digest: digest::short_digest(&content) })
}

fn parse_bootstrap_manifests(file: &str, text: &str) -> Result<Vec<Manifest>, ObjectsError> {
    let items = match serde_json::from_str(text).map_err(|e| build_parse_error(file, e.to_string()))? {
        Value::Array(items) => items,
        object @ Value::Object(_) => vec![object],
        _ => return Err(build_parse_error(file, "expected a list of objects".to_owned())),
    };
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| {
            let object: DynamicObject =
                serde_json::from_value(item).map_err(|e| build_parse_error(file, format!("object {index}: {e}")))?;
            if object.types.is_none() || object.metadata.name.is_none() {
                let message = format!("object {index}: apiVersion, kind and metadata.name are required");
                return Err(build_parse_error(file, message));
            }
            Ok(Manifest { file: file.to_owned(), object })
        })
        .collect()
}

fn build_read_error(path: &Path, source: std::io::Error) -> ObjectsError {
    ObjectsError::Read { path: path.to_owned(), source }
}

fn build_parse_error(file: &str, message: String) -> ObjectsError {
    ObjectsError::Parse { file: file.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs_err::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn kubelet_entries_are_skipped() {
        let folder = folder(&[
            ("b.yaml", r#"[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"n"}}]"#),
            ("a.yaml", r#"[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}]"#),
            ("..2026", "not json"),
        ]);
        let objects = read_bootstrap_manifests(folder.path()).unwrap();
        let titles: Vec<_> = objects.manifests.iter().map(Manifest::title).collect();
        assert_eq!(titles, ["Namespace/n", "ConfigMap/n/b"]);
        assert!(objects.manifests[0].comes_first() && !objects.manifests[1].comes_first());
    }

    #[test]
    fn any_edit_changes_the_digest() {
        let object = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}"#;
        let digests: Vec<_> =
            [("a.yaml", object.to_owned()), ("b.yaml", object.to_owned()), ("a.yaml", format!("{object} "))]
                .iter()
                .map(|(name, text)| read_bootstrap_manifests(folder(&[(name, text)]).path()).unwrap().digest)
                .collect();
        assert_eq!(digests.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    }

    #[test]
    fn errors_name_the_file() {
        for text in ["", "7", "[7]", r#"[{"kind":"Namespace"}]"#, r#"[{"apiVersion":"v1","kind":"Namespace"}]"#] {
            let error = read_bootstrap_manifests(folder(&[("x.yaml", text)]).path()).unwrap_err();
            assert!(error.to_string().starts_with("x.yaml: "), "{text}: {error}");
        }
        assert!(matches!(read_bootstrap_manifests(folder(&[]).path()), Err(ObjectsError::Empty(_))));
    }
}
