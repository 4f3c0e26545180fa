//! `cargo bed bench status`: what is waited for at a prompt: preflight at a distance, completion, and the status of a
//! control plane with a thousand workload clusters.

mod plane;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use fs_err as fs;

use crate::Bed;
use crate::bench::{Cost, compile, milliseconds};
use crate::dev::steps::Steps;
use crate::proxy::Proxy;
use crate::run::output_of;
use crate::say::say;

const LEFT: &str = "a cluster may still run: `cargo bed status` shows it, `cargo bed down` removes it";
/// The API that plays both the hosting cluster's and the control plane's: of a version that hosts the default line.
const CLUSTER: &str = "api-old";
/// The distance of a cluster that is not next door. It is added to every request, not to the making of connections.
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// Registered workload clusters, and nodes of each.
const MEMBERS: usize = 1_000;
const NODES: usize = 10;
/// Runs of each command.
const RUNS: usize = 10;

/// At most so much time, and MiB where it matters.
struct Target {
    wall: Duration,
    peak: Option<f64>,
}

const PREFLIGHT: Target = Target { wall: Duration::from_secs(1), peak: None };
const COMPLETION: Target = Target { wall: Duration::from_millis(300), peak: None };
const STATUS: Target = Target { wall: Duration::from_secs(2), peak: Some(60.0) };

/// Measures command lines that find one kubeconfig, and remembers what missed its target.
struct Measuring<'p> {
    program: &'p Path,
    home: &'p Path,
    missed: Vec<String>,
}

impl Measuring<'_> {
    /// `expected` has to be in what is printed: an error or an empty answer would be quick as well.
    fn row(
        &mut self,
        name: &str,
        kubeconfig: &Path,
        more: &[(&str, &str)],
        arguments: &[&str],
        expected: &str,
        target: &Target,
    ) -> Result<()> {
        let mut environment: Vec<(&str, OsString)> =
            vec![("HOME", self.home.into()), ("KUBECONFIG", kubeconfig.into())];
        environment.extend(more.iter().map(|(name, value)| (*name, OsString::from(value))));
        let mut once = Command::new(self.program);
        once.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        let printed = output_of(&mut once)?;
        if !printed.contains(expected) {
            bail!("{name}: `{expected}` is not in:\n{printed}");
        }
        let cost = Cost::of(RUNS, self.program, arguments, &environment)?;
        let limit = target.peak.map_or_else(String::new, |peak| format!(", {peak:.0} MiB"));
        say(format!(
            "{name:52} {:>8.1} ms {:>8.1} ms {:>7.1} MiB   {:.1} s{limit}",
            milliseconds(cost.wall),
            milliseconds(cost.cpu),
            cost.peak,
            target.wall.as_secs_f64(),
        ));
        if cost.wall > target.wall {
            self.missed.push(format!(
                "{name}: {:.0} ms, not {:.0}",
                milliseconds(target.wall),
                milliseconds(cost.wall)
            ));
        }
        if let Some(peak) = target.peak.filter(|peak| cost.peak > *peak) {
            self.missed.push(format!("{name}: {peak:.0} MiB, not {:.1}", cost.peak));
        }
        Ok(())
    }

    /// What a shell gets after `words`, the last of which is being typed.
    fn completion(&mut self, name: &str, kubeconfig: &Path, words: &[&str], expected: &str) -> Result<()> {
        let at = (words.len() - 1).to_string();
        let asking = [("FLEET_COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", at.as_str()), ("_CLAP_IFS", "\n")];
        let arguments = [&["--"], words].concat();
        self.row(&format!("completion of {name}"), kubeconfig, &asking, &arguments, expected, &COMPLETION)
    }
}

/// The steps, in order.
pub(crate) fn run(bed: &Bed, profile: &str) -> Result<()> {
    let mut steps = Steps::new(LEFT);
    let build = format!("build fleetctl with the profile `{profile}`");
    let program = steps.run(&build, || compile(bed, profile, &["--bin", "fleetctl"]))?;
    steps.run(&format!("start the cluster `{CLUSTER}`, empty"), || {
        bed.down(&[CLUSTER])?;
        bed.up(&[CLUSTER])
    })?;
    let home = tempfile::tempdir()?;
    fs::create_dir_all(home.path().join(".fleet/demo"))?;
    let mut measuring = Measuring { program: &program, home: home.path(), missed: Vec::new() };
    let proxy = Proxy::start(bed, CLUSTER)?;
    proxy.set_round_trip(ROUND_TRIP);
    let (near, far) = (bed.kubeconfig(CLUSTER)?, proxy.kubeconfig());
    plane::acceptable(bed, CLUSTER)?;
    say(format!(
        "\n{:52} {:>11} {:>11} {:>11}   {}",
        format!("median of {RUNS} runs"),
        "wall",
        "CPU",
        "peak",
        "target"
    ));
    let distance = format!("{} ms away", ROUND_TRIP.as_millis());
    let preflight = ["check", "--pre"];
    measuring.row(&format!("check --pre, {distance}"), &far, &[], &preflight, "StorageClass", &PREFLIGHT)?;
    measuring.completion("contexts", &near, &["fleetctl", "status", "--context", ""], CLUSTER)?;
    measuring.completion("control planes", &near, &["fleetctl", "status", ""], "demo")?;
    measuring.completion("versions", &near, &["fleetctl", "install", "cp", "demo", "--version", ""], "v1.1")?;
    measuring.completion("paths of values", &near, &["fleetctl", "install", "cp", "demo", "--set", ""], "etcd.")?;

    let made = format!("make a control plane with {MEMBERS} workload clusters of {NODES} nodes");
    steps.run(&made, || plane::make(bed, CLUSTER, &program, home.path(), MEMBERS, NODES))?;
    let last = plane::member(MEMBERS - 1);
    let clusters = ["fleetctl", "get", "clusters", ""];
    measuring.completion("workload clusters", &near, &clusters, &last)?;
    measuring.completion(&format!("workload clusters, {distance}"), &far, &clusters, &last)?;
    let connected = format!("{MEMBERS} connected and ready");
    measuring.row("status", &near, &[], &["status", "demo"], "is healthy", &STATUS)?;
    measuring.row("check", &near, &[], &["check", "demo"], &connected, &STATUS)?;
    measuring.row("status -o json", &near, &[], &["status", "demo", "-o", "json"], &last, &STATUS)?;
    measuring.row(
        &format!("status -o wide, {distance}"),
        &far,
        &[],
        &["status", "demo", "-o", "wide"],
        &last,
        &STATUS,
    )?;
    plane::lose(bed, CLUSTER, MEMBERS)?;
    measuring.row("status, half of them lost", &near, &[], &["status", "demo"], "ClusterHeartbeatLost", &STATUS)?;

    say(if measuring.missed.is_empty() { "\nevery target is met" } else { "\nmissed:" });
    for target in &measuring.missed {
        say(format!("  {target}"));
    }
    bed.down(&[CLUSTER])?;
    steps.summary();
    Ok(())
}
