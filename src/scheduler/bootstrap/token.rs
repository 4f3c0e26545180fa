//! Init tokens: short-lived bootstrap tokens that let an agent ask for a certificate, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use rand::RngExt as _;
use rand::distr::Uniform;

use crate::api::labels::BOOTSTRAP_GROUP;
use crate::k8s::daemon_client::{CallError, call};

/// Namespace of bootstrap tokens.
const NAMESPACE: &str = "kube-system";
/// The type that makes a Secret a bootstrap token.
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// Marks the tokens that are ours to replace.
const LABEL: &str = "fleet-scheduler.io/init-token";

/// A token with the time at which the API server stops taking it. Its text never shows in `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    secret: String,
    /// Time of expiry.
    pub expires: Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("id", &self.id).field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Token {
    /// The bearer token.
    pub fn bearer(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// The public half.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn mint(expires: Timestamp) -> Self {
        Self { id: random_text(6), secret: random_text(16), expires }
    }

    /// Reads a token back from its Secret; `None` when it is not one of ours, or not whole.
    fn from_secret(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
        if text("auth-extra-groups")? != BOOTSTRAP_GROUP || text("usage-bootstrap-authentication")? != "true" {
            return None;
        }
        Some(Self { id: text("token-id")?, secret: text("token-secret")?, expires: text("expiration")?.parse().ok()? })
    }

    fn to_secret(&self) -> Secret {
        // Whole seconds: the API server parses RFC 3339 and old ones know no fractions.
        let expires = Timestamp::from_second(self.expires.as_second()).unwrap_or(self.expires).to_string();
        let data = [
            ("token-id", self.id.clone()),
            ("token-secret", self.secret.clone()),
            ("expiration", expires),
            ("usage-bootstrap-authentication", "true".to_owned()),
            ("auth-extra-groups", BOOTSTRAP_GROUP.to_owned()),
            ("description", "Lets workload clusters ask for a certificate of their own.".to_owned()),
        ];
        Secret {
            metadata: ObjectMeta {
                name: Some(format!("bootstrap-token-{}", self.id)),
                namespace: Some(NAMESPACE.to_owned()),
                labels: Some(BTreeMap::from([
                    (LABEL.to_owned(), "true".to_owned()),
                    ("app.kubernetes.io/part-of".to_owned(), "fleet".to_owned()),
                ])),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.to_owned()),
            data: Some(data.map(|(k, v)| (k.to_owned(), ByteString(v.into_bytes()))).into()),
            ..Secret::default()
        }
    }
}

/// Letters and digits as bootstrap tokens take them, from the system's generator.
fn random_text(length: usize) -> String {
    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let indexes = Uniform::new(0, ALPHABET.len()).expect("the alphabet is not empty");
    rand::rng().sample_iter(indexes).take(length).map(|i| char::from(ALPHABET[i])).collect()
}

/// Returns the token to hand out: the one that expires last, if more than half of the TTL is left, and not more than all of
/// it: one with a longer TTL would be handed out until only half of the shorter TTL is left.
fn usable(tokens: Vec<Token>, ttl: Duration, now: Timestamp) -> Option<Token> {
    let half = SignedDuration::try_from(ttl / 2).ok()?;
    let whole = SignedDuration::try_from(ttl).ok()?;
    let fits = |token: &Token| token.expires > now + half && token.expires <= now + whole;
    tokens.into_iter().filter(fits).max_by_key(|t| t.expires)
}

/// Returns the token to hand out; a new one is created when there is none with more than half of the TTL left.
///
/// A replaced token stays valid until it expires, so a copy that was just handed out works for half a TTL.
pub async fn current(client: &Client, ttl: Duration, now: Timestamp) -> Result<Token, CallError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let found = call(api.list(&ListParams::default().labels(LABEL))).await?;
    let tokens = found.items.iter().filter_map(Token::from_secret).collect();
    if let Some(token) = usable(tokens, ttl, now) {
        return Ok(token);
    }
    let expires = now + SignedDuration::try_from(ttl).unwrap_or(SignedDuration::from_hours(720));
    let token = Token::mint(Timestamp::from_second(expires.as_second()).unwrap_or(expires));
    call(api.create(&PostParams::default(), &token.to_secret())).await?;
    tracing::info!(token = token.id(), expires = %token.expires, "init token created");
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;
    const TTL: Duration = Duration::from_secs(30 * 86_400);

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + days * DAY).unwrap()
    }

    fn ending(days: i64) -> Token {
        Token::mint(at(days))
    }

    #[test]
    fn a_token_grants_the_bootstrap_group() {
        let token = ending(30);
        let secret = token.to_secret();
        assert_eq!(Token::from_secret(&secret), Some(token.clone()));
        assert_eq!(secret.data.as_ref().unwrap()["auth-extra-groups"].0, b"system:bootstrappers:fleet");
        assert!(!secret.data.as_ref().unwrap().contains_key("usage-bootstrap-signing"));
        let (id, rest) = token.bearer().split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert!(id.len() == 6 && rest.len() == 16, "the API server takes [a-z0-9]{{6}}.[a-z0-9]{{16}}");
    }

    #[test]
    fn a_token_is_replaced_at_half_its_ttl() {
        assert_eq!(usable(vec![], TTL, at(0)), None);
        assert!(usable(vec![ending(30)], TTL, at(14)).is_some());
        assert!(usable(vec![ending(30)], TTL, at(15)).is_none());
        let (old, new) = (ending(20), ending(30));
        assert_eq!(usable(vec![old, new.clone()], TTL, at(0)), Some(new));
    }

    #[test]
    fn a_token_beyond_the_ttl_is_replaced() {
        let (long, short) = (ending(30), ending(2));
        assert_eq!(usable(vec![long.clone()], TTL / 10, at(0)), None);
        assert_eq!(usable(vec![long, short.clone()], TTL / 10, at(0)), Some(short));
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let token = ending(1);
        assert!(!format!("{token:?}").contains(&token.secret));
    }
}
