//! How long a cause must have been seen before a wait ends early, and what counts as having seen it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::Value;

use super::diagnosis::{Attempt, CauseId, Diagnosis};
use super::evidence::{Evidence, event_time, has_reason, message};
use super::pod::{MOUNT_FAILURES, statuses, waiting_reason};
use super::typed::Typed;
use super::workload::{ContainerKey, Runs, runs as runs_of};
use crate::k8s::object::{ObjectRef, condition, text, uid};

/// How long causes have been seen. Those that went away start anew.
#[derive(Default)]
pub(crate) struct Patience {
    since: BTreeMap<(ObjectRef, CauseId), Instant>,
    /// What the first look of the wait found; of what pods show, as far as they have shown it ever since.
    before: Option<BTreeSet<Sign>>,
    /// How many runs of each container had begun at the first look of the wait.
    at_start: Option<BTreeMap<ContainerKey, i32>>,
    /// And at the first look after the turn of what is missing came.
    at_turn: Option<BTreeMap<ContainerKey, i32>>,
}

/// A try that failed: the uid of what tells of it, and what it tells. Another try gives another sign.
type Sign = (String, String);

impl Patience {
    /// What was needed by what is missing now has just come. It gets all the time that it may take, and that it crashed
    /// until now proves nothing.
    pub(crate) fn begin_anew(&mut self) {
        self.since.clear();
        self.at_turn = None;
    }

    /// Takes what is known now: the causes, the targets that are missing, and what was read around them. Nothing counts
    /// from the first look on.
    pub(crate) fn look(&mut self, latest: &[Diagnosis], missing: &[&Value], evidence: &Evidence) {
        let signs = signs(missing, evidence);
        let first = self.before.is_none();
        let before = self.before.get_or_insert_with(|| signs.clone());
        // What a pod shows no more and then again is new. Whatever could not be read this time is still there.
        let pods: BTreeSet<&str> = evidence.pods.iter().map(Typed::uid).collect();
        before.retain(|sign| signs.contains(sign) || !pods.contains(sign.0.as_str()));
        let target = |cause: &Diagnosis| {
            let head = cause.chain.first().map(|link| &link.object);
            missing.iter().copied().find(|live| ObjectRef::of(live).as_ref() == head)
        };
        let runs: Vec<BTreeMap<ContainerKey, Runs>> = missing.iter().map(|live| runs_of(live, evidence)).collect();
        let begun = || runs.iter().flatten().map(|(key, runs)| (key.clone(), runs.begun)).collect();
        let at_start = self.at_start.get_or_insert_with(begun);
        let at_turn = self.at_turn.get_or_insert_with(begun);
        // A container that sits out a back-off from before may become ready as soon as it is started again: only a run
        // that began since proves anything, or the log of one that still goes on.
        let ran = |cause: &Diagnosis| {
            let log = cause.cause.is_told_by_a_log();
            let before = if log { &at_start } else { &at_turn };
            let proves = |(key, runs): (&ContainerKey, &Runs)| {
                runs.ended > before.get(key).copied().unwrap_or(0) || log && runs.begun > runs.ended
            };
            target(cause).is_some_and(|live| runs_of(live, evidence).iter().any(proves))
        };
        // So it is with what a controller or a node tries again after a pause that grows. The pause may be as long as
        // the time since the last try, and what that one met may be mended.
        let tried = |cause: &Diagnosis| {
            let known = cause_of(cause).is_some_and(|cause| self.since.contains_key(&cause));
            known || signs_of(cause, target(cause), evidence).is_none_or(|signs| !signs.is_subset(before))
        };
        let proven = |cause: &&Diagnosis| match cause.cause {
            _ if first => false,
            // What may heal by itself is not the beginning of what does not.
            _ if cause.patience.is_none() => false,
            CauseId::CrashLoop => ran(cause),
            id if id.is_told_by_a_log() => ran(cause),
            _ => tried(cause),
        };
        let now: Vec<_> = latest.iter().filter(proven).filter_map(cause_of).collect();
        self.since.retain(|known, _| now.contains(known));
        for known in now {
            self.since.entry(known).or_insert_with(Instant::now);
        }
    }

    /// Whether an event tells of something that came after the first look of the wait.
    pub(crate) fn is_new(&self, event: &Event) -> bool {
        self.before.as_ref().is_some_and(|before| !before.contains(&of_event(event)))
    }

    /// Whether the cause has lasted long enough to end the wait.
    pub(crate) fn is_over(&self, diagnosis: &Diagnosis) -> bool {
        let since = cause_of(diagnosis).and_then(|cause| self.since.get(&cause));
        since.zip(diagnosis.patience).is_some_and(|(since, patience)| since.elapsed() >= patience)
    }
}

fn cause_of(diagnosis: &Diagnosis) -> Option<(ObjectRef, CauseId)> {
    diagnosis.chain.first().map(|link| (link.object.clone(), diagnosis.cause))
}

/// All signs that there are.
fn signs(missing: &[&Value], evidence: &Evidence) -> BTreeSet<Sign> {
    let told = missing.iter().map(|live| of_condition(live, "ReplicaFailure"));
    let events = evidence.events.iter().map(of_event);
    events.chain(evidence.pods.iter().flat_map(of_pulls)).chain(told.flatten()).collect()
}

/// The signs of a cause; none for what is as the cluster shows it now, whenever it began.
fn signs_of(cause: &Diagnosis, target: Option<&Value>, evidence: &Evidence) -> Option<BTreeSet<Sign>> {
    let about = |event: &Event| {
        let involved = &event.involved_object;
        let mut objects = cause.chain.iter().map(|link| &link.object);
        objects.any(|object| {
            involved.kind.as_ref() == Some(&object.kind)
                && involved.name.as_ref() == Some(&object.name)
                && involved.namespace == object.namespace
        })
    };
    let reasons = |reasons: &[&str]| -> BTreeSet<Sign> {
        let counts = |event: &&Event| has_reason(event, reasons) && about(event);
        evidence.events.iter().filter(counts).map(of_event).collect()
    };
    let signs = match cause.cause {
        CauseId::ImageNotFound | CauseId::ImagePullDenied | CauseId::ImagePullFailed => {
            let in_chain = |pod: &&Pod| {
                let reference = pod.reference();
                cause.chain.iter().any(|link| Some(&link.object) == reference.as_ref())
            };
            let pods: Vec<&Pod> = evidence.pods.iter().filter(in_chain).collect();
            let is_conclusive = |(_, reason)| cause.cause.attempt(reason) == Some(Attempt::Conclusive);
            if pods.iter().any(|pod| waiting(pod).any(is_conclusive)) {
                return None;
            }
            // Events of the same reason tell again and again that a try is put off. Those do not quote the registry.
            let pulled = evidence
                .events
                .iter()
                .filter(|event| has_reason(event, &["Failed"]) && message(event).contains("pull") && about(event));
            pulled.map(of_event).chain(pods.into_iter().flat_map(of_pulls)).collect()
        }
        CauseId::QuotaExceeded | CauseId::PodSecurity | CauseId::PodsRefused => {
            let mut signs = reasons(&["FailedCreate"]);
            signs.extend(target.and_then(|live| of_condition(live, "ReplicaFailure")));
            signs
        }
        CauseId::ProvisioningFailed => reasons(&["ProvisioningFailed"]),
        CauseId::MountFailed => reasons(&MOUNT_FAILURES),
        _ => return None,
    };
    Some(signs)
}

/// An event that tells of the same again counts up, or is of another time.
fn of_event(event: &Event) -> Sign {
    let counts = [event.count, event.series.as_ref().and_then(|series| series.count)];
    (event.uid().to_owned(), format!("{counts:?} {:?}", event_time(event)))
}

/// A condition is not written again while it holds.
fn of_condition(object: &Value, kind: &str) -> Option<Sign> {
    let condition = condition(object, kind)?;
    let says = ["/status", "/reason", "/lastUpdateTime", "/lastTransitionTime"].map(|part| text(condition, part));
    Some((uid(object).to_owned(), format!("{kind} {says:?}")))
}

/// Events can be lost: a node sends few about one pod. Its status tells too that an image was not pulled, and by another
/// reason that it was tried just now.
fn of_pulls(pod: &Pod) -> Vec<Sign> {
    let sign = |(name, reason): (&str, &str)| match CauseId::ImagePullFailed.attempt(reason) {
        Some(Attempt::Failed) => vec![format!("{name} waits"), format!("{name} tried")],
        Some(Attempt::BackingOff) => vec![format!("{name} waits")],
        _ => Vec::new(),
    };
    waiting(pod).flat_map(sign).map(|sign| (pod.uid().to_owned(), sign)).collect()
}

/// The containers that wait, by name, each with its reason.
fn waiting(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    statuses(pod).filter_map(|container| Some((container.name.as_str(), waiting_reason(container)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::diagnosis::Link;
    use crate::diagnose::kstatus::evaluate;
    use crate::diagnose::typed::{typed, typed_list};
    use crate::diagnose::workload::diagnose;
    use serde_json::json;

    fn set() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s", "namespace": "n", "uid": "s", "generation": 1},
            "spec": {"replicas": 1}, "status": {"observedGeneration": 1}})
    }

    fn pod(uid: &str, status: Value) -> Pod {
        let metadata = json!({"name": "s-0", "namespace": "n", "uid": uid, "ownerReferences": [{"uid": "s"}]});
        typed(json!({"metadata": metadata, "status": status}))
    }

    /// Whether the cause has begun to count after each of these looks at one container; none is the turn of its object.
    fn counts(cause: CauseId, looks: &[Option<(i64, i64)>]) -> Vec<bool> {
        let set = set();
        let object = ObjectRef::of(&set).unwrap();
        let chain = vec![Link { object: object.clone(), state: String::new() }];
        let latest = [Diagnosis { cause, chain, remedy: String::new(), logs: Vec::new(), patience: cause.patience() }];
        let mut patience = Patience::default();
        let look = |look: &Option<(i64, i64)>| {
            let Some((begun, ended)) = *look else {
                patience.begin_anew();
                return None;
            };
            let container = match begun {
                0 => json!({"name": "c", "restartCount": 0, "state": {"waiting": {}}}),
                _ if begun > ended => json!({"name": "c", "restartCount": ended, "state": {"running": {}}}),
                _ => {
                    json!({"name": "c", "restartCount": ended - 1, "state": {"waiting": {}}, "lastState": {"terminated": {}}})
                }
            };
            let pods = vec![pod("p", json!({"containerStatuses": [container]}))];
            patience.look(&latest, &[&set], &Evidence { pods, ..Evidence::default() });
            Some(patience.since.contains_key(&(object.clone(), cause)))
        };
        looks.iter().filter_map(look).collect()
    }

    #[test]
    fn the_time_in_which_a_cause_may_heal_is_not_counted() {
        let set = set();
        let chain = vec![Link { object: ObjectRef::of(&set).unwrap(), state: String::new() }];
        let cause = CauseId::Unschedulable;
        let seen =
            |patience| Diagnosis { cause, chain: chain.clone(), remedy: String::new(), logs: Vec::new(), patience };
        let (heals, stays) = (seen(None), seen(Some(std::time::Duration::ZERO)));
        let mut patience = Patience::default();
        let mut look = |latest: &[Diagnosis]| {
            patience.look(latest, &[&set], &Evidence::default());
            (!patience.since.is_empty(), patience.is_over(&heals), patience.is_over(&stays))
        };
        // The first look only shows what was there before.
        look(&[]);
        assert_eq!(look(std::slice::from_ref(&heals)), (false, false, false));
        assert_eq!(look(std::slice::from_ref(&stays)), (true, false, true));
        assert_eq!(look(std::slice::from_ref(&heals)), (false, false, false));
    }

    #[test]
    fn only_a_run_that_began_since_shows_a_crash() {
        let looks = [Some((5, 5)), Some((6, 5)), Some((6, 6))];
        assert_eq!(counts(CauseId::CrashLoop, &looks), [false, false, true]);
        let runs_at_first = [Some((6, 5)), Some((6, 6)), Some((7, 6)), Some((7, 7))];
        assert_eq!(counts(CauseId::CrashLoop, &runs_at_first), [false, false, false, true]);
        let new = [Some((0, 0)), Some((1, 1))];
        assert_eq!(counts(CauseId::CrashLoop, &new), [false, true]);
    }

    #[test]
    fn the_log_of_a_run_that_goes_on_counts_and_that_of_one_from_before_does_not() {
        for cause in [CauseId::NameLookupFailed, CauseId::CertificateUntrusted, CauseId::CertificateExpired] {
            assert_eq!(counts(cause, &[Some((5, 5)), Some((6, 5)), Some((6, 6))]), [false, true, true]);
        }
    }

    #[test]
    fn a_crash_of_a_container_that_runs_before_the_others_counts_and_its_success_does_not() {
        const CRASHED: Option<CauseId> = Some(CauseId::CrashLoop);
        let crashing = |restarts: i64| {
            json!({"name": "i", "restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}})
        };
        let of = |status: Value| Evidence { pods: vec![pod("p", status)], ..Evidence::default() };
        let first = |container: Value| of(json!({"phase": "Pending", "initContainerStatuses": [container]}));
        assert_eq!(
            counted(&set(), &[first(crashing(2)), first(crashing(2)), first(crashing(3))]),
            [None, None, CRASHED]
        );
        // The others sit out their back-off from before.
        let then = |state: Value| {
            let init = json!({"name": "first", "restartCount": 0, "state": state});
            of(json!({"initContainerStatuses": [init], "containerStatuses": [crashing(4)]}))
        };
        let done = || then(json!({"terminated": {"reason": "Completed", "exitCode": 0}}));
        assert_eq!(counted(&set(), &[then(json!({"running": {}})), done(), done()]), [None, None, None]);
    }

    #[test]
    fn an_event_is_new_when_it_came_or_came_again_after_the_first_look() {
        let with = |times| event("Pod", "s-0", "FailedMount", "not found", times);
        let mut patience = Patience::default();
        assert!(!patience.is_new(&with(1)));
        for (times, new) in [(1, false), (1, false), (2, true), (2, true)] {
            let evidence = Evidence { events: vec![with(times)], ..Evidence::default() };
            patience.look(&[], &[&set()], &evidence);
            assert_eq!(patience.is_new(&with(times)), new, "{times}");
        }
    }

    #[test]
    fn a_turn_that_comes_pardons_a_crash_and_nothing_else() {
        let looks = [Some((0, 0)), Some((2, 2)), None, Some((2, 2)), Some((3, 3))];
        assert_eq!(counts(CauseId::CrashLoop, &looks), [false, true, false, true]);
        assert_eq!(counts(CauseId::NameLookupFailed, &looks), [false, true, true, true]);
        assert_eq!(counts(CauseId::OutOfMemory, &looks), [false, true, true, true]);
    }

    /// Which cause has begun to count after each of these looks at one object.
    fn counted(object: &Value, looks: &[Evidence]) -> Vec<Option<CauseId>> {
        let mut patience = Patience::default();
        let look = |evidence: &Evidence| {
            let latest: Vec<_> = diagnose(object, &evaluate(object, None), evidence).into_iter().collect();
            patience.look(&latest, &[object], evidence);
            patience.since.keys().map(|(_, cause)| *cause).next()
        };
        looks.iter().map(look).collect()
    }

    fn event(kind: &str, name: &str, reason: &str, message: &str, count: i32) -> Event {
        typed(
            json!({"metadata": {"uid": format!("{reason} {message}")}, "reason": reason, "message": message, "count": count,
            "involvedObject": {"kind": kind, "namespace": "n", "name": name}, "lastTimestamp": "2026-01-01T00:00:00Z"}),
        )
    }

    /// A pod whose image is not there, with what its node says about it.
    fn pulling(uid: &str, why: &str, events: Vec<Event>) -> Evidence {
        let message = "failed to pull image \"i\": not found";
        let container = json!({"name": "c", "image": "i", "state": {"waiting": {"reason": why, "message": message}}});
        let pods = vec![pod(uid, json!({"phase": "Pending", "containerStatuses": [container]}))];
        Evidence { pods, events, ..Evidence::default() }
    }

    #[test]
    fn an_image_counts_as_missing_once_it_was_tried_to_pull_it_since_the_wait_began() {
        const FOUND: Option<CauseId> = Some(CauseId::ImageNotFound);
        let failed = |times| event("Pod", "s-0", "Failed", "Failed to pull image \"i\": not found", times);
        let put_off = |times| event("Pod", "s-0", "Failed", "Error: ImagePullBackOff", times);
        let with = |pulls, pauses| pulling("p", "ImagePullBackOff", vec![failed(pulls), put_off(pauses)]);
        assert_eq!(counted(&set(), &[with(3, 8), with(3, 9), with(4, 9), with(4, 10)]), [None, None, FOUND, FOUND]);
        // A node that has sent too many events sends no more for a while.
        let silent = |why| pulling("p", why, Vec::new());
        let looks = [silent("ImagePullBackOff"), silent("ErrImagePull"), silent("ImagePullBackOff")];
        assert_eq!(counted(&set(), &looks), [None, FOUND, FOUND]);
        let [off, tried] = ["ImagePullBackOff", "ErrImagePull"];
        assert_eq!(counted(&set(), &[tried, off, off, tried].map(silent)), [None, None, None, FOUND]);
    }

    #[test]
    fn a_pod_that_is_new_and_a_name_that_is_malformed_need_no_second_try() {
        const FOUND: Option<CauseId> = Some(CauseId::ImageNotFound);
        let looks = [pulling("old", "ImagePullBackOff", Vec::new()), pulling("new", "ImagePullBackOff", Vec::new())];
        assert_eq!(counted(&set(), &looks), [None, FOUND]);
        let looks = [pulling("p", "ContainerCreating", Vec::new()), pulling("p", "ImagePullBackOff", Vec::new())];
        assert_eq!(counted(&set(), &looks), [None, FOUND]);
        assert_eq!(counted(&set(), &["InvalidImageName"; 2].map(|why| pulling("p", why, Vec::new()))), [None, FOUND]);
    }

    #[test]
    fn what_was_refused_before_the_wait_began_counts_once_it_is_refused_again() {
        let pending = || pod("p", json!({"phase": "Pending"}));
        let pvc = json!({"status": {"phase": "Pending"}, "metadata": {"name": "v", "namespace": "n"},
            "spec": {"storageClassName": "fast"}});
        let mounts = json!({"volumes": [{"persistentVolumeClaim": {"claimName": "v"}}]});
        let mounting = Pod { spec: Some(typed(mounts)), ..pending() };
        let volume = Evidence { pods: vec![mounting], pvcs: typed_list(vec![pvc]), ..Evidence::default() };
        let mounting = Evidence { pods: vec![pending()], ..Evidence::default() };
        for (cause, evidence, about, reason, message) in [
            (CauseId::QuotaExceeded, Evidence::default(), ("StatefulSet", "s"), "FailedCreate", "exceeded quota: q"),
            (CauseId::PodSecurity, Evidence::default(), ("StatefulSet", "s"), "FailedCreate", "violates PodSecurity"),
            (CauseId::PodsRefused, Evidence::default(), ("StatefulSet", "s"), "FailedCreate", "denied by a webhook"),
            (CauseId::ProvisioningFailed, volume, ("PersistentVolumeClaim", "v"), "ProvisioningFailed", "not found"),
            (CauseId::MountFailed, mounting, ("Pod", "s-0"), "FailedMount", "secret \"pki\" not found"),
        ] {
            let with = |times| {
                let events = vec![event(about.0, about.1, reason, message, times)];
                Evidence { events, ..evidence.clone() }
            };
            assert_eq!(counted(&set(), &[with(4), with(4), with(5), with(5)]), [None, None, Some(cause), Some(cause)]);
            let none = evidence.clone();
            assert_eq!(
                counted(&set(), &[none, with(1)]),
                [None, Some(cause)],
                "what is met first after the wait began"
            );
        }
    }
}
