//! Output of rendered objects: the selection that is printed, its format, and the place that it is written to.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;

use super::folder;
use super::gitops::GitOps;
use crate::chart::inspect::explain;
use crate::chart::inspect::explain::{ExplainError, Explanation};
use crate::chart::{Diagnostics, Object, Rendered};
use crate::cli::args::object_name::{is_named, known_kind};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::manifests;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_values;

/// Flags that choose what is printed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "yaml")]
    output: Format,

    /// Annotate the objects for the program that applies them from a Git repository; output with private
    /// keys is then refused
    #[arg(long = "for", value_enum, value_name = "PROGRAM")]
    pub(super) gitops: Option<GitOps>,

    /// Write each object into its own file in this folder; remove files of an earlier output that are no longer rendered,
    /// and keep all other files
    #[arg(long, value_name = "FOLDER")]
    output_dir: Option<PathBuf>,

    /// Only this object (`deploy/apiserver`, `apps/Deployment/apiserver`) or this template (`templates/namespace.yaml`);
    /// may be repeated
    #[arg(short, long, value_name = "OBJECT|TEMPLATE", value_delimiter = ',')]
    show_only: Vec<String>,

    /// Only objects of this kind; may be repeated
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    include_kind: Vec<String>,

    /// No objects of this kind; may be repeated
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    exclude_kind: Vec<String>,

    /// Print the SHA-256 of the objects instead of the objects: equal digests mean equal objects
    #[arg(long, conflicts_with = "output_dir")]
    print_digest: bool,

    /// Print the origin of a field instead, e.g. `deployment/apiserver#spec.replicas`; keys are placeholders
    #[arg(long, value_name = "OBJECT#PATH", conflicts_with_all = ["output_dir", "print_digest", "show_only", "include_kind", "exclude_kind"])]
    pub(crate) explain: Option<String>,
}

impl OutputArgs {
    /// Refuses what cannot be meant, before anything is rendered or written.
    pub(crate) fn check_kind_filters(&self) -> Result<(), CliError> {
        self.include_kind.iter().chain(&self.exclude_kind).try_for_each(|kind| known_kind(kind).map(drop))
    }

    /// Returns whether the manifests themselves are written out, and one for which `is` holds is among them.
    pub(super) fn prints_any(
        &self,
        render: impl FnOnce() -> Result<Rendered, Diagnostics>,
        is: impl Fn(&Object) -> bool,
    ) -> Result<bool, CliError> {
        if self.print_digest || !self.is_filtered() {
            return Ok(!self.print_digest);
        }
        Ok(self.select_objects(render().map_err(|problems| wrong_values(&problems))?)?.iter().any(is))
    }

    fn is_filtered(&self) -> bool {
        [&self.show_only, &self.include_kind, &self.exclude_kind].iter().any(|filter| !filter.is_empty())
    }

    /// Renders and prints what was asked for: `manifests` gives all objects as YAML, `render` as objects.
    pub(crate) fn print_output(
        &self,
        ui: &Ui,
        manifests: impl FnOnce() -> Result<Vec<String>, Diagnostics>,
        render: impl FnOnce() -> Result<Rendered, Diagnostics>,
    ) -> Result<(), CliError> {
        if !self.is_filtered() && !self.print_digest && self.output_dir.is_none() && self.gitops.is_none() {
            return manifests::print_manifests(ui, self.output, manifests, render);
        }
        let mut objects = self.select_objects(render().map_err(|problems| wrong_values(&problems))?)?;
        if let Some(program) = self.gitops {
            program.prepare_objects(&mut objects)?;
        }
        if self.print_digest {
            let digest = Rendered { objects, bootstrap: Vec::new() }.objects_digest();
            ui.write_stdout(&format!("sha256:{digest}\n"))?;
        } else if let Some(folder) = &self.output_dir {
            ui.write_stdout(&folder::write_object_files(folder, &objects, self.output)?)?;
        } else {
            ui.write_stdout(&manifests::format_manifests(self.output, &objects))?;
        }
        Ok(())
    }

    /// Prints the origin of a field.
    pub(crate) fn print_explanations(
        &self,
        ui: &Ui,
        explained: Result<Vec<Explanation>, ExplainError>,
    ) -> Result<Exit, CliError> {
        let explained = explained.map_err(|error| match error {
            ExplainError::Render(problems) => wrong_values(&problems),
            error => CliError::usage("NoSuchField", error.to_string()),
        })?;
        ui.write_stdout(&match self.output {
            Format::Json => explain::render_json(&explained),
            Format::Yaml => explain::render_explanations(&explained),
        })?;
        Ok(Exit::Ok)
    }

    fn select_objects(&self, rendered: Rendered) -> Result<Vec<Object>, CliError> {
        let (included, excluded) = (parse_kind_names(&self.include_kind)?, parse_kind_names(&self.exclude_kind)?);
        let rendered_kinds: BTreeSet<String> = rendered.objects.iter().map(|object| object.kind().to_owned()).collect();
        if let Some(kind) = included.iter().find(|kind| !rendered_kinds.contains(**kind)) {
            let known = rendered_kinds.into_iter().collect::<Vec<_>>().join(", ");
            return Err(CliError::usage("NoSuchObject", format!("no rendered object is a {kind}"))
                .hint(format!("the kinds are: {known}")));
        }
        let mut objects =
            if self.show_only.is_empty() { rendered.objects } else { self.select_named_objects(rendered)? };
        objects.retain(|object| {
            (included.is_empty() || included.contains(object.kind())) && !excluded.contains(object.kind())
        });
        Ok(objects)
    }

    /// The objects that were named. What is applied inside the control plane is printed only for its template.
    fn select_named_objects(&self, rendered: Rendered) -> Result<Vec<Object>, CliError> {
        let Rendered { objects, bootstrap } = rendered;
        let mut missing = self.show_only.iter().filter(|name| {
            !objects.iter().any(|object| is_named(object, name))
                && !objects.iter().chain(&bootstrap).any(|object| is_from_template(object, name))
        });
        if let Some(name) = missing.next() {
            let known: Vec<String> = objects.iter().map(Object::id).collect();
            let templates: BTreeSet<&str> =
                objects.iter().chain(&bootstrap).filter_map(|object| object.source.splitn(3, '/').nth(2)).collect();
            return Err(CliError::usage("NoSuchObject", format!("no rendered object or template is named `{name}`"))
                .hint(format!("the objects are: {}", known.join(", ")))
                .hint(format!("the templates are: {}", templates.into_iter().collect::<Vec<_>>().join(", "))));
        }
        let outside = objects.into_iter().filter(|object| {
            self.show_only.iter().any(|name| is_named(object, name) || is_from_template(object, name))
        });
        let inside =
            bootstrap.into_iter().filter(|object| self.show_only.iter().any(|name| is_from_template(object, name)));
        Ok(outside.chain(inside).collect())
    }
}

fn parse_kind_names(names: &[String]) -> Result<BTreeSet<&'static str>, CliError> {
    names.iter().map(|name| known_kind(name)).collect()
}

fn is_from_template(object: &Object, name: &str) -> bool {
    let folder = object.source.strip_suffix(name);
    folder.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}
