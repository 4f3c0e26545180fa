//! The heartbeat: a Lease in the control plane, renewed by a task and a connection of its own, so that nothing else
//! that the agent does can delay it.
//!
//! Of two live agents with one identity (a cloned cluster, two replicas) one holds the Lease and is active, the other is
//! passive. A holder that stops releases the Lease.
//!
//! A container that is restarted in its pod takes at once the Lease that it held before, as the identity is the pod's. Clones
//! of a pod have that identity as well, so a Lease with our identity is ours only as long as every write to it is our own.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::labels::{AGENT_LEASE, ANNOTATION_CERTIFICATE_END, cluster_namespace};
use crate::api::lost_cluster_timeout::{LEASE_DURATION, LEASE_RENEW_INTERVAL};
use crate::api::util::text::visible_cell;
use crate::daemon::log::OnChange;
use crate::daemon::metrics::Metrics;
use crate::k8s::backoff::add_jitter;
use crate::k8s::connect::connect_error::{Hop, classify_hop};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::resource_version::is_before;

/// Part of the Lease's duration that may have passed unobserved: by what clocks claim, or while requests failed. The
/// rest, longer than the time between two renewals, must be observed.
const MAX_UNOBSERVED: Duration = Duration::from_secs(28);
/// Number of renewals without an answer that are remembered: with [`RETRY`] between them, those of minutes.
const MAX_UNANSWERED: usize = 100;
/// Time to the next attempt after one that failed.
const RETRY: Duration = Duration::from_secs(2);

/// Status of the Lease, as this agent sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseStatus {
    /// No attempt yet.
    Starting,
    /// We hold the Lease.
    Held,
    /// Another agent with our identity holds it.
    Passive {
        /// Its identity.
        holder: String,
    },
    /// Renewals fail.
    Failing {
        /// Hop of the connection that fails.
        hop: &'static str,
        /// The error.
        error: String,
        /// The control plane does not accept our certificate.
        refused: bool,
    },
}

/// The Lease as last observed.
#[derive(Debug, Clone)]
struct RenewalObserved {
    lease: Lease,
    since: Instant,
    /// It is held by us, and not by another process with our identity.
    owned: bool,
}

impl RenewalObserved {
    /// Returns true where we may write it.
    fn may_take(&self, now: Instant) -> bool {
        self.owned || lease_holder(&self.lease).is_empty() || now.duration_since(self.since) >= LEASE_DURATION
    }
}

fn lease_holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()).unwrap_or_default()
}

fn renew_time(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

/// Renews the Lease of one cluster.
pub struct LeaseRenewer {
    api: Api<Lease>,
    identity: String,
    observed: Option<RenewalObserved>,
    /// The Lease was ours at some time.
    held: bool,
    /// Renewals without an answer: they may be written nevertheless, as long as the Lease has the version that they
    /// replace.
    unanswered: Vec<Timestamp>,
    /// The last call succeeded, so that the observation has no gap.
    observing: bool,
    /// The Lease is older than it was.
    restored: bool,
    /// End of our certificate.
    certificate_end: Option<Timestamp>,
    status: watch::Sender<LeaseStatus>,
    metrics: Metrics,
    logged: OnChange,
}

impl LeaseRenewer {
    /// Creates the renewer of the cluster `name`.
    pub fn new(
        client: Client,
        name: &str,
        identity: String,
        status: watch::Sender<LeaseStatus>,
        metrics: Metrics,
    ) -> Self {
        let api = Api::namespaced(client, &cluster_namespace(name));
        let (observed, unanswered, logged) = (None, Vec::new(), OnChange::default());
        let (held, observing, restored) = (false, false, false);
        let certificate_end = None;
        Self {
            api,
            identity,
            observed,
            held,
            unanswered,
            observing,
            restored,
            certificate_end,
            status,
            metrics,
            logged,
        }
    }

    /// The same, which reports the end of our certificate, in seconds of Unix time.
    #[must_use]
    pub fn with_certificate_end(self, seconds: i64) -> Self {
        Self { certificate_end: Timestamp::from_second(seconds).ok(), ..self }
    }

    /// Renews until dropped, or until the Lease is older than it was: then the control plane's store was restored from
    /// a backup, and whoever watches it has to read everything again, because a watch that continues from a later
    /// version stays silent.
    pub async fn run(&mut self) {
        loop {
            let started = Instant::now();
            let renewed = self.renew_lease().await;
            if std::mem::take(&mut self.restored) {
                tracing::warn!("the control plane's store was restored to an older state; reading everything again");
                return;
            }
            let status = match renewed {
                Ok(status) => status,
                Err(error) => {
                    let hop = classify_hop(&error);
                    let refused = matches!(hop, Hop::Unauthorized | Hop::Forbidden);
                    LeaseStatus::Failing { hop: hop.as_str(), error: error.to_string(), refused }
                }
            };
            let next = match &status {
                LeaseStatus::Held => add_jitter(LEASE_RENEW_INTERVAL, 0.1).saturating_sub(started.elapsed()),
                _ => add_jitter(RETRY, 0.3),
            };
            self.report_lease_status(&status);
            self.status.send_replace(status);
            tokio::time::sleep(next).await;
        }
    }

    /// Counts and logs.
    fn report_lease_status(&self, status: &LeaseStatus) {
        let result = match status {
            LeaseStatus::Held => "ok",
            LeaseStatus::Passive { .. } => "passive",
            _ => "failed",
        };
        let passive = f64::from(u8::from(result == "passive"));
        self.metrics.set_gauge("fleet_agent_identity_conflict", "Whether another agent has the Lease.", &[], passive);
        self.metrics.increment_counter("fleet_agent_heartbeats_total", "Renewals of the Lease.", &[("result", result)]);
        let summary = match status {
            LeaseStatus::Failing { hop, .. } => format!("failing {hop}"),
            other => format!("{other:?}"),
        };
        if !self.logged.record_if_changed("status", &summary) {
            return;
        }
        match status {
            LeaseStatus::Starting => {}
            LeaseStatus::Held => tracing::info!("Lease held"),
            LeaseStatus::Passive { holder } => {
                tracing::warn!(
                    reason = "IdentityConflict",
                    holder,
                    "another agent has this cluster's Lease; standing by"
                );
            }
            LeaseStatus::Failing { hop, error, .. } => tracing::warn!(hop, error, "renewal of the Lease failed"),
        }
    }

    async fn renew_lease(&mut self) -> Result<LeaseStatus, CallError> {
        let status = self.try_renew().await;
        self.observing = status.is_ok();
        status
    }

    /// Renews the Lease. The observation is retained through errors: without it the clocks would be believed once more.
    async fn try_renew(&mut self) -> Result<LeaseStatus, CallError> {
        let observed = match self.observed.clone() {
            // While we hold it, our own last write is the newest version, unless somebody interferes.
            Some(observed) if self.observing && observed.owned => observed,
            before => self.observe_renewal(before).await?,
        };
        if !observed.may_take(Instant::now()) {
            return Ok(self.passive_status(&observed.lease));
        }
        // In the precision of the server, so that it can be recognised.
        let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap_or_default();
        let mut lease = renewed_lease(&observed.lease, &self.identity, now);
        if let Some(end) = self.certificate_end {
            let annotations = lease.metadata.annotations.get_or_insert_default();
            annotations.insert(ANNOTATION_CERTIFICATE_END.to_owned(), end.to_string());
        }
        self.record_sent(now);
        let started = Instant::now();
        let lease = call_with_timeout(self.api.replace(AGENT_LEASE, &PostParams::default(), &lease)).await;
        self.metrics.observe_duration(
            "fleet_agent_heartbeat_seconds",
            "Duration of a renewal of the Lease.",
            started.elapsed(),
        );
        match lease {
            Ok(lease) => {
                self.unanswered.clear();
                self.held = true;
                self.observed = Some(RenewalObserved { lease, since: Instant::now(), owned: true });
                Ok(LeaseStatus::Held)
            }
            // Somebody wrote in between, or we did without receiving the answer.
            Err(e) if e.is_conflict() => {
                let now = self.observe_renewal(Some(observed)).await?;
                if now.may_take(Instant::now()) { Err(e) } else { Ok(self.passive_status(&now.lease)) }
            }
            Err(e) => Err(e),
        }
    }

    fn passive_status(&self, lease: &Lease) -> LeaseStatus {
        let holder = lease_holder(lease);
        // Whoever has our certificate may have written anything.
        let shown = visible_cell(holder);
        LeaseStatus::Passive {
            holder: if holder == self.identity { format!("another {shown}") } else { shown.into_owned() },
        }
    }

    /// Records a renewal that is about to be sent. The oldest one without an answer cannot be in flight any more after so many
    /// others.
    fn record_sent(&mut self, renewal: Timestamp) {
        if self.unanswered.len() >= MAX_UNANSWERED {
            self.unanswered.remove(0);
        }
        self.unanswered.push(renewal);
    }

    async fn observe_renewal(&mut self, before: Option<RenewalObserved>) -> Result<RenewalObserved, CallError> {
        let lease = call_with_timeout(self.api.get(AGENT_LEASE)).await?;
        let now = Instant::now();
        let observed = match before {
            Some(observed) if observed.lease.metadata.resource_version == lease.metadata.resource_version => {
                let since = if self.observing {
                    observed.since
                } else {
                    observed.since.max(unobserved_since(now, MAX_UNOBSERVED))
                };
                RenewalObserved { since, ..observed }
            }
            before => {
                self.restored |= before.as_ref().is_some_and(|before| is_before(&lease, &before.lease));
                let owned = lease_holder(&lease) == self.identity && self.is_own_renewal(&lease, before.as_ref());
                // Writes that replace an older version are refused from now on.
                self.unanswered.clear();
                let since = match before {
                    Some(_) => now,
                    // The successor of an agent that died long ago need not wait for the whole duration of its Lease.
                    None => unobserved_since(now, lease_age(&lease, Timestamp::now())),
                };
                RenewalObserved { lease, since, owned }
            }
        };
        self.held |= observed.owned;
        self.observed = Some(observed.clone());
        Ok(observed)
    }

    /// Returns true where a Lease with our identity was renewed by ourselves; the first time, by whoever had that identity
    /// before us. A Lease that is not newer than our last renewal was only edited, or comes from a backup of the control
    /// plane; if it was another process, the one whose clock is behind becomes passive.
    fn is_own_renewal(&self, lease: &Lease, before: Option<&RenewalObserved>) -> bool {
        let renewed = renew_time(lease);
        let old = before.is_some_and(|observed| observed.owned && renewed <= renew_time(&observed.lease));
        !self.held || old || renewed.is_some_and(|at| self.unanswered.contains(&at))
    }

    /// Removes our identity from the Lease, so that our successor need not wait.
    pub async fn release_own_lease(&mut self) {
        let Some(observed) = self.observed.take().filter(|observed| observed.owned) else { return };
        // The time is retained: a release is no renewal.
        let mut lease = observed.lease;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
        }
        if let Err(error) = call_with_timeout(self.api.replace(AGENT_LEASE, &PostParams::default(), &lease)).await {
            tracing::debug!(%error, "releasing the Lease failed");
        }
    }
}

/// Returns the time of a renewal that was `age` ago, of which at most [`MAX_UNOBSERVED`] is believed.
fn unobserved_since(now: Instant, age: Duration) -> Instant {
    now.checked_sub(age.min(MAX_UNOBSERVED)).unwrap_or(now)
}

/// Returns the age of a Lease by its own time. Clocks can differ, so it is used at the first observation only, and in part.
fn lease_age(lease: &Lease, now: Timestamp) -> Duration {
    renew_time(lease).map_or(Duration::ZERO, |at| Duration::try_from(now.duration_since(at)).unwrap_or_default())
}

fn renewed_lease(lease: &Lease, identity: &str, now: Timestamp) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    let same = before.holder_identity.as_deref() == Some(identity);
    let mut next = lease.clone();
    next.metadata.managed_fields = None;
    next.spec = Some(LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
        acquire_time: if same { before.acquire_time } else { Some(MicroTime(now)) },
        lease_transitions: Some(before.lease_transitions.unwrap_or(0).saturating_add(i32::from(!same))),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    });
    next
}

#[cfg(test)]
#[path = "heartbeat_tests.rs"]
mod tests;
