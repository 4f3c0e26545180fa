//! `show rbac`: the ClusterRole and the Role that a user needs who installs, checks and removes a control plane.

use clap::Args;

use super::Global;
use super::error::{CliError, Exit};
use super::package_args::wrong_values;
use super::plan_args::PlanArgs;
use super::ui::Ui;
use crate::chart::output;
use crate::control_plane::rights::{rights, roles};

/// Print the rights that installing, checking and removing a control plane needs
#[derive(Debug, Args)]
#[command(after_help = "The rights are those of the requests that the commands make for these values; without \
`list` on everything in the\nnamespace an uninstall leaves the namespace where it is.\n\nExamples:\n  \
fleetctl show rbac demo | kubectl apply -f -\n  \
kubectl create clusterrolebinding fleetctl-demo --clusterrole fleetctl-demo --user jane\n  \
kubectl -n fleet create rolebinding fleetctl-demo --role fleetctl-demo --user jane")]
pub(super) struct ShowRbacArgs {
    #[command(flatten)]
    plan: PlanArgs,
}

pub(super) fn run(ui: &Ui, global: &Global, args: &ShowRbacArgs) -> Result<Exit, CliError> {
    let plan = args.plan.plan(ui, global, None)?;
    let rights = rights(&plan).map_err(|problems| wrong_values(&problems))?;
    ui.out(&output::yaml_stream(roles(&plan, &rights).iter()))?;
    ui.note(&format!(
        "The Role needs its namespace: `kubectl create namespace {0}`; an install leaves a namespace that is there as it is",
        plan.package.namespace
    ));
    Ok(Exit::Ok)
}
