//! Flags that lead to etcd.

use std::path::PathBuf;

use clap::Args;

use crate::etcd::{ClientIdentity, EtcdClient};
use crate::pki::SecretText;

/// Where etcd is, and as whom it is asked.
#[derive(Debug, Clone, Args)]
pub struct EtcdArgs {
    /// URL of etcd, such as `https://etcd-client.fleet.svc:2379`
    #[arg(long, value_name = "URL")]
    pub etcd: http::Uri,

    /// CA certificates to verify etcd with, in PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_ca_file: PathBuf,

    /// Client certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_cert_file: PathBuf,

    /// Key of the client certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_key_file: PathBuf,
}

impl EtcdArgs {
    /// Makes a client with the certificate as its file is now.
    ///
    /// # Errors
    /// A file that cannot be read; a certificate or a URL that TLS cannot use.
    pub fn build_etcd_client(&self) -> anyhow::Result<EtcdClient> {
        let read = fs_err::read_to_string::<&PathBuf>;
        let (authority, certificate) = (read(&self.etcd_ca_file)?, read(&self.etcd_cert_file)?);
        let identity = ClientIdentity::new(authority, certificate, SecretText::new(read(&self.etcd_key_file)?));
        Ok(EtcdClient::of_url(self.etcd.clone(), &identity)?)
    }
}
