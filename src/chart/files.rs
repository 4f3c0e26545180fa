//! The files that charts are made of: those embedded in the binary, or a folder (tests, benchmarks).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use include_dir::{Dir, include_dir};

use super::fast::documents::{self, Documents};

// The build script refuses files of these folders that are not text, and knows their extensions.
static CHARTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/charts");
static VALUES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/values");

/// Adds the `.yaml` files below an embedded folder; notes for people lie beside them.
fn add_embedded(folder: &'static Dir<'static>, texts: &mut BTreeMap<Cow<'static, str>, Cow<'static, str>>) {
    let files = folder.files().filter(|file| file.path().extension().is_some_and(|extension| extension == "yaml"));
    texts.extend(files.filter_map(|file| Some((file.path().to_str()?.into(), file.contents_utf8()?.into()))));
    folder.dirs().for_each(|below| add_embedded(below, texts));
}

/// Text files by their path below `charts/`, with `/` between the parts.
#[derive(Debug, Clone, Default)]
pub struct Files {
    texts: BTreeMap<Cow<'static, str>, Cow<'static, str>>,
    /// Documents of the files that the build script has parsed, by path.
    documents: BTreeMap<&'static str, Documents>,
}

impl Files {
    /// The files of `charts/` that are embedded in this binary.
    pub fn from_embedded() -> Self {
        let mut texts = BTreeMap::new();
        add_embedded(&CHARTS, &mut texts);
        Self { texts, documents: documents::embedded_documents().collect() }
    }

    /// Reads every `.yaml` file below a folder.
    ///
    /// # Errors
    /// An I/O error of the folder or of one of its files, with the name.
    pub fn from_dir(folder: &Path) -> std::io::Result<Self> {
        let mut files = Self::default();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs_err::read_dir(&next)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "yaml") {
                    let below = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                    files.insert(below, fs_err::read_to_string(&path)?);
                }
            }
        }
        Ok(files)
    }

    /// Adds or replaces a file.
    pub fn insert(&mut self, path: impl Into<Cow<'static, str>>, text: impl Into<Cow<'static, str>>) {
        let path = path.into();
        self.documents.remove(path.as_ref());
        self.texts.insert(path, text.into());
    }

    /// The text of a file.
    pub fn get(&self, path: &str) -> Option<&Cow<'static, str>> {
        self.texts.get(path)
    }

    /// The documents of a file that needs no rendering, if they are known.
    pub(super) fn parsed_documents(&self, path: &str) -> Option<Documents> {
        self.documents.get(path).copied()
    }

    /// The paths of all files, sorted.
    pub fn file_paths(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(AsRef::as_ref)
    }

    /// The files directly in a folder: name and text, sorted by name.
    pub fn in_folder<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a Cow<'static, str>)> {
        self.texts.iter().filter_map(move |(path, text)| {
            let name = path.strip_prefix(folder)?.strip_prefix('/')?;
            (!name.contains('/')).then_some((name, text))
        })
    }
}

/// A file of values that comes with the program, for `--values`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name: `ha` for `values/ha.yaml`.
    pub name: &'static str,
    /// Its text: YAML.
    pub text: &'static str,
}

impl Preset {
    /// Returns its purpose, taken from the comment at the beginning of its text.
    pub fn description(&self) -> String {
        let comment = self.text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
        comment.filter(|line| !line.starts_with("yaml-language-server:")).collect::<Vec<_>>().join(" ")
    }
}

/// The presets embedded from `values/*.yaml`, sorted by name.
pub fn embedded_presets() -> impl Iterator<Item = Preset> {
    let mut presets: Vec<Preset> = VALUES
        .files()
        .filter_map(|file| {
            Some(Preset { name: file.path().to_str()?.strip_suffix(".yaml")?, text: file.contents_utf8()? })
        })
        .collect();
    presets.sort_by_key(|preset| preset.name);
    presets.into_iter()
}

/// Returns the text of a generated JSON Schema of `values/` by its name in the folder, `agent.schema.json`.
pub fn values_file(name: &str) -> Option<&'static str> {
    let is_schema = Path::new(name).extension().is_some_and(|extension| extension == "json");
    VALUES.get_file(name).filter(|_| is_schema)?.contents_utf8()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_in_is_what_lies_in_the_tree() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts");
        let tree = if folder.is_dir() { Files::from_dir(&folder).unwrap() } else { Files::default() };
        assert_eq!(tree.texts, Files::from_embedded().texts);
    }

    #[test]
    fn only_yaml_and_notes_for_people_lie_in_the_charts() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("charts")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.file_name().unwrap().to_string_lossy().into_owned();
                    let known = path.extension().is_some_and(|extension| extension == "yaml")
                        || name == "README.md"
                        || name == ".gitkeep";
                    assert!(known, "{} does not belong there", path.display());
                }
            }
        }
    }

    #[test]
    fn a_folder_lists_its_own_files_only() {
        let mut files = Files::default();
        for path in ["a/b.yaml", "a/c/d.yaml", "ab/e.yaml", "a/a.yaml"] {
            files.insert(path, "");
        }
        let names: Vec<_> = files.in_folder("a").map(|(name, _)| name).collect();
        assert_eq!(names, ["a.yaml", "b.yaml"]);
    }
}
