//! The lock of an installation: its holder, and when whoever wants it may take it over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::release::random_id;

/// Time by which two readings of one clock can seem to differ: the `Date` of an answer tells whole seconds.
const CLOCK_NOISE: Duration = Duration::from_secs(5);
/// Time that a lock lives without renewal.
pub(super) const LOCK_LIFE: Duration = Duration::from_secs(30);

/// Holder of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The user's name on that host.
    pub user: String,
    /// The host.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Scope in which `pid` means that process: the machine, its boot and the namespace of processes. Empty where the
    /// system does not tell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// Time since which it is at work, RFC 3339.
    pub since: String,
    /// Random, so that a process recognises its own lock.
    pub nonce: String,
}

impl Holder {
    /// This process.
    pub fn from_this_process() -> Self {
        let host = fs_err::read_to_string("/proc/sys/kernel/hostname").ok().map(|h| h.trim().to_owned());
        Self {
            user: find_set_variable(&["USER", "LOGNAME", "USERNAME"]).unwrap_or_else(|| "unknown".to_owned()),
            host: host
                .or_else(|| find_set_variable(&["HOSTNAME", "COMPUTERNAME"]))
                .unwrap_or_else(|| "unknown".to_owned()),
            pid: std::process::id(),
            machine: machine_identity().unwrap_or_default(),
            since: jiff::Timestamp::now().to_string(),
            nonce: random_id(),
        }
    }
}

/// Returns the first environment variable of several that is set to something.
fn find_set_variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}, process {}, since {}", self.user, self.host, self.pid, self.since)
    }
}

/// A lock with its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Holder of the lock.
    pub holder: Holder,
    /// Time at which it ends unless renewed, RFC 3339.
    pub expires: String,
}

impl Lock {
    /// Returns whether its run is known to have ended: its process on this very machine is gone, or it is an earlier run of
    /// this very process, which does one thing at a time.
    ///
    /// The name of a host says too little: machines are cloned, and process ids of containers with equal names repeat.
    pub(crate) fn is_of_ended_process(&self, here: &Holder) -> bool {
        let here_too = !here.machine.is_empty() && self.holder.machine == here.machine;
        here_too && (self.holder.pid == here.pid || process_is_gone(self.holder.pid))
    }

    /// Returns whether a single look gives the lock for one that nobody renews, to describe it and no more: the clocks of
    /// two API servers differ. Who takes a lock goes by [`LockObserver`].
    pub(crate) fn seems_over(&self, now: jiff::Timestamp, here: &Holder) -> bool {
        self.is_of_ended_process(here) || !self.seems_renewed(now)
    }

    /// Returns whether the date in it is one that a run at work writes: ahead, and by no more than the life of a lock.
    fn seems_renewed(&self, now: jiff::Timestamp) -> bool {
        let longest = jiff::SignedDuration::try_from(LOCK_LIFE + CLOCK_NOISE).unwrap_or_default();
        self.expires.parse::<jiff::Timestamp>().is_ok_and(|end| end > now && end.duration_since(now) <= longest)
    }
}

/// Standing of a lock, as far as it was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockLife {
    /// Nobody renews it, or its process is gone: it can be taken.
    Over,
    /// It was renewed since it was first seen.
    Renewed,
    /// It was not seen for long enough, and its date is that of a run at work.
    ProbablyRenewed,
    /// It was not seen for long enough, and its date is past or too far ahead.
    Unknown,
}

/// The lock of another run as this process has seen it change, by its own clock: as leader election has it, a lock is over
/// when it was not renewed for its whole life in front of whoever wants it, whatever the clocks of others show.
#[derive(Debug, Default)]
pub(crate) struct LockObserver {
    /// The lock as it was seen last, and the time since which it was seen like that.
    seen: Option<(Lock, Instant)>,
    /// The run that holds it was seen to renew it.
    renewed: bool,
}

impl LockObserver {
    /// Takes in a lock that was read at a time of this process; `server_time` is the API server's clock.
    pub(crate) fn observe_lock(
        &mut self,
        lock: &Lock,
        read: Instant,
        server_time: jiff::Timestamp,
        here: &Holder,
    ) -> LockLife {
        match &self.seen {
            Some((seen, _)) if seen == lock => {}
            seen => {
                // Whoever wrote it since is at work: the run that held it, or another that took it.
                self.renewed = seen.is_some();
                self.seen = Some((lock.clone(), read));
            }
        }
        let unchanged = self.seen.as_ref().map_or(Duration::ZERO, |(_, since)| read.duration_since(*since));
        if lock.is_of_ended_process(here) || unchanged >= LOCK_LIFE {
            LockLife::Over
        } else if self.renewed {
            LockLife::Renewed
        } else if lock.seems_renewed(server_time) {
            LockLife::ProbablyRenewed
        } else {
            LockLife::Unknown
        }
    }
}

/// Tells apart all machines, their starts, and the namespaces of processes on them; on Linux only.
fn machine_identity() -> Option<String> {
    let boot = fs_err::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let processes = fs_err::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), processes.display()))
}

/// True only where it is certain: on Linux, when `/proc` can be read and has no such process. Where it hides those of other
/// users, it hides the first one too.
fn process_is_gone(pid: u32) -> bool {
    let proc = std::path::Path::new("/proc");
    proc.join("self").exists() && proc.join("1").exists() && !proc.join(pid.to_string()).exists()
}

/// The nonce of the lock that a run has tried to take, by which whoever ends it knows the lock again. Shared by all copies.
#[derive(Debug, Clone, Default)]
pub struct HeldLock(Arc<Mutex<Option<String>>>);

impl HeldLock {
    /// Remembers the nonce of a run, before its first write.
    pub(super) fn set_nonce(&self, nonce: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(nonce.to_owned());
    }

    /// Returns whether no run has tried to take the lock.
    pub(super) fn is_unset(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Returns whether the lock is the one that was tried to take.
    pub(super) fn is_of(&self, lock: &Lock) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(&lock.holder.nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(expires: &str, machine: &str, pid: u32) -> Lock {
        Lock {
            holder: Holder {
                machine: machine.into(),
                pid,
                nonce: "n".into(),
                since: String::new(),
                ..Holder::from_this_process()
            },
            expires: expires.into(),
        }
    }

    fn is_of_ended_run(here: &Holder, machine: &str, pid: u32) -> bool {
        lock("", machine, pid).is_of_ended_process(here)
    }

    #[test]
    fn a_lock_dies_with_its_process() {
        let here = Holder::from_this_process();
        assert!(!here.machine.is_empty());
        assert!(!is_of_ended_run(&here, &here.machine, 1), "that process lives");
        assert!(is_of_ended_run(&here, &here.machine, here.pid), "an earlier run of our own");
        assert!(is_of_ended_run(&here, &here.machine, u32::MAX), "no such process here");
        // Another machine, or another namespace of processes, of the same host name.
        assert!(!is_of_ended_run(&here, "elsewhere", u32::MAX));
        let nowhere = Holder { machine: String::new(), ..here.clone() };
        assert!(!lock("", "", u32::MAX).is_of_ended_process(&nowhere), "nothing is known of either");
    }

    #[test]
    fn a_lock_counts_from_what_was_seen_to_change() {
        let (here, began) = (Holder::from_this_process(), Instant::now());
        let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let observe = |observer: &mut LockObserver, expires: &str, seconds: u64| {
            let read = began + Duration::from_secs(seconds);
            observer.observe_lock(&lock(expires, "elsewhere", 1), read, now, &here)
        };
        // The clock of the API server that the run goes by is an hour behind, or ahead, of ours; or what it writes is no date.
        for dates in [
            ["2025-12-31T23:00:10Z", "2025-12-31T23:00:20Z"],
            ["2026-01-01T01:00:10Z", "2026-01-01T01:00:20Z"],
            ["soon", "later"],
        ] {
            let mut observer = LockObserver::default();
            assert_eq!(observe(&mut observer, dates[0], 0), LockLife::Unknown, "{dates:?}");
            assert_eq!(observe(&mut observer, dates[0], 29), LockLife::Unknown, "{dates:?}");
            assert_eq!(observe(&mut observer, dates[1], 29), LockLife::Renewed, "{dates:?}");
            assert_eq!(observe(&mut observer, dates[1], 58), LockLife::Renewed, "{dates:?}");
            assert_eq!(observe(&mut observer, dates[1], 59), LockLife::Over, "{dates:?}");
        }
        // A date as a run at work writes it is enough to refuse by, and not to take by.
        let mut observer = LockObserver::default();
        assert_eq!(observe(&mut observer, "2026-01-01T00:00:10Z", 0), LockLife::ProbablyRenewed);
        assert_eq!(observe(&mut observer, "2026-01-01T00:00:10Z", 30), LockLife::Over);
        let gone = lock("2026-01-01T00:00:10Z", &here.machine, u32::MAX);
        assert_eq!(LockObserver::default().observe_lock(&gone, began, now, &here), LockLife::Over);
    }

    #[test]
    fn one_look_at_a_lock_describes_it() {
        let here = Holder::from_this_process();
        let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let seems_over = |expires: &str, pid: u32| lock(expires, &here.machine, pid).seems_over(now, &here);
        assert!(!seems_over("2026-01-01T00:00:01Z", 1));
        assert!(seems_over("2026-01-01T00:00:01Z", u32::MAX));
        assert!(seems_over("2025-12-31T23:59:59Z", 1));
        assert!(seems_over("soon", 1));
    }
}
