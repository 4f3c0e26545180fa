//! Fingerprints of what a control plane trusts and encrypts with: to see later whether it is still the same.

use std::collections::BTreeMap;

use x509_parser::pem::parse_x509_pem;

use super::encryption::{ENCRYPTION_FILE, list_encryption_keys};
use super::{AuthorityKind, Files};
use crate::api::util::digest::full_digest;

/// SHA-256 of each CA certificate in DER form, and of each key for encryption at rest, by its file. What is missing or cannot
/// be read is left out.
pub fn fingerprint_keys(files: &Files) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for kind in AuthorityKind::ALL {
        let file = kind.certificate_file();
        if let Some(Ok((_, pem))) = files.get(file).map(|text| parse_x509_pem(text.as_bytes())) {
            found.insert(file.to_owned(), full_digest(&pem.contents));
        }
    }
    for (name, key) in files.get(ENCRYPTION_FILE).map(list_encryption_keys).unwrap_or_default() {
        found.insert(format!("{ENCRYPTION_FILE}/{name}"), full_digest(&key));
    }
    found
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::pki::{Authorities, Lifetimes};

    #[test]
    fn each_ca_and_each_encryption_key_has_a_fingerprint_of_its_own() {
        let [one, other] = [Timestamp::now(); 2].map(|now| {
            let made = Authorities::generate_authorities(now, &Lifetimes::default()).unwrap();
            fingerprint_keys(&made.to_map())
        });
        let files: Vec<&str> = one.keys().map(String::as_str).collect();
        assert_eq!(files, ["ca.crt", "encryption.yaml/key1", "etcd-ca.crt", "front-proxy-ca.crt"]);
        assert!(one.iter().all(|(file, digest)| digest.len() == 64 && other[file] != *digest));
        assert!(fingerprint_keys(&Files::new()).is_empty());
    }
}
