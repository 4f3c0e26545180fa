//! Errors of keys and certificates. No variant carries key material.

use jiff::Timestamp;

/// Reason that a set of keys and certificates cannot be used or made. The `entry` is a file name of [`super::Files`].
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// Part of the retained keys is missing. It is never recreated silently: everything that trusts it would break.
    #[error("`{entry}` is missing from the retained keys")]
    Missing {
        /// The entry that is missing.
        entry: String,
    },
    /// The text is not what its name says.
    #[error("`{entry}` is not {expected}")]
    Unreadable {
        /// The entry that cannot be read.
        entry: String,
        /// Content that it should have, as a noun phrase.
        expected: &'static str,
    },
    /// A kubeconfig has a field that none of a control plane's has.
    #[error("`{entry}` has `{field}`, which a control plane's kubeconfig does not have: the file was changed")]
    ForeignField {
        /// The kubeconfig.
        entry: String,
        /// The path of the field, escaped and cut.
        field: String,
    },
    /// The server of a kubeconfig is not an https:// URL.
    #[error("`{entry}` has the server `{server}`, which is not an https:// URL")]
    NotHttps {
        /// The kubeconfig.
        entry: String,
        /// The server as it is written, escaped and cut.
        server: String,
    },
    /// A certificate that must not sign others is given as a CA certificate.
    #[error("`{entry}` is not a CA certificate")]
    NotAnAuthority {
        /// The certificate.
        entry: String,
    },
    /// A certificate is past its last day.
    #[error("`{entry}` expired at {not_after}")]
    Expired {
        /// The certificate.
        entry: String,
        /// Its last moment.
        not_after: Timestamp,
    },
    /// The key belongs to another certificate.
    #[error("`{key}` is not the private key of `{certificate}`")]
    KeyMismatch {
        /// The certificate or public key.
        certificate: String,
        /// The private key.
        key: String,
    },
    /// An address that no certificate can carry.
    #[error("`{text}` is neither an IP address nor a DNS name")]
    Address {
        /// The address that was given.
        text: String,
    },
    /// The moment given as now lies outside what certificates can express.
    #[error("the time {now} cannot be written into a certificate")]
    Time {
        /// The time that was given.
        now: Timestamp,
    },
    /// The system's random numbers cannot be had.
    #[error("the system gave no random numbers")]
    Random,
    /// The certificate library refused.
    #[error("cannot create `{entry}`")]
    Make {
        /// The entry that was to be made.
        entry: String,
        /// The library's reason.
        #[source]
        source: rcgen::Error,
    },
    /// A kubeconfig or an encryption configuration cannot be written.
    #[error("cannot write `{entry}` as YAML")]
    Write {
        /// The entry that was to be written.
        entry: String,
    },
}
