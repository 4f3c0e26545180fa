//! The end of a renewal: the kubeconfigs on this machine, the health of the control plane, and agents that need a token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;

use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::partial_list::Age;
use crate::api::remedy::{Action, Command, Remedy};
use crate::api::util::file;
use crate::check::inside::list_registered_members;
use crate::cli::args::global::Global;
use crate::cli::commands::kubeconfig::merge::renew_merged_entries;
use crate::cli::connect::request_failed;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::signals::until_stopped;
use crate::control_plane::agent_certificate_ends::list_agent_certificates;
use crate::control_plane::health::{format_error_chain, wait_until_healthy};
use crate::control_plane::kubeconfig::{find_kubeconfig, place_kubeconfig};
use crate::install::admin_access::{connect_kubeconfig, read_local_kubeconfig};
use crate::install::fleet_home::Home;
use crate::install::progress::Progress as _;
use crate::k8s::Connected;
use crate::pki::Kubeconfig;

/// Time between two looks.
const POLL: Duration = Duration::from_secs(2);
/// Longest time in which a new kubeconfig is accepted.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// Longest time in which agents register again with a token that is valid.
const REGISTER_WITHIN: Duration = Duration::from_secs(30);

/// Replaces the kubeconfig on this machine and its entries in the file of kubectl, where there are, after the new one was
/// accepted. Returns the control plane's own API; none if it does not answer here, which is warned of.
pub(super) async fn replace_kubeconfigs(
    ui: &Ui,
    global: &Global,
    client: &Client,
    home: &Home,
    name: &ControlPlaneName,
    deadline: Instant,
) -> Result<Option<Connected>, CliError> {
    let kubeconfig = match find_kubeconfig(Some(client), home, name, &global.namespace).await {
        Ok((kubeconfig, _)) => kubeconfig,
        Err(error) => {
            warn_not_replaced(ui, &format_error_chain(&error));
            return Ok(None);
        }
    };
    let connected = match wait_for_new_access(&kubeconfig, deadline).await {
        Ok(connected) => connected,
        Err(why) => {
            warn_not_replaced(ui, &why);
            return Ok(None);
        }
    };
    match file::is_present(&home.kubeconfig_path(name)) {
        Ok(false) => {}
        Ok(true) if read_local_kubeconfig(home, name).is_ok_and(|found| found.as_ref() == Some(&kubeconfig)) => {}
        Ok(true) => match place_kubeconfig(home, name, &kubeconfig) {
            Ok(placed) => {
                if let Some(warning) = placed.replaced_file_warning() {
                    ui.warn(&warning);
                }
            }
            Err(error) => warn_not_replaced(ui, &error.to_string()),
        },
        Err(error) => warn_not_replaced(ui, &error.to_string()),
    }
    if let Err(error) = renew_merged_entries(global, home, name, &kubeconfig) {
        ui.warn(&format!("the entries of kubectl's kubeconfig were not replaced: {}", error.headline));
    }
    Ok(Some(connected))
}

fn warn_not_replaced(ui: &Ui, why: &str) {
    ui.warn(&format!("the kubeconfig on this machine was not replaced: {why}"));
}

/// Waits until the control plane accepts a kubeconfig: its API server may have been replaced just now.
async fn wait_for_new_access(kubeconfig: &Kubeconfig, deadline: Instant) -> Result<Connected, String> {
    let end = deadline.min(Instant::now() + ANSWERS_WITHIN);
    let connected = connect_kubeconfig(kubeconfig).await?;
    loop {
        match connected.client.apiserver_version().await {
            Ok(_) => return Ok(connected),
            Err(error) if Instant::now() + POLL >= end => return Err(format_error_chain(&error)),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Waits until the control plane is healthy; without its own API, until its pods are.
pub(super) async fn wait_for_health(
    ui: &Ui,
    display: &Arc<Display>,
    client: &Client,
    hub: Option<&Client>,
    (name, namespace): (&ControlPlaneName, &NamespaceName),
    deadline: Instant,
) -> Result<(), CliError> {
    display.begin_step("Checking the control plane");
    let work = async {
        let hub = hub.ok_or_else(|| "its API does not answer this machine".to_owned());
        wait_until_healthy(client, hub, namespace.as_str(), None, deadline, &|text| display.update_step(text)).await
    };
    let seen = until_stopped(ui, display, "the check of the control plane", work, std::future::ready(())).await?;
    let seen = seen.map_err(|error| request_failed("cannot read the health of the control plane", &error))?;
    if seen.is_healthy() {
        return Ok(());
    }
    let headline = format!("the certificates were renewed, but control plane {name} is not healthy");
    let mut error = CliError::new(Exit::Unhealthy, "Unhealthy", headline);
    for (judged, problem) in seen.report.failures() {
        error = error.cause(format!("{} ({}): {}", judged.title, judged.id, problem.what));
    }
    Err(error
        .hint(Remedy::new("check again with ").command(Command::at_run_place(Action::Status(Some(name.to_string()))))))
}

/// Names the agents whose certificates have ended and that do not come back by their init tokens, with the command that
/// makes a new token for each.
pub(super) async fn name_ended_agents(ui: &Ui, hub: &Client, name: &ControlPlaneName) -> Result<(), CliError> {
    let end = Instant::now() + REGISTER_WITHIN;
    loop {
        let agents = match list_agent_certificates(hub).await {
            Ok(agents) => agents,
            Err(why) => {
                ui.warn(&format!("the certificates of agents cannot be read: {why}"));
                return Ok(());
            }
        };
        let now = Timestamp::now();
        let mut ended: Vec<&str> = agents
            .iter()
            .filter(|agent| agent.not_after.is_some_and(|end| end <= now))
            .map(|agent| agent.cluster.as_str())
            .collect();
        if !ended.is_empty() {
            let members = list_registered_members(hub, Age::Now).await;
            let members = members.map_err(|error| request_failed("cannot list the workload clusters", &error))?;
            ended.retain(|cluster| !members.iter().any(|member| member.name == *cluster && member.ready));
        }
        if ended.is_empty() {
            return Ok(());
        }
        if Instant::now() + POLL < end {
            tokio::time::sleep(POLL).await;
            continue;
        }
        for cluster in ended {
            ui.warn(&format!(
                "the certificate of the agent of workload cluster {cluster} has expired, and it has not registered again; \
                 if its init token has expired too, give it a new one: `fleetctl token create {cluster} --context {name} | kubectl --context {cluster} apply --filename -`"
            ));
        }
        return Ok(());
    }
}
