//! Leader election: of several replicas only the holder of a Lease in the control plane writes.
//!
//! Clocks are not compared between machines. A Lease counts as expired when it has not changed for its own duration by
//! *our* clock; the holder stops writing before that, because it gives up when it could not renew for two thirds of it.
//!
//! It is our own because `kubert` (0.25) and `kube-leader-election` (0.44) compare the Lease's `renewTime` with the local
//! clock, so that a replica whose clock is ahead takes the Lease of a live leader; both also need an older kube.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use super::server_clock::ServerClock;
use crate::daemon::log::OnChange;
use crate::daemon::stop::Stop;
use crate::k8s::backoff::add_jitter;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::resource_version::is_before;

/// Time without a change after which a Lease is free.
const DURATION: Duration = Duration::from_secs(15);
/// Time without a renewal after which a leader stops writing.
const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// Time between two attempts to acquire or renew the Lease.
const RETRY: Duration = Duration::from_secs(2);
/// Name of the Lease.
const NAME: &str = "fleet-scheduler";
/// Its namespace: one that every API server creates by itself, so that there can be a leader before anything is applied.
const NAMESPACE: &str = "kube-system";

/// Role of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The leader is not known yet.
    Starting,
    /// This process leads.
    Leader,
    /// Another process leads.
    Follower {
        /// Its identity.
        leader: String,
    },
    /// The control-plane API server does not answer.
    Unreachable {
        /// The error.
        error: String,
    },
}

/// The Lease as last read, and the time of its last change by our clock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Observed {
    holder: String,
    version: String,
    since: Instant,
    /// The holder was observed to renew it: a Lease alone may have been left behind by a dead process.
    alive: bool,
}

/// Next step of the election.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// No Lease exists: create it.
    Create,
    /// It is ours, has no holder, or is expired: write our identity.
    Take,
    /// Another process leads.
    Wait,
    /// The Lease is older than it was, or gone: the store was restored from a backup, and watches that continue from a
    /// later version would stay silent. Nothing is written, so that a term that is in progress ends.
    Restored,
}

fn next_step(observed: Option<&Observed>, identity: &str, duration: Duration, now: Instant) -> Step {
    match observed {
        None => Step::Create,
        Some(s) if s.holder.is_empty() || s.holder == identity => Step::Take,
        Some(s) if now.duration_since(s.since) >= duration => Step::Take,
        Some(_) => Step::Wait,
    }
}

/// Takes part in the election until it is time to stop, and then releases the Lease.
///
/// The role is published in `role`. Writers must stop as soon as it is no longer [`Role::Leader`].
pub async fn run_election(client: Client, identity: String, role: watch::Sender<Role>, clock: ServerClock, stop: Stop) {
    let mut election = Election {
        api: Api::namespaced(client, NAMESPACE),
        identity,
        observed: None,
        last: None,
        renewed: None,
        clock,
        logged: OnChange::default(),
    };
    while !stop.is_stopped() {
        // A renewal in flight is abandoned at the stop signal; the release comes next and decides anyway.
        tokio::select! {
            () = election.run_election_round(&role) => {}
            () = stop.wait_for_stop() => break,
        }
        tokio::select! {
            () = tokio::time::sleep(add_jitter(RETRY, 0.1)) => {}
            () = stop.wait_for_stop() => break,
        }
    }
    if election.renewed.is_some() {
        role.send_replace(Role::Starting);
        // The rest of the grace period is for the end of the process.
        let _ = tokio::time::timeout(Duration::from_secs(2), election.release_lease()).await;
    }
}

struct Election {
    api: Api<Lease>,
    identity: String,
    observed: Option<Observed>,
    /// The Lease itself.
    last: Option<Lease>,
    /// Time of our last renewal, while we lead.
    renewed: Option<Instant>,
    clock: ServerClock,
    logged: OnChange,
}

impl Election {
    async fn run_election_round(&mut self, role: &watch::Sender<Role>) {
        // The time before the request counts: it may arrive long before its answer.
        let started = Instant::now();
        let left = self.renewed.map_or(RENEW_WITHIN, |at| RENEW_WITHIN.saturating_sub(started.duration_since(at)));
        let next = match tokio::time::timeout(left.max(Duration::from_millis(1)), self.acquire_or_renew_lease()).await {
            Ok(Ok(Step::Restored)) => {
                self.renewed = None;
                tracing::warn!("the control plane's store was restored to an older state; reading everything again");
                Role::Starting
            }
            Ok(Ok(Step::Wait)) => {
                self.renewed = None;
                match &self.observed {
                    Some(observed) if observed.alive => Role::Follower { leader: observed.holder.clone() },
                    _ => Role::Starting,
                }
            }
            Ok(Ok(Step::Create | Step::Take)) => {
                self.renewed = Some(started);
                Role::Leader
            }
            // Another process was faster: the next attempt shows which.
            Ok(Err(e)) if e.is_conflict() => {
                self.renewed = None;
                Role::Starting
            }
            Ok(Err(e)) => self.role_after_failure(&e),
            Err(_) => self.role_after_failure(&CallError::TimedOut),
        };
        self.log_role(&next);
        role.send_if_modified(|current| {
            let changed = *current != next;
            *current = next;
            changed
        });
    }

    /// Keeps leading through short outages, as nobody can take the Lease meanwhile.
    fn role_after_failure(&mut self, error: &CallError) -> Role {
        if self.renewed.is_some_and(|at| at.elapsed() < RENEW_WITHIN) {
            return Role::Leader;
        }
        self.renewed = None;
        // An outage goes through refused, reset and timed out, which is logged once; another status code is logged again.
        if self.logged.record_if_changed("server", &format!("{:?}", error.status_code())) {
            tracing::warn!(%error, "the API server does not answer");
        }
        Role::Unreachable { error: error.to_string() }
    }

    fn log_role(&self, role: &Role) {
        if matches!(role, Role::Leader | Role::Follower { .. }) {
            self.logged.record_if_changed("server", "ok");
            if self.logged.record_if_changed("role", &format!("{role:?}")) {
                if let Role::Follower { leader } = role {
                    tracing::info!(leader, "another replica is the leader");
                } else {
                    tracing::info!(identity = self.identity, "leading");
                }
            }
        } else {
            self.logged.record_if_changed("role", "none");
        }
    }

    async fn acquire_or_renew_lease(&mut self) -> Result<Step, CallError> {
        let lease = call_with_timeout(self.api.get_opt(NAME)).await?;
        let duration = lease.as_ref().map_or(DURATION, duration_of);
        let is_restored = is_restored(self.last.as_ref(), lease.as_ref());
        self.observe_lease(lease.as_ref());
        if is_restored {
            return Ok(Step::Restored);
        }
        let step = next_step(self.observed.as_ref(), &self.identity, duration, Instant::now());
        let written = match (&step, lease) {
            (Step::Wait | Step::Restored, _) => return Ok(step),
            (_, None) => {
                call_with_timeout(self.api.create(&PostParams::default(), &lease_held_by(None, &self.identity))).await?
            }
            (_, Some(old)) => {
                let new = lease_held_by(Some(&old), &self.identity);
                call_with_timeout(self.api.replace(NAME, &PostParams::default(), &new)).await?
            }
        };
        self.clock.set_by_lease(&written);
        self.observe_lease(Some(&written));
        Ok(step)
    }

    /// Records the Lease, and the time of its last change.
    fn observe_lease(&mut self, lease: Option<&Lease>) {
        self.last = lease.cloned();
        let Some(lease) = lease else {
            self.observed = None;
            return;
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        if self.observed.as_ref().is_none_or(|s| s.version != version) {
            let holder = lease.spec.as_ref().and_then(|s| s.holder_identity.clone()).unwrap_or_default();
            let alive = self.observed.as_ref().is_some_and(|s| s.holder == holder);
            self.observed = Some(Observed { holder, version, since: Instant::now(), alive });
        }
    }

    /// Writes an empty holder, so that the next leader need not wait.
    async fn release_lease(&mut self) {
        let Ok(Some(lease)) = call_with_timeout(self.api.get_opt(NAME)).await else { return };
        if lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()) != Some(self.identity.as_str()) {
            return;
        }
        let free = lease_held_by(Some(&lease), "");
        match call_with_timeout(self.api.replace(NAME, &PostParams::default(), &free)).await {
            Ok(_) => tracing::info!("lease released"),
            Err(e) => tracing::warn!(error = %e, "releasing the lease failed"),
        }
    }
}

/// Returns true where a Lease was there and is now gone, or in a state from before.
fn is_restored(before: Option<&Lease>, now: Option<&Lease>) -> bool {
    before.is_some_and(|before| now.is_none_or(|now| is_before(now, before)))
}

/// Returns the Lease with `holder` in it; the resource version of `old` makes the write fail if anybody wrote since.
fn lease_held_by(old: Option<&Lease>, holder: &str) -> Lease {
    let now = MicroTime(Timestamp::now());
    let before = old.and_then(|l| l.spec.clone()).unwrap_or_default();
    let stays = before.holder_identity.as_deref() == Some(holder);
    let duration = if holder.is_empty() { 1 } else { i32::try_from(DURATION.as_secs()).unwrap_or(15) };
    Lease {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            resource_version: old.and_then(|l| l.metadata.resource_version.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(duration),
            acquire_time: if stays { before.acquire_time } else { Some(now.clone()) },
            lease_transitions: Some(before.lease_transitions.unwrap_or(0) + i32::from(!stays && old.is_some())),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    }
}

fn duration_of(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|s| s.lease_duration_seconds).unwrap_or(15);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(15).clamp(1, 600))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holder: &str, since: Instant) -> Observed {
        Observed { holder: holder.to_owned(), version: "1".to_owned(), since, alive: true }
    }

    #[test]
    fn only_a_free_or_expired_lease_is_taken() {
        let now = Instant::now();
        let later = now + DURATION;
        assert_eq!(next_step(None, "me", DURATION, now), Step::Create);
        assert_eq!(next_step(Some(&held("me", now)), "me", DURATION, now), Step::Take);
        assert_eq!(next_step(Some(&held("", now)), "me", DURATION, now), Step::Take);
        assert_eq!(next_step(Some(&held("you", now)), "me", DURATION, now), Step::Wait);
        assert_eq!(
            next_step(Some(&held("you", now)), "me", DURATION, later.checked_sub(Duration::from_millis(1)).unwrap()),
            Step::Wait
        );
        assert_eq!(next_step(Some(&held("you", now)), "me", DURATION, later), Step::Take);
    }

    #[test]
    fn an_older_lease_is_of_a_store_that_was_restored() {
        let [old, new] = ["9", "10"].map(|version| {
            let mut lease = Lease::default();
            lease.metadata.resource_version = Some(version.to_owned());
            lease
        });
        assert!(is_restored(Some(&new), Some(&old)) && is_restored(Some(&new), None));
        assert!(
            !is_restored(Some(&old), Some(&new)) && !is_restored(Some(&old), Some(&old)) && !is_restored(None, None)
        );
    }

    #[test]
    fn a_leader_stops_before_expiry() {
        assert!(RENEW_WITHIN + RETRY.mul_f64(1.1) < DURATION);
    }
}
