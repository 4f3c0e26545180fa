//! Policies that cannot be read, and those that are being deleted: they decide nothing.
//!
//! A policy whose selector is broken keeps its objects by its last good form, so that none is handed over to the next
//! policy. A scheduler that has not seen that form knows the objects by the group that their copies are in.

use std::cmp::Reverse;

use super::store::Store;
use crate::api::SchedulePolicy;
use crate::placement::facts::ObjectKey;
use crate::placement::matching::{Policies, Policy};

/// Returns what is compared to find the policy that decides; the first does.
fn policy_rank(priority: i32, policy: &SchedulePolicy) -> impl Ord {
    let created = policy.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (Reverse(priority), created.is_none(), created, policy.metadata.name.clone())
}

impl Store {
    /// Reads all policies again, and puts them into the order in which they decide.
    pub(super) fn order_policies(&mut self) {
        self.broken.clear();
        let mut readable = Vec::new();
        for (name, known) in &self.policies {
            if known.metadata.deletion_timestamp.is_some() {
                self.last_good.remove(name);
                continue;
            }
            match Policy::from_schedule_policy(known) {
                Ok(policy) => {
                    self.last_good.insert(name.clone(), policy.clone());
                    readable.push(policy);
                }
                Err(_) => {
                    self.broken.insert(name.clone());
                    readable.extend(self.last_good.get(name).cloned());
                }
            }
        }
        self.last_good.retain(|name, _| self.policies.contains_key(name));
        self.order = Policies::new(readable)
            .with_direct_placement_denied(self.denies_direct)
            .with_own_namespace(self.own_namespace.clone());
    }

    /// Returns whether nothing new is decided about an object that a policy matches: the policy is broken, or a broken one
    /// that comes before it has placed the object.
    pub(super) fn is_withheld(&self, key: &ObjectKey, policy: &Policy) -> bool {
        if self.broken.is_empty() {
            return false;
        }
        if self.broken.contains(&policy.name) {
            return true;
        }
        let groups = self.copies_of(key).filter_map(|(_, copy)| self.groups.get(copy.spec.group.as_deref()?));
        let Some(matching) = self.policies.get(&policy.name) else { return false };
        groups.into_iter().any(|group| {
            let name = &group.spec.policy.name;
            self.broken.contains(name)
                && !self.last_good.contains_key(name)
                && self.policies.get(name).is_some_and(|broken| {
                    policy_rank(broken.spec.priority, broken) < policy_rank(matching.spec.priority, matching)
                })
        })
    }
}
