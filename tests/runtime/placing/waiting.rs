//! What has no room costs nothing: it is decided in turn, written when a reason changes, and delays nobody.

// What it is for is to be read, too.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use tokio::task::JoinSet;

use super::measured::{Seen, quantiles, record};
use super::*;

/// The sum of a counter over all its labels.
fn sum_counter(metrics: &str, name: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Groups of a policy without room, with the versions of what is written of them.
async fn list_hopeless(fleet: &Fleet, policy: &str) -> BTreeMap<String, Option<String>> {
    let groups = fleet.groups(policy).await.into_iter().filter(|group| {
        let status = group.status.clone().unwrap_or_default();
        find_condition(&status.conditions, "Scheduled").is_some_and(|one| one.reason == "NoFit")
    });
    groups.map(|group| (group.name_any(), group.resource_version())).collect()
}

mod exhaustive {
    use kube::runtime::watcher;

    use super::*;

    /// Groups without room, clusters, and the time between two reports of each.
    const HOPELESS: usize = 1000;
    const CLUSTERS: usize = 10;
    const REPORTED: Duration = Duration::from_secs(6);
    /// Objects that are placed beside them, and the time between two.
    const OTHERS: usize = 60;
    const PAUSE: Duration = Duration::from_secs(2);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thousand_groups_without_room_cost_nothing() {
        let mut fleet = Fleet::new().await;
        let mut members = Vec::new();
        for _ in 0..CLUSTERS {
            members.push(fleet.join(2).await);
        }
        let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
        let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
        let policy = fleet.policy(json!({"clusterSelector": {"matchExpressions": [in_these]}})).await;
        for number in 0..HOPELESS {
            // More pods than all nodes of a cluster have room for.
            fleet.deployment(&format!("hopeless-{number}"), 2_000, json!({})).await;
        }
        wait("all have no room", async || list_hopeless(&fleet, &policy).await.len() == HOPELESS).await;

        let mut tasks = JoinSet::new();
        for (at, name) in names.iter().cloned().enumerate() {
            let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
            tasks.spawn(async move {
                for number in at.. {
                    tokio::time::sleep(REPORTED).await;
                    // More or less room, as pods come and go.
                    let cpu = 10 + number % 5;
                    let change = json!({"status": {"availableResources": {"node-0": {"cpu": cpu.to_string()}}}});
                    clusters.patch_status(&name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
                }
            });
        }
        tokio::time::sleep(REPORTED).await;
        let before = list_hopeless(&fleet, &policy).await;
        let first = fleet.control_plane.scheduler.ask("/metrics").await.1;
        let mut seen = Vec::new();
        for name in &names {
            let schedules: Api<Schedule> = Api::namespaced(fleet.client(), &cluster_namespace(name));
            seen.push(record(&mut tasks, schedules, watcher::Config::default(), |schedule| {
                Some(schedule.spec.source_ref.name.clone()).filter(|name| name.starts_with("other-"))
            }));
        }
        let (began, mut created) = (Instant::now(), BTreeMap::new());
        for number in 0..OTHERS {
            let name = format!("other-{number}");
            created.insert(name.clone(), Instant::now());
            fleet.deployment(&name, 1, json!({})).await;
            tokio::time::sleep(PAUSE).await;
        }
        let last = fleet.control_plane.scheduler.ask("/metrics").await.1;
        let after = list_hopeless(&fleet, &policy).await;
        let changed = before.iter().filter(|(name, version)| after.get(*name) != Some(version)).count();
        let count = |name: &str| sum_counter(&last, name) - sum_counter(&first, name);
        let (seconds, decisions) = (began.elapsed().as_secs_f64(), count("fleet_placement_decisions_total"));
        let all: Seen = Seen::default();
        wait("all others are placed", async || {
            let found = seen.iter().flat_map(|one| one.lock().unwrap().clone());
            all.lock().unwrap().extend(found);
            all.lock().unwrap().len() == OTHERS
        })
        .await;
        println!(
            "{HOPELESS} groups without room, {} reports a minute: {:.1} decisions a second, {changed} groups written, \
             {:.1} writes a second beside {OTHERS} placements in {seconds:.0} s",
            CLUSTERS * 60 / 6,
            decisions / seconds,
            count("fleet_placement_writes_total") / seconds,
        );
        println!("create to Schedule, in ms: {}", quantiles(&created, &all));
        tasks.shutdown().await;
        assert!(decisions / seconds <= 5.0 + 2.0 * f64::from(u32::try_from(OTHERS).unwrap()) / seconds);
        assert_eq!(changed, 0, "nothing but amounts has changed");
        fleet.end(&[policy]).await;
    }
}
