//! What the leader does: keep the inside of the control plane as the chart wants it, and say how far it is.

pub mod apply;
pub mod init_secret;
pub mod inputs;
pub mod manifests;
pub mod status;
pub mod token;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::index;
use super::index::View;
use super::monitor::Monitor;
use super::readyz::{State, Verdict};
use super::registration::Registrar;
use super::settings::{Args, Settings};
use crate::daemon::log::OnChange;
use crate::daemon::metrics::Metrics;
use crate::k8s::backoff::Backoff;
use crate::k8s::daemon_client::CallError;
use apply::{ANNOTATION_AUTOUPDATE, Outcome};
use inputs::Inputs;
use status::{BOOTSTRAPPED, INIT_SECRET_READY};

/// Time between two looks at the files.
const POLL: Duration = Duration::from_secs(2);
/// Time between two looks at token and Secret, while all is well.
const CHECK: Duration = Duration::from_secs(30);
/// Time after which the objects are applied again, to undo what somebody changed by hand.
const RESYNC: Duration = Duration::from_secs(600);

/// What the leader works with.
#[derive(Clone)]
pub struct Leader {
    /// Client of the hub.
    pub client: Client,
    /// The same for the watch of heartbeats.
    pub heartbeats: Client,
    /// Flags.
    pub args: Arc<Args>,
    /// Where progress is noted.
    pub state: Arc<State>,
    /// Where it is counted.
    pub metrics: Metrics,
}

/// Runs for one term; ends only by being dropped.
pub async fn run(leader: Leader) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    let said = OnChange::default();
    let mut applied: Option<(String, Instant)> = None;
    let mut bootstrapped = Verdict::Pending;
    let (settings, receiver) = watch::channel(None);
    // Dropped with this future, so no task outlives the term.
    let mut tasks = JoinSet::new();
    loop {
        let inputs = Inputs::read(&leader.args);
        settings.send_replace(inputs.settings.as_ref().ok().cloned());
        let due = applied.as_ref().is_none_or(|(digest, at)| *digest != inputs.digest || at.elapsed() >= RESYNC);
        if due {
            bootstrapped = apply(&leader, &inputs).await;
            applied = bootstrapped.is_done().then(|| (inputs.digest.clone(), Instant::now()));
        }
        say(&said, "bootstrap", &bootstrapped);
        leader.state.set_bootstrapped(bootstrapped.clone());
        if bootstrapped.is_done() && tasks.is_empty() {
            start_tasks(&leader, &receiver, &mut tasks);
        }

        let secret = if bootstrapped.is_done() { init_secret(&leader, &inputs).await } else { Verdict::Pending };
        say(&said, "init secret", &secret);
        report(&leader, &inputs, &said, &bootstrapped, &secret).await;
        // Last, so that whoever sees it ready finds all that there is to find.
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
                // They run for ever, so this is a fault of ours: start all of them again, from what the API says.
                tracing::error!(?ended, "a task of the leader ended");
                tasks.shutdown().await;
            }
        }
    }
}

/// What needs the definitions to be there: registration and monitoring, on one view of the hub.
fn start_tasks(leader: &Leader, settings: &watch::Receiver<Option<Settings>>, tasks: &mut JoinSet<()>) {
    let view = Arc::new(View::default());
    let (client, metrics) = (leader.client.clone(), leader.metrics.clone());
    let reporter = Reporter { controller: "fleet-scheduler".to_owned(), instance: leader.args.identity.clone() };
    let recorder = Recorder::new(client.clone(), reporter);
    tasks.spawn(index::watch(client.clone(), leader.heartbeats.clone(), view.clone()));
    let registrar = Registrar::new(client.clone(), view.clone(), settings.clone(), metrics.clone(), recorder.clone());
    tasks.spawn(registrar.run());
    tasks.spawn(Monitor { client, view, metrics, recorder }.run());
}

async fn apply(leader: &Leader, inputs: &Inputs) -> Verdict {
    let objects = match &inputs.objects {
        Ok(objects) => objects,
        Err(message) => return Verdict::failed("ObjectsInvalid", message),
    };
    let outcome = apply::apply(&leader.client, objects).await;
    let result = if outcome.failures.is_empty() { "ok" } else { "failed" };
    leader.metrics.count("fleet_bootstrap_passes_total", "Passes over the bootstrap objects.", &[("result", result)]);
    #[allow(clippy::cast_precision_loss)] // A count of objects.
    leader.metrics.gauge("fleet_bootstrap_objects", "Bootstrap objects in place.", &[], outcome.applied as f64);
    verdict(&outcome)
}

fn verdict(outcome: &Outcome) -> Verdict {
    if let Some(error) = &outcome.unreachable {
        return Verdict::failed("HubUnreachable", error);
    }
    if outcome.failures.is_empty() {
        let mut message = format!("{} objects applied", outcome.applied);
        if !outcome.unmanaged.is_empty() {
            let objects = outcome.unmanaged.join(", ");
            message.push_str(&format!("; left as they are, by annotation {ANNOTATION_AUTOUPDATE}=false: {objects}"));
        }
        return Verdict::done("Applied", message);
    }
    let each: Vec<_> = outcome.failures.iter().map(|f| format!("{}: {}", f.object, f.message)).collect();
    Verdict::failed("ApplyFailed", each.join("; "))
}

async fn init_secret(leader: &Leader, inputs: &Inputs) -> Verdict {
    let settings = match &inputs.settings {
        Ok(settings) => settings,
        Err(message) => return Verdict::failed("ConfigInvalid", message),
    };
    let Some(server) = &settings.agent_endpoint else {
        return Verdict::failed("AgentEndpointUnknown", "agentEndpoint is not set in the configuration");
    };
    let ca = match &inputs.ca {
        Ok(ca) => ca,
        Err(message) => return Verdict::failed("CaUnknown", message),
    };
    let token = match token::current(&leader.client, settings.init_token_ttl, Timestamp::now()).await {
        Ok(token) => token,
        Err(e) => return Verdict::failed("TokenFailed", discreet(&e)),
    };
    let kubeconfig = init_secret::kubeconfig(server, ca, &token);
    match init_secret::ensure(&leader.client, settings, &kubeconfig).await {
        Ok(written) => {
            if written {
                tracing::info!(server, token = token.id(), expires = %token.expires, "init Secret written");
                leader.metrics.count("fleet_init_secret_writes_total", "Writes of the init Secret.", &[]);
            }
            Verdict::done("Current", format!("agents reach {server}; the token ends {}", token.expires))
        }
        Err(e) => Verdict::failed("SecretFailed", discreet(&e)),
    }
}

/// An error about a Secret, without the server's message: it can quote the value that it refuses.
fn discreet(error: &CallError) -> String {
    match error {
        CallError::Kube(kube::Error::Api(status)) => format!("{} {}", status.code, status.reason),
        other => other.to_string(),
    }
}

fn say(said: &OnChange, subject: &'static str, verdict: &Verdict) {
    if !said.news(subject, &format!("{verdict:?}")) {
        return;
    }
    match verdict {
        Verdict::Pending => {}
        Verdict::Done { reason, message } => tracing::info!(subject, reason, message),
        Verdict::Failed { reason, message } => tracing::warn!(subject, reason, message),
    }
}

async fn report(leader: &Leader, inputs: &Inputs, said: &OnChange, bootstrapped: &Verdict, secret: &Verdict) {
    let Ok(settings) = &inputs.settings else { return };
    let digest = inputs.objects.as_ref().map_or("", |o| o.digest.as_str());
    let verdicts = [(BOOTSTRAPPED, bootstrapped), (INIT_SECRET_READY, secret)];
    let written = status::write(&leader.client, &settings.namespace, digest, verdicts, Timestamp::now()).await;
    let outcome = written.map_or_else(|e| e.to_string(), |()| "ok".to_owned());
    if said.news("report", &outcome) && outcome != "ok" {
        tracing::warn!(error = outcome, "the status could not be written");
    }
}

/// Waits, at most until the files say something else.
async fn wait_or_change(args: &Args, digest: &str, wait: Duration) {
    let until = Instant::now() + wait;
    while Instant::now() < until {
        tokio::time::sleep(POLL.min(until.saturating_duration_since(Instant::now()))).await;
        if Inputs::read(args).digest != digest {
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
    fn a_failed_pass_names_every_object_and_the_servers_reason() {
        let failure =
            |object: &str| Failure { object: object.to_owned(), message: "denied (403 Forbidden)".to_owned() };
        let failures = vec![failure("a: X/a"), failure("b: Y/b")];
        let outcome = Outcome { applied: 1, failures, ..Outcome::default() };
        let Verdict::Failed { reason, message } = verdict(&outcome) else { panic!("not failed") };
        assert_eq!(reason, "ApplyFailed");
        assert!(message.contains("a: X/a: denied") && message.contains("b: Y/b: denied"), "{message}");
    }

    #[test]
    fn a_pass_that_left_an_object_to_an_operator_names_it() {
        let unmanaged = vec!["ClusterRoleBinding/fleet:admins".to_owned()];
        let outcome = Outcome { applied: 12, unmanaged, ..Outcome::default() };
        let Verdict::Done { message, .. } = verdict(&outcome) else { panic!("failed") };
        assert!(message.starts_with("12 objects applied; ") && message.ends_with("ClusterRoleBinding/fleet:admins"));
        assert!(message.contains(ANNOTATION_AUTOUPDATE), "{message}");
    }
}
