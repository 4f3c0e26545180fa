//! What is planned so far: where each source is or is to be, and the sums of users that followers ask for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::sources::{Decider, Sources};
use super::uses::{Index, User, UserMode, Uses};
use crate::placement::facts::ObjectKey;
use crate::placement::names::GroupKey;
use crate::placement::selector::Selector;

/// A source in one cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Presence {
    pub(super) mode: UserMode,
    /// The policy that writes it there.
    pub(super) policy: Option<usize>,
    pub(super) is_spread: bool,
}

/// Where a source is or is to be.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing<'a> {
    pub(super) places: BTreeMap<&'a str, Presence>,
    /// Whether it has no place and is to get one.
    pub(super) is_waiting: bool,
}

/// Pods of one user in one cluster, or of one without a place.
struct PodEntry<'a> {
    cluster: Option<&'a str>,
    labels: &'a BTreeMap<String, String>,
    user: User,
}

/// The label of pods in a namespace: namespace, key and value.
type PodLabel<'a> = (&'a str, &'a str, &'a str);

/// What is planned so far.
pub(super) struct Board<'a> {
    pub(super) sources: Sources<'a>,
    pub(super) standings: Vec<Standing<'a>>,
    /// Users by the key of what they name, also of objects that are not there.
    pub(super) named: HashMap<&'a ObjectKey, Uses<'a>>,
    /// Everything that is somewhere, by namespace.
    pub(super) contents: HashMap<&'a str, Uses<'a>>,
    /// Everything decided that is somewhere, by namespace.
    pub(super) decided: HashMap<&'a str, Uses<'a>>,
    /// Decided members of groups that may have several, by namespace.
    pub(super) members: HashMap<(usize, GroupKey), BTreeMap<&'a str, Uses<'a>>>,
    /// StatefulSets by namespace and the beginning of the names of their claims.
    pub(super) claim_makers: HashMap<(&'a str, &'a str), Vec<Index>>,
    /// Namespaces and clusters in which something that runs pods is not settled; without a namespace: in any.
    unsettled: HashSet<(&'a str, &'a str)>,
    pods: HashMap<&'a str, Vec<PodEntry<'a>>>,
    pods_by_label: HashMap<PodLabel<'a>, Vec<usize>>,
    selected: HashMap<(&'a str, String), Rc<Uses<'a>>>,
}

impl<'a> Board<'a> {
    pub(super) fn new(sources: Sources<'a>) -> Self {
        let standings = vec![Standing::default(); sources.records.len()];
        let mut board = Self {
            sources,
            standings,
            named: HashMap::new(),
            contents: HashMap::new(),
            decided: HashMap::new(),
            members: HashMap::new(),
            claim_makers: HashMap::new(),
            unsettled: HashSet::new(),
            pods: HashMap::new(),
            pods_by_label: HashMap::new(),
            selected: HashMap::new(),
        };
        for index in 0..board.standings.len() {
            if board.sources.kind(index).is_none() {
                board.place_decided(index);
            }
        }
        board
    }

    /// Notes where something decided is: where its copies are, and where its decision puts it unless it is suspended.
    fn place_decided(&mut self, index: Index) {
        let record = self.sources.records[index];
        let decider = self.sources.decider(index);
        let policy = self.sources.policy(index);
        let is_suspended = self.sources.is_suspended(policy);
        let is_placed = matches!(decider, Decider::Annotation { .. } | Decider::Policy(_));
        let (mode, is_spread) = match decider {
            Decider::Nowhere => (UserMode::Leaving, false),
            Decider::Annotation { is_spread } => (UserMode::Active, is_spread),
            _ if is_suspended => (UserMode::Suspended, self.sources.is_spread(policy)),
            _ => (UserMode::Active, self.sources.is_spread(policy)),
        };
        let targets = record.targets.iter().filter(|_| is_placed && !is_suspended);
        let clusters = record.copies.keys().chain(targets);
        let places: BTreeMap<&str, Presence> =
            clusters.map(|cluster| (cluster.as_str(), Presence { mode, policy, is_spread })).collect();
        for (cluster, copy) in &record.copies {
            if copy.unsettled {
                self.unsettled
                    .extend([record.facts.key.namespace(), ""].map(|namespace| (namespace, cluster.as_str())));
            }
        }
        for prefix in &record.relations.claim_prefixes {
            self.claim_makers.entry((record.facts.key.namespace(), prefix)).or_default().push(index);
        }
        let is_waiting = is_placed && places.is_empty();
        self.publish_standing(index, Standing { places, is_waiting });
    }

    /// Notes where a source is or is to be, and adds it to the users of everything that it names there.
    pub(super) fn publish_standing(&mut self, index: Index, standing: Standing<'a>) {
        let record = self.sources.records[index];
        let is_decided = self.sources.kind(index).is_none();
        let namespace = record.facts.key.namespace();
        for (cluster, presence) in &standing.places {
            let user = self.make_user(index, cluster, *presence);
            self.contents.entry(namespace).or_default().add_user(cluster, &user);
            if is_decided {
                self.decided.entry(namespace).or_default().add_user(cluster, &user);
                self.add_member(index, Some((cluster, &user)), true);
                let labels = self.sources.relations(index, presence.policy, cluster).pod_labels.as_ref();
                self.add_pods(namespace, Some(cluster), labels, user);
            }
            for key in self.sources.named_keys(index, presence.policy, cluster, presence.mode == UserMode::Suspended) {
                self.named.entry(key).or_default().add_user(cluster, &user);
            }
        }
        if standing.is_waiting {
            let carries = self.sources.carries(self.sources.policy(index));
            self.contents.entry(namespace).or_default().add_waiting(carries);
            if is_decided {
                self.decided.entry(namespace).or_default().add_waiting(carries);
                self.add_member(index, None, carries);
                let presence =
                    Presence { mode: UserMode::Active, policy: self.sources.policy(index), is_spread: false };
                let user = self.make_user(index, "", presence);
                self.add_pods(namespace, None, record.relations.pod_labels.as_ref(), user);
            }
            for key in record.relations.name_keys() {
                self.named.entry(key).or_default().add_waiting(carries);
            }
        }
        self.standings[index] = standing;
    }

    fn make_user(&self, index: Index, cluster: &str, presence: Presence) -> User {
        User {
            index,
            mode: presence.mode,
            policy: presence.policy,
            carries: self.sources.carries(presence.policy),
            is_spread: presence.is_spread,
            created: self.sources.records[index].facts.created,
            has_copy: self.sources.copy(index, cluster).is_some(),
        }
    }

    /// Returns the group of a source that others may be in too.
    pub(super) fn shared_group(&self, index: Index) -> Option<(usize, GroupKey)> {
        let policy = self.sources.policy(index)?;
        let key = GroupKey::new(self.sources.records[index].facts, self.sources.policies[policy]);
        (!key.is_of_one_object()).then_some((policy, key))
    }

    fn add_member(&mut self, index: Index, place: Option<(&'a str, &User)>, carries: bool) {
        let Some(group) = self.shared_group(index) else { return };
        let namespace = self.sources.key(index).namespace();
        let uses = self.members.entry(group).or_default().entry(namespace).or_default();
        match place {
            Some((cluster, user)) => uses.add_user(cluster, user),
            None => uses.add_waiting(carries),
        }
    }

    fn add_pods(
        &mut self,
        namespace: &'a str,
        cluster: Option<&'a str>,
        labels: Option<&'a BTreeMap<String, String>>,
        user: User,
    ) {
        let Some(labels) = labels else { return };
        let entries = self.pods.entry(namespace).or_default();
        for (key, value) in labels {
            self.pods_by_label.entry((namespace, key, value)).or_default().push(entries.len());
        }
        entries.push(PodEntry { cluster, labels, user });
    }

    /// Adds up the pods of a namespace that a selector picks; a selector that several objects have is asked once. Of
    /// labels that must be equal the rarest is looked up.
    pub(super) fn select_pods(&mut self, namespace: &'a str, selector: &LabelSelector) -> Rc<Uses<'a>> {
        let known = (namespace, serde_json::to_string(selector).unwrap_or_default());
        if let Some(uses) = self.selected.get(&known) {
            return uses.clone();
        }
        let mut uses = Uses::default();
        let entries = self.pods.get(namespace).map(Vec::as_slice).unwrap_or_default();
        let equal = selector.match_labels.iter().flatten();
        let lists = equal.map(|(key, value)| {
            self.pods_by_label.get(&(namespace, key.as_str(), value.as_str())).map(Vec::as_slice).unwrap_or_default()
        });
        let rarest = lists.min_by_key(|list| list.len());
        if let Ok(selector) = Selector::new(selector) {
            let candidates: Box<dyn Iterator<Item = &PodEntry<'a>>> = match rarest {
                Some(list) => Box::new(list.iter().map(|at| &entries[*at])),
                None => Box::new(entries.iter()),
            };
            for entry in candidates {
                if selector.matches_labels(|key| entry.labels.get(key).map(String::as_str)) {
                    match entry.cluster {
                        Some(cluster) => uses.add_user(cluster, &entry.user),
                        None => uses.add_waiting(entry.user.carries),
                    }
                }
            }
        }
        let uses = Rc::new(uses);
        self.selected.insert(known, uses.clone());
        uses
    }

    /// Returns whether everything that runs pods in a namespace is settled in a cluster; without a namespace, everything
    /// there.
    pub(super) fn is_settled(&self, namespace: &str, cluster: &str) -> bool {
        !self.unsettled.contains(&(namespace, cluster))
    }

    /// Adds something that stands somewhere to the users of what asks about it.
    pub(super) fn add_standing(&self, index: Index, uses: &mut Uses<'a>) {
        let standing = &self.standings[index];
        for (cluster, presence) in &standing.places {
            uses.add_user(cluster, &self.make_user(index, cluster, *presence));
        }
        if standing.is_waiting {
            uses.add_waiting(self.sources.carries(self.sources.policy(index)));
        }
    }
}
