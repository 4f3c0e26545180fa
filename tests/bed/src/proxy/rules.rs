//! What the cutting proxy does to which request.

use std::sync::Arc;
use std::time::Duration;

/// A request that came to the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// GET, POST …
    pub method: String,
    /// `/api/v1/namespaces/default/pods/web`.
    pub path: String,
    /// Behind the `?`, or empty.
    pub query: String,
}

impl Seen {
    /// The verb that Kubernetes knows it by: get, list, watch, create, update, patch, delete or deletecollection.
    pub fn verb(&self) -> &'static str {
        let watching = self.query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"));
        match self.method.as_str() {
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if self.is_collection() => "deletecollection",
            "DELETE" => "delete",
            _ if watching => "watch",
            _ if self.is_collection() => "list",
            _ => "get",
        }
    }

    /// Whether it changes something. A dry run and a question about rights (`…reviews`) do not.
    pub fn is_write(&self) -> bool {
        let reads = self.query.split('&').any(|part| part.starts_with("dryRun=")) || self.path.ends_with("reviews");
        !matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS") && !reads
    }

    fn is_collection(&self) -> bool {
        let mut parts: Vec<_> = self.path.split('/').filter(|part| !part.is_empty()).collect();
        let prefix = match parts.first() {
            Some(&"api") => 2,
            Some(&"apis") => 3,
            _ => return false,
        };
        if parts.len() <= prefix {
            return false;
        }
        parts.drain(..prefix);
        if parts.first() == Some(&"namespaces") && parts.len() > 2 {
            parts.drain(..2);
        }
        parts.len() == 1
    }
}

/// Which requests a rule is for.
#[derive(Debug, Clone, Default)]
pub struct Match {
    verbs: Vec<&'static str>,
    path: Option<String>,
    writes: bool,
}

impl Match {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Those that change something.
    pub fn writes() -> Self {
        Self { writes: true, ..Self::default() }
    }

    /// Those of one verb of Kubernetes, `patch`.
    pub fn verb(verb: &'static str) -> Self {
        Self { verbs: vec![verb], ..Self::default() }
    }

    /// And only those whose path contains this.
    #[must_use]
    pub fn path(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    pub(super) fn fits(&self, seen: &Seen) -> bool {
        (self.verbs.is_empty() || self.verbs.contains(&seen.verb()))
            && self.path.as_deref().is_none_or(|part| seen.path.contains(part))
            && (!self.writes || seen.is_write())
    }
}

/// Which of the requests that fit; the first is 1.
#[derive(Debug, Clone, Copy)]
pub enum When {
    /// Only this one.
    Nth(usize),
    /// This one and all later ones.
    From(usize),
    /// The first so many.
    First(usize),
    /// All.
    Always,
}

impl When {
    pub(super) fn holds(self, count: usize) -> bool {
        match self {
            Self::Nth(n) => count == n,
            Self::From(n) => count >= n,
            Self::First(n) => count <= n,
            Self::Always => true,
        }
    }
}

/// What happens to them.
#[derive(Clone)]
pub enum Action {
    /// The connection ends before the server hears of the request.
    Drop,
    /// The server does what was asked; then the connection ends without an answer.
    DropAnswer,
    /// It is forwarded this much later.
    Delay(Duration),
    /// It is forwarded this much later, also when its client has ended meanwhile.
    HoldBack(Duration),
    /// Nobody answers, ever.
    Hang,
    /// The proxy answers, the server hears of nothing.
    Refuse {
        /// HTTP status: 409, 429, 500, 503 …
        status: u16,
        /// Seconds for the header Retry-After.
        retry_after: Option<u32>,
    },
    /// The server does what was asked; the client is told otherwise (a 504 whose request went through).
    Lie {
        /// HTTP status.
        status: u16,
    },
    /// It goes through unharmed; this is called once the server has answered.
    Then(Arc<dyn Fn(&Seen) + Send + Sync>),
}

impl Action {
    /// Refuses with a status.
    pub fn refuse(status: u16) -> Self {
        Self::Refuse { status, retry_after: None }
    }

    /// Calls `f` after the request went through.
    pub fn then(f: impl Fn(&Seen) + Send + Sync + 'static) -> Self {
        Self::Then(Arc::new(f))
    }
}

/// A rule and how often its match has fit.
pub(super) struct Rule {
    pub(super) matches: Match,
    pub(super) when: When,
    pub(super) action: Action,
    pub(super) count: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(method: &str, path: &str, query: &str) -> Seen {
        Seen { method: method.to_owned(), path: path.to_owned(), query: query.to_owned() }
    }

    #[test]
    fn verbs_are_those_of_kubernetes() {
        for (method, path, query, verb) in [
            ("GET", "/api/v1/namespaces", "", "list"),
            ("GET", "/api/v1/namespaces/a", "", "get"),
            ("GET", "/api/v1/namespaces/a/pods", "limit=5", "list"),
            ("GET", "/api/v1/namespaces/a/pods", "limit=5&watch=true", "watch"),
            ("GET", "/api/v1/namespaces/a/pods/b/log", "", "get"),
            ("GET", "/apis/apps/v1/deployments", "", "list"),
            ("GET", "/version", "", "get"),
            ("GET", "/apis/apps/v1", "", "get"),
            ("DELETE", "/api/v1/namespaces/a/pods", "", "deletecollection"),
            ("PATCH", "/api/v1/nodes/a", "", "patch"),
        ] {
            assert_eq!(seen(method, path, query).verb(), verb, "{method} {path}?{query}");
        }
    }

    #[test]
    fn questions_are_no_writes() {
        assert!(seen("PATCH", "/api/v1/namespaces/a", "fieldManager=x").is_write());
        assert!(!seen("PATCH", "/api/v1/namespaces/a", "dryRun=All&fieldManager=x").is_write());
        assert!(!seen("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "").is_write());
    }
}
