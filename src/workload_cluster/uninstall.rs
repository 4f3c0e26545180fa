//! The removal of an agent: the cluster leaves its control plane first, then everything here goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use super::copies::{Copies, PlacedObject};
use super::plan::OWNER_KIND;
use super::probe;
use super::registration::Identity;
use crate::api::extra_kind::ExtraKind;
use crate::api::labels::LABEL_INSTALL;
use crate::api::names::ClusterName;
use crate::api::placeable::Kinds;
use crate::api::registration::{LEAVE_FAILED, Registration, state};
use crate::api::util::text::visible_line;
use crate::apply::{self, Engine, Removal, Removed};
use crate::chart::patch::Patches;
use crate::install;
use crate::install::progress::Progress;
use crate::k8s::connect::daemon_client::CallError;
use crate::k8s::extra_kinds;

/// Time that an agent may take to deregister: it polls every 5 s, and the control plane deletes a cluster within
/// seconds.
pub const LEAVING: Duration = Duration::from_secs(60);

/// Time between two looks at what is left while the cluster is drained.
const DRAIN_POLL: Duration = Duration::from_secs(2);

/// An agent that is to go.
pub type Target<'a> = install::installed::Target<'a, ClusterName>;

/// Standing of the cluster with its control plane after it was asked to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leave {
    /// The control plane has forgotten the cluster.
    Left,
    /// It never was registered from here.
    NotRegistered,
    /// The control plane may still know it; with the reason, as a clause.
    Stays(String),
}

/// Returns whether an agent without a certificate may have a request at the control plane: one that is pending, or that
/// could not be withdrawn.
fn has_asked(said: &Registration) -> bool {
    said.is_in_state(state::REGISTERING) || said.is_in_state(state::BLOCKED) && said.reason == LEAVE_FAILED
}

/// Outcome of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drain {
    /// Nothing that was placed is here any more.
    Done,
    /// No agent runs here that could ask for it.
    NoAgent,
    /// These objects are here still; the request is withdrawn.
    Left(Vec<PlacedObject>),
}

async fn has_agent(client: &Client, namespace: &str) -> Result<bool, kube::Error> {
    let agent = deployments_api(client, namespace).get_opt("fleet-agent").await?;
    Ok(agent.and_then(|deployment| deployment.spec?.replicas).unwrap_or(0) > 0)
}

fn deployments_api(client: &Client, namespace: &str) -> Api<Deployment> {
    Api::namespaced(client.clone(), namespace)
}

/// Asks the agent in a namespace to leave its control plane, and waits at most `limit` for its answer. A request that
/// is not met is withdrawn.
///
/// # Errors
/// A workload cluster that does not answer or refuses.
pub async fn request_agent_deregistration(
    client: &Client,
    namespace: &str,
    limit: Duration,
) -> Result<Leave, kube::Error> {
    let identity = Identity::new(client, namespace);
    let before = identity.observe_identity().await?;
    if before.said.as_ref().is_some_and(|said| said.is_in_state(state::LEFT)) {
        return Ok(Leave::Left);
    }
    // Without a certificate it may be waiting to be let in: the control plane has a Cluster then.
    if !before.registered && !before.said.as_ref().is_some_and(has_asked) {
        return Ok(Leave::NotRegistered);
    }
    if !has_agent(client, namespace).await? {
        return Ok(Leave::Stays("no agent is running here to deregister the cluster".to_owned()));
    }
    identity.ask_to_leave(true).await?;
    let why = match tokio::time::timeout(limit, identity.wait_until_left(before.said.as_ref())).await {
        Ok(said) if said.is_in_state(state::LEFT) => return Ok(Leave::Left),
        Ok(said) => format!("the agent cannot reach the control plane: {}", visible_line(&said.message)),
        Err(_) => format!("the agent did not answer within {} s", limit.as_secs()),
    };
    identity.ask_to_leave(false).await?;
    Ok(Leave::Stays(why))
}

impl Target<'_> {
    /// The name of the agent that is in the namespace, if there is one.
    ///
    /// # Errors
    /// An API that does not answer or refuses.
    pub async fn find_installed_agent(&self) -> Result<Option<String>, kube::Error> {
        let found = deployments_api(self.client, self.namespace.as_str()).get_opt("fleet-agent").await?;
        Ok(found.and_then(|deployment| deployment.labels().get(LABEL_INSTALL).cloned()))
    }

    /// The copies of the agent's control plane, if there can be any.
    ///
    /// # Errors
    /// A workload cluster that does not answer or refuses.
    pub async fn find_copies(&self) -> Result<Option<Copies>, kube::Error> {
        let seen = self.identity().observe_identity().await?;
        let Some(placed_by) = seen.placed_by else { return Ok(None) };
        let wanted: Vec<ExtraKind> = seen.extra_kinds.into_iter().collect();
        let served = extra_kinds::fetch_served_kinds(self.client, &wanted).await.map_err(|error| match error {
            CallError::Kube(error) => error,
            CallError::TimedOut => kube::Error::Service(Box::new(error)),
        })?;
        Ok(Some(Copies::new(self.client, &placed_by, Kinds::with_added(served.kinds))))
    }

    /// Has the control plane move the copies to other clusters, and waits until none is here, at most as long as the
    /// run may take; `left` hears which are here still. A request that is not met is withdrawn.
    ///
    /// # Errors
    /// A workload cluster that does not answer or refuses.
    pub async fn drain_copies(&self, copies: &Copies, left: impl Fn(&[PlacedObject])) -> Result<Drain, kube::Error> {
        if !has_agent(self.client, self.namespace.as_str()).await? {
            return Ok(Drain::NoAgent);
        }
        let started = Instant::now();
        self.identity().ask_to_drain(true).await?;
        loop {
            let found = copies.list_copies().await?;
            if found.is_empty() {
                return Ok(Drain::Done);
            }
            if started.elapsed() >= self.timeout {
                self.stop_draining().await?;
                return Ok(Drain::Left(found));
            }
            left(&found);
            tokio::time::sleep(DRAIN_POLL).await;
        }
    }

    /// Takes the request for a drain back: the cluster takes work again.
    ///
    /// # Errors
    /// A workload cluster that does not answer or refuses.
    pub async fn stop_draining(&self) -> Result<(), kube::Error> {
        self.identity().ask_to_drain(false).await
    }

    fn identity(&self) -> Identity {
        Identity::new(self.client, self.namespace.as_str())
    }

    /// Asks the agent to leave the control plane, and waits for its answer. A request that is not met is withdrawn.
    ///
    /// # Errors
    /// A workload cluster that does not answer or refuses.
    pub async fn deregister_agent(&self) -> Result<Leave, kube::Error> {
        request_agent_deregistration(self.client, self.namespace.as_str(), LEAVING.min(self.timeout)).await
    }

    /// Plans a removal by reads alone.
    ///
    /// # Errors
    /// What would keep the engine from removing it.
    pub async fn plan_agent_removal(&self, progress: &Arc<dyn Progress>) -> Result<Removed, apply::Error> {
        self.agent_removal_engine(progress).plan_removal(Removal::default()).await
    }

    /// Removes everything of the agent and searches the cluster for leftovers. A namespace that an operator made stays.
    ///
    /// # Errors
    /// What the engine meets.
    pub async fn remove_agent(&self, progress: &Arc<dyn Progress>) -> Result<Removed, apply::Error> {
        // One may be left of an install that was interrupted; its life is limited all the same.
        let _ = probe::remove_probe_pod(self.client, self.namespace.as_str()).await;
        self.agent_removal_engine(progress).uninstall(Removal::default()).await
    }

    fn agent_removal_engine(&self, progress: &Arc<dyn Progress>) -> Engine {
        let charts = super::charts::agent_charts(self.name, self.namespace, self.client, &Patches::default());
        self.build_engine(OWNER_KIND, charts, self.home.agent_journal(self.name), progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_registration(state: &str, reason: &str) -> Registration {
        Registration { state: state.to_owned(), reason: reason.to_owned(), message: String::new(), at: String::new() }
    }

    #[test]
    fn a_request_that_is_in_or_could_not_be_taken_back_is_not_forgotten() {
        assert!(has_asked(&make_registration(state::REGISTERING, "RequestPosted")));
        assert!(has_asked(&make_registration(state::REGISTERING, "ControlPlaneUnreachable")));
        assert!(has_asked(&make_registration(state::BLOCKED, "LeaveFailed")));
        assert!(!has_asked(&make_registration(state::BLOCKED, "InitSecretMissing")));
        assert!(!has_asked(&make_registration(state::REFUSED, "ClusterNameInUse")));
    }
}
