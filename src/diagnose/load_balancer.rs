//! Why a Service of type LoadBalancer has no address.

use serde_json::Value;

use super::diagnosis::{CauseId, Link};
use super::evidence::{Evidence, Finding, events_of, is_warning};
use crate::k8s::object::{ObjectRef, list, text};

/// What the service controller of a cloud puts on a Service before it makes a load balancer.
const CLOUDS_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// What those who make load balancers say once they have: a cloud's own controller, MetalLB, AWS's.
const SUCCESS: [&str; 3] = ["EnsuredLoadBalancer", "IPAllocated", "SuccessfullyReconciled"];

pub(crate) fn find(service: &Value, evidence: &Evidence) -> Option<Finding> {
    if text(service, "/spec/type") != Some("LoadBalancer") || !list(service, "/status/loadBalancer/ingress").is_empty()
    {
        return None;
    }
    let object = ObjectRef::of(service)?;
    let events: Vec<&Value> = events_of(service, evidence).filter(|event| !is_of_others(event)).collect();
    let result = events
        .iter()
        .find(|event| is_warning(event) || text(event, "/reason").is_some_and(|reason| SUCCESS.contains(&reason)));
    if let Some(failure) = result.filter(|event| is_warning(event)) {
        let message = text(failure, "/message").unwrap_or_default();
        return Some(Finding::new(
            CauseId::LoadBalancerFailed,
            Link { object, state: format!("the load balancer could not be made: {message}") },
            "put right what the cloud says",
        ));
    }
    // Someone is at work on it: a cloud takes minutes. Its finalizer is there before its first event, and stays.
    let held = list(service, "/metadata/finalizers").iter().any(|finalizer| finalizer == CLOUDS_FINALIZER);
    if held || !events.is_empty() {
        return None;
    }
    Some(Finding::new(
        CauseId::LoadBalancerUnanswered,
        Link { object, state: "no load balancer answers: nothing in this cluster makes one for Services".to_owned() },
        "install a load balancer for Services, or use `--set exposure.type=NodePort`",
    ))
}

/// Whether an event is about something else than the load balancer: the endpoints of the Service, or somebody's policies.
fn is_of_others(event: &Value) -> bool {
    let writer = text(event, "/source/component").filter(|component| !component.is_empty());
    let writer = writer.or_else(|| text(event, "/reportingComponent")).unwrap_or_default();
    let reason = text(event, "/reason").unwrap_or_default();
    writer.starts_with("endpoint")
        || reason.starts_with("FailedTo") && reason.contains("Endpoint")
        || reason == "PolicyViolation"
}
