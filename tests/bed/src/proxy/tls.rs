//! The keys of the cutting proxy, all of the cluster's own authority.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, version};

use crate::cluster::Cluster;
use crate::cluster::certs::{Authority, CLUSTER, Pair, Use};

/// What the proxy shows to its clients and to the server.
pub(super) struct Identity {
    /// The authority's certificate.
    pub(super) ca: String,
    /// An administrator.
    pub(super) client: Pair,
    server: Pair,
    roots: RootCertStore,
}

impl Identity {
    pub(super) fn of(cluster: &Cluster, kubeconfig: &Path) -> Result<Self> {
        let folder = kubeconfig.parent().context("a kubeconfig is in a folder")?.join("pki");
        let authority = Authority::in_folder(&folder, CLUSTER)?;
        let names = ["127.0.0.1", "localhost", &cluster.ip()].map(str::to_owned);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.cert.as_bytes())?)?;
        Ok(Self {
            client: authority.issue("bed-proxy", &["system:masters"], &[], Use::Client)?,
            server: authority.issue("bed-proxy", &[], &names, Use::Server)?,
            ca: authority.cert,
            roots,
        })
    }

    pub(super) fn server(&self) -> Result<Arc<ServerConfig>> {
        server_of(&self.server)
    }

    pub(super) fn admin(&self) -> Result<ClientConfig> {
        let (chain, key) = read(&self.client)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
            .with_root_certificates(self.roots.clone());
        Ok(builder.with_client_auth_cert(chain, key)?)
    }

    pub(super) fn anonymous(&self) -> Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
            .with_root_certificates(self.roots.clone());
        Ok(builder.with_no_client_auth())
    }
}

/// A server of the same names whose authority nobody knows.
pub(super) fn stranger() -> Result<Arc<ServerConfig>> {
    let folder = tempfile::tempdir()?;
    let authority = Authority::in_folder(folder.path(), CLUSTER)?;
    server_of(&authority.issue("bed-proxy", &[], &["127.0.0.1", "localhost"].map(str::to_owned), Use::Server)?)
}

fn server_of(pair: &Pair) -> Result<Arc<ServerConfig>> {
    let (chain, key) = read(pair)?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}

fn read(pair: &Pair) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    Ok((
        vec![CertificateDer::from_pem_slice(pair.cert.as_bytes())?],
        PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?,
    ))
}
