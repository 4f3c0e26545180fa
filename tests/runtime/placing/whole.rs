//! Whole placements onto a real workload cluster while something of the control plane or the agent dies: afterwards everything is
//! there, once, and nothing that ran was deleted.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use fleetctl::api::labels::LABEL_PLACED_BY;
use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event as Watched};
use tokio::task::JoinSet;

use super::*;
use crate::support::Program;

/// Longest time after a fault in which everything is placed.
const LIMIT: Duration = Duration::from_secs(60);

/// ConfigMaps of a namespace that a policy places onto a real workload cluster.
struct Whole {
    scene: Scene,
    agent: Option<Program>,
    place: String,
    policy: String,
    /// Names of copies that were deleted in the workload cluster.
    deleted: Arc<Mutex<Vec<String>>>,
    _watches: JoinSet<()>,
}

impl Whole {
    async fn begin() -> Self {
        let scene = Scene::set().await;
        let mut agent = scene.agent("pod-1");
        agent.ready(Duration::from_secs(60)).await;
        scene.until_ready().await;
        let (place, policy) = (fresh("whole"), fresh("policy"));
        let hub = scene.stage.hub.client.clone();
        let namespace = json!({"metadata": {"name": place, "labels": {"team": place}}});
        let namespaces: Api<Namespace> = Api::all(hub.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
        let spec = json!({"namespaceSelector": {"matchLabels": {"team": place}},
            "clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.name}},
            "resourceSelectors": {"labelSelectors": [{"matchLabels": {"placed": "yes"}}],
                "kinds": [{"group": "", "kind": "ConfigMap"}]}});
        let body = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
            "metadata": {"name": policy}, "spec": spec});
        let policies: Api<SchedulePolicy> = Api::all(hub.clone());
        policies.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();

        let deleted: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, mut watches) = (deleted.clone(), JoinSet::new());
        let there: Api<ConfigMap> = Api::all(scene.member.client.clone());
        let own = place.clone();
        watches.spawn(async move {
            let mut events =
                std::pin::pin!(watcher::watcher(there, watcher::Config::default().labels(LABEL_PLACED_BY)));
            while let Some(event) = events.next().await {
                if let Ok(Watched::Delete(map)) = event
                    && map.namespace().as_deref() == Some(&own)
                {
                    seen.lock().unwrap().push(map.name_any());
                }
            }
        });
        Self { scene, agent: Some(agent), place, policy, deleted, _watches: watches }
    }

    fn hub(&self) -> Client {
        self.scene.stage.hub.client.clone()
    }

    fn sources(&self) -> Api<ConfigMap> {
        Api::namespaced(self.hub(), &self.place)
    }

    fn there(&self) -> Api<ConfigMap> {
        Api::namespaced(self.scene.member.client.clone(), &self.place)
    }

    async fn add(&self, names: impl IntoIterator<Item = String>) {
        for name in names {
            let body = json!({"metadata": {"name": name, "labels": {"placed": "yes"}}, "data": {"of": name}});
            let body = serde_json::from_value(body).unwrap();
            // Whoever applies it does so until it is there.
            loop {
                match self.sources().create(&PostParams::default(), &body).await {
                    Ok(_) => break,
                    Err(kube::Error::Api(status)) if status.code == 409 => break,
                    Err(kube::Error::Api(status)) if status.code < 500 => panic!("{name}: {status}"),
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        }
    }

    /// Adds many side by side.
    async fn add_at_once(&self, names: impl IntoIterator<Item = String>) {
        let adding = futures::stream::iter(names).map(|name| self.add([name]));
        adding.buffer_unordered(32).collect::<()>().await;
    }

    /// UIDs and versions of the copies in the workload cluster.
    async fn copies(&self) -> BTreeMap<String, (String, String)> {
        let all = self.there().list(&ListParams::default().labels(LABEL_PLACED_BY)).await.unwrap().items;
        let of = |map: ConfigMap| (map.uid().unwrap_or_default(), map.resource_version().unwrap_or_default());
        all.into_iter().map(|map| (map.name_any(), of(map))).collect()
    }

    /// What is not placed yet: each with the step that is missing.
    async fn unplaced(&self) -> Vec<String> {
        let client = self.hub();
        let (schedules, groups): (Api<Schedule>, Api<ScheduleGroup>) =
            (Api::namespaced(client.clone(), &cluster_namespace(&self.scene.name)), Api::all(client));
        let (sources, all) = (self.sources(), ListParams::default());
        let everything = tokio::try_join!(sources.list(&all), schedules.list(&all), groups.list(&all));
        let Ok((sources, schedules, groups)) = everything else {
            return vec!["the API server does not answer".to_owned()];
        };
        let copies = self.copies().await;
        let is_applied = |schedule: &Schedule| {
            let status = schedule.status.clone().unwrap_or_default();
            status.observed_hash.as_ref() == Some(&schedule.spec.hash)
                && find_condition(&status.conditions, "Applied").is_some_and(Condition::is_true)
        };
        let step = |source: &ConfigMap| {
            let name = source.name_any();
            let of = |schedule: &&Schedule| {
                schedule.spec.source_ref.kind == "ConfigMap"
                    && schedule.spec.source_ref.name == name
                    && schedule.spec.source_ref.namespace.as_ref() == Some(&self.place)
            };
            let Some(schedule) = schedules.items.iter().find(of) else { return Some("no Schedule") };
            let of_policy = groups.items.iter().filter(|group| group.spec.policy.name == self.policy);
            let is_group = |group: &ScheduleGroup| Some(group.name_any()) == schedule.spec.group;
            let status = of_policy.filter(|group| is_group(group)).find_map(|group| group.status.clone());
            if !is_applied(schedule) {
                Some("not applied")
            } else if !copies.contains_key(&name) {
                Some("no copy")
            } else if source.labels().get(LABEL_TARGET_CLUSTER) != Some(&self.scene.name) {
                Some("no label")
            } else if !status.is_some_and(|status| {
                find_condition(&status.conditions, "Available").is_some_and(Condition::is_true) && status.scheduled
            }) {
                Some("its group does not say so")
            } else {
                None
            }
        };
        let mine = sources.items.iter().filter(|source| source.labels().contains_key("placed"));
        mine.filter_map(|source| Some(format!("{}: {}", source.name_any(), step(source)?))).collect()
    }

    /// Waits until everything is placed, at most for [`LIMIT`] from now.
    async fn until_placed(&self) -> Duration {
        let began = Instant::now();
        loop {
            let left = self.unplaced().await;
            if left.is_empty() {
                return began.elapsed();
            }
            assert!(began.elapsed() < LIMIT, "after {LIMIT:?} {} are not placed: {left:?}", left.len());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// UIDs of the Schedules by the name of the source; none has two.
    async fn schedules(&self) -> BTreeMap<String, String> {
        let schedules: Api<Schedule> = Api::all(self.hub());
        let mut found = BTreeMap::new();
        for schedule in schedules.list(&ListParams::default()).await.unwrap().items {
            let source = &schedule.spec.source_ref;
            if source.namespace.as_ref() == Some(&self.place) {
                let before = found.insert(source.name.clone(), schedule.uid().unwrap_or_default());
                assert_eq!(before, None, "{} has two Schedules", source.name);
            }
        }
        found
    }

    /// Nothing is there twice, and what was there is the same object still.
    async fn check(&self, before: &BTreeMap<String, (String, String)>) {
        self.schedules().await;
        let now = self.copies().await;
        for (name, (uid, _)) in before {
            assert_eq!(now.get(name).map(|(uid, _)| uid), Some(uid), "the copy of {name} is another one, or gone");
        }
        assert_eq!(*self.deleted.lock().unwrap(), [""; 0], "copies that were deleted");
    }

    async fn end(mut self) {
        let _ = self.agent.take();
        for client in [self.hub(), self.scene.member.client.clone()] {
            let namespaces: Api<Namespace> = Api::all(client);
            let _ = namespaces.delete(&self.place, &DeleteParams::default()).await;
        }
        let policies: Api<SchedulePolicy> = Api::all(self.hub());
        policies.delete(&self.policy, &DeleteParams::default()).await.unwrap();
    }
}

fn names(prefix: &str, count: usize) -> impl Iterator<Item = String> {
    let prefix = prefix.to_owned();
    (0..count).map(move |number| format!("{prefix}-{number}"))
}

/// The API server of the control plane dies while objects are placed, so many times, each time elsewhere.
async fn placed_while_the_api_server_dies(count: usize, times: usize) {
    let whole = Whole::begin().await;
    let mut before = BTreeMap::new();
    for time in 0..times {
        // They come faster than they are placed, so that it dies in the middle of many writes, each time elsewhere.
        let prefix = format!("at-{time}");
        let fault = async {
            let done = count * (2 * time + 1) / (2 * times);
            while whole.schedules().await.keys().filter(|name| name.starts_with(&prefix)).count() < done {
                tokio::task::yield_now().await;
            }
            whole.scene.stage.to_the_hub(|bed, hub| bed.kill(hub, "kube-apiserver")).await;
            let there = whole.copies().await;
            whole.scene.stage.to_the_hub(|bed, hub| bed.restart(hub, "kube-apiserver")).await;
            there
        };
        let ((), there) = tokio::join!(whole.add_at_once(names(&prefix, count)), fault);
        before.extend(there);
        whole.until_placed().await;
    }
    whole.check(&before).await;
    whole.end().await;
}

/// The agent dies while copies are applied, so many times, each time after one more than at the last time has no status yet.
async fn placed_while_the_agent_dies(count: usize, times: usize) {
    let mut whole = Whole::begin().await;
    let mut before = BTreeMap::new();
    let mut unreported = 0;
    for time in 0..times {
        whole.add(names(&format!("at-{time}"), count)).await;
        let known = before.len();
        wait("copies appear", async || whole.copies().await.len() > known + time).await;
        whole.agent.take().unwrap().kill();
        before.extend(whole.copies().await);
        unreported += whole.unplaced().await.iter().filter(|left| left.ends_with("not applied")).count();
        let mut next = whole.scene.agent("pod-1");
        next.ready(Duration::from_secs(60)).await;
        whole.agent = Some(next);
        whole.until_placed().await;
    }
    assert!(unreported > 0, "it never died between an apply and its status");
    whole.check(&before).await;
    whole.end().await;
}

/// The control plane's store is lost, and restored from a backup that is older than much of what runs.
async fn placed_after_a_restore(count: usize) {
    let mut whole = Whole::begin().await;
    whole.add(names("old", count)).await;
    whole.until_placed().await;
    // These are there, and not placed, when the backup is made.
    whole.scene.control_plane.halt_scheduler();
    whole.add(names("open", count)).await;
    whole.scene.stage.to_the_hub(bed::Bed::back_up).await;
    whole.scene.control_plane.kill_scheduler(&whole.scene.stage).await;
    whole.until_placed().await;
    // These are not even there, and much else was written, so that versions run far ahead.
    whole.add(names("later", count)).await;
    whole.until_placed().await;
    let fillers = futures::stream::iter(names("filler", 300));
    let maps: Api<ConfigMap> = Api::namespaced(whole.hub(), "default");
    fillers
        .for_each_concurrent(8, |name| {
            let maps = maps.clone();
            async move {
                let map = serde_json::from_value(json!({"metadata": {"name": fresh(&name)}})).unwrap();
                maps.create(&PostParams::default(), &map).await.unwrap();
            }
        })
        .await;
    let before = whole.copies().await;
    assert_eq!(before.len(), 3 * count);
    let schedules = whole.schedules().await;

    whole.scene.stage.to_the_hub(bed::Bed::restore_back_up).await;
    whole.until_placed().await;
    whole.check(&before).await;
    let restored = whole.schedules().await;
    for number in 0..count {
        let is_same = |name: &str| schedules[&format!("{name}-{number}")] == restored[&format!("{name}-{number}")];
        assert!(is_same("old") && !is_same("open"), "the backup is older than what was placed last");
    }
    // Edits reach the copies, as they did.
    for name in ["old-0", "open-0"] {
        let edit = json!({"data": {"of": "edited"}});
        whole.sources().patch(name, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    }
    whole.until_placed().await;
    for name in ["old-0", "open-0"] {
        wait("the edit arrives", async || whole.there().get(name).await.unwrap().data.unwrap()["of"] == "edited").await;
    }
    whole.check(&before).await;
    whole.end().await;
}

#[tokio::test]
async fn an_api_server_that_dies_while_objects_are_placed_loses_none() {
    placed_while_the_api_server_dies(150, 1).await;
}

#[tokio::test]
async fn an_agent_that_dies_while_it_applies_applies_everything_once() {
    placed_while_the_agent_dies(20, 1).await;
}

#[tokio::test]
async fn a_restored_control_plane_places_what_it_has_lost_and_deletes_nothing() {
    placed_after_a_restore(10).await;
}

mod exhaustive {
    use super::*;

    #[tokio::test]
    async fn an_api_server_that_dies_at_ten_points_loses_nothing() {
        placed_while_the_api_server_dies(150, 10).await;
    }

    #[tokio::test]
    async fn an_agent_that_dies_at_ten_points_applies_everything_once() {
        placed_while_the_agent_dies(20, 10).await;
    }

    #[tokio::test]
    async fn a_control_plane_that_is_restored_with_sixty_objects_places_them_again() {
        placed_after_a_restore(60).await;
    }
}
