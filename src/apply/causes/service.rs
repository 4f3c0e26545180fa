//! Why a Service of type LoadBalancer has no address.

use serde_json::Value;

use super::{Evidence, Finding, events_of};
use crate::apply::diagnosis::{CauseId, Link};
use crate::apply::object::{ObjectRef, list, text};

/// What the service controller of a cloud puts on a Service before it makes a load balancer.
const CLOUDS_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

pub(super) fn find(service: &Value, evidence: &Evidence) -> Option<Finding> {
    if text(service, "/spec/type") != Some("LoadBalancer") || !list(service, "/status/loadBalancer/ingress").is_empty()
    {
        return None;
    }
    let object = ObjectRef::of(service)?;
    let events: Vec<&Value> = events_of(service, evidence).collect();
    let result = events
        .iter()
        .find(|event| matches!(text(event, "/reason"), Some("SyncLoadBalancerFailed" | "EnsuredLoadBalancer")));
    if let Some(failed) = result.filter(|event| text(event, "/reason") == Some("SyncLoadBalancerFailed")) {
        let message = text(failed, "/message").unwrap_or_default();
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
