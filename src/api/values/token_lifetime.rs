//! The lifetimes of tokens: of the init token that all clusters of a control plane share, and of that of a single
//! cluster.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The shortest life of an init token.
pub const TOKEN_AT_LEAST: Duration = Duration::from_secs(1);

/// Default life of the token of a single cluster, as a duration is given.
pub const DEFAULT_CLUSTER_TOKEN: &str = "24h";

/// Shortest and longest life of the token of a single cluster.
pub const CLUSTER_TOKEN_BOUNDS: RangeInclusive<Duration> = Duration::from_secs(600)..=Duration::from_secs(30 * 86_400);

/// Returns the life of an init token by default: 30 days.
pub const fn default_init_token_lifetime() -> Duration {
    Duration::from_secs(30 * 86_400)
}
