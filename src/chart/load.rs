//! Finds a chart among its files and flattens it: a line holds only what it changes, the rest is the line below it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::version::{ServiceLine, ServiceVersion};

use super::diagnostic::{Diagnostic, Diagnostics};
use super::fast::documents::Documents;
use super::render::{Part, Renderer};
use super::values::{ValuesBuilder, VersionImage};
use super::versions::{Row, Versions, VersionsError};
use super::yaml::node::{Data, Node, Origin, Sources, merge_nodes};
use super::yaml::read;
use super::{Files, render};

/// Kind of chart, by what it installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A control plane in a hosting cluster.
    ControlPlane,
    /// An agent in a workload cluster.
    Agent,
}

impl Kind {
    /// Its name, which is also its folder below `charts/`: `control-plane`, `agent`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Agent => "agent",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no kind of chart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a chart: use `control-plane` or `agent`")]
pub struct KindError(pub String);

impl FromStr for Kind {
    type Err = KindError;

    fn from_str(text: &str) -> Result<Self, KindError> {
        match text {
            "control-plane" | "cp" => Ok(Self::ControlPlane),
            "agent" => Ok(Self::Agent),
            _ => Err(KindError(text.to_owned())),
        }
    }
}

/// A group of objects that are applied together, after those of the stages before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Name for programs: `network`.
    pub name: String,
    /// Title for people: `Service of the API server`.
    pub title: String,
    /// The files of `templates/` whose objects belong to it, in order.
    pub templates: Vec<String>,
}

/// `chart.yaml` of one line.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    kind: Kind,
    line: ServiceLine,
    /// The older line that this one is laid over.
    extends: Option<ServiceLine>,
    /// One sentence for people.
    description: Option<String>,
    /// Files of the line below that this one no longer has: `templates/x.yaml`.
    #[serde(default)]
    remove: Vec<String>,
    /// Replaces the stages of the line below as a whole.
    stages: Option<Vec<Stage>>,
    /// The images of the table that it uses, and the values that take them; all, as `images.<name>`, if left out.
    images: Option<BTreeMap<String, String>>,
}

/// Error of a chart itself; never the fault of a user's values.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// There is no such chart.
    #[error("there is no chart {kind} {line}")]
    Missing {
        /// The kind.
        kind: Kind,
        /// The line.
        line: ServiceLine,
    },
    /// `chart.yaml` cannot be read or does not fit where it lies.
    #[error("charts/{path}: {problem}")]
    Manifest {
        /// The file below `charts/`.
        path: String,
        /// The problem, for people.
        problem: String,
    },
    /// Files and stages do not match.
    #[error("charts/{chart}: {problem}")]
    Layout {
        /// The folder below `charts/`.
        chart: String,
        /// The problem, for people.
        problem: String,
    },
    /// A file of values or a template cannot be read.
    #[error("{0}")]
    File(#[from] Diagnostics),
    /// The table of versions is wrong.
    #[error(transparent)]
    Versions(#[from] VersionsError),
}

/// A file of a flattened chart: where it lies below `charts/`, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) text: Cow<'static, str>,
    /// Its documents, where they are known without rendering.
    pub(super) documents: Option<Documents>,
}

/// A chart of one line, flattened and ready to render.
#[derive(Debug, Clone)]
pub struct Chart {
    kind: Kind,
    line: ServiceLine,
    description: String,
    stages: Vec<Stage>,
    images: Option<BTreeMap<String, String>>,
    /// `values.yaml` of every line it consists of, oldest first.
    values: Vec<File>,
    /// By `templates/x.yaml`, `bootstrap/x.yaml`.
    files: BTreeMap<String, File>,
    compiled: Compiled,
    table: Option<Arc<Versions>>,
    /// The line of the service version; the chart's own unless another row was given.
    service_line: ServiceLine,
}

type Compile = Box<dyn FnOnce() -> Result<Renderer, Diagnostics> + Send>;

/// The compiled templates, or what is still to be done for them.
#[derive(Clone)]
struct Compiled(Arc<LazyLock<Result<Renderer, Diagnostics>, Compile>>);

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

impl Compiled {
    /// Defers compiling until the outcome is first asked for.
    fn compile_lazily(compile: impl FnOnce() -> Result<Renderer, Diagnostics> + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(compile))))
    }

    fn compiled_renderer(&self) -> Result<&Renderer, Diagnostics> {
        (**self.0).as_ref().map_err(Clone::clone)
    }
}

const FOLDERS: [&str; 2] = ["templates", "bootstrap"];

/// Returns whether a file only holds macros and parts for others.
fn is_library(name: &str) -> bool {
    name.starts_with('_')
}

impl Chart {
    /// Loads a chart that is embedded in this program, with its row of the table of versions.
    ///
    /// # Errors
    /// [`ChartError::Missing`] if there is none; others are mistakes in the charts.
    pub fn load_embedded(kind: Kind, line: ServiceLine) -> Result<Self, ChartError> {
        Ok(Self::flatten_files(&Files::from_embedded(), kind, line)?.with_table(super::versions::shared_table()))
    }

    /// Loads a chart out of a set of files, without the table of versions.
    ///
    /// # Errors
    /// [`ChartError`].
    pub fn from_files(files: &Files, kind: Kind, line: ServiceLine) -> Result<Self, ChartError> {
        let chart = Self::flatten_files(files, kind, line)?;
        chart.renderer()?;
        Ok(chart)
    }

    /// Flattens a chart without compiling it, so that mistakes in the templates are only reported when it is rendered.
    fn flatten_files(files: &Files, kind: Kind, line: ServiceLine) -> Result<Self, ChartError> {
        let mut chain = Vec::new();
        let mut next = Some(line);
        while let Some(current) = next {
            let manifest = read_manifest(files, kind, current)?;
            if let Some(below) = manifest.extends
                && below >= current
            {
                let problem = format!("{current} extends {below}, which is not older");
                return Err(ChartError::Manifest { path: format!("{kind}/{current}/chart.yaml"), problem });
            }
            next = manifest.extends;
            chain.push(manifest);
        }
        let mut flat: BTreeMap<String, File> = BTreeMap::new();
        let mut values = Vec::new();
        let mut stages: Vec<Stage> = Vec::new();
        let mut images = None;
        let mut description = String::new();
        for manifest in chain.into_iter().rev() {
            let folder = format!("{kind}/{}", manifest.line);
            for name in &manifest.remove {
                if flat.remove(name).is_none() {
                    let problem = format!("it removes `{name}`, which the charts that it extends do not have");
                    return Err(ChartError::Manifest { path: format!("{folder}/chart.yaml"), problem });
                }
                for stage in &mut stages {
                    stage.templates.retain(|template| name.strip_prefix("templates/") != Some(template));
                }
            }
            stages = manifest.stages.unwrap_or(stages);
            images = manifest.images.or(images);
            description = manifest.description.unwrap_or(description);
            if let Some(text) = files.get(&format!("{folder}/values.yaml")) {
                let path = format!("{folder}/values.yaml");
                values.push(File { path, text: text.clone(), documents: None });
            }
            for part in FOLDERS {
                for (name, text) in files.in_folder(&format!("{folder}/{part}")) {
                    let path = format!("{folder}/{part}/{name}");
                    let documents = files.parsed_documents(&path);
                    flat.insert(format!("{part}/{name}"), File { path, text: text.clone(), documents });
                }
            }
            known_files_only(files, &folder)?;
        }
        check_stages(&format!("{kind}/{line}"), &stages, &flat)?;
        let (templates, parts) = (flat.clone(), collect_parts(&stages, &flat));
        let compiled = Compiled::compile_lazily(move || Renderer::new(templates.iter(), parts));
        Ok(Self {
            kind,
            line,
            description,
            stages,
            images,
            values,
            files: flat,
            compiled,
            table: None,
            service_line: line,
        })
    }

    /// Returns its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its line.
    pub fn line(&self) -> ServiceLine {
        self.line
    }

    /// Returns its description in one sentence.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns its stages in the order in which they are applied.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Returns its row of the table of versions; `None` for a chart without a table.
    pub fn version_row(&self) -> Option<&Row> {
        self.table.as_ref()?.find_row(self.service_line)
    }

    /// Gives it a table of versions: the images of its row there become defaults of the values.
    #[must_use]
    pub fn with_table(mut self, table: Arc<Versions>) -> Self {
        self.table = Some(table);
        self
    }

    /// Gives it the row of the service version that is installed, which may be of another line than the chart.
    #[must_use]
    pub fn with_row(self, row: Row) -> Self {
        let service_line = row.version;
        let known = self.table.as_ref().is_some_and(|table| table.find_row(service_line) == Some(&row));
        let chart = if known { self } else { self.with_table(Arc::new(Versions::from_row(row))) };
        Self { service_line, ..chart }
    }

    /// The flattened files, by name in the chart: `templates/etcd.yaml`; each with where it lies below `charts/` and its text.
    pub fn flattened_files(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.files.iter().map(|(name, file)| (name.as_str(), file.path.as_str(), &*file.text))
    }

    /// The images of the table that it uses: name, and the path of the value that takes it.
    pub fn image_paths(&self) -> Vec<(String, String)> {
        if let Some(images) = &self.images {
            return images.clone().into_iter().collect();
        }
        let names = self.version_row().into_iter().flat_map(|row| row.images.keys());
        names.map(|name| (name.clone(), format!("images.{name}"))).collect()
    }

    /// A builder of values that starts with the chart's defaults: `values.yaml`, then the images of its row.
    pub fn values_builder(&self) -> ValuesBuilder {
        let mut builder = ValuesBuilder::new(Some(self.service_line));
        for file in &self.values {
            builder = builder.defaults(&format!("charts/{}", file.path), &file.text);
        }
        for (name, path) in self.image_paths() {
            if let Some((text, node)) = self.table.as_ref().and_then(|table| table.image_node(self.service_line, &name))
            {
                builder = builder.default_at("charts/versions.yaml", text, &path, node);
            }
        }
        builder
    }

    /// Returns the builder of [`Chart::values_builder`] for one version of the line: the service's own images are of that
    /// version, and images that the user gives are checked against those of the version.
    pub fn values_of(&self, version: &ServiceVersion) -> ValuesBuilder {
        let builder = self.values_builder();
        let Some(row) = self.version_row() else { return builder };
        let text = version.to_string();
        let images = self.image_paths().into_iter().filter_map(|(name, path)| {
            let (tag, is_own) = row.image_tag(&name, version)?;
            Some(VersionImage { path, tag, is_own })
        });
        let images: Vec<VersionImage> = images.collect();
        let tag = Node::new(Data::Text(text.clone()), Origin::from_byte_range(0, 0..text.len()));
        let differ = images.iter().filter(|image| image.is_own && row.default != *version);
        let builder = differ.fold(builder, |builder, image| {
            builder.default_at("--version", &text, &format!("{}.tag", image.path), &tag)
        });
        builder.with_version_images(images)
    }

    /// The defaults of `values.yaml` alone, merged over all lines.
    pub fn default_values(&self) -> Value {
        let mut root = Value::Object(serde_json::Map::new());
        let mut sources = Sources::default();
        let mut node: Option<Node> = None;
        for file in &self.values {
            let source = sources.add_source(file.path.clone(), file.text.as_ref());
            if let Ok(Some(above)) = read::read_source(&sources, source) {
                node = Some(match node {
                    Some(below) => merge_nodes(below, above),
                    None => above,
                });
            }
        }
        if let Some(node) = node {
            root = node.to_json();
        }
        root
    }

    /// Renders it. The same input gives the same objects, everywhere.
    ///
    /// # Errors
    /// Mistakes in the templates, and values that do not fit where a template puts them; each with its template's place.
    pub fn render(&self, input: &render::RenderInput) -> Result<render::Rendered, Diagnostics> {
        self.renderer()?.render_input(input)
    }

    /// Gives each of [`Rendered::objects`](render::Rendered::objects) to `make`, one at a time, and returns what it made in
    /// their order.
    ///
    /// # Errors
    /// As [`Chart::render`].
    pub fn render_each<T>(
        &self,
        input: &render::RenderInput,
        make: impl Fn(render::Object) -> T,
    ) -> Result<Vec<T>, Diagnostics> {
        self.renderer()?.render_each(input, make)
    }

    /// Renders with the quick path and with the careful one, for tests that compare them.
    #[cfg(test)]
    pub(crate) fn render_both(&self, input: &render::RenderInput) -> [Option<render::Rendered>; 2] {
        let renderer = self.renderer().unwrap();
        [renderer.render_quickly(input), renderer.careful_renderer().render_carefully(input).ok()]
    }

    pub(super) fn renderer(&self) -> Result<&Renderer, Diagnostics> {
        self.compiled.compiled_renderer()
    }
}

fn read_manifest(files: &Files, kind: Kind, line: ServiceLine) -> Result<Manifest, ChartError> {
    let path = format!("{kind}/{line}/chart.yaml");
    let text = files.get(&path).ok_or(ChartError::Missing { kind, line })?;
    let read = match files.parsed_documents(&path) {
        Some(read) => read.parse_only_document().map_err(|error| error.to_string()),
        None => serde_saphyr::from_str(text).map_err(|error| error.to_string()),
    };
    let problem = match read {
        Ok(Manifest { kind: of, line: at, .. }) if of != kind || at != line => {
            format!("it is for {of} {at}, but is in {kind}/{line}")
        }
        Ok(manifest) => return Ok(manifest),
        Err(problem) => problem,
    };
    Err(ChartError::Manifest { path, problem: problem.trim().to_owned() })
}

fn known_files_only(files: &Files, folder: &str) -> Result<(), ChartError> {
    let stranger = files.file_paths().find_map(|path| {
        let name = path.strip_prefix(folder)?.strip_prefix('/')?;
        let known = match name.split_once('/') {
            None => matches!(name, "chart.yaml" | "values.yaml"),
            Some((part, rest)) => FOLDERS.contains(&part) && !rest.contains('/'),
        };
        (!known).then(|| name.to_owned())
    });
    match stranger {
        Some(name) => {
            Err(ChartError::Layout { chart: folder.to_owned(), problem: format!("`{name}` is not allowed in a chart") })
        }
        None => Ok(()),
    }
}

fn check_stages(chart: &str, stages: &[Stage], files: &BTreeMap<String, File>) -> Result<(), ChartError> {
    let mut names = BTreeSet::new();
    let mut placed: BTreeMap<&str, &str> = BTreeMap::new();
    for stage in stages {
        if !names.insert(&stage.name) {
            return Err(layout_error(chart, format!("there are two stages `{}`", stage.name)));
        }
        for template in &stage.templates {
            if let Some(other) = placed.insert(template, &stage.name) {
                return Err(layout_error(
                    chart,
                    format!("`{template}` is in stage `{other}` and in stage `{}`", stage.name),
                ));
            }
            if is_library(template) || !files.contains_key(&format!("templates/{template}")) {
                return Err(layout_error(
                    chart,
                    format!("stage `{}` names `{template}`, which is not a template of this chart", stage.name),
                ));
            }
        }
    }
    let templates = files.keys().filter_map(|name| name.strip_prefix("templates/"));
    for template in templates.filter(|name| !is_library(name)) {
        if !placed.contains_key(template) {
            return Err(layout_error(chart, format!("`templates/{template}` is in no stage")));
        }
    }
    Ok(())
}

fn layout_error(chart: &str, problem: String) -> ChartError {
    ChartError::Layout { chart: chart.to_owned(), problem }
}

/// Returns the files to render, in order: the bootstrap files, then the templates of each stage.
fn collect_parts(stages: &[Stage], files: &BTreeMap<String, File>) -> Vec<Part> {
    let bootstrap = files
        .keys()
        .filter_map(|name| name.strip_prefix("bootstrap/"))
        .filter(|name| !is_library(name))
        .map(|name| Part { file: format!("bootstrap/{name}"), stage: None });
    let templates = stages.iter().enumerate().flat_map(|(index, stage)| {
        stage
            .templates
            .iter()
            .map(move |name| Part { file: format!("templates/{name}"), stage: Some((index, stage.name.clone())) })
    });
    bootstrap.chain(templates).collect()
}

impl From<Diagnostic> for ChartError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::File(diagnostic.into())
    }
}
