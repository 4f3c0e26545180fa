//! What keeps a pod from being ready: storage, placement, images, containers that end, in this order.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::diagnosis::{CauseId, Link};
use super::evidence::{Evidence, Finding, TAKES_LONG, event_time, events_of};
use crate::api::shell::foreign_word;
use crate::k8s::object::{ObjectRef, condition, list, number, text};

/// From how many restarts on a container that sits out a back-off counts as crashing for good: three runs have ended by
/// then. That one ended for want of what comes before it does not count; whoever waits sees to that.
const RESTARTS: i64 = 2;

/// From how many restarts on one that is between back-offs does.
const RESTARTS_BETWEEN: i64 = 4;

/// How long a name may be unknown after its pod got its address: DNS keeps that a name does not exist for 30 s, and whoever
/// looked it up tries again some time after.
const NEW_NAME: Duration = Duration::from_secs(60);

/// How many lines of a log are shown with a cause.
const SHOWN: usize = 8;

const RAISE_MEMORY: &str = "raise its memory limit: `resources.limits.memory` of the component, in the values";

pub(crate) fn find(pod: &Value, evidence: &Evidence) -> Option<Finding> {
    if is_ready(pod) {
        return None;
    }
    let reference = ObjectRef::of(pod)?;
    unbound_claim(pod, &reference, evidence)
        .or_else(|| unschedulable(pod, &reference, evidence))
        .or_else(|| containers(pod, &reference, evidence))
        .or_else(|| mount(pod, &reference, evidence))
        .or_else(|| probe(pod, &reference, evidence))
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|c| text(c, "/status") == Some("True"))
}

/// What a pod that is not ready does: what its first container waits for, else its phase.
pub(crate) fn state(pod: &Value) -> &str {
    let waits = statuses(pod).find_map(|container| text(container, "/state/waiting/reason"));
    waits.unwrap_or_else(|| match text(pod, "/status/phase") {
        Some("Running") => "runs and is not ready",
        Some(phase) => phase,
        None => "no kubelet has looked at it yet",
    })
}

/// Its containers, with those that run before the others in front.
fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    list(pod, "/status/initContainerStatuses").iter().chain(list(pod, "/status/containerStatuses"))
}

fn link(reference: &ObjectRef, state: impl Into<String>) -> Link {
    Link { object: reference.clone(), state: state.into() }
}

fn unbound_claim(pod: &Value, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    let names = list(pod, "/spec/volumes").iter().filter_map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
    let finding = names
        .filter_map(|name| {
            evidence.claims.iter().find(|claim| {
                text(claim, "/metadata/name") == Some(name)
                    && text(claim, "/metadata/namespace") == reference.namespace.as_deref()
            })
        })
        .find_map(|claim| super::pvc::find(claim, evidence))?;
    Some(finding.below(link(reference, "Pending, its volume is not there")))
}

/// Why the scheduler finds no node for a pod.
pub(crate) fn refused(pod: &Value) -> Option<&str> {
    let refused = condition(pod, "PodScheduled")
        .filter(|c| text(c, "/status") == Some("False") && text(c, "/reason") == Some("Unschedulable"))?;
    Some(text(refused, "/message").unwrap_or("no node takes it"))
}

fn unschedulable(pod: &Value, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    let message = refused(pod)?;
    // The scheduler says this while a claim is bound; the claim itself tells why it is not.
    if message.contains("unbound immediate PersistentVolumeClaims") || message.contains("waiting for") {
        return None;
    }
    // A node is on its way, or one that exists is starting. Autoscalers have two words for it.
    let scaling =
        events_of(pod, evidence).any(|event| matches!(text(event, "/reason"), Some("TriggeredScaleUp" | "Nominated")));
    let starting = scaling || message.contains("node.kubernetes.io/not-ready");
    let remedy = if starting {
        "a node is on its way or not ready: see `kubectl get nodes`, and run the same command again once it is"
    } else if message.contains("Insufficient") {
        "free or add capacity, or ask for less: the requests are in the values of the chart"
    } else if message.contains("taint") {
        "take the taint off a node, or add one that has none"
    } else if message.contains("affinity") || message.contains("spread") {
        "add nodes, or use a smaller number of replicas"
    } else {
        "make a node fit for the reason above"
    };
    let state = format!("Pending, no node takes it: {message}");
    let finding = Finding::new(CauseId::Unschedulable, link(reference, state), remedy);
    Some(if starting { finding.healing() } else { finding })
}

fn containers(pod: &Value, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    statuses(pod)
        .find_map(|container| image(pod, container, reference, evidence))
        .or_else(|| statuses(pod).find_map(|container| config(container, reference)))
        .or_else(|| statuses(pod).find_map(|container| told(container, reference, evidence)))
        .or_else(|| statuses(pod).find_map(|container| crash(container, reference, evidence)))
}

fn image(pod: &Value, container: &Value, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    let reason = text(container, "/state/waiting/reason")?;
    if !matches!(
        reason,
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" | "RegistryUnavailable"
    ) {
        return None;
    }
    let image = text(container, "/image").unwrap_or_default();
    // During the back-off the waiting message is empty talk; the registry's answer is in the event.
    let answer = events_of(pod, evidence)
        .filter(|event| text(event, "/reason") == Some("Failed"))
        .filter_map(|event| text(event, "/message"))
        .find(|message| message.contains(image) && message.contains("pull"))
        .or_else(|| text(container, "/state/waiting/message"))
        .unwrap_or("no answer");
    let missing = ["not found", "manifest unknown", "name unknown", "couldn't parse image", "invalid reference"];
    let denied = ["unauthorized", "denied", "forbidden", "authentication", "authorization"];
    let namespace = reference.namespace.as_deref().unwrap_or_default();
    let (cause, remedy) = if reason == "InvalidImageName" || says(answer, image, &missing, &["404"]) {
        (
            CauseId::ImageNotFound,
            format!(
                "check the repository and the tag of `{image}`, and that the registry has it for this architecture"
            ),
        )
    } else if says(answer, image, &denied, &["401", "403"]) {
        (
            CauseId::ImagePullDenied,
            format!("give the pods a pull secret for the registry of `{image}` in namespace {namespace}"),
        )
    } else {
        (CauseId::ImagePullFailed, format!("check that the nodes reach the registry of `{image}`"))
    };
    Some(Finding::new(cause, link(reference, format!("image `{image}` cannot be pulled: {answer}")), remedy))
}

/// Whether a registry's answer has one of these words or codes. The image that it names may have words like them, and a
/// digest or a port the digits of a code.
fn says(answer: &str, image: &str, words: &[&str], codes: &[&str]) -> bool {
    let answer = if image.is_empty() { answer.to_owned() } else { answer.replace(image, "") };
    let lower = answer.to_lowercase();
    let is_code = |part: &str| codes.contains(&part.trim_matches(|c: char| !c.is_ascii_alphanumeric()));
    words.iter().any(|word| lower.contains(word)) || lower.split(|c: char| c.is_whitespace() || c == '=').any(is_code)
}

fn config(container: &Value, reference: &ObjectRef) -> Option<Finding> {
    let reason = text(container, "/state/waiting/reason")?;
    if !matches!(reason, "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") {
        return None;
    }
    let name = text(container, "/name").unwrap_or_default();
    let message = text(container, "/state/waiting/message").unwrap_or(reason);
    let (cause, remedy) = if lacks_memory(message) {
        (CauseId::OutOfMemory, RAISE_MEMORY)
    } else if reason == "CreateContainerConfigError" {
        (CauseId::ContainerConfig, "check that the Secrets and ConfigMaps it names exist and have these keys")
    } else {
        let remedy = "change what the message names: the image and its command, or what the node can give a container";
        (CauseId::ContainerConfig, remedy)
    };
    let state = format!("container `{name}` cannot be made: {message}");
    Some(Finding::new(cause, link(reference, state), remedy))
}

/// Whether a container runtime says that it can start nothing within so little memory. Docker's and CRI-O's have a least
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

/// A cause that only the container's own log tells.
fn told(container: &Value, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    if container.get("ready").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    let name = text(container, "/name").unwrap_or_default();
    let lines = log_of(name, reference, evidence)?;
    let (cause, line) = super::container_log::cause(lines)?;
    let sibling = super::container_log::unknown_name(line).and_then(|name| Sibling::of(name, reference, evidence));
    // What the log said before may be mended as well by now, so nothing is looked for in front of it.
    if sibling == Some(Sibling::Coming) {
        return None;
    }
    let state = format!("container `{name}` is not ready, and its log says: {}", line.trim());
    let mut finding = Finding::new(cause, link(reference, state), super::container_log::remedy(cause));
    if sibling.is_some() {
        finding.patience = Some(NEW_NAME);
    }
    let end = lines.iter().rposition(|other| other == line).map_or(lines.len(), |at| at + 1);
    finding.logs = lines[end.saturating_sub(SHOWN)..end].to_vec();
    Some(finding)
}

/// A pod that another one looks up, as the members of a set look up one another. They start together, and the name of each
/// exists only once its pod has an address.
#[derive(PartialEq)]
enum Sibling {
    /// It has no address yet.
    Coming,
    /// It has one.
    There,
}

impl Sibling {
    /// The pod of a name as a headless Service gives it, `<pod>.<service>…`; none for the name of anything else.
    fn of(name: &str, reference: &ObjectRef, evidence: &Evidence) -> Option<Self> {
        let (label, _) = name.split_once('.')?;
        let pod = evidence.pods.iter().find(|pod| {
            text(pod, "/metadata/name") == Some(label)
                && text(pod, "/metadata/namespace") == reference.namespace.as_deref()
        });
        let Some(pod) = pod else {
            let set = |name| member_of(name).map(|(set, _)| set);
            return set(label).is_some_and(|of| set(&reference.name) == Some(of)).then_some(Self::Coming);
        };
        let runs = text(pod, "/status/phase") == Some("Running");
        let address = text(pod, "/status/podIP").is_some_and(|address| !address.is_empty());
        Some(if runs && address { Self::There } else { Self::Coming })
    }
}

/// The set of a pod with an ordinal, and the ordinal.
fn member_of(name: &str) -> Option<(&str, u32)> {
    let (set, ordinal) = name.rsplit_once('-')?;
    Some((set, ordinal.parse().ok()?))
}

fn crash(container: &Value, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    let restarts = number(container, "/restartCount").unwrap_or(0);
    let waits = text(container, "/state/waiting/reason") == Some("CrashLoopBackOff");
    let ended = [container.pointer("/lastState/terminated"), container.pointer("/state/terminated")];
    let ended = ended.into_iter().flatten().next()?;
    let why = text(ended, "/reason").unwrap_or("Error");
    let memory = why == "OOMKilled" || text(ended, "/message").is_some_and(lacks_memory);
    // What needs more memory than it may have needs it the next time too.
    let enough = if memory { 1 } else { RESTARTS };
    if !(waits && restarts >= enough || restarts >= RESTARTS_BETWEEN) {
        return None;
    }
    let name = text(container, "/name").unwrap_or_default();
    let code = number(ended, "/exitCode").unwrap_or_default();
    let message = text(ended, "/message").map_or_else(String::new, |message| format!(": {}", message.trim()));
    let mut finding = Finding::new(
        if memory { CauseId::OutOfMemory } else { CauseId::CrashLoop },
        link(
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
    let lines = log_of(name, reference, evidence).unwrap_or_default();
    finding.logs = lines[lines.len().saturating_sub(SHOWN)..].to_vec();
    Some(finding)
}

/// A mount that fails keeps the pod pending; an event of a pod that got over it is history. A kubelet that has not yet
/// read a Secret says so in an event of the same reason and tries again at once.
fn mount(pod: &Value, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    if text(pod, "/status/phase") != Some("Pending") {
        return None;
    }
    let events: Vec<&Value> = events_of(pod, evidence).collect();
    let failures = || {
        events.iter().copied().filter(|event| {
            matches!(text(event, "/reason"), Some("FailedMount" | "FailedAttachVolume" | "FailedCreatePodSandBox"))
                && !text(event, "/message").unwrap_or_default().contains("cache: timed out")
                && !is_over(event, &events)
        })
    };
    let stays = failures().find(|event| !heals(event));
    let event = stays.or_else(|| failures().next())?;
    let message = text(event, "/message").unwrap_or_default();
    let finding = Finding::new(
        CauseId::MountFailed,
        link(reference, format!("{}: {message}", text(event, "/reason").unwrap_or_default())),
        "make what the message names available to the node",
    );
    Some(if stays.is_some() { finding } else { finding.healing() })
}

/// Whether a failure to mount is usual for minutes: a cloud takes a volume off its last node or takes its time to attach it,
/// or the drivers of storage and network start on a node that has just joined. A kubelet that has waited in vain for a volume
/// does not say for what.
fn heals(failure: &Value) -> bool {
    let message = text(failure, "/message").unwrap_or_default();
    let passing = [
        "Multi-Attach",
        "not found in the list of registered CSI drivers",
        "does not contain driver",
        "timed out waiting for external-attacher",
        "attachdetachment timeout",
        "timeout waiting for attach",
    ];
    text(failure, "/reason") == Some("FailedCreatePodSandBox")
        || passing.iter().chain(&TAKES_LONG).any(|words| message.contains(words))
        || message.starts_with("Unable to attach or mount volumes")
}

/// Whether the node has gone on since. It pulls images and makes containers once volumes and network are there, and mounts
/// a volume once that is attached. A pod is pending all that time.
fn is_over(failure: &Value, events: &[&Value]) -> bool {
    // Most writers of events round to seconds.
    let second = |event: &Value| event_time(event).map(Timestamp::as_second);
    let ends = |event: &Value| match text(event, "/reason") {
        Some("Pulling" | "Pulled" | "Created" | "Started") => true,
        Some("SuccessfulAttachVolume") => {
            text(failure, "/reason") != Some("FailedCreatePodSandBox")
                && volume(failure).is_none_or(|failed| volume(event) == Some(failed))
        }
        _ => false,
    };
    events.iter().any(|event| ends(event) && second(event) >= second(failure))
}

/// The volume that an event is about, if it names one.
fn volume(event: &Value) -> Option<&str> {
    text(event, "/message")?.split_once("for volume \"")?.1.split('"').next()
}

fn probe(pod: &Value, reference: &ObjectRef, evidence: &Evidence) -> Option<Finding> {
    let event = events_of(pod, evidence).find(|event| text(event, "/reason") == Some("Unhealthy"))?;
    let message = text(event, "/message").unwrap_or_default();
    let namespace = foreign_word(reference.namespace.as_deref().unwrap_or_default());
    let read = || format!("read its log: `kubectl -n {namespace} logs {}`", foreign_word(&reference.name));
    let (said, remedy) = statuses(pod)
        .find_map(|container| starved(pod, container, reference, evidence))
        .map_or_else(|| (String::new(), read()), |said| (said, RAISE_MEMORY.to_owned()));
    Some(Finding::new(CauseId::ProbeFailing, link(reference, format!("{message}{said}")), remedy))
}

/// What a container with too little memory looks like when nothing kills it: the kernel takes the pages of the program
/// itself away, which then reads them from the disk again and again and gets nowhere. It runs and prints nothing, and a log
/// that is empty is no log to read.
fn starved(pod: &Value, container: &Value, reference: &ObjectRef, evidence: &Evidence) -> Option<String> {
    let name = text(container, "/name")?;
    container.pointer("/state/running").filter(|_| log_of(name, reference, evidence).is_some_and(<[_]>::is_empty))?;
    let mut specs = list(pod, "/spec/initContainers").iter().chain(list(pod, "/spec/containers"));
    let limit = text(specs.find(|spec| text(spec, "/name") == Some(name))?, "/resources/limits/memory")?;
    Some(format!("; container `{name}` has printed nothing so far, and may use {limit} of memory"))
}

/// The containers whose log is worth reading: those that are not ready and have run. One that has just ended counts too,
/// so that what its log tells does not come and go with each of its runs.
pub(crate) fn worth_reading(pod: &Value) -> Vec<&str> {
    statuses(pod)
        .filter(|container| container.get("ready").and_then(Value::as_bool) != Some(true))
        .filter(|container| {
            let waits = container.pointer("/state/running").or(container.pointer("/state/terminated")).is_none();
            !waits || number(container, "/restartCount").unwrap_or(0) > 0
        })
        .filter_map(|container| text(container, "/name"))
        .collect()
}
