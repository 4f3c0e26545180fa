//! Decides who gets a name: the table of duplicates and clones, and the guards, as a pure function.

use std::time::Duration;

use super::approve::withdrawn_message;
use super::csr::{Request, Requester};
use super::denial::Denial;
use crate::api::labels::{ANNOTATION_ALLOW_NEW_KEY, ANNOTATION_KEY_FINGERPRINT};
use crate::api::protocol::NEW_KEY_NEEDED;
use crate::api::registration::gone::{CLUSTER_LEFT, NOT_REGISTERED};

/// A holder without a renewal for this long may be replaced by one that lost its key.
pub const ABANDONED: Duration = Duration::from_secs(600);

/// Number of clusters that may be registered without ever having reported: whoever has an init token can register names, and
/// only the agent of a cluster can report. The monitor removes them after a day.
pub const MAX_NEVER_REPORTED: usize = 100;

/// Cluster that is registered under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The name.
    pub name: String,
    /// Its cluster ID; empty if an operator created the Cluster by hand.
    pub id: String,
    /// Fingerprint of its agent's key; empty likewise, and where an operator revoked the key.
    pub fingerprint: String,
    /// An operator lets the next agent with the same ID bring a new key.
    pub allow_new_key: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// It is accepted.
    pub accepted: bool,
    /// Time since the last renewal of its agent's Lease.
    pub silent: Duration,
}

/// Facts that a decision is made from, besides the request.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Cluster of the requested name.
    pub named: Option<Known>,
    /// Cluster with the requester's ID under another name.
    pub same_id: Option<Known>,
    /// A Cluster of the requested name existed while the request was pending.
    pub cluster_seen: bool,
    /// Limit of new clusters per minute, where it is reached.
    pub rate_limit_reached: Option<usize>,
    /// [`MAX_NEVER_REPORTED`] clusters are registered and never reported.
    pub many_never_reported: bool,
    /// A certificate of the requested name was approved just now.
    pub just_approved: bool,
    /// The agent deregistered after it had made this request.
    pub left: bool,
}

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The name is free, or reserved for this requester: record its ID and key.
    Create,
    /// The name is this requester's own: issue again.
    Reissue,
    /// The requester deregisters its own cluster: remove it.
    Deregister,
    /// Not yet: something has to happen first.
    Wait(Wait),
    /// Not yet, but the name is this requester's by now: record its key, so that an operator accepts this one.
    WaitWithKey,
    /// No.
    Deny(Denial),
}

/// Reason that a request remains pending.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wait {
    /// The cluster registers by hand, or was suspended.
    #[error("an operator must accept the cluster")]
    Acceptance,
    /// The Cluster of that name is pending deletion.
    #[error("the cluster of that name is terminating")]
    Deletion,
    /// The rate limit is reached.
    #[error("the rate limit of {per_minute} new clusters a minute is reached")]
    RateLimit {
        /// The limit.
        per_minute: usize,
    },
    /// Too many clusters are registered whose agents never reported.
    #[error(
        "{MAX_NEVER_REPORTED} registered clusters have never reported: delete those that are not needed; the \
         scheduler removes the others after a day"
    )]
    NeverReported,
    /// The cluster got a certificate just now.
    #[error("the cluster got a certificate a moment ago")]
    JustApproved,
}

/// Reason of the denial of a renewal while the cluster is not accepted.
pub const NOT_ACCEPTED: &str = "ClusterNotAccepted";

/// Decides about a request.
pub fn decide_request(request: &Request, facts: &Facts) -> Decision {
    let named = facts.named.as_ref();
    if request.leaves {
        return decide_deregistration(request, named);
    }
    if facts.left {
        return Decision::Deny(Denial::new(CLUSTER_LEFT, withdrawn_message(request)));
    }
    if named.is_none() && facts.cluster_seen {
        let message = format!("cluster {} was deleted while its registration was pending", request.cluster);
        return Decision::Deny(Denial::new("ClusterDeleted", message));
    }
    match (decide_name(request, named, facts.same_id.as_ref()), facts.rate_limit_reached) {
        (Decision::Create, Some(per_minute)) => Decision::Wait(Wait::RateLimit { per_minute }),
        // An operator who reserved the name waits for it.
        (Decision::Create, None) if facts.many_never_reported && named.is_none() => Decision::Wait(Wait::NeverReported),
        (Decision::Reissue, _) if facts.just_approved => Decision::Wait(Wait::JustApproved),
        (decision, _) => decision,
    }
}

/// Decides about a deregistration. The key is the proof: the right to request a name is not enough to deregister its
/// owner.
fn decide_deregistration(request: &Request, named: Option<&Known>) -> Decision {
    match named {
        Some(known) if known.deleting => Decision::Wait(Wait::Deletion),
        Some(known) if known.id == request.id && known.fingerprint == request.fingerprint => Decision::Deregister,
        _ => Decision::Deny(Denial::new(
            NOT_REGISTERED,
            format!("no cluster is registered as {} with this key", request.cluster),
        )),
    }
}

/// Decides who owns the name.
fn decide_name(request: &Request, named: Option<&Known>, same_id: Option<&Known>) -> Decision {
    let Some(known) = named else {
        return match &request.requester {
            Requester::Agent { .. } => Decision::Deny(Denial::new(
                "ClusterUnknown",
                format!("no cluster {} is registered here; register it again with an init token", request.cluster),
            )),
            Requester::Token => decide_registration(request, same_id),
        };
    };
    if known.deleting {
        return Decision::Wait(Wait::Deletion);
    }
    if known.fingerprint.is_empty() && (known.id.is_empty() || known.id == request.id) {
        // Reserved: created by an operator beforehand, for whoever comes first or for the owner of this ID; or the key that
        // was on record is revoked. A certificate is no proof here, it may be one of that key.
        return match &request.requester {
            Requester::Token => decide_registration(request, same_id),
            Requester::Agent { .. } => {
                let message = format!("no key is recorded for cluster {}; register a new key", request.cluster);
                Decision::Deny(Denial::new(NEW_KEY_NEEDED, message))
            }
        };
    }
    if known.id != request.id {
        return deny_in_use(request);
    }
    let same_key = known.fingerprint == request.fingerprint;
    match request.requester {
        Requester::Agent { .. } => decide_renewal(request, known, same_key),
        Requester::Token => decide_reissue(request, known, same_key),
    }
}

/// Decides about a renewal. It never brings another key: whoever stole a certificate could keep the name by it when the
/// agent has got a new key for itself.
fn decide_renewal(request: &Request, known: &Known, same_key: bool) -> Decision {
    if !same_key {
        let message = format!(
            "cluster {} is registered with a key that is not this agent's; to revoke that key, remove the annotation \
             {ANNOTATION_KEY_FINGERPRINT}",
            request.cluster,
        );
        return Decision::Deny(Denial::new("IdentityInUse", message));
    }
    if !known.accepted {
        let message = format!("cluster {} is not accepted: an operator must set spec.accepted", request.cluster);
        return Decision::Deny(Denial::new(NOT_ACCEPTED, message));
    }
    Decision::Reissue
}

/// Decides about a request by token for a name that is this cluster's own.
fn decide_reissue(request: &Request, known: &Known, same_key: bool) -> Decision {
    // A cluster that is not accepted cannot renew its Lease, so its silence says nothing; and an operator accepts the key
    // that was looked at, not one that came later.
    let abandoned = known.accepted && known.silent >= ABANDONED;
    if !same_key && !known.allow_new_key && !abandoned {
        let (cluster, minutes) = (&request.cluster, ABANDONED.as_secs() / 60);
        let (state, remedy) = if known.accepted {
            (format!("reported in the last {minutes} minutes"), "wait, or annotate the Cluster with")
        } else {
            ("is not accepted".to_owned(), "an operator can accept the new key with the annotation")
        };
        let message = format!(
            "cluster {cluster} is registered with another key and {state}; {remedy} {ANNOTATION_ALLOW_NEW_KEY}=true"
        );
        return Decision::Deny(Denial::new("IdentityInUse", message));
    }
    match (known.accepted, same_key) {
        (true, _) => Decision::Reissue,
        (false, true) => Decision::Wait(Wait::Acceptance),
        (false, false) => Decision::WaitWithKey,
    }
}

/// Registers a name, unless the requester has another one already, or its key had certificates before: whoever stole one of
/// them would be registered again.
fn decide_registration(request: &Request, same_id: Option<&Known>) -> Decision {
    match same_id {
        Some(other) if !other.deleting => Decision::Deny(Denial::new(
            "ClusterAlreadyRegistered",
            format!("this cluster is already registered as {}; uninstall that agent first", other.name),
        )),
        _ if request.rejoins => {
            let message = format!(
                "this key is no longer recorded for cluster {}; register again with a new key",
                request.cluster
            );
            Decision::Deny(Denial::new(NEW_KEY_NEEDED, message))
        }
        _ => Decision::Create,
    }
}

fn deny_in_use(request: &Request) -> Decision {
    let message = format!(
        "another cluster is registered as {name}; choose another name, or remove that cluster with `fleetctl delete \
         cluster {name}`",
        name = request.cluster
    );
    Decision::Deny(Denial::new("ClusterNameInUse", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(requester: Requester) -> Request {
        Request {
            requester,
            cluster: "a".parse().unwrap(),
            id: "11111111-id".to_owned(),
            fingerprint: "key".to_owned(),
            leaves: false,
            rejoins: false,
        }
    }

    fn known() -> Known {
        Known {
            name: "a".to_owned(),
            id: "11111111-id".to_owned(),
            fingerprint: "key".to_owned(),
            allow_new_key: false,
            deleting: false,
            accepted: true,
            silent: Duration::ZERO,
        }
    }

    fn by_token(named: Option<Known>, same_id: Option<Known>) -> String {
        reason(decide_request(&request(Requester::Token), &Facts { named, same_id, ..Facts::default() }))
    }

    fn decide_rejoin(named: Option<Known>) -> String {
        let request = Request { rejoins: true, ..request(Requester::Token) };
        reason(decide_request(&request, &Facts { named, ..Facts::default() }))
    }

    fn decide_leave(named: Option<Known>) -> String {
        let request = Request { leaves: true, ..request(Requester::Token) };
        reason(decide_request(&request, &Facts { named, ..Facts::default() }))
    }

    fn reason(decision: Decision) -> String {
        match decision {
            Decision::Deny(denial) => denial.reason.to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_free_name_is_taken() {
        assert_eq!(by_token(None, None), "Create");
    }

    #[test]
    fn the_same_key_rejoins() {
        assert_eq!(by_token(Some(known()), None), "Reissue");
    }

    #[test]
    fn a_new_key_needs_permission() {
        let other_key = Known { fingerprint: "other".to_owned(), ..known() };
        assert_eq!(by_token(Some(other_key.clone()), None), "IdentityInUse");
        assert_eq!(by_token(Some(Known { silent: ABANDONED, ..other_key.clone() }), None), "Reissue");
        assert_eq!(by_token(Some(Known { allow_new_key: true, ..other_key }), None), "Reissue");
    }

    #[test]
    fn a_name_is_never_transferred() {
        let other = Known { id: "22222222-id".to_owned(), silent: Duration::from_secs(1_000_000), ..known() };
        assert_eq!(by_token(Some(other.clone()), None), "ClusterNameInUse");
        assert_eq!(by_token(Some(Known { allow_new_key: true, ..other }), None), "ClusterNameInUse");
    }

    #[test]
    fn one_cluster_has_one_name() {
        let elsewhere = Known { name: "b".to_owned(), ..known() };
        assert_eq!(by_token(None, Some(elsewhere.clone())), "ClusterAlreadyRegistered");
        assert_eq!(by_token(None, Some(Known { deleting: true, ..elsewhere.clone() })), "Create");
        let beforehand = Known { id: String::new(), fingerprint: String::new(), ..known() };
        assert_eq!(by_token(Some(beforehand.clone()), None), "Create");
        assert_eq!(by_token(Some(beforehand.clone()), Some(elsewhere.clone())), "ClusterAlreadyRegistered");
        assert_eq!(by_token(Some(beforehand), Some(Known { deleting: true, ..elsewhere })), "Create");
    }

    #[test]
    fn unaccepted_and_deleted_wait() {
        assert!(by_token(Some(Known { accepted: false, ..known() }), None).starts_with("Wait("));
        assert!(by_token(Some(Known { deleting: true, ..known() }), None).starts_with("Wait"));
    }

    #[test]
    fn an_unaccepted_key_is_not_replaced() {
        let other = Known { fingerprint: "other".to_owned(), accepted: false, ..known() };
        assert_eq!(by_token(Some(other.clone()), None), "IdentityInUse");
        // It cannot renew its Lease while it is not accepted.
        let silent = Known { silent: ABANDONED * 10, ..other.clone() };
        assert_eq!(by_token(Some(silent), None), "IdentityInUse");
        let allowed = Known { allow_new_key: true, ..other };
        assert!(by_token(Some(allowed), None).starts_with("WaitWithKey"));
    }

    #[test]
    fn a_reserved_name_is_for_its_id() {
        let reserved = Known { fingerprint: String::new(), ..known() };
        assert_eq!(by_token(Some(reserved.clone()), None), "Create");
        let elsewhere = Known { name: "b".to_owned(), ..known() };
        assert_eq!(by_token(Some(reserved.clone()), Some(elsewhere)), "ClusterAlreadyRegistered");
        let other = Known { id: "22222222-id".to_owned(), ..reserved };
        assert_eq!(by_token(Some(other), None), "ClusterNameInUse");
    }

    #[test]
    fn a_certified_key_registers_once() {
        assert_eq!(decide_rejoin(Some(known())), "Reissue");
        assert!(decide_rejoin(Some(Known { accepted: false, ..known() })).starts_with("Wait("));
        assert_eq!(decide_rejoin(None), NEW_KEY_NEEDED, "the cluster was deleted");
        let revoked = Known { fingerprint: String::new(), ..known() };
        assert_eq!(decide_rejoin(Some(revoked.clone())), NEW_KEY_NEEDED, "an operator revoked the key");
        assert_eq!(decide_rejoin(Some(Known { id: String::new(), ..revoked })), NEW_KEY_NEEDED);
    }

    #[test]
    fn only_the_key_holder_deregisters() {
        assert_eq!(decide_leave(Some(Known { accepted: false, ..known() })), "Deregister");
        assert_eq!(decide_leave(Some(known())), "Deregister", "an operator may have been faster than the uninstall");
        assert_eq!(decide_leave(None), "NotRegistered");
        assert_eq!(decide_leave(Some(Known { fingerprint: "other".to_owned(), ..known() })), "NotRegistered");
        assert_eq!(decide_leave(Some(Known { id: "22222222-id".to_owned(), ..known() })), "NotRegistered");
        let free = Known { id: String::new(), fingerprint: String::new(), ..known() };
        assert_eq!(decide_leave(Some(free)), "NotRegistered", "what an operator reserved is retained");
        assert!(decide_leave(Some(Known { deleting: true, ..known() })).starts_with("Wait"));
    }

    fn by_certificate(named: Option<Known>) -> String {
        let agent = request(Requester::Agent { user: "fleet:agent:a:11111111:key".to_owned() });
        reason(decide_request(&agent, &Facts { named, ..Facts::default() }))
    }

    #[test]
    fn only_accepted_clusters_renew() {
        assert_eq!(by_certificate(Some(known())), "Reissue");
        assert_eq!(by_certificate(None), "ClusterUnknown");
        assert_eq!(by_certificate(Some(Known { id: "22222222-id".to_owned(), ..known() })), "ClusterNameInUse");
        assert_eq!(by_certificate(Some(Known { accepted: false, ..known() })), NOT_ACCEPTED);
    }

    #[test]
    fn only_the_key_on_record_renews() {
        let other = Known { fingerprint: "other".to_owned(), ..known() };
        // What accepts the holder of an init token must not accept the holder of a certificate.
        for known in [
            other.clone(),
            Known { allow_new_key: true, ..other.clone() },
            Known { silent: ABANDONED, ..other.clone() },
            Known { accepted: false, ..other },
        ] {
            assert_eq!(by_certificate(Some(known.clone())), "IdentityInUse", "{known:?}");
        }
        // The key was revoked, and the certificate may be one of it.
        let revoked = Known { fingerprint: String::new(), ..known() };
        assert_eq!(by_certificate(Some(revoked.clone())), NEW_KEY_NEEDED);
        assert_eq!(by_certificate(Some(Known { id: String::new(), ..revoked })), NEW_KEY_NEEDED);
    }

    fn decide_guarded(guards: &Facts, named: Option<Known>) -> Decision {
        decide_request(&request(Requester::Token), &Facts { named, ..guards.clone() })
    }

    #[test]
    fn the_rate_limit_is_for_new_names() {
        let limited = Facts { rate_limit_reached: Some(60), ..Facts::default() };
        let wait = Decision::Wait(Wait::RateLimit { per_minute: 60 });
        assert_eq!(decide_guarded(&limited, None), wait);
        let reserved = Known { id: String::new(), fingerprint: String::new(), ..known() };
        assert_eq!(decide_guarded(&limited, Some(reserved)), wait, "a reserved name counts as well");
        assert_eq!(decide_guarded(&limited, Some(known())), Decision::Reissue);
        let other = Known { id: "22222222-id".to_owned(), ..known() };
        assert_eq!(reason(decide_guarded(&limited, Some(other))), "ClusterNameInUse", "a denial does not wait");
    }

    #[test]
    fn names_that_nobody_reports_for_are_limited() {
        let crowded = Facts { many_never_reported: true, ..Facts::default() };
        assert_eq!(decide_guarded(&crowded, None), Decision::Wait(Wait::NeverReported));
        assert_eq!(decide_guarded(&crowded, Some(known())), Decision::Reissue, "it is one of them, or not new");
        let reserved = Known { id: String::new(), fingerprint: String::new(), ..known() };
        assert_eq!(decide_guarded(&crowded, Some(reserved)), Decision::Create);
    }

    #[test]
    fn a_second_certificate_waits_a_moment() {
        let just_approved = Facts { just_approved: true, ..Facts::default() };
        assert_eq!(decide_guarded(&just_approved, Some(known())), Decision::Wait(Wait::JustApproved));
        assert_eq!(decide_guarded(&just_approved, None), Decision::Create, "another cluster had the name");
        assert_eq!(
            decide_guarded(&just_approved, Some(Known { accepted: false, ..known() })),
            Decision::Wait(Wait::Acceptance)
        );
    }

    #[test]
    fn a_deleted_cluster_is_not_recreated() {
        let seen = Facts { cluster_seen: true, ..Facts::default() };
        assert_eq!(reason(decide_guarded(&seen, None)), "ClusterDeleted");
        assert_eq!(decide_guarded(&seen, Some(known())), Decision::Reissue);
        let limited = Facts { rate_limit_reached: Some(1), ..seen.clone() };
        assert_eq!(reason(decide_guarded(&limited, None)), "ClusterDeleted");
        let leaves = Request { leaves: true, ..request(Requester::Token) };
        assert_eq!(reason(decide_request(&leaves, &seen)), "NotRegistered", "which an uninstall takes for success");
    }
}
