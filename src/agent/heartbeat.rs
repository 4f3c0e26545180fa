//! The heartbeat: a Lease in the control plane, renewed by a task and a connection of its own, so that nothing else
//! that the agent does can hold it up.
//!
//! Of two live agents with one identity (a cloned cluster, two replicas) one holds the Lease and works, the other stays
//! passive. A holder that goes away writes its name out of it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use super::hub::{Hop, hop};
use crate::api::keys::{AGENT_LEASE, cluster_namespace};
use crate::daemon::backoff::jittered;
use crate::daemon::client::{CallError, call};
use crate::daemon::log::OnChange;
use crate::daemon::metrics::Metrics;

/// Time between two renewals.
const INTERVAL: Duration = Duration::from_secs(10);
/// A holder that did not renew for this long has lost the Lease.
const DURATION: Duration = Duration::from_secs(40);
/// How much of that may have passed before we looked: what clocks claim, or what happened while we saw nothing. The rest,
/// longer than a live holder is silent, is to be seen.
const UNSEEN: Duration = Duration::from_secs(28);
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
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()).unwrap_or_default()
}

/// Whether the Lease may be written by `identity`.
fn may_take(lease: &Lease, since: Instant, identity: &str, now: Instant) -> bool {
    let holder = holder(lease);
    holder.is_empty() || holder == identity || now.duration_since(since) >= DURATION
}

/// The heart of one identity.
pub struct Heart {
    api: Api<Lease>,
    identity: String,
    seen: Option<Seen>,
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
        Self { api, identity, seen: None, sees: false, pulse, metrics, said: OnChange::default() }
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
                Pulse::Beating => jittered(INTERVAL, 0.1).saturating_sub(started.elapsed()),
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
            Some(seen) if self.sees && holder(&seen.lease) == self.identity => seen,
            before => self.look(before).await?,
        };
        self.seen = Some(seen.clone());
        if !may_take(&seen.lease, seen.since, &self.identity, Instant::now()) {
            return Ok(Pulse::Passive { holder: holder(&seen.lease).to_owned() });
        }
        let lease = renewed(&seen.lease, &self.identity, Timestamp::now());
        let started = Instant::now();
        let lease = call(self.api.replace(AGENT_LEASE, &PostParams::default(), &lease)).await;
        self.metrics.took("fleet_agent_heartbeat_seconds", "How long a renewal of the Lease took.", started.elapsed());
        match lease {
            Ok(lease) => {
                self.seen = Some(Seen { lease, since: Instant::now() });
                Ok(Pulse::Beating)
            }
            // Somebody wrote in between: look who, next time.
            Err(e) if e.is_conflict() => {
                let now = self.look(Some(seen)).await?;
                let theirs = !may_take(&now.lease, now.since, &self.identity, Instant::now());
                let holder = holder(&now.lease).to_owned();
                self.seen = Some(now);
                if theirs { Ok(Pulse::Passive { holder }) } else { Err(e) }
            }
            Err(e) => Err(e),
        }
    }

    async fn look(&self, before: Option<Seen>) -> Result<Seen, CallError> {
        let lease = call(self.api.get(AGENT_LEASE)).await?;
        let now = Instant::now();
        Ok(match before {
            Some(seen) if seen.lease.metadata.resource_version == lease.metadata.resource_version => {
                let since = if self.sees { seen.since } else { seen.since.max(unseen(now, UNSEEN)) };
                Seen { since, ..seen }
            }
            Some(_) => Seen { lease, since: now },
            // The successor of an agent that died long ago need not watch the whole of its Lease grow old again.
            None => Seen { since: unseen(now, age(&lease, Timestamp::now())), lease },
        })
    }

    /// Writes our name out of the Lease, so that our successor need not wait.
    pub async fn release(&mut self) {
        let Some(seen) = self.seen.take().filter(|s| holder(&s.lease) == self.identity) else { return };
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
    let renewed = lease.spec.as_ref().and_then(|s| s.renew_time.as_ref());
    renewed.map_or(Duration::ZERO, |at| Duration::try_from(now.duration_since(at.0)).unwrap_or_default())
}

fn renewed(lease: &Lease, identity: &str, now: Timestamp) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    let stays = before.holder_identity.as_deref() == Some(identity);
    let mut next = lease.clone();
    next.metadata.managed_fields = None;
    next.spec = Some(LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: if stays { before.acquire_time } else { Some(MicroTime(now)) },
        lease_transitions: Some(before.lease_transitions.unwrap_or(0) + i32::from(!stays)),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    });
    next
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::agent::fake;

    fn held_by(identity: &str) -> Lease {
        let spec = LeaseSpec { holder_identity: Some(identity.to_owned()), ..LeaseSpec::default() };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn a_second_agent_takes_over_only_after_the_first_went_silent() {
        let start = Instant::now();
        let almost = start + DURATION.checked_sub(Duration::from_millis(1)).unwrap();
        assert!(may_take(&Lease::default(), start, "me", start));
        assert!(may_take(&held_by("me"), start, "me", start));
        assert!(!may_take(&held_by("you"), start, "me", almost));
        assert!(may_take(&held_by("you"), start, "me", start + DURATION));
    }

    #[test]
    fn a_lease_that_grew_old_before_the_first_look_is_old_and_one_from_the_future_is_not() {
        let mut lease = held_by("you");
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(age(&lease, at(100)), Duration::ZERO);
        lease.spec.as_mut().unwrap().renew_time = Some(MicroTime(at(100)));
        assert_eq!(age(&lease, at(150)), Duration::from_secs(50));
        assert_eq!(age(&lease, at(50)), Duration::ZERO);
    }

    #[test]
    fn a_fast_clock_takes_no_lease_from_a_live_holder() {
        let start = Instant::now() + Duration::from_secs(3600);
        let since = unseen(start, Duration::from_secs(600));
        // A live holder renews within this time, which is seen.
        assert!(!may_take(&held_by("you"), since, "me", start + INTERVAL.mul_f64(1.1)));
        assert!(may_take(&held_by("you"), since, "me", start + DURATION), "a dead one is followed all the same");
        assert_eq!(unseen(start, Duration::from_secs(5)), start.checked_sub(Duration::from_secs(5)).unwrap());
    }

    #[tokio::test]
    async fn a_look_that_fails_does_not_make_a_fast_clock_believed() {
        // The holder's clock is ten minutes behind ours; every second answer is an error.
        let asked = AtomicUsize::new(0);
        let renewed = Timestamp::now().checked_sub(SignedDuration::from_secs(600)).unwrap();
        let client = fake::api(move |_, brought| {
            assert!(brought.is_null(), "it takes over");
            let count = asked.fetch_add(1, Ordering::Relaxed);
            if count % 2 == 1 {
                return json!("no Lease");
            }
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": "fleet-agent", "resourceVersion": count.to_string() },
                "spec": { "holderIdentity": "you", "renewTime": MicroTime(renewed) },
            })
        });
        let sender = watch::channel(Pulse::Starting).0;
        let mut heart = Heart::new(client, "west", "me".to_owned(), sender, Metrics::default());
        for _ in 0..3 {
            assert_eq!(heart.beat().await.unwrap(), Pulse::Passive { holder: "you".to_owned() });
            let seen = heart.seen.clone().unwrap().since;
            assert!(heart.beat().await.is_err());
            assert_eq!(heart.seen.clone().unwrap().since, seen, "what was seen is kept");
        }
        assert!(heart.seen.unwrap().since.elapsed() < Duration::from_secs(1), "renewed since the first look");
    }

    #[test]
    fn taking_over_is_counted_and_renewing_is_not() {
        let now = Timestamp::from_second(5).unwrap();
        let taken = renewed(&held_by("you"), "me", now).spec.unwrap();
        assert_eq!((taken.lease_transitions, taken.acquire_time), (Some(1), Some(MicroTime(now))));
        let kept = renewed(&held_by("me"), "me", now).spec.unwrap();
        assert_eq!((kept.lease_transitions, kept.acquire_time), (Some(0), None));
    }
}
