//! What can be wrong with keys and certificates. No variant carries key material.

use jiff::Timestamp;

/// Why a set of keys and certificates cannot be used or made. The `entry` is a file name of [`super::Files`].
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// Part of a kept set is gone. It is never made anew silently: everything that trusts it would break.
    #[error("`{entry}` is missing from the kept set of keys")]
    Missing {
        /// What is missing.
        entry: String,
    },
    /// The text is not what its name says.
    #[error("`{entry}` is not {expected}")]
    Unreadable {
        /// What cannot be read.
        entry: String,
        /// What it should be, as a noun phrase.
        expected: &'static str,
    },
    /// A kubeconfig has a field that none of a control plane's has.
    #[error("`{entry}` has `{field}`, which no kubeconfig of a control plane has: somebody has changed it")]
    ForeignField {
        /// The kubeconfig.
        entry: String,
        /// The path of the field, escaped and cut.
        field: String,
    },
    /// A kubeconfig leads to a server without TLS, or to none.
    #[error("`{entry}` leads to `{server}`, which is no server over https://")]
    NotHttps {
        /// The kubeconfig.
        entry: String,
        /// The server as it is written, escaped and cut.
        server: String,
    },
    /// A certificate that may not sign others stands where an authority is needed.
    #[error("`{entry}` is not the certificate of an authority (CA)")]
    NotAnAuthority {
        /// The certificate.
        entry: String,
    },
    /// Past its last day.
    #[error("`{entry}` expired at {not_after}")]
    Expired {
        /// The certificate.
        entry: String,
        /// Its last moment.
        not_after: Timestamp,
    },
    /// The key belongs to another certificate.
    #[error("`{key}` is not the key of `{certificate}`")]
    KeyMismatch {
        /// The certificate or public key.
        certificate: String,
        /// The private key.
        key: String,
    },
    /// An address that no certificate can carry.
    #[error("`{text}` is neither an IP address nor a DNS name")]
    Address {
        /// What was given.
        text: String,
    },
    /// The moment given as now lies outside what certificates can express.
    #[error("the time {now} cannot be written into a certificate")]
    Time {
        /// What was given.
        now: Timestamp,
    },
    /// The system's random numbers cannot be had.
    #[error("no random numbers from the system")]
    Random,
    /// The certificate library refused.
    #[error("cannot make `{entry}`")]
    Make {
        /// What was to be made.
        entry: String,
        /// The library's reason.
        #[source]
        source: rcgen::Error,
    },
    /// A kubeconfig or an encryption configuration cannot be written.
    #[error("cannot write `{entry}` as YAML")]
    Write {
        /// What was to be written.
        entry: String,
    },
}
