//! The last runs of an installation, as `fleetctl history` lists them.
//!
//! A run is noted by the write that takes its lock, and its outcome by the write that lets go of it: no request more. A
//! run that was killed stays [`Outcome::Started`].

use serde::{Deserialize, Serialize};

use super::lock::Holder;
use super::release::Release;

/// Number of runs that are remembered.
const REMEMBERED: usize = 10;

/// The command of a run that undoes another one.
pub(crate) const ROLLBACK: &str = "rollback";

/// Outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is in progress, or was killed.
    Started,
    /// It ended well.
    Succeeded,
    /// It failed; what it had changed was left for the next run.
    Failed,
    /// Another run found it killed.
    Interrupted,
    /// Its changes were undone.
    RolledBack,
}

/// One run that wrote something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// Counts from 1, over all runs of the installation.
    pub revision: u32,
    /// Time at which it began, before it took the lock, RFC 3339.
    pub started: String,
    /// Time at which it released the lock, RFC 3339; none while it runs, or where it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// User who ran it, and the host: `user@host`.
    pub by: String,
    /// Its command: `install`, `upgrade`, `uninstall`, `rollback`.
    pub command: String,
    /// The service version that it was to leave; empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The digest of the merged values; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub values_digest: String,
    /// Outcome of the run.
    pub outcome: Outcome,
}

/// The remembered runs, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History(pub Vec<Revision>);

impl History {
    /// Notes that a run has begun. Whoever still stands as begun was killed.
    pub(crate) fn begin_revision(&mut self, command: &str, holder: &Holder, release: Option<&Release>) {
        if let Some(last) = self.0.last_mut().filter(|last| last.outcome == Outcome::Started) {
            last.outcome = Outcome::Interrupted;
        }
        let revision = self.0.last().map_or(1, |last| last.revision.saturating_add(1));
        let mut begun = Revision {
            revision,
            started: holder.since.clone(),
            ended: None,
            by: format!("{}@{}", holder.user, holder.host),
            command: command.to_owned(),
            version: String::new(),
            values_digest: String::new(),
            outcome: Outcome::Started,
        };
        begun.set_release(release);
        self.0.push(begun);
        let surplus = self.0.len().saturating_sub(REMEMBERED);
        self.0.drain(..surplus);
    }

    /// Notes how the run in progress ended, and what it was to leave where that became known only since.
    pub(crate) fn end_revision(&mut self, outcome: Outcome, release: Option<&Release>) {
        if let Some(last) = self.0.last_mut().filter(|last| last.outcome == Outcome::Started) {
            last.ended = Some(jiff::Timestamp::now().to_string());
            last.set_release(release);
            last.outcome = outcome;
        }
    }

    /// Notes that what a run had changed is undone: by itself, or by the run in progress, which has then done its work.
    pub(crate) fn end_undone(&mut self, release: Option<&Release>) {
        match self.0.last() {
            Some(last) if last.command == ROLLBACK => self.end_revision(Outcome::Succeeded, None),
            _ => self.end_revision(Outcome::RolledBack, release),
        }
    }

    /// Forgets the run that has just begun: it wrote nothing after all.
    pub(crate) fn forget_begun(&mut self) {
        self.0.pop_if(|last| last.outcome == Outcome::Started);
    }
}

impl Revision {
    fn set_release(&mut self, release: Option<&Release>) {
        if let Some(release) = release {
            self.version.clone_from(&release.version);
            self.values_digest.clone_from(&release.values_digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(version: &str) -> Release {
        Release { version: version.to_owned(), values_digest: format!("of {version}"), ..Release::default() }
    }

    #[test]
    fn the_last_ten_runs_are_kept_with_their_numbers() {
        let mut history = History::default();
        for _ in 0..12 {
            history.begin_revision("install", &Holder::from_this_process(), None);
            history.end_revision(Outcome::Succeeded, Some(&release("v0.6.1")));
        }
        let numbers: Vec<u32> = history.0.iter().map(|run| run.revision).collect();
        assert_eq!(numbers, (3..=12).collect::<Vec<_>>());
        assert!(history.0.iter().all(|run| run.ended.is_some() && run.version == "v0.6.1"));
    }

    #[test]
    fn a_run_that_never_ended_was_interrupted_and_one_that_wrote_nothing_is_none() {
        let mut history = History::default();
        history.begin_revision("install", &Holder::from_this_process(), Some(&release("v0.6.1")));
        history.begin_revision("upgrade", &Holder::from_this_process(), None);
        assert_eq!((history.0[0].outcome, history.0[0].ended.as_deref()), (Outcome::Interrupted, None));
        history.forget_begun();
        assert_eq!(history.0.len(), 1);
        // What has ended is not ended again.
        history.end_revision(Outcome::Succeeded, None);
        assert_eq!(history.0[0].outcome, Outcome::Interrupted);
    }
}
