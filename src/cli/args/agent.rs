//! The flags that decide what an agent is made of, and the plan that they make.

use clap::Args;

use super::package;
use super::package::{Base, PackageArgs, refuse_too_large, warn_of_values};
use crate::api::version::KubeMinor;
use crate::chart;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::{wrong_name, wrong_values};
use crate::workload_cluster::plan::Plan;

/// Flags that decide what an agent is made of.
#[derive(Debug, Args)]
pub(crate) struct AgentPlanArgs {
    /// Name of the workload cluster, unique in its control plane [default: `name` of the values]
    #[arg(value_name = "WORKLOAD_CLUSTER_NAME")]
    name: Option<String>,

    #[command(flatten)]
    pub(crate) package: PackageArgs,
}

impl AgentPlanArgs {
    /// The plan that the flags describe; `server` is the version of the cluster for `--version auto`.
    pub(crate) fn build_agent_plan(
        &self,
        ui: &Ui,
        global: &Global,
        server: Option<KubeMinor>,
    ) -> Result<Plan, CliError> {
        self.plan_over(ui, global, server, &Base::Chart)
    }

    /// The name given as an argument.
    pub(crate) fn name_given(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The plan that the flags make of a base.
    pub(crate) fn plan_over(
        &self,
        ui: &Ui,
        global: &Global,
        server: Option<KubeMinor>,
        base: &Base,
    ) -> Result<Plan, CliError> {
        let (selection, chart) = self.package.choose_chart(chart::Kind::Agent, server, base)?;
        let values = self.package.merge_package_values(base.base_values(&chart, &selection.version), "image")?;
        let Some(name) = package::resolve_name(self.name.as_deref(), &values)? else {
            return Err(CliError::usage("NoName", "the workload cluster has no name")
                .hint("give it as an argument (`install agent NAME`) or as `name:` in the values"));
        };
        let name = name.parse().map_err(|error| wrong_name(&error))?;
        let plan = Plan::new(name, global.namespace.clone(), &selection, chart, values);
        let plan = plan.map_err(|problems| wrong_values(&problems))?;
        refuse_too_large(&plan.package)?;
        warn_of_values(ui, &plan.package);
        if self.package.patches.is_empty() {
            return Ok(plan);
        }
        let plan = plan.with_patches(self.package.patches.read_patches()?);
        // That they fit is seen before any cluster is asked.
        plan.render_agent().map_err(|problems| wrong_values(&problems))?;
        Ok(plan)
    }
}
