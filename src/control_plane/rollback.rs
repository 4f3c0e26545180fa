//! Undoing a run that was cut off: what it made goes, what it changed gets its former fields back.

use std::sync::Arc;

use super::installation;
use super::uninstall::Target;
use super::upgrade::UpgradeRefused;
use super::way_back;
use crate::apply::{self, RolledBack};
use crate::install::progress::Progress;

/// What became of a rollback.
#[derive(Debug)]
pub enum Outcome {
    /// No run was cut off; what is installed, if anything, stays.
    NothingToUndo {
        /// The service version that is installed.
        installed: Option<String>,
        /// The record of it is there; without, its labels tell the version.
        recorded: bool,
    },
    /// The run that was cut off was an uninstall: what it deleted is gone.
    WasUninstall {
        /// When it began.
        started: String,
        /// The service version that it removes, where it is known.
        version: Option<String>,
    },
    /// There is no way back, for this reason.
    Barred(UpgradeRefused),
    /// Undone, as far as the problems in it say.
    Undone {
        /// When the run began that was cut off; empty where only a namespace tells of it.
        started: String,
        /// What was undone, and what could not be.
        result: RolledBack,
        /// The service version that is installed again.
        installed: Option<String>,
    },
}

impl Target<'_> {
    /// Undoes the run that was cut off.
    ///
    /// # Errors
    /// [`apply::Error::Locked`] while that run is at work, and what the server refuses.
    pub async fn rollback(&self, progress: &Arc<dyn Progress>) -> Result<Outcome, apply::Error> {
        let engine = self.worker(progress);
        let mut waited = false;
        let (before, installed, result) = loop {
            let before = engine.state().await?;
            let installed = before
                .record
                .as_ref()
                .filter(|record| record.phase == apply::Phase::Installed)
                .map(|record| record.release.version.clone());
            if let Some(journal) = before.journal.as_ref().filter(|journal| journal.is_removal()) {
                let version = before.record.as_ref().map(|record| record.release.version.clone());
                return Ok(Outcome::WasUninstall { started: journal.started.clone(), version });
            }
            if let Some(refused) = way_back::from_journal(&engine, self.namespace, &before).await? {
                return Ok(Outcome::Barred(refused));
            }
            match engine.rollback_of(before.clone()).await {
                // A run that held the lock until now has gone on since.
                Err(apply::Error::PlanOutdated) if !waited => waited = true,
                result => break (before, installed, result?),
            }
        };
        if before.journal.is_none() && result.undone.is_empty() && result.problems.is_empty() {
            let recorded = installed.is_some();
            let installed = match installed {
                None => installation::labelled(self.client, self.name, self.namespace).await,
                recorded => recorded,
            };
            return Ok(Outcome::NothingToUndo { installed, recorded });
        }
        if result.problems.is_empty() {
            // Only what is empty by now goes: keys that `template` made, or a kubeconfig, stay.
            let _ = fs_err::remove_dir(self.home.control_plane(self.name));
        }
        let started = before.journal.map(|journal| journal.started).unwrap_or_default();
        Ok(Outcome::Undone { started, result, installed })
    }
}
