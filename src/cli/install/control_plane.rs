//! `install control-plane`: a control plane into the cluster of `--context`.

use std::sync::Arc;

use clap::Args;

use super::RunArgs;
use crate::check::hosting::CHECKS;
use crate::cli::error::{CliError, Exit};
use crate::cli::outcome::{control_plane_failed, interrupted};
use crate::cli::package_args::{auto_needs_cluster, wrong_values};
use crate::cli::plan_args::PlanArgs;
use crate::cli::ui::{Display, Ui};
use crate::cli::{Global, cluster_access, objects, report};
use crate::control_plane::exposure::{self, Endpoint};
use crate::control_plane::install::{Installed, install, unknown};
use crate::control_plane::plan::Plan;
use crate::control_plane::values::ExposureType;
use crate::install::progress::Progress;
use crate::pki;

pub(super) const EXAMPLES: &str = "Examples:
  fleetctl install control-plane demo
  fleetctl install cp demo --context hosting --version auto
  fleetctl install cp demo --set exposure.type=NodePort --set exposure.nodePort=32222
  fleetctl install cp demo --dry-run";
pub(super) const REPOSITORY_HELP: &str = "Image repository of the scheduler [default: fleetscheduler/fleet-scheduler]";
pub(super) const TAG_HELP: &str = "Image tag of the scheduler [default: the service version, v0.6.1]";

/// Install the control plane in the cluster of `--context`
#[derive(Debug, Args)]
pub(crate) struct InstallControlPlaneArgs {
    #[command(flatten)]
    plan: PlanArgs,

    /// Print the objects instead of installing; keys are placeholders and no cluster is asked
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    run: RunArgs,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &InstallControlPlaneArgs) -> Result<Exit, CliError> {
    if args.dry_run {
        return dry_run(ui, global, args);
    }
    // What is wrong on the command line is said before any cluster is asked.
    let early = if args.plan.package.asks_cluster() { None } else { Some(args.plan.plan(ui, global, None)?) };
    args.run.check_ids(CHECKS.iter().map(|check| check.id))?;
    let home = cluster_access::home()?;
    let hosting = cluster_access::connect(global).await?;
    let plan = match early {
        Some(plan) => plan,
        None => args.plan.plan(ui, global, Some(cluster_access::kubernetes_minor(&hosting.client).await?))?,
    };
    let context = hosting.context.as_deref().unwrap_or("in-cluster");
    ui.note(&format!(
        "Installing control plane {} (service version {}) in namespace {} of {context}",
        plan.name, plan.package.version, plan.package.namespace
    ));
    let options = args.run.options(global.rollback);
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
            Err(control_plane_failed(ui, &plan, failure, global))
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
    if args.plan.package.asks_cluster() {
        return Err(auto_needs_cluster());
    }
    let plan = args.plan.plan(ui, global, None)?;
    let endpoint = dry_endpoint(&plan);
    let rendered = plan.render(&endpoint, &pki::placeholders()).map_err(|problems| wrong_values(&problems))?;
    ui.out(&objects::yaml(&rendered.objects))?;
    ui.note("Keys and certificates above are placeholders; `template` prints manifests that can be applied.");
    Ok(Exit::Ok)
}

/// Where the values leave the exposure to the cluster, the shape of a node port with a name that no DNS has.
fn dry_endpoint(plan: &Plan) -> Endpoint {
    let wanted = &plan.values.exposure;
    exposure::endpoint_from_values(wanted).unwrap_or_else(|_| {
        let kind = if wanted.kind == ExposureType::Auto { ExposureType::NodePort } else { wanted.kind };
        Endpoint { node_port: exposure::wanted_node_port(kind, wanted), ..unknown(kind) }
    })
}
