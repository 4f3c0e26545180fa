//! The documentation that is made from the program itself: the command reference, the values, and the manual pages.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Arg, Args, Command};

use super::explain::pages;
use super::show::readme;
use crate::chart::Kind;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::{EXIT_CODES, Exit};
use crate::cli::output::terminal::Ui;
use crate::cli::parser::help_groups::GROUPS;

/// Write the generated part of the documentation
#[derive(Debug, Args)]
pub(crate) struct DocsArgs {
    /// Folder to write into; in the repository, this is `docs`
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// Write the manual pages
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fleetctl man --dir ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Folder to write `fleetctl.1` and one page per command into
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn write_docs(ui: &Ui, args: &DocsArgs, command: Command) -> Result<Exit, CliError> {
    let files = [
        ("reference.md", format_command_reference(command)),
        ("explain.md", format_explain_index()),
        ("exit-codes.md", exit_codes()),
        ("values-control-plane.md", mark_as_generated(&readme::render_newest_readme(Kind::ControlPlane)?)),
        ("values-agent.md", mark_as_generated(&readme::render_newest_readme(Kind::Agent)?)),
    ];
    for (name, text) in files {
        let file = args.dir.join(name);
        write_doc_file(&file, &text)?;
        ui.write_stdout(&format!("{}\n", file.display()))?;
    }
    Ok(Exit::Ok)
}

pub(crate) fn write_man_pages(ui: &Ui, args: &ManArgs, command: Command) -> Result<Exit, CliError> {
    fs_err::create_dir_all(&args.dir)?;
    let command = command.name("fleetctl").bin_name("fleetctl").version(concat!("v", env!("CARGO_PKG_VERSION")));
    let command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, &args.dir)?;
    ui.write_stdout(&format!("{}\n", args.dir.join("fleetctl.1").display()))?;
    Ok(Exit::Ok)
}

fn write_doc_file(file: &Path, text: &str) -> Result<(), CliError> {
    fs_err::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    Ok(fs_err::write(file, text)?)
}

const MADE: &str = "<!-- Made by `fleetctl docs --dir docs`; a test holds it current. -->\n\n";

/// A text with the note behind its title that it is made.
fn mark_as_generated(text: &str) -> String {
    match text.split_once("\n\n") {
        Some((title, rest)) => format!("{title}\n\n{MADE}{rest}"),
        None => text.to_owned(),
    }
}

/// Builds the page of exit codes, on which scripts may count.
fn exit_codes() -> String {
    let mut text = format!("# Exit codes\n\n{MADE}| Code | Meaning | What to do |\n|---|---|---|\n");
    for (exit, meaning, then) in EXIT_CODES {
        let _ = writeln!(text, "| {} | {meaning} | {then} |", exit as u8);
    }
    text.push_str(
        "\nWith `-o json`, every line of stderr is one JSON object with `sequence`, `time` and `type`. For an error, \
         `type` is `error`, and the field `error` contains an object with `reason`, `exitCode`, `message`, `causes`, \
         `hints` and `problems`. The reasons are stable; [checks, causes and errors](explain.md) lists them.\n\n\
         `fleetctl diff` follows kubectl: 0 nothing would change, 1 something would, above 1 an error.\n",
    );
    text
}

/// The list of all pages of `explain`.
fn format_explain_index() -> String {
    let mut text = format!("# Checks, causes and errors\n\n{MADE}`fleetctl explain ID` prints these pages.\n");
    let kinds =
        [("check", "Checks"), ("cause", "Causes of a failed wait"), ("placement", "Placement"), ("error", "Errors")];
    for (kind, title) in kinds {
        let _ = writeln!(text, "\n## {title}\n");
        for page in pages::explain_pages().filter(|page| page.kinds().contains(&kind)) {
            let _ = writeln!(text, "- [{0}](explain/{0}.md): {1}", page.id, page.summary());
        }
    }
    text
}

/// All commands with their arguments, as Markdown.
fn format_command_reference(command: Command) -> String {
    let mut command = command.name("fleetctl").bin_name("fleetctl");
    command.build();
    let mut text =
        format!("# Command reference\n\n{MADE}As a kubectl plugin, `kubectl fleet` stands for `fleetctl`.\n");
    let _ = writeln!(text, "\n## Global options\n\nEvery command takes these:\n");
    for arg in
        command.get_arguments().filter(|arg| !arg.is_hide_set() && (arg.is_global_set() || arg.get_id() == "help"))
    {
        write_argument_line(&mut text, arg);
    }
    text.push_str("\n## Commands\n\n");
    for (title, names) in GROUPS {
        let links = names.iter().filter(|name| **name != "help").map(|name| format!("[{name}](#fleetctl-{name})"));
        let _ = writeln!(text, "- {title}: {}", links.collect::<Vec<_>>().join(", "));
    }
    write_command_section(&mut text, &command, "fleetctl");
    text
}

fn write_command_section(text: &mut String, command: &Command, path: &str) {
    let subcommands: Vec<&Command> =
        command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help").collect();
    if path != "fleetctl" {
        let _ = writeln!(text, "\n## {path}\n\n{}", help_sentence(command.get_about().map(ToString::to_string)));
        let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
        if !aliases.is_empty() {
            let _ = writeln!(text, "\nAlso: {}", aliases.join(", "));
        }
        if subcommands.is_empty() || command.get_positionals().next().is_some() {
            let usage = command.clone().disable_help_subcommand(true).render_usage().to_string();
            // What its own subcommands add stands below, at each of them.
            let own = usage.lines().filter(|line| !line.ends_with("<COMMAND>")).collect::<String>();
            let usage = own.trim_start_matches("Usage:").split_whitespace().collect::<Vec<_>>().join(" ");
            let _ = writeln!(text, "\n```text\n{usage}\n```\n");
        }
        let arguments = command.get_arguments();
        arguments
            .filter(|arg| !arg.is_hide_set() && !arg.is_global_set() && arg.get_id() != "help")
            .for_each(|arg| write_argument_line(text, arg));
        if let Some(after) = command.get_after_help() {
            let _ = writeln!(text, "\n```text\n{}\n```", after.to_string().trim_end());
        }
    }
    for sub in subcommands {
        write_command_section(text, sub, &format!("{path} {}", sub.get_name()));
    }
}

fn help_sentence(help: Option<String>) -> String {
    // Angle brackets outside of code would be HTML; there are none in code either.
    help.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ").replace('<', "&lt;")
}

/// One argument: how it is written, what it means, its default and its possible values.
fn write_argument_line(text: &mut String, arg: &Arg) {
    let value = if arg.get_action().takes_values() {
        let names: Vec<String> = arg.get_value_names().into_iter().flatten().map(ToString::to_string).collect();
        if names.is_empty() { arg.get_id().to_string().to_uppercase() } else { names.join(" ") }
    } else {
        String::new()
    };
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let flags: Vec<String> = [long, short].into_iter().flatten().collect();
    let written = match (flags.is_empty(), value.is_empty()) {
        (true, _) => format!("`{value}`"),
        (false, true) => flags.iter().map(|flag| format!("`{flag}`")).collect::<Vec<_>>().join(", "),
        (false, false) => flags.iter().map(|flag| format!("`{flag} {value}`")).collect::<Vec<_>>().join(", "),
    };
    let _ = write!(text, "- {written}: {}", help_sentence(arg.get_help().map(ToString::to_string)));
    let possible: Vec<String> = if arg.get_action().takes_values() {
        arg.get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| format!("`{}`", value.get_name()))
            .collect()
    } else {
        Vec::new()
    };
    if !possible.is_empty() {
        let _ = write!(text, ". One of {}", possible.join(", "));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        let _ = write!(text, ". Default: {}", defaults.join(", "));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, ". Environment: `{}`", variable.to_string_lossy());
    }
    text.push('\n');
}
