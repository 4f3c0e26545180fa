//! Runs that consist of steps: each is named before it starts, and its duration told after.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::cluster::process::own_programs;
use crate::dev::test_times::{TestProgram, TestTimes};
use crate::run;
use crate::say::{say, seconds};

/// A run and what it has done so far.
#[derive(Debug)]
pub(crate) struct Steps {
    began: Instant,
    use_before: Use,
    done: Vec<Done>,
    tests: TestTimes,
    remarks: Vec<String>,
}

/// A step that has ended.
#[derive(Debug)]
struct Done {
    name: String,
    took: Duration,
    /// Of the programs that it ran, and of those that they waited for.
    cpu: Duration,
    /// How busy the machine was, with all that ran on it: hundredths of all of its cores.
    busy: u64,
}

impl Done {
    /// `12.3 s, 20.1 s of CPU`.
    fn times(&self) -> String {
        format!("{}, {} of CPU", seconds(self.took), seconds(self.cpu))
    }
}

/// Steps that run one after the other beside other steps, to be [joined](Steps::join) whatever becomes of those.
#[must_use = "what they found would be lost"]
#[derive(Debug)]
pub(crate) struct Beside {
    name: String,
    thread: JoinHandle<Vec<Ended>>,
}

/// A step that ran beside others.
#[derive(Debug)]
struct Ended {
    done: Done,
    result: Result<()>,
    printed: Option<(File, Option<TestProgram>)>,
}

/// A program to be run as a step.
#[derive(Debug)]
pub(crate) enum Program {
    Plain(Command),
    Tests(TestProgram),
}

impl Program {
    fn command(&mut self) -> &mut Command {
        match self {
            Self::Plain(command) => command,
            Self::Tests(program) => &mut program.command,
        }
    }
}

impl Beside {
    /// Starts steps that are programs and run beside those that follow, each after the one before it has succeeded.
    /// The user sees what they print when they are [joined](Steps::join).
    pub(crate) fn start(programs: Vec<(String, Program)>) -> Result<Self> {
        let mut prepared = Vec::new();
        let mut names = Vec::new();
        for (name, mut program) in programs {
            let output = tempfile::tempfile()?;
            let command = program.command();
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
            names.push(name.clone());
            prepared.push((name, program, output));
        }
        let name = names.join(", then ");
        say(format!("── {name}, beside what follows"));
        let thread = std::thread::spawn(move || {
            let mut ended = Vec::new();
            for (name, mut program, output) in prepared {
                let (done, result) = measure(&name, || succeed(program.command()));
                let failed = result.is_err();
                let tests = if let Program::Tests(tests) = program { Some(tests) } else { None };
                ended.push(Ended { done, result, printed: Some((output, tests)) });
                if failed {
                    break;
                }
            }
            ended
        });
        Ok(Self { name, thread })
    }

    /// Starts a step that runs beside those that follow, and says itself how far it is.
    pub(crate) fn work(name: &str, step: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        say(format!("── {name}, beside what follows"));
        let name = name.to_owned();
        let thread = std::thread::spawn({
            let name = name.clone();
            move || {
                let (done, result) = measure(&name, step);
                vec![Ended { done, result, printed: None }]
            }
        });
        Self { name, thread }
    }
}

impl Default for Steps {
    fn default() -> Self {
        let (done, tests, remarks) = (Vec::new(), TestTimes::default(), Vec::new());
        Self { began: Instant::now(), use_before: Use::now(), done, tests, remarks }
    }
}

impl Steps {
    /// A run that has done nothing yet. On Ctrl-C what it runs is ended, it says `left`, which should be what remains on
    /// the machine and how to remove it, and ends with exit code 130.
    pub(crate) fn new(left: &'static str) -> Self {
        on_interrupt(Interrupted::Say(left));
        Self::default()
    }

    /// The same for a run whose clusters are nobody else's: on Ctrl-C they are taken away.
    pub(crate) fn with_clusters() -> Self {
        on_interrupt(Interrupted::StopClusters);
        Self::default()
    }

    /// Does one step.
    pub(crate) fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        say(format!("── {name}"));
        let (done, result) = measure(name, step);
        self.end(done, result)
    }

    /// Does one step that is a program, whose output the user sees.
    pub(crate) fn program(&mut self, name: &str, command: &mut Command) -> Result<()> {
        self.run(name, || succeed(command))
    }

    /// Does one step that is a program of tests, whose output the user sees and whose times are in the summary.
    pub(crate) fn tests(&mut self, name: &str, mut program: TestProgram) -> Result<()> {
        say(format!("── {name}"));
        let mut printed = Vec::new();
        program.command.stdin(Stdio::null()).stdout(Stdio::piped());
        let (done, result) = measure(name, || succeed_and_read(&mut program.command, &mut printed));
        self.tests.add(&program, &String::from_utf8_lossy(&printed), done.took, done.cpu)?;
        self.end(done, result.with_context(|| format!("a test again: {}", program.again())))
    }

    /// Waits for steps that run beside others, and shows what they printed. The first that failed is the error.
    pub(crate) fn join(&mut self, beside: Beside) -> Result<()> {
        let Ok(ended) = beside.thread.join() else { bail!("the thread of {} panicked", beside.name) };
        let mut outcome = Ok(());
        for Ended { mut done, mut result, printed } in ended {
            if let Some((mut output, tests)) = printed {
                let mut bytes = Vec::new();
                output.rewind()?;
                output.read_to_end(&mut bytes)?;
                let text = String::from_utf8_lossy(&bytes);
                say(text.trim_end());
                if let Some(program) = tests {
                    self.tests.add(&program, &text, done.took, done.cpu)?;
                    result = result.with_context(|| format!("a test again: {}", program.again()));
                }
            }
            done.name += " (beside)";
            outcome = outcome.and(self.end(done, result));
        }
        outcome
    }

    fn end<T>(&mut self, done: Done, result: Result<T>) -> Result<T> {
        if result.is_err() {
            stop_if_interrupted();
        }
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        say(format!("{word} {}, {}", done.name, done.times()));
        let result = result.with_context(|| format!("in the step `{}`", done.name));
        self.done.push(done);
        result
    }

    /// Says something that must not be overlooked, now and in the summary.
    pub(crate) fn remark(&mut self, remark: String) {
        say(&remark);
        self.remarks.push(remark);
    }

    /// A line a step, and the whole, and the slowest tests, and the remarks.
    pub(crate) fn summary(self) {
        say(format!("{:>9}  {:>9}  {:>4}  step", "by clock", "CPU", "busy"));
        for Done { name, took, cpu, busy } in &self.done {
            say(format!("{:>9}  {:>9}  {busy:>3}%  {name}", seconds(*took), seconds(*cpu)));
        }
        let cpu = self.done.iter().map(|done| done.cpu).sum();
        let (took, cpu, busy) = (seconds(self.began.elapsed()), seconds(cpu), self.use_before.until_now());
        say(format!("{took:>9}  {cpu:>9}  {busy:>3}%  in all"));
        self.tests.lines().iter().for_each(say);
        for remark in &self.remarks {
            say(remark);
        }
    }
}

/// Does a step, and says how long it took.
fn measure<T>(name: &str, step: impl FnOnce() -> Result<T>) -> (Done, Result<T>) {
    let (began, before, use_before) = (Instant::now(), run::cpu_of_programs(), Use::now());
    let result = step();
    let (took, cpu, busy) = (began.elapsed(), run::cpu_of_programs().saturating_sub(before), use_before.until_now());
    (Done { name: name.to_owned(), took, cpu, busy }, result)
}

/// What the cores of the machine have done since it started, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Use {
    all: u64,
    idle: u64,
}

impl Use {
    fn now() -> Self {
        std::fs::read_to_string("/proc/stat").map(|text| Self::of(&text)).unwrap_or_default()
    }

    /// Of `/proc/stat`: user, nice, system, idle, waiting for disks, interrupts (two), stolen; what follows is in the first two.
    fn of(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).map_while(|field| field.parse().ok()).collect();
        Self { all: ticks.iter().sum(), idle: ticks.iter().skip(3).take(2).sum() }
    }

    /// Hundredths of all cores that were busy since then.
    fn until_now(self) -> u64 {
        self.until(Self::now())
    }

    fn until(self, later: Self) -> u64 {
        let (all, idle) = (later.all.saturating_sub(self.all), later.idle.saturating_sub(self.idle));
        all.saturating_sub(idle) * 100 / all.max(1)
    }
}

/// Runs a program to its end.
fn succeed(command: &mut Command) -> Result<()> {
    succeed_and_read(command, &mut Vec::new())
}

/// The same; where its output is not redirected already, the user sees it, and it is appended to `printed`.
fn succeed_and_read(command: &mut Command, printed: &mut Vec<u8>) -> Result<()> {
    let program = command.get_program().display().to_string();
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    if let Some(mut output) = child.stdout.take() {
        let mut buffer = [0; 8192];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            printed.extend_from_slice(&buffer[..length]);
            let mut stdout = std::io::stdout().lock();
            let _ = stdout.write_all(&buffer[..length]).and_then(|()| stdout.flush());
        }
    }
    let status = run::wait(&mut child)?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}

/// Whether Ctrl-C was pressed.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What becomes of clusters on Ctrl-C.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Interrupted {
    /// They stay; this says so, and how to remove them.
    Say(&'static str),
    /// They are stopped.
    StopClusters,
}

/// On Ctrl-C, ends the programs that this one runs, sees to the clusters, and ends with exit code 130.
pub(crate) fn on_interrupt(then: Interrupted) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if !runtime.is_ok_and(|runtime| runtime.block_on(tokio::signal::ctrl_c()).is_ok()) {
            return;
        }
        INTERRUPTED.store(true, Ordering::Relaxed);
        end_programs();
        match then {
            Interrupted::Say(left) => say(format!("\ninterrupted; {left}")),
            Interrupted::StopClusters => {
                say("\ninterrupted; stopping the clusters (what was built is kept)");
                // In place of this program: what it was about to do next, and the locks that it has, end with it.
                let mut down = Command::new("sh");
                down.args(["-c", r#""$0" down && exit 130"#]).arg(std::env::current_exe().unwrap_or_default());
                let error = down.exec();
                say(format!("error: cannot start sh: {error}; `cargo bed down` removes what is left"));
            }
        }
        #[expect(clippy::exit, reason = "what was interrupted has nothing to hand back")]
        std::process::exit(130);
    });
}

/// After a failure: where Ctrl-C is its cause, leaves the rest to [`on_interrupt`] and does not return.
pub(crate) fn stop_if_interrupted() {
    // The programs that this one runs got the signal, too, and may have ended before it was heard here.
    std::thread::sleep(Duration::from_millis(200));
    while INTERRUPTED.load(Ordering::Relaxed) {
        std::thread::park();
    }
}

/// Ends the programs that this one runs, other than those of clusters: by SIGTERM, and after five seconds by SIGKILL.
pub(crate) fn end_programs() {
    // A shell may start another program when one has ended.
    for _ in 0..10 {
        let programs = own_programs();
        if programs.is_empty() {
            return;
        }
        for (signal, limit) in [(Signal::TERM, 5), (Signal::KILL, 5)] {
            for program in &programs {
                let _ = program.signal(signal);
            }
            let end = Instant::now() + Duration::from_secs(limit);
            for program in &programs {
                program.wait(end.saturating_duration_since(Instant::now()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_as_busy_as_its_cores_are_not_idle() {
        let before = Use::of("cpu  100 0 50 800 50 0 0 0 7 7\ncpu0 1 1\n");
        assert_eq!(before, Use { all: 1000, idle: 850 });
        assert_eq!(before.until(Use::of("cpu 160 5 60 815 60 0 0 0 9 9\n")), 75);
        assert_eq!(before.until(before), 0);
    }

    #[test]
    fn the_cpu_of_a_step_is_that_of_its_programs() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]);
        let (done, result) = measure("count", || succeed(&mut shell));
        assert!(result.is_ok() && done.cpu > Duration::from_millis(20), "{done:?}");
        let (done, result) = measure("fail", || succeed(&mut Command::new("false")));
        assert!(result.is_err() && done.cpu < Duration::from_millis(20), "{done:?}");
    }
}
