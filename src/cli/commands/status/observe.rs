//! From a name and the global flags to what can be seen of a control plane, from wherever it can be seen.

use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;
use kube::{Client, CustomResourceExt, ResourceExt};

use crate::api::Cluster;
use crate::api::labels::{INIT_SECRET, LABEL_INSTALL, LABEL_INSTANCE};
use crate::api::names::ControlPlaneName;
use crate::api::remedy::{Action, Command, Remedy, Subject};
use crate::api::util::file;
use crate::api::util::file::FileError;
use crate::api::util::text::visible_cell;
use crate::check::inside::View;
use crate::check::{Judged, Report};
use crate::cli::args::global::Global;
use crate::cli::connect::{connect_to_control_plane, request_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::{add_file_remedy, local_kubeconfig_remedy};
use crate::cli::output::values_error::wrong_name;
use crate::control_plane::health::{self, Health, format_error_chain};
use crate::control_plane::installed_status::{self, Installation};
use crate::control_plane::keys::find_keys;
use crate::control_plane::keys::find_keys::AdminKubeconfigError;
use crate::diagnose::Diagnosis;
use crate::install::admin_access;
use crate::install::fleet_home::Home;
use crate::k8s::{Connected, error_sentences};

/// A control plane, as far as it can be seen.
pub(crate) struct Seen {
    pub(crate) name: ControlPlaneName,
    pub(crate) health: Health,
    /// The verdicts about the installation itself.
    pub(crate) installation: Installation,
    /// Reasons that components do not run, the root first.
    pub(super) causes: Vec<Diagnosis>,
    /// The hosting cluster, where it answers.
    pub(super) hosting: Option<Client>,
    /// The control plane's own API, where it answers.
    pub(super) inside: Option<Client>,
}

impl Seen {
    /// Returns whether nothing fails; warnings do not count.
    pub(crate) fn is_sound(&self) -> bool {
        self.health.is_healthy() && self.installation.report.failures().next().is_none()
    }

    /// Every verdict, those about its health first.
    pub(crate) fn combined_report(&self) -> Report {
        let all = self.health.report.judged.iter().chain(&self.installation.report.judged);
        Report { judged: all.cloned().collect() }
    }

    /// Returns the sides from which it is seen.
    pub(super) fn view(&self) -> View {
        self.health.facts.view()
    }
}

/// Observes the named control plane, or the only one in the namespace, once.
///
/// The hosting cluster is read first. If it does not answer or denies access, or if `--context` is the control plane's
/// own, only the control plane's API is checked.
pub(crate) async fn observe_control_plane(global: &Global, name: Option<&str>) -> Result<Seen, CliError> {
    observe_with_progress(global, name, &mut |_| ()).await
}

/// As [`observe_control_plane`]; `tell` gets the first verdicts while others are still being found.
pub(crate) async fn observe_with_progress(
    global: &Global,
    name: Option<&str>,
    tell: &mut dyn FnMut(&[Judged]),
) -> Result<Seen, CliError> {
    let wanted = name.map(str::parse::<ControlPlaneName>).transpose().map_err(|e| wrong_name(&e))?;
    let namespace = global.namespace.as_str();
    let there = match connect_to_control_plane(global).await {
        Ok(there) => there,
        Err(error) if is_mistaken(&error, global) => return Err(error),
        Err(error) => return by_file(global, wanted, error).await,
    };
    let installed = match list_control_plane_names(&there.client, namespace).await {
        Ok(installed) => installed,
        Err(error) => {
            let error = request_failed("cannot read the hosting cluster", &error);
            return by_file(global, wanted, error).await;
        }
    };
    let named = wanted.as_ref().map(|name| installed.iter().any(|other| other == name.as_str()));
    let installed = if named.map_or(installed.is_empty(), |is_installed| !is_installed) {
        let begun = installed_status::list_begun_installs(&there.client, &global.namespace, wanted.as_ref()).await;
        begun.iter().map(ToString::to_string).chain(installed).collect()
    } else {
        installed
    };
    let named = wanted.as_ref().map(|name| installed.iter().any(|other| other == name.as_str()));
    if named.unwrap_or(!installed.is_empty()) {
        let name = wanted.or_else(|| installed.first().and_then(|name| name.parse().ok()));
        return match name {
            Some(name) => from_hosting(global, &there.client, name, tell).await,
            None => Err(not_installed(None, global)),
        };
    }
    let Some(own) = own_api(&there, namespace).await else {
        let unread = Home::of_user().ok().and_then(|home| find_local_control_planes(&home).err());
        let shown = match (wanted, installed.first()) {
            (None, _) => not_installed(None, global),
            (Some(name), Some(other)) => not_installed(Some(&name), global)
                .hint(format!("control plane `{}` is installed in this namespace", visible_cell(other))),
            (Some(name), None) => {
                let install = Command::at_run_place(Action::Install(Subject::ControlPlane(name.to_string())));
                not_installed(Some(&name), global).hint(Remedy::new("install it with ").command(install))
            }
        };
        return Err(match unread {
            Some(why) => add_local_fault(shown, &why),
            None => shown,
        });
    };
    let context = there.context.as_deref().unwrap_or_default();
    match (wanted, own) {
        (Some(wanted), Some(own)) if wanted != own => Err(not_installed(Some(&wanted), global)
            .cause(format!("`{context}` is the context of control plane `{own}`"))
            .hint(format!(
                "give that name, or choose the context of `{wanted}` or of its hosting cluster with `--context`"
            ))),
        (wanted, own) => match own.or(wanted).or_else(|| context.parse().ok()) {
            Some(name) => {
                let why = format!("`{context}` is the control plane's own context");
                from_inside(global, name, &there.client, why).await
            }
            None => Err(not_installed(None, global)),
        },
    }
}

/// Returns whether the user has to change the command line, so that a fallback would answer another question.
fn is_mistaken(error: &CliError, global: &Global) -> bool {
    error.reason == "BadKubeconfig" || error.exit == Exit::Usage && global.context.is_some()
}

/// Names of the control planes whose components are in the namespace.
async fn list_control_plane_names(client: &Client, namespace: &str) -> Result<Vec<String>, kube::Error> {
    let sets: Api<k8s_openapi::api::apps::v1::StatefulSet> = Api::namespaced(client.clone(), namespace);
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=fleet");
    let list = sets.list(&ours).await?;
    Ok(list.iter().filter_map(|set| set.labels().get(LABEL_INSTALL).cloned()).collect())
}

/// Returns whether an API server is a control plane's own, and of which, as far as it can be known.
///
/// It is one when it has the definition that only control planes have; its name is on the Secret that its scheduler
/// made. Where neither may be read, a control plane's kubeconfig on this machine that leads there tells both.
async fn own_api(there: &Connected, namespace: &str) -> Option<Option<ControlPlaneName>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(there.client.clone());
    let secrets: Api<Secret> = Api::namespaced(there.client.clone(), namespace);
    let (definition, secret) =
        tokio::join!(definitions.get_metadata_opt(Cluster::crd_name()), secrets.get_metadata_opt(INIT_SECRET));
    match definition {
        // A copy of the Secret is in every workload cluster, too, so it counts only beside the definition.
        Ok(Some(_)) => {
            let secret = secret.ok().flatten();
            let label = secret.and_then(|secret| secret.labels().get(LABEL_INSTANCE)?.parse().ok());
            Some(label.or_else(|| find_name_by_file(&there.server)))
        }
        _ => find_name_by_file(&there.server).map(Some),
    }
}

/// Finds the control plane whose kubeconfig on this machine leads to an API server.
fn find_name_by_file(server: &str) -> Option<ControlPlaneName> {
    let home = Home::of_user().ok()?;
    // A folder that cannot be read is told where nothing else is known.
    let names = find_local_control_planes(&home).unwrap_or_default();
    names.into_iter().find(|name| leads_to(&home.kubeconfig_path(name), server))
}

/// Returns whether a kubeconfig leads to an API server.
fn leads_to(file: &Path, server: &str) -> bool {
    let config = Kubeconfig::read_from(file).unwrap_or_default();
    let mut servers = config.clusters.into_iter().filter_map(|cluster| cluster.cluster?.server);
    servers.any(|other| other.trim_end_matches('/') == server)
}

async fn from_hosting(
    global: &Global,
    hosting: &Client,
    name: ControlPlaneName,
    tell: &mut dyn FnMut(&[Judged]),
) -> Result<Seen, CliError> {
    let namespace = global.namespace.as_str();
    let hub = open_control_plane_api(hosting, namespace, &name).await;
    let health = health::observe_health(Ok(hosting), hub.as_ref().map_err(Clone::clone), namespace, None).await;
    let health = match (health, &hub) {
        (Ok(health), _) => health,
        // What may be listed may still not be read.
        (Err(error), Ok(hub)) => return from_inside(global, name, hub, format_error_chain(&error)).await,
        (Err(error), Err(_)) => return Err(request_failed("cannot read the hosting cluster", &error)),
    };
    tell(&health.report.judged);
    let (installation, causes) = tokio::join!(
        installed_status::observe_installation(hosting, &name, &global.namespace),
        installed_status::diagnose_components(hosting, &name, &global.namespace, &health.facts)
    );
    let inside = hub.ok().filter(|_| health.facts.inside.is_ok());
    Ok(Seen { name, health, installation, causes, hosting: Some(hosting.clone()), inside })
}

/// Evaluates the checks of the control plane's API; `why` is the reason that the hosting cluster was not read.
async fn from_inside(global: &Global, name: ControlPlaneName, hub: &Client, why: String) -> Result<Seen, CliError> {
    let health = health::observe_health(Err(why), Ok(hub), global.namespace.as_str(), None).await;
    let health = health.map_err(|error| request_failed("cannot read the control plane", &error))?;
    let inside = Some(hub.clone()).filter(|_| health.facts.inside.is_ok());
    Ok(Seen { name, health, installation: Installation::new_unobserved(), causes: Vec::new(), hosting: None, inside })
}

/// The control plane by its kubeconfig on this machine, because `error` prevented reading the hosting cluster.
async fn by_file(global: &Global, wanted: Option<ControlPlaneName>, error: CliError) -> Result<Seen, CliError> {
    let Ok(home) = Home::of_user() else { return Err(error) };
    // A context that was named may host another control plane than the one of this machine.
    let name = match wanted {
        Some(name) => Some(name),
        None => match find_local_control_planes(&home) {
            Ok(names) => match &names[..] {
                [only] if global.context.is_none() => Some(only.clone()),
                _ => None,
            },
            Err(why) => return Err(add_local_fault(error, &why)),
        },
    };
    let Some(name) = name else { return Err(error) };
    let file = home.kubeconfig_path(&name);
    let kubeconfig = match admin_access::read_local_kubeconfig(&home, &name) {
        Ok(Some(kubeconfig)) => kubeconfig,
        Ok(None) => return Err(error),
        Err(why) => {
            let sentences = error_sentences(&why).join(": ");
            let told = error.cause(format!("the API of control plane {name} cannot be used instead: {sentences}"));
            return Err(told.hint(local_kubeconfig_remedy(&name, &why)));
        }
    };
    let unanswered = format!("the API of control plane {name}, with {}, does not answer either", file.display());
    let hub = match health::connect_control_plane_api(&kubeconfig).await {
        Ok(hub) => hub,
        Err(why) => return Err(error.cause(format!("{unanswered}: {why}"))),
    };
    let why = error.causes.last().unwrap_or(&error.headline).clone();
    let seen = from_inside(global, name, &hub, why).await?;
    match &seen.health.facts.inside {
        Ok(_) => Ok(seen),
        Err(why) => Err(error.cause(format!("{unanswered}: {why}"))),
    }
}

/// Adds that the files of this machine, which could tell more, cannot be read.
fn add_local_fault(shown: CliError, error: &FileError) -> CliError {
    let told = shown
        .cause(format!("the search for control planes on this machine failed: {}", error_sentences(error).join(": ")));
    add_file_remedy(told, error)
}

/// The control planes of which this machine has a kubeconfig, or a folder that may have one.
///
/// # Errors
/// A home directory of the service that cannot be listed.
fn find_local_control_planes(home: &Home) -> Result<Vec<ControlPlaneName>, FileError> {
    let names = file::list_names(home.path())?.into_iter().filter_map(|name| name.parse::<ControlPlaneName>().ok());
    Ok(names.filter(|name| file::is_present(&home.kubeconfig_path(name)).unwrap_or(true)).collect())
}

/// The control plane's API: by the kubeconfig in the hosting cluster, else by the local file.
async fn open_control_plane_api(hosting: &Client, namespace: &str, name: &ControlPlaneName) -> Result<Client, String> {
    let kubeconfig = match find_keys::admin_kubeconfig(hosting, namespace, name.as_str()).await {
        Ok(Some(kubeconfig)) => Some(kubeconfig),
        Err(error @ AdminKubeconfigError::Refused { .. }) => return Err(error.to_string()),
        Ok(None) | Err(AdminKubeconfigError::Api(_)) => match Home::of_user() {
            Ok(home) => {
                admin_access::read_local_kubeconfig(&home, name).map_err(|error| error_sentences(&error).join(": "))?
            }
            Err(_) => None,
        },
    };
    match kubeconfig {
        Some(kubeconfig) => health::connect_control_plane_api(&kubeconfig).await,
        None => Err("its kubeconfig is neither in the hosting cluster nor on this machine".to_owned()),
    }
}

fn not_installed(name: Option<&ControlPlaneName>, global: &Global) -> CliError {
    let which = name.map_or_else(|| "no control plane".to_owned(), |name| format!("control plane `{name}`"));
    let verb = if name.is_some() { "is not installed" } else { "is installed" };
    CliError::new(Exit::Unhealthy, "NotInstalled", format!("{which} {verb} in namespace {}", global.namespace))
        .hint("choose another namespace with `--namespace`, or another cluster with `--context`")
}
