//! How long tests take: by what libtest prints, and by what the tests themselves write down.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use fs_err as fs;
use tempfile::NamedTempFile;

use crate::cluster::turns::WAITS;
use crate::say::seconds;

/// How many tests the summary names.
const SLOWEST: usize = 20;

/// A package of the workspace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Package {
    pub(super) name: &'static str,
    /// Below the root of the workspace.
    pub(super) folder: &'static str,
    /// Arguments of cargo for what its tests need.
    pub(super) features: &'static [&'static str],
}

/// The program of a test target, to be run once.
#[derive(Debug)]
pub(crate) struct TestProgram {
    package: Package,
    target: String,
    pub(super) command: Command,
    waits: NamedTempFile,
}

/// A test that has ended.
#[derive(Debug, Clone, PartialEq)]
struct TestTime {
    target: String,
    test: String,
    took: Duration,
    /// How long it waited until a cluster was free, and which.
    waited: Option<(Duration, String)>,
}

/// A program of tests that has ended.
#[derive(Debug)]
struct Total {
    target: String,
    tests: usize,
    /// Of all tests, as if one had run after the other.
    sum: Duration,
    took: Duration,
    cpu: Duration,
}

/// The times of all tests of a run.
#[derive(Debug, Default)]
pub(crate) struct TestTimes {
    tests: Vec<TestTime>,
    totals: Vec<Total>,
}

impl TestProgram {
    /// A program that is run with these arguments for libtest.
    pub(super) fn new<'a>(
        package: Package,
        target: &str,
        mut command: Command,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self> {
        let waits = NamedTempFile::new()?;
        // libtest tells the time of each test only where features of nightly are allowed. Nothing is compiled here.
        command.env("RUSTC_BOOTSTRAP", "1").args(["-Z", "unstable-options", "--report-time"]);
        command.args(args).env(WAITS, waits.path());
        Ok(Self { package, target: target.to_owned(), command, waits })
    }

    /// What runs a test of it again.
    pub(super) fn again(&self) -> String {
        let target = if self.target == "lib" { "--lib".to_owned() } else { format!("--test {}", self.target) };
        let Package { name, features, .. } = self.package;
        let features: String = features.iter().map(|argument| format!(" {argument}")).collect();
        format!("cargo test --package {name}{features} {target} -- NAME")
    }

    /// What the tests waited for, by name.
    fn waits(&self) -> Result<BTreeMap<String, (Duration, String)>> {
        let text = fs::read_to_string(self.waits.path())?;
        let wait = |line: &str| {
            let mut fields = line.split('\t');
            let (test, took, clusters) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?);
            Some((test.to_owned(), (Duration::from_secs_f64(took), clusters.to_owned())))
        };
        Ok(text.lines().filter_map(wait).collect())
    }
}

impl TestTimes {
    /// Takes what a program printed, which took so long.
    pub(super) fn add(&mut self, program: &TestProgram, printed: &str, took: Duration, cpu: Duration) -> Result<()> {
        let mut waits = program.waits()?;
        let target = if program.package.name == "fleetctl" {
            program.target.clone()
        } else {
            format!("{} {}", program.package.name, program.target)
        };
        let tests: Vec<_> = times(printed)
            .map(|(test, took)| TestTime { target: target.clone(), waited: waits.remove(&test), test, took })
            .collect();
        let sum = tests.iter().map(|test| test.took).sum();
        if !tests.is_empty() {
            self.totals.push(Total { target: target.clone(), tests: tests.len(), sum, took, cpu });
        }
        self.tests.extend(tests);
        Ok(())
    }

    /// A line for each of the slowest tests, and one for each target.
    pub(super) fn lines(mut self) -> Vec<String> {
        if self.tests.is_empty() {
            return Vec::new();
        }
        self.tests.sort_by_key(|test| std::cmp::Reverse(test.took));
        let mut lines = vec![format!("the {} slowest tests:", self.tests.len().min(SLOWEST))];
        for TestTime { target, test, took, waited } in self.tests.iter().take(SLOWEST) {
            let waited = waited.as_ref().map_or_else(String::new, |(waited, clusters)| {
                format!(", {} of it until {clusters} was free", seconds(*waited))
            });
            lines.push(format!("{:>9}  {target} {test}{waited}", seconds(*took)));
        }
        lines.push("tests by target; their CPU is without that of clusters:".to_owned());
        for Total { target, tests, sum, took, cpu } in self.totals {
            let [took, sum, cpu] = [took, sum, cpu].map(seconds);
            lines.push(format!("{took:>9}  {target}: {tests} tests, {sum} one after the other, {cpu} of CPU"));
        }
        lines
    }
}

/// The names and times of the tests that libtest says have ended, `test NAME ... ok <0.123s>`. Something that a test
/// has printed past libtest may stand before the outcome.
fn times(printed: &str) -> impl Iterator<Item = (String, Duration)> {
    let mut running = None;
    printed.lines().filter_map(move |line| {
        if let Some((test, _)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            running = Some(test.to_owned());
        }
        let (rest, took) = line.strip_suffix("s>")?.rsplit_once(" <")?;
        let ended = ["ok", "FAILED"].iter().any(|outcome| rest.ends_with(outcome));
        let took = took.parse().ok().filter(|_| ended)?;
        Some((running.take()?, Duration::try_from_secs_f64(took).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_every_test_is_read() {
        let printed = "\nrunning 5 tests\ntest a::b ... ok <0.250s>\ntest c ... bed: starting\nok <2.000s>\n\
                       test d - should panic ... FAILED <1.000s>\ntest e ... ignored\ntest result: FAILED. <3s>\n";
        let times: Vec<_> = times(printed).map(|(test, took)| (test, took.as_millis())).collect();
        let expected = [("a::b", 250), ("c", 2000), ("d - should panic", 1000)];
        assert_eq!(times, expected.map(|(test, took)| (test.to_owned(), took)));
    }

    #[test]
    fn libtest_prints_what_is_read() {
        let name = "dev::test_times::tests::the_time_of_every_test_is_read";
        let own = Command::new(std::env::current_exe().unwrap());
        let package = Package { name: "bed", folder: "tests/bed", features: &[] };
        let mut program = TestProgram::new(package, "lib", own, ["--exact", name]).unwrap();
        assert_eq!(program.again(), "cargo test --package bed --lib -- NAME");
        let printed = crate::run::output_of(&mut program.command).unwrap();
        fs::write(program.waits.path(), format!("{name}\t1.5\thost\n")).unwrap();
        let mut found = TestTimes::default();
        found.add(&program, &printed, Duration::from_secs(3), Duration::from_secs(2)).unwrap();
        let lines = found.lines();
        assert_eq!(lines.len(), 4, "{printed}\n{lines:#?}");
        assert!(lines[1].ends_with(&format!("s  bed lib {name}, 1.5 s of it until host was free")), "{lines:#?}");
        assert!(lines[3].starts_with("    3.0 s  bed lib: 1 tests, "), "{lines:#?}");
    }
}
