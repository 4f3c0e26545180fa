//! `uninstall`: removes a control plane or an agent.

pub(crate) mod agent;
pub(crate) mod control_plane;

use clap::Subcommand;

use crate::api::util::text::visible_list;
use crate::apply::Removed;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;

/// Remove a control plane or an agent
#[derive(Debug, Subcommand)]
pub(crate) enum UninstallCommand {
    /// Remove the control plane from the cluster of `--context`
    #[command(visible_alias = "cp", after_help = control_plane::EXAMPLES)]
    ControlPlane(control_plane::UninstallControlPlaneArgs),
    /// Disconnect the cluster of `--context` from its control plane and remove its agent
    #[command(after_help = agent::EXAMPLES)]
    Agent(agent::UninstallAgentArgs),
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: UninstallCommand) -> Result<Exit, CliError> {
    match command {
        UninstallCommand::ControlPlane(args) => control_plane::run(ui, global, &args).await,
        UninstallCommand::Agent(args) => agent::run(ui, global, &args).await,
    }
}

/// Refuses to report success if nothing was found in this namespace but one of that name exists in another; `what` is
/// the command's object, such as `agent`.
pub(crate) fn check_not_elsewhere(what: &str, name: &str, global: &Global, removed: &Removed) -> Result<(), CliError> {
    if !removed.nothing_found || removed.elsewhere.is_empty() {
        return Ok(());
    }
    let said = what.replace('-', " ");
    let error = CliError::new(
        Exit::Failed,
        "InstalledElsewhere",
        format!("there is no {said} {name} in namespace {}; nothing was removed", global.namespace),
    )
    .cause(format!("{said} {name} is in namespace {}", visible_list(&removed.elsewhere.join(" and in namespace "))));
    Err(removed.elsewhere.iter().fold(error, |error, namespace| {
        error.hint(format!("to remove it there: `fleetctl uninstall {what} {name}{}`", global.tail_in(namespace)))
    }))
}

/// Objects that exist against all intent make the removal part-done.
pub(crate) fn check_orphaned_objects(removed: &Removed) -> Result<Exit, CliError> {
    if removed.leftovers.is_empty() {
        return Ok(Exit::Ok);
    }
    let headline = match removed.leftovers.len() {
        1 => "1 object is left over".to_owned(),
        count => format!("{count} objects are left over"),
    };
    let mut error = CliError::new(Exit::PartDone, "LeftoversFound", headline);
    for leftover in &removed.leftovers {
        error = error.cause(leftover.to_string());
    }
    Err(error.hint("review them and delete what is not needed"))
}
