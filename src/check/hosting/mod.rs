//! A hosting cluster before an install: what is known of it, and the preflight checks over that.

mod collect;
mod judge;

use std::collections::{BTreeMap, BTreeSet};

use crate::api::labels::DEFAULT_CLASS_ANNOTATIONS as DEFAULT_CLASS;
use crate::check::pod_references::{PodReferences, ReferenceFacts};
use crate::check::quota::{Allowance, Taken};
use crate::check::secret_readers::SecretReaders;
use crate::check::sidecars::SidecarFacts;
use crate::check::support::Support;

pub use collect::hosting_rights;
#[cfg(test)]
pub(super) use judge::tests::examples;
pub use judge::{CHECKS, USUAL_NODE_PORTS};

/// The reads that the facts come from, after that of the version.
pub mod read {
    /// The API server's clock.
    pub const CLOCK: &str = "clock";
    /// Nodes, and the API groups that tell the mode of a managed cluster.
    pub const NODES: &str = "nodes";
    /// Access reviews.
    pub const RIGHTS: &str = "rights";
    /// The namespace and what is in it.
    pub const NAMESPACE: &str = "namespace";
    /// StorageClasses.
    pub const CLASSES: &str = "storage";
    /// Objects that the pods name.
    pub const REFERENCES: &str = "references";
    /// Services of all namespaces.
    pub const SERVICES: &str = "services";
    /// Objects of the names that are wanted. Whoever plans the install reads them.
    pub const NAMES: &str = "names";
}

/// Requirements of an install plan on the cluster; the checks compare them with the facts of the cluster.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The Kubernetes versions that the line supports.
    pub support: Support,
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
    /// Writes that must be allowed: API group, resource, whether it lives in the namespace.
    pub writes: Vec<(String, String, bool)>,
    /// True if a Service of type LoadBalancer is planned.
    pub load_balancer: bool,
    /// True if network policies are planned.
    pub network_policies: bool,
    /// Amounts that the objects take from the quotas of the namespace, without existing objects; the planner fills this
    /// in.
    pub taken: Taken,
    /// Objects that the pods name.
    pub references: PodReferences,
    /// CPU architectures for which there are images.
    pub architectures: Vec<String>,
}

/// A StorageClass as far as etcd's volume is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFacts {
    /// Its name.
    pub name: String,
    /// True if claims without a class get it.
    pub is_default: bool,
    /// Provisioner that makes its volumes.
    pub provisioner: String,
    /// Time of its creation, in seconds since 1970.
    pub created: i64,
}

/// A node as far as placement and exposure are concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Whether it is ready and not cordoned.
    pub usable: bool,
    /// CPU architecture, e.g. `amd64`.
    pub architecture: String,
    /// `spec.providerID`, empty outside clouds.
    pub provider_id: String,
    /// Addresses under which it is reached: external ones first.
    pub addresses: Vec<String>,
    /// Whether its annotations show a network plugin that enforces no network policies, and no add-on that does.
    pub ignores_policies: bool,
}

/// The namespace as it is now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NamespaceFacts {
    /// Whether it is there.
    pub exists: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Names of control planes whose components live in it.
    pub control_planes: Vec<String>,
    /// The version that each of them is labelled with.
    pub versions: BTreeMap<String, String>,
    /// Its claims by name.
    pub claims: Vec<String>,
    /// Bound claims by name.
    pub bound_claims: Vec<String>,
    /// Claims of the wanted names, with the control plane whose data they hold.
    pub data_of: BTreeMap<String, String>,
    /// Its quotas and LimitRanges.
    pub allowance: Allowance,
    /// Others who may read its Secrets.
    pub readers: SecretReaders,
    /// What adds containers to its pods.
    pub sidecars: SidecarFacts,
    /// The level of the Pod Security Standards that it enforces, as labelled.
    pub pod_security: Option<String>,
}

/// An existing object of a name that the install needs, which belongs to something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    /// `Kind/name`.
    pub object: String,
    /// Owner of the object: its field manager, or the installation that it belongs to.
    pub owner: String,
    /// True if it belongs to another installation, and so is never taken over.
    pub installed: bool,
}

/// Facts that were read from a hosting cluster, and the requirements on it.
#[derive(Debug, Clone, Default)]
pub struct HostingFacts {
    /// Requirements of the plan.
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
    /// Signs that only a fully managed cluster has: an API group, names of nodes.
    pub autopilot_evidence: Vec<String>,
    /// The node port of an earlier install, which the API server keeps unless another one is given.
    pub former_node_port: Option<u16>,
    /// Other Services that use its future node port: `namespace/name`.
    pub node_port_holders: Vec<String>,
    /// What there is of the objects that the pods name.
    pub references: ReferenceFacts,
    /// The API server's clock less the local one, in seconds; `None` when it told no time.
    pub clock_ahead: Option<i64>,
    /// Foreign objects with the wanted names; the planner fills this in.
    pub collisions: Vec<Collision>,
    /// Recorded values that the install would reset, one clause each; the planner fills this in.
    pub forgotten: Vec<String>,
    /// The [reads](read) that have ended, in whatever way.
    pub ended: BTreeSet<&'static str>,
    /// Reads that failed: what, and why.
    pub unread: BTreeMap<&'static str, String>,
}

impl HostingFacts {
    /// The StorageClass that etcd's claims will use. Of several default ones, the API server takes the newest, by name where
    /// they are as old.
    fn storage_class(&self) -> Option<&ClassFacts> {
        match &self.wanted.storage_class {
            Some(name) => self.classes.iter().find(|class| &class.name == name),
            None => self.default_classes().find(|class| self.default_class() == Some(&class.name)),
        }
    }

    /// The StorageClass that claims get which name none.
    fn default_class(&self) -> Option<&str> {
        let newest = self.default_classes().max_by(|a, b| a.created.cmp(&b.created).then(b.name.cmp(&a.name)));
        newest.map(|class| class.name.as_str())
    }

    fn default_classes(&self) -> impl Iterator<Item = &ClassFacts> {
        self.classes.iter().filter(|class| class.is_default)
    }
}

/// Returns whether a node's `spec.providerID` names a cloud that makes load balancers.
pub fn is_cloud(provider_id: &str) -> bool {
    let scheme = provider_id.split("://").next().unwrap_or_default();
    !provider_id.is_empty() && !matches!(scheme, "kind" | "k3s" | "k3d" | "minikube" | "docker")
}
