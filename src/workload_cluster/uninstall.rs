//! The removal of an agent: the cluster leaves its control plane first, then everything here goes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use super::plan::OWNER_KIND;
use super::probe;
use super::registration::Identity;
use crate::api::labels::LABEL_INSTANCE;
use crate::api::names::ClusterName;
use crate::api::registration::{LEAVE_FAILED, Registration, state};
use crate::api::text::visible;
use crate::apply::{self, Engine, Removal, Removed};
use crate::install;
use crate::install::progress::Progress;

/// How long an agent may take to leave: it looks every 5 s, and the control plane forgets a cluster within seconds.
pub const LEAVING: Duration = Duration::from_secs(60);

/// An agent that is to go.
pub type Target<'a> = install::installed::Target<'a, ClusterName>;

/// How the cluster stands with its control plane after it was asked to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leave {
    /// The control plane has forgotten the cluster.
    Left,
    /// It never was registered from here.
    NotRegistered,
    /// The control plane may still know it; why, as a clause.
    Stays(String),
}

/// Returns whether the control plane may have a request of an agent without a certificate: one that is under way, or
/// that could not be taken back.
fn has_asked(said: &Registration) -> bool {
    said.is(state::REGISTERING) || said.is(state::BLOCKED) && said.reason == LEAVE_FAILED
}

fn deployments(client: &Client, namespace: &str) -> Api<Deployment> {
    Api::namespaced(client.clone(), namespace)
}

/// Asks the agent in a namespace to leave its control plane, and waits at most `limit` for its answer. A request that is
/// not met is taken back.
///
/// # Errors
/// A workload cluster that does not answer or refuses.
pub async fn leave(client: &Client, namespace: &str, limit: Duration) -> Result<Leave, kube::Error> {
    let identity = Identity::new(client, namespace);
    let before = identity.look().await?;
    if before.said.as_ref().is_some_and(|said| said.is(state::LEFT)) {
        return Ok(Leave::Left);
    }
    // Without a certificate it may be waiting to be let in: the control plane has a Cluster then.
    if !before.registered && !before.said.as_ref().is_some_and(has_asked) {
        return Ok(Leave::NotRegistered);
    }
    let agent = deployments(client, namespace).get_opt("fleet-agent").await?;
    if agent.and_then(|deployment| deployment.spec?.replicas).unwrap_or(0) == 0 {
        return Ok(Leave::Stays("no agent runs here that could say goodbye".to_owned()));
    }
    identity.ask_to_leave(true).await?;
    let why = match tokio::time::timeout(limit, identity.left(before.said.as_ref())).await {
        Ok(said) if said.is(state::LEFT) => return Ok(Leave::Left),
        Ok(said) => format!("the agent cannot tell the control plane: {}", visible(&said.message)),
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
    pub async fn installed(&self) -> Result<Option<String>, kube::Error> {
        let found = deployments(self.client, self.namespace.as_str()).get_opt("fleet-agent").await?;
        Ok(found.and_then(|deployment| deployment.labels().get(LABEL_INSTANCE).cloned()))
    }

    /// Asks the agent to leave the control plane, and waits for its answer. A request that is not met is taken back.
    ///
    /// # Errors
    /// A workload cluster that does not answer or refuses.
    pub async fn leave(&self) -> Result<Leave, kube::Error> {
        leave(self.client, self.namespace.as_str(), LEAVING.min(self.timeout)).await
    }

    /// What a removal would do, by reads alone.
    ///
    /// # Errors
    /// What would keep the engine from removing it.
    pub async fn plan(&self, progress: &Arc<dyn Progress>) -> Result<Removed, apply::Error> {
        self.worker(progress).plan_removal(Removal::default()).await
    }

    /// Removes everything of the agent and searches the cluster for left-overs. A namespace that an operator made stays.
    ///
    /// # Errors
    /// What the engine meets.
    pub async fn remove(&self, progress: &Arc<dyn Progress>) -> Result<Removed, apply::Error> {
        // One may be left of an install that was cut off; its life is limited all the same.
        let _ = probe::remove(self.client, self.namespace.as_str()).await;
        self.worker(progress).uninstall(Removal::default()).await
    }

    fn worker(&self, progress: &Arc<dyn Progress>) -> Engine {
        let charts = super::charts::charts(self.name, self.namespace, self.client);
        self.engine(OWNER_KIND, charts, self.home.agent_journal(self.name), progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_in_or_could_not_be_taken_back_is_not_forgotten() {
        let said = |state: &str, reason: &str| Registration {
            state: state.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            at: String::new(),
        };
        assert!(has_asked(&said(state::REGISTERING, "RequestPosted")));
        assert!(has_asked(&said(state::REGISTERING, "ControlPlaneUnreachable")));
        assert!(has_asked(&said(state::BLOCKED, "LeaveFailed")));
        assert!(!has_asked(&said(state::BLOCKED, "InitSecretMissing")));
        assert!(!has_asked(&said(state::REFUSED, "ClusterNameInUse")));
    }
}
