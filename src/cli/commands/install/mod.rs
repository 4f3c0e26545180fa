//! `install`: a control plane into a hosting cluster, an agent into a workload cluster.

mod agent;
mod control_plane;
mod recorded;

use clap::{Args, Subcommand, ValueEnum};
use kube::Client;
use serde::Serialize;

use crate::api::remedy::{self, Action, Remedy};
use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;
use crate::cli::args::installation::{not_applied_by_others, subject_of_owner};
use crate::cli::args::object_name::taken_fields;
use crate::cli::args::package::Base;
use crate::cli::args::timeouts::RunArgs;
use crate::cli::connect;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::engine_error;
use crate::cli::output::terminal::Ui;
use crate::install::recorded_values::{ReadError, Recorded, RecordedRelease};
use crate::install::release_spec::Package;
use crate::install::renderable::SecretEntry;
use crate::install::session::InstallOptions;
use crate::inventory::{Owner, Phase};
use crate::k8s::Connected;

pub(in crate::cli) use agent::{AgentArgs, AgentRequest, PreparedAgent, prepare_agent, run as run_agent};
pub(crate) use control_plane::{
    Prepared, Request, check_local_kubeconfig, prepare_control_plane, prepare_install_plan, run as run_control_plane,
};
pub(crate) use control_plane::{REPOSITORY_HELP, TAG_HELP};
pub(crate) use recorded::{
    ConfirmArgs, format_recorded_values, remember_values, show_recorded_values, unconfirmed_values_error,
    warn_of_unreadable_values,
};

/// Install a control plane or an agent
#[derive(Debug, Subcommand)]
pub(crate) enum InstallCommand {
    /// Install the control plane in the cluster of `--context`
    #[command(
        visible_alias = "cp",
        after_help = control_plane::EXAMPLES,
        mut_arg("image_repository", |arg| arg.help(control_plane::REPOSITORY_HELP)),
        mut_arg("image_tag", |arg| arg.help(control_plane::TAG_HELP)),
    )]
    ControlPlane(Box<control_plane::InstallControlPlaneArgs>),
    /// Install the agent in the cluster of `--context` and register that cluster
    #[command(
        after_help = agent::EXAMPLES,
        mut_arg("image_repository", |arg| arg.help(agent::REPOSITORY_HELP)),
        mut_arg("image_tag", |arg| arg.help(agent::TAG_HELP)),
        mut_arg("set", |arg| arg.help(agent::SET_HELP)),
    )]
    Agent(Box<agent::InstallAgentArgs>),
}

/// Flags about the cluster that is written to, or compared with.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Preflight checks to treat as warnings, by id, e.g. `access`; may be repeated
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    skip_preflight: Vec<String>,

    #[command(flatten)]
    run: RunArgs,

    /// Send keys and tokens even if the kubeconfig has no CA for the server
    #[arg(long)]
    allow_unverified_server: bool,

    /// Adopt existing objects of the same names that kubectl or Helm created
    #[arg(long)]
    adopt: bool,

    /// Field to take from another field manager, e.g. `deploy/apiserver:.spec.replicas`; may be repeated, or a
    /// comma-separated list
    #[arg(long, value_name = "FIELD")]
    take_fields: Vec<String>,
}

impl WriteArgs {
    /// Refuses to send keys to a server that may be any.
    pub(super) fn check_target_server(&self, cluster: &Connected) -> Result<(), CliError> {
        connect::check_server_verified(cluster, self.allow_unverified_server)
    }

    pub(crate) fn install_options(&self, rollback: bool, way: Way) -> InstallOptions {
        InstallOptions {
            rollback,
            skip_preflight: self.skip_preflight.clone(),
            timeout: self.run.timeout,
            adopt: self.adopt,
            take_fields: taken_fields(&self.take_fields),
            lock_wait: self.run.lock_wait,
            recorded: way.recorded,
            command: way.command,
        }
    }
}

/// Command that brings an installation about, and its treatment of the values of the last one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    recorded: Recorded,
    command: &'static str,
}

impl Way {
    /// `install`, `diff` and `check --pre`.
    pub(crate) const fn for_install(recorded: Recorded) -> Self {
        Self { recorded, command: "install" }
    }

    /// `upgrade`.
    pub(crate) const UPGRADE: Self = Self { recorded: Recorded::Reuse, command: UPGRADE };

    fn is_upgrade(self) -> bool {
        self.command == UPGRADE
    }

    /// Returns whether a cluster must be asked for values before there is a plan.
    fn asks_cluster(self) -> bool {
        self.recorded == Recorded::Reuse
    }

    /// Returns the base that the flags are laid over, for the installation of `owner` whose name was given as an
    /// argument.
    async fn read_base(self, client: &Client, owner: Owner, secrets: &[SecretEntry]) -> Result<Base, CliError> {
        if !self.asks_cluster() {
            return Ok(Base::Chart);
        }
        let what = format!("{} {}", owner.kind.replace('-', " "), owner.name);
        let install = remedy::Command::at_run_place(Action::Install(subject_of_owner(&owner)));
        let namespace = owner.namespace.clone();
        let read = RecordedRelease::read_release(client, owner.clone(), secrets)
            .await
            .map_err(|error| unreadable_record_error(&what, &error))?;
        match read {
            Some(release) if release.phase == Phase::Removed && self.is_upgrade() => {
                not_applied_by_others(client, &owner).await?;
                let why = format!(
                    "{what} was uninstalled; namespace {namespace} contains only objects that the uninstall kept"
                );
                Err(missing_installation(why, install))
            }
            None => {
                not_applied_by_others(client, &owner).await?;
                let why = format!("{what} is not installed in namespace {namespace}, or its record is lost");
                Err(missing_installation(why, install))
            }
            Some(RecordedRelease { values: None, .. }) => Err(CliError::new(
                Exit::Refused,
                "ValuesForgotten",
                format!("the record of {what} does not contain the values that it was installed with"),
            )
            .hint("run `install` with these values and `--reset-values`; this records them")),
            Some(release) if self.is_upgrade() => Ok(Base::Upgrade(release)),
            Some(release) => Ok(Base::Recorded(release)),
        }
    }
}

fn missing_installation(why: String, install: remedy::Command) -> CliError {
    CliError::new(Exit::Refused, "NotInstalled", why).hint(Remedy::new("install it: ").command(install))
}

/// Builds the line that is shown before a run begins.
fn opening_line(way: Way, what: &str, package: &Package, former: Option<&str>, context: &str) -> String {
    let context = visible_cell(context);
    let (version, namespace) = (&package.version, &package.namespace);
    match former.filter(|_| way.is_upgrade()) {
        Some(former) if former == version.to_string() => {
            format!("Changing {what} (service version {version}) in namespace {namespace} of {context}")
        }
        Some(former) => format!(
            "Upgrading {what} from service version {} to {version} in namespace {namespace} of {context}",
            visible_cell(former)
        ),
        None => format!("Installing {what} (service version {version}) in namespace {namespace} of {context}"),
    }
}

const UPGRADE: &str = "upgrade";

/// A record that cannot be read.
pub(crate) fn unreadable_record_error(what: &str, error: &ReadError) -> CliError {
    let headline = format!("cannot read the record of {what}");
    match error {
        ReadError::Record(source) => engine_error(&headline, source),
        ReadError::Secret(source) => connect::request_failed(&headline, source),
    }
}

/// The error where the values of the last install are wanted of a name that is not on the command line.
fn name_is_needed() -> CliError {
    CliError::usage("NoName", "name the installation whose values to reuse").hint("give the name as an argument")
}

/// The error where a dry run on this machine is to know what a cluster has recorded.
fn values_need_cluster() -> CliError {
    CliError::usage(
        "ValuesNeedCluster",
        "the values of the last install are in the cluster, which `--dry-run` does not contact",
    )
    .hint("use `--dry-run=server`")
}

/// Whether anything is to be written at all.
#[derive(Debug, Args)]
pub(crate) struct DryRunArgs {
    /// Change nothing: `client` (the default) prints the objects, with placeholders for keys, and contacts no cluster;
    /// `server` prints what would change, as `diff` does
    #[arg(long, value_enum, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: Option<DryRun>,
}

/// Who is asked in a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DryRun {
    Client,
    Server,
}

/// Fields of the result of every install, as programs read it.
#[derive(Debug, Serialize)]
struct Done<'r> {
    name: &'r str,
    namespace: &'r str,
    version: String,
    unchanged: bool,
}

impl<'r> Done<'r> {
    fn from_package(name: &'r str, package: &'r Package, unchanged: bool) -> Self {
        Self { name, namespace: package.namespace.as_str(), version: package.version.to_string(), unchanged }
    }
}

/// Refuses identifiers of checks that do not exist.
pub(crate) fn check_ids<'k>(ids: &[String], known: impl IntoIterator<Item = &'k str>) -> Result<(), CliError> {
    let known: Vec<&str> = known.into_iter().collect();
    let Some(unknown) = ids.iter().find(|id| !known.contains(&id.as_str())) else { return Ok(()) };
    let error = CliError::usage("NoSuchCheck", format!("unknown preflight check `{unknown}`"));
    Err(error.did_you_mean(unknown, &known).hint(format!("the checks are: {}", known.join(", "))))
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: InstallCommand) -> Result<Exit, CliError> {
    match command {
        InstallCommand::ControlPlane(args) => control_plane::run(ui, global, &args.to_control_plane_request()).await,
        InstallCommand::Agent(args) => agent::run(ui, global, &args.to_agent_request()).await,
    }
}

/// For the example on the page of its reason.
#[cfg(test)]
pub(crate) use recorded::refused_values_error;
