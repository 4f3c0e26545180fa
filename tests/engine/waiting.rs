//! Waiting on a server where no pod runs: the test plays the kubelet and the provisioner.

use std::time::{Duration, Instant};

use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Error, Planned, Removal, WaitOptions, WaitTarget};
use fleetctl::diagnose::CauseId;
use fleetctl::k8s::{Event, ObjectRef, Selection};
use serde_json::{Value, json};

use super::rules;
use super::support::{Case, objects};

fn target(case: &Case, group: &str, kind: &str, name: &str) -> WaitTarget {
    WaitTarget::new(group, kind, Some(&case.namespace), name).unwrap()
}

fn within(seconds: u64) -> WaitOptions {
    WaitOptions { timeout: Duration::from_secs(seconds), ..WaitOptions::default() }
}

async fn remove(case: &Case) {
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_set_without_a_storage_class_is_given_up_early_with_the_whole_chain() {
    let case = Case::new("noclass").await;
    case.install(&objects(&case)).await.unwrap();
    let begun = Instant::now();
    let error =
        case.engine.wait_for_targets(&[target(&case, "apps", "StatefulSet", "etcd")], within(600)).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let Error::Wait(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.root_cause(), Some(CauseId::NoDefaultStorageClass), "{failure}");
    assert!(!failure.timed_out);
    let text = failure.to_string();
    for part in ["StatefulSet", "etcd-0: Pending", "data-etcd-0", "StorageClass: "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    remove(&case).await;
}

#[tokio::test]
async fn a_wait_that_runs_out_says_the_known_words_and_what_is_missing() {
    let case = Case::new("timeout").await;
    case.install(&objects(&case)).await.unwrap();
    let targets = [
        target(&case, "apps", "Deployment", "d"),
        target(&case, "", "ConfigMap", "config"),
        target(&case, "apps", "Deployment", "none"),
    ];
    let error = case.engine.wait_for_targets(&targets, within(3)).await.unwrap_err();
    assert!(error.is_timeout());
    let text = error.to_string();
    for part in ["timed out waiting for the condition", "Deployment", "/d:", "/none: does not exist yet"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("ConfigMap"), "{text}");
    remove(&case).await;
}

/// The installation in a namespace that takes no pods.
async fn with_full_quota(name: &str) -> Case {
    let case = Case::new(name).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}});
    let mut all = objects(&case);
    all.push(Planned::new(0, quota));
    case.install(&all[..1]).await.unwrap();
    case.install(&all).await.unwrap();
    case
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_named() {
    let case = with_full_quota("quota").await;
    let error =
        case.engine.wait_for_targets(&[target(&case, "apps", "Deployment", "d")], within(600)).await.unwrap_err();
    let Error::Wait(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.root_cause(), Some(CauseId::QuotaExceeded), "{failure}");
    assert!(failure.waited < Duration::from_secs(30), "{failure}");
    assert!(failure.to_string().contains("exceeded quota"), "{failure}");
    remove(&case).await;
}

/// How often the pods of the deployment were refused, as the events tell it.
async fn refusals(case: &Case) -> Vec<(String, i64)> {
    let selection = Selection { namespace: Some(&case.namespace), ..Selection::default() };
    let events = case.server().list_objects(&Kind::needed_versions("", "Event").remove(0), &selection).await.unwrap();
    let of_the_set =
        |event: &&Value| event["reason"] == "FailedCreate" && event["involvedObject"]["kind"] == "ReplicaSet";
    let times = |event: &Value| {
        let uid = event["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        (uid, event["count"].as_i64().unwrap_or_default())
    };
    let mut refusals: Vec<_> = events.iter().filter(of_the_set).map(times).collect();
    refusals.sort();
    refusals
}

#[tokio::test]
async fn after_a_quota_was_raised_the_next_wait_lasts_until_the_pods_are_tried_again() {
    let case = with_full_quota("raised").await;
    let begun = Instant::now();
    let targets = [target(&case, "apps", "Deployment", "d")];
    let error = case.engine.wait_for_targets(&targets, within(600)).await.unwrap_err();
    let Error::Wait(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.root_cause(), Some(CauseId::QuotaExceeded), "{failure}");

    // The controller waits each time for as long as it has tried. Right after a try that came so late, its next one comes
    // later than a refusal would end a wait.
    let late = async {
        let mut known = refusals(&case).await;
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = refusals(&case).await;
            if now != known && begun.elapsed() > Duration::from_secs(12) {
                return;
            }
            known = now;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), late).await.expect("the controller tries again");
    let quota = case.get("", "ResourceQuota", "q").await.unwrap();
    let (kind, quota) = (Kind::needed_versions("", "ResourceQuota").remove(0), ObjectRef::of(&quota).unwrap());
    case.server().patch_object(&kind, &quota, &json!({"spec": {"hard": {"pods": "10"}}})).await.unwrap();
    let (waited, ()) = futures::join!(case.engine.wait_for_targets(&targets, within(120)), make_ready(&case));
    waited.unwrap();
    remove(&case).await;
}

#[tokio::test]
async fn a_cause_is_told_once_while_its_object_is_written_again_and_again() {
    let case = with_full_quota("quiet").await;
    let targets = [target(&case, "apps", "Deployment", "d")];
    let (kind, deployment) = (targets[0].kind.clone(), targets[0].object.clone());
    let touching = async {
        told(&case, "exceeded quota").await;
        for touch in 0..5 {
            let annotation = json!({"metadata": {"annotations": {"example.com/touch": touch.to_string()}}});
            case.server().patch_object(&kind, &deployment, &annotation).await.unwrap();
            // There is a look in between.
            tokio::time::sleep(Duration::from_millis(2500)).await;
        }
    };
    let options = WaitOptions { fail_early: false, ..within(20) };
    let (waited, ()) = futures::join!(case.engine.wait_for_targets(&targets, options), touching);
    assert!(waited.unwrap_err().is_timeout());
    let told = lines(&case);
    assert_each_once(&told);
    assert!(told.last().is_some_and(|line| line.contains("exceeded quota")), "{told:?}");
    remove(&case).await;
}

#[tokio::test]
async fn what_exists_without_a_rule_for_its_kind_is_ready_with_a_note() {
    let case = Case::new("norule").await;
    case.install(&objects(&case)).await.unwrap();
    let revision = async {
        loop {
            let set = case.get("apps", "StatefulSet", "etcd").await.unwrap();
            if let Some(revision) = set["status"]["updateRevision"].as_str() {
                return revision.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let revision = tokio::time::timeout(Duration::from_secs(60), revision).await.expect("the set has a revision");
    case.engine.wait_for_targets(&[target(&case, "apps", "ControllerRevision", &revision)], within(30)).await.unwrap();
    let told = case.events.lock().unwrap().clone();
    let noted = |event: &Event| matches!(event, Event::Ready { object, note: Some(note), .. } if object.name == revision && note.contains("cannot be checked"));
    assert!(told.iter().any(noted), "{told:?}");
    remove(&case).await;
}

#[tokio::test]
async fn in_order_only_what_keeps_the_first_ends_a_wait_early() {
    let case = with_full_quota("order").await;
    // The first is there, the second is late without a known cause, and the third cannot become ready.
    let targets = [
        target(&case, "", "ConfigMap", "config"),
        target(&case, "apps", "Deployment", "none"),
        target(&case, "apps", "Deployment", "d"),
    ];
    let mut current = Vec::new();
    let options = WaitOptions { in_order: true, ..within(20) };
    let error = case.engine.wait_each(&targets, options, |o| current.push(o.name.clone())).await.unwrap_err();
    assert_eq!(current, ["config"]);
    let Error::Wait(failure) = &error else { panic!("{error}") };
    assert!(failure.timed_out && failure.diagnoses.is_empty(), "{failure:?}");
    // What comes later was told of all the same.
    let told = case.events.lock().unwrap().clone();
    let late = |event: &Event| matches!(event, Event::Waiting { object, message, .. } if object.name == "d" && message.contains("exceeded quota"));
    assert!(told.iter().any(late), "{told:?}");

    let error = case.engine.wait_for_targets(&targets, within(600)).await.unwrap_err();
    let Error::Wait(failure) = &error else { panic!("{error}") };
    assert_eq!((failure.root_cause(), failure.timed_out), (Some(CauseId::QuotaExceeded), false), "{failure}");
    remove(&case).await;
}

#[tokio::test]
async fn a_namespace_that_forbids_the_pods_is_named() {
    let case = Case::new("podsec").await;
    let mut all = objects(&case);
    all[0].object["metadata"]["labels"] = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    case.install(&all).await.unwrap();
    let warnings = case.events.lock().unwrap().iter().filter(|e| matches!(e, Event::Warning { .. })).count();
    assert!(warnings == 0, "enforce alone does not warn");
    let error =
        case.engine.wait_for_targets(&[target(&case, "apps", "Deployment", "d")], within(600)).await.unwrap_err();
    let Error::Wait(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.root_cause(), Some(CauseId::PodSecurity), "{failure}");
    assert!(failure.waited < Duration::from_secs(30), "{failure}");
    remove(&case).await;
}

#[tokio::test]
async fn objects_become_ready_while_they_are_watched_and_each_state_is_told_once() {
    let case = Case::new("ready").await;
    case.install(&objects(&case)).await.unwrap();
    let ready = make_ready(&case);
    let targets = [target(&case, "apps", "Deployment", "d"), target(&case, "", "Service", "s")];
    let (waited, ()) = futures::join!(case.engine.wait_for_targets(&targets, within(60)), ready);
    waited.unwrap();
    let told = lines(&case);
    assert_each_once(&told);
    assert!(told.iter().any(|line| line == &format!("Deployment {}/d: ready", case.namespace)), "{told:?}");
    remove(&case).await;
}

/// What was said of the objects that were waited for.
fn lines(case: &Case) -> Vec<String> {
    let line = |event: &Event| match event {
        Event::Waiting { object, message, .. } => Some(format!("{object}: {message}")),
        Event::Ready { object, .. } => Some(format!("{object}: ready")),
        _ => None,
    };
    case.events.lock().unwrap().iter().filter_map(line).collect()
}

#[track_caller]
fn assert_each_once(lines: &[String]) {
    let mut unique = lines.to_vec();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), lines.len(), "{lines:?}");
}

/// Plays the kubelet: every pod of the deployment gets a ready status.
async fn make_ready(case: &Case) {
    set_pods(case, &json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})).await;
}

/// Plays the kubelet: every pod of the deployment gets this status, once there is one.
async fn set_pods(case: &Case, status: &Value) {
    let pods = Kind::needed_versions("", "Pod").remove(0);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let selection = Selection { namespace: Some(&case.namespace), labels: Some("app=d"), ..Default::default() };
        let found = case.server().list_objects(&pods, &selection).await.unwrap();
        for pod in &found {
            let path = format!(
                "{}/{}/status",
                pods.collection_path(Some(&case.namespace)),
                pod["metadata"]["name"].as_str().unwrap()
            );
            let request = http::Request::patch(path)
                .header("content-type", "application/merge-patch+json")
                .body(serde_json::to_vec(&json!({"status": status})).unwrap())
                .unwrap();
            case.server().client().request::<Value>(request).await.unwrap();
        }
        if !found.is_empty() {
            return;
        }
    }
    panic!("the deployment made no pod");
}

/// Waits until the engine has said something.
async fn told(case: &Case, words: &str) {
    let said = |event: &Event| matches!(event, Event::Waiting { message, .. } if message.contains(words));
    for _ in 0..300 {
        if case.events.lock().unwrap().iter().any(said) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("`{words}` was not told: {:?}", case.events.lock().unwrap());
}

/// Pods whose container has ended so many times and sits out a back-off, or runs again.
fn crashed(times: i64, runs_again: bool) -> Value {
    let state = if runs_again {
        json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    } else {
        json!({"waiting": {"reason": "CrashLoopBackOff"}})
    };
    let restarts = if runs_again { times } else { times - 1 };
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{
        "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": restarts, "state": state,
        "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}]})
}

/// Plays a container that heals when it is started again. Each state lasts for three looks, and longer than a crash is
/// given.
async fn heal(case: &Case) {
    let looks = Duration::from_secs(6);
    tokio::time::sleep(looks).await;
    set_pods(case, &crashed(5, true)).await;
    tokio::time::sleep(looks).await;
    make_ready(case).await;
}

#[tokio::test]
async fn what_crashed_before_its_turn_came_may_still_become_ready() {
    let case = Case::new("turn").await;
    case.install(&objects(&case)).await.unwrap();
    let targets = [target(&case, "", "ConfigMap", "late"), target(&case, "apps", "Deployment", "d")];
    let options = WaitOptions { in_order: true, ..within(90) };
    set_pods(&case, &crashed(5, false)).await;
    let healing = async {
        told(&case, "ended 4 times").await;
        let late = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
        let path = format!("/api/v1/namespaces/{}/configmaps", case.namespace);
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(&late).unwrap()).unwrap();
        case.server().client().request::<Value>(request).await.unwrap();
        heal(&case).await;
    };
    let (waited, ()) = futures::join!(case.engine.wait_each(&targets, options, |_| {}), healing);
    waited.unwrap();
    remove(&case).await;
}

#[tokio::test]
async fn what_crashed_before_the_wait_began_may_still_become_ready_and_a_crash_after_that_counts() {
    let case = Case::new("again").await;
    case.install(&objects(&case)).await.unwrap();
    let targets = [target(&case, "apps", "Deployment", "d")];
    set_pods(&case, &crashed(5, false)).await;
    let (waited, ()) = futures::join!(case.engine.wait_for_targets(&targets, within(90)), heal(&case));
    waited.unwrap();

    // In its own turn as well: what is before it is there already.
    let in_order = [target(&case, "", "ConfigMap", "config"), targets[0].clone()];
    for (targets, in_order) in [(&targets[..], false), (&in_order[..], true)] {
        set_pods(&case, &crashed(5, true)).await;
        while case.get("apps", "Deployment", "d").await.unwrap()["status"]["readyReplicas"] == 1 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        case.events.lock().unwrap().clear();
        let worse = async {
            // The end of a run that had begun before proves nothing either.
            told(&case, "ended 5 times").await;
            set_pods(&case, &crashed(6, false)).await;
            tokio::time::sleep(Duration::from_secs(6)).await;
            set_pods(&case, &crashed(7, false)).await;
        };
        let begun = Instant::now();
        let options = WaitOptions { in_order, ..within(90) };
        let (waited, ()) = futures::join!(case.engine.wait_each(targets, options, |_| {}), worse);
        let Err(Error::Wait(failure)) = waited else { panic!("{waited:?}") };
        assert_eq!((failure.root_cause(), failure.timed_out), (Some(CauseId::CrashLoop), false), "{failure}");
        assert!(begun.elapsed() > Duration::from_secs(6), "given up for a crash of before");
    }
    remove(&case).await;
}

/// Pods whose image is not there, after a try or between two.
fn unpulled(why: &str) -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{
        "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": why, "message": "failed to pull image: i: not found"}}}]})
}

#[tokio::test]
async fn an_image_that_was_missing_before_the_wait_began_may_be_pulled_at_the_next_try_and_a_try_that_fails_counts() {
    let case = Case::new("pull").await;
    case.install(&objects(&case)).await.unwrap();
    let targets = [target(&case, "apps", "Deployment", "d")];
    // Longer than a missing image is given.
    let pause = Duration::from_secs(12);
    for pushed in [false, true] {
        set_pods(&case, &unpulled("ImagePullBackOff")).await;
        case.events.lock().unwrap().clear();
        let trying = async {
            told(&case, "cannot be pulled").await;
            tokio::time::sleep(pause).await;
            if pushed {
                make_ready(&case).await;
            } else {
                set_pods(&case, &unpulled("ErrImagePull")).await;
            }
        };
        let begun = Instant::now();
        let (waited, ()) = futures::join!(case.engine.wait_for_targets(&targets, within(90)), trying);
        if pushed {
            waited.unwrap();
            continue;
        }
        let Err(Error::Wait(failure)) = waited else { panic!("{waited:?}") };
        assert_eq!((failure.root_cause(), failure.timed_out), (Some(CauseId::ImageNotFound), false), "{failure}");
        assert!(begun.elapsed() > pause, "given up for a try of before");
    }
    remove(&case).await;
}

#[tokio::test]
async fn an_object_that_is_held_by_a_finalizer_is_explained_when_it_should_go() {
    let case = Case::new("stuck").await;
    let mut all = objects(&case);
    let config = all.iter_mut().find(|planned| planned.object["kind"] == "ConfigMap").unwrap();
    config.object["metadata"]["finalizers"] = json!([rules::HELD]);
    case.install(&all).await.unwrap();
    let engine = case.engine.with_deadline(Some(Instant::now() + Duration::from_secs(120)));
    let removal = engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() });
    let explained = async {
        rules::told_stuck_once_deleted(&case, "ConfigMap", "config").await;
        rules::hold(&case, "ConfigMap", "config", false).await;
    };
    let (removed, ()) = futures::join!(removal, explained);
    removed.unwrap();
    assert!(case.get("", "ConfigMap", "config").await.is_none());
}
