//! `fleet-agent probe`: checks the connection to the control plane from a pod of this cluster, hop by hop.
//!
//! It runs in a short-lived pod before an agent is installed: with the same image, on the same network, from the same
//! Secret. Its result is one line of JSON, which a pod shows as its termination message.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use k8s_openapi::jiff::{self, Timestamp};
use tokio::net::TcpStream;

use crate::api::probe::Outcome;
use crate::k8s::connect::connect_error::{Hop, classify_hop};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout, token_client};
use crate::k8s::connect::init_kubeconfig::Init;

/// Timeout of one hop.
const HOP: Duration = Duration::from_secs(5);
/// Difference of clocks, in seconds, beyond which certificates and tokens look expired or not yet valid.
const SKEW: i64 = 60;

/// Tests the connection to the control plane, and reports the hop that fails.
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    /// Kubeconfig to test, from the Secret `fleet-cluster-init-kubeconfig`
    #[arg(long, env = "FLEET_CONTROL_PLANE_KUBECONFIG", default_value = "/etc/fleet/kubeconfig", value_name = "FILE")]
    control_plane_kubeconfig: PathBuf,

    /// Additional file for the result
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
}

/// Runs the probe. Returns whether every hop was passed.
///
/// # Errors
/// A result that cannot be written.
pub fn run_probe_command(args: &ProbeArgs) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(probe_connection(args));
    runtime.shutdown_background();
    let line = serde_json::to_string(&outcome)?;
    tracing::info!(outcome = line, "probe");
    if let Some(file) = &args.result {
        fs_err::write(file, &line)?;
    }
    Ok(outcome.passed)
}

fn failed_outcome(hop: &str, message: impl Into<String>) -> Outcome {
    Outcome { passed: false, hop: hop.to_owned(), message: message.into(), clock_skew: None }
}

async fn probe_connection(args: &ProbeArgs) -> Outcome {
    let init = match Init::read_mounted_file(&args.control_plane_kubeconfig) {
        Ok(init) => init,
        Err(error) => return failed_outcome("Secret", error.to_string()),
    };
    match probe_hops(&init).await {
        Ok(outcome) | Err(outcome) => outcome,
    }
}

/// Host and port of the control plane's URL.
fn host_and_port(server: &str) -> Option<(String, u16)> {
    let url: http::Uri = server.parse().ok()?;
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some((host, url.port_u16().unwrap_or(443)))
}

async fn probe_hops(init: &Init) -> Result<Outcome, Outcome> {
    let server = &init.server;
    let (host, port) = host_and_port(server)
        .ok_or_else(|| failed_outcome("Secret", format!("`{server}` is not the URL of a server")))?;
    // A proxy looks the name up itself, and is the only one that is dialled.
    if init.find_proxy().map_err(|error| failed_outcome("proxy", error.to_string()))?.is_none() {
        let found = resolve_addresses(&host, port).await;
        let found = found.map_err(|why| failed_outcome("DNS", format!("{host} has no address: {why}")))?;
        connect_to_any(&found)
            .await
            .map_err(|why| failed_outcome("TCP", format!("{host}:{port} does not answer: {why}")))?;
    }
    let skew = check_authentication(init).await?;
    Ok(Outcome { passed: true, hop: String::new(), message: server.clone(), clock_skew: skew })
}

async fn resolve_addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    match tokio::time::timeout(HOP, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(found)) => {
            let found: Vec<SocketAddr> = found.collect();
            if found.is_empty() { Err("the name exists, but has no address".to_owned()) } else { Ok(found) }
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", HOP.as_secs())),
    }
}

/// Connects to any of the addresses: one is enough, as it is for the agent.
async fn connect_to_any(addresses: &[SocketAddr]) -> Result<(), String> {
    let mut why = String::new();
    for address in addresses {
        match tokio::time::timeout(HOP, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => why = error.to_string(),
            Err(_) => why = format!("no answer within {} s", HOP.as_secs()),
        }
    }
    Err(why)
}

/// Checks TLS, the clock and the token, by one request that the token allows: a read of a CSR that does not exist.
async fn check_authentication(init: &Init) -> Result<Option<i64>, Outcome> {
    let client = token_client(init).map_err(|error| failed_outcome("Secret", error.to_string()))?;
    let request = http::Request::get("/apis/certificates.k8s.io/v1/certificatesigningrequests/fleet-probe");
    let request =
        request.body(kube::client::Body::empty()).map_err(|error| failed_outcome("Secret", error.to_string()))?;
    let answer = match call_with_timeout(client.send(request)).await {
        Ok(answer) => answer,
        Err(error) => return Err(call_error_outcome(&error, &init.server)),
    };
    let skew = answer
        .headers()
        .get(http::header::DATE)
        .and_then(|date| clock_skew_seconds(date.to_str().ok()?, Timestamp::now()));
    if let Some(seconds) = skew.filter(|seconds| seconds.abs() > SKEW) {
        let way = if seconds > 0 { "ahead of" } else { "behind" };
        let message = format!("the clock of the pod's node is {} s {way} the control plane's clock", seconds.abs());
        return Err(Outcome { clock_skew: skew, ..failed_outcome("Clock", message) });
    }
    match answer.status().as_u16() {
        200 | 404 => Ok(skew),
        401 => Err(failed_outcome("Authentication", "the control plane does not accept the token of the init Secret")),
        403 => {
            Err(failed_outcome("Authorization", "the token of the init Secret is not allowed to request a certificate"))
        }
        status => Err(failed_outcome("Server", format!("the control plane answered with status {status}"))),
    }
}

fn call_error_outcome(error: &CallError, server: &str) -> Outcome {
    let text = error.to_string();
    let lower = text.to_lowercase();
    match classify_hop(error) {
        Hop::Tls if lower.contains("notvalidforname") || lower.contains("not valid for name") => failed_outcome(
            "TLS",
            format!("the control plane's certificate has no SAN for the address in {server}: {text}"),
        ),
        Hop::Tls if lower.contains("expired") || lower.contains("notvalidyet") || lower.contains("not valid yet") => {
            failed_outcome(
                "Clock",
                format!(
                    "the control plane's certificate has expired or is not valid yet, or this cluster's clock is \
                     wrong: {text}"
                ),
            )
        }
        Hop::Tls => failed_outcome("TLS", text),
        hop => failed_outcome(hop.as_str(), text),
    }
}

/// Returns the seconds by which our clock is ahead of a `Date` header.
fn clock_skew_seconds(date: &str, now: Timestamp) -> Option<i64> {
    let theirs = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    Some(now.as_second() - theirs.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(server: &str) -> Init {
        let ca = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t";
        Init::parse(&format!(
            "clusters: [{{name: f, cluster: {{server: '{server}', certificate-authority-data: {ca}}}}}]\n\
             users: [{{name: u, user: {{token: abcdef.0123456789abcdef}}}}]"
        ))
        .unwrap()
    }

    async fn fails_at(server: &str) -> String {
        let outcome = probe_hops(&init(server)).await.unwrap_err();
        assert!(!outcome.passed && !outcome.message.contains("0123456789abcdef"), "{outcome:?}");
        outcome.hop
    }

    #[tokio::test]
    async fn the_hop_that_fails_is_named() {
        assert_eq!(fails_at("https://no-such-name.invalid:443").await, "DNS");
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert_eq!(fails_at(&format!("https://127.0.0.1:{port}")).await, "TCP");
        // Something that answers, and not with TLS.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        });
        assert_eq!(fails_at(&format!("https://{address}")).await, "TLS");
        assert_eq!(fails_at("https://").await, "Secret");
    }

    #[test]
    fn clock_skew_is_read_from_the_date() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        assert_eq!(clock_skew_seconds("Fri, 15 Jan 2027 08:00:00 GMT", now), Some(0));
        assert_eq!(clock_skew_seconds("Fri, 15 Jan 2027 08:10:00 GMT", now), Some(-600));
        assert_eq!(clock_skew_seconds("soon", now), None);
    }
}
