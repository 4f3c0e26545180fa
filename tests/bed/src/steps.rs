//! Runs that consist of steps: each is named before it starts, and its duration told after.

use std::fs::File;
use std::io::Seek as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::say::{say, seconds};

/// A run and what it has done so far.
#[derive(Debug)]
pub struct Steps {
    began: Instant,
    done: Vec<(String, Duration)>,
}

/// A program that runs beside other steps, to be [joined](Steps::join) whatever becomes of them.
#[must_use = "what it found would be lost"]
#[derive(Debug)]
pub struct Beside {
    name: String,
    began: Instant,
    child: Child,
    output: File,
}

impl Beside {
    /// Starts a step that is a program and runs beside those that follow. The user sees what it prints when it is
    /// [joined](Steps::join).
    pub fn start(name: &str, command: &mut Command) -> Result<Self> {
        say(format!("── {name}, beside what follows"));
        let output = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { name: name.to_owned(), began: Instant::now(), child, output })
    }
}

impl Default for Steps {
    fn default() -> Self {
        Self { began: Instant::now(), done: Vec::new() }
    }
}

impl Steps {
    /// A run that has done nothing yet. On Ctrl-C it says `left`, which should be what remains on the machine and how
    /// to remove it, and ends with exit code 130.
    pub fn new(left: &'static str) -> Self {
        on_interrupt(left);
        Self::default()
    }

    /// Does one step.
    pub fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        say(format!("── {name}"));
        let began = Instant::now();
        let result = step().with_context(|| format!("in the step `{name}`"));
        let took = began.elapsed();
        say(format!("{} {name}, {}", if result.is_ok() { "ok" } else { "FAILED" }, seconds(took)));
        self.done.push((name.to_owned(), took));
        result
    }

    /// Does one step that is a program, whose output the user sees.
    pub fn program(&mut self, name: &str, command: &mut Command) -> Result<()> {
        self.run(name, || {
            let status =
                command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
            if !status.success() {
                bail!("{} ended with {status}", command.get_program().display());
            }
            Ok(())
        })
    }

    /// Waits for a step that runs beside others, and shows what it printed.
    pub fn join(&mut self, mut beside: Beside) -> Result<()> {
        let status = beside.child.wait()?;
        // Its end, or that of the step before it, if that came later.
        let took = beside.began.elapsed();
        beside.output.rewind()?;
        say(std::io::read_to_string(&beside.output)?.trim_end());
        say(format!("{} {}, at most {}", if status.success() { "ok" } else { "FAILED" }, beside.name, seconds(took)));
        self.done.push((format!("{} (beside)", beside.name), took));
        if !status.success() {
            bail!("{} ended with {status}", beside.name);
        }
        Ok(())
    }

    /// A line a step, and the whole.
    pub fn summary(&self) {
        for (name, took) in &self.done {
            say(format!("{:>9}  {name}", seconds(*took)));
        }
        say(format!("{:>9}  in all", seconds(self.began.elapsed())));
    }
}

/// On Ctrl-C, says what is left on the machine and how to remove it, and ends the program with exit code 130.
pub fn on_interrupt(left: &'static str) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if runtime.is_ok_and(|runtime| runtime.block_on(tokio::signal::ctrl_c()).is_ok()) {
            say(format!("\ninterrupted; {left}"));
            #[expect(clippy::exit, reason = "what was interrupted has nothing to hand back")]
            std::process::exit(130);
        }
    });
}
