//! `restore`: replaces the data of a control plane by that of a backup; undoes or completes that; lets agents delete again.

mod commit;
pub(in crate::cli) mod errors;
mod rebuild;
mod release;
mod take_back;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use kube::Client;

use self::errors::restore_error;
use self::take_back::restore_from_file;
use crate::api::names::ControlPlaneName;
use crate::cli::args::global::Global;
use crate::cli::args::patches::PatchArgs;
use crate::cli::args::timeouts::{RESTORE_TIMEOUT, parse_duration};
use crate::cli::args::values::ValuesArgs;
use crate::cli::commands::backup::keys::OpeningArgs;
use crate::cli::connect::{connect_cluster, find_home, require_verified_server};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_name;
use crate::cli::signals::until_stopped;
use crate::control_plane::health::format_error_chain;
use crate::control_plane::kubeconfig::find_kubeconfig;
use crate::control_plane::restore::{RestoreError, RestoreTarget};
use crate::install::admin_access::connect_kubeconfig;
use crate::install::fleet_home::Home;
use crate::install::progress::Progress;
use crate::inventory::HeldLock;

const EXAMPLES: &str = "\
A restore stops the API server and the controllers, gives each member of etcd the store of the backup, and starts
everything again. The API is unavailable for about a minute; workloads keep running. All changes since the backup are
lost. The former etcd data is kept on the volumes until `--commit`. After an interruption, the same command continues.
`--rollback` undoes the restore, unless the API server has already started on the new data.

After a restore, agents do not delete copies without a Schedule, so workloads that were placed after the backup keep
running. `--release` prints the number of these copies by cluster, asks for confirmation, and lets agents delete them.
Secrets and copies with data are kept.

With `--new`, the command first installs a lost control plane again, with the keys, values and version in its backup, in
a hosting cluster that contains nothing of it. The new control plane has the same CAs and, if possible, the same
address, so agents and kubeconfigs reconnect by themselves. The lost control plane must no longer run. After an
interruption, the same command continues here too.

Examples:
  fleetctl restore demo --from backups/demo-20270312T101500.512Z.fleet --identity backup.key
  fleetctl restore demo --from backups/demo-20270312T101500.512Z.fleet --forget west --yes
  fleetctl restore demo --new --from backups/demo-20270312T101500.512Z.fleet --identity backup.key
  fleetctl restore demo --rollback
  fleetctl restore demo --commit
  fleetctl restore demo --release";

/// Longest time for the answer of a control plane that may not run.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Replace the data of a control plane with that of a backup
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreArgs {
    /// Name of the control plane
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: String,

    /// Backup to restore
    #[arg(long, value_name = "FILE", conflicts_with_all = ["commit", "release"])]
    from: Option<PathBuf>,

    #[command(flatten)]
    opening: OpeningArgs,

    /// First install the lost control plane again, in a hosting cluster that contains nothing of it
    #[arg(long, requires = "from", conflicts_with_all = ["paused", "no_safety"])]
    new: bool,

    /// Workload cluster whose registration in the backup is not restored (repeatable)
    #[arg(long, value_name = "CLUSTER", requires = "from")]
    forget: Vec<String>,

    /// Restore although a tool such as Argo CD or Flux applies the control plane; pause that tool first
    #[arg(long, requires = "from")]
    paused: bool,

    /// Do not back up the present data first; the etcd volumes keep it anyway
    #[arg(long, requires = "from")]
    no_safety: bool,

    /// Delete the former etcd data that a restore has kept
    #[arg(long, conflicts_with = "release")]
    commit: bool,

    /// Allow agents again to delete copies without a Schedule
    #[arg(long)]
    release: bool,

    /// Continue without a prompt
    #[arg(long, short)]
    yes: bool,

    /// Timeout for the whole run
    #[arg(long, value_name = "DURATION", default_value = RESTORE_TIMEOUT, value_parser = parse_duration)]
    timeout: Duration,

    /// Time to wait for the lock while another run has it
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    lock_wait: Duration,

    #[command(flatten)]
    values: ValuesArgs,

    #[command(flatten)]
    patches: PatchArgs,
}

/// The control plane, and how it is reached.
struct Site<'a> {
    ui: &'a Ui,
    global: &'a Global,
    args: &'a RestoreArgs,
    name: ControlPlaneName,
    home: Home,
    client: Client,
    display: Arc<Display>,
    progress: Arc<dyn Progress>,
    held: HeldLock,
    deadline: Instant,
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: RestoreArgs) -> Result<Exit, CliError> {
    let name: ControlPlaneName = args.name.parse().map_err(|error| wrong_name(&error))?;
    if global.rollback && (args.from.is_some() || args.commit || args.release) {
        return Err(CliError::wrong_usage(
            "error: `--rollback` undoes a restore that is open; it takes neither `--from` nor `--commit` nor `--release`",
        ));
    }
    if args.from.is_none() && !(global.rollback || args.commit || args.release) {
        return Err(CliError::wrong_usage(
            "error: give the backup with `--from FILE`, or one of `--rollback`, `--commit` and `--release`",
        ));
    }
    if !(args.new || args.values.is_empty() && args.patches.is_empty()) {
        return Err(CliError::wrong_usage("error: values and patches need `--new`"));
    }
    let source = match &args.from {
        Some(path) => Some(take_back::read_restore_source(ui, path, &args.opening)?),
        None => None,
    };
    let forget = args.forget.iter().map(|name| take_back::parse_cluster(name)).collect::<Result<Vec<_>, _>>()?;
    let home = find_home()?;
    let lost = match &source {
        Some(source) if args.new => Some(rebuild::read_lost_plane(global, &args, &name, &home, source).await?),
        _ => None,
    };
    let connected = connect_cluster(global).await?;
    // The data that is sent has the Secrets of the control plane.
    require_verified_server(&connected)?;
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    let deadline = Instant::now() + args.timeout;
    let client = connected.client.clone();
    let held = HeldLock::default();
    let site = Site { ui, global, args: &args, name, home, client, display, progress, held, deadline };
    match source {
        Some(source) if let Some(lost) = &lost => {
            rebuild::rebuild_from_file(&site, &connected, &source, lost, &forget).await
        }
        Some(source) => restore_from_file(&site, &source, &forget).await,
        None if args.release => release::run(&site).await,
        None if args.commit => commit::run(&site).await,
        None => take_back::roll_back(&site).await,
    }
}

impl Site<'_> {
    fn target(&self) -> RestoreTarget<'_> {
        RestoreTarget {
            client: &self.client,
            name: &self.name,
            namespace: &self.global.namespace,
            lock_wait: self.args.lock_wait,
            deadline: self.deadline,
            held: self.held.clone(),
            progress: &self.progress,
        }
    }

    /// Runs work that the same command continues with; whatever stops it, its lock is released.
    async fn run_stages<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, RestoreError>>,
    ) -> Result<T, CliError> {
        let target = self.target();
        let release = async { drop(target.release_lock().await) };
        let outcome = until_stopped(self.ui, &self.display, what, work, release).await?;
        if outcome.is_err() {
            // The first error is the one to report, and the lock ends by itself.
            let _ = target.release_lock().await;
        }
        outcome.map_err(|error| restore_error(&error, &self.name, &self.global.tail_flags()))
    }

    fn explain_error(&self, error: &RestoreError) -> CliError {
        restore_error(error, &self.name, &self.global.tail_flags())
    }

    /// The API of the control plane, if it answers.
    async fn connect_own_api(&self) -> Result<Client, String> {
        let found = find_kubeconfig(Some(&self.client), &self.home, &self.name, &self.global.namespace).await;
        let (kubeconfig, _) = found.map_err(|error| format_error_chain(&error))?;
        let client = connect_kubeconfig(&kubeconfig).await?.client;
        let answer = tokio::time::timeout(ANSWERS_WITHIN, client.apiserver_version()).await;
        match answer {
            Ok(Ok(_)) => Ok(client),
            Ok(Err(error)) => Err(format_error_chain(&error)),
            Err(_) => Err(format!("no answer within {} s", ANSWERS_WITHIN.as_secs())),
        }
    }
}
