//! The cutting proxy: stands before a cluster's API, counts what comes by, and cuts where a test says.
//!
//! It terminates TLS with a certificate of the cluster's own authority and forwards over HTTP/1.1. A request that
//! carries a bearer token is forwarded under that token, any other as the administrator. Bodies pass as they come, so
//! watches work; upgrades (exec, port-forward) do not. It lives on threads of its own and ends when it is dropped.

mod rules;
mod tls;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub use rules::{Action, Match, Seen, When};

use crate::Bed;
use rules::Rule;

type Upstream = Client<HttpsConnector<HttpConnector>, Body>;
type Body = BoxBody<Bytes, hyper::Error>;

/// A proxy before one cluster's API.
pub struct Proxy {
    address: SocketAddr,
    folder: tempfile::TempDir,
    shared: Arc<Shared>,
    open: watch::Sender<Gate>,
    runtime: Option<tokio::runtime::Runtime>,
}

/// Who is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
    /// Everybody, but by a door with another name on it.
    Stranger,
}

struct Shared {
    server: String,
    admin: Upstream,
    tokens: Upstream,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    rules: Vec<Rule>,
    round_trip: Duration,
}

impl Proxy {
    /// Starts a proxy before a running cluster, on a port of loopback.
    pub fn start(bed: &Bed, cluster: &str) -> Result<Self> {
        let kubeconfig = bed.kubeconfig(cluster)?;
        let cluster = bed.cluster(cluster)?;
        let identity = tls::Identity::of(&cluster, &kubeconfig)?;
        let shared = Arc::new(Shared {
            server: format!("{}:6443", cluster.ip()),
            admin: client(identity.admin()?),
            tokens: client(identity.anonymous()?),
            state: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let folder = tempfile::Builder::new().prefix("fleetbed-proxy-").tempdir()?;
        let own = folder.path().join("kubeconfig");
        crate::cluster::kubeconfig::write(
            &own,
            &cluster.name,
            &format!("https://{address}"),
            &identity.ca,
            &identity.client,
        )?;
        let (open, gate) = watch::channel(Gate::Open);
        let acceptor = tokio_rustls::TlsAcceptor::from(identity.server()?);
        let stranger = tokio_rustls::TlsAcceptor::from(tls::stranger()?);
        let server = Arc::clone(&shared);
        runtime.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                let shown = if *gate.borrow() == Gate::Stranger { &stranger } else { &acceptor };
                tokio::spawn(serve(stream, shown.clone(), Arc::clone(&server), gate.clone()));
            }
        });
        Ok(Self { address, folder, shared, open, runtime: Some(runtime) })
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig that leads through the proxy; its context has the cluster's name.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Adds a rule. It counts from now; of several that hold for a request, each acts, in the order of their adding,
    /// until one answers or cuts.
    pub fn on(&self, matches: Match, when: When, action: Action) {
        self.state().rules.push(Rule { matches, when, action, count: 0 });
    }

    /// Takes all rules and the added round trip away, and lets connections in again.
    pub fn mend(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.round_trip = Duration::ZERO;
        let _ = self.open.send(Gate::Open);
    }

    /// Ends all connections and takes no more, until [`Proxy::mend`].
    pub fn cut(&self) {
        let _ = self.open.send(Gate::Closed);
    }

    /// Ends all connections and shows a certificate of an authority that nobody knows, until [`Proxy::mend`].
    pub fn pretend(&self) {
        let _ = self.open.send(Gate::Stranger);
    }

    /// A handle for [`Action::then`] that does what [`Proxy::pretend`] does.
    pub fn pretender(&self) -> impl Fn() + Send + Sync + 'static {
        let open = self.open.clone();
        move || {
            let _ = open.send(Gate::Stranger);
        }
    }

    /// Makes every request take this much longer.
    pub fn set_round_trip(&self, more: Duration) {
        self.state().round_trip = more;
    }

    /// What has come by, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.clone()
    }

    /// How many of each verb have come by.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for seen in &self.state().seen {
            *counts.entry(seen.verb()).or_default() += 1;
        }
        counts
    }

    /// What has come by and changed something.
    pub fn writes(&self) -> Vec<Seen> {
        self.seen().into_iter().filter(Seen::is_write).collect()
    }

    /// Forgets what has come by; rules go on counting.
    pub fn forget(&self) {
        self.state().seen.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Dropping a runtime inside another one panics; this way of ending it does not wait, so it may.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("address", &self.address)
            .field("kubeconfig", &self.kubeconfig())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// A test that panicked while it held the lock has left nothing half-done behind it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a request down and finds what is to happen to it.
    fn note(&self, seen: &Seen) -> (Vec<Action>, Duration) {
        let mut state = self.state();
        state.seen.push(seen.clone());
        let mut actions = Vec::new();
        for rule in state.rules.iter_mut().filter(|rule| rule.matches.fits(seen)) {
            rule.count += 1;
            if rule.when.holds(rule.count) {
                actions.push(rule.action.clone());
            }
        }
        (actions, state.round_trip)
    }

    async fn handle(self: &Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>> {
        let seen = Seen {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
        };
        let (actions, round_trip) = self.note(&seen);
        tokio::time::sleep(round_trip).await;
        let mut held_back = Duration::ZERO;
        for action in &actions {
            match action {
                Action::Drop => anyhow::bail!("cut before {} {}", seen.method, seen.path),
                Action::Delay(time) => tokio::time::sleep(*time).await,
                Action::Hang => std::future::pending().await,
                Action::Refuse { status, retry_after } => return answer(*status, *retry_after),
                Action::HoldBack(time) => held_back = held_back.max(*time),
                Action::DropAnswer | Action::Lie { .. } | Action::Then(_) => {}
            }
        }
        let response = if held_back.is_zero() {
            self.forward(request.map(BodyExt::boxed)).await?
        } else {
            self.forward_late(request, held_back).await?
        };
        for action in &actions {
            match action {
                Action::DropAnswer => anyhow::bail!("cut after {} {}", seen.method, seen.path),
                Action::Lie { status } => {
                    // Read to its end, so that what was asked is really done.
                    response.into_body().collect().await?;
                    return answer(*status, None);
                }
                Action::Then(call) => {
                    let (call, seen) = (Arc::clone(call), seen.clone());
                    // What it does may take its time, and may well wait for something.
                    tokio::task::spawn_blocking(move || call(&seen)).await.context("the call of a rule panicked")?;
                }
                _ => {}
            }
        }
        Ok(response.map(BodyExt::boxed))
    }

    /// Forwards a request later, whatever has become of its client until then.
    async fn forward_late(self: &Arc<Self>, request: Request<Incoming>, time: Duration) -> Result<Response<Incoming>> {
        let (parts, body) = request.into_parts();
        let body = Full::new(body.collect().await?.to_bytes()).map_err(|never| match never {}).boxed();
        let shared = Arc::clone(self);
        let late = async move {
            tokio::time::sleep(time).await;
            shared.forward(Request::from_parts(parts, body)).await
        };
        tokio::spawn(late).await.context("the held request panicked")?
    }

    async fn forward(&self, request: Request<Body>) -> Result<Response<Incoming>> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = Uri::builder().scheme("https").authority(self.server.as_str()).path_and_query(path).build()?;
        parts.headers.remove(HOST);
        parts.headers.remove(CONNECTION);
        let upstream = if parts.headers.contains_key(AUTHORIZATION) { &self.tokens } else { &self.admin };
        upstream
            .request(Request::from_parts(parts, body))
            .await
            .with_context(|| format!("no answer from {}", self.server))
    }
}

fn client(config: tokio_rustls::rustls::ClientConfig) -> Upstream {
    let connector =
        hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
    Client::builder(TokioExecutor::new()).build(connector)
}

/// Serves one connection until it ends or the gate closes. An error of the handler ends it without an answer, which
/// is just what a cut is.
async fn serve(
    stream: TcpStream,
    acceptor: tokio_rustls::TlsAcceptor,
    shared: Arc<Shared>,
    mut gate: watch::Receiver<Gate>,
) {
    let began = *gate.borrow_and_update();
    if began == Gate::Closed {
        return;
    }
    let connection = async move {
        let _ = stream.set_nodelay(true);
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { shared.handle(request).await.map_err(|error| std::io::Error::other(format!("{error:#}"))) }
        });
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    };
    tokio::select! {
        () = connection => {}
        _ = gate.wait_for(|now| *now != began) => {}
    }
}

/// An answer in the form in which the API itself refuses.
fn answer(status: u16, retry_after: Option<u32>) -> Result<Response<Body>> {
    let reason = match status {
        409 => "Conflict",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    };
    let text = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason,
        "message": match status {
            // The words by which clients know that it is no conflict of meaning.
            409 => "Operation cannot be fulfilled: the object has been modified; please apply your changes to the \
                    latest version and try again"
                .to_owned(),
            _ => format!("refused by the test's proxy with {status}"),
        },
    });
    let body = Full::new(Bytes::from(text.to_string())).map_err(|never: Infallible| match never {}).boxed();
    let mut response = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        response = response.header(RETRY_AFTER, seconds);
    }
    Ok(response.body(body)?)
}
