//! Reasons why a Service of type LoadBalancer has no address.

use k8s_openapi::api::core::v1::{Event, Service};

use super::diagnosis::{CauseId, Link};
use super::evidence::{Evidence, Finding, event_message, events_of, has_reason, is_warning};
use super::typed::Typed as _;
use crate::api::remedy::{Flag, Remedy};

/// Finalizer that the service controller of a cloud puts on a Service before it makes a load balancer.
const CLOUDS_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Reasons of events once a load balancer is made: a cloud's own controller, MetalLB, AWS's.
const SUCCESS: [&str; 3] = ["EnsuredLoadBalancer", "IPAllocated", "SuccessfullyReconciled"];

pub(crate) fn find_load_balancer_cause(service: &Service, evidence: &Evidence) -> Option<Finding> {
    if service.spec.as_ref()?.type_.as_deref() != Some("LoadBalancer") || has_address(service) {
        return None;
    }
    let object = service.object_ref()?;
    let events: Vec<&Event> =
        events_of(service.event_subject(), evidence).filter(|event| !is_unrelated(event)).collect();
    let result = events.iter().find(|event| is_warning(event) || has_reason(event, &SUCCESS));
    if let Some(failure) = result.filter(|event| is_warning(event)) {
        return Some(Finding::new(
            CauseId::LoadBalancerFailed,
            Link { object, state: format!("the load balancer could not be created: {}", event_message(failure)) },
            "fix the error that the cloud reports",
        ));
    }
    // A cloud at work on it takes minutes. Its finalizer is there before its first event, and stays.
    let held = service.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == CLOUDS_FINALIZER);
    if held || !events.is_empty() {
        return None;
    }
    Some(Finding::new(
        CauseId::LoadBalancerUnanswered,
        Link { object, state: "no load balancer controller has acted on the Service".to_owned() },
        Remedy::new("install a load balancer for Services, or use ").flag(Flag::set_value("exposure.type", "NodePort")),
    ))
}

fn has_address(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}

/// Returns whether an event is about something else than the load balancer: the endpoints of the Service, or a policy.
fn is_unrelated(event: &Event) -> bool {
    let writer = event.source.as_ref().and_then(|source| source.component.as_deref());
    let writer = writer.filter(|component| !component.is_empty()).or(event.reporting_component.as_deref());
    let reason = event.reason.as_deref().unwrap_or_default();
    writer.unwrap_or_default().starts_with("endpoint")
        || reason.starts_with("FailedTo") && reason.contains("Endpoint")
        || reason == "PolicyViolation"
}
