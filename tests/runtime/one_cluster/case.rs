//! The cases: what a user applies, and the commands that follow.

use std::path::Path;

use fs_err as fs;
use serde::Deserialize;
use serde_json::Value;

use super::compare::{Difference, Listed};

/// One case of a file.
pub(super) struct Case {
    pub(super) name: String,
    /// The objects in YAML, `NAMESPACE` in place of the namespace.
    pub(super) manifests: String,
    /// Resource and name of what is compared.
    pub(super) objects: Vec<(String, String)>,
    pub(super) steps: Vec<Step>,
    /// What may differ.
    pub(super) listed: Vec<Listed>,
}

/// A command of a user.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Step {
    /// Arguments of kubectl. With `-` at the end it reads the objects of the case.
    Kubectl(Vec<String>),
    /// The same, against the workload cluster on both sides: what a controller there does.
    InCluster(Vec<String>),
}

impl Step {
    pub(super) fn text(&self) -> String {
        let (Self::Kubectl(arguments) | Self::InCluster(arguments)) = self;
        arguments.join(" ")
    }
}

/// The first document of a file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Head {
    /// After the first apply.
    #[serde(default)]
    steps: Vec<Step>,
    /// Further objects that are compared, `job/web-1`.
    #[serde(default)]
    also: Vec<String>,
    /// Kinds that are not compared.
    #[serde(default)]
    not: Vec<String>,
}

impl Case {
    /// Returns whether a difference is on the list.
    pub(super) fn is_listed(&self, one: &Difference) -> bool {
        self.listed.iter().any(|listed| listed.covers(one))
    }

    /// Reads all files, in order.
    pub(super) fn read_all(listed: &[Listed]) -> Vec<Self> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runtime/one_cluster/cases");
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| Self::read_file(file, listed)).collect()
    }

    fn read_file(file: &Path, listed: &[Listed]) -> Self {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(file).unwrap();
        let (head, manifests) = text.split_once("\n---\n").unwrap();
        let head: Head = serde_saphyr::from_str(head).unwrap_or_else(|error| panic!("{name}: {error}"));
        let objects: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap();
        let own = objects.iter().map(|object| {
            (object["kind"].as_str().unwrap().to_lowercase(), object["metadata"]["name"].as_str().unwrap().to_owned())
        });
        let also = head.also.iter().map(|one| {
            let (kind, name) = one.split_once('/').unwrap();
            (kind.to_owned(), name.to_owned())
        });
        let objects = own.chain(also).filter(|(kind, _)| !head.not.contains(kind)).collect();
        let first = Step::Kubectl(["apply", "-f", "-"].map(str::to_owned).to_vec());
        let listed = listed.iter().filter(|one| one.is_of_case(&name)).cloned().collect();
        let steps = std::iter::once(first).chain(head.steps).collect();
        Self { name, manifests: manifests.to_owned(), objects, steps, listed }
    }
}
