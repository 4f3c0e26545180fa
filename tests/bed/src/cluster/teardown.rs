//! Taking a cluster, or the whole bed, off the machine again, whatever state it was left in.
//!
//! Nothing here relies on records: processes are found by their mark and by the bed's cgroups, the rest by names
//! that derive from the bed's id. Namespaces, mounts, cables and rules go with the last process that uses them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fs_err as fs;
use rustix::process::Signal;

use crate::cluster::process::{self, Process};
use crate::parts::cache::remove_tree;
use crate::place::Place;

const CGROUPS: &str = "/sys/fs/cgroup";

/// Takes one cluster (or `hub`) away.
pub(crate) fn unit(place: &Place, unit: &str) -> Result<()> {
    let cgroup = place.cgroup(unit);
    end_processes(place, Some(unit), &|name| name == cgroup)?;
    remove_tree(&place.state.join(unit))
}

/// Takes the whole bed away.
pub(crate) fn bed(place: &Place) -> Result<()> {
    let prefix = place.cgroup("");
    end_processes(place, None, &|name| name.starts_with(&prefix))?;
    let link = place.link();
    // The cable goes with the hub's namespace, but the kernel takes its time for that.
    let gone = || !Path::new("/sys/class/net").join(&link).exists();
    if !gone() {
        let _ = crate::run::line(&format!("ip link del {link}"));
    }
    if !gone() {
        bail!("the interface {link} does not go away; remove it with `ip link del {link}`");
    }
    remove_tree(&place.state)
}

/// Kills the containers of a cluster, and whoever watches over them.
pub(crate) fn containers(place: &Place, unit: &str) -> Result<()> {
    let cgroup = place.cgroup(unit);
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let mut left: Vec<_> = cgroups(&|name| name == cgroup).iter().flat_map(|group| members(group)).collect();
        left.extend(
            process::marked(&place.id, Some(unit)).into_iter().filter(|process| process.name() == "containerd-shim"),
        );
        if left.is_empty() {
            return Ok(());
        }
        for process in &left {
            process.signal(Signal::KILL)?;
        }
        if Instant::now() > end {
            bail!("containers of `{unit}` do not end: {left:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What of this bed is on the machine: lines for a reader, none when it is clean.
pub(crate) fn remains(place: &Place) -> Vec<String> {
    let prefix = place.cgroup("");
    let mut lines: Vec<_> =
        process::marked(&place.id, None).iter().map(|process| format!("process {}", process.pid)).collect();
    lines.extend(cgroups(&|name| name.starts_with(&prefix)).iter().map(|dir| format!("cgroup {}", dir.display())));
    if Path::new("/sys/class/net").join(place.link()).exists() {
        lines.push(format!("interface {}", place.link()));
    }
    if place.state.exists() {
        lines.push(format!("folder {}", place.state.display()));
    }
    lines
}

/// Kills until nobody is left: a process may start another between the look and the signal.
fn end_processes(place: &Place, unit: Option<&str>, ours: &dyn Fn(&str) -> bool) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let groups = cgroups(ours);
        let mut left = process::marked(&place.id, unit);
        left.extend(groups.iter().flat_map(|group| members(group)));
        if left.is_empty() && groups.iter().all(|group| remove_cgroup(group)) {
            return Ok(());
        }
        for process in &left {
            process.signal(Signal::KILL)?;
        }
        if Instant::now() > end {
            let pids = left.iter().map(|process| process.pid.to_string()).collect::<Vec<_>>().join(", ");
            bail!(
                "something of the bed does not go away: processes [{pids}], cgroups {groups:?}; run `cargo bed down` again"
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The bed's cgroups: one per cluster in each hierarchy (version 1), or one per cluster (version 2).
fn cgroups(ours: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for hierarchy in folders(Path::new(CGROUPS)) {
        for dir in std::iter::once(hierarchy.clone()).chain(folders(&hierarchy)) {
            if dir.file_name().is_some_and(|name| ours(&name.to_string_lossy())) {
                found.push(dir);
            }
        }
    }
    found
}

fn members(group: &Path) -> Vec<Process> {
    let mut processes = process::in_cgroup(&group.join("cgroup.procs"));
    for child in folders(group) {
        processes.extend(members(&child));
    }
    processes
}

/// Removes a cgroup from its leaves up; false while the kernel still counts someone in it.
fn remove_cgroup(group: &Path) -> bool {
    let children_gone = folders(group).iter().map(|child| remove_cgroup(child)).filter(|gone| !gone).count() == 0;
    children_gone && (std::fs::remove_dir(group).is_ok() || !group.exists())
}

fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}
