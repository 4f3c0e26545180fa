//! Exposure of the control plane's API: decided from facts of the cluster before anything is rendered.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use serde::Serialize;

use crate::chart::inspect::explain::DecidedBy;
use crate::check::hosting::{NodeFacts, USUAL_NODE_PORTS, is_cloud};
use crate::control_plane::values::{ExposureType, ExposureValues};

/// The decision behind `exposure.type`, with the reason that is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Type that was decided on; never `Auto`.
    pub kind: ExposureType,
    /// Reason for the decision, as a clause.
    pub why: String,
}

/// Decides `exposure.type: Auto`; any other type stands.
pub fn decide_exposure(exposure: &ExposureValues, nodes: &[NodeFacts]) -> Decision {
    if exposure.kind != ExposureType::Auto {
        return Decision { kind: exposure.kind, why: "set by `exposure.type`".to_owned() };
    }
    match nodes.iter().find(|node| is_cloud(&node.provider_id)) {
        Some(node) => {
            let cloud = node.provider_id.split("://").next().unwrap_or_default();
            Decision {
                kind: ExposureType::LoadBalancer,
                why: format!("node {} belongs to the cloud `{cloud}`", node.name),
            }
        }
        None => Decision { kind: ExposureType::NodePort, why: "no node names a cloud in `spec.providerID`".to_owned() },
    }
}

/// Endpoint of the control plane's API, as templates see it (`facts.exposure`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// `LoadBalancer`, `NodePort` or `ClusterIP`.
    #[serde(rename = "type")]
    pub kind: ExposureType,
    /// Host name or address in every kubeconfig.
    pub host: String,
    /// Port in every kubeconfig.
    pub port: u16,
    /// The node port of the Service, when one was asked for.
    pub node_port: Option<u16>,
    /// The node port that the Service has, for type NodePort; it is no fact for templates, which make the Service.
    #[serde(skip)]
    pub found_node_port: Option<u16>,
    /// Every name and address that the serving certificate must carry besides the in-cluster ones.
    pub sans: Vec<String>,
}

impl Endpoint {
    /// The server URL for kubeconfigs.
    pub fn url(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("https://{host}:{}", self.port)
    }
}

/// The values that decide each fact of [`Endpoint`]; without them the cluster does.
pub const DECIDED_BY: &[DecidedBy] = &[
    ("exposure.type", &["exposure.type"]),
    ("exposure.host", &["exposure.host", "exposure.type"]),
    ("exposure.port", &["exposure.port", "exposure.nodePort", "exposure.type"]),
    ("exposure.nodePort", &["exposure.nodePort", "exposure.port", "exposure.type"]),
    ("exposure.sans", &["exposure.host", "exposure.extraSANs", "exposure.agentEndpoint", "exposure.type"]),
    ("server", &["exposure.host", "exposure.port", "exposure.nodePort", "exposure.type", "pki.source"]),
];

/// Reason that the endpoint is not known yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotYet {
    /// The load balancer has not answered.
    #[error("Service {service} of type LoadBalancer has no address yet")]
    LoadBalancer {
        /// The Service's name.
        service: String,
    },
    /// No node has an address.
    #[error("no usable node has an address, so there is no host for node port {port}")]
    NoNodeAddress {
        /// The node port.
        port: u16,
    },
    /// The API server has not given the Service a port, a node port or a cluster IP.
    #[error("Service {service} has no {what}")]
    Incomplete {
        /// The Service's name.
        service: String,
        /// Field that the Service lacks, in words: `port`, `node port` or `cluster IP`.
        what: &'static str,
    },
}

/// The host of `host:port`, without the brackets of an IPv6 address.
pub(in crate::control_plane) fn host_of(endpoint: &str) -> String {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']').to_owned()
}

pub(in crate::control_plane) fn port_of(value: Option<i32>) -> Option<u16> {
    value.and_then(|port| u16::try_from(port).ok())
}

/// The node port that the Service asks for: `exposure.nodePort`, else `exposure.port` where it lies in the usual range
/// of node ports. None leaves the choice to the cluster.
pub fn wanted_node_port(kind: ExposureType, exposure: &ExposureValues) -> Option<u16> {
    if kind != ExposureType::NodePort {
        return None;
    }
    port_of(exposure.node_port).or_else(|| port_of(exposure.port).filter(|port| USUAL_NODE_PORTS.contains(port)))
}

/// Facts of an earlier install that stay where they can, so that kubeconfigs and agents continue calling the same
/// address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The host.
    pub host: Option<String>,
    /// The node port that is rendered where no value asks for another.
    pub node_port: Option<u16>,
}

/// The node port that is rendered: the one that is asked for, else the one from before.
pub fn rendered_node_port(kind: ExposureType, exposure: &ExposureValues, known: &Known) -> Option<u16> {
    let former = known.node_port.filter(|_| kind == ExposureType::NodePort);
    wanted_node_port(kind, exposure).or(former)
}

/// The kind of exposure to expect before the cluster is known.
pub fn expected_exposure_type(exposure: &ExposureValues) -> ExposureType {
    if exposure.kind == ExposureType::Auto { ExposureType::NodePort } else { exposure.kind }
}

/// The endpoint, from the Service as the cluster has it, the nodes and what the user asked for.
///
/// The host of an earlier install is kept while it is still an address of the cluster, so that a second install changes
/// no kubeconfig.
pub fn find_endpoint(
    kind: ExposureType,
    exposure: &ExposureValues,
    service: &Service,
    nodes: &[NodeFacts],
    known: &Known,
) -> Result<Endpoint, NotYet> {
    let name = service.metadata.name.clone().unwrap_or_default();
    let spec = service.spec.as_ref();
    let port = spec.and_then(|spec| spec.ports.as_ref()?.first());
    let own_port = require_port(port.map(|port| port.port), &name, "port")?;
    let mut found_node_port = None;
    let (found, port) = match kind {
        ExposureType::LoadBalancer => {
            let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
            let first = ingress.and_then(|list| list.first());
            let address = first.and_then(|ingress| ingress.hostname.clone().or_else(|| ingress.ip.clone()));
            if address.is_none() && exposure.host.is_none() {
                return Err(NotYet::LoadBalancer { service: name });
            }
            (address.into_iter().collect(), own_port)
        }
        ExposureType::NodePort | ExposureType::Auto => {
            let node_port = require_port(port.and_then(|port| port.node_port), &name, "node port")?;
            let addresses: Vec<String> =
                nodes.iter().filter(|node| node.usable).flat_map(|node| node.addresses.clone()).collect();
            if addresses.is_empty() && exposure.host.is_none() {
                return Err(NotYet::NoNodeAddress { port: node_port });
            }
            found_node_port = Some(node_port);
            (addresses, node_port)
        }
        ExposureType::ClusterIp => {
            let address = spec.and_then(|spec| spec.cluster_ip.clone());
            let address = address.ok_or(NotYet::Incomplete { service: name, what: "cluster IP" })?;
            (vec![address], own_port)
        }
    };
    Ok(Endpoint { found_node_port, ..assemble_endpoint(kind, exposure, found, port, known) })
}

fn require_port(port: Option<i32>, service: &str, what: &'static str) -> Result<u16, NotYet> {
    let port = port.and_then(|port| u16::try_from(port).ok());
    port.ok_or_else(|| NotYet::Incomplete { service: service.to_owned(), what })
}

/// Returns the endpoint that values alone decide, for rendering without a cluster.
///
/// # Errors
/// Path of the first value that is missing, such as `exposure.host`.
pub fn endpoint_from_values(exposure: &ExposureValues) -> Result<Endpoint, &'static str> {
    let port = port_of(exposure.port).or_else(|| port_of(exposure.node_port));
    let missing = match (exposure.kind, exposure.host.is_some(), port.is_some()) {
        (ExposureType::Auto, _, _) => Some("exposure.type"),
        (_, false, _) => Some("exposure.host"),
        (ExposureType::NodePort, _, false) => Some("exposure.port"),
        _ => None,
    };
    match missing {
        Some(path) => Err(path),
        None => Ok(assemble_endpoint(exposure.kind, exposure, Vec::new(), port.unwrap_or(443), &Known::default())),
    }
}

fn assemble_endpoint(
    kind: ExposureType,
    exposure: &ExposureValues,
    mut found: Vec<String>,
    port: u16,
    known: &Known,
) -> Endpoint {
    found.sort();
    found.dedup();
    let kept = known.host.clone().filter(|host| found.contains(host));
    let host = exposure.host.clone().or(kept).or_else(|| found.first().cloned()).unwrap_or_default();
    let mut sans: BTreeSet<String> = found.into_iter().collect();
    sans.insert(host.clone());
    sans.extend(exposure.extra_sans.iter().cloned());
    sans.extend(exposure.agent_endpoint.as_deref().map(host_of));
    let node_port = rendered_node_port(kind, exposure, known);
    // A port that was asked for is the one in kubeconfigs, whatever the Service has behind it.
    let port = port_of(exposure.port).unwrap_or(port);
    Endpoint { kind, host, port, node_port, found_node_port: None, sans: sans.into_iter().collect() }
}

/// An endpoint before anything is known, for renderings of which only the shape matters.
pub fn unknown_endpoint(kind: ExposureType) -> Endpoint {
    Endpoint {
        kind,
        host: "decided-at-install.invalid".to_owned(),
        port: 443,
        node_port: None,
        found_node_port: None,
        sans: Vec::new(),
    }
}

#[cfg(test)]
pub(in crate::control_plane) mod tests {
    use super::*;
    use serde_json::json;

    pub(in crate::control_plane) fn exposure(value: serde_json::Value) -> ExposureValues {
        let mut all = json!({"type": "Auto", "extraSANs": [], "annotations": {}, "sourceRanges": []});
        all.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    pub(in crate::control_plane) fn service(value: serde_json::Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    pub(in crate::control_plane) fn node(name: &str, provider_id: &str, addresses: &[&str]) -> NodeFacts {
        NodeFacts {
            name: name.to_owned(),
            usable: true,
            provider_id: provider_id.to_owned(),
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            ..NodeFacts::default()
        }
    }

    fn decide_facts(values: &serde_json::Value) -> serde_json::Value {
        let endpoint = endpoint_from_values(&exposure(values.clone())).unwrap();
        json!({"exposure": endpoint, "server": endpoint.url()})
    }

    #[test]
    fn what_decides_a_fact_is_said_of_every_value_that_changes_it() {
        let all = json!({"type": "NodePort", "host": "a.test", "port": 31000, "nodePort": 31001, "agentEndpoint": "b.test:1"});
        let others = json!({"type": "LoadBalancer", "host": "c.test", "port": 31002, "nodePort": 31003,
            "agentEndpoint": "d.test:1", "extraSANs": ["e.test"]});
        // Each alone, and with `port` left out, for which `nodePort` stands in.
        for without in [None, Some("port"), Some("nodePort")] {
            let mut from = all.clone();
            without.map(|key| from.as_object_mut().unwrap().remove(key));
            for (key, other) in others.as_object().unwrap() {
                let mut changed = from.clone();
                changed[key] = other.clone();
                for (fact, values) in DECIDED_BY {
                    let pointer = format!("/{}", fact.replace('.', "/"));
                    let [one, other] = [&from, &changed].map(|values| decide_facts(values).pointer(&pointer).cloned());
                    let said = values.contains(&format!("exposure.{key}").as_str());
                    assert!(said || one == other, "{fact} by {key}");
                }
            }
        }
    }

    #[test]
    fn auto_is_a_load_balancer_only_where_a_node_names_a_cloud() {
        let auto = exposure(json!({}));
        assert_eq!(decide_exposure(&auto, &[node("a", "", &[])]).kind, ExposureType::NodePort);
        let decision = decide_exposure(&auto, &[node("a", "aws:///x/i-1", &[])]);
        assert_eq!(decision.kind, ExposureType::LoadBalancer);
        assert!(decision.why.contains("`aws`"), "{decision:?}");
        assert_eq!(
            decide_exposure(&exposure(json!({"type": "ClusterIP"})), &[node("a", "aws:///x/i-1", &[])]).kind,
            ExposureType::ClusterIp
        );
    }

    #[test]
    fn a_node_port_endpoint_names_a_node_and_certifies_all_of_them() {
        let service =
            service(json!({"metadata": {"name": "apiserver"}, "spec": {"ports": [{"port": 443, "nodePort": 31234}]}}));
        let nodes = [node("b", "", &["10.0.0.2"]), node("a", "", &["10.0.0.1"])];
        let found = find_endpoint(
            ExposureType::NodePort,
            &exposure(json!({"extraSANs": ["x.example"]})),
            &service,
            &nodes,
            &Known::default(),
        )
        .unwrap();
        assert_eq!((found.url().as_str(), found.node_port), ("https://10.0.0.1:31234", None));
        assert_eq!(found.sans, ["10.0.0.1", "10.0.0.2", "x.example"]);
        let agents = exposure(json!({"agentEndpoint": "[fd00::1]:443"}));
        let found = find_endpoint(ExposureType::NodePort, &agents, &service, &nodes, &Known::default()).unwrap();
        assert!(found.sans.iter().any(|name| name == "fd00::1"), "{found:?}");
        // A host from before is kept while it is an address of a node.
        for (former, host) in [("10.0.0.2", "10.0.0.2"), ("10.0.0.9", "10.0.0.1")] {
            let known = Known { host: Some(former.to_owned()), node_port: None };
            let found = find_endpoint(ExposureType::NodePort, &exposure(json!({})), &service, &nodes, &known).unwrap();
            assert_eq!(found.host, host);
        }
    }

    #[test]
    fn a_value_comes_before_the_node_port_from_before_and_other_types_have_none() {
        let known = Known { host: None, node_port: Some(31234) };
        for (kind, values, port) in [
            (ExposureType::NodePort, json!({}), Some(31234)),
            (ExposureType::NodePort, json!({"nodePort": 32000}), Some(32000)),
            // What is in front of it may change.
            (ExposureType::NodePort, json!({"port": 443}), Some(31234)),
            (ExposureType::LoadBalancer, json!({}), None),
        ] {
            assert_eq!(rendered_node_port(kind, &exposure(values), &known), port);
        }
        // Both renderings of the Service are the same.
        let service =
            service(json!({"metadata": {"name": "apiserver"}, "spec": {"ports": [{"port": 443, "nodePort": 31234}]}}));
        let nodes = [node("a", "", &["10.0.0.1"])];
        let found = find_endpoint(ExposureType::NodePort, &exposure(json!({})), &service, &nodes, &known).unwrap();
        assert_eq!((found.url().as_str(), found.node_port), ("https://10.0.0.1:31234", Some(31234)));
    }

    #[test]
    fn a_load_balancer_without_an_address_is_waited_for_unless_a_host_is_given() {
        let pending = service(json!({"metadata": {"name": "apiserver"}, "spec": {"ports": [{"port": 443}]}}));
        let wanted = exposure(json!({"type": "LoadBalancer"}));
        assert!(matches!(
            find_endpoint(wanted.kind, &wanted, &pending, &[], &Known::default()),
            Err(NotYet::LoadBalancer { .. })
        ));
        let ready = service(json!({"metadata": {"name": "apiserver"}, "spec": {"ports": [{"port": 443}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}}));
        assert_eq!(
            find_endpoint(wanted.kind, &wanted, &ready, &[], &Known::default()).unwrap().url(),
            "https://192.0.2.7:443"
        );
        let hosted = exposure(json!({"type": "LoadBalancer", "host": "api.example", "port": 8443}));
        let found = find_endpoint(hosted.kind, &hosted, &pending, &[], &Known::default()).unwrap();
        assert_eq!(
            (found.url().as_str(), found.sans.as_slice()),
            ("https://api.example:8443", &["api.example".to_owned()][..])
        );
    }

    #[test]
    fn values_alone_decide_an_endpoint_only_when_they_are_complete() {
        assert_eq!(endpoint_from_values(&exposure(json!({}))), Err("exposure.type"));
        assert_eq!(endpoint_from_values(&exposure(json!({"type": "NodePort"}))), Err("exposure.host"));
        assert_eq!(endpoint_from_values(&exposure(json!({"type": "NodePort", "host": "h"}))), Err("exposure.port"));
        let found = endpoint_from_values(&exposure(json!({"type": "NodePort", "host": "h", "port": 32222}))).unwrap();
        assert_eq!((found.url().as_str(), found.node_port), ("https://h:32222", Some(32222)));
        let mapped = exposure(json!({"type": "NodePort", "host": "h", "port": 443, "nodePort": 32222}));
        assert_eq!(endpoint_from_values(&mapped).unwrap().url(), "https://h:443");
    }
}
