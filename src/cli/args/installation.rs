//! The name of an installation of either kind, and its record in the cluster of `--context`.

use clap::Args;
use kube::Client;

use crate::api::first_of::first_of;
use crate::api::names::ControlPlaneName;
use crate::api::remedy::{Action, Command, Flag, Remedy, Subject};
use crate::apply::Engine;
use crate::chart::Kind;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::engine_error;
use crate::cli::output::values_error::wrong_name;
use crate::control_plane;
use crate::inventory::{self, Owner, State};

/// The name of an installation.
#[derive(Debug, Args)]
pub(crate) struct InstallationArgs {
    /// Name of the control plane, or of the workload cluster of the agent
    #[arg(value_name = "NAME")]
    name: String,

    /// Kind, if a control plane and an agent have the same name: `control-plane` (also `cp`) or `agent`
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
}

/// The error of a name that two installations have.
pub(crate) fn ambiguous_name_error(name: &str, global: &Global) -> CliError {
    let namespace = &global.namespace;
    CliError::usage("AmbiguousName", format!("a control plane and an agent are called {name} in namespace {namespace}"))
        .hint("name the kind: `--kind control-plane` or `--kind agent`")
}

/// Number of field managers that are named at most.
pub(crate) const MANAGERS: usize = 3;

/// Refuses an installation that others applied, where there is no record of it, or only that of a removal before.
pub(crate) async fn not_applied_by_others(client: &Client, owner: &Owner) -> Result<(), CliError> {
    let managers = inventory::applied_by(client, owner).await;
    if managers.is_empty() { Ok(()) } else { Err(applied_by_others(owner, &managers)) }
}

/// Returns the installation of an owner as a command names it.
pub(crate) fn subject_of_owner(owner: &Owner) -> Subject {
    match &*owner.kind {
        control_plane::plan::OWNER_KIND => Subject::ControlPlane(owner.name.clone()),
        _ => Subject::Agent(owner.name.clone()),
    }
}

/// The error of an installation that others applied, where what fleetctl records is needed. Managers are as
/// [`inventory::applied_by`] returns them.
pub(crate) fn applied_by_others(owner: &Owner, managers: &[String]) -> CliError {
    let subject = subject_of_owner(owner);
    let (kind, name, namespace) = (owner.kind.replace('-', " "), &owner.name, &owner.namespace);
    let managers = first_of(managers, MANAGERS, ", ");
    CliError::new(
        Exit::Refused,
        "AppliedByOthers",
        format!("{kind} {name} in namespace {namespace} was applied by {managers}, so fleetctl has no record of it"),
    )
    .hint(
        Remedy::new("change the manifests at their source; to print them: ")
            .command(Command::at_run_place(Action::Template(subject.clone())))
            .text(", with the version and values that you want"),
    )
    .hint(
        Remedy::new("to manage it with fleetctl from now on: ")
            .command(Command::at_run_place(Action::Install(subject)).with_flag(Flag::Adopt))
            .text(", with the version and values that it was installed with"),
    )
}

/// An installation with what is known of it.
pub(crate) struct Installation {
    pub(crate) kind: Kind,
    pub(crate) owner: Owner,
    pub(crate) state: State,
}

impl InstallationArgs {
    /// Looks for it in the namespace of the run.
    pub(crate) async fn find_installation(&self, global: &Global, client: &Client) -> Result<Installation, CliError> {
        // Both kinds take the same names.
        let _: ControlPlaneName = self.name.parse().map_err(|error| wrong_name(&error))?;
        let (mut found, mut of_others) = (Vec::new(), None);
        let kinds = [Kind::ControlPlane, Kind::Agent];
        for kind in kinds.into_iter().filter(|kind| self.kind.is_none_or(|wanted| wanted == *kind)) {
            let owner = Owner::new(kind.as_str(), &self.name, global.namespace.as_str());
            let state = Engine::new_reader(client.clone(), owner.clone()).read_state().await;
            let state =
                state.map_err(|error| engine_error(&format!("cannot read the record of {}", self.name), &error))?;
            if !state.is_empty() {
                found.push(Installation { kind, owner, state });
                continue;
            }
            of_others = not_applied_by_others(client, &owner).await.err().or(of_others);
        }
        match (found.pop(), found.pop()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => Err(ambiguous_name_error(&self.name, global)),
            _ => Err(of_others.unwrap_or_else(|| {
                CliError::new(
                    Exit::Refused,
                    "NotInstalled",
                    format!("nothing named {} is installed in namespace {}", self.name, global.namespace),
                )
                .hint("give its namespace with `--namespace` and its cluster with `--context`")
            })),
        }
    }
}
