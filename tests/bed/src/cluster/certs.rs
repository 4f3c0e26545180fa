//! A cluster's certificates: one authority, and leaves that each serve one use.

use std::path::Path;

use anyhow::{Context, Result};
use fs_err as fs;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize,
};
use time::{Duration, OffsetDateTime};

/// A certificate and its key, both PEM.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    /// The certificate.
    pub cert: String,
    /// The key, PKCS#8.
    pub key: String,
}

/// What a leaf is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Presented by a server.
    Server,
    /// Presented by a client.
    Client,
}

/// The name of the authority of a cluster.
pub(crate) const CLUSTER: &str = "kubernetes";

/// An authority of one cluster.
#[derive(Debug)]
pub(crate) struct Authority {
    /// Its certificate, PEM.
    pub cert: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads `ca.crt` and `ca.key` of a folder, or makes them for an authority of this name.
    ///
    /// kube-apiserver verifies the client's certificate at every request, with less CPU by an RSA key than by one of P-256. Where
    /// two authorities have one name, it tries the keys of both.
    pub(crate) fn in_folder(dir: &Path, common_name: &str) -> Result<Self> {
        let (cert_file, key_file) = (dir.join("ca.crt"), dir.join("ca.key"));
        if !cert_file.exists() {
            let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
            let mut params = params(common_name, &[])?;
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
            fs::create_dir_all(dir)?;
            fs::write(&key_file, key.serialize_pem())?;
            fs::write(&cert_file, params.self_signed(&key)?.pem())?;
        }
        let cert = fs::read_to_string(&cert_file)?;
        let key = KeyPair::from_pem(&fs::read_to_string(&key_file)?)?;
        let issuer = Issuer::from_ca_cert_pem(&cert, key).with_context(|| format!("in {}", cert_file.display()))?;
        Ok(Self { cert, issuer })
    }

    /// Issues a leaf. `names` are DNS names and IP addresses.
    pub(crate) fn issue(&self, common_name: &str, groups: &[&str], names: &[String], usage: Use) -> Result<Pair> {
        let key = KeyPair::generate()?;
        let mut params = params(common_name, names)?;
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match usage {
            Use::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Use::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        Ok(Pair { cert: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

impl Pair {
    /// Writes `NAME.crt` and `NAME.key`.
    pub(crate) fn write(&self, dir: &Path, name: &str) -> Result<()> {
        fs::write(dir.join(format!("{name}.crt")), &self.cert)?;
        fs::write(dir.join(format!("{name}.key")), &self.key)?;
        Ok(())
    }
}

/// The key pair that signs service-account tokens: `sa.key` and `sa.pub`.
pub(crate) fn write_service_account_keys(dir: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    fs::write(dir.join("sa.key"), key.serialize_pem())?;
    fs::write(dir.join("sa.pub"), key.public_key_pem())?;
    Ok(())
}

fn params(common_name: &str, names: &[String]) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    // An hour back, for clocks that were set after the machine started.
    params.not_before = OffsetDateTime::now_utc() - Duration::hours(1);
    params.not_after = params.not_before + Duration::days(3650);
    Ok(params)
}
