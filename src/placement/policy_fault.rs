//! Fault that keeps a policy from being applied as it is.

use super::copy::path_errors;
use super::matching::{FEWEST_FAILOVER_SECONDS, Policy};
use crate::api::SchedulePolicy;
use crate::api::placeable::Kinds;

/// Returns the fault that keeps a policy from being applied as it is: the reason and what is wrong; `None` without one.
pub fn find_policy_fault(kinds: &Kinds, policy: &SchedulePolicy) -> Option<(&'static str, String)> {
    let policy = match Policy::from_schedule_policy(policy) {
        Ok(policy) => policy,
        Err(error) => return Some(("SelectorInvalid", error.to_string())),
    };
    if let Some(error) = path_errors(&policy).into_iter().next() {
        return Some((error.code(), error.to_string()));
    }
    if policy.spec.failover.as_ref().is_some_and(|failover| failover.enabled) && policy.failover_seconds().is_none() {
        let message = format!(
            "`failover.afterSeconds` is less than {FEWEST_FAILOVER_SECONDS}: groups stay on lost clusters until you raise it"
        );
        return Some(("FailoverTooShort", message));
    }
    let selectors = &policy.spec.resource_selectors;
    if let Some(kind) = selectors.kinds.iter().find(|kind| kinds.find_placeable(&kind.group, &kind.kind).is_none()) {
        let name = if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        return Some((
            "KindNotPlaceable",
            format!(
                "objects of the kind {name} cannot be placed; add the kind to `placement.extraKinds` of the control \
                 plane and of the agents"
            ),
        ));
    }
    if selectors.label_selectors.is_empty() {
        let message = "`labelSelectors: []` matches nothing; `labelSelectors: [{}]` matches everything";
        return Some(("SelectorInvalid", message.to_owned()));
    }
    None
}
