//! One node of a cluster, as it is reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::crd::cluster::Taint;
use crate::api::quantity;

/// NodeAmounts by resource in thousandths, in the order of the names. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAmounts(Arc<[(Arc<str>, i64)]>);

impl NodeAmounts {
    /// Returns the resources with their amounts.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }
}

impl<N: Into<Arc<str>>> FromIterator<(N, i64)> for NodeAmounts {
    fn from_iter<I: IntoIterator<Item = (N, i64)>>(amounts: I) -> Self {
        let sorted: BTreeMap<Arc<str>, i64> = amounts.into_iter().map(|(name, amount)| (name.into(), amount)).collect();
        Self(sorted.into_iter().collect())
    }
}

impl<N: Into<Arc<str>>, const LEN: usize> From<[(N, i64); LEN]> for NodeAmounts {
    fn from(amounts: [(N, i64); LEN]) -> Self {
        amounts.into_iter().collect()
    }
}

/// Labels of a node.
pub type Labels = BTreeMap<String, String>;

/// One node, as it is reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Capacity.
    pub capacity: NodeAmounts,
    /// NodeAmounts that are free.
    pub available: NodeAmounts,
    /// Its labels, which nodes share; absent if the cluster does not report them.
    pub labels: Option<Arc<Labels>>,
    /// Its taints, which nodes share.
    pub taints: Arc<[Taint]>,
}

/// Reads the amounts in a Cluster's status; values that are not quantities are left out.
pub fn read_node_amounts(quantities: &BTreeMap<String, String>) -> NodeAmounts {
    let read = quantities.iter().filter_map(|(name, text)| {
        let milli = quantity::parse_quantity(text)?;
        Some((name.as_str(), i64::try_from(milli).unwrap_or(if milli < 0 { i64::MIN } else { i64::MAX })))
    });
    read.collect()
}
