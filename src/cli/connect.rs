//! From the global flags to a client: of the hosting or workload cluster, or of a control plane's own API.

use std::fmt::Debug;

use kube::Client;
use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;

use super::output::error::CliError;
use super::output::exit_code::Exit;
use super::output::install_error::local_kubeconfig_remedy;
use crate::api::names::ControlPlaneName;
use crate::api::remedy::Access;
use crate::api::util::text::visible_cell;
use crate::api::version::{KubeMinor, VersionError};
use crate::cli::args::global::Global;
use crate::install::admin_access;
use crate::install::fleet_home::Home;
use crate::k8s::{CHECK_SERVER, ClientError, Connected, Target, is_not_kubernetes};

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let exit = if matches!(error, ClientError::Context { .. }) { Exit::Usage } else { Exit::Failed };
        let headline = error.to_string();
        let mut shown = Self::new(exit, error.reason(), headline).hint(error.remedy());
        if let Some(source) = std::error::Error::source(&error) {
            shown = shown.because(source);
        }
        shown
    }
}

/// The cluster of `--context`.
pub(super) async fn connect_cluster(global: &Global) -> Result<Connected, CliError> {
    let target = Target { kubeconfig: global.kubeconfig.iter().cloned().collect(), context: global.context.clone() };
    Ok(target.connect_client().await?)
}

/// Refuses to send keys and tokens to an unverified server, or to read from one what an agent will trust.
pub(super) fn check_server_verified(cluster: &Connected, is_allowed: bool) -> Result<(), CliError> {
    if is_allowed {
        return Ok(());
    }
    require_verified_server(cluster).map_err(|error| error.hint("to continue anyway: --allow-unverified-server"))
}

/// The same for commands that have no way around it.
pub(super) fn require_verified_server(cluster: &Connected) -> Result<(), CliError> {
    let Some(why) = cluster.unverified else { return Ok(()) };
    let context = cluster.context.as_deref().unwrap_or("in-cluster");
    let message = format!("the server of context `{}` cannot be verified: {why}", visible_cell(context));
    Err(CliError::new(Exit::Refused, "ServerNotVerified", message)
        .hint("the command would send keys and tokens to it: set `certificate-authority-data` in the kubeconfig"))
}

/// The service's home directory.
pub(super) fn find_home() -> Result<Home, CliError> {
    Home::of_user().map_err(|error| CliError::new(Exit::Failed, "NoHome", error.to_string()).hint("set HOME"))
}

/// The Kubernetes version of a cluster.
pub(super) async fn server_version(client: &Client) -> Result<KubeMinor, CliError> {
    let version = client.apiserver_version().await;
    let version = version.map_err(|error| request_failed("cannot read the cluster's version", &error))?;
    version
        .git_version
        .parse()
        .map_err(|error: VersionError| CliError::new(Exit::Preflight, "UnknownVersion", error.to_string()))
}

/// The API of the control plane that `--context` names.
pub(super) async fn control_plane_client(global: &Global) -> Result<Client, CliError> {
    Ok(connect_to_control_plane(global).await?.client)
}

/// The API of the control plane that `--context` names.
pub(super) async fn connect_to_control_plane(global: &Global) -> Result<Connected, CliError> {
    Ok(connect_with_access(global).await?.0)
}

/// Returns the way to the cluster of `--context`.
fn access_by(global: &Global) -> Access {
    let context = global.context.clone();
    match &global.kubeconfig {
        Some(file) => Access::Kubeconfig(file.clone(), context),
        None => context.map_or(Access::Unknown, Access::Context),
    }
}

/// The API of the control plane that `--context` names, and how it is reached.
///
/// The context is looked for in the kubeconfig first; a control plane that was installed from here is also found by
/// the file that its install wrote, so that `get` works before anybody touched `KUBECONFIG`.
pub(super) async fn connect_with_access(global: &Global) -> Result<(Connected, Access), CliError> {
    match connect_cluster(global).await {
        Ok(connected) => Ok((connected, access_by(global))),
        Err(error) if error.reason == "NoSuchContext" || error.reason == "NoKubeconfig" => {
            let name: Option<ControlPlaneName> = global.context.as_deref().and_then(|context| context.parse().ok());
            let Some((name, home)) = name.zip(Home::of_user().ok()) else { return Err(error) };
            let file = home.kubeconfig_path(&name);
            let headline = format!("cannot use the kubeconfig {}", file.display());
            let unusable = CliError::new(Exit::Failed, "BadKubeconfig", headline);
            match admin_access::read_local_kubeconfig(&home, &name) {
                Err(error) => Err(unusable.because(&error).hint(local_kubeconfig_remedy(&name, &error))),
                Ok(Some(kubeconfig)) => {
                    let again = format!("write it again with `fleetctl kubeconfig {name}`");
                    let connected = admin_access::connect_kubeconfig(&kubeconfig).await;
                    let connected = connected.map_err(|why| unusable.cause(why).hint(again))?;
                    Ok((connected, Access::Kubeconfig(file, None)))
                }
                Ok(None) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// A workload cluster by its name; none where the control plane knows none of it.
///
/// # Errors
/// A request that failed; an API server that is no control plane's, for it says of one cluster, too, that it is not there.
pub(super) async fn find_registered_cluster<K>(clusters: &Api<K>, name: &str) -> Result<Option<K>, CliError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let found = clusters.get_opt(name).await;
    let found = found.map_err(|error| request_failed(&format!("cannot read Cluster {name}"), &error))?;
    if found.is_none() {
        let any = clusters.list_metadata(&ListParams::default().limit(1)).await;
        any.map_err(|error| list_failed("clusters", &error))?;
    }
    Ok(found)
}

/// A workload cluster that the control plane does not know.
pub(super) fn no_such_cluster(name: &str, global: &Global) -> CliError {
    CliError::new(Exit::Failed, "NoSuchCluster", format!("no workload cluster `{name}` is registered"))
        .hint(format!("list them all with `fleetctl get clusters{}`", global.tail_flags()))
}

/// A list that failed; on an API server that is no control plane's, it says so.
pub(super) fn list_failed(what: &str, error: &kube::Error) -> CliError {
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            CliError::new(Exit::Failed, "NotAControlPlane", format!("this API server has no resource `{what}`"))
                .hint("use the control plane's own context: `--context NAME`")
        }
        _ => request_failed(&format!("cannot list {what}"), error),
    }
}

/// A command that a check refuses before it does anything. The check has a title and an id.
pub(super) fn refused_by_check(headline: &str, (title, id): (&str, &str), what: &str) -> CliError {
    CliError::new(Exit::Preflight, "PreflightRefused", headline)
        .cause(format!("{title} ({id}): {what}"))
        .hint(format!("explain it: `fleetctl explain {id}`"))
}

/// A command about control plane `name` that is refused because rights are missing.
pub(super) fn refused_rights(headline: &str, missing: &[String], name: &ControlPlaneName) -> CliError {
    let what = format!("you may not {}", missing.join(", "));
    refused_by_check(headline, ("rights", "access"), &what).hint(format!(
        "`fleetctl show rbac {name} --day2` prints the rights; ask an administrator for them, or use a context that has them \
         (`--context`)"
    ))
}

/// A request to an API server that failed, with what to look at.
pub(super) fn request_failed(what: &str, error: &kube::Error) -> CliError {
    if is_not_kubernetes(error) {
        return CliError::new(Exit::Failed, "NotKubernetes", what).because(error).hint(CHECK_SERVER);
    }
    let shown = CliError::new(Exit::Failed, "RequestFailed", what).because(error);
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            shown.hint("use a context with this permission (`--context`)")
        }
        kube::Error::Api(status) if status.code == 401 => {
            shown.hint("the credentials of this context are not accepted")
        }
        kube::Error::Api(status) if matches!(status.code, 429 | 503 | 504) => {
            shown.hint("the API server is overloaded or starting; try again later")
        }
        kube::Error::Api(_) => shown,
        _ => shown.hint("run `kubectl version` to check that the cluster answers in this context"),
    }
}
