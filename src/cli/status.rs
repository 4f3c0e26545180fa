//! `status`: the health of an installed control plane.

use clap::Args;
use kube::Client;
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use super::cluster_access::{connect, request_failed};
use super::error::{CliError, Exit};
use super::outcome::engine_error;
use super::package_args::wrong_name;
use super::ui::Ui;
use super::{Global, report};
use crate::api::names::ControlPlaneName;
use crate::check::Report;
use crate::control_plane::health::{self, Health};
use crate::control_plane::{installation, keys};
use crate::install::home::Home;

/// Check the status of a control plane installation
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fleetctl status\n  fleetctl status demo --context hosting")]
pub(super) struct StatusArgs {
    /// Name of the control plane [default: the one in the namespace]
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: Option<String>,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: StatusArgs) -> Result<Exit, CliError> {
    let seen = look(ui, global, args.name.as_deref()).await?;
    ui.out(&report::health(ui, seen.name.as_str(), &seen.health.report, &seen.health.facts))?;
    // Hints name the program as the user started it, here as in errors.
    let text = report::installation(ui, &seen.installation);
    ui.out(&text.replace("`fleetctl ", &format!("`{} ", ui.program)))?;
    Ok(if seen.is_sound() { Exit::Ok } else { Exit::Unhealthy })
}

/// A control plane and its health.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) name: ControlPlaneName,
    pub(super) health: Health,
    /// The verdicts about the installation itself.
    pub(super) installation: Report,
}

impl Seen {
    /// Nothing but warnings.
    pub(super) fn is_sound(&self) -> bool {
        self.health.is_healthy() && self.installation.failures().next().is_none()
    }
}

/// Looks once at the control plane that is named, or at the one in the namespace.
pub(super) async fn look(ui: &Ui, global: &Global, name: Option<&str>) -> Result<Seen, CliError> {
    let wanted = name.map(str::parse::<ControlPlaneName>).transpose().map_err(|e| wrong_name(&e))?;
    let hosting = connect(global).await?;
    let namespace = global.namespace.as_str();
    let installed = installed(&hosting.client, namespace).await?;
    let Some(name) = wanted.or_else(|| installed.first().and_then(|name| name.parse().ok())) else {
        return Err(not_installed(None, global));
    };
    if !installed.iter().any(|other| other == name.as_str()) {
        return Err(not_installed(Some(&name), global).hint(match installed.first() {
            Some(other) => format!("there is `{other}`"),
            None => format!("install it with `{} install control-plane {name}`", ui.program),
        }));
    }
    let hub = hub(&hosting.client, namespace, &name).await;
    let health = health::look(Some(&hosting.client), hub.as_ref().map_err(Clone::clone), namespace).await;
    let health = health.map_err(|error| request_failed("cannot read the hosting cluster", &error))?;
    let installation = installation::look(&hosting.client, &name, &global.namespace).await;
    let installation = installation.map_err(|error| engine_error("cannot look at the installation", &error))?;
    Ok(Seen { name, health, installation })
}

/// Names of the control planes whose components are in the namespace.
async fn installed(client: &Client, namespace: &str) -> Result<Vec<String>, CliError> {
    let sets: Api<k8s_openapi::api::apps::v1::StatefulSet> = Api::namespaced(client.clone(), namespace);
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=fleet");
    let list = sets.list(&ours).await.map_err(|error| request_failed("cannot read the hosting cluster", &error))?;
    Ok(list.iter().filter_map(|set| set.labels().get("app.kubernetes.io/instance").cloned()).collect())
}

/// The control plane's API: by the kubeconfig in the hosting cluster, else by the local file.
async fn hub(hosting: &Client, namespace: &str, name: &ControlPlaneName) -> Result<Client, String> {
    let text = keys::admin_kubeconfig(hosting, namespace).await.ok().flatten();
    let local = || Home::of_user().ok().and_then(|home| fs_err::read_to_string(home.kubeconfig(name)).ok());
    match text.or_else(local) {
        Some(text) => health::hub(&text).await,
        None => Err("its kubeconfig is neither in the hosting cluster nor on this machine".to_owned()),
    }
}

fn not_installed(name: Option<&ControlPlaneName>, global: &Global) -> CliError {
    let which = name.map_or_else(|| "no control plane".to_owned(), |name| format!("control plane `{name}`"));
    let verb = if name.is_some() { "is not installed" } else { "is installed" };
    CliError::new(Exit::Unhealthy, "NotInstalled", format!("{which} {verb} in namespace {}", global.namespace))
        .hint("choose another namespace with `--namespace`, or another cluster with `--context`")
}
