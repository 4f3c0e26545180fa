//! What was read of a cluster for a diagnosis, and what was found in it.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::diagnosis::{CauseId, Link};
use crate::k8s::object::{text, uid};

/// What was read for a diagnosis. Lists that could not be read are empty, and `classes` is then none.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Pods with our label.
    pub pods: Vec<Value>,
    /// ReplicaSets with our label.
    pub replica_sets: Vec<Value>,
    /// Volume claims of the namespace.
    pub claims: Vec<Value>,
    /// Storage classes of the cluster; none when they may not be read.
    pub classes: Option<Vec<Value>>,
    /// Events of the namespace: of the last minutes, all about Services, and all of who is at work on a pod or a claim.
    pub events: Vec<Value>,
    /// The last lines of logs by `namespace/pod/container`.
    pub logs: std::collections::BTreeMap<String, Vec<String>>,
}

/// What drivers of storage say when a try took longer than it may: the next one may find it done.
pub(super) const TAKES_LONG: [&str; 2] = ["DeadlineExceeded", "deadline exceeded"];

/// What is found for one object: the rest of the chain, the cause and the remedy.
pub(crate) struct Finding {
    pub(super) cause: CauseId,
    pub(super) chain: Vec<Link>,
    pub(super) remedy: String,
    pub(super) logs: Vec<String>,
    pub(super) patience: Option<Duration>,
}

impl Finding {
    pub(super) fn new(cause: CauseId, link: Link, remedy: impl Into<String>) -> Self {
        Self { cause, chain: vec![link], remedy: remedy.into(), logs: Vec::new(), patience: cause.patience() }
    }

    /// This case of the cause may heal by itself: it is told when time is up, and ends no wait.
    pub(super) fn healing(self) -> Self {
        Self { patience: None, ..self }
    }

    pub(super) fn below(mut self, link: Link) -> Self {
        self.chain.insert(0, link);
        self
    }
}

pub(super) fn is_warning(event: &Value) -> bool {
    text(event, "/type") == Some("Warning")
}

/// The events about an object, the latest first.
pub(super) fn events_of<'a>(object: &Value, evidence: &'a Evidence) -> impl Iterator<Item = &'a Value> + use<'a> {
    let (own, kind, name) = (
        uid(object).to_owned(),
        text(object, "/kind").unwrap_or_default().to_owned(),
        text(object, "/metadata/name").unwrap_or_default().to_owned(),
    );
    let mut events: Vec<&Value> = evidence
        .events
        .iter()
        .filter(move |event| match text(event, "/involvedObject/uid") {
            Some(uid) if !uid.is_empty() => uid == own,
            _ => {
                text(event, "/involvedObject/kind") == Some(&kind) && text(event, "/involvedObject/name") == Some(&name)
            }
        })
        .collect();
    events.sort_by_key(|event| std::cmp::Reverse(event_time(event)));
    events.into_iter()
}

/// When an event was last seen, if it says. As text these times have no order: some have fractions of a second.
pub(crate) fn event_time(event: &Value) -> Option<Timestamp> {
    ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]
        .iter()
        .find_map(|pointer| text(event, pointer)?.parse().ok())
}
