//! One target of a wait: its status, its cause, and the reports about it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Event as Warning;
use serde_json::Value;

use super::WaitTarget;
use crate::diagnose::diagnosis::{CauseId, Diagnosis, Link};
use crate::diagnose::evidence::Evidence;
use crate::diagnose::kstatus::{State, Status, evaluate_status};
use crate::diagnose::workload::diagnose_object;
use crate::k8s::event::Event;
use crate::k8s::object::ObjectRef;

/// One target while it is waited for.
pub(crate) struct Watched<'a> {
    pub target: &'a WaitTarget,
    pub live: Option<Value>,
    /// True once it existed.
    pub existed: bool,
    pub status: Status,
    /// The cause that keeps it from being ready, by the latest evidence.
    cause: Option<Explanation>,
    /// The latest warning about it or its pods, where no cause is known.
    warning: Option<String>,
    /// The warnings so far, by reason and object.
    warned: BTreeSet<[String; 2]>,
    reported: Option<Reported>,
}

/// The last report, as far as it must not be repeated.
#[derive(Clone, PartialEq, Eq)]
enum Reported {
    Ready,
    Message(String),
    Cause(CauseId, Vec<ObjectRef>),
}

/// The message about a cause, and its identity as a report.
struct Explanation {
    message: String,
    reported: Reported,
}

impl Explanation {
    fn from_cause_chain(diagnosis: &Diagnosis) -> Option<Self> {
        let (head, rest) = diagnosis.chain.split_first()?;
        let message = match rest {
            [] => head.state.clone(),
            _ => rest.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → "),
        };
        // The time in a line of a log and the name of a pod that was refused are new each time.
        let cause = diagnosis.cause;
        let reported = if cause.is_from_log() || matches!(cause, CauseId::QuotaExceeded | CauseId::PodSecurity) {
            Reported::Cause(cause, diagnosis.chain.iter().map(|link| link.object.clone()).collect())
        } else {
            Reported::Message(message.clone())
        };
        Some(Self { message, reported })
    }
}

impl<'a> Watched<'a> {
    pub(crate) fn new(target: &'a WaitTarget) -> Self {
        let status = Status { state: State::InProgress, message: String::new() };
        Self {
            target,
            live: None,
            existed: false,
            status,
            cause: None,
            warning: None,
            warned: BTreeSet::new(),
            reported: None,
        }
    }

    pub(crate) fn update_status(&mut self) {
        self.status = match &self.live {
            Some(live) => evaluate_status(live, self.target.generation),
            None if self.existed => {
                Status { state: State::InProgress, message: "was deleted during the wait".to_owned() }
            }
            None => Status { state: State::InProgress, message: "does not exist yet".to_owned() },
        };
        if self.status.is_done() {
            (self.cause, self.warning) = (None, None);
        }
    }

    /// Returns whether its status was evaluated.
    pub(crate) fn is_evaluated(&self) -> bool {
        !self.status.message.is_empty()
    }

    pub(crate) fn status_link(&self) -> Link {
        Link { object: self.target.object.clone(), state: self.status.message.clone() }
    }

    pub(crate) fn find_diagnosis(&self, evidence: &Evidence) -> Option<Diagnosis> {
        match &self.live {
            Some(live) => diagnose_object(live, &self.status, evidence),
            None if self.existed => Some(Diagnosis {
                cause: CauseId::Deleted,
                chain: vec![self.status_link()],
                remedy: "find out what deletes it, then run the command again".into(),
                logs: Vec::new(),
                grace: CauseId::Deleted.default_grace(),
            }),
            None => None,
        }
    }

    /// Takes its cause from those of an observation, if it has one, and the latest warning.
    pub(crate) fn update_explanation(&mut self, causes: &[Diagnosis], warning: Option<&Warning>) {
        let of_it = |cause: &&Diagnosis| cause.chain.first().is_some_and(|head| head.object == self.target.object);
        self.cause = causes.iter().find(of_it).and_then(Explanation::from_cause_chain);
        let field = |field: &Option<String>| field.as_deref().unwrap_or_default().trim().to_owned();
        let new = warning.filter(|event| self.warned.insert([&event.reason, &event.involved_object.name].map(field)));
        if let Some(event) = new {
            self.warning = Some(format!("Warning {}: {}", field(&event.reason), field(&event.message)));
        }
        // A cause supersedes the warnings until now.
        if warning.is_none() || self.cause.is_some() {
            self.warning = None;
        }
    }

    /// The report about it: its cause if one is known, else its status with the latest warning, each warning once
    /// however often it is repeated; nothing when that was the last report.
    pub(crate) fn next_report(&mut self, seconds: u64) -> Option<Event> {
        if !self.is_evaluated() {
            return None;
        }
        let object = self.target.object.clone();
        let (reported, event) = if self.status.is_done() {
            let note = (self.status.state == State::Unknown).then(|| self.status.message.clone());
            (Reported::Ready, Event::Ready { object, seconds, note })
        } else {
            let status = || {
                let warning = self.warning.as_ref().map_or_else(String::new, |warning| format!(" ({warning})"));
                let message = self.status.message.clone() + &warning;
                (Reported::Message(message.clone()), message)
            };
            let (reported, message) =
                self.cause.as_ref().map_or_else(status, |cause| (cause.reported.clone(), cause.message.clone()));
            (reported, Event::Waiting { object, message, seconds })
        };
        if self.reported.as_ref() == Some(&reported) {
            return None;
        }
        self.reported = Some(reported);
        Some(event)
    }
}

/// The example of an object that is deleted during a wait.
#[cfg(test)]
pub(crate) fn deleted_diagnosis() -> Diagnosis {
    let target = WaitTarget::new("apps", "Deployment", Some("fleet"), "apiserver").unwrap();
    let mut watched = Watched { existed: true, ..Watched::new(&target) };
    watched.update_status();
    watched.find_diagnosis(&Evidence::default()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn target() -> WaitTarget {
        WaitTarget::new("apps", "Deployment", Some("n"), "d").unwrap()
    }

    fn deployment(ready: i64) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n", "generation": 1},
            "spec": {"replicas": 2}, "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2,
                "readyReplicas": ready, "availableReplicas": ready}})
    }

    fn cause(cause: CauseId, pod: &str, state: &str) -> Diagnosis {
        let object = ObjectRef { group: String::new(), kind: "Pod".into(), namespace: None, name: pod.into() };
        let chain = vec![
            Link { object: target().object, state: "0 of 2 pods ready".into() },
            Link { object, state: state.into() },
        ];
        Diagnosis {
            cause,
            chain,
            remedy: crate::api::remedy::Remedy::default(),
            logs: Vec::new(),
            grace: cause.default_grace(),
        }
    }

    /// One step in the life of a target.
    enum Happens {
        Update(Value),
        Observed(Option<Diagnosis>),
        Warned(Option<Diagnosis>, Value),
    }
    use Happens::{Observed, Update, Warned};

    fn reports(happens: Vec<Happens>) -> Vec<String> {
        let target = target();
        let mut watched = Watched::new(&target);
        let mut next = |happens| {
            match happens {
                Update(live) => {
                    (watched.live, watched.existed) = (Some(live), true);
                    watched.update_status();
                }
                Observed(cause) => watched.update_explanation(cause.as_slice(), None),
                Warned(cause, event) => {
                    let event = serde_json::from_value(event).expect("an event");
                    watched.update_explanation(cause.as_slice(), Some(&event));
                }
            }
            watched.next_report(0).map(|event| match event {
                Event::Waiting { message, .. } => message,
                Event::Ready { note, .. } => note.unwrap_or_else(|| "ready".to_owned()),
                other => panic!("{other:?}"),
            })
        };
        happens.into_iter().filter_map(&mut next).collect()
    }

    #[test]
    fn cause_is_reported_once() {
        let untaken = || Observed(Some(cause(CauseId::Unschedulable, "d-1", "no node takes it")));
        let update = || Update(deployment(0));
        let happens =
            vec![update(), untaken(), update(), untaken(), update(), Observed(None), Observed(None), update()];
        assert_eq!(reports(happens), ["0 of 2 pods ready", "Pod d-1: no node takes it", "0 of 2 pods ready"]);
        let happens = vec![untaken(), update(), Update(deployment(2)), Update(deployment(2)), Update(deployment(1))];
        assert_eq!(reports(happens), ["Pod d-1: no node takes it", "ready", "1 of 2 pods ready"]);
    }

    #[test]
    fn same_log_or_refusal_is_no_change() {
        let observed = |id, pod: &str, state: &str| Observed(Some(cause(id, pod, state)));
        let happens = vec![
            Update(deployment(0)),
            observed(CauseId::NameLookupFailed, "d-1", "10:00 no such host"),
            observed(CauseId::NameLookupFailed, "d-1", "10:02 no such host"),
            observed(CauseId::NameLookupFailed, "d-2", "10:04 no such host"),
            observed(CauseId::CertificateExpired, "d-2", "10:06 expired"),
            observed(CauseId::QuotaExceeded, "", "d-a is forbidden"),
            observed(CauseId::QuotaExceeded, "", "d-b is forbidden"),
            observed(CauseId::CrashLoop, "d-2", "ended 3 times"),
            observed(CauseId::CrashLoop, "d-2", "ended 4 times"),
        ];
        assert_eq!(
            reports(happens),
            [
                "0 of 2 pods ready",
                "Pod d-1: 10:00 no such host",
                "Pod d-2: 10:04 no such host",
                "Pod d-2: 10:06 expired",
                "Pod: d-a is forbidden",
                "Pod d-2: ended 3 times",
                "Pod d-2: ended 4 times"
            ]
        );
    }

    #[test]
    fn warnings_are_reported_once() {
        let event = |pod: &str, reason: &str, count: i64| json!({"reason": reason, "message": format!("{pod} {count}\n"), "involvedObject": {"name": pod}});
        let warned = |pod: &str, reason: &str, count: i64| Warned(None, event(pod, reason, count));
        let untaken = || Some(cause(CauseId::Unschedulable, "d-1", "no node takes it"));
        let happens = vec![
            Update(deployment(0)),
            warned("d-1", "Odd", 1),
            warned("d-1", "Odd", 2),
            warned("d-2", "Odd", 1),
            // Two that are repeated in turn.
            warned("d-1", "Odd", 3),
            warned("d-2", "Odd", 2),
            Update(deployment(1)),
            Warned(untaken(), event("d-1", "Untaken", 1)),
            warned("d-1", "Untaken", 2),
            warned("d-1", "Strange", 1),
            Update(deployment(2)),
            Update(deployment(1)),
        ];
        assert_eq!(
            reports(happens),
            [
                "0 of 2 pods ready",
                "0 of 2 pods ready (Warning Odd: d-1 1)",
                "0 of 2 pods ready (Warning Odd: d-2 1)",
                "1 of 2 pods ready (Warning Odd: d-2 1)",
                "Pod d-1: no node takes it",
                "1 of 2 pods ready",
                "1 of 2 pods ready (Warning Strange: d-1 1)",
                "ready",
                "1 of 2 pods ready",
            ]
        );
    }

    #[test]
    fn kind_without_a_rule_is_noted() {
        let unknown = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "d"}});
        assert_eq!(reports(vec![Update(unknown)]), ["exists; there is no rule for when this kind is ready"]);
    }
}
