//! `fleet-scheduler probe`: reads everything that an API server serves, and compares it with the keys in its etcd. It runs in
//! the pod of a rehearsal, beside both, and writes one line about what it has found.
//!
//! ```text
//! kinds    every kind that discovery names, and the folder of its keys
//! listing  pages of a kind, its number of keys at the same revision, and the objects that cannot be read, one by one
//! unread   keys that belong to no kind
//! ```

mod kinds;
mod listing;
mod unread;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::Client;
use tokio::time::{Instant, sleep};

use crate::api::rehearsal::RehearsalReport;
use crate::daemon::log::{self, LogFormat};
use crate::daemon::stop::Stop;
use crate::k8s::connect::daemon_client::{build_daemon_client, describe_error};
use crate::scheduler::etcd_args::EtcdArgs;

/// Time in which an API server that answers serves everything.
const SERVES_WITHIN: Duration = Duration::from_secs(90);
/// Time in which it is ready, after everything was read.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// Check that fails as long as an API server has not read what it watches: what cannot be read keeps it so.
const READS: &str = "informer-sync ";
/// Time between two looks.
const POLL: Duration = Duration::from_millis(500);

/// The API server and its etcd.
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    /// Kubeconfig of a user who may read all objects
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,

    #[command(flatten)]
    pub etcd: EtcdArgs,

    /// File that the report is written to
    #[arg(long, value_name = "FILE")]
    pub report: PathBuf,

    /// Seconds within which the API server has to answer
    #[arg(long, default_value_t = 240)]
    pub within_seconds: u64,
}

/// Runs `fleet-scheduler probe`: returns when the report is written, whatever is in it.
///
/// # Errors
/// An API server or an etcd that does not answer; files that cannot be read or written; the signal to stop.
pub fn main(format: LogFormat, args: &ProbeArgs) -> anyhow::Result<()> {
    log::start_logging(format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = Stop::default();
        stop.on_signals()?;
        tokio::select! {
            report = probe_everything(args) => {
                let line = report?.to_line();
                tracing::info!(report = line, "everything was read");
                Ok(fs_err::write(&args.report, line)?)
            }
            () = stop.wait_for_stop() => anyhow::bail!("stopped before everything was read"),
        }
    })
}

/// Reads everything.
///
/// # Errors
/// An API server or an etcd that does not answer, or goes away.
pub async fn probe_everything(args: &ProbeArgs) -> anyhow::Result<RehearsalReport> {
    let client = build_daemon_client(&args.kubeconfig).await?;
    let etcd = args.etcd.build_etcd_client()?;
    let mut report = RehearsalReport::default();
    wait_for_answer(&client, Duration::from_secs(args.within_seconds)).await?;
    let serves = wait_until_it_serves(&client, SERVES_WITHIN, Some(READS)).await;
    let found = kinds::discover_served_kinds(&client, &mut report).await?;
    for kind in &found {
        listing::read_kind(&client, &etcd, kind, &mut report).await?;
    }
    report.revision = unread::find_unread_keys(&etcd, &found, &mut report).await?;
    // What was found is the reason; without one there is nothing but to wait.
    let patience = if report.faults == 0 { READY_WITHIN } else { Duration::ZERO };
    if let Err(why) = serves.and(wait_until_it_serves(&client, patience, None).await) {
        report.add_fault("API server", &why);
    }
    Ok(report)
}

/// Waits until an API server answers at all.
async fn wait_for_answer(client: &Client, within: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + within;
    loop {
        match client.apiserver_version().await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= end => {
                anyhow::bail!("the API server does not answer: {}", describe_error(&error));
            }
            Err(_) => sleep(POLL).await,
        }
    }
}

/// Waits until an API server is ready, except for checks that begin with `may_lack`; else, returns what it lacks.
async fn wait_until_it_serves(client: &Client, within: Duration, may_lack: Option<&str>) -> Result<(), String> {
    let end = Instant::now() + within;
    loop {
        let request = http::Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
        let lacking = match client.request_text(request).await {
            Ok(_) => return Ok(()),
            Err(error) => list_lacking(&describe_error(&error)),
        };
        if may_lack.is_some_and(|may_lack| lacking.iter().all(|check| check.starts_with(may_lack))) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(format!("it is not ready: {}", lacking.join("; ")));
        }
        sleep(POLL).await;
    }
}

/// The checks that fail, of what an API server says of all; the whole text if it says something else.
fn list_lacking(said: &str) -> Vec<String> {
    let lacking: Vec<String> = said.lines().filter_map(|line| line.strip_prefix("[-]")).map(str::to_owned).collect();
    if lacking.is_empty() { vec![said.to_owned()] } else { lacking }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_api_server_lacks_is_taken_out_of_its_checks() {
        let said = "[+]ping ok\n[-]informer-sync failed: reason withheld\n[+]log ok\nreadyz check failed\n";
        assert_eq!(list_lacking(said), ["informer-sync failed: reason withheld"]);
        assert_eq!(list_lacking("no answer"), ["no answer"]);
    }
}
