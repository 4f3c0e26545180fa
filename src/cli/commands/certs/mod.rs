//! `certs`: the certificates of a control plane.

mod status;

use clap::Subcommand;

use crate::cli::args::global::Global;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::terminal::Ui;

/// Show the certificates of a control plane
#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// List every certificate of a control plane with its holders
    #[command(after_help = status::EXAMPLES)]
    Status(status::CertsStatusArgs),
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: CertsCommand) -> Result<Exit, CliError> {
    match command {
        CertsCommand::Status(args) => status::run(ui, global, &args).await,
    }
}
