//! Needs of pods, with resources by number.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ResourceId, Resources};
use crate::placement::facts::{ObjectKey, Shape};

/// Pods of one object that need room.
#[derive(Debug, Clone)]
pub struct Need<'a> {
    /// The object.
    pub key: &'a ObjectKey,
    /// Demands of one pod.
    pub shape: &'a Shape,
    /// Pods that need room.
    pub pods: i64,
    /// Pods that are in the inventory already.
    pub counted: i64,
    /// Whether it is a DaemonSet.
    pub daemon: bool,
    /// Request by resource; none for a resource that no cluster has.
    pub(super) requests: Vec<(Option<ResourceId>, i64)>,
}

impl<'a> Need<'a> {
    /// Makes a need.
    pub fn new(
        resources: &Resources,
        key: &'a ObjectKey,
        shape: &'a Shape,
        pods: i64,
        counted: i64,
        daemon: bool,
    ) -> Self {
        let requests = shape.requests.iter().map(|(name, amount)| (resources.find_resource(name), *amount)).collect();
        Self { key, shape, pods: pods.max(0), counted, daemon, requests }
    }

    /// Returns the amounts that all of its pods take, of resources that some cluster has.
    pub(crate) fn total_amounts(&self) -> impl Iterator<Item = (ResourceId, i64)> {
        self.requests.iter().filter_map(|(id, request)| Some(((*id)?, request.saturating_mul(self.pods))))
    }

    /// Returns whether any room is needed.
    pub(super) fn is_open(&self) -> bool {
        if self.daemon { self.counted == 0 } else { self.pods > 0 }
    }
}

/// Amount that is asked of one resource in sum.
#[derive(Debug, Clone)]
pub(crate) struct Sum {
    pub(crate) id: Option<ResourceId>,
    pub(crate) name: Arc<str>,
    pub(crate) amount: i64,
}

/// Needs of all objects of a group in one cluster.
#[derive(Debug, Clone, Default)]
pub struct Needs<'a> {
    /// Needs by object, in the order of their keys.
    pub(super) each: Vec<Need<'a>>,
    /// Sums by resource: cpu, memory, pods, then by name. DaemonSets are not in them, for their number of pods is not
    /// known.
    pub(crate) sums: Vec<Sum>,
}

impl<'a> Needs<'a> {
    /// Adds up needs.
    pub fn new(resources: &Resources, mut each: Vec<Need<'a>>) -> Self {
        each.sort_by(|a, b| a.key.cmp(b.key));
        let mut sums: Vec<Sum> = Vec::new();
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        for need in &each {
            for ((name, request), (id, _)) in need.shape.requests.iter().zip(&need.requests) {
                let amount = if need.daemon { 0 } else { request.saturating_mul(need.pods) };
                let at = *known.entry(name).or_insert(sums.len());
                match sums.get_mut(at) {
                    Some(sum) => sum.amount = sum.amount.saturating_add(amount),
                    None => {
                        let name = id.map_or_else(|| name.as_str().into(), |id| resources.name(id).clone());
                        sums.push(Sum { id: *id, name, amount });
                    }
                }
            }
        }
        sums.sort_by(|a, b| {
            crate::placement::facts::resource_order(&a.name).cmp(&crate::placement::facts::resource_order(&b.name))
        });
        Self { each, sums }
    }

    /// Returns the needs by object, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Need<'a>> {
        self.each.iter()
    }
}
