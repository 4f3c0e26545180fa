//! Work of the leader: applies the bootstrap objects, renews the init Secret, runs the controllers, reports progress.

pub mod apply;
pub mod init_secret;
pub mod init_token;
pub mod inputs;
pub mod manifests;
pub mod status;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::certificate_metric;
use super::index::{self, Index};
use super::kubernetes_record;
use super::monitor::Monitor;
use super::placing;
use super::readyz::{Progress, Readiness};
use super::registration::Registrar;
use super::server_clock::ServerClock;
use super::settings::{Args, DirectPlacement, Settings};
use crate::api::protocol::{DIRECT_PLACEMENT, EXTRA_KINDS};
use crate::daemon::log::OnChange;
use crate::daemon::metrics::Metrics;
use crate::k8s::backoff::Backoff;
use crate::k8s::connect::daemon_client::CallError;
use crate::k8s::connect::init_kubeconfig::build_init_kubeconfig;
use apply::{ANNOTATION_AUTOUPDATE, Outcome};
use inputs::Inputs;
use status::{BOOTSTRAPPED, INIT_SECRET_READY};

/// Time between two reads of the files.
const POLL: Duration = Duration::from_secs(2);
/// Time between two checks of token and Secret, while there is no failure.
const CHECK: Duration = Duration::from_secs(30);
/// Time after which the objects are applied again, to undo drift.
const RESYNC: Duration = Duration::from_secs(600);

/// Clients and state of the leader.
#[derive(Clone)]
pub struct Leader {
    /// Client of the control-plane API server.
    pub client: Client,
    /// Client of the same server for the watch of Leases.
    pub heartbeats: Client,
    /// Flags.
    pub args: Arc<Args>,
    /// Progress, for `/readyz`.
    pub state: Arc<Readiness>,
    /// Metrics.
    pub metrics: Metrics,
    /// The control plane's clock.
    pub clock: ServerClock,
}

/// Runs for one leadership term; ends only by being dropped.
pub async fn run_leader(leader: Leader) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    let logged = OnChange::default();
    let mut applied: Option<(String, Instant)> = None;
    let mut bootstrapped = Progress::Pending;
    let (settings, receiver) = watch::channel(None);
    // Dropped with this future, so no task outlives the term.
    let mut tasks = JoinSet::new();
    loop {
        let inputs = Inputs::read_input_files(&leader.args);
        settings.send_replace(inputs.settings.as_ref().ok().cloned());
        let due = applied.as_ref().is_none_or(|(digest, at)| *digest != inputs.digest || at.elapsed() >= RESYNC);
        if due {
            bootstrapped = run_bootstrap_pass(&leader, &inputs).await;
            applied = bootstrapped.is_done().then(|| (inputs.digest.clone(), Instant::now()));
        }
        log_progress(&logged, "bootstrap", &bootstrapped);
        leader.state.set_bootstrapped(bootstrapped.clone());
        if bootstrapped.is_done() && tasks.is_empty() {
            start_tasks(&leader, &receiver, &mut tasks);
        }

        let secret = if bootstrapped.is_done() { init_secret(&leader, &inputs).await } else { Progress::Pending };
        log_progress(&logged, "init secret", &secret);
        report_leader_progress(&leader, &inputs, &logged, &bootstrapped, &secret).await;
        // Last, so that everything exists once this process is ready.
        leader.state.set_init_secret(secret.clone());

        let wait = if bootstrapped.is_done() && secret.is_done() {
            backoff.reset();
            CHECK
        } else {
            backoff.next_wait()
        };
        tokio::select! {
            () = wait_or_change(&leader.args, &inputs.digest, wait) => {}
            Some(ended) = tasks.join_next() => {
                // They never return, so this is a bug: restart all of them, with a new index.
                tracing::error!(?ended, "a leader task ended");
                tasks.shutdown().await;
            }
        }
    }
}

/// Starts the controllers, which need the CustomResourceDefinitions: registration, monitoring and placement, on one index.
fn start_tasks(leader: &Leader, settings: &watch::Receiver<Option<Settings>>, tasks: &mut JoinSet<()>) {
    let index = Arc::new(Index::default());
    let (client, metrics) = (leader.client.clone(), leader.metrics.clone());
    let reporter = Reporter { controller: "fleet-scheduler".to_owned(), instance: leader.args.identity.clone() };
    let recorder = Recorder::new(client.clone(), reporter);
    tasks.spawn(certificate_metric::follow_certificates(leader.args.certificates.clone(), metrics.clone()));
    tasks.spawn(index::watch_indexed_objects(client.clone(), leader.heartbeats.clone(), index.clone()));
    let registrar = Registrar::new(client.clone(), index.clone(), settings.clone(), metrics.clone(), recorder.clone());
    tasks.spawn(registrar.run());
    tasks.spawn(start_placement(leader.clone(), settings.clone(), index.clone(), recorder.clone()));
    tasks.spawn(kubernetes_record::maintain_kubernetes_record(client.clone()));
    tasks.spawn(Monitor { client, index, metrics, recorder }.run());
}

/// Places, as soon as the configuration says which namespace is the service's own: nothing of it may be placed.
async fn start_placement(
    leader: Leader,
    mut settings: watch::Receiver<Option<Settings>>,
    index: Arc<Index>,
    recorder: Recorder,
) {
    let namespace = match settings.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(settings)) => settings.namespace.clone(),
        // The term ends.
        _ => return,
    };
    let options = placing::Options {
        namespace,
        denies_direct: leader.args.direct_placement == DirectPlacement::Deny,
        extra_kinds: leader.args.added_kinds(),
        clock: leader.clock.clone(),
    };
    placing::run_placement(leader.client, index, leader.metrics, recorder, options).await;
}

async fn run_bootstrap_pass(leader: &Leader, inputs: &Inputs) -> Progress {
    let objects = match &inputs.objects {
        Ok(objects) => objects,
        Err(message) => return Progress::from_failure("ObjectsInvalid", message),
    };
    let outcome = apply::apply_bootstrap_objects(&leader.client, objects).await;
    let result = if outcome.failures.is_empty() { "ok" } else { "failed" };
    leader.metrics.increment_counter(
        "fleet_bootstrap_passes_total",
        "Passes over the bootstrap objects.",
        &[("result", result)],
    );
    #[allow(clippy::cast_precision_loss)] // A count of objects.
    leader.metrics.set_gauge(
        "fleet_bootstrap_objects",
        "Bootstrap objects that the last pass applied.",
        &[],
        outcome.applied as f64,
    );
    bootstrap_progress(&outcome)
}

fn bootstrap_progress(outcome: &Outcome) -> Progress {
    if let Some(error) = &outcome.unreachable {
        return Progress::from_failure("HubUnreachable", error);
    }
    if outcome.failures.is_empty() {
        let mut message = format!("{} objects applied", outcome.applied);
        if !outcome.unmanaged.is_empty() {
            let objects = outcome.unmanaged.join(", ");
            message.push_str(&format!("; not updated, because of annotation {ANNOTATION_AUTOUPDATE}=false: {objects}"));
        }
        return Progress::from_success("Applied", message);
    }
    let each: Vec<_> = outcome.failures.iter().map(|f| format!("{}: {}", f.object, f.message)).collect();
    Progress::from_failure("ApplyFailed", each.join("; "))
}

async fn init_secret(leader: &Leader, inputs: &Inputs) -> Progress {
    let settings = match &inputs.settings {
        Ok(settings) => settings,
        Err(message) => return Progress::from_failure("ConfigInvalid", message),
    };
    let Some(server) = &settings.agent_endpoint else {
        return Progress::from_failure("AgentEndpointUnknown", "agentEndpoint is not set in the configuration");
    };
    let ca = match &inputs.ca {
        Ok(ca) => ca,
        Err(message) => return Progress::from_failure("CaUnknown", message),
    };
    let token =
        match init_token::ensure_bootstrap_token(&leader.client, settings.init_token_ttl, Timestamp::now()).await {
            Ok(token) => token,
            Err(e) => return Progress::from_failure("TokenFailed", redact_call_error(&e)),
        };
    let kubeconfig = build_init_kubeconfig(server, ca, &token);
    match init_secret::ensure_bootstrap_secret(&leader.client, settings, &kubeconfig).await {
        Ok(written) => {
            if written {
                tracing::info!(server, token = token.id(), expires = %token.expires, "init Secret written");
                leader.metrics.increment_counter("fleet_init_secret_writes_total", "Writes of the init Secret.", &[]);
            }
            Progress::from_success(
                "Current",
                format!("agents connect to {server}; the token expires {}", token.expires),
            )
        }
        Err(e) => Progress::from_failure("SecretFailed", redact_call_error(&e)),
    }
}

/// An error about a Secret, without the server's message: it can quote the value that it refuses.
fn redact_call_error(error: &CallError) -> String {
    match error {
        CallError::Kube(kube::Error::Api(status)) => format!("{} {}", status.code, status.reason),
        other => other.to_string(),
    }
}

fn log_progress(logged: &OnChange, subject: &'static str, progress: &Progress) {
    if !logged.record_if_changed(subject, &format!("{progress:?}")) {
        return;
    }
    match progress {
        Progress::Pending => {}
        Progress::Done { reason, message } => tracing::info!(subject, reason, message),
        Progress::Failed { reason, message } => tracing::warn!(subject, reason, message),
    }
}

async fn report_leader_progress(
    leader: &Leader,
    inputs: &Inputs,
    logged: &OnChange,
    bootstrapped: &Progress,
    secret: &Progress,
) {
    let Ok(settings) = &inputs.settings else { return };
    let digest = inputs.objects.as_ref().map_or("", |o| o.digest.as_str());
    let parts = [(BOOTSTRAPPED, bootstrapped), (INIT_SECRET_READY, secret)];
    let extra_kinds: Vec<String> = leader.args.added_kinds().iter().map(ToString::to_string).collect();
    let said = [(DIRECT_PLACEMENT, leader.args.direct_placement.as_str()), (EXTRA_KINDS, &extra_kinds.join(","))];
    let written =
        status::write_leader_status(&leader.client, &settings.namespace, digest, parts, said, Timestamp::now()).await;
    let outcome = written.map_or_else(|e| e.to_string(), |()| "ok".to_owned());
    if logged.record_if_changed("report", &outcome) && outcome != "ok" {
        tracing::warn!(error = outcome, "writing the status failed");
    }
}

/// Waits, at most until the files change.
async fn wait_or_change(args: &Args, digest: &str, wait: Duration) {
    let until = Instant::now() + wait;
    while Instant::now() < until {
        tokio::time::sleep(POLL.min(until.saturating_duration_since(Instant::now()))).await;
        if Inputs::read_input_files(args).digest != digest {
            tracing::info!("configuration or bootstrap objects changed");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::apply::Failure;
    use super::*;

    #[test]
    fn failures_name_every_object() {
        let failure =
            |object: &str| Failure { object: object.to_owned(), message: "denied (403 Forbidden)".to_owned() };
        let failures = vec![failure("a: X/a"), failure("b: Y/b")];
        let outcome = Outcome { applied: 1, failures, ..Outcome::default() };
        let Progress::Failed { reason, message } = bootstrap_progress(&outcome) else { panic!("not failed") };
        assert_eq!(reason, "ApplyFailed");
        assert!(message.contains("a: X/a: denied") && message.contains("b: Y/b: denied"), "{message}");
    }

    #[test]
    fn unmanaged_objects_are_named() {
        let unmanaged = vec!["ClusterRoleBinding/fleet:admins".to_owned()];
        let outcome = Outcome { applied: 12, unmanaged, ..Outcome::default() };
        let Progress::Done { message, .. } = bootstrap_progress(&outcome) else { panic!("failed") };
        assert!(message.starts_with("12 objects applied; ") && message.ends_with("ClusterRoleBinding/fleet:admins"));
        assert!(message.contains(ANNOTATION_AUTOUPDATE), "{message}");
    }
}
