//! What a report changes is written once, and what it leaves as it is not at all.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use kube::runtime::watcher;
use tokio::task::JoinSet;

use super::*;

/// Names of objects in the order in which they were written.
type Seen = Arc<Mutex<Vec<String>>>;

fn watch<K>(watches: &mut JoinSet<()>, api: Api<K>, seen: &Seen)
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let seen = seen.clone();
    watches.spawn(watcher::watcher(api, watcher::Config::default()).for_each(move |event| {
        if let Ok(watcher::Event::Apply(object)) = event {
            seen.lock().unwrap().push(object.name_any());
        }
        futures::future::ready(())
    }));
}

impl Fleet {
    /// Reports that a copy has its pod, or none, and waits until its source says so.
    async fn report_pods(&self, copy: &Schedule, pods: i32) {
        let resource = json!({"replicas": 1, "availableReplicas": pods, "unavailableReplicas": 1 - pods,
            "readyReplicas": pods, "updatedReplicas": 1, "observedGeneration": 1});
        self.report(copy, resource, pods == 1).await;
        let name = &copy.spec.source_ref.name;
        wait(&format!("{name} has {pods} pods"), async || {
            let status = self.deployments().get(name).await.unwrap().status.unwrap_or_default();
            status.available_replicas.unwrap_or_default() == pods && status.updated_replicas == Some(1)
        })
        .await;
    }
}

#[tokio::test]
async fn a_report_is_written_once_and_its_repetition_not_at_all() {
    let fleet = Fleet::new().await;
    let member = fleet.join(2).await;
    let policy = fleet.policy(json!({})).await;
    for name in ["web", "other"] {
        fleet.deployment(name, 1, json!({})).await;
    }
    let web = fleet.copy(&member.name, "Deployment web").await;
    let other = fleet.copy(&member.name, "Deployment other").await;
    for pods in [1, 0, 1] {
        fleet.report_pods(&web, pods).await;
        fleet.report_pods(&other, pods).await;
    }
    let groups = fleet.groups(&policy).await;
    let group = groups.iter().find(|group| group.spec.key.contains("web")).unwrap().name_any();
    let (seen, mut watches) = (Seen::default(), JoinSet::new());
    watch(&mut watches, fleet.deployments(), &seen);
    watch(&mut watches, Api::<ScheduleGroup>::all(fleet.client()), &seen);
    let count = |name: &str| seen.lock().unwrap().iter().filter(|one| *one == name).count();
    wait("the watches see what is written", async || {
        fleet.report_pods(&other, 0).await;
        fleet.report_pods(&other, 1).await;
        count("other") > 0 && seen.lock().unwrap().iter().any(|name| name.starts_with(&policy) && *name != group)
    })
    .await;
    seen.lock().unwrap().clear();

    // The times of its conditions differ: the Schedule is written, and nothing else.
    fleet.report_pods(&web, 1).await;
    fleet.report_pods(&other, 0).await;
    assert_eq!((count("web"), count(&group)), (0, 0), "a report that says the same");
    // What is told after it has been seen.
    fleet.report_pods(&web, 0).await;
    fleet.report_pods(&other, 1).await;
    wait("the watches have seen both", async || count("web") > 0 && count("other") > 1).await;
    assert_eq!(count("web"), 1, "the status of the source, for one change");
    assert!(count(&group) <= 1, "the status of the group, for one change");
    watches.shutdown().await;
    fleet.end(&[policy]).await;
}
