//! Round-robin of tenants over shared slots: a tenant with many requests does not delay the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::placement::tenant::Tenant;

/// Order in which tenants that wait are served: who was served last comes last.
#[derive(Debug)]
pub(super) struct Turns<T> {
    order: BTreeSet<(u64, T)>,
    numbers: BTreeMap<T, u64>,
    last: u64,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { order: BTreeSet::new(), numbers: BTreeMap::new(), last: 0 }
    }
}

impl<T: Ord + Clone> Turns<T> {
    /// Adds somebody behind all that wait, unless they wait already.
    pub(super) fn add_waiter(&mut self, who: &T) {
        if !self.numbers.contains_key(who) {
            self.last += 1;
            self.numbers.insert(who.clone(), self.last);
            self.order.insert((self.last, who.clone()));
        }
    }

    /// Removes somebody who waits for nothing.
    pub(super) fn remove_waiter(&mut self, who: &T) {
        if let Some(turn) = self.numbers.remove(who) {
            self.order.remove(&(turn, who.clone()));
        }
    }

    /// Moves somebody who was served behind all others.
    pub(super) fn move_to_back(&mut self, who: &T) {
        self.remove_waiter(who);
        self.add_waiter(who);
    }

    /// Returns whose turn it is.
    pub(super) fn first_waiter(&self) -> Option<&T> {
        self.order.first().map(|(_, who)| who)
    }

    /// Returns whose turn it is of those who may have a slot.
    pub(super) fn next_eligible(&self, slots: &Slots<T>) -> Option<&T> {
        // Those who may not have one hold some: no more are looked at than there are slots.
        let is_any_free = slots.free > 0;
        self.order.iter().map(|(_, who)| who).take_while(|_| is_any_free).find(|who| slots.may_take(who))
    }
}

/// A number of slots. A single tenant gets at most half of them, several get equal parts; as long as there are fewer
/// tenants than slots, one is free for a new tenant.
#[derive(Debug)]
pub(super) struct Slots<T> {
    free: usize,
    held: BTreeMap<T, usize>,
}

impl<T: Ord + Clone> Slots<T> {
    /// Creates so many free slots.
    pub(super) fn new(count: usize) -> Self {
        Self { free: count, held: BTreeMap::new() }
    }

    /// Returns whether somebody may have one more: they hold fewer than are free.
    pub(super) fn may_take(&self, who: &T) -> bool {
        self.held.get(who).copied().unwrap_or_default() < self.free
    }

    /// Gives somebody a slot.
    pub(super) fn take_slot(&mut self, who: &T) {
        self.free = self.free.saturating_sub(1);
        *self.held.entry(who.clone()).or_default() += 1;
    }

    /// Takes a slot back.
    pub(super) fn release_slot(&mut self, who: &T) {
        if let Some(held) = self.held.get_mut(who) {
            *held -= 1;
            self.free += 1;
            if *held == 0 {
                self.held.remove(who);
            }
        }
    }
}

/// Permits for requests, which tenants get in turns.
#[derive(Debug, Clone)]
pub(super) struct Permits(Arc<Mutex<Waiting>>);

#[derive(Debug)]
struct Waiting {
    slots: Slots<Tenant>,
    turns: Turns<Tenant>,
    /// Requests by tenant, in the order in which they came.
    queues: BTreeMap<Tenant, BTreeMap<u64, oneshot::Sender<Permit>>>,
    last: u64,
}

/// Permit for one request; given back when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    permits: Permits,
    tenant: Tenant,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let refused = {
            let mut waiting = self.permits.lock_waiting();
            waiting.slots.release_slot(&self.tenant);
            waiting.grant_permits(&self.permits)
        };
        // Their own drops take the lock.
        drop(refused);
    }
}

impl Permits {
    /// Creates so many permits.
    pub(super) fn new(count: usize) -> Self {
        let waiting = Waiting { slots: Slots::new(count), turns: Turns::default(), queues: BTreeMap::new(), last: 0 };
        Self(Arc::new(Mutex::new(waiting)))
    }

    fn lock_waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the tenant's turn.
    pub(super) async fn acquire_permit(&self, tenant: &Tenant) -> Option<Permit> {
        let (sender, receiver) = oneshot::channel();
        let refused = {
            let mut waiting = self.lock_waiting();
            waiting.last += 1;
            let number = waiting.last;
            waiting.queues.entry(tenant.clone()).or_default().insert(number, sender);
            waiting.turns.add_waiter(tenant);
            waiting.grant_permits(self)
        };
        drop(refused);
        receiver.await.ok()
    }
}

impl Waiting {
    /// Gives what is free to those whose turn it is; returns the permits of those who no longer wait.
    fn grant_permits(&mut self, permits: &Permits) -> Vec<Permit> {
        let mut refused = Vec::new();
        loop {
            let Some(tenant) = self.turns.next_eligible(&self.slots).cloned() else { return refused };
            let Some(queue) = self.queues.get_mut(&tenant) else { return refused };
            let first = queue.pop_first();
            if queue.is_empty() {
                self.queues.remove(&tenant);
                self.turns.remove_waiter(&tenant);
            } else {
                self.turns.move_to_back(&tenant);
            }
            let Some((_, sender)) = first else { return refused };
            if sender.is_closed() {
                continue;
            }
            self.slots.take_slot(&tenant);
            let permit = Permit { permits: permits.clone(), tenant };
            refused.extend(sender.send(permit).err());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn one_tenant_leaves_half_and_several_share() {
        let mut slots = Slots::new(64);
        for (who, expected) in [(1, 32), (2, 16), (3, 8)] {
            let mut count = 0;
            while slots.may_take(&who) {
                slots.take_slot(&who);
                count += 1;
            }
            assert_eq!(count, expected, "{who}");
        }
        for _ in 0..16 {
            slots.release_slot(&1);
        }
        assert!(!slots.may_take(&2) || slots.may_take(&4), "a newcomer comes before those who hold something");
    }

    #[tokio::test]
    async fn a_request_waits_for_one_of_each_other_tenant() {
        let permits = Permits::new(4);
        let (many, few) = (Tenant::Namespace("many".to_owned()), Tenant::Namespace("few".to_owned()));
        let mut held: Vec<_> =
            (0..2).map(|_| permits.acquire_permit(&many).now_or_never().flatten().unwrap()).collect();
        let mut queued: Vec<_> = (0..1000).map(|_| Box::pin(permits.acquire_permit(&many))).collect();
        assert!(queued.iter_mut().all(|one| one.as_mut().now_or_never().is_none()), "half is left to others");
        let others: Vec<_> = (0..1).map(|_| permits.acquire_permit(&few).now_or_never().flatten().unwrap()).collect();
        let mut next = Box::pin(permits.acquire_permit(&few));
        assert!(next.as_mut().now_or_never().is_none());
        held.pop();
        drop(others);
        let now = next.as_mut().now_or_never().flatten();
        assert!(now.is_some(), "a thousand that came before are not before it");
        // Whoever no longer waits takes nothing away.
        drop(queued);
        drop((held, now));
        let all: Vec<_> = (0..2).map(|_| permits.acquire_permit(&many).now_or_never().flatten().unwrap()).collect();
        assert_eq!((all.len(), permits.lock_waiting().slots.free), (2, 2));
    }
}
