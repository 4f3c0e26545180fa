//! `install control-plane`: a control plane into the cluster of `--context`.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::{Done, DryRun, DryRunArgs, WriteArgs, check_ids};
use crate::check::hosting::CHECKS;
use crate::cli::args::control_plane::PlanArgs;
use crate::cli::args::global::Global;
use crate::cli::args::package::auto_needs_cluster;
use crate::cli::args::values::with_precedence;
use crate::cli::commands::diff;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::format::Format;
use crate::cli::output::install_error::control_plane_failed;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::output::{check_report, check_table, manifests};
use crate::cli::signals::interrupted;
use crate::cli::{connect, render_offline};
use crate::control_plane::exposure::Endpoint;
use crate::control_plane::install::{Installed, install};
use crate::control_plane::plan::Plan;
use crate::install::fleet_home::Home;
use crate::install::progress::Progress;
use crate::install::session::InstallOptions;
use crate::k8s::Connected;
use crate::pki;

pub(super) const EXAMPLES: &str = with_precedence!(
    "Examples:
  fleetctl install control-plane demo
  fleetctl install cp demo --context hosting --version auto
  fleetctl install cp demo --set exposure.type=NodePort --set exposure.nodePort=32222
  fleetctl install cp demo --dry-run
  fleetctl install cp demo --dry-run=server",
    environment
);

pub(super) const REPOSITORY_HELP: &str = "Image repository of the scheduler [default: fleetscheduler/fleet-scheduler]";
pub(super) const TAG_HELP: &str = "Image tag of the scheduler [default: the service version, v0.6.1]";

/// Install the control plane in the cluster of `--context`
#[derive(Debug, Args)]
pub(crate) struct InstallControlPlaneArgs {
    #[command(flatten)]
    plan: PlanArgs,

    #[command(flatten)]
    dry_run: DryRunArgs,

    #[command(flatten)]
    write: WriteArgs,

    /// Output format [default: text, YAML with `--dry-run`]; with `json` the progress on stderr is JSON too
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &InstallControlPlaneArgs) -> Result<Exit, CliError> {
    match args.dry_run.dry_run {
        Some(DryRun::Client) => dry_run(ui, global, args),
        Some(DryRun::Server) => {
            let comparison = diff::comparison(ui, global, &args.plan, &args.write).await?;
            ui.out(&diff::shown(ui, args.output, &comparison))?;
            Ok(Exit::Ok)
        }
        None => control_plane(ui, global, args).await,
    }
}

/// Everything that an install or a comparison needs before it begins.
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    pub(crate) hosting: Connected,
    pub(crate) home: Home,
    pub(crate) options: InstallOptions,
}

/// Reads the arguments and connects. What is wrong on the command line is said before any cluster is asked.
pub(crate) async fn prepare(
    ui: &Ui,
    global: &Global,
    plan_args: &PlanArgs,
    write: &WriteArgs,
) -> Result<Prepared, CliError> {
    let known = if plan_args.asks_cluster() { None } else { Some(plan_args.plan(ui, global, None)?) };
    check_ids(&write.skip_preflight, CHECKS.iter().map(|check| check.id))?;
    let home = connect::home()?;
    let hosting = connect::connect(global).await?;
    let plan = match known {
        Some(plan) => plan,
        None => plan_args.plan(ui, global, Some(connect::server_version(&hosting.client).await?))?,
    };
    Ok(Prepared { plan, hosting, home, options: write.options(global.rollback) })
}

async fn control_plane(ui: &Ui, global: &Global, args: &InstallControlPlaneArgs) -> Result<Exit, CliError> {
    let Prepared { plan, hosting, home, options } = prepare(ui, global, &args.plan, &args.write).await?;
    let context = hosting.context.as_deref().unwrap_or("in-cluster");
    ui.note(&format!(
        "Installing control plane {} (service version {}) in namespace {} of {context}",
        plan.name, plan.package.version, plan.package.namespace
    ));
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    // On the heap: the whole flow is one large state machine.
    let signals = interrupted(ui, &display, Some(format!("rollback {}{}", plan.name, global.tail())));
    let run = install(&plan, &hosting.client, &home, &options, &progress, signals);
    let outcome = Box::pin(run).await;
    match outcome {
        Ok(installed) => {
            display.close(true);
            finished(ui, args.output, &plan, &installed)
        }
        Err(failure) => {
            display.close(false);
            Err(control_plane_failed(ui, &plan, failure))
        }
    }
}

/// An install as programs read it.
#[derive(Debug, Serialize)]
struct Document<'r> {
    #[serde(flatten)]
    done: Done<'r>,
    endpoint: &'r Endpoint,
    /// The file that was written.
    kubeconfig: &'r Path,
    checks: Vec<check_table::Entry<'r>>,
}

/// The result: health, then where the kubeconfig is and how to use it.
fn finished(ui: &Ui, format: Option<Format>, plan: &Plan, installed: &Installed) -> Result<Exit, CliError> {
    let name = &plan.name;
    if let Some(format) = format {
        ui.out(&format.of(&Document {
            done: Done::of(name.as_str(), &plan.package, installed.unchanged),
            endpoint: &installed.endpoint,
            kubeconfig: &installed.kubeconfig,
            checks: check_table::entries(ui, &installed.health.report),
        }))?;
        return Ok(Exit::Ok);
    }
    let file = installed.kubeconfig.display();
    let unchanged = if installed.unchanged { "Nothing had to be changed.\n\n" } else { "" };
    let health = check_report::health(ui, name.as_str(), &installed.health.report, &installed.health.facts);
    ui.out(&format!(
        "\n{unchanged}{health}\nThe kubeconfig of {name} is {file}\nAdd it to the KUBECONFIG list and ask the control plane for its clusters:\n\n  \
         export KUBECONFIG=\"${{KUBECONFIG:-$HOME/.kube/config}}:{file}\"\n  kubectl get clusters --context {name}\n"
    ))?;
    Ok(Exit::Ok)
}

/// Prints what would be applied, with placeholders for keys and for what only a cluster decides.
fn dry_run(ui: &Ui, global: &Global, args: &InstallControlPlaneArgs) -> Result<Exit, CliError> {
    if args.plan.asks_cluster() {
        return Err(auto_needs_cluster());
    }
    let plan = args.plan.plan(ui, global, None)?;
    let endpoint = render_offline::endpoint(&plan.values.exposure);
    let keys = pki::placeholders();
    let format = args.output.unwrap_or(Format::Yaml);
    manifests::print(ui, format, || plan.manifests(&endpoint, &keys, |_| ()), || plan.render(&endpoint, &keys))?;
    ui.note("Keys and certificates above are placeholders; `template` prints manifests that can be applied.");
    Ok(Exit::Ok)
}
