//! Restores that are killed in every stage, and one of a whole control plane with everything in it.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::support::took;

/// The stage that is written down, if an operation is.
fn stage(site: &Site) -> String {
    let path = "jsonpath={.data.operation}";
    let found = site.bed.kubectl(site.cluster, &["-n", "fleet", "get", "secret", "fleetctl.demo", "-o", path]);
    parse_stage(&found.unwrap_or_default())
}

/// The stage of an operation that is open, as its Secret has it.
fn parse_stage(data: &str) -> String {
    let decoded = STANDARD.decode(data).unwrap_or_default();
    let operation: Value = serde_json::from_slice(&decoded).unwrap_or_default();
    operation["stage"].as_str().filter(|_| operation["open"] == true).unwrap_or_default().to_owned()
}

/// Starts a command, and kills it when something is so.
fn kill_when(site: &Site, command: &[&str], what: &str, mut is_so: impl FnMut() -> bool) {
    let mut running = site.command(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually(what, || {
        assert!(running.try_wait().unwrap().is_none(), "it ended before {what}");
        is_so()
    });
    running.kill().unwrap();
    running.wait().unwrap();
}

/// Starts a command, and kills it as soon as a stage is written down: some last less than a question to the cluster.
fn kill_at(site: &Site, command: &[&str], wanted: &str) {
    let mut watch = Command::new(site.bed.kubectl_of(site.cluster).unwrap());
    watch.arg("--kubeconfig").arg(site.bed.kubeconfig(site.cluster).unwrap());
    watch.args(["-n", "fleet", "get", "secrets", "--field-selector", "metadata.name=fleetctl.demo", "--watch"]);
    watch.args(["-o", "jsonpath={.data.operation}{\"\\n\"}"]);
    let mut watching = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut running = site.command(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    assert!(lines.any(|line| parse_stage(&line) == wanted), "the watch ended");
    running.kill().unwrap();
    running.wait().unwrap();
    watching.kill().unwrap();
    watching.wait().unwrap();
    took(began.elapsed(), &format!("stage {wanted}"));
    assert_eq!(stage(site), wanted, "it was killed too late");
}

/// Starts a restore, and kills it in a stage.
fn kill_in_stage(scene: &Scene<'_>, path: &str, wanted: &str, more: &[&str]) {
    let command = ["restore", "demo", "--from", path, "--identity", &scene.backups.identity, "--yes"];
    kill_at(scene.site, &[&command[..], more].concat(), wanted);
}

/// Asserts that nothing of an operation is left but what it keeps on purpose: it is closed, its pods are gone, all members
/// agree, and fields belong to whoever had them.
fn assert_whole(scene: &Scene<'_>, owners: &BTreeMap<String, BTreeMap<String, Value>>, what: &str) {
    let site = scene.site;
    assert_eq!(stage(site), "", "{what}");
    let pods = ["-n", "fleet", "get", "pods", "-l", "app.kubernetes.io/name=restore", "-o", "name"];
    assert_eq!(site.kubectl(&pods), "", "{what}");
    site.fleetctl(&["etcd", "status", "demo"]).succeeds();
    let workloads = site.kubectl(&["-n", "fleet", "get", "deployments,statefulsets,services", "-o", "json"]);
    assert_eq!(managed_fields(&workloads), *owners, "{what}");
}

#[test]
fn a_restore_that_is_killed_in_any_stage_goes_on_or_goes_back() {
    let site = Site::on("current");
    let scene = Scene::install(&site);
    scene.apply(&shop());
    let path = scene.back_up();
    let workloads = site.kubectl(&["-n", "fleet", "get", "deployments,statefulsets,services", "-o", "json"]);
    let owners = managed_fields(&workloads);
    for wanted in ["fence", "prepare", "swap", "start", "open"] {
        scene.set_value("second");
        kill_in_stage(&scene, &path, wanted, &["--no-safety"]);
        // Nothing else changes the control plane meanwhile.
        let other =
            site.install(&[&["--reuse-values", "--yes", "--set", "scheduler.replicas=2"], site.version()].concat());
        assert!(other.code != Some(0), "{other:?}");
        let restored = scene.restore(&path, &[]);
        assert!(restored.succeeds().contains("Restored control plane demo"), "{wanted}: {restored:?}");
        assert_eq!(scene.value(), "first", "{wanted}");
        assert_whole(&scene, &owners, wanted);
    }
    for wanted in ["fence", "prepare", "swap"] {
        scene.set_value("second");
        kill_in_stage(&scene, &path, wanted, &["--no-safety"]);
        let back = site.fleetctl(&["restore", "demo", "--rollback"]);
        assert!(back.succeeds().contains("runs on its former data again"), "{wanted}: {back:?}");
        assert_eq!(scene.value(), "second", "{wanted}");
        assert_whole(&scene, &owners, &format!("the way back from {wanted}"));
    }
    // The way back is killed, too: it is the only way from there.
    kill_in_stage(&scene, &path, "swap", &["--no-safety"]);
    kill_at(&site, &["restore", "demo", "--rollback"], "rollback");
    scene.restore(&path, &[]).fails(6, &["another restore of this control plane is open"]);
    site.fleetctl(&["restore", "demo", "--rollback"]).succeeds();
    assert_eq!(scene.value(), "second");
    assert_whole(&scene, &owners, "the way back, killed");

    kill_in_stage(&scene, &path, "start", &["--no-safety"]);
    site.fleetctl(&["restore", "demo", "--rollback"]).fails(6, &["cannot be undone any more"]);
    scene.restore(&path, &[]).succeeds();
    site.fleetctl(&["restore", "demo", "--commit"]).succeeds();
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
}

#[test]
fn a_rebuild_that_is_killed_goes_on() {
    let site = Site::on("current");
    let scene = Scene::install(&site);
    scene.apply(&shop());
    let path = scene.back_up();
    let command = ["restore", "demo", "--from", &path, "--identity", &scene.backups.identity, "--yes", "--new"];
    let has = |object: &[&str]| {
        site.bed.kubectl(site.cluster, &[&["-n", "fleet", "get", "-o", "name"], object].concat()).is_ok()
    };
    for wanted in ["the record", "the keys", "etcd", "fence", "prepare", "start"] {
        site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
        match wanted {
            "the record" => kill_when(&site, &command, wanted, || has(&["secret", "fleetctl.demo"])),
            "the keys" => kill_when(&site, &command, wanted, || has(&["secret", "fleet-pki"])),
            "etcd" => kill_when(&site, &command, wanted, || has(&["pod", "etcd-0"])),
            stage => kill_in_stage(&scene, &path, stage, &["--new"]),
        }
        let again = scene.restore(&path, &["--new"]);
        assert!(again.succeeds().contains("Restored control plane demo"), "{wanted}: {again:?}");
        assert_eq!((scene.value().as_str(), stage(&site).as_str()), ("first", ""), "{wanted}");
    }
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
}

/// Objects of each kind in the hundreds' list.
const OF_EACH: usize = 26;
/// Namespaces of workloads that are placed after the backup.
const LATER: usize = 10;
/// How long they are watched after the restore: longer than any grace of an agent.
const WATCHED: std::time::Duration = std::time::Duration::from_secs(15 * 60);

/// Objects of every kind that needs no controller, `OF_EACH` of each, and of a kind that is defined here.
fn five_hundred() -> Value {
    let pod = json!({"containers": [{"name": "c", "image": "busybox:1.35"}], "restartPolicy": "Never"});
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod});
    let selector = json!({"matchLabels": {"app": "a"}});
    let always = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": pod["containers"]}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
    let namespaced: [(&str, &str, Value); 16] = [
        ("v1", "ConfigMap", json!({"data": {"a": "b"}})),
        ("v1", "Secret", json!({"stringData": {"a": "canary"}})),
        ("v1", "ServiceAccount", json!({})),
        ("v1", "Service", json!({"spec": {"ports": [{"port": 80}], "clusterIP": "None"}})),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        ("v1", "LimitRange", json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}})),
        ("v1", "PodTemplate", json!({"template": template})),
        ("apps/v1", "Deployment", json!({"spec": {"replicas": 0, "selector": selector, "template": always}})),
        (
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"replicas": 0, "serviceName": "a", "selector": selector, "template": always}}),
        ),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {"template": template}}}}),
        ),
        ("policy/v1", "PodDisruptionBudget", json!({"spec": {"maxUnavailable": 1, "selector": selector}})),
        ("autoscaling/v2", "HorizontalPodAutoscaler", json!({"spec": {"maxReplicas": 3, "scaleTargetRef": target}})),
        ("networking.k8s.io/v1", "NetworkPolicy", json!({"spec": {"podSelector": {}}})),
        (
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}}),
        ),
        ("rbac.authorization.k8s.io/v1", "Role", json!({"rules": []})),
        ("shop.example/v1", "Cart", json!({"spec": {"items": 3}})),
    ];
    let cluster_wide: [(&str, &str, Value); 4] = [
        ("v1", "Namespace", json!({})),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", json!({"rules": []})),
        ("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 5})),
        ("storage.k8s.io/v1", "StorageClass", json!({"provisioner": "example.com/none"})),
    ];
    let mut items = Vec::new();
    let mut push = |api: &str, kind: &str, namespace: Option<&str>, rest: &Value| {
        for at in 0..OF_EACH {
            let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": format!("many-{at}")}});
            object["metadata"]["namespace"] = namespace.map_or(Value::Null, Value::from);
            object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            items.push(object);
        }
    };
    for (api, kind, rest) in &cluster_wide {
        push(api, kind, None, rest);
    }
    for (api, kind, rest) in &namespaced {
        push(api, kind, Some("many-0"), rest);
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// Everything that discovery names, without what differs by itself: events, leases, and what agents and the restore report.
fn everything(site: &Site) -> BTreeMap<String, Value> {
    let kinds = site.hub(&["api-resources", "--verbs=list", "-o", "name"]);
    let is_at_rest = |kind: &&str| {
        let group = kind.split_once('.').map_or("", |(_, group)| group);
        !kind.starts_with("events")
            && *kind != "componentstatuses"
            && group != "coordination.k8s.io"
            && group != "cluster.fleet-scheduler.io"
    };
    let kinds: Vec<&str> = kinds.lines().filter(is_at_rest).collect();
    let listed: Value =
        serde_json::from_str(&site.hub(&["get", &kinds.join(","), "--all-namespaces", "-o", "json"])).unwrap();
    let mut found = BTreeMap::new();
    for mut object in listed["items"].as_array().unwrap().clone() {
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let metadata = &object["metadata"];
        let name = format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"]);
        if metadata["name"] != "kube-system" {
            found.insert(name, object);
        }
    }
    found
}

#[test]
fn five_hundred_objects_come_back_and_what_was_placed_since_runs_on() {
    let site = Site::with("current", "member-2");
    let member = Member::beside(&site, "member-2");
    let scene = Scene::install(&site);
    member.kubectl(&["create", "namespace", "fleet"]);
    member.install(&[&["--control-plane", "demo"][..], site.version()].concat()).succeeds();
    scene.apply(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "carts.shop.example"},
        "spec": {"group": "shop.example", "scope": "Namespaced", "names": {"plural": "carts", "kind": "Cart"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    }));
    site.hub(&["wait", "--for=condition=Established", "crd/carts.shop.example"]);
    scene.apply(&five_hundred());
    let mut before = everything(&site);
    eventually("objects that stay as they are", || {
        let seen = std::mem::replace(&mut before, everything(&site));
        seen == before
    });
    assert!(before.len() > 500, "{}", before.len());
    let path = scene.back_up();

    site.hub(&["delete", "namespace", "many-0", "many-1", "many-2"]);
    site.hub(&["delete", "crd", "carts.shop.example"]);
    site.hub(&["delete", "clusterrole,priorityclass,storageclass", "many-3", "many-4"]);
    site.hub(&["label", "namespaces", "--all", "changed=yes"]);
    let names: Vec<String> = (0..LATER).map(|at| format!("later-{at}")).collect();
    for name in &names {
        scene.apply(&deployment_on("member-2", name));
    }
    let pods = |names: &[String]| names.iter().map(|name| running(&member, name)).collect::<Vec<_>>();
    eventually("ten workloads to run", || pods(&names).iter().all(|pods| !pods.is_empty()));
    let later_pods = pods(&names);

    let restored = scene.restore(&path, &[]);
    assert!(restored.succeeds().contains("Restored control plane demo"), "{restored:?}");
    let began = std::time::Instant::now();
    eventually("the agent to be ready", || member.row()["READY"] == "True");
    assert!(began.elapsed().as_secs() <= 60, "{:?}", began.elapsed());
    let now = everything(&site);
    let differs: Vec<&String> =
        before.keys().chain(now.keys()).filter(|name| before.get(*name) != now.get(*name)).collect();
    assert!(differs.is_empty(), "{differs:?}");
    while began.elapsed() < WATCHED {
        assert_eq!(pods(&names), later_pods, "after {:?}", began.elapsed());
        std::thread::sleep(std::time::Duration::from_secs(10));
    }
    site.fleetctl(&["restore", "demo", "--release", "--yes"]).succeeds();
    eventually("what no backup knows to be gone", || pods(&names).iter().all(String::is_empty));
    site.fleetctl(&["restore", "demo", "--commit"]).succeeds();
    member.uninstall(&["--yes", "--force"]);
    member.clean();
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data", "--force"]).succeeds();
}

/// The restore of every run has the same stages, where a control plane stands.
#[test]
fn a_lost_control_plane_comes_back_from_its_backup() {
    let site = Site::on("current");
    let scene = Scene::install(&site);
    scene.apply(&shop());
    let settings = ["-n", "shop", "get", "configmap", "settings", "-o", "jsonpath={.metadata.uid} {.data.value}"];
    let (before, hub) = (site.hub(&settings), ["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"]);
    let same_hub = site.hub(&hub);
    let path = scene.back_up();
    let elsewhere = std::fs::read(site.hub_kubeconfig()).unwrap();
    scene.restore(&path, &["--new"]).fails(6, &["control plane demo already exists in namespace fleet"]);
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
    std::fs::remove_dir_all(site.fleet_folder()).unwrap_or_default();

    let restored = scene.restore(&path, &["--new"]);
    assert!(restored.succeeds().contains("Restored control plane demo"), "{restored:?}");
    assert!(restored.stdout.contains("as before, with the same CAs"), "{restored:?}");
    assert_eq!((site.hub(&settings), site.hub(&hub)), (before.clone(), same_hub));
    // The kubeconfig of an operator on another machine.
    std::fs::write(site.hub_kubeconfig(), elsewhere).unwrap();
    assert_eq!(site.hub(&settings), before);
    site.fleetctl(&["status", "demo"]).succeeds();
    // It is complete: the same command changes nothing, and with the former store gone there is nothing to go on with.
    scene.set_value("second");
    let again = scene.restore(&path, &["--new"]);
    assert!(again.succeeds().contains("Restored control plane demo"), "{again:?}");
    assert_eq!(scene.value(), "second");
    site.fleetctl(&["restore", "demo", "--commit"]).succeeds();
    scene.restore(&path, &["--new"]).fails(6, &["control plane demo already exists in namespace fleet"]);
    let same = site.install(&[&["--reuse-values", "--yes"], site.version()].concat());
    assert!(same.succeeds().contains("Nothing to change"), "{same:?}");
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
}
