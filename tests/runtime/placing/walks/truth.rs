//! What runs in the members, as their own API servers and the played kubelets say, and what of it must never happen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a decision may take: until then the amount that was asked for before it counts, too.
const DECIDED: Duration = Duration::from_secs(90);
/// What is available for so long is what a move begins with.
const STABLE: Duration = Duration::from_secs(10);

/// What is known of one walk.
#[derive(Default)]
pub(super) struct Walked {
    /// Its sources are deleted: whatever goes now may go.
    pub(super) is_over: bool,
    /// Volumes may be left behind.
    pub(super) has_consent: bool,
    /// A cluster was lost: availability counts again after this.
    excused_until: Option<Instant>,
    /// Members in which pods of `web` never become Ready.
    pub(super) stuck: BTreeSet<usize>,
    /// Pods of `web` that are asked for, each since when.
    wanted: Vec<(Instant, i64)>,
    /// Ready pods of `web` that are not being deleted, by their uid, with their member.
    ready: BTreeMap<String, usize>,
    gone: BTreeSet<String>,
    levels: VecDeque<(Instant, i64)>,
    /// UIDs of copies of the Job that were seen Complete.
    pub(super) completed: BTreeSet<String>,
    /// Pods of the Job that ran to their end.
    pub(super) effects: u32,
    /// The Job runs in several clusters, or ran in one that was lost.
    pub(super) may_repeat: bool,
    /// Clusters that were deleted and have joined again: what has data stays there without a Schedule.
    pub(super) lost: BTreeSet<String>,
}

impl Walked {
    fn available(&self) -> i64 {
        i64::try_from(self.ready.len()).unwrap()
    }

    /// The pods of `web` that are available in each of three members.
    pub(super) fn by_member(&self) -> [usize; 3] {
        let mut found = [0; 3];
        for member in self.ready.values() {
            found[*member] += 1;
        }
        found
    }

    /// The fewest that may be available now.
    fn floor(&self, now: Instant) -> i64 {
        let asked =
            self.wanted.iter().enumerate().filter(|(at, _)| {
                self.wanted.get(at + 1).is_none_or(|(until, _)| now.duration_since(*until) < DECIDED)
            });
        let asked = asked.map(|(_, (_, amount))| *amount).min().unwrap_or(0);
        let held = self
            .levels
            .iter()
            .enumerate()
            .filter(|(at, _)| self.levels.get(at + 1).is_none_or(|(until, _)| now.duration_since(*until) < STABLE));
        asked.min(held.map(|(_, (_, level))| *level).min().unwrap_or(0))
    }

    fn set_level(&mut self, now: Instant) {
        self.levels.push_back((now, self.available()));
        if self.levels.len() > 200 {
            self.levels.pop_front();
        }
    }
}

/// What is known of all walks.
pub(super) struct Truth {
    began: Instant,
    walks: Mutex<BTreeMap<String, Walked>>,
    counts: Mutex<BTreeMap<String, u64>>,
    faults: Mutex<Vec<String>>,
}

impl Truth {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), walks: Mutex::default(), counts: Mutex::default(), faults: Mutex::default() }
    }

    /// Seconds since the beginning, as they are printed.
    pub(super) fn at(&self) -> String {
        format!("{:7.1}", self.began.elapsed().as_secs_f64())
    }

    /// Looks at a walk, or changes what is known of it.
    pub(super) fn with<T>(&self, namespace: &str, access: impl FnOnce(&mut Walked) -> T) -> T {
        access(self.walks.lock().unwrap().entry(namespace.to_owned()).or_default())
    }

    pub(super) fn count(&self, what: &str) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().unwrap().clone()
    }

    /// Prints what happens, with the time.
    pub(super) fn tell(&self, namespace: &str, text: &str) {
        println!("{} {namespace} {text}", self.at());
    }

    pub(super) fn add_fault(&self, namespace: &str, text: &str) {
        self.tell(namespace, &format!("FAULT {text}"));
        self.faults.lock().unwrap().push(format!("{} {namespace} {text}", self.at()));
    }

    pub(super) fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap().clone()
    }

    /// From now on so many pods of `web` are asked for, at least.
    pub(super) fn want(&self, namespace: &str, amount: i64) {
        self.with(namespace, |walked| walked.wanted.push((Instant::now(), amount)));
    }

    /// A cluster is lost, or comes back: who had pods there may have fewer for a while.
    pub(super) fn excuse_all(&self, seconds: u64) {
        let until = Instant::now() + Duration::from_secs(seconds);
        for walked in self.walks.lock().unwrap().values_mut().filter(|walked| !walked.is_over) {
            walked.excused_until = Some(until);
        }
    }

    /// Walks that are not over.
    pub(super) fn open(&self) -> Vec<String> {
        let walks = self.walks.lock().unwrap();
        walks.iter().filter(|(_, walked)| !walked.is_over).map(|(name, _)| name.clone()).collect()
    }

    /// A pod of `web` is about to be Ready: whoever hears of it hears it later.
    pub(super) fn pod_is_ready(&self, namespace: &str, uid: &str, member: usize) {
        self.count("pods ready");
        self.with(namespace, |walked| {
            if !walked.gone.contains(uid) {
                walked.ready.insert(uid.to_owned(), member);
                walked.set_level(Instant::now());
            }
        });
    }

    /// A pod of `web` is being deleted, or is gone.
    pub(super) fn pod_is_gone(&self, namespace: &str, uid: &str) {
        let now = Instant::now();
        let fault = self.with(namespace, |walked| {
            walked.gone.insert(uid.to_owned());
            let floor = walked.floor(now);
            let member = walked.ready.remove(uid)?;
            let available = walked.available();
            walked.set_level(now);
            let is_excused = walked.is_over || walked.excused_until.is_some_and(|until| now < until);
            let left = walked.by_member();
            (available < floor && !is_excused).then(|| {
                format!(
                    "only {available} pods of web are available, {floor} are owed; one left member {member}, \
                         {left:?} are left"
                )
            })
        });
        if let Some(fault) = fault {
            self.add_fault(namespace, &fault);
        }
    }

    /// Something with volumes is being deleted in a member.
    pub(super) fn volume_is_gone(&self, namespace: &str, member: usize, what: &str) {
        let may_go = self.with(namespace, |walked| walked.is_over || walked.has_consent);
        if !may_go {
            self.count("things with volumes deleted");
            self.add_fault(namespace, &format!("{what} was deleted in member {member}"));
        }
    }

    /// A copy of the Job is Complete.
    pub(super) fn job_is_complete(&self, namespace: &str, member: usize, uid: &str) {
        let fault = self.with(namespace, |walked| {
            let is_new = walked.completed.insert(uid.to_owned());
            is_new && walked.completed.len() > 1 && !walked.may_repeat && !walked.is_over
        });
        if fault {
            self.add_fault(namespace, &format!("the Job ran to its end once more, in member {member}"));
        }
    }
}
