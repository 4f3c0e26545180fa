//! A long operation on an installation, of several stages: it is written down before each stage, so that the same command goes
//! on after an interruption. While one is open, no other command changes the installation.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::Error;
use super::history::Outcome;
use super::lock::{HeldLock, Holder};
use super::locked_store::LockedStore;
use super::owner::Owner;
use super::store::{LockOptions, Store, load_state};
use crate::api::util::text::visible_cell;
use crate::k8s::request::server::Server;

/// An operation as the Secret of the record has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Its command, such as `restore`.
    pub command: String,
    /// Random id: hexadecimal digits.
    pub run: String,
    /// The stage that was begun last.
    pub stage: String,
    /// Whether other commands have to wait.
    pub open: bool,
    /// Time at which it began, RFC 3339.
    pub started: String,
    /// User who began it, and the host.
    pub by: String,
    /// What the command has to remember. Never a secret.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub facts: Value,
}

impl Operation {
    /// A new operation of this process.
    pub fn new(command: &str, run: String, stage: &str, facts: Value) -> Self {
        let holder = Holder::from_this_process();
        Self {
            command: command.to_owned(),
            run,
            stage: stage.to_owned(),
            open: true,
            started: holder.since,
            by: format!("{}@{}", holder.user, holder.host),
            facts,
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [command, stage, started, by] =
            [&self.command, &self.stage, &self.started, &self.by].map(|text| visible_cell(text));
        write!(f, "a {command}, in stage {stage}, begun at {started} by {by}")
    }
}

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
    /// The lock; whoever shares it can let go of it.
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
            state.operation = Some(operation.clone());
            state.history.begin_revision(&operation.command, &holder, None);
        })
        .await?;
        Ok(OperationRun { store: LockedStore::new(store) })
    }

    /// Lets go of the lock of an operation that stopped. What was written down is kept.
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

    /// Ends the operation: it is written down as this, or forgotten, and the lock is let go of.
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
