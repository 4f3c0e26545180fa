//! One session with the control plane: from a certificate until it is renewed, refused, or the address or CA changes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::heartbeat::{LeaseRenewer, LeaseStatus};
use super::identity::{Certificate, Identity, IdentityStore};
use super::inventory::facts::Overrides;
use super::inventory::watch::Observed;
use super::readyz::{Stage, State};
use super::register::{self, RegisterError, Validity};
use super::settings::Args;
use super::status_writer::{Deregistration, Reporter};
use super::work::Work;
use crate::api::extra_kind;
use crate::api::registration::{LEAVE_FAILED, state as phase};
use crate::daemon::metrics::Metrics;
use crate::daemon::stop::Stop;
use crate::k8s::backoff::Backoff;
use crate::k8s::connect::connect_error::classify_hop;
use crate::k8s::connect::daemon_client::{CallError, identity_client};
use crate::k8s::connect::init_kubeconfig::Init;

/// Time between two reads of Secret and file.
const POLL: Duration = Duration::from_secs(5);
/// Time until the first read of the condition Ready.
const READY_POLL: Duration = Duration::from_secs(1);
/// Longest time between two reads of it while it is not True: after an outage all agents read.
const READY_POLL_MAX: Duration = Duration::from_secs(10);
/// Time between two reports of a passive agent, as the active one removes earlier reports.
const STANDBY_REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Time after which a refused certificate is replaced with the init token. Only where that is refused as well is this one
/// tried again.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest time to the next attempt after a failed renewal.
const RENEW_RETRY: Duration = Duration::from_secs(300);

/// End of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// Start a new session from the current files and Secret.
    Restart,
    /// The program stops.
    Stopped,
    /// The cluster was deregistered.
    Left,
}

/// Clients, identity and settings of a session.
pub(super) struct Session {
    pub(super) args: Args,
    pub(super) local: Client,
    pub(super) store: IdentityStore,
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

impl Session {
    pub(super) async fn run(self) -> Result<SessionEnd, CallError> {
        let name = self.args.cluster_name.to_string();
        // Two clients: large requests must not delay renewals.
        let lease_client = identity_client(&self.init, &self.certificate.pem, &self.identity.key)?;
        let control_plane = identity_client(&self.init, &self.certificate.pem, &self.identity.key)?;
        let (lease_sender, mut lease) = watch::channel(LeaseStatus::Starting);
        let mut renewer =
            LeaseRenewer::new(lease_client, &name, self.holder.clone(), lease_sender, self.metrics.clone())
                .with_certificate_end(self.certificate.until);
        let extra_kinds = extra_kind::collect_extra_kinds(&self.args.extra_kinds, self.args.allow_rbac_kinds);
        let reporter = Reporter {
            control_plane: control_plane.clone(),
            local: self.local.clone(),
            name,
            overrides: Overrides {
                provider: self.args.provider.clone(),
                region: self.args.region.clone(),
                zone: self.args.zone.clone(),
                kubernetes_cluster: self.args.kubernetes_cluster.clone(),
            },
            version: self.args.service_version.clone(),
            extra_kinds: extra_kinds.clone(),
            lease: lease.clone(),
            metrics: self.metrics.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(reporter.clone().publish_inventory(self.observed.clone()));
        tasks.spawn(reporter.clone().monitor_health());
        tasks.spawn(reporter.clone().withdraw_deregistration());
        let (drain, drain_wanted) = watch::channel(None);
        tasks.spawn(reporter.clone().follow_drain_request(drain_wanted));
        let work = Work {
            control_plane: control_plane.clone(),
            local: self.local.clone(),
            cluster: reporter.name.clone(),
            lease: lease.clone(),
            observed: self.observed.clone(),
            metrics: self.metrics.clone(),
            store: self.store.clone(),
            extra_kinds,
            orphan_grace: Duration::from_secs(self.args.orphan_grace_seconds),
            namespaces: self.args.namespace_rules(),
        };
        tasks.spawn(work.run());
        tasks.spawn(report_readiness(reporter.clone(), lease.clone(), self.store.clone()));
        let end = {
            let renewing = renewer.run();
            tokio::pin!(renewing);
            tokio::select! {
                () = &mut renewing => SessionEnd::Restart,
                () = self.follow_lease_status(&mut lease) => SessionEnd::Restart,
                () = self.init_changed() => SessionEnd::Restart,
                () = self.keep_renewed(&control_plane) => SessionEnd::Restart,
                () = self.stop.wait_for_stop() => SessionEnd::Stopped,
                () = self.leave_requested(&drain) => SessionEnd::Left,
            }
        };
        tasks.shutdown().await;
        if end == SessionEnd::Left {
            tracing::info!("deregistering");
            match reporter.deregister_from_control_plane(self.store.leave_withdrawn()).await {
                Ok(Deregistration::Done) => {}
                // The next session withdraws it in the control plane first of all.
                Ok(Deregistration::Withdrawn) => return Ok(SessionEnd::Restart),
                Ok(Deregistration::Refused) => {
                    tracing::warn!(reason = "CertificateRefused", "deregistering with the init token and the key");
                    self.store.mark_unaccepted().await?;
                    return Ok(SessionEnd::Restart);
                }
                Err(error) => {
                    // Reported here, as an uninstall waits for an answer.
                    let message = format!("{}: {error}", classify_hop(&error).as_str());
                    let _ = self.store.report_registration(phase::BLOCKED, LEAVE_FAILED, &message).await;
                    return Err(error);
                }
            }
            let _ = self
                .store
                .report_registration(phase::LEFT, "Uninstalled", "the control plane has deregistered this cluster")
                .await;
            tracing::info!("deregistered");
        } else {
            let _ = tokio::time::timeout(Duration::from_secs(2), renewer.release_own_lease()).await;
        }
        Ok(end)
    }

    /// Sets the stage by the status of the Lease. Returns when our certificate has been refused for too long.
    async fn follow_lease_status(&self, lease: &mut watch::Receiver<LeaseStatus>) {
        let mut refused_since: Option<Instant> = None;
        let mut reported: Option<Instant> = None;
        loop {
            let status = lease.borrow_and_update().clone();
            match status {
                LeaseStatus::Starting => {}
                LeaseStatus::Held => {
                    refused_since = None;
                    if self.state.set_stage(Stage::Connected) {
                        let _ = self.store.report_registration(phase::CONNECTED, "HeartbeatTaken", "").await;
                        // Passive agents report again.
                        let _ = self.store.report_standby(None).await;
                    }
                }
                LeaseStatus::Passive { holder } => {
                    let message = format!("agent {} is standing by: {holder} has this cluster's Lease", self.holder);
                    let new = self.state.set_stage(Stage::Standby { holder });
                    if new || reported.is_none_or(|at| at.elapsed() > STANDBY_REPORT_INTERVAL) {
                        reported = Some(Instant::now());
                        let _ = self.store.report_standby(Some(&message)).await;
                    }
                }
                LeaseStatus::Failing { hop, error, refused } => {
                    self.state.set_blocked("ControlPlaneUnreachable", format!("{hop}: {error}"));
                    let since = refused.then(|| *refused_since.get_or_insert_with(Instant::now));
                    if since.is_none() {
                        refused_since = None;
                    }
                    if since.is_some_and(|s| s.elapsed() > REFUSED_TIMEOUT) {
                        tracing::warn!(
                            reason = "CertificateRefused",
                            "requesting a new certificate with the init token"
                        );
                        let _ = self.store.mark_unaccepted().await;
                        return;
                    }
                }
            }
            if lease.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns when the init Secret has another address or CA.
    async fn init_changed(&self) {
        loop {
            tokio::time::sleep(POLL).await;
            if Init::read_mounted_file(&self.args.control_plane_kubeconfig)
                .is_ok_and(|now| now.control_plane_digest() != self.init.control_plane_digest())
            {
                tracing::info!("address or CA in the init Secret changed; starting a new session");
                return;
            }
        }
    }

    /// Returns when an uninstall requests deregistration; until then reports whether it requests a drain.
    async fn leave_requested(&self, drain: &watch::Sender<Option<bool>>) {
        loop {
            if let Ok(identity) = self.store.load_identity().await {
                if identity.leave {
                    return;
                }
                drain.send_if_modified(|wanted| wanted.replace(identity.drain) != Some(identity.drain));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns once a new certificate is saved.
    async fn keep_renewed(&self, control_plane: &Client) {
        let at = self.certificate.renew_at(Certificate::random_share());
        loop {
            let left = u64::try_from(at - Timestamp::now().as_second()).unwrap_or(0);
            // In steps, so that a suspended machine notices.
            if left > 0 {
                tokio::time::sleep(Duration::from_secs(left.min(60))).await;
                continue;
            }
            match self.renew_certificate(control_plane).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "renewal of the certificate failed");
                    tokio::time::sleep(renew_retry(&self.certificate)).await;
                }
            }
        }
    }

    async fn renew_certificate(&self, control_plane: &Client) -> Result<(), RegisterError> {
        let (args, validity, key) = (&self.args, &self.validity, &self.identity.key);
        let certificate =
            register::request_certificate(control_plane, args, validity, &self.cluster_id, key, async |_, _| {})
                .await?;
        self.store.save_certificate(&self.identity.key, &certificate, &self.init.control_plane_digest()).await?;
        tracing::info!(until = certificate.until, "certificate renewed");
        Ok(())
    }
}

/// Returns the time to the next attempt after a failed renewal. There are several before the end of any validity.
fn renew_retry(certificate: &Certificate) -> Duration {
    let validity = u64::try_from(certificate.until - certificate.from).unwrap_or(0);
    RENEW_RETRY.min(Duration::from_secs(validity / 20 + 1))
}

/// Reports in the Secret that the control plane considers this cluster Ready: an install waits for it there, as it may have
/// no connection to the control plane.
///
/// The report is checked repeatedly, as others overwrite it: this agent after a failed renewal, and a replica that starts.
async fn report_readiness(reporter: Reporter, mut lease: watch::Receiver<LeaseStatus>, store: IdentityStore) {
    let mut backoff = Backoff::new(READY_POLL, READY_POLL_MAX);
    let mut wait = READY_POLL;
    while lease.wait_for(|status| *status == LeaseStatus::Held).await.is_ok() {
        tokio::time::sleep(wait).await;
        let mut reported =
            store.last_report().await.is_ok_and(|last| last.is_some_and(|last| last.is_in_state(phase::READY)));
        if !reported
            && let Ok(Some(reason)) = reporter.read_ready_reason().await
            && *lease.borrow() == LeaseStatus::Held
        {
            reported = store.report_registration(phase::READY, &reason, "").await.is_ok();
        }
        wait = if reported { POLL } else { backoff.next_wait() };
        if reported {
            backoff.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::registration::ANNOTATION_STATE;
    use crate::k8s::test_api;

    /// Returns an API in which every Cluster is Ready, with a Secret that keeps the last report.
    fn api(report: Arc<Mutex<Value>>) -> Client {
        test_api::api(move |uri, brought| {
            if let Some(annotations) = brought["metadata"].get("annotations") {
                *report.lock().unwrap() = annotations.clone();
            }
            if uri.path().contains("/clusters/") {
                let ready = json!({ "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "" });
                return json!({
                    "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
                    "metadata": { "name": "west" }, "spec": { "name": "west" }, "status": { "conditions": [ready] },
                });
            }
            let metadata = json!({ "name": "fleet-agent-identity", "annotations": *report.lock().unwrap() });
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })
        })
    }

    async fn until(report: &Mutex<Value>, phase: &str) {
        let reported = async {
            while !report.lock().unwrap()[ANNOTATION_STATE].as_str().is_some_and(|text| text.contains(phase)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), reported).await.expect("it is reported in time");
    }

    #[test]
    fn a_failed_renewal_is_retried_in_time() {
        for validity in [600, 900, 3600, 2 * 86_400, 90 * 86_400] {
            let certificate = Certificate { pem: String::new(), from: 0, until: validity };
            let left = u64::try_from(validity - certificate.renew_at(0.8)).unwrap();
            assert!(left / renew_retry(&certificate).as_secs() >= 3, "{validity}");
        }
    }

    #[tokio::test]
    async fn readiness_is_reported_again() {
        let report = Arc::new(Mutex::new(json!({})));
        let client = api(Arc::clone(&report));
        let store = IdentityStore::new(client.clone(), "fleet", "fleet-agent-identity");
        let (sender, lease) = watch::channel(LeaseStatus::Starting);
        let reporter = Reporter {
            control_plane: client.clone(),
            local: client,
            name: "west".to_owned(),
            overrides: Overrides::default(),
            version: None,
            extra_kinds: Vec::new(),
            lease: lease.clone(),
            metrics: Metrics::default(),
        };
        let reporting = tokio::spawn(report_readiness(reporter, lease, store.clone()));
        sender.send_replace(LeaseStatus::Held);
        until(&report, phase::READY).await;
        store.report_registration(phase::CONNECTED, "HeartbeatTaken", "").await.unwrap();
        until(&report, phase::READY).await;
        reporting.abort();
    }
}
