//! Errors like a compiler's: a place in a source with a caret, what was expected, and what to do.

use std::fmt;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

use crate::api::util::text::show_blanks;

/// Number of characters of a long line that are shown before the place; at most twice as many are shown from it on.
const AROUND: usize = 60;

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// An error: nothing is rendered.
    Error,
    /// A warning: the input is accepted, but should be looked at.
    Warning,
}

/// A place in a source, with the line it is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The source: a file name, or a flag such as `--set`.
    pub source: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The line's text, secrets masked; a long one is cut around the column.
    pub text: String,
    /// Byte offset of the place in `text`.
    #[serde(skip)]
    pub start: usize,
    /// Number of bytes of `text` that the place covers; 0 for a point.
    #[serde(skip)]
    pub width: usize,
}

impl Place {
    /// Returns whether both are at the same line and column of the same source.
    pub fn is_same_position(&self, other: &Self) -> bool {
        (&self.source, self.line, self.column) == (&other.source, other.line, other.column)
    }

    /// A place in a text by its byte range; a range over several lines ends with its first.
    pub fn in_text(source: &str, text: &str, start: usize, end: usize) -> Self {
        let start = floor_char_boundary(text, start);
        let end = floor_char_boundary(text, end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line_text = text[line_start..line_end].trim_end_matches('\r');
        let at = (start - line_start).min(line_text.len());
        let width = end.min(line_end).saturating_sub(start).min(line_text.len() - at);
        let line = text[..start].bytes().filter(|&byte| byte == b'\n').count() + 1;
        let column = line_text[..at].chars().count() + 1;
        let (shown, start, width) = cut_line(line_text, at, width);
        Self { source: source.to_owned(), line, column, text: shown, start, width }
    }

    /// `file:line:column`, as compilers write it.
    pub fn format_position(&self) -> String {
        format!("{}:{}:{}", self.source, self.line, self.column)
    }
}

/// Returns the nearest character boundary at or below a byte offset.
fn floor_char_boundary(text: &str, offset: usize) -> usize {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Cuts a long line around a place and makes control characters visible; returns the text, and offset and width of the
/// place in it, in bytes.
fn cut_line(line: &str, at: usize, width: usize) -> (String, usize, usize) {
    let from = line[..at].char_indices().rev().nth(AROUND - 1).map_or(0, |(index, _)| index);
    let to = line[at..].char_indices().nth(2 * AROUND).map_or(line.len(), |(index, _)| at + index);
    let mut shown = String::new();
    if from > 0 {
        shown.push('…');
    }
    shown.push_str(&replace_controls(&line[from..at]));
    let start = shown.len();
    let end = (at + width).min(to);
    shown.push_str(&replace_controls(&line[at..end]));
    let width = shown.len() - start;
    shown.push_str(&replace_controls(&line[end..to]));
    if to < line.len() {
        shown.push('…');
    }
    (shown, start, width)
}

/// The text with a space for each tab, and a sign of the same width for each other control character.
fn replace_controls(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == '\t' {
                ' '
            } else if c.is_control() {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// One problem: an error or a warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// A stable code: `unknown-key`.
    pub code: &'static str,
    /// Severity: an error or a warning.
    pub severity: Severity,
    /// The problem in one sentence without a full stop, values of secrets left out.
    pub message: String,
    /// The path of the value: `etcd.image.tag`; empty for the whole document.
    pub path: String,
    /// Place in the source, if it is known.
    pub place: Option<Place>,
    /// Text under the caret, usually what was expected; empty for none.
    pub label: String,
    /// Background, such as what the field is for.
    pub notes: Vec<String>,
    /// Advice on what to do.
    pub helps: Vec<String>,
}

impl Diagnostic {
    /// An error without a place yet.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: show_blanks(&message.into()).into_owned(),
            path: String::new(),
            place: None,
            label: String::new(),
            notes: Vec::new(),
            helps: Vec::new(),
        }
    }

    /// The last of many: the number of errors of the same kind that are not shown. None for 0.
    pub(super) fn more_errors(errors: usize) -> Option<Self> {
        (errors > 0).then(|| Self::error("more-errors", format!("{errors} more errors like these")))
    }

    /// A warning without a place yet.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message) }
    }

    /// Sets the place in the source.
    #[must_use]
    pub fn at(mut self, place: impl Into<Option<Place>>) -> Self {
        self.place = place.into();
        self
    }

    /// Sets the path of the value.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Sets the text under the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds a note with background.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds advice on what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.helps.push(help.into());
        self
    }

    /// Returns the text for people, with terminal colours if `colour`, without a line break at its end.
    pub fn render_diagnostic(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(self.message.as_str()).id(self.code);
        let mut group = match &self.place {
            Some(place) => title.element(
                Snippet::source(place.text.as_str()).line_start(place.line).path(place.source.as_str()).annotation(
                    AnnotationKind::Primary
                        .span(
                            floor_char_boundary(&place.text, place.start)
                                ..floor_char_boundary(&place.text, place.start + place.width),
                        )
                        .label((!self.label.is_empty()).then_some(self.label.as_str())),
                ),
            ),
            None => annotate_snippets::Group::with_title(title),
        };
        group = group.elements(self.notes.iter().map(|note| Level::NOTE.message(note.as_str())));
        group = group.elements(self.helps.iter().map(|help| Level::HELP.message(help.as_str())));
        renderer.render(&[group])
    }
}

/// One or more errors, perhaps with warnings; every one that could be found in one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(transparent)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Returns whether there is an error among them.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Returns the text for people: all of them, with an empty line between two.
    pub fn render_diagnostics(&self, colour: bool) -> String {
        let texts: Vec<String> = self.0.iter().map(|diagnostic| diagnostic.render_diagnostic(colour)).collect();
        texts.join("\n\n")
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render_diagnostics(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_by_bytes_and_shown_by_characters() {
        let text = "a: 1\nä: größe # x\nb: 2\n";
        let start = text.find("größe").unwrap();
        let place = Place::in_text("f.yaml", text, start, start + "größe".len());
        assert_eq!((place.line, place.column, place.format_position().as_str()), (2, 4, "f.yaml:2:4"));
        assert_eq!(&place.text[place.start..place.start + place.width], "größe");
        let end = Place::in_text("f.yaml", text, 10_000, 10_001);
        assert_eq!((end.line, end.column), (4, 1));
    }

    #[test]
    fn a_long_line_is_cut_around_its_place_and_control_characters_are_made_visible() {
        let line = format!("{}X{}", "a".repeat(500), "b\u{7}".repeat(500));
        let place = Place::in_text("f", &line, 500, 501);
        assert_eq!(place.column, 501);
        assert_eq!(&place.text[place.start..place.start + place.width], "X");
        assert!(place.text.chars().count() < 200 && place.text.starts_with('…') && place.text.ends_with('…'));
        assert!(!place.text.chars().any(char::is_control));
    }

    #[test]
    fn an_error_reads_like_a_compilers() {
        let text = "etcd:\n  replica: 3\n";
        let error = Diagnostic::error("unknown-key", "unknown key `replica`")
            .at(Place::in_text("my.yaml", text, 8, 15))
            .label("not a key of `etcd`")
            .note("`etcd` takes `replicas`")
            .help("did you mean `replicas`?");
        insta::assert_snapshot!(error.render_diagnostic(false), @r"
        error[unknown-key]: unknown key `replica`
         --> my.yaml:2:3
          |
        2 |   replica: 3
          |   ^^^^^^^ not a key of `etcd`
          |
          = note: `etcd` takes `replicas`
          = help: did you mean `replicas`?
        ");
        assert!(error.render_diagnostic(true).contains('\u{1b}'));
    }
}
