//! Facts of a cluster, detected from its nodes: provider, region, zones, its own name. Each can be overridden by a flag.

use std::collections::{BTreeMap, BTreeSet};

use super::nodes::NodeFacts;

/// Detected facts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Short name of the provider, or empty.
    pub provider: String,
    /// Region, when all nodes share one.
    pub region: String,
    /// Every zone with a node.
    pub zones: Vec<String>,
    /// Name of the underlying cluster.
    pub kubernetes_cluster: String,
}

/// Facts set by flags.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Provider.
    pub provider: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// The only zone.
    pub zone: Option<String>,
    /// Name of the underlying cluster.
    pub kubernetes_cluster: Option<String>,
}

/// Values of one label over all nodes, without empty ones.
fn label_values(nodes: &BTreeMap<String, NodeFacts>, label: &str) -> BTreeSet<String> {
    nodes.values().filter_map(|n| n.labels.get(label)).filter(|v| !v.is_empty()).cloned().collect()
}

/// The value that all nodes share.
fn shared_label_value(nodes: &BTreeMap<String, NodeFacts>, label: &str) -> Option<String> {
    let mut values = label_values(nodes, label);
    let complete = nodes.values().all(|n| n.labels.contains_key(label));
    if complete && values.len() == 1 { values.pop_first() } else { None }
}

fn detect_provider(nodes: &BTreeMap<String, NodeFacts>) -> String {
    let schemes: BTreeSet<_> =
        nodes.values().filter_map(|n| n.provider_id.split_once("://")).map(|(scheme, _)| scheme).collect();
    // Several schemes in one cluster say nothing about where it is.
    let mut schemes = schemes.into_iter();
    match (schemes.next(), schemes.next()) {
        (Some(one), None) => one.to_lowercase(),
        _ => String::new(),
    }
}

/// Returns the cluster's own name, where the nodes have it.
fn own_name(nodes: &BTreeMap<String, NodeFacts>, provider: &str) -> Option<String> {
    let first = nodes.values().next()?;
    match provider {
        // kind://docker/<cluster>/<node>
        "kind" => first.provider_id.strip_prefix("kind://")?.split('/').nth(1).map(ToOwned::to_owned),
        "gce" => shared_label_value(nodes, "goog-k8s-cluster-name").or_else(|| gke_name(nodes)),
        "aws" => shared_label_value(nodes, "alpha.eksctl.io/cluster-name"),
        "azure" => shared_label_value(nodes, "kubernetes.azure.com/cluster"),
        _ => None,
    }
    .filter(|name| !name.is_empty())
}

/// GKE names nodes `gke-<cluster>-<pool>-<8 hex>-<4>` and labels them with the pool.
fn gke_name(nodes: &BTreeMap<String, NodeFacts>) -> Option<String> {
    let (name, node) = nodes.iter().next()?;
    let pool = node.labels.get("cloud.google.com/gke-nodepool")?;
    let rest = name.strip_prefix("gke-")?;
    let end = rest.find(&format!("-{pool}-"))?;
    Some(rest[..end].to_owned())
}

/// Detects the facts; `registered` is the name of last resort.
pub fn detect_facts(nodes: &BTreeMap<String, NodeFacts>, overrides: &Overrides, registered: &str) -> Facts {
    let provider = overrides.provider.clone().unwrap_or_else(|| detect_provider(nodes));
    Facts {
        region: overrides
            .region
            .clone()
            .or_else(|| shared_label_value(nodes, "topology.kubernetes.io/region"))
            .unwrap_or_default(),
        zones: match &overrides.zone {
            Some(zone) => vec![zone.clone()],
            None => label_values(nodes, "topology.kubernetes.io/zone").into_iter().collect(),
        },
        kubernetes_cluster: overrides
            .kubernetes_cluster
            .clone()
            .or_else(|| own_name(nodes, &provider))
            .unwrap_or_else(|| registered.to_owned()),
        provider,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn node(provider_id: &str, labels: &[(&str, &str)]) -> NodeFacts {
        NodeFacts {
            provider_id: provider_id.to_owned(),
            labels: Arc::new(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()),
            capacity: BTreeMap::new(),
            allocatable: BTreeMap::new(),
            taints: vec![],
            usable: true,
        }
    }

    fn detected(nodes: &[(&str, NodeFacts)]) -> Facts {
        let nodes = nodes.iter().map(|(name, node)| ((*name).to_owned(), node.clone())).collect();
        detect_facts(&nodes, &Overrides::default(), "registered")
    }

    #[test]
    fn the_provider_is_the_only_scheme() {
        assert_eq!(detected(&[("a", node("aws:///z/i-1", &[]))]).provider, "aws");
        assert_eq!(detected(&[("a", node("", &[]))]).provider, "");
        assert_eq!(detected(&[("a", node("aws:///z/i-1", &[])), ("b", node("gce://p/z/n", &[]))]).provider, "");
    }

    fn zone_node(region: &str, zone: &str) -> NodeFacts {
        node("", &[("topology.kubernetes.io/region", region), ("topology.kubernetes.io/zone", zone)])
    }

    #[test]
    fn a_region_is_shared_by_all_nodes() {
        let same = detected(&[("a", zone_node("r", "r-1")), ("b", zone_node("r", "r-2"))]);
        assert_eq!((same.region.as_str(), same.zones.len()), ("r", 2));
        assert_eq!(detected(&[("a", zone_node("r", "r-1")), ("b", zone_node("s", "s-1"))]).region, "");
        assert_eq!(detected(&[("a", zone_node("r", "r-1")), ("b", node("", &[]))]).region, "", "one node says nothing");
    }

    #[test]
    fn the_name_comes_from_the_nodes() {
        for (node_name, facts, name) in [
            ("c-control-plane", node("kind://docker/c/c-control-plane", &[]), "c"),
            (
                "gke-my-prod-pool-1-0a1b2c3d-xyz1",
                node("gce://p/z/n", &[("cloud.google.com/gke-nodepool", "pool-1")]),
                "my-prod",
            ),
            ("n", node("aws:///z/i", &[("alpha.eksctl.io/cluster-name", "e")]), "e"),
            ("n", node("", &[]), "registered"),
        ] {
            assert_eq!(detected(&[(node_name, facts)]).kubernetes_cluster, name);
        }
        assert_eq!(detected(&[]).kubernetes_cluster, "registered");
    }

    #[test]
    fn a_flag_wins_over_what_was_found() {
        let overrides =
            Overrides { provider: Some("p".to_owned()), zone: Some("z".to_owned()), ..Overrides::default() };
        let nodes = [("a".to_owned(), node("aws:///z/i-1", &[("topology.kubernetes.io/zone", "other")]))].into();
        let facts = detect_facts(&nodes, &overrides, "r");
        assert_eq!((facts.provider.as_str(), facts.zones), ("p", vec!["z".to_owned()]));
    }
}
