//! API servers that are a function from a request to an answer, for what a command says before any real cluster is needed.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::Sandbox;

/// What a server says: a status code and a body.
pub(crate) type Answer = (u16, Value);

/// How a server talks TLS, and the CA that has signed its certificate, as PEM.
static TLS: LazyLock<(Arc<ServerConfig>, String)> = LazyLock::new(|| {
    let mut params = rcgen::CertificateParams::default();
    // Other than that of the certificate, which would be taken for a self-signed one.
    params.distinguished_name.push(rcgen::DnType::CommonName, "the CA of these tests");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    (Arc::new(config), ca)
});

/// The CA that has signed the certificate of every server here, as PEM.
pub(crate) fn ca() -> &'static str {
    &TLS.1
}

/// The first byte of what a client sends who talks TLS: a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// A request as it was sent.
pub(crate) struct Asked {
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    /// The header about who asks.
    pub(crate) authorization: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// An answer as it is sent.
pub(crate) struct Said {
    pub(crate) status: u16,
    /// Lines of the head besides the length, without the end of the last.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// Starts a server for the rest of the test run and gives its address, at which it talks plain HTTP and, to those who begin
/// with a handshake, TLS. `answer` gets the method and the path with its query.
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
            std::thread::spawn(move || {
                let mut first = [0];
                stream.peek(&mut first).ok()?;
                if first == [HANDSHAKE] {
                    let connection = ServerConnection::new(Arc::clone(&TLS.0)).ok()?;
                    let mut stream = StreamOwned::new(connection, stream);
                    one(&mut stream, &*answer)?;
                    stream.conn.send_close_notify();
                    stream.flush().ok()
                } else {
                    one(&mut &stream, &*answer)
                }
            });
        }
    });
    address
}

fn one(stream: &mut (impl Read + Write), answer: &dyn Fn(Asked) -> Said) -> Option<()> {
    let mut reader = BufReader::new(&mut *stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let header = line.trim().to_ascii_lowercase();
        if header.starts_with("authorization:") {
            authorization = Some(line.trim()["authorization:".len()..].trim().to_owned());
        }
        if header.is_empty() {
            break;
        }
        length = header.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap_or(0));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let Said { status, head, body } = answer(Asked { method, path, authorization, body });
    let mut answer =
        format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n", body.len()).into_bytes();
    answer.extend([&head[..], b"\r\n\r\n", &body].concat());
    stream.write_all(&answer).ok()
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

/// The same over TLS, with the CA of a [`serve`]d one.
pub(crate) fn tls_kubeconfig(context: &str, server: &str) -> String {
    let ca = format!("certificate-authority-data: {}", STANDARD.encode(&TLS.1));
    let server = server.replace("http://", "https://");
    kubeconfig(context, &server).replace(&format!("server: \"{server}\""), &format!("server: \"{server}\", {ca}"))
}

/// The kubeconfig that an install of a control plane whose API is this [`serve`]d one writes.
pub(crate) fn admin_kubeconfig(name: &str, server: &str) -> String {
    let server = server.replace("http://", "https://");
    let ca = STANDARD.encode(&TLS.1);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: {name}\n  cluster:\n    certificate-authority-data: {ca}\n    server: {server}\n\
         users:\n- name: fleet-admin@{name}\n  user:\n    token: hub\n\
         contexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: fleet-admin@{name}\ncurrent-context: {name}\n"
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
