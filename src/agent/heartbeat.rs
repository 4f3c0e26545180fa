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
        self.ours || holder(&self.lease).is_empty() || now.duration_since(self.since) >= DURATION
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
        self.metrics.took("fleet_agent_heartbeat_seconds", "How long a renewal of the Lease took.", started.elapsed());
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
    use std::sync::{Arc, Mutex};

    use k8s_openapi::jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::fake;

    fn held_by(identity: &str) -> Lease {
        let spec = LeaseSpec { holder_identity: Some(identity.to_owned()), ..LeaseSpec::default() };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    /// A Lease that is not ours.
    fn seen(lease: Lease, since: Instant) -> Seen {
        Seen { lease, since, ours: false }
    }

    fn heart(client: Client) -> Heart {
        Heart::new(client, "west", "me".to_owned(), watch::channel(Pulse::Starting).0, Metrics::default())
    }

    /// What happens to a renewal that has no good answer.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fault {
        /// It is written.
        Lost,
        /// It is written after the Lease was looked at again.
        Late,
        /// It is not written.
        Refused,
    }

    /// A control plane that has a Lease and knows its versions.
    #[derive(Debug, Default)]
    struct Hub {
        spec: Value,
        version: u64,
        /// What is wrong with the next renewal.
        fault: Option<Fault>,
        late: Option<Value>,
    }

    impl Hub {
        fn answer(&mut self, mut brought: Value) -> Value {
            let now = self.lease();
            if brought.is_null() {
                if let Some(late) = self.late.take().filter(|late| late["metadata"] == now["metadata"]) {
                    self.write(late["spec"].clone());
                }
                return now;
            }
            if brought["metadata"]["resourceVersion"] != now["metadata"]["resourceVersion"] {
                return fake::failure(409);
            }
            match self.fault.take() {
                None => {}
                Some(Fault::Lost) => {
                    self.write(brought["spec"].take());
                    return fake::failure(504);
                }
                Some(Fault::Late) => {
                    self.late = Some(brought);
                    return fake::failure(504);
                }
                Some(Fault::Refused) => return fake::failure(403),
            }
            self.write(brought["spec"].take());
            self.lease()
        }

        fn write(&mut self, spec: Value) {
            self.spec = spec;
            self.version += 1;
        }

        fn lease(&self) -> Value {
            let metadata = json!({ "name": "fleet-agent", "resourceVersion": self.version.to_string() });
            json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": self.spec })
        }
    }

    fn hub(there: &Arc<Mutex<Hub>>) -> Client {
        let there = Arc::clone(there);
        fake::api(move |_, brought| there.lock().unwrap().answer(brought))
    }

    #[test]
    fn a_second_agent_takes_over_only_after_the_first_went_silent() {
        let start = Instant::now();
        let almost = start + DURATION.checked_sub(Duration::from_millis(1)).unwrap();
        assert!(seen(Lease::default(), start).may_take(start));
        assert!(Seen { ours: true, ..seen(held_by("me"), start) }.may_take(start));
        assert!(!seen(held_by("you"), start).may_take(almost));
        assert!(seen(held_by("you"), start).may_take(start + DURATION));
    }

    #[tokio::test]
    async fn of_two_processes_with_one_name_the_later_one_works_and_the_other_is_passive_until_it_is_silent() {
        let there = Arc::default();
        let [mut first, mut second] = [heart(hub(&there)), heart(hub(&there))];
        let passive = Pulse::Passive { holder: "another me".to_owned() };
        for _ in 0..2 {
            assert_eq!(first.beat().await.unwrap(), Pulse::Beating);
        }
        assert_eq!(second.beat().await.unwrap(), Pulse::Beating, "a container that was started anew does not wait");
        for _ in 0..2 {
            assert_eq!(first.beat().await.unwrap(), passive);
            assert_eq!(second.beat().await.unwrap(), Pulse::Beating);
        }
        assert_eq!(first.beat().await.unwrap(), passive);
        let seen = first.seen.as_mut().unwrap();
        seen.since = seen.since.checked_sub(DURATION).unwrap();
        assert_eq!(first.beat().await.unwrap(), Pulse::Beating, "the other one said nothing for long enough");
        assert_eq!(second.beat().await.unwrap(), passive);
        second.release().await;
        assert_eq!(first.beat().await.unwrap(), Pulse::Beating, "who is passive has nothing to give back");
    }

    #[tokio::test]
    async fn a_renewal_is_known_again_though_its_answer_was_lost_or_late_or_the_lease_was_edited_or_is_from_a_backup() {
        let there: Arc<Mutex<Hub>> = Arc::default();
        let mut heart = heart(hub(&there));
        assert_eq!(heart.beat().await.unwrap(), Pulse::Beating);
        let backup = there.lock().unwrap().spec.clone();
        for fault in [Fault::Lost, Fault::Late, Fault::Refused] {
            there.lock().unwrap().fault = Some(fault);
            assert!(heart.beat().await.is_err());
            // What comes late is in the way of the next one.
            let refused = heart.beat().await;
            assert_eq!(refused.is_err_and(|e| e.is_conflict()), fault == Fault::Late, "{fault:?}");
            assert_eq!(heart.beat().await.unwrap(), Pulse::Beating, "{fault:?}");
        }
        let now = there.lock().unwrap().spec.clone();
        for spec in [now, backup] {
            there.lock().unwrap().write(spec);
            assert!(heart.beat().await.is_err_and(|e| e.is_conflict()));
            assert_eq!(heart.beat().await.unwrap(), Pulse::Beating);
        }
    }

    #[tokio::test]
    async fn renewals_without_an_answer_are_remembered_for_minutes_and_not_for_ever() {
        let mut heart = heart(hub(&Arc::default()));
        for microsecond in 0..250 {
            heart.remember(Timestamp::from_microsecond(microsecond).unwrap());
        }
        assert_eq!(heart.sent.len(), UNANSWERED);
        assert_eq!(heart.sent.last(), Some(&Timestamp::from_microsecond(249).unwrap()));
        assert!(RETRY * u32::try_from(UNANSWERED).unwrap() > Duration::from_secs(60), "no request takes longer");
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
        assert!(!seen(held_by("you"), since).may_take(start + INTERVAL.mul_f64(1.1)));
        assert!(seen(held_by("you"), since).may_take(start + DURATION), "a dead one is followed all the same");
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
        let mut heart = heart(client);
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
