//! Runs that consist of steps: each is named before it starts, and its duration told after.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::say::{say, seconds};

/// A run and what it has done so far.
#[derive(Debug)]
pub struct Steps {
    began: Instant,
    done: Vec<(String, Duration)>,
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
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if runtime.is_ok_and(|runtime| runtime.block_on(tokio::signal::ctrl_c()).is_ok()) {
                say(format!("\ninterrupted; {left}"));
                #[expect(clippy::exit, reason = "the step that was interrupted has nothing to hand back")]
                std::process::exit(130);
            }
        });
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

    /// A line a step, and the whole.
    pub fn summary(&self) {
        for (name, took) in &self.done {
            say(format!("{:>9}  {name}", seconds(*took)));
        }
        say(format!("{:>9}  in all", seconds(self.began.elapsed())));
    }
}
