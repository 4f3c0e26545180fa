//! Events that wait to be written: so many for each tenant and each agent, written in turns.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::turns::{Slots, Turns};
use crate::placement::tenant::Tenant;

/// Events of one payer in a burst, and after it in a second.
const BURST: f64 = 200.0;
const RATE: f64 = 20.0;
/// Part of an agent's events that may be about the objects of one tenant.
const TENANT_SHARE: f64 = 0.25;
/// Payers whose events are counted; further ones share one allowance.
const PAYERS: usize = 4096;
/// Events that wait, of all payers together.
const WAITING: usize = 2048;
/// Shortest time between two looks for allowances that are whole again.
const SWEEP: Duration = Duration::from_secs(1);

/// Party at whose expense an event is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Payer {
    /// A tenant: the event is about a decision or an object of theirs.
    Tenant(Tenant),
    /// The agent of a cluster: the event repeats what it reports.
    Agent(String),
    /// An agent for the objects of one tenant.
    AgentFor(String, Tenant),
    /// Everybody whose allowance there is no place for.
    Rest,
}

/// What is left of an allowance, and when that was counted.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
    share: f64,
}

impl Bucket {
    fn remaining_allowance(&self, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + RATE * self.share * since).min(BURST * self.share)
    }
}

/// Allowances of those who had events written of late.
#[derive(Debug)]
struct Buckets {
    buckets: BTreeMap<Payer, Bucket>,
    swept: Option<Instant>,
}

impl Buckets {
    /// Returns the payer whose allowance counts, with a place for it.
    fn ensure_bucket(&mut self, payer: Payer, share: f64, now: Instant) -> Payer {
        if !self.buckets.contains_key(&payer) && self.buckets.len() >= PAYERS {
            if self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP) {
                self.swept = Some(now);
                // What is whole again is as if it had never been touched.
                self.buckets.retain(|_, bucket| bucket.remaining_allowance(now) < BURST * bucket.share);
            }
            if self.buckets.len() >= PAYERS {
                self.buckets.entry(Payer::Rest).or_insert(Bucket { left: BURST, at: now, share: 1.0 });
                return Payer::Rest;
            }
        }
        self.buckets.entry(payer.clone()).or_insert(Bucket { left: BURST * share, at: now, share });
        payer
    }

    /// Takes one event out of all of these allowances, or out of none.
    fn take_allowances(&mut self, payers: Vec<(Payer, f64)>, now: Instant) -> bool {
        let payers: Vec<Payer> =
            payers.into_iter().map(|(payer, share)| self.ensure_bucket(payer, share, now)).collect();
        let is_allowed = payers
            .iter()
            .all(|payer| self.buckets.get(payer).is_some_and(|bucket| bucket.remaining_allowance(now) >= 1.0));
        for payer in payers.iter().filter(|_| is_allowed) {
            if let Some(bucket) = self.buckets.get_mut(payer) {
                *bucket = Bucket { left: bucket.remaining_allowance(now) - 1.0, at: now, ..*bucket };
            }
        }
        is_allowed
    }
}

#[derive(Debug)]
struct Inner<E> {
    buckets: Buckets,
    slots: Slots<Payer>,
    turns: Turns<Payer>,
    waiting: BTreeMap<Payer, VecDeque<E>>,
}

/// Events that wait to be written.
#[derive(Debug)]
pub(super) struct EventQueue<E> {
    inner: Arc<Mutex<Inner<E>>>,
    added: Arc<Notify>,
}

impl<E> Clone for EventQueue<E> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), added: self.added.clone() }
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        let inner = Inner {
            buckets: Buckets { buckets: BTreeMap::new(), swept: None },
            slots: Slots::new(WAITING),
            turns: Turns::default(),
            waiting: BTreeMap::new(),
        };
        Self { inner: Arc::new(Mutex::new(inner)), added: Arc::default() }
    }
}

impl<E> EventQueue<E> {
    fn with_queue_state<T>(&self, access: impl FnOnce(&mut Inner<E>) -> T) -> T {
        access(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds an event about something of a tenant's, of an agent's report if it is one; returns false where it is lost.
    pub(super) fn push_event(&self, event: E, tenant: &Tenant, agent: Option<&str>, now: Instant) -> bool {
        let payer = agent.map_or_else(|| Payer::Tenant(tenant.clone()), |agent| Payer::Agent(agent.to_owned()));
        let mut payers = vec![(payer.clone(), 1.0)];
        payers.extend(agent.map(|agent| (Payer::AgentFor(agent.to_owned(), tenant.clone()), TENANT_SHARE)));
        let is_kept = self.with_queue_state(|inner| {
            let is_kept = inner.buckets.take_allowances(payers, now) && inner.slots.may_take(&payer);
            if is_kept {
                inner.slots.take_slot(&payer);
                inner.turns.add_waiter(&payer);
                inner.waiting.entry(payer).or_default().push_back(event);
            }
            is_kept
        });
        if is_kept {
            self.added.notify_one();
        }
        is_kept
    }

    /// Waits for the event whose turn it is.
    pub(super) async fn wait_for_event(&self) -> E {
        loop {
            if let Some(event) = self.pop_event() {
                return event;
            }
            self.added.notified().await;
        }
    }

    fn pop_event(&self) -> Option<E> {
        self.with_queue_state(|inner| {
            let payer = inner.turns.first_waiter()?.clone();
            let queue = inner.waiting.get_mut(&payer)?;
            let event = queue.pop_front();
            if queue.is_empty() {
                inner.waiting.remove(&payer);
                inner.turns.remove_waiter(&payer);
            } else {
                inner.turns.move_to_back(&payer);
            }
            inner.slots.release_slot(&payer);
            event
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::Namespace(name.to_owned())
    }

    /// Returns how many of a thousand events are taken, and takes them out again.
    fn count_admitted(queue: &EventQueue<()>, who: &str, agent: Option<&str>, at: Instant) -> usize {
        let kept = (0..1000).filter(|_| queue.push_event((), &tenant(who), agent, at)).count();
        while queue.pop_event().is_some() {}
        kept
    }

    #[test]
    fn a_burst_of_events_is_cut_to_the_rate_of_each_tenant() {
        let queue = EventQueue::default();
        let start = Instant::now();
        for (seconds, expected) in [(1, 200), (2, 20), (60, 200)] {
            let at = start + Duration::from_secs(seconds);
            assert_eq!(count_admitted(&queue, "loud", None, at), expected, "{seconds}");
        }
        let later = start + Duration::from_secs(60);
        assert_eq!(count_admitted(&queue, "shop", None, later), 200, "others have their own");
        // What an agent reports of one tenant leaves room for what it reports of others, and takes nothing from the tenant.
        assert_eq!(["loud", "bank"].map(|who| count_admitted(&queue, who, Some("east"), later)), [50, 50]);
        assert_eq!(count_admitted(&queue, "bank", None, later), 200);
        let more: usize = (0..100).map(|number| count_admitted(&queue, &number.to_string(), Some("east"), later)).sum();
        assert_eq!(more, 100, "of all tenants together no more than the agent has");
    }

    #[test]
    fn events_are_written_in_turns_and_those_that_wait_are_bounded() {
        let queue = EventQueue::default();
        let now = Instant::now();
        let mut kept = 0;
        for number in 0..10_000 {
            let loud = tenant(&format!("loud-{}", number % 100));
            kept += usize::from(queue.push_event(loud.clone(), &loud, None, now));
        }
        assert!(kept < WAITING, "{kept}");
        assert!(queue.push_event(tenant("shop"), &tenant("shop"), None, now), "there is room for whoever comes");
        let next: Vec<Tenant> = (0..101).filter_map(|_| queue.pop_event()).collect();
        assert!(next.contains(&tenant("shop")), "one of each comes first");
        assert_eq!(std::iter::from_fn(|| queue.pop_event()).count(), kept + 1 - 101);
    }

    fn take_for_number(buckets: &mut Buckets, number: usize, at: Instant) -> bool {
        buckets.take_allowances(vec![(Payer::Tenant(tenant(&number.to_string())), 1.0)], at)
    }

    #[test]
    fn allowances_are_forgotten_when_they_are_whole_again() {
        let mut buckets = Buckets { buckets: BTreeMap::new(), swept: None };
        let start = Instant::now();
        let late = (0..2 * PAYERS).filter(|number| !take_for_number(&mut buckets, *number, start)).count();
        assert_eq!(late, PAYERS - 200, "the rest has one allowance together");
        assert!(take_for_number(&mut buckets, usize::MAX, start + Duration::from_secs(60)));
        assert_eq!(buckets.buckets.len(), 1);
    }
}
