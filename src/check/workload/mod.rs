//! Facts about a workload cluster and its control plane, collected by reads only, and the preflight checks over them.

mod collect;
mod earlier_copies;
mod judge;

use std::collections::BTreeMap;

use crate::api::remedy::Access;
use crate::api::version::ServiceLine;
use crate::check::pod_references::{PodReferences, ReferenceFacts};
use crate::check::quota::Allowance;
use crate::check::quota::needs::Needs;
use crate::check::secret_readers::SecretReaders;
use crate::check::sidecars::SidecarFacts;
use crate::check::support::Support;
use crate::k8s::connect::init_kubeconfig::Init;

pub use collect::workload_rights;
pub use earlier_copies::EarlierCopies;
pub use judge::CHECKS;
#[cfg(test)]
pub(super) use judge::tests::examples;

/// Requirements of the plan of an install on the cluster.
#[derive(Debug, Clone, Default)]
pub struct WantedAgent {
    /// The Kubernetes versions that the agent's line supports.
    pub support: Support,
    /// Lines of agents that may join a control plane of each line.
    pub joins: BTreeMap<ServiceLine, Vec<String>>,
    /// Name under which the cluster registers.
    pub name: String,
    /// Namespace of the agent.
    pub namespace: String,
    /// Writes that must be allowed: API group, resource, whether it lives in the namespace.
    pub writes: Vec<(String, String, bool)>,
    /// Objects that the pods name.
    pub references: PodReferences,
    /// Amounts that a first install takes from the quotas of the namespace.
    pub needs: Needs,
    /// Whether the install can read the init Secret from the control plane and copies it, with its namespace, if
    /// missing.
    pub copies: bool,
    /// The control plane's name, where it is known, for commands that are shown.
    pub control_plane: Option<String>,
    /// Access to the control plane; `None` where it is not known.
    pub hub: Option<Access>,
}

/// The Secret that the agent will start from.
#[derive(Debug, Clone, Default)]
pub enum InitFacts {
    /// There is none, here or to be copied.
    #[default]
    Missing,
    /// It is not what a control plane wrote. Holds what it lacks.
    Malformed(String),
    /// It has the server of a control plane other than the named one; contains that address.
    Elsewhere(String),
    /// It can be used.
    Usable {
        /// Content of the Secret.
        init: Box<Init>,
        /// Service version of the control plane when it was copied, where it says so.
        version: Option<String>,
        /// Answer of the control plane to its token.
        token: TokenFacts,
    },
}

/// Answer of the control plane to an init token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenFacts {
    /// It accepts the token.
    Accepted,
    /// It refuses the token: expired, revoked, or another control plane's.
    Refused,
    /// The control plane was not reached from here, for this reason.
    Unreached(String),
}

/// An agent's Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFacts {
    /// The name that it registers under.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Whether its control plane is the one of the init Secret; `None` where that is not known.
    pub is_of_same_fleet: Option<bool>,
}

/// A registered cluster, as far as names are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberFacts {
    /// Its name.
    pub name: String,
    /// The ID that it registered with.
    pub id: String,
}

/// Facts that were read, and what is wanted.
#[derive(Debug, Clone, Default)]
pub struct WorkloadFacts {
    /// Requirements of the plan.
    pub wanted: WantedAgent,
    /// `gitVersion` of the API server.
    pub git_version: String,
    /// Signs that only a fully managed cluster has: an API group, names of nodes.
    pub autopilot_evidence: Vec<String>,
    /// Whether the namespace is there.
    pub namespace_exists: bool,
    /// Whether it is being deleted.
    pub namespace_terminating: bool,
    /// UID of the namespace `kube-system`, by which the control plane knows the cluster.
    pub cluster_id: String,
    /// The Secret to start from.
    pub init: InitFacts,
    /// Agents that are installed in the cluster.
    pub agents: Vec<AgentFacts>,
    /// Control plane that issued the certificate of the existing agent, as a digest of its address and CA; empty for
    /// none.
    pub registered_with: String,
    /// The CA in the init Secret issued it: that is the same control plane, whatever its address.
    pub same_authority: bool,
    /// The clusters of the control plane, where it could be asked.
    pub members: Option<Vec<MemberFacts>>,
    /// The quotas and LimitRanges of the namespace.
    pub allowance: Allowance,
    /// Others who may read the Secrets of the namespace.
    pub readers: SecretReaders,
    /// What there is of the objects that the pods name.
    pub references: ReferenceFacts,
    /// Copies that an earlier registration left.
    pub earlier_copies: EarlierCopies,
    /// What adds containers to pods of the namespace.
    pub sidecars: SidecarFacts,
    /// The API server's clock less the local one, in seconds; `None` when it told no time.
    pub clock_ahead: Option<i64>,
    /// Writes that the user may not do.
    pub forbidden: Vec<String>,
    /// Reads that failed: what, and why.
    pub unread: BTreeMap<&'static str, String>,
}

impl WorkloadFacts {
    /// Returns the content of the Secret that the agent will start from, if that can be used.
    pub fn init(&self) -> Option<&Init> {
        match &self.init {
            InitFacts::Usable { init, .. } => Some(init),
            _ => None,
        }
    }

    /// Returns whether the agent that is here has a certificate of the control plane to which `init` leads.
    fn is_registered_with(&self, init: &Init) -> bool {
        self.same_authority || self.registered_with == init.control_plane_digest()
    }
}
