//! The flags that decide what is installed: name, version, images, values; and the plan that they make.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Global;
use super::chart_choice::no_version;
use super::error::{CliError, Exit};
use super::image_args::ImageArgs;
use super::ui::Ui;
use super::values_args::ValuesArgs;
use crate::api::names::{ControlPlaneName, NameError};
use crate::api::version::KubeMinor;
use crate::chart::select::{self, Request, Selection};
use crate::chart::{self, Diagnostics, ValuesBuilder, read_file};
use crate::control_plane::plan::{Plan, PlanError, load_chart};

/// Flags that decide what a control plane is made of.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Name of the control plane; also its kubectl context [default: `name` of the values]
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: Option<String>,

    /// Service version: a line (`v0.6`), a version (`v0.6.1`), or `auto` for the newest that supports the cluster
    /// [default: that of `--image-tag`, else v0.6.1]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,

    /// Image repository of the scheduler [default: fleetscheduler/fleet-scheduler]
    #[arg(long, value_name = "REPOSITORY")]
    image_repository: Option<String>,

    /// Image tag of the scheduler [default: the service version, v0.6.1]
    #[arg(long, value_name = "TAG")]
    image_tag: Option<String>,

    /// JSON access key file of the cloud, when the hosting cluster is a managed one
    #[arg(long, value_name = "FILE")]
    cloud_access_key: Option<PathBuf>,

    /// Project identifier in the same cloud
    #[arg(long, value_name = "PROJECT")]
    cloud_project_id: Option<String>,

    #[command(flatten)]
    images: ImageArgs,

    #[command(flatten)]
    values: ValuesArgs,

    #[arg(skip)]
    default_name: Option<&'static str>,
}

/// The largest access key file that is read, in bytes.
const ACCESS_KEY_LIMIT: usize = 64 * 1024;

impl PlanArgs {
    /// Whether the cluster's version has to be known before a plan can be made.
    pub(super) fn asks_cluster(&self) -> bool {
        self.version.as_deref() == Some("auto")
    }

    /// The name given as an argument.
    pub(super) fn name_given(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The name to use where neither the argument nor the values give one.
    pub(super) fn name_at_least(&mut self, name: &'static str) {
        self.default_name = Some(name);
    }

    /// Whether nothing but a name was given.
    pub(super) fn is_bare(&self) -> bool {
        let given = [&self.version, &self.image_repository, &self.image_tag, &self.cloud_project_id];
        given.iter().all(|flag| flag.is_none())
            && self.cloud_access_key.is_none()
            && self.images.is_empty()
            && self.values.is_empty()
    }

    /// The plan that the flags describe; `server` is the version of the cluster for `--version auto`.
    pub(super) fn plan(&self, ui: &Ui, global: &Global, server: Option<KubeMinor>) -> Result<Plan, CliError> {
        let selection = self.select(server)?;
        let chart = load_chart(&selection).map_err(|error| no_chart(&error))?;
        let values = self.values(chart.values())?;
        let name = self.name(&values)?;
        Plan::new(name, global.namespace.clone(), &selection, chart, values)
            .map_err(|problems| wrong_values(&problems))
            .inspect(|plan| {
                for warning in plan.value_warnings() {
                    ui.err(&warning.render(false));
                }
            })
    }

    fn select(&self, server: Option<KubeMinor>) -> Result<Selection<'static>, CliError> {
        let request = Request { version: self.version.as_deref(), image_tag: self.image_tag.as_deref(), server };
        select::select(chart::versions(), request).map_err(|error| no_version(&error))
    }

    fn values(&self, mut builder: ValuesBuilder) -> Result<ValuesBuilder, CliError> {
        builder = self.images.apply(self.values.apply(builder));
        let flags = [
            ("--image-repository", "scheduler.image.repository", &self.image_repository),
            ("--image-tag", "scheduler.image.tag", &self.image_tag),
            ("--cloud-project-id", "cloud.projectId", &self.cloud_project_id),
        ];
        for (flag, path, value) in flags {
            if let Some(value) = value {
                if value.is_empty() {
                    return Err(CliError::usage("EmptyFlag", format!("`{flag}` is empty")));
                }
                builder = builder.flag(flag, path, value);
            }
        }
        if let Some(path) = &self.cloud_access_key {
            builder = builder.flag("--cloud-access-key", "cloud.accessKey", &access_key(path)?);
        }
        Ok(builder)
    }

    fn name(&self, values: &ValuesBuilder) -> Result<ControlPlaneName, CliError> {
        let given = match &self.name {
            Some(name) => Some(name.clone()),
            None => values
                .peek()
                .map_err(|problems| wrong_values(&problems))?
                .get("name")
                .and_then(|name| name.as_str().map(str::to_owned))
                .or(self.default_name.map(str::to_owned)),
        };
        let Some(name) = given else {
            return Err(CliError::usage("NoName", "the control plane has no name")
                .hint("give it as argument (`install control-plane NAME`) or as `name:` in the values"));
        };
        name.parse().map_err(|error| wrong_name(&error))
    }
}

/// A name that Kubernetes would refuse.
pub(super) fn wrong_name(error: &NameError) -> CliError {
    let shown = CliError::usage("InvalidName", error.to_string());
    match error {
        NameError::NotALabel { suggestion: Some(close), .. } => shown.hint(format!("for example `{close}`")),
        _ => shown,
    }
}

/// Reads an access key file. Neither its content nor a part of it is ever in an error.
fn access_key(path: &Path) -> Result<String, CliError> {
    let shown = path.display().to_string();
    let wrong = |what: &str| CliError::usage("InvalidAccessKey", format!("`--cloud-access-key {shown}`: {what}"));
    let bytes = read_file(&shown).map_err(|problem| wrong(&problem.message))?;
    if bytes.len() > ACCESS_KEY_LIMIT {
        return Err(wrong("the file is too large to be an access key"));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("the file is not UTF-8 text"))?;
    // The parser's own message would quote what it met.
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
        wrong(&format!("the file is not JSON (line {}, column {})", error.line(), error.column()))
            .hint("give the path of the JSON key file that the cloud provider made")
    })?;
    if json.is_object() { Ok(text) } else { Err(wrong("the file is not a JSON object")) }
}

/// Wrong values: every error with its place.
pub(super) fn wrong_values(problems: &Diagnostics) -> CliError {
    let count = problems.0.len();
    let headline = match count {
        1 => "the values have an error".to_owned(),
        n => format!("the values have {n} errors"),
    };
    let mut error = CliError::usage("InvalidValues", headline);
    error.problems = Some(Box::new(problems.clone()));
    error
}

fn no_chart(error: &PlanError) -> CliError {
    let shown = CliError::new(Exit::Preflight, "NoChart", error.to_string());
    match error {
        PlanError::NoChart { installable, .. } => shown.hint(format!("installable are: {}", installable.join(", "))),
        PlanError::Chart { source, .. } => shown.because(source),
    }
}
