//! The rule of early failure: the grace of a cause, and the failure signals that start it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::Value;

use super::diagnosis::{Attempt, CauseId, Diagnosis};
use super::evidence::{Evidence, event_message, event_time, has_reason};
use super::pod::{MOUNT_FAILURES, all_statuses, waiting_reason};
use super::typed::Typed;
use super::workload::{ContainerKey, container_runs};
use crate::k8s::object::{ObjectRef, object_uid, status_condition, text_at};

/// The grace before early failure of each cause that is observed. A cause that went away starts again.
#[derive(Default)]
pub(crate) struct Grace {
    since: BTreeMap<(ObjectRef, CauseId), Instant>,
    /// The signals at the first observation of the wait; those of pods as long as every later observation had them.
    before: Option<BTreeSet<Signal>>,
    /// The runs of each container that had begun at the first observation of the wait.
    at_start: Option<BTreeMap<ContainerKey, i32>>,
    /// The same at the first observation since the current target came to its turn.
    at_turn: Option<BTreeMap<ContainerKey, i32>>,
}

/// A failure signal, of one failed try: the uid of the object that reports it, and its state. Another try gives another
/// signal.
type Signal = (String, String);

impl Grace {
    /// Restarts the grace, because a dependency of the current target has just become ready: crashes until now prove
    /// nothing.
    pub(crate) fn restart_grace(&mut self) {
        self.since.clear();
        self.at_turn = None;
    }

    /// Takes an observation: the causes, the targets that are missing, and the evidence around them. The first one only
    /// sets what later ones are compared with.
    pub(crate) fn observe_causes(&mut self, latest: &[Diagnosis], missing: &[&Value], evidence: &Evidence) {
        let signals = collect_signals(missing, evidence);
        let first = self.before.is_none();
        let before = self.before.get_or_insert_with(|| signals.clone());
        // A signal of a pod that went away and came back is new. Pods that could not be read this time keep theirs.
        let pods: BTreeSet<&str> = evidence.pods.iter().map(Typed::uid).collect();
        before.retain(|signal| signals.contains(signal) || !pods.contains(signal.0.as_str()));
        let begun: BTreeMap<ContainerKey, i32> = missing
            .iter()
            .flat_map(|live| container_runs(live, evidence))
            .map(|(key, runs)| (key, runs.begun))
            .collect();
        self.at_start.get_or_insert_with(|| begun.clone());
        self.at_turn.get_or_insert(begun);
        let proven = latest.iter().filter(|cause| !first && self.is_proven(cause, missing, evidence));
        let now: Vec<_> = proven.filter_map(cause_of).collect();
        self.since.retain(|known, _| now.contains(known));
        for known in now {
            self.since.entry(known).or_insert_with(Instant::now);
        }
    }

    /// Returns whether a try since the first observation shows the cause.
    fn is_proven(&self, cause: &Diagnosis, missing: &[&Value], evidence: &Evidence) -> bool {
        let head = cause.chain.first().map(|link| &link.object);
        let target = missing.iter().copied().find(|live| ObjectRef::of(live).as_ref() == head);
        match cause.cause {
            // A transient case does not start the grace of a lasting one.
            _ if cause.grace.is_none() => false,
            CauseId::CrashLoop => self.has_new_run(cause, target, evidence),
            id if id.is_from_log() => self.has_new_run(cause, target, evidence),
            _ => self.has_new_signal(cause, target, evidence),
        }
    }

    /// Returns whether a container has run since then.
    ///
    /// A container that sits out a back-off from before may become ready as soon as it is started again: only a run
    /// that began since proves anything, or the log of one that still goes on.
    fn has_new_run(&self, cause: &Diagnosis, target: Option<&Value>, evidence: &Evidence) -> bool {
        let log = cause.cause.is_from_log();
        let before = if log { &self.at_start } else { &self.at_turn };
        target.is_some_and(|live| {
            container_runs(live, evidence).iter().any(|(key, runs)| {
                let begun_before = before.as_ref().and_then(|before| before.get(key)).copied().unwrap_or(0);
                runs.ended > begun_before || log && runs.begun > runs.ended
            })
        })
    }

    /// Returns whether a controller or a node has tried again since then.
    ///
    /// It retries after a pause that grows. The pause may be as long as the time since the last try, and the failure of
    /// that one may be resolved.
    fn has_new_signal(&self, cause: &Diagnosis, target: Option<&Value>, evidence: &Evidence) -> bool {
        let known = cause_of(cause).is_some_and(|cause| self.since.contains_key(&cause));
        known
            || signals_of(cause, target, evidence)
                .is_none_or(|signals| self.before.as_ref().is_none_or(|before| !signals.is_subset(before)))
    }

    /// Returns whether an event came after the first observation of the wait.
    pub(crate) fn is_new(&self, event: &Event) -> bool {
        self.before.as_ref().is_some_and(|before| !before.contains(&of_event(event)))
    }

    /// Returns whether the cause has lasted long enough to end the wait.
    pub(crate) fn is_used_up(&self, diagnosis: &Diagnosis) -> bool {
        let since = cause_of(diagnosis).and_then(|cause| self.since.get(&cause));
        since.zip(diagnosis.grace).is_some_and(|(since, grace)| since.elapsed() >= grace)
    }
}

fn cause_of(diagnosis: &Diagnosis) -> Option<(ObjectRef, CauseId)> {
    diagnosis.chain.first().map(|link| (link.object.clone(), diagnosis.cause))
}

/// All failure signals in the evidence.
fn collect_signals(missing: &[&Value], evidence: &Evidence) -> BTreeSet<Signal> {
    let conditions = missing.iter().map(|live| of_condition(live, "ReplicaFailure"));
    let events = evidence.events.iter().map(of_event);
    events.chain(evidence.pods.iter().flat_map(of_pulls)).chain(conditions.flatten()).collect()
}

/// The failure signals of a cause; none for a cause that holds as it is observed now, whenever it began.
fn signals_of(cause: &Diagnosis, target: Option<&Value>, evidence: &Evidence) -> Option<BTreeSet<Signal>> {
    let signals = match cause.cause {
        CauseId::ImageNotFound | CauseId::ImageArchitecture | CauseId::ImagePullDenied | CauseId::ImagePullFailed => {
            let mut pods: Vec<&Pod> = evidence.pods.iter().collect();
            pods.retain(|pod| {
                let reference = pod.object_ref();
                cause.chain.iter().any(|link| Some(&link.object) == reference.as_ref())
            });
            let waiting = pods.iter().flat_map(|pod| waiting_containers(pod));
            let attempts: Vec<_> = waiting.filter_map(|(_, reason)| cause.cause.find_attempt(reason)).collect();
            // An image that was pulled and cannot run shows in no pull.
            if attempts.is_empty() || attempts.contains(&Attempt::Conclusive) {
                return None;
            }
            // Events of the same reason report each back-off. Those do not quote the registry.
            let pulled =
                events_in_chain(cause, &["Failed"], evidence).filter(|event| event_message(event).contains("pull"));
            pulled.map(of_event).chain(pods.into_iter().flat_map(of_pulls)).collect()
        }
        CauseId::QuotaExceeded | CauseId::PodSecurity | CauseId::PodsRefused => {
            let mut signals: BTreeSet<_> = events_in_chain(cause, &["FailedCreate"], evidence).map(of_event).collect();
            signals.extend(target.and_then(|live| of_condition(live, "ReplicaFailure")));
            signals
        }
        CauseId::ProvisioningFailed => {
            events_in_chain(cause, &["ProvisioningFailed"], evidence).map(of_event).collect()
        }
        CauseId::MountFailed => events_in_chain(cause, &MOUNT_FAILURES, evidence).map(of_event).collect(),
        _ => return None,
    };
    Some(signals)
}

/// The events with one of these reasons about an object in the chain of a cause.
fn events_in_chain<'e>(
    cause: &'e Diagnosis,
    reasons: &'e [&str],
    evidence: &'e Evidence,
) -> impl Iterator<Item = &'e Event> {
    evidence.events.iter().filter(move |event| {
        let involved = &event.involved_object;
        has_reason(event, reasons)
            && cause.chain.iter().map(|link| &link.object).any(|object| {
                involved.kind.as_ref() == Some(&object.kind)
                    && involved.name.as_ref() == Some(&object.name)
                    && involved.namespace == object.namespace
            })
    })
}

/// A repeated event has another count or another time.
fn of_event(event: &Event) -> Signal {
    let counts = [event.count, event.series.as_ref().and_then(|series| series.count)];
    (event.uid().to_owned(), format!("{counts:?} {:?}", event_time(event)))
}

/// A condition is not written again while it holds.
fn of_condition(object: &Value, kind: &str) -> Option<Signal> {
    let condition = status_condition(object, kind)?;
    let state = ["/status", "/reason", "/lastUpdateTime", "/lastTransitionTime"].map(|part| text_at(condition, part));
    Some((object_uid(object).to_owned(), format!("{kind} {state:?}")))
}

/// Events can be lost: a node sends few about one pod. The status of the pod also reports that an image was not pulled,
/// and by another reason that it was tried just now.
fn of_pulls(pod: &Pod) -> Vec<Signal> {
    let signals =
        waiting_containers(pod).flat_map(|(name, reason)| match CauseId::ImagePullFailed.find_attempt(reason) {
            Some(Attempt::Failed) => vec![format!("{name} waits"), format!("{name} tried")],
            Some(Attempt::BackingOff) => vec![format!("{name} waits")],
            _ => Vec::new(),
        });
    signals.map(|signal| (pod.uid().to_owned(), signal)).collect()
}

/// The names of the containers that wait, each with its reason.
fn waiting_containers(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    all_statuses(pod).filter_map(|container| Some((container.name.as_str(), waiting_reason(container)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::remedy::Remedy;
    use crate::diagnose::diagnosis::Link;
    use crate::diagnose::kstatus::evaluate_status;
    use crate::diagnose::typed::{typed_list, typed_object};
    use crate::diagnose::workload::diagnose_object;
    use serde_json::json;

    fn stateful_set() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s", "namespace": "n", "uid": "s", "generation": 1},
            "spec": {"replicas": 1}, "status": {"observedGeneration": 1}})
    }

    fn pod(uid: &str, status: Value) -> Pod {
        let metadata = json!({"name": "s-0", "namespace": "n", "uid": uid, "ownerReferences": [{"uid": "s"}]});
        typed_object(json!({"metadata": metadata, "status": status}))
    }

    /// Returns after each of these observations of one container whether the grace of the cause has begun; none is the
    /// turn of its object.
    fn counts(cause: CauseId, observations: &[Option<(i64, i64)>]) -> Vec<bool> {
        let set = stateful_set();
        let object = ObjectRef::of(&set).unwrap();
        let chain = vec![Link { object: object.clone(), state: String::new() }];
        let latest =
            [Diagnosis { cause, chain, remedy: Remedy::default(), logs: Vec::new(), grace: cause.default_grace() }];
        let mut grace = Grace::default();
        let mut begun_after = Vec::new();
        for observation in observations {
            let Some((begun, ended)) = *observation else {
                grace.restart_grace();
                continue;
            };
            let container = match begun {
                0 => json!({"name": "c", "restartCount": 0, "state": {"waiting": {}}}),
                _ if begun > ended => json!({"name": "c", "restartCount": ended, "state": {"running": {}}}),
                _ => {
                    json!({"name": "c", "restartCount": ended - 1, "state": {"waiting": {}}, "lastState": {"terminated": {}}})
                }
            };
            let pods = vec![pod("p", json!({"containerStatuses": [container]}))];
            grace.observe_causes(&latest, &[&set], &Evidence { pods, ..Evidence::default() });
            begun_after.push(grace.since.contains_key(&(object.clone(), cause)));
        }
        begun_after
    }

    #[test]
    fn transient_cause_has_no_grace() {
        let set = stateful_set();
        let chain = vec![Link { object: ObjectRef::of(&set).unwrap(), state: String::new() }];
        let cause = CauseId::Unschedulable;
        let heals = Diagnosis { cause, chain, remedy: Remedy::default(), logs: Vec::new(), grace: None };
        let stays = Diagnosis { grace: Some(std::time::Duration::ZERO), ..heals.clone() };
        let mut grace = Grace::default();
        let mut observe = |latest: &[Diagnosis]| {
            grace.observe_causes(latest, &[&set], &Evidence::default());
            (!grace.since.is_empty(), grace.is_used_up(&heals), grace.is_used_up(&stays))
        };
        // The first observation only has what was there before.
        observe(&[]);
        assert_eq!(observe(std::slice::from_ref(&heals)), (false, false, false));
        assert_eq!(observe(std::slice::from_ref(&stays)), (true, false, true));
        assert_eq!(observe(std::slice::from_ref(&heals)), (false, false, false));
    }

    #[test]
    fn only_a_new_run_proves_a_crash() {
        let observations = [Some((5, 5)), Some((6, 5)), Some((6, 6))];
        assert_eq!(counts(CauseId::CrashLoop, &observations), [false, false, true]);
        let runs_at_first = [Some((6, 5)), Some((6, 6)), Some((7, 6)), Some((7, 7))];
        assert_eq!(counts(CauseId::CrashLoop, &runs_at_first), [false, false, false, true]);
        let new = [Some((0, 0)), Some((1, 1))];
        assert_eq!(counts(CauseId::CrashLoop, &new), [false, true]);
    }

    #[test]
    fn only_logs_of_current_runs_count() {
        for cause in [CauseId::NameLookupFailed, CauseId::CertificateUntrusted, CauseId::CertificateExpired] {
            assert_eq!(counts(cause, &[Some((5, 5)), Some((6, 5)), Some((6, 6))]), [false, true, true]);
        }
    }

    fn back_off_container(restarts: i64) -> Value {
        json!({"name": "i", "restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}})
    }

    fn pod_evidence(status: Value) -> Evidence {
        Evidence { pods: vec![pod("p", status)], ..Evidence::default() }
    }

    #[test]
    fn init_container_counts_if_it_crashes() {
        const CRASHED: Option<CauseId> = Some(CauseId::CrashLoop);
        let crashes = [2, 2, 3].map(|restarts| {
            pod_evidence(json!({"phase": "Pending", "initContainerStatuses": [back_off_container(restarts)]}))
        });
        assert_eq!(counted(&stateful_set(), &crashes), [None, None, CRASHED]);
        // The main containers are still in back-off from before.
        let done = json!({"terminated": {"reason": "Completed", "exitCode": 0}});
        let observations = [json!({"running": {}}), done.clone(), done].map(|state| {
            let init = json!({"name": "first", "restartCount": 0, "state": state});
            pod_evidence(json!({"initContainerStatuses": [init], "containerStatuses": [back_off_container(4)]}))
        });
        assert_eq!(counted(&stateful_set(), &observations), [None, None, None]);
    }

    #[test]
    fn new_and_repeated_events_are_new() {
        let mut grace = Grace::default();
        assert!(!grace.is_new(&event("Pod", "s-0", "FailedMount", "not found", 1)));
        for (times, new) in [(1, false), (1, false), (2, true), (2, true)] {
            let failure = event("Pod", "s-0", "FailedMount", "not found", times);
            let evidence = Evidence { events: vec![failure.clone()], ..Evidence::default() };
            grace.observe_causes(&[], &[&stateful_set()], &evidence);
            assert_eq!(grace.is_new(&failure), new, "{times}");
        }
    }

    #[test]
    fn restart_of_grace_clears_crashes_only() {
        let observations = [Some((0, 0)), Some((2, 2)), None, Some((2, 2)), Some((3, 3))];
        assert_eq!(counts(CauseId::CrashLoop, &observations), [false, true, false, true]);
        assert_eq!(counts(CauseId::NameLookupFailed, &observations), [false, true, true, true]);
        assert_eq!(counts(CauseId::OutOfMemory, &observations), [false, true, true, true]);
    }

    /// The cause whose grace has begun after each of these observations of one object.
    fn counted(object: &Value, observations: &[Evidence]) -> Vec<Option<CauseId>> {
        let mut grace = Grace::default();
        let mut begun_after = Vec::new();
        for evidence in observations {
            let latest: Vec<_> =
                diagnose_object(object, &evaluate_status(object, None), evidence).into_iter().collect();
            grace.observe_causes(&latest, &[object], evidence);
            begun_after.push(grace.since.keys().map(|(_, cause)| *cause).next());
        }
        begun_after
    }

    fn event(kind: &str, name: &str, reason: &str, message: &str, count: i32) -> Event {
        typed_object(
            json!({"metadata": {"uid": format!("{reason} {message}")}, "reason": reason, "message": message, "count": count,
            "involvedObject": {"kind": kind, "namespace": "n", "name": name}, "lastTimestamp": "2026-01-01T00:00:00Z"}),
        )
    }

    /// A pod whose image is missing, with the events of its node.
    fn pulling(uid: &str, why: &str, events: Vec<Event>) -> Evidence {
        let message = "failed to pull image \"i\": not found";
        let container = json!({"name": "c", "image": "i", "state": {"waiting": {"reason": why, "message": message}}});
        let pods = vec![pod(uid, json!({"phase": "Pending", "containerStatuses": [container]}))];
        Evidence { pods, events, ..Evidence::default() }
    }

    #[test]
    fn missing_image_needs_a_new_pull() {
        const FOUND: Option<CauseId> = Some(CauseId::ImageNotFound);
        let [off, tried] = ["ImagePullBackOff", "ErrImagePull"];
        let observations = [(3, 8), (3, 9), (4, 9), (4, 10)].map(|(pulls, pauses)| {
            let failed = event("Pod", "s-0", "Failed", "Failed to pull image \"i\": not found", pulls);
            pulling("p", off, vec![failed, event("Pod", "s-0", "Failed", "Error: ImagePullBackOff", pauses)])
        });
        assert_eq!(counted(&stateful_set(), &observations), [None, None, FOUND, FOUND]);
        // A node that has sent too many events sends no more for a while.
        let observations = [off, tried, off].map(|why| pulling("p", why, Vec::new()));
        assert_eq!(counted(&stateful_set(), &observations), [None, FOUND, FOUND]);
        let observations = [tried, off, off, tried].map(|why| pulling("p", why, Vec::new()));
        assert_eq!(counted(&stateful_set(), &observations), [None, None, None, FOUND]);
    }

    #[test]
    fn new_pod_or_bad_image_name_counts() {
        const FOUND: Option<CauseId> = Some(CauseId::ImageNotFound);
        let observations =
            [pulling("old", "ImagePullBackOff", Vec::new()), pulling("new", "ImagePullBackOff", Vec::new())];
        assert_eq!(counted(&stateful_set(), &observations), [None, FOUND]);
        let observations =
            [pulling("p", "ContainerCreating", Vec::new()), pulling("p", "ImagePullBackOff", Vec::new())];
        assert_eq!(counted(&stateful_set(), &observations), [None, FOUND]);
        assert_eq!(
            counted(&stateful_set(), &["InvalidImageName"; 2].map(|why| pulling("p", why, Vec::new()))),
            [None, FOUND]
        );
    }

    #[test]
    fn old_refusal_counts_when_repeated() {
        let pending = pod("p", json!({"phase": "Pending"}));
        let pvc = json!({"status": {"phase": "Pending"}, "metadata": {"name": "v", "namespace": "n"},
            "spec": {"storageClassName": "fast"}});
        let mounts = json!({"volumes": [{"persistentVolumeClaim": {"claimName": "v"}}]});
        let mounting = Pod { spec: Some(typed_object(mounts)), ..pending.clone() };
        let volume = Evidence { pods: vec![mounting], pvcs: typed_list(vec![pvc]), ..Evidence::default() };
        let mounting = Evidence { pods: vec![pending], ..Evidence::default() };
        for (cause, evidence, about, reason, message) in [
            (CauseId::QuotaExceeded, Evidence::default(), ("StatefulSet", "s"), "FailedCreate", "exceeded quota: q"),
            (CauseId::PodSecurity, Evidence::default(), ("StatefulSet", "s"), "FailedCreate", "violates PodSecurity"),
            (CauseId::PodsRefused, Evidence::default(), ("StatefulSet", "s"), "FailedCreate", "denied by a webhook"),
            (CauseId::ProvisioningFailed, volume, ("PersistentVolumeClaim", "v"), "ProvisioningFailed", "not found"),
            (CauseId::MountFailed, mounting, ("Pod", "s-0"), "FailedMount", "secret \"pki\" not found"),
        ] {
            let [first, four, four_again, five, five_again] = [1, 4, 4, 5, 5].map(|times| {
                let events = vec![event(about.0, about.1, reason, message, times)];
                Evidence { events, ..evidence.clone() }
            });
            assert_eq!(
                counted(&stateful_set(), &[four, four_again, five, five_again]),
                [None, None, Some(cause), Some(cause)]
            );
            assert_eq!(
                counted(&stateful_set(), &[evidence, first]),
                [None, Some(cause)],
                "what is met first after the wait began"
            );
        }
    }
}
