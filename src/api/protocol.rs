//! The registration protocol: facts on which the agent and the registrar of the control plane have to agree, each
//! written once.

use super::util::digest;

/// Signer of the control plane that issues client certificates.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Usages of an agent's certificate, sorted; a request names exactly these.
pub const USAGES: [&str; 2] = ["client auth", "digital signature"];
/// Annotation on a CSR made with an init token, `"true"`: a certificate was issued for this key before. Such a key is
/// certified again for the cluster that it is recorded for, and never registered again: [`NEW_KEY_NEEDED`].
pub const ANNOTATION_REJOIN: &str = "fleet-scheduler.io/rejoin";
/// Reason of a denial: the key is not on record any more, because its cluster was deleted or the key was revoked. The
/// agent makes a new key and asks again, so that no certificate of the old one is ever good for anything.
pub const NEW_KEY_NEEDED: &str = "NewKeyNeeded";

/// Prefix of an agent's user name.
const USER_PREFIX: &str = "fleet:agent:";
/// Number of hexadecimal digits of the cluster ID in a user name.
const ID_DIGITS: usize = 8;
/// Number of hexadecimal digits of the key's fingerprint in a user name.
const KEY_DIGITS: usize = 16;

/// Fingerprint of a public key: SHA-256 of its `SubjectPublicKeyInfo` in DER, as 64 hexadecimal digits.
pub fn key_fingerprint(public_key_info: &[u8]) -> String {
    digest::full_digest(public_key_info)
}

/// Returns whether `text` has the form of a [`key_fingerprint`]; what an operator wrote into the annotation may not.
pub fn is_fingerprint(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// User name of an agent: `fleet:agent:<cluster>:<8 digits of its ID>:<16 digits of its key's fingerprint>`.
///
/// Rights are bound to this name. It holds the key, so a certificate of any other key is worth nothing, whatever was
/// registered under the cluster's name before or is registered later.
pub fn user_name(cluster: &str, cluster_id: &str, fingerprint: &str) -> String {
    let (id, key) = (take_prefix(cluster_id, ID_DIGITS), take_prefix(fingerprint, KEY_DIGITS));
    format!("{USER_PREFIX}{cluster}:{id}:{key}")
}

/// A user name taken apart: the cluster, and all that follows it. `None` for a name that is not an agent's.
pub fn split_user_name(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(USER_PREFIX)?.split_once(':')
}

/// Returns whether the part of a user name behind the cluster is of the form without a key, which agents up to the
/// development builds of v0.6.1 asked for.
pub fn is_without_key(rest: &str, cluster_id: &str) -> bool {
    rest == take_prefix(cluster_id, ID_DIGITS)
}

fn take_prefix(text: &str, digits: usize) -> &str {
    text.get(..digits).unwrap_or(text)
}

/// Key of the ConfigMap `fleet-bootstrap-status`: whether annotations of objects may place them, [`ALLOW`] or [`DENY`].
pub const DIRECT_PLACEMENT: &str = "directPlacement";
/// Key of the same ConfigMap: kinds that are placed beside those of the table, as `GROUP/VERSION/Kind[,…]`.
pub const EXTRA_KINDS: &str = "extraKinds";
/// Value of [`DIRECT_PLACEMENT`]: annotations place.
pub const ALLOW: &str = "Allow";
/// Value of [`DIRECT_PLACEMENT`]: annotations do not place.
pub const DENY: &str = "Deny";

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    #[test]
    fn a_user_name_holds_cluster_id_and_key() {
        let fingerprint = key_fingerprint(b"");
        assert!(is_fingerprint(&fingerprint));
        let user = user_name("west", ID, &fingerprint);
        assert_eq!(user, "fleet:agent:west:0a1b2c3d:e3b0c44298fc1c14");
        assert_eq!(split_user_name(&user), Some(("west", "0a1b2c3d:e3b0c44298fc1c14")));
        assert_ne!(user_name("west", ID, &key_fingerprint(b"other")), user);
    }

    #[test]
    fn what_is_no_fingerprint_is_told_from_one() {
        for text in ["", "e3b0c44298fc1c14", &"g".repeat(64), &"A".repeat(64), &"é".repeat(32)] {
            assert!(!is_fingerprint(text), "{text}");
        }
        // Cutting it short does not panic either.
        assert_eq!(user_name("west", "", "é"), "fleet:agent:west::é");
    }

    #[test]
    fn the_form_without_a_key_is_recognised() {
        let (_, rest) = split_user_name("fleet:agent:west:0a1b2c3d").unwrap();
        assert!(is_without_key(rest, ID) && !is_without_key("0a1b2c3d:e3b0c44298fc1c14", ID));
        assert_eq!(split_user_name("fleet:agent:west"), None);
        assert_eq!(split_user_name("fleet:scheduler"), None);
    }
}
