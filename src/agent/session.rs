//! One term of membership: from a certificate until it is renewed, refused, or the way to the control plane changes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::heartbeat::{Heart, Pulse};
use super::identity::{Certificate, Identity, Keeper};
use super::inventory::facts::Overrides;
use super::inventory::watch::Observed;
use super::readyz::{Stage, State};
use super::register::{self, RegisterError, Validity};
use super::settings::Args;
use super::status_writer::{Goodbye, Reporter};
use crate::api::init_kubeconfig::Init;
use crate::api::registration::{LEAVE_FAILED, state as said};
use crate::daemon::metrics::Metrics;
use crate::daemon::stop::Stop;
use crate::k8s::backoff::Backoff;
use crate::k8s::connect_error::hop;
use crate::k8s::daemon_client::CallError;

/// How often Secret and file are looked at.
const LOOK: Duration = Duration::from_secs(5);
/// Time until the control plane is asked for the first time whether it calls this cluster Ready.
const READY_LOOK: Duration = Duration::from_secs(1);
/// It is asked ever more seldom while it does not: after an outage all its agents ask.
const READY_LOOK_AT_LEAST: Duration = Duration::from_secs(10);
/// How often an agent that stands by says so, as the one that works does away with what others said before it.
const STAND_BY: Duration = Duration::from_secs(60);
/// A certificate that is refused for this long is not coming back; ask for another with the init token. Only where that
/// is refused as well is this one tried again.
const REFUSED: Duration = Duration::from_secs(120);
/// Longest time to the next attempt at a renewal that failed.
const RENEW_AGAIN: Duration = Duration::from_secs(300);

/// Why a term ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Start again from what files and Secret say now.
    Again,
    /// The program stops.
    Stopped,
    /// The cluster has left the control plane.
    Left,
}

/// What a term works with.
pub(super) struct Term {
    pub(super) args: Args,
    pub(super) local: Client,
    pub(super) keeper: Keeper,
    pub(super) state: Arc<State>,
    pub(super) metrics: Metrics,
    pub(super) observed: Observed,
    pub(super) holder: String,
    pub(super) validity: Validity,
    pub(super) stop: Stop,
    pub(super) init: Init,
    pub(super) identity: Identity,
    pub(super) certificate: Certificate,
    pub(super) cluster_id: String,
}

impl Term {
    pub(super) async fn run(self) -> Result<End, CallError> {
        let name = self.args.cluster_name.to_string();
        // Two clients: what is large must not stand in the way of the heartbeat.
        let heart_client = self.init.client(&self.certificate.pem, &self.identity.key)?;
        let hub = self.init.client(&self.certificate.pem, &self.identity.key)?;
        let (pulse_sender, mut pulse) = watch::channel(Pulse::Starting);
        let mut heart = Heart::new(heart_client, &name, self.holder.clone(), pulse_sender, self.metrics.clone());
        let reporter = Reporter {
            hub: hub.clone(),
            local: self.local.clone(),
            name,
            overrides: Overrides {
                provider: self.args.provider.clone(),
                region: self.args.region.clone(),
                zone: self.args.zone.clone(),
                kubernetes_cluster: self.args.kubernetes_cluster.clone(),
            },
            version: self.args.service_version.clone(),
            pulse: pulse.clone(),
            metrics: self.metrics.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(reporter.clone().inventory(self.observed.clone()));
        tasks.spawn(reporter.clone().health());
        tasks.spawn(reporter.clone().stay());
        tasks.spawn(tell_readiness(reporter.clone(), pulse.clone(), self.keeper.clone()));
        let end = {
            let beating = heart.run();
            tokio::pin!(beating);
            tokio::select! {
                () = &mut beating => End::Again,
                () = self.follow(&mut pulse) => End::Again,
                () = self.changes() => End::Again,
                () = self.renewals(&hub) => End::Again,
                () = self.stop.wait() => End::Stopped,
                () = self.asked_to_leave() => End::Left,
            }
        };
        tasks.shutdown().await;
        if end == End::Left {
            tracing::info!("leaving the control plane");
            match reporter.leave(self.keeper.stays()).await {
                Ok(Goodbye::Forgotten) => {}
                // The next term says so to the control plane, first of all.
                Ok(Goodbye::TakenBack) => return Ok(End::Again),
                Ok(Goodbye::Refused) => {
                    tracing::warn!(reason = "CertificateRefused", "leaving with the init token, and the key as proof");
                    self.keeper.disown().await?;
                    return Ok(End::Again);
                }
                Err(error) => {
                    // Said here, as an uninstall waits for an answer, be it a bad one.
                    let message = format!("{}: {error}", hop(&error).as_str());
                    let _ = self.keeper.say(said::BLOCKED, LEAVE_FAILED, &message).await;
                    return Err(error);
                }
            }
            let _ = self.keeper.say(said::LEFT, "Uninstalled", "the control plane has forgotten this cluster").await;
            tracing::info!("left");
        } else {
            let _ = tokio::time::timeout(Duration::from_secs(2), heart.release()).await;
        }
        Ok(end)
    }

    /// Passes the heartbeat on to `/readyz`. Returns when our certificate has been refused for too long.
    async fn follow(&self, pulse: &mut watch::Receiver<Pulse>) {
        let mut refused_since: Option<Instant> = None;
        let mut stood_by: Option<Instant> = None;
        loop {
            let now = pulse.borrow_and_update().clone();
            match now {
                Pulse::Starting => {}
                Pulse::Beating => {
                    refused_since = None;
                    if self.state.set(Stage::Connected) {
                        let _ = self.keeper.say(said::CONNECTED, "HeartbeatTaken", "").await;
                        // Whoever still stands by says so again.
                        let _ = self.keeper.stand_by(None).await;
                    }
                }
                Pulse::Passive { holder } => {
                    let message = format!("agent {} stands by: {holder} holds this cluster's Lease", self.holder);
                    let new = self.state.set(Stage::Standby { holder });
                    if new || stood_by.is_none_or(|at| at.elapsed() > STAND_BY) {
                        stood_by = Some(Instant::now());
                        let _ = self.keeper.stand_by(Some(&message)).await;
                    }
                }
                Pulse::Failing { hop, error, refused } => {
                    self.state.blocked("ControlPlaneUnreachable", format!("{hop}: {error}"));
                    let since = refused.then(|| *refused_since.get_or_insert_with(Instant::now));
                    if since.is_none() {
                        refused_since = None;
                    }
                    if since.is_some_and(|s| s.elapsed() > REFUSED) {
                        tracing::warn!(
                            reason = "CertificateRefused",
                            "asking for a new certificate with the init token"
                        );
                        let _ = self.keeper.disown().await;
                        return;
                    }
                }
            }
            if pulse.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns when the init Secret leads to another control plane.
    async fn changes(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if Init::read(&self.args.control_plane_kubeconfig).is_ok_and(|now| now.hub() != self.init.hub()) {
                tracing::info!("the init Secret leads to another address or CA; starting again");
                return;
            }
        }
    }

    /// Returns when an uninstall asks for it.
    async fn asked_to_leave(&self) {
        loop {
            if self.keeper.load().await.is_ok_and(|identity| identity.leave) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns once a new certificate is saved.
    async fn renewals(&self, hub: &Client) {
        let at = self.certificate.renew_at(Certificate::random_share());
        loop {
            let left = u64::try_from(at - Timestamp::now().as_second()).unwrap_or(0);
            // In steps, so that a machine that slept notices.
            if left > 0 {
                tokio::time::sleep(Duration::from_secs(left.min(60))).await;
                continue;
            }
            match self.renew(hub).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "the certificate could not be renewed");
                    tokio::time::sleep(renew_again(&self.certificate)).await;
                }
            }
        }
    }

    async fn renew(&self, hub: &Client) -> Result<(), RegisterError> {
        let quiet = async |_: &'static str, _: String| {};
        let (args, validity, key) = (&self.args, &self.validity, &self.identity.key);
        let certificate = register::certificate(hub, args, validity, &self.cluster_id, key, quiet).await?;
        self.keeper.save(&self.identity.key, &certificate, &self.init.hub()).await?;
        tracing::info!(until = certificate.until, "certificate renewed");
        Ok(())
    }
}

/// Time to the next attempt at a renewal that failed. There are several before the end, however short the validity is.
fn renew_again(certificate: &Certificate) -> Duration {
    let validity = u64::try_from(certificate.until - certificate.from).unwrap_or(0);
    RENEW_AGAIN.min(Duration::from_secs(validity / 20 + 1))
}

/// Passes on that the control plane calls this cluster Ready: whoever installs waits for it here, as the way to the
/// control plane may be open to nobody else.
///
/// It is looked at again and again, as others write over it: we ourselves after a heartbeat that failed, and a replica
/// that starts.
async fn tell_readiness(reporter: Reporter, mut pulse: watch::Receiver<Pulse>, keeper: Keeper) {
    let mut asks = Backoff::new(READY_LOOK, READY_LOOK_AT_LEAST);
    let mut wait = READY_LOOK;
    while pulse.wait_for(|pulse| *pulse == Pulse::Beating).await.is_ok() {
        tokio::time::sleep(wait).await;
        let mut told = keeper.word().await.is_ok_and(|word| word.is_some_and(|word| word.is(said::READY)));
        if !told
            && let Ok(Some(reason)) = reporter.ready().await
            && *pulse.borrow() == Pulse::Beating
        {
            told = keeper.say(said::READY, &reason, "").await.is_ok();
        }
        wait = if told { LOOK } else { asks.next_wait() };
        if told {
            asks.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::agent::test_api;
    use crate::api::registration::ANNOTATION_STATE;

    /// An API in which every Cluster is Ready, with a Secret that remembers what is said.
    fn api(said: Arc<Mutex<Value>>) -> Client {
        test_api::api(move |uri, brought| {
            if let Some(annotations) = brought["metadata"].get("annotations") {
                *said.lock().unwrap() = annotations.clone();
            }
            if uri.path().contains("/clusters/") {
                let ready = json!({ "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "" });
                return json!({
                    "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
                    "metadata": { "name": "west" }, "spec": { "name": "west" }, "status": { "conditions": [ready] },
                });
            }
            let metadata = json!({ "name": "fleet-agent-identity", "annotations": *said.lock().unwrap() });
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })
        })
    }

    async fn until(said: &Mutex<Value>, word: &str) {
        let heard = async {
            while !said.lock().unwrap()[ANNOTATION_STATE].as_str().is_some_and(|text| text.contains(word)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), heard).await.expect("it is said in time");
    }

    #[test]
    fn a_renewal_that_fails_is_tried_several_times_before_the_end() {
        for validity in [600, 900, 3600, 2 * 86_400, 90 * 86_400] {
            let certificate = Certificate { pem: String::new(), from: 0, until: validity };
            let left = u64::try_from(validity - certificate.renew_at(0.8)).unwrap();
            assert!(left / renew_again(&certificate).as_secs() >= 3, "{validity}");
        }
    }

    #[tokio::test]
    async fn an_agent_that_connects_again_says_again_that_it_is_ready() {
        let said = Arc::new(Mutex::new(json!({})));
        let client = api(Arc::clone(&said));
        let keeper = Keeper::new(client.clone(), "fleet", "fleet-agent-identity");
        let (sender, pulse) = watch::channel(Pulse::Starting);
        let reporter = Reporter {
            hub: client.clone(),
            local: client,
            name: "west".to_owned(),
            overrides: Overrides::default(),
            version: None,
            pulse: pulse.clone(),
            metrics: Metrics::default(),
        };
        let telling = tokio::spawn(tell_readiness(reporter, pulse, keeper.clone()));
        sender.send_replace(Pulse::Beating);
        until(&said, said::READY).await;
        keeper.say(said::CONNECTED, "HeartbeatTaken", "").await.unwrap();
        until(&said, said::READY).await;
        telling.abort();
    }
}
