//! Leading: of several replicas only the holder of a Lease in the hub writes.
//!
//! Clocks are not compared between machines. A Lease counts as expired when it has not changed for its own duration by
//! *our* clock; the holder stops writing before that, because it gives up when it could not renew for two thirds of it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::daemon::log::OnChange;
use crate::daemon::stop::Stop;
use crate::k8s::backoff::jittered;
use crate::k8s::daemon_client::{CallError, call};

/// A Lease is free when it has not changed for this long.
const DURATION: Duration = Duration::from_secs(15);
/// Who could not renew for this long stops writing.
const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// Time between two looks at the Lease.
const RETRY: Duration = Duration::from_secs(2);
/// Name of the Lease.
const NAME: &str = "fleet-scheduler";
/// Its namespace: one that every API server makes for itself, so that somebody can lead before anything is applied.
const NAMESPACE: &str = "kube-system";

/// What this process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Nothing is known yet.
    Starting,
    /// This process writes.
    Leader,
    /// Another one does.
    Follower {
        /// Its identity.
        leader: String,
    },
    /// The hub does not answer.
    Cut {
        /// Why.
        error: String,
    },
}

/// The Lease as last seen, and when it last changed by our clock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    holder: String,
    version: String,
    since: Instant,
    /// Whether the holder has been seen to renew it: a Lease alone may have been left behind by a dead process.
    alive: bool,
}

/// What to do about the Lease.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// There is none.
    Create,
    /// It is ours, or nobody's, or its holder is gone: write our name.
    Take,
    /// Somebody else leads.
    Wait,
}

fn step(seen: Option<&Seen>, identity: &str, duration: Duration, now: Instant) -> Step {
    match seen {
        None => Step::Create,
        Some(s) if s.holder.is_empty() || s.holder == identity => Step::Take,
        Some(s) if now.duration_since(s.since) >= duration => Step::Take,
        Some(_) => Step::Wait,
    }
}

/// Takes part in the election until it is time to stop, and then gives the Lease back.
///
/// The role is published in `role`. Whoever writes must stop as soon as it is no longer [`Role::Leader`].
pub async fn run(client: Client, identity: String, role: watch::Sender<Role>, stop: Stop) {
    let mut election = Election {
        api: Api::namespaced(client, NAMESPACE),
        identity,
        seen: None,
        renewed: None,
        said: OnChange::default(),
    };
    while !stop.stopped() {
        // A renewal in flight is given up with the stop signal; giving the Lease back comes next and decides anyway.
        tokio::select! {
            () = election.round(&role) => {}
            () = stop.wait() => break,
        }
        tokio::select! {
            () = tokio::time::sleep(jittered(RETRY, 0.1)) => {}
            () = stop.wait() => break,
        }
    }
    if election.renewed.is_some() {
        role.send_replace(Role::Starting);
        // The rest of the grace period belongs to whoever waits for the process to end.
        let _ = tokio::time::timeout(Duration::from_secs(2), election.release()).await;
    }
}

struct Election {
    api: Api<Lease>,
    identity: String,
    seen: Option<Seen>,
    /// When we last wrote the Lease, while we lead.
    renewed: Option<Instant>,
    said: OnChange,
}

impl Election {
    async fn round(&mut self, role: &watch::Sender<Role>) {
        // The moment counts before the request: it may arrive long before we hear of it.
        let started = Instant::now();
        let left = self.renewed.map_or(RENEW_WITHIN, |at| RENEW_WITHIN.saturating_sub(started.duration_since(at)));
        let next = match tokio::time::timeout(left.max(Duration::from_millis(1)), self.attempt()).await {
            Ok(Ok(Step::Wait)) => {
                self.renewed = None;
                match &self.seen {
                    Some(seen) if seen.alive => Role::Follower { leader: seen.holder.clone() },
                    _ => Role::Starting,
                }
            }
            Ok(Ok(Step::Create | Step::Take)) => {
                self.renewed = Some(started);
                Role::Leader
            }
            // Somebody else was faster: the next look shows who.
            Ok(Err(e)) if e.is_conflict() => {
                self.renewed = None;
                Role::Starting
            }
            Ok(Err(e)) => self.failed(&e),
            Err(_) => self.failed(&CallError::TimedOut),
        };
        self.say(&next);
        role.send_if_modified(|current| {
            let changed = *current != next;
            *current = next;
            changed
        });
    }

    /// A leader goes on leading through short troubles, as nobody can take the Lease meanwhile.
    fn failed(&mut self, error: &CallError) -> Role {
        if self.renewed.is_some_and(|at| at.elapsed() < RENEW_WITHIN) {
            return Role::Leader;
        }
        self.renewed = None;
        // An outage goes through refused, reset and timed out; that is one piece of news, a refusal by code another.
        if self.said.news("hub", &format!("{:?}", error.code())) {
            tracing::warn!(%error, "the hub does not answer");
        }
        Role::Cut { error: error.to_string() }
    }

    fn say(&self, role: &Role) {
        if matches!(role, Role::Leader | Role::Follower { .. }) {
            self.said.news("hub", "well");
            if self.said.news("role", &format!("{role:?}")) {
                if let Role::Follower { leader } = role {
                    tracing::info!(leader, "another replica leads");
                } else {
                    tracing::info!(identity = self.identity, "leading");
                }
            }
        } else {
            self.said.news("role", "none");
        }
    }

    async fn attempt(&mut self) -> Result<Step, CallError> {
        let lease = call(self.api.get_opt(NAME)).await?;
        let duration = lease.as_ref().map_or(DURATION, duration_of);
        self.look(lease.as_ref());
        let step = step(self.seen.as_ref(), &self.identity, duration, Instant::now());
        let written = match (&step, lease) {
            (Step::Wait, _) => return Ok(step),
            (_, None) => call(self.api.create(&PostParams::default(), &lease_held_by(None, &self.identity))).await?,
            (_, Some(old)) => {
                let new = lease_held_by(Some(&old), &self.identity);
                call(self.api.replace(NAME, &PostParams::default(), &new)).await?
            }
        };
        self.look(Some(&written));
        Ok(step)
    }

    /// Remembers the Lease, and when it last changed.
    fn look(&mut self, lease: Option<&Lease>) {
        let Some(lease) = lease else {
            self.seen = None;
            return;
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        if self.seen.as_ref().is_none_or(|s| s.version != version) {
            let holder = lease.spec.as_ref().and_then(|s| s.holder_identity.clone()).unwrap_or_default();
            let alive = self.seen.as_ref().is_some_and(|s| s.holder == holder);
            self.seen = Some(Seen { holder, version, since: Instant::now(), alive });
        }
    }

    /// Writes that nobody leads, so that the next one need not wait.
    async fn release(&mut self) {
        let Ok(Some(lease)) = call(self.api.get_opt(NAME)).await else { return };
        if lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()) != Some(self.identity.as_str()) {
            return;
        }
        let free = lease_held_by(Some(&lease), "");
        match call(self.api.replace(NAME, &PostParams::default(), &free)).await {
            Ok(_) => tracing::info!("lease released"),
            Err(e) => tracing::warn!(error = %e, "the lease could not be released"),
        }
    }
}

/// The Lease with `holder` in it; the resource version of `old` makes the write fail if anybody wrote since.
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

    fn seen(holder: &str, since: Instant) -> Seen {
        Seen { holder: holder.to_owned(), version: "1".to_owned(), since, alive: true }
    }

    #[test]
    fn a_lease_is_taken_only_when_free_ours_or_unchanged_for_its_duration() {
        let now = Instant::now();
        let later = now + DURATION;
        assert_eq!(step(None, "me", DURATION, now), Step::Create);
        assert_eq!(step(Some(&seen("me", now)), "me", DURATION, now), Step::Take);
        assert_eq!(step(Some(&seen("", now)), "me", DURATION, now), Step::Take);
        assert_eq!(step(Some(&seen("you", now)), "me", DURATION, now), Step::Wait);
        assert_eq!(
            step(Some(&seen("you", now)), "me", DURATION, later.checked_sub(Duration::from_millis(1)).unwrap()),
            Step::Wait
        );
        assert_eq!(step(Some(&seen("you", now)), "me", DURATION, later), Step::Take);
    }

    #[test]
    fn a_leader_stops_writing_before_anybody_else_may_start() {
        assert!(RENEW_WITHIN + RETRY.mul_f64(1.1) < DURATION);
    }
}
