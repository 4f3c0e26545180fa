//! Facts about a hosting cluster, collected by reads only.

use std::cell::RefCell;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Service};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};

use super::{ClassFacts, DEFAULT_CLASS, HostingFacts, NodeFacts, Wanted, read};
use crate::api::labels::LABEL_INSTALL;
use crate::api::rbac::{Right, Scope};
use crate::check::access::list_forbidden_writes;
use crate::check::pod_references::ReferenceFacts;
use crate::check::quota::Allowance;
use crate::check::secret_readers::SecretReaders;
use crate::check::sidecars::SidecarFacts;
use crate::check::{autopilot, clock};
use crate::k8s::describe_error;

/// The label of a namespace by which pods below a level of the Pod Security Standards are refused.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

fn class_facts(class: &StorageClass) -> ClassFacts {
    let is_default = DEFAULT_CLASS.iter().any(|key| class.annotations().get(*key).is_some_and(|value| value == "true"));
    let created = class.meta().creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    ClassFacts { name: class.name_any(), is_default, provisioner: class.provisioner.clone(), created }
}

/// Prefix of the annotations of nodes whose network flannel makes, which by itself enforces no network policies.
const FLANNEL: &str = "flannel.alpha.coreos.com/";
/// Prefixes of the annotations and labels of nodes where something beside flannel enforces them: Calico (as Canal), Cilium, and
/// distributions that bring kube-router's part for it.
const ENFORCERS: [&str; 5] = ["projectcalico.org/", "network.cilium.io/", "io.cilium", "k3s.io/", "rke2.io/"];

/// Returns whether a node is known to ignore network policies.
fn ignores_policies(node: &Node) -> bool {
    has_node_key_prefix(node, &[FLANNEL]) && !has_node_key_prefix(node, &ENFORCERS)
}

/// Returns whether an annotation or a label of a node begins with one of these prefixes.
fn has_node_key_prefix(node: &Node, prefixes: &[&str]) -> bool {
    let mut keys = node.annotations().keys().chain(node.labels().keys());
    keys.any(|key| prefixes.iter().any(|prefix| key.starts_with(prefix)))
}

fn node_facts(node: &Node) -> NodeFacts {
    let status = node.status.as_ref();
    let spec = node.spec.as_ref();
    let ready = status.and_then(|s| s.conditions.as_ref()).is_some_and(|conditions| {
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    NodeFacts {
        name: node.name_any(),
        usable: ready && !spec.and_then(|s| s.unschedulable).unwrap_or_default(),
        architecture: status.and_then(|s| s.node_info.as_ref()).map(|i| i.architecture.clone()).unwrap_or_default(),
        provider_id: spec.and_then(|s| s.provider_id.clone()).unwrap_or_default(),
        addresses: [list_node_addresses(node, "ExternalIP"), list_node_addresses(node, "InternalIP")].concat(),
        ignores_policies: ignores_policies(node),
    }
}

fn list_node_addresses(node: &Node, kind: &str) -> Vec<String> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    addresses.into_iter().flatten().filter(|a| a.type_ == kind).map(|a| a.address.clone()).collect()
}

/// Facts that become more while several reads are in progress.
struct Learning<'s>(RefCell<Known<'s>>);

struct Known<'s> {
    facts: HostingFacts,
    /// Receiver of what is reported.
    seen: &'s mut dyn FnMut(&HostingFacts),
}

impl Learning<'_> {
    /// Notes what a read gave, and that it has ended.
    fn record_read(&self, read: &'static str, change: impl FnOnce(&mut HostingFacts)) {
        let Known { facts, seen } = &mut *self.0.borrow_mut();
        change(facts);
        facts.ended.insert(read);
        seen(facts);
    }
}

impl HostingFacts {
    /// Reads everything the checks need, and passes the facts known so far to `seen` after each read. Only the
    /// reachability of the
    /// API server is an error here; what may not be read is noted in `unread` and judged by the checks. `former` finds
    /// the [node port](HostingFacts::former_node_port) of an earlier install; it is asked where `wanted` has none.
    pub async fn from_hosting_cluster(
        client: &Client,
        wanted: Wanted,
        former: impl Future<Output = Option<u16>>,
        seen: &mut dyn FnMut(&Self),
    ) -> Result<Self, kube::Error> {
        let version = client.apiserver_version().await?;
        let facts = Self { git_version: version.git_version, wanted: wanted.clone(), ..Self::default() };
        seen(&facts);
        let learning = Learning(RefCell::new(Known { facts, seen }));
        let all = ListParams::default();
        let clock = async {
            let ahead = clock::read_clock_ahead(client).await;
            learning.record_read(read::CLOCK, |facts| facts.clock_ahead = ahead);
        };
        let nodes = async {
            let nodes: Api<Node> = Api::all(client.clone());
            let (nodes, groups) = tokio::join!(nodes.list(&all), client.list_api_groups());
            learning.record_read(read::NODES, |facts| {
                match nodes {
                    Ok(list) => facts.nodes = list.iter().map(node_facts).collect(),
                    Err(error) => drop(facts.unread.insert(read::NODES, describe_error(&error))),
                }
                let names = facts.nodes.iter().map(|node| node.name.as_str());
                facts.autopilot_evidence = autopilot::find_autopilot_evidence(groups.as_ref().ok(), names);
            });
        };
        let classes = async {
            let classes = Api::<StorageClass>::all(client.clone()).list(&all).await;
            learning.record_read(read::CLASSES, |facts| match classes {
                Ok(list) => facts.classes = list.iter().map(class_facts).collect(),
                Err(error) => drop(facts.unread.insert(read::CLASSES, describe_error(&error))),
            });
        };
        let rights = async {
            let forbidden = list_forbidden_writes(client, &wanted.namespace, &wanted.writes).await?;
            learning.record_read(read::RIGHTS, |facts| facts.forbidden = forbidden);
            Ok(())
        };
        let services = async {
            let former = if wanted.node_port.is_none() { former.await } else { None };
            let holders = match wanted.node_port.or(former) {
                Some(port) => node_port_holders(client, &wanted, port).await,
                None => Vec::new(),
            };
            learning.record_read(read::SERVICES, |facts| {
                facts.former_node_port = former;
                facts.node_port_holders = holders;
            });
        };
        let namespace = read_namespace_facts(client, &wanted, &learning);
        let references = async {
            let found = ReferenceFacts::from_cluster(client, &wanted.namespace, &wanted.references).await;
            learning.record_read(read::REFERENCES, |facts| facts.references = found);
        };
        let ((), (), (), (), (), (), asked) =
            tokio::join!(clock, nodes, classes, services, namespace, references, rights);
        asked.map(|()| learning.0.into_inner().facts)
    }
}

/// Reads the namespace and what is in it.
async fn read_namespace_facts(client: &Client, wanted: &Wanted, learning: &Learning<'_>) {
    let all = ListParams::default();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &wanted.namespace);
    let stateful: Api<StatefulSet> = Api::namespaced(client.clone(), &wanted.namespace);
    let (namespace, webhooks, allowance, readers, claims, stateful) = tokio::join!(
        namespaces.get_opt(&wanted.namespace),
        SidecarFacts::list_injectors(client),
        Allowance::from_namespace(client, &wanted.namespace),
        SecretReaders::find_in_namespace(client, &wanted.namespace),
        claims.list(&all),
        stateful.list(&all),
    );
    learning.record_read(read::NAMESPACE, |facts| {
        let found = namespace.as_ref().ok().and_then(Option::as_ref);
        facts.namespace.sidecars = SidecarFacts::new(&wanted.namespace, found, &webhooks);
        match namespace {
            Ok(Some(namespace)) => {
                facts.namespace.exists = true;
                facts.namespace.terminating = namespace.meta().deletion_timestamp.is_some();
                facts.namespace.pod_security = namespace.labels().get(ENFORCE).cloned();
            }
            Ok(None) => {}
            Err(error) => drop(facts.unread.insert(read::NAMESPACE, describe_error(&error))),
        }
        facts.namespace.allowance = allowance;
        facts.namespace.readers = readers;
        for claim in claims.iter().flatten() {
            facts.namespace.claims.push(claim.name_any());
            if let Some(owner) = claim.labels().get(LABEL_INSTALL).filter(|_| wanted.claims.contains(&claim.name_any()))
            {
                facts.namespace.data_of.insert(claim.name_any(), owner.clone());
            }
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase == Some("Bound") {
                facts.namespace.bound_claims.push(claim.name_any());
            }
        }
        for set in stateful.iter().flatten() {
            let labels = set.labels();
            let ours = labels.get("app.kubernetes.io/part-of").is_some_and(|part| part == "fleet");
            if let Some(name) = labels.get(LABEL_INSTALL).filter(|_| ours) {
                facts.namespace.control_planes.push(name.clone());
                let version = labels.get("app.kubernetes.io/version").cloned();
                facts.namespace.versions.extend(version.map(|version| (name.clone(), version)));
            }
        }
    });
}

/// The rights of [`HostingFacts::from_hosting_cluster`]; what may not be read is judged as unknown.
pub fn hosting_rights() -> Vec<Right> {
    [
        Right::optional_rights(Scope::Cluster, "storage.k8s.io", "storageclasses", &["list"]),
        Right::optional_rights(Scope::Cluster, "", "nodes", &["list"]),
        Right::optional_rights(Scope::Cluster, "", "namespaces", &["get"]),
        Right::optional_rights(Scope::Cluster, "", "services", &["list"]),
        Right::optional_rights(Scope::Namespace, "", "persistentvolumeclaims", &["list"]),
        Allowance::allowance_rights(),
        SecretReaders::secret_reader_rights(),
        ReferenceFacts::reference_rights(),
        SidecarFacts::sidecar_rights(),
        Right::optional_rights(Scope::Namespace, "apps", "statefulsets", &["list"]),
    ]
    .concat()
}

async fn node_port_holders(client: &Client, wanted: &Wanted, port: u16) -> Vec<String> {
    let services: Api<Service> = Api::all(client.clone());
    // Without the right to list Services everywhere the API server itself still refuses a taken port.
    let Ok(list) = services.list(&ListParams::default()).await else { return Vec::new() };
    list.iter()
        .filter(|service| {
            service.namespace().as_deref() != Some(wanted.namespace.as_str())
                || service.labels().get(LABEL_INSTALL) != Some(&wanted.name)
        })
        .filter(|service| {
            let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
            ports.into_iter().flatten().any(|p| p.node_port == Some(i32::from(port)))
        })
        .map(|service| format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ignores_with_metadata(annotations: serde_json::Value, labels: serde_json::Value) -> bool {
        let metadata = json!({"name": "n", "annotations": annotations, "labels": labels});
        ignores_policies(&serde_json::from_value(json!({"metadata": metadata})).unwrap())
    }

    #[test]
    fn a_node_ignores_policies_only_where_flannel_is_alone() {
        let flannel = json!({"flannel.alpha.coreos.com/backend-type": "vxlan"});
        assert!(ignores_with_metadata(flannel.clone(), json!({})));
        assert!(!ignores_with_metadata(json!({}), json!({})), "of others nothing is known");
        for beside in ["projectcalico.org/IPv4Address", "k3s.io/hostname", "rke2.io/hostname"] {
            let mut annotations = flannel.clone();
            annotations[beside] = json!("x");
            assert!(!ignores_with_metadata(annotations, json!({})), "{beside}");
        }
        assert!(!ignores_with_metadata(flannel.clone(), json!({"io.cilium.network/x": "y"})));
    }
}
