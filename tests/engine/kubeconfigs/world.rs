//! Certificates of every kind that API servers show, servers that show them, and whom a client may be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::PoisonError;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SignatureAlgorithm};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

use super::front::{self, Log, Seen, Upstream};
use crate::support;

/// A server that shows a certificate, with what may be trusted of it.
pub(super) struct Front {
    pub(super) port: u16,
    /// The certificate that it shows.
    pub(super) leaf: String,
    /// The one that has signed it.
    pub(super) ca: String,
}

/// Everything that the cases are made of.
pub(super) struct World {
    folder: TempDir,
    kubectl: PathBuf,
    log: Log,
    fronts: BTreeMap<&'static str, Front>,
    pub(super) plain: u16,
    pub(super) http_proxy: u16,
    pub(super) socks_proxy: u16,
    /// The address of the API server itself, and its CA.
    pub(super) server: String,
    pub(super) server_ca: String,
    /// An administrator of it by certificate.
    pub(super) certificate: String,
    pub(super) key: String,
    /// And one by token.
    pub(super) token: String,
}

/// What one program did with a file.
#[derive(Debug)]
pub(super) struct Ran {
    /// Whether it reached a server and showed it who it is.
    pub(super) connected: bool,
    pub(super) said: String,
    /// What a server saw of it; nothing where none of the test's own was reached.
    pub(super) seen: Option<Seen>,
}

impl World {
    pub(super) fn new() -> Self {
        let log = Log::default();
        let folder = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(support::kubeconfig()).unwrap();
        let config: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let data =
            |field: &serde_json::Value| String::from_utf8(STANDARD.decode(field.as_str().unwrap()).unwrap()).unwrap();
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let (server, server_ca) =
            (cluster["server"].as_str().unwrap().to_owned(), data(&cluster["certificate-authority-data"]));
        let upstream = Upstream {
            address: server.trim_start_matches("https://").to_owned(),
            ca: CertificateDer::from_pem_slice(server_ca.as_bytes()).unwrap(),
        };
        let bed = bed::Bed::here().unwrap();
        let kubectl = |args: &[&str]| bed.kubectl(&support::cluster(), args);
        let account = support::unique("reach", "reader");
        kubectl(&["create", "serviceaccount", &account, "-n", "default"]).unwrap();
        let subject = format!("--serviceaccount=default:{account}");
        kubectl(&["create", "clusterrolebinding", &account, "--clusterrole=cluster-admin", &subject]).unwrap();
        let token = kubectl(&["create", "token", &account, "-n", "default"]).unwrap().trim().to_owned();
        let fronts = fronts(&upstream, &log);
        let (certificate, key) = (data(&user["client-certificate-data"]), data(&user["client-key-data"]));
        let plain = front::serve_plain(upstream, log.clone());
        let (http_proxy, socks_proxy) = (front::http_proxy(log.clone()), front::socks_proxy(log.clone()));
        let kubectl = bed.kubectl_of(&support::cluster()).unwrap();
        Self {
            folder,
            kubectl,
            log,
            fronts,
            plain,
            http_proxy,
            socks_proxy,
            server,
            server_ca,
            certificate,
            key,
            token,
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn front(&self, name: &str) -> &Front {
        self.fronts.get(name).unwrap_or_else(|| panic!("there is no server {name}"))
    }

    /// Runs both programs with a file in `folder`, first kubectl.
    pub(super) fn run(&self, folder: &Path, kubeconfig: &str, env: &[(String, String)]) -> (Ran, Ran) {
        // Of an address without a scheme, kubectl waits for ever for an answer.
        let limited = |program: &Path| {
            let mut command = Command::new("timeout");
            command.arg("20").arg(program);
            command
        };
        let mut kubectl = limited(&self.kubectl);
        kubectl.args(["get", "--raw", "/apis/apps/v1/namespaces/fleet/deployments"]);
        let mut fleetctl = limited(Path::new(env!("CARGO_BIN_EXE_fleetctl")));
        fleetctl.args(["version", "-o", "json"]);
        let [theirs, mut own] = [kubectl, fleetctl].map(|mut command| {
            *self.log.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let path = std::env::var("PATH").unwrap();
            command.env_clear().env("PATH", format!("{}:{path}", folder.join("bin").display())).env("HOME", folder);
            command.env("KUBECONFIG", kubeconfig).envs(env.iter().cloned()).current_dir(folder).stdin(Stdio::null());
            let output = command.output().unwrap();
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
            let seen = self.log.lock().unwrap_or_else(PoisonError::into_inner).take();
            Ran { connected: output.status.success() || seen.is_some(), said, seen }
        });
        own.connected = own.seen.is_some() || !own.said.contains("notAsked");
        if let Some((_, reason)) = own.said.split_once("\"notAsked\"") {
            own.said = reason.to_owned();
        }
        (theirs, own)
    }
}

/// Text in base64.
pub(super) fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

fn fronts(upstream: &Upstream, log: &Log) -> BTreeMap<&'static str, Front> {
    let here: &[&str] = &["127.0.0.1", "localhost"];
    let serve = |chain: &[&str], key: &KeyPair| {
        let chain = chain.iter().map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).collect();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        front::serve(chain, key, upstream.clone(), log.clone())
    };
    // A CA and a leaf of it, both with keys of one kind, both as the caller changes them.
    let signed = |kind: &'static SignatureAlgorithm, names: &[&str], of: &dyn Fn(&mut CertificateParams, bool)| {
        let mut ca = params("ca", &[]);
        authority(&mut ca);
        of(&mut ca, true);
        let ca_key = KeyPair::generate_for(kind).unwrap();
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let key = KeyPair::generate_for(kind).unwrap();
        let mut leaf = params("apiserver", names);
        of(&mut leaf, false);
        let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().pem();
        Front { port: serve(&[&leaf], &key), leaf, ca: ca_pem }
    };
    let same = |_: &mut CertificateParams, _: bool| {};
    let past = || rcgen::date_time_ymd(2020, 1, 1);
    let mut fronts = BTreeMap::from([
        ("plain", signed(&rcgen::PKCS_ECDSA_P256_SHA256, here, &same)),
        ("rsa", signed(&rcgen::PKCS_RSA_SHA256, here, &same)),
        ("p384", signed(&rcgen::PKCS_ECDSA_P384_SHA384, here, &same)),
        ("p521", signed(&rcgen::PKCS_ECDSA_P521_SHA512, here, &same)),
        ("ed25519", signed(&rcgen::PKCS_ED25519, here, &same)),
        ("named", signed(&rcgen::PKCS_ECDSA_P256_SHA256, &["api.example.com"], &same)),
        ("other-address", signed(&rcgen::PKCS_ECDSA_P256_SHA256, &["192.0.2.1"], &same)),
        (
            "expired",
            signed(&rcgen::PKCS_ECDSA_P256_SHA256, here, &|params, is_ca| {
                params.not_after = if is_ca { params.not_after } else { past() };
            }),
        ),
        (
            "expired-ca",
            signed(&rcgen::PKCS_ECDSA_P256_SHA256, here, &|params, is_ca| {
                params.not_after = if is_ca { past() } else { params.not_after };
            }),
        ),
        (
            "client-only",
            signed(&rcgen::PKCS_ECDSA_P256_SHA256, here, &|params, is_ca| {
                if !is_ca {
                    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
                }
            }),
        ),
        // As `openssl req -x509 -CA` makes them: a leaf that says of itself that it is a CA.
        ("ca-leaf", signed(&rcgen::PKCS_ECDSA_P256_SHA256, here, &|params, _| authority(params))),
        (
            "ca-leaf-expired",
            signed(&rcgen::PKCS_ECDSA_P256_SHA256, here, &|params, is_ca| {
                authority(params);
                params.not_after = if is_ca { params.not_after } else { past() };
            }),
        ),
    ]);
    // A certificate that has signed itself, as `openssl req -x509` makes it.
    let key = KeyPair::generate().unwrap();
    let mut own = params("lb", here);
    authority(&mut own);
    let own = own.self_signed(&key).unwrap().pem();
    fronts.insert("self-signed", Front { port: serve(&[&own], &key), leaf: own.clone(), ca: own });
    // The same without being a CA, and expired.
    for (name, until) in [("self-signed-leaf", None), ("self-signed-expired", Some(past()))] {
        let key = KeyPair::generate().unwrap();
        let mut own = params("lb", here);
        own.not_after = until.unwrap_or(own.not_after);
        let own = own.self_signed(&key).unwrap().pem();
        fronts.insert(name, Front { port: serve(&[&own], &key), leaf: own.clone(), ca: own });
    }
    // A CA below another: with its certificate in what the server shows, and without.
    let (root_key, middle_key, key) =
        (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let (mut root, mut middle) = (params("root", &[]), params("middle", &[]));
    authority(&mut root);
    authority(&mut middle);
    let root_pem = root.self_signed(&root_key).unwrap().pem();
    let middle_pem = middle.signed_by(&middle_key, &Issuer::new(root, root_key)).unwrap().pem();
    let issuer = Issuer::new(middle, middle_key);
    let leaf = params("apiserver", here).signed_by(&key, &issuer).unwrap().pem();
    let port = serve(&[&leaf, &middle_pem], &key);
    fronts.insert("chain", Front { port, leaf: leaf.clone(), ca: root_pem });
    let port = serve(&[&leaf], &key);
    fronts.insert("below", Front { port, leaf, ca: middle_pem.clone() });
    // A leaf that says it is a CA, below a CA below another.
    let mut leaf = params("apiserver", here);
    authority(&mut leaf);
    let leaf = leaf.signed_by(&key, &issuer).unwrap().pem();
    let port = serve(&[&leaf, &middle_pem], &key);
    let ca = fronts["chain"].ca.clone();
    fronts.insert("ca-leaf-chain", Front { port, leaf, ca });
    fronts
}
