//! The heartbeat: a Lease in the control plane, renewed by a task and a connection of its own, so that nothing else
//! that the agent does can hold it up.
//!
//! Of two live agents with one identity (a cloned cluster, two replicas) one holds the Lease and works, the other stays
//! passive. A holder that goes away writes its name out of it.
//!
//! A container that is started anew in its pod takes at once what it held before, by the name that both have. Clones of a
//! pod have that name as well, so a Lease in our name is ours only as long as all that happens to it are our own writes.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::labels::{AGENT_LEASE, cluster_namespace};
use crate::api::protocol::{LEASE_DURATION, LEASE_RENEW_INTERVAL};
use crate::daemon::log::OnChange;
use crate::daemon::metrics::Metrics;
use crate::k8s::backoff::jittered;
use crate::k8s::connect_error::{Hop, hop};
use crate::k8s::daemon_client::{CallError, call};

/// How much of that may have passed before we looked: what clocks claim, or what happened while we saw nothing. The rest,
/// longer than a live holder is silent, is to be seen.
const UNSEEN: Duration = Duration::from_secs(28);
/// How many renewals without an answer are remembered: with [`RETRY`] between them, those of minutes.
const UNANSWERED: usize = 100;
/// Time to the next attempt after one that failed.
const RETRY: Duration = Duration::from_secs(2);

/// How the heartbeat stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pulse {
    /// Not tried yet.
    Starting,
    /// We hold the Lease.
    Beating,
    /// Another agent with our identity does.
    Passive {
        /// Its identity.
        holder: String,
    },
    /// The control plane does not take it.
    Failing {
        /// Where on the way.
        hop: &'static str,
        /// Why.
        error: String,
        /// Whether the control plane no longer accepts who we are.
        refused: bool,
    },
}

/// The Lease as last seen.
#[derive(Debug, Clone)]
struct Seen {
    lease: Lease,
    since: Instant,
    /// Whether it is held by us, and not by another process with our name.
    ours: bool,
}

impl Seen {
    /// Whether we may write it.
    fn may_take(&self, now: Instant) -> bool {
        self.ours || holder(&self.lease).is_empty() || now.duration_since(self.since) >= LEASE_DURATION
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()).unwrap_or_default()
}

fn renew_time(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

/// The heart of one identity.
pub struct Heart {
    api: Api<Lease>,
    identity: String,
    seen: Option<Seen>,
    /// Whether the Lease was ever ours.
    held: bool,
    /// Renewals without an answer: they may be written all the same, as long as the Lease is the one they were made of.
    sent: Vec<Timestamp>,
    /// Whether the last call went well, so that what was seen then was seen without a break.
    sees: bool,
    pulse: watch::Sender<Pulse>,
    metrics: Metrics,
    said: OnChange,
}

impl Heart {
    /// A heart that beats for the cluster `name` by `client`.
    pub fn new(client: Client, name: &str, identity: String, pulse: watch::Sender<Pulse>, metrics: Metrics) -> Self {
        let api = Api::namespaced(client, &cluster_namespace(name));
        let (seen, sent, said) = (None, Vec::new(), OnChange::default());
        Self { api, identity, seen, held: false, sent, sees: false, pulse, metrics, said }
    }

    /// Beats until dropped.
    pub async fn run(&mut self) {
        loop {
            let started = Instant::now();
            let pulse = match self.beat().await {
                Ok(pulse) => pulse,
                Err(error) => {
                    let hop = hop(&error);
                    let refused = matches!(hop, Hop::Unauthorized | Hop::Forbidden);
                    Pulse::Failing { hop: hop.as_str(), error: error.to_string(), refused }
                }
            };
            let next = match &pulse {
                Pulse::Beating => jittered(LEASE_RENEW_INTERVAL, 0.1).saturating_sub(started.elapsed()),
                _ => jittered(RETRY, 0.3),
            };
            self.say(&pulse);
            self.pulse.send_replace(pulse);
            tokio::time::sleep(next).await;
        }
    }

    fn say(&self, pulse: &Pulse) {
        let result = match pulse {
            Pulse::Beating => "ok",
            Pulse::Passive { .. } => "passive",
            _ => "failed",
        };
        let passive = f64::from(u8::from(result == "passive"));
        self.metrics.gauge("fleet_agent_identity_conflict", "Whether another agent holds the Lease.", &[], passive);
        self.metrics.count("fleet_agent_heartbeats_total", "Renewals of the Lease.", &[("result", result)]);
        let news = match pulse {
            Pulse::Failing { hop, .. } => format!("failing {hop}"),
            other => format!("{other:?}"),
        };
        if !self.said.news("pulse", &news) {
            return;
        }
        match pulse {
            Pulse::Starting => {}
            Pulse::Beating => tracing::info!("heartbeat taken"),
            Pulse::Passive { holder } => {
                tracing::warn!(
                    reason = "IdentityConflict",
                    holder,
                    "another agent holds this cluster's Lease; staying passive"
                );
            }
            Pulse::Failing { hop, error, .. } => tracing::warn!(hop, error, "heartbeat not taken"),
        }
    }

    async fn beat(&mut self) -> Result<Pulse, CallError> {
        let beaten = self.try_beat().await;
        self.sees = beaten.is_ok();
        beaten
    }

    /// What was seen stays through errors: whoever forgot it would believe the clocks once more.
    async fn try_beat(&mut self) -> Result<Pulse, CallError> {
        let seen = match self.seen.clone() {
            // While we hold it, our own last write is the newest version, unless somebody interferes.
            Some(seen) if self.sees && seen.ours => seen,
            before => self.look(before).await?,
        };
        if !seen.may_take(Instant::now()) {
            return Ok(self.passive(&seen.lease));
        }
        // As exact as the server keeps it, to be known again.
        let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap_or_default();
        let lease = renewed(&seen.lease, &self.identity, now);
        self.remember(now);
        let started = Instant::now();
        let lease = call(self.api.replace(AGENT_LEASE, &PostParams::default(), &lease)).await;
        self.metrics.observe(
            "fleet_agent_heartbeat_seconds",
            "How long a renewal of the Lease took.",
            started.elapsed(),
        );
        match lease {
            Ok(lease) => {
                self.sent.clear();
                self.held = true;
                self.seen = Some(Seen { lease, since: Instant::now(), ours: true });
                Ok(Pulse::Beating)
            }
            // Somebody wrote in between, or we did without hearing of it: look who.
            Err(e) if e.is_conflict() => {
                let now = self.look(Some(seen)).await?;
                if now.may_take(Instant::now()) { Err(e) } else { Ok(self.passive(&now.lease)) }
            }
            Err(e) => Err(e),
        }
    }

    fn passive(&self, lease: &Lease) -> Pulse {
        let holder = holder(lease);
        Pulse::Passive { holder: if holder == self.identity { format!("another {holder}") } else { holder.to_owned() } }
    }

    /// Notes a renewal that is about to be sent. Of those before it that have no answer, none is still under way after so
    /// many others.
    fn remember(&mut self, renewal: Timestamp) {
        if self.sent.len() >= UNANSWERED {
            self.sent.remove(0);
        }
        self.sent.push(renewal);
    }

    async fn look(&mut self, before: Option<Seen>) -> Result<Seen, CallError> {
        let lease = call(self.api.get(AGENT_LEASE)).await?;
        let now = Instant::now();
        let seen = match before {
            Some(seen) if seen.lease.metadata.resource_version == lease.metadata.resource_version => {
                let since = if self.sees { seen.since } else { seen.since.max(unseen(now, UNSEEN)) };
                Seen { since, ..seen }
            }
            before => {
                let ours = holder(&lease) == self.identity && self.knows(&lease, before.as_ref());
                // What was made of an older version is refused by now.
                self.sent.clear();
                let since = match before {
                    Some(_) => now,
                    // The successor of an agent that died long ago need not watch the whole of its Lease grow old again.
                    None => unseen(now, age(&lease, Timestamp::now())),
                };
                Seen { lease, since, ours }
            }
        };
        self.held |= seen.ours;
        self.seen = Some(seen.clone());
        Ok(seen)
    }

    /// Whether a Lease in our name was renewed by ourselves. The first time, by whoever had that name before us. What is not
    /// newer than our last renewal was only edited, or comes from a backup of the control plane; with another process it
    /// would be the one whose clock is behind that gives way.
    fn knows(&self, lease: &Lease, before: Option<&Seen>) -> bool {
        let renewed = renew_time(lease);
        let old = before.is_some_and(|seen| seen.ours && renewed <= renew_time(&seen.lease));
        !self.held || old || renewed.is_some_and(|at| self.sent.contains(&at))
    }

    /// Writes our name out of the Lease, so that our successor need not wait.
    pub async fn release(&mut self) {
        let Some(seen) = self.seen.take().filter(|seen| seen.ours) else { return };
        // The time stays: giving up is no sign of life.
        let mut lease = seen.lease;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
        }
        if let Err(error) = call(self.api.replace(AGENT_LEASE, &PostParams::default(), &lease)).await {
            tracing::debug!(%error, "the lease could not be released");
        }
    }
}

/// When a Lease was renewed that has not been for `age`, as far as that may be believed without having seen it.
fn unseen(now: Instant, age: Duration) -> Instant {
    now.checked_sub(age.min(UNSEEN)).unwrap_or(now)
}

/// How old a Lease says that it is. Clocks can differ, so it is believed at the first look alone, and in part.
fn age(lease: &Lease, now: Timestamp) -> Duration {
    renew_time(lease).map_or(Duration::ZERO, |at| Duration::try_from(now.duration_since(at)).unwrap_or_default())
}

fn renewed(lease: &Lease, identity: &str, now: Timestamp) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    let stays = before.holder_identity.as_deref() == Some(identity);
    let mut next = lease.clone();
    next.metadata.managed_fields = None;
    next.spec = Some(LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
        acquire_time: if stays { before.acquire_time } else { Some(MicroTime(now)) },
        lease_transitions: Some(before.lease_transitions.unwrap_or(0).saturating_add(i32::from(!stays))),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    });
    next
}

#[cfg(test)]
#[path = "heartbeat_tests.rs"]
mod tests;
