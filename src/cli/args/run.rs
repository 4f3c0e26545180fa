//! Common flags and behaviour of commands that change a cluster: deadline, lock, interruption.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use kube::Client;

use super::global::Global;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::signals::wait_for_interrupt;
use crate::install::fleet_home::Home;
use crate::install::installed::Target;
use crate::inventory::HeldLock;

/// How long a run may take, and wait for another.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Timeout for the whole run, e.g. `5m`
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,

    /// How long to wait for the lock while another run has it
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub(crate) lock_wait: Duration,
}

impl RunArgs {
    /// The installation that a run removes or undoes, with the limits of this run.
    pub(crate) fn build_target<'a, N>(
        &self,
        name: &'a N,
        global: &'a Global,
        client: &'a Client,
        home: &'a Home,
    ) -> Target<'a, N> {
        let Self { timeout, lock_wait } = *self;
        let held = HeldLock::default();
        Target { name, namespace: &global.namespace, client, home, timeout, lock_wait, held }
    }
}

/// The longest duration that is taken. No run lasts a year, and the clock of a machine cannot count every number of seconds.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Reads `90s`, `5m`, `1h30m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed: SignedDuration =
        text.parse().map_err(|_| "use a number with a unit, such as `90s` or `5m`".to_owned())?;
    let duration = Duration::try_from(parsed).map_err(|_| "a duration cannot be negative".to_owned())?;
    if duration > LONGEST { Err("the longest duration is one year (`8760h`)".to_owned()) } else { Ok(duration) }
}

/// Runs `work` until it ends or a signal stops it, and closes the display either way; after a signal, `release` lets go of
/// what it held, such as the lock.
///
/// For work that can be interrupted at any point because the same command goes on with it; `what` is its name, such as
/// `the removal`.
pub(crate) async fn until_stopped<T, E>(
    ui: &Ui,
    display: &Arc<Display>,
    what: &str,
    work: impl Future<Output = Result<T, E>>,
    release: impl Future<Output = ()>,
) -> Result<Result<T, E>, CliError> {
    let outcome = tokio::select! {
        outcome = work => Some(outcome),
        () = wait_for_interrupt(ui, display, None) => None,
    };
    display.close_step(outcome.as_ref().is_some_and(Result::is_ok));
    let Some(outcome) = outcome else {
        release.await;
        return Err(goes_on(CliError::new(Exit::Interrupted, "Interrupted", format!("{what} was interrupted"))));
    };
    Ok(outcome)
}

/// Adds the hint that an interrupted command can be continued; a refused one has not begun.
pub(crate) fn goes_on(error: CliError) -> CliError {
    if error.exit == Exit::Refused {
        return error;
    }
    error.hint("run the same command again; it continues where it stopped")
}
