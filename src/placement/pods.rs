//! Requests of pods: of a live pod and of a template alike.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::api::quantity::{Milli, parse};

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Milli>;

/// Returns the amounts of quantities; what is no quantity is left out.
pub fn amounts(quantities: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    quantities.into_iter().flatten().filter_map(|(name, q)| Some((name.clone(), parse(&q.0)?))).collect()
}

/// Adds `more` to what is in `to`.
pub fn add(to: &mut Amounts, more: &Amounts) {
    for (name, value) in more {
        let entry = to.entry(name.clone()).or_default();
        *entry = entry.saturating_add(*value);
    }
}

fn raise(to: &mut Amounts, at_least: &Amounts) {
    for (name, value) in at_least {
        let entry = to.entry(name.clone()).or_default();
        *entry = (*entry).max(*value);
    }
}

fn limits(resources: Option<&ResourceRequirements>) -> Amounts {
    amounts(resources.and_then(|r| r.limits.as_ref()))
}

/// The requests, and the limit of what has a limit only.
fn requests(resources: Option<&ResourceRequirements>) -> Amounts {
    let mut all = limits(resources);
    all.extend(amounts(resources.and_then(|r| r.requests.as_ref())));
    all
}

/// Returns the effective requests of a pod: containers and sidecars together, or the largest moment of its start; what is set for
/// the pod as a whole counts instead; overhead on top.
pub fn pod_requests(spec: &PodSpec) -> Amounts {
    let mut running = Amounts::new();
    for container in &spec.containers {
        add(&mut running, &requests(container.resources.as_ref()));
    }
    let mut sidecars = Amounts::new();
    let mut start = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let own = requests(container.resources.as_ref());
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &own);
            add(&mut sidecars, &own);
            raise(&mut start, &sidecars);
        } else {
            let mut moment = sidecars.clone();
            add(&mut moment, &own);
            raise(&mut start, &moment);
        }
    }
    raise(&mut running, &start);
    // A limit of the whole pod stands in only where no container says what it needs.
    for (name, limit) in limits(spec.resources.as_ref()) {
        running.entry(name).or_insert(limit);
    }
    running.extend(amounts(spec.resources.as_ref().and_then(|r| r.requests.as_ref())));
    add(&mut running, &amounts(spec.overhead.as_ref()));
    running
}
