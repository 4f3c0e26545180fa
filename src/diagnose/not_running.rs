//! Why the pods of a copy do not run, in one sentence: the worst cause, in the words of its cluster.

use k8s_openapi::api::core::v1::Pod;

use super::diagnosis::CauseId;
use super::evidence::{Evidence, Subject, event_message, events_of, has_reason};
use super::pod::{all_statuses, ended_before, find_pod_cause, waiting_reason};
use super::pod_facts::{pvc_names, unschedulable_message};
use super::typed::Typed as _;
use super::workload::{cause_order, classify_refusal, finding_order};
use crate::api::crd::schedule::available;
use crate::api::util::text::escaped_line;
use crate::k8s::object::ObjectRef;

/// Longest sentence, in characters.
const SENTENCE: usize = 700;
/// Rank of a cause that is none of the diagnosis: behind all of them.
const LAST: (bool, u8) = (true, u8::MAX);

/// Reason that pods do not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRunning {
    /// One of [`available::NOT_RUNNING`].
    pub reason: &'static str,
    /// The object at fault and what its cluster says of it, on one line.
    pub sentence: String,
}

impl NotRunning {
    fn new(reason: &'static str, sentence: &str) -> Self {
        let line = escaped_line(sentence);
        let mut sentence: String = line.chars().take(SENTENCE).collect();
        if sentence.len() < line.len() {
            sentence.push('…');
        }
        Self { reason, sentence }
    }
}

/// Explains why the pods of `object` do not run. `evidence` has those of them that are not ready, and the warnings about them,
/// about their claims and about the object; `lacks_pods` is true while there are fewer than it asks for. `failure` is the
/// message of its condition `ReplicaFailure`.
pub fn explain_pods(
    object: &ObjectRef,
    uid: &str,
    evidence: &Evidence,
    lacks_pods: bool,
    failure: Option<&str>,
) -> Option<NotRunning> {
    let of_pods = evidence.pods.iter().filter_map(|pod| explain_pod(pod, evidence));
    let own = Subject { uid, kind: &object.kind, name: &object.name };
    let warning = events_of(own, evidence).find(|event| lacks_pods && has_reason(event, &["FailedCreate"]));
    let refused = failure.or_else(|| warning.map(event_message)).map(|message| {
        let cause = classify_refusal(message);
        let order = cause_order(cause, cause.default_grace());
        (order, NotRunning::new(reason_word(cause), &format!("its pods cannot be created: {message}")))
    });
    of_pods.chain(refused).min_by_key(|(order, _)| *order).map(|(_, found)| found)
}

/// Explains an object without pods by its latest warning of these reasons.
pub fn explain_object(object: &ObjectRef, uid: &str, evidence: &Evidence) -> Option<NotRunning> {
    let own = Subject { uid, kind: &object.kind, name: &object.name };
    let event =
        events_of(own, evidence).find(|event| has_reason(event, &["ProvisioningFailed", "SyncLoadBalancerFailed"]))?;
    let cause = if has_reason(event, &["ProvisioningFailed"]) {
        CauseId::ProvisioningFailed
    } else {
        CauseId::LoadBalancerFailed
    };
    Some(NotRunning::new(reason_word(cause), event_message(event)))
}

fn explain_pod(pod: &Pod, evidence: &Evidence) -> Option<((bool, u8), NotRunning)> {
    if let Some(finding) = find_pod_cause(pod, evidence) {
        let chain: Vec<String> = finding.chain.iter().map(ToString::to_string).collect();
        return Some((finding_order(&finding), NotRunning::new(reason_word(finding.cause), &chain.join(" → "))));
    }
    let reference = pod.object_ref()?;
    let found = explain_unbound_claim(pod, &reference, evidence).or_else(|| explain_crash(pod, &reference))?;
    Some((LAST, found))
}

/// The scheduler's answer while a claim of the pod is not bound, and what the claim's provisioner says.
fn explain_unbound_claim(pod: &Pod, reference: &ObjectRef, evidence: &Evidence) -> Option<NotRunning> {
    let message = unschedulable_message(pod)?;
    let names: Vec<&str> = pvc_names(pod).collect();
    let answer = names.iter().find_map(|name| {
        let claim = Subject { uid: "", kind: "PersistentVolumeClaim", name };
        events_of(claim, evidence).find(|event| has_reason(event, &["ProvisioningFailed"])).map(event_message)
    });
    let provisioner = answer.map(|said| format!("; ProvisioningFailed: {said}"));
    let claims = names.join(", ");
    let said = provisioner.unwrap_or_default();
    Some(NotRunning::new("ClaimUnbound", &format!("{reference}: its claims ({claims}) are not bound: {message}{said}")))
}

/// A container that waits to be started again, after its first runs.
fn explain_crash(pod: &Pod, reference: &ObjectRef) -> Option<NotRunning> {
    let container = all_statuses(pod).find(|container| waiting_reason(container) == Some("CrashLoopBackOff"))?;
    let ended = ended_before(container)?;
    let why = ended.reason.as_deref().unwrap_or("Error");
    let text = format!(
        "{reference}: container `{}` ended {} times, last with {why}, exit code {}",
        container.name, container.restart_count, ended.exit_code
    );
    Some(NotRunning::new(reason_word(CauseId::CrashLoop), &text))
}

/// Returns the reason of a cause.
fn reason_word(cause: CauseId) -> &'static str {
    match cause {
        CauseId::ImageNotFound => "ImageNotFound",
        CauseId::ImageArchitecture => "ImageArchitecture",
        CauseId::ImagePullDenied => "ImagePullDenied",
        CauseId::ImagePullFailed => "ImagePullFailed",
        CauseId::CrashLoop => "CrashLoopBackOff",
        CauseId::OutOfMemory => "OutOfMemory",
        CauseId::ContainerConfig => "ContainerConfig",
        CauseId::MountFailed => "MountFailed",
        CauseId::QuotaExceeded => "QuotaExceeded",
        CauseId::PodSecurity => "PodSecurity",
        CauseId::PodsRefused => "PodsRefused",
        CauseId::Unschedulable => "Unschedulable",
        CauseId::ProbeFailing => "ProbeFailing",
        CauseId::LoadBalancerFailed | CauseId::LoadBalancerUnanswered => "LoadBalancerFailed",
        CauseId::NoDefaultStorageClass
        | CauseId::ClaimWithoutClass
        | CauseId::StorageClassMissing
        | CauseId::NoProvisioner
        | CauseId::ProvisioningFailed => "ProvisioningFailed",
        _ => available::PODS_FAILING,
    }
}

#[cfg(test)]
mod tests;
