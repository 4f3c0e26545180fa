//! A long operation at work: it is recorded before each stage, so that the same command continues after an
//! interruption. While one is open, no other command changes the installation.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::error::Error;
use super::history::Outcome;
use super::lock::{HeldLock, Holder};
use super::locked_store::LockedStore;
use super::operation::Operation;
use super::owner::Owner;
use super::store::{LockOptions, Store, load_state};
use crate::k8s::request::server::Server;

/// An operation at work. It holds the lock of the installation until it ends.
#[derive(Debug)]
pub struct OperationRun {
    store: LockedStore,
}

/// The installation, and how long another run's lock is waited for.
#[derive(Debug)]
pub struct OperationTarget<'a> {
    /// The hosting cluster.
    pub server: &'a Server,
    /// The installation.
    pub owner: &'a Owner,
    /// Time to wait for another run's lock.
    pub lock_wait: Duration,
    /// The lock; whoever shares it can release it.
    pub held: &'a HeldLock,
}

impl OperationTarget<'_> {
    /// Takes the lock and writes an operation down, in one write.
    ///
    /// # Errors
    /// [`Error::Locked`]; what the server refuses.
    pub async fn begin_operation(&self, operation: &Operation) -> Result<OperationRun, Error> {
        let seen = load_state(self.server, self.owner).await?;
        let holder = Holder::from_this_process();
        let options = LockOptions {
            wait: self.lock_wait,
            holder: &holder,
            held: self.held,
            begun: &AtomicBool::new(false),
            goes_on_with: Some(&operation.run),
        };
        let store = Store::acquire_lock(self.server, self.owner, options, &seen, |state| {
            state.note_operation(operation);
            state.history.begin_revision(&operation.command, &holder, None);
        })
        .await?;
        Ok(OperationRun { store: LockedStore::new(store) })
    }

    /// Lets go of the lock of an operation that stopped. What was recorded is kept.
    ///
    /// # Errors
    /// What the server refuses; the lock then ends by itself.
    pub async fn release_operation(&self) -> Result<(), Error> {
        Store::release_lock(self.server, self.owner, self.held).await
    }
}

impl OperationRun {
    /// Writes the operation down, as it is now.
    ///
    /// # Errors
    /// [`Error::LockLost`]; what the server refuses.
    pub async fn write_operation(&self, operation: &Operation) -> Result<(), Error> {
        self.store.lock_store().await.update_state(|state| state.operation = Some(operation.clone())).await
    }

    /// Ends the operation: it is recorded as this, or forgotten, and the lock is released.
    ///
    /// # Errors
    /// As for [`OperationRun::write_operation`].
    pub async fn end_operation(self, last: Option<&Operation>) -> Result<(), Error> {
        let mut store = self.store.lock_store().await;
        store
            .finish_run(|state| {
                state.operation = last.cloned();
                state.history.end_revision(Outcome::Succeeded, None);
            })
            .await
    }
}
