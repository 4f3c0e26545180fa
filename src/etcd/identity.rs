//! The certificate by which this program is a client of etcd.

use std::time::Duration;

use jiff::Timestamp;

use crate::pki::{Authorities, AuthorityKind, LeafSpec, Lifetimes, PkiError, SecretText, Usage, issue_leaf};

/// Validity of a certificate that is made for one run.
pub const VALID_FOR: Duration = Duration::from_secs(60 * 60);

/// A client certificate with its key, and the CA that servers are verified with. It is only ever in memory.
#[derive(Debug, Clone)]
pub struct ClientIdentity {
    pub(super) authority: String,
    pub(super) certificate: String,
    pub(super) key: SecretText,
}

impl ClientIdentity {
    /// Takes what is in PEM form.
    pub const fn new(authority: String, certificate: String, key: SecretText) -> Self {
        Self { authority, certificate, key }
    }

    /// The same certificate, for servers of another CA, in PEM form.
    #[must_use]
    pub fn trusting(&self, authority: &str) -> Self {
        Self { authority: authority.to_owned(), ..self.clone() }
    }

    /// Issues a certificate for one run: common name `fleetctl:RUN`, valid for [`VALID_FOR`], no SANs. etcd trusts whoever
    /// its CA certifies, and grants all of them everything.
    ///
    /// # Errors
    /// A key or certificate that cannot be made.
    pub fn issue_for_run(authorities: &Authorities, run: &str, now: Timestamp) -> Result<Self, PkiError> {
        let spec = LeafSpec {
            entry: "fleetctl-etcd-client.crt".to_owned(),
            authority: AuthorityKind::Etcd,
            usage: Usage::Client,
            common_name: format!("fleetctl:{run}"),
            organization: None,
            names_key: false,
            sans: Vec::new(),
        };
        let lifetimes = Lifetimes { leaf: VALID_FOR, ..Lifetimes::default() };
        let (certificate, key) = issue_leaf(authorities, &spec, now, &lifetimes)?;
        Ok(Self::new(authorities.authority_certificate(AuthorityKind::Etcd).to_owned(), certificate, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::CertificateFacts;

    #[test]
    fn a_certificate_of_a_run_is_a_short_lived_client_without_addresses() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let authorities = Authorities::generate_authorities(now, &Lifetimes::default()).unwrap();
        let identity = ClientIdentity::issue_for_run(&authorities, "r1", now).unwrap();
        let facts = CertificateFacts::from_pem("client", &identity.certificate).unwrap();
        assert_eq!(facts.common_name, "fleetctl:r1");
        assert_eq!(facts.not_after, now + VALID_FOR);
        assert!(facts.client && !facts.server && facts.sans.is_empty() && !facts.authority);
        assert_eq!(identity.authority, authorities.authority_certificate(AuthorityKind::Etcd));
        assert!(!format!("{identity:?}").contains("PRIVATE KEY"));
    }
}
