//! Approvals and denials: writes conditions onto requests, also onto those that a deregistration makes void.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::EventType;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::csr::{self, Request};
use super::denial::Denial;
use super::{Registrar, RequestOutcome};
use crate::api::registration::gone::CLUSTER_LEFT;
use crate::api::registration::validity;
use crate::api::{Cluster, bootstrap_token};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::scheduler::cluster_rbac;
use crate::scheduler::settings::Settings;

/// Time for which a token for one cluster is still good when it is used: its agent fetches the certificate with it.
const USED_TOKEN_TTL: SignedDuration = SignedDuration::from_mins(10);

impl Registrar {
    /// Has the token of a request expire soon, where it is for one cluster alone. One that is gone was used up before.
    pub(super) async fn use_up_token(&self, csr: &CertificateSigningRequest) -> Result<(), CallError> {
        let groups = csr.spec.groups.as_deref().unwrap_or_default();
        let name = csr.spec.username.as_deref().and_then(bootstrap_token::secret_of_user);
        let Some(name) = name.filter(|_| bootstrap_token::only_cluster(groups).is_some()) else { return Ok(()) };
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), bootstrap_token::NAMESPACE);
        let Some(token) = call_with_timeout(secrets.get_opt(&name)).await? else { return Ok(()) };
        let soon = Timestamp::now() + USED_TOKEN_TTL;
        if bootstrap_token::token_expiry(&token).is_some_and(|expires| expires <= soon) {
            return Ok(());
        }
        let soon = Timestamp::from_second(soon.as_second()).unwrap_or(soon).to_string();
        let change = json!({ "metadata": { "uid": token.uid() }, "stringData": { bootstrap_token::EXPIRATION: soon } });
        call_with_timeout(secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&change))).await?;
        tracing::info!(
            request = csr.name_any(),
            token = name,
            expires = soon,
            "the token for one cluster was used, and expires soon"
        );
        Ok(())
    }

    pub(super) async fn approve_request(
        &self,
        csr: &CertificateSigningRequest,
        request: &Request,
    ) -> Result<RequestOutcome, CallError> {
        let message = format!("the certificate is approved for cluster {}", request.cluster);
        self.write_condition(csr, "Approved", "ClusterRegistered", &message, None).await?;
        tracing::info!(request = csr.name_any(), cluster = request.cluster.as_str(), "approved");
        self.metrics.increment_counter("fleet_registrations_total", "Answered requests.", &[("answer", "Approved")]);
        Ok(RequestOutcome::Answered)
    }

    pub(super) async fn deny_request(
        &self,
        csr: &CertificateSigningRequest,
        holder: Option<&Cluster>,
        denial: &Denial,
    ) -> Result<RequestOutcome, CallError> {
        self.write_condition(csr, "Denied", denial.reason, &denial.message, denial.max_validity).await?;
        tracing::warn!(request = csr.name_any(), reason = denial.reason, detail = denial.message, "denied");
        self.metrics.increment_counter("fleet_registrations_total", "Answered requests.", &[("answer", denial.reason)]);
        if let Some(cluster) = holder {
            self.publish_cluster_event(cluster, EventType::Warning, denial.reason, &denial.message).await;
        }
        Ok(RequestOutcome::Answered)
    }

    /// Denies every other pending request of an agent that deregisters, so that none of them creates the cluster again. One
    /// that comes in later, and was made before, is denied by [`Departures`](super::departures::Departures).
    pub(super) async fn deny_others(
        &mut self,
        csr: &CertificateSigningRequest,
        request: &Request,
        settings: &Settings,
    ) -> Result<(), CallError> {
        self.departures.record_departure(csr, request);
        for open in self.queue.requests().cloned().collect::<Vec<_>>() {
            let Some(requester) = csr::find_requester(&open) else { continue };
            let read = csr::parse_request(&open, requester, settings.agent_certificate_ttl);
            let is_of_key =
                read.is_ok_and(|r| !r.leaves && r.cluster == request.cluster && r.fingerprint == request.fingerprint);
            if is_of_key {
                match self.write_condition(&open, "Denied", CLUSTER_LEFT, &withdrawn_message(request), None).await {
                    // It was deleted.
                    Err(error) if error.is_not_found() => {}
                    other => other?,
                }
                self.queue.remove(&open.name_any());
            }
        }
        Ok(())
    }

    /// Removes a cluster whose agent deregisters, and denies the agent's other requests.
    pub(super) async fn execute_deregistration(
        &mut self,
        csr: &CertificateSigningRequest,
        request: &Request,
        cluster: Option<&Cluster>,
        settings: &Settings,
    ) -> Result<RequestOutcome, CallError> {
        self.deny_others(csr, request, settings).await?;
        let message = withdrawn_message(request);
        if let Some(cluster) = cluster {
            self.publish_cluster_event(cluster, EventType::Normal, CLUSTER_LEFT, &message).await;
            cluster_rbac::delete_cluster_with_objects(&self.client, cluster).await?;
        }
        self.write_condition(csr, "Denied", CLUSTER_LEFT, &message, None).await?;
        tracing::info!(cluster = request.cluster.as_str(), "deregistered");
        self.metrics.increment_counter("fleet_registrations_total", "Answered requests.", &[("answer", CLUSTER_LEFT)]);
        Ok(RequestOutcome::Answered)
    }

    async fn write_condition(
        &self,
        csr: &CertificateSigningRequest,
        type_: &str,
        reason: &str,
        message: &str,
        max_validity: Option<i32>,
    ) -> Result<(), CallError> {
        let condition = json!({
            "type": type_, "status": "True", "reason": reason, "message": message,
            "lastUpdateTime": Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string(),
        });
        // The version makes the answer fail if somebody else answered first.
        let mut change = json!({
            "metadata": { "resourceVersion": csr.resource_version() },
            "status": { "conditions": [condition] },
        });
        if let Some(seconds) = max_validity {
            change["metadata"]["annotations"] = json!({ validity::ANNOTATION_MAX_SECONDS: seconds.to_string() });
        }
        let (name, params) = (csr.name_any(), PatchParams::default());
        call_with_timeout(self.requests.patch_subresource("approval", &name, &params, &Patch::Merge(&change))).await?;
        Ok(())
    }

    /// Denies pending requests for the same cluster with a key that was replaced since: they would replace it back.
    pub(super) async fn deny_former_keys(&mut self, request: &Request, ttl: Duration) -> Result<(), CallError> {
        let message = format!("cluster {} is now registered with another key", request.cluster);
        let denial = Denial::new("IdentityInUse", message);
        for open in self.queue.requests().cloned().collect::<Vec<_>>() {
            let Some(requester) = csr::find_requester(&open) else { continue };
            let read = csr::parse_request(&open, requester, ttl);
            let is_of_former_key = read.is_ok_and(|r| {
                !r.leaves && r.cluster == request.cluster && r.id == request.id && r.fingerprint != request.fingerprint
            });
            if is_of_former_key {
                match self.deny_request(&open, None, &denial).await {
                    Ok(_) => {}
                    Err(error) if error.is_gone() => {}
                    // Somebody else wrote it, which need not have been an answer.
                    Err(error) if error.is_conflict() => {
                        let found = call_with_timeout(self.requests.get_opt(&open.name_any())).await?;
                        if found.is_some_and(|found| !is_answered(&found.0)) {
                            return Err(error);
                        }
                    }
                    Err(error) => return Err(error),
                }
                self.queue.remove(&open.name_any());
            }
        }
        Ok(())
    }
}

impl Registrar {
    /// Deletes a request that is larger than any agent's. It is not denied: an object near the limit of etcd has no room for a
    /// condition.
    pub(super) async fn delete_oversized(&self, name: &str, uid: Option<String>) -> Result<(), CallError> {
        let freed = json!({ "metadata": { "uid": uid, "finalizers": null } });
        let patched =
            call_with_timeout(self.requests.patch(name, &PatchParams::default(), &Patch::Merge(&freed))).await;
        accept_gone_request(patched.map(drop))?;
        let this = Preconditions { uid, ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(this), ..DeleteParams::default() };
        accept_gone_request(call_with_timeout(self.requests.delete(name, &params)).await.map(drop))?;
        self.metrics.increment_counter("fleet_registrations_total", "Answered requests.", &[("answer", "Deleted")]);
        Ok(())
    }
}

pub(super) fn withdrawn_message(request: &Request) -> String {
    format!("the agent of cluster {} withdrew its registration", request.cluster)
}

/// Returns true for a request that was approved or denied, or whose signing failed.
pub(super) fn is_answered(csr: &CertificateSigningRequest) -> bool {
    let conditions = csr.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| ["Approved", "Denied", "Failed"].contains(&c.type_.as_str()))
}

fn accept_gone_request(outcome: Result<(), CallError>) -> Result<(), CallError> {
    match outcome {
        Err(error) if error.is_gone() => Ok(()),
        other => other,
    }
}
