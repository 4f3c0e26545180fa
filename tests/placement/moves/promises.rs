//! The promises of the move machine over random sequences of steps, events and faults.

use fleetctl::placement::moves::{MovePhase, MoveRecord, MoveWrite, Seen};

use super::checks::{
    Outcome, begins_move, broken_at_rest, broken_share, broken_while_away, is_believable, land, name_of, print_action,
};
use super::world::{Action, Backup, Cluster, Copy, LateWrite, Scenario, Stale, User, World};

/// Events and faults of one walk.
const EVENTS: u32 = 8;
const FAULTS: u32 = 2;
/// Most steps of one walk.
const LONGEST: usize = 250;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Step,
    Event,
    Fault,
    Time,
    Wait,
    Return,
}

impl Kind {
    /// How often a step of this kind is taken, beside others.
    fn weight(self) -> u64 {
        match self {
            Self::Step => 60,
            Self::Event | Self::Return => 10,
            Self::Fault => 3,
            Self::Time => 5,
            Self::Wait => 20,
        }
    }
}

struct Possible {
    kind: Kind,
    text: String,
    after: World,
    broken: Option<&'static str>,
}

/// Numbers that are the same for the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % below
    }
}

/// Collects all that can happen next.
struct Steps<'a> {
    world: &'a World,
    scenario: &'a Scenario,
    found: Vec<Possible>,
}

impl Steps<'_> {
    fn add(&mut self, kind: Kind, text: impl Into<String>, (after, broken): Outcome) {
        self.found.push(Possible { kind, text: text.into(), after, broken });
    }

    fn change(&mut self, kind: Kind, text: impl Into<String>, change: impl FnOnce(&mut World)) {
        let mut after = self.world.clone();
        change(&mut after);
        self.add(kind, text, (after, None));
    }

    fn add_leader(&mut self) {
        let (world, scenario) = (self.world, self.scenario);
        let view = world.view();
        for action in scenario.actions(world, &view, world.now) {
            let is_unsure = world.late.is_some() || world.stale.is_some();
            assert!(!(begins_move(world, &action) && is_unsure), "a move begins that was not admitted");
            let deletes = matches!(&action, Action::Schedule(MoveWrite::Delete { .. }));
            // Consent is read from the control plane, not from a cache.
            let misread = scenario.volumes && world.record.running.is_none() && view.user.consent != world.user.consent;
            if deletes && misread {
                continue;
            }
            let believed = is_believable(world, &view, &action, scenario);
            let stale = (!believed).then_some("I1c a removal is decided on an old report");
            let text = print_action(&action);
            if let Some((mut after, broken)) = land(world, &action, scenario, None)
                && after != *world
            {
                // A write without an answer is read back.
                if let (Some(Stale::Schedules(seen)), Action::Schedule(write)) = (&mut after.stale, &action) {
                    let at = super::world::index_of(write.cluster());
                    seen[at] = after.schedules[at];
                }
                self.add(Kind::Step, format!("leader: {text}"), (after, broken.or(stale)));
            }
            let is_release = matches!(&action, Action::Schedule(MoveWrite::Release { .. }));
            if world.faults_left > 0 && world.late.is_none() && !is_release {
                let mut after = world.clone();
                after.late = Some(LateWrite { action, hash: view.user.hash, consent: view.user.consent });
                after.faults_left -= 1;
                after.begin_term();
                let text = format!("leader: {text}: on its way, and the leader is deposed");
                self.add(Kind::Fault, text, (after, stale));
            }
        }
    }

    fn add_agents(&mut self) {
        for at in 0..self.scenario.clusters {
            self.add_copy(at);
            self.add_agent(at);
        }
    }

    /// What happens in a cluster, whether or not it is cut off.
    fn add_copy(&mut self, at: usize) {
        let (scenario, ran) = (self.scenario, self.world.ran);
        let Some(copy) = self.world.copies[at] else { return };
        let comes_up = Some(at) != scenario.bad_cluster && Some(copy.hash) != scenario.bad_hash;
        let is_started = scenario.job && copy.available > 0;
        if !copy.finished && copy.available < copy.amount && comes_up && !is_started {
            let available = copy.available + 1;
            let up = Copy { available, most: copy.most.max(available), ..copy };
            self.change(Kind::Step, format!("{}: becomes available", name_of(at)), |after| after.copies[at] = Some(up));
        }
        if is_started && !copy.finished {
            let mut after = self.world.clone();
            after.copies[at] = Some(Copy { finished: true, ..copy });
            after.ran += 1;
            let broken = (ran > 0).then_some("I3 a Job is run to its end twice");
            self.add(Kind::Step, format!("{}: Job finishes", name_of(at)), (after, broken));
        }
    }

    fn add_agent(&mut self, at: usize) {
        let (world, scenario) = (self.world, self.scenario);
        let (Cluster { up, ready, .. }, copy) = (world.clusters[at], world.copies[at]);
        let Some(schedule) = world.schedules[at].filter(|_| up && ready) else { return };
        let is_applied = copy.is_some_and(|copy| (copy.hash, copy.amount) == (schedule.hash, schedule.amount));
        if schedule.deleting {
            if !schedule.said.removed {
                self.change(Kind::Step, format!("agent {}: removes its copy", name_of(at)), |after| {
                    let told = scenario.job.then(|| {
                        let mut told = schedule;
                        told.said.removed = true;
                        told.said.finished |= copy.is_some_and(|copy| copy.finished);
                        told
                    });
                    after.set_schedule(at, told);
                    after.copies[at] = None;
                });
            }
            return;
        }
        if !is_applied {
            let (hash, amount) = (schedule.hash, schedule.amount);
            let applied = match copy {
                None => Copy { hash, amount, available: 0, most: 0, finished: false },
                Some(old) => {
                    let runs_on = scenario.divided || old.hash == hash;
                    let available = if runs_on { old.available.min(amount) } else { 0 };
                    Copy { hash, amount, available, most: old.most.min(amount), ..old }
                }
            };
            self.change(Kind::Step, format!("agent {}: applies", name_of(at)), |after| {
                after.copies[at] = Some(applied);
            });
        }
        let mut told = schedule;
        told.said_hash = copy.map(|copy| copy.hash);
        told.said.available = copy.map_or(0, |copy| copy.available);
        told.said.served = copy.map_or(0, |copy| copy.most);
        told.said.finished = copy.is_some_and(|copy| copy.finished);
        told.answered |= is_applied && schedule.asked;
        if told != schedule {
            self.change(Kind::Step, format!("agent {}: reports", name_of(at)), |after| {
                after.set_schedule(at, Some(told));
                after.clusters[at].fresh = true;
            });
        }
    }

    fn add_time(&mut self) {
        let (world, scenario) = (self.world, self.scenario);
        if let Some(late) = &world.late {
            let mut without = world.clone();
            without.late = None;
            if let Some(outcome) = land(&without, &late.action, scenario, Some(late)) {
                self.add(Kind::Step, format!("a late write lands: {}", print_action(&late.action)), outcome);
            }
            self.add(Kind::Step, "a late write is lost", (without, None));
        }
        if let Some(stale) = &world.stale {
            let of_clusters = matches!(stale, Stale::Clusters(_));
            self.change(Kind::Step, "the view catches up", |after| {
                after.stale = None;
                after.forget_asks(|at| of_clusters && !world.clusters[at].fresh);
            });
        }
        let record = &world.record;
        match &record.running {
            Some(moving) if moving.phase == MovePhase::Up && world.now < moving.deadline => {
                self.change(Kind::Time, "the deadline passes", |after| after.now = moving.deadline);
            }
            Some(_) => {}
            None => {
                let ends = record.excluded.iter().map(|entry| entry.until);
                let over = ends.chain(record.retry.map(|retry| retry.not_before)).max().unwrap_or(0);
                if world.now < over && world.failures < 2 {
                    self.change(Kind::Wait, "back-off and exclusion are over", |after| after.now = over);
                }
            }
        }
        for at in 0..scenario.clusters {
            let cluster = world.clusters[at];
            if cluster.up && !cluster.ready {
                self.change(Kind::Return, format!("{} is back", name_of(at)), |after| after.clusters[at].ready = true);
            }
            if !cluster.up && cluster.uid == 0 && scenario.has_event("del") {
                let joined = Cluster { up: true, ready: true, drained: false, uid: 1, fresh: false };
                self.change(Kind::Wait, format!("{} joins again", name_of(at)), |after| after.clusters[at] = joined);
            }
        }
        if world.faults_left > 0 && world.stale.is_none() {
            for (what, stale) in [
                ("clusters", Stale::Clusters(world.clusters.clone())),
                ("Schedules", Stale::Schedules(world.schedules.clone())),
                ("sources and policies", Stale::Users(world.user)),
            ] {
                self.change(Kind::Fault, format!("the view of {what} stands still"), |after| {
                    after.stale = Some(stale);
                    after.faults_left -= 1;
                });
            }
        }
    }

    fn event(&mut self, text: impl Into<String>, change: impl FnOnce(&mut World)) {
        self.change(Kind::Event, text, |after| {
            after.events_left -= 1;
            change(after);
        });
    }

    fn add_events(&mut self) {
        if self.world.events_left == 0 {
            return;
        }
        self.add_cluster_events();
        if self.world.user.source {
            self.add_user_events();
        }
        let (world, scenario) = (self.world, self.scenario);
        if scenario.has_event("forget") && world.record.running.is_some() {
            self.event("the group is deleted by hand", |after| {
                after.record = MoveRecord { epoch: world.record.epoch + 1, ..MoveRecord::default() };
                after.failures = 0;
                if matches!(after.late, Some(LateWrite { action: Action::Record(_), .. })) {
                    after.late = None;
                }
            });
        }
        match &world.backup {
            Backup::None if scenario.has_event("backup") => self.event("backup", |after| {
                after.backup = Backup::Taken(Box::new(world.record.clone()), world.schedules.clone());
            }),
            Backup::Taken(record, schedules) => self.event("restored from the backup", |after| {
                after.record = (**record).clone();
                after.failures = record.failed_attempts();
                let is_same = |at: usize| world.clusters[at].up && world.clusters[at].uid == 0;
                after.schedules =
                    schedules.iter().enumerate().map(|(at, schedule)| schedule.filter(|_| is_same(at))).collect();
                (after.backup, after.late) = (Backup::Used, None);
                after.begin_term();
            }),
            _ => {}
        }
    }

    fn add_cluster_events(&mut self) {
        let scenario = self.scenario;
        for at in 0..scenario.clusters {
            let cluster = self.world.clusters[at];
            if scenario.has_event("cut") && cluster.up && cluster.ready {
                self.event(format!("{} is cut off", name_of(at)), |after| {
                    (after.clusters[at].ready, after.clusters[at].fresh) = (false, false);
                    after.forget_asks(|other| other == at);
                });
            }
            if scenario.has_event("del") && cluster.up && cluster.uid == 0 {
                self.event(format!("{} is deleted", name_of(at)), |after| {
                    after.clusters[at] = Cluster { up: false, ready: false, fresh: false, ..cluster };
                    after.set_schedule(at, None);
                    after.copies[at] = None;
                    after.lost = true;
                });
            }
            if scenario.has_event("drain") && cluster.up && (at < 2 || scenario.divided) {
                self.event(format!("{}: drained {}", name_of(at), !cluster.drained), |after| {
                    after.clusters[at].drained = !cluster.drained;
                });
            }
        }
    }

    fn add_user_events(&mut self) {
        let (scenario, user) = (self.scenario, self.world.user);
        let set = |user: User| move |after: &mut World| after.user = user;
        if scenario.has_event("edit") && user.hash < 1 {
            self.event("the source is edited", set(User { hash: user.hash + 1, ..user }));
        }
        if scenario.has_event("scale") {
            for replicas in (scenario.replicas - 1..=scenario.replicas + 1).filter(|n| *n > 0 && *n != user.replicas) {
                self.event(format!("scaled to {replicas}"), |after| {
                    after.user.replicas = replicas;
                    after.floor = after.floor.min(replicas);
                });
            }
        }
        if scenario.has_event("policy") {
            for policy in (0..3).filter(|policy| user.policy != Some(*policy)) {
                self.event(format!("policy {policy}"), set(User { policy: Some(policy), ..user }));
            }
        }
        if scenario.has_event("gone") && user.policy.is_some() {
            self.event("the policy is deleted", set(User { policy: None, ..user }));
        }
        if scenario.has_event("suspend") {
            let suspended = !user.suspended;
            self.event(format!("suspended {suspended}"), set(User { suspended, ..user }));
        }
        if scenario.has_event("consent") {
            let consent = !user.consent;
            self.event(format!("consent {consent}"), set(User { consent, ..user }));
        }
        if scenario.has_event("source") {
            self.event("the source is deleted", set(User { source: false, ..user }));
        }
    }
}

impl Scenario {
    fn new(name: &'static str, events: &'static str) -> Self {
        Self {
            name,
            events,
            clusters: 3,
            replicas: 1,
            divided: false,
            failover: false,
            volumes: false,
            job: false,
            bad_cluster: None,
            bad_hash: None,
            forge: None,
        }
    }

    fn divided(name: &'static str, events: &'static str, replicas: i64) -> Self {
        Self { replicas, divided: true, ..Self::new(name, events) }
    }

    fn slow(self, cluster: usize) -> Self {
        Self { bad_cluster: Some(cluster), ..self }
    }

    fn has_event(&self, event: &str) -> bool {
        self.events.split(' ').any(|each| each == event)
    }
}

fn scenarios() -> Vec<Scenario> {
    let everything = "drain edit cut del policy gone suspend source forget backup";
    vec![
        Scenario::new("drain", "drain edit cut"),
        Scenario::new("slow target", "drain edit cut").slow(1),
        Scenario { bad_hash: Some(1), ..Scenario::new("nothing comes up", "drain edit") },
        Scenario::new("policy", "policy gone suspend edit"),
        Scenario::new("policy, slow target", "policy gone suspend").slow(1),
        Scenario { clusters: 2, ..Scenario::new("loss", "del drain cut") },
        Scenario::new("loss, slow target", "del drain").slow(1),
        Scenario { failover: true, ..Scenario::new("failover", "cut edit") },
        Scenario { failover: true, ..Scenario::new("failover, slow target", "cut edit").slow(1) },
        Scenario { volumes: true, ..Scenario::new("volumes", "drain consent cut") },
        Scenario { volumes: true, ..Scenario::new("volumes, slow target", "drain consent").slow(1) },
        Scenario { job: true, ..Scenario::new("Job", "drain cut") },
        Scenario { job: true, ..Scenario::new("Job, source deleted", "drain source cut") },
        Scenario { clusters: 2, ..Scenario::new("restore", "backup drain edit") },
        Scenario { clusters: 2, ..Scenario::new("record lost", "forget drain cut") },
        Scenario::new("source deleted", "source drain edit"),
        Scenario::new("everything", everything).slow(2),
        Scenario { failover: true, ..Scenario::new("everything, failover", "drain edit cut del policy forget backup") },
        Scenario::divided("divided", "drain scale", 3),
        Scenario::divided("divided, slow target", "drain scale", 3).slow(1),
        Scenario { clusters: 2, ..Scenario::divided("divided in two", "drain scale cut", 2) },
        Scenario::divided("divided, edited", "drain scale cut edit policy", 3),
    ]
}

fn possible_steps(world: &World, scenario: &Scenario) -> Vec<Possible> {
    let mut steps = Steps { world, scenario, found: Vec::new() };
    steps.add_leader();
    steps.add_agents();
    steps.add_time();
    steps.add_events();
    steps.found
}

/// A random walk; returns how many steps it had, or the promise that it broke and the way there.
fn walk(scenario: &Scenario, seed: u64) -> Result<usize, (&'static str, Vec<String>)> {
    let mut dice = Dice(seed);
    let mut world = World::new(scenario, EVENTS, FAULTS);
    let mut way = Vec::new();
    for _ in 0..LONGEST {
        let mut steps = possible_steps(&world, scenario);
        let has = |kind: Kind| steps.iter().any(|step| step.kind == kind);
        if !has(Kind::Step) && !has(Kind::Time) {
            let away = has(Kind::Return);
            let broken = if away { broken_while_away(&world, scenario) } else { broken_at_rest(&world, scenario) };
            if let Some(broken) = broken {
                return Err((broken, way));
            }
        }
        if steps.is_empty() {
            break;
        }
        let whole: u64 = steps.iter().map(|step| step.kind.weight()).sum();
        let mut left = dice.roll(whole);
        let at = steps.iter().position(|step| {
            let is_here = left < step.kind.weight();
            left = left.saturating_sub(step.kind.weight());
            is_here
        });
        let step = steps.swap_remove(at.unwrap());
        way.push(step.text);
        world = step.after;
        if let Some(broken) = step.broken.or_else(|| broken_share(&world, scenario)) {
            return Err((broken, way));
        }
    }
    Ok(way.len())
}

/// Walks every scenario so many times; returns the number of steps, and the shortest way to each broken promise.
fn walk_all(scenarios: &[Scenario], walks: u64) -> (usize, Vec<String>) {
    let mut count = 0;
    let mut found = Vec::new();
    for (number, scenario) in scenarios.iter().enumerate() {
        let mut shortest = std::collections::BTreeMap::<&str, (u64, Vec<String>)>::new();
        for seed in 0..walks {
            let seed = seed * 1_000 + u64::try_from(number).unwrap();
            match walk(scenario, seed) {
                Ok(steps) => count += steps,
                Err((broken, way)) => {
                    let known = shortest.entry(broken).or_insert_with(|| (seed, way.clone()));
                    if way.len() < known.1.len() {
                        *known = (seed, way);
                    }
                }
            }
        }
        found.extend(shortest.into_iter().map(|(broken, (seed, way))| {
            format!("{}: {broken} (seed {seed})\n    {}", scenario.name, way.join("\n    "))
        }));
    }
    (count, found)
}

#[test]
fn promises_hold_over_random_walks() {
    let (steps, broken) = walk_all(&scenarios(), 60);
    assert!(steps > 20_000, "walks are long: {steps} steps");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// `cargo test --test placement exhaustive -- --ignored --nocapture`
#[test]
#[ignore = "20,000 walks of each scenario take minutes"]
#[expect(clippy::print_stderr, reason = "the figures are to be read")]
fn exhaustive_promises_hold_over_random_walks() {
    let (steps, broken) = walk_all(&scenarios(), 20_000);
    eprintln!("{} scenarios, 20000 walks each, {steps} steps, {} broken promises", scenarios().len(), broken.len());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Every report is believed, however old it is.
fn believe_all(_: &MoveRecord, seen: &mut Seen) {
    for schedule in seen.schedules.values_mut() {
        (schedule.asked, schedule.answered) = (true, true);
    }
}

/// Schedules are not written before the record says that their copies stay.
fn keep_nothing(record: &MoveRecord, seen: &mut Seen) {
    for schedule in seen.schedules.values_mut() {
        schedule.kept = Some(record.epoch);
    }
}

/// Volumes are not noticed.
fn overlook_volumes(_: &MoveRecord, seen: &mut Seen) {
    seen.source.volumes = false;
}

/// A Job is taken for something that runs on.
fn overlook_jobs(_: &MoveRecord, seen: &mut Seen) {
    seen.source.once = false;
}

/// Walks until a promise is broken; fails if none is.
fn assert_breaks(promise: &str, scenario: Scenario, most_seeds: u64) {
    let is_broken = |seed| walk(&scenario, seed).is_err_and(|(broken, _)| broken.starts_with(promise));
    assert!((0..most_seeds).any(is_broken), "{}: {promise} is kept", scenario.name);
}

/// Walks after which a forged fact would have broken its promise.
const MOST_SEEDS: u64 = 4_000;

fn forged(name: &'static str, events: &'static str, forge: fn(&MoveRecord, &mut Seen)) -> Scenario {
    Scenario { forge: Some(forge), ..Scenario::new(name, events) }
}

#[test]
fn old_reports_break_promises() {
    assert_breaks("I1c", forged("every report is believed", "drain cut", believe_all), MOST_SEEDS);
}

#[test]
#[ignore = "a late deletion that meets a turn of a move is rare"]
fn exhaustive_late_deletions_break_promises() {
    let scenario = forged("nothing is kept", "forget drain cut", keep_nothing);
    assert_breaks("I1", Scenario { clusters: 2, ..scenario }, 100_000);
}

#[test]
fn overlooked_volumes_break_promises() {
    assert_breaks("I2", Scenario { volumes: true, ..forged("volumes", "drain consent", overlook_volumes) }, MOST_SEEDS);
}

#[test]
fn overlooked_jobs_break_promises() {
    assert_breaks("I3", Scenario { job: true, ..forged("Job", "drain cut", overlook_jobs) }, MOST_SEEDS);
}
