//! Bootstrap tokens that let an agent ask for a certificate, and nothing else: init tokens.
//!
//! A token may be for the cluster of one name. The API server then says so in every request, by a group of the user, so that
//! nobody has to look the token up.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use rand::RngExt as _;
use rand::distr::Uniform;

use super::labels::{BOOTSTRAP_GROUP, LABEL_PART_OF};
use super::names::ClusterName;

/// Namespace of bootstrap tokens.
pub const NAMESPACE: &str = "kube-system";
/// Entry of the Secret of a token with the time at which it expires.
pub const EXPIRATION: &str = "expiration";
/// The type that makes a Secret a bootstrap token.
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// Marks the tokens that are ours to replace.
pub const LABEL: &str = "fleet-scheduler.io/init-token";
/// Prefix of the user name that a bootstrap token gives; the ID of the token follows.
const USER_PREFIX: &str = "system:bootstrap:";

/// A token with the time at which the API server stops taking it. Its text never shows in `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    secret: String,
    /// Time of expiry, in whole seconds.
    pub expires: Timestamp,
    /// The only cluster that the token is for; `None` for any.
    only: Option<ClusterName>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("id", &self.id).field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Token {
    /// Returns the bearer token, `ID.SECRET`.
    pub fn bearer_token(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// Returns the ID of the token, its public half.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Makes a token that is for any cluster, or for one alone.
    pub fn mint(expires: Timestamp, only: Option<ClusterName>) -> Self {
        let expires = Timestamp::from_second(expires.as_second()).unwrap_or(expires);
        Self { id: random_text(6), secret: random_text(16), expires, only }
    }

    /// Reads a token for any cluster back from its Secret; `None` where the Secret holds no such token, or not all of
    /// it.
    pub fn from_secret(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        if decode_secret_entry(data, "auth-extra-groups")? != BOOTSTRAP_GROUP
            || decode_secret_entry(data, "usage-bootstrap-authentication")? != "true"
        {
            return None;
        }
        Some(Self {
            id: decode_secret_entry(data, "token-id")?,
            secret: decode_secret_entry(data, "token-secret")?,
            expires: token_expiry(secret)?,
            only: None,
        })
    }

    /// Returns the Secret that makes the API server accept the token.
    pub fn to_secret(&self) -> Secret {
        let (groups, label, description) = match &self.only {
            None => (
                BOOTSTRAP_GROUP.to_owned(),
                "true",
                "Allows workload clusters to request their own certificates.".to_owned(),
            ),
            Some(name) => (
                format!("{BOOTSTRAP_GROUP},{}", group_of(name)),
                name.as_str(),
                format!("Allows the workload cluster {name} to request its own certificate."),
            ),
        };
        let data = [
            ("token-id", self.id.clone()),
            ("token-secret", self.secret.clone()),
            // Old API servers know no fractions of seconds.
            (EXPIRATION, self.expires.to_string()),
            ("usage-bootstrap-authentication", "true".to_owned()),
            ("auth-extra-groups", groups),
            ("description", description),
        ];
        Secret {
            metadata: ObjectMeta {
                name: Some(secret_name(&self.id)),
                namespace: Some(NAMESPACE.to_owned()),
                labels: Some(BTreeMap::from([
                    (LABEL.to_owned(), label.to_owned()),
                    (LABEL_PART_OF.to_owned(), "fleet".to_owned()),
                ])),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.to_owned()),
            data: Some(data.map(|(k, v)| (k.to_owned(), ByteString(v.into_bytes()))).into()),
            ..Secret::default()
        }
    }
}

fn decode_secret_entry(data: &BTreeMap<String, ByteString>, key: &str) -> Option<String> {
    String::from_utf8(data.get(key)?.0.clone()).ok()
}

/// Time at which the token of a Secret expires, where that can be read.
pub fn token_expiry(secret: &Secret) -> Option<Timestamp> {
    std::str::from_utf8(&secret.data.as_ref()?.get(EXPIRATION)?.0).ok()?.parse().ok()
}

/// Name of the Secret of a token.
fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

/// Name of the Secret of the token that a user came with.
pub fn secret_of_user(user: &str) -> Option<String> {
    let id = user.strip_prefix(USER_PREFIX)?;
    (id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()))
        .then(|| secret_name(id))
}

/// The group of users whose token is for one cluster alone.
fn group_of(name: &ClusterName) -> String {
    format!("{BOOTSTRAP_GROUP}:{name}")
}

/// The cluster that the token of a user with these groups is for; `None` for any.
pub fn only_cluster(groups: &[String]) -> Option<&str> {
    groups.iter().find_map(|group| group.strip_prefix(BOOTSTRAP_GROUP)?.strip_prefix(':'))
}

/// Letters and digits as bootstrap tokens take them, from the system's generator.
fn random_text(length: usize) -> String {
    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let indexes = Uniform::new(0, ALPHABET.len()).expect("the alphabet is not empty");
    rand::rng().sample_iter(indexes).take(length).map(|i| char::from(ALPHABET[i])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(secret: &Secret, key: &str) -> String {
        String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap()
    }

    fn ending() -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_500).unwrap()
    }

    #[test]
    fn a_token_grants_the_bootstrap_group() {
        let token = Token::mint(ending(), None);
        let secret = token.to_secret();
        assert_eq!(Token::from_secret(&secret), Some(token.clone()));
        assert_eq!(text(&secret, "auth-extra-groups"), "system:bootstrappers:fleet");
        assert!(!secret.data.as_ref().unwrap().contains_key("usage-bootstrap-signing"));
        let (id, rest) = token.bearer_token().split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert!(id.len() == 6 && rest.len() == 16, "the API server takes [a-z0-9]{{6}}.[a-z0-9]{{16}}");
        assert_eq!(secret_of_user(&format!("system:bootstrap:{id}")), secret.metadata.name);
        assert_eq!(secret_of_user("system:bootstrap:../../x"), None);
    }

    #[test]
    fn a_token_for_one_cluster_says_so_and_is_not_handed_out_to_others() {
        let secret = Token::mint(ending(), Some("west".parse().unwrap())).to_secret();
        let groups: Vec<String> = text(&secret, "auth-extra-groups").split(',').map(str::to_owned).collect();
        assert_eq!(groups, ["system:bootstrappers:fleet", "system:bootstrappers:fleet:west"]);
        assert_eq!(only_cluster(&groups), Some("west"));
        assert_eq!(only_cluster(&groups[..1]), None);
        assert_eq!(Token::from_secret(&secret), None);
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let token = Token::mint(ending(), None);
        assert!(!format!("{token:?}").contains(&token.secret));
    }
}
