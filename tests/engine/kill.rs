//! Killed after any write: whatever comes next converges, and what was undone is as it was.

use std::collections::BTreeMap;

use fleetctl::apply::{Error, Planned, Removal};
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use super::support::{Case, dump, objects, release};

/// Cases side by side. One API server and two cores are the limit.
pub(crate) const TOGETHER: usize = 6;

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
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await?;
    assert!(removed.leftovers.is_empty(), "{:?}", removed.leftovers);
    assert!(removed.kept.is_empty(), "{:?}", removed.kept);
    Ok(())
}

/// All cases, or every n-th of them where `FLEET_TEST_EVERY=n` asks for a quick look.
pub(crate) fn sampled<T>(cases: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let every = std::env::var("FLEET_TEST_EVERY").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    cases.step_by(every)
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

#[derive(Clone, Copy, Debug)]
enum Then {
    Install,
    Rollback,
    Uninstall,
}

async fn after_a_killed_install(k: usize, sent: bool, then: Then) {
    let place = format!("install killed after write {k} (next one sent: {sent}), then {then:?}");
    let case = Case::new("kill").await;
    let before = dump(&case).await;
    assert!(!until_dead(&case, k, sent, case.install(&objects(&case))).await, "{place}: it was not killed");
    let case = case.reborn().await;
    match then {
        Then::Install => {
            case.install(&objects(&case)).await.unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(case.engine.plan(&release(), &objects(&case)).await.unwrap().is_noop(), "{place}");
            wipe(&case).await.unwrap_or_else(|e| panic!("{place}: {e}"));
        }
        Then::Rollback => {
            let result = case.engine.rollback().await.unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(result.problems.is_empty(), "{place}: {:?}", result.problems);
            // After its last write the run was complete, and nothing that was cut off.
            if case.engine.state().await.unwrap().record.is_some() {
                assert!(result.undone.is_empty(), "{place}: {:?}", result.undone);
                wipe(&case).await.unwrap_or_else(|e| panic!("{place}: {e}"));
            }
        }
        Then::Uninstall => wipe(&case).await.unwrap_or_else(|e| panic!("{place}: {e}")),
    }
    assert_eq!(dump(&case).await, before, "{place}");
}

#[tokio::test]
async fn an_install_killed_after_any_write_can_be_repeated_undone_or_removed() {
    let scratch = Case::new("count").await;
    let writes = writes_of(&scratch, scratch.install(&objects(&scratch))).await;
    wipe(&scratch).await.unwrap();
    let cases = (0..writes).flat_map(|k| [false, true].map(|sent| (k, sent)));
    let cases =
        cases.flat_map(|(k, sent)| [Then::Install, Then::Rollback, Then::Uninstall].map(|then| (k, sent, then)));
    stream::iter(sampled(cases))
        .for_each_concurrent(TOGETHER, |(k, sent, then)| after_a_killed_install(k, sent, then))
        .await;
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
            assert!(case.engine.plan(&release(), &next).await.unwrap().is_noop(), "{place}");
        }
        Then::Rollback => {
            // After its last write the change was complete, and nothing that was cut off.
            let complete = case.engine.state().await.unwrap().journal.is_none() && k > 0;
            let result = case.engine.rollback().await.unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(result.problems.is_empty(), "{place}: {:?}", result.problems);
            if !complete {
                assert_eq!(settled(&case).await, installed, "{place}");
            }
            assert!(case.engine.state().await.unwrap().journal.is_none(), "{place}");
            let plan = case.engine.plan(&release(), &objects(&case)).await.unwrap();
            assert!(complete || plan.prune.is_empty(), "{place}");
        }
        Then::Uninstall => {}
    }
    wipe(&case).await.unwrap_or_else(|e| panic!("{place}: {e}"));
    assert_eq!(dump(&case).await, before, "{place}");
}

/// The dump without what the engine writes for itself and without what controllers count.
async fn settled(case: &Case) -> BTreeMap<String, Value> {
    let mut found = dump(case).await;
    found.remove(&format!("Secret/{}", case.engine.owner().record_name()));
    if let Some(deployment) =
        found.get_mut("Deployment.apps/d").and_then(|d| d["metadata"]["annotations"].as_object_mut())
    {
        deployment.remove("deployment.kubernetes.io/revision");
    }
    found
}

async fn after_a_killed_uninstall(k: usize, sent: bool, install: bool) {
    let place = format!("uninstall killed after write {k} (next one sent: {sent}), then install: {install}");
    let case = Case::new("remove").await;
    let before = dump(&case).await;
    case.install(&objects(&case)).await.unwrap();
    assert!(!until_dead(&case, k, sent, wipe(&case)).await, "{place}: it was not killed");
    let case = case.reborn().await;
    if install {
        // A namespace on its way out takes nothing new: that is said, and goes away.
        for _ in 0..60 {
            match case.install(&objects(&case)).await {
                Ok(()) => break,
                Err(error) if error.reason() == "NamespaceTerminating" => {
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
                Err(error) => panic!("{place}: {error}"),
            }
        }
        assert!(case.engine.plan(&release(), &objects(&case)).await.unwrap().is_noop(), "{place}");
    }
    wipe(&case).await.unwrap_or_else(|e| panic!("{place}: {e}"));
    assert_eq!(dump(&case).await, before, "{place}");
}

mod exhaustive {
    use super::*;

    #[tokio::test]
    async fn a_change_killed_after_any_write_can_be_repeated_undone_or_removed() {
        let scratch = Case::new("count").await;
        scratch.install(&objects(&scratch)).await.unwrap();
        let writes = writes_of(&scratch, scratch.install(&changed(&scratch))).await;
        wipe(&scratch).await.unwrap();
        let cases = (0..writes).flat_map(|k| [(k, false), (k, true)]);
        let cases =
            cases.flat_map(|(k, sent)| [Then::Install, Then::Rollback, Then::Uninstall].map(|then| (k, sent, then)));
        stream::iter(sampled(cases))
            .for_each_concurrent(TOGETHER, |(k, sent, then)| after_a_killed_change(k, sent, then))
            .await;
    }

    #[tokio::test]
    async fn an_uninstall_killed_after_any_write_can_be_repeated_or_followed_by_an_install() {
        let scratch = Case::new("count").await;
        scratch.install(&objects(&scratch)).await.unwrap();
        let writes = writes_of(&scratch, wipe(&scratch)).await;
        let cases =
            (0..writes).flat_map(|k| [(k, false), (k, true)]).flat_map(|(k, sent)| [(k, sent, false), (k, sent, true)]);
        stream::iter(sampled(cases))
            .for_each_concurrent(TOGETHER, |(k, sent, install)| after_a_killed_uninstall(k, sent, install))
            .await;
    }
}
