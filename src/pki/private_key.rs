//! Private keys: how they are generated, with which algorithm, and how they are read and written.

use rcgen::KeyPair;
use zeroize::Zeroize;

use super::{PkiError, SecretText};

/// A private key that is wiped when dropped.
pub(super) struct PrivateKey(pub(super) KeyPair);

impl PrivateKey {
    /// Generates a key of the library's default algorithm, ECDSA on P-256.
    pub(super) fn generate_key(entry: &str) -> Result<Self, PkiError> {
        KeyPair::generate().map(Self).map_err(|source| PkiError::Make { entry: entry.to_owned(), source })
    }

    pub(super) fn parse(entry: &str, pem: &str) -> Result<Self, PkiError> {
        KeyPair::from_pem(pem)
            .map(Self)
            .map_err(|_| PkiError::from_unreadable_text(entry, pem, "a private key in PKCS#8 PEM form"))
    }

    pub(super) fn to_text(&self) -> SecretText {
        SecretText::new(self.0.serialize_pem())
    }
}

impl Drop for PrivateKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
