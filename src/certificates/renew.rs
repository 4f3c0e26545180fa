//! One renewal, from the Secrets to the proof that every pod serves what is in them: by the Job of the CronJob, or from
//! outside of the hosting cluster, where it also brings back what serves nothing any more.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;

use super::KeysError;
use super::complete::{KeyTarget, KeysDone, complete_key_secrets};
use super::restart::{
    is_of_component, is_ready, list_pods, replace_pods, restart_ca_readers, restart_client_readers,
    restart_start_readers, roll_component,
};
use super::served::{Behind, Reach, SERVED_WITHIN, ServingPods, list_tls_ports};
use super::summary::{HeldCertificate, list_in_secrets, write_summary};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::k8s::error_sentences;
use crate::pki::AuthorityKind;

/// Time after which the pods of a component that does not serve the new certificate are replaced.
pub const ROLL_AFTER: Duration = Duration::from_secs(180);

/// Components in the order in which they depend on each other.
const COMPONENTS: [&str; 4] = ["etcd", "apiserver", "kube-controller-manager", "fleet-scheduler"];

/// Completes the key Secrets, restarts who reads at its start only, waits until each pod serves what the Secrets have,
/// and records the outcome. A run that was interrupted is done again from the start: what is done is not done twice.
///
/// # Errors
/// [`KeysError`]; the ConfigMap has the reason then, too.
pub async fn renew_certificates(client: &Client, target: &KeyTarget) -> Result<KeysDone, KeysError> {
    let outcome = renew_and_prove(client, target).await;
    record_outcome(client, &target.namespace, outcome.as_ref().map(|(_, held)| held.as_slice())).await?;
    outcome.map(|(done, _)| done)
}

async fn renew_and_prove(client: &Client, target: &KeyTarget) -> Result<(KeysDone, Vec<HeldCertificate>), KeysError> {
    let done = complete_key_secrets(client, target, Timestamp::now()).await?;
    restart_start_readers(client, &target.namespace, &done).await?;
    let pods = ServingPods {
        client,
        name: &target.name,
        namespace: &target.namespace,
        reach: Reach::Address,
        waiting: &|waiting| tracing::info!(waiting, "the new certificates are not served yet"),
    };
    let (served, behind) = pods.wait_until_served(&done.files, SERVED_WITHIN).await?;
    if !behind.is_empty() {
        return Err(not_served(behind));
    }
    let mut held = list_in_secrets(&done.files);
    held.extend(served);
    Ok((done, held))
}

fn not_served(behind: Vec<Behind>) -> KeysError {
    KeysError::NotServed(behind.into_iter().map(|one| one.why).collect())
}

/// Writes down how a run ended.
async fn record_outcome(
    client: &Client,
    namespace: &NamespaceName,
    outcome: Result<&[HeldCertificate], &KeysError>,
) -> Result<(), kube::Error> {
    let failed = outcome.is_err();
    let ended = outcome.map_err(|error| error_sentences(error).join(": "));
    match write_summary(client, namespace.as_str(), ended, Timestamp::now()).await {
        // The reason itself is the error to show.
        Err(error) if failed => {
            tracing::warn!(%error, "cannot record the result of the renewal");
            Ok(())
        }
        written => written,
    }
}

/// A renewal from outside of the hosting cluster, through its API alone.
pub struct Outside<'a> {
    /// Client of the hosting cluster.
    pub client: &'a Client,
    /// The control plane.
    pub name: &'a ControlPlaneName,
    /// Its namespace.
    pub namespace: &'a NamespaceName,
    /// Whether the pods of a component that serves nothing are replaced at once.
    pub recovers: bool,
    /// Whether the last renewal failed, so that the outcome is recorded in any case.
    pub was_failed: bool,
    /// Time after which the pods of a component that does not serve the new certificate are replaced: [`ROLL_AFTER`].
    pub roll_after: Duration,
    /// Gets what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Send + Sync),
}

impl std::fmt::Debug for Outside<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside").field("name", self.name).field("recovers", &self.recovers).finish_non_exhaustive()
    }
}

/// Result of a renewal from outside.
#[derive(Debug, Default)]
pub struct Renewed {
    /// The key set.
    pub done: KeysDone,
    /// Components whose pods were replaced, in order.
    pub restarted: Vec<String>,
}

impl Outside<'_> {
    /// Completes the key Secrets, and proves it. What an interrupted run has done is not done again, and nothing is
    /// written if nothing is due and everything is served.
    ///
    /// # Errors
    /// [`KeysError`]; the ConfigMap has the reason then, too.
    pub async fn renew(&self, target: &KeyTarget) -> Result<Renewed, KeysError> {
        (self.waiting)("writing the Secrets");
        let outcome = match complete_key_secrets(self.client, target, Timestamp::now()).await {
            Ok(done) => self.prove(done).await,
            Err(error) => Err(error),
        };
        match &outcome {
            Ok((renewed, _)) if renewed.done.is_unchanged() && renewed.restarted.is_empty() && !self.was_failed => {}
            Ok((_, held)) => record_outcome(self.client, self.namespace, Ok(held)).await?,
            Err(error) => record_outcome(self.client, self.namespace, Err(error)).await?,
        }
        outcome.map(|(renewed, _)| renewed)
    }

    /// Replaces pods that cannot serve any more, if this recovers; restarts who reads etcd's CA at its start; waits until
    /// each pod serves what the Secrets have; restarts the controller manager. Returns every certificate with its holder.
    ///
    /// # Errors
    /// [`KeysError::Api`], [`KeysError::NotRolledOut`] and [`KeysError::NotServed`].
    pub async fn prove(&self, done: KeysDone) -> Result<(Renewed, Vec<HeldCertificate>), KeysError> {
        let mut restarted: Vec<&str> = Vec::new();
        if self.recovers {
            for component in COMPONENTS {
                let pods = list_pods(self.client, self.namespace).await?;
                if self.serves_nothing(component, &pods, &done).await {
                    (self.waiting)(&format!("replacing all pods of {component}"));
                    replace_pods(self.client, self.namespace, component, &pods).await?;
                    restarted.push(component);
                }
            }
        }
        // Whoever was replaced has read the files that there are.
        let rolled = restart_ca_readers(self.client, self.namespace, &done, &restarted).await?;
        restarted.extend(rolled);
        let served = self.wait_or_roll(&done, &mut restarted).await?;
        if !restarted.contains(&"kube-controller-manager")
            && restart_client_readers(self.client, self.namespace, &done).await?
        {
            restarted.push("kube-controller-manager");
        }
        let mut held = list_in_secrets(&done.files);
        held.extend(served);
        let restarted = restarted.into_iter().map(str::to_owned).collect();
        Ok((Renewed { done, restarted }, held))
    }

    /// Waits until every pod serves what the Secrets have; after some time the pods of those that do not are replaced one
    /// at a time.
    async fn wait_or_roll(
        &self,
        done: &KeysDone,
        restarted: &mut Vec<&str>,
    ) -> Result<Vec<HeldCertificate>, KeysError> {
        let pods = self.serving_pods();
        let (served, behind) = pods.wait_until_served(&done.files, self.roll_after).await?;
        if behind.is_empty() {
            return Ok(served);
        }
        let mut rolled = false;
        for one in &behind {
            if !restarted.contains(&one.component) {
                (self.waiting)(&format!("replacing the pods of {}, one at a time: {}", one.component, one.why));
                let text = done.files.get(one.file).unwrap_or_default();
                if roll_component(self.client, self.namespace, one.component, text).await? {
                    restarted.push(one.component);
                    rolled = true;
                }
            }
        }
        if !rolled {
            return Err(not_served(behind));
        }
        let (served, behind) = pods.wait_until_served(&done.files, self.roll_after).await?;
        if behind.is_empty() { Ok(served) } else { Err(not_served(behind)) }
    }

    fn serving_pods(&self) -> ServingPods<'_> {
        ServingPods {
            client: self.client,
            name: self.name,
            namespace: self.namespace,
            reach: Reach::Forwarded,
            waiting: self.waiting,
        }
    }

    /// Returns whether a component has pods and none of them serves: none is ready, or all show certificates that have
    /// ended; for etcd and the API server also if the CA of etcd had ended, which they have read at their start.
    async fn serves_nothing(&self, component: &str, pods: &[Pod], done: &KeysDone) -> bool {
        let own: Vec<Pod> = pods.iter().filter(|pod| is_of_component(pod, component)).cloned().collect();
        if own.is_empty() {
            return false;
        }
        let reads_ca = ["etcd", "apiserver"].contains(&component);
        if !own.iter().any(is_ready) || (reads_ca && done.ended_authorities.contains(&AuthorityKind::Etcd)) {
            return true;
        }
        let ports = list_tls_ports(&own);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace.as_str());
        let serving = self.serving_pods();
        for port in &ports {
            match serving.observe_port(&api, port).await {
                Ok(shown) if shown.not_after <= Timestamp::now() => {}
                _ => return false,
            }
        }
        !ports.is_empty()
    }
}
