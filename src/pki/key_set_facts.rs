//! Facts of the certificates of a key set.

use super::{CertificateFacts, Files, Kubeconfig, PkiError};

/// The facts of every certificate in a set, those inside kubeconfigs included, sorted by file name.
///
/// Files that are neither are left out; what cannot be read is in the list with its error.
pub fn facts_of(files: &Files) -> Vec<(String, Result<CertificateFacts, PkiError>)> {
    let mut all = Vec::new();
    for (name, text) in files.expose_all() {
        if has_extension(name, "crt") {
            all.push((name.to_owned(), CertificateFacts::from_pem(name, text)));
        } else if has_extension(name, "kubeconfig") {
            // A kubeconfig with a token holds no certificate to speak of.
            let facts = match Kubeconfig::parse(name, text) {
                Ok(kubeconfig) => match kubeconfig.client_certificate() {
                    Some((certificate, _)) => CertificateFacts::from_pem(name, certificate),
                    None => continue,
                },
                Err(error) => Err(error),
            };
            all.push((name.to_owned(), facts));
        }
    }
    all
}

fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, found)| found == extension)
}
