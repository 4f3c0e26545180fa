//! A restore: the store of a control plane is replaced by that of a backup, while nobody can reach its API.
//!
//! ```text
//! check    archive, keys, versions and room (check.rs); nothing is written
//! fence    nobody is led to the API server; scheduler, controller manager and API server are stopped (fence.rs)
//! prepare  etcd is stopped; each member's volume gets a second store beside the first (pods.rs, send.rs)
//! swap     the two are renamed; the last stage that a rollback undoes
//! start    etcd agrees with itself; the API server, reached by port-forward only, is told to hold deletions (start.rs)
//! open     controllers run again, and everybody is led to the API server
//! ```
//!
//! A control plane that is lost is installed again from its backup before that (rebuild.rs): it has the same keys, and its
//! record says which backup it waits for.
//!
//! A rehearsal (rehearse.rs, rehearsal_pod.rs) starts a backup beside the control plane, and changes nothing of it.
//!
//! The stage is written into the record's Secret before it begins, and each can be repeated. So the same command
//! continues after an interruption, wherever that was.

mod archive_parts;
mod check;
mod components;
mod error;
mod facts;
mod fence;
mod hold;
mod pod_parts;
mod pods;
mod rebuild;
mod rehearsal_pod;
mod rehearse;
mod send;
mod site;
mod stage;
mod start;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;

pub use self::check::{RestoreEffects, precheck_restore, restore_rights};
pub use self::error::RestoreError;
pub use self::facts::RestoreFacts;
pub use self::hold::{read_deletion_hold, release_hold};
use self::pods::{StoreWork, run_store_pods};
pub use self::rebuild::{LostPlane, RebuildStage};
pub use self::rehearse::rehearsal_rights;
use self::site::StoreSite;
pub use self::stage::RestoreStage;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::util::text::visible_cell;
use crate::apply::Engine;
use crate::backup::{Opening, Verified};
use crate::check::installed::FormerStores;
use crate::control_plane::plan::OWNER_KIND;
use crate::install::progress::Progress;
use crate::inventory::release::random_id;
use crate::inventory::{HeldLock, Operation, OperationRun, OperationTarget, Owner};
use crate::k8s::Events;
use crate::k8s::request::server::Server;

/// The command, as it is recorded.
const COMMAND: &str = "restore";
/// Field manager of what a restore changes for its own time.
const RESTORE_MANAGER: &str = "fleetctl-restore";
/// Time between two looks at what is waited for.
const POLL: Duration = Duration::from_secs(1);

/// The archive that is restored. It was verified as a whole.
#[derive(Debug)]
pub struct ArchiveSource {
    /// The file.
    pub path: PathBuf,
    /// What opens it.
    pub opening: Arc<Opening>,
    /// What is in it.
    pub verified: Verified,
}

/// The control plane that is restored.
#[derive(Clone)]
pub struct RestoreTarget<'a> {
    /// The hosting cluster.
    pub client: &'a Client,
    /// Name of the control plane.
    pub name: &'a ControlPlaneName,
    /// Its namespace.
    pub namespace: &'a NamespaceName,
    /// Time to wait for another run's lock.
    pub lock_wait: Duration,
    /// Time at which waits end.
    pub deadline: Instant,
    /// The lock; whoever shares it can release it.
    pub held: HeldLock,
    /// Gets stages and what they wait for.
    pub progress: &'a Arc<dyn Progress>,
}

impl std::fmt::Debug for RestoreTarget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestoreTarget").field("name", self.name).finish_non_exhaustive()
    }
}

/// Finds the former stores that a complete restore has left, by the last operation on a control plane.
pub fn find_former_stores(operation: &Operation) -> Option<FormerStores> {
    if operation.command != COMMAND || operation.open {
        return None;
    }
    let bytes = RestoreFacts::of_operation(operation).ok().and_then(|facts| facts.former_bytes);
    Some(FormerStores { since: visible_cell(&operation.started).into_owned(), bytes })
}

/// Returns whether an operation is a restore of this archive.
fn is_restore_of(operation: &Operation, sha256: &str) -> bool {
    operation.command == COMMAND && RestoreFacts::of_operation(operation).is_ok_and(|facts| facts.archive == sha256)
}

impl RestoreTarget<'_> {
    fn owner(&self) -> Owner {
        Owner::new(OWNER_KIND, self.name.as_str(), self.namespace.as_str())
    }

    /// The operation that was begun last on this control plane, open or not.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub async fn find_operation(&self) -> Result<Option<Operation>, RestoreError> {
        let state = Engine::new_reader(self.client.clone(), self.owner()).read_state().await?;
        Ok(state.operation)
    }

    async fn begin_operation(&self, operation: &Operation) -> Result<OperationRun, RestoreError> {
        let server = Server::new(self.client.clone(), Events::none());
        let (owner, held) = (self.owner(), &self.held);
        let target = OperationTarget { server: &server, owner: &owner, lock_wait: self.lock_wait, held };
        Ok(target.begin_operation(operation).await?)
    }

    /// Lets go of the lock of a run that stopped.
    ///
    /// # Errors
    /// What the server refuses; the lock then ends by itself.
    pub async fn release_lock(&self) -> Result<(), RestoreError> {
        let server = Server::new(self.client.clone(), Events::none());
        let (owner, held) = (self.owner(), &self.held);
        let target = OperationTarget { server: &server, owner: &owner, lock_wait: self.lock_wait, held };
        Ok(target.release_operation().await?)
    }

    /// Restores an archive, or continues with a restore of it that was interrupted. Returns when everybody is led to
    /// the API server again.
    ///
    /// # Errors
    /// [`RestoreError`]. The same call continues where it stopped.
    pub async fn restore_archive(&self, source: &ArchiveSource, forget: &[String]) -> Result<(), RestoreError> {
        let mut operation = self.open_restore(source, forget).await?;
        let mut facts = RestoreFacts::of_operation(&operation)?;
        let first = RestoreFacts::find_stage(&operation)?;
        let run = self.begin_operation(&operation).await?;
        for stage in RestoreStage::ALL.into_iter().filter(|stage| *stage >= first) {
            stage.name().clone_into(&mut operation.stage);
            run.write_operation(&operation).await?;
            self.progress.begin_step(stage.title());
            match stage {
                RestoreStage::Fence => self.fence_api().await?,
                RestoreStage::Prepare => self.prepare_stores(source, &facts, &operation.run).await?,
                RestoreStage::Swap => {
                    facts.former_bytes = self.run_on_stores(&facts, &StoreWork::Swap, &operation.run).await?;
                    operation.facts = facts.to_value();
                }
                RestoreStage::Start => self.start_api(&facts).await?,
                RestoreStage::Open => self.open_api(&facts).await?,
            }
        }
        operation.open = false;
        Ok(run.end_operation(Some(&operation)).await?)
    }

    /// The restore of this archive that is open, else a new one.
    async fn open_restore(&self, source: &ArchiveSource, forget: &[String]) -> Result<Operation, RestoreError> {
        if let Some(open) = self.find_operation().await?.filter(|operation| operation.open) {
            if is_restore_of(&open, &source.verified.sha256) {
                Ok(open)
            } else {
                Err(RestoreError::OperationOpen(Box::new(open)))
            }
        } else {
            let facts = RestoreFacts::collect(self, source, forget).await?;
            Ok(Operation::new(COMMAND, random_id(), RestoreStage::Fence.name(), facts.to_value()))
        }
    }

    /// Undoes a restore that is open: the former stores come back, and everything runs as before.
    ///
    /// # Errors
    /// [`RestoreError::PastRollback`] behind stage `swap`, [`RestoreError::NothingOpen`].
    pub async fn roll_restore_back(&self) -> Result<(), RestoreError> {
        let found = self.find_operation().await?;
        let mut operation = found.filter(|one| one.open && one.command == COMMAND).ok_or(RestoreError::NothingOpen)?;
        let facts = RestoreFacts::of_operation(&operation)?;
        if let Some(stage) = RestoreStage::from_name(&operation.stage).filter(|stage| *stage > RestoreStage::Swap) {
            return Err(RestoreError::PastRollback(stage));
        }
        // Of what was only fenced, no volume was touched.
        let has_stores = operation.stage != RestoreStage::Fence.name();
        let run = self.begin_operation(&operation).await?;
        if has_stores {
            stage::ROLLBACK.clone_into(&mut operation.stage);
            run.write_operation(&operation).await?;
            self.progress.begin_step("Putting the former etcd data back");
            self.stop_etcd().await?;
            self.run_on_stores(&facts, &StoreWork::Rollback, &operation.run).await?;
        }
        self.progress.begin_step("Starting etcd and the API server");
        self.start_etcd(&facts).await?;
        self.start_api_server(&facts).await?;
        self.progress.begin_step(RestoreStage::Open.title());
        self.open_api(&facts).await?;
        Ok(run.end_operation(None).await?)
    }

    /// Deletes the former stores that a restore has kept.
    ///
    /// # Errors
    /// [`RestoreError::NothingToCommit`] where no restore is complete.
    pub async fn commit_restore(&self) -> Result<(), RestoreError> {
        let found = self.find_operation().await?;
        if let Some(open) = found.as_ref().filter(|operation| operation.open) {
            return Err(RestoreError::OperationOpen(Box::new(open.clone())));
        }
        let operation = found.filter(|one| one.command == COMMAND).ok_or(RestoreError::NothingToCommit)?;
        let facts = RestoreFacts::of_operation(&operation)?;
        let run = self.begin_operation(&operation).await?;
        self.progress.begin_step("Deleting the former etcd data");
        self.run_on_stores(&facts, &StoreWork::Commit, &operation.run).await?;
        Ok(run.end_operation(None).await?)
    }

    async fn prepare_stores(
        &self,
        source: &ArchiveSource,
        facts: &RestoreFacts,
        run: &str,
    ) -> Result<(), RestoreError> {
        self.stop_etcd().await?;
        let site = StoreSite::read_from_cluster(self.client, self.name, self.namespace, facts.members()).await?;
        let work = StoreWork::Prepare { snapshot_bytes: source.verified.header.snapshot_bytes };
        run_store_pods(self, &site, &work, run, Some(source)).await.map(drop)
    }

    async fn run_on_stores(
        &self,
        facts: &RestoreFacts,
        work: &StoreWork,
        run: &str,
    ) -> Result<Option<u64>, RestoreError> {
        let site = StoreSite::read_from_cluster(self.client, self.name, self.namespace, facts.members()).await?;
        run_store_pods(self, &site, work, run, None).await
    }

    /// Fails with what is waited for, once the time has passed; else waits a moment.
    async fn wait_a_moment(&self, what: &str) -> Result<(), RestoreError> {
        if Instant::now() + POLL >= self.deadline {
            return Err(RestoreError::TimedOut(what.to_owned()));
        }
        self.progress.update_step(what);
        tokio::time::sleep(POLL).await;
        Ok(())
    }
}
