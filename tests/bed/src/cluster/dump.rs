//! All objects of a cluster, without what changes by itself, to compare a cluster before and after something.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::Bed;

/// Kinds that come and go without anybody's doing, or that mirror others.
const SKIPPED: &[&str] = &["Event", "Lease", "Endpoints", "EndpointSlice", "ComponentStatus"];
/// Fields that differ between two otherwise equal objects, wherever they are.
const NOISE: &[&str] = &[
    "creationTimestamp",
    "finishedAt",
    "generation",
    "lastHeartbeatTime",
    "lastProbeTime",
    "lastTransitionTime",
    "lastUpdateTime",
    "managedFields",
    "observedGeneration",
    "resourceVersion",
    "selfLink",
    "startTime",
    "startedAt",
    "uid",
];

impl Bed {
    /// Every object of every kind of a cluster, found by discovery, by `group/Kind/namespace/name` (`core` for the
    /// group without a name; an empty namespace for what has none).
    ///
    /// Left out: Events, Leases, Endpoints, EndpointSlices, ComponentStatuses. Stripped everywhere: versions, uids,
    /// generations, managed fields and times. Of Nodes the status, of Pods the status but its phase. The values of
    /// Secrets are replaced by their digests, so that a failed comparison prints none.
    ///
    /// Waits until the controller manager, which may have begun a moment ago, has done what it does at its start, and
    /// has seen that its nodes are ready: a dump before that differs from the next.
    pub fn dump(&self, cluster: &str) -> Result<BTreeMap<String, Value>> {
        let kubeconfig = self.kubeconfig(cluster)?;
        crate::cluster::client::block_on(
            || async move { all(&crate::cluster::client::client(&kubeconfig).await?).await },
        )
        .with_context(|| format!("cannot read all objects of cluster `{cluster}`"))
    }
}

/// The lines in which two dumps differ: `- key` gone, `+ key` new, `~ key` changed, with both contents.
pub fn differences(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Vec<String> {
    let mut lines: Vec<_> =
        before.keys().filter(|key| !after.contains_key(*key)).map(|key| format!("- {key}")).collect();
    for (key, value) in after {
        match before.get(key) {
            None => lines.push(format!("+ {key}")),
            Some(old) if old != value => lines.push(format!("~ {key}\n    before {old}\n    after  {value}")),
            Some(_) => {}
        }
    }
    lines
}

async fn all(client: &Client) -> Result<BTreeMap<String, Value>> {
    let begun = async {
        while !(controllers_have_begun(client).await?
            && namespaces_are_furnished(client).await?
            && roles_are_aggregated(client).await?
            && nodes_are_seen(client).await?)
        {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, begun).await.context("not all controllers of the cluster begin")??;
    let mut resources = resources(client, "", "/api/v1".to_owned()).await?;
    let groups = get(client, "/apis").await?;
    for group in list(&groups["groups"]) {
        let (name, preferred) = (text(&group["name"]), text(&group["preferredVersion"]["groupVersion"]));
        let others = list(&group["versions"]).map(|version| text(&version["groupVersion"]));
        // Some kinds are in none but one that is not the preferred one.
        for version in std::iter::once(preferred.clone()).chain(others.filter(|other| *other != preferred)) {
            for resource in self::resources(client, &name, format!("/apis/{version}")).await? {
                if !resources.iter().any(|known| known.group == resource.group && known.kind == resource.kind) {
                    resources.push(resource);
                }
            }
        }
    }
    let lists: Vec<_> = futures::stream::iter(resources)
        .map(|resource| async move {
            let objects = get(client, &resource.path).await?;
            anyhow::Ok((resource, objects))
        })
        .buffer_unordered(8)
        .try_collect()
        .await?;
    let mut dump = BTreeMap::new();
    for (resource, mut objects) in lists {
        for object in objects["items"].as_array_mut().into_iter().flatten() {
            let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
            strip(&resource.kind, object);
            dump.insert(format!("{}/{}/{namespace}/{name}", resource.group, resource.kind), object.take());
        }
    }
    Ok(dump)
}

/// Whether every controller that has a role has its account: each makes it when it begins. Those of clouds never begin,
/// nor does one that is off where nobody asks for it.
async fn controllers_have_begun(client: &Client) -> Result<bool> {
    const NEVER: &[&str] = &["route-controller", "service-controller", "selinux-warning-controller"];
    let bindings = get(client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings").await?;
    let accounts = get(client, "/api/v1/namespaces/kube-system/serviceaccounts").await?;
    let accounts: BTreeSet<_> = list(&accounts["items"]).map(|account| text(&account["metadata"]["name"])).collect();
    let mut controllers = list(&bindings["items"])
        .filter(|binding| text(&binding["metadata"]["name"]).starts_with("system:controller:"))
        .flat_map(|binding| list(&binding["subjects"]))
        .map(|subject| text(&subject["name"]));
    Ok(controllers.all(|name| NEVER.contains(&name.as_str()) || accounts.contains(&name)))
}

/// Whether every namespace holds what the controllers put into each: they may have begun and not come to it yet.
async fn namespaces_are_furnished(client: &Client) -> Result<bool> {
    let namespaces = get(client, "/api/v1/namespaces").await?;
    let accounts = get(client, "/api/v1/serviceaccounts").await?;
    let authorities = get(client, "/api/v1/configmaps").await?;
    let holds = |objects: &Value, namespace: &str, name: &str| {
        let of = |object: &Value| (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        list(&objects["items"]).any(|object| of(object) == (namespace.to_owned(), name.to_owned()))
    };
    let mut active = list(&namespaces["items"]).filter(|namespace| namespace["status"]["phase"] == "Active");
    Ok(active.all(|namespace| {
        let namespace = text(&namespace["metadata"]["name"]);
        holds(&accounts, &namespace, "default") && holds(&authorities, &namespace, "kube-root-ca.crt")
    }))
}

/// Whether every aggregated role holds the rules of all roles that it selects by their labels.
async fn roles_are_aggregated(client: &Client) -> Result<bool> {
    let roles = get(client, "/apis/rbac.authorization.k8s.io/v1/clusterroles").await?;
    let has = |role: &Value, rule: &Value| list(&role["rules"]).any(|own| own == rule);
    Ok(list(&roles["items"]).all(|role| {
        list(&role["aggregationRule"]["clusterRoleSelectors"]).all(|selector| {
            let wanted = selector["matchLabels"].as_object().into_iter().flatten();
            let selects =
                |other: &&Value| wanted.clone().all(|(label, value)| other["metadata"]["labels"][label] == *value);
            list(&roles["items"]).filter(selects).flat_map(|other| list(&other["rules"])).all(|rule| has(role, rule))
        })
    }))
}

/// Whether no node that says that it is ready is still marked as one that is not, which ends some seconds later.
async fn nodes_are_seen(client: &Client) -> Result<bool> {
    Ok(list(&get(client, "/api/v1/nodes").await?["items"]).all(is_seen))
}

fn is_seen(node: &Value) -> bool {
    const OF_HEALTH: &[&str] = &["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    let ready = list(&node["status"]["conditions"])
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    !ready || !list(&node["spec"]["taints"]).any(|taint| OF_HEALTH.contains(&text(&taint["key"]).as_str()))
}

struct Resource {
    group: String,
    kind: String,
    path: String,
}

async fn resources(client: &Client, group: &str, base: String) -> Result<Vec<Resource>> {
    let found = get(client, &base).await?;
    let group = if group.is_empty() { "core" } else { group };
    let listed = list(&found["resources"]).filter(|resource| {
        let kind = text(&resource["kind"]);
        !text(&resource["name"]).contains('/')
            && list(&resource["verbs"]).any(|verb| verb == "list")
            && !SKIPPED.contains(&kind.as_str())
    });
    let to_resource = |resource: &Value| Resource {
        group: group.to_owned(),
        kind: text(&resource["kind"]),
        path: format!("{base}/{}", text(&resource["name"])),
    };
    Ok(listed.map(to_resource).collect())
}

async fn get(client: &Client, path: &str) -> Result<Value> {
    let request = http::Request::get(path).body(Vec::new())?;
    client.request(request).await.with_context(|| format!("GET {path}"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn strip(kind: &str, object: &mut Value) {
    remove_noise(object);
    match kind {
        "Node" => object["status"] = json!({}),
        "Pod" => object["status"] = json!({"phase": object["status"]["phase"]}),
        "Secret" => {
            for value in object["data"].as_object_mut().into_iter().flat_map(Map::values_mut) {
                let digest = Sha256::digest(value.as_str().unwrap_or_default());
                *value =
                    json!(digest.iter().take(8).fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}")));
            }
        }
        _ => {}
    }
}

fn remove_noise(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !NOISE.contains(&key.as_str()));
            map.values_mut().for_each(remove_noise);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_noise),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_by_itself_is_gone_and_the_rest_stays() {
        let mut secret = json!({
            "metadata": {"name": "a", "uid": "1", "resourceVersion": "2", "labels": {"x": "y"}, "ownerReferences": [{"uid": "3", "kind": "B"}]},
            "data": {"key": "c2VjcmV0"},
        });
        strip("Secret", &mut secret);
        assert_eq!(secret["metadata"], json!({"name": "a", "labels": {"x": "y"}, "ownerReferences": [{"kind": "B"}]}));
        assert!(
            secret["data"]["key"].as_str().is_some_and(|value| value.starts_with("sha256:") && !value.contains("c2Vj"))
        );
    }

    #[test]
    fn a_ready_node_is_waited_for_until_its_taints_of_health_are_gone() {
        let node = |ready: &str, taint: &str| {
            let conditions =
                [json!({"type": "MemoryPressure", "status": "False"}), json!({"type": "Ready", "status": ready})];
            json!({"spec": {"taints": [{"key": taint, "effect": "NoExecute"}]}, "status": {"conditions": conditions}})
        };
        assert!(!is_seen(&node("True", "node.kubernetes.io/not-ready")));
        assert!(!is_seen(&node("True", "node.kubernetes.io/unreachable")));
        assert!(is_seen(&node("True", "example.org/of-a-test")));
        assert!(is_seen(&node("Unknown", "node.kubernetes.io/unreachable")), "a node that a test stopped");
        assert!(is_seen(&json!({"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})));
    }

    #[test]
    fn differences_name_what_came_went_and_changed() {
        let before = [("a".to_owned(), json!(1)), ("b".to_owned(), json!(1))].into();
        let after = [("b".to_owned(), json!(2)), ("c".to_owned(), json!(1))].into();
        assert_eq!(differences(&before, &after), ["- a", "~ b\n    before 1\n    after  2", "+ c"]);
        assert!(differences(&before, &before).is_empty());
    }
}
