//! A Deployment divided over two of three members, of which one is drained: the third takes its share, and at no moment is less
//! available than before.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fleetctl::api::crd::move_record::{MoveCause, MoveRecord};
use fleetctl::api::labels::ANNOTATION_ASK;
use tokio::task::JoinSet;

use super::*;

/// Replicas that the Deployment asks for.
const REPLICAS: i64 = 6;

/// The pods that are available in each member, by the agents that are played here.
type Pods = Arc<[AtomicI64; 3]>;

fn sum_pods(pods: &Pods) -> i64 {
    pods.iter().map(|pods| pods.load(Ordering::SeqCst)).sum()
}

/// Plays the agents of all members: pods come one in each look, and go at once with their share. Returns what is wrong, when too
/// little was available.
async fn play_agents(fleet: Arc<Fleet>, names: [String; 3], pods: Pods) -> String {
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let mut was_whole = false;
    loop {
        for (name, own) in names.iter().zip(pods.iter()) {
            for (what, copy) in fleet.copies(name).await {
                let is_web = what == "Deployment web";
                if copy.metadata.deletion_timestamp.is_some() {
                    if is_web {
                        own.store(0, Ordering::SeqCst);
                    }
                    fleet.report_deleted(&copy).await;
                    continue;
                }
                let (mut available, mut asked) = (1, 1);
                if is_web {
                    asked = copy.spec.share.as_ref().and_then(|share| share.replicas).unwrap_or(REPLICAS);
                    available = (own.load(Ordering::SeqCst) + 1).min(asked);
                    own.store(available, Ordering::SeqCst);
                }
                let served = copy.status.as_ref().and_then(|status| status.served).unwrap_or_default();
                let amounts = json!({"status": {"epoch": copy.spec.epoch, "available": available,
                    "served": served.max(available).min(asked)}});
                let api = fleet.schedules(name);
                api.patch_status(&copy.name_any(), &PatchParams::default(), &Patch::Merge(&amounts)).await.unwrap();
                let resource = json!({"replicas": asked, "availableReplicas": available, "observedGeneration": 1});
                fleet.report(&copy, resource, available == asked).await;
            }
            let sum = sum_pods(&pods);
            was_whole |= sum >= REPLICAS;
            if was_whole && sum < REPLICAS {
                return format!("{sum} of {REPLICAS} pods are available after a look at {name}");
            }
            let asked = clusters.get(name).await.unwrap().annotations().get(ANNOTATION_ASK).cloned();
            if let Some(asked) = asked {
                let answer = json!({ "status": { "answered": asked } });
                clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(&answer)).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_drained_share_goes_to_a_third_cluster() {
    let fleet = Arc::new(Fleet::new().await);
    let members = [fleet.join(2).await, fleet.join(2).await, fleet.join(2).await];
    let names = members.each_ref().map(|member| member.name.clone());
    let [from, stays, third] = &names;
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let taint = async |taints: Value| {
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        clusters.patch(third, &PatchParams::default(), &patch).await.unwrap();
    };
    taint(json!([{"key": "later", "effect": "NoSchedule"}])).await;
    let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
    let selector = json!({"matchExpressions": [in_these]});
    let policy =
        fleet.policy(json!({"clusterSelector": selector, "spreadConstraints": {"spreadMode": "Divide"}})).await;
    fleet.deployment("web", 6, json!({})).await;
    let pods: Pods = Arc::default();
    let mut agents = JoinSet::new();
    agents.spawn(play_agents(fleet.clone(), names.clone(), pods.clone()));
    let record = async || -> MoveRecord {
        let group = fleet.groups(&policy).await.into_iter().next();
        group.and_then(|group| group.status).unwrap_or_default().record
    };
    let is_halved = |record: &MoveRecord| record.target.len() == 2 && record.target.values().all(|amount| *amount == 3);
    wait("it serves", async || sum_pods(&pods) == REPLICAS && is_halved(&record().await)).await;
    assert!(!record().await.target.contains_key(third));
    taint(json!([])).await;
    let drain = json!({"status": {"drainRequested": true}});
    clusters.patch_status(from, &PatchParams::default(), &Patch::Merge(&drain)).await.unwrap();
    // The first minute of a term begins nothing.
    wait("it moves", async || {
        record()
            .await
            .running
            .is_some_and(|running| running.cause == MoveCause::Drain && running.to.contains_key(third))
    })
    .await;
    wait("it has moved", async || {
        let record = record().await;
        record.running.is_none() && is_halved(&record) && record.target.contains_key(third)
    })
    .await;
    assert!(record().await.target.contains_key(stays));
    wait("the old copy is gone", async || !fleet.copies(from).await.contains_key("Deployment web")).await;
    assert!(agents.try_join_next().is_none(), "less was available meanwhile");
    agents.shutdown().await;
    fleet.end(&[policy]).await;
}
