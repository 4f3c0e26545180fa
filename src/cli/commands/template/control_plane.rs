//! `template control-plane`: the manifests of a control plane, with keys of its own.

use clap::Args;

use super::gitops;
use super::keys::{self, KeysArgs};
use super::output::OutputArgs;
use super::outside_row;
use crate::api::version::KubeMinor;
use crate::chart::{Diagnostics, Rendered, output};
use crate::cli::args::control_plane::PlanArgs;
use crate::cli::args::global::Global;
use crate::cli::args::object_name::explained_field;
use crate::cli::args::values::with_precedence;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::cli::{connect, render_offline};
use crate::control_plane::endpoint::exposure;
use crate::control_plane::plan::Plan;
use crate::control_plane::values::PkiSource;
use crate::install::fleet_home::Home;
use crate::pki;

pub(super) const EXAMPLES: &str = with_precedence!(
    "Examples:
  fleetctl template cp demo --preset nodeport --set exposure.host=192.0.2.10 |
    kubectl apply -f -
  fleetctl template cp demo --preset nodeport --set exposure.host=192.0.2.10 --pki keys > demo.yaml
  fleetctl template cp demo --preset nodeport --set exposure.host=192.0.2.10 --without-keys
  fleetctl template cp demo --set pki.source=InCluster --set exposure.type=LoadBalancer |
    kubectl apply -f -
  fleetctl template cp demo --for argocd --set pki.source=InCluster \\
    --set exposure.type=LoadBalancer --output-dir demo
  fleetctl template cp demo -o json \\
    --set exposure.type=LoadBalancer --set exposure.host=fleet.example.com
  fleetctl template cp demo \\
    --explain 'statefulset/etcd#spec.template.spec.containers[0].image'",
    environment
);

/// Print the manifests of a control plane
#[derive(Debug, Args)]
pub(crate) struct TemplateControlPlaneArgs {
    #[command(flatten)]
    plan: PlanArgs,

    /// Kubernetes version of the hosting cluster; the service version must support it; used by `--version auto`
    #[arg(long, value_name = "VERSION")]
    kube_version: Option<KubeMinor>,

    #[command(flatten)]
    keys: KeysArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(ui: &Ui, global: &Global, args: &TemplateControlPlaneArgs) -> Result<Exit, CliError> {
    args.output.check_kind_filters()?;
    let plan = args.plan.build_control_plane_plan(ui, global, args.kube_version)?;
    outside_row(&plan.package, args.kube_version)?;
    if let Some(field) = &args.output.explain {
        // Keys are placeholders, so that asking makes none.
        let endpoint = render_offline::offline_endpoint(&plan.values.exposure);
        return args.output.print_explanations(
            ui,
            plan.explain_object_field(&endpoint, &pki::placeholder_files(), &explained_field(field)),
        );
    }
    let plan = plan.for_printing();
    let kind = plan.values.exposure.kind;
    let endpoint = match exposure::endpoint_from_values(&plan.values.exposure) {
        Ok(endpoint) => endpoint,
        Err(_) if plan.address_is_awaited(kind) => exposure::unknown_endpoint(kind),
        Err(missing) => return Err(undecided_exposure(missing)),
    };
    let home = connect::find_home()?;
    let keys = &args.keys;
    keys.check_keys_folder(&plan)?;
    let is_made = keys.is_made_for_others(&plan);
    let is_printed = !keys.without_keys
        && plan.values.pki.source == PkiSource::Installer
        && args
            .output
            .prints_any(|| plan.render_control_plane(&endpoint, &pki::placeholder_files()), keys::holds_keys)?;
    if is_printed && args.output.gitops.is_some() {
        // Before any are made.
        return Err(gitops::keys_in_git());
    }
    let found = if is_printed || is_made {
        keys.complete_keys(&home, &plan, &endpoint, || other_keys(&home, &plan, global))?
    } else {
        keys.read_keys(&home, &plan, &endpoint)?
    };
    let printed =
        PrintedRelease { plan: &plan, endpoint: &endpoint, files: &found.files, without_keys: keys.without_keys };
    args.output.print_output(ui, || printed.render_printed_manifests(), || printed.render_printed_objects())?;
    keys.report_keys(ui, &home, &plan, &found, is_printed)?;
    Ok(Exit::Ok)
}

/// What is printed, with its keys or without them.
struct PrintedRelease<'p> {
    plan: &'p Plan,
    endpoint: &'p exposure::Endpoint,
    files: &'p pki::Files,
    without_keys: bool,
}

impl PrintedRelease<'_> {
    fn render_printed_objects(&self) -> Result<Rendered, Diagnostics> {
        let mut rendered = self.plan.render_control_plane(self.endpoint, self.files)?;
        rendered.objects.iter_mut().for_each(keys::make_keys_immutable);
        Ok(if self.without_keys { keys::remove_key_secrets(rendered) } else { rendered })
    }

    fn render_printed_manifests(&self) -> Result<Vec<String>, Diagnostics> {
        if self.without_keys {
            return Ok(vec![output::yaml_stream(
                self.render_printed_objects()?.objects.iter().map(|object| &object.json),
            )]);
        }
        self.plan.control_plane_manifests(self.endpoint, self.files, keys::make_keys_immutable)
    }
}

fn undecided_exposure(missing: &str) -> CliError {
    CliError::usage("ExposureUndecided", format!("without a cluster, `{missing}` is required"))
        .cause(
            "certificates and kubeconfigs contain the address of the API server, and that address cannot be looked \
             up without a cluster",
        )
        .hint(
            "for a node port: `--set exposure.type=NodePort --set exposure.host=NODE-ADDRESS --set exposure.port=32222`\n\
             for a load balancer: `--set exposure.type=LoadBalancer --set exposure.host=NAME`",
        )
}

/// New keys would lock out all users of the existing control plane.
fn other_keys(home: &Home, plan: &Plan, global: &Global) -> CliError {
    let (name, flags) = (&plan.name, global.tail_flags());
    let (file, folder) = (home.kubeconfig_path(name), home.control_plane(name));
    CliError::new(Exit::Refused, "OtherKeys", format!("control plane {name} was installed from this machine with other keys"))
        .cause(format!(
            "{} was not made with the keys in {}: it would be overwritten, and the manifests would not fit that control plane",
            file.display(),
            home.keys_folder(name).display()
        ))
        .hint(format!(
            "choose another name, or print the objects of this one: `fleetctl install control-plane {name}{flags} --dry-run \
             --version {}`, with the same values",
            plan.package.version
        ))
        .hint(format!("to delete it: `fleetctl uninstall control-plane {name}{flags} --delete-data`"))
        .hint(format!("if it no longer exists: move {} away", folder.display()))
        .hint("nothing was written")
}
