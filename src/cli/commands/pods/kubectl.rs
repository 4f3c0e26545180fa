//! Runs kubectl in place of this program.

use std::process::Command;

use super::Place;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;

/// Runs kubectl with a context of the user's own; its exit code is that of this program.
///
/// # Errors
/// kubectl cannot be started.
pub(super) fn run_kubectl(ui: &Ui, global: &Global, place: &Place, words: &[String]) -> Result<Exit, CliError> {
    let mut command = Command::new("kubectl");
    if let Some(file) = &global.kubeconfig {
        command.arg("--kubeconfig").arg(file);
    }
    command.args(["--context", &place.context, "--namespace", &place.namespace]).args(words);
    ui.print_note(&format!("kubectl --context {}", place.context));
    Err(not_started(&replace_process(command)))
}

/// Lets kubectl take the place of this program, which then does not return.
#[cfg(unix)]
fn replace_process(mut command: Command) -> std::io::Error {
    use std::os::unix::process::CommandExt as _;
    command.exec()
}

/// Runs kubectl and ends with its exit code.
#[cfg(not(unix))]
fn replace_process(mut command: Command) -> std::io::Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

fn not_started(error: &std::io::Error) -> CliError {
    CliError::new(Exit::Failed, "Io", "cannot run kubectl")
        .cause(error.to_string())
        .hint("install kubectl and put it on PATH")
}
