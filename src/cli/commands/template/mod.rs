//! `template`: the full set of manifests, ready for `kubectl apply` and for GitOps tools.

mod agent;
mod control_plane;
mod folder;
mod gitops;
mod keys;
mod output;

use clap::Subcommand;

use crate::api::version::KubeMinor;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::install::release_spec::Package;

/// Print the objects of an install as manifests for `kubectl apply`
#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Print the manifests of a control plane
    #[command(visible_alias = "cp", after_help = control_plane::EXAMPLES)]
    ControlPlane(Box<control_plane::TemplateControlPlaneArgs>),
    /// Print the manifests of an agent
    #[command(after_help = agent::EXAMPLES)]
    Agent(Box<agent::TemplateAgentArgs>),
}

pub(crate) fn run(ui: &Ui, global: &Global, command: TemplateCommand) -> Result<Exit, CliError> {
    match command {
        TemplateCommand::ControlPlane(args) => control_plane::run(ui, global, &args),
        TemplateCommand::Agent(args) => agent::run(ui, global, &args),
    }
}

/// Refuses a Kubernetes version that the chosen row does not support.
fn outside_row(package: &Package, minor: Option<KubeMinor>) -> Result<(), CliError> {
    match minor.filter(|minor| !package.is_minor_supported(*minor)) {
        None => Ok(()),
        Some(minor) => Err(CliError::new(
            Exit::Preflight,
            "KubernetesVersion",
            format!("service version {} does not support Kubernetes {minor}", package.version),
        )
        .hint("`fleetctl versions` lists the versions that support it; `--version auto` chooses one")),
    }
}
