//! Kubeconfig files: one cluster, one user, one context, all named after the cluster.

use std::path::Path;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt;

use crate::cluster::certs::Pair;

/// Writes a kubeconfig that only its owner may read.
pub(crate) fn write(file: &Path, name: &str, server: &str, ca: &str, client: &Pair) -> Result<()> {
    use std::io::Write;
    let [ca, cert, key] = [ca, &client.cert, &client.key].map(|pem| STANDARD.encode(pem));
    let text = format!(
        "apiVersion: v1
kind: Config
current-context: {name}
clusters:
- name: {name}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}
users:
- name: {name}
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
"
    );
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    options.open(file)?.write_all(text.as_bytes())?;
    Ok(())
}
