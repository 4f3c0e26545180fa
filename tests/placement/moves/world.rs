//! The world around the move machine: control plane, agents, clusters, users, late writes and old views.

use std::collections::BTreeMap;

use fleetctl::placement::moves::{
    ClusterAmounts, MoveCause, MovePhase, MoveRecord, MoveStep, MoveWrite, ScaledShares, Seen, SeenCluster,
    SeenDecision, SeenPolicy, SeenReport, SeenSchedule, SeenSource,
};

pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// A cluster. `uid` says which one of its name it is; `fresh`: its agent reported since it is back.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cluster {
    pub(super) up: bool,
    pub(super) ready: bool,
    pub(super) drained: bool,
    pub(super) uid: u8,
    pub(super) fresh: bool,
}

/// A Schedule with its status. `asked`, `kept`: what this leader knows by itself.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Schedule {
    pub(super) hash: u8,
    pub(super) amount: i64,
    pub(super) deleting: bool,
    pub(super) asked: bool,
    pub(super) answered: bool,
    pub(super) kept: Option<i64>,
    pub(super) said_hash: Option<u8>,
    pub(super) said: SeenReport,
}

/// The copy itself, in its cluster: available now, the most that ever was, finished.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Copy {
    pub(super) hash: u8,
    pub(super) amount: i64,
    pub(super) available: i64,
    pub(super) most: i64,
    pub(super) finished: bool,
}

/// The source and its policy. Policy 1 forbids the first cluster, 2 the second one; none: it is gone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct User {
    pub(super) source: bool,
    pub(super) hash: u8,
    pub(super) replicas: i64,
    pub(super) policy: Option<u8>,
    pub(super) suspended: bool,
    pub(super) consent: bool,
}

/// A part of the leader's view that stands still.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Stale {
    Clusters(Vec<Cluster>),
    Schedules(Vec<Option<Schedule>>),
    Users(User),
}

/// A write of a leader.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Action {
    Record(Box<MoveRecord>),
    Schedule(MoveWrite),
}

/// A write of a deposed leader that is still on its way, with what that one saw.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct LateWrite {
    pub(super) action: Action,
    pub(super) hash: u8,
    pub(super) consent: bool,
}

/// A backup of the control plane.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Backup {
    None,
    Taken(Box<MoveRecord>, Vec<Option<Schedule>>),
    Used,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct World {
    pub(super) clusters: Vec<Cluster>,
    pub(super) schedules: Vec<Option<Schedule>>,
    pub(super) copies: Vec<Option<Copy>>,
    pub(super) record: MoveRecord,
    pub(super) user: User,
    pub(super) now: i64,
    pub(super) stale: Option<Stale>,
    pub(super) late: Option<LateWrite>,
    pub(super) events_left: u32,
    pub(super) faults_left: u32,
    /// Known to the checks only, as all that follows: a cluster was lost.
    pub(super) lost: bool,
    /// Failures in a row.
    pub(super) failures: i32,
    /// Fewest replicas that were asked for.
    pub(super) floor: i64,
    pub(super) backup: Backup,
    /// Jobs that ran to their end.
    pub(super) ran: u32,
    /// Consent when the move began.
    pub(super) agreed: bool,
}

/// What there is, what may happen, and which facts a leader gets wrong.
#[derive(Clone)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) events: &'static str,
    pub(super) clusters: usize,
    pub(super) replicas: i64,
    pub(super) divided: bool,
    pub(super) failover: bool,
    pub(super) volumes: bool,
    pub(super) job: bool,
    /// Cluster where nothing becomes available.
    pub(super) bad_cluster: Option<usize>,
    /// Hash that never becomes available.
    pub(super) bad_hash: Option<u8>,
    /// Changes what the machine is told: the fact that a test takes away.
    pub(super) forge: Option<fn(&MoveRecord, &mut Seen)>,
}

/// What a leader sees of the world.
pub(super) struct LeaderView {
    pub(super) clusters: Vec<Cluster>,
    pub(super) schedules: Vec<Option<Schedule>>,
    pub(super) user: User,
}

pub(super) fn index_of(cluster: &str) -> usize {
    NAMES.iter().position(|name| *name == cluster).unwrap()
}

pub(super) fn amount_of(amounts: &ClusterAmounts, cluster: usize) -> i64 {
    amounts.get(NAMES[cluster]).copied().unwrap_or(0)
}

impl World {
    /// The group is on its target and serves there.
    pub(super) fn new(scenario: &Scenario, events: u32, faults: u32) -> Self {
        let cluster = Cluster { up: true, ready: true, drained: false, uid: 0, fresh: true };
        let user = User {
            source: true,
            hash: 0,
            replicas: scenario.replicas,
            policy: Some(0),
            suspended: false,
            consent: true,
        };
        let clusters = vec![cluster; scenario.clusters];
        let view = LeaderView { clusters: clusters.clone(), schedules: Vec::new(), user };
        let record = MoveRecord::default();
        let target = scenario.decide(&view, &record, 0);
        let amounts = || (0..scenario.clusters).map(|at| amount_of(&target, at));
        let schedules = amounts().map(|amount| (amount > 0).then(|| Schedule::first(amount)));
        let copies = amounts().map(|amount| {
            let available = if scenario.job { 1 } else { amount };
            (amount > 0).then_some(Copy { hash: 0, amount, available, most: amount, finished: false })
        });
        Self {
            schedules: schedules.collect(),
            copies: copies.collect(),
            clusters,
            record: MoveRecord { target, ..record },
            user,
            now: 0,
            stale: None,
            late: None,
            events_left: events,
            faults_left: faults,
            lost: false,
            failures: 0,
            floor: scenario.replicas,
            backup: Backup::None,
            ran: 0,
            agreed: true,
        }
    }

    pub(super) fn is_live(&self, cluster: usize) -> bool {
        self.schedules[cluster].is_some_and(|schedule| !schedule.deleting)
    }

    /// What the leader sees; what it asked and kept it knows by itself, also where its view is old.
    pub(super) fn view(&self) -> LeaderView {
        let mut view =
            LeaderView { clusters: self.clusters.clone(), schedules: self.schedules.clone(), user: self.user };
        match &self.stale {
            Some(Stale::Clusters(clusters)) => view.clusters.clone_from(clusters),
            Some(Stale::Users(user)) => view.user = *user,
            Some(Stale::Schedules(schedules)) => {
                view.schedules.clone_from(schedules);
                for (at, seen) in view.schedules.iter_mut().enumerate() {
                    let Some(seen) = seen else { continue };
                    let (asked, kept) = match self.schedules[at] {
                        Some(real) => (real.asked, real.kept),
                        None if self.clusters[at].up && self.clusters[at].uid == 0 => (seen.asked, seen.kept),
                        None => (false, None),
                    };
                    (seen.asked, seen.kept) = (asked, kept);
                }
            }
            None => {}
        }
        view
    }

    /// Forgets what was asked of some clusters.
    pub(super) fn forget_asks(&mut self, clusters: impl Fn(usize) -> bool) {
        for (at, schedule) in self.schedules.iter_mut().enumerate() {
            if let Some(schedule) = schedule.as_mut().filter(|_| clusters(at)) {
                (schedule.asked, schedule.answered) = (false, false);
            }
        }
    }

    /// A new leader: it sees all that there is, and has asked nobody yet.
    pub(super) fn begin_term(&mut self) {
        self.stale = None;
        self.clusters.iter_mut().for_each(|cluster| cluster.fresh = false);
        self.schedules.iter_mut().flatten().for_each(|schedule| schedule.kept = None);
        self.forget_asks(|_| true);
    }

    /// A Schedule was written: late writes that demand its former version fail from now on.
    pub(super) fn set_schedule(&mut self, cluster: usize, schedule: Option<Schedule>) {
        let fails = |late: &LateWrite| match &late.action {
            Action::Record(_) => false,
            Action::Schedule(write) => {
                index_of(write.cluster()) == cluster
                    && matches!(write, MoveWrite::Keep { .. } | MoveWrite::Edit { .. } | MoveWrite::Delete { .. })
            }
        };
        if self.late.as_ref().is_some_and(fails) {
            self.late = None;
        }
        self.schedules[cluster] = schedule;
    }
}

impl Schedule {
    /// One that serves since long, and was not asked by this leader.
    fn first(amount: i64) -> Self {
        Self {
            said: SeenReport { available: amount, served: amount, ..SeenReport::default() },
            said_hash: Some(0),
            ..Self::made(0, amount)
        }
    }

    /// One that was just made.
    pub(super) fn made(hash: u8, amount: i64) -> Self {
        Self {
            hash,
            amount,
            deleting: false,
            asked: false,
            answered: false,
            kept: None,
            said_hash: None,
            said: SeenReport::default(),
        }
    }
}

impl Scenario {
    /// Returns whether policy and taints let the group be there.
    fn allows(view: &LeaderView, cluster: usize) -> bool {
        let Cluster { up, drained, .. } = view.clusters[cluster];
        up && !drained && view.user.policy != Some(u8::try_from(cluster).unwrap() + 1)
    }

    /// Where the group should be; stands for the rules of placement.
    fn decide(&self, view: &LeaderView, record: &MoveRecord, now: i64) -> ClusterAmounts {
        let is_shut =
            |cluster: usize| record.excluded.iter().any(|entry| entry.cluster == NAMES[cluster] && entry.until > now);
        let has = |cluster: usize| amount_of(&record.target, cluster) > 0;
        let fits: Vec<usize> = (0..self.clusters)
            .filter(|at| Self::allows(view, *at) && !is_shut(*at))
            .filter(|at| view.clusters[*at].ready || (has(*at) && !self.failover))
            .collect();
        if fits.is_empty() {
            return ClusterAmounts::new();
        }
        if !self.divided {
            let first = fits.iter().find(|at| has(**at)).unwrap_or(&fits[0]);
            return ClusterAmounts::from([(NAMES[*first].to_owned(), 1)]);
        }
        let count = i64::try_from(fits.len()).unwrap();
        let (base, rest) = (view.user.replicas / count, view.user.replicas % count);
        let share =
            |(nth, at): (usize, &usize)| (NAMES[*at].to_owned(), base + i64::from(i64::try_from(nth).unwrap() < rest));
        fits.iter().enumerate().map(share).filter(|(_, share)| *share > 0).collect()
    }

    /// The cause that holds for a group at some amounts: always a comparison with what is.
    fn cause(&self, view: &LeaderView, at: &ClusterAmounts) -> Option<MoveCause> {
        let holds = || (0..self.clusters).filter(|cluster| amount_of(at, *cluster) > 0);
        if holds().any(|cluster| !view.clusters[cluster].up) {
            return Some(MoveCause::Lost);
        }
        if self.divided && at.values().sum::<i64>() != view.user.replicas {
            return Some(MoveCause::Scale);
        }
        holds().find_map(|cluster| match view.clusters[cluster] {
            Cluster { drained: true, .. } => Some(MoveCause::Drain),
            _ if !Self::allows(view, cluster) => Some(MoveCause::Policy),
            Cluster { ready: false, .. } if self.failover => Some(MoveCause::Failover),
            _ => None,
        })
    }

    /// Shares after a scaling, begun with these; `also` has copies that are on their way out.
    fn scale(&self, shares: &ClusterAmounts, replicas: i64, also: &[usize]) -> ClusterAmounts {
        let mut shares: Vec<i64> = (0..self.clusters).map(|at| amount_of(shares, at)).collect();
        while shares.iter().sum::<i64>() != replicas {
            let up = shares.iter().sum::<i64>() < replicas;
            let is_empty = shares.iter().all(|share| *share == 0);
            let pool = (0..shares.len()).filter(|at| shares[*at] > 0 || (up && also.contains(at)) || is_empty);
            let chosen =
                if up { pool.min_by_key(|at| (shares[*at], *at)) } else { pool.min_by_key(|at| (-shares[*at], *at)) };
            shares[chosen.unwrap()] += if up { 1 } else { -1 };
        }
        let named = shares.into_iter().enumerate().map(|(at, share)| (NAMES[at].to_owned(), share));
        named.filter(|(_, share)| *share > 0).collect()
    }

    fn decision(&self, view: &LeaderView, record: &MoveRecord, now: i64) -> SeenDecision {
        let moving = record.running.as_ref();
        let is_stray = |at: &usize| {
            let live = view.schedules[*at].is_some_and(|schedule| !schedule.deleting);
            live && view.clusters[*at].up && amount_of(&record.target, *at) == 0
        };
        let strays: Vec<usize> = (0..self.clusters).filter(is_stray).collect();
        let replicas = view.user.replicas;
        let scaled = match moving {
            Some(moving) => ScaledShares {
                to: self.scale(&moving.to, replicas, &[]),
                from: self.scale(&moving.from, replicas, &[]),
            },
            None => ScaledShares { to: self.scale(&record.target, replicas, &strays), from: ClusterAmounts::new() },
        };
        SeenDecision {
            cause: self.cause(view, moving.map_or(&record.target, |moving| &moving.from)),
            best: self.decide(view, record, now),
            wanted: (0..self.clusters).filter(|at| Self::allows(view, *at)).map(|at| NAMES[at].to_owned()).collect(),
            scaled: self.divided.then_some(scaled),
            renewed: false,
        }
    }

    /// What the leader gives the machine.
    pub(super) fn seen(&self, world: &World, view: &LeaderView, now: i64) -> Seen {
        let cluster = |(at, cluster): (usize, &Cluster)| {
            let seen = SeenCluster {
                uid: format!("{}-{}", NAMES[at], cluster.uid),
                ready: cluster.ready,
                away: !cluster.ready,
            };
            cluster.up.then(|| (NAMES[at].to_owned(), seen))
        };
        let schedule = |(at, schedule): (usize, &Option<Schedule>)| {
            schedule.map(|schedule| (NAMES[at].to_owned(), print_schedule(&schedule)))
        };
        let schedules: BTreeMap<String, SeenSchedule> =
            view.schedules.iter().enumerate().filter_map(schedule).collect();
        let user = view.user;
        let mut seen = Seen {
            now,
            // A term admits nothing before late writes are dead, nor while one of its watches stands still.
            admitted: world.late.is_none() && world.stale.is_none(),
            frozen: false,
            frozen_seconds: 0,
            policy: match user {
                User { suspended: true, .. } => SeenPolicy::Suspended,
                User { policy: None, .. } => SeenPolicy::Gone,
                _ => SeenPolicy::There,
            },
            source: SeenSource {
                there: user.source,
                hash: format!("h{}", user.hash),
                amount: user.replicas,
                divided: self.divided,
                volumes: self.volumes,
                consent: user.consent,
                once: self.job,
                idle: false,
            },
            decision: self.decision(view, &world.record, now),
            clusters: view.clusters.iter().enumerate().filter_map(cluster).collect(),
            schedules,
        };
        if let Some(forge) = self.forge {
            forge(&world.record, &mut seen);
        }
        seen
    }

    /// The writes that the machine allows in a world, as its leader sees it.
    pub(super) fn actions(&self, world: &World, view: &LeaderView, now: i64) -> Vec<Action> {
        match fleetctl::placement::moves::step(&world.record, &self.seen(world, view, now)) {
            MoveStep::Record { record, .. } => vec![Action::Record(Box::new(record))],
            MoveStep::Writes(writes) => writes.into_iter().map(Action::Schedule).collect(),
        }
    }
}

fn print_schedule(schedule: &Schedule) -> SeenSchedule {
    SeenSchedule {
        hash: format!("h{}", schedule.hash),
        amount: schedule.amount,
        deleting: schedule.deleting,
        said: schedule.said,
        asked: schedule.asked,
        answered: schedule.answered,
        kept: schedule.kept,
    }
}

/// The side that the record says stays; none while a move makes its new side.
pub(super) fn side_that_stays(record: &MoveRecord) -> Option<&ClusterAmounts> {
    match &record.running {
        None => Some(&record.target),
        Some(running) => match running.phase {
            MovePhase::Up => None,
            MovePhase::Removing => Some(&running.to),
            MovePhase::RollingBack => Some(&running.from),
        },
    }
}
