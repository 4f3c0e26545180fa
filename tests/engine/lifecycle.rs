//! Install, install again, change, prune, uninstall: what is written and what is not.

use std::time::{Duration, Instant};

use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Action, Change, Planned, Removal};
use fleetctl::inventory::{INSTALL_LABEL, Phase, Policy};
use fleetctl::k8s::{Event, ObjectRef};
use serde_json::json;

use super::actors::{bind, delete_wholly, edit, wait_for_claim};
use super::support::{Case, dump, objects, release};

#[tokio::test]
async fn a_second_install_of_the_same_inputs_sends_no_write_at_all() {
    let case = Case::new("noop").await;
    let before = dump(&case).await;
    case.install(&objects(&case)).await.unwrap();
    let installed = dump(&case).await;
    assert!(installed.len() > before.len() + 8, "{:?}", installed.keys());
    let (writes, reads) = (case.traffic.writes(), case.traffic.reads());
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    for step in &plan.steps {
        assert_eq!(step.action, Action::Unchanged, "{} {:?}", step.target, step.drift);
    }
    assert!(plan.is_noop());
    assert_eq!(case.traffic.writes(), writes);
    assert!(case.traffic.reads() - reads <= plan.steps.len() + 2, "{} reads", case.traffic.reads() - reads);
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert!(removed.leftovers.is_empty(), "{:?}", removed.leftovers);
    assert_eq!(dump(&case).await, before, "the cluster is as it was before");
}

#[tokio::test]
async fn an_install_writes_each_object_once_and_the_record_once_a_stage_and_once_at_the_end() {
    let case = Case::new("once").await;
    let all = objects(&case);
    let plan = case.engine.plan_install(&release(), &all).await.unwrap();
    let reads = case.traffic.reads();
    let mut run = case.engine.begin_run(plan).await.unwrap();
    // The namespace, and in one write the lock, the journal and the first stage in it.
    assert_eq!((case.traffic.writes(), case.traffic.reads() - reads), (2, 0));
    let journal = case.engine.read_state().await.unwrap().journal.unwrap();
    let of_first = all.iter().filter(|planned| planned.stage == 1).count();
    assert_eq!((journal.steps.len(), journal.release), (of_first, Some(release())));
    run.apply_stage(1).await.unwrap();
    assert_eq!(case.traffic.writes(), 2 + of_first);
    run.apply_stage(2).await.unwrap();
    run.commit_run().await.unwrap();
    assert_eq!(case.traffic.writes(), all.len() + 3);
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_rollback_tells_what_it_undid_and_not_what_was_only_written_down() {
    let case = Case::new("told").await;
    let all = objects(&case);
    let plan = async || case.engine.plan_install(&release(), &all).await.unwrap();
    case.engine.begin_run(plan().await).await.unwrap().release_run().await.unwrap();
    assert!(!case.engine.read_state().await.unwrap().journal.unwrap().steps.is_empty());
    let namespace = || ObjectRef::new(&Kind::needed_versions("", "Namespace")[0], None, &case.namespace);
    assert_eq!(case.engine.rollback_interrupted_run().await.unwrap().undone, [namespace()]);
    let mut run = case.engine.begin_run(plan().await).await.unwrap();
    run.apply_stage(1).await.unwrap();
    let journal = case.engine.read_state().await.unwrap().journal.unwrap();
    // The last first, but for the keys, which go when nothing is left that was written under them.
    let (keys, made): (Vec<_>, Vec<_>) = journal.steps.into_iter().rev().partition(|step| step.policy == Policy::Keep);
    let undone = made.into_iter().chain(keys).map(|step| step.object).chain([namespace()]);
    assert_eq!(run.rollback_run().await.unwrap().undone, undone.collect::<Vec<_>>());
    assert!(dump(&case).await.is_empty());
}

#[tokio::test]
async fn a_run_that_used_up_its_time_still_records_what_it_did() {
    let case = Case::new("late").await;
    let deadline = Instant::now() + Duration::from_secs(20);
    let engine = case.engine.with_deadline(Some(deadline));
    let mut run = engine.begin_run(engine.plan_install(&release(), &objects(&case)).await.unwrap()).await.unwrap();
    run.apply_all_stages().await.unwrap();
    tokio::time::sleep_until(deadline.into()).await;
    run.commit_run().await.unwrap();
    let state = case.engine.read_state().await.unwrap();
    assert!(state.record.is_some() && state.journal.is_none() && state.lock.is_none());
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_run_that_takes_long_has_its_lock_renewed_without_a_write_of_its_own() {
    let case = Case::new("renewed").await;
    let run =
        case.engine.begin_run(case.engine.plan_install(&release(), &objects(&case)).await.unwrap()).await.unwrap();
    let expires = async || {
        let lock = case.engine.read_state().await.unwrap().lock.expect("it is held");
        lock.expires.parse::<jiff::Timestamp>().unwrap()
    };
    let first = expires().await;
    let renewed = async {
        while expires().await == first {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), renewed).await.expect("the lock is renewed");
    assert!(expires().await > first);
    run.rollback_run().await.unwrap();
    assert!(dump(&case).await.is_empty());
}

#[tokio::test]
async fn only_what_changed_is_written_and_what_is_gone_from_the_inputs_is_pruned() {
    let case = Case::new("change").await;
    case.install(&objects(&case)).await.unwrap();
    let mut next = objects(&case);
    next.retain(|planned| planned.object["kind"] != "PodDisruptionBudget");
    let config = next.iter_mut().find(|planned| planned.object["kind"] == "ConfigMap").unwrap();
    config.object["data"] = json!({"a": "1", "c": "3"});
    let plan = case.engine.plan_install(&release(), &next).await.unwrap();
    assert_eq!((plan.count_writes(), plan.prune.len()), (1, 1));
    case.install(&next).await.unwrap();
    assert_eq!(case.get("", "ConfigMap", "config").await.unwrap()["data"], json!({"a": "1", "c": "3"}));
    assert!(case.get("policy", "PodDisruptionBudget", "b").await.is_none());
    assert!(case.engine.plan_install(&release(), &next).await.unwrap().is_noop());
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_diff_is_the_servers_own_and_shows_no_secret() {
    let case = Case::new("diff").await;
    let fresh =
        case.engine.diff_plan(&case.engine.plan_install(&release(), &objects(&case)).await.unwrap()).await.unwrap();
    assert_eq!(fresh.len(), objects(&case).len());
    assert!(
        fresh.iter().filter(|d| d.object.namespace.is_some()).all(|d| d.note.is_some()),
        "the namespace does not exist yet"
    );
    assert!(dump(&case).await.is_empty());
    case.install(&objects(&case)).await.unwrap();
    let mut next = objects(&case);
    for planned in &mut next {
        match planned.object["kind"].as_str() {
            // The same quantity in other words is no change.
            Some("Deployment") => {
                planned.object["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] =
                    json!({"cpu": "100m", "memory": "1Mi"});
            }
            Some("Secret") => planned.object["data"] = json!({"key": "b3RoZXI="}),
            Some("ConfigMap") => planned.object["data"] = json!({"a": "1", "b": "3"}),
            _ => {}
        }
    }
    let plan = case.engine.plan_install(&release(), &next).await.unwrap();
    let found = case.engine.diff_plan(&plan).await.unwrap();
    let lines: Vec<String> =
        found.iter().flat_map(|d| d.fields.iter().map(move |f| format!("{} {}", d.object.kind, f.path))).collect();
    assert_eq!(lines, ["Secret .data.key", "ConfigMap .data.b"]);
    let text = format!("{found:?}");
    assert!(!text.contains("b3RoZXI=") && !text.contains("aHVudGVyMg=="), "{text}");
    assert_eq!(case.get("", "ConfigMap", "config").await.unwrap()["data"]["b"], "2", "nothing was stored");
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_diff_shows_no_deletion_of_what_is_planned_no_more_and_is_gone_or_anothers_by_now() {
    let case = Case::new("undeleted").await;
    case.install(&objects(&case)).await.unwrap();
    let mut fewer = objects(&case);
    fewer.retain(|planned| !matches!(planned.object["kind"].as_str(), Some("ConfigMap" | "PodDisruptionBudget")));
    let diff =
        async || case.engine.diff_plan(&case.engine.plan_install(&release(), &fewer).await.unwrap()).await.unwrap();
    let deleted = |change: Change| change == Change::Delete;
    assert_eq!(diff().await.iter().filter(|difference| deleted(difference.change)).count(), 2);
    delete_wholly(&case, "", "ConfigMap", "config").await;
    let relabelled = json!({"metadata": {"labels": {INSTALL_LABEL: "theirs"}}});
    edit(&case, "kubectl-edit", "policy", "PodDisruptionBudget", "b", relabelled).await;
    let found = diff().await;
    let [budget] = &found[..] else { panic!("{found:?}") };
    assert_eq!((budget.object.name.as_str(), budget.change), ("b", Change::Keep));
    assert_eq!(budget.note.as_deref(), Some("kept: it now has a different owner"));
    case.install(&fewer).await.unwrap();
    assert!(case.get("policy", "PodDisruptionBudget", "b").await.is_some());
    let stays = |event: &Event| {
        matches!(event, Event::Warning { object, message } if object.name == "b"
            && message == "no longer part of the release, but kept: it now has a different owner")
    };
    assert!(case.events.lock().unwrap().iter().any(stays), "{:?}", case.events.lock().unwrap());
    assert!(case.engine.plan_install(&release(), &fewer).await.unwrap().is_noop());
    delete_wholly(&case, "policy", "PodDisruptionBudget", "b").await;
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn two_installs_at_the_same_moment_do_not_mix() {
    let one = Case::with("race", |options| options.holder.pid = std::process::id()).await;
    let folder = tempfile::tempdir().unwrap();
    // The second process lives too: it is process 1 of this host.
    let two = Case::again(&one.namespace, folder, |options| options.holder.pid = 1).await;
    let all = objects(&one);
    let (first, second) = futures::join!(one.install(&all), two.install(&all));
    for result in [first, second] {
        if let Err(error) = result {
            assert!(matches!(error.reason(), "PlanOutdated" | "LockLost"), "{error}");
        }
    }
    two.install(&objects(&two)).await.unwrap();
    assert!(one.engine.plan_install(&release(), &objects(&one)).await.unwrap().is_noop());
    one.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
    assert!(dump(&one).await.is_empty());
}

#[tokio::test]
async fn a_plain_uninstall_keeps_data_and_keys_and_a_later_install_resumes() {
    let case = Case::new("keep").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, "data-etcd-0").await;
    let key = case.get("", "Secret", "pki").await.unwrap();
    let removed = case.engine.uninstall(Removal::default()).await.unwrap();
    let mut kept: Vec<&str> = removed.kept.iter().map(|kept| kept.object.kind.as_str()).collect();
    kept.sort_unstable();
    assert_eq!(kept, ["Namespace", "PersistentVolumeClaim", "Secret"]);
    assert!(removed.leftovers.is_empty(), "{:?}", removed.leftovers);
    let state = case.engine.read_state().await.unwrap();
    assert_eq!(state.record.as_ref().unwrap().phase, Phase::Removed);
    assert!(state.lock.is_none() && state.journal.is_none());
    assert!(case.get("apps", "StatefulSet", "etcd").await.is_none());
    let again = case.engine.uninstall(Removal::default()).await.unwrap();
    assert_eq!((again.deleted.len(), again.kept.len()), (0, 3), "safe to repeat");
    case.install(&objects(&case)).await.unwrap();
    assert_eq!(case.get("", "Secret", "pki").await.unwrap()["metadata"]["uid"], key["metadata"]["uid"]);
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert!(removed.kept.is_empty(), "{:?}", removed.kept);
    assert!(dump(&case).await.is_empty(), "{:?}", dump(&case).await.keys());
    let nothing = case.engine.uninstall(Removal::default()).await.unwrap();
    assert!(nothing.nothing_found);
}

#[tokio::test]
async fn a_claim_that_was_never_bound_is_not_kept() {
    let case = Case::new("unbound").await;
    case.install(&objects(&case)).await.unwrap();
    wait_for_claim(&case, "data-etcd-0").await;
    let removed = case.engine.uninstall(Removal::default()).await.unwrap();
    assert!(removed.deleted.iter().any(|object| object.kind == "PersistentVolumeClaim"), "{:?}", removed.deleted);
    assert!(!removed.kept.iter().any(|kept| kept.object.kind == "PersistentVolumeClaim"), "{:?}", removed.kept);
    assert!(removed.kept.iter().any(|kept| kept.object.kind == "Secret"));
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
    assert!(dump(&case).await.is_empty());
}

#[tokio::test]
async fn a_namespace_with_something_else_in_it_stays_and_says_what() {
    let case = Case::new("strangers").await;
    case.install(&objects(&case)).await.unwrap();
    let maps = Kind::needed_versions("", "ConfigMap").remove(0);
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": case.namespace}});
    case.server().create_object(&maps, &theirs).await.unwrap();
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    let namespace = removed.kept.iter().find(|kept| kept.object.kind == "Namespace").expect("kept");
    assert!(namespace.reason.contains("ConfigMap theirs"), "{}", namespace.reason);
    assert!(removed.leftovers.is_empty(), "{:?}", removed.leftovers);
    case.sweep().await;
}

#[tokio::test]
async fn two_installations_share_a_namespace_without_touching_each_other() {
    let one = Case::new("shared").await;
    one.install(&objects(&one)).await.unwrap();
    let owner = fleetctl::inventory::Owner::new("agent", &format!("{}-b", one.namespace), &one.namespace);
    let engine = fleetctl::apply::Engine::new(
        super::support::client().await.0,
        owner,
        fleetctl::apply::Options::default(),
        fleetctl::k8s::Events::none(),
    );
    let map = Planned::new(1, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}));
    let namespace =
        Planned::new(0, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one.namespace}}));
    let plan = engine.plan_install(&release(), &[namespace, map]).await.unwrap();
    assert_eq!(plan.count_steps(Action::Leave), 1, "a namespace of another installation is left alone");
    let mut run = engine.begin_run(plan).await.unwrap();
    run.apply_all_stages().await.unwrap();
    run.commit_run().await.unwrap();
    assert!(one.engine.plan_install(&release(), &objects(&one)).await.unwrap().is_noop());
    let plan = engine.plan_install(&release(), &objects(&one)[3..4]).await.unwrap();
    assert_eq!(plan.foreign[0].install.as_deref(), Some(one.namespace.as_str()));
    engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
    assert!(one.get("", "ConfigMap", "other").await.is_none() && one.get("", "ConfigMap", "config").await.is_some());
    one.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_lost_record_is_rebuilt_from_labels() {
    let case = Case::new("lost").await;
    case.install(&objects(&case)).await.unwrap();
    let secrets = Kind::needed_versions("", "Secret").remove(0);
    let record = case.get("", "Secret", &case.engine.owner().record_name()).await.unwrap();
    let reference = ObjectRef::of(&record).unwrap();
    case.server().delete_object(&secrets, &reference, record["metadata"]["uid"].as_str().unwrap()).await.unwrap();
    case.install(&objects(&case)).await.unwrap();
    let rebuilt = case.engine.read_state().await.unwrap().record.unwrap();
    assert_eq!(rebuilt.inventory.len(), objects(&case).len());
    assert!(rebuilt.namespace_created, "it says by whom it was made");
    let record = case.get("", "Secret", &case.engine.owner().record_name()).await.unwrap();
    case.server().delete_object(&secrets, &reference, record["metadata"]["uid"].as_str().unwrap()).await.unwrap();
    // What other inputs hold no more is known by its labels, too; the keys among it stay.
    let kinds = ["Namespace", "ConfigMap"];
    let few: Vec<_> =
        objects(&case).into_iter().filter(|p| kinds.contains(&p.object["kind"].as_str().unwrap())).collect();
    // Also where a part of it is written first, as a control plane's install does.
    let part = case.engine.plan_part(&few).await.unwrap();
    assert_eq!(part.count_writes(), few.len());
    let mut run = case.engine.begin_run(part).await.unwrap();
    run.apply_all_stages().await.unwrap();
    run.extend_plan(case.engine.plan_install(&release(), &few).await.unwrap()).unwrap();
    run.apply_all_stages().await.unwrap();
    run.commit_run().await.unwrap();
    assert!(case.get("policy", "PodDisruptionBudget", "b").await.is_none(), "it is planned no more");
    assert!(case.get("", "Secret", "pki").await.is_some(), "keys are never pruned");
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert!(removed.leftovers.is_empty() && dump(&case).await.is_empty(), "{:?}", dump(&case).await.keys());
}
