//! Clusters that may take a group at all, before anything is said about room.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Current, Group};
use crate::placement::fleet::Cluster;
use crate::placement::matching::Policy;
use crate::placement::reason::Reason;
use crate::placement::selector::{find_untolerated, has_untolerated};

/// Conditions on a cluster, and the APIs that the last one served.
pub(super) struct Filter<'a> {
    policy: &'a Policy,
    group: &'a Group<'a>,
    current: &'a Current,
    topology_key: Option<&'a str>,
    /// The list of APIs that was asked last, and what is missing in it; most clusters share one.
    served: Option<(*const BTreeSet<String>, Option<Arc<str>>)>,
}

impl<'a> Filter<'a> {
    pub(super) fn new(
        policy: &'a Policy,
        group: &'a Group<'a>,
        current: &'a Current,
        topology: Option<&'a str>,
    ) -> Self {
        Self { policy, group, current, topology_key: topology, served: None }
    }

    /// Returns a cluster's rank, or the first reason against it.
    pub(super) fn check_cluster(&mut self, cluster: &Cluster) -> Result<Vec<u32>, Reason> {
        if cluster.leaving {
            return Err(Reason::Leaving);
        }
        if !cluster.accepted {
            return Err(Reason::NotAccepted);
        }
        if !self.policy.clusters.matches_labels(|key| cluster.find_label(key)) {
            return Err(Reason::SelectorMismatch);
        }
        if self.current.only.as_ref().is_some_and(|only| !only.contains(&*cluster.name)) {
            return Err(Reason::VolumeElsewhere);
        }
        let rank = match &self.policy.order {
            Some(order) => order.rank_labels(|key| cluster.find_label(key)).ok_or(Reason::NotOrdered)?,
            None => Vec::new(),
        };
        if self.topology_key.is_some_and(|key| cluster.find_label(key).is_none()) {
            return Err(Reason::NoTopologyLabel);
        }
        if let Some(taint) = find_untolerated(&cluster.taints, &self.policy.tolerations) {
            return Err(Reason::Tainted(taint.key.as_str().into()));
        }
        if let Some(missing) = self.missing_api(cluster) {
            return Err(Reason::ApiMissing(missing));
        }
        if !cluster.ready && !cluster.standby {
            return Err(Reason::NotReady);
        }
        match self.current.excluded.get(&*cluster.name) {
            Some(why) => Err(Reason::Excluded(why.as_str().into())),
            None => Ok(rank),
        }
    }

    fn missing_api(&mut self, cluster: &Cluster) -> Option<Arc<str>> {
        let apis = cluster.apis.as_ref()?;
        let list = Arc::as_ptr(apis);
        if let Some((known, missing)) = &self.served
            && *known == list
        {
            return missing.clone();
        }
        let missing = self.group.apis.iter().find(|one| !apis.contains(*one)).map(|one| Arc::from(one.as_str()));
        self.served = Some((list, missing.clone()));
        missing
    }

    /// Returns whether a cluster's work has to leave.
    pub(super) fn is_drained(&self, cluster: &Cluster) -> bool {
        has_untolerated(&cluster.taints, &self.policy.tolerations, "NoExecute")
    }

    /// Returns whether a cluster comes after all that have no such taint.
    pub(super) fn is_last(&self, cluster: &Cluster) -> bool {
        has_untolerated(&cluster.taints, &self.policy.tolerations, "PreferNoSchedule")
    }
}
