//! Install, install again, change, prune, uninstall: what is written and what is not.

use std::time::{Duration, Instant};

use bed::Bed;
use fleetctl::apply::{APPLYSET_TOOLING, Action, Error, Kind, ObjectRef, Phase, Planned, Policy, Removal, Selection};
use serde_json::json;

use super::kill::wipe;
use super::support::{Case, dump, kubeconfig, objects, release};

#[tokio::test]
async fn a_second_install_of_the_same_inputs_sends_no_write_at_all() {
    let case = Case::new("noop").await;
    let before = dump(&case).await;
    case.install(&objects(&case)).await.unwrap();
    let installed = dump(&case).await;
    assert!(installed.len() > before.len() + 8, "{:?}", installed.keys());
    let (writes, reads) = (case.traffic.writes(), case.traffic.reads());
    let plan = case.engine.plan(&release(), &objects(&case)).await.unwrap();
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
    let plan = case.engine.plan(&release(), &all).await.unwrap();
    let reads = case.traffic.reads();
    let mut run = case.engine.begin(plan).await.unwrap();
    // The namespace, and in one write the lock, the journal and the first stage in it.
    assert_eq!((case.traffic.writes(), case.traffic.reads() - reads), (2, 0));
    let journal = case.engine.state().await.unwrap().journal.unwrap();
    let of_first = all.iter().filter(|planned| planned.stage == 1).count();
    assert_eq!((journal.steps.len(), journal.release), (of_first, Some(release())));
    run.apply_stage(1).await.unwrap();
    assert_eq!(case.traffic.writes(), 2 + of_first);
    run.apply_stage(2).await.unwrap();
    run.commit().await.unwrap();
    assert_eq!(case.traffic.writes(), all.len() + 3);
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_rollback_tells_what_it_undid_and_not_what_was_only_written_down() {
    let case = Case::new("told").await;
    let all = objects(&case);
    let plan = async || case.engine.plan(&release(), &all).await.unwrap();
    case.engine.begin(plan().await).await.unwrap().release().await.unwrap();
    assert!(!case.engine.state().await.unwrap().journal.unwrap().steps.is_empty());
    let namespace = || ObjectRef::new(&Kind::versions("", "Namespace")[0], None, &case.namespace);
    assert_eq!(case.engine.rollback().await.unwrap().undone, [namespace()]);
    let mut run = case.engine.begin(plan().await).await.unwrap();
    run.apply_stage(1).await.unwrap();
    let journal = case.engine.state().await.unwrap().journal.unwrap();
    // The last first, but for the keys, which go when nothing is left that was written under them.
    let (keys, made): (Vec<_>, Vec<_>) = journal.steps.into_iter().rev().partition(|step| step.policy == Policy::Keep);
    let undone = made.into_iter().chain(keys).map(|step| step.object).chain([namespace()]);
    assert_eq!(run.rollback().await.unwrap().undone, undone.collect::<Vec<_>>());
    assert!(dump(&case).await.is_empty());
}

#[tokio::test]
async fn a_run_that_used_up_its_time_still_records_what_it_did() {
    let case = Case::new("late").await;
    let deadline = Instant::now() + Duration::from_secs(20);
    let engine = case.engine.with_deadline(Some(deadline));
    let mut run = engine.begin(engine.plan(&release(), &objects(&case)).await.unwrap()).await.unwrap();
    run.apply().await.unwrap();
    tokio::time::sleep_until(deadline.into()).await;
    run.commit().await.unwrap();
    let state = case.engine.state().await.unwrap();
    assert!(state.record.is_some() && state.journal.is_none() && state.lock.is_none());
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_run_that_takes_long_has_its_lock_renewed_without_a_write_of_its_own() {
    let case = Case::new("renewed").await;
    let run = case.engine.begin(case.engine.plan(&release(), &objects(&case)).await.unwrap()).await.unwrap();
    let expires = async || {
        let lock = case.engine.state().await.unwrap().lock.expect("it is held");
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
    run.rollback().await.unwrap();
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
    let plan = case.engine.plan(&release(), &next).await.unwrap();
    assert_eq!((plan.writes(), plan.prune.len()), (1, 1));
    case.install(&next).await.unwrap();
    assert_eq!(case.get("", "ConfigMap", "config").await.unwrap()["data"], json!({"a": "1", "c": "3"}));
    assert!(case.get("policy", "PodDisruptionBudget", "b").await.is_none());
    assert!(case.engine.plan(&release(), &next).await.unwrap().is_noop());
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_field_edited_by_hand_is_shown_as_drift_and_repaired() {
    let case = Case::new("drift").await;
    case.install(&objects(&case)).await.unwrap();
    edit(&case, "kubectl-edit", "", "ConfigMap", "config", json!({"data": {"a": "edited", "theirs": "x"}})).await;
    let plan = case.engine.plan(&release(), &objects(&case)).await.unwrap();
    let step = plan.steps.iter().find(|step| step.target.kind == "ConfigMap").unwrap();
    assert_eq!((step.action, step.drift.as_slice()), (Action::Change, &[".data.a".to_owned()][..]));
    case.install(&objects(&case)).await.unwrap();
    let data = case.get("", "ConfigMap", "config").await.unwrap()["data"].clone();
    assert_eq!(data, json!({"a": "1", "b": "2", "theirs": "x"}), "our field is back, and theirs stays");
    assert!(case.engine.plan(&release(), &objects(&case)).await.unwrap().is_noop());
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn replicas_are_left_to_an_autoscaler_and_taken_back_on_request() {
    let case = Case::new("scaled").await;
    case.install(&objects(&case)).await.unwrap();
    // As a HorizontalPodAutoscaler writes them.
    let two = json!({"spec": {"replicas": 2}});
    edit(&case, "kube-controller-manager", "apps", "Deployment", "d/scale", two).await;
    assert_eq!(case.engine.drift().await.unwrap(), []);
    let replicas = async || case.get("apps", "Deployment", "d").await.unwrap()["spec"]["replicas"].clone();
    for _ in 0..2 {
        case.install(&objects(&case)).await.unwrap();
        assert_eq!(replicas().await, 2);
        assert_eq!(case.engine.drift().await.unwrap(), []);
    }
    assert!(case.engine.plan(&release(), &objects(&case)).await.unwrap().is_noop());
    // That one field is the autoscaler's hides no other.
    let label = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "edited"}}});
    edit(&case, "kubectl-edit", "apps", "Deployment", "d", label).await;
    let strayed = case.engine.drift().await.unwrap();
    assert_eq!(strayed.iter().map(|drift| drift.object.name.as_str()).collect::<Vec<_>>(), ["d"]);
    let taking = Case::again(&case.namespace, tempfile::tempdir().unwrap(), |options| {
        options.take_fields = vec!["Deployment/d:.spec.replicas".to_owned()];
    });
    let taking = taking.await;
    taking.install(&objects(&taking)).await.unwrap();
    assert_eq!(replicas().await, 1);
    // What a person scales is for that person to say.
    edit(&case, "kubectl", "apps", "Deployment", "d/scale", json!({"spec": {"replicas": 3}})).await;
    let error = case.install(&objects(&case)).await.unwrap_err();
    assert!(matches!(&error, Error::Conflicts { .. }), "{error}");
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_diff_is_the_servers_own_and_shows_no_secret() {
    let case = Case::new("diff").await;
    let fresh = case.engine.diff(&case.engine.plan(&release(), &objects(&case)).await.unwrap()).await.unwrap();
    assert_eq!(fresh.len(), objects(&case).len());
    assert!(
        fresh.iter().filter(|d| d.object.namespace.is_some()).all(|d| d.note.is_some()),
        "the namespace is not there yet"
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
    let plan = case.engine.plan(&release(), &next).await.unwrap();
    let found = case.engine.diff(&plan).await.unwrap();
    let lines: Vec<String> =
        found.iter().flat_map(|d| d.fields.iter().map(move |f| format!("{} {}", d.object.kind, f.path))).collect();
    assert_eq!(lines, ["Secret .data.key", "ConfigMap .data.b"]);
    let text = format!("{found:?}");
    assert!(!text.contains("b3RoZXI=") && !text.contains("aHVudGVyMg=="), "{text}");
    assert_eq!(case.get("", "ConfigMap", "config").await.unwrap()["data"]["b"], "2", "nothing was stored");
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_field_of_another_manager_is_a_conflict_that_one_flag_resolves() {
    let mut case = Case::new("conflict").await;
    case.install(&objects(&case)).await.unwrap();
    edit(&case, "some-operator", "apps", "Deployment", "d", json!({"spec": {"replicas": 3, "paused": true}})).await;
    let error = case.install(&objects(&case)).await.unwrap_err();
    let Error::Conflicts { conflicts } = &error else { panic!("{error}") };
    assert_eq!(conflicts.len(), 1);
    let conflict = &conflicts[0];
    assert_eq!((conflict.field.as_str(), conflict.manager.as_str()), (".spec.replicas", "some-operator"));
    assert_eq!((conflict.ours.as_str(), conflict.theirs.as_str()), ("1", "3"));
    assert!(conflict.since.is_some());
    assert_eq!(error.remedy().unwrap(), "to overwrite just these, add --take-fields 'Deployment/d:.spec.replicas'");
    case = case.reborn().await;
    let mut engine_options = fleetctl::apply::Options { take_fields: vec![conflict.flag()], ..Default::default() };
    engine_options.lock_wait = std::time::Duration::from_secs(40);
    let taking = fleetctl::apply::Engine::new(
        super::support::client().await.0,
        case.engine.owner().clone(),
        engine_options,
        fleetctl::apply::Events::none(),
    );
    let plan = taking.plan(&release(), &objects(&case)).await.unwrap();
    let mut run = taking.begin(plan).await.unwrap();
    run.apply().await.unwrap();
    run.commit().await.unwrap();
    let spec = case.get("apps", "Deployment", "d").await.unwrap()["spec"].clone();
    assert_eq!((spec["replicas"].as_i64(), spec["paused"].as_bool()), (Some(1), Some(true)), "nothing else was taken");
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn what_others_made_with_our_labels_stays_with_its_pods_and_is_not_waited_for() {
    let case = Case::new("copied").await;
    case.install(&objects(&case)).await.unwrap();
    let mut copies = objects(&case);
    copies.retain(|planned| matches!(planned.object["kind"].as_str(), Some("Deployment" | "StatefulSet")));
    for copy in &mut copies {
        let object = &mut copy.object;
        let name = format!("other-{}", object["metadata"]["name"].as_str().unwrap());
        object["metadata"] = json!({"name": name, "namespace": case.namespace});
        object["spec"]["selector"]["matchLabels"]["app"] = name.clone().into();
        object["spec"]["template"]["metadata"]["labels"]["app"] = name.into();
        case.engine.owner().stamp(object);
        let kind = Kind::versions("apps", object["kind"].as_str().unwrap()).remove(0);
        case.server().create(&kind, object).await.unwrap();
    }
    wait_for_claim(&case, "data-other-etcd-0").await;
    let pods = async {
        while theirs(&case, "Pod").await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), pods).await.expect("the pods of the copies");

    let engine = case.engine.with_deadline(Some(Instant::now() + Duration::from_secs(60)));
    let all = Removal { delete_data: true, skip_search: true, ..Removal::default() };
    let removed = engine.uninstall(all.clone()).await.unwrap();
    assert!(removed.deleted.iter().any(|gone| gone.kind == "StatefulSet"), "{:?}", removed.deleted);
    let left = ["Deployment", "StatefulSet", "Pod", "PersistentVolumeClaim"];
    for (kind, count) in left.into_iter().zip([1, 1, 2, 1]) {
        assert_eq!(theirs(&case, kind).await.len(), count, "{kind}");
    }
    // There is nothing else of that name any more: that is said, and nothing is done.
    for error in [engine.plan_removal(all.clone()).await.unwrap_err(), engine.uninstall(all).await.unwrap_err()] {
        assert!(matches!(&error, Error::MadeByOthers { objects } if objects.len() == 2), "{error}");
    }
    case.sweep().await;
}

/// The objects with the labels of the installation whose names say that others made them.
async fn theirs(case: &Case, kind: &str) -> Vec<String> {
    let group = if matches!(kind, "Deployment" | "StatefulSet") { "apps" } else { "" };
    let selector = case.engine.owner().selector();
    let selection = Selection { namespace: Some(&case.namespace), labels: Some(&selector), ..Selection::default() };
    let found = case.server().list(&Kind::versions(group, kind).remove(0), &selection).await.unwrap();
    let names = found.iter().filter_map(|found| Some(found["metadata"]["name"].as_str()?.to_owned()));
    names.filter(|name| name.contains("other-")).collect()
}

#[tokio::test]
async fn an_object_of_our_name_that_is_not_ours_is_never_touched() {
    let case = Case::new("foreign").await;
    let namespaces = Kind::versions("", "Namespace").remove(0);
    let maps = Kind::versions("", "ConfigMap").remove(0);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}});
    case.server().create(&namespaces, &namespace).await.unwrap();
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": case.namespace}, "data": {"x": "y"}});
    case.server().create(&maps, &theirs).await.unwrap();
    // A look-alike: all our labels, but never applied by us.
    let mut twin =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "twin", "namespace": case.namespace}});
    case.engine.owner().stamp(&mut twin);
    case.server().create(&maps, &twin).await.unwrap();
    let before = dump(&case).await;
    let error = case.install(&objects(&case)).await.unwrap_err();
    let Error::NotOurs { objects: foreign } = &error else { panic!("{error}") };
    assert_eq!(
        foreign.iter().map(|f| f.object.to_string()).collect::<Vec<_>>(),
        [format!("ConfigMap {}/config", case.namespace)]
    );
    assert_eq!(dump(&case).await, before, "nothing was written");
    let mut fewer = objects(&case);
    fewer.retain(|planned| planned.object["kind"] != "ConfigMap");
    case.install(&fewer).await.unwrap();
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert_eq!(dump(&case).await, before, "foreign objects, the look-alike and the namespace that was there stay");
    assert!(
        removed.kept.iter().any(|kept| kept.object.kind == "Namespace" && kept.why.contains("before")),
        "{:?}",
        removed.kept
    );
    assert_eq!(
        removed.leftovers.iter().map(|l| l.object.name.as_str()).collect::<Vec<_>>(),
        ["twin"],
        "it is reported"
    );
    case.sweep().await;
}

/// A ConfigMap that is not ours, as `kubectl apply` makes it.
pub(crate) async fn kubectl_made(case: &Case, name: &str, data: &serde_json::Value) {
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": case.namespace}, "data": data});
    made_by_kubectl(case, "", "ConfigMap", &manifest).await;
}

/// Makes an object as `kubectl apply` does.
pub(crate) async fn made_by_kubectl(case: &Case, group: &str, kind: &str, manifest: &serde_json::Value) {
    let path = Kind::versions(group, kind).remove(0).collection(Some(&case.namespace));
    let request = http::Request::post(format!("{path}?fieldManager=kubectl-client-side-apply"))
        .header("content-type", "application/json")
        .header("user-agent", "kubectl/v1.25")
        .body(serde_json::to_vec(manifest).unwrap())
        .unwrap();
    case.server().client().request::<serde_json::Value>(request).await.unwrap();
}

#[tokio::test]
async fn what_kubectl_made_is_taken_over_on_request_and_given_back_by_a_rollback() {
    let case = Case::with("adopt", |options| options.adopt = true).await;
    case.install(&objects(&case)[..1]).await.unwrap();
    let theirs = json!({"a": "theirs", "old": "x"});
    kubectl_made(&case, "config", &theirs).await;
    let plan = case.engine.plan(&release(), &objects(&case)).await.unwrap();
    assert_eq!(plan.count(Action::Adopt), 1);
    let shown = case.engine.diff(&plan).await.unwrap();
    let map = shown.iter().find(|difference| difference.object.name == "config").unwrap();
    let told = |path: &str| {
        map.fields.iter().find(|field| field.path == path).map(|f| (f.before.as_deref(), f.after.as_deref()))
    };
    assert_eq!(told(".data.old"), Some((Some("\"x\""), None)), "what it set and we do not would go: {:?}", map.fields);
    assert_eq!(told(".data.a"), Some((Some("\"theirs\""), Some("\"1\""))));
    let mut run = case.engine.begin(plan).await.unwrap();
    // As a controller may, between the look and the write.
    let touched = json!({"metadata": {"annotations": {"example.com/seen": "yes"}}});
    edit(&case, "some-operator", "", "ConfigMap", "config", touched).await;
    run.apply().await.unwrap();
    let data = case.get("", "ConfigMap", "config").await.unwrap()["data"].clone();
    assert_eq!(data, json!({"a": "1", "b": "2"}), "what it set and we do not is gone");
    let undone = run.rollback().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    let live = case.get("", "ConfigMap", "config").await.unwrap();
    assert_eq!(live["data"], theirs);
    assert!(live["metadata"].get("labels").is_none(), "{live}");
    case.install(&objects(&case)).await.unwrap();
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
    assert!(dump(&case).await.is_empty());
}

#[tokio::test]
async fn what_another_applied_server_side_is_ours_after_an_adoption_and_changes_without_a_conflict() {
    let case = Case::with("helm", |options| options.adopt = true).await;
    case.install(&objects(&case)[..1]).await.unwrap();
    let maps = Kind::versions("", "ConfigMap").remove(0);
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "config", "namespace": case.namespace}, "data": {"a": "1", "b": "2"}});
    let path = format!("{}/config?fieldManager=helm", maps.collection(Some(&case.namespace)));
    let request = http::Request::patch(path)
        .header("content-type", "application/apply-patch+yaml")
        .body(serde_json::to_vec(&manifest).unwrap())
        .unwrap();
    case.server().client().request::<serde_json::Value>(request).await.unwrap();
    case.install(&objects(&case)).await.unwrap();
    // Nobody holds the former values with us.
    let mut next = objects(&case);
    for planned in next.iter_mut().filter(|planned| planned.object["kind"] == "ConfigMap") {
        planned.object["data"] = json!({"a": "2"});
    }
    case.install(&next).await.unwrap();
    assert_eq!(case.get("", "ConfigMap", "config").await.unwrap()["data"], json!({"a": "2"}));
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
    case.sweep().await;
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
    assert!(one.engine.plan(&release(), &objects(&one)).await.unwrap().is_noop());
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
    let state = case.engine.state().await.unwrap();
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
    let maps = Kind::versions("", "ConfigMap").remove(0);
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": case.namespace}});
    case.server().create(&maps, &theirs).await.unwrap();
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    let namespace = removed.kept.iter().find(|kept| kept.object.kind == "Namespace").expect("kept");
    assert!(namespace.why.contains("ConfigMap theirs"), "{}", namespace.why);
    assert!(removed.leftovers.is_empty(), "{:?}", removed.leftovers);
    case.sweep().await;
}

#[tokio::test]
async fn two_installations_share_a_namespace_without_touching_each_other() {
    let one = Case::new("shared").await;
    one.install(&objects(&one)).await.unwrap();
    let owner = fleetctl::apply::Owner::new("agent", &format!("{}-b", one.namespace), &one.namespace);
    let engine = fleetctl::apply::Engine::new(
        super::support::client().await.0,
        owner,
        fleetctl::apply::Options::default(),
        fleetctl::apply::Events::none(),
    );
    let map = Planned::new(1, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}));
    let namespace =
        Planned::new(0, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one.namespace}}));
    let plan = engine.plan(&release(), &[namespace, map]).await.unwrap();
    assert_eq!(plan.count(Action::Leave), 1, "a namespace of another installation is left alone");
    let mut run = engine.begin(plan).await.unwrap();
    run.apply().await.unwrap();
    run.commit().await.unwrap();
    assert!(one.engine.plan(&release(), &objects(&one)).await.unwrap().is_noop());
    let plan = engine.plan(&release(), &objects(&one)[3..4]).await.unwrap();
    assert_eq!(plan.foreign[0].install.as_deref(), Some(one.namespace.as_str()));
    engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
    assert!(one.get("", "ConfigMap", "other").await.is_none() && one.get("", "ConfigMap", "config").await.is_some());
    one.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_lost_record_is_rebuilt_from_labels() {
    let case = Case::new("lost").await;
    case.install(&objects(&case)).await.unwrap();
    let secrets = Kind::versions("", "Secret").remove(0);
    let record = case.get("", "Secret", &case.engine.owner().record_name()).await.unwrap();
    let reference = ObjectRef::of(&record).unwrap();
    case.server().delete(&secrets, &reference, record["metadata"]["uid"].as_str().unwrap()).await.unwrap();
    case.install(&objects(&case)).await.unwrap();
    let rebuilt = case.engine.state().await.unwrap().record.unwrap();
    assert_eq!(rebuilt.inventory.len(), objects(&case).len());
    assert!(rebuilt.namespace_created, "it says by whom it was made");
    let record = case.get("", "Secret", &case.engine.owner().record_name()).await.unwrap();
    case.server().delete(&secrets, &reference, record["metadata"]["uid"].as_str().unwrap()).await.unwrap();
    // What other inputs hold no more is known by its labels, too; the keys among it stay.
    let kinds = ["Namespace", "ConfigMap"];
    let few: Vec<_> =
        objects(&case).into_iter().filter(|p| kinds.contains(&p.object["kind"].as_str().unwrap())).collect();
    case.install(&few).await.unwrap();
    assert!(case.get("policy", "PodDisruptionBudget", "b").await.is_none(), "it is planned no more");
    assert!(case.get("", "Secret", "pki").await.is_some(), "keys are never pruned");
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert!(removed.leftovers.is_empty() && dump(&case).await.is_empty(), "{:?}", dump(&case).await.keys());
}

/// `kubectl apply --prune --applyset` of one more object, with the set of an installation.
fn apply_set(case: &Case, more: &[&str]) -> std::process::Output {
    let one = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    let file = case.folder.path().join("one.yaml");
    std::fs::write(&file, one.to_string()).unwrap();
    // That of the oldest Kubernetes has no sets yet.
    let kubectl = Bed::here().unwrap().kubectl_of("api").unwrap();
    assert!(kubectl.is_file(), "`cargo bed build` first: there is no {}", kubectl.display());
    let mut command = std::process::Command::new(kubectl);
    command.env("KUBECTL_APPLYSET", "true").args(["apply", "--namespace", &case.namespace, "--prune"]);
    command.arg(format!("--applyset=secret/{}", case.engine.owner().record_name())).arg("--filename").arg(file);
    command.arg("--kubeconfig").arg(kubeconfig()).arg("--cache-dir").arg(case.folder.path().join("cache"));
    command.args(more).output().unwrap()
}

#[tokio::test]
async fn kubectl_leaves_our_set_alone_and_knows_each_of_its_members() {
    let case = Case::new("set").await;
    case.install(&objects(&case)).await.unwrap();
    let installed = dump(&case).await;
    let refused = apply_set(&case, &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("managed by tooling \"fleetctl\""), "{said}");
    assert_eq!(dump(&case).await, installed, "nothing was written");

    // Were it kubectl's, it would prune all of it, and nothing else.
    let record = case.engine.owner().record_name();
    let tooling = case.get("", "Secret", &record).await.unwrap()["metadata"]["annotations"][APPLYSET_TOOLING].clone();
    let members = case.engine.state().await.unwrap().record.unwrap().inventory;
    let now_of = |tool: serde_json::Value| json!({"metadata": {"annotations": {APPLYSET_TOOLING: tool}}});
    edit(&case, "test", "", "Secret", &record, now_of("kubectl/v1.31".into())).await;
    let shown = apply_set(&case, &["--dry-run=server"]);
    let (listed, said) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    assert!(shown.status.success(), "{said}");
    let mut pruned: Vec<&str> =
        listed.lines().filter_map(|line| line.strip_suffix(" pruned (server dry run)")).collect();
    pruned.sort_unstable();
    let name = |object: &ObjectRef| {
        let kind = object.kind.to_lowercase();
        if object.group.is_empty() {
            format!("{kind}/{}", object.name)
        } else {
            format!("{kind}.{}/{}", object.group, object.name)
        }
    };
    let mut expected: Vec<String> = members.iter().map(|item| name(&item.object)).collect();
    expected.sort_unstable();
    assert_eq!(
        (pruned.len(), pruned),
        (objects(&case).len(), expected.iter().map(String::as_str).collect()),
        "{listed}"
    );
    edit(&case, "test", "", "Secret", &record, now_of(tooling)).await;
    assert_eq!(dump(&case).await, installed, "nothing was written");
    wipe(&case).await.unwrap();
    assert!(dump(&case).await.is_empty());
}

/// Changes an object as another manager.
pub(crate) async fn edit(case: &Case, manager: &str, group: &str, kind: &str, name: &str, patch: serde_json::Value) {
    let kind = Kind::versions(group, kind).remove(0);
    let path = format!("{}/{name}?fieldManager={manager}", kind.collection(Some(&case.namespace)));
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(&patch).unwrap())
        .unwrap();
    case.server().client().request::<serde_json::Value>(request).await.unwrap();
}

pub(crate) async fn wait_for_claim(case: &Case, name: &str) {
    for _ in 0..100 {
        if case.get("", "PersistentVolumeClaim", name).await.is_some() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("no claim {name}");
}

/// Makes a claim look bound, as a provisioner would.
pub(crate) async fn bind(case: &Case, name: &str) {
    wait_for_claim(case, name).await;
    let volumes = Kind::versions("", "PersistentVolume").remove(0);
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": case.namespace},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": case.namespace, "name": name}, "hostPath": {"path": "/tmp/none"}}});
    case.server().create(&volumes, &volume).await.unwrap();
    for _ in 0..200 {
        let claim = case.get("", "PersistentVolumeClaim", name).await.unwrap();
        if claim["status"]["phase"] == "Bound" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the claim {name} is not bound");
}
