//! From a decision to writes: which Schedules a group has, its object, its members' labels, and how these differ from
//! those that exist. Which Schedules it loses is in `schedule_deletions`.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::decide::Decided;
use super::falling_shares::hold_falling_shares;
use super::faults::{self, CopyFaults};
use super::follow_plan;
use super::group_context::GroupContext;
use super::group_status::is_same_group_status;
use super::place::cluster_of;
use super::plan::Plan;
use super::schedule_deletions;
use super::schedule_diff::{DesiredSchedule, ScheduleDiff};
use super::source::Source;
use super::store::Store;
use super::volumes::KeptAt;
use super::write::{TargetMark, Write};
use crate::api::crd::group::PolicyRef;
use crate::api::crd::schedule::ScheduleShare;
use crate::api::labels::{ANNOTATION_TARGET_CLUSTERS, LABEL_MATCHING_POLICY, LABEL_TARGET_CLUSTER};
use crate::api::{ScheduleGroup, ScheduleGroupSpec};
use crate::placement::decide::Target;
use crate::placement::facts::{Facts, ObjectKey, Scales};
use crate::placement::live;
use crate::placement::matching::Policy;
use crate::placement::names::{GroupKey, policy_label};

/// Autoscalers by the namespace, the kind and the name of what they scale.
pub(super) struct Scaled<'a>(BTreeMap<(&'a str, &'a str, &'a str), Vec<&'a Scales>>);

impl<'a> Scaled<'a> {
    pub(super) fn from_members(members: impl Iterator<Item = &'a Facts>) -> Self {
        let mut scalers: BTreeMap<_, Vec<&Scales>> = BTreeMap::new();
        for (key, scales) in members.filter_map(|facts| Some((&facts.key, facts.scales.as_ref()?))) {
            scalers.entry((key.namespace(), scales.kind.as_str(), scales.name.as_str())).or_default().push(scales);
        }
        Self(scalers)
    }

    /// Returns the autoscaler of an object.
    pub(super) fn find_scaler(&self, key: &ObjectKey) -> Option<&'a Scales> {
        let scalers = self.0.get(&(key.namespace(), key.kind(), key.name()));
        scalers.into_iter().flatten().copied().find(|scales| scales.is_target(key))
    }
}

/// Plans a group as it was decided: its Schedules, its object, its members' labels.
pub(super) fn plan_group(store: &Store, name: &str, decided: Option<&Decided>, now: Timestamp) -> Plan {
    let group = GroupContext::new(store, name, decided, now);
    if group.members.is_empty() { group.plan_group_removal() } else { group.diff() }
}

impl<'a> GroupContext<'a> {
    /// Returns the writes that make what exists as it should be.
    fn diff(&self) -> Plan {
        let desired = self.desired_schedules();
        let mut diff = ScheduleDiff::new(self.store);
        for schedule in &desired {
            diff.add_desired(schedule);
        }
        let (mut plan, faults) = diff.into_plan();
        if plan.is_partial {
            return plan;
        }
        for key in &self.members {
            plan.push_stage(schedule_deletions::release_schedules(self.store, key));
        }
        // What is written now is not Available yet, whatever was reported before.
        if !plan.writes_schedules() {
            for stage in self.delete_schedules(&desired, &faults) {
                plan.push_stage(stage);
            }
        }
        if self.is_suspended() {
            plan.written.extend(self.members.iter().map(|key| (*key).clone()));
        }
        for key in &self.members {
            let of_member = faults.get(*key).map(faults::copy_fault_reason).into_iter();
            let denied = faults::direct_placement_denial(self.store, key);
            plan.faults.insert((*key).clone(), of_member.chain(denied).collect());
        }
        let Some(group) = self.desired_group(&faults) else { return plan };
        let events = group.status.as_ref().map(|status| self.events(status)).unwrap_or_default();
        plan.push_stage(self.diff_group(group));
        plan.push_stage(self.diff_labels());
        plan.push_stage(events);
        plan
    }

    /// Returns the Schedules that the group has to have. Nothing else decides which are made, and how they are.
    fn desired_schedules(&self) -> Vec<DesiredSchedule<'a>> {
        if self.is_suspended() {
            // Everything stays as it is: edits wait too.
            return Vec::new();
        }
        let (store, policy, group) = (self.store, self.policy, Some(self.name));
        let followers = store.followers_of(self.name);
        let scaled =
            Scaled::from_members(self.members.iter().filter_map(|key| store.source_facts(key)).chain(followers));
        let mut desired = Vec::new();
        for key in &self.members {
            let Some(source) = store.sources.get(*key) else { continue };
            let scaler = scaled.find_scaler(key);
            let looked_at = |decided: &&Decided| !self.is_left(key) && !self.is_undivided_yet(decided, &source.facts);
            let Some(decided) = self.active_decision().filter(looked_at) else {
                // Its copies stay where they are, and edits of the source reach them; what no policy matches any more keeps
                // its overrides.
                let policy = policy.filter(|_| !self.is_left(key));
                for (at, schedule) in store.copies_of(key) {
                    let (cluster, share) = (cluster_of(at), schedule.spec.share.clone());
                    desired.push(DesiredSchedule { source, cluster, share, policy, group, follows: false, scaler });
                }
                continue;
            };
            if let Some(kept) = self.kept_place(key, &self.member_targets(decided, key)) {
                desired.extend(self.kept_schedules(source, kept, scaler));
                continue;
            }
            let begun = self.copies_to_finish(decided, key);
            if !begun.is_empty() {
                // It is stopped in a cluster that is being drained, and begins again when it is gone there.
                let begun = begun.into_iter().filter(|(at, _)| !store.drained.contains(cluster_of(at))).collect();
                desired.extend(self.kept_schedules(source, KeptAt::Copies(begun), scaler));
                continue;
            }
            for target in decided.targets.iter().filter(|target| live::has_copy_in_target(target, &source.facts)) {
                let cluster = target.cluster.as_str();
                if store.is_over_elsewhere(key, cluster) {
                    continue;
                }
                let share = match store.ended_copy(source, cluster) {
                    Some(ended) => ended.spec.share.clone(),
                    None => target_share(target, &source.facts),
                };
                desired.push(DesiredSchedule { source, cluster, share, policy, group, follows: false, scaler });
            }
            let elsewhere = follow_plan::desired_elsewhere(store, key, |cluster| !decided.has_target(cluster));
            desired.extend(elsewhere.into_iter().map(|one| DesiredSchedule { group, ..one }));
        }
        hold_falling_shares(store, &mut desired);
        desired
    }

    /// Returns whether a decision that divides says nothing of a member that can be divided: it was made before the member came
    /// to the group. In each target it would run whole.
    fn is_undivided_yet(&self, decided: &Decided, facts: &Facts) -> bool {
        let divides = self.policy.is_some_and(Policy::divides);
        let names = |target: &Target| target.replicas.contains_key(&facts.key) || target.whole.contains(&facts.key);
        divides && facts.workload.is_dividable() && !decided.targets.iter().any(names)
    }

    /// Returns the Schedules of a member that its data keeps where it is.
    fn kept_schedules(
        &self,
        source: &'a Source,
        kept: KeptAt<'a>,
        scaler: Option<&'a Scales>,
    ) -> Vec<DesiredSchedule<'a>> {
        let at: Vec<(&str, Option<ScheduleShare>)> = match kept {
            KeptAt::Copies(copies) => {
                copies.into_iter().map(|(at, schedule)| (cluster_of(at), schedule.spec.share.clone())).collect()
            }
            KeptAt::Recorded(clusters) => clusters.into_iter().map(|cluster| (cluster, None)).collect(),
        };
        let (policy, group) = (self.policy, Some(self.name));
        at.into_iter()
            .map(|(cluster, share)| DesiredSchedule { source, cluster, share, policy, group, follows: false, scaler })
            .collect()
    }

    /// Returns the marks that say where the group went, on its members and on itself; on one whose data stays, where
    /// that is.
    fn desired_labels(&self, member: Option<&ObjectKey>) -> TargetMark {
        if let Some(recorded) = &self.recorded {
            return recorded.target_mark();
        }
        match self.active_decision().filter(|_| self.policy.is_some()) {
            Some(decided) => {
                let kept = member.and_then(|key| self.kept_place(key, &self.member_targets(decided, key)));
                match kept {
                    Some(KeptAt::Copies(copies)) => {
                        TargetMark::from_targets(copies.into_iter().map(|(at, _)| cluster_of(at)))
                    }
                    Some(KeptAt::Recorded(clusters)) => TargetMark::from_targets(clusters),
                    None => TargetMark::from_targets(decided.targets.iter().map(|target| target.cluster.as_str())),
                }
            }
            None => {
                let recorded = self.known_status().into_iter().flat_map(|status| &status.target_clusters);
                TargetMark::from_targets(recorded.map(String::as_str))
            }
        }
    }

    /// Returns the object of the group as it should be; `None` where it is not there, and no policy makes it.
    pub(super) fn desired_group(&self, faults: &CopyFaults) -> Option<ScheduleGroup> {
        let spec = self.desired_group_spec()?;
        let target = self.desired_labels(None);
        let mut metadata = self.known.map(|group| group.metadata.clone()).unwrap_or_default();
        let labels = metadata.labels.get_or_insert_default();
        labels.remove(LABEL_TARGET_CLUSTER);
        labels.insert(LABEL_MATCHING_POLICY.to_owned(), policy_label(&spec.policy.name));
        labels.extend(target.label.map(|label| (LABEL_TARGET_CLUSTER.to_owned(), label)));
        if let Some(by) = self.policy.and_then(|policy| policy.spec.group_by.as_ref())
            && let Some((key, value)) = self.first_source_facts().and_then(|facts| by.find_label(&facts.labels))
        {
            labels.insert(key.to_owned(), value.to_owned());
        }
        let mut annotations = metadata.annotations.take().unwrap_or_default();
        annotations.remove(ANNOTATION_TARGET_CLUSTERS);
        annotations.extend(target.clusters.map(|names| (ANNOTATION_TARGET_CLUSTERS.to_owned(), names)));
        metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
        metadata.name = Some(self.name.to_owned());
        metadata.managed_fields = None;
        Some(ScheduleGroup { metadata, spec, status: Some(self.group_status(faults)) })
    }

    fn desired_group_spec(&self) -> Option<ScheduleGroupSpec> {
        let (Some(policy), Some(facts)) = (self.policy, self.first_source_facts()) else {
            return self.known.map(|group| group.spec.clone());
        };
        let key = GroupKey::new(facts, policy).to_spec_key();
        Some(ScheduleGroupSpec { policy: PolicyRef { name: policy.name.clone(), namespace: None }, key })
    }

    /// Returns the facts of the first member, after which the group is called.
    fn first_source_facts(&self) -> Option<&'a Facts> {
        self.members.first().and_then(|key| self.store.source_facts(key))
    }

    /// Returns the write of the group's object where it differs.
    pub(super) fn diff_group(&self, desired: ScheduleGroup) -> Vec<Write> {
        let same = self.known.is_some_and(|known| {
            known.spec == desired.spec
                && known.metadata.labels == desired.metadata.labels
                && known.annotations() == desired.annotations()
                && desired.status.as_ref().is_some_and(|status| is_same_group_status(known.status.as_ref(), status))
        });
        if same { Vec::new() } else { vec![Write::Group(Box::new(desired))] }
    }

    /// Returns the writes of the marks of members where they differ.
    pub(super) fn diff_labels(&self) -> Vec<Write> {
        let sources = self.members.iter().filter_map(|key| Some((*key, self.store.sources.get(*key)?)));
        let marks = sources.map(|(key, source)| (source, self.desired_labels(Some(key))));
        let differing = marks.filter(|(source, mark)| source.target != *mark);
        differing.map(|(source, mark)| Write::Label(source.address.clone(), mark)).collect()
    }
}

/// The share of an object in a target, as its Schedule holds it.
fn target_share(target: &Target, facts: &Facts) -> Option<ScheduleShare> {
    let share = target.replicas.get(&facts.key).copied();
    target.domain.as_ref().map(|domain| live::build_schedule_share(domain, share))
}
