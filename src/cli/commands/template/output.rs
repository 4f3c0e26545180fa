//! Which of the rendered objects are printed, in which shape, and where to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use fs_err as fs;

use crate::api::file::{self, FileError};
use crate::api::kinds;
use crate::chart::inspect::explain;
use crate::chart::inspect::explain::{ExplainError, Explanation};
use crate::chart::{Diagnostics, Object, Rendered, output};
use crate::cli::args::package::wrong_values;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::format::Format;
use crate::cli::output::manifests;
use crate::cli::output::terminal::Ui;

/// Flags that choose what is printed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "yaml")]
    output: Format,

    /// Write each object into a file of its own in this folder, numbered in the order of applying
    #[arg(long, value_name = "FOLDER")]
    output_dir: Option<PathBuf>,

    /// Only this object (`deployment/apiserver`) or this template (`templates/namespace.yaml`); may be repeated
    #[arg(short, long, value_name = "OBJECT|TEMPLATE")]
    show_only: Vec<String>,

    /// Only objects of this kind; may be repeated
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    include_kind: Vec<String>,

    /// No objects of this kind; may be repeated
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    exclude_kind: Vec<String>,

    /// Print the SHA-256 of the objects instead of them: the same digest, the same objects
    #[arg(long, conflicts_with = "output_dir")]
    print_digest: bool,

    /// Say where a field comes from instead, e.g. `deployment/apiserver#spec.replicas`; keys are placeholders
    #[arg(long, value_name = "OBJECT#PATH", conflicts_with_all = ["output_dir", "print_digest", "show_only", "include_kind", "exclude_kind"])]
    pub(crate) explain: Option<String>,
}

/// What was printed, or written into the folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printed {
    /// Whether there may be Secrets among it.
    pub(crate) secrets: bool,
}

impl OutputArgs {
    /// Refuses what cannot be meant, before anything is rendered or written.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        self.include_kind.iter().chain(&self.exclude_kind).try_for_each(|kind| known_kind(kind).map(drop))
    }

    /// Renders and prints what was asked for: `manifests` gives all objects as YAML, `render` as objects.
    pub(crate) fn print(
        &self,
        ui: &Ui,
        manifests: impl FnOnce() -> Result<Vec<String>, Diagnostics>,
        render: impl FnOnce() -> Result<Rendered, Diagnostics>,
    ) -> Result<Printed, CliError> {
        let filters = [&self.show_only, &self.include_kind, &self.exclude_kind];
        let all = filters.iter().all(|filter| filter.is_empty()) && !self.print_digest && self.output_dir.is_none();
        if all {
            return manifests::print(ui, self.output, manifests, render).map(|()| Printed { secrets: true });
        }
        let objects = self.select(render().map_err(|problems| wrong_values(&problems))?)?;
        let secrets = !self.print_digest && objects.iter().any(|object| object.kind() == "Secret");
        if self.print_digest {
            let digest = Rendered { objects, bootstrap: Vec::new() }.digest();
            ui.out(&format!("sha256:{digest}\n"))?;
        } else if let Some(folder) = &self.output_dir {
            ui.out(&self.write(folder, &objects)?)?;
        } else {
            ui.out(&manifests::of(self.output, &objects))?;
        }
        Ok(Printed { secrets })
    }

    /// Prints where a field comes from.
    pub(crate) fn explained(
        &self,
        ui: &Ui,
        explained: Result<Vec<Explanation>, ExplainError>,
    ) -> Result<Exit, CliError> {
        let explained = explained.map_err(|error| match error {
            ExplainError::Render(problems) => wrong_values(&problems),
            error => CliError::usage("NoSuchField", error.to_string()),
        })?;
        ui.out(&match self.output {
            Format::Json => explain::render_json(&explained),
            Format::Yaml => explain::render(&explained),
        })?;
        Ok(Exit::Ok)
    }

    fn select(&self, rendered: Rendered) -> Result<Vec<Object>, CliError> {
        let kinds = |names: &[String]| names.iter().map(|name| known_kind(name)).collect::<Result<BTreeSet<_>, _>>();
        let (included, excluded) = (kinds(&self.include_kind)?, kinds(&self.exclude_kind)?);
        let mut objects = if self.show_only.is_empty() { rendered.objects } else { self.only(rendered)? };
        objects.retain(|object| {
            (included.is_empty() || included.contains(object.kind())) && !excluded.contains(object.kind())
        });
        Ok(objects)
    }

    /// The objects that were named. What is applied inside the control plane is printed only for its template.
    fn only(&self, rendered: Rendered) -> Result<Vec<Object>, CliError> {
        let Rendered { objects, bootstrap } = rendered;
        let from = |object: &Object, name: &str| {
            let file = object.source.strip_suffix(name);
            file.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        let mut missing = self.show_only.iter().filter(|name| {
            !objects.iter().any(|object| object.id().eq_ignore_ascii_case(name))
                && !objects.iter().chain(&bootstrap).any(|object| from(object, name))
        });
        if let Some(name) = missing.next() {
            let known: Vec<String> = objects.iter().map(Object::id).collect();
            let templates: BTreeSet<&str> =
                objects.iter().chain(&bootstrap).filter_map(|object| object.source.splitn(3, '/').nth(2)).collect();
            return Err(CliError::usage("NoSuchObject", format!("nothing that is rendered is called `{name}`"))
                .hint(format!("the objects are: {}", known.join(", ")))
                .hint(format!("the templates are: {}", templates.into_iter().collect::<Vec<_>>().join(", "))));
        }
        let named = |object: &Object| {
            self.show_only.iter().any(|name| object.id().eq_ignore_ascii_case(name) || from(object, name))
        };
        let inside = bootstrap.into_iter().filter(|object| self.show_only.iter().any(|name| from(object, name)));
        let inside: Vec<Object> = inside.collect();
        Ok(objects.into_iter().filter(named).chain(inside).collect())
    }

    /// Writes the files and gives their paths, a line each.
    fn write(&self, folder: &Path, objects: &[Object]) -> Result<String, CliError> {
        let extension = match self.output {
            Format::Json => "json",
            Format::Yaml => "yaml",
        };
        let files: Vec<(String, &Object)> =
            objects.iter().enumerate().map(|(index, object)| (file_name(index, object, extension), object)).collect();
        // Secrets hold private keys, so nobody else may read them or put a file of theirs in the place of one.
        let secrets = objects.iter().any(|object| object.kind() == "Secret");
        if secrets && !folder.exists() {
            file::private_folder(folder).map_err(|error| refused(&error))?;
        }
        fs::create_dir_all(folder)?;
        if secrets {
            file::own_folder(folder).map_err(|error| refused(&error))?;
        }
        // What an earlier run left would be applied together with what this one writes.
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !files.iter().any(|(own, _)| *own == name) {
                return Err(CliError::new(
                    Exit::Refused,
                    "FolderInUse",
                    format!("{} holds `{name}`, which is not part of this output", folder.display()),
                )
                .hint("give a new folder, or empty this one"));
            }
        }
        let mut written = String::new();
        for (name, object) in files {
            let path = folder.join(name);
            let text = match self.output {
                Format::Json => output::json(&object.json),
                Format::Yaml => output::yaml_stream([&object.json]),
            };
            let mode = if object.kind() == "Secret" { file::PRIVATE } else { file::PUBLIC };
            file::write(&path, text.as_bytes(), mode).map_err(|error| refused(&error))?;
            written.push_str(&format!("{}\n", path.display()));
        }
        Ok(written)
    }
}

/// A file or folder that is not written to.
fn refused(error: &FileError) -> CliError {
    match error {
        FileError::Unexpected { .. } => CliError::new(Exit::Refused, "FolderNotSafe", error.to_string())
            .hint("give a folder that does not exist yet: it is made for you alone; or leave Secrets out with `--exclude-kind Secret`"),
        FileError::Io { source, .. } => CliError::new(Exit::Failed, "Io", error.to_string()).because(source),
    }
}

/// `007-deployment-apiserver.yaml`: the order of names is the order of applying.
fn file_name(index: usize, object: &Object, extension: &str) -> String {
    let safe = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.', "_");
    format!("{index:03}-{}-{}.{extension}", safe(&object.kind().to_lowercase()), safe(object.name()))
}

/// A kind as it is written in objects, by its name or plural in any case.
fn known_kind(name: &str) -> Result<&'static str, CliError> {
    let found = kinds::TABLE
        .iter()
        .find(|served| served.kind.eq_ignore_ascii_case(name) || served.plural.eq_ignore_ascii_case(name));
    found.map(|served| served.kind).ok_or_else(|| {
        CliError::usage("NoSuchKind", format!("`{name}` is no kind of object"))
            .hint("for example `Secret` or `secrets`")
    })
}
