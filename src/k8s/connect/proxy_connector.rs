//! Connections to API servers through a proxy, and why one did not come up.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection};
use percent_encoding::percent_decode_str;
use tower::{BoxError, Service};

/// A connection that did not come up because of the proxy.
#[derive(Debug, thiserror::Error)]
pub(in crate::k8s) enum ProxyFailed {
    /// The user or the password is missing or wrong.
    #[error("{0} requires a user and a password, or does not accept those in its URL")]
    LogIn(ProxyName),
    /// The proxy does not connect to the server.
    #[error("{0} refuses to connect to {1}")]
    Refused(ProxyName, String),
    /// The proxy is not reached, or does not speak as its scheme says.
    #[error("{0} cannot be used")]
    Unusable(ProxyName, #[source] BoxError),
}

/// A proxy as errors name it.
#[derive(Debug, Clone)]
pub(in crate::k8s) struct ProxyName {
    /// Its URL without user and password.
    url: String,
    /// The field or the variable that it is from.
    setting: String,
}

impl std::fmt::Display for ProxyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the proxy {} ({})", self.url, self.setting)
    }
}

impl ProxyName {
    pub(super) fn new(proxy: &Uri, setting: String) -> Self {
        let authority = proxy.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        Self { url: format!("{}://{host}", proxy.scheme_str().unwrap_or_default()), setting }
    }

    /// The failure of a connection to a server.
    pub(super) fn describe_failure(self, server: &Uri, error: BoxError) -> ProxyFailed {
        // The library's errors are private types, so their texts are all there is.
        let text = error.to_string();
        if text.contains("authorization required") || text.contains("credentials not accepted") {
            ProxyFailed::LogIn(self)
        } else if text.ends_with("unsuccessful") {
            let server = server.authority().map(ToString::to_string).unwrap_or_default();
            ProxyFailed::Refused(self, server)
        } else {
            ProxyFailed::Unusable(self, error)
        }
    }
}

/// User and password of a proxy. They are escaped in its URL.
fn read_log_in(proxy: &Uri) -> Option<[Vec<u8>; 2]> {
    let (log_in, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    let (user, password) = log_in.split_once(':').unwrap_or((log_in, ""));
    Some([user, password].map(|part| percent_decode_str(part).collect()))
}

/// The header by which a proxy knows its user.
pub(super) fn log_in_header(proxy: &Uri) -> Option<HeaderValue> {
    let [user, password] = read_log_in(proxy)?;
    let pair = [&user[..], b":", &password].concat();
    let mut header = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Connections through a proxy that opens a tunnel for each.
pub(super) fn build_tunnel<C>(proxy: &Uri, connector: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy.clone(), connector);
    match log_in_header(proxy) {
        Some(header) => tunnel.with_auth(header),
        None => tunnel,
    }
}

/// Connections through a SOCKS proxy, which looks up the names of servers.
pub(super) fn build_socks<C>(proxy: &Uri, connector: C) -> SocksV5<C> {
    let socks = SocksV5::new(proxy.clone(), connector);
    match read_log_in(proxy).map(|parts| parts.map(String::from_utf8)) {
        Some([Ok(user), Ok(password)]) => socks.with_auth(user, password),
        _ => socks,
    }
}

/// Connections to a proxy for requests without TLS: these name the server themselves, and many proxies open no tunnel to
/// their ports.
#[derive(Debug, Clone)]
pub(super) struct Forward<C> {
    proxy: Uri,
    connector: C,
}

impl<C> Forward<C> {
    pub(super) const fn new(proxy: Uri, connector: C) -> Self {
        Self { proxy, connector }
    }
}

impl<C> Service<Uri> for Forward<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
{
    type Response = Forwarding<C::Response>;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, C::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, _server: Uri) -> Self::Future {
        let connecting = self.connector.call(self.proxy.clone());
        Box::pin(async { connecting.await.map(Forwarding) })
    }
}

/// A connection to a proxy that forwards requests.
#[derive(Debug)]
pub(super) struct Forwarding<T>(T);

impl<T: Connection> Connection for Forwarding<T> {
    fn connected(&self) -> Connected {
        self.0.connected().proxy(true)
    }
}

impl<T: Read + Unpin> Read for Forwarding<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buffer)
    }
}

impl<T: Write + Unpin> Write for Forwarding<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_sent_unescaped() {
        let header = |proxy: &str| {
            let header = log_in_header(&proxy.parse().unwrap())?;
            let encoded = header.to_str().unwrap().strip_prefix("Basic ").unwrap();
            Some(String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap())
        };
        assert_eq!(header("http://p:3128"), None);
        assert_eq!(header("http://u:p%40ss%3a@p:3128").as_deref(), Some("u:p@ss:"));
        assert_eq!(header("http://u@p:3128").as_deref(), Some("u:"), "an empty password");
    }

    #[test]
    fn a_failure_names_the_proxy_and_its_setting_without_its_password() {
        let name = || ProxyName::new(&"http://u:hunter2@p:3128".parse().unwrap(), "HTTPS_PROXY".to_owned());
        let failure = |text: &str| name().describe_failure(&"https://h:6443/x".parse().unwrap(), text.into());
        assert_eq!(
            failure("tunnel error: unsuccessful").to_string(),
            "the proxy http://p:3128 (HTTPS_PROXY) refuses to connect to h:6443"
        );
        let unusable = failure("tunnel error: unexpected end of file");
        assert_eq!(unusable.to_string(), "the proxy http://p:3128 (HTTPS_PROXY) cannot be used");
        assert!(std::error::Error::source(&unusable).is_some());
        assert!(matches!(failure("tunnel error: proxy authorization required"), ProxyFailed::LogIn(_)));
    }
}
