//! Validity of the certificates of a control plane, and the time before their expiry at which they are renewed.

use std::time::Duration;

const DAY: u64 = 24 * 60 * 60;

/// Number of days before its expiry from which an install reissues a leaf.
pub const RENEW_DAYS: u64 = 60;

/// Validity of certificates, and the time before its end at which a leaf is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Validity of a CA.
    pub authority: Duration,
    /// Validity of a leaf; it never ends after that of its CA.
    pub leaf: Duration,
    /// A leaf with less than this left is issued again.
    pub renew_before: Duration,
    /// A CA with less than this left is signed again with its own key; zero if it is used until it expires.
    pub renew_authority_before: Duration,
}

impl Default for Lifetimes {
    /// Ten years, one year, [`RENEW_DAYS`], one year.
    fn default() -> Self {
        Self {
            authority: Duration::from_secs(3650 * DAY),
            leaf: Duration::from_secs(365 * DAY),
            renew_before: Duration::from_secs(RENEW_DAYS * DAY),
            renew_authority_before: Duration::from_secs(365 * DAY),
        }
    }
}
