//! Evidence read from a cluster for a diagnosis, and the findings in it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::Value;

use super::diagnosis::{CauseId, Link};
use crate::api::remedy::Remedy;
use crate::k8s::object::{object_uid, text_at};

/// Objects and logs read for a diagnosis. Lists that could not be read are empty, and `storage_classes` is then none.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Pods with the label of the installation.
    pub pods: Vec<Pod>,
    /// ReplicaSets with the label of the installation.
    pub replica_sets: Vec<ReplicaSet>,
    /// PersistentVolumeClaims of the namespace.
    pub pvcs: Vec<PersistentVolumeClaim>,
    /// StorageClasses of the cluster; none when they may not be read.
    pub storage_classes: Option<Vec<StorageClass>>,
    /// Events of the namespace: of the last minutes, all about Services, and all about work in progress on a pod or a
    /// PVC.
    pub events: Vec<Event>,
    /// The last lines of logs by `namespace/pod/container`.
    pub logs: BTreeMap<String, Vec<String>>,
}

/// Error texts of storage drivers for a try that took too long: the next one may find it done.
pub(super) const DEADLINE_EXCEEDED: [&str; 2] = ["DeadlineExceeded", "deadline exceeded"];

/// The finding for one object: the rest of the chain, the cause and the remedy.
pub(crate) struct Finding {
    pub(super) cause: CauseId,
    pub(super) chain: Vec<Link>,
    pub(super) remedy: Remedy,
    pub(super) logs: Vec<String>,
    pub(super) grace: Option<Duration>,
}

impl Finding {
    pub(super) fn new(cause: CauseId, link: Link, remedy: impl Into<Remedy>) -> Self {
        Self { cause, chain: vec![link], remedy: remedy.into(), logs: Vec::new(), grace: cause.default_grace() }
    }

    /// Marks a case of the cause that may pass by itself: it is reported after a time-out, and ends no wait early.
    pub(super) fn into_transient(self) -> Self {
        Self { grace: None, ..self }
    }

    /// The object at the root with its state, and the remedy.
    pub(crate) fn into_state_and_remedy(self) -> (String, Remedy) {
        (self.chain.last().map(ToString::to_string).unwrap_or_default(), self.remedy)
    }

    pub(super) fn prepend_link(mut self, link: Link) -> Self {
        self.chain.insert(0, link);
        self
    }
}

/// An object as events name it: by its uid, else by kind and name.
#[derive(Clone, Copy)]
pub(super) struct Subject<'o> {
    pub(super) uid: &'o str,
    pub(super) kind: &'o str,
    pub(super) name: &'o str,
}

impl<'o> Subject<'o> {
    /// The subject of an object of any kind.
    pub(super) fn from_object(object: &'o Value) -> Self {
        let [kind, name] = ["/kind", "/metadata/name"].map(|pointer| text_at(object, pointer).unwrap_or_default());
        Self { uid: object_uid(object), kind, name }
    }

    fn is_of(self, event: &Event) -> bool {
        let involved = &event.involved_object;
        match involved.uid.as_deref() {
            Some(uid) if !uid.is_empty() => uid == self.uid,
            _ => involved.kind.as_deref() == Some(self.kind) && involved.name.as_deref() == Some(self.name),
        }
    }
}

pub(super) fn is_warning(event: &Event) -> bool {
    event.type_.as_deref() == Some("Warning")
}

/// Returns whether the reason of an event is one of these.
pub(super) fn has_reason(event: &Event, reasons: &[&str]) -> bool {
    event.reason.as_deref().is_some_and(|reason| reasons.contains(&reason))
}

/// The message of an event, empty when there is none.
pub(super) fn event_message(event: &Event) -> &str {
    event.message.as_deref().unwrap_or_default()
}

/// The events about an object, the latest first.
pub(super) fn events_of<'e>(subject: Subject<'_>, evidence: &'e Evidence) -> impl Iterator<Item = &'e Event> + use<'e> {
    let mut events: Vec<&Event> = evidence.events.iter().filter(|event| subject.is_of(event)).collect();
    events.sort_by_key(|event| std::cmp::Reverse(event_time(event)));
    events.into_iter()
}

/// The time when an event was last observed, if it has one.
pub(crate) fn event_time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    series
        .map(|time| time.0)
        .or(event.last_timestamp.as_ref().map(|time| time.0))
        .or(event.event_time.as_ref().map(|time| time.0))
        .or(event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// The time of an event in seconds, to which most event writers round.
pub(super) fn event_second(event: &Event) -> Option<i64> {
    event_time(event).map(Timestamp::as_second)
}
