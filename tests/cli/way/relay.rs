//! A relay before a server of these tests that breaks one answer in a chosen way.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a server takes no connection that is away for a moment.
const MOMENT: Duration = Duration::from_millis(300);

/// What a proxy shows in place of an answer, with what nobody else is to see.
const PAGE: &str = "<!DOCTYPE html><html><head><title>Sign in</title><script>let token = 'SECRET';</script></head>\
    <body><p>Single sign-on is required.\u{1b}[31m</p><form><input name='csrf' value='SECRET'></form></body></html>";

/// A way in which an answer breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Breakage {
    Reset,
    End,
    Cut,
    Refused,
    RequestTimeout,
    TooMany,
    BadGateway,
    Unavailable,
    GatewayTimeout,
    Page,
    LogIn,
    OtherJson,
}

impl Breakage {
    pub(super) const ALL: [Self; 12] = [
        Self::Reset,
        Self::End,
        Self::Cut,
        Self::Refused,
        Self::RequestTimeout,
        Self::TooMany,
        Self::BadGateway,
        Self::Unavailable,
        Self::GatewayTimeout,
        Self::Page,
        Self::LogIn,
        Self::OtherJson,
    ];

    /// Returns true where the same request may succeed when it is sent again.
    pub(super) const fn heals(self) -> bool {
        !matches!(self, Self::Page | Self::LogIn | Self::OtherJson)
    }

    /// What is answered instead; nothing where the connection itself breaks.
    fn answer(self) -> Option<String> {
        let status = |code: u16, reason: &str| {
            format!(
                r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","reason":"{reason}","message":"{reason}","code":{code}}}"#
            )
        };
        let (line, head, body) = match self {
            Self::RequestTimeout => ("408 Request Timeout", "content-type: text/plain", "timed out\n".to_owned()),
            Self::TooMany => (
                "429 Too Many Requests",
                "content-type: application/json\r\nretry-after: 1",
                status(429, "TooManyRequests"),
            ),
            Self::BadGateway => ("502 Bad Gateway", "content-type: text/html", PAGE.to_owned()),
            Self::Unavailable => {
                ("503 Service Unavailable", "content-type: application/json", status(503, "ServiceUnavailable"))
            }
            Self::GatewayTimeout => ("504 Gateway Timeout", "content-type: application/json", status(504, "Timeout")),
            Self::Page => ("200 OK", "content-type: text/html; charset=utf-8", PAGE.to_owned()),
            Self::LogIn => ("302 Found", "location: http://a:SECRET@127.0.0.1:1/login?state=SECRET", String::new()),
            Self::OtherJson => {
                ("200 OK", "content-type: application/json", r#"{"status":"ok","token":"SECRET"}"#.to_owned())
            }
            Self::Reset | Self::End | Self::Cut | Self::Refused => return None,
        };
        Some(format!("HTTP/1.1 {line}\r\n{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
    }
}

/// A relay with the number of requests that have come.
pub(super) struct Relay {
    pub(super) address: String,
    requests: Arc<AtomicUsize>,
}

impl Relay {
    /// Starts a relay for the rest of the test run that breaks the answer to the `nth` request, the first of which is 1; the
    /// upstream is `http://HOST:PORT`. Each connection serves one request.
    pub(super) fn start(upstream: &str, nth: usize, breakage: Breakage) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let relay = Self { address: format!("http://{local}"), requests: Arc::clone(&requests) };
        let upstream = upstream.trim_start_matches("http://").to_owned();
        std::thread::spawn(move || {
            let mut listener = listener;
            for connection in 1.. {
                if breakage == Breakage::Refused && connection == nth {
                    drop(listener);
                    std::thread::sleep(MOMENT);
                    listener = TcpListener::bind(local).unwrap();
                }
                let Ok((stream, _)) = listener.accept() else { return };
                let (requests, upstream) = (Arc::clone(&requests), upstream.clone());
                std::thread::spawn(move || serve(stream, &upstream, &requests, nth, breakage));
            }
        });
        relay
    }

    /// Number of requests so far.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Serves one request; a peer that goes away is no matter of the relay's.
fn serve(mut stream: TcpStream, upstream: &str, requests: &AtomicUsize, nth: usize, breakage: Breakage) -> Option<()> {
    let request = read_but_last_byte(&mut stream)?;
    let breaks = requests.fetch_add(1, Ordering::SeqCst) + 1 == nth;
    let last = {
        let mut last = [0];
        stream.peek(&mut last).ok()?;
        last
    };
    let mut answer = Vec::new();
    // The server does what it is asked, whatever becomes of the answer.
    let mut server = TcpStream::connect(upstream).ok()?;
    server.write_all(&request).ok()?;
    server.write_all(&last).ok()?;
    server.read_to_end(&mut answer).ok()?;
    if breaks && breakage == Breakage::Reset {
        // What is closed while something is unread is reset.
        return None;
    }
    stream.read_exact(&mut [0]).ok()?;
    match (breaks, breakage) {
        (true, Breakage::End) => {}
        (true, Breakage::Cut) => {
            let body = answer.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
            stream.write_all(&answer[..body + (answer.len() - body) / 2]).ok()?;
        }
        (true, _) => match breakage.answer() {
            Some(broken) => stream.write_all(broken.as_bytes()).ok()?,
            None => stream.write_all(&answer).ok()?,
        },
        (false, _) => stream.write_all(&answer).ok()?,
    }
    stream.shutdown(Shutdown::Both).ok()
}

/// Reads a request, and leaves its last byte where it is.
fn read_but_last_byte(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        read.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&read).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    if let Some(length) = length.filter(|length| *length > 0) {
        // The end of the head, and all of the body but one byte.
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        read.extend(body);
    }
    Some(read)
}
