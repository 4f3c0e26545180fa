//! The removal of a control plane: reversible by default, with its data and its local folder only on request.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::health;
use super::keys;
use super::plan::OWNER_KIND;
use super::secrets::ADMIN_SECRET;
use super::way_back;
use crate::api::brief::Age;
use crate::api::names::ControlPlaneName;
use crate::apply::{self, Engine, Removal, Removed};
use crate::check::inside::{self, Member};
use crate::install;
use crate::install::progress::Progress;

/// How long the control plane may take to say which workload clusters are registered.
const ASKING: Duration = Duration::from_secs(5);

/// A control plane that is to go.
pub type Target<'a> = install::target::Target<'a, ControlPlaneName>;

impl Target<'_> {
    pub(super) fn worker(&self, progress: &Arc<dyn Progress>) -> Engine {
        self.engine(OWNER_KIND, self.home.journal(self.name), progress)
    }

    /// The workload clusters that are registered, or why they could not be asked for.
    pub async fn members(&self) -> Result<Vec<Member>, String> {
        let kubeconfig = keys::admin_kubeconfig(self.client, self.namespace.as_str(), self.name.as_str()).await;
        let kubeconfig = kubeconfig.map_err(|error| health::chain(&error))?;
        let Some(kubeconfig) = kubeconfig else {
            // Its data may know some all the same.
            let state = self.reader(OWNER_KIND).state().await.map_err(|error| health::chain(&error))?;
            return match state.record.map(|record| record.phase) {
                None => Ok(Vec::new()),
                Some(apply::Phase::Removed) => Err("it does not run any more".to_owned()),
                Some(apply::Phase::Installed) => Err(format!("Secret {ADMIN_SECRET} is gone")),
            };
        };
        let hub = health::hub(&kubeconfig).await?;
        match tokio::time::timeout(ASKING, inside::members(&hub, Age::Now)).await {
            Ok(members) => members.map_err(|error| health::chain(&error)),
            Err(_) => Err(format!("no answer within {} s", ASKING.as_secs())),
        }
    }

    /// Whether an install of it has ended well and no removal has begun: only then may it be expected to answer.
    pub async fn is_complete(&self) -> bool {
        // A record that cannot be read is no proof that there is nothing to lose.
        self.reader(OWNER_KIND)
            .state()
            .await
            .map_or(true, |state| state.record.is_some_and(|record| record.phase == apply::Phase::Installed))
    }

    /// What a removal would do, by reads alone.
    pub async fn plan(&self, removal: Removal, progress: &Arc<dyn Progress>) -> Result<Removed, apply::Error> {
        self.worker(progress).plan_removal(removal).await
    }

    /// Removes it and searches the cluster for left-overs.
    pub async fn remove(&self, removal: Removal, progress: &Arc<dyn Progress>) -> Result<Removed, apply::Error> {
        let engine = self.worker(progress);
        let state = engine.state().await?;
        // What cannot be seen keeps nothing from being removed.
        let data_version = way_back::version_of_data(&engine, self.namespace, &state).await.unwrap_or_default();
        engine.uninstall(Removal { data_version, ..removal }).await
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
