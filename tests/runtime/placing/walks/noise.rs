//! Reports that differ, agents that restart and edits of others for as long as is asked: no target changes.

use std::collections::HashSet;

use fleetctl::agent::inventory::nodes::PodFacts;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::applicant::Applicant;
use crate::simulated::{Simulated, nodes_and_pods};

/// How long the noise lasts; `FLEET_NOISE_SECONDS=3600` is the hour that is promised.
const NOISE: Duration = Duration::from_secs(600);

/// Groups that must not move.
const WEBS: usize = 12;

/// A member whose agent can be started again.
struct Noisy {
    applicant: Applicant,
    certificate: String,
    agent: Simulated,
}

/// Nodes with pods of others that take the most of them, by up to a fifth more or less; of some nodes everything.
fn make_noise(random: &mut StdRng, member: &Simulated) {
    let (nodes, mut pods) = nodes_and_pods(4);
    let full = (random.random_range(0..4) == 0).then(|| random.random_range(0..4));
    for (at, pod) in pods.values_mut().enumerate() {
        let cpu = if full == Some(at) { 15_800 } else { random.random_range(6_400..9_600) };
        *pod = PodFacts {
            requests: BTreeMap::from([("cpu".to_owned(), cpu), ("memory".to_owned(), 8 << 40)]),
            ..pod.clone()
        };
    }
    member.observed.set_nodes_and_pods(nodes, pods);
}

mod exhaustive {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn noise_moves_nothing() {
        let seed = read_number("FLEET_WALK_SEED").unwrap_or_else(rand::random);
        let noise = read_number("FLEET_NOISE_SECONDS").map_or(NOISE, Duration::from_secs);
        println!("seed {seed}, {noise:?}");
        let mut random = StdRng::seed_from_u64(seed);
        let fleet = Fleet::new().await;
        let mut members = Vec::new();
        for _ in 0..3 {
            let applicant = Applicant::new(&fresh("noisy"));
            let certificate = applicant.ask(&fleet.control_plane.init).await.unwrap();
            let agent = Simulated::live(&fleet.control_plane.init, &applicant, &certificate, 4, &fleet.metrics);
            members.push(Noisy { applicant, certificate, agent });
        }
        let names: Vec<_> = members.iter().map(|member| member.applicant.name.clone()).collect();
        let onto = json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": names });
        let mut policies = Vec::new();
        for (tier, more) in [
            ("a", json!({})),
            ("b", json!({ "spreadConstraints": { "spreadMode": "Divide" } })),
            ("c", json!({ "groupBy": { "namespace": true }, "failover": { "enabled": true, "afterSeconds": 120 } })),
        ] {
            let mut spec = more;
            spec["resourceSelectors"] = json!({ "labelSelectors": [{ "matchLabels": { "tier": tier } }] });
            spec["clusterSelector"] = json!({ "matchExpressions": [onto] });
            policies.push(fleet.policy(spec).await);
        }
        for number in 0..WEBS {
            let name = format!("web-{number}");
            fleet.deployment(&name, 3, json!({})).await;
            let tier = ["a", "b", "c"][number % 3];
            let tier = json!({ "metadata": { "labels": { "tier": tier } } });
            fleet.deployments().patch(&name, &PatchParams::default(), &Patch::Merge(&tier)).await.unwrap();
        }
        let targets = async || {
            let mut found = BTreeMap::new();
            for policy in &policies {
                for group in fleet.groups(policy).await {
                    let record = group.status.clone().unwrap_or_default().record;
                    found.insert(group.name_any(), (record.target, record.running.is_some()));
                }
            }
            found
        };
        let is_placed = |found: &BTreeMap<String, _>| {
            let groups = WEBS / 3 * 2 + 1;
            found.len() == groups
                && found.values().all(|(target, moves): &(BTreeMap<String, i64>, bool)| !target.is_empty() && !moves)
        };
        wait("everything is placed", async || {
            for name in &names {
                fleet.play(name).await;
            }
            is_placed(&targets().await)
        })
        .await;
        // The first minute of a term begins nothing.
        tokio::time::sleep(Duration::from_secs(75)).await;
        let first = targets().await;
        let mut changed = HashSet::new();
        let (began, mut reports, mut restarts, mut edits) = (Instant::now(), 0, 0, 0);
        while began.elapsed() < noise {
            for member in &mut members {
                make_noise(&mut random, &member.agent);
                reports += 1;
            }
            for name in &names {
                fleet.play(name).await;
            }
            if random.random_range(0..6) == 0 {
                let at = random.random_range(0..3);
                let noisy = &mut members[at];
                noisy.agent.silence().await;
                noisy.agent =
                    Simulated::live(&fleet.control_plane.init, &noisy.applicant, &noisy.certificate, 4, &fleet.metrics);
                restarts += 1;
            }
            if random.random_range(0..4) == 0 {
                edit_another(&fleet, edits).await;
                edits += 1;
            }
            for (name, now) in targets().await {
                if first.get(&name) != Some(&now) && changed.insert(format!("{name}: {:?} → {now:?}", first.get(&name)))
                {
                    println!("{:?} {name}: {:?} → {now:?}", began.elapsed(), first.get(&name));
                }
            }
            tokio::time::sleep(Duration::from_millis(random.random_range(1_000..5_000))).await;
        }
        println!(
            "{WEBS} Deployments, {reports} reports, {restarts} restarts of agents, {edits} edits of others: {} changes",
            changed.len()
        );
        let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
        drop(members);
        for name in &names {
            let _ = clusters.delete(name, &DeleteParams::default()).await;
        }
        fleet.end(&policies).await;
        assert!(changed.is_empty(), "seed {seed}: {changed:#?}");
    }
}

/// Edits a policy that has nothing to do with what is placed; it comes with a higher priority, or goes.
async fn edit_another(fleet: &Fleet, number: u32) {
    let policies: Api<SchedulePolicy> = Api::all(fleet.client());
    let name = format!("another-{}", fleet.namespace);
    let body = json!({ "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy", "metadata": { "name": name },
        "spec": { "namespaceSelector": { "matchLabels": { "team": "nobody" } }, "priority": number,
            "resourceSelectors": { "labelSelectors": [{}] } } });
    if number % 5 == 4 {
        let _ = policies.delete(&name, &DeleteParams::default()).await;
        return;
    }
    let force = PatchParams::apply("another").force();
    policies.patch(&name, &force, &Patch::Apply(&body)).await.unwrap();
}
