//! `show`: what this program knows, printed without changing anything.

use clap::Subcommand;

use super::Global;
use super::error::{CliError, Exit};
use super::show_rbac;
use super::ui::Ui;

/// Print what this program knows
#[derive(Debug, Subcommand)]
pub(super) enum ShowCommand {
    /// Print the rights that installing, checking and removing a control plane needs
    Rbac(Box<show_rbac::ShowRbacArgs>),
}

pub(super) fn run(ui: &Ui, global: &Global, command: ShowCommand) -> Result<Exit, CliError> {
    match command {
        ShowCommand::Rbac(args) => show_rbac::run(ui, global, &args),
    }
}
