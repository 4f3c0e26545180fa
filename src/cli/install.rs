//! `install`: a control plane into a hosting cluster.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::SignedDuration;

use super::error::{CliError, Exit};
use super::outcome::{install_failed, interrupted};
use super::plan_args::PlanArgs;
use super::ui::{Display, Ui};
use super::values_args::with_precedence;
use super::{Global, cluster_access, objects, preview, report};
use crate::apply::Connected;
use crate::control_plane::home::Home;
use crate::control_plane::install::{InstallOptions, Installed, install};
use crate::control_plane::plan::Plan;
use crate::control_plane::progress::Progress;
use crate::pki;

/// Install a control plane or an agent
#[derive(Debug, Subcommand)]
pub(super) enum InstallCommand {
    /// Install the control plane in the cluster of `--context`
    #[command(visible_alias = "cp", after_help = CP_EXAMPLES)]
    ControlPlane(Box<InstallControlPlaneArgs>),
}

const CP_EXAMPLES: &str = with_precedence!(
    "Examples:
  fleetctl install control-plane demo
  fleetctl install cp demo --context hosting --version auto
  fleetctl install cp demo --set exposure.type=NodePort --set exposure.nodePort=32222
  fleetctl install cp demo --dry-run
  fleetctl install cp demo --dry-run=server"
);

/// Install the control plane in the cluster of `--context`
#[derive(Debug, Args)]
pub(super) struct InstallControlPlaneArgs {
    #[command(flatten)]
    plan: PlanArgs,

    /// Change nothing: `client` (the default) prints the objects, with placeholders for keys, and asks no cluster;
    /// `server` prints what would change, as `diff` does
    #[arg(long, value_enum, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: Option<DryRun>,

    #[command(flatten)]
    write: WriteArgs,
}

/// Who is asked in a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DryRun {
    Client,
    Server,
}

/// Flags about the cluster that is written to, or compared with.
#[derive(Debug, Args)]
pub(super) struct WriteArgs {
    /// Preflight checks that only warn, by identifier, e.g. `storage`; may be repeated
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    skip_preflight: Vec<String>,

    /// How long to wait for everything together, e.g. `5m`
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    timeout: Duration,

    /// How long to wait for another run that holds the lock
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    lock_wait: Duration,

    /// Take over objects of the same names that kubectl or Helm made
    #[arg(long)]
    adopt: bool,

    /// Field to take from another manager, e.g. `Deployment/apiserver:.spec.replicas`; may be repeated
    #[arg(long, value_name = "FIELD")]
    take_fields: Vec<String>,
}

/// Reads `90s`, `5m`, `1h30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: SignedDuration =
        text.parse().map_err(|_| "use a number with a unit, such as `90s` or `5m`".to_owned())?;
    Duration::try_from(parsed).map_err(|_| "a duration cannot be negative".to_owned())
}

pub(super) async fn run(ui: &Ui, global: &Global, command: InstallCommand) -> Result<Exit, CliError> {
    match command {
        InstallCommand::ControlPlane(args) => match args.dry_run {
            Some(DryRun::Client) => dry_run(ui, global, &args),
            Some(DryRun::Server) => {
                let comparison = super::diff::comparison(ui, global, &args.plan, &args.write).await?;
                ui.out(&super::diff::text(&comparison))?;
                Ok(Exit::Ok)
            }
            None => control_plane(ui, global, &args).await,
        },
    }
}

/// Everything that an install or a comparison needs before it begins.
pub(super) struct Prepared {
    pub(super) plan: Plan,
    pub(super) hosting: Connected,
    pub(super) home: Home,
    pub(super) options: InstallOptions,
}

/// Reads the arguments and connects. What is wrong on the command line is said before any cluster is asked.
pub(super) async fn prepare(
    ui: &Ui,
    global: &Global,
    plan_args: &PlanArgs,
    write: &WriteArgs,
) -> Result<Prepared, CliError> {
    let known = if plan_args.asks_cluster() { None } else { Some(plan_args.plan(ui, global, None)?) };
    check_ids(&write.skip_preflight)?;
    let home =
        Home::of_user().map_err(|error| CliError::new(Exit::Failed, "NoHome", error.to_string()).hint("set HOME"))?;
    let hosting = cluster_access::connect(global).await?;
    let plan = match known {
        Some(plan) => plan,
        None => plan_args.plan(ui, global, Some(cluster_access::server_version(&hosting.client).await?))?,
    };
    let options = InstallOptions {
        rollback: global.rollback,
        skip_preflight: write.skip_preflight.clone(),
        timeout: write.timeout,
        adopt: write.adopt,
        take_fields: write.take_fields.clone(),
        lock_wait: write.lock_wait,
    };
    Ok(Prepared { plan, hosting, home, options })
}

async fn control_plane(ui: &Ui, global: &Global, args: &InstallControlPlaneArgs) -> Result<Exit, CliError> {
    let Prepared { plan, hosting, home, options } = prepare(ui, global, &args.plan, &args.write).await?;
    let context = hosting.context.as_deref().unwrap_or("in-cluster");
    ui.note(&format!(
        "Installing control plane {} (service version {}) in namespace {} of {context}",
        plan.name, plan.version, plan.namespace
    ));
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    // On the heap: the whole flow is one large state machine.
    let run = install(&plan, &hosting.client, &home, &options, &progress, interrupted(ui));
    let outcome = Box::pin(run).await;
    match outcome {
        Ok(installed) => {
            display.close(true);
            finished(ui, &plan, &installed)
        }
        Err(failure) => {
            display.close(false);
            Err(install_failed(ui, &plan, failure, global))
        }
    }
}

pub(super) fn check_ids(ids: &[String]) -> Result<(), CliError> {
    let checks = &crate::check::hosting::CHECKS;
    match ids.iter().find(|id| !checks.iter().any(|check| check.id == id.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let known: Vec<&str> = checks.iter().map(|check| check.id).collect();
            Err(CliError::usage("NoSuchCheck", format!("there is no preflight check `{unknown}`"))
                .hint(format!("the checks are: {}", known.join(", "))))
        }
    }
}

/// The result: health, then where the kubeconfig is and how to use it.
fn finished(ui: &Ui, plan: &Plan, installed: &Installed) -> Result<Exit, CliError> {
    let name = &plan.name;
    let file = installed.kubeconfig.display();
    let unchanged = if installed.unchanged { "Nothing had to be changed.\n\n" } else { "" };
    let health = report::health(ui, name.as_str(), &installed.health.report, &installed.health.facts);
    ui.out(&format!(
        "\n{unchanged}{health}\nThe kubeconfig of {name} is {file}\nAdd it to the KUBECONFIG list and ask the control plane for its clusters:\n\n  \
         export KUBECONFIG=\"${{KUBECONFIG:-$HOME/.kube/config}}:{file}\"\n  kubectl get clusters --context {name}\n"
    ))?;
    Ok(Exit::Ok)
}

/// Prints what would be applied, with placeholders for keys and for what only a cluster decides.
fn dry_run(ui: &Ui, global: &Global, args: &InstallControlPlaneArgs) -> Result<Exit, CliError> {
    if args.plan.asks_cluster() {
        return Err(CliError::usage(
            "AutoNeedsCluster",
            "`--version auto` asks the cluster, which `--dry-run` does not",
        )
        .hint("give the version: `--version v0.6`"));
    }
    let plan = args.plan.plan(ui, global, None)?;
    let endpoint = preview::endpoint(&plan.values.exposure);
    let rendered =
        plan.render(&endpoint, &pki::placeholders()).map_err(|problems| super::plan_args::wrong_values(&problems))?;
    ui.out(&objects::yaml(&rendered.objects))?;
    ui.note("Keys and certificates above are placeholders; `template` prints manifests that can be applied.");
    Ok(Exit::Ok)
}
