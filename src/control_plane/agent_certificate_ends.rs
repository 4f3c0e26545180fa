//! Certificates of agents, by what each reports in its Lease in the control plane.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};

use super::health::format_error_chain;
use crate::api::labels::{AGENT_LEASE, ANNOTATION_CERTIFICATE_END, cluster_of_namespace};
use crate::api::util::text::visible_cell;

/// Longest time for the answer of a control plane.
const WITHIN: Duration = Duration::from_secs(10);
/// Length of a time in RFC 3339 that is read at most.
const LONGEST_TIME: usize = 40;

/// The end of an agent's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCertificate {
    /// The workload cluster.
    pub cluster: String,
    /// Its last moment; none where the agent does not report it.
    pub not_after: Option<Timestamp>,
}

/// Lists the certificates of the agents of a control plane, by cluster.
///
/// # Errors
/// The reason that they cannot be read, as a sentence.
pub async fn list_agent_certificates(hub: &Client) -> Result<Vec<AgentCertificate>, String> {
    let leases: Api<Lease> = Api::all(hub.clone());
    let of_agents = ListParams::default().fields(&format!("metadata.name={AGENT_LEASE}"));
    let found = tokio::time::timeout(WITHIN, leases.list(&of_agents)).await;
    let found = found.map_err(|_| format!("the API did not answer within {} s", WITHIN.as_secs()))?;
    let found = found.map_err(|error| format_error_chain(&error))?;
    let mut agents: Vec<AgentCertificate> = found.iter().filter_map(read_lease).collect();
    agents.sort_by(|one, other| one.cluster.cmp(&other.cluster));
    Ok(agents)
}

/// Whoever has an agent's certificate writes its Lease.
fn read_lease(lease: &Lease) -> Option<AgentCertificate> {
    let namespace = lease.namespace()?;
    let cluster = visible_cell(cluster_of_namespace(&namespace)?).into_owned();
    let reported = lease.annotations().get(ANNOTATION_CERTIFICATE_END).filter(|text| text.len() <= LONGEST_TIME);
    Some(AgentCertificate { cluster, not_after: reported.and_then(|text| text.parse().ok()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_lease_of(namespace: &str, end: &str) -> Option<AgentCertificate> {
        let metadata =
            json!({"name": AGENT_LEASE, "namespace": namespace, "annotations": {ANNOTATION_CERTIFICATE_END: end}});
        read_lease(&serde_json::from_value(json!({"metadata": metadata})).unwrap())
    }

    #[test]
    fn the_end_is_a_time_or_unknown() {
        let end = "2027-01-15T08:00:00Z";
        let unknown = AgentCertificate { cluster: "west".to_owned(), not_after: None };
        let known = AgentCertificate { not_after: Some(end.parse().unwrap()), ..unknown.clone() };
        assert_eq!(read_lease_of("fleet-c-west", end), Some(known));
        for wrong in ["", "soon", &"9".repeat(1000)] {
            assert_eq!(read_lease_of("fleet-c-west", wrong).as_ref(), Some(&unknown), "{wrong}");
        }
        assert_eq!(read_lease_of("default", end), None);
    }
}
