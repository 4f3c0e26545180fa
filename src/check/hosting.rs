//! Facts about a hosting cluster, collected by reads only, and the preflight checks over them.

use std::collections::BTreeMap;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Service};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt};

use super::{Check, Finding, Severity};
use crate::api::rights::{Right, Scope};
use crate::api::version::KubeMinor;

const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// What the plan of an install asks of the cluster; together with what the cluster is, it decides the checks.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Service line, as shown: `v0.6`.
    pub line: String,
    /// The Kubernetes minors that the line supports.
    pub supported: Vec<KubeMinor>,
    /// Service lines that support each Kubernetes minor and can be installed, newest first.
    pub alternatives: BTreeMap<KubeMinor, Vec<String>>,
    /// Service lines that support each Kubernetes minor but have no chart in this program.
    pub unavailable: BTreeMap<KubeMinor, Vec<String>>,
    /// Namespace of the components.
    pub namespace: String,
    /// Name of the control plane.
    pub name: String,
    /// The StorageClass asked for; `None` is the cluster's default.
    pub storage_class: Option<String>,
    /// The PersistentVolumeClaims that etcd will use.
    pub claims: Vec<String>,
    /// A fixed node port, when one was asked for.
    pub node_port: Option<u16>,
    /// What must be allowed: API group, resource, whether it lives in the namespace.
    pub writes: Vec<(String, String, bool)>,
    /// Whether a Service of type LoadBalancer is planned.
    pub load_balancer: bool,
}

/// A StorageClass as far as etcd's volume is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFacts {
    /// Its name.
    pub name: String,
    /// Whether claims without a class get it.
    pub is_default: bool,
    /// Who makes its volumes.
    pub provisioner: String,
}

/// A node as far as placement and exposure are concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Ready and not cordoned.
    pub usable: bool,
    /// CPU architecture, e.g. `amd64`.
    pub architecture: String,
    /// `spec.providerID`, empty outside clouds.
    pub provider_id: String,
    /// Addresses under which it is reached: external ones first.
    pub addresses: Vec<String>,
}

/// The namespace as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// It is there.
    pub exists: bool,
    /// It is being deleted.
    pub terminating: bool,
    /// Names of control planes whose components live in it.
    pub control_planes: Vec<String>,
    /// The version that each of them is labelled with.
    pub versions: BTreeMap<String, String>,
    /// Bound claims by name.
    pub bound_claims: Vec<String>,
}

/// What was read from a hosting cluster, and what is wanted of it.
#[derive(Debug, Clone, Default)]
pub struct HostingFacts {
    /// What the plan asks for.
    pub wanted: Wanted,
    /// `gitVersion` of the API server.
    pub git_version: String,
    /// All StorageClasses.
    pub classes: Vec<ClassFacts>,
    /// All nodes.
    pub nodes: Vec<NodeFacts>,
    /// The namespace.
    pub namespace: NamespaceFacts,
    /// Writes that the user may not do: `create secrets in namespace fleet`.
    pub forbidden: Vec<String>,
    /// API groups that only a fully managed cluster serves.
    pub autopilot_evidence: Vec<String>,
    /// Services that hold the wanted node port: `namespace/name`.
    pub node_port_holders: Vec<String>,
    /// Reads that failed: what, and why.
    pub unread: BTreeMap<&'static str, String>,
}

fn class_facts(class: &StorageClass) -> ClassFacts {
    let is_default = DEFAULT_CLASS.iter().any(|key| class.annotations().get(*key).is_some_and(|value| value == "true"));
    ClassFacts { name: class.name_any(), is_default, provisioner: class.provisioner.clone() }
}

fn node_facts(node: &Node) -> NodeFacts {
    let status = node.status.as_ref();
    let spec = node.spec.as_ref();
    let ready = status.and_then(|s| s.conditions.as_ref()).is_some_and(|conditions| {
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    let of_type = |kind: &str| -> Vec<String> {
        let addresses = status.and_then(|s| s.addresses.as_ref());
        addresses.into_iter().flatten().filter(|a| a.type_ == kind).map(|a| a.address.clone()).collect()
    };
    NodeFacts {
        name: node.name_any(),
        usable: ready && !spec.and_then(|s| s.unschedulable).unwrap_or_default(),
        architecture: status.and_then(|s| s.node_info.as_ref()).map(|i| i.architecture.clone()).unwrap_or_default(),
        provider_id: spec.and_then(|s| s.provider_id.clone()).unwrap_or_default(),
        addresses: [of_type("ExternalIP"), of_type("InternalIP")].concat(),
    }
}

impl HostingFacts {
    /// Reads everything the checks need. Only the reachability of the API server is an error here;
    /// what may not be read is noted in `unread` and judged by the checks.
    pub async fn collect(client: &Client, wanted: Wanted) -> Result<Self, kube::Error> {
        let version = client.apiserver_version().await?;
        let mut facts = Self { git_version: version.git_version, ..Self::default() };
        let all = ListParams::default();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &wanted.namespace);
        let stateful: Api<k8s_openapi::api::apps::v1::StatefulSet> = Api::namespaced(client.clone(), &wanted.namespace);
        let classes: Api<StorageClass> = Api::all(client.clone());
        let nodes: Api<Node> = Api::all(client.clone());
        let (classes, nodes, namespace, claims, stateful, groups, forbidden, holders) = tokio::join!(
            classes.list(&all),
            nodes.list(&all),
            namespaces.get_opt(&wanted.namespace),
            claims.list(&all),
            stateful.list(&all),
            client.list_api_groups(),
            forbidden_writes(client, &wanted),
            node_port_holders(client, &wanted),
        );
        match classes {
            Ok(list) => facts.classes = list.iter().map(class_facts).collect(),
            Err(error) => drop(facts.unread.insert("storage", error.to_string())),
        }
        match nodes {
            Ok(list) => facts.nodes = list.iter().map(node_facts).collect(),
            Err(error) => drop(facts.unread.insert("nodes", error.to_string())),
        }
        match namespace {
            Ok(Some(namespace)) => {
                facts.namespace.exists = true;
                facts.namespace.terminating = namespace.meta().deletion_timestamp.is_some();
            }
            Ok(None) => {}
            Err(error) => drop(facts.unread.insert("namespace", error.to_string())),
        }
        for claim in claims.iter().flatten() {
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase == Some("Bound") {
                facts.namespace.bound_claims.push(claim.name_any());
            }
        }
        for set in stateful.iter().flatten() {
            let labels = set.labels();
            let ours = labels.get("app.kubernetes.io/part-of").is_some_and(|part| part == "fleet");
            if let Some(name) = labels.get("app.kubernetes.io/instance").filter(|_| ours) {
                facts.namespace.control_planes.push(name.clone());
                let version = labels.get("app.kubernetes.io/version").cloned();
                facts.namespace.versions.extend(version.map(|version| (name.clone(), version)));
            }
        }
        for group in groups.iter().flat_map(|list| &list.groups) {
            if group.name == "auto.gke.io" {
                facts.autopilot_evidence.push(format!("API group {}", group.name));
            }
        }
        for node in facts.nodes.iter().filter(|node| node.name.starts_with("gk3-")) {
            facts.autopilot_evidence.push(format!("node {}", node.name));
        }
        facts.forbidden = forbidden?;
        facts.node_port_holders = holders;
        facts.wanted = wanted;
        Ok(facts)
    }

    /// The StorageClass that etcd's claims will use.
    fn class(&self) -> Option<&ClassFacts> {
        match &self.wanted.storage_class {
            Some(name) => self.classes.iter().find(|class| &class.name == name),
            None => self.classes.iter().find(|class| class.is_default),
        }
    }
}

/// The rights of [`HostingFacts::collect`]; what may not be read is judged as unknown.
pub fn rights() -> Vec<Right> {
    [
        Right::optional(Scope::Cluster, "storage.k8s.io", "storageclasses", &["list"]),
        Right::optional(Scope::Cluster, "", "nodes", &["list"]),
        Right::optional(Scope::Cluster, "", "namespaces", &["get"]),
        Right::optional(Scope::Cluster, "", "services", &["list"]),
        Right::optional(Scope::Namespace, "", "persistentvolumeclaims", &["list"]),
        Right::optional(Scope::Namespace, "apps", "statefulsets", &["list"]),
    ]
    .concat()
}

async fn forbidden_writes(client: &Client, wanted: &Wanted) -> Result<Vec<String>, kube::Error> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    let asked = wanted.writes.iter().flat_map(|(group, resource, namespaced)| {
        ["create", "patch"].into_iter().map(move |verb| (group, resource, *namespaced, verb))
    });
    let reviewed = futures::future::try_join_all(asked.map(|(group, resource, namespaced, verb)| {
        let attributes = ResourceAttributes {
            group: Some(group.clone()),
            resource: Some(resource.clone()),
            verb: Some(verb.to_owned()),
            namespace: namespaced.then(|| wanted.namespace.clone()),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), non_resource_attributes: None },
            ..SelfSubjectAccessReview::default()
        };
        let (reviews, params) = (&reviews, &params);
        async move {
            let answer = reviews.create(params, &review).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            let place = if namespaced { format!(" in namespace {}", wanted.namespace) } else { String::new() };
            Ok::<_, kube::Error>((!allowed).then(|| format!("{verb} {resource}{place}")))
        }
    }))
    .await?;
    Ok(reviewed.into_iter().flatten().collect())
}

async fn node_port_holders(client: &Client, wanted: &Wanted) -> Vec<String> {
    let Some(port) = wanted.node_port else { return Vec::new() };
    let services: Api<Service> = Api::all(client.clone());
    // Without the right to list Services everywhere the API server itself still refuses a taken port.
    let Ok(list) = services.list(&ListParams::default()).await else { return Vec::new() };
    let ours = |service: &Service| {
        service.namespace().as_deref() == Some(wanted.namespace.as_str())
            && service.labels().get("app.kubernetes.io/instance") == Some(&wanted.name)
    };
    list.iter()
        .filter(|service| !ours(service))
        .filter(|service| {
            let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
            ports.into_iter().flatten().any(|p| p.node_port == Some(i32::from(port)))
        })
        .map(|service| format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any()))
        .collect()
}

/// The preflight checks of a control plane install, in the order in which they are shown.
pub const CHECKS: [Check<HostingFacts>; 9] = [
    Check {
        id: "kubernetes-version",
        title: "Kubernetes version",
        severity: Severity::Error,
        needs: &[],
        evaluate: kubernetes_version,
    },
    Check { id: "autopilot", title: "managed mode", severity: Severity::Error, needs: &[], evaluate: autopilot },
    Check { id: "access", title: "rights", severity: Severity::Error, needs: &[], evaluate: access },
    Check { id: "namespace", title: "namespace", severity: Severity::Error, needs: &[], evaluate: namespace },
    Check {
        id: "existing",
        title: "existing installation",
        severity: Severity::Error,
        needs: &["namespace"],
        evaluate: existing,
    },
    Check { id: "nodes", title: "nodes", severity: Severity::Error, needs: &[], evaluate: nodes },
    Check { id: "storage", title: "storage", severity: Severity::Error, needs: &[], evaluate: storage },
    Check { id: "node-port", title: "node port", severity: Severity::Error, needs: &[], evaluate: node_port },
    Check {
        id: "load-balancer",
        title: "load balancer",
        severity: Severity::Warning,
        needs: &["nodes"],
        evaluate: load_balancer,
    },
];

fn kubernetes_version(facts: &HostingFacts) -> Finding {
    let wanted = &facts.wanted;
    let Ok(minor) = facts.git_version.parse::<KubeMinor>() else {
        return Finding::bad(
            format!("the API server reports version `{}`, which is not a Kubernetes version", facts.git_version),
            "check that `--context` names a Kubernetes cluster",
        );
    };
    if wanted.supported.contains(&minor) {
        return Finding::Good(format!("{} is supported by service version {}", facts.git_version, wanted.line));
    }
    let row: Vec<String> = wanted.supported.iter().map(ToString::to_string).collect();
    let what = format!(
        "service version {} supports Kubernetes {}; this cluster runs {} ({minor})",
        wanted.line,
        row.join(", "),
        facts.git_version
    );
    let remedy = match (wanted.alternatives.get(&minor).map(Vec::as_slice), wanted.unavailable.get(&minor)) {
        (Some([newest, ..]), _) => format!("install with `--version {newest}` or `--version auto`"),
        (_, Some(lines)) => format!(
            "`--version {}` would support {minor}, but this release of the program does not carry its chart yet; use a \
             cluster of Kubernetes {}",
            lines.first().map_or("", String::as_str),
            row.join(" or ")
        ),
        _ => format!("no service version supports {minor}; `fleetctl versions` lists what is supported"),
    };
    Finding::bad(what, remedy)
}

fn autopilot(facts: &HostingFacts) -> Finding {
    match facts.autopilot_evidence.first() {
        None => Finding::Good("not a fully managed (autopilot) cluster".to_owned()),
        Some(evidence) => Finding::bad(
            format!("this is a managed cluster in autopilot mode ({evidence})"),
            "use a cluster whose nodes are yours to manage",
        ),
    }
}

fn access(facts: &HostingFacts) -> Finding {
    if facts.forbidden.is_empty() {
        return Finding::Good(format!("may write all {} kinds that are needed", facts.wanted.writes.len()));
    }
    Finding::bad(
        format!("you may not {}", facts.forbidden.join(", ")),
        "ask for these rights (`fleetctl show rbac` prints all that are needed), or use a context that has them (`--context`)",
    )
}

fn namespace(facts: &HostingFacts) -> Finding {
    let name = &facts.wanted.namespace;
    if let Some(error) = facts.unread.get("namespace") {
        return Finding::doubtful(format!("namespace {name} could not be read: {error}"), "allow `get` on namespaces");
    }
    match &facts.namespace {
        NamespaceFacts { terminating: true, .. } => Finding::bad(
            format!("namespace {name} is being deleted"),
            format!("wait for it to go (`kubectl get namespace {name}`), or choose another with `--namespace`"),
        ),
        NamespaceFacts { exists: true, .. } => Finding::Good(format!("{name} exists")),
        _ => Finding::Good(format!("{name} will be created")),
    }
}

fn existing(facts: &HostingFacts) -> Finding {
    let wanted = &facts.wanted;
    match facts.namespace.control_planes.iter().find(|other| **other != wanted.name) {
        Some(other) => Finding::bad(
            format!("namespace {} already holds control plane `{other}`", wanted.namespace),
            "choose another namespace with `--namespace`, or that name to change what is installed",
        ),
        None if facts.namespace.control_planes.is_empty() => Finding::Good("none in this namespace".to_owned()),
        None => Finding::Good(format!("{} is installed and will be brought up to date", wanted.name)),
    }
}

fn nodes(facts: &HostingFacts) -> Finding {
    if let Some(error) = facts.unread.get("nodes") {
        return Finding::doubtful(format!("nodes could not be listed: {error}"), "allow `list` on nodes");
    }
    let usable = facts.nodes.iter().filter(|node| node.usable).count();
    if usable > 0 {
        return Finding::Good(format!("{usable} ready"));
    }
    Finding::bad(
        format!("none of the {} nodes is ready and schedulable", facts.nodes.len()),
        "see `kubectl get nodes`; make one ready or uncordon it",
    )
}

fn storage(facts: &HostingFacts) -> Finding {
    let wanted = &facts.wanted;
    if !wanted.claims.is_empty() && wanted.claims.iter().all(|claim| facts.namespace.bound_claims.contains(claim)) {
        return Finding::Good(format!("{} is bound already", wanted.claims.join(", ")));
    }
    if let Some(error) = facts.unread.get("storage") {
        return Finding::doubtful(
            format!("StorageClasses could not be listed: {error}"),
            "allow `list` on storageclasses",
        );
    }
    let names = || facts.classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
    match (facts.class(), &wanted.storage_class) {
        (Some(class), _) if class.provisioner == "kubernetes.io/no-provisioner" => Finding::doubtful(
            format!("StorageClass {} makes no volumes by itself", class.name),
            "have a PersistentVolume ready for etcd, or choose another class with `--set etcd.storage.storageClass=NAME`",
        ),
        (Some(class), _) => Finding::Good(format!("StorageClass {} ({})", class.name, class.provisioner)),
        (None, Some(name)) => Finding::bad(
            format!("there is no StorageClass `{name}`; etcd's volume could not be made"),
            if facts.classes.is_empty() {
                "install a storage provisioner; the cluster has no StorageClass at all".to_owned()
            } else {
                format!("choose one of: {}", names())
            },
        ),
        (None, None) if facts.classes.is_empty() => Finding::bad(
            "the cluster has no StorageClass; etcd's volume could not be made",
            "configure a storage provisioner with a default StorageClass, then install again",
        ),
        (None, None) => Finding::bad(
            format!("no StorageClass is the default one (there are: {}); etcd's volume could not be made", names()),
            format!(
                "make one the default (annotation `{}: \"true\"`), or choose one with `--set etcd.storage.storageClass=NAME`",
                DEFAULT_CLASS[0]
            ),
        ),
    }
}

fn node_port(facts: &HostingFacts) -> Finding {
    match (facts.wanted.node_port, facts.node_port_holders.first()) {
        (None, _) => Finding::Good("chosen by the cluster".to_owned()),
        (Some(port), None) => Finding::Good(format!("{port} is free")),
        (Some(port), Some(holder)) => Finding::bad(
            format!("node port {port} is held by Service {holder}"),
            "choose another with `--set exposure.nodePort=PORT`, or leave it to the cluster",
        ),
    }
}

fn load_balancer(facts: &HostingFacts) -> Finding {
    if !facts.wanted.load_balancer {
        return Finding::Good("not needed".to_owned());
    }
    if facts.nodes.iter().any(|node| is_cloud(&node.provider_id)) {
        return Finding::Good("the nodes belong to a cloud that makes load balancers".to_owned());
    }
    Finding::doubtful(
        "no node names a cloud (`spec.providerID`), so nothing may answer a Service of type LoadBalancer",
        "if no load balancer is installed, use `--set exposure.type=NodePort`",
    )
}

/// Whether a node's `spec.providerID` names a cloud that makes load balancers.
pub fn is_cloud(provider_id: &str) -> bool {
    let scheme = provider_id.split("://").next().unwrap_or_default();
    !provider_id.is_empty() && !matches!(scheme, "kind" | "k3s" | "k3d" | "minikube" | "docker")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Verdict, run};

    fn fit() -> HostingFacts {
        HostingFacts {
            wanted: Wanted {
                line: "v0.6".to_owned(),
                supported: vec![KubeMinor::new(1, 24), KubeMinor::new(1, 25)],
                namespace: "fleet".to_owned(),
                name: "demo".to_owned(),
                claims: vec!["data-etcd-0".to_owned()],
                ..Wanted::default()
            },
            git_version: "v1.25.4".to_owned(),
            classes: vec![ClassFacts { name: "std".to_owned(), is_default: true, provisioner: "x.io/y".to_owned() }],
            nodes: vec![NodeFacts { name: "n".to_owned(), usable: true, ..NodeFacts::default() }],
            ..HostingFacts::default()
        }
    }

    fn failure(facts: &HostingFacts) -> (&'static str, String, String) {
        let report = run(&CHECKS, facts, &[]);
        let failures: Vec<_> = report.failures().collect();
        assert_eq!(failures.len(), 1, "{report:?}");
        (failures[0].0.id, failures[0].1.what.clone(), failures[0].1.remedy.clone())
    }

    #[test]
    fn a_fit_cluster_passes_every_check() {
        let report = run(&CHECKS, &fit(), &[]);
        assert!(report.judged.iter().all(|j| matches!(j.verdict, Verdict::Passed(_))), "{report:?}");
    }

    #[test]
    fn a_version_outside_the_row_names_row_server_and_the_flag_that_works() {
        let mut facts = fit();
        facts.git_version = "v1.31.4-gke.1".to_owned();
        facts.wanted.alternatives.insert(KubeMinor::new(1, 31), vec!["v1.1".to_owned(), "v1.0".to_owned()]);
        let (id, what, remedy) = failure(&facts);
        assert_eq!(id, "kubernetes-version");
        assert!(what.contains("v0.6 supports Kubernetes v1.24, v1.25") && what.contains("v1.31.4-gke.1"), "{what}");
        assert!(remedy.contains("--version v1.1"), "{remedy}");
        facts.wanted.unavailable = std::mem::take(&mut facts.wanted.alternatives);
        assert!(failure(&facts).2.contains("does not carry its chart yet"));
    }

    #[test]
    fn storage_is_refused_without_a_class_unless_the_claims_are_bound_already() {
        let mut facts = fit();
        facts.classes[0].is_default = false;
        assert!(failure(&facts).1.contains("there are: std"));
        facts.classes.clear();
        assert_eq!(failure(&facts).0, "storage");
        facts.namespace.bound_claims = vec!["data-etcd-0".to_owned()];
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
    }

    #[test]
    fn another_control_plane_in_the_namespace_is_refused_and_the_same_one_is_not() {
        let mut facts = fit();
        facts.namespace.exists = true;
        facts.namespace.control_planes = vec!["demo".to_owned()];
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
        facts.namespace.control_planes = vec!["other".to_owned()];
        assert_eq!(failure(&facts).0, "existing");
        facts.namespace.terminating = true;
        assert_eq!(failure(&facts).0, "namespace");
    }

    #[test]
    fn missing_rights_taken_ports_dead_nodes_and_autopilot_are_refused() {
        let mut facts = fit();
        facts.forbidden = vec!["create secrets in namespace fleet".to_owned()];
        assert_eq!(failure(&facts).0, "access");
        let mut facts = fit();
        facts.wanted.node_port = Some(32222);
        facts.node_port_holders = vec!["web/front".to_owned()];
        assert_eq!(failure(&facts).0, "node-port");
        let mut facts = fit();
        facts.nodes[0].usable = false;
        assert_eq!(failure(&facts).0, "nodes");
        let mut facts = fit();
        facts.autopilot_evidence = vec!["API group auto.gke.io".to_owned()];
        assert_eq!(failure(&facts).0, "autopilot");
    }

    #[test]
    fn a_load_balancer_is_expected_only_where_nodes_name_a_cloud() {
        assert!(is_cloud("aws:///eu-west-1a/i-0") && is_cloud("gce://p/z/i"));
        assert!(!is_cloud("") && !is_cloud("kind://docker/kind/x") && !is_cloud("k3s://n"));
    }
}
