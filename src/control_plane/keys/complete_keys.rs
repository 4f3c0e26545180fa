//! Completion of a key set for the address of a control plane.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use crate::control_plane::endpoint::exposure::Endpoint;
use crate::control_plane::plan::Plan;
use crate::pki::{self, Completed, Files, KeptError, Lifetimes, PkiError, San, Subject};

/// Completes a key set for `endpoint`: what is good stays, what is missing or outlived is issued.
pub fn complete_key_set(
    found: &Files,
    plan: &Plan,
    endpoint: &Endpoint,
    now: Timestamp,
) -> Result<Completed, PkiError> {
    pki::ensure_key_set(found, &build_subject(plan, endpoint)?, now, &Lifetimes::default())
}

/// As [`complete_key_set`], for a key set that others renew: a leaf certificate is good up to its end.
pub(in crate::control_plane) fn complete_at_end(
    found: &Files,
    plan: &Plan,
    endpoint: &Endpoint,
    now: Timestamp,
) -> Result<Completed, PkiError> {
    let lifetimes =
        Lifetimes { renew_before: Duration::ZERO, renew_authority_before: Duration::ZERO, ..Lifetimes::default() };
    pki::ensure_key_set(found, &build_subject(plan, endpoint)?, now, &lifetimes)
}

/// As [`complete_key_set`], for the key set that `template` keeps in a local folder, which is written there.
pub fn complete_in(folder: &Path, plan: &Plan, endpoint: &Endpoint, now: Timestamp) -> Result<Completed, KeptError> {
    pki::ensure_kept(folder, &build_subject(plan, endpoint)?, now, &Lifetimes::default())
}

fn build_subject(plan: &Plan, endpoint: &Endpoint) -> Result<Subject, PkiError> {
    let extra: Vec<San> = endpoint.sans.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    Ok(Subject {
        control_plane: plan.name.to_string(),
        namespace: plan.package.namespace.to_string(),
        public: pki::Endpoint { host: endpoint.host.parse()?, port: endpoint.port },
        internal: Subject::internal_endpoint(plan.package.namespace.as_str()),
        extra_sans: extra,
    })
}
