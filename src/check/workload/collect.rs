//! The reads behind the preflight checks of an agent.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::{AgentFacts, EarlierCopies, InitFacts, MemberFacts, TokenFacts, WantedAgent, WorkloadFacts};
use crate::api::Cluster;
use crate::api::labels::{LABEL_APP_VERSION, LABEL_INSTALL};
use crate::api::lenient::Lenient;
use crate::api::rbac::{Right, Scope};
use crate::api::registration::{IDENTITY_CERTIFICATE, IDENTITY_HUB, IDENTITY_SECRET};
use crate::check::access::list_forbidden_writes;
use crate::check::pod_references::ReferenceFacts;
use crate::check::quota::Allowance;
use crate::check::secret_readers::SecretReaders;
use crate::check::sidecars::SidecarFacts;
use crate::check::{autopilot, clock};
use crate::k8s::connect::daemon_client::token_client;
use crate::k8s::connect::init_kubeconfig::Init;
use crate::k8s::{describe_error, is_not_kubernetes};

/// Time that the control plane may take to answer from here.
const ASKING: Duration = Duration::from_secs(5);

impl InitFacts {
    /// Judges a Secret, and asks the control plane about its token.
    pub async fn evaluate_init_secret(secret: Option<&Secret>) -> Self {
        let Some(secret) = secret else { return Self::Missing };
        match Init::from_init_secret(secret) {
            Ok(init) => Self::Usable {
                token: check_bootstrap_token(&init).await,
                init: Box::new(init),
                version: secret.labels().get(LABEL_APP_VERSION).cloned(),
            },
            Err(error) => Self::Malformed(error.to_string()),
        }
    }
}

/// Reads a certificate request that does not exist: to be told so, or that it may not be read, a token must be
/// accepted.
async fn check_bootstrap_token(init: &Init) -> TokenFacts {
    let client = match token_client(init) {
        Ok(client) => client,
        Err(error) => return TokenFacts::Unreached(describe_error(&error)),
    };
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    match tokio::time::timeout(ASKING, requests.get_opt("fleet-preflight")).await {
        Ok(Ok(_)) => TokenFacts::Accepted,
        Ok(Err(error)) if is_not_kubernetes(&error) => TokenFacts::Unreached(describe_error(&error)),
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => TokenFacts::Refused,
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => TokenFacts::Accepted,
        Ok(Err(error)) => TokenFacts::Unreached(describe_error(&error)),
        Err(_) => TokenFacts::Unreached(format!("no answer within {} s", ASKING.as_secs())),
    }
}

async fn list_member_facts(hub: Option<&Client>) -> Option<Vec<MemberFacts>> {
    let clusters: Api<Lenient<Cluster>> = Api::all(hub?.clone());
    let list = tokio::time::timeout(ASKING, clusters.list(&ListParams::default())).await.ok()?.ok()?;
    let members = list.iter().map(|Lenient(cluster)| MemberFacts {
        name: cluster.name_any(),
        id: cluster.spec.cluster_id.clone().unwrap_or_default(),
    });
    Some(members.collect())
}

impl WorkloadFacts {
    /// Reads everything that the checks need. `init` is the Secret that the agent will start from; `hub` is a client of
    /// the control plane, where there is one.
    ///
    /// # Errors
    /// An API server that does not answer; what may not be read is noted in `unread`.
    pub async fn from_workload_cluster(
        client: &Client,
        hub: Option<&Client>,
        init: InitFacts,
        wanted: WantedAgent,
    ) -> Result<Self, kube::Error> {
        let version = client.apiserver_version().await?;
        let mut facts = Self { git_version: version.git_version, init, ..Self::default() };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let deployments: Api<Deployment> = Api::all(client.clone());
        let own: Api<Deployment> = Api::namespaced(client.clone(), &wanted.namespace);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &wanted.namespace);
        let labelled = ListParams::default().labels("app.kubernetes.io/name=fleet-agent");
        // One such node is evidence enough.
        let nodes: Api<Node> = Api::all(client.clone());
        let some = ListParams::default().limit(100);
        let (references, webhooks, clock, copies) = (
            ReferenceFacts::from_cluster(client, &wanted.namespace, &wanted.references),
            SidecarFacts::list_injectors(client),
            clock::read_clock_ahead(client),
            EarlierCopies::list_copies(client),
        );
        let around = async { tokio::join!(references, webhooks, clock, copies) };
        let (
            groups,
            nodes,
            namespace,
            system,
            agents,
            identity,
            members,
            allowance,
            readers,
            forbidden,
            (references, webhooks, clock_ahead, copies),
        ) = tokio::join!(
            client.list_api_groups(),
            nodes.list_metadata(&some),
            namespaces.get_opt(&wanted.namespace),
            namespaces.get_opt("kube-system"),
            async {
                match deployments.list(&labelled).await {
                    // Whoever may not look everywhere sees at least the own namespace.
                    Err(kube::Error::Api(status)) if status.code == 403 => own.list(&labelled).await,
                    answer => answer,
                }
            },
            secrets.get_opt(IDENTITY_SECRET),
            list_member_facts(hub),
            Allowance::from_namespace(client, &wanted.namespace),
            SecretReaders::find_in_namespace(client, &wanted.namespace),
            list_forbidden_writes(client, &wanted.namespace, &wanted.writes),
            around,
        );
        let found = namespace.as_ref().ok().and_then(Option::as_ref);
        facts.sidecars = SidecarFacts::new(&wanted.namespace, found, &webhooks);
        (facts.references, facts.clock_ahead, facts.earlier_copies) = (references, clock_ahead, copies);
        let nodes: Vec<String> = nodes.iter().flatten().map(ResourceExt::name_any).collect();
        facts.autopilot_evidence =
            autopilot::find_autopilot_evidence(groups.as_ref().ok(), nodes.iter().map(String::as_str));
        match namespace {
            Ok(Some(namespace)) => {
                facts.namespace_exists = true;
                facts.namespace_terminating = namespace.metadata.deletion_timestamp.is_some();
            }
            Ok(None) => {}
            Err(error) => drop(facts.unread.insert("namespace", describe_error(&error))),
        }
        facts.cluster_id = system.ok().flatten().and_then(|system| system.uid()).unwrap_or_default();
        match agents {
            Ok(list) => {
                facts.agents = list.iter().map(agent_facts).collect();
                for agent in facts.agents.iter_mut().filter(|agent| agent.namespace != wanted.namespace) {
                    agent.is_of_same_fleet = is_of_same_fleet(client, &agent.namespace, &facts.init).await;
                }
            }
            Err(error) => drop(facts.unread.insert("agents", describe_error(&error))),
        }
        if let Ok(Some(identity)) = identity {
            let data = identity.data.unwrap_or_default();
            let [hub, certificate] = [IDENTITY_HUB, IDENTITY_CERTIFICATE]
                .map(|key| data.get(key).map(|bytes| bytes.0.as_slice()).unwrap_or_default());
            facts.registered_with = String::from_utf8_lossy(hub).into_owned();
            facts.same_authority = facts.init().is_some_and(|init| init.has_issued(certificate));
        }
        facts.members = members;
        facts.allowance = allowance;
        facts.readers = readers;
        facts.forbidden = forbidden?;
        facts.wanted = wanted;
        Ok(facts)
    }
}

/// Returns whether the agent of another namespace has a certificate of the control plane of an init Secret; nothing where it
/// has none yet, or its identity may not be read.
async fn is_of_same_fleet(client: &Client, namespace: &str, init: &InitFacts) -> Option<bool> {
    let InitFacts::Usable { init, .. } = init else { return None };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let identity = secrets.get_opt(IDENTITY_SECRET).await.ok()??.data?;
    let hub = identity.get(IDENTITY_HUB)?;
    let has_issued = identity.get(IDENTITY_CERTIFICATE).is_some_and(|certificate| init.has_issued(&certificate.0));
    Some(has_issued || hub.0 == init.control_plane_digest().as_bytes())
}

fn agent_facts(deployment: &Deployment) -> AgentFacts {
    AgentFacts {
        name: deployment.labels().get(LABEL_INSTALL).cloned().unwrap_or_default(),
        namespace: deployment.namespace().unwrap_or_default(),
        is_of_same_fleet: None,
    }
}

/// The rights that [`WorkloadFacts::from_workload_cluster`] needs; without them less is checked.
pub fn workload_rights() -> Vec<Right> {
    [
        Right::optional_rights(Scope::Cluster, "", "nodes", &["list"]),
        Right::optional_rights(Scope::Cluster, "", "namespaces", &["get"]),
        Right::optional_rights(Scope::Cluster, "apps", "deployments", &["list"]),
        Right::optional_rights(Scope::Namespace, "", "secrets", &["get"]),
        Allowance::allowance_rights(),
        SecretReaders::secret_reader_rights(),
        ReferenceFacts::reference_rights(),
        SidecarFacts::sidecar_rights(),
        EarlierCopies::copy_rights(),
    ]
    .concat()
}
