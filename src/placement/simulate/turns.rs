//! The order in which the scheduler takes what is due: tenants in turns, of each the oldest group first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::placement::facts::ObjectKey;
use crate::placement::tenant::Tenant;

/// What is planned as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Request {
    /// A group, by name.
    Group(String),
    /// An object that its own annotation places.
    Object(ObjectKey),
    /// What follows in a namespace, or, with an empty name, what has none.
    Follow(String),
}

/// Whose a request is, and the age of the oldest member of a group; other requests of a tenant come before its groups.
pub(super) type Turn = (Tenant, Option<i64>);

/// Requests that are due at the same time. Whoever was served comes after all that wait.
#[derive(Debug, Default)]
pub(super) struct TurnQueue {
    waiting: BTreeMap<Tenant, BTreeSet<(Option<i64>, Request)>>,
    turns: VecDeque<Tenant>,
}

impl TurnQueue {
    /// Adds a request.
    pub(super) fn push_request(&mut self, request: Request, (tenant, rank): Turn) {
        let of_tenant = self.waiting.entry(tenant.clone()).or_default();
        if of_tenant.is_empty() {
            self.turns.push_back(tenant);
        }
        of_tenant.insert((rank, request));
    }

    /// Takes the request whose turn it is.
    pub(super) fn take_turn(&mut self) -> Option<Request> {
        let tenant = self.turns.pop_front()?;
        let of_tenant = self.waiting.get_mut(&tenant)?;
        let (_, request) = of_tenant.pop_first()?;
        if !of_tenant.is_empty() {
            self.turns.push_back(tenant);
        }
        Some(request)
    }
}
