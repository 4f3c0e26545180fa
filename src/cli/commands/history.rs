//! `history`: the last runs that changed an installation.

use clap::Args;
use serde::Serialize;

use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;
use crate::cli::args::installation::{Installation, InstallationArgs};
use crate::cli::connect;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::table::{Columns, table_row};
use crate::cli::output::terminal::Ui;
use crate::inventory::{Outcome, Revision};

/// List the last runs that changed an installation
#[derive(Debug, Args)]
#[command(
    after_help = "The last ten runs are recorded, except runs that found nothing to change. Equal digests mean equal values.

Examples:
  fleetctl history demo
  fleetctl history west --context west -o json"
)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    installation: InstallationArgs,

    /// Output format [default: a table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

/// One run as programs read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HistoryEntry<'r> {
    #[serde(flatten)]
    run: &'r Revision,
    /// The status that the table shows.
    status: &'static str,
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: &HistoryArgs) -> Result<Exit, CliError> {
    let client = connect::connect_cluster(global).await?.client;
    let Installation { owner, state, .. } = args.installation.find_installation(global, &client).await?;
    let entries: Vec<HistoryEntry<'_>> = state
        .history
        .0
        .iter()
        .map(|run| HistoryEntry { run, status: run_status(run.outcome, state.lock.is_some()) })
        .collect();
    let text = match args.output {
        Some(format) => format.serialize_value(&entries),
        None if entries.is_empty() => format!("No run of {} is recorded.\n", owner.name),
        None => format_history(&entries),
    };
    ui.write_stdout(&text)?;
    Ok(Exit::Ok)
}

/// Returns the status of a run: how it ended; one that has not ended, and whose lock nobody holds, was killed.
const fn run_status(outcome: Outcome, is_locked: bool) -> &'static str {
    match outcome {
        Outcome::Started if is_locked => "running",
        Outcome::Started | Outcome::Interrupted => "interrupted",
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::RolledBack => "rolled back",
    }
}

/// Number of characters of a digest that are shown: enough to tell ten apart.
const DIGEST: usize = 12;

fn format_history(entries: &[HistoryEntry<'_>]) -> String {
    let mut rows = vec![table_row(["REVISION", "STARTED", "BY", "COMMAND", "VERSION", "VALUES", "STATUS"])];
    rows.extend(entries.iter().map(|HistoryEntry { run, status }| {
        let time: Result<jiff::Timestamp, _> = run.started.parse();
        let started = time.map_or_else(|_| run.started.clone(), |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string());
        let digest: String = run.values_digest.chars().take(DIGEST).collect();
        let number = run.revision.to_string();
        table_row([&number, &started, &run.by, &run.command, &run.version, &digest, status])
            .iter()
            .map(|cell| visible_cell(cell).into_owned())
            .collect()
    }));
    Columns::from_rows(&rows).format_lines(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_example_runs(locked: bool) -> String {
        let runs =
            [(9, "install", Outcome::Succeeded, "ada@host"), (10, "upgrade", Outcome::Started, "\u{1b}[2J@host")];
        let runs = runs.map(|(revision, command, outcome, by)| Revision {
            revision,
            started: "2026-11-26T01:02:03.456Z".to_owned(),
            ended: None,
            by: by.to_owned(),
            command: command.to_owned(),
            version: "v0.6.1".to_owned(),
            values_digest: "sha256".repeat(5),
            outcome,
        });
        let entries = runs.each_ref().map(|run| HistoryEntry { run, status: run_status(run.outcome, locked) });
        format_history(&entries)
    }

    #[test]
    fn a_run_is_a_row_with_who_when_and_how_it_ended() {
        assert_eq!(
            format_example_runs(true),
            "REVISION   STARTED                BY               COMMAND   VERSION   VALUES         STATUS\n\
             9          2026-11-26 01:02:03Z   ada@host         install   v0.6.1    sha256sha256   succeeded\n\
             10         2026-11-26 01:02:03Z   \\u{1b}[2J@host   upgrade   v0.6.1    sha256sha256   running\n"
        );
        assert!(format_example_runs(false).contains("interrupted"));
    }
}
