//! `explain`: the page of a check, of the cause of a failed wait, or of the reason of an error.

pub(in crate::cli) mod pages;
use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::style::{END, HEADING};
use crate::cli::output::terminal::Ui;
use pages::Page;

/// Explain a check, the cause of a failed wait, or the reason of an error or of a placement
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fleetctl explain\n  fleetctl explain storage\n  fleetctl explain Locked -o json\n  fleetctl explain NoFit"
)]
pub(crate) struct ExplainArgs {
    /// The id from a report or an error; without it all ids are listed
    #[arg(value_name = "ID")]
    id: Option<String>,

    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<ExplainFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExplainFormat {
    Json,
    Yaml,
    /// The page as it is written.
    Markdown,
}

/// A page as programs read it; in the list without its text.
#[derive(Debug, Serialize)]
struct PageEntry {
    id: &'static str,
    kinds: Vec<&'static str>,
    summary: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'static str>,
}

pub(crate) fn run(ui: &Ui, args: &ExplainArgs) -> Result<Exit, CliError> {
    let text = match &args.id {
        None => list_pages(args.output),
        Some(id) => {
            let page = pages::find_page(id).ok_or_else(|| unknown_id_error(id))?;
            match args.output {
                Some(ExplainFormat::Json) => crate::chart::output::format_json(&page_entry(page, true)),
                Some(ExplainFormat::Yaml) => crate::chart::output::format_yaml(&page_entry(page, true)),
                Some(ExplainFormat::Markdown) => page.text.to_owned(),
                None => ui.with_program_name(&format_page_text(page.text)),
            }
        }
    };
    ui.write_stdout(&text)?;
    Ok(Exit::Ok)
}

fn unknown_id_error(id: &str) -> CliError {
    let ids: Vec<&str> = pages::explain_pages().map(|page| page.id).collect();
    let error = CliError::usage("NoSuchId", format!("there is no page `{id}`")).did_you_mean(id, &ids);
    if error.hints.is_empty() { error.hint("`fleetctl explain` lists all") } else { error }
}

fn page_entry(page: Page, whole: bool) -> PageEntry {
    PageEntry { id: page.id, kinds: page.kinds(), summary: page.summary(), text: whole.then_some(page.text) }
}

/// Kinds of pages, with the title of the list of each.
const KINDS: [(&str, &str); 4] = [
    ("check", "CHECKS"),
    ("cause", "CAUSES OF A FAILED WAIT"),
    ("placement", "PLACEMENT: REASONS THAT GROUPS, CLUSTERS AND COPIES REPORT"),
    ("error", "ERRORS"),
];

fn list_pages(format: Option<ExplainFormat>) -> String {
    let entries = pages::explain_pages().map(|page| page_entry(page, false));
    match format {
        Some(ExplainFormat::Json) => crate::chart::output::format_json(&entries.collect::<Vec<_>>()),
        Some(ExplainFormat::Yaml) => crate::chart::output::format_yaml(&entries.collect::<Vec<_>>()),
        Some(ExplainFormat::Markdown) => {
            pages::explain_pages().map(|page| format!("- `{}`: {}\n", page.id, page.summary())).collect()
        }
        None => {
            let width = pages::explain_pages().map(|page| page.id.len()).max().unwrap_or_default();
            let mut text = String::new();
            for (kind, title) in KINDS {
                let _ = writeln!(text, "{}{title}", if text.is_empty() { "" } else { "\n" });
                for page in pages::explain_pages().filter(|page| page.kinds().contains(&kind)) {
                    let _ = writeln!(text, "  {:width$}  {}", page.id, page.summary());
                }
            }
            text
        }
    }
}

/// The page for a terminal: headings in bold instead of their marks, links as the ids that they name, what the program
/// prints indented and not fenced.
fn format_page_text(markdown: &str) -> String {
    let mut text = String::new();
    let mut fenced = false;
    for line in markdown.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let heading = line.trim_start_matches('#');
        let shown = if fenced {
            format!("    {line}").trim_end().to_owned()
        } else if heading.len() < line.len() {
            format!("{HEADING}{}{END}", heading.trim_start())
        } else {
            without_links(line)
        };
        text.push_str(&shown);
        text.push('\n');
    }
    text
}

/// `[id](id.md)` becomes `id`.
fn without_links(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((name, target)) = rest.split_once("](") {
        let (Some((before, name)), Some((_, after))) = (name.rsplit_once('['), target.split_once(')')) else { break };
        text.push_str(before);
        text.push_str(name);
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::style;

    #[test]
    fn a_page_for_the_terminal_has_no_marks_of_markdown() {
        let shown = format_page_text(
            "# storage\n\nSee [etcd](etcd.md), [a] and [storage](storage.md).\n\n```text\n# [x](y)\n\nz\n```\n",
        );
        let shown = style::strip_styles(&shown, true);
        assert_eq!(shown, "storage\n\nSee etcd, [a] and storage.\n\n    # [x](y)\n\n    z\n");
    }
}
