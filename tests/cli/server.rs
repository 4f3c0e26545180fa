//! API servers that are a function from a request to an answer, for what a command says before any real cluster is needed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::Sandbox;

/// What a server says: a status code and a body.
pub(crate) type Answer = (u16, Value);

/// A request as it was sent.
pub(crate) struct Asked {
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
}

/// An answer as it is sent.
pub(crate) struct Said {
    pub(crate) status: u16,
    /// Lines of the head besides the length, without the end of the last.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// Starts a server for the rest of the test run and gives its address. `answer` gets the method and the path with its query.
pub(crate) fn serve(answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> String {
    serve_as_it_is(move |asked| {
        let (status, body) = answer(&asked.method, &asked.path);
        Said { status, head: b"content-type: application/json".to_vec(), body: body.to_string().into_bytes() }
    })
}

/// The same for answers that are no JSON, or have more in their heads.
pub(crate) fn serve_as_it_is(answer: impl Fn(Asked) -> Said + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            // A client that goes away in the middle is no matter of the server's.
            std::thread::spawn(move || one(&stream, &*answer));
        }
    });
    address
}

fn one(stream: &TcpStream, answer: &dyn Fn(Asked) -> Said) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        length = header.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap_or(0));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let Said { status, head, body } = answer(Asked { method, path, body });
    let mut answer =
        format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n", body.len()).into_bytes();
    answer.extend([&head[..], b"\r\n\r\n", &body].concat());
    (&*stream).write_all(&answer).ok()
}

/// The answer to a request for what is not there.
pub(crate) fn not_found() -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404});
    (404, status)
}

/// The answer to a request that is not allowed.
pub(crate) fn forbidden() -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "you may not", "code": 403});
    (403, status)
}

/// The answer of a server that cannot answer now.
pub(crate) fn busy() -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "ServiceUnavailable", "message": "etcdserver: leader changed", "code": 503});
    (503, status)
}

/// A list of these objects.
pub(crate) fn list(items: &[Value]) -> Answer {
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
}

/// The text of a kubeconfig with one context.
pub(crate) fn kubeconfig(context: &str, server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {{}}}}]\n\
         contexts: [{{name: {context}, context: {{cluster: c, user: u}}}}]\ncurrent-context: {context}\n"
    )
}

/// Makes `server` the current cluster of a sandbox, under the context `hosting`.
pub(crate) fn use_cluster(sandbox: &Sandbox, server: &str) {
    with_kubeconfig(sandbox, &kubeconfig("hosting", server));
}

/// Gives a sandbox this kubeconfig where kubectl looks for one.
pub(crate) fn with_kubeconfig(sandbox: &Sandbox, text: &str) {
    std::fs::create_dir_all(sandbox.path().join(".kube")).unwrap();
    sandbox.file(".kube/config", text);
}
