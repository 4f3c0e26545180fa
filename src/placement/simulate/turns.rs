//! The order in which the scheduler takes what is due at the same time: tenants in turns, of each the oldest group first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::placement::facts::ObjectKey;
use crate::placement::tenant::Tenant;

/// What is decided as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Request {
    /// A group, by name.
    Group(String),
    /// An object that its own annotation places.
    Object(ObjectKey),
}

/// Sorts requests as the scheduler takes them; `rank` is the age of a group's oldest member, and nothing of an object.
pub(super) fn sort_in_turns(
    requests: BTreeSet<Request>,
    place: impl Fn(&Request) -> (Tenant, Option<i64>),
) -> Vec<Request> {
    let mut waiting: BTreeMap<Tenant, BTreeSet<(Option<i64>, Request)>> = BTreeMap::new();
    let mut turns = VecDeque::new();
    for request in requests {
        let (tenant, rank) = place(&request);
        let of_tenant = waiting.entry(tenant.clone()).or_default();
        if of_tenant.is_empty() {
            turns.push_back(tenant);
        }
        of_tenant.insert((rank, request));
    }
    let mut sorted = Vec::new();
    while let Some(tenant) = turns.pop_front() {
        let of_tenant = waiting.entry(tenant.clone()).or_default();
        sorted.extend(of_tenant.pop_first().map(|(_, request)| request));
        if !of_tenant.is_empty() {
            turns.push_back(tenant);
        }
    }
    sorted
}
