//! `cargo bed bench`: measurements against kubectl and Helm, side by side in one run.

pub(crate) mod apply;
pub(crate) mod decide;
pub(crate) mod fit;
pub(crate) mod place;
pub(crate) mod render;
pub(crate) mod scale;
pub(crate) mod status;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::Bed;
use crate::dev::steps::Steps;
use crate::parts::product::{DAEMONS, executables};
use crate::run::{cargo, output_of};
use crate::say::say;

const LEFT: &str = "clusters may still run: `cargo bed status` shows them, `cargo bed down` removes everything";
/// Runs of a command that ends at once.
const QUICK: usize = 30;
/// The real chart without a cluster, which has to be told where its API will be.
pub(crate) const TEMPLATE: [&str; 9] = [
    "template",
    "control-plane",
    "demo",
    "--set",
    "exposure.type=NodePort",
    "--set",
    "exposure.host=192.0.2.1",
    "--set",
    "exposure.port=32222",
];
/// Installs of each kind.
const INSTALLS: usize = 3;

/// What one way of doing a thing costs: medians over its runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// The largest resident set of any run, in MiB.
    pub(crate) peak: f64,
}

fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort();
    values[values.len() / 2]
}

/// Runs a command some times and prints what it cost; this process has no other children.
///
/// It is a program of its own (`cargo bed measure`), because the peak of memory is kept for all children together.
pub(crate) fn measure(runs: usize, command: &[String]) -> Result<()> {
    let [program, arguments @ ..] = command else { bail!("no command to measure") };
    let usage = || getrusage(UsageWho::RUSAGE_CHILDREN).context("the kernel tells no usage");
    let (mut walls, mut cpus) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let before = usage()?;
        let began = Instant::now();
        let mut run = Command::new(program);
        run.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        // The kernel counts what a process was before its exec. Setting a user, even the same, makes the library fork
        // instead of sharing this program's memory until then, and a fork begins with little of it.
        run.uid(rustix::process::getuid().as_raw());
        let ended = run.status()?;
        walls.push(began.elapsed().as_micros());
        let after = usage()?;
        let micros =
            |u: &nix::sys::resource::Usage| u.user_time().num_microseconds() + u.system_time().num_microseconds();
        cpus.push(micros(&after) - micros(&before));
        if !ended.success() {
            bail!("`{}` ended with {ended}", command.join(" "));
        }
    }
    say(format!("measured {} {} {}", median(walls), median(cpus), usage()?.max_rss()));
    Ok(())
}

impl Cost {
    /// Measures a command line by [`measure`] in a process of its own.
    pub(crate) fn of(
        runs: usize,
        command: &Path,
        arguments: &[&str],
        environment: &[(&str, OsString)],
    ) -> Result<Self> {
        let mut measuring = Command::new(std::env::current_exe()?);
        measuring.arg("measure").arg(runs.to_string()).arg("--").arg(command).args(arguments);
        measuring.envs(environment.iter().map(|(name, value)| (name, value.clone()))).stderr(Stdio::piped());
        let output = measuring.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find_map(|line| line.strip_prefix("measured "));
        let Some(line) = line.filter(|_| output.status.success()) else { bail!("{}: {text}", command.display()) };
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [wall, cpu, peak] = numbers[..] else { bail!("`{line}` is no measurement") };
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        let peak = peak as f64 / 1024.0;
        Ok(Self { wall: Duration::from_micros(wall), cpu: Duration::from_micros(cpu), peak })
    }
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A row, and the ratios to the peer.
fn row(name: &str, cost: Cost, peer: Cost) {
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    say(format!(
        "{name:42} {:>9.1} ms ({:>5.2}×) {:>8.1} ms ({:>5.2}×) {:>7.1} MiB ({:>5.2}×)",
        milliseconds(cost.wall),
        ratio(cost.wall, peer.wall),
        milliseconds(cost.cpu),
        ratio(cost.cpu, peer.cpu),
        cost.peak,
        cost.peak / peer.peak,
    ));
}

/// The steps, in order.
pub(crate) fn run(bed: &Bed) -> Result<()> {
    let mut steps = Steps::new(LEFT);
    let fleetctl = steps.run("build fleetctl as users get it", || build(bed))?;
    steps.run("build the images of this project", || bed.images("release", &["v0.6.1".to_owned()]).map(drop))?;
    let helm = steps.run("build Helm", || bed.helm())?;
    let kubectl = bed.kubectl_path()?;
    // Not that of the demo: `template` makes no keys beside those of a control plane that was installed from there.
    let home = bed.home().join("bench");
    fs::create_dir_all(&home)?;

    say(format!("\n{:42} {:>21} {:>20} {:>20}", format!("median of {QUICK} runs"), "wall", "CPU", "peak memory"));
    // A cluster that has just begun takes a core for a while, so what needs none is measured before.
    let alone = [("HOME", home.clone().into_os_string())];
    let peer = Cost::of(QUICK, &kubectl, &["version", "--client"], &alone)?;
    row("kubectl version --client", peer, peer);
    row("fleetctl --version", Cost::of(QUICK, &fleetctl, &["--version"], &alone)?, peer);
    row("fleetctl template control-plane", Cost::of(QUICK, &fleetctl, &TEMPLATE, &alone)?, peer);

    steps.run("start the cluster `host`", || bed.up(&["host"]))?;
    let environment =
        [("HOME", home.clone().into_os_string()), ("KUBECONFIG", bed.kubeconfig("host")?.into_os_string())];
    let host = format!("exposure.host={}", bed.node_ip("host")?);
    let values = ["--set", "exposure.type=NodePort", "--set", "exposure.port=32222", "--set", &host];
    let template = [&["template", "control-plane", "demo"], &values[..]].concat();
    let manifests = home.join("manifests.yaml");
    fs::write(&manifests, output_of(command(&fleetctl, &environment).args(&template))?)?;
    let chart = chart(&home, &manifests)?;
    let (mut ours, mut theirs, mut helms) = (Vec::new(), Vec::new(), Vec::new());
    // Once to warm the node, not counted; then in turn, so that a drift of the machine meets both.
    for round in 0..=INSTALLS {
        let install = [&["install", "control-plane", "demo"], &values[..]].concat();
        let cost = Cost::of(1, &fleetctl, &install, &environment)?;
        output_of(command(&fleetctl, &environment).args(["uninstall", "cp", "demo", "--delete-data", "--yes"]))?;
        let applied = apply_at_once(bed, &kubectl, &manifests, &environment)?;
        bed.kubectl("host", &["delete", "namespace", "fleet", "--wait=true"])?;
        let released = helm_install(&helm, &chart, &environment)?;
        bed.kubectl("host", &["delete", "namespace", "fleet", "--wait=true", "--ignore-not-found"])?;
        if round > 0 {
            ours.push(cost);
            theirs.push(applied);
            helms.push(released);
        }
    }
    let of = |costs: &[Cost], which: fn(&Cost) -> Duration| median(costs.iter().map(which).collect());
    let (wall, applied, released) = (of(&ours, |cost| cost.wall), median(theirs), median(helms));
    let cpu = of(&ours, |cost| cost.cpu);
    say(format!("\nto a healthy control plane, median of {INSTALLS} installs in turn on a warm node"));
    say(format!("{:42} {:>9.1} s (1.00×)", "kubectl apply at once, then a poll", applied.as_secs_f64()));
    say(format!(
        "{:42} {:>9.1} s ({:.2}×)",
        "helm install --wait",
        released.as_secs_f64(),
        released.as_secs_f64() / applied.as_secs_f64()
    ));
    say(format!(
        "{:42} {:>9.1} s ({:.2}×), own CPU {:.0} ms, {:.1} % of the wall time",
        "fleetctl install control-plane",
        wall.as_secs_f64(),
        wall.as_secs_f64() / applied.as_secs_f64(),
        milliseconds(cpu),
        100.0 * cpu.as_secs_f64() / wall.as_secs_f64(),
    ));
    steps.summary();
    Ok(())
}

/// The program as users get it.
pub(crate) fn build(bed: &Bed) -> Result<PathBuf> {
    compile(bed, "release", &["--bin", "fleetctl"])
}

/// A program of this project, compiled with a profile of Cargo.toml.
pub(crate) fn compile(bed: &Bed, profile: &str, target: &[&str]) -> Result<PathBuf> {
    let mut cargo = cargo(bed.checkout());
    cargo.args(["build", "--profile", profile, "--package", "fleetctl"]).args(DAEMONS).args(target);
    executables(&output_of(cargo.arg("--message-format=json-render-diagnostics"))?).pop().context("cargo built nothing")
}

fn command(program: &Path, environment: &[(&str, OsString)]) -> Command {
    let mut command = Command::new(program);
    command.envs(environment.iter().map(|(name, value)| (name, value.clone()))).stdin(Stdio::null());
    command
}

/// The time from `kubectl apply` of all objects until every workload is ready and the definitions are there.
fn apply_at_once(bed: &Bed, kubectl: &Path, manifests: &Path, environment: &[(&str, OsString)]) -> Result<Duration> {
    let began = Instant::now();
    output_of(command(kubectl, environment).arg("apply").arg("--filename").arg(manifests))?;
    let workloads = [
        "statefulset/etcd",
        "deployment/apiserver",
        "deployment/kube-controller-manager",
        "deployment/fleet-scheduler",
    ];
    for workload in workloads {
        bed.kubectl("host", &["--namespace", "fleet", "rollout", "status", workload, "--timeout=180s"])?;
    }
    Ok(began.elapsed())
}

/// A chart of Helm's whose templates are the objects as they are.
fn chart(home: &Path, manifests: &Path) -> Result<PathBuf> {
    let chart = home.join("helm-chart");
    fs::create_dir_all(chart.join("templates"))?;
    fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: control-plane\nversion: 1.0.0\n")?;
    fs::copy(manifests, chart.join("templates/all.yaml"))?;
    Ok(chart)
}

/// The time of `helm install --wait`. The release is removed, and all that Helm removes with it.
fn helm_install(helm: &Path, chart: &Path, environment: &[(&str, OsString)]) -> Result<Duration> {
    // The objects hold their namespace, which does not exist yet; the release is kept in another one.
    let helm = || {
        let mut helm = command(helm, environment);
        helm.args(["--namespace", "default"]);
        helm
    };
    let began = Instant::now();
    output_of(helm().args(["install", "demo", "--wait"]).arg(chart))?;
    let wall = began.elapsed();
    output_of(helm().args(["uninstall", "demo", "--wait"]))?;
    Ok(wall)
}
