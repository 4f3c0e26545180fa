//! Errors of keys and certificates. No variant carries key material.

use jiff::Timestamp;

/// Reason that a set of keys and certificates cannot be used or made. The `entry` is a file name of [`super::Files`].
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// Part of the retained keys is missing. It is never recreated silently: everything that trusts it would break.
    #[error("`{entry}` is missing from the keys of the control plane")]
    Missing {
        /// The entry that is missing.
        entry: String,
    },
    /// There is nothing in it, or zero bytes only.
    #[error("`{entry}` is empty; a full disk or a power failure may have emptied it")]
    Empty {
        /// The entry that is empty.
        entry: String,
    },
    /// It ends before its end.
    #[error("`{entry}` is truncated; a full disk or a power failure may have truncated it")]
    Cut {
        /// The entry that is cut.
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
    #[error("`{entry}` has the field `{field}`, which no kubeconfig of a control plane has: the file was changed")]
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
    #[error("the system returned no random numbers")]
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

impl PkiError {
    /// The error of a text that is not `expected`, with the reason that can be seen in it: nothing of it is left, or its end is
    /// missing.
    pub(super) fn from_unreadable_text(entry: &str, text: &str, expected: &'static str) -> Self {
        let entry = entry.to_owned();
        // After a power failure, some file systems have zero bytes in the place of what was written.
        if text.chars().all(|c| c == '\0' || c.is_whitespace()) {
            return Self::Empty { entry };
        }
        let is_open = text.matches("-----BEGIN ").count() > text.matches("-----END ").count();
        let is_yaml_without_end = text.starts_with("apiVersion:") && !text.ends_with('\n');
        if is_open || is_yaml_without_end || text.ends_with('\0') {
            Self::Cut { entry }
        } else {
            Self::Unreadable { entry, expected }
        }
    }

    /// Returns whether the text of an entry is damaged, so that it proves nothing about its owner.
    pub const fn is_of_damaged_text(&self) -> bool {
        matches!(self, Self::Empty { .. } | Self::Cut { .. } | Self::Unreadable { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain_unreadable_ca(text: &str) -> String {
        PkiError::from_unreadable_text("ca.crt", text, "a certificate").to_string()
    }

    #[test]
    fn a_text_that_is_empty_or_cut_is_named_so() {
        for empty in ["", "\n", "\0\0\0\0", " \r\n"] {
            assert!(explain_unreadable_ca(empty).starts_with("`ca.crt` is empty"), "{empty:?}");
        }
        for cut in ["-----BEGIN CERTIFICATE-----\nMIIB", "apiVersion: v1\nclusters: [", "-----BEGIN X-----\nAA\0\0"] {
            assert!(explain_unreadable_ca(cut).starts_with("`ca.crt` is truncated"), "{cut:?}");
        }
        for other in ["nonsense\n", "-----BEGIN X-----\nAA\n-----END X-----\n", "apiVersion: v1\n"] {
            assert_eq!(explain_unreadable_ca(other), "`ca.crt` is not a certificate", "{other:?}");
        }
    }
}
