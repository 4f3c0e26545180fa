//! The flags that decide what a control plane is made of, and the plan that they make.

use std::path::{Path, PathBuf};

use clap::Args;

use super::package;
use super::package::{Base, PackageArgs, refuse_too_large, set_flag_value, warn_of_values};
use crate::api::names::ControlPlaneName;
use crate::api::version::KubeMinor;
use crate::chart::patch::NOT_APPLIED;
use crate::chart::{self, ValuesBuilder, read_file};
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::{wrong_name, wrong_values};
use crate::cli::render_offline;
use crate::control_plane::endpoint::exposure::endpoint_from_values;
use crate::control_plane::plan::Plan;
use crate::pki;

/// Flags that decide what a control plane is made of.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Name of the control plane; also its kubectl context [default: `name` of the values]
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: Option<String>,

    #[command(flatten)]
    package: PackageArgs,

    /// JSON access key file of the cloud, when the hosting cluster is a managed one
    #[arg(long, value_name = "FILE", help_heading = None)]
    cloud_access_key: Option<PathBuf>,

    /// Project identifier in the same cloud
    #[arg(long, value_name = "PROJECT", help_heading = None)]
    cloud_project_id: Option<String>,

    #[arg(skip)]
    default_name: Option<&'static str>,
}

/// The largest access key file that is read, in bytes.
const ACCESS_KEY_LIMIT: usize = 64 * 1024;

impl PlanArgs {
    /// Returns whether the cluster's version must be known before a plan can be made.
    pub(crate) fn asks_cluster(&self) -> bool {
        self.package.asks_cluster()
    }

    /// The name given as an argument.
    pub(crate) fn name_given(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The name to use where neither the argument nor the values give one.
    pub(crate) fn name_at_least(&mut self, name: &'static str) {
        self.default_name = Some(name);
    }

    /// Returns whether nothing but a name was given.
    pub(crate) fn is_bare(&self) -> bool {
        self.package.is_bare() && self.cloud_access_key.is_none() && self.cloud_project_id.is_none()
    }

    /// The plan that the flags describe; `server` is the version of the cluster for `--version auto`.
    pub(crate) fn build_control_plane_plan(
        &self,
        ui: &Ui,
        global: &Global,
        server: Option<KubeMinor>,
    ) -> Result<Plan, CliError> {
        self.plan_over(ui, global, server, &Base::Chart)
    }

    /// The plan that the flags make of a base.
    pub(crate) fn plan_over(
        &self,
        ui: &Ui,
        global: &Global,
        server: Option<KubeMinor>,
        base: &Base,
    ) -> Result<Plan, CliError> {
        let (selection, chart) = self.package.choose_chart(chart::Kind::ControlPlane, server, base)?;
        let values = self.merge_plan_values(base.base_values(&chart, &selection.version))?;
        let name = self.require_name(&values)?;
        let plan = Plan::new(name, global.namespace.clone(), &selection, chart, values);
        let plan = plan.map_err(|problems| wrong_values(&problems))?;
        refuse_too_large(&plan.package)?;
        warn_of_values(ui, &plan.package);
        self.apply_patches(plan)
    }

    /// The plan with the patches. That they fit is seen in what can be rendered without a cluster; where only a cluster
    /// knows how the API is exposed, an operation may need what is not there yet.
    fn apply_patches(&self, plan: Plan) -> Result<Plan, CliError> {
        if self.package.patches.is_empty() {
            return Ok(plan);
        }
        let plan = plan.with_patches(self.package.patches.read_patches()?);
        let exposure = &plan.values.exposure;
        let is_open = endpoint_from_values(exposure).is_err();
        if let Err(mut problems) =
            plan.render_control_plane(&render_offline::offline_endpoint(exposure), &pki::placeholder_files())
        {
            problems.0.retain(|problem| !(is_open && problem.code == NOT_APPLIED));
            if !problems.0.is_empty() {
                return Err(wrong_values(&problems));
            }
        }
        Ok(plan)
    }

    fn merge_plan_values(&self, (builder, unlocked): (ValuesBuilder, Vec<String>)) -> Result<ValuesBuilder, CliError> {
        let builder = self
            .package
            .merge_package_values((super::environment::apply_variables(builder), unlocked), "scheduler.image")?;
        let project = self.cloud_project_id.as_deref();
        let builder = set_flag_value(builder, "--cloud-project-id", "cloud.projectId", project)?;
        match &self.cloud_access_key {
            Some(path) => Ok(builder.flag("--cloud-access-key", "cloud.accessKey", &access_key(path)?)),
            None => Ok(builder),
        }
    }

    fn require_name(&self, values: &ValuesBuilder) -> Result<ControlPlaneName, CliError> {
        let given = package::resolve_name(self.name.as_deref(), values)?;
        let Some(name) = given.or_else(|| self.default_name.map(str::to_owned)) else {
            return Err(CliError::usage("NoName", "the control plane has no name")
                .hint("give it as an argument (`install control-plane NAME`) or as `name:` in the values"));
        };
        name.parse().map_err(|error| wrong_name(&error))
    }
}

/// Reads an access key file. Neither its content nor a part of it is ever in an error.
fn access_key(path: &Path) -> Result<String, CliError> {
    let shown = path.display().to_string();
    let bytes = read_file(&shown).map_err(|problem| access_key_error(&shown, &problem.message))?;
    if bytes.len() > ACCESS_KEY_LIMIT {
        return Err(access_key_error(&shown, "the file is too large to be an access key"));
    }
    let text = String::from_utf8(bytes).map_err(|_| access_key_error(&shown, "the file is not UTF-8 text"))?;
    // The parser's own message would quote what it met.
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
        let what = format!("the file is not JSON (line {}, column {})", error.line(), error.column());
        access_key_error(&shown, &what)
    })?;
    if json.is_object() { Ok(text) } else { Err(access_key_error(&shown, "the file is not a JSON object")) }
}

fn access_key_error(file: &str, what: &str) -> CliError {
    CliError::usage("InvalidAccessKey", format!("`--cloud-access-key {file}`: {what}"))
        .hint("give the path of the JSON key file from the cloud provider")
}
