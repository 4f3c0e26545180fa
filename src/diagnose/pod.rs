//! Reasons why a pod is not ready: storage, placement, images, containers that end, in this order.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Event, Pod};

use super::diagnosis::{CONFIG_ERROR, CauseId, Link};
use super::evidence::{DEADLINE_EXCEEDED, Evidence, Finding, event_message, event_second, events_of, has_reason};
use super::image::{Unusable, find_foreign_architecture, find_pull_failure};
use super::pod_facts::{pod_condition, pvc_names, unschedulable_message};
use super::typed::Typed as _;
use crate::api::kubernetes_record;
use crate::api::readiness_log;
use crate::api::shell::foreign_word;
use crate::k8s::object::ObjectRef;

/// The restarts from which on a container in back-off counts as crashing permanently: three runs have ended by that
/// time. The wait itself leaves out runs that ended for want of a dependency.
const RESTARTS: i32 = 2;

/// As [`RESTARTS`], of a container between back-offs.
const RESTARTS_BETWEEN: i32 = 4;

/// The grace for a name that is unknown after its pod got its address: DNS caches for 30 s that a name does not exist,
/// and clients retry some time after.
const DNS_GRACE: Duration = Duration::from_secs(60);

/// The number of log lines that are shown with a cause.
const LOG_TAIL: usize = 8;

/// Reasons of events about a volume or a network that a pod does not get.
pub(crate) const MOUNT_FAILURES: [&str; 3] = ["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"];

const RAISE_MEMORY: &str = "raise its memory limit: `resources.limits.memory` of the component, in the values";

pub(crate) fn find_pod_cause(pod: &Pod, evidence: &Evidence) -> Option<Finding> {
    if is_ready(pod) {
        return None;
    }
    let reference = pod.object_ref()?;
    unbound_pvc(pod, &reference, evidence)
        .or_else(|| find_unschedulable(pod, &reference, evidence))
        .or_else(|| find_container_cause(pod, &reference, evidence))
        .or_else(|| find_mount_failure(pod, &reference, evidence))
        .or_else(|| find_probe_failure(pod, &reference, evidence))
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    pod_condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// The state of a pod that is not ready: the reason for which its first container waits, else its phase.
pub(crate) fn describe_pod_state(pod: &Pod) -> &str {
    let waits = all_statuses(pod).find_map(waiting_reason);
    waits.unwrap_or_else(|| match pod_phase(pod) {
        Some("Running") => "running but not ready",
        Some(phase) => phase,
        None => "no kubelet has reported on it yet",
    })
}

pub(crate) fn pod_phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Its init containers.
pub(crate) fn init_statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().filter_map(|status| status.init_container_statuses.as_ref()).flatten()
}

/// Its containers without the init containers.
pub(crate) fn main_statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().filter_map(|status| status.container_statuses.as_ref()).flatten()
}

/// Its containers, the init containers first.
pub(crate) fn all_statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    init_statuses(pod).chain(main_statuses(pod))
}

/// The reason for which a container waits.
pub(crate) fn waiting_reason(container: &ContainerStatus) -> Option<&str> {
    container.state.as_ref()?.waiting.as_ref()?.reason.as_deref()
}

pub(crate) fn waiting_message(container: &ContainerStatus) -> Option<&str> {
    container.state.as_ref()?.waiting.as_ref()?.message.as_deref()
}

pub(crate) fn is_running(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// The end of the current run.
pub(crate) fn current_termination(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

/// The end of the latest run that has ended, where the run before counts first.
pub(crate) fn ended_before(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    let before = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    before.or_else(|| current_termination(container))
}

fn pod_link(reference: &ObjectRef, state: impl Into<String>) -> Link {
    Link { object: reference.clone(), state: state.into() }
}

fn unbound_pvc(pod: &Pod, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    let namespace = reference.namespace.as_deref();
    let finding = pvc_names(pod)
        .filter_map(|name| evidence.pvcs.iter().find(|pvc| pvc.name() == Some(name) && pvc.namespace() == namespace))
        .find_map(|pvc| super::pvc::find_pvc_cause(pvc, evidence))?;
    Some(finding.prepend_link(pod_link(reference, "Pending, its volume does not exist")))
}

fn find_unschedulable(pod: &Pod, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    let message = unschedulable_message(pod)?;
    // The scheduler reports this while a PVC is being bound; the cause is found at the PVC itself.
    if message.contains("unbound immediate PersistentVolumeClaims") || message.contains("waiting for") {
        return None;
    }
    // A node is being created, or one that exists is starting. Autoscalers have two reasons for it.
    let scaling =
        events_of(pod.event_subject(), evidence).any(|event| has_reason(event, &["TriggeredScaleUp", "Nominated"]));
    let starting = scaling || message.contains("node.kubernetes.io/not-ready");
    let remedy = if starting {
        "a node is being added or is not ready: see `kubectl get nodes`, and run the same command again when it is ready"
    } else if message.contains("Insufficient") {
        "free or add capacity, or lower the requests in the values of the chart"
    } else if message.contains("taint") {
        "remove the taint from a node, or add a node without one"
    } else if message.contains("affinity") || message.contains("spread") {
        "add nodes, or use a smaller number of replicas"
    } else {
        "change or add a node so that the pod fits"
    };
    let state = format!("Pending, no node fits: {message}");
    let finding = Finding::new(CauseId::Unschedulable, pod_link(reference, state), remedy);
    Some(if starting { finding.into_transient() } else { finding })
}

fn find_container_cause(pod: &Pod, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    all_statuses(pod)
        .find_map(|container| Some(image_finding(find_pull_failure(pod, container, evidence)?, reference)))
        .or_else(|| all_statuses(pod).find_map(|container| find_config_error(container, reference)))
        .or_else(|| all_statuses(pod).find_map(|container| from_log(container, reference, evidence)))
        .or_else(|| all_statuses(pod).find_map(|container| find_crash(container, reference, evidence)))
}

fn image_finding(image: Unusable, reference: &ObjectRef) -> Finding {
    Finding::new(image.cause, pod_link(reference, image.what), image.remedy)
}

fn find_config_error(container: &ContainerStatus, reference: &ObjectRef) -> Option<Finding> {
    let reason = waiting_reason(container)?;
    CauseId::ContainerConfig.find_attempt(reason)?;
    let name = &container.name;
    let message = waiting_message(container).unwrap_or(reason);
    if let Some(foreign) = find_foreign_architecture(&container.image, message) {
        return Some(image_finding(foreign, reference));
    }
    let (cause, remedy) = if lacks_memory(message) {
        (CauseId::OutOfMemory, RAISE_MEMORY)
    } else if reason == CONFIG_ERROR {
        (CauseId::ContainerConfig, "check that the Secrets and ConfigMaps that it names exist and have these keys")
    } else {
        let remedy = "fix what the message names: the image, its command, or a feature that the node lacks";
        (CauseId::ContainerConfig, remedy)
    };
    let state = format!("container `{name}` cannot be created: {message}");
    Some(Finding::new(cause, pod_link(reference, state), remedy))
}

/// Returns whether a container runtime cannot start anything within the memory limit. Docker and CRI-O have a least
/// limit; runc and crun guess it from how the start ended.
fn lacks_memory(message: &str) -> bool {
    let lower = message.to_lowercase();
    lower.contains("memory limit") && ["too low", "minimum"].iter().any(|word| lower.contains(word))
}

/// The lines that a container of a pod printed; none where its log was not read.
fn log_of<'e>(container: &str, pod: &ObjectRef, evidence: &'e Evidence) -> Option<&'e [String]> {
    let place = format!("{}/{}/{container}", pod.namespace.as_deref().unwrap_or_default(), pod.name);
    evidence.logs.get(&place).map(Vec::as_slice)
}

/// A cause that is only in the container's own log.
fn from_log(container: &ContainerStatus, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    if container.ready {
        return None;
    }
    let name = &container.name;
    let lines = log_of(name, reference, evidence)?;
    let (cause, line) = super::container_log::find_log_cause(lines)?;
    let sibling =
        super::container_log::unknown_name(line).and_then(|name| Sibling::find_sibling(name, reference, evidence));
    // Earlier lines may be resolved by now as well, so none of them is a cause.
    if sibling == Some(Sibling::Starting) {
        return None;
    }
    let said = match cause {
        CauseId::ComponentFailing => readiness_log::not_ready_reason(line),
        CauseId::VersionGuard => kubernetes_record::parse_held_reason(line),
        _ => None,
    };
    let said = said.as_deref().unwrap_or(line);
    let state = format!("container `{name}` is not ready; its log: {}", said.trim());
    let mut finding = Finding::new(cause, pod_link(reference, state), super::container_log::log_cause_remedy(cause));
    if sibling.is_some() {
        finding.grace = Some(DNS_GRACE);
    }
    let end = lines.iter().rposition(|other| other == line).map_or(lines.len(), |at| at + 1);
    finding.logs = lines[end.saturating_sub(LOG_TAIL)..end].to_vec();
    Some(finding)
}

/// A pod that another one looks up, as the pods of a StatefulSet look up one another. They start together, and the name
/// of each exists only once its pod has an address.
#[derive(PartialEq)]
enum Sibling {
    /// It has no address yet.
    Starting,
    /// It has one.
    Addressed,
}

impl Sibling {
    /// The pod of a name as a headless Service gives it, `<pod>.<service>…`; none for the name of anything else.
    fn find_sibling(name: &str, reference: &ObjectRef, evidence: &Evidence) -> Option<Self> {
        let (label, _) = name.split_once('.')?;
        let namespace = reference.namespace.as_deref();
        let pod = evidence.pods.iter().find(|pod| pod.name() == Some(label) && pod.namespace() == namespace);
        let Some(pod) = pod else {
            let [owner, own] =
                [label, &reference.name].map(|name| ordinal_of(name).map(|(stateful_set, _)| stateful_set));
            return (owner.is_some() && owner == own).then_some(Self::Starting);
        };
        let runs = pod_phase(pod) == Some("Running");
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let address = address.is_some_and(|address| !address.is_empty());
        Some(if runs && address { Self::Addressed } else { Self::Starting })
    }
}

/// The StatefulSet of a pod with an ordinal, and the ordinal.
fn ordinal_of(name: &str) -> Option<(&str, u32)> {
    let (stateful_set, ordinal) = name.rsplit_once('-')?;
    Some((stateful_set, ordinal.parse().ok()?))
}

fn find_crash(container: &ContainerStatus, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    let restarts = container.restart_count;
    let waits = waiting_reason(container).is_some_and(|reason| CauseId::CrashLoop.find_attempt(reason).is_some());
    let ended = ended_before(container)?;
    let why = ended.reason.as_deref().unwrap_or("Error");
    let memory = why == "OOMKilled" || ended.message.as_deref().is_some_and(lacks_memory);
    let name = &container.name;
    let lines = log_of(name, reference, evidence).unwrap_or_default();
    let said = lines.iter().map(String::as_str).chain(ended.message.as_deref());
    let foreign = said.rev().find_map(|said| find_foreign_architecture(&container.image, said));
    // A container that exceeded its memory limit, or is of another architecture, does no better the next time.
    let enough = if memory || foreign.is_some() { 1 } else { RESTARTS };
    if !(waits && restarts >= enough || restarts >= RESTARTS_BETWEEN) {
        return None;
    }
    if let Some(foreign) = foreign {
        return Some(image_finding(foreign, reference));
    }
    let code = ended.exit_code;
    let message = ended.message.as_deref().map_or_else(String::new, |message| format!(": {}", message.trim()));
    let mut finding = Finding::new(
        if memory { CauseId::OutOfMemory } else { CauseId::CrashLoop },
        pod_link(
            reference,
            format!("container `{name}` ended {restarts} times, last with {why}, exit code {code}{message}"),
        ),
        if memory {
            RAISE_MEMORY.to_owned()
        } else {
            format!(
                "read its log: `kubectl -n {} logs {} -c {} --previous`",
                foreign_word(reference.namespace.as_deref().unwrap_or_default()),
                foreign_word(&reference.name),
                foreign_word(name)
            )
        },
    );
    finding.logs = lines[lines.len().saturating_sub(LOG_TAIL)..].to_vec();
    Some(finding)
}

/// A mount that fails keeps the pod pending; events of a pod that is past it are history. A kubelet that has not yet
/// read a Secret writes an event of the same reason and tries again at once.
fn find_mount_failure(pod: &Pod, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    if pod_phase(pod) != Some("Pending") {
        return None;
    }
    let events: Vec<&Event> = events_of(pod.event_subject(), evidence).collect();
    let mut failures = events.iter().copied().filter(|event| {
        has_reason(event, &MOUNT_FAILURES)
            && !event_message(event).contains("cache: timed out")
            && !is_resolved(event, &events)
    });
    let lasting = failures.clone().find(|event| !is_transient(event));
    let event = lasting.or_else(|| failures.next())?;
    let state = format!("{}: {}", event.reason.as_deref().unwrap_or_default(), event_message(event));
    let finding = Finding::new(
        CauseId::MountFailed,
        pod_link(reference, state),
        "create the missing object, or make the volume available to the node; the message names it",
    );
    Some(if lasting.is_some() { finding } else { finding.into_transient() })
}

/// Returns whether a failure to mount is usual for minutes: a cloud is slow to detach a volume from its last node or to
/// attach it, or the storage and network drivers start on a node that has just joined. A kubelet that timed out waiting
/// for a volume does not report the reason.
fn is_transient(failure: &Event) -> bool {
    let message = event_message(failure);
    let passing = [
        "Multi-Attach",
        "not found in the list of registered CSI drivers",
        "does not contain driver",
        "timed out waiting for external-attacher",
        "attachdetachment timeout",
        "timeout waiting for attach",
    ];
    has_reason(failure, &["FailedCreatePodSandBox"])
        || passing.iter().chain(&DEADLINE_EXCEEDED).any(|words| message.contains(words))
        || message.starts_with("Unable to attach or mount volumes")
}

/// Returns whether the node is past a failure. It pulls images and makes containers once volumes and network are there,
/// and mounts a volume once that is attached. A pod is pending all that time.
fn is_resolved(failure: &Event, events: &[&Event]) -> bool {
    events.iter().any(|event| {
        let ends_it = match event.reason.as_deref() {
            Some("Pulling" | "Pulled" | "Created" | "Started") => true,
            Some("SuccessfulAttachVolume") => {
                !has_reason(failure, &["FailedCreatePodSandBox"])
                    && event_volume(failure).is_none_or(|failed| event_volume(event) == Some(failed))
            }
            _ => false,
        };
        ends_it && event_second(event) >= event_second(failure)
    })
}

/// The volume that an event is about, if it names one.
fn event_volume(event: &Event) -> Option<&str> {
    event_message(event).split_once("for volume \"")?.1.split('"').next()
}

fn find_probe_failure(pod: &Pod, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    let event = events_of(pod.event_subject(), evidence).find(|event| has_reason(event, &["Unhealthy"]))?;
    let message = event_message(event);
    let starvation =
        all_statuses(pod).find_map(|container| find_memory_starvation(pod, container, reference, evidence));
    let (hint, remedy) = if let Some(hint) = starvation {
        (hint, RAISE_MEMORY.to_owned())
    } else {
        let namespace = foreign_word(reference.namespace.as_deref().unwrap_or_default());
        let read = format!("read its log: `kubectl -n {namespace} logs {}`", foreign_word(&reference.name));
        (String::new(), read)
    };
    Some(Finding::new(CauseId::ProbeFailing, pod_link(reference, format!("{message}{hint}")), remedy))
}

/// The state of a container with too little memory that is not killed: the kernel evicts the pages of the program
/// itself, which then reads them from the disk again and again and makes no progress. It runs and prints nothing, so
/// its log is no remedy.
fn find_memory_starvation(
    pod: &Pod,
    container: &ContainerStatus,
    reference: &ObjectRef,
    evidence: &Evidence,
) -> Option<String> {
    let name = &container.name;
    if !is_running(container) || !log_of(name, reference, evidence).is_some_and(<[_]>::is_empty) {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let spec = spec.init_containers.iter().flatten().chain(&spec.containers).find(|spec| spec.name == *name)?;
    let limit = &spec.resources.as_ref()?.limits.as_ref()?.get("memory")?.0;
    Some(format!("; container `{name}` has no log output so far; its memory limit is {limit}"))
}

/// The containers whose log is read: those that are not ready and have run. One that has just ended counts too, so that
/// a cause in its log does not come and go with each of its runs.
pub(crate) fn containers_with_logs(pod: &Pod) -> Vec<&str> {
    all_statuses(pod)
        .filter(|container| !container.ready && !container.name.is_empty())
        .filter(|container| {
            is_running(container) || current_termination(container).is_some() || container.restart_count > 0
        })
        .map(|container| container.name.as_str())
        .collect()
}
