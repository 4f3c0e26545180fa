//! `cargo bed test`: everything that has to hold, from the format of the sources to installs on real clusters.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::dev::advisories;
use crate::dev::changed::touched;
use crate::dev::steps::{Beside, Steps};
use crate::parts::product::DAEMONS;
use crate::run;
use crate::{Bed, PROFILE, TESTED};

const LEFT: &str = "clusters may still run: `cargo bed status` shows them, `cargo bed down` removes everything";

/// The version of cargo-deny that the configuration was written for.
const DENY: &str = "0.20.2";

/// The test targets that need clusters; plain `cargo test` leaves them out.
pub(super) const ON_CLUSTERS: [&str; 4] = [INSTALL, ENGINE, PACKAGER, RUNTIME];
pub(super) const INSTALL: &str = "install";
pub(super) const ENGINE: &str = "engine";
pub(super) const PACKAGER: &str = "packager";
pub(super) const RUNTIME: &str = "runtime";

/// The clusters that the tests of a target take. They are started together: a test that started one of them would keep the
/// others waiting. One that idles takes 3 to 5 % of a core, so there are none that nobody takes.
fn clusters(target: &str) -> &'static [&'static str] {
    match target {
        INSTALL => &["host", "host-2", "current", "current-2", "member-1", "member-2"],
        ENGINE => &["api-old"],
        RUNTIME => &["plane", "api"],
        // The packager's are those of the engine and of the runtime.
        _ => &["api-old", "plane"],
    }
}

/// The clusters of these targets, each once.
fn clusters_of(targets: &[&str]) -> Vec<&'static str> {
    let mut all: Vec<_> = targets.iter().flat_map(|target| clusters(target)).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// How many tests of a target run side by side. Most of them wait: for pods, for time-outs, for a turn at a cluster.
fn threads(target: &str) -> &'static str {
    match target {
        // One for each hosting cluster, and one that waits for its turn at one of them.
        INSTALL => "5",
        ENGINE => "4",
        // With two, the three targets together keep two cores so busy that tests of the runtime ran out of their two minutes.
        // The runtime has a second pair of servers for those who run it alone; its tests start it.
        _ => "1",
    }
}

/// Parts of those targets that take many minutes, because they wait for time-outs or try every case; they run with
/// `cargo bed test --exhaustive`.
const SLOW: [&str; 3] = ["membership::", "faults::", "exhaustive::"];

fn cargo(bed: &Bed, args: &[&str]) -> Command {
    let mut cargo = run::cargo(bed.checkout());
    cargo.args(args);
    cargo
}

/// Arguments that choose these test targets.
fn targets(names: &[&'static str]) -> impl Iterator<Item = &'static str> {
    names.iter().flat_map(|name| ["--test", *name])
}

/// cargo-deny, installed once into the cache.
struct Deny {
    program: PathBuf,
    root: PathBuf,
}

impl Deny {
    fn of(bed: &Bed) -> Self {
        let root = bed.tools().join(format!("cargo-deny-{DENY}"));
        Self { program: root.join("bin/cargo-deny"), root }
    }

    fn is_installed(&self) -> bool {
        self.program.is_file()
    }

    /// What installs it. Its speed does not matter here; an optimised build would take three times as long as all its runs.
    fn install(&self, bed: &Bed) -> Command {
        let wanted = ["install", "--quiet", "--locked", "--debug", "cargo-deny", "--version", DENY, "--root"];
        let mut install = cargo(bed, &wanted);
        run::gently(install.arg(&self.root))
    }

    fn check(&self, bed: &Bed, steps: &mut Steps) -> Result<()> {
        let mut check = Command::new(&self.program);
        check.current_dir(bed.checkout()).args(["--log-level", "error", "check", "licenses", "bans", "sources"]);
        steps.program("licences, bans and sources", &mut check)?;
        advisories::check(steps, &self.program, bed.checkout(), bed.tools().join("advisories"))
    }
}

/// Which tests run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Choice {
    /// Those of [`SLOW`] as well.
    pub(crate) exhaustive: bool,
    /// Only those without a cluster.
    pub(crate) quick: bool,
    /// On clusters, only the targets that the change touches.
    pub(crate) changed: bool,
}

/// The files that differ from `main`, committed or not.
fn changed_files(bed: &Bed) -> Result<String> {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        run::output_of(git.current_dir(bed.checkout()).args(args))
    };
    Ok(git(&["diff", "--name-only", "--merge-base", "main"])? + &git(&["ls-files", "--others", "--exclude-standard"])?)
}

/// The steps, in order. Without root they fail at once, rather than skip what needs a cluster.
pub(crate) fn run(bed: &Bed, choice: Choice, args: &[String]) -> Result<()> {
    if !choice.quick {
        crate::require_root()?;
    }
    let mut steps = Steps::new(LEFT);
    let result = if choice.quick || choice.changed {
        some(bed, choice, args, &mut steps)
    } else {
        all(bed, choice.exhaustive, args, &mut steps)
    };
    steps.summary();
    result
}

/// What a developer runs all day, and the targets on clusters that the change touches, where they are asked for.
fn some(bed: &Bed, choice: Choice, args: &[String], steps: &mut Steps) -> Result<()> {
    without_clusters(bed, steps)?;
    let files = if choice.changed { changed_files(bed)? } else { String::new() };
    let targets = touched(files.lines());
    if targets.is_empty() {
        return Ok(());
    }
    steps.run("build the images of this project", || bed.images(PROFILE, &TESTED.map(str::to_owned)).map(drop))?;
    steps.run("start the clusters", || bed.up(&clusters_of(&targets)))?;
    for target in targets {
        steps.program(&format!("tests on clusters: {target}"), &mut on_clusters(bed, target, false, args))?;
    }
    steps.run("stop the clusters", || bed.down(&[]))
}

/// Format, lints, unit and command-line tests, and the documentation of the code.
fn without_clusters(bed: &Bed, steps: &mut Steps) -> Result<()> {
    steps.program("format", &mut cargo(bed, &["fmt", "--all", "--check"]))?;
    let mut clippy = cargo(bed, &["clippy", "--workspace", "--all-targets", "--quiet"]);
    steps.program("lints", clippy.args(DAEMONS).args(["--", "--deny", "warnings"]))?;
    // `--all-targets` means those that a plain `cargo test` runs.
    let mut clippy = cargo(bed, &["clippy", "--package", "fleetctl", "--quiet"]);
    clippy.args(DAEMONS).args(targets(&ON_CLUSTERS));
    steps.program("lints of the tests on clusters", clippy.args(["--", "--deny", "warnings"]))?;
    let without = ["test", "--package", "fleetctl", "--lib", "--bins"];
    let named = ["--test", "house", "--test", "cli", "--test", "placement"];
    steps.program("tests without a cluster", cargo(bed, &without).args(named).args(DAEMONS))?;
    let mut links = cargo(bed, &["doc", "--package", "fleetctl", "--no-deps", "--document-private-items", "--quiet"]);
    steps.program("links of the documentation", links.args(DAEMONS).env("RUSTDOCFLAGS", "--deny warnings"))?;
    let mut examples = cargo(bed, &["test", "--package", "fleetctl", "--doc", "--quiet"]);
    steps.program("examples of the documentation", examples.args(DAEMONS))
}

/// The command that runs a test target on clusters.
fn on_clusters(bed: &Bed, target: &'static str, exhaustive: bool, args: &[String]) -> Command {
    let mut test = cargo(bed, &["test", "--package", "fleetctl"]);
    test.args(DAEMONS).args(targets(&[target])).args(["--", "--test-threads", threads(target)]);
    if !exhaustive {
        test.args(SLOW.iter().flat_map(|part| ["--skip", part]));
    }
    test.args(args);
    test
}

fn all(bed: &Bed, exhaustive: bool, args: &[String], steps: &mut Steps) -> Result<()> {
    let deny = Deny::of(bed);
    // It is built while the tests of installs wait for pods, and what it says is heard last.
    let deny_later = args.is_empty() && !deny.is_installed();
    if args.is_empty() {
        if deny.is_installed() {
            deny.check(bed, steps)?;
        }
        without_clusters(bed, steps)?;
    }
    steps.run("build what the clusters are made of", || bed.build())?;
    steps.run("build the images of this project", || bed.images(PROFILE, &TESTED.map(str::to_owned)).map(drop))?;
    // All at once, for two builds would wait for one another.
    let mut build = cargo(bed, &["test", "--package", "fleetctl", "--no-run"]);
    steps.program("build the tests on clusters", build.args(DAEMONS).args(targets(&ON_CLUSTERS)))?;
    let tests = |target| (format!("tests on clusters: {target}"), on_clusters(bed, target, exhaustive, args));
    steps.run("start the clusters", || bed.up(&clusters_of(&ON_CLUSTERS)))?;
    // Each has servers of its own, but for the packager.
    let mut beside = vec![Beside::start(vec![tests(ENGINE)])?, Beside::start(vec![tests(PACKAGER), tests(RUNTIME)])?];
    if deny_later {
        beside.push(Beside::start(vec![("licence checker".to_owned(), deny.install(bed))])?);
    }
    let (name, mut test) = tests(INSTALL);
    let outcome = steps.program(&name, &mut test);
    beside.into_iter().fold(outcome, |outcome, beside| outcome.and(steps.join(beside)))?;
    steps.run("stop the clusters", || bed.down(&[]))?;
    if deny_later {
        deny.check(bed, steps)?;
    }
    if exhaustive {
        let own = ["test", "--package", "bed", "--", "--test-threads", "1"];
        steps.program("tests of the bed itself", &mut cargo(bed, &own))?;
    } else {
        let own = ["test", "--package", "bed", "--lib", "--test", "api", "--", "--test-threads", "1"];
        steps.program("tests of the bed itself", &mut cargo(bed, &own))?;
        steps.run("stop the clusters", || bed.down(&[]))?;
        crate::say::say("the tests of many minutes were left out; they run with `cargo bed test --exhaustive`");
    }
    Ok(())
}
