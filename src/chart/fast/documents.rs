//! Documents that the build script has read: the table of versions, each `chart.yaml`, and what the control plane applies
//! inside itself, 50 KB of YAML that are the same in every run. To read them there saves 2.3 of 11.6 ms of CPU of `template control-plane`.

use serde::de::DeserializeOwned;

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/documents.rs"));
}

/// The documents of a file without markup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chart) struct Documents {
    /// The line that each begins at, from 1.
    pub(in crate::chart) lines: &'static [usize],
    /// All of them, as a list.
    pub(in crate::chart) json: &'static str,
}

impl Documents {
    /// The only document of a file that has one.
    pub(in crate::chart) fn parse_only_document<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str::<[T; 1]>(self.json).map(|[document]| document)
    }
}

/// Returns the documents of each such file of the embedded charts, with its path below `charts/`.
pub(in crate::chart) fn embedded_documents() -> impl Iterator<Item = (&'static str, Documents)> {
    embedded::DOCUMENTS.iter().map(|&(path, lines, json)| (path, Documents { lines, json }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::chart::Files;
    use crate::chart::yaml::{node::Sources, read};

    #[test]
    fn documents_equal_what_the_careful_reader_finds_in_their_files() {
        let files = Files::from_embedded();
        assert!(embedded_documents().count() > 10);
        for (path, documents) in embedded_documents() {
            let text = files.get(path).unwrap();
            let objects: Vec<Value> = serde_json::from_str(documents.json).unwrap();
            let pieces = text.split_inclusive("\n---").map(|piece| piece.trim_end_matches("---"));
            let read = pieces.filter_map(|document| {
                let mut sources = Sources::default();
                let source = sources.add_source(path, document);
                read::read_source(&sources, source).unwrap().map(|node| node.to_json())
            });
            let careful: Vec<Value> = read.filter(|value| !value.is_null()).collect();
            assert_eq!(objects, careful, "{path}");
            assert_eq!(documents.lines.len(), objects.len(), "{path}");
        }
    }
}
