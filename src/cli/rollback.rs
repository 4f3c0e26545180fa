//! `rollback`: undoes a run that was cut off.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::error::{CliError, Exit};
use super::install::duration;
use super::outcome::{engine_error, interrupted};
use super::package_args::wrong_name;
use super::ui::{Display, Ui};
use super::{Global, cluster_access};
use crate::api::names::ControlPlaneName;
use crate::control_plane::rollback::Outcome;
use crate::control_plane::uninstall::Target;
use crate::install::home::Home;
use crate::install::progress::Progress;

/// Undo an install or upgrade that was cut off
#[derive(Debug, Args)]
#[command(
    after_help = "What the run made is deleted, what it changed gets its former fields back, and what was there \
before stays.\nA run that has ended well is not undone: install what you want instead.\n\nExamples:\n  \
fleetctl rollback demo\n  fleetctl rollback demo --context hosting"
)]
pub(super) struct RollbackArgs {
    /// Name of the control plane
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: String,

    /// How long to wait for everything together
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    timeout: Duration,

    /// How long to wait for another run that holds the lock
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    lock_wait: Duration,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: RollbackArgs) -> Result<Exit, CliError> {
    let name: ControlPlaneName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let home =
        Home::of_user().map_err(|error| CliError::new(Exit::Failed, "NoHome", error.to_string()).hint("set HOME"))?;
    let hosting = cluster_access::connect(global).await?;
    let target = Target {
        name: &name,
        namespace: &global.namespace,
        client: &hosting.client,
        home: &home,
        timeout: args.timeout,
        lock_wait: args.lock_wait,
    };
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    progress.step(&format!("Undoing what a run of control plane {name} left that was cut off"));
    let outcome = tokio::select! {
        outcome = target.rollback(&progress) => outcome,
        () = interrupted(ui) => {
            display.close(false);
            return Err(CliError::new(Exit::Interrupted, "Interrupted", "the rollback was interrupted")
                .hint("run the same command again; it goes on where it stopped"));
        }
    };
    display.close(outcome.is_ok());
    let outcome = outcome.map_err(|error| {
        engine_error("the rollback stopped", &error).hint("run the same command again; it goes on where it stopped")
    })?;
    told(ui, &name, global, outcome)
}

fn told(ui: &Ui, name: &ControlPlaneName, global: &Global, outcome: Outcome) -> Result<Exit, CliError> {
    let state = |installed: Option<String>| match installed {
        Some(version) => format!("Installed is service version {version}."),
        None => "Nothing is installed.".to_owned(),
    };
    match outcome {
        Outcome::NothingToUndo { installed } => {
            ui.out(&format!(
                "No run of control plane {name} in namespace {} was cut off; nothing to undo. {}\n",
                global.namespace,
                state(installed)
            ))?;
            Ok(Exit::Ok)
        }
        Outcome::WasUninstall { started } => Err(CliError::new(
            Exit::Refused,
            "UninstallCutOff",
            format!("the run that was cut off, begun {started}, was an uninstall; what it deleted cannot be brought back"),
        )
        .hint(format!("to finish it: `fleetctl uninstall control-plane {name}`; to install again: `fleetctl install control-plane {name}`"))),
        Outcome::Undone { started, result, installed } => {
            let begun = if started.is_empty() { String::new() } else { format!(" begun {started}") };
            let mut text = format!("Undone: the run of control plane {name}{begun}.\n");
            for object in &result.undone {
                let _ = writeln!(text, "  {object}");
            }
            let _ = writeln!(text, "{}", state(installed));
            if result.problems.is_empty() {
                ui.out(&text)?;
                return Ok(Exit::Ok);
            }
            ui.err(text.trim_end());
            let count = result.problems.len();
            let mut error = CliError::new(
                Exit::PartDone,
                "RollbackIncomplete",
                if count == 1 { "1 object could not be undone".to_owned() } else { format!("{count} objects could not be undone") },
            );
            for problem in &result.problems {
                error = error.because(problem);
            }
            Err(error.hint("run the same command again; what is undone stays undone"))
        }
    }
}
