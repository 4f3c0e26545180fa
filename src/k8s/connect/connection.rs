//! The client of every program here, from a configuration to requests: one way to connect, to log in and to trust.
//!
//! The library's own stack has no place for another verifier of certificates, and its errors of log-in plugins hold secrets;
//! so the same layers are put together here.

use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use hyper::rt::{Read, Write};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use kube::{Client, Config};
use tower::buffer::BufferLayer;
use tower::util::BoxService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

use super::credential::{Credential, Identity};
use super::proxy_connector::{Forward, ProxyName, build_socks, build_tunnel, log_in_header};
use super::server_identity::Fields;
use super::tls;
use crate::k8s::request::read_layer::Repeats;

/// A client to which layers may be added.
pub(crate) type Builder = ClientBuilder<BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>>;

/// Number of requests that may wait for a connection before senders have to.
const IN_FLIGHT: usize = 1024;

/// The client of a configuration, without layers of a program's own but the repeats of requests. A log-in plugin may run.
///
/// # Errors
/// The part of the configuration that cannot be used; no credential is in it.
pub(crate) fn build_client(config: Config, fields: Fields, repeats: Repeats) -> Result<Client, BoxError> {
    Ok(with_repeats(client_builder(config, fields)?, repeats))
}

/// A client whose reads are repeated.
pub(crate) fn with_repeats<S, B>(builder: ClientBuilder<S>, repeats: Repeats) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    builder.with_layer(&BufferLayer::new(IN_FLIGHT)).with_layer(&repeats).build()
}

/// The same, to which layers can be added.
///
/// # Errors
/// As for [`build_client`].
pub(crate) fn client_builder(config: Config, fields: Fields) -> Result<Builder, BoxError> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    let credential = Credential::from_user(&config.auth_info);
    let (credential, identity) = credential.map_err(|error| fields.of_log_in(error))?;
    let connect = Connect { config, credential, identity, fields };
    let Some(proxy) = connect.config.proxy_url.clone() else {
        let server = connect.config.cluster_url.clone();
        return connect.build_over_connector(
            connector.map_err(move |error| ServerUnreached {
                server: host_and_port(&server),
                source: BoxError::from(error),
            }),
        );
    };
    let is_plain = connect.config.cluster_url.scheme_str() == Some("http");
    match proxy.scheme_str() {
        Some("socks5") => connect.build_over_proxy(&proxy, build_socks(&proxy, connector)),
        Some("http") if is_plain => connect.build_over_forward(proxy, connector),
        Some("http") => connect.build_over_proxy(&proxy, build_tunnel(&proxy, connector)),
        Some("https") => {
            let connector = connect.with_tls(connector)?;
            if is_plain {
                return connect.build_over_forward(proxy, connector);
            }
            connect.build_over_proxy(&proxy, build_tunnel(&proxy, connector))
        }
        _ => Err("the proxy's scheme is not http://, https:// or socks5://".into()),
    }
}

/// A server to which no connection came up.
#[derive(Debug, thiserror::Error)]
#[error("no connection to {server}")]
pub(super) struct ServerUnreached {
    server: String,
    source: BoxError,
}

/// Host and port of a server, also the port that its scheme stands for.
fn host_and_port(server: &Uri) -> String {
    let port = server.port_u16().unwrap_or_else(|| if server.scheme_str() == Some("http") { 80 } else { 443 });
    format!("{}:{port}", server.host().unwrap_or_default())
}

struct Connect {
    config: Config,
    credential: Credential,
    identity: Option<Identity>,
    fields: Fields,
}

impl Connect {
    fn with_tls<C>(&self, connector: C) -> Result<hyper_rustls::HttpsConnector<C>, BoxError> {
        let tls = tls::client_config(&self.config, self.identity.as_ref());
        let tls = tls.map_err(|error| self.fields.of_client(error))?;
        let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let builder = match &self.config.tls_server_name {
            Some(name) => {
                let name = rustls::pki_types::ServerName::try_from(name.clone())?;
                builder.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name))
            }
            None => builder,
        };
        Ok(builder.enable_http1().wrap_connector(connector))
    }

    /// Sends requests without TLS to a proxy that forwards them.
    fn build_over_forward<C>(mut self, proxy: Uri, connector: C) -> Result<Builder, BoxError>
    where
        C: Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: Connection + Read + Write + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError> + Send + Sync + 'static,
    {
        let log_in = log_in_header(&proxy).map(|header| (PROXY_AUTHORIZATION, header));
        self.config.headers.extend(log_in);
        self.build_over_proxy(&proxy.clone(), Forward::new(proxy, connector))
    }

    /// Makes connections with a connector that leads through a proxy.
    fn build_over_proxy<C>(self, proxy: &Uri, connector: C) -> Result<Builder, BoxError>
    where
        C: Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: Connection + Read + Write + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError> + Send + Sync + 'static,
    {
        let server = self.config.cluster_url.clone();
        let name = ProxyName::new(proxy, self.fields.proxy_setting(&server));
        self.build_over_connector(
            connector.map_err(move |error: C::Error| name.describe_failure(&server, error.into())),
        )
    }

    fn build_over_connector<C>(self, connector: C) -> Result<Builder, BoxError>
    where
        C: Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: Connection + Read + Write + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError> + Send + Sync + 'static,
    {
        let mut connector = TimeoutConnector::new(self.with_tls(connector)?);
        let Self { config, credential, fields, .. } = self;
        connector.set_connect_timeout(config.connect_timeout);
        connector.set_read_timeout(config.read_timeout);
        connector.set_write_timeout(config.write_timeout);
        connector.set_reset_reader_on_write(config.reset_reader_on_write);
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
        let service = ServiceBuilder::new()
            .map_err(move |error: BoxError| fields.of_server(error))
            .layer(config.base_uri_layer())
            .layer(credential)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(http)
            .map_response(|answer: Response<hyper::body::Incoming>| {
                answer.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>)
            })
            .boxed();
        Ok(ClientBuilder::new(service, config.default_namespace))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::k8s::connect::connect_error::{Hop, classify_hop};
    use crate::k8s::connect::daemon_client::CallError;

    /// As the HTTP client wraps what its connector says.
    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Wrapped(#[source] ServerUnreached);

    #[test]
    fn the_name_of_a_server_says_nothing_of_the_hop_that_fails() {
        let source = BoxError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        let unreached = ServerUnreached { server: "tls-certificate.example:6443".to_owned(), source };
        let error = CallError::Kube(kube::Error::Service(Box::new(Wrapped(unreached))));
        assert_eq!(classify_hop(&error), Hop::Tcp);
    }

    #[test]
    fn a_server_without_a_port_has_that_of_its_scheme() {
        for (server, expected) in [("https://h", "h:443"), ("http://h/x", "h:80"), ("https://[::1]:6443", "[::1]:6443")]
        {
            assert_eq!(host_and_port(&server.parse().unwrap()), expected);
        }
    }
}
