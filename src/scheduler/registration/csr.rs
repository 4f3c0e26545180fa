//! Parser of an agent's certificate signing request, with every reason to deny it by its form alone. [`super::decision`]
//! decides about the name.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::agent_version::check_agent_version;
use super::denial::Denial;
use super::pkcs10;
use crate::api::bootstrap_token;
use crate::api::labels::{AGENTS_GROUP, ANNOTATION_AGENT_VERSION, ANNOTATION_CLUSTER_ID, BOOTSTRAP_GROUP};
use crate::api::names::ClusterName;
use crate::api::protocol::{ANNOTATION_REJOIN, SIGNER, USAGES, is_without_key, split_user_name, user_name};
use crate::api::registration::{ANNOTATION_LEAVE, validity};
use crate::api::util::text::visible_word;

/// Proof of the requester's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requester {
    /// An init token: anybody who was given one.
    Token,
    /// A certificate of an earlier registration.
    Agent {
        /// Its user name.
        user: String,
    },
}

/// A well-formed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The requester.
    pub requester: Requester,
    /// The requested name.
    pub cluster: ClusterName,
    /// UID of the workload cluster's `kube-system` namespace, as the agent claims.
    pub id: String,
    /// Digest of the public key, whose private half the requester holds.
    pub fingerprint: String,
    /// It requests no certificate but deregistration: an agent without a certificate has no other way to do so.
    pub leaves: bool,
    /// A certificate was issued for its key before, so that the key is not registered again.
    pub rejoins: bool,
}

/// Returns the requester, if it is one that the registrar answers; other requests are ignored.
pub fn find_requester(request: &CertificateSigningRequest) -> Option<Requester> {
    if is_in_group(request, BOOTSTRAP_GROUP) {
        return Some(Requester::Token);
    }
    is_in_group(request, AGENTS_GROUP)
        .then(|| Requester::Agent { user: request.spec.username.clone().unwrap_or_default() })
}

/// Returns whether the requester is in a group.
fn is_in_group(request: &CertificateSigningRequest, group: &str) -> bool {
    request.spec.groups.iter().flatten().any(|of| of == group)
}

/// Reads a request. `longest` caps the validity of the certificate.
pub fn parse_request(
    request: &CertificateSigningRequest,
    requester: Requester,
    longest: Duration,
) -> Result<Request, Denial> {
    let spec = &request.spec;
    if spec.signer_name != SIGNER {
        return Err(Denial::new("SignerNotAllowed", format!("the signer must be {SIGNER}")));
    }
    check_usages(spec.usages.as_deref().unwrap_or_default())?;
    check_validity(spec.expiration_seconds, longest)?;
    let id = request_annotation(request, ANNOTATION_CLUSTER_ID).filter(|id| is_uuid(id));
    let id =
        id.ok_or_else(|| Denial::new("ClusterIdInvalid", format!("annotation {ANNOTATION_CLUSTER_ID} is not a UUID")))?;
    // Who is registered keeps its certificate: a cluster whose agent was forgotten in an upgrade stays reachable.
    if requester == Requester::Token
        && let Some(version) = request_annotation(request, ANNOTATION_AGENT_VERSION)
    {
        check_agent_version(version, env!("CARGO_PKG_VERSION"))?;
    }
    let asked = pkcs10::parse_pkcs10(&spec.request.0)?;
    let cluster = cluster_of(&asked.common_name, id, &asked.fingerprint)?;
    if let Requester::Agent { user } = &requester
        && *user != asked.common_name
    {
        return Err(Denial::new("IdentityMismatch", "an agent can renew only its own certificate"));
    }
    if requester == Requester::Token
        && let Some(only) = bootstrap_token::only_cluster(spec.groups.as_deref().unwrap_or_default())
        && only != cluster.as_str()
    {
        let message = format!("this init token is for cluster {only}, not for {cluster}");
        return Err(Denial::new("TokenForOtherCluster", message));
    }
    let [leaves, rejoins] =
        [ANNOTATION_LEAVE, ANNOTATION_REJOIN].map(|key| request_annotation(request, key) == Some("true"));
    Ok(Request { requester, cluster, id: id.to_owned(), fingerprint: asked.fingerprint, leaves, rejoins })
}

fn request_annotation<'a>(request: &'a CertificateSigningRequest, key: &str) -> Option<&'a str> {
    request.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn check_usages(usages: &[String]) -> Result<(), Denial> {
    let mut sorted: Vec<_> = usages.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    if sorted == USAGES {
        Ok(())
    } else {
        Err(Denial::new("UsagesNotAllowed", format!("the usages must be exactly {USAGES:?}")))
    }
}

fn check_validity(seconds: Option<i32>, longest: Duration) -> Result<(), Denial> {
    let longest = i32::try_from(longest.as_secs()).unwrap_or(i32::MAX);
    match seconds {
        Some(s) if (validity::MIN_SECONDS..=longest).contains(&s) => Ok(()),
        _ => Err(Denial::of_validity(longest)),
    }
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    groups.iter().map(|g| g.len()).eq([8, 4, 4, 4, 12])
        && text.chars().all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c))
}

/// Returns the cluster in the common name, which must be the [`user_name`] of this very cluster ID and key.
fn cluster_of(common_name: &str, id: &str, fingerprint: &str) -> Result<ClusterName, Denial> {
    let (name, rest) = split_user_name(common_name).ok_or_else(|| deny_other_name(id, fingerprint))?;
    if is_without_key(rest, id) {
        let message = "the common name does not contain the key fingerprint: this agent is older than its control \
                       plane; upgrade it";
        return Err(Denial::new("AgentOutdated", message));
    }
    if common_name != user_name(name, id, fingerprint) {
        return Err(deny_other_name(id, fingerprint));
    }
    name.parse().map_err(|e: crate::api::names::NameError| {
        Denial::new("CommonNameNotAllowed", e.to_string().replace(name, &visible_word(name)))
    })
}

fn deny_other_name(id: &str, fingerprint: &str) -> Denial {
    let expected = user_name("<cluster>", id, fingerprint);
    Denial::new("CommonNameNotAllowed", format!("the common name must be {expected}"))
}

#[cfg(test)]
#[path = "csr_tests.rs"]
mod tests;
