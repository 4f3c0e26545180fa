//! Renewers of one identity or of several, and failures of their renewals.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::k8s::test_api;

fn held_by(identity: &str) -> Lease {
    let spec = LeaseSpec { holder_identity: Some(identity.to_owned()), ..LeaseSpec::default() };
    Lease { spec: Some(spec), ..Lease::default() }
}

/// Returns an observation of a Lease that is not ours.
fn foreign(lease: Lease, since: Instant) -> RenewalObserved {
    RenewalObserved { lease, since, owned: false }
}

fn renewer(client: Client) -> LeaseRenewer {
    LeaseRenewer::new(client, "west", "me".to_owned(), watch::channel(LeaseStatus::Starting).0, Metrics::default())
}

/// Failure of a renewal.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// It is written.
    Lost,
    /// It is written after the Lease was read again.
    Late,
    /// It is not written.
    Refused,
}

/// A control plane with a Lease and its versions.
#[derive(Debug, Default)]
struct ControlPlane {
    spec: Value,
    version: u64,
    /// Failure of the next renewal.
    fault: Option<Fault>,
    late: Option<Value>,
}

impl ControlPlane {
    fn answer(&mut self, mut brought: Value) -> Value {
        let now = self.lease();
        if brought.is_null() {
            if let Some(late) = self.late.take().filter(|late| late["metadata"] == now["metadata"]) {
                self.write(late["spec"].clone());
            }
            return now;
        }
        if brought["metadata"]["resourceVersion"] != now["metadata"]["resourceVersion"] {
            return test_api::failure(409);
        }
        match self.fault.take() {
            None => {}
            Some(Fault::Lost) => {
                self.write(brought["spec"].take());
                return test_api::failure(504);
            }
            Some(Fault::Late) => {
                self.late = Some(brought);
                return test_api::failure(504);
            }
            Some(Fault::Refused) => return test_api::failure(403),
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

fn control_plane(server: &Arc<Mutex<ControlPlane>>) -> Client {
    let server = Arc::clone(server);
    test_api::api(move |_, brought| server.lock().unwrap().answer(brought))
}

#[test]
fn only_an_expired_lease_is_taken() {
    let start = Instant::now();
    let almost = start + LEASE_DURATION.checked_sub(Duration::from_millis(1)).unwrap();
    assert!(foreign(Lease::default(), start).may_take(start));
    assert!(RenewalObserved { owned: true, ..foreign(held_by("me"), start) }.may_take(start));
    assert!(!foreign(held_by("you"), start).may_take(almost));
    assert!(foreign(held_by("you"), start).may_take(start + LEASE_DURATION));
}

#[tokio::test]
async fn the_later_of_two_clones_is_active() {
    let server = Arc::default();
    let [mut first, mut second] = [renewer(control_plane(&server)), renewer(control_plane(&server))];
    let passive = LeaseStatus::Passive { holder: "another me".to_owned() };
    for _ in 0..2 {
        assert_eq!(first.renew_lease().await.unwrap(), LeaseStatus::Held);
    }
    assert_eq!(second.renew_lease().await.unwrap(), LeaseStatus::Held, "a restarted container does not wait");
    for _ in 0..2 {
        assert_eq!(first.renew_lease().await.unwrap(), passive);
        assert_eq!(second.renew_lease().await.unwrap(), LeaseStatus::Held);
    }
    assert_eq!(first.renew_lease().await.unwrap(), passive);
    let observed = first.observed.as_mut().unwrap();
    observed.since = observed.since.checked_sub(LEASE_DURATION).unwrap();
    assert_eq!(first.renew_lease().await.unwrap(), LeaseStatus::Held, "the other one did not renew for long enough");
    assert_eq!(second.renew_lease().await.unwrap(), passive);
    second.release_own_lease().await;
    assert_eq!(first.renew_lease().await.unwrap(), LeaseStatus::Held, "a passive agent has nothing to release");
}

#[tokio::test]
async fn own_renewals_are_recognised() {
    let server: Arc<Mutex<ControlPlane>> = Arc::default();
    let mut renewer = renewer(control_plane(&server));
    assert_eq!(renewer.renew_lease().await.unwrap(), LeaseStatus::Held);
    let backup = server.lock().unwrap().spec.clone();
    for fault in [Fault::Lost, Fault::Late, Fault::Refused] {
        server.lock().unwrap().fault = Some(fault);
        assert!(renewer.renew_lease().await.is_err());
        // A late write makes the next one conflict.
        let refused = renewer.renew_lease().await;
        assert_eq!(refused.is_err_and(|e| e.is_conflict()), fault == Fault::Late, "{fault:?}");
        assert_eq!(renewer.renew_lease().await.unwrap(), LeaseStatus::Held, "{fault:?}");
    }
    let now = server.lock().unwrap().spec.clone();
    for spec in [now, backup] {
        server.lock().unwrap().write(spec);
        assert!(renewer.renew_lease().await.is_err_and(|e| e.is_conflict()));
        assert_eq!(renewer.renew_lease().await.unwrap(), LeaseStatus::Held);
    }
}

#[tokio::test]
async fn an_older_lease_ends_the_session() {
    let server: Arc<Mutex<ControlPlane>> = Arc::default();
    let mut renewer = renewer(control_plane(&server));
    for _ in 0..3 {
        assert_eq!(renewer.renew_lease().await.unwrap(), LeaseStatus::Held);
    }
    assert!(!renewer.restored);
    server.lock().unwrap().version -= 2;
    tokio::time::timeout(Duration::from_secs(20), renewer.run()).await.expect("it ends");
    assert_eq!(renewer.renew_lease().await.unwrap(), LeaseStatus::Held, "the next session begins");
    assert!(!renewer.restored);
}

#[tokio::test]
async fn unanswered_renewals_are_bounded() {
    let mut renewer = renewer(control_plane(&Arc::default()));
    for microsecond in 0..250 {
        renewer.record_sent(Timestamp::from_microsecond(microsecond).unwrap());
    }
    assert_eq!(renewer.unanswered.len(), MAX_UNANSWERED);
    assert_eq!(renewer.unanswered.last(), Some(&Timestamp::from_microsecond(249).unwrap()));
    assert!(RETRY * u32::try_from(MAX_UNANSWERED).unwrap() > Duration::from_secs(60), "no request takes longer");
}

#[test]
fn a_future_renewal_has_no_age() {
    let mut lease = held_by("you");
    let [before, renewed, after] = [50, 100, 150].map(|second| Timestamp::from_second(second).unwrap());
    assert_eq!(lease_age(&lease, renewed), Duration::ZERO);
    lease.spec.as_mut().unwrap().renew_time = Some(MicroTime(renewed));
    assert_eq!(lease_age(&lease, after), Duration::from_secs(50));
    assert_eq!(lease_age(&lease, before), Duration::ZERO);
}

#[test]
fn a_fast_clock_takes_no_lease() {
    let start = Instant::now() + Duration::from_secs(3600);
    let since = unobserved_since(start, Duration::from_secs(600));
    // A live holder renews within this time, which is observed.
    assert!(!foreign(held_by("you"), since).may_take(start + LEASE_RENEW_INTERVAL.mul_f64(1.1)));
    assert!(foreign(held_by("you"), since).may_take(start + LEASE_DURATION), "a dead one is followed all the same");
    assert_eq!(unobserved_since(start, Duration::from_secs(5)), start.checked_sub(Duration::from_secs(5)).unwrap());
}

#[tokio::test]
async fn failed_reads_do_not_age_a_lease() {
    // The holder's clock is ten minutes behind ours; every second answer is an error.
    let asked = AtomicUsize::new(0);
    let renewed = Timestamp::now().checked_sub(SignedDuration::from_secs(600)).unwrap();
    let client = test_api::api(move |_, brought| {
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
    let mut renewer = renewer(client);
    for _ in 0..3 {
        assert_eq!(renewer.renew_lease().await.unwrap(), LeaseStatus::Passive { holder: "you".to_owned() });
        let observed = renewer.observed.clone().unwrap().since;
        assert!(renewer.renew_lease().await.is_err());
        assert_eq!(renewer.observed.clone().unwrap().since, observed, "the observation is retained");
    }
    assert!(renewer.observed.unwrap().since.elapsed() < Duration::from_secs(1), "renewed since the first read");
}

#[test]
fn only_acquisitions_are_counted() {
    let now = Timestamp::from_second(5).unwrap();
    let taken = renewed_lease(&held_by("you"), "me", now).spec.unwrap();
    assert_eq!((taken.lease_transitions, taken.acquire_time), (Some(1), Some(MicroTime(now))));
    let kept = renewed_lease(&held_by("me"), "me", now).spec.unwrap();
    assert_eq!((kept.lease_transitions, kept.acquire_time), (Some(0), None));
    // A foreign value does not make the next one a number that the server refuses.
    let mut last = held_by("you");
    last.spec.get_or_insert_default().lease_transitions = Some(i32::MAX);
    assert_eq!(renewed_lease(&last, "me", now).spec.unwrap().lease_transitions, Some(i32::MAX));
}

#[tokio::test]
async fn another_holder_is_shown_as_far_as_a_name_may_be_long() {
    let renewer = renewer(test_api::api(|_, _| test_api::failure(404)));
    let status = renewer.passive_status(&held_by(&format!("a\u{1b}[2J{}", "x".repeat(1_000_000))));
    let LeaseStatus::Passive { holder } = status else { panic!("{status:?}") };
    assert!(holder.starts_with("a\\u{1b}[2Jxxx"), "{holder}");
    assert!(holder.chars().count() <= 254 && !holder.chars().any(char::is_control), "{}", holder.len());
}
