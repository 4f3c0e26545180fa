//! Formats of the verdicts of checks: a table by category, one line a problem, entries for programs, a JUnit report.

use std::fmt::Write as _;

use serde::Serialize;

use super::terminal::{Mark, Ui};
use crate::api::util::text::is_harmful;
use crate::check::{CheckResult, Judged, Report};

/// One verdict as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct Entry<'r> {
    id: &'r str,
    category: &'r str,
    title: &'r str,
    /// `passed`, `failed`, `warned` or `skipped`.
    verdict: &'static str,
    /// The observation, the problem, or the check that kept this one from being judged.
    message: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// All verdicts, in the order of the checks.
pub(crate) fn check_entries<'r>(ui: &Ui, report: &'r Report) -> Vec<Entry<'r>> {
    report.judged.iter().map(|judged| check_entry(ui, judged)).collect()
}

fn check_entry<'r>(ui: &Ui, judged: &'r Judged) -> Entry<'r> {
    let (verdict, message, remedy) = match &judged.result {
        CheckResult::Passed(seen) => ("passed", seen.as_str(), None),
        CheckResult::Failed(problem) => ("failed", problem.what.as_str(), Some(ui.format_remedy(&problem.remedy))),
        CheckResult::Warned(problem) => ("warned", problem.what.as_str(), Some(ui.format_remedy(&problem.remedy))),
        CheckResult::Skipped(needed) => ("skipped", *needed, None),
    };
    Entry { id: judged.id, category: judged.category, title: judged.title, verdict, message, remedy }
}

/// Verdicts for people, under the headings of their categories, as many at a time as there are.
#[derive(Debug)]
pub(crate) struct Rows<'u> {
    ui: &'u Ui,
    category: &'static str,
}

impl<'u> Rows<'u> {
    pub(crate) const fn new(ui: &'u Ui) -> Self {
        Self { ui, category: "" }
    }

    /// A line for each of the next verdicts.
    pub(crate) fn format_rows(&mut self, judged: &[Judged]) -> String {
        let mut text = String::new();
        for judged in judged {
            if judged.category != self.category {
                let gap = if self.category.is_empty() { "" } else { "\n" };
                self.category = judged.category;
                let _ = writeln!(text, "{gap}{}", self.category);
            }
            let shown = check_entry(self.ui, judged);
            let (mark, message) = match judged.result {
                CheckResult::Passed(_) => (Mark::Good, shown.message.to_owned()),
                CheckResult::Failed(_) => (Mark::Bad, shown.message.to_owned()),
                CheckResult::Warned(_) => (Mark::Warning, shown.message.to_owned()),
                CheckResult::Skipped(needed) => (Mark::Warning, format!("not checked, because of `{needed}`")),
            };
            let _ = writeln!(text, "{} {} ({}): {message}", self.ui.mark(mark), shown.title, shown.id);
            if let Some(remedy) = &shown.remedy {
                let _ = writeln!(text, "    {}", self.ui.with_program_name(remedy).replace('\n', "\n    "));
            }
        }
        text
    }

    /// The line that sums up, after a gap.
    pub(crate) fn format_summary(&self, subject: &str, report: &Report) -> String {
        let (failed, warned) = (report.failures().count(), report.warnings().count());
        match (failed, warned) {
            (0, 0) => {
                format!("\n{subject}: all {} checks passed {}\n", report.judged.len(), self.ui.mark(Mark::Good))
            }
            (0, n) => {
                format!("\n{subject}: passed with {n} warning{} {}\n", plural_suffix(n), self.ui.mark(Mark::Warning))
            }
            (n, _) => format!("\n{subject}: {n} check{} failed {}\n", plural_suffix(n), self.ui.mark(Mark::Bad)),
        }
    }
}

/// All verdicts, and the line that sums up.
pub(crate) fn format_check_table(ui: &Ui, subject: &str, report: &Report) -> String {
    let mut rows = Rows::new(ui);
    rows.format_rows(&report.judged) + &rows.format_summary(subject, report)
}

fn plural_suffix(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// `verdict id: what is wrong`, for what does not hold; nothing when all is well.
pub(crate) fn format_short(ui: &Ui, judged: &[Judged]) -> String {
    let unwell = judged.iter().map(|judged| check_entry(ui, judged)).filter(|entry| entry.verdict != "passed");
    unwell.map(|entry| format!("{} {}: {}\n", entry.verdict, entry.id, entry.message)).collect()
}

/// A JUnit report: a test case a check; a warning passes and is said in its output.
pub(crate) fn format_junit(ui: &Ui, subject: &str, report: &Report) -> String {
    let skipped = report.judged.iter().filter(|judged| matches!(judged.result, CheckResult::Skipped(_))).count();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        text,
        r#"<testsuite name="{}" tests="{}" failures="{}" skipped="{skipped}">"#,
        escape_xml(subject),
        report.judged.len(),
        report.failures().count()
    );
    for entry in check_entries(ui, report) {
        let (id, category, message) = (escape_xml(entry.id), escape_xml(entry.category), escape_xml(entry.message));
        let remedy = escape_xml(entry.remedy.as_deref().unwrap_or_default());
        let inner = match entry.verdict {
            "failed" => format!(r#"<failure message="{message}">{remedy}</failure>"#),
            "skipped" => format!(r#"<skipped message="because of {message}"/>"#),
            "warned" => format!("<system-out>warning: {message}; {remedy}</system-out>"),
            _ => format!("<system-out>{message}</system-out>"),
        };
        let _ = writeln!(text, r#"  <testcase name="{id}" classname="{category}">{inner}</testcase>"#);
    }
    text.push_str("</testsuite>\n");
    text
}

/// Text as it may stand in XML, inside attributes too. Characters that XML has no way to write, or on which a terminal would
/// act, become U+FFFD.
fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push(' '),
            c if is_harmful(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Problem;

    fn report() -> Report {
        let problem = Problem { what: "<none> of \"it\" & more\u{1}".to_owned(), remedy: "mend it".into() };
        let verdicts = [
            CheckResult::Passed("seen".to_owned()),
            CheckResult::Failed(problem.clone()),
            CheckResult::Warned(problem),
            CheckResult::Skipped("b"),
        ];
        let ids = ["a", "b", "c", "d"];
        let judged = ids.into_iter().zip(verdicts);
        Report { judged: judged.map(|(id, result)| Judged { id, title: id, category: "k", result }).collect() }
    }

    #[test]
    fn a_junit_report_is_well_formed_whatever_a_check_saw() {
        let text = format_junit(&Ui::for_tests(), "a & b", &report());
        assert!(text.contains(r#"<testsuite name="a &amp; b" tests="4" failures="1" skipped="1">"#), "{text}");
        assert!(text.contains("&lt;none&gt; of &quot;it&quot; &amp; more\u{fffd}"), "{text}");
        assert_eq!(text.matches("<testcase ").count(), text.matches("</testcase>").count());
    }

    #[test]
    fn short_names_only_what_does_not_hold() {
        let text = format_short(&Ui::for_tests(), &report().judged);
        assert_eq!(text.lines().count(), 3);
        assert!(text.starts_with("failed b: "), "{text}");
    }
}
