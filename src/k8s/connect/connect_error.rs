//! The hop of the connection to the control plane at which a call fails.

use std::error::Error as _;

use super::connection::ServerUnreached;
use super::daemon_client::CallError;
use crate::api::util::text::contains_any;

/// The hop at which a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// The name has no address.
    Dns,
    /// The address does not answer.
    Tcp,
    /// The server is not who it should be, or does not speak TLS.
    Tls,
    /// The credential is not accepted: expired, revoked, or of another control plane.
    Unauthorized,
    /// The credential is accepted and not enough.
    Forbidden,
    /// Anything else.
    Server,
}

impl Hop {
    /// One word for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "DNS",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::Server => "server",
        }
    }
}

/// Returns the hop at which a call failed.
pub fn classify_hop(error: &CallError) -> Hop {
    match (error, error.status_code()) {
        (CallError::TimedOut, _) => Hop::Tcp,
        (_, Some(401)) => Hop::Unauthorized,
        (_, Some(403)) => Hop::Forbidden,
        (_, Some(_)) => Hop::Server,
        (CallError::Kube(error), None) => {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                // The name of a server may contain any word.
                if !cause.is::<ServerUnreached>() {
                    text = format!("{text}: {cause}");
                }
                source = cause.source();
            }
            hop_of(&text.to_lowercase())
        }
    }
}

fn hop_of(text: &str) -> Hop {
    // The libraries' errors are private types, so their texts are all there is.
    if contains_any(text, &["dns error", "failed to lookup", "name or service not known", "no addresses"]) {
        Hop::Dns
    } else if contains_any(text, &["certificate", "tls", "handshake", "corrupt message"]) {
        Hop::Tls
    } else if contains_any(text, &["connect", "refused", "reset", "unreachable", "timed out", "broken pipe", "closed"])
    {
        Hop::Tcp
    } else {
        Hop::Server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failing_hop_is_told_apart() {
        for (text, hop) in [
            ("client error (connect): dns error: failed to lookup address information", Hop::Dns),
            ("client error (connect): tcp connect error: connection refused", Hop::Tcp),
            ("client error (connect): invalid peer certificate: unknownissuer", Hop::Tls),
            ("client error (connect): deadline has elapsed: timed out", Hop::Tcp),
        ] {
            assert_eq!(hop_of(text), hop, "{text}");
        }
    }
}
