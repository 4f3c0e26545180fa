//! `uninstall`: removes a control plane or an agent.

mod agent;
mod control_plane;

use clap::Subcommand;

use super::Global;
use super::error::{CliError, Exit};
use super::ui::Ui;
use crate::apply::Removed;

/// Remove a control plane or an agent
#[derive(Debug, Subcommand)]
pub(super) enum UninstallCommand {
    /// Remove the control plane from the cluster of `--context`
    #[command(visible_alias = "cp", after_help = control_plane::EXAMPLES)]
    ControlPlane(control_plane::UninstallControlPlaneArgs),
    /// Disconnect the cluster of `--context` from its control plane and remove its agent
    #[command(after_help = agent::EXAMPLES)]
    Agent(agent::UninstallAgentArgs),
}

pub(super) async fn run(ui: &Ui, global: &Global, command: UninstallCommand) -> Result<Exit, CliError> {
    match command {
        UninstallCommand::ControlPlane(args) => control_plane::run(ui, global, &args).await,
        UninstallCommand::Agent(args) => agent::run(ui, global, &args).await,
    }
}

/// Objects that are there against all intent make the removal part-done.
fn leftovers(removed: &Removed) -> Result<Exit, CliError> {
    if removed.leftovers.is_empty() {
        return Ok(Exit::Ok);
    }
    let mut error =
        CliError::new(Exit::PartDone, "LeftoversFound", format!("{} objects are left over", removed.leftovers.len()));
    for leftover in &removed.leftovers {
        error = error.cause(format!("{}: {}", leftover.object, leftover.because));
    }
    Err(error.hint("look at them and delete what is not needed"))
}
