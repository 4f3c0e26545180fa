//! Places of the files of the key set in Secrets of the hosting cluster: how a running control plane is read back.

use super::Files;

/// One entry of a Secret, and the file of [`crate::pki::Files`] that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretEntry {
    /// The Secret's name.
    pub secret: &'static str,
    /// The key in its `data`.
    pub key: &'static str,
    /// The file name in the key set.
    pub file: &'static str,
}

const fn secret_entry(secret: &'static str, key: &'static str, file: &'static str) -> SecretEntry {
    SecretEntry { secret, key, file }
}

/// The Secret that is kept when a control plane is uninstalled.
pub const KEPT_SECRET: &str = "fleet-pki";

/// Prefix of the names of etcd's PersistentVolumeClaims; the number of the member follows.
pub const ETCD_CLAIM: &str = "etcd-data-etcd-";

/// The Secret with the operator's kubeconfig, under the key `kubeconfig`.
pub const ADMIN_SECRET: &str = "fleet-kubeconfig";

/// The file of the key set that holds the operator's kubeconfig.
pub const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";

/// The Secret with the kubeconfig of `fleet-scheduler`, under the key `kubeconfig`.
pub const SCHEDULER_SECRET: &str = "fleet-scheduler-kubeconfig";

/// A further key of [`SCHEDULER_SECRET`] where keys are made inside the cluster: the URL at which agents reach the API
/// server, where the configuration of `fleet-scheduler` names none.
pub const SERVER_FILE: &str = "server";

/// Every file of the key set, each in one Secret. The certificate of etcd's authority, which is not secret, is in
/// `etcd-certs` too, so that etcd needs nothing of the kept Secret.
pub const SECRET_ENTRIES: [SecretEntry; 24] = [
    secret_entry(KEPT_SECRET, "ca.crt", "ca.crt"),
    secret_entry(KEPT_SECRET, "ca.key", "ca.key"),
    secret_entry(KEPT_SECRET, "encryption.yaml", "encryption.yaml"),
    secret_entry(KEPT_SECRET, "etcd-ca.crt", "etcd-ca.crt"),
    secret_entry(KEPT_SECRET, "etcd-ca.key", "etcd-ca.key"),
    secret_entry(KEPT_SECRET, "front-proxy-ca.crt", "front-proxy-ca.crt"),
    secret_entry(KEPT_SECRET, "front-proxy-ca.key", "front-proxy-ca.key"),
    secret_entry(KEPT_SECRET, "sa.key", "sa.key"),
    secret_entry(KEPT_SECRET, "sa.pub", "sa.pub"),
    secret_entry("etcd-certs", "etcd-server.crt", "etcd-server.crt"),
    secret_entry("etcd-certs", "etcd-server.key", "etcd-server.key"),
    secret_entry("etcd-certs", "etcd-peer.crt", "etcd-peer.crt"),
    secret_entry("etcd-certs", "etcd-peer.key", "etcd-peer.key"),
    secret_entry("etcd-certs", "etcd-health-client.crt", "etcd-health-client.crt"),
    secret_entry("etcd-certs", "etcd-health-client.key", "etcd-health-client.key"),
    secret_entry("apiserver-certs", "apiserver.crt", "apiserver.crt"),
    secret_entry("apiserver-certs", "apiserver.key", "apiserver.key"),
    secret_entry("apiserver-certs", "apiserver-etcd-client.crt", "apiserver-etcd-client.crt"),
    secret_entry("apiserver-certs", "apiserver-etcd-client.key", "apiserver-etcd-client.key"),
    secret_entry("apiserver-certs", "front-proxy-client.crt", "front-proxy-client.crt"),
    secret_entry("apiserver-certs", "front-proxy-client.key", "front-proxy-client.key"),
    secret_entry("controller-manager-kubeconfig", "kubeconfig", "controller-manager.kubeconfig"),
    secret_entry(SCHEDULER_SECRET, "kubeconfig", "scheduler.kubeconfig"),
    secret_entry(ADMIN_SECRET, "kubeconfig", ADMIN_KUBECONFIG),
];

/// The entries with a certificate.
pub fn certificate_entries() -> impl Iterator<Item = &'static SecretEntry> {
    SECRET_ENTRIES.iter().filter(|entry| [".crt", ".kubeconfig"].iter().any(|end| entry.file.ends_with(end)))
}

/// The files of the key set, of which `bytes` gives what is in an entry. What is not there, or no text, is left out.
pub fn collect_key_set<'b>(bytes: impl Fn(&SecretEntry) -> Option<&'b [u8]>) -> Files {
    let mut files = Files::new();
    for entry in SECRET_ENTRIES {
        if let Some(text) = bytes(&entry).and_then(|bytes| std::str::from_utf8(bytes).ok()) {
            files.insert(entry.file, text.to_owned());
        }
    }
    files
}
