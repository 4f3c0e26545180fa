//! Recorded values before they are used: they are shown and asked for, and what may give rights is refused.

use std::path::Path;

use clap::Args;
use serde_json::Value;

use crate::api::shell::foreign_word;
use crate::api::util::file::FileError;
use crate::api::util::text::visible_line;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::{Question, Ui};
use crate::install::local_values::LocalValues;
use crate::install::recorded_use::{Ordinary, RecordedUse, UnconfirmedValue};
use crate::install::release_spec::Package;
use crate::k8s::{Connected, error_sentences};

/// Whether recorded values are asked for.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct ConfirmArgs {
    /// Use values of the last install without a prompt
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Shows the recorded values of an installation, as `control plane demo`, that a run uses, and returns those that it would
/// refuse.
pub(crate) fn show_recorded_values(ui: &Ui, what: &str, used: &RecordedUse) {
    if used.values.is_empty() && used.unconfirmed.is_empty() {
        return;
    }
    if !used.values.is_empty() {
        ui.print_note(&format_recorded_values(what, used));
    }
    if !used.unconfirmed.is_empty() {
        let paths: Vec<&str> = used.unconfirmed.iter().map(|value| value.path.as_str()).collect();
        ui.warn(&format!("an install or upgrade requires these values again: {}", visible_line(&paths.join(", "))));
    }
}

/// Shows the recorded values that a run uses, and asks for confirmation unless `yes` is given; this needs a terminal.
/// Values that
/// may give rights are refused either way, where this machine has not recorded them.
pub(crate) fn confirm_recorded_values(
    ui: &Ui,
    (what, name): (&str, &str),
    used: &RecordedUse,
    yes: bool,
) -> Result<(), CliError> {
    let installation = format!("{what} {name}");
    if !used.unconfirmed.is_empty() {
        return Err(refused_values_error(&installation, &used.unconfirmed));
    }
    if used.values.is_empty() {
        return Ok(());
    }
    ui.write_stderr(&format_recorded_values(&installation, used));
    if yes { Ok(()) } else { ui.confirm_by_name(Question::UseRecorded, what, name) }
}

/// Lists the values, a line each, as `--set-json` takes them.
pub(crate) fn format_recorded_values(what: &str, used: &RecordedUse) -> String {
    let lines: Vec<String> = used.values.iter().map(|value| visible_line(&value.to_string()).into_owned()).collect();
    format!("These values come from the record of {what}:\n  {}", lines.join("\n  "))
}

/// The error of recorded values that may give rights and that this machine has not installed.
pub(crate) fn unconfirmed_values_error(what: &str, values: &[UnconfirmedValue]) -> CliError {
    let headline = match values.len() {
        1 => format!("a recorded value of {what} can grant permissions, and no install from this machine used it"),
        n => {
            format!("{n} recorded values of {what} can grant permissions, and no install from this machine used them")
        }
    };
    let lines = values.iter().map(|value| visible_line(&value.to_string()).into_owned()).collect();
    CliError::new(Exit::Refused, "RightsNotConfirmed", headline).details(lines)
}

/// The error of an install or upgrade that uses such values.
pub(crate) fn refused_values_error(what: &str, values: &[UnconfirmedValue]) -> CliError {
    unconfirmed_values_error(what, values).hint(give_again(values)).hint("nothing was written to the cluster")
}

/// The advice to give values again.
fn give_again(values: &[UnconfirmedValue]) -> String {
    // A path that `--set-json` takes as it is, and a value that is no page.
    let short = values.iter().find(|value| {
        let text = value.recorded.as_ref().or(value.local.as_ref());
        text.is_some_and(|text| text.len() <= LONGEST_EXAMPLE) && !value.path.contains('[')
    });
    let flag = short.map_or_else(String::new, |value| {
        let text = value.recorded.as_ref().or(value.local.as_ref()).map_or("", String::as_str);
        format!(", or as `--set-json {}`", foreign_word(&format!("{}={text}", value.path)))
    });
    format!(
        "give each value explicitly, in a file with `--values FILE`{flag}; `null` restores the default of the chart"
    )
}

/// Length of the longest value that is an example of a flag.
const LONGEST_EXAMPLE: usize = 80;

/// Returns the recorded values that the values of `package` still hold: none where those of the last install, of the version
/// `former`, are not taken. What this machine has installed with is in `file`.
pub(crate) fn find_used_values(
    ui: &Ui,
    former: Option<&str>,
    package: &Package,
    file: &Path,
    cluster: &Connected,
    ordinary: Ordinary,
) -> RecordedUse {
    if former.is_none() {
        return RecordedUse::default();
    }
    let local = LocalValues::read_values_file(file, &cluster.server, package.namespace.as_str());
    let local = warn_of_unreadable_values(ui, local);
    RecordedUse::from_package_values(package, local.as_ref(), ordinary)
}

/// Warns where the values of the last install cannot be read, by which recorded values are confirmed.
pub(crate) fn warn_of_unreadable_values(ui: &Ui, read: Result<Option<Value>, FileError>) -> Option<Value> {
    read.unwrap_or_else(|error| {
        let why = error_sentences(&error).join(": ");
        let remedy = error.remedy().map(|remedy| format!("; {}", ui.format_remedy(&remedy))).unwrap_or_default();
        ui.warn(&format!(
            "the values of the last install from this machine cannot be read, so they confirm no \
                          recorded value: {why}{remedy}"
        ));
        None
    })
}

/// Stores the values of a successful install for the next run, which otherwise asks for more confirmation.
pub(crate) fn remember_values(ui: &Ui, package: &Package, file: &Path, cluster: &Connected) {
    let (server, namespace) = (cluster.server.clone(), package.namespace.to_string());
    if let Err(error) = (LocalValues { server, namespace, values: package.given_values() }).write_values_file(file) {
        let why = error_sentences(&error).join(": ");
        ui.warn(&format!("the values cannot be stored on this machine: {why}"));
    }
}
