//! The declarative file of clusters, `tests/bed/clusters.yaml`.

use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde::Deserialize;

use crate::parts::{self, Part};
use crate::place::Place;

/// What one cluster is made of.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterSpec {
    /// Minor version, `1.25`.
    pub kubernetes: String,
    /// With a node, or only an API.
    #[serde(default)]
    pub node: bool,
    /// With a default StorageClass.
    #[serde(default)]
    pub storage: bool,
    /// With addresses for Services of type LoadBalancer.
    #[serde(default)]
    pub load_balancer: bool,
    /// With the admission plug-ins and the controllers of a control plane of the product.
    #[serde(default)]
    pub control_plane: bool,
    /// What the node says of its cloud.
    #[serde(default, rename = "providerID")]
    pub provider_id: Option<String>,
}

impl ClusterSpec {
    /// What must be built before such a cluster can start.
    pub(crate) fn parts(&self) -> Result<Vec<Part>> {
        let mut parts = vec![parts::ETCD, parts::kubernetes(&self.kubernetes)?];
        if self.node {
            parts.extend([parts::REGISTRY, parts::COREDNS]);
        }
        if self.storage {
            // Control planes go where there are volumes.
            parts.extend([parts::LOCAL_PATH, parts::HUB]);
        }
        Ok(parts)
    }
}

/// How many clusters there may be, for the addresses between [`crate::cluster::network::FIRST_CLUSTER`] and those of load balancers.
const MOST: usize = 80;
/// How many of them, from the first on, have addresses for a load balancer.
const BALANCED: usize = 7;

/// The clusters by name, in the order of the file.
#[derive(Debug, Clone)]
pub(crate) struct Spec(Vec<(String, ClusterSpec)>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    clusters: Ordered,
}

/// A map that keeps the order of the file: a cluster's place in it is its address.
struct Ordered(Vec<(String, ClusterSpec)>);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Ordered;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of clusters by name")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut clusters = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    clusters.push(entry);
                }
                Ok(Ordered(clusters))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

impl Spec {
    /// Reads the checkout's file.
    pub(crate) fn read(place: &Place) -> Result<Self> {
        let file = place.crate_dir().join("clusters.yaml");
        Self::parse(&fs::read_to_string(&file)?).with_context(|| format!("in {}", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let file: File = serde_saphyr::from_str(text)?;
        for (index, (name, cluster)) in file.clusters.0.iter().enumerate() {
            let plain =
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            if !plain || name.len() > 16 || name == "hub" {
                bail!(
                    "`{name}` is no name for a cluster: up to 16 of a-z, 0-9 and `-`, and not `hub`, which is the bed's own"
                );
            }
            if !cluster.node && (cluster.storage || cluster.load_balancer || cluster.provider_id.is_some()) {
                bail!("cluster `{name}` has no node, so it cannot have storage, a load balancer or a providerID");
            }
            if cluster.load_balancer && index >= BALANCED {
                bail!(
                    "only the first {BALANCED} clusters can have a load balancer: no addresses are left for `{name}`"
                );
            }
        }
        if file.clusters.0.len() > MOST {
            bail!("at most {MOST} clusters: there are no addresses left for more");
        }
        Ok(Self(file.clusters.0))
    }

    /// The names, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// A cluster and its place in the file.
    pub(crate) fn get(&self, name: &str) -> Result<(u8, &ClusterSpec)> {
        let found = self.0.iter().zip(0u8..).find(|((known, _), _)| known == name);
        let ((_, cluster), index) = found.with_context(|| {
            let names = self.names().collect::<Vec<_>>().join(", ");
            format!("there is no cluster `{name}` in tests/bed/clusters.yaml; it has {names}")
        })?;
        Ok((index, cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_this_checkout_is_valid_and_ordered() {
        let spec = Spec::parse(include_str!("../../clusters.yaml")).expect("clusters.yaml is valid");
        assert_eq!(spec.get("host").expect("host is there").0, 0);
        assert!(spec.get("current").is_ok_and(|(_, current)| current.storage && !current.load_balancer));
        assert!(spec.get("nope").unwrap_err().to_string().contains("it has host, member-1"));
    }

    #[test]
    fn mistakes_are_refused() {
        for (text, expected) in [
            ("clusters: {a: {kubernetes: '1.25', nodes: 1}}", "nodes"),
            ("clusters: {a: {kubernetes: '1.25', storage: true}}", "has no node"),
            ("clusters: {hub: {kubernetes: '1.25'}}", "no name"),
            (
                "{clusters: {a: &a {kubernetes: '1.25', node: true}, b: *a, c: *a, d: *a, e: *a, f: *a, g: *a, h: \
                 {kubernetes: '1.25', node: true, loadBalancer: true}}}",
                "no addresses are left for `h`",
            ),
        ] {
            let error = format!("{:#}", Spec::parse(text).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
