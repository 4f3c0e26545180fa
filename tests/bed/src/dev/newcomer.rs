//! `cargo bed newcomer`: the ways of somebody who has the README and nothing else, timed line by line: without a cluster, with
//! clusters of their own (which are the bed's), and from a Git repository.
//!
//! It works in a clone of the last commit with an empty home. Cargo's and the bed's caches stay those of this machine
//! unless all is to begin cold.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::dev::steps::Steps;
use crate::run::find;
use crate::say::{say, seconds};
use crate::{Bed, TESTED};

const LEFT: &str = "the clone above and its clusters may be left: `cargo bed down` in it stops them";

/// The sections that are followed.
const INSTALL: &str = "## Install";
const WITHOUT_CLUSTER: &str = "## Quick start";
const OWN_CLUSTERS: &str = "## On your own clusters";
const FROM_GIT: &str = "## From Git";

/// The line that the README names, for current clusters, and the one for the bed's.
const LINES: [&str; 2] = ["--version v1.2", "--version v0.7"];

/// The steps, in order; `cold` gives the newcomer empty caches, so that everything is fetched and built.
pub(crate) fn run(bed: &Bed, cold: bool) -> Result<()> {
    let mut steps = Steps::new(LEFT);
    let folder = tempfile::tempdir()?;
    let newcomer = Newcomer::new(folder.path(), cold)?;
    say(format!("a clone in {}", newcomer.checkout.display()));
    let told = follow(bed, &newcomer, &mut steps);
    let stopped = steps.run("stop the newcomer's clusters", || newcomer.bash("cargo bed down").map(drop));
    steps.summary();
    for (line, took) in told? {
        say(format!("{:>9}  {line}", seconds(took)));
    }
    stopped
}

/// Does what the README says; returns its lines and how long each took.
fn follow(bed: &Bed, newcomer: &Newcomer, steps: &mut Steps) -> Result<Vec<(String, Duration)>> {
    let checkout = newcomer.checkout.display().to_string();
    let from = bed.checkout().display().to_string();
    steps.run("clone the last commit", || {
        crate::run::output("git", &["clone", "--quiet", "--no-hardlinks", &from, &checkout])
    })?;
    let readme = fs::read_to_string(newcomer.checkout.join("README.md"))?;
    let mut told =
        steps.run("README: without a cluster", || newcomer.lines(&block(&readme, WITHOUT_CLUSTER)?, READY))?;
    steps.run("a newcomer with clusters of their own (not in the README's time)", || newcomer.own_clusters(bed))?;
    let own = block(&readme, INSTALL)? + &block(&readme, OWN_CLUSTERS)?;
    let own = own.replace("HOSTING-CONTEXT", "host").replace("WORKLOAD-CONTEXT", "member-1");
    told.extend(steps.run("README: with clusters of their own", || newcomer.lines(&own, READY))?);
    let git = block(&readme, FROM_GIT)?.replace("HOSTING-CONTEXT", "host").replace(LINES[0], LINES[1]);
    told.extend(steps.run("README: from a Git repository", || newcomer.lines(&git, HEALTHY))?);
    Ok(told)
}

/// A word that lines have to print at the end, and what it says.
type Proof = (&'static str, &'static str);
const READY: Proof = ("True", "a workload cluster is ready");
const HEALTHY: Proof = ("healthy", "the control plane is healthy");

/// The first console block of a section.
fn block(readme: &str, section: &str) -> Result<String> {
    let (_, rest) = readme.split_once(section).with_context(|| format!("the README has no section `{section}`"))?;
    let (_, rest) = rest.split_once("```console\n").with_context(|| format!("`{section}` names no command"))?;
    let (block, _) = rest.split_once("```").with_context(|| format!("`{section}` has a block without an end"))?;
    Ok(block.to_owned())
}

/// Somebody with an empty home.
struct Newcomer {
    home: PathBuf,
    checkout: PathBuf,
    environment: Vec<(&'static str, std::ffi::OsString)>,
}

impl Newcomer {
    fn new(folder: &Path, cold: bool) -> Result<Self> {
        let (home, checkout) = (folder.join("home"), folder.join("fleetctl"));
        fs::create_dir_all(&home)?;
        let old = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let of = |name: &str, usual: &str| std::env::var_os(name).map_or_else(|| old.join(usual), PathBuf::from);
        let cargo_home = if cold { home.join(".cargo") } else { of("CARGO_HOME", ".cargo") };
        let cache = if cold { home.join(".cache") } else { of("XDG_CACHE_HOME", ".cache") };
        // What `cargo install` makes is the newcomer's own in either case.
        let installed = home.join(".cargo");
        let mut path = vec![installed.join("bin")];
        // Rust and Go are what the README asks for.
        for program in ["cargo", "go"] {
            let found = find(program).with_context(|| format!("{program} is not installed"))?;
            path.extend(found.parent().map(Path::to_owned));
        }
        path.extend(["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from));
        let mut environment = vec![
            ("HOME", home.clone().into_os_string()),
            ("PATH", std::env::join_paths(path)?),
            ("LC_ALL", "C.UTF-8".into()),
            ("RUSTUP_HOME", of("RUSTUP_HOME", ".rustup").into_os_string()),
            ("CARGO_HOME", cargo_home.into_os_string()),
            ("CARGO_INSTALL_ROOT", installed.into_os_string()),
            ("XDG_CACHE_HOME", cache.into_os_string()),
        ];
        // Where this machine reaches Go modules is its own matter.
        environment.push(("GOENV", of("GOENV", ".config/go/env").into_os_string()));
        for name in ["GOPROXY", "GOSUMDB", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"] {
            environment.extend(std::env::var_os(name).map(|value| (name, value)));
        }
        Ok(Self { home, checkout, environment })
    }

    /// Runs a script in the clone; what it prints is shown, and its stdout returned.
    fn bash(&self, script: &str) -> Result<String> {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", script]).current_dir(&self.checkout);
        bash.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        let output = bash.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("`{script}` ended with {}:\n{text}", output.status);
        }
        Ok(text)
    }

    /// Runs lines in one shell, which have to print the proof. Returns how long each took.
    fn lines(&self, block: &str, (word, what): Proof) -> Result<Vec<(String, Duration)>> {
        const MARK: &str = "took \u{1f}";
        let mut script = String::new();
        for line in block.lines() {
            script += &format!(
                "echo '$ {shown}'\nbegan=$EPOCHREALTIME\n{line}\necho \"{MARK}${{began}}{MARK}${{EPOCHREALTIME}}\"\n",
                shown = line.replace('\'', "'\\''")
            );
        }
        let printed = self.bash(&script)?;
        let mut took = Vec::new();
        for line in printed.lines() {
            match line.strip_prefix(MARK).and_then(|times| times.split_once(MARK)) {
                Some((began, ended)) => {
                    took.push(Duration::from_secs_f64(ended.parse::<f64>()? - began.parse::<f64>()?));
                }
                None => say(line),
            }
        }
        let says = |line: &str| line.split_whitespace().any(|found| found == word);
        if !printed.lines().any(|line| says(line) && !line.starts_with('$')) {
            bail!("nothing says at the end that {what}");
        }
        Ok(block.lines().map(str::to_owned).zip(took).collect())
    }

    /// Two clusters, the images of the service in their reach, and kubectl, as somebody has who comes with clusters.
    fn own_clusters(&self, bed: &Bed) -> Result<()> {
        self.bash(&format!("cargo bed down; cargo bed up host member-1; cargo bed images --tag {}", TESTED.join(",")))?;
        let mut files = Vec::new();
        for name in ["host", "member-1"] {
            files.push(PathBuf::from(self.bash(&format!("cargo bed kubeconfig {name}"))?.trim()));
        }
        let bin = self.home.join(".cargo/bin");
        fs::create_dir_all(&bin)?;
        std::os::unix::fs::symlink(bed.kubectl_path()?, bin.join("kubectl"))?;
        bed.merge_kubeconfigs(&files, &self.home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_the_three_ways() {
        let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
        assert_eq!(block(&readme, WITHOUT_CLUSTER).unwrap(), "cargo bed demo\n");
        assert_eq!(block(&readme, INSTALL).unwrap(), "cargo install --locked --path .\n");
        assert!(block(&readme, OWN_CLUSTERS).unwrap().starts_with("fleetctl install control-plane "));
        let git = block(&readme, FROM_GIT).unwrap();
        assert!(git.contains(LINES[0]) && git.contains("HOSTING-CONTEXT") && git.ends_with("--wait\n"));
        assert!(block("", OWN_CLUSTERS).is_err());
    }

    #[test]
    fn lines_are_one_script_that_ends_with_a_cluster_that_is_ready() {
        let folder = tempfile::tempdir().unwrap();
        let newcomer = Newcomer::new(folder.path(), true).unwrap();
        fs::create_dir(&newcomer.checkout).unwrap();
        let block = "export WORD=\"it's\"\nsleep 0.1\n[ ${#WORD} = 4 ]; echo member-1 $WORD True\n";
        let told = newcomer.lines(block, READY).unwrap();
        assert_eq!(told.iter().map(|(line, _)| line.as_str()).collect::<Vec<_>>(), block.lines().collect::<Vec<_>>());
        assert!(told[1].1 >= Duration::from_millis(100), "{told:?}");
        assert!(newcomer.lines("echo True\nfalse\necho True\n", READY).is_err(), "a line fails");
        assert!(newcomer.lines("echo member-1 False\n", READY).is_err(), "none is ready");
    }
}
