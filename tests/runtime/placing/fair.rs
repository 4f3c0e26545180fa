//! What one tenant does delays no other.

// What it is for is to be read, too.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use fleetctl::k8s::connect::daemon_client;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::measured::{bound, quantiles, record, until};
use super::*;

mod exhaustive {
    use kube::runtime::watcher;

    use super::*;

    /// Objects of the tenant who floods, and the time between two of their patches.
    const FLOOD: usize = 1000;
    const EVERY: Duration = Duration::from_millis(50);
    /// Objects of the other one, and the time between two of them.
    const OTHERS: usize = 100;
    const PAUSE: Duration = Duration::from_millis(300);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thousand_objects_patched_twenty_times_a_second_delay_nobody_else() {
        let mut fleet = Fleet::new().await;
        let member = fleet.join(4).await;
        let client = daemon_client::build_daemon_client(&fleet.stage.hub.kubeconfig).await.unwrap();
        let flood = fresh("flood");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let body = json!({"metadata": {"name": flood}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        let annotations = json!({"fleet-scheduler.io/cluster": member.name});
        let flooded: Api<ConfigMap> = Api::namespaced(client.clone(), &flood);
        for number in 0..FLOOD {
            let meta = json!({"name": format!("flood-{number}"), "annotations": annotations});
            let body = serde_json::from_value(json!({"metadata": meta, "data": {"n": "0"}})).unwrap();
            flooded.create(&PostParams::default(), &body).await.unwrap();
        }
        let only = json!({"matchLabels": {"kubernetes.io/metadata.name": member.name}});
        let policy = fleet.policy(json!({"clusterSelector": only})).await;

        let mut tasks = JoinSet::new();
        let patched = flooded.clone();
        tasks.spawn(async move {
            let mut patches = JoinSet::new();
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            for number in 0_usize.. {
                ticks.tick().await;
                let (api, change) = (patched.clone(), json!({"data": {"n": number.to_string()}}));
                patches.spawn(async move {
                    let name = format!("flood-{}", number % FLOOD);
                    let _ = api.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await;
                });
                while patches.try_join_next().is_some() {}
            }
        });
        let schedules: Api<Schedule> = Api::namespaced(client.clone(), &cluster_namespace(&member.name));
        let seen = record(&mut tasks, schedules, watcher::Config::default(), |schedule| {
            Some(schedule.spec.source_ref.name.clone()).filter(|name| name.starts_with("other-"))
        });
        let mut created = BTreeMap::new();
        for number in 0..OTHERS {
            let name = format!("other-{number}");
            let began = Instant::now();
            fleet.deployment(&name, 0, json!({})).await;
            created.insert(name, began);
            tokio::time::sleep(PAUSE).await;
        }
        until(&seen, OTHERS).await;
        let result = quantiles(&created, &seen);
        let load = fs_err::read_to_string("/proc/loadavg").unwrap_or_default();
        let (_, metrics) = fleet.control_plane.scheduler.ask("/metrics").await;
        let queued = bound(&metrics, "fleet_placement_queue_seconds", 0.99);
        println!("placement beside a flood, in ms: {result}, of it in the queue {queued}; load {load}");
        tasks.shutdown().await;
        namespaces.delete(&flood, &DeleteParams::default()).await.unwrap();
        fleet.end(&[policy]).await;
        assert!(result["p99"].as_f64().unwrap() <= 1000.0, "{result}");
    }
}
