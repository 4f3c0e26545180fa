//! What others made, hold or edit: drift, conflicts, look-alikes, and what is adopted.

use std::time::{Duration, Instant};

use bed::Bed;
use fleetctl::api::kinds::Kind;
use fleetctl::api::labels::{LABEL_INSTALL, LABEL_INSTALL_KIND};
use fleetctl::api::remedy::{Flag, Remedy};
use fleetctl::apply::{Action, Drifted, Engine, Error, Options, Planned, Removal};

use fleetctl::inventory::{APPLYSET_TOOLING, Origin, Owner};
use fleetctl::k8s::{Event, Events, ObjectRef, Selection};
use serde_json::json;

use super::actors::{delete_wholly, edit, kubectl_made, made_by_kubectl, wait_for_claim};
use super::kill::wipe;
use super::support::{Case, client, dump, kubeconfig, objects, release};

#[tokio::test]
async fn a_field_edited_by_hand_is_shown_as_drift_and_repaired() {
    let case = Case::new("drift").await;
    case.install(&objects(&case)).await.unwrap();
    edit(&case, "kubectl-edit", "", "ConfigMap", "config", json!({"data": {"a": "edited", "theirs": "x"}})).await;
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    let step = plan.steps.iter().find(|step| step.target.kind == "ConfigMap").unwrap();
    assert_eq!((step.action, step.drift.as_slice()), (Action::Change, &[".data.a".to_owned()][..]));
    case.install(&objects(&case)).await.unwrap();
    let data = case.get("", "ConfigMap", "config").await.unwrap()["data"].clone();
    assert_eq!(data, json!({"a": "1", "b": "2", "theirs": "x"}), "our field is back, and theirs stays");
    assert!(case.engine.plan_install(&release(), &objects(&case)).await.unwrap().is_noop());
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

const AUTOSCALER: &str = "HorizontalPodAutoscaler";

/// Makes an autoscaler of the deployment, with bounds that no number of these tests is outside of: here it has no metrics to
/// scale by itself.
async fn autoscale(case: &Case) {
    let kind = Kind::needed_versions("autoscaling", AUTOSCALER).remove(0);
    let autoscaler = json!({"apiVersion": kind.api_version(), "kind": AUTOSCALER,
        "metadata": {"name": "theirs", "namespace": case.namespace},
        "spec": {"minReplicas": 1, "maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    case.server().create_object(&kind, &autoscaler).await.unwrap();
}

/// Scales the deployment as another manager; an autoscaler does so as `kube-controller-manager`.
async fn scale(case: &Case, manager: &str, replicas: u32) {
    edit(case, manager, "apps", "Deployment", "d/scale", json!({"spec": {"replicas": replicas}})).await;
}

async fn replicas(case: &Case) -> serde_json::Value {
    case.get("apps", "Deployment", "d").await.unwrap()["spec"]["replicas"].clone()
}

/// The names of what strayed.
async fn strayed(case: &Case) -> Vec<String> {
    case.engine.find_drift().await.unwrap().into_iter().map(|drift| drift.object.name).collect()
}

/// The same installation, which takes the replicas of the deployment.
async fn taking(case: &Case) -> Case {
    let change = |options: &mut Options| {
        options.take_fields = vec!["Deployment/d:.spec.replicas".to_owned()];
    };
    Case::again(&case.namespace, tempfile::tempdir().unwrap(), change).await
}

#[tokio::test]
async fn replicas_are_left_to_an_autoscaler_and_taken_back_on_request() {
    let case = Case::new("scaled").await;
    case.install(&objects(&case)).await.unwrap();
    autoscale(&case).await;
    scale(&case, "kube-controller-manager", 2).await;
    assert_eq!(case.engine.find_drift().await.unwrap(), []);
    case.events.lock().unwrap().clear();
    for _ in 0..2 {
        case.install(&objects(&case)).await.unwrap();
        assert_eq!(replicas(&case).await, 2);
        assert_eq!(case.engine.find_drift().await.unwrap(), []);
    }
    let left = "replicas are left to the autoscaler `theirs`; to set them, take ownership of the field \
                `Deployment/d:.spec.replicas`";
    let told = |event: &&Event| matches!(event, Event::Warning { message, .. } if message == left);
    assert_eq!(case.events.lock().unwrap().iter().filter(told).count(), 1, "{:?}", case.events.lock().unwrap());
    let writes = case.traffic.writes();
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    assert!(plan.is_noop());
    assert_eq!(plan.collect_omissions(), [format!("Deployment {}/d: {left}", case.namespace)]);
    assert_eq!(case.engine.diff_plan(&plan).await.unwrap(), []);
    case.install(&objects(&case)).await.unwrap();
    assert_eq!(case.traffic.writes(), writes);
    // That one field is the autoscaler's hides no other.
    let label = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "edited"}}});
    edit(&case, "kubectl-edit", "apps", "Deployment", "d", label).await;
    assert_eq!(strayed(&case).await, ["d"]);
    let taking = taking(&case).await;
    taking.install(&objects(&taking)).await.unwrap();
    assert_eq!(replicas(&case).await, 1);
    // What a person scales is for that person to say.
    scale(&case, "kubectl", 3).await;
    let error = case.install(&objects(&case)).await.unwrap_err();
    assert!(matches!(&error, Error::Conflicts { .. }), "{error}");
    delete_wholly(&case, "autoscaling", AUTOSCALER, "theirs").await;
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn replicas_of_an_autoscaler_that_is_gone_are_ours_again() {
    let case = Case::new("unscaled").await;
    case.install(&objects(&case)).await.unwrap();
    autoscale(&case).await;
    scale(&case, "kube-controller-manager", 2).await;
    case.install(&objects(&case)).await.unwrap();
    assert_eq!((replicas(&case).await, strayed(&case).await), (json!(2), Vec::new()));
    delete_wholly(&case, "autoscaling", AUTOSCALER, "theirs").await;
    assert_eq!(strayed(&case).await, ["d"]);
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    assert_eq!(plan.collect_omissions(), Vec::<String>::new());
    let shown = case.engine.diff_plan(&plan).await.unwrap();
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!(shown[0].conflicts, []);
    let fields: Vec<_> =
        shown[0].fields.iter().map(|f| (f.path.as_str(), f.before.as_deref(), f.after.as_deref())).collect();
    assert_eq!(fields, [(".spec.replicas", Some("2"), Some("1"))]);
    case.install(&objects(&case)).await.unwrap();
    assert_eq!((replicas(&case).await, strayed(&case).await), (json!(1), Vec::new()));
    assert!(case.engine.plan_install(&release(), &objects(&case)).await.unwrap().is_noop());
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn replicas_that_another_client_scaled_are_drift_and_a_conflict_where_there_is_no_autoscaler() {
    let case = Case::new("other-client").await;
    case.install(&objects(&case)).await.unwrap();
    scale(&case, "oc", 3).await;
    let found = case.engine.find_drift().await.unwrap();
    let [drift] = &found[..] else { panic!("{found:?}") };
    assert!(matches!(&drift.strayed, Drifted::Fields { by } if by.iter().any(|manager| manager == "oc")), "{drift:?}");
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    let shown = case.engine.diff_plan(&plan).await.unwrap();
    assert_eq!(shown.iter().flat_map(|d| &d.conflicts).map(|c| c.manager.as_str()).collect::<Vec<_>>(), ["oc"]);
    let error = case.install(&objects(&case)).await.unwrap_err();
    assert!(matches!(&error, Error::Conflicts { conflicts } if conflicts.len() == 1), "{error}");
    let field = Flag::TakeFields("Deployment/d:.spec.replicas".to_owned());
    assert_eq!(error.remedy().unwrap(), Remedy::new("to overwrite only these fields, add ").flag(field));
    assert_eq!(replicas(&case).await, 3);
    let taking = taking(&case).await;
    taking.install(&objects(&taking)).await.unwrap();
    assert_eq!((replicas(&case).await, strayed(&case).await), (json!(1), Vec::new()));
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
    let field = Flag::TakeFields("Deployment/d:.spec.replicas".to_owned());
    assert_eq!(error.remedy().unwrap(), Remedy::new("to overwrite only these fields, add ").flag(field));
    case = case.reborn().await;
    let mut engine_options =
        fleetctl::apply::Options { take_fields: vec![conflict.take_fields_flag()], ..Default::default() };
    engine_options.lock_wait = std::time::Duration::from_secs(40);
    let taking = fleetctl::apply::Engine::new(
        super::support::client().await.0,
        case.engine.owner().clone(),
        engine_options,
        fleetctl::k8s::Events::none(),
    );
    let plan = taking.plan_install(&release(), &objects(&case)).await.unwrap();
    let mut run = taking.begin_run(plan).await.unwrap();
    run.apply_all_stages().await.unwrap();
    run.commit_run().await.unwrap();
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
        case.engine.owner().set_owner_labels(object);
        let kind = Kind::needed_versions("apps", object["kind"].as_str().unwrap()).remove(0);
        case.server().create_object(&kind, object).await.unwrap();
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
    let selector = case.engine.owner().owner_selector();
    let selection = Selection { namespace: Some(&case.namespace), labels: Some(&selector), ..Selection::default() };
    let found = case.server().list_objects(&Kind::needed_versions(group, kind).remove(0), &selection).await.unwrap();
    let names = found.iter().filter_map(|found| Some(found["metadata"]["name"].as_str()?.to_owned()));
    names.filter(|name| name.contains("other-")).collect()
}

#[tokio::test]
async fn an_object_of_our_name_that_is_not_ours_is_never_touched() {
    let case = Case::new("foreign").await;
    let namespaces = Kind::needed_versions("", "Namespace").remove(0);
    let maps = Kind::needed_versions("", "ConfigMap").remove(0);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}});
    case.server().create_object(&namespaces, &namespace).await.unwrap();
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": case.namespace}, "data": {"x": "y"}});
    case.server().create_object(&maps, &theirs).await.unwrap();
    // A look-alike: all our labels, but never applied by us.
    let mut twin =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "twin", "namespace": case.namespace}});
    case.engine.owner().set_owner_labels(&mut twin);
    case.server().create_object(&maps, &twin).await.unwrap();
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
        removed.kept.iter().any(|kept| kept.object.kind == "Namespace" && kept.reason.contains("before")),
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

#[tokio::test]
async fn what_an_installation_of_the_same_name_in_another_namespace_has_is_never_adopted() {
    let case = Case::new("same").await;
    case.install(&objects(&case)).await.unwrap();
    let clusters: Vec<Planned> = objects(&case)
        .into_iter()
        .filter(|planned| planned.object["kind"].as_str().is_some_and(|kind| kind.starts_with("ClusterRole")))
        .collect();
    assert!(!clusters.is_empty());
    let owner = Owner::new("control-plane", &case.namespace, &format!("{}-too", case.namespace));
    let options = Options { adopt: true, ..Options::default() };
    let engine = Engine::new(client().await.0, owner, options, Events::none());
    let plan = engine.plan_install(&release(), &clusters).await.unwrap();
    let of: Vec<Option<&str>> = plan.foreign.iter().map(|foreign| foreign.install.as_deref()).collect();
    assert_eq!((of, plan.adopted.len()), (vec![Some(case.namespace.as_str()); clusters.len()], 0));
    wipe(&case).await.unwrap();
}

#[tokio::test]
async fn what_kubectl_made_of_our_manifests_is_adopted_with_its_claim_templates_and_its_namespace_stays() {
    let case = Case::with("claims", |options| options.adopt = true).await;
    // As manifests with our labels that kubectl applied: none of them is made by us.
    let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}});
    case.engine.owner().set_owner_labels(&mut namespace);
    case.server().create_object(&Kind::needed_versions("", "Namespace").remove(0), &namespace).await.unwrap();
    let all = objects(&case);
    let mut theirs = all.iter().find(|planned| planned.object["kind"] == "StatefulSet").unwrap().object.clone();
    theirs["metadata"]["namespace"] = case.namespace.clone().into();
    let metadata = json!({"name": "data", "annotations": {"example.com/prune": "false"}});
    theirs["spec"]["volumeClaimTemplates"][0]["metadata"] = metadata.clone();
    made_by_kubectl(&case, "apps", "StatefulSet", &theirs).await;

    // The next run, in which the set is no other's any more, goes on with one that stopped.
    let refused = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "not_a_name"}});
    let mut stops: Vec<Planned> = all.clone();
    stops.push(Planned::new(3, refused));
    let stopped = case.install(&stops).await.unwrap_err().to_string();
    assert!(stopped.contains("not_a_name"), "{stopped}");
    case.install(&all).await.unwrap();
    assert!(case.engine.plan_install(&release(), &all).await.unwrap().is_noop());
    let record = case.engine.read_state().await.unwrap().record.unwrap();
    let origin = |name: &str| record.inventory.iter().find(|item| item.object.name == name).unwrap().origin;
    assert_eq!((origin("etcd"), origin("d")), (Origin::Adopted, Origin::Created));

    let mut upgrade = all;
    for planned in upgrade.iter_mut().filter(|planned| planned.object["kind"] == "StatefulSet") {
        planned.object["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = "2".into();
        planned.object["spec"]["volumeClaimTemplates"][0]["metadata"]["labels"] = json!({"team": "ours"});
    }
    let notes = case.engine.plan_install(&release(), &upgrade).await.unwrap().collect_omissions();
    let of = |label: &str| {
        format!("etcd: label `{label}` of claim template `data` is not set: claim templates cannot be changed")
    };
    let labels = [LABEL_INSTALL, LABEL_INSTALL_KIND, "team"];
    assert_eq!(notes.len(), labels.len(), "{notes:?}");
    for (note, label) in notes.iter().zip(labels) {
        assert!(note.ends_with(&of(label)), "{note}");
    }
    case.install(&upgrade).await.unwrap();
    assert!(case.engine.plan_install(&release(), &upgrade).await.unwrap().is_noop());
    let spec = case.get("apps", "StatefulSet", "etcd").await.unwrap()["spec"].clone();
    assert_eq!(spec["template"]["spec"]["containers"][0]["env"][0]["value"], "2");
    let kept = &spec["volumeClaimTemplates"][0]["metadata"];
    assert_eq!((&kept["name"], &kept["annotations"]), (&metadata["name"], &metadata["annotations"]));
    assert!(kept["labels"].is_null());

    let removed = case.engine.uninstall(Removal::default()).await.unwrap();
    assert_eq!(removed.leftovers, []);
    let kept: Vec<&str> = removed.kept.iter().map(|kept| kept.object.kind.as_str()).collect();
    assert_eq!(kept, ["Secret", "Namespace"]);
    case.sweep().await;
}

#[tokio::test]
async fn what_kubectl_made_is_taken_over_on_request_and_given_back_by_a_rollback() {
    let case = Case::with("adopt", |options| options.adopt = true).await;
    case.install(&objects(&case)[..1]).await.unwrap();
    let theirs = json!({"a": "theirs", "old": "x"});
    kubectl_made(&case, "config", &theirs).await;
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    assert_eq!(plan.count_steps(Action::Adopt), 1);
    let shown = case.engine.diff_plan(&plan).await.unwrap();
    let map = shown.iter().find(|difference| difference.object.name == "config").unwrap();
    let told = |path: &str| {
        map.fields.iter().find(|field| field.path == path).map(|f| (f.before.as_deref(), f.after.as_deref()))
    };
    assert_eq!(told(".data.old"), Some((Some("\"x\""), None)), "what it set and we do not would go: {:?}", map.fields);
    assert_eq!(told(".data.a"), Some((Some("\"theirs\""), Some("\"1\""))));
    let mut run = case.engine.begin_run(plan).await.unwrap();
    // As a controller may, between the look and the write.
    let touched = json!({"metadata": {"annotations": {"example.com/seen": "yes"}}});
    edit(&case, "some-operator", "", "ConfigMap", "config", touched).await;
    run.apply_all_stages().await.unwrap();
    let data = case.get("", "ConfigMap", "config").await.unwrap()["data"].clone();
    assert_eq!(data, json!({"a": "1", "b": "2"}), "what it set and we do not is gone");
    let undone = run.rollback_run().await.unwrap();
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
    let maps = Kind::needed_versions("", "ConfigMap").remove(0);
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "config", "namespace": case.namespace}, "data": {"a": "1", "b": "2"}});
    let path = format!("{}/config?fieldManager=helm", maps.collection_path(Some(&case.namespace)));
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

/// `kubectl apply --prune --applyset` of one more object, with the set of an installation.
fn apply_set(case: &Case, more: &[&str]) -> std::process::Output {
    let one = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    let file = case.folder.path().join("one.yaml");
    std::fs::write(&file, one.to_string()).unwrap();
    // That of the oldest Kubernetes has no sets yet.
    let kubectl = Bed::here().unwrap().kubectl_of("plane").unwrap();
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
    let members = case.engine.read_state().await.unwrap().record.unwrap().inventory;
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
