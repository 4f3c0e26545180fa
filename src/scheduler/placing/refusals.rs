//! Writes that were refused for what is in them, and copies that cannot be made: tried again in minutes, or when they
//! are different.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::queue::ReconcileRequest;
use super::write::{Address, Stages, TargetMark, Write};
use crate::api::Schedule;
use crate::api::crd::schedule::{ApplyPolicy, ScheduleShare};
use crate::api::labels::cluster_of_namespace;
use crate::k8s::connect::daemon_client::CallError;
use crate::placement::copy::CopyError;
use crate::placement::explain;
use crate::placement::facts::ObjectKey;
use crate::placement::live::source_key;

/// Time after which a refused write is recreated.
const AGAIN: Duration = Duration::from_secs(300);

/// Texts by which an API server says that its store does not take an object of this size.
const TOO_LARGE: [&str; 3] = ["request is too large", "larger than max", "Request entity too large"];

/// What a write is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The copy of an object in a cluster.
    Copy(ObjectKey, String),
    /// The marks of a source that say where it went.
    Mark(ObjectKey),
    /// The status of a source.
    Status(ObjectKey),
    /// Another write of a request, by its kind and name.
    Other(&'static str, String),
}

/// A write that was refused.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) subject: Subject,
    /// What was to be written, as far as it matters.
    pub(super) content: String,
    pub(super) error: CopyError,
}

#[derive(Debug)]
struct KnownRefusal {
    refusal: Refusal,
    /// Request that makes the write again.
    request: ReconcileRequest,
    /// Time at which it does; `None` once it may.
    until: Option<Instant>,
}

/// What was refused, until the object changes.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    known: BTreeMap<Subject, KnownRefusal>,
    due: BTreeSet<(Instant, Subject)>,
}

impl Refusals {
    /// Returns why this write was refused before, and whether it waits until it is recreated.
    pub(super) fn find_known_refusal(&self, subject: &Subject, content: &str) -> Option<(&CopyError, bool)> {
        let known = self.known.get(subject).filter(|known| known.refusal.content == content)?;
        Some((&known.refusal.error, known.until.is_some()))
    }

    /// Returns whether a write waits until it is recreated.
    pub(super) fn is_held_back(&self, write: &Write) -> bool {
        write_subject(write).is_some_and(|(subject, content)| {
            self.find_known_refusal(&subject, &content).is_some_and(|(_, waits)| waits)
        })
    }

    /// Takes the writes out of a plan that wait until they are recreated; what comes after a group waits with it.
    pub(super) fn hold_back(&self, stages: &mut Stages) {
        if self.known.is_empty() {
            return;
        }
        let held_group = stages
            .iter()
            .position(|stage| stage.iter().any(|write| matches!(write, Write::Group(_)) && self.is_held_back(write)));
        if let Some(at) = held_group {
            stages.truncate(at);
        }
        for stage in stages.iter_mut() {
            stage.retain(|write| !self.is_held_back(write));
        }
        stages.retain(|stage| !stage.is_empty());
    }

    /// Records a refusal; returns whether it says something new about its subject.
    pub(super) fn record_refusal(&mut self, refusal: Refusal, request: ReconcileRequest, now: Instant) -> bool {
        let subject = refusal.subject.clone();
        let until = now + AGAIN;
        let known = KnownRefusal { refusal, request, until: Some(until) };
        let error = known.refusal.error.clone();
        let before = self.known.insert(subject.clone(), known);
        if let Some(at) = before.as_ref().and_then(|before| before.until) {
            self.due.remove(&(at, subject.clone()));
        }
        self.due.insert((until, subject));
        before.is_none_or(|before| before.refusal.error != error)
    }

    /// Returns the requests of which a write may be recreated.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<ReconcileRequest> {
        let mut requests = Vec::new();
        while self.due.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, subject)) = self.due.pop_first()
        {
            // What was said is kept: it is not said again.
            let known = self.known.get_mut(&subject);
            requests.extend(known.map(|known| {
                known.until = None;
                known.request.clone()
            }));
        }
        requests
    }

    /// Forgets what was refused of an object that is another one now.
    pub(super) fn forget_refusals(&mut self, key: &ObjectKey) {
        let copies = self.known.range(Subject::Copy(key.clone(), String::new())..).map(|(subject, _)| subject);
        let copies = copies.take_while(|one| matches!(one, Subject::Copy(of, _) if of == key));
        let subjects: Vec<Subject> =
            copies.cloned().chain([Subject::Mark(key.clone()), Subject::Status(key.clone())]).collect();
        for subject in subjects {
            if let Some(KnownRefusal { until: Some(at), .. }) = self.known.remove(&subject) {
                self.due.remove(&(at, subject));
            }
        }
    }
}

/// Returns what decides whether the copy of an object is another one than before.
pub(super) fn copy_content(
    hash: &str,
    group: Option<&str>,
    share: Option<&ScheduleShare>,
    apply_policy: Option<&ApplyPolicy>,
) -> String {
    format!("{hash} {group:?} {share:?} {apply_policy:?}")
}

fn content_of(schedule: &Schedule) -> String {
    let spec = &schedule.spec;
    copy_content(&spec.hash, spec.group.as_deref(), spec.share.as_ref(), spec.apply_policy.as_ref())
}

fn key_of(address: &Address) -> ObjectKey {
    let namespace = address.namespace.as_deref().unwrap_or_default();
    ObjectKey::new(address.kind.group, address.kind.kind, namespace, &address.name)
}

fn text_of(mark: &TargetMark) -> String {
    format!("{mark:?}")
}

/// Returns what a write is about, with what it says; `None` for events.
fn write_subject(write: &Write) -> Option<(Subject, String)> {
    Some(match write {
        Write::Schedule(schedule, _) => {
            let namespace = schedule.metadata.namespace.as_deref().unwrap_or_default();
            let cluster = cluster_of_namespace(namespace).unwrap_or_default().to_owned();
            (Subject::Copy(source_key(&schedule.spec.source_ref), cluster), content_of(schedule))
        }
        Write::Label(source, mark) => (Subject::Mark(key_of(source)), text_of(mark)),
        Write::Status(source, status) => (Subject::Status(key_of(source)), status.to_string()),
        Write::RemoveSchedule { cluster, name, .. } => {
            (Subject::Other("removal", format!("{cluster}/{name}")), String::new())
        }
        Write::Keep { cluster, name, epoch, .. } => {
            (Subject::Other("keep", format!("{cluster}/{name}")), epoch.to_string())
        }
        Write::Ask { cluster, text, .. } => (Subject::Other("ask", cluster.clone()), text.clone()),
        Write::Regroup { cluster, name, group, .. } => {
            (Subject::Other("regroup", format!("{cluster}/{name}")), group.clone())
        }
        Write::Release { cluster, name, .. } => (Subject::Other("release", format!("{cluster}/{name}")), String::new()),
        Write::Group(group) => {
            let members = group.status.as_ref().map(|status| status.object_refs.len());
            let name = group.metadata.name.clone().unwrap_or_default();
            (Subject::Other("group", name), format!("{members:?} {:?}", group.metadata.labels))
        }
        Write::RemoveGroup { name, .. } => (Subject::Other("group removal", name.clone()), String::new()),
        Write::PolicyStatus { name, .. } => (Subject::Other("policy", name.clone()), String::new()),
        Write::Event { .. } => return None,
    })
}

/// Returns the refusal of a write, where the API server will give the same answer to the same write; `None` where it
/// could not answer, or somebody else wrote first.
pub(super) fn classify_refusal(write: &Write, error: &CallError) -> Option<Refusal> {
    let (subject, content) = write_subject(write)?;
    let answer = error.to_api_error()?;
    let is_too_large = answer.code == 413 || TOO_LARGE.iter().any(|text| answer.message.contains(text));
    let is_ending = answer.causes.iter().any(|cause| cause.reason == "NamespaceTerminating");
    let code = match answer.code {
        _ if is_too_large => "TooLarge",
        // Wrong credentials, an object or a namespace that goes or is gone, somebody who was faster, too many requests.
        401 | 404 | 408..=410 | 429 => return None,
        403 if is_ending => return None,
        403 => "Forbidden",
        400..=499 => "Invalid",
        _ => return None,
    };
    // Answers name values, and those of a Secret are nobody else's business.
    let is_secret = matches!(write, Write::Label(source, _) | Write::Status(source, _) if source.kind.kind == "Secret");
    let message = if is_secret { format!("{} {}", answer.code, answer.reason) } else { answer.to_string() };
    Some(Refusal {
        subject,
        content,
        error: CopyError::Refused { code, message: explain::shorten_event_text(message) },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::placeable;

    fn error(code: u16, reason: &str, message: &str) -> CallError {
        let status = json!({"status": "Failure", "code": code, "reason": reason, "message": message, "metadata": {}});
        CallError::Kube(kube::Error::Api(serde_json::from_value(status).unwrap()))
    }

    fn status(kind: &str, text: &str) -> Write {
        let kind = placeable::find_builtin_kind("", kind).unwrap();
        let source = Address { kind, namespace: Some("shop".to_owned()), name: "page".to_owned(), uid: "u".to_owned() };
        Write::Status(source, json!({"phase": text}))
    }

    #[test]
    fn a_refusal_is_told_from_an_answer_that_may_be_another_one_next_time() {
        let write = status("ConfigMap", "a");
        for (number, text, expected) in [
            (422, "Too many: 33", Some("Invalid")),
            (400, "bad", Some("Invalid")),
            (403, "admission denied it", Some("Forbidden")),
            (413, "limit is 3145728", Some("TooLarge")),
            (500, "etcdserver: request is too large", Some("TooLarge")),
            (
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max",
                Some("TooLarge"),
            ),
            (500, "etcdserver: leader changed", None),
            (404, "not found", None),
            (409, "modified", None),
            (429, "too many requests", None),
            (401, "who?", None),
        ] {
            let refusal = classify_refusal(&write, &error(number, "R", text));
            assert_eq!(refusal.as_ref().map(|refusal| refusal.error.code()), expected, "{number} {text}");
        }
        assert!(classify_refusal(&write, &CallError::TimedOut).is_none());
        let of_secret =
            classify_refusal(&status("Secret", "a"), &error(422, "Invalid", "Invalid value: hunter2")).unwrap();
        assert!(!of_secret.error.to_string().contains("hunter2"));
    }

    #[test]
    fn a_refused_write_is_made_again_in_minutes_or_when_it_is_another_one() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let write = status("ConfigMap", "a");
        let key = ObjectKey::new("", "ConfigMap", "shop", "page");
        let request = ReconcileRequest::Status(key.clone());
        let refusal = classify_refusal(&write, &error(422, "Invalid", "no")).unwrap();
        assert!(!refusals.is_held_back(&write));
        assert!(refusals.record_refusal(refusal.clone(), request.clone(), start));
        assert!(refusals.is_held_back(&write) && !refusals.is_held_back(&status("ConfigMap", "b")));
        assert!(refusals.take_due(start + AGAIN - Duration::from_secs(1)).is_empty());
        assert_eq!(refusals.take_due(start + AGAIN), std::slice::from_ref(&request));
        assert!(!refusals.is_held_back(&write), "it is tried");
        assert!(!refusals.record_refusal(refusal, request, start + AGAIN), "nothing new is said");
        assert!(refusals.is_held_back(&write));
        refusals.forget_refusals(&key);
        assert!(!refusals.is_held_back(&write) && refusals.known.is_empty() && refusals.due.is_empty());
    }
}
