//! Processes of the bed: started, written down, found again, and ended, without a daemon that watches them.
//!
//! A process is known in two ways. Its record holds what to start and, once started, pid and start time, so that a
//! recycled pid is never mistaken for it. And every process of the bed carries `FLEETBED_ID` in its environment, so
//! that `down` finds even one whose record was never finished because the bed was killed in between.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The variable that marks every process of a bed.
pub(crate) const MARK: &str = "FLEETBED_ID";
/// The variable that says which cluster it belongs to.
pub(crate) const MARK_UNIT: &str = "FLEETBED_UNIT";

/// What to run, and once it runs, which process that is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The program and its arguments, as seen inside the cluster's namespaces.
    pub argv: Vec<String>,
    /// Further environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Started inside the cluster's namespaces rather than the machine's.
    pub inside: bool,
    /// The process, once started.
    pub process: Option<Process>,
}

/// One process: a pid alone is not enough, since the kernel gives it out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its pid in the machine's own pid namespace.
    pub pid: i32,
    /// Its start, in ticks since boot (field 22 of /proc/PID/stat).
    pub start: u64,
}

/// What a component does right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running,
    /// It was stopped by SIGSTOP and can go on.
    Paused,
    /// There is no such process.
    Stopped,
}

impl Process {
    /// The process that now has this pid.
    pub fn of(pid: i32) -> Option<Self> {
        stat(pid).map(|stat| Self { pid, start: stat.start })
    }

    /// What it does. A zombie has ended, only its parent has not looked yet; but as long as it has further threads
    /// they hold its files and ports.
    pub fn state(self) -> State {
        let Some(stat) = stat(self.pid).filter(|stat| stat.start == self.start) else { return State::Stopped };
        match stat.state {
            'Z' if stat.threads > 1 => State::Running,
            'Z' | 'X' => State::Stopped,
            'T' | 't' => State::Paused,
            _ => State::Running,
        }
    }

    /// Sends a signal to this very process, or to none. The pidfd closes the gap between the look and the signal.
    pub fn signal(self, signal: Signal) -> Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
        if self.state() != State::Stopped {
            match pidfd_send_signal(fd, signal) {
                Err(error) if error != rustix::io::Errno::SRCH => {
                    return Err(error).with_context(|| format!("cannot signal process {}", self.pid));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The kernel's name for it, at most 15 bytes of the program's.
    pub fn name(self) -> String {
        std::fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default().trim_end().to_owned()
    }

    /// Waits for its end.
    pub fn wait(self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.state() != State::Stopped {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

/// What the kernel says of a process, see proc_pid_stat(5).
struct Stat {
    state: char,
    parent: i32,
    /// Its process group: what Ctrl-C in a terminal is for.
    group: i32,
    /// How many threads are not yet gone, the first one included. A listing of `/proc/PID/task` cannot tell: it ends early
    /// where a thread ends just then.
    threads: usize,
    /// Ticks since the machine started.
    start: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the command's name, which may itself hold blanks and brackets.
    let fields: Vec<_> = text.rsplit_once(") ")?.1.split(' ').collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |field_number: usize| field(field_number)?.parse::<i32>().ok();
    Some(Stat {
        state: field(3)?.chars().next()?,
        parent: number(4)?,
        group: number(5)?,
        threads: field(20)?.parse().ok()?,
        start: field(22)?.parse().ok()?,
    })
}

/// Where the processes of one cluster are started and written down.
#[derive(Debug, Clone)]
pub struct Supervisor {
    /// The bed's id.
    pub id: String,
    /// The cluster's name, or `hub`.
    pub unit: String,
    /// The cluster's folder.
    pub dir: PathBuf,
}

impl Supervisor {
    /// Where a component writes.
    pub fn log(&self, component: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{component}.log"))
    }

    fn file(&self, component: &str) -> PathBuf {
        self.dir.join("run").join(format!("{component}.json"))
    }

    /// The record of a component that was started before.
    pub fn record(&self, component: &str) -> Result<Record> {
        let file = self.file(component);
        let text = fs::read(&file).with_context(|| {
            format!("cluster `{}` has no component `{component}`; it has {}", self.unit, self.components().join(", "))
        })?;
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged; run `cargo bed down`", file.display()))
    }

    /// All components that were ever started here.
    pub fn components(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join("run")).into_iter().flatten().filter_map(Result::ok);
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json").map(str::to_owned)).collect();
        names.sort();
        names
    }

    /// What a component does.
    pub fn state(&self, component: &str) -> State {
        self.record(component).ok().and_then(|record| record.process).map_or(State::Stopped, Process::state)
    }

    /// Starts a component, by its record; one that runs already is left alone, a paused one goes on.
    pub fn start(&self, component: &str, mut record: Record) -> Result<()> {
        match record.process.map(|process| (process, process.state())) {
            Some((_, State::Running)) => return Ok(()),
            Some((process, State::Paused)) => return process.signal(Signal::CONT),
            _ => record.process = None,
        }
        fs::create_dir_all(self.dir.join("run"))?;
        fs::create_dir_all(self.dir.join("logs"))?;
        self.write(component, &record)?;
        let process = self.spawn(component, &record)?;
        record.process = Some(process);
        self.write(component, &record)
    }

    fn spawn(&self, component: &str, record: &Record) -> Result<Process> {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log(component))?.into_parts().0;
        // setsid: Ctrl-C in the terminal of the bed is not for the clusters.
        let mut command = Command::new("setsid");
        if record.inside {
            let holder = self.record("holder")?.process.context("the cluster's namespaces are not there")?;
            command.args(["nsenter", "--target", &holder.pid.to_string(), "--mount", "--net", "--"]);
        }
        let shown = record.argv.first().cloned().unwrap_or_default();
        let mut child = command
            .args(&record.argv)
            .envs(&record.env)
            .env(MARK, &self.id)
            .env(MARK_UNIT, &self.unit)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {component} ({shown})"))?;
        let pid = i32::try_from(child.id()).context("a pid is a small number")?;
        let process = Process::of(pid)
            .with_context(|| format!("{component} ended at once; see {}", self.log(component).display()))?;
        // Reaped here when this program lives longer than the child, by init otherwise.
        std::thread::spawn(move || child.wait());
        Ok(process)
    }

    /// Ends a component: asks by SIGTERM, then insists.
    pub fn stop(&self, component: &str, grace: Duration) -> Result<()> {
        let Some(process) = self.record(component)?.process else { return Ok(()) };
        if process.state() == State::Paused {
            process.signal(Signal::CONT)?;
        }
        process.signal(Signal::TERM)?;
        if !process.wait(grace) {
            process.signal(Signal::KILL)?;
        }
        if !process.wait(Duration::from_secs(10)) {
            bail!("{component} of `{}` (pid {}) does not end", self.unit, process.pid);
        }
        Ok(())
    }

    /// Sends a signal to a component that runs.
    pub fn signal(&self, component: &str, signal: Signal) -> Result<()> {
        match self.record(component)?.process {
            Some(process) if process.state() != State::Stopped => process.signal(signal),
            _ => bail!(
                "{component} of `{}` does not run; start it with `cargo bed fault restart {} {component}`",
                self.unit,
                self.unit
            ),
        }
    }

    fn write(&self, component: &str, record: &Record) -> Result<()> {
        let file = self.file(component);
        let staged = file.with_extension("part");
        fs::write(&staged, serde_json::to_vec_pretty(record)?)?;
        fs::rename(staged, file)?;
        Ok(())
    }
}

/// Every live process of a bed, or of one of its clusters, by the mark in its environment.
pub(crate) fn marked(id: &str, unit: Option<&str>) -> Vec<Process> {
    let id = format!("{MARK}={id}");
    let unit = unit.map(|unit| format!("{MARK_UNIT}={unit}"));
    pids()
        .filter(|pid| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let has = |wanted: &str| environ.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
            has(&id) && unit.as_deref().is_none_or(has)
        })
        .filter_map(Process::of)
        .filter(|process| process.state() != State::Stopped)
        .collect()
}

/// Every live process of any bed.
pub(crate) fn all_marked() -> Vec<Process> {
    let mark = format!("{MARK}=");
    let has = |pid: &i32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry.starts_with(mark.as_bytes()))
    };
    pids().filter(has).filter_map(Process::of).filter(|process| process.state() != State::Stopped).collect()
}

/// The live processes that this one started, and those that they started, as far as Ctrl-C in a terminal is for them: not
/// what runs in clusters.
pub(crate) fn own_programs() -> Vec<Process> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let Some(group) = stat(own).map(|stat| stat.group) else { return Vec::new() };
    let all: Vec<_> = pids().filter_map(|pid| Some((pid, stat(pid)?))).collect();
    let (mut found, mut parents) = (Vec::new(), vec![own]);
    while let Some(parent) = parents.pop() {
        for (pid, stat) in all.iter().filter(|(_, stat)| stat.parent == parent && stat.group == group) {
            parents.push(*pid);
            found.push(Process { pid: *pid, start: stat.start });
        }
    }
    found.retain(|process| process.state() != State::Stopped);
    found
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The processes in a cgroup file, for what containers leave running.
pub(crate) fn in_cgroup(procs: &Path) -> Vec<Process> {
    let text = std::fs::read_to_string(procs).unwrap_or_default();
    text.lines()
        .filter_map(|pid| Process::of(pid.trim().parse().ok()?))
        .filter(|p| p.state() != State::Stopped)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recycled_pid_is_another_process() {
        let own = Process::of(i32::try_from(std::process::id()).expect("a pid fits")).expect("this process runs");
        assert_eq!(own.state(), State::Running);
        let recycled = Process { start: own.start + 1, ..own };
        assert_eq!(recycled.state(), State::Stopped);
        recycled.signal(Signal::KILL).expect("nobody is there to be signalled");
        assert_eq!(own.state(), State::Running);
    }

    #[test]
    fn programs_of_another_group_are_not_among_ones_own() {
        let sleep = |setsid: bool| {
            let mut command = Command::new(if setsid { "setsid" } else { "sleep" });
            command.args(if setsid { &["sleep", "60"][..] } else { &["60"] }).spawn().expect("it starts")
        };
        let (mut near, mut far) = (sleep(false), sleep(true));
        let (near_pid, far_pid) = (i32::try_from(near.id()).unwrap(), i32::try_from(far.id()).unwrap());
        while stat(far_pid).is_some_and(|stat| stat.group != far_pid) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let found: Vec<_> = own_programs().into_iter().map(|process| process.pid).collect();
        for child in [&mut near, &mut far] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(found.contains(&near_pid) && !found.contains(&far_pid), "{found:?}");
    }

    #[test]
    fn every_thread_of_a_process_counts() {
        let own = i32::try_from(std::process::id()).expect("a pid fits");
        let all = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| all.wait());
            }
            let counted = stat(own).expect("this process runs").threads;
            all.wait();
            assert!(counted >= 4, "{counted}");
        });
    }
}
