//! One target of a wait: its status, its cause, and the reports about it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Event as Warning;
use serde_json::Value;

use super::WaitTarget;
use crate::diagnose::diagnosis::{CauseId, Diagnosis, Link};
use crate::diagnose::evidence::Evidence;
use crate::diagnose::kstatus::{State, Status, evaluate_status};
use crate::diagnose::workload::diagnose_object;
use crate::k8s::object::ObjectRef;
use crate::k8s::run_event::Event;

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
        let own = causes.iter().find(|cause| cause.chain.first().is_some_and(|head| head.object == self.target.object));
        self.cause = own.and_then(Explanation::from_cause_chain);
        let new = warning.filter(|event| {
            let (reason, name) = (&event.reason, &event.involved_object.name);
            self.warned.insert([reason, name].map(|field| trim_event_field(field.as_deref())))
        });
        if let Some(event) = new {
            self.warning = Some(format!(
                "Warning {}: {}",
                trim_event_field(event.reason.as_deref()),
                trim_event_field(event.message.as_deref())
            ));
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
            let (reported, message) = if let Some(cause) = &self.cause {
                (cause.reported.clone(), cause.message.clone())
            } else {
                let warning = self.warning.as_ref().map_or_else(String::new, |warning| format!(" ({warning})"));
                let message = self.status.message.clone() + &warning;
                (Reported::Message(message.clone()), message)
            };
            (reported, Event::Waiting { object, message, seconds })
        };
        if self.reported.as_ref() == Some(&reported) {
            return None;
        }
        self.reported = Some(reported);
        Some(event)
    }
}

fn trim_event_field(field: Option<&str>) -> String {
    field.unwrap_or_default().trim().to_owned()
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
        let reports = happens.into_iter().filter_map(|happens| {
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
        });
        reports.collect()
    }

    fn observe_cause(id: CauseId, pod: &str, state: &str) -> Happens {
        Observed(Some(cause(id, pod, state)))
    }

    fn unschedulable_pod() -> Happens {
        observe_cause(CauseId::Unschedulable, "d-1", "no node takes it")
    }

    #[test]
    fn cause_is_reported_once() {
        let happens = vec![
            Update(deployment(0)),
            unschedulable_pod(),
            Update(deployment(0)),
            unschedulable_pod(),
            Update(deployment(0)),
            Observed(None),
            Observed(None),
            Update(deployment(0)),
        ];
        assert_eq!(reports(happens), ["0 of 2 pods ready", "Pod d-1: no node takes it", "0 of 2 pods ready"]);
        let happens = vec![
            unschedulable_pod(),
            Update(deployment(0)),
            Update(deployment(2)),
            Update(deployment(2)),
            Update(deployment(1)),
        ];
        assert_eq!(reports(happens), ["Pod d-1: no node takes it", "ready", "1 of 2 pods ready"]);
    }

    #[test]
    fn same_log_or_refusal_is_no_change() {
        let happens = vec![
            Update(deployment(0)),
            observe_cause(CauseId::NameLookupFailed, "d-1", "10:00 no such host"),
            observe_cause(CauseId::NameLookupFailed, "d-1", "10:02 no such host"),
            observe_cause(CauseId::NameLookupFailed, "d-2", "10:04 no such host"),
            observe_cause(CauseId::CertificateExpired, "d-2", "10:06 expired"),
            observe_cause(CauseId::QuotaExceeded, "", "d-a is forbidden"),
            observe_cause(CauseId::QuotaExceeded, "", "d-b is forbidden"),
            observe_cause(CauseId::CrashLoop, "d-2", "ended 3 times"),
            observe_cause(CauseId::CrashLoop, "d-2", "ended 4 times"),
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

    fn warning_event(pod: &str, reason: &str, count: i64) -> Value {
        json!({"reason": reason, "message": format!("{pod} {count}\n"), "involvedObject": {"name": pod}})
    }

    fn warn_about(pod: &str, reason: &str, count: i64) -> Happens {
        Warned(None, warning_event(pod, reason, count))
    }

    #[test]
    fn warnings_are_reported_once() {
        let happens = vec![
            Update(deployment(0)),
            warn_about("d-1", "Odd", 1),
            warn_about("d-1", "Odd", 2),
            warn_about("d-2", "Odd", 1),
            // Two that are repeated in turn.
            warn_about("d-1", "Odd", 3),
            warn_about("d-2", "Odd", 2),
            Update(deployment(1)),
            Warned(Some(cause(CauseId::Unschedulable, "d-1", "no node takes it")), warning_event("d-1", "Untaken", 1)),
            warn_about("d-1", "Untaken", 2),
            warn_about("d-1", "Strange", 1),
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
        assert_eq!(reports(vec![Update(unknown)]), ["exists; readiness of this kind cannot be checked"]);
    }
}
