//! Who gets a name: the table of duplicates and clones, as a pure function.

use std::time::Duration;

use super::request::{Denial, Request, Requester};
use crate::api::registration::gone::NOT_REGISTERED;

/// A holder that was silent for this long may be replaced by one that lost its key.
pub const ABANDONED: Duration = Duration::from_secs(600);

/// What is registered under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The name.
    pub name: String,
    /// Its cluster ID; empty if an operator made the Cluster by hand.
    pub id: String,
    /// Digest of the key of its agent; empty likewise.
    pub fingerprint: String,
    /// An operator lets the next agent with the same ID bring a new key.
    pub allow_new_key: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// It may take part.
    pub accepted: bool,
    /// How long its agent has been silent.
    pub silent: Duration,
}

/// What to do about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The name is free: take it.
    Create,
    /// The name is this requester's own: issue again.
    Reissue,
    /// The requester takes its own name back: forget the cluster.
    Forget,
    /// Not yet: something has to happen first.
    Wait(&'static str),
    /// Not yet, but the name is this requester's by now: note its key, so that what is accepted later is this one.
    WaitWithKey(&'static str),
    /// No.
    Deny(Denial),
}

/// What a cluster waits for that registers by hand.
pub const TO_BE_ACCEPTED: &str = "an operator has to accept the cluster";

/// Decides about a request. `named` has the name that it asks for, `same_id` its ID under another name.
pub fn decide(request: &Request, named: Option<&Known>, same_id: Option<&Known>) -> Decision {
    if request.leaves {
        return match named {
            Some(known) if known.deleting => Decision::Wait("the cluster is being deleted"),
            // The key is the proof; who may ask for the name may not take it from others.
            Some(known) if known.id == request.id && known.fingerprint == request.fingerprint => Decision::Forget,
            _ => Decision::Deny(Denial::new(
                NOT_REGISTERED,
                format!("no cluster is registered as {} with this key", request.cluster),
            )),
        };
    }
    let Some(known) = named else {
        return match &request.requester {
            Requester::Agent { .. } => Decision::Deny(Denial::new(
                "ClusterUnknown",
                format!("no cluster {} is registered here; register it again with an init token", request.cluster),
            )),
            Requester::Token => create(same_id),
        };
    };
    if known.deleting {
        return Decision::Wait("the cluster of that name is being deleted");
    }
    if known.id.is_empty() && known.fingerprint.is_empty() {
        // Made by an operator beforehand, for whoever comes first with a token.
        return if request.requester == Requester::Token { create(same_id) } else { deny_in_use(request) };
    }
    if known.id != request.id {
        return deny_in_use(request);
    }
    let same_key = known.fingerprint == request.fingerprint;
    // An agent renews with the key that it has. Whoever stole its certificate could bring another one, and keep the name
    // when the agent has got a new key for itself. Only where no key is on record is the certificate proof enough.
    if !same_key && !known.fingerprint.is_empty() && matches!(request.requester, Requester::Agent { .. }) {
        let message = format!(
            "cluster {} is registered with another key than this agent's; where that is wrong, take its annotation {} away",
            request.cluster,
            crate::api::keys::ANNOTATION_KEY_FINGERPRINT,
        );
        return Decision::Deny(Denial::new("IdentityInUse", message));
    }
    let proven = same_key || matches!(request.requester, Requester::Agent { .. });
    if !proven && !known.allow_new_key && known.silent < ABANDONED {
        let message = format!(
            "cluster {} is registered with another key and was alive in the last {} minutes; wait, or annotate it with {}=true",
            request.cluster,
            ABANDONED.as_secs() / 60,
            crate::api::keys::ANNOTATION_ALLOW_NEW_KEY,
        );
        return Decision::Deny(Denial::new("IdentityInUse", message));
    }
    match (known.accepted, same_key) {
        (true, _) => Decision::Reissue,
        (false, true) => Decision::Wait(TO_BE_ACCEPTED),
        (false, false) => Decision::WaitWithKey(TO_BE_ACCEPTED),
    }
}

/// Gives a name, unless the requester has another one already.
fn create(same_id: Option<&Known>) -> Decision {
    match same_id {
        Some(other) if !other.deleting => Decision::Deny(Denial::new(
            "ClusterAlreadyRegistered",
            format!("this cluster is already registered as {}; uninstall that agent first", other.name),
        )),
        _ => Decision::Create,
    }
}

fn deny_in_use(request: &Request) -> Decision {
    let message = format!(
        "another cluster is registered as {name}; choose another name, or remove that one with `fleetctl delete cluster {name}`",
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
            user: "fleet:agent:a:11111111".to_owned(),
            id: "11111111-id".to_owned(),
            fingerprint: "key".to_owned(),
            leaves: false,
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
        match decide(&request(Requester::Token), named.as_ref(), same_id.as_ref()) {
            Decision::Deny(denial) => denial.reason.to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_free_name_is_taken() {
        assert_eq!(by_token(None, None), "Create");
    }

    #[test]
    fn the_same_cluster_with_the_same_key_joins_again() {
        assert_eq!(by_token(Some(known()), None), "Reissue");
    }

    #[test]
    fn a_new_key_needs_a_silent_holder_or_an_operators_word() {
        let other_key = Known { fingerprint: "other".to_owned(), ..known() };
        assert_eq!(by_token(Some(other_key.clone()), None), "IdentityInUse");
        assert_eq!(by_token(Some(Known { silent: ABANDONED, ..other_key.clone() }), None), "Reissue");
        assert_eq!(by_token(Some(Known { allow_new_key: true, ..other_key }), None), "Reissue");
    }

    #[test]
    fn a_name_of_another_cluster_is_never_given_away_even_if_its_holder_is_dead() {
        let other = Known { id: "22222222-id".to_owned(), silent: Duration::from_secs(1_000_000), ..known() };
        assert_eq!(by_token(Some(other.clone()), None), "ClusterNameInUse");
        assert_eq!(by_token(Some(Known { allow_new_key: true, ..other }), None), "ClusterNameInUse");
    }

    #[test]
    fn one_cluster_has_one_name_unless_the_old_one_is_going() {
        let elsewhere = Known { name: "b".to_owned(), ..known() };
        assert_eq!(by_token(None, Some(elsewhere.clone())), "ClusterAlreadyRegistered");
        assert_eq!(by_token(None, Some(Known { deleting: true, ..elsewhere.clone() })), "Create");
        let beforehand = Known { id: String::new(), fingerprint: String::new(), ..known() };
        assert_eq!(by_token(Some(beforehand.clone()), None), "Create");
        assert_eq!(by_token(Some(beforehand.clone()), Some(elsewhere.clone())), "ClusterAlreadyRegistered");
        assert_eq!(by_token(Some(beforehand), Some(Known { deleting: true, ..elsewhere })), "Create");
    }

    #[test]
    fn whoever_is_not_accepted_or_being_deleted_waits() {
        assert!(by_token(Some(Known { accepted: false, ..known() }), None).starts_with("Wait("));
        assert!(by_token(Some(Known { deleting: true, ..known() }), None).starts_with("Wait"));
    }

    #[test]
    fn the_key_is_noted_that_waits_to_be_accepted_in_the_place_of_a_silent_one() {
        let other = Known { fingerprint: "other".to_owned(), accepted: false, ..known() };
        assert_eq!(by_token(Some(other.clone()), None), "IdentityInUse");
        let silent = Known { silent: ABANDONED, ..other };
        assert!(by_token(Some(silent), None).starts_with("WaitWithKey("));
    }

    #[test]
    fn only_the_holder_of_the_key_can_take_a_registration_back() {
        let leaving = |named: Option<Known>| {
            let request = Request { leaves: true, ..request(Requester::Token) };
            match decide(&request, named.as_ref(), None) {
                Decision::Deny(denial) => denial.reason.to_owned(),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(leaving(Some(Known { accepted: false, ..known() })), "Forget");
        assert_eq!(leaving(Some(known())), "Forget", "an operator may have been faster than the uninstall");
        assert_eq!(leaving(None), "NotRegistered");
        assert_eq!(leaving(Some(Known { fingerprint: "other".to_owned(), ..known() })), "NotRegistered");
        assert_eq!(leaving(Some(Known { id: "22222222-id".to_owned(), ..known() })), "NotRegistered");
        let free = Known { id: String::new(), fingerprint: String::new(), ..known() };
        assert_eq!(leaving(Some(free)), "NotRegistered", "what an operator made beforehand stays");
        assert!(leaving(Some(Known { deleting: true, ..known() })).starts_with("Wait"));
    }

    #[test]
    fn an_agent_renews_only_while_its_cluster_is_registered() {
        let agent = request(Requester::Agent { user: "fleet:agent:a:11111111".to_owned() });
        assert_eq!(decide(&agent, Some(&known()), None), Decision::Reissue);
        assert!(matches!(decide(&agent, None, None), Decision::Deny(d) if d.reason == "ClusterUnknown"));
        let other = Known { id: "22222222-id".to_owned(), ..known() };
        assert!(matches!(decide(&agent, Some(&other), None), Decision::Deny(d) if d.reason == "ClusterNameInUse"));
    }

    #[test]
    fn a_certificate_is_renewed_with_the_key_on_record_and_no_other() {
        let agent = request(Requester::Agent { user: "fleet:agent:a:11111111".to_owned() });
        let other = Known { fingerprint: "other".to_owned(), ..known() };
        // What lets in the holder of an init token is not meant for the holder of a certificate.
        for known in [
            other.clone(),
            Known { allow_new_key: true, ..other.clone() },
            Known { silent: ABANDONED, ..other.clone() },
            Known { accepted: false, ..other },
        ] {
            let decision = decide(&agent, Some(&known), None);
            assert!(matches!(&decision, Decision::Deny(d) if d.reason == "IdentityInUse"), "{known:?}: {decision:?}");
        }
        let unknown = Known { fingerprint: String::new(), ..known() };
        assert_eq!(decide(&agent, Some(&unknown), None), Decision::Reissue, "no key is on record");
    }
}
