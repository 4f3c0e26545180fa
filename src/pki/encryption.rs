//! The configuration for encryption at rest: which resources of the control plane are encrypted, and with what.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{PkiError, SecretText};

/// The file name of the configuration.
pub(super) const ENCRYPTION_FILE: &str = "encryption.yaml";

/// Resources that are encrypted. Schedules carry copies of Secrets, so they are encrypted like Secrets. API servers
/// encrypt custom resources from 1.26 on.
const RESOURCES: [&str; 2] = ["secrets", "schedules.cluster.fleet-scheduler.io"];

/// A new configuration with a random key. `identity` comes last, so that what was written before
/// encryption was switched on can still be read.
pub(super) fn generate_encryption_config() -> Result<SecretText, PkiError> {
    let mut key = Zeroizing::new([0_u8; 32]);
    SystemRandom::new().fill(key.as_mut_slice()).map_err(|_| PkiError::Random)?;
    let secret = Zeroizing::new(STANDARD.encode(key.as_slice()));
    let mut text = String::from(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources:\n",
    );
    for resource in RESOURCES {
        text.push_str("  - ");
        text.push_str(resource);
        text.push('\n');
    }
    text.push_str("  providers:\n  - secretbox:\n      keys:\n      - name: key1\n        secret: \"");
    text.push_str(&secret);
    text.push_str("\"\n  - identity: {}\n");
    Ok(SecretText::new(text))
}

#[derive(Deserialize)]
struct Configuration {
    kind: String,
    resources: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
struct Provider {
    secretbox: Option<Secretbox>,
}

#[derive(Deserialize)]
struct Secretbox {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    #[serde(default)]
    name: String,
    secret: SecretText,
}

/// The keys of a configuration with their names; those that cannot be read are left out.
pub(super) fn list_encryption_keys(text: &str) -> Vec<(String, Zeroizing<Vec<u8>>)> {
    let Ok(configuration) = serde_saphyr::from_str::<Configuration>(text) else { return Vec::new() };
    let providers = configuration.resources.into_iter().flat_map(|group| group.providers);
    let keys = providers.filter_map(|provider| provider.secretbox).flat_map(|secretbox| secretbox.keys);
    keys.filter_map(|key| Some((key.name, Zeroizing::new(STANDARD.decode(key.secret.expose()).ok()?)))).collect()
}

/// Checks that a kept configuration has at least one usable key. The text is never part of the error.
pub(super) fn check_encryption_config(text: &str) -> Result<(), PkiError> {
    match serde_saphyr::from_str::<Configuration>(text) {
        Ok(found) if found.kind == "EncryptionConfiguration" && has_usable_key(&found) => Ok(()),
        _ => Err(PkiError::from_unreadable_text(ENCRYPTION_FILE, text, "an EncryptionConfiguration with a key")),
    }
}

fn has_usable_key(configuration: &Configuration) -> bool {
    let providers = configuration.resources.iter().flat_map(|group| &group.providers);
    let mut keys = providers.filter_map(|provider| provider.secretbox.as_ref()).flat_map(|secretbox| &secretbox.keys);
    keys.any(|key| STANDARD.decode(key.secret.expose()).is_ok_and(|bytes| Zeroizing::new(bytes).len() == 32))
}
