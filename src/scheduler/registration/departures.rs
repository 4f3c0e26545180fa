//! Agents that deregistered: a request that one of them had made before, and that comes in after, brings no cluster back.

use std::collections::BTreeMap;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::csr::Request;

/// Time for which a departure is remembered. The controller manager deletes answered requests after an hour.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(2);
/// Number of departures that are remembered; the oldest are forgotten first.
const MOST: usize = 10_000;

/// Times of the requests by which agents deregistered, by cluster name and fingerprint of the key.
#[derive(Debug, Default)]
pub(super) struct Departures(BTreeMap<(String, String), Timestamp>);

impl Departures {
    /// Remembers the request `csr`, which deregisters.
    pub(super) fn record_departure(&mut self, csr: &CertificateSigningRequest, request: &Request) {
        let Some(made) = csr.creation_timestamp() else { return };
        let latest = self.0.values().max().copied().unwrap_or(made.0).max(made.0);
        self.0.retain(|_, at| latest.duration_since(*at) <= REMEMBERED);
        if self.0.len() >= MOST
            && let Some(oldest) = self.0.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
        let at = self.0.entry(departure_key(request)).or_insert(made.0);
        *at = made.0.max(*at);
    }

    /// Returns whether the agent of the request `csr` deregistered after it had made this one, or within the same second.
    pub(super) fn is_after(&self, csr: &CertificateSigningRequest, request: &Request) -> bool {
        let (left, made) = (self.0.get(&departure_key(request)), csr.creation_timestamp());
        left.zip(made).is_some_and(|(left, made)| made.0 <= *left)
    }
}

fn departure_key(request: &Request) -> (String, String) {
    (request.cluster.to_string(), request.fingerprint.clone())
}
