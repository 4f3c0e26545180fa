//! What must hold of a walk when nothing is done to it any more.

use std::collections::BTreeSet;

use fleetctl::api::labels::{ANNOTATION_CLUSTER, ANNOTATION_SPREAD_ONTO};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;

use super::truth::Truth;
use super::walk::Walk;
use super::*;

/// Kinds of which each copy in a member is compared with the Schedules.
const COMPARED: [&str; 3] = ["Deployment", "StatefulSet", "Job"];

/// Where a group belongs: by its record, or by its decision if it has none.
fn find_targets(group: &ScheduleGroup) -> BTreeSet<String> {
    let status = group.status.clone().unwrap_or_default();
    let target: BTreeSet<_> = status.record.target.into_keys().collect();
    if target.is_empty() { status.target_clusters.into_iter().collect() } else { target }
}

/// What hub and members have at one moment.
pub(super) struct Look {
    /// Clusters with their Schedules.
    schedules: Vec<(String, Schedule)>,
    groups: BTreeMap<String, ScheduleGroup>,
    /// Kind, namespace and name of copies, with the member.
    copies: BTreeSet<(String, String, String, String)>,
    deployments: BTreeMap<(String, String), Deployment>,
    finished: BTreeSet<String>,
    /// Namespaces whose Job no policy takes any more.
    left: BTreeSet<String>,
    /// Namespaces with an autoscaler.
    scaled: BTreeSet<String>,
}

async fn list_names<K>(client: &Client) -> Vec<(String, String)>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let all = Api::<K>::all(client.clone()).list_metadata(&ListParams::default()).await.unwrap().items;
    all.into_iter().map(|one| (one.namespace().unwrap_or_default(), one.name_any())).collect()
}

fn is_of_web(schedule: &Schedule) -> bool {
    schedule.spec.source_ref.kind == "Deployment" && schedule.spec.source_ref.name == "web"
}

impl Look {
    pub(super) async fn take(hub: &Client, members: &[(String, Client)]) -> Self {
        let all = ListParams::default();
        let (mut schedules, mut copies) = (Vec::new(), BTreeSet::new());
        for (name, client) in members {
            let api: Api<Schedule> = Api::namespaced(hub.clone(), &cluster_namespace(name));
            schedules.extend(api.list(&all).await.unwrap().items.into_iter().map(|one| (name.clone(), one)));
            let found = [
                list_names::<Deployment>(client).await,
                list_names::<StatefulSet>(client).await,
                list_names::<Job>(client).await,
            ];
            for (kind, found) in COMPARED.into_iter().zip(found) {
                let found = found.into_iter().map(|(space, object)| (kind.to_owned(), space, object, name.clone()));
                copies.extend(found);
            }
        }
        let groups = Api::<ScheduleGroup>::all(hub.clone()).list(&all).await.unwrap().items;
        let deployments = Api::<Deployment>::all(hub.clone()).list(&all).await.unwrap().items;
        let jobs = Api::<Job>::all(hub.clone()).list(&all).await.unwrap().items;
        let is_complete = |job: &Job| {
            let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            conditions.iter().any(|one| one.type_ == "Complete" && one.status == "True")
        };
        let is_left = |job: &&Job| job.labels().get("tier").is_some_and(|tier| tier == "c");
        Self {
            scaled: list_names::<HorizontalPodAutoscaler>(hub).await.into_iter().map(|(space, _)| space).collect(),
            left: jobs.iter().filter(is_left).filter_map(kube::ResourceExt::namespace).collect(),
            schedules,
            groups: groups.into_iter().map(|group| (group.name_any(), group)).collect(),
            copies,
            deployments: deployments.into_iter().map(|one| ((one.namespace().unwrap(), one.name_any()), one)).collect(),
            finished: jobs.iter().filter(|job| is_complete(job)).filter_map(kube::ResourceExt::namespace).collect(),
        }
    }

    /// What keeps a walk from being at rest.
    pub(super) fn find_unrest(&self, walk: &Walk, truth: &Truth, members: &[String]) -> Vec<String> {
        let own = &walk.namespace;
        let mut found = Vec::new();
        let is_own = |schedule: &Schedule| schedule.spec.source_ref.namespace.as_ref() == Some(own);
        let schedules: Vec<_> = self.schedules.iter().filter(|(_, schedule)| is_own(schedule)).collect();
        let groups: Vec<_> = self.groups.iter().filter(|(name, _)| name.starts_with(&format!("{own}-"))).collect();
        let mut placed = BTreeSet::new();
        for (cluster, schedule) in &schedules {
            let source = &schedule.spec.source_ref;
            let what = format!("{} {} in {cluster}", source.kind, source.name);
            if schedule.metadata.deletion_timestamp.is_some() {
                found.push(format!("the Schedule of {what} is still being deleted"));
            }
            if COMPARED.contains(&source.kind.as_str()) {
                placed.insert((source.kind.clone(), own.clone(), source.name.clone(), cluster.clone()));
            }
            // What has volumes is kept where it is, and what follows is where something uses it.
            let is_beside = source.kind == "HorizontalPodAutoscaler"
                && schedules.iter().any(|(at, one)| at == cluster && is_of_web(one));
            let stays = schedule.spec.follows || is_beside || ["db", "disk"].contains(&source.name.as_str());
            let Some(name) = schedule.spec.group.as_ref().filter(|_| !stays) else { continue };
            let targets = self.groups.get(name).map(find_targets);
            if !targets.as_ref().is_some_and(|targets| targets.contains(cluster)) {
                found.push(format!("{what} is in no target of its group {name}: {targets:?}"));
            }
        }
        let is_here = |copy: &&(String, String, String, String)| copy.1 == *own;
        let copies: BTreeSet<_> = self.copies.iter().filter(is_here).cloned().collect();
        let lost = truth.with(own, |walked| walked.lost.clone());
        let is_left_behind = |(_, _, name, cluster): &&(String, String, String, String)| {
            ["db", "disk"].contains(&name.as_str()) && lost.contains(cluster)
        };
        let strays = copies.difference(&placed).filter(|copy| !is_left_behind(copy));
        found.extend(strays.map(|copy| format!("{copy:?} has no Schedule")));
        found.extend(placed.difference(&copies).map(|copy| format!("{copy:?} has a Schedule and no copy")));
        for (name, group) in groups {
            let status = group.status.clone().unwrap_or_default();
            if let Some(running) = &status.record.running {
                found.push(format!("{name} moves: {running:?}"));
            }
            if let Some(moving) = find_condition(&status.conditions, "Moving").filter(|moving| moving.is_true()) {
                found.push(format!("{name} says that it moves: {}", moving.message));
            }
            for member in &status.object_refs {
                let is_placed = |cluster: &String| {
                    placed.contains(&(member.kind.clone(), own.clone(), member.name.clone(), cluster.clone()))
                };
                let is_over = member.kind == "Job" && self.finished.contains(own);
                // A divided Job is in some clusters of its group only.
                let must_be = COMPARED.contains(&member.kind.as_str()) && member.kind != "Job" && !is_over;
                let missing: Vec<_> =
                    status.record.target.keys().filter(|cluster| must_be && !is_placed(cluster)).collect();
                if !missing.is_empty() {
                    found.push(format!(
                        "{name} has no copy of {} {} in its targets {missing:?}",
                        member.kind, member.name
                    ));
                }
            }
            let has_ended = self.finished.contains(own) && status.object_refs.iter().all(|one| one.kind == "Job");
            if find_targets(group).is_empty() && !has_ended {
                found.push(format!("{name} has no target: {:?}", status.conditions));
            }
        }
        found.extend(self.find_web_unrest(walk, truth, members, &schedules));
        let has_job = schedules.iter().any(|(_, schedule)| schedule.spec.source_ref.kind == "Job");
        if !self.finished.contains(own) && (has_job || !self.left.contains(own)) {
            found.push("the Job is not Complete".to_owned());
        }
        found
    }

    fn find_web_unrest(
        &self,
        walk: &Walk,
        truth: &Truth,
        members: &[String],
        schedules: &[&(String, Schedule)],
    ) -> Vec<String> {
        let mut found = Vec::new();
        let Some(web) = self.deployments.get(&(walk.namespace.clone(), "web".to_owned())) else {
            return vec!["web is gone".to_owned()];
        };
        let at: BTreeSet<_> =
            schedules.iter().filter(|(_, schedule)| is_of_web(schedule)).map(|(name, _)| name.clone()).collect();
        for key in [ANNOTATION_CLUSTER, ANNOTATION_SPREAD_ONTO] {
            let Some(named) = web.annotations().get(key) else { continue };
            let named: BTreeSet<_> = named.trim_end_matches("::Duplicate").split(',').map(ToOwned::to_owned).collect();
            if named != at {
                found.push(format!("web is in {at:?} by the annotation {key}: {named:?}"));
            }
        }
        if walk.is_whole() && at.len() != 1 {
            found.push(format!("web is not divided, and in {at:?}"));
        }
        let ready = truth.with(&walk.namespace, |walked| walked.by_member());
        let here: Vec<_> = members.iter().zip(ready).filter(|(name, _)| at.contains(*name)).map(|(_, n)| n).collect();
        let expected: usize =
            if walk.is_duplicated() { here.iter().min().copied().unwrap_or(0) } else { here.iter().sum() };
        let status = web.status.clone().unwrap_or_default();
        let said = usize::try_from(status.available_replicas.unwrap_or(0)).unwrap();
        // What an autoscaler has scaled shows the number that its source asks for, once all pods run.
        let asked = web.spec.as_ref().and_then(|spec| spec.replicas).and_then(|asked| usize::try_from(asked).ok());
        let shows_asked = self.scaled.contains(&walk.namespace) && Some(said) == asked && expected > 0;
        if said != expected && !shows_asked && !walk.is_held() {
            found.push(format!("the source of web says {said} available, its copies have {ready:?} in {at:?}"));
        }
        let strays: usize = ready.iter().sum::<usize>() - here.iter().sum::<usize>();
        if strays > 0 {
            found.push(format!("{strays} pods of web run in other members than {at:?}"));
        }
        // What has no copy observes nothing.
        if !at.is_empty() && status.observed_generation != web.metadata.generation {
            found.push(format!(
                "the source of web observed {:?}, its generation is {:?}",
                status.observed_generation, web.metadata.generation
            ));
        }
        found
    }
}
