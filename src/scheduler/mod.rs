//! `fleet-scheduler`: the controllers of the control plane.
//!
//! It runs beside the control plane's own API server. One of several replicas is the leader. The leader applies the bootstrap objects
//! of the chart, renews the Secret with which agents register, registers workload clusters and monitors them. It has no state
//! of its own: after a restart everything is read from the API server.
//!
//! Its client certificate is in `system:masters`: it creates the first RBAC binding, so no binding for the scheduler itself can exist before.

pub mod agent_clock;
mod certificate_metric;
pub mod cluster_rbac;
pub mod election;
pub mod etcd_args;
mod events;
pub mod index;
pub mod keys;
mod kubernetes_record;
pub mod leader;
pub mod monitor;
pub mod placing;
pub mod probe;
pub mod readyz;
pub mod receive;
pub mod registration;
pub mod server_clock;
pub mod settings;
pub mod store_folder;
pub mod version_guard;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rand::RngExt as _;
use tokio::sync::watch;

use crate::api::readiness_log::SCHEDULER;
use crate::daemon::admin::Admin;
use crate::daemon::log;
use crate::daemon::metrics::Metrics;
use crate::daemon::stop::Stop;
use crate::k8s::connect::daemon_client;
use election::Role;
use leader::Leader;
use readyz::Readiness;
use server_clock::ServerClock;
use settings::Args;

/// Runs until SIGTERM or SIGINT.
pub fn run_scheduler(args: Args) -> anyhow::Result<()> {
    log::start_logging(args.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(serve_scheduler(args));
    // Tasks that still run only wait for the network.
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

async fn serve_scheduler(args: Args) -> anyhow::Result<()> {
    let stop = Stop::default();
    stop.on_signals().context("cannot listen for signals")?;
    let metrics = Metrics::default();
    metrics.set_gauge("fleet_build_info", "The running version.", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let state = Arc::new(Readiness::default());
    let admin = Admin::bind_address(args.admin_address)
        .await
        .with_context(|| format!("cannot listen on {}", args.admin_address))?;
    let address = admin.local_address()?;
    tokio::spawn(admin.serve_admin(SCHEDULER, state.clone(), metrics.clone(), stop.clone()));

    let identity =
        args.identity.clone().unwrap_or_else(|| format!("fleet-scheduler-{:08x}", rand::rng().random::<u32>()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), identity, admin = %address, "starting");
    let args = Arc::new(args);
    let started_with = leader::inputs::kubeconfig_digest(&args);
    let client = daemon_client::build_daemon_client(&args.kubeconfig).await?;
    let heartbeats = daemon_client::client_that_tires(&args.kubeconfig, index::LEASES_READ_TIMEOUT).await?;
    let (role_sender, role) = watch::channel(Role::Starting);
    let clock = ServerClock::default();
    let election =
        tokio::spawn(election::run_election(client.clone(), identity, role_sender, clock.clone(), stop.clone()));
    let leader = Leader { client, heartbeats, args: args.clone(), state: state.clone(), metrics, clock };
    tokio::select! {
        () = run_while_leading(leader, role) => {}
        () = new_kubeconfig(&args, started_with) => {
            tracing::info!("the kubeconfig changed; exiting to restart with the new one");
            stop.request_stop();
        }
        () = stop.wait_for_stop() => {}
    }
    election.await.context("the election ended early")?;
    tracing::info!("stopped");
    Ok(())
}

/// Runs the controllers while this process is the leader, and drops them as soon as it is not.
async fn run_while_leading(leader: Leader, mut role: watch::Receiver<Role>) {
    let mut term = None;
    loop {
        let now = role.borrow_and_update().clone();
        let leads = now == Role::Leader;
        leader.metrics.set_gauge("fleet_leader", "Whether this process leads.", &[], f64::from(u8::from(leads)));
        if !leads {
            // Dropping the set ends its tasks.
            term = None;
        }
        leader.state.set_role(now);
        if leads && term.is_none() {
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(leader::run_leader(leader.clone()));
            term = Some(tasks);
        }
        if role.changed().await.is_err() {
            return;
        }
    }
}

/// Returns when the content of the kubeconfig file differs from that at the start.
async fn new_kubeconfig(args: &Args, started_with: Option<String>) {
    loop {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let now = leader::inputs::kubeconfig_digest(args);
        // A file that is missing for a moment is being replaced.
        if now.is_some() && now != started_with {
            return;
        }
    }
}
