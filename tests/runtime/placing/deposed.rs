//! Moves whose scheduler is killed in each phase, again and again, while a relay holds back what it wrote last, and with a clock
//! that is a quarter of an hour ahead of the next one's: the next one ends them all the same, and nothing runs in three
//! clusters or in none.
//!
//! `FLEET_KILLS=N` kills so often in each of two fleets, in moves of twelve groups each; `FLEET_KILLS_SEED` chooses others.

// The table is the result.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bed::proxy::{Action, Match, Proxy, When};
use fleetctl::api::labels::ANNOTATION_ASK;
use fleetctl::placement::moves::MovePhase;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinSet;

use super::*;
use crate::support::Program;

/// Groups that move at once: two more than may.
const GROUPS: usize = 12;
/// How long the relay holds back a write: until the next scheduler leads.
const HELD_BACK: Duration = Duration::from_secs(40);

/// How far the clocks of half of the schedulers that are killed are ahead, in seconds.
const AHEAD: u32 = 900;

/// Longest time until all moves of a drain have ended.
const REST: Duration = Duration::from_secs(400);

/// What the played agents have seen that must not be.
type Faults = Arc<Mutex<Vec<String>>>;

/// Plays the agents of the members: a copy is available from the second look on, unless it is new and new ones are not to
/// be, and gone one look after its Schedule is deleted. Every question is answered.
async fn play_agents(fleet: Arc<Fleet>, names: Vec<String>, are_new_unavailable: Arc<AtomicBool>, faults: Faults) {
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let mut looks: BTreeMap<(String, String), u32> = BTreeMap::new();
    let mut served: BTreeSet<String> = BTreeSet::new();
    loop {
        for name in &names {
            for (what, copy) in fleet.copies(name).await.into_iter().filter(|(what, _)| what.starts_with("Deployment "))
            {
                let seen = looks.entry((what.clone(), copy.uid().unwrap())).or_default();
                if copy.metadata.deletion_timestamp.is_some() {
                    *seen = 0;
                    fleet.report_deleted(&copy).await;
                    continue;
                }
                if *seen > 1 || !are_new_unavailable.load(Ordering::Relaxed) {
                    *seen += 1;
                }
                let available = *seen > 1;
                if available {
                    served.insert(what.clone());
                }
                let before = copy.status.as_ref().and_then(|status| status.served).unwrap_or_default();
                let amounts = json!({"status": {"epoch": copy.spec.epoch, "available": i64::from(available),
                    "served": before.max(i64::from(available))}});
                fleet.write_status(&copy, amounts).await;
                let resource =
                    json!({"replicas": 1, "availableReplicas": i64::from(available), "observedGeneration": 1});
                fleet.report(&copy, resource, available).await;
            }
            let asked = clusters.get(name).await.unwrap().annotations().get(ANNOTATION_ASK).cloned();
            if let Some(asked) = asked {
                let answer = json!({ "status": { "answered": asked } });
                clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(&answer)).await.unwrap();
            }
        }
        let mut found: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
        for name in &names {
            for (what, copy) in fleet.copies(name).await {
                let key = (what.clone(), copy.uid().unwrap());
                let is_live = copy.metadata.deletion_timestamp.is_none();
                let is_available = is_live && looks.get(&key).is_some_and(|seen| *seen > 1);
                if is_live {
                    found.entry(what).or_default().push((name.clone(), is_available));
                }
            }
        }
        for what in &served {
            let at = found.get(what).cloned().unwrap_or_default();
            if at.len() > 2 || !at.iter().any(|(_, is_available)| *is_available) {
                faults.lock().unwrap().push(format!("{what} has the copies {at:?}"));
            }
        }
    }
}

/// How a scheduler is killed.
#[derive(Clone, Copy)]
struct Kill {
    /// The phase in which a move is.
    phase: MovePhase,
    /// A relay holds back one of its last writes.
    is_held: bool,
    is_ahead: bool,
}

impl Kill {
    fn new(number: u64) -> Self {
        let phase = match number % 3 {
            0 => MovePhase::Up,
            1 => MovePhase::Removing,
            _ => MovePhase::RollingBack,
        };
        // The way back takes no longer than its deletions, so one of them is held back.
        let is_held = phase == MovePhase::RollingBack || number % 2 == 1;
        Self { phase, is_held, is_ahead: number / 2 % 2 == 1 }
    }

    /// Starts the scheduler that is killed, behind a relay if one of its writes is held back.
    async fn start_scheduler(self, fleet: &Fleet, relay: &Proxy) -> Program {
        let kubeconfig = if self.is_held { relay.kubeconfig() } else { fleet.stage.hub.kubeconfig.clone() };
        start_scheduler(fleet, &kubeconfig, if self.is_ahead { AHEAD } else { 0 }).await
    }
}

/// The rows of a table: how many groups were in which phase when a scheduler was killed.
#[derive(Default)]
struct Tally(BTreeMap<String, usize>);

impl Tally {
    fn count(&mut self, group: &ScheduleGroup, kill: Kill) {
        let phase = running_phase(group).map_or_else(|| "at rest".to_owned(), |phase| format!("{phase:?}"));
        let held = if kill.is_held { ", a write held back" } else { "" };
        let ahead = if kill.is_ahead { ", its clock ahead" } else { "" };
        *self.0.entry(format!("{phase}{held}{ahead}")).or_default() += 1;
    }
}

async fn start_scheduler(fleet: &Fleet, kubeconfig: &Path, ahead: u32) -> Program {
    let config = format!("agentEndpoint: {}\n", fleet.stage.hub.url);
    let mut next = match ahead {
        0 => Program::scheduler(kubeconfig, &config, &fresh("next")),
        _ => Program::scheduler_ahead(kubeconfig, &config, &fresh("next"), ahead),
    };
    next.ready(Duration::from_secs(120)).await;
    next
}

/// Drains one cluster, or none, and none else.
async fn drain(fleet: &Fleet, names: &[String], drained: Option<&str>) {
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    for name in names {
        let status = json!({"status": {"drainRequested": drained == Some(name)}});
        clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

/// Waits longer than other tests: a scheduler that is new begins nothing for a minute.
async fn wait_for_moves(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < REST, "{what}: not within {REST:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn running_phase(group: &ScheduleGroup) -> Option<MovePhase> {
    Some(group.status.as_ref()?.record.running.as_ref()?.phase)
}

fn is_moving(group: &ScheduleGroup) -> bool {
    running_phase(group).is_some()
}

fn is_recorded_in(group: &ScheduleGroup, cluster: &str) -> bool {
    group.status.as_ref().is_some_and(|status| status.record.target.contains_key(cluster))
}

mod exhaustive {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn schedulers_that_are_killed_in_the_middle_of_moves_leave_one_end() {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let (kills, seed) = (number("FLEET_KILLS").unwrap_or(10), number("FLEET_KILLS_SEED").unwrap_or(7));
        tokio::join!(kill_schedulers(kills, seed), kill_schedulers(kills, seed + 1));
    }

    async fn kill_schedulers(kills: u64, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut fleet = Fleet::new().await;
        let members = [fleet.join(2).await, fleet.join(2).await, fleet.join(2).await];
        let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
        fleet.control_plane.stop().await;
        let fleet = Arc::new(fleet);
        let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
        // All in one cluster, so that all leave it.
        let ordered = json!({ "matchExpressions": [in_these] });
        let policy = fleet.policy(json!({ "clusterSelector": ordered, "orderedClusterSelector": ordered })).await;
        for number in 0..GROUPS {
            fleet.deployment(&format!("web-{number}"), 1, json!({})).await;
        }
        let (faults, mut tally) = (Faults::default(), Tally::default());
        let mut agents = JoinSet::new();
        let are_new_unavailable = Arc::<AtomicBool>::default();
        agents.spawn(play_agents(fleet.clone(), names.clone(), are_new_unavailable.clone(), faults.clone()));
        let relay = fleet.stage.hub_proxy();
        for number in 0..kills {
            let kill = Kill::new(number);
            relay.mend();
            let scheduler = kill.start_scheduler(&fleet, &relay).await;
            wait_for_moves("all are placed and at rest", async || {
                let groups = fleet.groups(&policy).await;
                groups.len() == GROUPS
                    && groups
                        .iter()
                        .all(|group| !is_moving(group) && names.iter().any(|name| is_recorded_in(group, name)))
            })
            .await;
            let groups = fleet.groups(&policy).await;
            let count = |name: &String| groups.iter().filter(|group| is_recorded_in(group, name)).count();
            let drained = names.iter().max_by_key(|name| count(name)).unwrap();
            are_new_unavailable.store(kill.phase == MovePhase::RollingBack, Ordering::Relaxed);
            drain(&fleet, &names, Some(drained)).await;
            wait_for_moves("moves have begun", async || fleet.groups(&policy).await.iter().any(is_moving)).await;
            if kill.phase == MovePhase::RollingBack {
                let deletions = Match::verb("delete").path("schedules");
                relay.on(deletions, When::Nth(random.random_range(1..6)), Action::HoldBack(HELD_BACK));
                drain(&fleet, &names, None).await;
            } else if kill.is_held {
                let writes = Match::writes().path(["schedulegroups", "schedules"][random.random_range(0..2)]);
                relay.on(writes, When::Nth(random.random_range(1..12)), Action::HoldBack(HELD_BACK));
            }
            wait_for_moves(&format!("a move is in phase {:?}", kill.phase), async || {
                fleet.groups(&policy).await.iter().any(|group| running_phase(group) == Some(kill.phase))
            })
            .await;
            // The other phases last no longer than a write for each group.
            let longest = if kill.phase == MovePhase::Up { 3_000 } else { 300 };
            tokio::time::sleep(Duration::from_millis(random.random_range(0..longest))).await;
            scheduler.kill();
            fleet.groups(&policy).await.iter().for_each(|group| tally.count(group, kill));
            are_new_unavailable.store(false, Ordering::Relaxed);
            drain(&fleet, &names, Some(drained)).await;
            let next = start_scheduler(&fleet, &fleet.stage.hub.kubeconfig, 0).await;
            wait_for_moves("all have moved, and each is in one cluster", async || {
                let groups = fleet.groups(&policy).await;
                let is_left = groups.iter().any(|group| is_moving(group) || is_recorded_in(group, drained));
                let placed = fleet.placed(&names).await;
                groups.len() == GROUPS && !is_left && placed.len() == GROUPS && placed.values().all(|at| at.len() == 1)
            })
            .await;
            println!("seed {seed}, kill {number}: {} groups left {drained}; so far {:?}", count(drained), tally.0);
            let found = faults.lock().unwrap().clone();
            assert!(found.is_empty(), "{found:#?}");
            next.kill();
        }
        println!("{:#?}", tally.0);
        assert!(agents.try_join_next().is_none(), "the agents were played to the end");
        agents.shutdown().await;
        fleet.end(&[policy]).await;
    }
}
