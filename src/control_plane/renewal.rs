//! A renewal of certificates that an operator starts: by this machine, by the Job of the hosting cluster, or the proof
//! alone where others make the keys.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;

use super::certificate_status::{HostingCertificates, read_hosting_certificates};
use super::renewal_job::{RenewalError, run_renewal_job};
use super::values::PkiSource;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::certificates::KeysError;
use crate::certificates::complete::{KeyTarget, KeysDone, list_ended_authorities};
use crate::certificates::renew::{Outside, ROLL_AFTER, Renewed};
use crate::pki::{Choice, Completed, PkiError};

/// Time between two looks at the Secrets that a Job writes.
const POLL: Duration = Duration::from_secs(2);

/// Who renews the certificates of a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewer {
    /// This machine, which made the keys.
    Machine,
    /// A Job of the hosting cluster, because no key leaves that.
    Job,
    /// The owner of this Secret.
    Others(String),
}

impl Renewer {
    /// Returns who renews what was found.
    pub fn of_keys(found: &HostingCertificates) -> Self {
        match (&found.existing, found.source) {
            (Some(secret), _) => Self::Others(secret.clone()),
            (None, PkiSource::InCluster) => Self::Job,
            (None, _) => Self::Machine,
        }
    }
}

/// A renewal that an operator starts.
pub struct Renewal<'a> {
    /// Client of the hosting cluster.
    pub client: &'a Client,
    /// The control plane.
    pub name: &'a ControlPlaneName,
    /// Its namespace.
    pub namespace: &'a NamespaceName,
    /// The certificates that are issued again.
    pub choice: Choice,
    /// Whether the operator's certificate gets a new key.
    pub new_admin_key: bool,
    /// Whether nothing of the control plane has to work.
    pub recovers: bool,
    /// Time for a Job.
    pub timeout: Duration,
    /// Gets what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Send + Sync),
}

impl std::fmt::Debug for Renewal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewal").field("name", self.name).field("choice", &self.choice).finish_non_exhaustive()
    }
}

impl Renewal<'_> {
    /// The key set that a renewal would write, with the reasons.
    ///
    /// # Errors
    /// [`PkiError`] for keys that cannot be used.
    pub fn plan(&self, found: &HostingCertificates, now: Timestamp) -> Result<Completed, PkiError> {
        self.target(found)?.complete(&found.files, now)
    }

    fn target(&self, found: &HostingCertificates) -> Result<KeyTarget, PkiError> {
        let target = KeyTarget::from_present(self.name, self.namespace, &found.files, self.choice.clone())?;
        Ok(KeyTarget { new_admin_key: self.new_admin_key, ..target })
    }

    /// Renews, and waits until every pod serves the new certificates.
    ///
    /// # Errors
    /// [`RenewalError`]; the same call continues where it stopped.
    pub async fn run(&self, found: &HostingCertificates) -> Result<Renewed, RenewalError> {
        let outside = Outside {
            client: self.client,
            name: self.name,
            namespace: self.namespace,
            recovers: self.recovers,
            was_failed: found.summary.failed.is_some(),
            roll_after: ROLL_AFTER,
            waiting: self.waiting,
        };
        let ended_authorities = list_ended_authorities(&found.files, Timestamp::now());
        let files = match Renewer::of_keys(found) {
            Renewer::Machine => {
                let target = self.target(found).map_err(KeysError::from)?;
                return Ok(outside.renew(&target).await?);
            }
            Renewer::Others(_) => found.files.clone(),
            Renewer::Job => {
                self.run_job(found).await?;
                read_hosting_certificates(self.client, self.name, self.namespace).await?.files
            }
        };
        let (renewed, _) = outside.prove(KeysDone { ended_authorities, files, ..KeysDone::default() }).await?;
        Ok(renewed)
    }

    /// Runs the Job to its end. If certificates have ended, pods may have to be replaced before it can end: then only
    /// until they are renewed.
    async fn run_job(&self, found: &HostingCertificates) -> Result<(), RenewalError> {
        let now = Timestamp::now();
        let is_due = self.plan(found, now).map_err(KeysError::from)?;
        if is_due.is_unchanged() && found.summary.failed.is_none() {
            return Ok(());
        }
        let all = self.choice == Choice::All;
        let job = run_renewal_job(self.client, self.name, self.namespace, all, self.timeout);
        if !self.recovers || !found.list_held().iter().any(|held| held.not_after <= now) {
            return job.await;
        }
        tokio::select! {
            ended = job => ended,
            written = self.wait_until_written() => written,
        }
    }

    async fn wait_until_written(&self) -> Result<(), RenewalError> {
        loop {
            tokio::time::sleep(POLL).await;
            let found = read_hosting_certificates(self.client, self.name, self.namespace).await?;
            if !found.list_held().iter().any(|held| held.not_after <= Timestamp::now()) {
                return Ok(());
            }
        }
    }
}
