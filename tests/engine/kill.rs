//! Killed after any write: whatever comes next converges, and what was undone is as it was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Error, Planned, Removal, Removed};
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use super::actors::{bind, kubectl_made};
use super::support::{Case, dump, furnished, objects, release};

/// Cases side by side. One API server and two cores are the limit.
pub(crate) const TOGETHER: usize = 6;
/// After so long a run renews its lock, which is a write.
const RENEWAL: Duration = Duration::from_secs(10);
const CLAIM: &str = "data-etcd-0";

fn changed(case: &Case) -> Vec<Planned> {
    let mut next = objects(case);
    next.retain(|planned| planned.object["kind"] != "PodDisruptionBudget");
    for planned in &mut next {
        match planned.object["kind"].as_str() {
            Some("ConfigMap") => planned.object["data"] = json!({"a": "2", "c": "3"}),
            Some("Secret") => planned.object["data"] = json!({"key": "b3RoZXI="}),
            Some("ClusterRole") => planned.object["rules"][0]["verbs"] = json!(["get", "list"]),
            Some("Deployment") => {
                planned.object["spec"]["template"]["spec"]["containers"][0]["env"] =
                    json!([{"name": "B", "value": "2"}]);
            }
            _ => {}
        }
    }
    next.push(Planned::new(
        2,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"x": "y"}}),
    ));
    next
}

pub(crate) async fn wipe(case: &Case) -> Result<(), Error> {
    let removed = remove(case).await?;
    assert!(removed.kept.is_empty(), "{:?}", removed.kept);
    Ok(())
}

async fn remove(case: &Case) -> Result<Removed, Error> {
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await?;
    assert!(removed.leftovers.is_empty(), "{:?}", removed.leftovers);
    Ok(removed)
}

/// Removes all but data and keys.
async fn put_away(case: &Case) -> Result<(), Error> {
    let removed = case.engine.uninstall(Removal::default()).await?;
    assert!(removed.leftovers.is_empty(), "{:?}", removed.leftovers);
    Ok(())
}

/// An install that applies everything and is cut off before its end.
pub(crate) async fn interrupted(case: &Case) -> Result<(), Error> {
    let mut run = case.engine.begin_run(case.engine.plan_install(&release(), &objects(case)).await?).await?;
    run.apply_all_stages().await?;
    run.release_run().await
}

/// A rollback of everything.
pub(crate) async fn undo(case: &Case) -> Result<(), Error> {
    case.engine.rollback_interrupted_run().await?.problems.into_iter().next().map_or(Ok(()), Err)
}

/// All cases, or every n-th of them where `FLEET_TEST_EVERY=n` asks for a quick look.
pub(crate) fn sampled<T>(cases: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let every = std::env::var("FLEET_TEST_EVERY").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    cases.step_by(every)
}

/// About so many of all cases. The step shares no divisor with the two or three choices of which a case is made, so that
/// each choice comes up.
pub(crate) fn some<T>(count: usize, all: Vec<T>) -> impl Iterator<Item = T> {
    let mut step = all.len().div_ceil(count);
    while step.is_multiple_of(2) || step.is_multiple_of(3) {
        step += 1;
    }
    all.into_iter().skip(step / 2).step_by(step)
}

/// Runs `work` until it is done or dead; false when it died.
async fn until_dead(case: &Case, after: usize, sent: bool, work: impl Future<Output = Result<(), Error>>) -> bool {
    case.traffic.die_after(after, sent);
    tokio::select! {
        result = work => { result.unwrap(); true }
        () = case.traffic.died.notified() => false,
    }
}

/// How many writes an operation takes, counted on a scratch case.
async fn writes_of(case: &Case, work: impl Future<Output = Result<(), Error>>) -> usize {
    let before = case.traffic.writes();
    work.await.unwrap();
    case.traffic.writes() - before
}

/// The same of what waits for something to go, with what comes before it. Where that takes long the lock is renewed, which no
/// other case need do, so the fewest of some are counted.
async fn writes_of_removal(prepare: impl AsyncFn(&Case), work: impl AsyncFn(&Case) -> Result<(), Error>) -> usize {
    let mut fewest = usize::MAX;
    for _ in 0..3 {
        let scratch = Case::new("count").await;
        prepare(&scratch).await;
        let began = Instant::now();
        fewest = fewest.min(writes_of(&scratch, work(&scratch)).await);
        let quick = began.elapsed() < RENEWAL;
        wipe(&scratch).await.unwrap();
        if quick {
            break;
        }
    }
    fewest
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Install,
    Rollback,
    Uninstall,
}

/// All kills of what takes so many writes: after each, the next one sent or not.
fn kills(writes: usize) -> Vec<(usize, bool)> {
    (0..writes).flat_map(|k| [(k, false), (k, true)]).collect()
}

/// The same, each with everything that may come next.
fn kills_then(writes: usize) -> Vec<(usize, bool, Then)> {
    let next = |(k, sent)| [Then::Install, Then::Rollback, Then::Uninstall].map(|then| (k, sent, then));
    kills(writes).into_iter().flat_map(next).collect()
}

async fn together<C, F: Future<Output = ()>>(cases: impl Iterator<Item = C>, work: impl FnMut(C) -> F) {
    stream::iter(cases).for_each_concurrent(TOGETHER, work).await;
}

/// Somebody's namespace, with a ConfigMap of the name of one of ours in it, as kubectl makes them.
async fn occupy(case: &Case) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}});
    case.server().create_object(&Kind::needed_versions("", "Namespace").remove(0), &namespace).await.unwrap();
    kubectl_made(case, "config", &json!({"a": "theirs", "old": "x"})).await;
}

/// With `adopting`, the namespace and one of the objects were there before.
async fn after_a_killed_install(k: usize, sent: bool, then: Then, adopting: bool) {
    let place = format!("install killed after write {k} (next one sent: {sent}, adopting: {adopting}), then {then:?}");
    let case = Case::with("kill", |options| options.adopt = adopting).await;
    if adopting {
        occupy(&case).await;
    }
    let mut before = dump(&case).await;
    assert!(!until_dead(&case, k, sent, case.install(&objects(&case))).await, "{place}: it was not killed");
    let case = case.reborn_with(|options| options.adopt = adopting).await;
    // What a controller makes late would stay in a namespace that stays.
    let settle = async || {
        if adopting {
            furnished(&case).await;
        }
    };
    let is_whole = async || case.engine.plan_install(&release(), &objects(&case)).await.unwrap().is_noop();
    settle().await;
    match then {
        Then::Install => {
            case.install(&objects(&case)).await.unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(is_whole().await, "{place}");
            settle().await;
        }
        Then::Rollback => {
            let result = case.engine.rollback_interrupted_run().await.unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(result.problems.is_empty(), "{place}: {:?}", result.problems);
            // After its last write the run was complete, and nothing that was interrupted.
            if case.engine.read_state().await.unwrap().record.is_some() {
                assert!(result.undone.is_empty(), "{place}: {:?}", result.undone);
                assert!(is_whole().await, "{place}");
            }
        }
        Then::Uninstall => {}
    }
    let complete = case.engine.read_state().await.unwrap().record.is_some();
    if complete || matches!(then, Then::Uninstall) {
        let removed = remove(&case).await.unwrap_or_else(|e| panic!("{place}: {e}"));
        let theirs = removed.kept.iter().all(|kept| kept.reason == "it existed before this installation");
        assert!(if adopting { theirs } else { removed.kept.is_empty() }, "{place}: {:?}", removed.kept);
    }
    if complete {
        // Only a run that did not end gives back what it took over: it is a part of the installation then.
        before.remove("ConfigMap/config");
    }
    assert_eq!(dump(&case).await, before, "{place}");
    if adopting {
        case.sweep().await;
    }
}

#[tokio::test]
async fn an_install_killed_after_any_write_can_be_repeated_undone_or_removed() {
    let scratch = Case::new("count").await;
    let writes = writes_of(&scratch, scratch.install(&objects(&scratch))).await;
    wipe(&scratch).await.unwrap();
    let cases = sampled(kills_then(writes).into_iter());
    together(cases, |(k, sent, then)| after_a_killed_install(k, sent, then, false)).await;
}

async fn kills_of_an_adopting_install() -> Vec<(usize, bool, Then)> {
    let scratch = Case::with("count", |options| options.adopt = true).await;
    occupy(&scratch).await;
    let writes = writes_of(&scratch, scratch.install(&objects(&scratch))).await;
    remove(&scratch).await.unwrap();
    scratch.sweep().await;
    kills_then(writes)
}

#[tokio::test]
async fn what_an_install_that_is_killed_has_taken_over_is_given_back() {
    let cases = some(7, kills_of_an_adopting_install().await);
    together(cases, |(k, sent, then)| after_a_killed_install(k, sent, then, true)).await;
}

async fn after_a_killed_change(k: usize, sent: bool, then: Then) {
    let place = format!("change killed after write {k} (next one sent: {sent}), then {then:?}");
    let case = Case::new("upgrade").await;
    let before = dump(&case).await;
    case.install(&objects(&case)).await.unwrap();
    let installed = settled(&case).await;
    let next = changed(&case);
    assert!(!until_dead(&case, k, sent, case.install(&next)).await, "{place}: it was not killed");
    let case = case.reborn().await;
    match then {
        Then::Install => {
            case.install(&next).await.unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(case.engine.plan_install(&release(), &next).await.unwrap().is_noop(), "{place}");
        }
        Then::Rollback => {
            // After its last write the change was complete, and nothing that was interrupted.
            let complete = case.engine.read_state().await.unwrap().journal.is_none() && k > 0;
            let result = case.engine.rollback_interrupted_run().await.unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(result.problems.is_empty(), "{place}: {:?}", result.problems);
            assert!(case.engine.read_state().await.unwrap().journal.is_none(), "{place}");
            if complete {
                assert!(case.engine.plan_install(&release(), &next).await.unwrap().is_noop(), "{place}");
            } else {
                assert_eq!(settled(&case).await, installed, "{place}");
                let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
                assert!(plan.prune.is_empty(), "{place}");
            }
        }
        Then::Uninstall => {}
    }
    wipe(&case).await.unwrap_or_else(|e| panic!("{place}: {e}"));
    assert_eq!(dump(&case).await, before, "{place}");
}

/// The dump without what the engine writes for itself and without what controllers count.
pub(crate) async fn settled(case: &Case) -> BTreeMap<String, Value> {
    let mut found = dump(case).await;
    found.remove(&format!("Secret/{}", case.engine.owner().record_name()));
    if let Some(deployment) =
        found.get_mut("Deployment.apps/d").and_then(|d| d["metadata"]["annotations"].as_object_mut())
    {
        deployment.remove("deployment.kubernetes.io/revision");
    }
    found
}

async fn kills_of_a_change() -> Vec<(usize, bool, Then)> {
    let scratch = Case::new("count").await;
    scratch.install(&objects(&scratch)).await.unwrap();
    let writes = writes_of(&scratch, scratch.install(&changed(&scratch))).await;
    wipe(&scratch).await.unwrap();
    kills_then(writes)
}

#[tokio::test]
async fn a_change_killed_after_some_of_its_writes_can_be_repeated_undone_or_removed() {
    let cases = some(10, kills_of_a_change().await);
    together(cases, |(k, sent, then)| after_a_killed_change(k, sent, then)).await;
}

/// An installation of which every controller has made its part, so that removing it takes as many writes each time.
async fn install_whole(case: &Case) {
    case.install(&objects(case)).await.unwrap();
    furnished(case).await;
}

/// Installs over what a killed run left; nothing is left to do then.
async fn install_after_all(case: &Case, place: &str) {
    case.install(&objects(case)).await.unwrap_or_else(|e| panic!("{place}: {e}"));
    assert!(case.engine.plan_install(&release(), &objects(case)).await.unwrap().is_noop(), "{place}");
}

async fn after_a_killed_uninstall(k: usize, sent: bool, install: bool) {
    let place = format!("uninstall killed after write {k} (next one sent: {sent}), then install: {install}");
    let case = Case::new("remove").await;
    let before = dump(&case).await;
    install_whole(&case).await;
    assert!(!until_dead(&case, k, sent, wipe(&case)).await, "{place}: it was not killed");
    let case = case.reborn().await;
    if install {
        install_after_all(&case, &place).await;
    }
    wipe(&case).await.unwrap_or_else(|e| panic!("{place}: {e}"));
    assert_eq!(dump(&case).await, before, "{place}");
}

async fn kills_of_an_uninstall() -> Vec<(usize, bool, bool)> {
    let writes = writes_of_removal(install_whole, wipe).await;
    kills(writes).into_iter().flat_map(|(k, sent)| [(k, sent, false), (k, sent, true)]).collect()
}

#[tokio::test]
async fn an_uninstall_killed_after_some_of_its_writes_can_be_repeated_or_followed_by_an_install() {
    let cases = some(10, kills_of_an_uninstall().await);
    together(cases, |(k, sent, install)| after_a_killed_uninstall(k, sent, install)).await;
}

/// An installation with data.
async fn install_with_data(case: &Case) {
    install_whole(case).await;
    bind(case, CLAIM).await;
}

/// What says that keys and data are the same: both uids, and the state of the claim.
async fn kept(case: &Case) -> Value {
    let key = case.get("", "Secret", "pki").await.unwrap_or_default();
    let claim = case.get("", "PersistentVolumeClaim", CLAIM).await.unwrap_or_default();
    let [key, data] = [&key, &claim].map(|object| &object["metadata"]);
    json!([key["uid"], data["uid"], data["deletionTimestamp"], claim["status"]["phase"]])
}

async fn after_a_killed_plain_uninstall(k: usize, sent: bool) {
    let place = format!("plain uninstall killed after write {k} (next one sent: {sent})");
    let case = Case::new("away").await;
    let before = dump(&case).await;
    install_with_data(&case).await;
    let data = kept(&case).await;
    assert!(data[0].is_string() && data[1].is_string() && data[3] == "Bound", "{place}: {data}");
    assert!(!until_dead(&case, k, sent, put_away(&case)).await, "{place}: it was not killed");
    let case = case.reborn().await;
    case.install(&objects(&case)).await.unwrap_or_else(|e| panic!("{place}: {e}"));
    assert!(case.engine.plan_install(&release(), &objects(&case)).await.unwrap().is_noop(), "{place}");
    assert_eq!(kept(&case).await, data, "{place}");
    wipe(&case).await.unwrap_or_else(|e| panic!("{place}: {e}"));
    assert_eq!(dump(&case).await, before, "{place}");
}

async fn kills_of_a_plain_uninstall() -> Vec<(usize, bool)> {
    kills(writes_of_removal(install_with_data, put_away).await)
}

#[tokio::test]
async fn a_plain_uninstall_killed_after_some_of_its_writes_keeps_keys_and_data_for_an_install() {
    let cases = some(7, kills_of_a_plain_uninstall().await);
    together(cases, |(k, sent)| after_a_killed_plain_uninstall(k, sent)).await;
}

/// Everything that a rollback of a first install has to undo, the claims of its sets included.
async fn interrupted_whole(case: &Case) {
    interrupted(case).await.unwrap();
    furnished(case).await;
}

async fn after_a_killed_rollback(k: usize, sent: bool, then: Then) {
    let place = format!("rollback killed after write {k} (next one sent: {sent}), then {then:?}");
    let case = Case::new("undo").await;
    let before = dump(&case).await;
    interrupted_whole(&case).await;
    assert!(!until_dead(&case, k, sent, undo(&case)).await, "{place}: it was not killed");
    let case = case.reborn().await;
    match then {
        Then::Install => {
            install_after_all(&case, &place).await;
            wipe(&case).await.unwrap_or_else(|e| panic!("{place}: {e}"));
        }
        Then::Rollback => undo(&case).await.unwrap_or_else(|e| panic!("{place}: {e}")),
        Then::Uninstall => wipe(&case).await.unwrap_or_else(|e| panic!("{place}: {e}")),
    }
    assert_eq!(dump(&case).await, before, "{place}");
}

async fn kills_of_a_rollback() -> Vec<(usize, bool, Then)> {
    kills_then(writes_of_removal(interrupted_whole, undo).await)
}

#[tokio::test]
async fn a_rollback_killed_after_some_of_its_writes_can_be_repeated_or_followed_by_an_install_or_an_uninstall() {
    let cases = some(7, kills_of_a_rollback().await);
    together(cases, |(k, sent, then)| after_a_killed_rollback(k, sent, then)).await;
}

mod exhaustive {
    use super::*;

    #[tokio::test]
    async fn what_an_install_that_is_killed_after_any_write_has_taken_over_is_given_back() {
        let cases = sampled(kills_of_an_adopting_install().await.into_iter());
        together(cases, |(k, sent, then)| after_a_killed_install(k, sent, then, true)).await;
    }

    #[tokio::test]
    async fn a_change_killed_after_any_write_can_be_repeated_undone_or_removed() {
        let cases = sampled(kills_of_a_change().await.into_iter());
        together(cases, |(k, sent, then)| after_a_killed_change(k, sent, then)).await;
    }

    #[tokio::test]
    async fn an_uninstall_killed_after_any_write_can_be_repeated_or_followed_by_an_install() {
        let cases = sampled(kills_of_an_uninstall().await.into_iter());
        together(cases, |(k, sent, install)| after_a_killed_uninstall(k, sent, install)).await;
    }

    #[tokio::test]
    async fn a_plain_uninstall_killed_after_any_write_keeps_keys_and_data_for_an_install() {
        let cases = sampled(kills_of_a_plain_uninstall().await.into_iter());
        together(cases, |(k, sent)| after_a_killed_plain_uninstall(k, sent)).await;
    }

    #[tokio::test]
    async fn a_rollback_killed_after_any_write_can_be_repeated_or_followed_by_an_install_or_an_uninstall() {
        let cases = sampled(kills_of_a_rollback().await.into_iter());
        together(cases, |(k, sent, then)| after_a_killed_rollback(k, sent, then)).await;
    }
}
