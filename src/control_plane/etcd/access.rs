//! Access to the members of an installed control plane's etcd: by port-forward, with a certificate made for one run.

use std::io;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use crate::api::labels::LABEL_INSTALL;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::rbac::{Right, Scope};
use crate::check::access::list_forbidden_rights;
use crate::control_plane::keys::find_keys;
use crate::etcd::{ClientIdentity, EtcdClient, EtcdError, MemberAddress, PodPorts};
use crate::k8s::connect::port_forward::{ForwardedPort, open_pod_port};
use crate::pki::{Authorities, PkiError};

/// Name of etcd's StatefulSet.
const ETCD: &str = "etcd";
/// Argument of etcd with the largest size of its store.
const QUOTA_ARGUMENT: &str = "--quota-backend-bytes=";
/// Most members that are asked. Certificates name five.
const MAX_MEMBERS: usize = 9;

/// The members of an etcd.
#[derive(Debug)]
pub struct EtcdAccess {
    /// A client for each pod of the StatefulSet, in order. None of them is connected yet.
    pub clients: Vec<EtcdClient>,
    /// Largest size of a store, in bytes, if the StatefulSet names it.
    pub quota_bytes: Option<u64>,
}

/// Reason that there is no access to the members.
#[derive(Debug, thiserror::Error)]
pub enum EtcdAccessError {
    /// The hosting cluster refuses or does not answer.
    #[error("a request to the hosting cluster failed")]
    Api(#[from] kube::Error),
    /// Rights that are missing, such as `create pods/portforward in namespace fleet`.
    #[error("you may not {}", .0.join(", "))]
    Forbidden(Vec<String>),
    /// There is no etcd of this control plane.
    #[error("control plane {name} has no StatefulSet etcd in namespace {namespace}")]
    NotInstalled {
        /// The control plane.
        name: ControlPlaneName,
        /// The namespace.
        namespace: NamespaceName,
    },
    /// The keys of the control plane are incomplete or damaged.
    #[error("the keys of the control plane cannot be used")]
    Keys(#[from] PkiError),
    /// A certificate or a name that TLS cannot use.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

/// Rights that an access to etcd needs. A port-forward is a WebSocket, so a GET; from Kubernetes 1.35 on, `create` is asked
/// for as well.
pub fn etcd_rights() -> Vec<Right> {
    [
        Right::needed_rights(Scope::Namespace, "", "secrets", &["get", "list"]),
        Right::needed_rights(Scope::Namespace, "apps", "statefulsets", &["get"]),
        Right::needed_rights(Scope::Namespace, "", "pods/portforward", &["get", "create"]),
    ]
    .concat()
}

/// Prepares the access: rights, members, keys, and a certificate for `run`.
///
/// # Errors
/// [`EtcdAccessError`]; that a member does not answer shows with the first call.
pub async fn prepare_etcd_access(
    client: &Client,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
    run: &str,
) -> Result<EtcdAccess, EtcdAccessError> {
    let forbidden = list_forbidden_rights(client, namespace.as_str(), &etcd_rights()).await?;
    if !forbidden.is_empty() {
        return Err(EtcdAccessError::Forbidden(forbidden));
    }
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace.as_str());
    let set = sets.get_opt(ETCD).await?;
    let set = set.filter(|set| set.labels().get(LABEL_INSTALL).map(String::as_str) == Some(name.as_str()));
    let Some(set) = set else {
        return Err(EtcdAccessError::NotInstalled { name: name.clone(), namespace: namespace.clone() });
    };
    let files = find_keys::from_cluster(client, namespace.as_str(), name.as_str()).await?;
    let identity = ClientIdentity::issue_for_run(&Authorities::from_map(&files)?, run, Timestamp::now())?;
    let forward = PortForward { pods: Api::namespaced(client.clone(), namespace.as_str()) };
    let clients = (0..member_count(&set)).map(|number| {
        EtcdClient::of_member(forward.clone(), &MemberAddress::new(number, namespace.as_str()), &identity)
    });
    Ok(EtcdAccess { clients: clients.collect::<Result<_, _>>()?, quota_bytes: find_quota(&set) })
}

fn member_count(set: &StatefulSet) -> usize {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or_default().min(MAX_MEMBERS)
}

/// Returns the size that etcd's last argument about it names, as etcd itself takes it.
fn find_quota(set: &StatefulSet) -> Option<u64> {
    let pod = set.spec.as_ref()?.template.spec.as_ref()?;
    let container = pod.containers.iter().find(|container| container.name == ETCD)?;
    let arguments = container.command.iter().chain(&container.args).flatten();
    arguments.filter_map(|argument| argument.strip_prefix(QUOTA_ARGUMENT)).next_back()?.parse().ok()
}

/// Ports of pods through the API server of the hosting cluster.
#[derive(Clone)]
struct PortForward {
    pods: Api<Pod>,
}

impl PodPorts for PortForward {
    type Stream = ForwardedPort;

    async fn connect(&self, pod: &str, port: u16) -> io::Result<ForwardedPort> {
        open_pod_port(&self.pods, pod, port).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn build_etcd_set(replicas: i64, command: &[&str]) -> StatefulSet {
        let containers = json!([{"name": "sidecar"}, {"name": "etcd", "command": command}]);
        serde_json::from_value(json!({"metadata": {"name": "etcd"}, "spec": {"replicas": replicas,
            "selector": {}, "serviceName": "etcd", "template": {"spec": {"containers": containers}}}}))
        .unwrap()
    }

    #[test]
    fn members_and_quota_are_those_of_the_stateful_set() {
        let three = build_etcd_set(3, &["etcd", "--quota-backend-bytes=5", "--quota-backend-bytes=8"]);
        assert_eq!((member_count(&three), find_quota(&three)), (3, Some(8)));
        let odd = build_etcd_set(-1, &["etcd", "--quota-backend-bytes=much"]);
        assert_eq!((member_count(&odd), find_quota(&odd)), (0, None));
        assert_eq!(member_count(&build_etcd_set(i64::from(i32::MAX), &[])), MAX_MEMBERS);
    }
}
