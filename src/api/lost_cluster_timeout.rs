//! Time without a renewal of its agent's Lease after which a cluster counts as lost: the sum of both durations.

use std::time::Duration;

/// Time between two renewals of an agent's Lease.
pub const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Duration of an agent's Lease. Another agent may take a Lease that was not renewed for this long.
pub const LEASE_DURATION: Duration = Duration::from_secs(40);
