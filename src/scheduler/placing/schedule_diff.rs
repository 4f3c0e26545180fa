//! From Schedules that there must be to the writes of those that are missing or differ.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::faults::CopyFaults;
use super::place::Place;
use super::plan::Plan;
use super::refusals::{self, Refusal, Subject};
use super::scaled_copy;
use super::source::Source;
use super::store::Store;
use super::write::{Address, Stages, Write};
use crate::api::crd::condition::find_condition;
use crate::api::crd::policy::FieldOverride;
use crate::api::crd::schedule::applied::WRITTEN_AGAIN;
use crate::api::crd::schedule::{ApplyPolicy, OnDelete, ScheduleShare, SourceRef, conditions};
use crate::api::labels::{ANNOTATION_APPLIED_OVERRIDES, FINALIZER_AGENT_CLEANUP, cluster_namespace};
use crate::api::util::digest;
use crate::api::{Schedule, ScheduleSpec};
use crate::placement::copy::{self, CopyError};
use crate::placement::facts::{Facts, ObjectKey, Relations, Scales};
use crate::placement::live::{self, source_key};
use crate::placement::matching::Policy;
use crate::placement::names::schedule_name;

/// Version of the way in which copies are made: another one when the same source has to give another copy than it did
/// with an earlier program.
const FORMAT: u32 = 1;

/// Bytes of manifests after which a plan writes what it has before it makes more.
const BYTES: usize = 2 << 20;
/// Longest edits that are recorded on a Schedule, in bytes: annotations may have 256 KiB in all.
const LONGEST_EDITS: usize = 128 << 10;

/// Schedule that one object has to have for one cluster.
pub(super) struct DesiredSchedule<'a> {
    pub(super) source: &'a Source,
    pub(super) cluster: &'a str,
    pub(super) share: Option<ScheduleShare>,
    /// Policy whose overrides it gets; a member of a group without one keeps those that it has.
    pub(super) policy: Option<&'a Policy>,
    pub(super) group: Option<&'a str>,
    /// Whether it is there only because something in the cluster uses it.
    pub(super) follows: bool,
    /// The HorizontalPodAutoscaler that scales it and is placed too.
    pub(super) scaler: Option<&'a Scales>,
}

impl<'a> DesiredSchedule<'a> {
    /// Returns that of an object which is copied whole, for its namespace or for what uses it.
    pub(super) fn of_whole(source: &'a Source, cluster: &'a str) -> Self {
        Self { source, cluster, share: None, policy: None, group: None, follows: false, scaler: None }
    }
}

/// Collects the Schedules that there must be, and what that takes.
pub(super) struct ScheduleDiff<'a> {
    store: &'a Store,
    namespaces: Vec<Write>,
    schedules: Vec<Write>,
    desired: BTreeSet<(String, ObjectKey)>,
    faults: CopyFaults,
    refused: Vec<Refusal>,
    /// Sources that must be read, once each.
    fetch: Vec<Address>,
    fetching: BTreeSet<ObjectKey>,
    /// Bytes of the manifests that are made.
    bytes: usize,
    /// Copies are left for the next plan, as their sources must be read or their manifests are large.
    is_partial: bool,
}

impl<'a> ScheduleDiff<'a> {
    /// Creates one that desires nothing.
    pub(super) fn new(store: &'a Store) -> Self {
        Self {
            store,
            namespaces: Vec::new(),
            schedules: Vec::new(),
            desired: BTreeSet::new(),
            faults: CopyFaults::new(),
            refused: Vec::new(),
            fetch: Vec::new(),
            fetching: BTreeSet::new(),
            bytes: 0,
            is_partial: false,
        }
    }

    /// Adds a Schedule, and that of the namespace that it needs.
    pub(super) fn add_desired(&mut self, desired: &DesiredSchedule<'_>) {
        let key = &desired.source.facts.key;
        if key.namespace() != "" {
            self.add_namespace(key.namespace(), desired.cluster);
        }
        self.desired.insert((desired.cluster.to_owned(), key.clone()));
        if let Some(write) = self.plan_schedule(desired) {
            self.schedules.push(write);
        }
    }

    fn add_namespace(&mut self, name: &str, cluster: &str) {
        let key = ObjectKey::new("", "Namespace", "", name);
        let Some(source) = self.store.sources.get(&key) else { return };
        if self.store.order.never_placed_reason(&source.facts, &source.facts.labels).is_some() {
            return;
        }
        let is_there = self.store.copy_in(&key, cluster).is_some();
        if !is_there && self.desired.insert((cluster.to_owned(), key)) {
            let desired = DesiredSchedule::of_whole(source, cluster);
            if let Some(write) = self.plan_schedule(&desired) {
                self.namespaces.push(write);
            }
        }
    }

    /// Returns the write of a Schedule that is missing or differs.
    fn plan_schedule(&mut self, desired: &DesiredSchedule<'_>) -> Option<Write> {
        let facts = &desired.source.facts;
        let (place, known) = self.find_place(desired)?;
        let domain = desired.share.as_ref().map_or(desired.cluster, |share| share.domain.as_str());
        let recorded = known.filter(|_| desired.group.is_some()).map(read_applied_edits).unwrap_or_default();
        let edits: Vec<&FieldOverride> = match desired.policy {
            Some(policy) => copy::find_overrides(policy, domain, facts),
            // Its policy is gone: it keeps what was applied last.
            None => recorded.iter().collect(),
        };
        let leave_fields = match copy::leave_fields(facts, &edits, desired.scaler.is_some()) {
            Ok(fields) => fields,
            Err(error) => {
                self.faults.insert(facts.key.clone(), error);
                return None;
            }
        };
        let apply_policy = build_apply_policy(facts, leave_fields);
        let edits_text = serde_json::to_string(&edits).unwrap_or_default();
        let parts = format!("{FORMAT}\0{}\0{:?}\0{edits_text}", facts.hash, desired.share);
        let edits_text = Some(edits_text).filter(|text| !edits.is_empty() && text.len() <= LONGEST_EDITS);
        let hash = digest::full_digest(parts.as_bytes());
        let source_ref = build_source_ref(facts);
        let group = desired.group.map(ToOwned::to_owned);
        // Never of a copy that was there for another reason.
        let follows = desired.follows && known.is_none_or(|known| known.spec.follows);
        let same = known.is_some_and(|known| {
            known.spec.hash == hash
                && known.spec.source_ref == source_ref
                && known.spec.group == group
                && known.spec.follows == follows
                && known.spec.share == desired.share
                && known.spec.apply_policy == apply_policy
                && applied_edits_text(known) == edits_text.as_deref()
                && !is_written_again(known)
        });
        if same {
            return None;
        }
        let subject = Subject::Copy(facts.key.clone(), desired.cluster.to_owned());
        let content = refusals::copy_content(&hash, desired.group, desired.share.as_ref(), apply_policy.as_ref());
        if let Some((error, waits)) = self.store.refusals.find_known_refusal(&subject, &content) {
            // It is said until the copy is written.
            self.faults.insert(facts.key.clone(), error.clone());
            if waits {
                return None;
            }
        }
        let object = self.take_object(desired.source)?;
        let share = desired.share.as_ref().and_then(|share| live::share_from_schedule(facts, share));
        let made = match copy::make_copy(object, share, &edits) {
            Ok(made) => made,
            Err(error) => {
                self.faults.insert(facts.key.clone(), error.clone());
                self.refused.push(Refusal { subject, content, error });
                return None;
            }
        };
        let uses = find_uses(desired.source, &made.manifest, edits.is_empty());
        let mut manifest = made.manifest;
        if known.is_none() {
            scaled_copy::set_first_replicas(self.store, desired, &mut manifest);
        }
        let manifest = manifest.to_string();
        self.bytes += manifest.len();
        let metadata = build_metadata(place, known, edits_text);
        // What is asked of the copy is another thing than was reported of it.
        let epoch = known.map_or(0, |known| known.spec.epoch + i64::from(known.spec.hash != hash));
        let manifest_digest = Some(digest::full_digest(manifest.as_bytes()));
        let share = desired.share.clone();
        let spec = ScheduleSpec {
            manifest,
            hash,
            manifest_digest,
            group,
            follows,
            uses,
            source_ref,
            share,
            apply_policy,
            epoch,
        };
        Some(Write::Schedule(Box::new(Schedule { metadata, spec, status: None }), made.payload))
    }

    /// Returns the place of a Schedule, and the one that exists; `None` where none can be written now.
    fn find_place(&mut self, desired: &DesiredSchedule<'_>) -> Option<(Place, Option<&'a Schedule>)> {
        let key = &desired.source.facts.key;
        // One that is there keeps the name that an earlier version gave it.
        if let Some((at, known)) = self.store.copy_in(key, desired.cluster) {
            // One that is being deleted is made again when it is gone.
            return known.metadata.deletion_timestamp.is_none().then(|| (at.clone(), Some(known)));
        }
        let place = (cluster_namespace(desired.cluster), schedule_name(key));
        if let Some(other) = self.store.schedules.get(&place) {
            let object = source_key(&other.spec.source_ref).format_title();
            self.faults.insert(key.clone(), CopyError::ScheduleTaken { schedule: place.1, object });
            return None;
        }
        Some((place, None))
    }

    /// Returns the whole object of a source; `None` where its copy is left for the next plan.
    fn take_object<'s>(&mut self, source: &'s Source) -> Option<&'s serde_json::Value> {
        if self.bytes >= BYTES {
            self.is_partial = true;
            return None;
        }
        if source.object.is_none() {
            self.is_partial = true;
            // Once for all of its clusters.
            if self.fetching.insert(source.facts.key.clone()) {
                self.fetch.push(source.address.clone());
            }
        }
        source.object.as_deref()
    }

    /// Returns the plan of what must be written, and the objects of which a copy cannot be made.
    pub(super) fn into_plan(self) -> (Plan, CopyFaults) {
        let stages: Stages = [self.namespaces, self.schedules].into_iter().filter(|one| !one.is_empty()).collect();
        let plan = if self.is_partial {
            // What is at hand is written, and let go of, before more is read.
            let fetch = if stages.is_empty() { self.fetch } else { Vec::new() };
            Plan { stages, fetch, is_partial: true, refused: self.refused, ..Plan::default() }
        } else {
            let written = self.desired.into_iter().map(|(_, key)| key).collect();
            Plan { stages, written, refused: self.refused, ..Plan::default() }
        };
        (plan, self.faults)
    }
}

/// Returns whether the agent says that a Schedule, or the Secret with its data, is not as it was written.
fn is_written_again(known: &Schedule) -> bool {
    let status = known.status.iter();
    let mut applied = status.filter_map(|status| find_condition(&status.conditions, conditions::APPLIED));
    applied.any(|condition| WRITTEN_AGAIN.contains(&condition.reason.as_str()))
}

/// Returns the keys of what a copy names; absent where it names nothing.
fn find_uses(source: &Source, manifest: &serde_json::Value, is_unedited: bool) -> Option<Vec<String>> {
    let edited = (!is_unedited).then(|| Relations::from_manifest(&source.facts.key, manifest));
    let relations = edited.as_ref().unwrap_or(&source.relations);
    let keys: Vec<String> = relations.name_keys().map(|key| key.as_str().to_owned()).collect();
    (!keys.is_empty()).then_some(keys)
}

fn build_apply_policy(facts: &Facts, leave_fields: Vec<String>) -> Option<ApplyPolicy> {
    let apply_policy = ApplyPolicy {
        adopt: facts.asks.adopt,
        leave_fields,
        on_delete: if facts.asks.keep_on_delete { OnDelete::Keep } else { OnDelete::Delete },
    };
    (apply_policy != ApplyPolicy::default()).then_some(apply_policy)
}

fn build_source_ref(facts: &Facts) -> SourceRef {
    SourceRef {
        group: facts.key.group().to_owned(),
        version: facts.version.clone(),
        kind: facts.key.kind().to_owned(),
        namespace: Some(facts.key.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
        name: facts.key.name().to_owned(),
        uid: facts.uid.clone(),
        generation: facts.generation,
    }
}

/// Returns the metadata of a Schedule; what others wrote into those of one that exists is kept.
fn build_metadata((namespace, name): Place, known: Option<&Schedule>, edits: Option<String>) -> ObjectMeta {
    let mut metadata = known.map(|known| known.metadata.clone()).unwrap_or_default();
    metadata.name = Some(name);
    metadata.namespace = Some(namespace);
    let finalizers = metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|one| one == FINALIZER_AGENT_CLEANUP) {
        finalizers.push(FINALIZER_AGENT_CLEANUP.to_owned());
    }
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    annotations.remove(ANNOTATION_APPLIED_OVERRIDES);
    annotations.extend(edits.map(|edits| (ANNOTATION_APPLIED_OVERRIDES.to_owned(), edits)));
    metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
    metadata.managed_fields = None;
    metadata
}

fn applied_edits_text(schedule: &Schedule) -> Option<&str> {
    schedule.metadata.annotations.as_ref()?.get(ANNOTATION_APPLIED_OVERRIDES).map(String::as_str)
}

/// Returns the edits that a Schedule was last written with; none where they cannot be read.
fn read_applied_edits(schedule: &Schedule) -> Vec<FieldOverride> {
    applied_edits_text(schedule).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}
