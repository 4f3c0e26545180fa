//! Everything the scheduler reads from files: read together, compared by digest, never assumed to be there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;

use super::manifests;
use super::manifests::Manifests;
use crate::api::util::digest;
use crate::k8s::connect::daemon_client;
use crate::pki::secrets::SERVER_FILE;
use crate::scheduler::settings::{Args, Settings};

const NO_CA: &str = "the kubeconfig contains no CA certificate";

/// The files as they are now; a part that cannot be read says why.
#[derive(Debug)]
pub struct Inputs {
    /// The configuration.
    pub settings: Result<Settings, String>,
    /// The objects to apply.
    pub objects: Result<Manifests, String>,
    /// The CA that agents trust, as PEM.
    pub ca: Result<Vec<u8>, String>,
    /// Digest of all of it.
    pub digest: String,
}

impl Inputs {
    /// Reads the files.
    pub fn read_input_files(args: &Args) -> Self {
        let beside = args.kubeconfig.with_file_name(SERVER_FILE);
        let settings =
            Settings::read_settings_file(&args.config).and_then(|settings| settings.with_endpoint_file(&beside));
        let settings = settings.map_err(|e| e.to_string());
        let objects = manifests::read_bootstrap_manifests(&args.bootstrap_dir).map_err(|e| e.to_string());
        let ca = read_ca_bundle(args, settings.as_ref().ok());
        let objects_digest = objects.as_ref().map(|o| o.digest.clone());
        let digest = digest::short_digest(format!("{settings:?}\0{objects_digest:?}\0{ca:?}").as_bytes());
        Self { settings, objects, ca, digest }
    }
}

/// Digest of the kubeconfig file: with another one, the process has to start again to have another client.
pub fn kubeconfig_digest(args: &Args) -> Option<String> {
    std::fs::read(&args.kubeconfig).ok().map(|bytes| digest::short_digest(&bytes))
}

fn read_ca_bundle(args: &Args, settings: Option<&Settings>) -> Result<Vec<u8>, String> {
    let pem = match settings.and_then(|s| s.ca_file.as_ref()) {
        Some(file) => fs_err::read(file).map_err(|e| e.to_string())?,
        None => ca_of(&daemon_client::read_kubeconfig(&args.kubeconfig).map_err(|e| e.to_string())?)?,
    };
    let is_certificate = String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----");
    if is_certificate { Ok(pem) } else { Err("the CA is not a PEM certificate".to_owned()) }
}

/// The CA of the kubeconfig's current cluster.
fn ca_of(kubeconfig: &Kubeconfig) -> Result<Vec<u8>, String> {
    let current = kubeconfig.current_context.as_deref().unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|c| c.name == current).and_then(|c| c.context.as_ref());
    let name = &context.ok_or(NO_CA)?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|c| &c.name == name).and_then(|c| c.cluster.as_ref());
    let cluster = cluster.ok_or(NO_CA)?;
    match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => STANDARD.decode(data).map_err(|_| "the kubeconfig's CA is not base64".to_owned()),
        (None, Some(file)) => fs_err::read(file).map_err(|e| e.to_string()),
        (None, None) => Err(NO_CA.to_owned()),
    }
}
