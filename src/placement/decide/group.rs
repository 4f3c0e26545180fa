//! Objects that are decided about together.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Current, Target};
use crate::placement::facts::{Facts, ObjectKey, Scales, Shape, Workload};
use crate::placement::fleet::Fleet;
use crate::placement::matching::Policy;
use crate::placement::room::{Need, Needs, Promise};

/// One object of a group.
#[derive(Debug, Clone)]
pub(super) struct Member<'a> {
    pub(super) facts: &'a Facts,
    /// Pods that need room at the same time, with what an autoscaler asks for.
    pub(super) pods: i64,
}

impl<'a> Member<'a> {
    /// The share of a target, or all of the pods.
    pub(super) fn pods_in(&self, target: Option<&Target>) -> i64 {
        target.and_then(|target| target.replicas.get(&self.facts.key)).map_or(self.pods, |share| share.pods())
    }

    pub(super) fn key(&self) -> &'a ObjectKey {
        &self.facts.key
    }

    pub(super) fn shape(&self) -> Option<&'a Arc<Shape>> {
        self.facts.shape.as_ref()
    }
}

/// Objects that are decided about together, in the order of their keys.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// Name.
    pub name: Arc<str>,
    pub(super) members: Vec<Member<'a>>,
    /// API versions of the members, each once.
    pub(super) apis: Vec<String>,
    /// Claims that are not in it, with whether they may be begun with an empty volume elsewhere.
    claims: BTreeMap<&'a ObjectKey, bool>,
    /// Whether a target gets only its part.
    divides: bool,
}

impl<'a> Group<'a> {
    /// Makes a group under a policy. The minimum of an autoscaler counts as replicas of its target.
    pub fn new(name: &str, policy: &Policy, objects: impl IntoIterator<Item = &'a Facts>) -> Self {
        Self::with_followers(name, policy, objects, [])
    }

    /// Makes a group under a policy, with autoscalers and claims that are not in it and that its members have.
    pub fn with_followers(
        name: &str,
        policy: &Policy,
        objects: impl IntoIterator<Item = &'a Facts>,
        followers: impl IntoIterator<Item = &'a Facts>,
    ) -> Self {
        let mut facts: Vec<&Facts> = objects.into_iter().collect();
        facts.sort_by(|a, b| a.key.cmp(&b.key));
        let others: Vec<&Facts> = followers.into_iter().collect();
        let mut scalers = Scalers::new();
        for (key, scales) in facts.iter().chain(&others).filter_map(|one| Some((&one.key, one.scales.as_ref()?))) {
            scalers.entry((key.namespace(), &scales.kind, &scales.name)).or_default().push(scales);
        }
        let mut apis: Vec<String> = facts.iter().map(|one| one.api_version()).collect();
        apis.sort();
        apis.dedup();
        let members =
            facts.iter().map(|one| Member { facts: one, pods: count_pods_with_scalers(one, &scalers) }).collect();
        let divides = policy.divides();
        let claims =
            others.iter().filter(|one| one.volumes).map(|one| (&one.key, one.asks.allow_volume_move)).collect();
        Self { name: name.into(), members, apis, claims, divides }
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the objects in the order of their keys.
    pub fn objects(&self) -> impl Iterator<Item = &'a Facts> {
        self.members.iter().map(|member| member.facts)
    }

    /// Returns whether it contains data that does not move along, or mounts it.
    pub fn has_volumes(&self) -> bool {
        self.members.iter().any(|member| member.facts.has_volumes())
    }

    /// Returns whether its volumes keep it from moving. A claim that is not known is spoken for by what mounts it.
    pub fn is_held(&self) -> bool {
        self.members.iter().any(|member| member.facts.is_held_by_volumes(|claim| self.may_move_claim(claim)))
    }

    /// Returns whether pods may move without the data of a claim; `None` if the group does not know the claim.
    fn may_move_claim(&self, claim: &ObjectKey) -> Option<bool> {
        let member = self.members.binary_search_by(|member| member.key().cmp(claim)).ok();
        let own = member.map(|at| self.members[at].facts.asks.allow_volume_move);
        own.or_else(|| self.claims.get(claim).copied())
    }

    /// Returns the needs of the group in a cluster beyond what runs there: of all of it, or of a target's part.
    pub(crate) fn compute_group_needs(
        &self,
        fleet: &Fleet,
        current: &Current,
        cluster: &str,
        target: Option<&Target>,
    ) -> Needs<'a> {
        let each = self.members.iter().filter_map(|member| {
            if !self.runs_in(member, target) {
                return None;
            }
            member.compute_pod_need(fleet, member.pods_in(target), current.counted_pods(cluster, member.key()))
        });
        Needs::new(&fleet.resources, each.collect())
    }

    /// Returns whether an object is copied to a target at all. Undividable ones of a divided group run in one of its
    /// targets.
    fn runs_in(&self, member: &Member<'_>, target: Option<&Target>) -> bool {
        let undividable = self.divides && member.facts.workload.is_undividable();
        !undividable || target.is_none_or(|target| target.whole.contains(member.key()))
    }

    /// Returns what all pods of the group request, by resource: cpu, memory, pods, then by name. DaemonSets are not in it.
    pub fn total_demand(&self, fleet: &Fleet) -> Vec<(Arc<str>, i64)> {
        let needs = self.compute_group_needs(fleet, &Current::default(), "", None);
        needs.sums.iter().filter(|sum| sum.amount > 0).map(|sum| (sum.name.clone(), sum.amount)).collect()
    }

    /// Returns the promises to the group in a target; Jobs that a CronJob may start are not promised.
    pub(crate) fn make_reservations(&self, target: &Target, current: &Current) -> Vec<Promise> {
        self.members.iter().filter_map(|member| self.make_reservation(member, target, current)).collect()
    }

    /// Returns what a member asks of a target, unless its pods run there or ask for nothing.
    fn make_reservation(&self, member: &Member<'a>, target: &Target, current: &Current) -> Option<Promise> {
        let shape = member.shape()?.clone();
        let daemon = member.facts.workload == Workload::DaemonSet;
        let counted = current.counted_pods(&target.cluster, member.key());
        let pods = member.pods_in(Some(target)).saturating_sub(counted).max(0);
        let is_open = if daemon { counted == 0 } else { pods > 0 };
        let is_cron = matches!(member.facts.workload, Workload::CronJob { .. });
        (is_open && !is_cron && self.runs_in(member, Some(target))).then(|| Promise {
            group: self.name.clone(),
            object: member.key().clone(),
            shape,
            pods,
            daemon,
        })
    }
}

/// What scales objects, by the namespace, the kind and the name of these.
type Scalers<'a> = BTreeMap<(&'a str, &'a str, &'a str), Vec<&'a Scales>>;

/// Returns the pods that a member has at once: at least as many as what scales it demands.
fn count_pods_with_scalers(of: &Facts, scalers: &Scalers<'_>) -> i64 {
    match of.workload {
        Workload::Replicas(replicas) if replicas > 0 => {
            let scalers = scalers.get(&(of.key.namespace(), of.key.kind(), of.key.name()));
            let scalers = scalers.into_iter().flatten().filter(|scales| scales.is_target(&of.key));
            replicas.max(scalers.map(|scales| scales.min_replicas).max().unwrap_or_default())
        }
        other => other.pods_at_once(),
    }
}

impl<'a> Member<'a> {
    /// Its need of room for so many pods less those that are counted; nothing for kinds without pods.
    pub(super) fn compute_pod_need(&self, fleet: &Fleet, pods: i64, counted: i64) -> Option<Need<'a>> {
        let daemon = self.facts.workload == Workload::DaemonSet;
        let open = pods.saturating_sub(counted);
        Some(Need::new(&fleet.resources, self.key(), self.shape()?, open, counted, daemon))
    }
}

/// Returns what groups are sorted by to be decided in turn: creation of the oldest member, then name.
pub fn deciding_order<'g>(group: &'g Group<'_>) -> (Option<Timestamp>, &'g str) {
    (group.members.iter().filter_map(|member| member.facts.created).min(), &group.name)
}
