//! Registration of an agent as it reports it, waited for at its identity Secret.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::api::extra_kind::{self, ExtraKind};
use crate::api::labels::LABEL_PLACED_BY;
use crate::api::registration::{
    ANNOTATION_DRAIN, ANNOTATION_LEAVE, IDENTITY_CERTIFICATE, IDENTITY_HUB, IDENTITY_SECRET, LEAVE_FAILED,
    Registration, is_asked, state,
};

/// A refused agent tries again after 30 s; a refusal that lasts longer is final.
const ASKED_AGAIN: Duration = Duration::from_secs(45);

/// The identity Secret of an agent.
#[derive(Clone)]
pub struct Identity {
    api: Api<Secret>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Contents of the identity Secret, without what is secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The Secret is there.
    pub exists: bool,
    /// The control plane has issued a certificate.
    pub registered: bool,
    /// Digest that tells that control plane and its address from others.
    pub hub: String,
    /// An uninstall has asked the agent to leave.
    pub leaving: bool,
    /// Label value of the copies of its control plane; absent where nothing was ever placed here.
    pub placed_by: Option<String>,
    /// Kinds of those copies beside the ones that can always be placed.
    pub extra_kinds: BTreeSet<ExtraKind>,
    /// Registration as the agent last reported it.
    pub said: Option<Registration>,
}

fn parse_identity_secret(secret: &Secret) -> Seen {
    Seen {
        exists: true,
        registered: find_secret_bytes(secret, IDENTITY_CERTIFICATE).is_some_and(|certificate| !certificate.is_empty()),
        hub: String::from_utf8_lossy(find_secret_bytes(secret, IDENTITY_HUB).unwrap_or_default()).into_owned(),
        leaving: is_asked(secret.annotations(), ANNOTATION_LEAVE),
        placed_by: secret.annotations().get(LABEL_PLACED_BY).filter(|value| is_label(value)).cloned(),
        extra_kinds: extra_kind::read_recorded_kinds(secret.annotations()),
        said: Registration::from_secret_annotations(secret.annotations()),
    }
}

fn find_secret_bytes<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice())
}

/// Returns whether a text can be looked for as a value of [`LABEL_PLACED_BY`].
fn is_label(value: &str) -> bool {
    (1..=63).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl Identity {
    /// The identity Secret in a namespace of the workload cluster.
    pub fn new(client: &Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client.clone(), namespace) }
    }

    /// Looks once.
    ///
    /// # Errors
    /// An API that does not answer or refuses.
    pub async fn observe_identity(&self) -> Result<Seen, kube::Error> {
        Ok(self.api.get_opt(IDENTITY_SECRET).await?.as_ref().map(parse_identity_secret).unwrap_or_default())
    }

    /// Asks the agent to leave the control plane, or takes the request back.
    ///
    /// # Errors
    /// An API that does not answer or refuses.
    pub async fn ask_to_leave(&self, leave: bool) -> Result<(), kube::Error> {
        self.annotate_identity(ANNOTATION_LEAVE, leave).await
    }

    /// Asks the agent to have the cluster drained, or takes the request back.
    ///
    /// # Errors
    /// An API that does not answer or refuses.
    pub async fn ask_to_drain(&self, drain: bool) -> Result<(), kube::Error> {
        self.annotate_identity(ANNOTATION_DRAIN, drain).await
    }

    async fn annotate_identity(&self, annotation: &str, is_asked: bool) -> Result<(), kube::Error> {
        let value = is_asked.then_some("true");
        let change = json!({ "metadata": { "annotations": { annotation: value } } });
        self.api.patch(IDENTITY_SECRET, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    /// Waits until a reported registration satisfies `holds`, which is called for every report.
    async fn wait_for_registration(&self, holds: impl Fn(&Registration) -> bool) -> Registration {
        self.until_seen(|_, said| holds(said)).await
    }

    /// The same by all that the Secret shows.
    ///
    /// It does not end by itself: the caller's time-out ends it.
    async fn until_seen(&self, holds: impl Fn(&Seen, &Registration) -> bool) -> Registration {
        loop {
            let met = await_condition(self.api.clone(), IDENTITY_SECRET, |secret: Option<&Secret>| {
                let seen = secret.map(parse_identity_secret).unwrap_or_default();
                seen.said.as_ref().is_some_and(|said| holds(&seen, said))
            });
            if let Ok(Some(secret)) = met.await
                && let Some(said) = Registration::from_secret_annotations(secret.annotations())
            {
                return said;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Ends when the control plane has refused this registration. A refusal from `before` counts only after the agent
    /// has had time to try again.
    pub async fn wait_until_refused(
        &self,
        before: Option<&Registration>,
        heard: impl Fn(&Registration),
    ) -> Registration {
        let fresh = self.wait_for_registration(|said| {
            heard(said);
            said.is_in_state(state::REFUSED) && Some(said) != before
        });
        let still = async {
            tokio::time::sleep(ASKED_AGAIN).await;
            self.wait_for_registration(|said| said.is_in_state(state::REFUSED)).await
        };
        tokio::select! {
            said = fresh => said,
            said = still => said,
        }
    }

    /// Ends when the control plane calls the cluster Ready, where `hub` is given by the certificate of that one at that
    /// address. `heard` is told what the agent says, and none while it means another.
    pub async fn wait_until_cluster_ready(
        &self,
        hub: Option<&str>,
        heard: impl Fn(Option<&Registration>),
    ) -> Registration {
        self.until_seen(|seen, said| {
            let ready = said.is_in_state(state::READY);
            let other = ready && hub.is_some_and(|hub| hub != seen.hub);
            heard(Some(said).filter(|_| !other));
            ready && !other
        })
        .await
    }

    /// Ends when the agent is deregistered, or reports, other than `before`, that it cannot be.
    pub async fn wait_until_left(&self, before: Option<&Registration>) -> Registration {
        self.wait_for_registration(|said| {
            let has_failed = said.is_in_state(state::BLOCKED) && said.reason == LEAVE_FAILED;
            said.is_in_state(state::LEFT) || has_failed && Some(said) != before
        })
        .await
    }
}
