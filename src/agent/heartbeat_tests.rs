//! Hearts of one name or of several, and what becomes of their renewals.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::agent::test_api;

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

fn hub(there: &Arc<Mutex<Hub>>) -> Client {
    let there = Arc::clone(there);
    test_api::api(move |_, brought| there.lock().unwrap().answer(brought))
}

#[test]
fn a_second_agent_takes_over_only_after_the_first_went_silent() {
    let start = Instant::now();
    let almost = start + LEASE_DURATION.checked_sub(Duration::from_millis(1)).unwrap();
    assert!(seen(Lease::default(), start).may_take(start));
    assert!(Seen { ours: true, ..seen(held_by("me"), start) }.may_take(start));
    assert!(!seen(held_by("you"), start).may_take(almost));
    assert!(seen(held_by("you"), start).may_take(start + LEASE_DURATION));
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
    seen.since = seen.since.checked_sub(LEASE_DURATION).unwrap();
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
    assert!(!seen(held_by("you"), since).may_take(start + LEASE_RENEW_INTERVAL.mul_f64(1.1)));
    assert!(seen(held_by("you"), since).may_take(start + LEASE_DURATION), "a dead one is followed all the same");
    assert_eq!(unseen(start, Duration::from_secs(5)), start.checked_sub(Duration::from_secs(5)).unwrap());
}

#[tokio::test]
async fn a_look_that_fails_does_not_make_a_fast_clock_believed() {
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
    // What anybody may have written there does not make the next one a number that the server refuses.
    let mut last = held_by("you");
    last.spec.get_or_insert_default().lease_transitions = Some(i32::MAX);
    assert_eq!(renewed(&last, "me", now).spec.unwrap().lease_transitions, Some(i32::MAX));
}
