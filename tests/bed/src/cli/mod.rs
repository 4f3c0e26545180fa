//! The command line of `cargo bed`.

mod fault;
mod status;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};

use crate::dev::steps::{Interrupted, end_programs, on_interrupt, stop_if_interrupted};
use crate::dev::{demo, goldens, newcomer, pictures, release, released, test};
use crate::say::{print, say};
use crate::{Bed, Unfit, bench};

const ABOUT: &str = "Real Kubernetes clusters on this machine, for this checkout

The clusters are those of tests/bed/clusters.yaml. Their programs are built from source into a cache that all
checkouts share, their images come from a registry of the bed's own, and nothing they do leaves the machine.
It needs Linux, root, Go, a C compiler and a few packages, which it installs on Debian and names elsewhere.";

/// What Ctrl-C leaves.
pub(crate) const LEFT: &str = "clusters may still run: `cargo bed status` shows them, `cargo bed up` goes on, `cargo bed down` removes everything";

const EXAMPLES: &str = "Examples:
  cargo bed up host member-1                  two clusters with a node each
  cargo bed kubectl host -- get pods -A       look around
  export KUBECONFIG=$(cargo bed kubeconfig host)
  cargo bed down                              leave nothing on the machine
  cargo bed clean                             give the cache's disk back";

#[derive(Debug, Parser)]
#[command(name = "cargo bed", bin_name = "cargo bed", about = ABOUT, after_help = EXAMPLES, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Start clusters and wait until they are ready; whatever is missing is built or installed first
    Up {
        /// Names from tests/bed/clusters.yaml; without any, `host`
        names: Vec<String>,
    },
    /// Stop clusters and leave nothing of them on this machine
    Down {
        /// Without any, the whole bed
        names: Vec<String>,
    },
    /// Show the clusters, and how much disk the bed takes
    Status,
    /// Print the path of a cluster's kubeconfig; its context has the cluster's name
    Kubeconfig {
        /// The cluster
        name: String,
    },
    /// Run kubectl, of the cluster's own version, as its administrator
    Kubectl {
        /// The cluster
        name: String,
        /// What kubectl is told
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Open a shell whose kubectl talks to a cluster
    Shell {
        /// The cluster
        name: String,
    },
    /// Print the log of a component
    Logs {
        /// The cluster, or `hub`
        name: String,
        /// etcd, kube-apiserver, kubelet …; in `hub`, registry
        component: String,
        /// Go on as the log grows
        #[arg(short, long)]
        follow: bool,
    },
    /// Put an image into the bed's registry, under its own name
    Load {
        /// A docker-archive, as `docker save` or `buildah push … docker-archive:FILE` write it
        archive: PathBuf,
    },
    /// Build the images of fleet-scheduler and fleet-agent and put them into the bed's registry
    Images {
        /// A profile of Cargo.toml: dev shares all with the tests, release is what users get
        #[arg(long, default_value = crate::PROFILE)]
        profile: String,
        /// The tags, each for both images
        #[arg(long = "tag", value_name = "TAG", default_value = "v0.6.1", value_delimiter = ',')]
        tags: Vec<String>,
    },
    /// Build everything that the cache lacks, and start nothing
    Build,
    /// Give the cache's disk back
    Clean,
    /// A control plane in a real cluster, from nothing, and what to do with it
    Demo {
        /// Draw what the commands print into this SVG file
        #[arg(long, value_name = "FILE")]
        picture: Option<std::path::PathBuf>,
    },
    /// Follow the README in a clean clone with an empty home, to a registered workload cluster, and time each line
    Newcomer {
        /// With empty caches too, as on a new machine: everything is fetched and built
        #[arg(long)]
        cold: bool,
        /// Without a checkout and Rust: in an empty Debian, from a folder that `cargo bed release --images` has filled
        #[arg(long, value_name = "FOLDER", conflicts_with = "cold")]
        released: Option<PathBuf>,
    },
    /// Draw a terminal in which an install is at work, and the same when it has failed, for the README
    Pictures {
        /// The folder that gets `install.svg`, `status.svg`, `why.svg` and `failed-install.svg`
        #[arg(default_value = "examples")]
        folder: PathBuf,
    },
    /// All tests, on real clusters
    Test {
        /// Also the tests that wait for time-outs or try every case, of many minutes
        #[arg(long)]
        exhaustive: bool,
        /// Format, lints, unit and command-line tests only; needs neither root nor a cluster
        #[arg(long, conflicts_with = "exhaustive")]
        quick: bool,
        /// After those, on clusters only the targets that a change touches, by its rooms: what differs from `main`,
        /// committed or not
        #[arg(long, conflicts_with_all = ["exhaustive", "quick"])]
        changed: bool,
        /// Handed to cargo test
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Write every golden file anew: rendered charts, schemas, error texts
    Goldens,
    /// Build the files of a release: programs, archives, their sums, and the script that installs them
    Release(release::Args),
    /// Measure against peers, in one run
    Bench {
        /// `install` beside kubectl; `apply`, the engine alone, beside kubectl and Helm; `render` beside Helm; `crowd`,
        /// many agents on one control plane; `decide`, where groups go; `fit`, whether a real kube-scheduler binds what has room; `place`, from an object to its copy; `status`, what is waited for at a prompt
        #[arg(value_enum, default_value = "install")]
        what: Benchmark,
        /// For `apply`: these numbers of objects instead of the usual ones
        #[arg(long, value_name = "N", value_delimiter = ',')]
        objects: Vec<usize>,
        /// For `apply`: these round-trip times instead of the usual ones, in milliseconds
        #[arg(long, value_name = "MS", value_delimiter = ',')]
        round_trips: Vec<u64>,
        /// For `render`, `decide`, `fit`, `place` and `status`: a profile of Cargo.toml. release is what users get, e2e is quick to build
        #[arg(long, default_value = "release")]
        profile: String,
        /// For `crowd`: how many agents, one run each
        #[arg(long, value_name = "N", default_value = "10,100", value_delimiter = ',')]
        agents: Vec<usize>,
        /// For `fit`: how many groups at each fill
        #[arg(long, value_name = "N", default_value_t = 200)]
        groups: usize,
        /// For `crowd`: how long all are watched in quiet
        #[arg(long, default_value_t = 2.0)]
        minutes: f64,
    },
    /// Measure one command; the benchmark runs this
    #[command(hide = true)]
    Measure {
        /// How often it runs
        runs: usize,
        /// The command
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Break something on purpose, and mend it
    #[command(hide = true)]
    Fault {
        #[command(subcommand)]
        fault: fault::Fault,
    },
    /// Give addresses to a cluster's Services
    #[command(hide = true)]
    LoadBalancer {
        /// The cluster
        name: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    Install,
    Apply,
    Render,
    Crowd,
    Decide,
    Fit,
    Place,
    Status,
}

/// Runs the command line; 0 for success, 2 for what the caller has to mend first, 1 for everything else.
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            stop_if_interrupted();
            // What ran beside the step that failed.
            end_programs();
            say(format!("error: {error:#}"));
            ExitCode::from(if error.is::<Unfit>() { 2 } else { 1 })
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    let bed = Bed::here()?;
    match task {
        Task::Up { names } => {
            on_interrupt(Interrupted::Say(LEFT));
            bed.up(&or_host(&names))?;
        }
        Task::Down { names } => bed.down(&words(&names))?,
        Task::Status => status::print_status(&bed)?,
        Task::Kubeconfig { name } => print(bed.kubeconfig(&name)?.display().to_string()),
        Task::Kubectl { name, args } => return kubectl(&bed, &name, &args),
        Task::Shell { name } => return shell(&bed, &name),
        Task::Logs { name, component, follow } => return logs(&bed, &name, &component, follow),
        Task::Load { archive } => bed.load(&archive)?.iter().for_each(print),
        Task::Images { profile, tags } => bed.images(&profile, &tags)?.iter().for_each(print),
        Task::Build => bed.build()?,
        Task::Clean => say(format!("{} given back", status::size(bed.clean()?))),
        Task::Demo { picture } => demo::run(&bed, picture.as_deref())?,
        Task::Newcomer { released: Some(release), .. } => released::run(&bed, &release)?,
        Task::Newcomer { cold, .. } => newcomer::run(&bed, cold)?,
        Task::Pictures { folder } => pictures::run(&bed, &folder)?,
        Task::Test { exhaustive, quick, changed, args } => {
            test::run(&bed, test::Choice { exhaustive, quick, changed }, &args)?;
        }
        Task::Goldens => goldens::write(&bed)?,
        Task::Release(args) => release::make(bed.checkout(), &args)?,
        Task::Bench { what: Benchmark::Install, .. } => bench::run(&bed)?,
        Task::Bench { what: Benchmark::Apply, objects, round_trips, .. } => {
            bench::apply::run(&bed, &objects, &round_trips)?;
        }
        Task::Bench { what: Benchmark::Render, profile, .. } => bench::render::run(&bed, &profile)?,
        Task::Bench { what: Benchmark::Crowd, agents, minutes, .. } => bench::scale::run(&bed, &agents, minutes)?,
        Task::Bench { what: Benchmark::Decide, profile, .. } => bench::decide::run(&bed, &profile)?,
        Task::Bench { what: Benchmark::Fit, groups, profile, .. } => bench::fit::run(&bed, groups, &profile)?,
        Task::Bench { what: Benchmark::Place, profile, .. } => bench::place::run(&bed, &profile)?,
        Task::Bench { what: Benchmark::Status, profile, .. } => bench::status::run(&bed, &profile)?,
        Task::Measure { runs, command } => bench::measure(runs, &command)?,
        Task::Fault { fault } => fault::run(&bed, fault)?,
        Task::LoadBalancer { name } => crate::cluster::load_balancer::serve(&bed.cluster(&name)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn kubectl(bed: &Bed, name: &str, args: &[String]) -> Result<ExitCode> {
    let kubeconfig = bed.kubeconfig(name)?;
    become_program(Command::new(bed.kubectl_of(name)?).arg("--kubeconfig").arg(kubeconfig).args(args))
}

fn shell(bed: &Bed, name: &str) -> Result<ExitCode> {
    let kubeconfig = bed.kubeconfig(name)?;
    let kubectl = bed.kubectl_of(name)?;
    let own = kubectl.parent().context("kubectl is in a folder")?.to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&path)))?;
    say(format!("a shell for cluster `{name}`; leave it with `exit`"));
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    become_program(Command::new(shell).env("KUBECONFIG", kubeconfig).env("PATH", path))
}

fn logs(bed: &Bed, name: &str, component: &str, follow: bool) -> Result<ExitCode> {
    let unit = bed.unit(name)?;
    unit.record(component)?;
    let mut tail = Command::new("tail");
    tail.args(["-n", "+1"]);
    if follow {
        tail.arg("--follow");
    }
    become_program(tail.arg(unit.log(component)))
}

/// Goes on as another program, which so gets the terminal, the signals and the exit code.
fn become_program(command: &mut Command) -> Result<ExitCode> {
    let error = command.exec();
    bail!("cannot run {}: {error}", command.get_program().display())
}

fn words(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn or_host(names: &[String]) -> Vec<&str> {
    if names.is_empty() { vec!["host"] } else { words(names) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
