//! Requests of pods: of a live pod and of a template alike.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::api::quantity::{Milli, parse_quantity};

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Milli>;

/// Returns the amounts of quantities; what is no quantity is left out.
pub fn parse_amounts(quantities: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    quantities.into_iter().flatten().filter_map(|(name, q)| Some((name.clone(), parse_quantity(&q.0)?))).collect()
}

/// Adds `more` to what is in `to`.
pub fn add_amounts(to: &mut Amounts, more: &Amounts) {
    for (name, value) in more {
        let entry = to.entry(name.clone()).or_default();
        *entry = entry.saturating_add(*value);
    }
}

fn raise_amounts(to: &mut Amounts, at_least: &Amounts) {
    for (name, value) in at_least {
        let entry = to.entry(name.clone()).or_default();
        *entry = (*entry).max(*value);
    }
}

fn container_limits(resources: Option<&ResourceRequirements>) -> Amounts {
    parse_amounts(resources.and_then(|r| r.limits.as_ref()))
}

/// The requests, and the limit of what has a limit only.
fn container_requests(resources: Option<&ResourceRequirements>) -> Amounts {
    let mut all = container_limits(resources);
    all.extend(parse_amounts(resources.and_then(|r| r.requests.as_ref())));
    all
}

/// Returns the effective requests of a pod: containers and sidecars together, or the largest moment of its start; what is set for
/// the pod as a whole counts instead; overhead on top.
pub fn pod_requests(spec: &PodSpec) -> Amounts {
    let mut running = Amounts::new();
    for container in &spec.containers {
        add_amounts(&mut running, &container_requests(container.resources.as_ref()));
    }
    let mut sidecars = Amounts::new();
    let mut start = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let own = container_requests(container.resources.as_ref());
        if container.restart_policy.as_deref() == Some("Always") {
            add_amounts(&mut running, &own);
            add_amounts(&mut sidecars, &own);
            raise_amounts(&mut start, &sidecars);
        } else {
            let mut moment = sidecars.clone();
            add_amounts(&mut moment, &own);
            raise_amounts(&mut start, &moment);
        }
    }
    raise_amounts(&mut running, &start);
    // A limit of the whole pod stands in only where no container says what it needs.
    for (name, limit) in container_limits(spec.resources.as_ref()) {
        running.entry(name).or_insert(limit);
    }
    running.extend(parse_amounts(spec.resources.as_ref().and_then(|r| r.requests.as_ref())));
    add_amounts(&mut running, &parse_amounts(spec.overhead.as_ref()));
    running
}
