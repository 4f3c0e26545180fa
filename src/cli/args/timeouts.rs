//! `--timeout` and `--lock-wait` of commands that change a cluster, the default of `--timeout` for each command, and how
//! durations are read.

use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use kube::Client;

use super::global::Global;
use crate::install::fleet_home::Home;
use crate::install::installed::Target;
use crate::inventory::HeldLock;

/// Default of `--timeout` for install, upgrade, uninstall and rollback.
const RUN_TIMEOUT: &str = "5m";
/// Default of `--timeout` for restore.
pub(crate) const RESTORE_TIMEOUT: &str = "30m";
/// Default of `--timeout` for `backup verify --rehearse`.
pub(crate) const REHEARSAL_TIMEOUT: &str = "10m";
/// Default of `--timeout` for `certs renew`.
pub(crate) const RENEWAL_TIMEOUT: &str = "10m";
/// Default of `--timeout` for `drain cluster`.
pub(crate) const DRAIN_TIMEOUT: &str = "5m";
/// Default of `--timeout` for `delete cluster`.
pub(crate) const DELETE_TIMEOUT: &str = "2m";
/// Default of `--timeout` for `status --wait`.
pub(crate) const STATUS_TIMEOUT: &str = "5m";

/// How long a run may take, and wait for another.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Timeout for the whole run, e.g. `5m`
    #[arg(long, value_name = "DURATION", default_value = RUN_TIMEOUT, value_parser = parse_duration)]
    pub(crate) timeout: Duration,

    /// Time to wait for the lock while another run has it
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
