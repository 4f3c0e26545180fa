//! The lifetime of an agent's certificate: its default, and the shortest one.

use std::time::Duration;

use crate::api::registration::validity;

/// Lifetime that an agent requests by default, in seconds: 90 days.
pub const DEFAULT_CERTIFICATE_SECONDS: i32 = 90 * 86_400;

/// The shortest life of a certificate.
pub const CERTIFICATE_AT_LEAST: Duration = Duration::from_secs(validity::MIN_SECONDS.unsigned_abs() as u64);

/// Returns the longest life that a control plane allows by default.
pub const fn default_certificate_lifetime() -> Duration {
    Duration::from_secs(DEFAULT_CERTIFICATE_SECONDS.unsigned_abs() as u64)
}
