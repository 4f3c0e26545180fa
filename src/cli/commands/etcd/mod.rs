//! `etcd`: the store of a control plane.

pub(in crate::cli) mod status;

use clap::Subcommand;

use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;

/// Inspect the etcd of a control plane
#[derive(Debug, Subcommand)]
pub(crate) enum EtcdCommand {
    /// Compare the reports of all etcd members
    #[command(after_help = status::EXAMPLES)]
    Status(status::EtcdStatusArgs),
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: EtcdCommand) -> Result<Exit, CliError> {
    match command {
        EtcdCommand::Status(args) => status::run(ui, global, &args).await,
    }
}
