//! What was there before a run outlives its undoing, and what is removed goes in an order that can be gone on with.

use std::time::{Duration, Instant};

use bed::Bed;
use bed::proxy::{self, Match, Proxy, When};
use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Error, Planned, Removal, Run};
use fleetctl::inventory::{self, Phase};
use fleetctl::k8s::{Done, Event, ObjectRef, Selection};
use futures::stream::{self, StreamExt as _};
use serde_json::json;

use super::actors::{bind, bind_by, delete, delete_wholly, edit, kubectl_made, wait_for_claim};
use super::support::{Case, cluster, dump, objects, release};
use super::{kill, rules};

pub(crate) const CLAIM: &str = "data-etcd-0";

pub(crate) async fn is_bound(case: &Case) -> bool {
    let claim = case.get("", "PersistentVolumeClaim", CLAIM).await;
    claim.is_some_and(|claim| claim["status"]["phase"] == "Bound" && claim["metadata"]["deletionTimestamp"].is_null())
}

pub(crate) async fn wipe(case: &Case) {
    kill::wipe(case).await.unwrap();
    assert!(dump(case).await.is_empty());
}

/// A run that has applied everything and has not ended.
pub(crate) async fn applied(case: &Case) -> Run {
    let plan = case.engine.plan_install(&release(), &objects(case)).await.unwrap();
    let mut run = case.engine.begin_run(plan).await.unwrap();
    run.apply_all_stages().await.unwrap();
    run
}

#[tokio::test]
async fn a_rollback_keeps_the_data_of_a_set_that_was_deleted_before_the_run() {
    let case = Case::new("data").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    delete_wholly(&case, "apps", "StatefulSet", "etcd").await;
    let run = applied(&case).await;
    let undone = run.rollback_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    assert!(is_bound(&case).await, "the data is gone");
    // The same where the process dies, and the record is lost besides.
    delete_wholly(&case, "", "Secret", &case.engine.owner().record_name()).await;
    let run = applied(&case).await;
    run.release_run().await.unwrap();
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    assert!(is_bound(&case).await, "the data is gone");
    wipe(&case).await;
}

#[tokio::test]
async fn a_removal_that_was_interrupted_is_no_installation_and_no_undoing_takes_its_data() {
    let case = Case::new("cut").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    // The lock with the journal, its renewal, and the workloads.
    case.traffic.die_after(5, false);
    tokio::select! {
        removed = case.engine.uninstall(Removal::default()) => panic!("{removed:?}"),
        () = case.traffic.died.notified() => {}
    }
    let case = case.reborn().await;
    let state = case.engine.read_state().await.unwrap();
    assert_eq!(state.record.unwrap().phase, Phase::Removed);
    assert!(state.journal.unwrap().is_removal());
    let run = applied(&case).await;
    run.rollback_run().await.unwrap();
    assert_eq!(case.engine.read_state().await.unwrap().record.unwrap().phase, Phase::Removed);
    assert!(is_bound(&case).await, "the data is gone");
    case.install(&objects(&case)).await.unwrap();
    assert!(case.engine.plan_install(&release(), &objects(&case)).await.unwrap().is_noop());
    assert!(is_bound(&case).await, "the data is gone");
    wipe(&case).await;
}

#[tokio::test]
async fn who_planned_while_another_run_was_at_work_undoes_nothing_of_it() {
    let first = Case::with("late", |options| options.holder.pid = std::process::id()).await;
    let run = applied(&first).await;
    // The second process lives too: it is process 1 of this host.
    let second = Case::again(&first.namespace, tempfile::tempdir().unwrap(), |options| options.holder.pid = 1).await;
    let plan = second.engine.plan_install(&release(), &objects(&second)).await.unwrap();
    run.commit_run().await.unwrap();
    assert_eq!(second.engine.begin_run(plan).await.unwrap_err().reason(), "PlanOutdated");
    let state = second.engine.read_state().await.unwrap();
    assert!(state.journal.is_none() && state.lock.is_none(), "{:?}", state.journal);
    assert!(second.engine.rollback_interrupted_run().await.unwrap().undone.is_empty());
    assert!(second.engine.plan_install(&release(), &objects(&second)).await.unwrap().is_noop());
    wipe(&second).await;
}

#[tokio::test]
async fn keys_are_deleted_after_the_data_that_cannot_be_read_without_them() {
    let case = Case::new("keys").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    wipe(&case).await;
    let events = case.events.lock().unwrap();
    let at = |kind: &str, name: &str| {
        events.iter().position(|event| match event {
            Event::Object { object, done: Done::Deleted } => object.kind == kind && object.name == name,
            _ => false,
        })
    };
    let (claim, keys, config) = (at("PersistentVolumeClaim", CLAIM), at("Secret", "pki"), at("ConfigMap", "config"));
    assert!(config < claim && claim < keys && config.is_some(), "{config:?}, {claim:?}, {keys:?}");
}

/// Whether an undoing that dies after so many writes leaves data; never without the keys that it is written under.
async fn leaves_data(after: usize) -> bool {
    let case = Case::new("undone-keys").await;
    applied(&case).await.release_run().await.unwrap();
    bind(&case, CLAIM).await;
    case.traffic.die_after(after, true);
    tokio::select! {
        undone = case.engine.rollback_interrupted_run() => { undone.unwrap(); }
        () = case.traffic.died.notified() => {}
    }
    let case = case.reborn().await;
    let (claim, keys) = (is_bound(&case).await, case.get("", "Secret", "pki").await.is_some());
    assert!(keys || !claim, "dead after write {after}");
    wipe(&case).await;
    claim
}

#[tokio::test]
async fn an_undoing_that_is_interrupted_leaves_no_data_without_its_keys() {
    let outcomes = stream::iter((1..20).step_by(3)).map(leaves_data).buffered(kill::TOGETHER).collect::<Vec<_>>();
    let left = outcomes.await.into_iter().filter(|left| *left).count();
    assert!(left > 2, "{left} of them have left data");
}

#[tokio::test]
async fn what_an_undoing_in_two_goes_has_made_again_is_known_by_its_uid() {
    let case = Case::new("again").await;
    let all = objects(&case);
    let fewer: Vec<Planned> = all.iter().filter(|p| p.object["kind"] != "PodDisruptionBudget").cloned().collect();
    case.install(&all).await.unwrap();
    // Dead before its last write, when it has pruned.
    let plan = case.engine.plan_install(&release(), &fewer).await.unwrap();
    case.traffic.die_after(3, false);
    let mut run = case.engine.begin_run(plan).await.unwrap();
    tokio::select! {
        committed = async { run.apply_all_stages().await.unwrap(); run.commit_run().await } => panic!("{committed:?}"),
        () = case.traffic.died.notified() => {}
    }
    let mut case = case.reborn().await;
    let budget_of = async |case: &Case| case.get("policy", "PodDisruptionBudget", "b").await;
    assert!(budget_of(&case).await.is_none());
    // Each time it is dead a write later, until it has made the object again.
    for after in 0.. {
        case = case.reborn().await;
        if budget_of(&case).await.is_some() {
            break;
        }
        case.traffic.die_after(after, true);
        tokio::select! {
            undone = case.engine.rollback_interrupted_run() => panic!("{undone:?}"),
            () = case.traffic.died.notified() => {}
        }
    }
    assert!(case.engine.rollback_interrupted_run().await.unwrap().problems.is_empty());
    assert_eq!(case.engine.find_drift().await.unwrap(), []);
    case.install(&fewer).await.unwrap();
    assert!(budget_of(&case).await.is_none(), "what is planned no more is pruned");
    wipe(&case).await;
}

#[tokio::test]
async fn the_namespace_of_an_installation_whose_record_is_lost_is_kept_with_its_data_and_not_left_over() {
    let case = Case::new("unrecorded").await;
    let before = dump(&case).await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    let lose = async || delete(&case, "", "Secret", &case.engine.owner().record_name()).await;
    // Lost while it is installed, and again of what is kept.
    for _ in 0..2 {
        lose().await;
        let removed = case.engine.uninstall(Removal::default()).await.unwrap();
        let kept: Vec<&str> = removed.kept.iter().map(|kept| kept.object.kind.as_str()).collect();
        assert!(removed.leftovers.is_empty() && kept.contains(&"Namespace"), "{removed:?}");
        assert!(case.engine.read_state().await.unwrap().record.unwrap().namespace_created);
    }
    wipe(&case).await;
    assert_eq!(dump(&case).await, before);
}

#[tokio::test]
async fn a_run_whose_journal_is_lost_in_the_cluster_is_undone_by_the_copy_on_this_machine() {
    let case = Case::new("local").await;
    let before = dump(&case).await;
    applied(&case).await.release_run().await.unwrap();
    let record = case.engine.owner().record_name();
    delete(&case, "", "Secret", &record).await;
    let file = case.folder.path().join("journal");
    let copy = std::fs::read_to_string(&file).unwrap();
    assert!(
        case.engine.read_state().await.unwrap().is_empty() && copy.lines().count() > objects(&case).len(),
        "{copy}"
    );
    // That of a namesake in another cluster is left alone, and kept.
    let head: serde_json::Value = serde_json::from_str(copy.lines().next().unwrap()).unwrap();
    let uid = head["installUid"].as_str().unwrap();
    std::fs::write(&file, copy.replace(uid, "another")).unwrap();
    assert!(case.engine.rollback_interrupted_run().await.unwrap().undone.is_empty());
    assert!(file.exists() && case.get("", "ConfigMap", "config").await.is_some());
    // Nothing is undone by one that lacks values which the cluster's had.
    let lost = json!({"kind": "Secret", "namespace": case.namespace, "name": "other", "apiVersion": "v1",
        "undo": "release", "patch": null});
    std::fs::write(&file, format!("{copy}{lost}\n")).unwrap();
    let refused = case.engine.rollback_interrupted_run().await.unwrap_err();
    assert!(is_useless(&refused, "the former values of Secret"), "{refused:?}");
    assert!(case.engine.read_state().await.unwrap().is_empty());
    assert!(file.exists() && case.get("", "ConfigMap", "config").await.is_some());
    std::fs::write(&file, &copy).unwrap();
    wait_for_claim(&case, CLAIM).await;
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    // All but the namespace and the keys, which stay with the claim: they may have been there before, for all the copy tells.
    assert!(undone.problems.is_empty() && undone.undone.len() == objects(&case).len() - 2, "{undone:?}");
    let kept: Vec<&str> = undone.kept.iter().map(|kept| kept.object.kind.as_str()).collect();
    assert_eq!(kept, ["PersistentVolumeClaim", "Secret", "Namespace"]);
    for (group, kind, name) in [("", "ConfigMap", "config"), ("apps", "StatefulSet", "etcd")] {
        assert!(case.get(group, kind, name).await.is_none(), "{kind}");
    }
    assert!(case.engine.read_state().await.unwrap().is_empty() && !file.exists());
    wipe(&case).await;
    assert_eq!(dump(&case).await, before);
}

/// Whether the copy of a journal on this machine was refused for such a reason.
fn is_useless(error: &Error, why: &str) -> bool {
    let Error::Inventory(inventory::Error::File { source, .. }) = error else { return false };
    source.kind() == std::io::ErrorKind::InvalidData && source.to_string().contains(why)
}

/// The uids of the set, the data and the keys, where none of them is being deleted.
async fn lasting(case: &Case) -> Vec<String> {
    let mut uids = Vec::new();
    for (group, kind, name) in
        [("", "PersistentVolumeClaim", CLAIM), ("", "Secret", "pki"), ("apps", "StatefulSet", "etcd")]
    {
        let live = case.get(group, kind, name).await;
        let live = live.filter(|live| live["metadata"]["deletionTimestamp"].is_null());
        uids.extend(live.and_then(|live| live["metadata"]["uid"].as_str().map(str::to_owned)));
    }
    uids
}

#[tokio::test]
async fn an_undoing_by_the_copy_on_this_machine_takes_no_data_that_was_there_before_the_run() {
    let case = Case::new("copied").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    case.engine.uninstall(Removal::default()).await.unwrap();
    let before = lasting(&case).await;
    assert_eq!(before.len(), 2, "the data and the keys");
    applied(&case).await.release_run().await.unwrap();
    delete_wholly(&case, "", "Secret", &case.engine.owner().record_name()).await;
    // Dead in the middle of it: what it had written down by then is no better than the copy.
    case.traffic.die_after(3, true);
    tokio::select! {
        undone = case.engine.rollback_interrupted_run() => panic!("{undone:?}"),
        () = case.traffic.died.notified() => {}
    }
    let case = case.reborn().await;
    assert!(case.engine.read_state().await.unwrap().journal.is_some_and(|journal| journal.from_copy));
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{undone:?}");
    assert!(undone.kept.iter().any(|kept| kept.object.name == CLAIM), "{undone:?}");
    assert_eq!(lasting(&case).await, before, "the set is gone, and nothing else of it");
    assert!(is_bound(&case).await, "the data is gone");
    wipe(&case).await;
}

/// Plays the kubelet until the deployment is ready.
async fn make_ready(case: &Case) {
    let pods = Kind::needed_versions("", "Pod").remove(0);
    let selection = Selection { namespace: Some(&case.namespace), labels: Some("app=d"), ..Selection::default() };
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let ready = async {
        while case.get("apps", "Deployment", "d").await.unwrap()["status"]["readyReplicas"] != 1 {
            for pod in case.server().list_objects(&pods, &selection).await.unwrap() {
                let name = format!("{}/status", pod["metadata"]["name"].as_str().unwrap());
                edit(case, "test", "", "Pod", &name, status.clone()).await;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), ready).await.expect("the deployment is ready");
}

#[tokio::test]
async fn what_was_finished_from_another_machine_is_not_undone_by_the_copy_on_this_one() {
    let first = Case::new("finished").await;
    applied(&first).await.release_run().await.unwrap();
    let second = Case::again(&first.namespace, tempfile::tempdir().unwrap(), |_| {}).await;
    second.install(&objects(&second)).await.unwrap();
    bind(&second, CLAIM).await;
    make_ready(&second).await;
    let before = lasting(&second).await;
    assert_eq!(before.len(), 3);
    delete_wholly(&second, "", "Secret", &second.engine.owner().record_name()).await;
    let refused = first.engine.rollback_interrupted_run().await.unwrap_err();
    assert!(is_useless(&refused, "has become ready since"), "{refused:?}");
    assert!(second.engine.read_state().await.unwrap().is_empty(), "nothing was written");
    assert_eq!(lasting(&second).await, before);
    assert!(second.get("", "ConfigMap", "config").await.is_some());
    wipe(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_make_between_the_look_and_the_write_is_let_go_of_and_not_deleted() {
    let case = Case::new("between").await;
    case.install(&objects(&case)[..1]).await.unwrap();
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    let data = json!({"a": "1", "other": "theirs"});
    kubectl_made(&case, "config", &data).await;
    let mut run = case.engine.begin_run(plan).await.unwrap();
    run.apply_all_stages().await.unwrap();
    let undone = run.rollback_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{undone:?}");
    let live = case.get("", "ConfigMap", "config").await.expect("it is not ours");
    assert_eq!(live["data"], data);
    assert!(live["metadata"].get("labels").is_none(), "{live}");
    case.sweep().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_made_while_a_removal_is_at_work_goes_too() {
    // The controller makes one for each member as long as the set stands, be it after the first look at them.
    remove_with_late_claim("late-claim", |case| {
        Match::verb("list").path(&format!("{}/persistentvolumeclaims", case.namespace))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_a_slow_controller_makes_after_the_last_look_goes_too() {
    // The record goes after everything else.
    remove_with_late_claim("later-claim", |case| {
        Match::verb("delete").path(&format!("{}/secrets/{}", case.namespace, case.engine.owner().record_name()))
    })
    .await;
}

/// Installs and removes with the data, and makes one more claim of the set when the given request is answered.
async fn remove_with_late_claim(name: &str, request: impl Fn(&Case) -> Match) {
    let proxy = Proxy::start(&Bed::here().unwrap(), &cluster()).unwrap();
    let case = Case::through(&proxy.kubeconfig(), name).await;
    // The namespace stays, and with it what is made in it.
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}});
    case.server().create_object(&Kind::needed_versions("", "Namespace").remove(0), &namespace).await.unwrap();
    case.install(&objects(&case)).await.unwrap();
    wait_for_claim(&case, CLAIM).await;
    let mut late = case.get("", "PersistentVolumeClaim", CLAIM).await.unwrap();
    late["metadata"] =
        json!({"name": "data-etcd-1", "namespace": case.namespace, "labels": late["metadata"]["labels"]});
    late.as_object_mut().unwrap().remove("status");
    let file = case.folder.path().join("claim.json");
    std::fs::write(&file, late.to_string()).unwrap();
    let make = move || Bed::here().unwrap().kubectl(&cluster(), &["create", "-f", file.to_str().unwrap()]).unwrap();
    proxy.on(request(&case), When::Nth(1), proxy::Action::then(move |_| assert!(make().contains("created"))));
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    let kept: Vec<&str> = removed.kept.iter().map(|kept| kept.object.kind.as_str()).collect();
    assert!(removed.leftovers.is_empty() && kept == ["Namespace"], "{removed:?}");
    assert!(removed.deleted.iter().any(|object| object.name == "data-etcd-1"), "{:?}", removed.deleted);
    assert!(case.get("", "PersistentVolumeClaim", "data-etcd-1").await.is_none());
    assert!(!case.events.lock().unwrap().iter().any(|event| matches!(event, Event::RecordLost { .. })));
    case.sweep().await;
}

#[tokio::test]
async fn a_claim_that_somebody_deletes_is_waited_for_and_not_told_as_kept() {
    let case = Case::new("leaving").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    rules::hold(&case, "PersistentVolumeClaim", CLAIM, true).await;
    delete(&case, "", "PersistentVolumeClaim", CLAIM).await;
    let is_claim = |object: &ObjectRef| object.kind == "PersistentVolumeClaim" && object.name == CLAIM;
    let planned = case.engine.plan_removal(Removal::default()).await.unwrap();
    assert!(planned.deleted.iter().any(is_claim) && !planned.kept.iter().any(|kept| is_claim(&kept.object)));
    let engine = case.engine.with_deadline(Some(Instant::now() + Duration::from_secs(60)));
    let error = engine.uninstall(Removal::default()).await.unwrap_err();
    let Error::Stuck { objects: stuck } = &error else { panic!("{error}") };
    assert!(stuck.len() == 1 && is_claim(&stuck[0].object) && stuck[0].reason.contains(rules::HELD), "{error}");
    assert!(error.reason() == "DeletionStuck" && error.is_timeout(), "{error}");

    case.events.lock().unwrap().clear();
    let unheld = async {
        rules::told_stuck_once_deleted(&case, "PersistentVolumeClaim", CLAIM).await;
        rules::hold(&case, "PersistentVolumeClaim", CLAIM, false).await;
    };
    let (removed, ()) = futures::join!(case.engine.uninstall(Removal::default()), unheld);
    let removed = removed.unwrap();
    assert!(removed.deleted.iter().any(is_claim), "{:?}", removed.deleted);
    let mut kept: Vec<&str> = removed.kept.iter().map(|kept| kept.object.kind.as_str()).collect();
    kept.sort_unstable();
    assert_eq!(kept, ["Namespace", "Secret"]);
    wipe(&case).await;
}

/// The volume that `bind` makes.
fn volume(case: &Case) -> ObjectRef {
    ObjectRef::new(&Kind::needed_versions("", "PersistentVolume")[0], None, &case.namespace)
}

#[tokio::test]
async fn a_volume_that_is_retained_is_told_as_kept_when_its_claim_is_deleted() {
    let case = Case::new("retained").await;
    case.install(&objects(&case)).await.unwrap();
    bind_by(&case, CLAIM, "Retain").await;
    let planned = case.engine.plan_removal(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert!(planned.kept.iter().any(|kept| kept.object == volume(&case)), "{:?}", planned.kept);
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert!(removed.deleted.iter().any(|object| object.name == CLAIM), "{:?}", removed.deleted);
    let [kept] = removed.kept.as_slice() else { panic!("{:?}", removed.kept) };
    let way = format!("`kubectl delete pv {}`", case.namespace);
    assert!(kept.object == volume(&case) && kept.reason.contains("Retain") && kept.reason.contains(&way), "{kept:?}");
    assert!(removed.leftovers.is_empty(), "{:?}", removed.leftovers);
    assert!(case.get("", "PersistentVolume", &case.namespace).await.is_some());
    delete_wholly(&case, "", "PersistentVolume", &case.namespace).await;
    assert!(dump(&case).await.is_empty());
}

#[tokio::test]
async fn a_volume_that_should_go_with_its_claim_and_does_not_is_left_over() {
    let case = Case::new("unreclaimed").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    // As that of a provisioner that is down.
    rules::hold(&case, "PersistentVolume", &case.namespace, true).await;
    let engine = case.engine.with_deadline(Some(Instant::now() + Duration::from_secs(45)));
    let removed = engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    let [left] = removed.leftovers.as_slice() else { panic!("{:?}", removed.leftovers) };
    assert!(left.object == volume(&case) && left.reason.contains(rules::HELD), "{left:?}");
    assert!(removed.kept.is_empty(), "{:?}", removed.kept);
    rules::hold(&case, "PersistentVolume", &case.namespace, false).await;
    while case.get("", "PersistentVolume", &case.namespace).await.is_some() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(dump(&case).await.is_empty());
}

#[tokio::test]
async fn nothing_is_kept_in_a_namespace_that_somebody_deletes() {
    let case = Case::new("emptied").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    rules::hold(&case, "PersistentVolumeClaim", CLAIM, true).await;
    case.sweep().await;
    let explained = async {
        let held = |event: &Event| matches!(event, Event::Stuck { message, .. } if message.contains(rules::HELD));
        rules::told(&case, 90, held).await;
        rules::hold(&case, "PersistentVolumeClaim", CLAIM, false).await;
    };
    let (removed, ()) = futures::join!(case.engine.uninstall(Removal::default()), explained);
    let removed = removed.unwrap();
    assert!(removed.kept.is_empty() && removed.leftovers.is_empty(), "{removed:?}");
    let kept = |event: &Event| matches!(event, Event::Object { done: Done::Kept, .. });
    assert!(!case.events.lock().unwrap().iter().any(kept), "{:?}", case.events.lock().unwrap());
    let namespaces = Kind::needed_versions("", "Namespace").remove(0);
    assert!(case.server().get_object(&namespaces, None, &case.namespace).await.unwrap().is_none());
    assert!(removed.deleted.iter().any(|object| object.kind == "Namespace"), "{:?}", removed.deleted);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_request_deletes_whose_answer_is_lost_is_told_as_deleted() {
    let proxy = Proxy::start(&Bed::here().unwrap(), &cluster()).unwrap();
    let case = Case::through(&proxy.kubeconfig(), "unheard").await;
    case.install(&objects(&case)).await.unwrap();
    let path = format!("{}/configmaps/config", case.namespace);
    proxy.on(Match::verb("delete").path(&path), When::Nth(1), proxy::Action::DropAnswer);
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    let tries = proxy.seen().iter().filter(|seen| seen.verb() == "delete" && seen.path.contains(&path)).count();
    assert_eq!(tries, 2);
    assert!(removed.deleted.iter().any(|object| object.kind == "ConfigMap"), "{:?}", removed.deleted);
    assert!(dump(&case).await.is_empty());
}

#[tokio::test]
async fn who_is_refused_for_a_plan_that_is_out_of_date_leaves_no_record_where_there_is_none() {
    let first = Case::with("empty", |options| options.holder.pid = std::process::id()).await;
    // A namespace of others, which nobody here deletes.
    let theirs = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": first.namespace}});
    first.server().create_object(&Kind::needed_versions("", "Namespace").remove(0), &theirs).await.unwrap();
    let run = applied(&first).await;
    // The second process lives too: it is process 1 of this host.
    let second = Case::again(&first.namespace, tempfile::tempdir().unwrap(), |options| options.holder.pid = 1).await;
    let plan = second.engine.plan_install(&release(), &objects(&second)).await.unwrap();
    let undone = run.rollback_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    let refused = second.engine.begin_run(plan).await.unwrap_err();
    assert_eq!(refused.reason(), "PlanOutdated", "{refused}");
    assert!(!second.engine.has_begun());
    assert!(second.engine.read_state().await.unwrap().is_empty());
    let record = second.get("", "Secret", &second.engine.owner().record_name()).await;
    assert!(record.is_none(), "{record:?}");
    second.sweep().await;
}

#[tokio::test]
async fn what_is_kept_of_an_install_that_was_interrupted_is_known_by_its_release() {
    let case = Case::new("release").await;
    applied(&case).await.release_run().await.unwrap();
    bind(&case, CLAIM).await;
    case.engine.uninstall(Removal::default()).await.unwrap();
    assert!(is_bound(&case).await);
    assert_eq!(case.engine.read_state().await.unwrap().record.unwrap().release, release());
    // The caller may know better of what version the data is.
    let data_version = Some("v2.0.0".to_owned());
    case.engine.uninstall(Removal { data_version, ..Removal::default() }).await.unwrap();
    assert_eq!(case.engine.read_state().await.unwrap().record.unwrap().release.version, "v2.0.0");
    wipe(&case).await;
}

#[tokio::test]
async fn a_claim_that_a_pod_mounts_is_told_with_the_pod_and_goes_when_that_does() {
    let case = Case::new("mounted").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader", "namespace": case.namespace},
        "spec": {"containers": [{"name": "c", "image": "example.com/none:1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}]}});
    case.server().create_object(&Kind::needed_versions("", "Pod")[0], &pod).await.unwrap();
    // As the controller that protects claims does while a pod of a node mounts one.
    rules::hold(&case, "PersistentVolumeClaim", CLAIM, true).await;
    let engine = case.engine.with_deadline(Some(Instant::now() + Duration::from_secs(60)));
    let all = Removal { delete_data: true, ..Removal::default() };
    let error = engine.uninstall(all.clone()).await.unwrap_err();
    let Error::Stuck { objects: stuck } = &error else { panic!("{error}") };
    assert!(stuck.len() == 1 && stuck[0].object.name == CLAIM, "{error}");
    assert_eq!(stuck[0].reason, "pod reader mounts it: delete that pod first");
    delete(&case, "", "Pod", "reader").await;
    rules::hold(&case, "PersistentVolumeClaim", CLAIM, false).await;
    case.engine.uninstall(all).await.unwrap();
    wipe(&case).await;
}

#[tokio::test]
async fn of_what_version_the_data_is_outlives_a_removal_that_gets_stuck() {
    let case = Case::new("data-version").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    rules::hold(&case, "ConfigMap", "config", true).await;
    let engine = case.engine.with_deadline(Some(Instant::now() + Duration::from_secs(60)));
    let data_version = Some("v2.0.0".to_owned());
    let error = engine.uninstall(Removal { data_version, ..Removal::default() }).await.unwrap_err();
    assert_eq!(error.reason(), "DeletionStuck", "{error}");
    rules::hold(&case, "ConfigMap", "config", false).await;
    // What told the version is gone by now.
    case.engine.uninstall(Removal::default()).await.unwrap();
    assert!(is_bound(&case).await);
    assert_eq!(case.engine.read_state().await.unwrap().record.unwrap().release.version, "v2.0.0");
    wipe(&case).await;
}

#[tokio::test]
async fn a_stranger_whose_kind_is_in_no_preferred_version_keeps_its_namespace_too() {
    let case = Case::new("versions").await;
    case.install(&objects(&case)).await.unwrap();
    let server = case.server();
    let group = format!("{}.example", case.namespace);
    let definitions = Kind::needed_versions("apiextensions.k8s.io", "CustomResourceDefinition").remove(0);
    for (kind, plural, version) in [("One", "ones", "v1"), ("Two", "twos", "v1alpha1")] {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": version, "served": true, "storage": true, "schema": schema}]}});
        server.create_object(&definitions, &definition).await.unwrap();
    }
    let served = async {
        loop {
            if let (Ok(_), Ok(two)) =
                (server.find_served_kind(&group, "One").await, server.find_served_kind(&group, "Two").await)
            {
                return two;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let twos = tokio::time::timeout(Duration::from_secs(60), served).await.expect("the kinds are served");
    assert_eq!(twos.version, "v1alpha1");
    let theirs = json!({"apiVersion": twos.api_version(), "kind": "Two",
        "metadata": {"name": "theirs", "namespace": case.namespace}});
    let create = async {
        // What lists a kind may know it before what makes its objects does.
        while server.create_object(&twos, &theirs).await.is_err_and(|error| error.is_not_found()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), create).await.expect("the kind can be made");
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    let namespace = removed.kept.iter().find(|kept| kept.object.kind == "Namespace").expect("kept");
    assert!(namespace.reason.contains("Two theirs"), "{}", namespace.reason);
    for plural in ["ones", "twos"] {
        let name = format!("{plural}.{group}");
        let live = server.get_object(&definitions, None, &name).await.unwrap().unwrap();
        let object = ObjectRef::new(&definitions, None, &name);
        server.delete_object(&definitions, &object, live["metadata"]["uid"].as_str().unwrap()).await.unwrap();
    }
    case.sweep().await;
}
