//! Collects the layers of values in order and makes the checked tree of them.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use crate::api::util::file_fault::{FileFault, Usage};
use crate::api::version::ServiceLine;
use crate::chart::diagnostic::{Diagnostic, Diagnostics, Place};
use crate::chart::mask::hide_behind_secret_key;
use crate::chart::yaml::node::{Data, Entry, Node, Origin, Sources, merge_nodes};
use crate::chart::yaml::read;

use super::assign::{self, Assignment, SetKind};
use super::images::{self, VersionImage};
use super::tree::{RECORDED, ValuesTree};
use super::validate::{self, Layer};

/// Reads a file of values, or one for `--set-file`; `-` is standard input.
///
/// # Errors
/// A diagnostic that names the file: missing, a folder, unreadable, or of more than a MiB (which is not read to its end).
pub fn read_file(path: &str) -> Result<Vec<u8>, Diagnostic> {
    let limit = read::MAX_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if path == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes).map_err(|error| unreadable_file(path, &error))?;
        return Ok(bytes);
    }
    if Path::new(path).is_dir() {
        return Err(unreadable_file(path, &std::io::ErrorKind::IsADirectory.into()));
    }
    let file = std::fs::File::open(path).map_err(|error| unreadable_file(path, &error))?;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| unreadable_file(path, &error))?;
    if bytes.len() > read::MAX_BYTES {
        return Err(Diagnostic::error("too-large", format!("{path} has more than {} bytes", read::MAX_BYTES)));
    }
    Ok(bytes)
}

fn unreadable_file(path: &str, error: &std::io::Error) -> Diagnostic {
    let fault = FileFault::from_io_error(Path::new(path), Usage::Read, error);
    let is_absent = error.kind() == std::io::ErrorKind::NotFound && fault.remedy().is_none();
    let message = match error.kind() {
        _ if is_absent => format!("the file {path} does not exist"),
        std::io::ErrorKind::IsADirectory => format!("{path} is a folder, not a file"),
        _ => format!("the file {path} cannot be read: {fault}"),
    };
    let diagnostic = Diagnostic::error("unreadable-file", message);
    match fault.remedy() {
        Some(remedy) => diagnostic.help(remedy),
        None => diagnostic,
    }
}

/// Collects layers of values. Errors are kept until [`ValuesBuilder::build`], so that all are reported at once.
///
/// The groups (files, sets, flags) may be given in any order: within a group the order of the calls counts.
#[derive(Debug, Clone)]
pub struct ValuesBuilder {
    line: Option<ServiceLine>,
    sources: Sources,
    defaults: Vec<Node>,
    recorded: Vec<Node>,
    files: Vec<Node>,
    sets: Vec<Assignment>,
    flags: Vec<Assignment>,
    problems: Vec<Diagnostic>,
    by_user: bool,
    images: Vec<VersionImage>,
}

fn whole_source(source: u32) -> Origin {
    Origin { source, start: 0, end: 0 }
}

impl ValuesBuilder {
    /// Returns a builder without defaults; a chart's own is made by [`Chart::values_builder`](crate::chart::Chart::values_builder).
    /// `line` is the service line that has to know the values: those of newer lines are refused.
    pub fn new(line: Option<ServiceLine>) -> Self {
        Self {
            line,
            sources: Sources::default(),
            defaults: Vec::new(),
            recorded: Vec::new(),
            files: Vec::new(),
            sets: Vec::new(),
            flags: Vec::new(),
            problems: Vec::new(),
            by_user: false,
            images: Vec::new(),
        }
    }

    fn add_document(&mut self, name: &str, text: String) -> Option<Node> {
        let source = self.sources.add_source(name, text);
        let (root, problems) = read::read_on(&self.sources, source);
        self.problems.extend(problems);
        match root {
            Some(node) if !matches!(node.data, Data::Map(_)) => {
                self.problems.push(
                    Diagnostic::error(
                        "not-a-mapping",
                        format!("values must be a mapping, but {name} is {}", node.type_name()),
                    )
                    .at(self.sources.place_at(Origin { end: node.origin.start, ..node.origin }))
                    .label("a mapping of keys to values is expected"),
                );
                None
            }
            root => root,
        }
    }

    /// Adds chart defaults: YAML.
    #[must_use]
    pub fn defaults(mut self, name: &str, text: &str) -> Self {
        let node = self.add_document(name, text.to_owned());
        self.defaults.extend(node);
        self
    }

    /// Adds one default at a path (`images.etcd`): a node of a text, and the name of that for people.
    #[must_use]
    pub(in crate::chart) fn default_at(mut self, name: &str, text: &str, path: &str, node: &Node) -> Self {
        let known = self.sources.find_source(name);
        let source = known.unwrap_or_else(|| self.sources.add_source(name, text));
        let mut node = node.clone().in_source(source);
        for part in path.rsplit('.') {
            let origin = node.origin;
            let mut above = Node::empty_map(origin);
            if let Data::Map(map) = &mut above.data {
                map.entries.insert(part.to_owned(), Entry { key: origin, node });
            }
            node = above;
        }
        self.defaults.push(node);
        self
    }

    /// Has the user's images checked against those of the service version.
    #[must_use]
    pub(in crate::chart) fn with_version_images(mut self, images: Vec<VersionImage>) -> Self {
        self.images = images;
        self
    }

    /// The paths of the images that the version chooses: `scheduler.image`.
    pub(super) fn image_paths(&self) -> Vec<String> {
        self.images.iter().map(|image| image.path.clone()).collect()
    }

    /// The merged values without a schema, with their places.
    pub(super) fn peek_tree(&self) -> Result<ValuesTree, Diagnostics> {
        self.clone().merge_layers(None, false)
    }

    /// Accepts any image, for values that have been installed already.
    #[must_use]
    pub fn any_image(self) -> Self {
        self.with_version_images(Vec::new())
    }

    /// Adds a `--values` file: YAML or JSON as bytes, and its name for people.
    #[must_use]
    pub fn file(mut self, name: &str, bytes: &[u8]) -> Self {
        self.by_user = true;
        match read::decode_text(name, bytes) {
            Ok(text) => {
                let node = self.add_document(name, text);
                self.files.extend(node);
            }
            Err(problem) => self.problems.push(problem),
        }
        self
    }

    /// Adds the values of an earlier install, which lie above the defaults and below all that is given now.
    #[must_use]
    pub fn with_recorded(mut self, values: &Value) -> Self {
        self.by_user = true;
        let node = self.add_document(RECORDED, values.to_string());
        self.recorded.extend(node);
        self
    }

    /// Adds the outcome of [`read_file`]: the content of the file, or the reason that it could not be read.
    #[must_use]
    pub fn file_result(mut self, name: &str, read: Result<Vec<u8>, Diagnostic>) -> Self {
        match read {
            Ok(bytes) => self.file(name, &bytes),
            Err(problem) => {
                self.by_user = true;
                self.problems.push(problem);
                self
            }
        }
    }

    /// Adds an argument of `--set`, `--set-string`, `--set-json`, or of `--set-file` with files read from disk.
    #[must_use]
    pub fn set(self, kind: SetKind, argument: &str) -> Self {
        self.set_with(kind, argument, &read_file)
    }

    /// Adds an argument as [`ValuesBuilder::set`] does, and reads the files of `--set-file` with `read`.
    #[must_use]
    pub fn set_with(
        mut self,
        kind: SetKind,
        argument: &str,
        read: &dyn Fn(&str) -> Result<Vec<u8>, Diagnostic>,
    ) -> Self {
        self.by_user = true;
        let source = self.sources.add_source(kind.flag_name(), argument);
        let assignments =
            assign::parse_assignments(kind, argument, source, &|path| read::decode_text(path, &read(path)?));
        match assignments {
            Ok(assignments) => self.sets.extend(assignments),
            Err(problem) => self.problems.push(problem),
        }
        self
    }

    /// Adds a dedicated flag: its name, the path that it sets, and its argument, which is always text.
    #[must_use]
    pub fn flag(mut self, flag: &str, path: &str, value: &str) -> Self {
        self.by_user = true;
        let source = self.sources.add_source(flag, value);
        let origin = Origin::from_byte_range(source, 0..value.len());
        let path = parse_flag_path(path, origin);
        let node = Node { raw: Some(value.into()), ..Node::new(flag_data(value), origin) };
        self.flags.push(Assignment { path, node });
        self
    }

    /// Adds a dedicated flag that may be repeated, each time with a name: a list of `{name: …}`, which replaces the list
    /// below it. Without names it changes nothing.
    #[must_use]
    pub fn flag_names(mut self, flag: &str, path: &str, names: &[String]) -> Self {
        let mut items = Vec::with_capacity(names.len());
        for name in names {
            let source = self.sources.add_source(flag, name.clone());
            let origin = Origin::from_byte_range(source, 0..name.len());
            let mut item = Node::empty_map(origin);
            if let Data::Map(map) = &mut item.data {
                let node = Node::new(Data::Text(name.clone()), origin);
                map.entries.insert("name".to_owned(), Entry { key: origin, node });
            }
            items.push(item);
        }
        let Some(origin) = items.first().map(|item| item.origin) else { return self };
        self.by_user = true;
        let path = parse_flag_path(path, origin);
        self.flags.push(Assignment { path, node: Node::new(Data::List(items), origin) });
        self
    }

    /// Lays the layers over one another and checks the outcome. The schema is only asked for if the user gave something,
    /// and text that is the default's is not held against it: a test holds that the defaults alone are right.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the sources.
    pub fn build(self, schema: impl FnOnce() -> Value) -> Result<ValuesTree, Diagnostics> {
        let checked = self.by_user;
        self.merge_layers(checked.then(schema), true)
    }

    /// Lays the layers over one another as [`ValuesBuilder::build`] does, and always checks all of it against the
    /// schema.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn build_checked(self, schema: Value) -> Result<ValuesTree, Diagnostics> {
        self.merge_layers(Some(schema), false)
    }

    /// The merged values without a schema, for a first look (such as at `name`); syntax errors only.
    ///
    /// # Errors
    /// Everything that cannot be read.
    pub fn peek_values(&self) -> Result<Value, Diagnostics> {
        Ok(self.clone().merge_layers(None, false)?.to_json())
    }

    /// The text of one value, as it was written, before a schema says what it is: `2024` of `name: 2024`.
    ///
    /// # Errors
    /// Everything that cannot be read, or that the value is a list or a mapping.
    pub fn peek_text(&self, key: &str) -> Result<Option<String>, Diagnostics> {
        self.clone().merge_layers(None, false)?.text_at_path(&[key.to_owned()])
    }

    /// Returns the text as [`ValuesBuilder::peek_text`] does, with the place at which it was given.
    ///
    /// # Errors
    /// As [`ValuesBuilder::peek_text`].
    pub fn peek_at(&self, key: &str) -> Result<Option<(String, Place)>, Diagnostics> {
        let path = [key.to_owned()];
        let tree = self.clone().merge_layers(None, false)?;
        let text = tree.text_at_path(&path)?;
        Ok(text.zip(tree.find_origin(&path).map(|origin| origin.place)))
    }

    fn merge_layers(mut self, schema: Option<Value>, defaults_are_right: bool) -> Result<ValuesTree, Diagnostics> {
        let mut root = Node::empty_map(whole_source(0));
        if let Some(schema) = &schema {
            // Before anything is shown: also what is overridden later must not show.
            let trees = self.defaults.iter().chain(&self.recorded).chain(&self.files).map(Layer::Tree);
            let sets = self.sets.iter().chain(&self.flags).map(Layer::Set);
            let masks: Vec<Origin> =
                trees.chain(sets).flat_map(|layer| validate::secret_spans(schema, &layer)).collect();
            self.sources.mask_origins(&masks);
        }
        let user_from = self.defaults.iter().map(|node| node.origin.source + 1).max().unwrap_or(0);
        root = self.defaults.into_iter().fold(root, merge_nodes);
        let right = (defaults_are_right && schema.is_some()).then(|| root.to_json());
        let taken_back = self.recorded.into_iter().reduce(merge_nodes).map(|recorded| (root.clone(), recorded));
        root = taken_back.iter().map(|(_, recorded)| recorded.clone()).chain(self.files).fold(root, merge_nodes);
        for assignment in self.sets.into_iter().chain(self.flags) {
            let sources = &self.sources;
            if let Err(problem) = assign::apply_assignment(&mut root, assignment, |origin| sources.place_at(origin)) {
                self.problems.push(problem);
            }
        }
        if let Some((defaults, recorded)) = &taken_back {
            take_back(&mut root, defaults, recorded);
        }
        let mut warnings = Vec::new();
        if let Some(schema) = &schema {
            let mut found =
                validate::validate_values(&mut root, schema, &self.sources, self.line, user_from, right.as_ref());
            found.extend(images::check_image_tags(&root, &self.images, self.line, &self.sources, user_from));
            let (errors, notes): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|problem| problem.severity == crate::chart::Severity::Error);
            warnings = notes;
            // What could not be read may be what is missing, and what is wrong at a place is said once.
            let unread = !self.problems.is_empty();
            let said: Vec<Place> = self.problems.iter().filter_map(|problem| problem.place.clone()).collect();
            for mut error in errors {
                if let Some(place) = &mut error.place {
                    if said.iter().any(|at| at.is_same_position(place)) {
                        continue;
                    }
                    if unread {
                        // What was not read is not masked by the schema either.
                        hide_behind_secret_key(place);
                    }
                }
                if !(unread && error.code == "missing-key") {
                    self.problems.push(error);
                }
            }
        }
        if self.problems.is_empty() {
            Ok(ValuesTree::new(root, self.sources, schema, user_from, warnings))
        } else {
            Err(Diagnostics(self.problems))
        }
    }
}

/// The path of the value that a flag sets.
fn parse_flag_path(path: &str, origin: Origin) -> Vec<assign::PathPart> {
    path.split('.').map(|name| assign::PathPart { name: name.to_owned(), index: None, origin }).collect()
}

/// Brings back the defaults of recorded values that a `null` has deleted since: it withdraws what was recorded.
fn take_back(node: &mut Node, default: &Node, recorded: &Node) {
    match (&mut node.data, &recorded.data) {
        (_, Data::Null) => {}
        (Data::Null, _) => {
            node.data = default.data.clone();
            node.raw.clone_from(&default.raw);
            if let Data::Map(map) = &mut node.data {
                map.replaces = true;
            }
        }
        (Data::Map(map), Data::Map(recorded)) => {
            let Data::Map(defaults) = &default.data else { return };
            for (key, entry) in &mut map.entries {
                if let (Some(default), Some(recorded)) = (defaults.entries.get(key), recorded.entries.get(key)) {
                    take_back(&mut entry.node, &default.node, &recorded.node);
                }
            }
        }
        _ => {}
    }
}

/// Returns a flag's argument as data: text if the schema expects text, and a number for `--replicas 3` if it expects a
/// number.
fn flag_data(value: &str) -> Data {
    match Node::from_plain_scalar(value, Origin::default()).data {
        Data::Null => Data::Text(value.to_owned()),
        data => data,
    }
}
