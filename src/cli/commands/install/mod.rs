//! `install`: a control plane into a hosting cluster, an agent into a workload cluster.

mod agent;
mod control_plane;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::cli::args::global::Global;
use crate::cli::args::object_name::taken_fields;
use crate::cli::args::run::RunArgs;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::terminal::Ui;
use crate::install::release_spec::Package;
use crate::install::session::InstallOptions;

pub(in crate::cli) use agent::{AgentArgs, PreparedAgent, prepare as prepare_agent};
pub(crate) use control_plane::{Prepared, prepare};

/// Install a control plane or an agent
#[derive(Debug, Subcommand)]
pub(crate) enum InstallCommand {
    /// Install the control plane in the cluster of `--context`
    #[command(
        visible_alias = "cp",
        after_help = control_plane::EXAMPLES,
        mut_arg("image_repository", |arg| arg.help(control_plane::REPOSITORY_HELP)),
        mut_arg("image_tag", |arg| arg.help(control_plane::TAG_HELP)),
    )]
    ControlPlane(Box<control_plane::InstallControlPlaneArgs>),
    /// Install the agent in the cluster of `--context` and register that cluster
    #[command(
        after_help = agent::EXAMPLES,
        mut_arg("image_repository", |arg| arg.help(agent::REPOSITORY_HELP)),
        mut_arg("image_tag", |arg| arg.help(agent::TAG_HELP)),
        mut_arg("set", |arg| arg.help(agent::SET_HELP)),
    )]
    Agent(Box<agent::InstallAgentArgs>),
}

/// Flags about the cluster that is written to, or compared with.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Preflight checks that only warn, by identifier, e.g. `access`; may be repeated
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    skip_preflight: Vec<String>,

    #[command(flatten)]
    run: RunArgs,

    /// Take over objects of the same names that kubectl or Helm made
    #[arg(long)]
    adopt: bool,

    /// Field to take from another manager, e.g. `deploy/apiserver:.spec.replicas`; may be repeated, or a list with commas
    #[arg(long, value_name = "FIELD")]
    take_fields: Vec<String>,
}

impl WriteArgs {
    pub(crate) fn options(&self, rollback: bool) -> InstallOptions {
        InstallOptions {
            rollback,
            skip_preflight: self.skip_preflight.clone(),
            timeout: self.run.timeout,
            adopt: self.adopt,
            take_fields: taken_fields(&self.take_fields),
            lock_wait: self.run.lock_wait,
        }
    }
}

/// Whether anything is to be written at all.
#[derive(Debug, Args)]
struct DryRunArgs {
    /// Change nothing: `client` (the default) prints the objects, with placeholders for keys, and asks no cluster;
    /// `server` prints what would change, as `diff` does
    #[arg(long, value_enum, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: Option<DryRun>,
}

/// Who is asked in a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DryRun {
    Client,
    Server,
}

/// What every install says of itself to programs.
#[derive(Debug, Serialize)]
struct Done<'r> {
    name: &'r str,
    namespace: &'r str,
    version: String,
    unchanged: bool,
}

impl<'r> Done<'r> {
    fn of(name: &'r str, package: &'r Package, unchanged: bool) -> Self {
        Self { name, namespace: package.namespace.as_str(), version: package.version.to_string(), unchanged }
    }
}

/// Refuses identifiers of checks that do not exist.
pub(crate) fn check_ids<'k>(ids: &[String], known: impl IntoIterator<Item = &'k str>) -> Result<(), CliError> {
    let known: Vec<&str> = known.into_iter().collect();
    let Some(unknown) = ids.iter().find(|id| !known.contains(&id.as_str())) else { return Ok(()) };
    let error = CliError::usage("NoSuchCheck", format!("there is no preflight check `{unknown}`"));
    Err(error.did_you_mean(unknown, &known).hint(format!("the checks are: {}", known.join(", "))))
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: InstallCommand) -> Result<Exit, CliError> {
    match command {
        InstallCommand::ControlPlane(args) => control_plane::run(ui, global, &args).await,
        InstallCommand::Agent(args) => agent::run(ui, global, &args).await,
    }
}
