//! What a run took over or changed is as it was again after its undoing.

use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Action, Planned, Removal};
use serde_json::json;

use super::actors::{bind, delete_wholly, edit, kubectl_made, made_by_kubectl};
use super::data_retention::{CLAIM, applied, is_bound, wipe};
use super::support::{Case, objects, release};

#[tokio::test]
async fn what_an_interrupted_install_took_over_is_given_back_by_an_uninstall() {
    let case = Case::with("given", |options| options.adopt = true).await;
    case.install(&objects(&case)[..1]).await.unwrap();
    let data = json!({"a": "theirs", "old": "x"});
    kubectl_made(&case, "config", &data).await;
    let run = applied(&case).await;
    run.release_run().await.unwrap();
    for delete_data in [false, true] {
        let removed = case.engine.uninstall(Removal { delete_data, ..Removal::default() }).await.unwrap();
        assert!(removed.leftovers.is_empty(), "{removed:?}");
        let live = case.get("", "ConfigMap", "config").await.unwrap_or_else(|| panic!("gone, with data {delete_data}"));
        assert_eq!(live["data"], data);
        assert!(live["metadata"].get("labels").is_none(), "{live}");
    }
    delete_wholly(&case, "", "ConfigMap", "config").await;
    case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
}

/// The objects with another value of the field `a` of the ConfigMap.
fn with_a(case: &Case, value: &str) -> Vec<Planned> {
    let mut all = objects(case);
    for planned in all.iter_mut().filter(|planned| planned.object["kind"] == "ConfigMap") {
        planned.object["data"]["a"] = value.into();
    }
    all
}

async fn value_of_a(case: &Case) -> serde_json::Value {
    case.get("", "ConfigMap", "config").await.unwrap()["data"]["a"].clone()
}

#[tokio::test]
async fn the_former_values_come_back_after_a_change_that_was_interrupted() {
    let case = Case::new("former").await;
    case.install(&objects(&case)).await.unwrap();
    let plan = case.engine.plan_install(&release(), &with_a(&case, "2")).await.unwrap();
    let mut run = case.engine.begin_run(plan).await.unwrap();
    run.apply_all_stages().await.unwrap();
    run.release_run().await.unwrap();
    assert_eq!(value_of_a(&case).await, "2");
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    assert_eq!(plan.count_steps(Action::Change), 1, "only what the change had come to");
    case.install(&objects(&case)).await.unwrap();
    assert_eq!(value_of_a(&case).await, "1");
    assert!(case.engine.plan_install(&release(), &objects(&case)).await.unwrap().is_noop());
    wipe(&case).await;
}

#[tokio::test]
async fn what_somebody_had_set_by_hand_is_theirs_again_after_a_rollback() {
    let case = Case::new("hand").await;
    case.install(&objects(&case)).await.unwrap();
    edit(&case, "kubectl-edit", "", "ConfigMap", "config", json!({"data": {"a": "by hand"}})).await;
    // A field without which there is no such object, so that nobody can merely let go of it.
    let image =
        json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "example.com/by-hand"}]);
    let path = Kind::needed_versions("apps", "Deployment").remove(0).collection_path(Some(&case.namespace));
    let request = http::Request::patch(format!("{path}/d?fieldManager=kubectl-set"))
        .header("content-type", "application/json-patch+json")
        .body(serde_json::to_vec(&image).unwrap())
        .unwrap();
    case.server().client().request::<serde_json::Value>(request).await.unwrap();
    let drift = case.engine.find_drift().await.unwrap();
    assert_eq!(drift.len(), 2);
    let plan = case.engine.plan_install(&release(), &with_a(&case, "2")).await.unwrap();
    let mut run = case.engine.begin_run(plan).await.unwrap();
    run.apply_all_stages().await.unwrap();
    assert_eq!(value_of_a(&case).await, "2");
    let undone = run.rollback_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    assert_eq!(value_of_a(&case).await, "by hand");
    let deployment = case.get("apps", "Deployment", "d").await.unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "example.com/by-hand");
    assert_eq!(case.engine.find_drift().await.unwrap(), drift, "it strays as it did before");
    case.install(&objects(&case)).await.unwrap();
    assert_eq!(value_of_a(&case).await, "1");
    assert_eq!(case.engine.find_drift().await.unwrap(), []);
    wipe(&case).await;
}

#[tokio::test]
async fn a_workload_that_was_taken_over_is_given_back_as_it_was() {
    let case = Case::with("theirs", |options| options.adopt = true).await;
    case.install(&objects(&case)[..1]).await.unwrap();
    let theirs = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": case.namespace},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d", "old": "x"}},
            "spec": {"containers": [{"name": "c", "image": "example.com/theirs"}, {"name": "more", "image": "example.com/more"}]}}}});
    made_by_kubectl(&case, "apps", "Deployment", &theirs).await;
    let spec = async || case.get("apps", "Deployment", "d").await.unwrap()["spec"].clone();
    let before = spec().await;
    let run = applied(&case).await;
    assert_ne!(spec().await, before);
    let undone = run.rollback_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    assert_eq!(spec().await, before);
    // The same by an uninstall, of a run that was interrupted.
    applied(&case).await.release_run().await.unwrap();
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert!(removed.leftovers.is_empty(), "{removed:?}");
    assert_eq!(spec().await, before);
    let live = case.get("apps", "Deployment", "d").await.unwrap();
    assert!(live["metadata"].get("labels").is_none(), "{live}");
    delete_wholly(&case, "apps", "Deployment", "d").await;
    case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn what_another_applied_server_side_is_its_own_again_after_an_undoing() {
    let case = Case::with("own", |options| options.adopt = true).await;
    case.install(&objects(&case)[..1]).await.unwrap();
    let path = Kind::needed_versions("", "ConfigMap").remove(0).collection_path(Some(&case.namespace));
    let apply = async |value: &str| {
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "config", "namespace": case.namespace}, "data": {"a": value, "old": "x"}});
        let request = http::Request::patch(format!("{path}/config?fieldManager=helm"))
            .header("content-type", "application/apply-patch+yaml")
            .body(serde_json::to_vec(&manifest).unwrap())
            .unwrap();
        case.server().client().request::<serde_json::Value>(request).await
    };
    apply("theirs").await.unwrap();
    let run = applied(&case).await;
    assert_eq!(value_of_a(&case).await, "1");
    let undone = run.rollback_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    let live = case.get("", "ConfigMap", "config").await.unwrap();
    assert_eq!(live["data"], json!({"a": "theirs", "old": "x"}));
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.iter().map(|entry| &entry["manager"]).collect::<Vec<_>>(), ["helm"], "{entries:?}");
    // With another value of a field that we held, and without force.
    apply("theirs, too").await.unwrap();
    assert_eq!(value_of_a(&case).await, "theirs, too");
    delete_wholly(&case, "", "ConfigMap", "config").await;
    wipe(&case).await;
}

#[tokio::test]
async fn what_others_made_in_the_place_of_what_an_interrupted_run_had_made_outlives_its_undoing() {
    let case = Case::with("replaced", |options| options.adopt = true).await;
    applied(&case).await.release_run().await.unwrap();
    bind(&case, CLAIM).await;
    for (group, kind, name) in [("", "ConfigMap", "config"), ("apps", "StatefulSet", "etcd")] {
        let mut theirs = case.get(group, kind, name).await.unwrap();
        delete_wholly(&case, group, kind, name).await;
        theirs["metadata"] = json!({"name": name, "namespace": case.namespace, "labels": theirs["metadata"]["labels"]});
        theirs.as_object_mut().unwrap().remove("status");
        made_by_kubectl(&case, group, kind, &theirs).await;
    }
    let run = applied(&case).await;
    let undone = run.rollback_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    assert!(case.get("", "ConfigMap", "config").await.is_some(), "it was not this run's");
    assert!(case.get("apps", "StatefulSet", "etcd").await.is_some(), "it was not this run's");
    assert!(is_bound(&case).await, "the data is gone");
    // Nor does an uninstall of a run that was interrupted take the data of a set that it gives back.
    applied(&case).await.release_run().await.unwrap();
    case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert!(case.get("apps", "StatefulSet", "etcd").await.is_some(), "it was there before");
    assert!(is_bound(&case).await, "the data is gone");
    delete_wholly(&case, "apps", "StatefulSet", "etcd").await;
    delete_wholly(&case, "", "ConfigMap", "config").await;
    delete_wholly(&case, "", "PersistentVolumeClaim", CLAIM).await;
    wipe(&case).await;
}

#[tokio::test]
async fn an_edit_by_hand_after_a_run_keeps_nothing_from_being_undone() {
    let case = Case::new("since").await;
    case.install(&objects(&case)).await.unwrap();
    let plan = case.engine.plan_install(&release(), &with_a(&case, "2")).await.unwrap();
    let mut run = case.engine.begin_run(plan).await.unwrap();
    run.apply_all_stages().await.unwrap();
    run.release_run().await.unwrap();
    edit(&case, "kubectl-edit", "", "ConfigMap", "config", json!({"data": {"a": "by hand"}})).await;
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    assert_eq!(value_of_a(&case).await, "1");
    assert_eq!(case.engine.find_drift().await.unwrap(), []);
    // What somebody else than a hand holds is not taken, and who holds it is said.
    let plan = case.engine.plan_install(&release(), &with_a(&case, "2")).await.unwrap();
    let mut run = case.engine.begin_run(plan).await.unwrap();
    run.apply_all_stages().await.unwrap();
    run.release_run().await.unwrap();
    edit(&case, "some-operator", "", "ConfigMap", "config", json!({"data": {"a": "theirs"}})).await;
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    let problem = undone.problems[0].to_string();
    assert!(problem.contains(".data.a: wanted \"1\", existing \"theirs\", owned by `some-operator`"), "{problem}");
    wipe(&case).await;
}

#[tokio::test]
async fn what_somebody_set_between_two_runs_is_theirs_again_after_a_rollback_of_both() {
    let case = Case::new("between").await;
    case.install(&objects(&case)).await.unwrap();
    let with_b = |value: &str| {
        let mut all = objects(&case);
        for planned in all.iter_mut().filter(|planned| planned.object["kind"] == "ConfigMap") {
            planned.object["data"]["b"] = value.into();
        }
        all
    };
    for value in ["3", "4"] {
        let plan = case.engine.plan_install(&release(), &with_b(value)).await.unwrap();
        let mut run = case.engine.begin_run(plan).await.unwrap();
        run.apply_all_stages().await.unwrap();
        run.release_run().await.unwrap();
        if value == "3" {
            edit(&case, "kubectl-edit", "", "ConfigMap", "config", json!({"data": {"a": "by hand"}})).await;
        }
    }
    assert_eq!(value_of_a(&case).await, "1", "an install repairs it");
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{:?}", undone.problems);
    let data = case.get("", "ConfigMap", "config").await.unwrap()["data"].clone();
    assert_eq!(data, json!({"a": "by hand", "b": "2"}));
    wipe(&case).await;
}
