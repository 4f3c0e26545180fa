//! `show`: what the charts of a service version are made of and need, without any cluster.

use clap::Subcommand;

use super::error::{CliError, Exit};
use super::ui::Ui;
use super::{Global, show_images, show_presets, show_rbac, show_readme, show_schema, show_values, versions};

/// Show what a chart takes, needs and holds
#[derive(Debug, Subcommand)]
pub(super) enum ShowCommand {
    /// Print the default values as commented YAML, ready to be edited and given to `--values`
    Values(show_values::ShowValuesArgs),
    /// Print the JSON Schema of the values, for editors
    Schema(show_schema::ShowSchemaArgs),
    /// Print the documentation of a chart as Markdown
    Readme(show_readme::ShowReadmeArgs),
    /// List every image, for a mirror
    Images(Box<show_images::ShowImagesArgs>),
    /// List service versions and the Kubernetes versions they support
    Versions(versions::VersionsArgs),
    /// List the values that come with the program, or print one of them
    Presets(show_presets::ShowPresetsArgs),
    /// Print the rights that installing, checking and removing a control plane, or an agent, needs
    Rbac(Box<show_rbac::ShowRbacArgs>),
}

pub(super) fn run(ui: &Ui, global: &Global, command: ShowCommand) -> Result<Exit, CliError> {
    match command {
        ShowCommand::Rbac(args) => show_rbac::run(ui, global, &args),
        ShowCommand::Values(args) => show_values::run(ui, &args),
        ShowCommand::Schema(args) => show_schema::run(ui, &args),
        ShowCommand::Readme(args) => show_readme::run(ui, &args),
        ShowCommand::Images(args) => show_images::run(ui, global, &args),
        ShowCommand::Versions(args) => versions::run(ui, &args),
        ShowCommand::Presets(args) => show_presets::run(ui, &args),
    }
}
