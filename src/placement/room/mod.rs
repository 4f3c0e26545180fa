//! Room in one cluster: nodes in numbers, less what is promised.

mod need;
mod node;
mod pack;
mod resources;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use need::{Need, Needs};
pub use node::{Labels, Node, NodeAmounts, read_node_amounts};
pub use pack::Fit;
pub(crate) use resources::ResourceId;
pub use resources::Resources;
pub(crate) use steps::Steps;

use super::facts::{ObjectKey, Shape};
use super::fraction::Fraction;
use super::reason::Reason;
use super::selector::{HOSTNAME, has_untolerated};
use crate::api::crd::cluster::Taint;

/// Properties that nodes have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NodeKind {
    capacity: Vec<i64>,
    taints: Arc<[Taint]>,
    labels: Option<Arc<Labels>>,
}

/// What decides about the kind of a node; of labels the number of the set, as sets are large and few.
type KindKey = (Vec<i64>, Arc<[Taint]>, Option<usize>);

/// Kinds of nodes by what they have in common.
#[derive(Default)]
struct Kinds {
    found: BTreeMap<KindKey, u16>,
    all: Vec<NodeKind>,
    /// Numbers of sets of labels, by what they hold and by where they are.
    sets: BTreeMap<Arc<Labels>, usize>,
    at: BTreeMap<usize, usize>,
}

impl Kinds {
    fn intern_label_set(&mut self, labels: &Arc<Labels>) -> usize {
        let address = Arc::as_ptr(labels).addr();
        if let Some(known) = self.at.get(&address) {
            return *known;
        }
        let next = self.sets.len();
        let number = *self.sets.entry(labels.clone()).or_insert(next);
        self.at.insert(address, number);
        number
    }

    /// Returns the number of a kind. More of them than fit are as good as none: they count as the last.
    fn intern_kind(&mut self, capacity: Vec<i64>, taints: Arc<[Taint]>, labels: Option<Arc<Labels>>) -> u16 {
        let set = labels.as_ref().map(|labels| self.intern_label_set(labels));
        let next = u16::try_from(self.all.len()).unwrap_or(u16::MAX);
        let (found, all) = (&mut self.found, &mut self.all);
        *found.entry((capacity, taints, set)).or_insert_with_key(|(capacity, taints, _)| {
            if u16::try_from(all.len()).is_ok() {
                all.push(NodeKind { capacity: capacity.clone(), taints: taints.clone(), labels });
            }
            next
        })
    }
}

/// Pods that will run in the cluster and are not in its inventory yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Promise {
    /// The group whose pods they are.
    pub group: Arc<str>,
    /// The object.
    pub object: ObjectKey,
    /// Demands of one pod.
    pub shape: Arc<Shape>,
    /// Number of pods; one a node if `daemon`.
    pub pods: i64,
    /// Whether it is a DaemonSet.
    pub daemon: bool,
}

/// The nodes of one cluster in numbers, and what is promised of them.
#[derive(Debug, Clone, Default)]
pub struct Room {
    /// Resources of the columns, by number.
    columns: Vec<ResourceId>,
    /// Names of the nodes, in byte order.
    names: Vec<Box<str>>,
    kind_of: Vec<u16>,
    kinds: Vec<NodeKind>,
    /// NodeAmounts by node and column: as reported.
    reported: Vec<i64>,
    /// NodeAmounts by node and column: less the promises.
    free: Vec<i64>,
    /// Sums by column.
    capacity: Vec<i64>,
    free_sums: Vec<i64>,
    promises: Vec<Promise>,
    /// Whether a shape without wishes may run on every node.
    untainted: bool,
    /// Label keys that the cluster does not report, for they have too many values.
    dropped_keys: Vec<String>,
}

impl Room {
    /// Takes over an inventory.
    pub fn new(resources: &mut Resources, mut nodes: Vec<Node>, mut dropped_keys: Vec<String>) -> Self {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        dropped_keys.sort();
        let all = nodes.iter().flat_map(|node| node.capacity.iter().chain(node.available.iter()));
        let names: BTreeSet<Arc<str>> = all.map(|(name, _)| name.clone()).collect();
        let mut acquired: Vec<(ResourceId, Arc<str>)> =
            names.into_iter().filter_map(|name| Some((resources.acquire_id(&name)?, name))).collect();
        acquired.sort_unstable();
        let column_of: BTreeMap<&str, usize> =
            acquired.iter().enumerate().map(|(column, (_, name))| (&**name, column)).collect();
        let columns: Vec<ResourceId> = acquired.iter().map(|(id, _)| *id).collect();
        let (mut names, mut kind_of, mut kinds, mut reported) = (Vec::new(), Vec::new(), Kinds::default(), Vec::new());
        for node in nodes {
            reported.extend(make_row(&column_of, &node.available));
            kind_of.push(kinds.intern_kind(make_row(&column_of, &node.capacity), node.taints, node.labels));
            names.push(node.name.into_boxed_str());
        }
        let kinds = kinds.all;
        let untainted = kinds.iter().all(|kind| !has_repelling_taint(&kind.taints));
        let mut room = Self {
            capacity: vec![0; columns.len()],
            free_sums: vec![0; columns.len()],
            free: reported.clone(),
            columns,
            names,
            kind_of,
            kinds,
            reported,
            promises: Vec::new(),
            untainted,
            dropped_keys,
        };
        for node in 0..room.names.len() {
            let kind = usize::from(room.kind_of[node]);
            for (sum, amount) in room.capacity.iter_mut().zip(&room.kinds[kind].capacity) {
                *sum = sum.saturating_add(*amount);
            }
        }
        room.sum_up();
        room
    }

    /// Frees the numbers of its resources, as nobody asks it any more.
    pub(super) fn release_resources(self, resources: &mut Resources) {
        resources.release_ids(&self.columns);
    }

    /// Number of nodes.
    pub fn count_nodes(&self) -> usize {
        self.names.len()
    }

    /// Returns what the nodes have in all, by resource.
    pub fn capacity_sums(&self, resources: &Resources) -> BTreeMap<Arc<str>, i64> {
        self.columns.iter().map(|id| resources.name(*id).clone()).zip(self.capacity.iter().copied()).collect()
    }

    /// Number of amounts that are kept of the nodes.
    #[cfg(test)]
    pub(crate) fn amount_count(&self) -> usize {
        self.reported.len() + self.free.len() + self.kinds.iter().map(|kind| kind.capacity.len()).sum::<usize>()
    }

    /// Promises in the order in which they were made.
    pub fn reservations(&self) -> &[Promise] {
        &self.promises
    }

    /// Returns what is free by node and resource, less the promises.
    pub fn free_by_node(&self, resources: &Resources) -> impl Iterator<Item = (&str, BTreeMap<Arc<str>, i64>)> {
        self.names.iter().zip(self.free.chunks_exact(self.column_count().max(1))).map(|(name, row)| {
            let names = self.columns.iter().map(|id| resources.name(*id).clone());
            (&**name, names.zip(row.iter().copied()).collect())
        })
    }

    /// Returns by resource what exists, what is free as reported, and what of that is not promised.
    pub fn sum_amounts(&self, resources: &Resources) -> Vec<(Arc<str>, [i64; 3])> {
        let columns = self.columns.iter().enumerate();
        let amounts = columns.map(|(column, id)| {
            let rows = self.reported.chunks_exact(self.column_count().max(1));
            let reported = rows.map(|row| row[column]).fold(0, i64::saturating_add);
            (resources.name(*id).clone(), [self.capacity[column], reported, self.free_sums[column]])
        });
        amounts.collect()
    }

    fn column_count(&self) -> usize {
        self.columns.len()
    }

    fn find_column(&self, id: ResourceId) -> Option<usize> {
        self.columns.binary_search(&id).ok()
    }

    fn sum_up(&mut self) {
        self.free_sums.fill(0);
        for row in self.free.chunks_exact(self.columns.len().max(1)) {
            for (sum, amount) in self.free_sums.iter_mut().zip(row) {
                *sum = sum.saturating_add(*amount);
            }
        }
    }

    /// Promises room to pods of one group, packed in the order in which [`Room::check_fit`] packs them; as many as fit take it.
    pub fn reserve_pods(&mut self, resources: &Resources, promises: Vec<Promise>) {
        self.pack_reservations(resources, promises);
        self.sum_up();
    }

    fn pack_reservations(&mut self, resources: &Resources, mut promises: Vec<Promise>) {
        let mut free = std::mem::take(&mut self.free);
        let needs: Vec<(Need<'_>, Eligible)> = promises
            .iter()
            .map(|promise| {
                let need = Need::new(resources, &promise.object, &promise.shape, promise.pods, 0, promise.daemon);
                let eligible = self.eligible_nodes(&need);
                (need, eligible)
            })
            .collect();
        for (need, eligible) in needs.iter().filter(|(need, _)| need.daemon) {
            self.place_daemon(need, eligible, &mut free);
        }
        let others = needs.iter().filter(|(need, _)| !need.daemon);
        let mut others: Vec<_> =
            others.map(|(need, eligible)| (eligible.count_eligible(self.count_nodes()), need, eligible)).collect();
        others.sort_by(|(a_nodes, a, _), (b_nodes, b, _)| self.packing_order((*a_nodes, a), (*b_nodes, b)));
        for (_, need, eligible) in others {
            self.fill_nodes(need, eligible, &mut free);
        }
        self.free = free;
        self.promises.append(&mut promises);
    }

    /// Returns the room as it is without the promises to a group; `None` if there are none.
    pub fn without_reservations_of(&self, resources: &Resources, group: &str) -> Option<Self> {
        self.promises.iter().any(|promise| &*promise.group == group).then(|| {
            let mut room = self.clone();
            room.set_promises(resources, self.promises.iter().filter(|one| &*one.group != group).cloned().collect());
            room
        })
    }

    /// Replaces all promises. Groups are packed in the order of their first promises, each as a whole.
    pub fn set_promises(&mut self, resources: &Resources, promises: Vec<Promise>) {
        self.free.clone_from(&self.reported);
        self.promises = Vec::with_capacity(promises.len());
        let mut groups: Vec<Vec<Promise>> = Vec::new();
        let mut known: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for promise in promises {
            let at = *known.entry(promise.group.clone()).or_insert(groups.len());
            match groups.get_mut(at) {
                Some(group) => group.push(promise),
                None => groups.push(vec![promise]),
            }
        }
        for group in groups {
            self.pack_reservations(resources, group);
        }
        self.sum_up();
    }

    /// Returns the scarcest share that stays free, before any packing: of cpu, memory, pods and what is asked; and the first
    /// resource of which less is free than is asked.
    pub(crate) fn evaluate_totals(&self, needs: &Needs<'_>) -> (Scarcest, Option<Reason>) {
        let mut scarcest = Scarcest { left: None, resource: 0 };
        let mut lacking = None;
        let mut consider = |column: usize, id: ResourceId, asked: i64| {
            let left = Fraction::new(self.free_sums[column].saturating_sub(asked), self.capacity[column]);
            if let Some(left) = left.filter(|left| scarcest.left.is_none_or(|least| *left < least)) {
                scarcest = Scarcest { left: Some(left), resource: id };
            }
        };
        for (column, id) in self.columns.iter().enumerate().take_while(|(_, id)| **id < 3) {
            if !needs.sums.iter().any(|sum| sum.id == Some(*id)) {
                consider(column, *id, 0);
            }
        }
        for sum in &needs.sums {
            let column = sum.id.and_then(|id| self.find_column(id));
            let free = column.map_or(0, |column| self.free_sums[column]);
            if let (Some(column), Some(id)) = (column, sum.id) {
                consider(column, id, sum.amount);
            }
            if sum.amount > free && lacking.is_none() {
                lacking = Some(Reason::Insufficient { resource: sum.name.clone(), asked: sum.amount, free });
            }
        }
        (scarcest, lacking)
    }

    /// Returns the share that stays free of the scarcest resource, before any packing; nothing for a cluster without capacity.
    pub fn share_left(&self, needs: &Needs<'_>) -> Option<Fraction> {
        self.evaluate_totals(needs).0.left
    }

    /// Returns whether the pods may run on a node of a kind, by taints and labels alone.
    fn kind_is_eligible(&self, kind: &NodeKind, shape: &Shape, name: &str) -> bool {
        let repelled = ["NoSchedule", "NoExecute"]
            .iter()
            .any(|effect| !kind.taints.is_empty() && has_untolerated(&kind.taints, &shape.tolerations, effect));
        let labels = kind.labels.as_ref();
        !repelled
            && (shape.nodes.is_empty()
                || (!self.lacks_labels(kind, shape)
                    && shape
                        .nodes
                        .matches_node(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str), name)))
    }

    /// Returns whether a shape asks for labels that nodes of a kind do not report.
    fn lacks_labels(&self, kind: &NodeKind, shape: &Shape) -> bool {
        let mut keys = shape.nodes.label_keys().filter(|key| *key != HOSTNAME);
        keys.any(|key| {
            kind.labels.is_none() || self.dropped_keys.binary_search_by(|dropped| dropped.as_str().cmp(key)).is_ok()
        })
    }

    /// Returns whether any node has too few labels to know whether a shape may run there.
    fn labels_are_unknown(&self, shape: &Shape) -> bool {
        !shape.nodes.is_empty() && self.kinds.iter().any(|kind| self.lacks_labels(kind, shape))
    }

    /// The nodes on which the pods may run.
    fn eligible_nodes(&self, need: &Need<'_>) -> Eligible {
        let shape = need.shape;
        if self.untainted && shape.nodes.is_empty() {
            return Eligible::All;
        }
        if shape.nodes.asks_names() {
            return Eligible::Nodes(
                (0..self.names.len())
                    .map(|node| {
                        self.kind_is_eligible(&self.kinds[usize::from(self.kind_of[node])], shape, &self.names[node])
                    })
                    .collect(),
            );
        }
        let by_kind: Vec<bool> = self.kinds.iter().map(|kind| self.kind_is_eligible(kind, shape, "")).collect();
        if by_kind.iter().all(|eligible| *eligible) {
            return Eligible::All;
        }
        Eligible::Nodes(self.kind_of.iter().map(|kind| by_kind[usize::from(*kind)]).collect())
    }
}

/// Returns amounts in the order of the columns.
fn make_row(column_of: &BTreeMap<&str, usize>, amounts: &NodeAmounts) -> Vec<i64> {
    let mut row = vec![0; column_of.len()];
    for (name, amount) in amounts.iter() {
        if let Some(column) = column_of.get(&**name) {
            row[*column] = amount;
        }
    }
    row
}

/// Share that stays free of the scarcest resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scarcest {
    /// Absent for a cluster without capacity.
    pub(crate) left: Option<Fraction>,
    /// Number of the resource.
    pub(crate) resource: ResourceId,
}

fn has_repelling_taint(taints: &[Taint]) -> bool {
    taints.iter().any(|taint| taint.effect != "PreferNoSchedule")
}

/// Nodes on which pods may run.
#[derive(Debug, Clone)]
enum Eligible {
    All,
    Nodes(Vec<bool>),
}

impl Eligible {
    fn is_eligible(&self, node: usize) -> bool {
        match self {
            Self::All => true,
            Self::Nodes(nodes) => nodes[node],
        }
    }

    fn count_eligible(&self, nodes: usize) -> usize {
        match self {
            Self::All => nodes,
            Self::Nodes(eligible) => eligible.iter().filter(|one| **one).count(),
        }
    }
}
