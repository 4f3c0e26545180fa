//! The init token that is handed out to every workload cluster: made, found again, replaced in time.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

use crate::api::bootstrap_token::{LABEL, NAMESPACE, Token};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};

/// Returns the token to hand out: the one that expires last, if more than half of the TTL is left, and not more than all of
/// it: one with a longer TTL would be handed out until only half of the shorter TTL is left.
fn pick_usable_token(tokens: Vec<Token>, ttl: Duration, now: Timestamp) -> Option<Token> {
    let half = SignedDuration::try_from(ttl / 2).ok()?;
    let whole = SignedDuration::try_from(ttl).ok()?;
    let fitting = tokens.into_iter().filter(|token| token.expires > now + half && token.expires <= now + whole);
    fitting.max_by_key(|token| token.expires)
}

/// Returns the token to hand out; a new one is created when there is none with more than half of the TTL left.
///
/// A replaced token stays valid until it expires, so a copy that was just handed out works for half a TTL.
pub async fn ensure_bootstrap_token(client: &Client, ttl: Duration, now: Timestamp) -> Result<Token, CallError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let found = call_with_timeout(api.list(&ListParams::default().labels(LABEL))).await?;
    let tokens = found.items.iter().filter_map(Token::from_secret).collect();
    if let Some(token) = pick_usable_token(tokens, ttl, now) {
        return Ok(token);
    }
    let expires = now + SignedDuration::try_from(ttl).unwrap_or(SignedDuration::from_hours(720));
    let token = Token::mint(expires, None);
    call_with_timeout(api.create(&PostParams::default(), &token.to_secret())).await?;
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
        Token::mint(at(days), None)
    }

    #[test]
    fn a_token_is_replaced_at_half_its_ttl() {
        assert_eq!(pick_usable_token(vec![], TTL, at(0)), None);
        assert!(pick_usable_token(vec![ending(30)], TTL, at(14)).is_some());
        assert!(pick_usable_token(vec![ending(30)], TTL, at(15)).is_none());
        let (old, new) = (ending(20), ending(30));
        assert_eq!(pick_usable_token(vec![old, new.clone()], TTL, at(0)), Some(new));
    }

    #[test]
    fn a_token_beyond_the_ttl_is_replaced() {
        let (long, short) = (ending(30), ending(2));
        assert_eq!(pick_usable_token(vec![long.clone()], TTL / 10, at(0)), None);
        assert_eq!(pick_usable_token(vec![long, short.clone()], TTL / 10, at(0)), Some(short));
    }
}
