//! `certs`: the certificates of a control plane.

mod access_again;
mod renew;
pub(in crate::cli) mod renewal_error;
mod status;

use clap::Subcommand;

use crate::api::names::ControlPlaneName;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;

/// Show and renew the certificates of a control plane
#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// List every certificate of a control plane with its holders
    #[command(after_help = status::EXAMPLES)]
    Status(status::CertsStatusArgs),
    /// Renew the certificates that are due
    #[command(after_help = renew::EXAMPLES)]
    Renew(renew::CertsRenewArgs),
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: CertsCommand) -> Result<Exit, CliError> {
    match command {
        CertsCommand::Status(args) => status::run(ui, global, &args).await,
        CertsCommand::Renew(args) => renew::run(ui, global, &args).await,
    }
}

/// The error of a control plane whose certificates are not there.
fn not_installed(name: &ControlPlaneName, global: &Global) -> CliError {
    let headline = format!("no certificate of control plane {name} was found in namespace {}", global.namespace);
    CliError::new(Exit::Refused, "NotInstalled", headline)
        .hint("give its namespace with `--namespace` and its cluster with `--context`")
}
