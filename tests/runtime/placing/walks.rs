//! Random sequences of edits and accidents over a fleet of three real API servers with real agents, while the members' own
//! API servers are watched: no volume goes, nothing becomes less available, no Job runs twice, and everything comes to rest.
//!
//! `FLEET_WALKS=N` walks so many, from `FLEET_WALK_FROM` on, `FLEET_WALK_SEED=N` one alone. The steps of a walk are decided
//! by its seed; when the fleet does what is not.

// What it found is to be read, too.
#![allow(clippy::print_stdout)]

mod accidents;
pub(crate) mod kubelet;
mod noise;
mod rest;
mod truth;
mod walk;

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use tokio::task::JoinSet;

use self::accidents::Accidents;
use self::kubelet::{Seen, play_member, watch_all, watch_job_schedules};
use self::rest::Look;
use self::truth::Truth;
use self::walk::{COLOUR, Walk};
use super::spread_ways::{REGION, REGIONS, clear_namespaces, make_node};
use super::*;
use crate::support::{Program, Server};

/// Walks side by side.
const ABREAST: u64 = 20;
/// Longest time in which all come to rest.
const REST: Duration = Duration::from_secs(400);

/// A workload cluster with its agent.
struct Member {
    name: String,
    server: Server,
    agent: Option<Program>,
}

/// A control plane with three members.
struct Site {
    fleet: Fleet,
    members: Vec<Member>,
    truth: Arc<Truth>,
    tasks: JoinSet<()>,
}

impl Site {
    async fn set() -> Self {
        let (stage, servers) = Stage::with_three_members().await;
        let fleet = Fleet::on(stage, &[]).await;
        let truth = Arc::new(Truth::new());
        let (mut members, mut tasks) = (Vec::new(), JoinSet::new());
        watch_job_schedules(&mut tasks, &fleet.client(), &truth);
        for (at, (server, region)) in servers.into_iter().zip(REGIONS).enumerate() {
            crate::membership::forget(&fleet.client(), &server.client).await;
            make_node(&server.client, region, "2000").await;
            play_member(&mut tasks, at, &server.client, &truth);
            clear_namespaces(&server.client).await;
            members.push(Member { name: fresh(region), server, agent: None });
        }
        let mut site = Self { fleet, members, truth, tasks };
        for at in 0..3 {
            site.start_agent(at);
        }
        for at in 0..3 {
            site.until_ready(at).await;
            site.paint(at, "blue").await;
        }
        site.count_moves();
        site
    }

    fn clusters(&self) -> Api<fleetctl::api::Cluster> {
        Api::all(self.fleet.client())
    }

    fn start_agent(&mut self, at: usize) {
        let init = self.fleet.control_plane.init_file.clone();
        let member = &mut self.members[at];
        // Copies without a Schedule are kept for ten minutes by default: longer than a walk waits.
        let soon = ["--orphan-grace-seconds", "60"];
        member.agent = Some(Program::agent_with(&member.server.kubeconfig, &init, &member.name, "pod-1", &soon));
    }

    async fn until_ready(&self, at: usize) {
        let (name, region) = (&self.members[at].name, REGIONS[at]);
        wait("the member is Ready and has its region", async || {
            let Ok(cluster) = self.clusters().get(name).await else { return false };
            let status = cluster.status.clone().unwrap_or_default();
            cluster.labels().get(REGION).map(String::as_str) == Some(region)
                && find_condition(&status.conditions, "Ready").is_some_and(Condition::is_true)
        })
        .await;
    }

    async fn patch_cluster(&self, at: usize, change: Value) {
        let patch = Patch::Merge(change);
        self.clusters().patch(&self.members[at].name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn paint(&self, at: usize, colour: &str) {
        self.patch_cluster(at, json!({ "metadata": { "labels": { COLOUR: colour } } })).await;
    }

    async fn taint(&self, at: usize, effect: Option<&str>) {
        let taints: Vec<_> = effect.into_iter().map(|effect| json!({ "key": "walk", "effect": effect })).collect();
        self.patch_cluster(at, json!({ "spec": { "taints": taints } })).await;
    }

    /// Counts the moves that the records of groups tell of.
    fn count_moves(&mut self) {
        let (truth, mut known) = (self.truth.clone(), std::collections::BTreeSet::new());
        self.tasks.spawn(watch_all(Api::<ScheduleGroup>::all(self.fleet.client()), move |seen| {
            let Seen::There(group) = seen else { return };
            let Some(running) = group.status.as_ref().and_then(|status| status.record.running.clone()) else { return };
            if known.insert((group.name_any(), running.since, running.phase as u8)) {
                truth.count(&format!("moves {:?} {:?}", running.cause, running.phase));
            }
        }));
    }

    /// Walks with these seeds side by side, with accidents meanwhile, until all are at rest.
    async fn walk(&mut self, seeds: std::ops::Range<u64>, run: &str) {
        let is_calm = (seeds.start / ABREAST).is_multiple_of(3);
        let names: Vec<_> = self.members.iter().map(|member| member.name.clone()).collect();
        let mut walking = JoinSet::new();
        for seed in seeds.clone() {
            let mut walk = Walk::new(seed, run, self.fleet.client(), names.clone(), self.truth.clone(), is_calm);
            walking.spawn(async move {
                walk.begin().await;
                tokio::time::sleep(Duration::from_secs(15)).await;
                for _ in 0..walk.choose(8..16) {
                    walk.step().await;
                    tokio::time::sleep(Duration::from_millis(walk.choose(500..12_000))).await;
                }
                walk
            });
        }
        let mut accidents = Accidents::new(seeds.start, is_calm);
        let mut walks = Vec::new();
        while !walking.is_empty() {
            tokio::select! {
                walk = walking.join_next() => walks.extend(walk.map(|walk| walk.expect("a walk goes on"))),
                () = tokio::time::sleep(Duration::from_secs(4)) => {
                    accidents.pass(self).await;
                    self.allow_removals().await;
                }
            }
        }
        accidents.end(self).await;
        for walk in &mut walks {
            walk.calm_down().await;
        }
        self.rest(walks).await;
    }

    /// Lets removals go that the brake holds up, as somebody does who meant them.
    async fn allow_removals(&self) {
        let maps: Api<ConfigMap> = Api::namespaced(self.fleet.client(), "kube-system");
        let found = maps.get_opt("fleet-brake").await.unwrap().and_then(|map| map.data);
        let text = found.and_then(|data| data.get("removals").cloned()).unwrap_or_default();
        for (cause, _) in fleetctl::api::mass_removal::RemovalRecord::from_text(&text).frozen_causes() {
            self.truth.count("causes that the brake held up");
            let mut command = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
            command.args(["rebalance", "--continue", cause, "--yes"]);
            let answer = command.env("KUBECONFIG", &self.fleet.stage.hub.kubeconfig).output().unwrap();
            self.truth
                .tell("the brake", &format!("{cause}: {}", String::from_utf8_lossy(&answer.stdout).replace('\n', " ")));
        }
    }

    /// Waits until all walks are at rest, and ends them.
    async fn rest(&self, mut walks: Vec<Walk>) {
        let names: Vec<_> = self.members.iter().map(|member| member.name.clone()).collect();
        let members: Vec<_> =
            self.members.iter().map(|member| (member.name.clone(), member.server.client.clone())).collect();
        let (began, mut seen_at_rest) = (Instant::now(), BTreeMap::<u64, u32>::new());
        while !walks.is_empty() {
            self.allow_removals().await;
            let look = Look::take(&self.fleet.client(), &members).await;
            let mut left = Vec::new();
            for walk in walks {
                let unrest = look.find_unrest(&walk, &self.truth, &names);
                let times = seen_at_rest.entry(walk.seed).or_default();
                *times = if unrest.is_empty() { *times + 1 } else { 0 };
                let is_late = began.elapsed() > REST;
                if *times >= 3 || is_late {
                    if is_late {
                        self.truth.add_fault(&walk.namespace, &format!("not at rest after {REST:?}: {unrest:#?}"));
                    }
                    self.finish(&walk).await;
                } else {
                    left.push(walk);
                }
            }
            walks = left;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        println!("{} all at rest after {:?}", self.truth.at(), began.elapsed());
    }

    async fn finish(&self, walk: &Walk) {
        let (effects, completed) = self.truth.with(&walk.namespace, |walked| (walked.effects, walked.completed.len()));
        self.truth.tell(
            &walk.namespace,
            &format!("ends after {} steps; its Job ran {effects} times, {completed} to the end", walk.steps),
        );
        self.truth.count("walks");
        for _ in 0..walk.steps {
            self.truth.count("steps");
        }
        walk.end().await;
        // Claims of StatefulSets stay, as everywhere.
        for member in &self.members {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(member.server.client.clone(), &walk.namespace);
            let _ = claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
        }
    }

    async fn end(mut self) {
        clear_namespaces(&self.fleet.client()).await;
        for member in &mut self.members {
            drop(member.agent.take());
            clear_namespaces(&member.server.client).await;
            let _ = Api::<fleetctl::api::Cluster>::all(self.fleet.client())
                .delete(&member.name, &DeleteParams::default())
                .await;
        }
        self.tasks.shutdown().await;
    }
}

fn read_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

mod exhaustive {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_hundred_walks_lose_nothing() {
        let mut site = Site::set().await;
        let run = fresh("w");
        let seeds = match read_number("FLEET_WALK_SEED") {
            Some(seed) => seed..seed + 1,
            None => {
                let first = read_number("FLEET_WALK_FROM").unwrap_or(0);
                first..first + read_number("FLEET_WALKS").unwrap_or(200)
            }
        };
        let mut next = seeds.start;
        while next < seeds.end {
            let until = (next + ABREAST).min(seeds.end);
            site.walk(next..until, &run).await;
            println!("{} seeds {next}..{until}: {:#?}", site.truth.at(), site.truth.counts());
            next = until;
        }
        let (faults, counts) = (site.truth.faults(), site.truth.counts());
        site.end().await;
        println!("{counts:#?}");
        assert!(faults.is_empty(), "{} faults: {faults:#?}", faults.len());
    }
}
