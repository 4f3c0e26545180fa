//! Building the parts: Go modules pinned in `tests/bed/go`, into the cache, once.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::parts::cache::{Cache, remove_tree};
use crate::parts::{Part, REGISTRY, packages};
use crate::place::Place;
use crate::run;
use crate::say::{say, seconds};

/// Builds the parts that the cache lacks. Go's own caches grow to many gigabytes, so they live inside the bed's
/// cache for the time of the build and go when it ends well; after a failure they stay, so that a second try is short.
pub(crate) fn build(place: &Place, cache: &Cache, parts: &[Part]) -> Result<()> {
    let has = |part: &Part| cache.has(part) || part.key() == REGISTRY.key() && cache.registry_of_debian().is_dir();
    let missing = |parts: &[Part]| parts.iter().filter(|part| !has(part)).copied().collect::<Vec<_>>();
    if missing(parts).is_empty() {
        return Ok(());
    }
    let _lock = cache.lock("build")?;
    if missing(parts).iter().any(|part| part.key() == REGISTRY.key()) {
        registry_of_debian(cache);
    }
    // The other run may have built it all.
    let parts = missing(parts);
    if parts.is_empty() {
        return Ok(());
    }
    let go = run::find("go").context(
        "`go` is not in PATH, and Kubernetes is built from source: install Go 1.26 or newer from https://go.dev/dl/",
    )?;
    let mut progress = Progress::of(&parts);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let rest = parts.iter().skip(1).take_while(|_| !over.load(Ordering::Relaxed));
        scope.spawn(|| rest.for_each(|part| fetch(place, cache, &go, part)));
        let built = parts.iter().try_for_each(|part| build_part(place, cache, &go, part, &mut progress));
        over.store(true, Ordering::Relaxed);
        built
    })?;
    drop_caches(cache)
}

/// Takes the registry of Debian, where it can be had: it is there in four seconds, and a build takes 34 s of CPU.
fn registry_of_debian(cache: &Cache) {
    if !Path::new("/etc/debian_version").exists() {
        return;
    }
    say("fetching the registry of Debian");
    let unpacked = cache.lock("packages").and_then(|_alone| packages::unpack_registry(&cache.registry_of_debian()));
    if let Err(error) = unpacked {
        say(format!("it cannot be had, so one is built: {error:#}"));
    }
}

/// Seconds of CPU that a build takes, roughly: less where an earlier one has compiled the same libraries.
fn usual_cost(part: &Part) -> u32 {
    match (part.name, part.minor()) {
        ("kube", "1.25") => 340,
        ("kube", _) => 490,
        ("etcd", _) => 80,
        ("coredns", _) => 60,
        ("helm", _) => 250,
        _ => 35,
    }
}

/// How far a run of builds is.
struct Progress {
    began: Instant,
    parts: Vec<Part>,
    built: usize,
}

impl Progress {
    fn of(parts: &[Part]) -> Self {
        Self { began: Instant::now(), parts: parts.to_vec(), built: 0 }
    }

    /// `2 of 5, about 6 min left for all`: by the pace of this run as soon as it has one, else by what is usual.
    fn shown(&self) -> String {
        let cost = |parts: &[Part]| parts.iter().map(usual_cost).sum::<u32>();
        let (whole, built) = (cost(&self.parts), cost(&self.parts[..self.built]));
        let cores = std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
        format!("{} of {}{}", self.built + 1, self.parts.len(), left(whole, built, cores, self.began.elapsed()))
    }
}

/// What is left of builds that cost `whole` seconds of CPU, `built` of which are done after this time.
fn left(whole: u32, built: u32, cores: u32, took: Duration) -> String {
    let usual = Duration::from_secs(u64::from(whole / cores.min(8)));
    // What is under way has begun no later than what is built has ended.
    let seen = if built == 0 { usual } else { took * whole / built };
    match seen.max(usual).saturating_sub(took).as_secs().div_ceil(60) {
        0 => ", longer than usual".to_owned(),
        minutes => format!(", about {minutes} min left for all"),
    }
}

/// How much memory each of Go's programs may use before it collects garbage at all: a compiler lives for a second. etcd takes
/// 97 s of CPU to build then, and 102 otherwise. None where that could be too much for this machine.
fn memory_without_collection() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    let cores = u64::try_from(std::thread::available_parallelism().ok()?.get()).ok()?;
    Some((kib / 1024 / 2 / cores).min(3072)).filter(|mib| *mib >= 1024)
}

/// Gives back what a build left that was interrupted; for when nothing is left to build.
pub(crate) fn forget(cache: &Cache) -> Result<()> {
    let _lock = cache.lock("build")?;
    drop_caches(cache)
}

fn drop_caches(cache: &Cache) -> Result<()> {
    remove_tree(&cache.work().join("gocache"))?;
    remove_tree(&cache.work().join("gomod"))
}

/// Downloads what the build of a part will read, for while one is built the network is idle. What fails here the build
/// meets again, and reports.
fn fetch(place: &Place, cache: &Cache, go: &Path, part: &Part) {
    let mut list = on_module(place, cache, go, part, "list");
    list.args(["-deps", "-tags", part.tags()]).args(part.programs.iter().map(|(_, package)| package));
    let _ = list.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// A command of Go on the module of a part, with the caches of the bed.
fn on_module(place: &Place, cache: &Cache, go: &Path, part: &Part, subcommand: &str) -> Command {
    let mut command = Command::new(go);
    command
        .arg(subcommand)
        .current_dir(place.crate_dir().join("go").join(part.module))
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=readonly -modcacherw -buildvcs=false")
        .env("GOTOOLCHAIN", "local")
        .env("GOMODCACHE", cache.work().join("gomod"))
        .env("GOCACHE", cache.work().join("gocache"))
        .stdin(Stdio::null());
    if let Some(mib) = memory_without_collection() {
        command.env("GOGC", "off").env("GOMEMLIMIT", format!("{mib}MiB"));
    }
    command
}

fn build_part(place: &Place, cache: &Cache, go: &Path, part: &Part, progress: &mut Progress) -> Result<()> {
    let staged = cache.work().join(format!("bin-{}", part.key()));
    fs::create_dir_all(&staged)?;
    let programs: Vec<_> = part.programs.iter().map(|(program, _)| *program).collect();
    let what = format!("{} {}", programs.join(", "), part.version);
    say(format!("building {what}: {}", progress.shown()));
    let began = Instant::now();
    let log = cache.work().join("build.log");
    let mut command = on_module(place, cache, go, part, "build");
    // All at once: while one is linked, which keeps one core busy, others are compiled.
    command.args(["-trimpath", "-tags", part.tags(), "-ldflags", &part.linker_flags(), "-o"]);
    command.arg(staged.join("")).args(part.programs.iter().map(|(_, package)| package));
    command.stderr(fs::File::create(&log)?.into_parts().0);
    let before = run::cpu_of_programs();
    wait(command, &what, &log, progress)?;
    let cpu = run::cpu_of_programs().saturating_sub(before);
    for (program, package) in part.programs {
        let named = named_by_go(package).unwrap_or(program);
        if named != *program {
            fs::rename(staged.join(named), staged.join(program))?;
        }
    }
    say(format!("built {what} in {}, {} of CPU", seconds(began.elapsed()), seconds(cpu)));
    progress.built += 1;
    fs::create_dir_all(cache.root().join("bin"))?;
    fs::rename(&staged, cache.programs(part))?;
    Ok(())
}

/// The name that Go gives to the program of a package: the last word of its path that is no version. That of the module's
/// own folder, `.`, is not in the path.
fn named_by_go(package: &str) -> Option<&str> {
    let is_version = |word: &str| word.strip_prefix('v').is_some_and(|digits| digits.parse::<u32>().is_ok());
    package.rsplit('/').find(|word| !is_version(word)).filter(|word| *word != ".")
}

/// Waits for a build that may be silent for minutes, and says every half minute that it goes on.
fn wait(mut command: Command, what: &str, log: &Path, progress: &Progress) -> Result<()> {
    let began = Instant::now();
    let mut child = command.spawn().context("cannot start `go build`")?;
    let (ended, end) = mpsc::channel::<()>();
    let status = std::thread::scope(|scope| {
        scope.spawn(move || {
            while end.recv_timeout(Duration::from_secs(30)) == Err(mpsc::RecvTimeoutError::Timeout) {
                say(format!("  still building {what}, {} so far: {}", seconds(began.elapsed()), progress.shown()));
            }
        });
        let status = run::wait(&mut child);
        drop(ended);
        status
    })?;
    if !status.success() {
        let text = fs::read_to_string(log).unwrap_or_default();
        bail!(
            "`go build` of {what} failed ({status}); its log, {}, ends with:\n{}\n\
             the same command again goes on here: what was built is kept",
            log.display(),
            run::last_lines(&text, 15)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_by_what_is_usual_and_then_by_the_pace_of_this_run() {
        let seconds = Duration::from_secs;
        assert_eq!(left(600, 0, 2, seconds(0)), ", about 5 min left for all");
        assert_eq!(left(600, 0, 2, seconds(300)), ", longer than usual");
        // A busy machine: a sixth took two minutes.
        assert_eq!(left(600, 100, 2, seconds(120)), ", about 10 min left for all");
    }

    #[test]
    fn the_cpu_of_a_program_counts_that_of_the_programs_it_waited_for() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; read line"]);
        let mut child = shell.stdin(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        while run::cpu_of(child.id()).unwrap() < Duration::from_millis(50) {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(run::cpu_of(child.id()), None, "it has gone");
    }

    #[test]
    fn programs_are_named_after_their_packages() {
        for (package, name) in [
            ("k8s.io/kubernetes/cmd/kubelet", Some("kubelet")),
            ("go.etcd.io/etcd/server/v3", Some("server")),
            ("example.org/vault", Some("vault")),
            (".", None),
        ] {
            assert_eq!(named_by_go(package), name);
        }
    }
}
