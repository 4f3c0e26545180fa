//! The removal of a control plane: reversible by default, with its data and its local folder only on request.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;

use super::health;
use super::keys;
use super::plan::OWNER_KIND;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::apply::{self, Engine, Owner, Removal, Removed};
use crate::check::inside::{self, Member};
use crate::install::home::Home;
use crate::install::progress::{self, Progress};

/// How long the control plane may take to say which workload clusters are registered.
const ASKING: Duration = Duration::from_secs(5);

/// Which control plane, where, and until when.
pub struct Target<'a> {
    /// Its name.
    pub name: &'a ControlPlaneName,
    /// Its namespace.
    pub namespace: &'a NamespaceName,
    /// The hosting cluster.
    pub client: &'a Client,
    /// The home directory of the service.
    pub home: &'a Home,
    /// Time for everything together.
    pub timeout: Duration,
    /// How long to wait for another run.
    pub lock_wait: Duration,
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("name", self.name).field("namespace", self.namespace).finish_non_exhaustive()
    }
}

impl Target<'_> {
    pub(super) fn engine(&self, progress: &Arc<dyn Progress>) -> Engine {
        let options = apply::Options {
            deadline: Some(Instant::now() + self.timeout),
            journal: Some(self.home.journal(self.name)),
            lock_wait: self.lock_wait,
            ..apply::Options::default()
        };
        let owner = Owner::new(OWNER_KIND, self.name.as_str(), self.namespace.as_str());
        Engine::new(self.client.clone(), owner, options, progress::events(progress))
    }

    /// The workload clusters that are registered, or why they could not be asked for.
    pub async fn members(&self) -> Result<Vec<Member>, String> {
        let kubeconfig = keys::admin_kubeconfig(self.client, self.namespace.as_str()).await;
        let kubeconfig = kubeconfig.map_err(|error| health::chain(&error))?;
        let Some(kubeconfig) = kubeconfig else { return Ok(Vec::new()) };
        let hub = health::hub(&kubeconfig).await?;
        match tokio::time::timeout(ASKING, inside::inside(&hub, self.namespace.as_str())).await {
            Ok(Ok(inside)) => Ok(inside.members),
            Ok(Err(error)) => Err(health::chain(&error)),
            Err(_) => Err(format!("no answer within {} s", ASKING.as_secs())),
        }
    }

    /// Whether an install of it has ever ended well: only then can workload clusters be registered.
    pub async fn is_complete(&self) -> bool {
        let owner = Owner::new(OWNER_KIND, self.name.as_str(), self.namespace.as_str());
        let engine = Engine::new(self.client.clone(), owner, apply::Options::default(), apply::Events::none());
        // A record that cannot be read is no proof that there is nothing to lose.
        engine
            .state()
            .await
            .map_or(true, |state| state.record.is_some_and(|record| record.phase == apply::Phase::Installed))
    }

    /// What a removal would do, by reads alone.
    pub async fn plan(&self, removal: Removal, progress: &Arc<dyn Progress>) -> Result<Removed, apply::Error> {
        self.engine(progress).plan_removal(removal).await
    }

    /// Removes it and searches the cluster for left-overs.
    pub async fn remove(&self, removal: Removal, progress: &Arc<dyn Progress>) -> Result<Removed, apply::Error> {
        self.engine(progress).uninstall(removal).await
    }

    /// Removes the local folder; gives its path when there was one.
    pub fn remove_folder(&self) -> std::io::Result<Option<PathBuf>> {
        let folder = self.home.control_plane(self.name);
        match fs_err::remove_dir_all(&folder) {
            Ok(()) => Ok(Some(folder)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
