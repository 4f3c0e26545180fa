//! Queue of the requests that must be planned, by the time at which they are due and in turns of their tenants.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::turns::{Slots, Turns};
use crate::placement::facts::ObjectKey;
use crate::placement::tenant::Tenant;

/// Requests whose writes are in progress at a time.
const REQUESTS: usize = 64;

/// Request that is planned as one: its writes are made one after the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReconcileRequest {
    /// A group.
    Group(String),
    /// An object outside groups, or one that is gone.
    Object(ObjectKey),
    /// Everything in a namespace that follows; with an empty name, what follows and has no namespace.
    Follow(String),
    /// The status of an object.
    Status(ObjectKey),
    /// The conditions of a policy.
    Policy(String),
}

/// Cause for which a request is due. Causes take turns too: what clusters report never delays what users change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// An object was changed by its owner.
    Change,
    /// A decision may be another one: by a policy, a cluster, or the time.
    Review,
    /// A copy reports something.
    Report,
}

const CAUSES: [Cause; 3] = [Cause::Change, Cause::Review, Cause::Report];

/// Order of a request among those of its tenant that are due: the least first.
pub(super) type Rank = Option<i64>;

/// Time at which a request is planned.
#[derive(Debug, Clone)]
struct Due {
    at: Instant,
    first: Instant,
    cause: Cause,
    /// Set once it is due and may begin.
    ready: Option<(Tenant, Rank)>,
}

/// A request whose turn it is. Its slot is held until [`Queue::finish_request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) request: ReconcileRequest,
    pub(super) tenant: Tenant,
    pub(super) cause: Cause,
    /// Time since it was first marked.
    pub(super) waited: Duration,
}

/// Requests of one cause that may begin, by tenant.
#[derive(Debug, Default)]
struct Lane {
    ready: BTreeMap<Tenant, BTreeSet<(Rank, ReconcileRequest)>>,
    turns: Turns<Tenant>,
}

impl Lane {
    fn insert(&mut self, tenant: &Tenant, rank: Rank, request: ReconcileRequest) {
        self.ready.entry(tenant.clone()).or_default().insert((rank, request));
        self.turns.add_waiter(tenant);
    }

    fn remove(&mut self, tenant: &Tenant, one: &(Rank, ReconcileRequest)) {
        if let Some(requests) = self.ready.get_mut(tenant) {
            requests.remove(one);
            if requests.is_empty() {
                self.ready.remove(tenant);
                self.turns.remove_waiter(tenant);
            }
        }
    }

    /// Returns the first request of the tenant whose turn it is.
    fn first_ready_request(&self, slots: &Slots<Tenant>) -> Option<&ReconcileRequest> {
        let tenant = self.turns.next_eligible(slots)?;
        self.ready.get(tenant)?.first().map(|(_, request)| request)
    }
}

/// Requests that are due at some time, each once.
///
/// Thousands may wait while a few are being written, and each completed write takes the next: later requests are sorted by
/// time, and due requests are grouped by cause and tenant, in turns. A request that is being written waits for the end of
/// that write.
#[derive(Debug)]
pub(super) struct Queue {
    requests: BTreeMap<ReconcileRequest, Due>,
    later: BTreeSet<(Instant, ReconcileRequest)>,
    lanes: BTreeMap<Cause, Lane>,
    /// Cause whose turn it is.
    turn: usize,
    slots: Slots<Tenant>,
    under_way: BTreeMap<ReconcileRequest, (Tenant, Instant)>,
    /// Beginnings of what is in progress.
    begun: BTreeSet<(Instant, ReconcileRequest)>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            requests: BTreeMap::new(),
            later: BTreeSet::new(),
            lanes: CAUSES.map(|cause| (cause, Lane::default())).into(),
            turn: 0,
            slots: Slots::new(REQUESTS),
            under_way: BTreeMap::new(),
            begun: BTreeSet::new(),
        }
    }
}

impl Queue {
    /// Makes a request due now.
    pub(super) fn mark_due(&mut self, request: ReconcileRequest, cause: Cause, now: Instant) {
        let at = self.requests.get(&request).map_or(now, |due| due.at.min(now));
        self.set_due_time(request, at, cause, now);
    }

    /// Makes a request due after a wait, which restarts with each change up to the longest; an earlier due time is kept.
    pub(super) fn postpone_request(
        &mut self,
        request: ReconcileRequest,
        cause: Cause,
        now: Instant,
        wait: Duration,
        longest: Duration,
    ) {
        let at = match self.requests.get(&request) {
            None => now + wait,
            Some(due) if due.at > now => (now + wait).min(due.first + longest),
            Some(due) => due.at,
        };
        self.set_due_time(request, at, cause, now);
    }

    /// Makes a request due after a wait, unless it is due anyway.
    pub(super) fn retry_request(&mut self, request: ReconcileRequest, cause: Cause, now: Instant, wait: Duration) {
        if !self.requests.contains_key(&request) {
            self.set_due_time(request, now + wait, cause, now);
        }
    }

    fn set_due_time(&mut self, request: ReconcileRequest, at: Instant, cause: Cause, now: Instant) {
        let due = self.requests.entry(request.clone()).or_insert(Due { at, first: now, cause, ready: None });
        let before = due.cause;
        due.cause = before.min(cause);
        if let Some((tenant, rank)) = &due.ready {
            if before != due.cause {
                let one = (*rank, request);
                self.lanes.entry(before).or_default().remove(tenant, &one);
                self.lanes.entry(due.cause).or_default().insert(tenant, one.0, one.1);
            }
            return;
        }
        let before = std::mem::replace(&mut due.at, at);
        if before != at {
            self.later.remove(&(before, request.clone()));
        }
        // It comes back with the end of its writes.
        if !self.under_way.contains_key(&request) {
            self.later.insert((at, request));
        }
    }

    /// Returns whether a request that may begin comes after all of its tenant.
    pub(super) fn is_youngest(&self, request: &ReconcileRequest) -> bool {
        let ready = self.requests.get(request).and_then(|due| due.ready.as_ref());
        ready.is_some_and(|(_, rank)| *rank == Some(i64::MAX))
    }

    /// Gives a request that may begin another place.
    pub(super) fn move_request(&mut self, request: &ReconcileRequest, (tenant, rank): (Tenant, Rank)) {
        let Some(due) = self.requests.get_mut(request) else { return };
        let Some((before, former)) = due.ready.replace((tenant.clone(), rank)) else { return };
        let lane = self.lanes.entry(due.cause).or_default();
        lane.remove(&before, &(former, request.clone()));
        lane.insert(&tenant, rank, request.clone());
    }

    /// Number of requests that are due at some time.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns the beginning of what is in progress for longest.
    pub(super) fn oldest_start(&self) -> Option<Instant> {
        self.begun.first().map(|(began, _)| *began)
    }

    /// Returns the time at which the next request may begin; `None` where none may before another one has ended.
    pub(super) fn next_start(&self) -> Option<Instant> {
        let ready = self.lanes.values().find_map(|lane| lane.first_ready_request(&self.slots));
        let ready = ready.and_then(|request| self.requests.get(request)).map(|due| due.at);
        ready.or_else(|| self.later.first().map(|(at, _)| *at))
    }

    /// Takes the request whose turn it is, if one is due; `place` says its owner, and its rank there.
    pub(super) fn take_request(
        &mut self,
        now: Instant,
        place: impl Fn(&ReconcileRequest) -> (Tenant, Rank),
    ) -> Option<Taken> {
        while self.later.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, request)) = self.later.pop_first()
            && let Some(due) = self.requests.get_mut(&request)
        {
            let (tenant, rank) = place(&request);
            self.lanes.entry(due.cause).or_default().insert(&tenant, rank, request);
            due.ready = Some((tenant, rank));
        }
        let turns = (0..CAUSES.len()).map(|after| (self.turn + after) % CAUSES.len());
        let (at, request) = turns.into_iter().find_map(|at| {
            let request = self.lanes.get(&CAUSES[at])?.first_ready_request(&self.slots)?;
            Some((at, request.clone()))
        })?;
        self.turn = (at + 1) % CAUSES.len();
        let Due { first, cause, ready, .. } = self.requests.remove(&request)?;
        let (tenant, rank) = ready?;
        let lane = self.lanes.entry(cause).or_default();
        lane.remove(&tenant, &(rank, request.clone()));
        if lane.ready.contains_key(&tenant) {
            lane.turns.move_to_back(&tenant);
        }
        self.slots.take_slot(&tenant);
        self.under_way.insert(request.clone(), (tenant.clone(), now));
        self.begun.insert((now, request.clone()));
        Some(Taken { request, tenant, cause, waited: now.saturating_duration_since(first) })
    }

    /// Ends a request that was taken: its slot is free, and it may be taken again.
    pub(super) fn finish_request(&mut self, request: &ReconcileRequest) {
        let Some((tenant, began)) = self.under_way.remove(request) else { return };
        self.begun.remove(&(began, request.clone()));
        self.slots.release_slot(&tenant);
        if let Some(due) = self.requests.get(request) {
            self.later.insert((due.at, request.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str) -> ReconcileRequest {
        ReconcileRequest::Group(name.to_owned())
    }

    /// The tenant is what stands before the first dash.
    fn place(request: &ReconcileRequest) -> (Tenant, Rank) {
        let ReconcileRequest::Group(name) = request else { return (Tenant::Policies, None) };
        (Tenant::Namespace(name.split('-').next().unwrap_or_default().to_owned()), None)
    }

    fn take(queue: &mut Queue, now: Instant) -> Option<ReconcileRequest> {
        let taken = queue.take_request(now, place)?.request;
        queue.finish_request(&taken);
        Some(taken)
    }

    fn all(queue: &mut Queue, now: Instant) -> Vec<ReconcileRequest> {
        std::iter::from_fn(|| take(queue, now)).collect()
    }

    fn postpone_shortly(queue: &mut Queue, now: Instant) {
        let [quiet, longest] = [100, 300].map(Duration::from_millis);
        queue.postpone_request(request("g"), Cause::Report, now, quiet, longest);
    }

    /// Takes a request of a namespace in which all but `empty` have the same rank.
    fn take_in_shop(queue: &mut Queue, now: Instant) -> ReconcileRequest {
        let taken = queue.take_request(now, |one| {
            let rank = if *one == request("empty") { i64::MAX } else { 5 };
            (Tenant::Namespace("shop".to_owned()), Some(rank))
        });
        let taken = taken.unwrap().request;
        queue.finish_request(&taken);
        taken
    }

    #[test]
    fn changes_in_quick_succession_are_planned_once_and_not_too_late() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut queue = Queue::default();
        for millis in [0, 80, 160, 240] {
            postpone_shortly(&mut queue, at(millis));
        }
        assert_eq!(queue.next_start(), Some(at(300)), "at most so late");
        assert_eq!(take(&mut queue, at(299)), None);
        queue.mark_due(request("g"), Cause::Change, at(250));
        assert_eq!(queue.next_start(), Some(at(250)), "what cannot wait does not");
        queue.retry_request(request("g"), Cause::Change, at(250), Duration::from_secs(9));
        assert_eq!(queue.next_start(), Some(at(250)));
        postpone_shortly(&mut queue, at(310));
        assert_eq!(queue.next_start(), Some(at(250)), "what is due stays so");
        let taken = queue.take_request(at(400), place).unwrap();
        assert_eq!((taken.waited, taken.cause), (Duration::from_millis(400), Cause::Change));
        assert_eq!((queue.next_start(), queue.len(), queue.oldest_start()), (None, 0, Some(at(400))));
        queue.mark_due(request("g"), Cause::Change, at(410));
        assert_eq!((queue.next_start(), queue.take_request(at(420), place)), (None, None), "it is being written");
        queue.finish_request(&request("g"));
        assert_eq!((queue.next_start(), queue.oldest_start()), (Some(at(410)), None));
        assert_eq!(take(&mut queue, at(420)), Some(request("g")));
        assert_eq!((queue.next_start(), queue.len()), (None, 0));
    }

    #[test]
    fn what_is_due_is_taken_by_its_rank_within_a_tenant() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for name in ["a", "b", "c", "d"] {
            queue.mark_due(request(name), Cause::Change, now);
        }
        queue.postpone_request(request("later"), Cause::Change, now, Duration::from_secs(1), Duration::from_secs(9));
        for expected in ["d", "b", "c", "a"] {
            let taken = queue.take_request(now, |one| {
                let rank = if *one == request("a") { 9 } else { 5 };
                (Tenant::ClusterScoped, (*one != request("d")).then_some(rank))
            });
            assert_eq!(taken.unwrap().request, request(expected));
        }
        assert_eq!(queue.next_start(), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn what_gets_its_first_member_while_it_waits_takes_the_place_of_that() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for name in ["empty", "shop-a", "shop-b", "shop-c"] {
            queue.mark_due(request(name), Cause::Change, now);
        }
        assert_eq!(take_in_shop(&mut queue, now), request("shop-a"));
        assert!(queue.is_youngest(&request("empty")) && !queue.is_youngest(&request("shop-b")));
        queue.move_request(&request("empty"), (Tenant::Namespace("shop".to_owned()), Some(1)));
        assert_eq!([(); 3].map(|()| take_in_shop(&mut queue, now)), ["empty", "shop-b", "shop-c"].map(request));
    }

    #[test]
    fn a_flood_of_one_tenant_delays_another_by_one_unit() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for number in 0..10_000 {
            queue.mark_due(request(&format!("flood-{number}")), Cause::Change, now);
        }
        for _ in 0..3 {
            assert!(take(&mut queue, now).is_some());
        }
        queue.mark_due(request("shop-web"), Cause::Change, now);
        queue.mark_due(request("bank-web"), Cause::Change, now);
        let next: Vec<_> = (0..3).map(|_| take(&mut queue, now).unwrap()).collect();
        assert!(next.contains(&request("shop-web")) && next.contains(&request("bank-web")), "{next:?}");
        assert_eq!(all(&mut queue, now).len(), 10_000 - 4);
    }

    #[test]
    fn reports_of_a_cluster_delay_a_change_by_one_unit() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for number in 0..1000 {
            // Copies of every tenant.
            queue.mark_due(request(&format!("{number}-web")), Cause::Report, now);
            queue.mark_due(request(&format!("{number}-db")), Cause::Review, now);
        }
        assert!(take(&mut queue, now).is_some());
        queue.mark_due(request("shop-web"), Cause::Change, now);
        let next: Vec<_> = (0..3).map(|_| take(&mut queue, now).unwrap()).collect();
        assert!(next.contains(&request("shop-web")), "{next:?}");
        // One that is due already comes forward, and is planned once.
        queue.mark_due(request("7-web"), Cause::Change, now);
        let next: Vec<_> = (0..3).map(|_| take(&mut queue, now).unwrap()).collect();
        assert!(next.contains(&request("7-web")), "{next:?}");
        assert_eq!(all(&mut queue, now).len(), 2000 - 6);
    }

    #[test]
    fn a_tenant_whose_writes_hang_leaves_slots_to_others() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for number in 0..100 {
            queue.mark_due(request(&format!("slow-{number}")), Cause::Change, now);
        }
        let hanging: Vec<_> = std::iter::from_fn(|| queue.take_request(now, place)).collect();
        assert_eq!((hanging.len(), queue.next_start()), (REQUESTS / 2, None));
        queue.mark_due(request("shop-web"), Cause::Change, now);
        assert_eq!(queue.next_start(), Some(now));
        assert_eq!(queue.take_request(now, place).unwrap().request, request("shop-web"));
        queue.finish_request(&hanging[0].request);
        assert!(queue.take_request(now, place).is_some(), "it goes on as its own writes end");
    }
}
