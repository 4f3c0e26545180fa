//! Certificates of an installed control plane with their holders: the Secrets, the pods as the last renewal saw them, the
//! address of the API, and the kubeconfig on this machine. Reads only.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::Api;
use serde::Serialize;

use super::agent_certificate_ends::{AgentCertificate, list_agent_certificates};
use super::health::format_error_chain;
use super::keys::find_keys::{KeysInSecrets, from_secrets};
use super::values::PkiSource;
use crate::api::labels::CERTIFICATES_CONFIG_MAP;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::util::file;
use crate::certificates::served::TLS_PORTS;
use crate::certificates::summary::{HeldCertificate, Summary, list_in_secrets};
use crate::check::installed::WARN_DAYS;
use crate::install::admin_access::{connect_kubeconfig, read_local_kubeconfig};
use crate::install::fleet_home::Home;
use crate::k8s::connect::served::served_certificate;
use crate::k8s::error_sentences;
use crate::pki::secrets::{ADMIN_KUBECONFIG, certificate_entries};
use crate::pki::{CertificateFacts, Files, Kubeconfig, Leaf, find_merged_certificate};

/// Name of the certificates of agents in the list.
pub const AGENT: &str = "agent";
/// Time before its end at which an agent has renewed its certificate long since.
const AGENT_RENEWS_BEFORE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Size of a kubeconfig, in bytes, that is read at most.
const LARGEST_KUBECONFIG: u64 = 16 * 1024 * 1024;

/// State of a certificate at one holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateState {
    /// It is valid for a long time.
    Ok,
    /// It ends within [`WARN_DAYS`].
    Soon,
    /// It has ended.
    Expired,
    /// The holder serves another one than the Secret has.
    NotServed,
    /// It could not be read.
    Unknown,
}

impl CertificateState {
    /// Judges a valid certificate by its end.
    fn at_end(not_after: Timestamp, now: Timestamp) -> Self {
        match not_after.duration_since(now) {
            left if left <= SignedDuration::ZERO => Self::Expired,
            left if left < SignedDuration::from_hours(24 * WARN_DAYS) => Self::Soon,
            _ => Self::Ok,
        }
    }
}

/// A certificate at one holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRow {
    /// File of the key set, such as `apiserver.crt`.
    pub certificate: String,
    /// The Secret, the pod with its port, the URL or the file that has it.
    pub holder: String,
    /// Serial number in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Its last moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// Its state.
    pub state: CertificateState,
    /// Reason of a state that the end does not explain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CertificateRow {
    fn from_held(held: HeldCertificate, now: Timestamp) -> Self {
        Self {
            state: CertificateState::at_end(held.not_after, now),
            certificate: held.certificate,
            holder: held.holder,
            serial: Some(held.serial),
            not_after: Some(held.not_after),
            reason: None,
        }
    }

    fn new_unknown(certificate: &str, holder: String, reason: &str) -> Self {
        Self {
            certificate: certificate.to_owned(),
            holder,
            serial: None,
            not_after: None,
            state: CertificateState::Unknown,
            reason: Some(reason.to_owned()),
        }
    }

    /// The same with another state, and the reason for it.
    fn in_state(self, state: CertificateState, reason: String) -> Self {
        Self { state, reason: Some(reason), ..self }
    }
}

/// Lists the certificates of a control plane. `hosting` is the hosting cluster, or the reason that there is no
/// connection to it: what exists is unknown then. Empty if there is no such control plane. `merged` are the files that
/// kubectl reads, which may have a copy of the kubeconfig.
pub async fn observe_certificates(
    hosting: Result<&Client, String>,
    home: &Home,
    merged: &[PathBuf],
    name: &ControlPlaneName,
    namespace: &NamespaceName,
    now: Timestamp,
) -> Vec<CertificateRow> {
    let found = match hosting {
        Ok(client) => {
            read_hosting_certificates(client, name, namespace).await.map_err(|error| format_error_chain(&error))
        }
        Err(why) => Err(why),
    };
    let file = home.kubeconfig_path(name).display().to_string();
    let local = read_local_kubeconfig(home, name).map_err(|error| error_sentences(&error).join(": "));
    let mut rows = Vec::new();
    let mut issued = Vec::new();
    let mut admin = local.as_ref().ok().and_then(Clone::clone);
    match found {
        Ok(found) => {
            admin = found.admin_kubeconfig().or(admin);
            issued = found.list_held();
            rows.extend(issued.iter().map(|held| CertificateRow::from_held(held.clone(), now)));
            if !issued.is_empty() {
                rows.extend(judge_pods(&found.summary, &issued, now));
            }
        }
        Err(why) => rows.extend(list_unread(&why)),
    }
    if let Some(admin) = &admin {
        rows.push(observe_endpoint(&admin.server, &issued, now).await);
    }
    match local {
        Ok(None) => {}
        Ok(Some(local)) => {
            let certificate = local.client_certificate().map(|(certificate, _)| certificate);
            rows.push(judge_local(&file, certificate, &issued, now));
        }
        Err(why) => rows.push(CertificateRow::new_unknown(ADMIN_KUBECONFIG, file, &why)),
    }
    for file in merged {
        let text = file::read_linked_text(file, LARGEST_KUBECONFIG).ok().flatten().unwrap_or_default();
        if let Some(certificate) = find_merged_certificate(&text, name.as_str()) {
            rows.push(judge_local(&file.display().to_string(), Some(&certificate), &issued, now));
        }
    }
    if let Some(admin) = admin {
        rows.extend(observe_agents(&admin, now).await);
    }
    rows
}

/// What agents report of their certificates. They renew these by themselves, with some weeks left.
async fn observe_agents(admin: &Kubeconfig, now: Timestamp) -> Vec<CertificateRow> {
    let found = match connect_kubeconfig(admin).await {
        Ok(hub) => list_agent_certificates(&hub.client).await,
        Err(why) => Err(why),
    };
    match found {
        Err(why) => vec![CertificateRow::new_unknown(AGENT, "Agents".to_owned(), &why)],
        Ok(agents) => agents.into_iter().map(|agent| judge_agent(agent, now)).collect(),
    }
}

fn judge_agent(agent: AgentCertificate, now: Timestamp) -> CertificateRow {
    let holder = format!("Agent {}", agent.cluster);
    let Some(not_after) = agent.not_after else {
        return CertificateRow::new_unknown(AGENT, holder, "the agent does not report the expiry");
    };
    let state = match CertificateState::at_end(not_after, now) {
        CertificateState::Soon if not_after.duration_since(now) > AGENT_RENEWS_BEFORE => CertificateState::Ok,
        state => state,
    };
    let (certificate, not_after) = (AGENT.to_owned(), Some(not_after));
    CertificateRow { certificate, holder, serial: None, not_after, state, reason: None }
}

/// Certificates in the hosting cluster.
#[derive(Debug)]
pub struct HostingCertificates {
    /// How the last renewal ended.
    pub summary: Summary,
    /// The key set; empty if there is no such control plane.
    pub files: Files,
    /// Who makes and renews it.
    pub source: PkiSource,
    /// Name of the Secret of the user's own, where it is in one.
    pub existing: Option<String>,
}

impl HostingCertificates {
    /// The certificates with the Secrets that hold them.
    pub fn list_held(&self) -> Vec<HeldCertificate> {
        let mut held = list_in_secrets(&self.files);
        if let Some(secret) = &self.existing {
            for held in &mut held {
                held.holder = format!("Secret {secret}");
            }
        }
        held
    }

    /// The operator's kubeconfig.
    fn admin_kubeconfig(&self) -> Option<Kubeconfig> {
        Kubeconfig::parse(ADMIN_KUBECONFIG, self.files.get(ADMIN_KUBECONFIG)?).ok()
    }
}

/// Reads the certificates of a control plane in its hosting cluster.
///
/// # Errors
/// An API that does not answer or refuses.
pub async fn read_hosting_certificates(
    client: &Client,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
) -> Result<HostingCertificates, kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace.as_str());
    let (keys, map) =
        tokio::join!(from_secrets(client, namespace.as_str(), name.as_str()), maps.get_opt(CERTIFICATES_CONFIG_MAP));
    let (KeysInSecrets { files, source, existing }, map) = (keys?, map?);
    let summary = map.as_ref().map(Summary::from_config_map).unwrap_or_default();
    Ok(HostingCertificates { summary, files, source, existing })
}

/// What is in the hosting cluster, if that cannot be read.
fn list_unread(why: &str) -> Vec<CertificateRow> {
    let entries = certificate_entries();
    entries.map(|entry| CertificateRow::new_unknown(entry.file, format!("Secret {}", entry.secret), why)).collect()
}

/// What pods served when the last renewal looked at them.
fn judge_pods(summary: &Summary, issued: &[HeldCertificate], now: Timestamp) -> Vec<CertificateRow> {
    let served: Vec<&HeldCertificate> =
        summary.certificates.iter().filter(|held| held.holder.starts_with("Pod ")).collect();
    if served.is_empty() {
        let why = "no renewal has checked the pods yet";
        let unseen = TLS_PORTS.map(|(component, port, leaf)| {
            CertificateRow::new_unknown(leaf.leaf_store().stored_file(), format!("Pods {component}:{port}"), why)
        });
        return unseen.into();
    }
    let rows = served.into_iter().map(|held| {
        let row = CertificateRow::from_held(held.clone(), now);
        match (&summary.failed, is_issued(held.serial.as_str(), &held.certificate, issued)) {
            (_, true) => row,
            (Some((_, why)), false) => row.in_state(CertificateState::NotServed, why.clone()),
            (None, false) => row.in_state(
                CertificateState::Unknown,
                "the certificate was issued after the last renewal checked the pod".to_owned(),
            ),
        }
    });
    rows.collect()
}

fn is_issued(serial: &str, certificate: &str, issued: &[HeldCertificate]) -> bool {
    issued.iter().any(|held| held.certificate == certificate && held.serial == serial)
}

/// What the address of the API serves to this machine.
async fn observe_endpoint(server: &str, issued: &[HeldCertificate], now: Timestamp) -> CertificateRow {
    let certificate = Leaf::ApiServer.leaf_store().stored_file();
    let shown = match server.parse::<http::Uri>() {
        Ok(uri) => {
            let (host, port) = (uri.host().unwrap_or_default().to_owned(), uri.port_u16().unwrap_or(443));
            served_certificate(host, port).await.map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let facts = shown.and_then(|der| CertificateFacts::from_der(server, &der).map_err(|error| error.to_string()));
    match facts {
        Err(why) => CertificateRow::new_unknown(certificate, server.to_owned(), &why),
        Ok(facts) => {
            let row = CertificateRow::from_held(HeldCertificate::new(certificate, server.to_owned(), &facts), now);
            if issued.is_empty() || is_issued(&facts.serial, certificate, issued) {
                return row;
            }
            row.in_state(CertificateState::NotServed, "the Secret has another certificate".to_owned())
        }
    }
}

/// The certificate in the kubeconfig on this machine.
fn judge_local(file: &str, certificate: Option<&str>, issued: &[HeldCertificate], now: Timestamp) -> CertificateRow {
    let Some(certificate) = certificate else {
        return CertificateRow::new_unknown(
            ADMIN_KUBECONFIG,
            file.to_owned(),
            "the kubeconfig has no client certificate",
        );
    };
    match CertificateFacts::from_pem(file, certificate) {
        Err(error) => CertificateRow::new_unknown(ADMIN_KUBECONFIG, file.to_owned(), &error.to_string()),
        Ok(facts) => {
            let row = CertificateRow::from_held(HeldCertificate::new(ADMIN_KUBECONFIG, file.to_owned(), &facts), now);
            if issued.is_empty() || is_issued(&facts.serial, ADMIN_KUBECONFIG, issued) {
                return row;
            }
            let state = row.state;
            row.in_state(state, "the Secret has another certificate".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + days * 86_400).unwrap()
    }

    fn held(holder: &str, serial: &str, days: i64) -> HeldCertificate {
        HeldCertificate {
            certificate: "etcd-server.crt".to_owned(),
            holder: holder.to_owned(),
            serial: serial.to_owned(),
            not_after: at(days),
        }
    }

    #[test]
    fn the_state_follows_from_the_end() {
        for (days, state) in [
            (-1, CertificateState::Expired),
            (0, CertificateState::Expired),
            (59, CertificateState::Soon),
            (60, CertificateState::Ok),
        ] {
            assert_eq!(CertificateState::at_end(at(days), at(0)), state, "{days}");
        }
    }

    /// The row of a pod that showed a certificate with this serial number.
    fn judge_lone_pod(issued: &[HeldCertificate], serial: &str, failed: Option<(Timestamp, String)>) -> CertificateRow {
        let certificates = vec![held("Pod etcd-0:2379", serial, 30), held("Secret etcd-certs", serial, 30)];
        let rows = judge_pods(&Summary { certificates, succeeded: None, failed }, issued, at(0));
        assert_eq!(rows.len(), 1, "the Secrets are read themselves");
        rows[0].clone()
    }

    #[test]
    fn a_pod_that_shows_another_certificate_does_not_serve_only_if_the_renewal_failed() {
        let issued = [held("Secret etcd-certs", "02", 365)];
        assert_eq!(judge_lone_pod(&issued, "02", None).state, CertificateState::Soon);
        assert_eq!(judge_lone_pod(&issued, "01", None).state, CertificateState::Unknown);
        let failed = judge_lone_pod(&issued, "01", Some((at(0), "pod etcd-0 port 2379 serves 01".to_owned())));
        assert_eq!(failed.state, CertificateState::NotServed);
        assert!(failed.reason.unwrap().contains("etcd-0"));
        let unseen = judge_pods(&Summary::default(), &issued, at(0));
        assert!(unseen.len() == 3 && unseen.iter().all(|row| row.state == CertificateState::Unknown), "{unseen:?}");
    }

    #[test]
    fn an_agent_has_renewed_its_certificate_a_week_before_its_end() {
        let unknown = AgentCertificate { cluster: "west".to_owned(), not_after: None };
        for (days, state) in [(8, CertificateState::Ok), (7, CertificateState::Soon), (0, CertificateState::Expired)] {
            let agent = AgentCertificate { not_after: Some(at(days)), ..unknown.clone() };
            assert_eq!(judge_agent(agent, at(0)).state, state, "{days}");
        }
        let silent = judge_agent(unknown, at(0));
        assert_eq!((silent.state, silent.holder.as_str()), (CertificateState::Unknown, "Agent west"));
    }

    #[test]
    fn what_cannot_be_read_is_listed_with_the_reason() {
        let unread = list_unread("connection refused");
        assert_eq!(unread.len(), 12);
        assert!(unread.iter().all(|row| row.reason.as_deref() == Some("connection refused")));
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_is_unknown() {
        let row = observe_endpoint("https://127.0.0.1:1", &[], at(0)).await;
        assert_eq!((row.state, row.holder.as_str()), (CertificateState::Unknown, "https://127.0.0.1:1"));
    }
}
