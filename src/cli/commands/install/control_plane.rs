//! `install control-plane`: a control plane into the cluster of `--context`.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::{
    ConfirmArgs, Done, DryRun, DryRunArgs, Way, WriteArgs, check_ids, name_is_needed, opening_line, recorded,
    values_need_cluster,
};
use crate::api::names::ControlPlaneName;
use crate::api::util::file;
use crate::api::util::text::visible_cell;
use crate::check::hosting::CHECKS;
use crate::cli::args::control_plane::PlanArgs;
use crate::cli::args::global::Global;
use crate::cli::args::package::auto_needs_cluster;
use crate::cli::args::recorded::RecordedArgs;
use crate::cli::args::values::with_precedence;
use crate::cli::commands::diff;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::install_error::{control_plane_failed, local_file_error};
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::output::{check_report, check_table, manifests};
use crate::cli::signals::wait_for_interrupt;
use crate::cli::{connect, render_offline};
use crate::control_plane::charts::{ORDINARY_VALUES, SECRET_VALUES};
use crate::control_plane::endpoint::exposure::Endpoint;
use crate::control_plane::install::{Installed, install_control_plane};
use crate::control_plane::plan::{OWNER_KIND, Plan};
use crate::install::admin_access;
use crate::install::admin_access::LocalKubeconfigError;
use crate::install::fleet_home::Home;
use crate::install::progress::Progress;
use crate::install::recorded_use::RecordedUse;
use crate::install::session::InstallOptions;
use crate::inventory::Owner;
use crate::k8s::{Connected, Target};
use crate::pki;

pub(super) const EXAMPLES: &str = with_precedence!(
    "Examples:
  fleetctl install control-plane demo
  fleetctl install cp demo --context hosting --version auto
  fleetctl install cp demo --set exposure.type=NodePort --set exposure.nodePort=32222
  fleetctl install cp demo --dry-run
  fleetctl install cp demo --dry-run=server",
    recorded,
    environment
);

pub(crate) const REPOSITORY_HELP: &str = "Image repository of the scheduler [default: fleetscheduler/fleet-scheduler]";
pub(crate) const TAG_HELP: &str = "Image tag of the scheduler [default: the service version, v0.6.1]";

/// Install the control plane in the cluster of `--context`
#[derive(Debug, Args)]
pub(crate) struct InstallControlPlaneArgs {
    #[command(flatten)]
    plan: PlanArgs,

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

impl InstallControlPlaneArgs {
    pub(super) fn to_control_plane_request(&self) -> Request<'_> {
        let Self { plan, dry_run, write, recorded, confirm, output } = self;
        Request { plan, dry_run, write, way: Way::for_install(recorded.choice()), confirm: *confirm, output: *output }
    }
}

/// Arguments of `install` and `upgrade` for a control plane.
pub(crate) struct Request<'a> {
    pub(crate) plan: &'a PlanArgs,
    pub(crate) dry_run: &'a DryRunArgs,
    pub(crate) write: &'a WriteArgs,
    pub(crate) way: Way,
    pub(crate) confirm: ConfirmArgs,
    pub(crate) output: Option<Format>,
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: &Request<'_>) -> Result<Exit, CliError> {
    match args.dry_run.dry_run {
        Some(DryRun::Client) => dry_run(ui, global, args),
        Some(DryRun::Server) => {
            let comparison = diff::compare_plan_with_cluster(ui, global, args.plan, args.write, args.way).await?;
            ui.write_stdout(&diff::format_comparison(ui, args.output, &comparison))?;
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
    /// The version of the last install, where its values are taken.
    pub(crate) former: Option<String>,
    /// Those of its values that are taken.
    pub(crate) used: RecordedUse,
}

/// Reads the arguments and connects.
pub(crate) async fn prepare_control_plane(
    ui: &Ui,
    global: &Global,
    plan_args: &PlanArgs,
    write: &WriteArgs,
    way: Way,
) -> Result<Prepared, CliError> {
    let home = connect::find_home()?;
    let (plan, hosting, former) = prepare_install_plan(ui, global, plan_args, &write.skip_preflight, way).await?;
    let used = recorded::find_used_values(
        ui,
        former.as_deref(),
        &plan.package,
        &home.values_path(&plan.name),
        &hosting,
        ORDINARY_VALUES,
    );
    Ok(Prepared { plan, hosting, home, options: write.install_options(global.rollback, way), former, used })
}

/// The plan, the cluster, and the version of the last install where its values are taken. What is wrong on the command
/// line is said before any cluster is asked.
pub(crate) async fn prepare_install_plan(
    ui: &Ui,
    global: &Global,
    plan_args: &PlanArgs,
    skip_preflight: &[String],
    way: Way,
) -> Result<(Plan, Connected, Option<String>), CliError> {
    check_ids(skip_preflight, CHECKS.iter().map(|check| check.id))?;
    if !way.asks_cluster() && !plan_args.asks_cluster() {
        let plan = plan_args.build_control_plane_plan(ui, global, None)?;
        return Ok((plan, connect::connect_cluster(global).await?, None));
    }
    let name = if way.asks_cluster() { plan_args.name_given().ok_or_else(name_is_needed)? } else { "" };
    let hosting = connect::connect_cluster(global).await?;
    let owner = Owner::new(OWNER_KIND, name, global.namespace.as_str());
    let base = way.read_base(&hosting.client, owner, &SECRET_VALUES).await?;
    let server = if plan_args.asks_cluster() { Some(connect::server_version(&hosting.client).await?) } else { None };
    let plan = plan_args.plan_over(ui, global, server, &base)?;
    Ok((plan, hosting, base.recorded_release().map(|release| release.version.clone())))
}

async fn control_plane(ui: &Ui, global: &Global, args: &Request<'_>) -> Result<Exit, CliError> {
    let Prepared { plan, hosting, home, options, former, used } =
        prepare_control_plane(ui, global, args.plan, args.write, args.way).await?;
    args.write.check_target_server(&hosting)?;
    check_local_kubeconfig(&home, &plan.name)?;
    let context = hosting.context.as_deref().unwrap_or("in-cluster");
    ui.print_note(&opening_line(
        args.way,
        &format!("control plane {}", plan.name),
        &plan.package,
        former.as_deref(),
        context,
    ));
    recorded::confirm_recorded_values(ui, ("control plane", plan.name.as_str()), &used, args.confirm.yes)?;
    warn_of_context(ui, global, &home, &plan.name);
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    // On the heap: the whole flow is one large state machine.
    let signals = wait_for_interrupt(ui, &display, Some(format!("rollback {}{}", plan.name, global.tail_flags())));
    let run = install_control_plane(&plan, &hosting.client, &home, &options, &progress, signals);
    let outcome = Box::pin(run).await;
    match outcome {
        Ok(installed) => {
            display.close_step(true);
            recorded::remember_values(ui, &plan.package, &home.values_path(&plan.name), &hosting);
            report_control_plane_install(ui, args.output, &plan, &installed)
        }
        Err(failure) => {
            display.close_step(false);
            Err(control_plane_failed(ui, &plan, failure))
        }
    }
}

/// Refuses a kubeconfig on this machine that the install could neither read nor replace at its end.
pub(crate) fn check_local_kubeconfig(home: &Home, name: &ControlPlaneName) -> Result<(), CliError> {
    let checked = file::check_replaceable(&home.kubeconfig_path(name)).and_then(|_| {
        match admin_access::read_local_kubeconfig(home, name) {
            Err(LocalKubeconfigError::File(error)) => Err(error),
            _ => Ok(()),
        }
    });
    checked.map_err(|error| local_file_error(&error).hint("nothing was written to the cluster"))
}

/// Warns where the context that the control plane gets is in the kubeconfig already, for another cluster: of several files,
/// kubectl takes the first one that has it.
fn warn_of_context(ui: &Ui, global: &Global, home: &Home, name: &ControlPlaneName) {
    let files = global.kubeconfig.iter().cloned().collect();
    let target = Target { kubeconfig: files, context: Some(name.to_string()) };
    let Some(server) = target.server_address() else { return };
    // One that cannot be read tells nothing, and the install names it before it writes.
    let Ok(own) = admin_access::read_local_kubeconfig(home, name) else { return };
    if own.is_some_and(|own| own.server.trim_end_matches('/') == server.trim_end_matches('/')) {
        return;
    }
    ui.warn(&format!(
        "your kubeconfig already has a context {name} for {}, and `kubectl --context {name}` still uses that server. Give the control plane another name, or rename the context: `kubectl config rename-context {name} NEW`",
        visible_cell(&server)
    ));
}

/// An install as programs read it.
#[derive(Debug, Serialize)]
struct ControlPlaneInstallDocument<'r> {
    #[serde(flatten)]
    done: Done<'r>,
    endpoint: &'r Endpoint,
    /// The file that was written.
    kubeconfig: &'r Path,
    checks: Vec<check_table::Entry<'r>>,
}

/// The result: health, then where the kubeconfig is and how to use it.
fn report_control_plane_install(
    ui: &Ui,
    format: Option<Format>,
    plan: &Plan,
    installed: &Installed,
) -> Result<Exit, CliError> {
    let name = &plan.name;
    if let Some(format) = format {
        ui.write_stdout(&format.serialize_value(&ControlPlaneInstallDocument {
            done: Done::from_package(name.as_str(), &plan.package, installed.unchanged),
            endpoint: &installed.endpoint,
            kubeconfig: &installed.kubeconfig,
            checks: check_table::check_entries(ui, &installed.health.report),
        }))?;
        return Ok(Exit::Ok);
    }
    let file = installed.kubeconfig.display();
    let unchanged = if installed.unchanged { "Nothing to change.\n\n" } else { "" };
    let health = check_report::format_health(ui, name.as_str(), &installed.health.report, &installed.health.facts);
    ui.write_stdout(&format!(
        "\n{unchanged}{health}\nThe kubeconfig of {name} is {file}\nAdd it to the KUBECONFIG list and ask the control plane for its clusters:\n\n  \
         export KUBECONFIG=\"${{KUBECONFIG:-$HOME/.kube/config}}:{file}\"\n  kubectl get clusters --context {name}\n"
    ))?;
    Ok(Exit::Ok)
}

/// Prints what would be applied, with placeholders for keys and for what only a cluster decides.
fn dry_run(ui: &Ui, global: &Global, args: &Request<'_>) -> Result<Exit, CliError> {
    if args.way.asks_cluster() {
        return Err(values_need_cluster());
    }
    if args.plan.asks_cluster() {
        return Err(auto_needs_cluster());
    }
    let plan = args.plan.build_control_plane_plan(ui, global, None)?;
    let endpoint = render_offline::offline_endpoint(&plan.values.exposure);
    let keys = pki::placeholder_files();
    let format = args.output.unwrap_or(Format::Yaml);
    manifests::print_manifests(
        ui,
        format,
        || plan.control_plane_manifests(&endpoint, &keys, |_| ()),
        || plan.render_control_plane(&endpoint, &keys),
    )?;
    ui.print_note("Keys and certificates above are placeholders; `template` prints manifests that can be applied.");
    Ok(Exit::Ok)
}
