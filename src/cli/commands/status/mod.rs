//! `status`: the health of an installed control plane; once, for ever, or until it is healthy.

mod observe;
mod print;
mod watch;

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::cli::args::global::Global;
use crate::cli::args::timeouts::{STATUS_TIMEOUT, parse_duration};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::install::progress::Progress as _;

pub(crate) use observe::{Seen, observe_control_plane, observe_with_progress};
use watch::{Changes, POLL};

const EXAMPLES: &str = "\
The command only reads. Exit code 7 if something is wrong, 0 if there are only warnings. If the hosting cluster does not
answer, the command uses the control plane's own API, and vice versa; the output names what could not be checked.

Examples:
  fleetctl status
  fleetctl status demo --context hosting
  fleetctl status demo -o json
  fleetctl status demo --watch
  fleetctl status demo --wait --timeout 10m";

/// Check the status of a control plane installation
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Name of the control plane [default: the one in the namespace]
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: Option<String>,

    /// Output format [default: the components, the custom resource definitions, and all other problems]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<StatusFormat>,

    /// Keep watching and show changes, until interrupted
    #[arg(short, long, conflicts_with = "wait")]
    watch: bool,

    /// Wait until the control plane is healthy
    #[arg(long)]
    wait: bool,

    /// Timeout of the wait
    #[arg(long, value_name = "DURATION", default_value = STATUS_TIMEOUT, value_parser = parse_duration, requires = "wait")]
    timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StatusFormat {
    /// Every check with its id, and every workload cluster
    Wide,
    Json,
    Yaml,
}

/// Time between two looks of `--wait`.
const SOON: Duration = Duration::from_secs(1);

pub(crate) async fn run(ui: &Ui, global: &Global, args: StatusArgs) -> Result<Exit, CliError> {
    if args.watch {
        return watch_status(ui, global, &args).await;
    }
    if args.wait {
        return wait_for_healthy_status(ui, global, &args).await;
    }
    let seen = observe_control_plane(global, args.name.as_deref()).await?;
    ui.write_last_result(&print::format_status(ui, global, args.output, &seen), exit_for_health(&seen))
}

fn exit_for_health(seen: &Seen) -> Exit {
    if seen.is_sound() { Exit::Ok } else { Exit::Unhealthy }
}

/// On a terminal the block in its place, else a new one whenever something changed. Ends only by a signal, or when there
/// is nothing to look at to begin with.
async fn watch_status(ui: &Ui, global: &Global, args: &StatusArgs) -> Result<Exit, CliError> {
    let mut shown = String::new();
    let mut changes = Changes::default();
    let began = Instant::now();
    let mut seen = observe_control_plane(global, args.name.as_deref()).await?;
    let mut took = began.elapsed();
    loop {
        let text = print::format_status(ui, global, args.output, &seen);
        if text != shown {
            let for_people = matches!(args.output, None | Some(StatusFormat::Wide));
            let alone = for_people && ui.clear_terminal()? || shown.is_empty();
            ui.write_stdout(&print::one_of_many(args.output, &text, alone))?;
            shown = text;
        }
        changes.wait_for_change(seen.hosting.as_ref(), seen.inside.as_ref(), global.namespace.as_str(), took).await;
        (seen, took) = observe_next(ui, global, args).await?;
    }
}

/// The next successful observation, and how long it took; an error is reported once.
async fn observe_next(ui: &Ui, global: &Global, args: &StatusArgs) -> Result<(Seen, Duration), CliError> {
    let mut said = String::new();
    loop {
        let began = Instant::now();
        match observe_control_plane(global, args.name.as_deref()).await {
            Ok(seen) => return Ok((seen, began.elapsed())),
            Err(error) if error.exit == Exit::Usage => return Err(error),
            Err(error) => {
                let why = in_a_line(&error);
                if why != said {
                    ui.warn(&why);
                    said = why;
                }
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

fn in_a_line(error: &CliError) -> String {
    std::iter::once(&error.headline).chain(&error.causes).map(String::as_str).collect::<Vec<_>>().join(": ")
}

/// Polls until the control plane is healthy or the wait times out. A control plane that does not exist or does not
/// answer yet counts as not healthy yet.
async fn wait_for_healthy_status(ui: &Ui, global: &Global, args: &StatusArgs) -> Result<Exit, CliError> {
    let end = Instant::now() + args.timeout;
    let display = Display::new(ui);
    display.begin_step("Waiting until the control plane is healthy");
    let mut last: Option<Result<Seen, CliError>> = None;
    // A look that began in time counts, but one that hangs is not waited for beyond the end.
    while let Ok(looked) =
        tokio::time::timeout_at(end.into(), observe_control_plane(global, args.name.as_deref())).await
    {
        match &looked {
            Ok(seen) if seen.is_sound() => {
                display.finish_step("healthy");
                ui.write_stdout(&print::format_status(ui, global, args.output, seen))?;
                return Ok(Exit::Ok);
            }
            Ok(seen) => display.update_step(&print::first_failure(seen)),
            Err(error) if error.exit == Exit::Usage => {
                display.close_step(false);
                return looked.map(|_| Exit::Usage);
            }
            Err(error) => display.update_step(&in_a_line(error)),
        }
        last = Some(looked);
        if Instant::now() + SOON > end {
            break;
        }
        tokio::time::sleep(SOON).await;
    }
    display.close_step(false);
    let seconds = args.timeout.as_secs();
    match last {
        Some(Ok(seen)) => {
            ui.write_last_result(&print::format_status(ui, global, args.output, &seen), Exit::Unhealthy)?;
            Err(print::still_wrong(&seen, seconds))
        }
        Some(Err(error)) => Err(CliError { exit: Exit::Unhealthy, ..error }.cause(format!("waited for {seconds} s"))),
        None => Err(CliError::new(Exit::Unhealthy, "Unhealthy", format!("nothing answered within {seconds} s"))
            .hint("give more time with `--timeout`")),
    }
}
