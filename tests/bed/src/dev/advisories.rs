//! Whether a crate of the lock file has a known fault: cargo-deny with a database of advisories, which has to be fetched.
//!
//! That it cannot be fetched is told apart from an advisory that applies: fetching is a command of its own, and only what
//! has been fetched to its end once, now or earlier, is checked against.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::Result;

use crate::dev::steps::Steps;
use crate::run;

/// The variable by which cargo-deny's configuration finds the databases.
const VARIABLE: &str = "ADVISORY_DBS";

/// How long fetching may take.
const PATIENCE: &str = "120";

/// What is done about advisories.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// The database is checked against; a remark about it for the summary.
    Check(Option<String>),
    /// There is no database; why.
    Without(String),
}

/// Decides by whether the database could be fetched now, and how long ago it was fetched last where it is there.
fn decide(fetched: Result<(), String>, age: Option<Duration>) -> Decision {
    match (fetched, age) {
        (Ok(()), _) => Decision::Check(None),
        (Err(why), Some(age)) => {
            let days = age.as_secs() / (24 * 60 * 60);
            Decision::Check(Some(format!(
                "advisories are those of {days} days ago, for they cannot be fetched now: {why}"
            )))
        }
        (Err(why), None) => Decision::Without(format!("NOT CHECKED: advisories, for they cannot be fetched: {why}")),
    }
}

/// The databases in the cache.
struct Databases {
    folder: PathBuf,
}

impl Databases {
    /// A file that is written when a database has been fetched to its end.
    fn stamp(&self) -> PathBuf {
        self.folder.join("fetched")
    }

    /// How long ago; none where that was never.
    fn age(&self) -> Option<Duration> {
        let fetched = self.stamp().metadata().and_then(|meta| meta.modified()).ok()?;
        Some(SystemTime::now().duration_since(fetched).unwrap_or_default())
    }

    fn deny(&self, program: &Path, checkout: &Path) -> Command {
        let mut deny = Command::new("timeout");
        deny.args(["--kill-after", "5", PATIENCE]).arg(program).current_dir(checkout).env(VARIABLE, &self.folder);
        deny
    }

    /// Fetches, and says why that failed.
    fn fetch(&self, program: &Path, checkout: &Path) -> Result<(), String> {
        std::fs::create_dir_all(&self.folder).map_err(|error| error.to_string())?;
        let mut fetch = self.deny(program, checkout);
        let ended = fetch.args(["--log-level", "error", "fetch", "db"]).stdin(Stdio::null()).output();
        let ended = ended.map_err(|error| error.to_string())?;
        if !ended.status.success() {
            return Err(reason(&String::from_utf8_lossy(&ended.stderr), ended.status.code()));
        }
        std::fs::write(self.stamp(), "").map_err(|error| error.to_string())
    }
}

/// The last line of what a program said, without the time before it; else how it ended.
fn reason(said: &str, code: Option<i32>) -> String {
    let last = run::last_lines(said, 1);
    let last = last.split_once("] ").map_or(last.as_str(), |(_, message)| message).trim();
    match code {
        Some(124 | 137) => format!("no end within {PATIENCE} s"),
        _ if last.is_empty() => format!("it ended with code {}", code.unwrap_or(-1)),
        _ => last.to_owned(),
    }
}

/// The step: fetches what can be fetched, and fails where an advisory applies.
pub(crate) fn check(steps: &mut Steps, program: &Path, checkout: &Path, folder: PathBuf) -> Result<()> {
    let databases = Databases { folder };
    let remark = match decide(databases.fetch(program, checkout), databases.age()) {
        Decision::Without(why) => {
            steps.remark(why);
            return Ok(());
        }
        Decision::Check(remark) => remark,
    };
    if let Some(remark) = remark {
        steps.remark(remark);
    }
    let mut check = databases.deny(program, checkout);
    check.args(["--log-level", "error", "check", "--disable-fetch", "advisories"]);
    steps.program("advisories", &mut check)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_database_that_cannot_be_fetched_is_no_finding_and_is_never_passed_over_in_silence() {
        assert_eq!(decide(Ok(()), Some(HOUR)), Decision::Check(None));
        let failed = || Err("no such host".to_owned());
        let Decision::Without(why) = decide(failed(), None) else { panic!("nothing to check against") };
        assert!(why.contains("NOT CHECKED") && why.contains("no such host"), "{why}");
        // What was fetched once is used, and its age is said.
        let Decision::Check(Some(remark)) = decide(failed(), Some(50 * HOUR)) else { panic!("it is there") };
        assert!(remark.contains("2 days ago") && remark.contains("no such host"), "{remark}");
    }

    #[test]
    fn the_reason_is_the_programs_last_line() {
        assert_eq!(
            reason("a\n2026-01-01 00:00:00 [ERROR] failed to fetch: no route\n", Some(1)),
            "failed to fetch: no route"
        );
        assert_eq!(reason("", Some(1)), "it ended with code 1");
        assert_eq!(reason("half a line", Some(124)), "no end within 120 s");
    }

    /// A program in the place of cargo-deny: fetching ends with one code, checking with another.
    fn program(folder: &Path, fetch: i32, check: i32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = folder.join(format!("deny-{fetch}-{check}"));
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *'fetch db'*) echo '[ERROR] no route' >&2; exit {fetch};; *--disable-fetch\\ advisories*) exit {check};; esac\nexit 99\n"
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn an_advisory_fails_the_step_whether_the_database_is_new_or_kept_and_a_missing_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let run = |fetch, checked| {
            let mut steps = Steps::default();
            let program = program(folder.path(), fetch, checked);
            check(&mut steps, &program, folder.path(), folder.path().join("databases")).is_ok()
        };
        // Without a database nothing is checked, so nothing is found.
        assert!(run(1, 1));
        assert!(!run(0, 1) && run(0, 0));
        // From here on there is one.
        assert!(!run(1, 1) && run(1, 0));
    }
}
