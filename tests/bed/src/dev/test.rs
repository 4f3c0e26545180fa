//! `cargo bed test`: everything that has to hold, from the format of the sources to installs on real clusters.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::dev::advisories;
use crate::dev::changed::touched;
use crate::dev::steps::{Beside, Program, Steps};
use crate::dev::test_times::{Package, TestProgram};
use crate::parts::product::DAEMONS;
use crate::run;
use crate::say::say;
use crate::{Bed, PROFILE, TESTED};

const LEFT: &str = "clusters may still run: `cargo bed status` shows them, `cargo bed down` removes everything";

/// The version of cargo-deny that the configuration was written for.
const DENY: &str = "0.20.2";

/// The unit tests of a package.
const LIB: &str = "lib";
/// The test targets that need no cluster.
const WITHOUT_CLUSTERS: [&str; 4] = [LIB, "house", "cli", "placement"];
/// The test targets that need clusters, or programs that clusters are made of; plain `cargo test` leaves them out.
pub(super) const ON_CLUSTERS: [&str; 5] = [INSTALL, ENGINE, PACKAGER, RUNTIME, ETCD];
pub(super) const INSTALL: &str = "install";
pub(super) const ENGINE: &str = "engine";
pub(super) const PACKAGER: &str = "packager";
pub(super) const RUNTIME: &str = "runtime";
pub(super) const ETCD: &str = "etcd";

/// The clusters that the tests of a target take. They are started together: a test that started one of them would keep the
/// others waiting. One that idles takes 3 to 5 % of a core, so there are none that nobody takes.
fn clusters(target: &str) -> &'static [&'static str] {
    match target {
        INSTALL => &["host", "host-2", "current", "current-2", "member-1", "member-2"],
        ENGINE => &["api-old"],
        RUNTIME => &["plane", "api", "plane-2", "api-2"],
        // It starts members of its own.
        ETCD => &[],
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
        // They run beside no other target: more would starve API servers until requests time out.
        ENGINE => "6",
        ETCD => "4",
        // It has two pairs of servers, and its tests wait much: a scheduler moves nothing in its first minute.
        RUNTIME => "2",
        _ => "1",
    }
}

/// Parts of those targets that take many minutes, because they wait for time-outs or try every case; they run with
/// `cargo bed test --exhaustive`.
const SLOW: [&str; 5] =
    ["membership::", "faults::", "exhaustive::", "placing::leaving::", "what_has_expired_is_brought_back"];

fn cargo(bed: &Bed, args: &[&str]) -> Command {
    let mut cargo = run::cargo(bed.checkout());
    cargo.args(args);
    cargo
}

const FLEETCTL: Package = Package { name: "fleetctl", folder: "", features: &DAEMONS };
// This package does not have the feature; cargo refuses unknown ones.
const BED: Package = Package { name: "bed", folder: "tests/bed", features: &[] };

/// The program of a test target.
#[derive(Debug)]
struct Built {
    package: Package,
    /// As cargo calls it; `lib` for the unit tests.
    target: String,
    program: PathBuf,
    /// The root of its package.
    folder: PathBuf,
}

impl Built {
    /// One run of it, with arguments of libtest.
    fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<TestProgram> {
        let mut command = Command::new(&self.program);
        // As cargo starts it.
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", self.package.name);
        TestProgram::new(self.package, &self.target, command, args)
    }
}

/// Builds test targets of a package, in the order in which they are to run.
fn build_tests<'t>(bed: &Bed, package: Package, targets: impl IntoIterator<Item = &'t str>) -> Result<Vec<Built>> {
    let targets: Vec<_> = targets.into_iter().collect();
    let mut build = cargo(bed, &["test", "--package", package.name, "--no-run"]);
    build.arg("--message-format=json-render-diagnostics").args(package.features);
    for target in &targets {
        if *target == LIB {
            build.arg("--lib");
        } else {
            build.args(["--test", target]);
        }
    }
    let messages = run::stdout_of(&mut build)?;
    let built = |target: &&str| {
        let program = test_program(&messages, target).with_context(|| format!("cargo built no tests `{target}`"))?;
        Ok(Built { package, target: (*target).to_owned(), program, folder: bed.checkout().join(package.folder) })
    };
    targets.iter().map(built).collect()
}

/// The program of a test target, of what cargo says that it has built.
fn test_program(messages: &str, target: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut programs =
        messages.filter(|message| message["profile"]["test"] == true && message["executable"].is_string());
    let program = programs.find(|message| {
        let built = &message["target"];
        if target == LIB { built["kind"][0] == LIB } else { built["name"] == target && built["kind"][0] == "test" }
    })?;
    program["executable"].as_str().map(PathBuf::from)
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
    let mut steps = if choice.quick {
        Steps::new("nothing is left behind")
    } else {
        crate::require_root()?;
        Steps::with_clusters()
    };
    let result = if choice.quick || choice.changed {
        some(bed, choice, args, &mut steps)
    } else {
        all(bed, choice.exhaustive, args, &mut steps)
    };
    steps.summary();
    if result.is_err() && !choice.quick {
        say(LEFT);
    }
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
    let programs = steps.run("build the tests on clusters", || build_tests(bed, FLEETCTL, targets.iter().copied()))?;
    let clusters = clusters_of(&targets);
    if !clusters.is_empty() {
        steps.run("build the images of this project", || bed.images(PROFILE, &TESTED.map(str::to_owned)).map(drop))?;
        steps.run("start the clusters", || bed.up(&clusters))?;
    }
    for program in &programs {
        steps.tests(&format!("tests on clusters: {}", program.target), on_clusters(program, false, args)?)?;
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
    clippy.args(DAEMONS).args(ON_CLUSTERS.iter().flat_map(|name| ["--test", *name]));
    steps.program("lints of the tests on clusters", clippy.args(["--", "--deny", "warnings"]))?;
    let programs = steps.run("build the tests without a cluster", || build_tests(bed, FLEETCTL, WITHOUT_CLUSTERS))?;
    for program in &programs {
        steps.tests(&format!("tests without a cluster: {}", program.target), program.run([])?)?;
    }
    let mut links = cargo(bed, &["doc", "--package", "fleetctl", "--no-deps", "--document-private-items", "--quiet"]);
    steps.program("links of the documentation", links.args(DAEMONS).env("RUSTDOCFLAGS", "--deny warnings"))?;
    let mut examples = cargo(bed, &["test", "--package", "fleetctl", "--doc", "--quiet"]);
    steps.program("examples of the documentation", examples.args(DAEMONS))
}

/// The run of a test target on clusters.
fn on_clusters(program: &Built, exhaustive: bool, args: &[String]) -> Result<TestProgram> {
    let skipped = if exhaustive { &[][..] } else { &SLOW[..] };
    let own = ["--test-threads", threads(&program.target)].into_iter();
    program.run(own.chain(skipped.iter().flat_map(|part| ["--skip", part])).chain(args.iter().map(String::as_str)))
}

fn all(bed: &Bed, exhaustive: bool, args: &[String], steps: &mut Steps) -> Result<()> {
    let deny = Deny::of(bed);
    // It is built while the tests of installs wait for pods, and what it says is heard last.
    let deny_later = args.is_empty() && !deny.is_installed();
    // Neither this nor the builds of this project keep two cores busy all the time.
    let parts = Beside::work("build what the clusters are made of", {
        let bed = bed.clone();
        move || bed.build()
    });
    if args.is_empty() {
        if deny.is_installed() {
            deny.check(bed, steps)?;
        }
        without_clusters(bed, steps)?;
    }
    // All at once, for two builds would wait for one another.
    let programs = steps.run("build the tests on clusters", || build_tests(bed, FLEETCTL, ON_CLUSTERS))?;
    steps.run("build the programs for images", || bed.compile(PROFILE))?;
    steps.join(parts)?;
    steps.run("push the images of this project", || bed.images(PROFILE, &TESTED.map(str::to_owned)).map(drop))?;
    let tests = |target: &str| {
        let program = programs.iter().find(|program| program.target == target).context("it was built")?;
        anyhow::Ok((format!("tests on clusters: {target}"), on_clusters(program, exhaustive, args)?))
    };
    let beside = |target: &str| tests(target).map(|(name, tests)| (name, Program::Tests(tests)));
    steps.run("start the clusters", || bed.up(&clusters_of(&ON_CLUSTERS)))?;
    // Those of installs and of the runtime keep two cores busy; the others use one at most, so they come after.
    let mut others = vec![Beside::start(vec![beside(PACKAGER)?, beside(RUNTIME)?])?];
    if deny_later {
        let install = Program::Plain(deny.install(bed));
        others.push(Beside::start(vec![("licence checker".to_owned(), install)])?);
    }
    let mut outcome = Ok(());
    for target in [INSTALL, ETCD, ENGINE] {
        if target == ENGINE {
            outcome = others.drain(..).fold(outcome, |outcome, beside| outcome.and(steps.join(beside)));
        }
        let (name, test) = tests(target)?;
        outcome = outcome.and(steps.tests(&name, test));
        if target == INSTALL {
            // Their nodes would take a part of a core from the others.
            outcome = outcome.and(steps.run("stop the clusters of installs", || bed.down(clusters(INSTALL))));
        }
    }
    outcome?;
    steps.run("stop the clusters", || bed.down(&[]))?;
    if deny_later {
        deny.check(bed, steps)?;
    }
    let own: &[&str] = if exhaustive { &["lib", "api", "leaves_nothing"] } else { &["lib", "api"] };
    let own = steps.run("build the tests of the bed itself", || build_tests(bed, BED, own.iter().copied()))?;
    for program in &own {
        let name = format!("tests of the bed itself: {}", program.target);
        steps.tests(&name, program.run(["--test-threads", "1"])?)?;
    }
    if !exhaustive {
        steps.run("stop the clusters", || bed.down(&[]))?;
        say("the tests of many minutes were left out; they run with `cargo bed test --exhaustive`");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_test_targets_are_found_among_what_cargo_says() {
        let message = |kind: &str, name: &str, test: bool, program: &str| {
            let target = serde_json::json!({"kind": [kind], "name": name});
            serde_json::json!({"target": target, "profile": {"test": test}, "executable": program}).to_string()
        };
        let messages = [
            "   Compiling".to_owned(),
            message("bin", "cli", false, "/bin"),
            message("lib", "fleetctl", true, "/lib"),
            message("test", "cli", true, "/cli"),
        ];
        let find = |target| test_program(&messages.join("\n"), target);
        assert_eq!((find("lib"), find("cli")), (Some("/lib".into()), Some("/cli".into())));
        assert_eq!(find("fleetctl"), None);
    }
}
