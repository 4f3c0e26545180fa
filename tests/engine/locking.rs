//! One run at a time: what becomes of who waited for another's end, and of who lost the lock and does not know it yet.

use std::time::{Duration, Instant};

use bed::Bed;
use bed::proxy::{Action, Match, Proxy, When};
use fleetctl::apply::{Options, Removal, Run};
use fleetctl::k8s::{Done, Event};
use serde_json::json;

use super::actors::{bind, delete, edit};
use super::kill;
use super::support::{Case, cluster, dump, objects, release};

const CLAIM: &str = "data-etcd-0";

/// As a process that lives: this one, or the first of this machine.
fn living(pid: u32) -> impl FnOnce(&mut Options) {
    move |options| options.holder.pid = pid
}

async fn beside(case: &Case) -> Case {
    Case::again(&case.namespace, tempfile::tempdir().unwrap(), living(1)).await
}

/// A run that has applied the first two of three stages.
async fn under_way(case: &Case) -> Run {
    let plan = case.engine.plan_install(&release(), &objects(case)).await.unwrap();
    let mut run = case.engine.begin_run(plan).await.unwrap();
    run.apply_stage(0).await.unwrap();
    run.apply_stage(1).await.unwrap();
    run
}

/// Ends when `case` has told such an event.
async fn told(case: &Case, what: impl Fn(&Event) -> bool) {
    let told = async {
        while !case.events.lock().unwrap().iter().any(&what) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), told).await.expect("it is told");
}

/// Ends when `case` waits for the lock.
async fn waiting(case: &Case) {
    told(case, |event| matches!(event, Event::Lock { taken_over: false, .. })).await;
}

/// Has another run take the lock, and end without a word.
async fn steal(case: &Case) {
    let name = case.engine.owner().record_name();
    let secret = case.get("", "Secret", &name).await.unwrap();
    let mut lock: serde_json::Value =
        serde_json::from_str(secret["metadata"]["annotations"]["fleet-scheduler.io/lock"].as_str().unwrap()).unwrap();
    lock["holder"]["nonce"] = "another".into();
    lock["holder"]["pid"] = u32::MAX.into();
    let patch = json!({"metadata": {"annotations": {"fleet-scheduler.io/lock": lock.to_string()}}});
    edit(case, "test", "", "Secret", &name, patch).await;
}

#[tokio::test]
async fn who_lost_the_lock_writes_nothing_more_and_undoes_nothing() {
    let first = Case::with("lost", living(std::process::id())).await;
    let mut run = under_way(&first).await;
    let second = beside(&first).await;
    steal(&second).await;
    second.install(&objects(&second)).await.unwrap();
    // Each in its turn: a stage that the first has not journalled, and its undoing.
    assert_eq!(run.apply_stage(2).await.unwrap_err().reason(), "LockLost");
    assert_eq!(run.rollback_run().await.unwrap_err().reason(), "LockLost");
    assert!(second.engine.plan_install(&release(), &objects(&second)).await.unwrap().is_noop());
    // The same where the journal knows every step already, because the run goes on with one that was interrupted.
    let record = second.engine.owner().record_name();
    delete(&second, "", "Secret", &record).await;
    let whole = first.engine.plan_install(&release(), &objects(&first)).await.unwrap();
    let mut run = first.engine.begin_run(whole).await.unwrap();
    run.apply_all_stages().await.unwrap();
    run.release_run().await.unwrap();
    let whole = first.engine.plan_install(&release(), &objects(&first)).await.unwrap();
    assert!(whole.count_writes() > 0);
    let mut run = first.engine.begin_run(whole).await.unwrap();
    steal(&second).await;
    second.install(&objects(&second)).await.unwrap();
    assert_eq!(run.apply_stage(1).await.unwrap_err().reason(), "LockLost");
    kill::wipe(&second).await.unwrap();
    assert!(dump(&second).await.is_empty());
}

/// Has another run take the lock while the first one waits for a workload to go.
async fn overtake(first: &Case, second: &Case) {
    told(first, |event| match event {
        Event::Object { object, done: Done::Deleted } => object.kind == "StatefulSet",
        _ => false,
    })
    .await;
    steal(second).await;
    hold(second, false).await;
}

/// Keeps the workload, once it is deleted, or lets it go.
async fn hold(case: &Case, keep: bool) {
    let finalizers = if keep { json!(["example.com/hold"]) } else { json!([]) };
    edit(case, "test", "apps", "StatefulSet", "etcd", json!({"metadata": {"finalizers": finalizers}})).await;
}

#[tokio::test]
async fn an_uninstall_that_lost_the_lock_deletes_nothing_more() {
    let first = Case::with("overtaken", living(std::process::id())).await;
    first.install(&objects(&first)).await.unwrap();
    bind(&first, CLAIM).await;
    hold(&first, true).await;
    let second = beside(&first).await;
    let removal = Removal { delete_data: true, ..Removal::default() };
    let (removed, ()) = futures::join!(first.engine.uninstall(removal), overtake(&first, &second));
    assert_eq!(removed.unwrap_err().reason(), "LockLost");
    for (kind, name) in [("ConfigMap", "config"), ("PersistentVolumeClaim", CLAIM), ("Secret", "pki")] {
        let live = second.get("", kind, name).await.unwrap_or_else(|| panic!("{kind} is gone"));
        assert!(live["metadata"]["deletionTimestamp"].is_null(), "{live}");
    }
    kill::wipe(&second).await.unwrap();
    assert!(dump(&second).await.is_empty());
}

#[tokio::test]
async fn an_undoing_that_lost_the_lock_deletes_no_data_and_no_namespace() {
    let first = Case::with("undoing", living(std::process::id())).await;
    let mut run = under_way(&first).await;
    run.apply_stage(2).await.unwrap();
    bind(&first, CLAIM).await;
    hold(&first, true).await;
    let second = beside(&first).await;
    let (undone, ()) = futures::join!(run.rollback_run(), overtake(&first, &second));
    assert_eq!(undone.unwrap_err().reason(), "LockLost");
    for (kind, name) in [("PersistentVolumeClaim", CLAIM), ("Namespace", &second.namespace)] {
        let live = second.get("", kind, name).await.unwrap_or_else(|| panic!("{kind} is gone"));
        assert!(live["metadata"]["deletionTimestamp"].is_null(), "{live}");
    }
    kill::wipe(&second).await.unwrap();
    assert!(dump(&second).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undoing_leaves_the_namespace_in_which_another_run_has_begun() {
    let proxy = Proxy::start(&Bed::here().unwrap(), &cluster()).unwrap();
    let first = Case::through(&proxy.kubeconfig(), "begun").await;
    let dead = beside(&first).await;
    let all = objects(&dead);
    dead.traffic.die_after(1, false);
    tokio::select! {
        installed = dead.install(&all) => panic!("{installed:?}"),
        () = dead.traffic.died.notified() => {}
    }
    assert!(first.engine.read_state().await.unwrap().is_empty(), "the namespace is all there is");
    // It writes its journal and nothing else, behind the back of who has looked already.
    let (second, here) = (beside(&first).await, tokio::runtime::Handle::current());
    let begin = move || {
        here.block_on(async {
            let plan = second.engine.plan_install(&release(), &objects(&second)).await.unwrap();
            second.engine.begin_run(plan).await.unwrap().release_run().await.unwrap();
        });
    };
    proxy.on(Match::verb("list").path("/configmaps"), When::Nth(1), Action::then(move |_| begin()));
    let undone = first.engine.rollback_interrupted_run().await.unwrap();
    assert!(undone.undone.is_empty(), "{undone:?}");
    assert!(first.engine.read_state().await.unwrap().journal.is_some());
    kill::wipe(&first).await.unwrap();
    assert!(dump(&first).await.is_empty());
}

#[tokio::test]
async fn an_uninstall_that_waited_removes_what_was_made_meanwhile_and_keeps_what_was_bound() {
    let first = Case::with("meanwhile", living(std::process::id())).await;
    let mut run = under_way(&first).await;
    let second = beside(&first).await;
    let (removed, ()) = futures::join!(second.engine.uninstall(Removal::default()), async {
        waiting(&second).await;
        run.apply_stage(2).await.unwrap();
        bind(&first, CLAIM).await;
        run.commit_run().await.unwrap();
    });
    let removed = removed.unwrap();
    assert!(removed.leftovers.is_empty(), "{removed:?}");
    let kept: Vec<&str> = removed.kept.iter().map(|kept| kept.object.kind.as_str()).collect();
    assert!(kept.contains(&"PersistentVolumeClaim") && kept.contains(&"Secret"), "{kept:?}");
    assert!(second.get("apps", "StatefulSet", "etcd").await.is_none());
    kill::wipe(&second).await.unwrap();
    assert!(dump(&second).await.is_empty());
}

#[tokio::test]
async fn who_planned_before_another_run_ended_without_success_is_refused() {
    let first = Case::with("stale", living(std::process::id())).await;
    let run = under_way(&first).await;
    let second = beside(&first).await;
    let plan = second.engine.plan_install(&release(), &objects(&second)).await.unwrap();
    run.release_run().await.unwrap();
    assert_eq!(second.engine.begin_run(plan).await.unwrap_err().reason(), "PlanOutdated");
    assert!(!second.engine.has_begun());
    assert!(second.engine.read_state().await.unwrap().journal.is_some(), "the other run's way back is kept");
    kill::wipe(&second).await.unwrap();
    assert!(dump(&second).await.is_empty());
}

#[tokio::test]
async fn who_was_slower_to_take_the_lock_waits_and_has_begun_nothing() {
    let slow = Case::with("race", living(std::process::id())).await;
    let all = objects(&slow);
    slow.install(&all).await.unwrap();
    let fewer = &all[..all.len() - 1];
    // Both have seen that nobody holds it.
    let plan = slow.engine.plan_install(&release(), fewer).await.unwrap();
    let quick = beside(&slow).await;
    let theirs = quick.engine.plan_install(&release(), fewer).await.unwrap();
    let run = quick.engine.begin_run(theirs).await.unwrap();
    let (late, undone) = futures::join!(slow.engine.begin_run(plan), async {
        waiting(&slow).await;
        assert!(!slow.engine.has_begun(), "what stands in the journal is another's");
        run.rollback_run().await.unwrap()
    });
    assert!(undone.undone.is_empty() && undone.problems.is_empty(), "{undone:?}");
    assert_eq!(late.unwrap_err().reason(), "PlanOutdated");
    assert!(slow.engine.plan_install(&release(), &all).await.unwrap().is_noop());
    kill::wipe(&slow).await.unwrap();
    assert!(dump(&slow).await.is_empty());
}

#[tokio::test]
async fn who_planned_from_what_was_read_before_another_run_is_refused_and_journals_nothing() {
    let case = Case::new("earlier").await;
    let (all, second) = (objects(&case), beside(&case).await);
    let nothing = second.engine.read_state().await.unwrap();
    case.install(&all).await.unwrap();
    let fewer = &all[..all.len() - 1];
    let installed = case.engine.read_state().await.unwrap();
    let begin = async |objects, earlier| {
        let plan = second.engine.plan_install(&release(), objects).await.unwrap().with_base_state(earlier);
        second.engine.begin_run(plan).await.unwrap_err().reason()
    };
    assert_eq!(begin(fewer, &nothing).await, "PlanOutdated");
    assert_eq!(case.engine.read_state().await.unwrap().record, installed.record);
    case.install(fewer).await.unwrap();
    assert_eq!(begin(&all, &installed).await, "PlanOutdated");
    case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    // Of what is there no more, and of what never was, by turns.
    assert_eq!(begin(&all, &installed).await, "PlanOutdated");
    let state = case.engine.read_state().await.unwrap();
    assert!(state.is_empty() && !second.engine.has_begun(), "{state:?}");
    kill::wipe(&case).await.unwrap();
    assert!(dump(&case).await.is_empty());
}

#[tokio::test]
async fn a_lock_that_is_held_up_to_the_deadline_is_told_as_held() {
    let first = Case::with("held", living(std::process::id())).await;
    let run = under_way(&first).await;
    let late = Case::again(&first.namespace, tempfile::tempdir().unwrap(), |options| {
        options.holder.pid = 1;
        options.deadline = Some(Instant::now() + Duration::from_secs(6));
        options.lock_wait = Duration::from_secs(60);
    })
    .await;
    let plan = late.engine.plan_install(&release(), &objects(&late)).await.unwrap();
    assert_eq!(late.engine.begin_run(plan).await.unwrap_err().reason(), "Locked");
    assert!(!late.engine.has_begun(), "what stands in the journal is another's");
    run.rollback_run().await.unwrap();
    assert!(dump(&first).await.is_empty());
}

#[tokio::test]
async fn a_run_without_time_left_is_undone_to_the_end_in_a_namespace_of_others() {
    let owner = Case::new("late").await;
    owner.install(&objects(&owner)[..1]).await.unwrap();
    delete(&owner, "", "Secret", &owner.engine.owner().record_name()).await;
    let bare = json!({"metadata": {"labels": null, "annotations": null}});
    edit(&owner, "test", "", "Namespace", &owner.namespace, bare).await;
    let before = dump(&owner).await;
    let end = Instant::now() + Duration::from_secs(15);
    let late =
        Case::again(&owner.namespace, tempfile::tempdir().unwrap(), |options| options.deadline = Some(end)).await;
    let run = under_way(&late).await;
    tokio::time::sleep_until(end.into()).await;
    let undone = run.rollback_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    assert_eq!(dump(&owner).await, before);
    owner.sweep().await;
}

#[tokio::test]
async fn who_waited_for_a_run_that_goes_with_its_namespace_starts_anew() {
    let first = Case::with("gone", living(std::process::id())).await;
    let run = under_way(&first).await;
    let second = beside(&first).await;
    let plan = second.engine.plan_install(&release(), &objects(&second)).await.unwrap();
    let (late, undone) = futures::join!(second.engine.begin_run(plan), async {
        waiting(&second).await;
        run.rollback_run().await.unwrap()
    });
    assert!(undone.problems.is_empty(), "{undone:?}");
    assert_eq!(late.unwrap_err().reason(), "PlanOutdated");
    assert!(!second.engine.has_begun());
    second.install(&objects(&second)).await.unwrap();
    // Removing and undoing what another run has removed meanwhile is nothing to do.
    let third = Case::again(&first.namespace, tempfile::tempdir().unwrap(), living(std::process::id())).await;
    let removal = Removal { delete_data: true, ..Removal::default() };
    let run = under_way_again(&third).await;
    let (removed, undone) = futures::join!(second.engine.uninstall(removal.clone()), async {
        waiting(&second).await;
        run.release_run().await.unwrap();
        third.engine.uninstall(removal.clone()).await
    });
    let (removed, undone) = (removed.unwrap(), undone.unwrap());
    assert!(removed.leftovers.is_empty() && undone.leftovers.is_empty(), "{removed:?} {undone:?}");
    assert!(dump(&second).await.is_empty());
}

/// A run over an installation, that has written nothing but its journal.
async fn under_way_again(case: &Case) -> Run {
    let mut next = objects(case);
    next.pop();
    let plan = case.engine.plan_install(&release(), &next).await.unwrap();
    case.engine.begin_run(plan).await.unwrap()
}

#[tokio::test]
async fn of_two_first_installs_the_one_that_is_refused_has_begun_nothing() {
    let first = Case::with("both", living(std::process::id())).await;
    let second = Case::again(&first.namespace, tempfile::tempdir().unwrap(), |options| {
        options.holder.pid = 1;
        options.lock_wait = Duration::ZERO;
    })
    .await;
    // Both are to make the namespace.
    let plan = second.engine.plan_install(&release(), &objects(&second)).await.unwrap();
    let run = under_way(&first).await;
    assert_eq!(second.engine.begin_run(plan).await.unwrap_err().reason(), "Locked");
    assert!(!second.engine.has_begun(), "what stands in the journal is another's");
    run.rollback_run().await.unwrap();
    assert!(dump(&first).await.is_empty());
}

/// Whether `case` has told that it took a lock over.
fn has_taken_over(case: &Case) -> bool {
    case.events.lock().unwrap().iter().any(|event| matches!(event, Event::Lock { taken_over: true, .. }))
}

#[tokio::test]
async fn no_clock_takes_the_lock_of_a_run_at_work() {
    let first = Case::with("clocks", living(std::process::id())).await;
    let mut run = under_way(&first).await;
    for ahead in [45, -45, 7200] {
        let second = Case::again(&first.namespace, tempfile::tempdir().unwrap(), |options| {
            options.holder.pid = 1;
            options.lock_wait = Duration::ZERO;
        })
        .await;
        second.traffic.set_clock(ahead);
        let plan = second.engine.plan_install(&release(), &objects(&second)).await.unwrap();
        let refused = second.engine.begin_run(plan).await.unwrap_err();
        assert_eq!(refused.reason(), "Locked", "{ahead} s ahead");
        assert!(!has_taken_over(&second) && !second.engine.has_begun(), "{ahead} s ahead");
    }
    run.apply_stage(2).await.unwrap();
    run.commit_run().await.unwrap();
    kill::wipe(&first).await.unwrap();
    assert!(dump(&first).await.is_empty());
}

#[tokio::test]
async fn a_lock_that_nobody_renews_is_taken_whatever_its_date() {
    let first = Case::with("unrenewed", living(std::process::id())).await;
    let run = under_way(&first).await;
    run.release_run().await.unwrap();
    let name = first.engine.owner().record_name();
    let holder = json!({"user": "u", "host": "h", "pid": 1, "machine": "elsewhere", "since": "", "nonce": "n"});
    let lock = json!({"holder": holder, "expires": "2999-01-01T00:00:00Z"}).to_string();
    let patch = json!({"metadata": {"annotations": {"fleet-scheduler.io/lock": lock}}});
    edit(&first, "test", "", "Secret", &name, patch).await;
    let second = beside(&first).await;
    let began = Instant::now();
    second.install(&objects(&second)).await.unwrap();
    assert!(has_taken_over(&second) && began.elapsed() >= Duration::from_secs(30));
    kill::wipe(&second).await.unwrap();
    assert!(dump(&second).await.is_empty());
}

#[tokio::test]
async fn a_removal_that_does_not_end_lets_go_of_its_lock() {
    let first = Case::with("unended", living(std::process::id())).await;
    first.install(&objects(&first)).await.unwrap();
    hold(&first, true).await;
    let removal = || Removal { delete_data: true, ..Removal::default() };
    // It times out.
    let engine = first.engine.with_deadline(Some(Instant::now() + Duration::from_secs(10)));
    assert_eq!(engine.uninstall(removal()).await.unwrap_err().reason(), "DeletionStuck");
    let state = first.engine.read_state().await.unwrap();
    assert!(state.lock.is_none() && state.journal.is_some(), "{state:?}");
    // It is interrupted: whoever drops it lets go of the lock.
    let second = beside(&first).await;
    let is_held = async {
        while second.engine.read_state().await.unwrap().lock.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        removed = second.engine.uninstall(removal()) => panic!("{removed:?}"),
        () = is_held => {}
    }
    second.engine.release_lock().await.unwrap();
    let state = first.engine.read_state().await.unwrap();
    assert!(state.lock.is_none() && state.journal.is_some(), "{state:?}");
    hold(&first, false).await;
    kill::wipe(&second).await.unwrap();
    assert!(dump(&second).await.is_empty());
}
