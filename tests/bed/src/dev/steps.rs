//! Runs that consist of steps: each is named before it starts, and its duration told after.

use std::fs::File;
use std::io::Seek as _;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::say::{say, seconds};

/// A run and what it has done so far.
#[derive(Debug)]
pub(crate) struct Steps {
    began: Instant,
    done: Vec<(String, Duration)>,
    remarks: Vec<String>,
}

/// Programs that run one after the other beside other steps, to be [joined](Steps::join) whatever becomes of those.
#[must_use = "what they found would be lost"]
#[derive(Debug)]
pub(crate) struct Beside {
    name: String,
    thread: JoinHandle<Vec<Ended>>,
}

/// A program that ran beside other steps.
#[derive(Debug)]
struct Ended {
    name: String,
    result: Result<()>,
    took: Duration,
    output: File,
}

impl Beside {
    /// Starts steps that are programs and run beside those that follow, each after the one before it has succeeded.
    /// The user sees what they print when they are [joined](Steps::join).
    pub(crate) fn start(programs: Vec<(String, Command)>) -> Result<Self> {
        let mut prepared = Vec::new();
        let mut names = Vec::new();
        for (name, mut command) in programs {
            let output = tempfile::tempfile()?;
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
            names.push(name.clone());
            prepared.push((name, command, output));
        }
        let name = names.join(", then ");
        say(format!("── {name}, beside what follows"));
        let thread = std::thread::spawn(move || {
            let mut ended = Vec::new();
            for (name, mut command, output) in prepared {
                let began = Instant::now();
                let result = succeed(&mut command);
                let failed = result.is_err();
                ended.push(Ended { name, result, took: began.elapsed(), output });
                if failed {
                    break;
                }
            }
            ended
        });
        Ok(Self { name, thread })
    }
}

impl Default for Steps {
    fn default() -> Self {
        Self { began: Instant::now(), done: Vec::new(), remarks: Vec::new() }
    }
}

impl Steps {
    /// A run that has done nothing yet. On Ctrl-C it says `left`, which should be what remains on the machine and how
    /// to remove it, and ends with exit code 130.
    pub(crate) fn new(left: &'static str) -> Self {
        on_interrupt(left);
        Self::default()
    }

    /// Does one step.
    pub(crate) fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        say(format!("── {name}"));
        let began = Instant::now();
        let result = step().with_context(|| format!("in the step `{name}`"));
        let took = began.elapsed();
        say(format!("{} {name}, {}", if result.is_ok() { "ok" } else { "FAILED" }, seconds(took)));
        self.done.push((name.to_owned(), took));
        result
    }

    /// Does one step that is a program, whose output the user sees.
    pub(crate) fn program(&mut self, name: &str, command: &mut Command) -> Result<()> {
        self.run(name, || succeed(command))
    }

    /// Waits for steps that run beside others, and shows what they printed. The first that failed is the error.
    pub(crate) fn join(&mut self, beside: Beside) -> Result<()> {
        let Ok(ended) = beside.thread.join() else { bail!("the thread of {} panicked", beside.name) };
        let mut outcome = Ok(());
        for mut ended in ended {
            ended.output.rewind()?;
            say(std::io::read_to_string(&ended.output)?.trim_end());
            let word = if ended.result.is_ok() { "ok" } else { "FAILED" };
            say(format!("{word} {}, {}", ended.name, seconds(ended.took)));
            outcome = outcome.and(ended.result.with_context(|| format!("in the step `{}`", ended.name)));
            self.done.push((format!("{} (beside)", ended.name), ended.took));
        }
        outcome
    }

    /// Says something that must not be overlooked, now and in the summary.
    pub(crate) fn remark(&mut self, remark: String) {
        say(&remark);
        self.remarks.push(remark);
    }

    /// A line a step, and the whole, and the remarks.
    pub(crate) fn summary(&self) {
        for (name, took) in &self.done {
            say(format!("{:>9}  {name}", seconds(*took)));
        }
        say(format!("{:>9}  in all", seconds(self.began.elapsed())));
        for remark in &self.remarks {
            say(remark);
        }
    }
}

/// Runs a program to its end.
fn succeed(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}

/// On Ctrl-C, says what is left on the machine and how to remove it, and ends the program with exit code 130.
pub(crate) fn on_interrupt(left: &'static str) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if runtime.is_ok_and(|runtime| runtime.block_on(tokio::signal::ctrl_c()).is_ok()) {
            say(format!("\ninterrupted; {left}"));
            #[expect(clippy::exit, reason = "what was interrupted has nothing to hand back")]
            std::process::exit(130);
        }
    });
}
