//! The terminal: results go to stdout, everything else to stderr; colour and marks as the terminal can show them.
//!
//! Whatever is printed goes through here, and nothing on which a terminal would act passes, except for our own styles.

use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{MultiProgress, ProgressDrawTarget};
use serde::Serialize;
use serde_json::{Value, json};

use super::error::CliError;
use super::exit_code::Exit;
use super::remedy::Here;
use super::style::{BAD, CAUTION, DOUBTFUL, END, GOOD, paint_text, strip_styles};
use crate::api::util::text::{escaped_json, escaped_text};
use crate::cli::args::global::Global;

/// Mark of a line of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// As it should be.
    Good,
    /// Works, but wants attention.
    Warning,
    /// Broken.
    Bad,
}

/// Output of a command: the streams that it writes to, and how much it writes.
#[derive(Debug, Clone)]
pub(crate) struct Ui {
    /// The name under which the user started the program.
    pub(crate) program: &'static str,
    /// The number of the last event, where stderr is a stream of JSON events instead of text.
    events: Option<Arc<AtomicU64>>,
    /// The flags that lead another command to the place of this run.
    pub(crate) here: Here,
    quiet: bool,
    unicode: bool,
    /// Whether stderr is a terminal on which lines can be drawn again.
    pub(crate) live: bool,
    /// The lines that are drawn again, which whatever else is written to stderr stays above.
    pub(crate) lines: MultiProgress,
}

/// An event as it is written: what every one has, then its own fields.
#[derive(Debug, Serialize)]
struct Line {
    sequence: u64,
    time: String,
    #[serde(rename = "type")]
    kind: Value,
    #[serde(flatten)]
    fields: Value,
}

fn locale_is_unicode() -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    // Without any locale set (containers, CI) UTF-8 is the safer guess today; only a named other charset says no.
    locale.is_none_or(|l| {
        let l = l.to_ascii_lowercase();
        l.contains("utf-8") || l.contains("utf8")
    })
}

fn is_dumb_terminal() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

impl Ui {
    /// A terminal as the environment describes it; `quiet` leaves out all but results, warnings and errors, `json` makes
    /// each line of stderr a JSON event.
    pub(crate) fn new(quiet: bool, program: &'static str, json: bool) -> Self {
        let live = io::stderr().is_terminal() && !is_dumb_terminal() && !json && !quiet;
        let events = json.then(Arc::default);
        let target = if live { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let lines = MultiProgress::with_draw_target(target);
        Self { program, events, here: Here::default(), quiet, unicode: locale_is_unicode(), live, lines }
    }

    /// The same, for a run at the place that the global flags name.
    #[must_use]
    pub(crate) fn at_location(self, global: &Global) -> Self {
        Self { here: Here::from_global(global), ..self }
    }

    /// Writes a result to stdout.
    pub(crate) fn write_stdout(&self, text: &str) -> io::Result<()> {
        let mut plain = io::stdout().lock();
        let written = match paint_text(text, self.unicode) {
            // Manifests hold no colours, and to look for some takes as long as to make them.
            Cow::Borrowed(text) => plain.write_all(text.as_bytes()).and_then(|()| plain.flush()),
            Cow::Owned(text) => {
                let mut stdout = anstream::AutoStream::auto(plain);
                stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
            }
        };
        written.map_err(|error| io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
    }

    /// Writes the last result of a command that ends with `exit`: whoever reads no further has not changed that.
    pub(crate) fn write_last_result(&self, text: &str, exit: Exit) -> Result<Exit, CliError> {
        match self.write_stdout(text) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(exit),
        }
    }

    /// Clears the terminal, so that the next result takes the place of the last; false where stdout is none that can.
    #[expect(clippy::unused_self, reason = "everything that is printed goes through here")]
    pub(crate) fn clear_terminal(&self) -> io::Result<bool> {
        let can = io::stdout().is_terminal() && !is_dumb_terminal();
        if can {
            // No matter of colour, so past what NO_COLOR takes away.
            io::stdout().write_all(b"\x1b[2J\x1b[H")?;
        }
        Ok(can)
    }

    /// Prints the progress on stderr; silent under `--quiet`.
    pub(crate) fn print_note(&self, text: &str) {
        if !self.quiet {
            self.write_stderr(text);
        }
    }

    /// Writes to stderr whatever the verbosity. A closed stderr is nothing that a command could fix.
    pub(crate) fn write_stderr(&self, text: &str) {
        if !self.write_event("message", true, || json!({"message": strip_styles(text, self.unicode)})) {
            self.lines.suspend(|| {
                let _ = writeln!(anstream::stderr().lock(), "{}", paint_text(text, self.unicode));
            });
        }
    }

    /// Warns on stderr.
    pub(crate) fn warn(&self, text: &str) {
        if !self.write_event("warning", true, || json!({"message": text})) {
            // Further lines of what others say are not to look like lines of ours.
            let text = escaped_text(text).replace('\n', "\n  ");
            self.write_stderr(&format!("{CAUTION}warning{END}: {text}"));
        }
    }

    /// Writes an error: as text, or as the last event.
    pub(crate) fn report_error(&self, error: &CliError) {
        // Hints name the program as the user started it.
        if !self.write_event("error", true, || error.to_json(self)) {
            self.write_stderr(self.with_program_name(&error.render(self)).trim_end());
        }
    }

    /// One line of JSON on stderr with the next number, where somebody asked for that; else nothing, and false. Under
    /// `--quiet` only what is `urgent`: what would be text then.
    pub(crate) fn write_event(&self, kind: &str, urgent: bool, fields: impl FnOnce() -> Value) -> bool {
        let Some(last) = &self.events else { return false };
        if let Some(line) = self.format_event(last, kind, urgent, fields) {
            let _ = writeln!(anstream::stderr().lock(), "{line}");
        }
        true
    }

    fn format_event(
        &self,
        last: &AtomicU64,
        kind: &str,
        urgent: bool,
        fields: impl FnOnce() -> Value,
    ) -> Option<String> {
        if self.quiet && !urgent {
            return None;
        }
        let mut fields = fields();
        // The engine's events bring a type of their own.
        let kind = fields.as_object_mut().and_then(|fields| fields.remove("type")).unwrap_or_else(|| json!(kind));
        let sequence = last.fetch_add(1, Ordering::Relaxed) + 1;
        let time = jiff::Timestamp::now().round(jiff::Unit::Millisecond).unwrap_or_default().to_string();
        let line = serde_json::to_string(&Line { sequence, time, kind, fields }).unwrap_or_default();
        Some(escaped_json(&self.with_program_name(&line)).into_owned())
    }

    /// Asks for the name of what is about to be changed.
    ///
    /// # Errors
    /// Another answer, or nobody who could be asked.
    pub(crate) fn confirm_by_name(&self, question: Question, what: &str, name: &str) -> Result<(), CliError> {
        if !io::stdin().is_terminal() {
            return Err(nobody_asked(question));
        }
        self.write_stderr(&format!("Type the name of the {what} to continue:"));
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if answer.trim() == name {
            return Ok(());
        }
        let done = match question {
            Question::DeleteData | Question::DeleteCluster => "deleted",
            Question::Accept => "accepted",
            Question::Undo => "undone",
            Question::Restore => "restored",
            Question::Release => "released",
            Question::UseRecorded => "written",
            Question::ContinueRemovals => "allowed",
        };
        Err(not_confirmed(question, &format!("not confirmed; nothing was {done}")))
    }

    /// A text whose commands name the program as the user started it.
    pub(crate) fn with_program_name(&self, text: &str) -> String {
        text.replace("`fleetctl ", &format!("`{} ", self.program))
    }

    /// A mark, coloured where the terminal allows it, ASCII where the locale demands it.
    #[expect(clippy::unused_self, reason = "a mark is for what is printed here")]
    pub(crate) const fn mark(&self, mark: Mark) -> char {
        match mark {
            Mark::Good => GOOD,
            Mark::Warning => DOUBTFUL,
            Mark::Bad => BAD,
        }
    }
}

/// Action that must be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    DeleteData,
    DeleteCluster,
    Accept,
    Undo,
    UseRecorded,
    ContinueRemovals,
    Restore,
    Release,
}

fn not_confirmed(question: Question, headline: &str) -> CliError {
    let hint = match question {
        Question::DeleteData | Question::DeleteCluster => "give `--yes` to delete without a prompt",
        Question::Accept => "give `--key FINGERPRINT` to accept only that agent, or `--yes` to accept any",
        Question::Undo => "give `--yes` to undo it without a prompt",
        Question::ContinueRemovals => "give `--yes` to allow them without a prompt",
        Question::Restore => "give `--yes` to restore without a prompt",
        Question::Release => "give `--yes` to release the hold without a prompt",
        Question::UseRecorded => {
            "give `--yes` to use them without a prompt, or give the values again, with `--values FILE`"
        }
    };
    CliError::new(Exit::Refused, "NotConfirmed", headline).hint(hint)
}

/// The error of what must be confirmed where nobody can be asked.
pub(crate) fn nobody_asked(question: Question) -> CliError {
    let what = match question {
        Question::DeleteData => "deleting data",
        Question::DeleteCluster => "deleting a cluster",
        Question::Accept => "accepting a cluster",
        Question::Undo => "undoing a run",
        Question::UseRecorded => "using recorded values",
        Question::ContinueRemovals => "removing copies",
        Question::Restore => "a restore",
        Question::Release => "deleting copies without a Schedule",
    };
    not_confirmed(question, &format!("{what} needs confirmation, but there is no terminal to ask on"))
}

#[cfg(test)]
impl Ui {
    /// The same wherever tests run.
    pub(crate) fn for_tests() -> Self {
        let lines = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        Self {
            program: "fleetctl",
            events: None,
            here: Here::default(),
            quiet: false,
            unicode: true,
            live: false,
            lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_urgent_is_an_event_under_quiet_too_whatever_its_type() {
        for (quiet, expected) in [(false, "1 update, 2 stuck, 3 waiting, 4 warning"), (true, "1 stuck, 2 warning")] {
            let ui = Ui { quiet, ..Ui::for_tests() };
            let last = AtomicU64::new(0);
            let lines = [
                ui.format_event(&last, "update", false, || json!({})),
                ui.format_event(&last, "", true, || json!({"type": "stuck"})),
                ui.format_event(&last, "", false, || json!({"type": "waiting"})),
                ui.format_event(&last, "warning", true, || json!({})),
            ];
            let told = lines.into_iter().flatten().map(|line| {
                let line: Value = serde_json::from_str(&line).unwrap();
                format!("{} {}", line["sequence"], line["type"].as_str().unwrap())
            });
            assert_eq!(told.collect::<Vec<_>>().join(", "), expected);
        }
    }
}
