//! `show`: what the charts of a service version are made of and need, without any cluster.

mod images;
mod presets;
mod rbac;
pub(in crate::cli) mod readme;
mod schema;
mod templates;
mod values;

use clap::Subcommand;

use super::versions;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;

/// Show the values, images, rights and templates of a chart
#[derive(Debug, Subcommand)]
pub(crate) enum ShowCommand {
    /// Print the default values as commented YAML for `--values`; with values given, print the merged result and the
    /// source of each value
    Values(values::ShowValuesArgs),
    /// Print the JSON Schema of a values file, for editors
    Schema(schema::ShowSchemaArgs),
    /// Print the templates of a chart
    Templates(templates::ShowTemplatesArgs),
    /// Print the documentation of a chart as Markdown
    Readme(readme::ShowReadmeArgs),
    /// List all images, for a mirror
    Images(Box<images::ShowImagesArgs>),
    /// List service versions and the Kubernetes versions they support
    Versions(versions::VersionsArgs),
    /// List the presets, or print one of them
    Presets(presets::ShowPresetsArgs),
    /// Print the rights needed to install, check and remove a control plane or an agent
    Rbac(Box<rbac::ShowRbacArgs>),
}

pub(crate) fn run(ui: &Ui, global: &Global, command: ShowCommand) -> Result<Exit, CliError> {
    match command {
        ShowCommand::Rbac(args) => rbac::run(ui, global, &args),
        ShowCommand::Values(args) => values::run(ui, &args),
        ShowCommand::Schema(args) => schema::run(ui, &args),
        ShowCommand::Templates(args) => templates::run(ui, &args),
        ShowCommand::Readme(args) => readme::run(ui, &args),
        ShowCommand::Images(args) => images::run(ui, global, &args),
        ShowCommand::Versions(args) => versions::run(ui, &args),
        ShowCommand::Presets(args) => presets::run(ui, &args),
    }
}
