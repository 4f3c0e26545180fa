//! The command line: one file per command. Only this room prints and asks.

mod args;
mod commands;
mod connect;
mod output;
mod parser;
mod render_offline;
mod signals;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use futures::future::LocalBoxFuture;

use args::environment;
use args::global::Global;
use commands::{
    accept, backup, certs, check, completion, delete, diff, etcd, explain, get, history, install, kubeconfig,
    kubectl_install, lint, pods, rebalance, reference, restore, rollback, show, simulate, status, taint, template,
    token, uninstall, upgrade, version, versions, why,
};
use output::error::CliError;
use output::exit_code::Exit;
use output::terminal::Ui;
use parser::help_groups::group_help;
use parser::lazy::{Lazy, build_lazy_tree};

/// Install, check and remove a multi-cluster Kubernetes scheduling service
#[derive(Debug, Parser)]
#[command(name = "fleetctl", disable_version_flag = true, subcommand_required = true, arg_required_else_help = true, after_help = environment::HELP)]
struct Cli {
    #[command(flatten)]
    global: Global,

    /// Print version
    #[arg(short = 'v', long = "version", action = ArgAction::Version)]
    version: Option<bool>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install a control plane or an agent
    #[command(subcommand)]
    Install(Lazy<install::InstallCommand>),
    /// Change the version of a control plane or an agent and reuse its values
    #[command(subcommand)]
    Upgrade(Lazy<upgrade::UpgradeCommand>),
    /// Remove a control plane or an agent
    #[command(subcommand)]
    Uninstall(Lazy<uninstall::UninstallCommand>),
    /// Check the status of a control plane installation
    Status(Lazy<status::StatusArgs>),
    /// Show and renew the certificates of a control plane
    #[command(subcommand)]
    Certs(Lazy<certs::CertsCommand>),
    /// Make, list, show and verify backups of a control plane
    Backup(Lazy<backup::BackupArgs>),
    /// Replace the data of a control plane with that of a backup
    Restore(Lazy<restore::RestoreArgs>),
    /// Inspect the etcd of a control plane
    #[command(subcommand)]
    Etcd(Lazy<etcd::EtcdCommand>),
    /// Show what an install would change, and change nothing
    #[command(subcommand)]
    Diff(Lazy<diff::DiffCommand>),
    /// List the last runs that changed an installation
    History(Lazy<history::HistoryArgs>),
    /// Undo an install or upgrade that was interrupted
    Rollback(Lazy<rollback::RollbackArgs>),
    /// Restore the kubeconfig of a control plane
    Kubeconfig(Lazy<kubeconfig::KubeconfigArgs>),
    /// Check a cluster before an install, or an installed control plane
    Check(Lazy<Box<check::CheckArgs>>),
    /// List workload clusters, schedule groups and deployments of a control plane
    #[command(subcommand)]
    Get(Lazy<get::GetCommand>),
    /// Explain where an object is placed and why, or why it is not
    Why(Lazy<why::WhyArgs>),
    /// Show where objects and policies would be placed, and what would move
    Simulate(Lazy<simulate::SimulateArgs>),
    /// Show the logs of a placed object, from the workload cluster that runs it
    Logs(Lazy<pods::LogsArgs>),
    /// Run a command in a container of a placed object
    Exec(Lazy<pods::ExecArgs>),
    /// Forward local ports to a pod of a placed object
    PortForward(Lazy<pods::PortForwardArgs>),
    /// Show the CPU and memory of the pods of a placed object
    Top(Lazy<pods::TopArgs>),
    /// Accept the registration of a workload cluster with a control plane that has manual registration
    Accept(Lazy<accept::AcceptArgs>),
    /// Manage bootstrap tokens for single workload clusters
    #[command(subcommand)]
    Token(Lazy<token::TokenCommand>),
    /// Delete a workload cluster that no longer exists from a control plane
    #[command(subcommand)]
    Delete(Lazy<delete::DeleteCommand>),
    /// Move the workloads of a workload cluster to other clusters
    #[command(subcommand)]
    Drain(Lazy<taint::drain::DrainCommand>),
    /// Place no new work in a workload cluster
    #[command(subcommand)]
    Cordon(Lazy<taint::CordonCommand>),
    /// Let a workload cluster take work again
    #[command(subcommand)]
    Uncordon(Lazy<taint::UncordonCommand>),
    /// Edit the taints of a workload cluster
    #[command(subcommand)]
    Taint(Lazy<taint::TaintCommand>),
    /// Move groups to clusters that fit them better
    Rebalance(Lazy<rebalance::RebalanceArgs>),
    /// Print the objects of an install as manifests for `kubectl apply`
    #[command(subcommand)]
    Template(Lazy<template::TemplateCommand>),
    /// Check values, and the objects rendered with them, without a cluster
    Lint(Lazy<Box<lint::LintArgs>>),
    /// Show the values, images, rights and templates of a chart
    #[command(subcommand)]
    Show(Lazy<show::ShowCommand>),
    /// List service versions and the Kubernetes versions they support
    Versions(Lazy<versions::VersionsArgs>),
    /// Print the versions of this program, of control planes and of agents
    Version(Lazy<version::VersionArgs>),
    /// Explain a check, the cause of a failed wait, or the reason of an error
    Explain(Lazy<explain::ExplainArgs>),
    /// Print a script that completes commands, flags and names in a shell
    Completion(Lazy<completion::CompletionArgs>),
    /// Write the generated part of the documentation
    #[command(hide = true)]
    Docs(Lazy<reference::DocsArgs>),
    /// Write the manual pages
    #[command(hide = true)]
    Man(Lazy<reference::ManArgs>),
    /// Install this program as a kubectl plugin: as `kubectl fleet`, or under another name
    KubectlInstall(Lazy<kubectl_install::KubectlInstallArgs>),
}

/// The name under which the user started the program: `fleetctl`, or that of the plugin as kubectl has it, as `kubectl fleet`.
fn program_name(argv0: &OsString) -> &'static str {
    let plugin = parser::plugin_name::PluginName::from_program(argv0);
    plugin.map_or("fleetctl", |plugin| plugin.typed_command().leak())
}

/// The text of `--version`, without the program's name.
fn version_text() -> String {
    format!("version v{} (git: {}) built: {}", env!("CARGO_PKG_VERSION"), env!("FLEETCTL_GIT"), env!("FLEETCTL_BUILT"))
}

/// The whole command tree.
fn command_tree() -> clap::Command {
    let version: &'static str = version_text().leak();
    Cli::command().version(version)
}

/// Runs the program on the process's arguments and gives its exit code.
pub fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    if let Some(exit) = completion::answer_completion(&argv, command_tree) {
        return ExitCode::from(exit as u8);
    }
    let name = argv.first().map_or("fleetctl", program_name);
    let color = color_of(&argv);
    stream_color(color).write_global();
    // Help and mistakes are told by the whole tree; its order of flags is another.
    let parsed = parse_command_line(build_lazy_tree(command_tree), &argv, name, color);
    let parsed = parsed.or_else(|error| match error.kind() {
        ErrorKind::DisplayVersion => Err(error),
        _ => {
            let tree = parser::program_name::rename_tree(command_tree(), name).name(name).bin_name(name);
            parse_command_line(group_help(tree), &argv, name, color)
        }
    });
    let (mut cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = parser::did_you_mean::add_suggestion(error, &argv, &command_tree(), name);
            return clap_ended(&error, name, wants_json(&argv));
        }
    };
    // As kubectl has it: an empty name is none.
    cli.global.context = cli.global.context.filter(|context| !context.is_empty());
    cli.global.namespace_given =
        matches.value_source("namespace").is_some_and(|from| from != ValueSource::DefaultValue);
    let ui = Ui::new(cli.global.quiet, name, asks_for_json(&matches)).at_location(&cli.global);
    output::log::start_log(cli.global.verbose, cli.global.log_format, &ui.lines);
    crate::k8s::report_retries_to(output::progress::retry_events(&ui));
    for remark in environment::find_unknown_variables() {
        ui.warn(&remark);
    }
    let result = run_command(&ui, cli);
    report_result(&ui, result)
}

fn parse_command_line(
    tree: clap::Command,
    argv: &[OsString],
    name: &'static str,
    color: ColorChoice,
) -> Result<(Cli, clap::ArgMatches), clap::Error> {
    let tree = environment::without_empty(tree).name(name).bin_name(name).color(color);
    let matches = tree.try_get_matches_from(argv)?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

/// Returns the words up to `--`, as far as they are text.
fn list_flag_words(argv: &[OsString]) -> Vec<&str> {
    argv.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str()).collect()
}

/// Returns the choice of `--color` before anything is parsed: help and usage errors are coloured too.
fn color_of(argv: &[OsString]) -> ColorChoice {
    let words = list_flag_words(argv);
    let joined = words.iter().filter_map(|word| word.strip_prefix("--color=")).next_back();
    let apart = words.windows(2).filter(|pair| pair[0] == "--color").map(|pair| pair[1]).next_back();
    match joined.or(apart) {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

fn stream_color(color: ColorChoice) -> anstream::ColorChoice {
    match color {
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
        ColorChoice::Auto => anstream::ColorChoice::Auto,
    }
}

/// Runs a command; only those that may ask a cluster are given a runtime.
fn run_command(ui: &Ui, cli: Cli) -> Result<Exit, CliError> {
    let global = &cli.global;
    let work: LocalBoxFuture<'_, Result<Exit, CliError>> = match cli.command {
        Command::Template(Lazy(command)) => return template::run(ui, global, command),
        Command::Lint(Lazy(args)) => return lint::run(ui, global, &args),
        Command::Show(Lazy(command)) => return show::run(ui, global, command),
        Command::Versions(Lazy(args)) => return versions::run(ui, &args),
        Command::Explain(Lazy(args)) => return explain::run(ui, &args),
        Command::Completion(Lazy(args)) => return completion::run(ui, &args),
        Command::Docs(Lazy(args)) => return reference::write_docs(ui, &args, command_tree()),
        Command::Man(Lazy(args)) => return reference::write_man_pages(ui, &args, command_tree()),
        Command::KubectlInstall(Lazy(args)) => return kubectl_install::run(ui, &args),
        Command::Install(Lazy(command)) => Box::pin(install::run(ui, global, command)),
        Command::Upgrade(Lazy(command)) => Box::pin(upgrade::run(ui, global, command)),
        Command::History(Lazy(args)) => Box::pin(async move { history::run(ui, global, &args).await }),
        Command::Uninstall(Lazy(command)) => Box::pin(uninstall::run(ui, global, command)),
        Command::Check(Lazy(args)) => Box::pin(check::run(ui, global, *args)),
        Command::Status(Lazy(args)) => Box::pin(status::run(ui, global, args)),
        Command::Certs(Lazy(command)) => Box::pin(certs::run(ui, global, command)),
        Command::Backup(Lazy(args)) => Box::pin(backup::run(ui, global, args)),
        Command::Restore(Lazy(args)) => Box::pin(restore::run(ui, global, args)),
        Command::Etcd(Lazy(command)) => Box::pin(etcd::run(ui, global, command)),
        Command::Diff(Lazy(command)) => Box::pin(diff::run(ui, global, command)),
        Command::Rollback(Lazy(args)) => Box::pin(rollback::run(ui, global, args)),
        Command::Kubeconfig(Lazy(args)) => Box::pin(kubeconfig::run(ui, global, args)),
        Command::Get(Lazy(command)) => Box::pin(get::run(ui, global, command)),
        Command::Accept(Lazy(args)) => Box::pin(async move { accept::run(ui, global, &args).await }),
        Command::Why(Lazy(args)) => Box::pin(async move { why::run(ui, global, &args).await }),
        Command::Simulate(Lazy(args)) => Box::pin(async move { simulate::run(ui, global, &args).await }),
        Command::Token(Lazy(command)) => Box::pin(async move { token::run(ui, global, command).await }),
        Command::Delete(Lazy(command)) => Box::pin(delete::run(ui, global, command)),
        Command::Logs(Lazy(args)) => Box::pin(async move { pods::run_logs(ui, global, &args).await }),
        Command::Exec(Lazy(args)) => Box::pin(async move { pods::run_exec(ui, global, &args).await }),
        Command::PortForward(Lazy(args)) => Box::pin(async move { pods::run_port_forward(ui, global, &args).await }),
        Command::Top(Lazy(args)) => Box::pin(async move { pods::run_top(ui, global, &args).await }),
        Command::Drain(Lazy(command)) => Box::pin(taint::drain::run(ui, global, command)),
        Command::Cordon(Lazy(command)) => Box::pin(taint::run_cordon(ui, global, command)),
        Command::Uncordon(Lazy(command)) => Box::pin(taint::run_uncordon(ui, global, command)),
        Command::Taint(Lazy(command)) => Box::pin(taint::run_taint(ui, global, command)),
        Command::Rebalance(Lazy(args)) => Box::pin(async move { rebalance::run(ui, global, &args).await }),
        Command::Version(Lazy(args)) => Box::pin(async move { version::run(ui, global, &args).await }),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // Look-ups that a blocked resolver still runs must not hold the program back.
    runtime.shutdown_background();
    result
}

/// Returns whether the command that was given has `-o json`, so that what it says on stderr is JSON too.
fn asks_for_json(matches: &clap::ArgMatches) -> bool {
    let mut last = matches;
    while let Some((_, below)) = last.subcommand() {
        last = below;
    }
    let output = last.try_get_raw("output").ok().flatten();
    output.is_some_and(|mut given| given.next_back().is_some_and(|format| format == "json"))
}

/// The same where the command line cannot be parsed, from its words.
fn wants_json(argv: &[OsString]) -> bool {
    let words = list_flag_words(argv);
    words.windows(2).any(|pair| matches!(pair, ["-o" | "--output", "json"]))
        || words.iter().any(|word| ["-o=json", "-ojson", "--output=json"].contains(word))
}

/// Help and version are results; everything else that clap says is a usage error.
fn clap_ended(error: &clap::Error, name: &'static str, json: bool) -> ExitCode {
    if json && error.use_stderr() {
        let error = CliError::wrong_usage(&error.render().to_string());
        Ui::new(false, name, json).report_error(&error);
        return ExitCode::from(error.exit as u8);
    }
    // Help into a closed pipe is not an error.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { Exit::Usage as u8 } else { Exit::Ok as u8 })
}

fn report_result(ui: &Ui, result: Result<Exit, CliError>) -> ExitCode {
    match result {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(error) if error.reason == BROKEN_PIPE => ExitCode::from(Exit::Ok as u8),
        Err(error) => {
            let error = with_page(error);
            ui.report_error(&error);
            ExitCode::from(error.exit as u8)
        }
    }
}

/// Adds a hint to the page of its reason to an error that itself knows no way on: the page may.
fn with_page(error: CliError) -> CliError {
    let silent = error.hints.is_empty() && error.problems.is_none() && error.exit != Exit::Usage;
    if silent && explain::pages::find_page(error.reason).is_some() { error.hint_of_reason() } else { error }
}

/// The reason of an error that only means that the reader has gone.
const BROKEN_PIPE: &str = "BrokenPipe";

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        let reason = if error.kind() == io::ErrorKind::BrokenPipe { BROKEN_PIPE } else { "Io" };
        Self::new(Exit::Failed, reason, error.to_string())
    }
}
