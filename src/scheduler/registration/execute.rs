//! Executes decisions: creates Clusters, records keys, grants rights.

use std::sync::Arc;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::events::EventType;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::approve::is_answered;
use super::csr::Request;
use super::decision::{Decision, Wait};
use super::pending::BlockedOn;
use super::{Registrar, RequestOutcome};
use crate::api::labels::{ANNOTATION_ALLOW_NEW_KEY, ANNOTATION_KEY_FINGERPRINT, LABEL_NAME, SCHEDULER_MANAGER};
use crate::api::{Cluster, ClusterSpec};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::scheduler::cluster_rbac;
use crate::scheduler::cluster_rbac::GrantError;
use crate::scheduler::events::{NewEvent, publish_event};
use crate::scheduler::settings::{Registration, Settings};

impl Registrar {
    /// Executes the decision about a request; `cluster` is the Cluster of the requested name that it was made from.
    pub(super) async fn execute_decision(
        &mut self,
        decision: Decision,
        csr: &CertificateSigningRequest,
        request: &Request,
        cluster: Option<Cluster>,
        settings: &Settings,
    ) -> Result<RequestOutcome, CallError> {
        match (decision, cluster) {
            (Decision::Deny(denial), cluster) => {
                if request.leaves {
                    self.deny_others(csr, request, settings).await?;
                }
                self.deny_request(csr, cluster.as_ref(), &denial).await
            }
            (Decision::Deregister, cluster) => {
                self.execute_deregistration(csr, request, cluster.as_ref(), settings).await
            }
            (Decision::Wait(wait), cluster) => Ok(self.hold_request(csr, request, wait, cluster)),
            (Decision::Create, cluster) => self.register_cluster(csr, request, cluster, settings.registration).await,
            (Decision::WaitWithKey, Some(cluster)) => {
                let cluster = self.record_key(request, cluster).await?;
                self.deny_former_keys(request, settings.agent_certificate_ttl).await?;
                Ok(self.wait_for_acceptance(csr, cluster))
            }
            (Decision::Reissue, Some(cluster)) => {
                let cluster = self.record_key(request, cluster).await?;
                self.admit_cluster(csr, request, cluster).await
            }
            (Decision::WaitWithKey | Decision::Reissue, None) => {
                Ok(RequestOutcome::Pending("the cluster was deleted".to_owned()))
            }
        }
    }

    /// Keeps a request pending, without further decisions about it until something has changed.
    fn hold_request(
        &mut self,
        csr: &CertificateSigningRequest,
        request: &Request,
        wait: Wait,
        cluster: Option<Cluster>,
    ) -> RequestOutcome {
        match (&wait, cluster) {
            (Wait::Acceptance, Some(cluster)) => return self.wait_for_acceptance(csr, cluster),
            // A Cluster pending deletion was another's: its name will be free for this request.
            (Wait::Acceptance | Wait::Deletion, _) => {}
            (Wait::RateLimit { .. }, _) => {
                self.block_request(csr, BlockedOn::RateLimit);
                self.metrics.increment_counter(
                    "fleet_registrations_delayed_total",
                    "Registrations held back by the rate limit.",
                    &[],
                );
            }
            (Wait::NeverReported, _) => self.block_request(csr, BlockedOn::NeverReported),
            (Wait::JustApproved, _) => self.block_request(csr, BlockedOn::JustApproved(request.cluster.to_string())),
        }
        RequestOutcome::Pending(wait.to_string())
    }

    fn wait_for_acceptance(&mut self, csr: &CertificateSigningRequest, cluster: Cluster) -> RequestOutcome {
        self.index.put_cluster(cluster.clone());
        self.mark_seen(csr);
        self.block_request(csr, BlockedOn::Acceptance(Arc::new(cluster)));
        RequestOutcome::Pending(Wait::Acceptance.to_string())
    }

    fn block_request(&mut self, csr: &CertificateSigningRequest, on: BlockedOn) {
        if let Some(pending) = self.queue.get_mut(&csr.name_any()) {
            pending.blocked_on = Some(on);
        }
    }

    fn mark_seen(&mut self, csr: &CertificateSigningRequest) {
        if let Some(pending) = self.queue.get_mut(&csr.name_any()) {
            pending.cluster_seen = true;
        }
    }

    /// Creates the Cluster, or claims the one that an operator reserved, and admits it.
    async fn register_cluster(
        &mut self,
        csr: &CertificateSigningRequest,
        request: &Request,
        reserved: Option<Cluster>,
        registration: Registration,
    ) -> Result<RequestOutcome, CallError> {
        // The watch may be behind about the request as well: one that was withdrawn must not bring the cluster back.
        if is_answered(&call_with_timeout(self.requests.get(&csr.name_any())).await?.0) {
            return Ok(RequestOutcome::Answered);
        }
        match self.create_cluster(request, reserved, registration).await {
            Ok(cluster) => self.admit_cluster(csr, request, cluster).await,
            // Somebody else was faster; the next decision knows who.
            Err(e) if e.is_conflict() => {
                Ok(RequestOutcome::Pending("another cluster has just taken the name".to_owned()))
            }
            Err(e) => Err(e),
        }
    }

    /// Grants the rights of an accepted cluster, then approves its request.
    async fn admit_cluster(
        &mut self,
        csr: &CertificateSigningRequest,
        request: &Request,
        cluster: Cluster,
    ) -> Result<RequestOutcome, CallError> {
        if !cluster.spec.accepted {
            return Ok(self.wait_for_acceptance(csr, cluster));
        }
        self.index.put_cluster(cluster.clone());
        self.mark_seen(csr);
        match cluster_rbac::reconcile_cluster_rights(&self.client, &self.index, &cluster).await {
            Ok(()) => {}
            Err(GrantError::Call(e)) => return Err(e),
            Err(blocked) => return Ok(RequestOutcome::Pending(blocked.to_string())),
        }
        self.use_up_token(csr).await?;
        let outcome = self.approve_request(csr, request).await?;
        self.limits.record_approval(request.cluster.as_str());
        Ok(outcome)
    }

    /// Takes the name. A Cluster that an operator created beforehand gets the requester's ID and key.
    async fn create_cluster(
        &mut self,
        request: &Request,
        reserved: Option<Cluster>,
        registration: Registration,
    ) -> Result<Cluster, CallError> {
        let name = request.cluster.as_str();
        let clusters: Api<Cluster> = Api::all(self.client.clone());
        let key = (ANNOTATION_KEY_FINGERPRINT.to_owned(), request.fingerprint.clone());
        let cluster = if let Some(mut cluster) = reserved {
            // With manual registration an operator checks who came before it is accepted, unless it is the ID that the
            // Cluster was reserved for. `accepted` is true by default, so that it does not stand for such a check.
            if registration == Registration::Manual && cluster.spec.cluster_id.is_none() {
                cluster.spec.accepted = false;
            }
            cluster.spec.cluster_id = Some(request.id.clone());
            cluster.annotations_mut().extend([key]);
            // Only a part of them was read, and what is sent would count as the whole.
            cluster.metadata.managed_fields = None;
            // With the version that was read: a second claim to the same name loses.
            call_with_timeout(clusters.replace(name, &PostParams::default(), &cluster)).await?
        } else {
            let spec = ClusterSpec {
                name: name.to_owned(),
                cluster_id: Some(request.id.clone()),
                accepted: registration == Registration::Auto,
                ..ClusterSpec::default()
            };
            let mut cluster = Cluster::new(name, spec);
            cluster.metadata = ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some([(LABEL_NAME.to_owned(), name.to_owned())].into()),
                annotations: Some([key].into()),
                ..ObjectMeta::default()
            };
            let params = PostParams { field_manager: Some(SCHEDULER_MANAGER.to_owned()), ..PostParams::default() };
            call_with_timeout(clusters.create(&params, &cluster)).await?
        };
        self.limits.record_creation();
        tracing::info!(cluster = name, id = request.id, accepted = cluster.spec.accepted, "new cluster");
        self.publish_cluster_event(
            &cluster,
            EventType::Normal,
            "ClusterRegistered",
            &format!("registered by the cluster with the ID {}", request.id),
        )
        .await;
        Ok(cluster)
    }

    /// Records the key of a cluster that brings a new one. An operator's permission for that is used up, also by the key
    /// on record: it was given for the next agent, not for any later one.
    pub(super) async fn record_key(&self, request: &Request, cluster: Cluster) -> Result<Cluster, CallError> {
        let known = cluster.annotations().get(ANNOTATION_KEY_FINGERPRINT) == Some(&request.fingerprint);
        if known && !cluster.annotations().contains_key(ANNOTATION_ALLOW_NEW_KEY) {
            return Ok(cluster);
        }
        let change = json!({ "metadata": { "resourceVersion": cluster.resource_version(), "annotations": {
            ANNOTATION_KEY_FINGERPRINT: request.fingerprint,
            ANNOTATION_ALLOW_NEW_KEY: null,
        }}});
        let name = request.cluster.as_str();
        let changed =
            call_with_timeout(self.clusters.patch(name, &PatchParams::default(), &Patch::Merge(&change))).await?.0;
        if known {
            return Ok(changed);
        }
        tracing::info!(cluster = name, "the cluster has a new key");
        self.publish_cluster_event(
            &changed,
            EventType::Normal,
            "ClusterKeyChanged",
            "the agent registered with a new key",
        )
        .await;
        Ok(changed)
    }

    /// Publishes an event about a Cluster.
    pub(super) async fn publish_cluster_event(&self, cluster: &Cluster, type_: EventType, reason: &str, message: &str) {
        let event = NewEvent { type_, action: "Registering", reason, message };
        publish_event(&self.recorder, &cluster.object_ref(&()), event).await;
    }
}
