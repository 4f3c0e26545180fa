//! Runs the templates: the engine, its limits, and the way from its errors to a place in a template.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde_json::Value as Json;

use crate::chart::diagnostic::{Diagnostic, Diagnostics, Place};
use crate::chart::fast::documents::Documents;
use crate::chart::load::File;

use super::bind::{self, Bound, Leaf};
use super::filters::{self, MARKS_IN_INPUT, NoData};
use super::template::{END, Marks, Prepared, SLOT, Site, has_mark, prepare_template};
use super::text::{Text, clean_output};
use super::{Object, RenderInput, Rendered};
use crate::chart::fast::render;

/// Number of steps of the engine that one template may take. Our largest takes some thousand.
const FUEL: u64 = 5_000_000;

/// A file to render, and the stage that its objects belong to.
#[derive(Debug, Clone)]
pub(in crate::chart) struct Part {
    /// `templates/x.yaml` or `bootstrap/x.yaml`.
    pub(in crate::chart) file: String,
    /// Index and name of the stage; `None` for bootstrap files.
    pub(in crate::chart) stage: Option<(usize, String)>,
}

/// A template as it lies in the charts.
#[derive(Debug)]
pub(super) struct Template {
    /// Its name in the flattened chart: `templates/x.yaml`.
    name: String,
    /// Its file, for people: `charts/control-plane/v0.6/templates/x.yaml`.
    pub(super) path: String,
    pub(super) text: Cow<'static, str>,
    prepared: Prepared,
    /// Its documents, if nothing is to be rendered for them and no place is asked for.
    documents: Option<Documents>,
}

/// The values that one render has printed.
#[derive(Debug, Default)]
struct Slots {
    /// The values as data, or the reasons that they are none, by the number in their tokens.
    printed: Vec<Result<Json, NoData>>,
    /// Whether the input itself contains a character of marks and tokens; `None` until that was checked.
    marks: Option<bool>,
}

/// All templates of a chart, compiled.
#[derive(Clone)]
pub(in crate::chart) struct Renderer(Arc<Inner>);

struct Inner {
    /// The marks that the templates were prepared with.
    marks: Marks,
    /// The files, and the same templates with every place marked: made when a place is asked for, most of all that of a
    /// mistake.
    files: Vec<(String, File)>,
    careful: OnceLock<Renderer>,
    env: Environment<'static>,
    templates: Vec<Template>,
    sites: Vec<Site>,
    parts: Vec<Part>,
}

impl fmt::Debug for Renderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renderer").field("templates", &self.0.templates.len()).finish_non_exhaustive()
    }
}

/// An object with the origin of each of its leaves.
#[derive(Debug, Clone)]
pub(in crate::chart) struct Trace {
    pub(in crate::chart) object: Object,
    pub(in crate::chart) leaves: Vec<Leaf>,
    /// The file that it is rendered from, by its name in the chart: `templates/x.yaml`.
    pub(in crate::chart) file: String,
}

fn build_environment(names: BTreeSet<String>) -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    // One mode for every name, so that captured text is known to be the outcome of a macro.
    env.set_auto_escape_callback(|_| AutoEscape::Custom("slots".into()));
    env.set_formatter(|out, state, value| {
        if value.is_safe() {
            return out.write_str(value.as_str().unwrap_or_default()).map_err(Error::from);
        }
        let known = state.get_or_insert_extension_with(Slots::default).marks;
        let marks = known.unwrap_or_else(|| state.lookup(MARKS_IN_INPUT).is_some_and(|value| value.is_true()));
        let slots = state.get_or_insert_extension_with(Slots::default);
        slots.marks = Some(marks);
        let number = slots.printed.len();
        slots.printed.push(filters::to_json(value, marks));
        out.write_char(SLOT)?;
        out.write_str(itoa::Buffer::new().format(number))?;
        out.write_char(END).map_err(Error::from)
    });
    env.set_fuel(Some(FUEL));
    env.set_path_join_callback(move |name, parent| {
        let folder = parent.split('/').next().unwrap_or_default();
        let beside = format!("{folder}/{name}");
        // Libraries of `templates/` serve both folders.
        Cow::Owned(if names.contains(&beside) { beside } else { format!("templates/{name}") })
    });
    if let Ok(syntax) =
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()
    {
        env.set_syntax(syntax);
    }
    filters::add_to(&mut env);
    env
}

impl Renderer {
    /// Compiles the templates.
    ///
    /// # Errors
    /// Everything that is wrong in their syntax.
    pub(in crate::chart) fn new<'f>(
        files: impl Iterator<Item = (&'f String, &'f File)>,
        parts: Vec<Part>,
    ) -> Result<Self, Diagnostics> {
        let files = files.map(|(name, file)| (name.clone(), file.clone())).collect();
        Self::compile_with_marks(files, parts, Marks::Objects)
    }

    /// Returns the same templates with a site for every branch: they give no objects, but show which are taken.
    ///
    /// # Errors
    /// Everything that is wrong in their syntax.
    #[cfg(test)]
    pub(in crate::chart) fn of_branches(&self) -> Result<Self, Diagnostics> {
        Self::compile_with_marks(self.0.files.clone(), self.0.parts.clone(), Marks::Branches)
    }

    fn compile_with_marks(files: Vec<(String, File)>, parts: Vec<Part>, marks: Marks) -> Result<Self, Diagnostics> {
        let mut env = build_environment(files.iter().map(|(name, _)| name.clone()).collect());
        env.set_debug(marks != Marks::Objects);
        let mut templates: Vec<Template> = Vec::new();
        let mut sites = Vec::new();
        let mut problems = Vec::new();
        for (name, file) in &files {
            let path = format!("charts/{}", file.path);
            if let (Marks::Objects, Some(_)) = (marks, file.documents) {
                let (prepared, documents) = (Prepared::default(), file.documents);
                templates.push(Template { name: name.clone(), path, text: file.text.clone(), prepared, documents });
                continue;
            }
            match prepare_template(&path, &file.text, templates.len(), &mut sites, marks) {
                Ok(prepared) => {
                    let source = prepared.source.clone();
                    templates.push(Template {
                        name: name.clone(),
                        path,
                        text: file.text.clone(),
                        prepared,
                        documents: None,
                    });
                    if let Err(error) = env.add_template_owned(name.clone(), source) {
                        problems.push(locate_error(&templates, &error));
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            let careful = OnceLock::new();
            return Ok(Self(Arc::new(Inner { marks, files, careful, env, templates, sites, parts })));
        }
        match marks {
            // Where exactly is only known with debug information.
            Marks::Objects => {
                Err(Self::compile_with_marks(files, parts, Marks::Places).err().unwrap_or(Diagnostics(problems)))
            }
            _ => Err(Diagnostics(problems)),
        }
    }

    /// The names that the templates use without setting them, as dotted paths: `values.etcd.image`.
    #[cfg(test)]
    pub(in crate::chart) fn used_variables(&self) -> BTreeSet<String> {
        self.0.env.templates().flat_map(|(_, template)| template.undeclared_variables(true)).collect()
    }

    /// Returns the same templates with every place marked.
    pub(in crate::chart) fn careful_renderer(&self) -> &Self {
        if self.0.marks != Marks::Objects {
            return self;
        }
        self.0.careful.get_or_init(|| {
            let made = Self::compile_with_marks(self.0.files.clone(), self.0.parts.clone(), Marks::Places);
            made.expect("the marks are comments to the engine, and it has compiled the templates without them")
        })
    }

    /// Renders everything: by the quick path if that succeeds, else by the careful one, which can say what is wrong.
    pub(in crate::chart) fn render_input(&self, input: &RenderInput) -> Result<Rendered, Diagnostics> {
        match self.render_quickly(input) {
            Some(rendered) => Ok(rendered),
            None => self.careful_renderer().render_carefully(input),
        }
    }

    /// Gives each object to `make` and returns what it made, in order; an object is gone before the next one of its
    /// file is made. Objects that are applied inside the control plane occur only as text among them.
    pub(in crate::chart) fn render_each<T>(
        &self,
        input: &RenderInput,
        make: impl Fn(Object) -> T,
    ) -> Result<Vec<T>, Diagnostics> {
        match self.each_quickly(input, None, &make) {
            Some(made) => Ok(made),
            None => Ok(self.careful_renderer().render_carefully(input)?.objects.into_iter().map(make).collect()),
        }
    }

    /// Renders everything by the quick path; `None` if there is anything out of the ordinary, an error above all.
    pub(in crate::chart) fn render_quickly(&self, input: &RenderInput) -> Option<Rendered> {
        let mut bootstrap = Vec::new();
        let objects = self.each_quickly(input, Some(&mut bootstrap), &|object| object)?;
        Some(Rendered { objects, bootstrap })
    }

    /// The quick path. Objects that are applied inside the control plane go into `inside`, and are not needed without.
    fn each_quickly<T>(
        &self,
        input: &RenderInput,
        mut inside: Option<&mut Vec<Object>>,
        make: &impl Fn(Object) -> T,
    ) -> Option<Vec<T>> {
        let mut context = build_context(input, holds_marks_anywhere(input));
        let mut bootstrap: BTreeMap<String, String> = BTreeMap::new();
        let (first, stages) = self.0.parts.split_at(self.0.parts.partition_point(|part| part.stage.is_none()));
        for part in first {
            let documents = self.find_template(&part.file)?.1.documents;
            let found = match documents {
                Some(_) if inside.is_none() => Vec::new(),
                _ => self.each_of(part, &context, &|object| object)?,
            };
            if let Some(name) = part.file.strip_prefix("bootstrap/") {
                let json = match documents {
                    Some(documents) => documents.json.to_owned(),
                    None => serde_json::to_string(&found.iter().map(|object| &object.json).collect::<Vec<_>>()).ok()?,
                };
                bootstrap.insert(name.to_owned(), json);
            }
            if let Some(inside) = &mut inside {
                inside.extend(found);
            }
        }
        context.insert("bootstrap", Value::from_pairs(bootstrap));
        let mut made = Vec::new();
        for part in stages {
            made.extend(self.each_of(part, &context, make)?);
        }
        Some(made)
    }

    /// Returns the template of a file, and its index.
    fn find_template(&self, file: &str) -> Option<(usize, &Template)> {
        self.0.templates.iter().enumerate().find(|(_, template)| template.name == file)
    }

    /// Gives each object of a file to `make` and returns what it made; `None` where the careful path is needed.
    fn each_of<T>(
        &self,
        part: &Part,
        context: &BTreeMap<&'static str, Value>,
        make: &impl Fn(Object) -> T,
    ) -> Option<Vec<T>> {
        let (template, Template { documents, .. }) = self.find_template(&part.file)?;
        let mut made = Vec::new();
        let mut take = |json, origin| made.push(make(self.build_object(part, json, origin)));
        if let Some(Documents { lines, json }) = documents {
            let objects: Vec<Json> = serde_json::from_str(json).ok()?;
            objects.into_iter().zip(lines.iter()).for_each(|(json, line)| take(json, Some((template, *line))));
        } else {
            // The engine's own copy of the output is gone before the objects are made.
            let captured = self.capture_output(&part.file, context, |output, values| {
                Some((render::Plain::from_marked_output(output)?, values))
            });
            let (output, values) = captured.ok()??;
            render::emit_objects(output, values, take)?;
        }
        Some(made)
    }

    /// Renders everything, with every place marked; slower by far.
    pub(in crate::chart) fn render_carefully(&self, input: &RenderInput) -> Result<Rendered, Diagnostics> {
        let mut rendered = Rendered::default();
        for (part, bound) in self.bind_all(input, false, None)? {
            let target = if part.stage.is_none() { &mut rendered.bootstrap } else { &mut rendered.objects };
            target.extend(bound.into_iter().map(|bound| self.build_object(part, bound.json, bound.origin)));
        }
        Ok(rendered)
    }

    /// Renders everything, or what one file holds, and keeps the origin of every leaf.
    pub(in crate::chart) fn trace_leaves(
        &self,
        input: &RenderInput,
        only: Option<&str>,
    ) -> Result<Vec<Trace>, Diagnostics> {
        let careful = self.careful_renderer();
        let parts = careful.bind_all(input, true, only)?;
        let traces = parts.into_iter().flat_map(|(part, bound)| {
            bound.into_iter().map(|Bound { json, leaves, origin }| Trace {
                object: careful.build_object(part, json, origin),
                leaves,
                file: part.file.clone(),
            })
        });
        Ok(traces.collect())
    }

    /// The number of all sites: expressions, and branches if it was made for those.
    #[cfg(test)]
    pub(in crate::chart) fn site_count(&self) -> usize {
        self.0.sites.len()
    }

    /// The sites that an input reaches. `bootstrap` stands for the files that templates embed.
    #[cfg(test)]
    pub(in crate::chart) fn find_reached_sites(
        &self,
        input: &RenderInput,
        bootstrap: &BTreeMap<String, String>,
    ) -> Result<BTreeSet<usize>, Diagnostics> {
        let mut context = build_context(input, false);
        context.insert("bootstrap", Value::from_pairs(bootstrap.clone()));
        let mut reached = BTreeSet::new();
        for part in &self.0.parts {
            self.capture_output(&part.file, &context, |output, _| {
                let sites = output.split(super::template::SITE).skip(1);
                reached.extend(sites.filter_map(|rest| rest.split(END).next()?.parse::<usize>().ok()));
            })?;
        }
        Ok(reached)
    }

    /// Returns the place of an expression.
    pub(in crate::chart) fn site_place(&self, site: usize) -> Place {
        let Site { template, start, end } = self.careful_renderer().0.sites[site];
        let template = &self.0.templates[template];
        Place::in_text(&template.path, &template.text, start, end)
    }

    /// The text of an expression, braces included.
    pub(in crate::chart) fn site_text(&self, site: usize) -> &str {
        let Site { template, start, end } = self.careful_renderer().0.sites[site];
        &self.0.templates[template].text[start..end]
    }

    /// A line of a template, as a place.
    pub(in crate::chart) fn line_place(&self, template: usize, line: usize) -> Place {
        let template = &self.0.templates[template];
        let start: usize = template.text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let text = template.text[start..].lines().next().unwrap_or_default();
        let indentation = text.len() - text.trim_start().len();
        Place::in_text(&template.path, &template.text, start + indentation, start + text.trim_end().len())
    }

    fn build_object(&self, part: &Part, json: Json, origin: Option<(usize, usize)>) -> Object {
        let (stage, stage_name) = part.stage.clone().unwrap_or_default();
        let (template, line) = origin.unwrap_or_else(|| {
            let own = self.0.templates.iter().position(|template| template.name == part.file);
            (own.unwrap_or_default(), 1)
        });
        let source = self.0.templates[template].path.trim_start_matches("charts/").to_owned();
        Object { stage, stage_name, json, source, line }
    }

    /// Returns whether a part must be rendered for one file: it is that file, or it is what that file embeds.
    fn is_needed(&self, part: &Part, only: Option<&str>) -> bool {
        let Some(only) = only else { return true };
        part.file == only
            || part.stage.is_none()
                && self.find_template(only).is_some_and(|(_, template)| template.text.contains("bootstrap"))
    }

    fn bind_all(
        &self,
        input: &RenderInput,
        trace: bool,
        only: Option<&str>,
    ) -> Result<Vec<(&Part, Vec<Bound>)>, Diagnostics> {
        let marks = holds_marks_anywhere(input);
        let mut context = build_context(input, marks);
        let mut outcomes = Vec::new();
        let mut problems = Vec::new();
        let mut bootstrap: BTreeMap<String, String> = BTreeMap::new();
        for part in self.0.parts.iter().filter(|part| self.is_needed(part, only)) {
            if part.stage.is_some() && !context.contains_key("bootstrap") {
                let files = std::mem::take(&mut bootstrap);
                context.insert("bootstrap", Value::from_pairs(files));
            }
            let bound = self
                .text_of(&part.file, &context)
                .and_then(|text| bind::bind_documents(self, &text, marks, trace).map_err(Diagnostics::from));
            match bound {
                Ok(bound) => {
                    if let (None, Some(name)) = (&part.stage, part.file.strip_prefix("bootstrap/")) {
                        let all = Json::Array(bound.iter().map(|bound| bound.json.clone()).collect());
                        bootstrap.insert(name.to_owned(), all.to_string());
                    }
                    outcomes.push((part, bound));
                }
                Err(found) => problems.extend(found.0),
            }
        }
        if problems.is_empty() { Ok(outcomes) } else { Err(Diagnostics(problems)) }
    }

    /// Renders a template; returns what `read` makes of the output, marks included, and of the values printed in it.
    fn capture_output<T>(
        &self,
        name: &str,
        context: &BTreeMap<&'static str, Value>,
        read: impl FnOnce(&str, Vec<Result<Json, NoData>>) -> T,
    ) -> Result<T, Diagnostics> {
        let template = self.0.env.get_template(name).map_err(|error| locate_error(&self.0.templates, &error))?;
        let context = Value::from_pairs(context.iter().map(|(key, value)| (*key, value.clone())));
        let mut captured =
            template.render_captured(context).map_err(|error| locate_error(&self.0.templates, &error))?;
        let slots =
            captured.with_state_mut(|state| state.get_extension_mut::<Slots>().map(std::mem::take)).unwrap_or_default();
        Ok(read(captured.output(), slots.printed))
    }

    fn text_of(&self, name: &str, context: &BTreeMap<&'static str, Value>) -> Result<Text, Diagnostics> {
        self.capture_output(name, context, clean_output)?.ok_or_else(|| {
            Diagnostic::error("template", format!("charts/…/{name} splits the output of a macro")).into()
        })
    }
}

/// Returns the variables that templates see, all but `bootstrap`.
fn build_context(input: &RenderInput, marks: bool) -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("values", Value::from(Serde(&input.values))),
        ("release", Value::from(Serde(&input.release))),
        ("facts", Value::from(Serde(&input.facts))),
        ("pki", Value::from_pairs(input.pki.iter().map(|(name, text)| (name.as_str(), text.as_str())))),
        (MARKS_IN_INPUT, Value::from(marks)),
    ])
}

fn holds_marks_anywhere(input: &RenderInput) -> bool {
    [&input.values, &input.release, &input.facts].into_iter().any(holds_marks)
        || input.pki.iter().any(|(name, text)| has_mark(name) || has_mark(text))
}

/// Returns whether a value holds a character of marks and tokens.
fn holds_marks(value: &Json) -> bool {
    match value {
        Json::String(text) => has_mark(text),
        Json::Array(items) => items.iter().any(holds_marks),
        Json::Object(map) => map.iter().any(|(key, value)| has_mark(key) || holds_marks(value)),
        _ => false,
    }
}

/// Turns the innermost error of the engine into a diagnostic that points at the template, if it has a place.
fn locate_error(templates: &[Template], error: &Error) -> Diagnostic {
    let mut innermost = error;
    let mut source = std::error::Error::source(error);
    while let Some(next) = source {
        if let Some(found) = next.downcast_ref::<Error>() {
            innermost = found;
        }
        source = next.source();
    }
    let code = match innermost.kind() {
        ErrorKind::UndefinedError => "undefined",
        ErrorKind::OutOfFuel => "too-long",
        _ => "template",
    };
    let message = match (innermost.kind(), innermost.detail()) {
        (ErrorKind::OutOfFuel, _) => "this template takes too many steps".to_owned(),
        // What an operation was tried on may be a secret.
        (_, Some(detail)) if !detail.starts_with("unable to calculate") => detail.to_owned(),
        (kind, _) => kind.to_string(),
    };
    let mut diagnostic = Diagnostic::error(code, message);
    let by_name: HashMap<&str, &Template> =
        templates.iter().map(|template| (template.name.as_str(), template)).collect();
    if let Some(template) = innermost.name().and_then(|name| by_name.get(name)) {
        let place = match (innermost.range(), innermost.line()) {
            (Some(range), _) => {
                let (start, end) =
                    (template.prepared.original_offset(range.start), template.prepared.original_offset(range.end));
                Some(Place::in_text(&template.path, &template.text, start, end.max(start)))
            }
            (None, Some(line)) => {
                let start: usize = template.text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
                Some(Place::in_text(&template.path, &template.text, start, start))
            }
            _ => None,
        };
        diagnostic = diagnostic.at(place);
    }
    diagnostic
}
