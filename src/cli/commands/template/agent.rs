//! `template agent`: the manifests of an agent; the init Secret is not among them.

use clap::Args;

use super::output::OutputArgs;
use super::outside_row;
use crate::api::version::KubeMinor;
use crate::cli::args::agent::AgentPlanArgs;
use crate::cli::args::global::Global;
use crate::cli::args::object_name::explained_field;
use crate::cli::args::values::with_precedence;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;

pub(super) const EXAMPLES: &str = with_precedence!(
    "You create the namespace and its Secret `fleet-cluster-init-kubeconfig` yourself, as for `install agent`.

Examples:
  fleetctl template agent west | kubectl --context west apply -f -
  fleetctl template agent west --version v1.1 -o json"
);

/// Print the manifests of an agent
#[derive(Debug, Args)]
pub(crate) struct TemplateAgentArgs {
    #[command(flatten)]
    plan: AgentPlanArgs,

    /// Kubernetes version of the workload cluster; the service version must support it; used by `--version auto` and
    /// `admissionPolicy: Auto`
    #[arg(long, value_name = "VERSION")]
    kube_version: Option<KubeMinor>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(ui: &Ui, global: &Global, args: &TemplateAgentArgs) -> Result<Exit, CliError> {
    args.output.check_kind_filters()?;
    let plan = args.plan.build_agent_plan(ui, global, args.kube_version)?.with_kubernetes(args.kube_version);
    outside_row(&plan.package, args.kube_version)?;
    if let Some(field) = &args.output.explain {
        return args.output.print_explanations(ui, plan.explain_agent_field(&explained_field(field)));
    }
    args.output.print_output(ui, || plan.render_agent_manifests(), || plan.render_agent()).map(|()| Exit::Ok)
}
