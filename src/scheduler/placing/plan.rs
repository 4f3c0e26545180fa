//! From a decision to writes: which Schedules there have to be, and how they differ from those that are there.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::decide::Decided;
use super::events;
use super::refusals::{self, Refusal, Subject};
use super::source::{Source, TargetMark};
use super::state::{Assignment, State, cluster_of};
use super::status;
use super::writer::{Address, Stages, Write};
use crate::api::crd::condition;
use crate::api::crd::group::PolicyRef;
use crate::api::crd::schedule;
use crate::api::crd::schedule::{ApplyPolicy, OnDelete, ScheduleShare, SourceRef};
use crate::api::first_of::first_of;
use crate::api::labels::{
    ANNOTATION_TARGET_CLUSTERS, FINALIZER_AGENT_CLEANUP, LABEL_MATCHING_POLICY, LABEL_TARGET_CLUSTER, cluster_namespace,
};
use crate::api::util::digest;
use crate::api::{Schedule, ScheduleGroup, ScheduleGroupSpec, ScheduleSpec};
use crate::placement::copy::{self, CopyError, Share};
use crate::placement::decide::{Blocked, DirectDecision, Target};
use crate::placement::facts::{Facts, Never, ObjectKey, Scales};
use crate::placement::live::{self, source_key};
use crate::placement::matching::{Match, Policy};
use crate::placement::names::{GroupKey, policy_label, schedule_name};

/// Version of the way in which copies are made: another one when the same source has to give another copy than it did
/// with an earlier program.
const FORMAT: u32 = 1;

/// Most clusters that a message names.
const NAMED: usize = 5;
/// Bytes of manifests after which a plan writes what it has before it makes more.
const BYTES: usize = 2 << 20;

/// Work that is due for one unit.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) stages: Stages,
    /// Sources whose whole object has to be read first; then nothing else is planned.
    pub(super) fetch: Vec<Address>,
    /// Copies are left for the next plan.
    pub(super) is_partial: bool,
    /// Sources whose copies will be as they have to be.
    pub(super) written: Vec<ObjectKey>,
    /// Objects that cannot be placed as they ask, with the reasons of the events that say so.
    pub(super) faults: BTreeMap<ObjectKey, BTreeMap<&'static str, String>>,
    /// Copies that cannot be made.
    pub(super) refused: Vec<Refusal>,
}

/// Copy that one object has to have in one cluster.
struct Wanted<'a> {
    source: &'a Source,
    cluster: &'a str,
    share: Option<ScheduleShare>,
    policy: Option<&'a Policy>,
    group: Option<&'a str>,
    /// Whether a HorizontalPodAutoscaler that is placed too scales it.
    is_scaled: bool,
}

/// Collects what is wanted and what that takes.
#[derive(Default)]
struct Draft {
    plan: Plan,
    namespaces: Vec<Write>,
    schedules: Vec<Write>,
    wanted: BTreeSet<(String, ObjectKey)>,
    faults: BTreeMap<ObjectKey, CopyError>,
    /// Sources that have to be read.
    fetching: BTreeSet<ObjectKey>,
    /// Bytes of the manifests that are made.
    bytes: usize,
    /// Copies are left for the next plan, as their sources have to be read or their manifests are large.
    partial: bool,
}

/// Plans the copies of an object that no group holds: placed by annotation, withdrawn, gone, or a namespace.
pub(super) fn plan_object(state: &State, key: &ObjectKey, direct: Option<&DirectDecision>) -> Plan {
    let mut draft = Draft::default();
    draft.plan_releases(state, key);
    let Some(source) = state.sources.get(key) else {
        // Whether an object of a kind that is not watched is gone cannot be known.
        return if state.kind_of(key).is_some() { draft.remove_all(state, key, true) } else { draft.into_plan() };
    };
    match state.assignments.get(key) {
        Some(Assignment::Withdrawn) => {
            if let Some(Match::Never(never)) = state.evaluate_object(key) {
                return draft.take_back(state, source, never);
            }
            return draft.remove_all(state, key, false).with_label(source, TargetMark::default());
        }
        Some(Assignment::Direct) => {
            for target in direct.iter().flat_map(|direct| &direct.targets) {
                let share = target.share.map(|share| build_schedule_share(&target.cluster, Some(share)));
                let cluster = &target.cluster;
                draft.want_copy(state, &Wanted { source, cluster, share, policy: None, group: None, is_scaled: false });
            }
        }
        _ => {}
    }
    // What is there and not decided about stays, and is kept up to date.
    let is_direct = state.assignments.get(key) == Some(&Assignment::Direct);
    let targets: Vec<&str> =
        direct.iter().flat_map(|direct| &direct.targets).map(|target| target.cluster.as_str()).collect();
    let pinned: BTreeSet<&str> = targets.iter().copied().collect();
    let is_namespace = key.is_of_kind("", "Namespace");
    for (at, schedule) in state.copies_of(key) {
        let cluster = cluster_of(at);
        let pinned = pinned.contains(cluster);
        if is_namespace && !pinned && state.drained.contains(cluster) && !state.is_inhabited(cluster, key.name()) {
            if schedule.metadata.deletion_timestamp.is_none() {
                draft.plan.stages.push(vec![schedule_removal(at, schedule, None)]);
            }
        } else if !is_direct || is_namespace && !pinned {
            let share = schedule.spec.share.clone();
            let group = schedule.spec.group.as_deref();
            draft.want_copy(state, &Wanted { source, cluster, share, policy: None, group, is_scaled: false });
        }
    }
    if is_direct {
        draft.remove_others(state, key, status::is_available_in(state, key, &targets));
    }
    let target = TargetMark::from_targets(targets.iter().copied().filter(|_| is_direct));
    let fault = draft.faults.get(key).map(copy_fault_reason);
    let mut plan = draft.into_plan();
    if plan.is_partial {
        return plan;
    }
    let invalid = source.facts.asks.invalid.filter(|_| is_direct).map(|invalid| ("Invalid", invalid.to_string()));
    let faults =
        direct.map(format_blocked_clusters).unwrap_or_default().into_iter().chain(direct_placement_denial(state, key));
    plan.faults.insert(key.clone(), faults.chain(fault).chain(invalid).collect());
    if is_direct { plan.with_label(source, target) } else { plan }
}

/// Returns the reason of the event that says that a copy cannot be made, and its message.
fn copy_fault_reason(fault: &CopyError) -> (&'static str, String) {
    (if fault.is_override() { "OverrideFailed" } else { fault.code() }, fault.to_string())
}

/// Returns the reason and message that say that an annotation does not count here; `None` where that is not so.
fn direct_placement_denial(state: &State, key: &ObjectKey) -> Option<(&'static str, String)> {
    let text = "its annotation names clusters, but in this control plane only policies place objects";
    state.is_denied(key).then(|| ("DirectPlacementDenied", text.to_owned()))
}

/// Returns the reasons that clusters that an annotation names get nothing, each with its message.
fn format_blocked_clusters(direct: &DirectDecision) -> BTreeMap<&'static str, String> {
    let mut texts: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for (name, why) in &direct.blocked {
        texts.entry(why.code()).or_default().push(match why {
            Blocked::ClusterUnknown => format!("the annotation names {name:?}, but this cluster does not exist"),
            Blocked::Fenced(reason) => {
                format!("the annotation names {name:?}, but this cluster accepts nothing: {reason}")
            }
        });
    }
    texts.into_iter().map(|(code, texts)| (code, first_of(texts, NAMED, "; "))).collect()
}

/// Autoscalers by the namespace, the kind and the name of what they scale.
struct Scaled<'a>(BTreeMap<(&'a str, &'a str, &'a str), Vec<&'a Scales>>);

impl<'a> Scaled<'a> {
    fn from_members(members: impl Iterator<Item = &'a Facts>) -> Self {
        let mut scalers: BTreeMap<_, Vec<&Scales>> = BTreeMap::new();
        for (key, scales) in members.filter_map(|facts| Some((&facts.key, facts.scales.as_ref()?))) {
            scalers.entry((key.namespace(), scales.kind.as_str(), scales.name.as_str())).or_default().push(scales);
        }
        Self(scalers)
    }

    fn is_scaled(&self, key: &ObjectKey) -> bool {
        let scalers = self.0.get(&(key.namespace(), key.kind(), key.name()));
        scalers.into_iter().flatten().any(|scales| scales.is_target(key))
    }
}

/// Plans a group as it was decided: its Schedules, its object, its members' labels.
pub(super) fn plan_group(state: &State, name: &str, decided: Option<&Decided>, now: Timestamp) -> Plan {
    let members: Vec<&ObjectKey> = state.members.get(name).into_iter().flatten().collect();
    let known = state.groups.get(name);
    if members.is_empty() {
        let mut plan = Plan::default();
        if let Some(group) = known.filter(|group| !state.is_needed(name, group)) {
            let uid = group.uid().unwrap_or_default();
            plan.stages.push(vec![Write::RemoveGroup { name: name.to_owned(), uid }]);
        }
        return plan;
    }
    let mut draft = Draft::default();
    let policy = state.policy_of(name);
    let scaled = Scaled::from_members(members.iter().filter_map(|key| state.source_facts(key)));
    for key in &members {
        draft.plan_releases(state, key);
        let Some(source) = state.sources.get(*key) else { continue };
        let is_left = matches!(state.assignments.get(*key), Some(Assignment::Left(_)));
        let is_scaled = scaled.is_scaled(key);
        let Some(decided) = decided.filter(|decided| !is_left && !decided.suspended) else {
            // Its copies stay where they are, and edits reach them.
            for (at, schedule) in state.copies_of(key) {
                let share = schedule.spec.share.clone();
                draft.want_copy(
                    state,
                    &Wanted { source, cluster: cluster_of(at), share, policy, group: Some(name), is_scaled },
                );
            }
            continue;
        };
        for target in &decided.targets {
            if !live::has_copy_in_target(target, &source.facts) {
                continue;
            }
            let share = share_in(target, &source.facts);
            let cluster = &target.cluster;
            draft.want_copy(state, &Wanted { source, cluster, share, policy, group: Some(name), is_scaled });
        }
    }
    let moved = decided.is_some_and(|decided| !decided.suspended && !decided.targets.is_empty())
        && status::all_available(state, &members, decided, &draft.faults);
    if moved {
        for key in &members {
            if !matches!(state.assignments.get(*key), Some(Assignment::Left(_))) {
                draft.remove_others(state, key, true);
            }
        }
    }
    let faults = std::mem::take(&mut draft.faults);
    let mut plan = draft.into_plan();
    if plan.is_partial {
        return plan;
    }
    for key in &members {
        let of_member = faults.get(*key).map(copy_fault_reason);
        plan.faults.insert((*key).clone(), of_member.into_iter().chain(direct_placement_denial(state, key)).collect());
    }
    let spec = group_spec(state, members[0], policy, known);
    let Some(spec) = spec else { return plan };
    let status = status::group_status(state, name, &members, decided, policy.is_some(), &faults, known, now);
    let targets: Vec<&str> = match decided {
        Some(decided) if policy.is_some() => decided.targets.iter().map(|target| target.cluster.as_str()).collect(),
        _ => known
            .and_then(|group| group.status.as_ref())
            .map(|s| s.target_clusters.iter().map(String::as_str).collect())
            .unwrap_or_default(),
    };
    let is_suspended = decided.is_some_and(|decided| decided.suspended);
    let target = TargetMark::from_targets(targets.iter().copied().filter(|_| !is_suspended));
    let mut metadata = known.map(|group| group.metadata.clone()).unwrap_or_default();
    let mut labels = metadata.labels.take().unwrap_or_default();
    labels.remove(LABEL_TARGET_CLUSTER);
    labels.insert(LABEL_MATCHING_POLICY.to_owned(), policy_label(&spec.policy.name));
    labels.extend(target.label.clone().map(|label| (LABEL_TARGET_CLUSTER.to_owned(), label)));
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    annotations.remove(ANNOTATION_TARGET_CLUSTERS);
    annotations.extend(target.clusters.clone().map(|names| (ANNOTATION_TARGET_CLUSTERS.to_owned(), names)));
    if let Some(by) = policy.and_then(|policy| policy.spec.group_by.as_ref())
        && let Some(value) = state.sources.get(members[0]).and_then(|source| source.facts.labels.get(&by.label_key))
    {
        labels.insert(by.label_key.clone(), value.clone());
    }
    let same = known.is_some_and(|group| {
        group.spec == spec
            && group.metadata.labels.as_ref() == Some(&labels)
            && group.annotations() == &annotations
            && status::is_same_group_status(group.status.as_ref(), &status)
    });
    let events =
        events::of_group(state, name, &members, decided, known.and_then(|group| group.status.as_ref()), &status);
    if !same {
        metadata.name = Some(name.to_owned());
        metadata.labels = Some(labels);
        metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
        metadata.managed_fields = None;
        plan.stages.push(vec![Write::Group(Box::new(ScheduleGroup { metadata, spec, status: Some(status) }))]);
    }
    let labelled: Vec<Write> = members
        .iter()
        .filter_map(|key| state.sources.get(*key))
        .filter(|source| source.target != target)
        .map(|source| Write::Label(source.address.clone(), target.clone()))
        .collect();
    plan.stages.extend([labelled, events].into_iter().filter(|stage| !stage.is_empty()));
    plan
}

fn group_spec(
    state: &State,
    member: &ObjectKey,
    policy: Option<&Policy>,
    known: Option<&ScheduleGroup>,
) -> Option<ScheduleGroupSpec> {
    let (Some(policy), Some(source)) = (policy, state.sources.get(member)) else {
        return known.map(|group| group.spec.clone());
    };
    let key = GroupKey::new(&source.facts, policy).to_spec_key();
    Some(ScheduleGroupSpec { policy: PolicyRef { name: policy.name.clone(), namespace: None }, key })
}

/// The share of an object in a target, as its Schedule holds it.
fn share_in(target: &Target, facts: &Facts) -> Option<ScheduleShare> {
    let share = target.replicas.get(&facts.key).copied();
    target.domain.as_ref().map(|domain| build_schedule_share(domain, share))
}

fn build_schedule_share(domain: &str, share: Option<Share>) -> ScheduleShare {
    let (replicas, completions) = match share {
        Some(Share::Replicas(replicas)) => (Some(replicas), None),
        Some(Share::Job { completions, parallelism }) => (Some(parallelism), Some(completions)),
        None => (None, None),
    };
    ScheduleShare { domain: domain.to_owned(), replicas, completions }
}

impl Draft {
    /// Wants a copy, and the namespace that it needs.
    fn want_copy(&mut self, state: &State, wanted: &Wanted<'_>) {
        let key = &wanted.source.facts.key;
        if key.namespace() != "" {
            self.want_namespace(state, key.namespace(), wanted.cluster);
        }
        self.wanted.insert((wanted.cluster.to_owned(), key.clone()));
        if let Some(write) = self.plan_schedule(state, wanted) {
            self.schedules.push(write);
        }
    }

    fn want_namespace(&mut self, state: &State, name: &str, cluster: &str) {
        let key = ObjectKey::new("", "Namespace", "", name);
        let Some(source) = state.sources.get(&key) else { return };
        if state.order.never_placed_reason(&source.facts, &source.facts.labels).is_some() {
            return;
        }
        let is_there = state.copy_in(&key, cluster).is_some();
        if !is_there && self.wanted.insert((cluster.to_owned(), key)) {
            let wanted = Wanted { source, cluster, share: None, policy: None, group: None, is_scaled: false };
            if let Some(write) = self.plan_schedule(state, &wanted) {
                self.namespaces.push(write);
            }
        }
    }

    /// Returns the write of a Schedule that is missing or differs.
    fn plan_schedule(&mut self, state: &State, wanted: &Wanted<'_>) -> Option<Write> {
        let facts = &wanted.source.facts;
        let found = state.copy_in(&facts.key, wanted.cluster);
        let named = || (cluster_namespace(wanted.cluster), schedule_name(&facts.key));
        // One that is there keeps the name that an earlier version gave it.
        let (place, known) = found.map_or_else(|| (named(), None), |(at, known)| (at.clone(), Some(known)));
        if known.is_none()
            && let Some(other) = state.schedules.get(&place)
        {
            let object = source_key(&other.spec.source_ref).format_title();
            self.faults.insert(facts.key.clone(), CopyError::ScheduleTaken { schedule: place.1, object });
            return None;
        }
        if known.is_some_and(|known| known.metadata.deletion_timestamp.is_some()) {
            // It is made again when it is gone.
            return None;
        }
        let domain = wanted.share.as_ref().map_or(wanted.cluster, |share| share.domain.as_str());
        let edits = wanted.policy.map(|policy| copy::find_overrides(policy, domain, facts)).unwrap_or_default();
        let leave_fields = match copy::leave_fields(facts, &edits, wanted.is_scaled) {
            Ok(fields) => fields,
            Err(error) => {
                self.faults.insert(facts.key.clone(), error);
                return None;
            }
        };
        let apply_policy = ApplyPolicy {
            adopt: facts.asks.adopt,
            leave_fields,
            on_delete: if facts.asks.keep_on_delete { OnDelete::Keep } else { OnDelete::Delete },
        };
        let apply_policy = (apply_policy != ApplyPolicy::default()).then_some(apply_policy);
        let parts = format!(
            "{FORMAT}\0{}\0{:?}\0{}",
            facts.hash,
            wanted.share,
            serde_json::to_string(&edits).unwrap_or_default()
        );
        let hash = digest::full_digest(parts.as_bytes());
        let source_ref = SourceRef {
            group: facts.key.group().to_owned(),
            version: facts.version.clone(),
            kind: facts.key.kind().to_owned(),
            namespace: Some(facts.key.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
            name: facts.key.name().to_owned(),
            uid: facts.uid.clone(),
            generation: facts.generation,
        };
        let group = wanted.group.map(ToOwned::to_owned);
        let same = known.is_some_and(|known| {
            known.spec.hash == hash
                && known.spec.source_ref == source_ref
                && known.spec.group == group
                && known.spec.share == wanted.share
                && known.spec.apply_policy == apply_policy
        });
        if same {
            return None;
        }
        let subject = Subject::Copy(facts.key.clone(), wanted.cluster.to_owned());
        let content = refusals::copy_content(&hash, wanted.group, wanted.share.as_ref(), apply_policy.as_ref());
        if let Some((error, waits)) = state.refusals.find_known_refusal(&subject, &content) {
            // It is said until the copy is written.
            self.faults.insert(facts.key.clone(), error.clone());
            if waits {
                return None;
            }
        }
        if self.bytes >= BYTES {
            self.partial = true;
            return None;
        }
        let Some(object) = &wanted.source.object else {
            self.partial = true;
            // Once for all of its clusters.
            if self.fetching.insert(facts.key.clone()) {
                self.plan.fetch.push(wanted.source.address.clone());
            }
            return None;
        };
        let share = wanted.share.as_ref().and_then(|share| live::share_from_schedule(facts, share));
        let made = match copy::make_copy(object, share, &edits) {
            Ok(made) => made,
            Err(error) => {
                self.faults.insert(facts.key.clone(), error.clone());
                self.plan.refused.push(Refusal { subject, content, error });
                return None;
            }
        };
        // What others wrote into the metadata of one that is there stays.
        let mut metadata = known.map(|known| known.metadata.clone()).unwrap_or_default();
        metadata.name = Some(place.1);
        metadata.namespace = Some(place.0);
        let finalizers = metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|one| one == FINALIZER_AGENT_CLEANUP) {
            finalizers.push(FINALIZER_AGENT_CLEANUP.to_owned());
        }
        metadata.managed_fields = None;
        let manifest = made.manifest.to_string();
        self.bytes += manifest.len();
        let share = wanted.share.clone();
        let epoch = known.map_or(0, |known| known.spec.epoch);
        let spec = ScheduleSpec { manifest, hash, group, source_ref, share, apply_policy, epoch };
        let schedule = Schedule { metadata, spec, status: None };
        Some(Write::Schedule(Box::new(schedule), made.payload))
    }

    /// Lets Schedules go whose copies are gone.
    fn plan_releases(&mut self, state: &State, key: &ObjectKey) {
        let released = state.copies_of(key).filter(|(_, schedule)| {
            let deleted = schedule
                .status
                .as_ref()
                .and_then(|s| condition::find_condition(&s.conditions, schedule::conditions::DELETED));
            schedule.metadata.deletion_timestamp.is_some() && deleted.is_some_and(condition::Condition::is_true)
        });
        let writes: Vec<Write> = released
            .map(|(at, schedule)| Write::Release {
                cluster: cluster_of(at).to_owned(),
                name: at.1.clone(),
                uid: schedule.uid().unwrap_or_default(),
            })
            .collect();
        if !writes.is_empty() {
            self.plan.stages.push(writes);
        }
    }

    /// Removes the Schedules of an object in clusters where it is not wanted. Namespaces stay: others need them, or the
    /// user has something in them.
    fn remove_others(&mut self, state: &State, key: &ObjectKey, has_target: bool) {
        if !has_target || key.is_of_kind("", "Namespace") {
            return;
        }
        let others = state.copies_of(key).filter(|(at, schedule)| {
            !self.wanted.contains(&(cluster_of(at).to_owned(), key.clone()))
                && schedule.metadata.deletion_timestamp.is_none()
        });
        let writes: Vec<Write> = others.map(|(at, schedule)| schedule_removal(at, schedule, None)).collect();
        self.plan.stages.extend((!writes.is_empty()).then_some(writes));
    }

    /// Deletes what earlier versions have copied: a Namespace when nothing else is left in it in a cluster. Copies with
    /// data are kept.
    fn take_back(mut self, state: &State, source: &Source, never: Never) -> Plan {
        let key = &source.facts.key;
        let is_namespace = key.is_of_kind("", "Namespace");
        let there = state.copies_of(key).filter(|(at, schedule)| {
            let is_kept = source.facts.volumes || is_namespace && state.is_inhabited(cluster_of(at), key.name());
            schedule.metadata.deletion_timestamp.is_none() && !is_kept
        });
        let writes: Vec<Write> = there.map(|(at, schedule)| schedule_removal(at, schedule, None)).collect();
        if !writes.is_empty() {
            let text = format!("its copies are deleted: it is never placed, because {}", never.format_never_reason());
            let event = events::event_about(source.address.event_reference(), true, "NeverPlaced", &text);
            self.plan.stages.extend([writes, vec![event]]);
        }
        if source.facts.volumes { self.plan } else { self.plan.with_label(source, TargetMark::default()) }
    }

    /// Removes every Schedule of an object.
    fn remove_all(mut self, state: &State, key: &ObjectKey, gone: bool) -> Plan {
        let there = state.copies_of(key).filter(|(_, schedule)| schedule.metadata.deletion_timestamp.is_none());
        let writes: Vec<Write> = there
            .map(|(at, schedule)| {
                let source = gone.then(|| address_of(state, schedule)).flatten();
                schedule_removal(at, schedule, source)
            })
            .collect();
        self.plan.stages.extend((!writes.is_empty()).then_some(writes));
        self.plan
    }

    fn into_plan(mut self) -> Plan {
        if self.partial {
            let stages: Stages = [self.namespaces, self.schedules].into_iter().filter(|one| !one.is_empty()).collect();
            // What is at hand is written, and let go of, before more is read.
            let fetch = if stages.is_empty() { self.plan.fetch } else { Vec::new() };
            return Plan { stages, fetch, is_partial: true, refused: self.plan.refused, ..Plan::default() };
        }
        let mut stages: Stages = Vec::new();
        stages.extend([self.namespaces, self.schedules].into_iter().filter(|stage| !stage.is_empty()));
        stages.append(&mut self.plan.stages);
        self.plan.stages = stages;
        self.plan.written = self.wanted.into_iter().map(|(_, key)| key).collect();
        self.plan
    }
}

impl Plan {
    fn with_label(mut self, source: &Source, target: TargetMark) -> Self {
        if !self.is_partial && source.target != target {
            self.stages.push(vec![Write::Label(source.address.clone(), target)]);
        }
        self
    }
}

fn schedule_removal(at: &super::sources::Place, schedule: &Schedule, gone: Option<Address>) -> Write {
    Write::RemoveSchedule {
        cluster: cluster_of(at).to_owned(),
        name: at.1.clone(),
        uid: schedule.uid().unwrap_or_default(),
        gone,
    }
}

/// The source of a Schedule that is not there any more.
fn address_of(state: &State, schedule: &Schedule) -> Option<Address> {
    let source = &schedule.spec.source_ref;
    Some(Address {
        kind: state.kind_of(&source_key(source))?,
        namespace: source.namespace.clone(),
        name: source.name.clone(),
        uid: source.uid.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::decide::decide_direct;
    use crate::placement::facts::SpreadOnto;
    use crate::placement::fleet::Fleet;
    use crate::placement::matching::Direct;

    #[test]
    fn a_message_names_five_clusters_of_a_thousand() {
        let facts = Facts::from_manifest(
            &serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        );
        let clusters = (0..1_000).map(|n| format!("c{n:04}")).collect();
        let direct = Direct::SpreadOnto(SpreadOnto { clusters, duplicate: true });
        let decision = decide_direct(&facts.unwrap(), &direct, &Fleet::default(), &BTreeMap::new());
        let faults = format_blocked_clusters(&decision);
        let message = &faults["ClusterUnknown"];
        let one = |n: usize| format!("the annotation names \"c{n:04}\", but this cluster does not exist");
        assert_eq!(*message, format!("{}; and 995 more", (0..5).map(one).collect::<Vec<_>>().join("; ")));
    }
}
