//! The name of an installation of either kind, and its record in the cluster of `--context`.

use clap::Args;
use kube::Client;

use crate::api::names::ControlPlaneName;
use crate::apply::Engine;
use crate::chart::Kind;
use crate::cli::args::global::Global;
use crate::cli::args::package::wrong_name;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::install_error::engine_error;
use crate::inventory::{Owner, State};

/// The name of an installation.
#[derive(Debug, Args)]
pub(crate) struct InstallationArgs {
    /// Name of the control plane, or of the workload cluster of the agent
    #[arg(value_name = "NAME")]
    name: String,

    /// Which kind, where a control plane and an agent have the same name: `control-plane` (also `cp`) or `agent`
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
}

/// The error of a name that two installations have.
pub(crate) fn ambiguous(name: &str, global: &Global) -> CliError {
    let namespace = &global.namespace;
    CliError::usage("AmbiguousName", format!("a control plane and an agent are called {name} in namespace {namespace}"))
        .hint("say which one: `--kind control-plane` or `--kind agent`")
}

/// An installation with what is known of it.
pub(crate) struct Installation {
    pub(crate) kind: Kind,
    pub(crate) owner: Owner,
    pub(crate) state: State,
}

impl InstallationArgs {
    /// Looks for it in the namespace of the run.
    pub(crate) async fn find(&self, global: &Global, client: &Client) -> Result<Installation, CliError> {
        // Both kinds take the same names.
        let _: ControlPlaneName = self.name.parse().map_err(|error| wrong_name(&error))?;
        let mut found = Vec::new();
        let kinds = [Kind::ControlPlane, Kind::Agent];
        for kind in kinds.into_iter().filter(|kind| self.kind.is_none_or(|wanted| wanted == *kind)) {
            let owner = Owner::new(kind.as_str(), &self.name, global.namespace.as_str());
            let state = Engine::reader(client.clone(), owner.clone()).state().await;
            let state =
                state.map_err(|error| engine_error(&format!("cannot read the record of {}", self.name), &error))?;
            if !state.is_empty() {
                found.push(Installation { kind, owner, state });
            }
        }
        match (found.pop(), found.pop()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => Err(ambiguous(&self.name, global)),
            _ => Err(CliError::new(
                Exit::Refused,
                "NotInstalled",
                format!("nothing that is called {} is installed in namespace {}", self.name, global.namespace),
            )
            .hint("give its namespace with `--namespace`, its cluster with `--context`")),
        }
    }
}
