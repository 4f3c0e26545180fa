//! `install agent`: an agent into the cluster of `--context`, which registers that cluster with a control plane.

use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::{
    ConfirmArgs, Done, DryRun, DryRunArgs, Way, WriteArgs, check_ids, name_is_needed, opening_line, recorded,
    values_need_cluster,
};
use crate::check::workload::CHECKS;
use crate::cli::args::agent::AgentPlanArgs;
use crate::cli::args::global::Global;
use crate::cli::args::package::auto_needs_cluster;
use crate::cli::args::recorded::RecordedArgs;
use crate::cli::args::values::with_precedence;
use crate::cli::commands::diff;
use crate::cli::connect;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::install_error::agent_failed;
use crate::cli::output::manifests;
use crate::cli::output::progress::Display;
use crate::cli::output::remedy::way_to;
use crate::cli::output::terminal::Ui;
use crate::cli::signals::wait_for_interrupt;
use crate::install::fleet_home::Home;
use crate::install::progress::Progress;
use crate::install::recorded_use::RecordedUse;
use crate::inventory::Owner;
use crate::k8s::Connected;
use crate::workload_cluster::charts::{ORDINARY_VALUES, SECRET_VALUES};
use crate::workload_cluster::control_plane_api::Hub;
use crate::workload_cluster::install::{Installed, PROBE, Place, install_agent};
use crate::workload_cluster::plan::{OWNER_KIND, Plan};

pub(super) const EXAMPLES: &str = with_precedence!(
    "\
Before the install, run these commands, or let --control-plane do the same:
  kubectl --context west create namespace fleet
  kubectl --context demo -n fleet get secret fleet-cluster-init-kubeconfig -o yaml |
    kubectl --context west apply -f -

Examples:
  fleetctl install agent west --context west
  fleetctl install agent west --context west --control-plane demo
  fleetctl install agent west --context west --version auto --set cluster.region=eu-1
  fleetctl install agent west --dry-run",
    recorded
);
pub(super) const REPOSITORY_HELP: &str = "Image repository of the agent [default: fleetscheduler/fleet-agent]";
pub(super) const TAG_HELP: &str = "Image tag of the agent [default: the service version, v0.6.1]";
pub(super) const SET_HELP: &str = "Set a value, e.g. `cluster.region=eu-1`; may be repeated";

/// What is installed, and from which control plane.
#[derive(Debug, Args)]
pub(in crate::cli) struct AgentArgs {
    #[command(flatten)]
    plan: AgentPlanArgs,

    /// Kubeconfig context of the control plane to copy the init Secret from; the namespace is created too
    #[arg(long, value_name = "CONTROL_PLANE_NAME")]
    control_plane: Option<String>,
}

/// A plan with everything that it is carried out with.
pub(in crate::cli) struct PreparedAgent {
    pub(in crate::cli) plan: Plan,
    pub(in crate::cli) workload: Connected,
    pub(in crate::cli) hub: Option<Hub>,
    /// Connection to the control plane.
    hub_server: Option<Connected>,
    pub(in crate::cli) home: Home,
    /// The version of the last install, where its values are taken.
    pub(in crate::cli) former: Option<String>,
    /// Those of its values that are taken.
    pub(in crate::cli) used: RecordedUse,
}

impl PreparedAgent {
    /// Returns the place that the agent goes to.
    pub(in crate::cli) fn agent_place(&self) -> Place<'_> {
        Place { hub: self.hub.as_ref(), home: &self.home }
    }
}

/// Reads the arguments and connects to the clusters.
pub(in crate::cli) async fn prepare_agent(
    ui: &Ui,
    global: &Global,
    what: &AgentArgs,
    write: &WriteArgs,
    way: Way,
) -> Result<PreparedAgent, CliError> {
    // What is wrong on the command line is said before any cluster is asked.
    let later = way.asks_cluster() || what.plan.package.asks_cluster();
    let early = if later { None } else { Some(what.plan.build_agent_plan(ui, global, None)?) };
    let name = what.plan.name_given();
    if way.asks_cluster() && name.is_none() {
        return Err(name_is_needed());
    }
    check_ids(&write.skip_preflight, CHECKS.iter().map(|check| check.id).chain([PROBE]))?;
    let home = connect::find_home()?;
    let workload = connect::connect_cluster(global).await?;
    let (hub, hub_server) = match &what.control_plane {
        Some(name) => {
            let (hub, server) = control_plane(global, name).await?;
            (Some(hub), Some(server))
        }
        None => (None, None),
    };
    let owner = Owner::new(OWNER_KIND, name.unwrap_or_default(), global.namespace.as_str());
    let base = way.read_base(&workload.client, owner, &SECRET_VALUES).await?;
    let asks = what.plan.package.asks_cluster();
    let server = if asks { Some(connect::server_version(&workload.client).await?) } else { None };
    let plan = match early {
        Some(plan) => plan,
        None => what.plan.plan_over(ui, global, server, &base)?,
    };
    let plan = plan.with_kubernetes(server);
    let kubernetes = if plan.asks_kubernetes() { Some(connect::server_version(&workload.client).await?) } else { None };
    let plan = plan.with_kubernetes(kubernetes);
    let former = base.recorded_release().map(|release| release.version.clone());
    let used = recorded::find_used_values(
        ui,
        former.as_deref(),
        &plan.package,
        &home.agent_values(&plan.name),
        &workload,
        ORDINARY_VALUES,
    );
    Ok(PreparedAgent { plan, workload, hub, hub_server, home, former, used })
}

/// Install the agent in the cluster of `--context` and register that cluster
#[derive(Debug, Args)]
pub(crate) struct InstallAgentArgs {
    #[command(flatten)]
    what: AgentArgs,

    #[command(flatten)]
    dry_run: DryRunArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    recorded: RecordedArgs,

    #[command(flatten)]
    confirm: ConfirmArgs,

    /// Output format [default: text, YAML with `--dry-run`]; with `json`, the progress on stderr is JSON too
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

impl InstallAgentArgs {
    pub(super) fn to_agent_request(&self) -> AgentRequest<'_> {
        let Self { what, dry_run, write, recorded, confirm, output } = self;
        AgentRequest {
            what,
            dry_run,
            write,
            way: Way::for_install(recorded.choice()),
            confirm: *confirm,
            output: *output,
        }
    }
}

/// Arguments of `install` and `upgrade` for an agent.
pub(crate) struct AgentRequest<'a> {
    pub(in crate::cli) what: &'a AgentArgs,
    pub(crate) dry_run: &'a DryRunArgs,
    pub(crate) write: &'a WriteArgs,
    pub(crate) way: Way,
    pub(crate) confirm: ConfirmArgs,
    pub(crate) output: Option<Format>,
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: &AgentRequest<'_>) -> Result<Exit, CliError> {
    match args.dry_run.dry_run {
        Some(DryRun::Client) => dry_run(ui, global, args),
        Some(DryRun::Server) => {
            let comparison = diff::agent_comparison(ui, global, args.what, args.write, args.way).await?;
            ui.write_stdout(&diff::format_comparison(ui, args.output, &comparison))?;
            Ok(Exit::Ok)
        }
        None => run_agent_install(ui, global, args).await,
    }
}

async fn run_agent_install(ui: &Ui, global: &Global, args: &AgentRequest<'_>) -> Result<Exit, CliError> {
    let prepared = prepare_agent(ui, global, args.what, args.write, args.way).await?;
    let (plan, workload) = (&prepared.plan, &prepared.workload);
    for server in std::iter::once(workload).chain(&prepared.hub_server) {
        args.write.check_target_server(server)?;
    }
    let context = workload.context.as_deref();
    let what = format!("the agent of workload cluster {}", plan.name);
    let context = context.unwrap_or("in-cluster");
    ui.print_note(&opening_line(args.way, &what, &plan.package, prepared.former.as_deref(), context));
    recorded::confirm_recorded_values(ui, ("workload cluster", plan.name.as_str()), &prepared.used, args.confirm.yes)?;
    let place = prepared.agent_place();
    let options = args.write.install_options(global.rollback, args.way);
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    // On the heap: the whole flow is one large state machine.
    let run =
        install_agent(plan, &workload.client, &place, &options, &progress, wait_for_interrupt(ui, &display, None));
    let outcome = Box::pin(run).await;
    display.close_step(outcome.is_ok());
    match outcome {
        Ok(installed) => {
            recorded::remember_values(ui, &plan.package, &prepared.home.agent_values(&plan.name), workload);
            report_agent_install(ui, args.output, plan, &installed)
        }
        Err(failure) => Err(agent_failed(plan, failure, global, prepared.hub.as_ref())),
    }
}

async fn control_plane(global: &Global, name: &str) -> Result<(Hub, Connected), CliError> {
    let there = Global { context: Some(name.to_owned()), ..global.clone() };
    let (connected, access) = connect::connect_with_access(&there).await?;
    Ok((Hub { name: name.to_owned(), access, client: connected.client.clone() }, connected))
}

/// An install as programs read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentInstallDocument<'r> {
    #[serde(flatten)]
    done: Done<'r>,
    /// Name of the control plane, where it is known.
    control_plane: Option<&'r str>,
    /// Address of the control plane, as the agent uses it.
    server: &'r str,
}

fn report_agent_install(ui: &Ui, format: Option<Format>, plan: &Plan, installed: &Installed) -> Result<Exit, CliError> {
    let name = &plan.name;
    if let Some(format) = format {
        ui.write_stdout(&format.serialize_value(&AgentInstallDocument {
            done: Done::from_package(name.as_str(), &plan.package, installed.unchanged),
            control_plane: installed.control_plane.as_ref().map(|hub| hub.name.as_str()),
            server: &installed.server,
        }))?;
        return Ok(Exit::Ok);
    }
    let unchanged = if installed.unchanged { "Nothing to change.\n\n" } else { "" };
    let hub = installed.control_plane.as_ref();
    let there = way_to(&Hub::access_to(hub));
    let of = match hub {
        Some(hub) => format!("control plane {}", hub.name),
        None => format!("the control plane at {}", installed.server),
    };
    ui.write_stdout(&format!(
        "\n{unchanged}Workload cluster {name} is registered with {of} and Ready.\nAsk the control plane for its \
         clusters:\n\n  kubectl get clusters{there}\n  {} get clusters{there}\n",
        ui.program
    ))?;
    Ok(Exit::Ok)
}

fn dry_run(ui: &Ui, global: &Global, args: &AgentRequest<'_>) -> Result<Exit, CliError> {
    if args.way.asks_cluster() {
        return Err(values_need_cluster());
    }
    if args.what.plan.package.asks_cluster() {
        return Err(auto_needs_cluster());
    }
    let plan = args.what.plan.build_agent_plan(ui, global, None)?;
    manifests::print_manifests(
        ui,
        args.output.unwrap_or(Format::Yaml),
        || plan.render_agent_manifests(),
        || plan.render_agent(),
    )?;
    Ok(Exit::Ok)
}
