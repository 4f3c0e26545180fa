//! The admin port: `/healthz`, `/readyz` and `/metrics` over plain HTTP, for probes and scrapers.
//!
//! Whoever reaches the pod reaches it, where no network policy is enforced. So connections are limited, and `/readyz` says why
//! a program is not ready only to the pod itself; everybody else finds that in the log.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::metrics::Metrics;
use super::stop::Stop;
use crate::api::readiness_log::{NOT_READY, READY};

/// Number of connections that may be open. A further one closes the oldest, so that a client with many connections does
/// not block the probes.
const MAX_CONNECTIONS: usize = 64;
/// Path at which probes ask for readiness.
const READYZ: &str = "/readyz";

/// Readiness of the program.
pub trait Ready: Send + Sync + 'static {
    /// Returns one line for people: the current work, or as an error what is missing.
    fn describe_readiness(&self) -> Result<String, String>;

    /// Returns the failure, in the same words for as long as it lasts; `None` while something is only in progress, or
    /// is logged separately.
    fn describe_failure(&self) -> Option<String>;
}

/// Writes a line whenever a program becomes ready, or fails for another reason than before.
#[derive(Debug, Default)]
struct Told(Mutex<Option<Result<(), String>>>);

impl Told {
    fn log_readiness_change(&self, program: &str, ready: &dyn Ready) {
        match self.format_readiness_line(program, ready) {
            Some((line, true)) => tracing::info!("{line}"),
            Some((line, false)) => tracing::warn!("{line}"),
            None => {}
        }
    }

    /// Returns the line to write, if there is something to say, and whether it says that the program is ready.
    fn format_readiness_line(&self, program: &str, ready: &dyn Ready) -> Option<(String, bool)> {
        let now = ready.describe_readiness();
        let state = match &now {
            Ok(_) => Ok(()),
            Err(_) => Err(ready.describe_failure()?),
        };
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.as_ref() == Some(&state) {
            return None;
        }
        *told = Some(state);
        Some(match now {
            Ok(text) => (format!("{program}{READY}{text}"), true),
            Err(text) => (format!("{program}{NOT_READY}{text}"), false),
        })
    }
}

/// Listener for probes and scrapers.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
}

impl Admin {
    /// Opens the port. A port that is taken is an error at once, not a probe that fails later.
    ///
    /// `0.0.0.0` and `[::]` both are every address of the pod, which may be of either family or of both.
    pub async fn bind_address(address: SocketAddr) -> std::io::Result<Self> {
        if address.ip().is_unspecified() {
            // The kernel takes IPv4 in there as well, and refuses where IPv6 is off.
            if let Ok(listener) = TcpListener::bind((IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port())).await {
                return Ok(Self { listener });
            }
            let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port())).await?;
            return Ok(Self { listener });
        }
        Ok(Self { listener: TcpListener::bind(address).await? })
    }

    /// The address in use, of interest when port 0 was asked for.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is time to stop. Each probe for readiness has the log say, under the name of the program, what has
    /// changed.
    pub async fn serve_admin(self, program: &'static str, ready: Arc<dyn Ready>, metrics: Metrics, stop: Stop) {
        let told = Arc::new(Told::default());
        let mut open: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.wait_for_stop() => return,
            };
            let Ok((stream, peer)) = accepted else {
                // Out of file descriptors, most likely: give the others time to close theirs.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            open.retain(|connection| !connection.is_finished());
            if open.len() >= MAX_CONNECTIONS
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
            let (ready, metrics, told) = (ready.clone(), metrics.clone(), told.clone());
            let is_own = peer.ip().to_canonical().is_loopback();
            let connection = tokio::spawn(async move {
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    if request.uri().path() == READYZ {
                        told.log_readiness_change(program, &*ready);
                    }
                    std::future::ready(Ok::<_, Infallible>(answer_request(&request, is_own, &*ready, &metrics)))
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(Duration::from_secs(10))
                    .serve_connection(TokioIo::new(stream), service);
                // A client may disconnect at any time.
                let _ = connection.await;
            });
            open.push_back(connection.abort_handle());
        }
    }
}

fn answer_request<B>(
    request: &Request<B>,
    is_own: bool,
    ready: &dyn Ready,
    metrics: &Metrics,
) -> Response<Full<Bytes>> {
    let (status, mut body) = match request.uri().path() {
        "/healthz" | "/livez" => (StatusCode::OK, "ok".to_owned()),
        READYZ => match ready.describe_readiness() {
            Ok(text) => (StatusCode::OK, if is_own { text } else { "ok".to_owned() }),
            Err(text) if is_own => (StatusCode::SERVICE_UNAVAILABLE, text),
            Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "not ready: the log says why".to_owned()),
        },
        "/metrics" => (StatusCode::OK, metrics.format_metrics()),
        _ => (StatusCode::NOT_FOUND, "not found".to_owned()),
    };
    if !body.ends_with('\n') {
        body.push('\n');
    }
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let plain = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    struct Missing;
    impl Ready for Missing {
        fn describe_readiness(&self) -> Result<String, String> {
            Err("the API server has not answered yet".to_owned())
        }

        fn describe_failure(&self) -> Option<String> {
            None
        }
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[test]
    fn each_change_is_told_once_and_what_is_on_its_way_never() {
        type State = (Result<String, String>, Option<&'static str>);
        #[derive(Default)]
        struct Scripted(Mutex<Vec<State>>);
        impl Ready for Scripted {
            fn describe_readiness(&self) -> Result<String, String> {
                self.0.lock().unwrap()[0].0.clone()
            }
            fn describe_failure(&self) -> Option<String> {
                self.0.lock().unwrap()[0].1.map(str::to_owned)
            }
        }
        let script = Scripted::default();
        let told = Told::default();
        let mut lines = Vec::new();
        for state in [
            (Err("in progress".to_owned()), None),
            (Err("refused".to_owned()), Some("Refused")),
            (Err("refused once more".to_owned()), Some("Refused")),
            (Err("in progress".to_owned()), None),
            (Ok("leading".to_owned()), None),
            (Ok("standing by".to_owned()), None),
            (Err("refused".to_owned()), Some("Refused")),
        ] {
            *script.0.lock().unwrap() = vec![state];
            lines.extend(told.format_readiness_line("fleet-scheduler", &script).map(|(line, _)| line));
        }
        let refused = "fleet-scheduler is not ready: refused";
        assert_eq!(lines, [refused, "fleet-scheduler is ready: leading", refused]);
    }

    #[tokio::test]
    async fn unspecified_addresses_are_dual_stack() {
        for all in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let admin = Admin::bind_address((all, 0).into()).await.unwrap();
            let port = admin.local_address().unwrap().port();
            let stop = Stop::default();
            let server = tokio::spawn(admin.serve_admin("test", Arc::new(Missing), Metrics::default(), stop.clone()));
            for own in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
                // A machine may have one family only.
                if TcpListener::bind((own, 0)).await.is_ok() {
                    assert!(get((own, port).into(), "/healthz").await.starts_with("HTTP/1.1 200"), "{all}: {own}");
                }
            }
            assert!(Admin::bind_address((all, port).into()).await.is_err(), "{all}: the port is taken");
            stop.request_stop();
            server.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_live_program_may_be_unready() {
        let admin = Admin::bind_address(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = admin.local_address().unwrap();
        let stop = Stop::default();
        let metrics = Metrics::default();
        metrics.set_gauge("leader", "Leads.", &[], 0.0);
        let server = tokio::spawn(admin.serve_admin("test", Arc::new(Missing), metrics, stop.clone()));
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let ready = get(address, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("the API server has not answered yet"), "{ready}");
        let request = Request::get("/readyz").body(()).unwrap();
        let answer = answer_request(&request, false, &Missing, &Metrics::default());
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        assert_eq!(body, "not ready: the log says why\n", "for others than the pod");
        assert!(get(address, "/metrics").await.contains("leader 0"));
        assert!(get(address, "/secrets").await.starts_with("HTTP/1.1 404"));
        stop.request_stop();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn whoever_holds_many_connections_shuts_out_no_probe() {
        let admin = Admin::bind_address(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = admin.local_address().unwrap();
        let stop = Stop::default();
        let server = tokio::spawn(admin.serve_admin("test", Arc::new(Missing), Metrics::default(), stop.clone()));
        let mut held = Vec::new();
        for _ in 0..=MAX_CONNECTIONS {
            held.push(tokio::net::TcpStream::connect(address).await.unwrap());
            // Each is accepted before the next comes.
            assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        }
        let mut byte = [0];
        // Long before it would be for its silence.
        let closed = tokio::time::timeout(Duration::from_secs(5), held[0].read(&mut byte)).await;
        assert_eq!(closed.expect("the oldest is closed").unwrap_or(0), 0);
        let last = held.last_mut().unwrap();
        last.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert_eq!(last.read(&mut byte).await.unwrap(), 1, "the newest is not");
        stop.request_stop();
        server.await.unwrap();
    }
}
