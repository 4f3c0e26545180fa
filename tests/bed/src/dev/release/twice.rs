//! A second build of a release: in another folder, by another home, and with files that only their owner can read. Its
//! files have to be those of the first, byte by byte.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use super::Args;
use crate::parts::cache::{Cache, remove_tree};
use crate::run;
use crate::say::say;

/// Builds a copy of the checkout, and compares its files with those in `first`.
pub(super) fn compare(checkout: &Path, args: &Args, time: &str, first: &Path) -> Result<()> {
    let cache = Cache::here()?;
    let work = tempfile::Builder::new().prefix("release-again-").tempdir()?;
    let (sources, home) = (work.path().join("sources"), work.path().join("home"));
    fs::create_dir_all(&home)?;
    copy(checkout, &sources)?;
    say(format!("building it again in {}", sources.display()));
    let rustup = std::env::var_os("RUSTUP_HOME").map(Into::into);
    let rustup =
        rustup.or_else(|| std::env::home_dir().map(|home| home.join(".rustup"))).context("there is no HOME")?;
    let mut again = Command::new("sh");
    again.args(["-c", "umask 077 && exec \"$0\" \"$@\""]).arg(std::env::current_exe()?).current_dir(&sources);
    again.arg("release").arg("--checkout").arg(&sources).arg("--profile").arg(&args.profile).arg("--out").arg("again");
    again.arg("--targets").arg(args.targets.join(","));
    if args.images {
        again.arg("--images");
    }
    if let Some(url) = &args.url {
        again.arg("--url").arg(url);
    }
    // The tools are the same; crates are unpacked anew in the other home.
    again.env("HOME", &home).env("RUSTUP_HOME", rustup).env_remove("CARGO_HOME").env("SOURCE_DATE_EPOCH", time);
    again.env("XDG_CACHE_HOME", cache.root().parent().context("the cache is in a folder")?);
    if !again.status()?.success() {
        bail!("the second build failed");
    }
    let second = sources.join("again");
    let found = differences(first, &second)?;
    if found.is_empty() {
        say(format!("both builds gave the same {} files", names(first)?.len()));
        return Ok(());
    }
    // Kept to be looked at, for instance with diffoscope.
    let kept = first.with_extension("again");
    remove_tree(&kept)?;
    run::output_of(Command::new("cp").arg("-r").arg(&second).arg(&kept))?;
    bail!("the second build, which is in {}, has other bytes in {}", kept.display(), found.join(", "))
}

/// Copies a checkout as it is, with what is not committed yet. The history comes with it, for programs say of which commit
/// they are.
fn copy(checkout: &Path, to: &Path) -> Result<()> {
    run::output_of(Command::new("git").args(["clone", "--quiet", "--no-checkout"]).arg(checkout).arg(to))?;
    let files = "git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- --create | \
                 (umask 077 && tar --extract --no-same-permissions --directory=\"$0\")";
    run::output_of(Command::new("sh").args(["-ec", files]).arg(to).current_dir(checkout))?;
    Ok(())
}

fn names(folder: &Path) -> Result<BTreeSet<String>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The files that are not the same in both folders, or are in one alone.
fn differences(first: &Path, second: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for name in names(first)?.union(&names(second)?) {
        let read = |folder: &Path| fs::read(folder.join(name)).ok();
        if read(first).is_none() || read(first) != read(second) {
            found.push(name.clone());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_what_is_not_committed_and_the_commit() {
        let folder = tempfile::TempDir::new().unwrap();
        let (checkout, to) = (folder.path().join("checkout"), folder.path().join("copy"));
        let git = |at: &Path, args: &[&str]| {
            let user = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
            run::output_of(Command::new("git").arg("-C").arg(at).args(user).args(args)).unwrap()
        };
        fs::create_dir(&checkout).unwrap();
        git(&checkout, &["init", "--quiet"]);
        fs::write(checkout.join("a"), "1").unwrap();
        git(&checkout, &["add", "a"]);
        git(&checkout, &["commit", "--quiet", "--message", "a"]);
        fs::write(checkout.join("a"), "2").unwrap();
        fs::write(checkout.join("b"), "3").unwrap();
        copy(&checkout, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("a")).unwrap() + &fs::read_to_string(to.join("b")).unwrap(), "23");
        let commit = ["rev-parse", "HEAD"];
        assert_eq!(git(&to, &commit), git(&checkout, &commit));
    }

    #[test]
    fn a_file_with_other_bytes_and_one_that_is_in_one_folder_alone_are_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let (first, second) = (folder.path().join("1"), folder.path().join("2"));
        for (folder, files) in
            [(&first, [("a", "x"), ("b", "x"), ("c", "x")]), (&second, [("a", "x"), ("b", "y"), ("d", "x")])]
        {
            fs::create_dir(folder).unwrap();
            for (name, text) in files {
                fs::write(folder.join(name), text).unwrap();
            }
        }
        assert_eq!(differences(&first, &second).unwrap(), ["b", "c", "d"]);
        assert_eq!(differences(&first, &first).unwrap(), Vec::<String>::new());
    }
}
