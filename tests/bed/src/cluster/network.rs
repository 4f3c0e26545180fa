//! The bed's own network: one hub with a bridge, one namespace per cluster, one cable to the machine.
//!
//! ```text
//! machine ── fb<id> ══ host ┐
//!                           br0 (hub) ┬─ c11 ══ eth0  (cluster, 10.200.X.11)
//!             10.200.X.1    10.200.X.2└─ c12 ══ eth0  (cluster, 10.200.X.12)
//! ```
//!
//! Each namespace belongs to a sleeping process, its *holder*, and so does a mount namespace in which the usual
//! places (/var/lib, /var/log, /run) are folders of the cluster. Nothing is pinned by name, so when the processes
//! are gone the kernel takes namespaces, cables, bridge, iptables rules and mounts away by itself.
//! The bridge is not in the machine's namespace, so the machine's firewall has no say between clusters.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fs_err as fs;

use crate::cluster::process::{Record, State, Supervisor};
use crate::parts::cache::Cache;
use crate::place::Place;
use crate::run;
use crate::say::say;

/// The machine's own address, the last part of 10.200.X.1.
pub(crate) const MACHINE: u8 = 1;
/// The hub's, where the registry listens.
pub(crate) const HUB: u8 = 2;
/// The first cluster's; its place in the file is added.
pub(crate) const FIRST_CLUSTER: u8 = 11;

/// How many inotify instances of one user there may be; a node with its API uses 17, and a new kernel allows 128 in all.
const WATCHES: u32 = 1024;

/// Lets as many clusters run as the memory has room for. Kubelets end where the machine has too few inotify instances.
pub(crate) fn allow_watches() -> Result<()> {
    let file = "/proc/sys/fs/inotify/max_user_instances";
    let allowed: u32 = fs::read_to_string(file)?.trim().parse()?;
    if allowed < WATCHES && fs::write(file, WATCHES.to_string()).is_err() {
        say(format!("{file} is {allowed} and cannot be changed here; with many clusters, kubelets will not start"));
    }
    Ok(())
}

/// An address of the bed.
pub(crate) fn address(subnet: u8, last: u8) -> String {
    format!("10.200.{subnet}.{last}")
}

/// Starts the process that holds a unit's namespaces, and waits until they are furnished.
pub(crate) fn hold(unit: &Supervisor, cache: &Cache) -> Result<i32> {
    let ready = unit.dir.join("holder.ready");
    if unit.state("holder") == State::Stopped {
        if ready.exists() {
            fs::remove_file(&ready)?;
        }
        for folder in ["var/lib", "var/log", "cache"] {
            fs::create_dir_all(unit.dir.join(folder))?;
        }
        fs::create_dir_all(cache.root())?;
        // The cache is bound before /var/lib is covered: a user's home may be in there.
        let script = "set -e
            mount --bind \"$2\" \"$1/cache\"
            mount --bind \"$1/var/lib\" /var/lib
            mount --bind \"$1/var/log\" /var/log
            mount -t tmpfs -o mode=0755 tmpfs /run
            mkdir -p /run/lock
            mount --make-rshared /
            : > \"$1/holder.ready\"
            exec sleep infinity";
        let argv = ["unshare", "--mount", "--net", "--propagation", "private", "--", "sh", "-c", script, "holder"];
        let mut argv: Vec<_> = argv.map(str::to_owned).into();
        argv.push(unit.dir.display().to_string());
        argv.push(cache.root().display().to_string());
        unit.start("holder", Record { argv, env: BTreeMap::new(), inside: false, process: None })?;
    }
    let end = Instant::now() + Duration::from_secs(10);
    while !ready.exists() {
        if unit.state("holder") == State::Stopped || Instant::now() > end {
            let log = fs::read_to_string(unit.log("holder")).unwrap_or_default();
            bail!("cannot make the namespaces of `{}`: {}", unit.unit, run::last_lines(&log, 5));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(unit.record("holder")?.process.map_or(0, |process| process.pid))
}

/// The bridge, and the cable to the machine.
pub(crate) fn build_hub(place: &Place, hub: i32, subnet: u8) -> Result<()> {
    let link = place.link();
    if Path::new("/sys/class/net").join(&link).exists() {
        return Ok(());
    }
    let address = address(subnet, HUB);
    inside(
        hub,
        &format!(
            "ip link set lo up
             ip link show br0 >/dev/null 2>&1 || ip link add br0 type bridge
             ip addr replace {address}/24 dev br0
             ip link set br0 up
             {}",
            set("net/bridge/bridge-nf-call-iptables", 0)
        ),
    )?;
    run::line(&format!("ip link add {link} type veth peer name host netns {hub}"))?;
    inside(hub, "ip link set host master br0 up")?;
    let machine = self::address(subnet, MACHINE);
    run::line(&format!("ip addr add {machine}/24 dev {link}"))?;
    run::line(&format!("ip link set {link} up"))?;
    // Nothing of the bed is forwarded out of this machine, even if the machine is a router.
    let _ = fs::write(format!("/proc/sys/net/ipv4/conf/{link}/forwarding"), "0");
    Ok(())
}

/// Plugs a cluster into the hub.
pub(crate) fn join(hub: i32, cluster: i32, subnet: u8, last: u8) -> Result<()> {
    // The cable of a cluster that was just taken away may still wait for the kernel to collect it.
    inside(hub, &format!("ip link del c{last} 2>/dev/null || true"))?;
    run::line(&format!("ip link add name c{last} netns {hub} type veth peer name eth0 netns {cluster}"))?;
    inside(hub, &format!("ip link set c{last} master br0 up"))?;
    let (own, machine) = (address(subnet, last), address(subnet, MACHINE));
    inside(
        cluster,
        &format!(
            "ip link set lo up
             ip addr add {own}/24 dev eth0
             ip link set eth0 up
             ip route add default via {machine}
             {}
             {}",
            set("net/ipv4/ip_forward", 1),
            set("net/bridge/bridge-nf-call-iptables", 1)
        ),
    )?;
    Ok(())
}

/// A kernel setting of the namespace; one that this kernel does not have is not needed either.
fn set(key: &str, value: u8) -> String {
    format!("[ ! -e /proc/sys/{key} ] || echo {value} > /proc/sys/{key}")
}

/// Runs a shell script in a network namespace, stopping at its first error.
/// Not `ip netns exec`: that remounts /sys, which hides the cgroups.
pub(crate) fn inside(holder: i32, script: &str) -> Result<String> {
    run::output("nsenter", &["--target", &holder.to_string(), "--net", "--", "sh", "-ec", script])
}
