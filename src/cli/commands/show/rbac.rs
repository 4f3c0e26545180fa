//! `show rbac`: the ClusterRole and the Roles that a user needs who installs, checks and removes a control plane, or an
//! agent.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::chart::output;
use crate::cli::args::agent::AgentPlanArgs;
use crate::cli::args::control_plane::PlanArgs;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_values;
use crate::install::release_spec::Package;
use crate::{control_plane, workload_cluster};

/// Print the rights needed to install, check and remove a control plane
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The rights match the requests that the commands make with these values. Without `list` on \
                  everything in the namespace,\n\
an uninstall keeps the namespace.\n\n\
Examples:\n  fleetctl show rbac demo | kubectl apply -f -\n  \
kubectl create clusterrolebinding fleetctl-demo --clusterrole fleetctl-demo --user jane\n  \
kubectl -n fleet create rolebinding fleetctl-demo --role fleetctl-demo --user jane\n  \
fleetctl show rbac demo --day2 | kubectl apply -f -\n  \
fleetctl show rbac agent west"
)]
pub(crate) struct ShowRbacArgs {
    #[command(subcommand)]
    of: Option<Other>,

    #[command(flatten)]
    plan: PlanArgs,

    /// Print the rights needed to operate an installed control plane, such as for `certs renew`
    #[arg(long)]
    day2: bool,
}

/// Other installations to print the rights for.
#[derive(Debug, Subcommand)]
enum Other {
    /// Print the rights needed to install and remove an agent in the workload cluster
    #[command(after_help = AGENT_HELP)]
    Agent(Box<AgentPlanArgs>),
}

const AGENT_HELP: &str = "Kubernetes lets nobody grant permissions that they do not have, so the agent's own permissions are included. The right to\nread the init Secret in the control plane, for `--control-plane`, is not included.\n\nExamples:\n  \
fleetctl show rbac agent west | kubectl --context west apply -f -\n  \
kubectl --context west create clusterrolebinding fleetctl-agent-west \\\n    \
--clusterrole fleetctl-agent-west --user jane\n  \
kubectl --context west -n fleet create rolebinding fleetctl-agent-west \\\n    \
--role fleetctl-agent-west --user jane\n  \
kubectl --context west -n kube-system create rolebinding fleetctl-agent-west \\\n    \
--role fleetctl-agent-west --user jane";

pub(crate) fn run(ui: &Ui, global: &Global, args: &ShowRbacArgs) -> Result<Exit, CliError> {
    if let Some(Other::Agent(args)) = &args.of {
        let plan = args.build_agent_plan(ui, global, None)?;
        let rights = workload_cluster::rbac::list_agent_rights(&plan).map_err(|problems| wrong_values(&problems))?;
        return print_roles(ui, &plan.package, &workload_cluster::rbac::build_agent_roles(&plan, &rights));
    }
    let plan = args.plan.build_control_plane_plan(ui, global, None)?;
    if args.day2 {
        return print_roles(ui, &plan.package, &[control_plane::rbac::build_day2_role(&plan)]);
    }
    let rights = control_plane::rbac::list_install_rights(&plan).map_err(|problems| wrong_values(&problems))?;
    let roles = control_plane::rbac::build_install_roles(&plan, &rights).map_err(|problems| wrong_values(&problems))?;
    print_roles(ui, &plan.package, &roles)
}

fn print_roles(ui: &Ui, package: &Package, roles: &[Value]) -> Result<Exit, CliError> {
    ui.write_stdout(&output::yaml_stream(roles.iter()))?;
    ui.print_note(&format!(
        "The Role needs its namespace: `kubectl create namespace {0}`; an install does not change an existing namespace",
        package.namespace
    ));
    Ok(Exit::Ok)
}
