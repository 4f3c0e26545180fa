//! Building the parts: Go modules pinned in `tests/bed/go`, into the cache, once.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::parts::Part;
use crate::parts::cache::{Cache, remove_tree};
use crate::place::Place;
use crate::say::{say, seconds};

/// Builds the parts that the cache lacks. Go's own caches grow to many gigabytes, so they live inside the bed's
/// cache for the time of the build and go when it ends well; after a failure they stay, so that a second try is short.
pub(crate) fn build(place: &Place, cache: &Cache, parts: &[Part]) -> Result<()> {
    let missing = |parts: &[Part]| parts.iter().filter(|part| !cache.has(part)).copied().collect::<Vec<_>>();
    if missing(parts).is_empty() {
        return Ok(());
    }
    let _lock = cache.lock("build")?;
    // The other run may have built it all.
    let parts = missing(parts);
    if parts.is_empty() {
        return Ok(());
    }
    let go = crate::run::find("go").context(
        "`go` is not in PATH, and Kubernetes is built from source: install Go 1.26 or newer from https://go.dev/dl/",
    )?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let rest = parts.iter().skip(1).take_while(|_| !over.load(Ordering::Relaxed));
        scope.spawn(|| rest.for_each(|part| fetch(place, cache, &go, part)));
        let built = parts.iter().try_for_each(|part| build_part(place, cache, &go, part));
        over.store(true, Ordering::Relaxed);
        built
    })?;
    drop_caches(cache)
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
    command
}

fn build_part(place: &Place, cache: &Cache, go: &Path, part: &Part) -> Result<()> {
    let staged = cache.work().join(format!("bin-{}", part.key()));
    fs::create_dir_all(&staged)?;
    let programs: Vec<_> = part.programs.iter().map(|(program, _)| *program).collect();
    let what = format!("{} {}", programs.join(", "), part.version);
    say(format!("building {what}"));
    let began = Instant::now();
    let log = cache.work().join("build.log");
    let mut command = on_module(place, cache, go, part, "build");
    // All at once: while one is linked, which keeps one core busy, others are compiled.
    command.args(["-trimpath", "-tags", part.tags(), "-ldflags", &part.linker_flags(), "-o"]);
    command.arg(staged.join("")).args(part.programs.iter().map(|(_, package)| package));
    command.stderr(fs::File::create(&log)?.into_parts().0);
    wait(command, &what, &log)?;
    for (program, package) in part.programs {
        let named = named_by_go(package).unwrap_or(program);
        if named != *program {
            fs::rename(staged.join(named), staged.join(program))?;
        }
    }
    say(format!("built {what} in {}", seconds(began.elapsed())));
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
fn wait(mut command: Command, what: &str, log: &Path) -> Result<()> {
    let began = Instant::now();
    let mut child = command.spawn().context("cannot start `go build`")?;
    let mut said = Duration::ZERO;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > said + Duration::from_secs(30) {
            said = began.elapsed();
            say(format!("  still building {what}, {} so far", seconds(said)));
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    if !status.success() {
        let text = fs::read_to_string(log).unwrap_or_default();
        bail!(
            "`go build` of {what} failed ({status}); the whole log is {}:\n{}",
            log.display(),
            crate::run::last_lines(&text, 15)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::named_by_go;

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
