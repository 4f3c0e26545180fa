//! A whole move over two members whose agents are played: at no moment is less available than before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fleetctl::api::labels::ANNOTATION_ASK;
use fleetctl::placement::moves::MovePhase;
use tokio::task::JoinSet;

use super::*;

/// Replicas that the Deployment asks for.
const REPLICAS: i64 = 3;

/// The pods that are available in each member, by the agents that are played here.
type Pods = Arc<[AtomicI64; 2]>;

/// Plays the agents of both members: pods come one in each look, and go at once with their Schedule. Every Schedule is
/// reported, and every question is answered. Returns what is wrong, when too little was available.
async fn play_agents(fleet: Arc<Fleet>, names: [String; 2], pods: Pods) -> String {
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let mut was_whole = false;
    loop {
        for (name, own) in names.iter().zip(pods.iter()) {
            for (what, copy) in fleet.copies(name).await {
                if copy.metadata.deletion_timestamp.is_some() {
                    if what == "Deployment web" {
                        own.store(0, Ordering::SeqCst);
                    }
                    fleet.report_deleted(&copy).await;
                    continue;
                }
                let mut available = true;
                if what == "Deployment web" {
                    let count = (own.load(Ordering::SeqCst) + 1).min(REPLICAS);
                    own.store(count, Ordering::SeqCst);
                    available = count == REPLICAS;
                }
                let resource = json!({"replicas": REPLICAS, "availableReplicas": own.load(Ordering::SeqCst),
                    "observedGeneration": 1});
                // First the epoch: an agent whose reports have none is one of an earlier version.
                let served = copy.status.as_ref().and_then(|status| status.served).unwrap_or_default();
                let amounts = json!({"status": {"epoch": copy.spec.epoch, "available": i64::from(available),
                    "served": served.max(i64::from(available))}});
                let api = fleet.schedules(name);
                api.patch_status(&copy.name_any(), &PatchParams::default(), &Patch::Merge(&amounts)).await.unwrap();
                fleet.report(&copy, resource, available).await;
            }
            let sum: i64 = pods.iter().map(|pods| pods.load(Ordering::SeqCst)).sum();
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
async fn a_drain_keeps_all_replicas_available() {
    let fleet = Arc::new(Fleet::new().await);
    let members = [fleet.join(2).await, fleet.join(2).await];
    let names = members.each_ref().map(|member| member.name.clone());
    let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
    let policy = fleet.policy(json!({"clusterSelector": {"matchExpressions": [in_these]}})).await;
    fleet.deployment("web", 3, json!({})).await;
    let pods: Pods = Arc::default();
    let mut agents = JoinSet::new();
    agents.spawn(play_agents(fleet.clone(), names.clone(), pods.clone()));
    let record = async || {
        let groups: BTreeMap<String, ScheduleGroup> =
            fleet.groups(&policy).await.into_iter().map(|group| (group.name_any(), group)).collect();
        groups.into_values().next().and_then(|group| group.status).unwrap_or_default().record
    };
    let serves = || pods.iter().map(|pods| pods.load(Ordering::SeqCst)).sum::<i64>() == REPLICAS;
    wait("it serves", async || serves() && !record().await.target.is_empty()).await;
    let from = record().await.target.into_keys().next().unwrap();
    let to = names.iter().find(|name| **name != from).unwrap().clone();
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let drain = json!({"status": {"drainRequested": true}});
    clusters.patch_status(&from, &PatchParams::default(), &Patch::Merge(&drain)).await.unwrap();
    // The first minute of a term begins nothing.
    wait("it moves", async || {
        record().await.running.is_some_and(|running| running.phase == MovePhase::Up && running.to.contains_key(&to))
    })
    .await;
    wait("it has moved", async || {
        let record = record().await;
        record.running.is_none() && record.target.contains_key(&to)
    })
    .await;
    wait("the old copy is gone", async || !fleet.copies(&from).await.contains_key("Deployment web")).await;
    let moved = async || fleet.deployments().get("web").await.unwrap().labels().get(LABEL_TARGET_CLUSTER).cloned();
    wait("its label follows", async || moved().await.as_ref() == Some(&to)).await;
    assert!(agents.try_join_next().is_none(), "less was available meanwhile");
    agents.shutdown().await;
    fleet.end(&[policy]).await;
}
