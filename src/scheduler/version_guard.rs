//! `fleet-scheduler guard`: runs before an API server and does not let it start on objects of a Kubernetes minor that it may
//! not follow, however its manifest came there: `kubectl apply` and GitOps pass by what `fleetctl` refuses.
//!
//! An API server goes up one minor at a time (the version skew policy of Kubernetes, also for a single one) and never
//! down: it does not read all that a newer one has stored. The minor of the objects is in etcd itself, see
//! [`crate::api::kubernetes_record`]. Where etcd does not answer the guard fails after a while, and is started again,
//! as the API server would be: to continue then would let any API server pass whenever etcd is replaced at the same
//! time.

use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use crate::api::kubernetes_record::{self, check_minor_change};
use crate::api::readiness_log::{NOT_READY, SCHEDULER};
use crate::api::version::KubeMinor;
use crate::daemon::log::{self, LogFormat, OnChange};
use crate::daemon::stop::Stop;
use crate::etcd::{EtcdClient, EtcdError};
use crate::k8s::backoff::Backoff;
use crate::scheduler::etcd_args::EtcdArgs;

/// The API server that is about to start, and the etcd that it stores in.
#[derive(Debug, Clone, Args)]
pub struct GuardArgs {
    /// Tag of the API server's image, such as v1.36.3
    #[arg(long)]
    pub image_tag: String,

    #[command(flatten)]
    pub etcd: EtcdArgs,
}

/// Time for which etcd may not answer before the guard fails. An API server takes about as long.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// Runs `fleet-scheduler guard`: returns once the API server may start.
///
/// # Errors
/// [`kubernetes_record::Held`]; an etcd that does not answer; files that cannot be read; the signal to stop.
pub fn main(format: LogFormat, args: &GuardArgs) -> anyhow::Result<()> {
    log::start_logging(format);
    // A digest in place of a tag names no version.
    let Some(wanted) = args.image_tag.split('@').next().and_then(|tag| tag.parse::<KubeMinor>().ok()) else {
        tracing::warn!(tag = args.image_tag, "the tag names no Kubernetes version, so there is nothing to compare");
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = Stop::default();
        stop.on_signals()?;
        tokio::select! {
            stored = wait_for_stored_minor(args) => match stored? {
                Some(stored) => {
                    check_minor_change(stored, wanted)?;
                    tracing::info!(%stored, %wanted, "the API server may start");
                }
                None => tracing::info!(%wanted, "the API server may start: no version is recorded yet"),
            },
            () = stop.wait_for_stop() => anyhow::bail!("stopped before etcd answered"),
        }
        Ok(())
    })
}

/// The minor that the objects are stored by, as soon as etcd answers; none where none is recorded.
async fn wait_for_stored_minor(args: &GuardArgs) -> anyhow::Result<Option<KubeMinor>> {
    let end = Instant::now() + ANSWERS_WITHIN;
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
    let logged = OnChange::default();
    loop {
        // The files may have been replaced since.
        match read_stored_minor(&args.etcd.build_etcd_client()?).await {
            Ok(stored) => return Ok(stored),
            Err(error) => {
                // In the form that `status` looks for in logs.
                let said = format!("{SCHEDULER}{NOT_READY}etcd does not answer: {error}");
                if Instant::now() >= end {
                    anyhow::bail!(said);
                }
                if logged.record_if_changed("etcd", &said) {
                    tracing::warn!("{said}");
                }
            }
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

async fn read_stored_minor(client: &EtcdClient) -> Result<Option<KubeMinor>, EtcdError> {
    let Some(value) = client.read_value(kubernetes_record::ETCD_KEY).await? else { return Ok(None) };
    let minor = kubernetes_record::find_recorded_minor(&value);
    if minor.is_none() {
        tracing::warn!(key = kubernetes_record::ETCD_KEY, "the record in etcd names no Kubernetes version");
    }
    Ok(minor)
}
