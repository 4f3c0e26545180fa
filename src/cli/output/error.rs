//! Error that a command fails with: a headline, its causes, what to do next, and the exit code.

use std::error::Error as StdError;
use std::fmt::Write as _;

use super::exit_code::Exit;
use super::terminal::Ui;
use crate::api::remedy::Remedy;
use crate::api::util::text::escaped_text;
use crate::chart::Diagnostics;
use crate::chart::values::suggest;
use crate::k8s::error_sentences;

/// A failed command, as it is shown to the user.
#[derive(Debug)]
pub(crate) struct CliError {
    /// The exit code of the program.
    pub(crate) exit: Exit,
    /// A stable identifier of the reason, for scripts.
    pub(crate) reason: &'static str,
    /// The failure in one sentence, without a full stop.
    pub(crate) headline: String,
    /// Causes, outermost first; each line adds something to the one before.
    pub(crate) causes: Vec<String>,
    /// The things that the headline counts, one line each.
    pub(crate) details: Box<[String]>,
    /// Advice on what to do next.
    pub(crate) hints: Vec<Remedy>,
    /// Problems with values, each with its code and place; shown like a compiler's errors between causes and hints.
    pub(crate) problems: Option<Box<Diagnostics>>,
}

impl CliError {
    /// A failure with only a headline.
    pub(crate) fn new(exit: Exit, reason: &'static str, headline: impl Into<String>) -> Self {
        Self {
            exit,
            reason,
            headline: headline.into(),
            causes: Vec::new(),
            details: Box::default(),
            hints: Vec::new(),
            problems: None,
        }
    }

    /// Wrong arguments.
    pub(crate) fn usage(reason: &'static str, headline: impl Into<String>) -> Self {
        Self::new(Exit::Usage, reason, headline)
    }

    /// Wrong arguments, from what the parser says of them: the error, what was probably meant, the usage, where help is.
    pub(crate) fn wrong_usage(text: &str) -> Self {
        let mut paragraphs = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
        let first = paragraphs.next().unwrap_or_default();
        // Without arguments there is no error but the whole help.
        let Some(headline) = first.strip_prefix("error: ") else {
            return Self::usage("Usage", "a command is missing").hint("list the commands with `--help`");
        };
        let said = paragraphs.filter(|part| !part.is_empty());
        said.fold(Self::usage("Usage", headline), |error, part| error.hint(part.trim_start_matches("tip: ")))
    }

    /// Adds the chain of `error` as causes, without repeating what an outer message already says.
    pub(crate) fn because(mut self, error: &(dyn StdError + 'static)) -> Self {
        for said in error_sentences(error) {
            self.push_cause(said);
        }
        self
    }

    /// Adds one cause.
    pub(crate) fn cause(mut self, text: impl Into<String>) -> Self {
        self.push_cause(text.into());
        self
    }

    /// Lists the things that the headline counts.
    pub(crate) fn details(mut self, lines: Vec<String>) -> Self {
        self.details = lines.into();
        self
    }

    /// Adds advice on what to do next.
    pub(crate) fn hint(mut self, remedy: impl Into<Remedy>) -> Self {
        self.hints.push(remedy.into());
        self
    }

    /// Adds what was probably meant, if one of the candidates is near enough.
    pub(crate) fn did_you_mean(self, word: &str, candidates: &[&str]) -> Self {
        match suggest::find_nearest_word(word, candidates.iter().copied()) {
            Some(meant) => self.hint(format!("did you mean `{meant}`?")),
            None => self,
        }
    }

    /// Adds the hint to the page that explains the reason.
    pub(crate) fn hint_of_reason(self) -> Self {
        let hint = format!("explain it: `fleetctl explain {}`", self.reason);
        self.hint(hint)
    }

    fn push_cause(&mut self, text: String) {
        let said = self.headline.contains(&text) || self.causes.iter().any(|cause| cause.contains(&text));
        if said || text.is_empty() {
            return;
        }
        // An outer message that merely ends in the inner one says nothing that the inner one will not.
        if let Some(last) = self.causes.last_mut()
            && let Some(outer) = text.strip_suffix(last.as_str())
        {
            *last = format!("{outer}{last}");
            return;
        }
        self.causes.push(text);
    }

    /// The error for a program, as fields of an event.
    pub(crate) fn to_json(&self, ui: &Ui) -> serde_json::Value {
        serde_json::json!({"error": {
            "reason": self.reason,
            "exitCode": self.exit as u8,
            "message": self.headline,
            "causes": self.causes,
            "details": self.details,
            "hints": self.hints.iter().map(|hint| ui.format_remedy(hint)).collect::<Vec<_>>(),
            "problems": self.problems.as_ref().map(|problems| problems.0.as_slice()).unwrap_or_default(),
        }})
    }

    /// The text for a person: headline, causes, details, hints; without colour it says the same.
    pub(crate) fn render(&self, ui: &Ui) -> String {
        let mut text = format!("Error: {}\n", indent_foreign_text(&self.headline, "  "));
        for cause in &self.causes {
            let _ = writeln!(text, "  Caused by: {}", indent_foreign_text(cause, "    "));
        }
        for detail in &self.details {
            let _ = writeln!(text, "  {}", indent_foreign_text(detail, "    "));
        }
        if let Some(problems) = &self.problems {
            let _ = writeln!(text, "\n{}", problems.to_string().trim_end());
        }
        if !self.hints.is_empty() {
            text.push('\n');
        }
        for hint in &self.hints {
            let _ = writeln!(text, "hint: {}", indent_foreign_text(&ui.format_remedy(hint), "      "));
        }
        text
    }
}

/// Indents the further lines of a text: what others report is not to look like lines of fleetctl.
fn indent_foreign_text(text: &str, by: &str) -> String {
    escaped_text(text.trim_end()).replace('\n', &format!("\n{by}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_parser_says_becomes_a_headline_and_hints() {
        let text = "error: unexpected argument '--x' found\n\n  tip: a similar argument exists: '--xy'\n\nUsage: fleetctl a\n    [B]\n";
        let error = CliError::wrong_usage(text);
        assert_eq!(error.headline, "unexpected argument '--x' found");
        assert_eq!(error.hints, ["a similar argument exists: '--xy'".into(), "Usage: fleetctl a [B]".into()]);
        assert_eq!(CliError::wrong_usage("Install, check\n\nUsage: x\n").headline, "a command is missing");
    }

    #[test]
    fn causes_that_repeat_the_headline_are_left_out() {
        let inner = std::io::Error::other("no route to host");
        let error = CliError::new(Exit::Failed, "X", "cannot reach it: no route to host").because(&inner);
        assert!(error.causes.is_empty());
        assert_eq!(
            error.hint("try again").render(&Ui::for_tests()),
            "Error: cannot reach it: no route to host\n\nhint: try again\n"
        );
    }
}
