//! Restores of a control plane from its backup: what was there comes back, and what runs keeps running.

mod exhaustive;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::backup::BackupFolder;
use crate::member::Member;
use crate::support::{Ran, Site, eventually};

/// Kinds that are compared.
const KINDS: &str = "namespaces,configmaps,secrets,serviceaccounts,roles,rolebindings,deployments,services";

/// A control plane with a backup.
pub(crate) struct Scene<'s> {
    site: &'s Site,
    backups: BackupFolder,
}

impl<'s> Scene<'s> {
    /// Installs a control plane.
    fn install(site: &'s Site) -> Self {
        Self::install_with(site, &["--preset", "nodeport"])
    }

    /// The same with flags.
    pub(crate) fn install_with(site: &'s Site, flags: &[&str]) -> Self {
        site.install(&[flags, site.version()].concat()).succeeds();
        Self { site, backups: BackupFolder::make_in(site.home()) }
    }

    /// Makes a backup. Returns its path.
    pub(crate) fn back_up(&self) -> String {
        let path =
            format!("{}/{}.fleet", self.backups.folder, std::fs::read_dir(&self.backups.folder).unwrap().count());
        self.site.fleetctl(&["backup", "demo", "--to", &path, "--recipient", &self.backups.recipient]).succeeds();
        path
    }

    pub(crate) fn restore(&self, path: &str, more: &[&str]) -> Ran {
        let command = ["restore", "demo", "--from", path, "--identity", &self.backups.identity, "--yes"];
        self.site.fleetctl(&[&command[..], more].concat())
    }

    pub(crate) fn apply(&self, manifests: &Value) {
        let file = self.site.home().join("manifests.json");
        std::fs::write(&file, manifests.to_string()).unwrap();
        self.site.hub(&["apply", "-f", file.to_str().unwrap()]);
    }

    /// Objects of a namespace, and the namespace, by kind and name, without what differs by itself.
    fn objects(&self, namespace: &str) -> BTreeMap<String, Value> {
        let listed: Value =
            serde_json::from_str(&self.site.hub(&["get", KINDS, "--all-namespaces", "-o", "json"])).unwrap();
        let mut found = BTreeMap::new();
        for object in listed["items"].as_array().unwrap() {
            let (kind, metadata) = (object["kind"].as_str().unwrap(), &object["metadata"]);
            let name = metadata["name"].as_str().unwrap();
            if metadata["namespace"] == namespace || kind == "Namespace" && name == namespace {
                let mut object = object.clone();
                object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                object.as_object_mut().unwrap().remove("status");
                found.insert(format!("{kind}/{name}"), object);
            }
        }
        found
    }

    pub(crate) fn value(&self) -> String {
        let path = "jsonpath={.data.value}";
        self.site.asks_hub(&["-n", "shop", "get", "configmap", "settings", "-o", path]).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn set_value(&self, value: &str) {
        assert!(self.try_value(value));
    }

    /// Returns false where nobody takes it now.
    pub(crate) fn try_value(&self, value: &str) -> bool {
        let patch = json!({"data": {"value": value}}).to_string();
        self.site.asks_hub(&["-n", "shop", "patch", "configmap", "settings", "--type=merge", "-p", &patch]).is_ok()
    }
}

/// A namespace with an object of several kinds each.
pub(crate) fn shop() -> Value {
    let object = |api: &str, kind: &str, name: &str, rest: Value| {
        let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "shop"}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    let role = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "shop"}],
    });
    let items = json!([
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"tier": "one"}}},
        object("v1", "ConfigMap", "settings", json!({"data": {"value": "first"}})),
        object("v1", "Secret", "password", json!({"stringData": {"password": "canary"}})),
        object("v1", "ServiceAccount", "robot", json!({})),
        object("v1", "Service", "web", json!({"spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}})),
        object("rbac.authorization.k8s.io/v1", "Role", "reader", role),
        object("rbac.authorization.k8s.io/v1", "RoleBinding", "reader", binding),
    ]);
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// A Deployment on a workload cluster, in a namespace of its own.
fn deployment_on(cluster: &str, namespace: &str) -> Value {
    let container = json!({"name": "httpd", "image": "busybox:1.35", "command": ["httpd", "-f", "-p", "8080"]});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "web",
                "namespace": namespace,
                "annotations": {"fleet-scheduler.io/cluster": cluster},
            },
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
        },
    ]})
}

/// UIDs of the pods of a Deployment that run in a workload cluster.
fn running(member: &Member<'_>, namespace: &str) -> String {
    let path = r#"jsonpath={.items[?(@.status.phase=="Running")].metadata.uid}"#;
    let args = ["-n", namespace, "get", "pods", "-l", "app=web", "-o", path];
    member.site.bed.kubectl(member.name, &args).unwrap_or_default()
}

#[test]
fn a_restore_brings_back_what_was_there_and_stops_nothing_that_runs() {
    let site = Site::with("current", "member-2");
    let member = Member::beside(&site, "member-2");
    let scene = Scene::install(&site);
    member.kubectl(&["create", "namespace", "fleet"]);
    member.install(&[&["--control-plane", "demo"][..], site.version()].concat()).succeeds();
    scene.apply(&shop());
    scene.apply(&deployment_on("member-2", "before"));
    eventually("the copy to run", || !running(&member, "before").is_empty());
    // What controllers write of their own has come to rest.
    let mut before = scene.objects("shop");
    eventually("objects that stay as they are", || {
        let seen = std::mem::replace(&mut before, scene.objects("shop"));
        seen == before
    });
    // An agent that counts them knows how to keep them.
    let counted = ["get", "clusters", "-o", "jsonpath={.items[*].status.copiesWithoutSchedule}"];
    eventually("the agent to count copies without a Schedule", || site.hub(&counted) == "0");
    let clusters = || site.hub(&["get", "clusters", "-o", "jsonpath={.items[*].metadata.uid}"]);
    let (same_clusters, first_pods) = (clusters(), running(&member, "before"));
    let path = scene.back_up();

    // Everything is changed or deleted, and something new is placed.
    scene.set_value("second");
    site.hub(&["-n", "shop", "delete", "secret/password", "role/reader", "service/web", "serviceaccount/robot"]);
    site.hub(&["label", "namespace", "shop", "tier=two", "--overwrite"]);
    scene.apply(&deployment_on("member-2", "later"));
    eventually("the new copy to run", || !running(&member, "later").is_empty());
    let later_pods = running(&member, "later");
    let workloads = || site.kubectl(&["-n", "fleet", "get", "deployments,statefulsets,services", "-o", "json"]);
    let owners = managed_fields(&workloads());

    let restored = scene.restore(&path, &[]);
    assert!(restored.succeeds().contains("Restored control plane demo"), "{restored:?}");
    assert!(restored.stdout.contains("1 of 1 agents are ready"), "{restored:?}");
    assert_eq!(scene.objects("shop"), before, "with uids");
    assert_eq!(clusters(), same_clusters);
    assert!(site.asks_hub(&["get", "namespace", "later"]).is_err(), "it is not in the backup");
    let held = "jsonpath={.metadata.annotations.fleet-scheduler\\.io/hold-deletions}";
    assert!(site.hub(&["get", "namespace", "kube-system", "-o", held]).starts_with("20"), "since when");
    assert_eq!(managed_fields(&workloads()), owners, "fields were given back");
    assert!(site.fleetctl(&["status", "demo"]).succeeds().contains("connected and ready"));
    let again = site.install(&[&["--reuse-values", "--yes"], site.version()].concat());
    assert!(again.succeeds().contains("Nothing to change"), "{again:?}");

    // What ran runs: what the backup knows, and what it does not.
    assert_eq!(running(&member, "before"), first_pods);
    assert_eq!(running(&member, "later"), later_pods);
    // The control plane takes new work.
    scene.apply(&deployment_on("member-2", "after"));
    eventually("work after the restore", || !running(&member, "after").is_empty());

    let released = site.fleetctl(&["restore", "demo", "--release", "--yes"]);
    assert!(released.succeeds().contains("delete copies without a Schedule again"), "{released:?}");
    assert_eq!(site.hub(&["get", "namespace", "kube-system", "-o", held]), "");
    let kept = |site: &Site| site.fleetctl(&["status", "demo"]).succeeds().contains("on the volumes of etcd");
    assert!(kept(&site), "what a restore has left");
    let committed = site.fleetctl(&["restore", "demo", "--commit"]);
    assert!(!kept(&site), "it is gone");
    assert!(committed.succeeds().contains("Deleted the former etcd data"), "{committed:?}");
    site.fleetctl(&["restore", "demo", "--commit"])
        .fails(6, &["no restore of this control plane keeps former etcd data"]);
    site.fleetctl(&["restore", "demo", "--rollback"]).fails(6, &["no restore of this control plane is open"]);

    // A backup of other keys, and one that is damaged: nothing is written.
    let bytes = std::fs::read(&path).unwrap();
    let damaged = format!("{}/damaged.fleet", scene.backups.folder);
    std::fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    scene.restore(&damaged, &[]).fails(1, &["is damaged"]);
    let left = site.kubectl(&["-n", "fleet", "get", "pods", "-l", "app.kubernetes.io/name=restore", "-o", "name"]);
    assert_eq!(left, "");
    member.uninstall(&["--yes", "--force"]);
    member.clean();
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data", "--force"]).succeeds();
}

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

/// Who owns which field of each object.
fn managed_fields(list: &str) -> BTreeMap<String, BTreeMap<String, Value>> {
    let list: Value = serde_json::from_str(list).unwrap();
    let of_object = |object: &Value| {
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let entries = entries.into_iter().filter(|entry| entry["subresource"] != "status");
        let by_manager = entries.map(|entry| {
            let manager = entry["manager"].as_str().unwrap_or_default();
            (format!("{manager} {}", entry["operation"].as_str().unwrap_or_default()), entry["fieldsV1"].clone())
        });
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        (format!("{}/{name}", object["kind"].as_str().unwrap_or_default()), by_manager.collect())
    };
    list["items"].as_array().unwrap().iter().map(of_object).collect()
}
