//! `upgrade`: an install that takes the recorded values, and the next line where no version is given.

use clap::{Args, Subcommand};

use super::install::{
    AgentArgs, AgentRequest, ConfirmArgs, DryRunArgs, REPOSITORY_HELP, Request, TAG_HELP, Way, WriteArgs, run_agent,
    run_control_plane,
};
use crate::cli::args::control_plane::PlanArgs;
use crate::cli::args::global::Global;
use crate::cli::args::values::with_precedence;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::terminal::Ui;

const VERSION_HELP: &str = "Service version: a line (`v0.7`), a version (`v0.7.1`), or `auto` for the newest that supports \
                            the cluster; give the installed version to change only values [default: that of \
                            `--image-tag`, else the next line]";

const EXAMPLES: &str = with_precedence!(
    "Examples:
  fleetctl upgrade control-plane demo
  fleetctl upgrade cp demo --version v0.7 --rollback
  fleetctl upgrade cp demo --version v0.6.1 --set scheduler.replicas=3
  fleetctl upgrade cp demo --dry-run=server",
    recorded,
    environment
);

const AGENT_EXAMPLES: &str = with_precedence!(
    "Examples:
  fleetctl upgrade agent west --context west
  fleetctl upgrade agent west --context west --version v0.7 --set cluster.region=eu-1",
    recorded
);

/// Change the version of a control plane or an agent and reuse its values
#[derive(Debug, Subcommand)]
pub(crate) enum UpgradeCommand {
    /// Upgrade the control plane in the cluster of `--context`
    #[command(
        visible_alias = "cp",
        after_help = EXAMPLES,
        mut_arg("version", |arg| arg.help(VERSION_HELP)),
        mut_arg("image_repository", |arg| arg.help(REPOSITORY_HELP)),
        mut_arg("image_tag", |arg| arg.help(TAG_HELP)),
    )]
    ControlPlane(Box<UpgradeControlPlaneArgs>),
    /// Upgrade the agent in the cluster of `--context`
    #[command(
        after_help = AGENT_EXAMPLES,
        mut_arg("version", |arg| arg.help(VERSION_HELP)),
    )]
    Agent(Box<UpgradeAgentArgs>),
}

/// Upgrade the control plane in the cluster of `--context`
#[derive(Debug, Args)]
pub(crate) struct UpgradeControlPlaneArgs {
    #[command(flatten)]
    plan: PlanArgs,

    #[command(flatten)]
    dry_run: DryRunArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    confirm: ConfirmArgs,

    /// Output format [default: text]; with `json`, the progress on stderr is JSON too
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

/// Upgrade the agent in the cluster of `--context`
#[derive(Debug, Args)]
pub(crate) struct UpgradeAgentArgs {
    #[command(flatten)]
    what: AgentArgs,

    #[command(flatten)]
    dry_run: DryRunArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    confirm: ConfirmArgs,

    /// Output format [default: text]; with `json`, the progress on stderr is JSON too
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: UpgradeCommand) -> Result<Exit, CliError> {
    let way = Way::UPGRADE;
    match command {
        UpgradeCommand::ControlPlane(args) => {
            let UpgradeControlPlaneArgs { plan, dry_run, write, confirm, output } = &*args;
            run_control_plane(ui, global, &Request { plan, dry_run, write, way, confirm: *confirm, output: *output })
                .await
        }
        UpgradeCommand::Agent(args) => {
            let UpgradeAgentArgs { what, dry_run, write, confirm, output } = &*args;
            run_agent(ui, global, &AgentRequest { what, dry_run, write, way, confirm: *confirm, output: *output }).await
        }
    }
}
