//! Causes from the last lines of a container's log, which Kubernetes itself cannot see.

use super::diagnosis::CauseId;
use crate::api::kubernetes_record;
use crate::api::readiness_log;
use crate::api::remedy::{Action, Command, Place, Remedy};
use crate::api::util::text::contains_any;

/// Returns the cause in a log, with its line: the latest counts, because earlier failures may be resolved. A program
/// that retries may log a different detail each time; a specific cause counts before a general one: a rejected
/// certificate shows as a TLS alert or, if the alert comes late, as a closed connection.
pub(crate) fn find_log_cause(lines: &[String]) -> Option<(CauseId, &str)> {
    let since = lines.iter().rev().take_while(|line| !readiness_log::is_ready(line));
    let mut causes = since.filter_map(|line| Some((cause_of(line)?, line.as_str())));
    let latest = causes.next()?;
    if latest.0 != CauseId::ComponentFailing {
        return Some(latest);
    }
    // Beyond a line about something else, it had got further.
    let mut tries = causes.take_while(|(_, line)| parse_failed_task(line) == parse_failed_task(latest.1));
    Some(tries.find(|(cause, _)| *cause != CauseId::ComponentFailing).unwrap_or(latest))
}

/// Returns what a line says that a program cannot do, without the detail: `etcd does not answer`.
fn parse_failed_task(line: &str) -> Option<String> {
    let reason = readiness_log::not_ready_reason(line)?;
    Some(reason.split_once(": ").map_or(reason.as_str(), |(task, _)| task).to_owned())
}

/// Returns whether a line is one of an API server's audit log: about requests of others, whatever it quotes, and so
/// never a cause.
pub(crate) fn is_audit(line: &str) -> bool {
    line.starts_with(r#"{"kind":"Event","apiVersion":"audit.k8s.io/"#)
}

fn cause_of(line: &str) -> Option<CauseId> {
    let lower = line.to_lowercase();
    if contains_any(
        &lower,
        &[
            "certificate has expired",
            "certificate is not yet valid",
            "expired or is not yet valid",
            "expired certificate",
            // rustls, of its own certificate and of the other side's.
            "alert: certificateexpired",
            "certificate expired",
            "certificate not valid yet",
        ],
    ) {
        return Some(CauseId::CertificateExpired);
    }
    if contains_any(
        &lower,
        &[
            "unknown authority",
            "unknown certificate authority",
            "unknown ca",
            "unknownissuer",
            "bad certificate",
            "invalid peer certificate",
            "alert: unknownca",
            "alert: badcertificate",
            "alert: certificateunknown",
        ],
    ) {
        return Some(CauseId::CertificateUntrusted);
    }
    // Go prints `lookup NAME on SERVER: …`; the rest is of Rust and libc.
    let looked_up = contains_any(&lower, &["lookup "])
        && contains_any(
            &lower,
            &[
                "no such host",
                "i/o timeout",
                "connection refused",
                "server misbehaving",
                "no route",
                "operation not permitted",
            ],
        );
    if looked_up
        || contains_any(
            &lower,
            &["failed to lookup address", "name or service not known", "temporary failure in name resolution"],
        )
    {
        return Some(CauseId::NameLookupFailed);
    }
    if kubernetes_record::parse_held_reason(line).is_some() {
        return Some(CauseId::VersionGuard);
    }
    readiness_log::not_ready_reason(line).map(|_| CauseId::ComponentFailing)
}

/// The name that does not exist, by a line. A lookup without an answer proves nothing about the name.
pub(crate) fn unknown_name(line: &str) -> Option<&str> {
    let (before, _) = line.split_once("no such host")?;
    let (_, name) = before.rsplit_once("lookup ")?;
    name.split([' ', ':']).next()
}

/// The remedy of a cause that a log shows.
pub(crate) fn log_cause_remedy(cause: CauseId) -> Remedy {
    match cause {
        CauseId::NameLookupFailed => {
            "check the DNS of the cluster: `kubectl -n kube-system get pods -l k8s-app=kube-dns`".into()
        }
        CauseId::ComponentFailing => "fix the cause in the log line; the container retries by itself".into(),
        CauseId::VersionGuard => {
            "apply the previous manifest again, or upgrade one minor version at a time and let each run for five minutes; the value `apiserver.image.tag` sets the version"
                .into()
        }
        CauseId::CertificateExpired => {
            "check the clocks of the nodes; run the same install again to reissue expired certificates".into()
        }
        _ => Remedy::new("a Secret with keys was changed: ")
            .command(Command::at_place(Place::Any, Action::Diff(None)))
            .text(", with the flags of the install, shows which one; run the same install again to restore it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_name_needs_an_answer() {
        let dial = "dial tcp: lookup etcd-2.etcd.fleet.svc on 10.96.0.10:53: ";
        assert_eq!(unknown_name(&format!("{dial}no such host")), Some("etcd-2.etcd.fleet.svc"));
        assert_eq!(unknown_name("lookup etcd-2.etcd.fleet.svc: no such host"), Some("etcd-2.etcd.fleet.svc"));
        assert_eq!(unknown_name(&format!("{dial}i/o timeout")), None);
        assert_eq!(unknown_name("no such host"), None);
    }

    fn log_cause_id(lines: &[&str]) -> Option<String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        find_log_cause(&lines).map(|(cause, _)| cause.id())
    }

    #[test]
    fn latest_cause_in_a_log_counts() {
        for (line, id) in [
            (
                r#"W1121 grpc: addrConn.createTransport failed to connect to {Addr: "etcd-client.fleet.svc:2379"}. Err: connection error: desc = "transport: Error while dialing dial tcp: lookup etcd-client.fleet.svc on 10.96.0.10:53: read udp 10.1.0.4:1->10.96.0.10:53: i/o timeout""#,
                "name-lookup-failed",
            ),
            (
                r#"Err: connection error: desc = "transport: authentication handshake failed: x509: certificate signed by unknown authority""#,
                "certificate-untrusted",
            ),
            ("remote error: tls: bad certificate", "certificate-untrusted"),
            (
                "x509: certificate has expired or is not yet valid: current time 2026-01-01T00:00:00Z",
                "certificate-expired",
            ),
            ("remote error: tls: expired certificate", "certificate-expired"),
            ("transport error: connection error: received fatal alert: UnknownCA", "certificate-untrusted"),
            ("transport error: connection error: received fatal alert: BadCertificate", "certificate-untrusted"),
            ("transport error: connection error: received fatal alert: CertificateExpired", "certificate-expired"),
            ("invalid peer certificate: certificate expired: verification time 2 (UNIX)", "certificate-expired"),
            ("invalid peer certificate: UnknownIssuer", "certificate-untrusted"),
        ] {
            assert_eq!(log_cause_id(&["starting", line]).as_deref(), Some(id), "{line}");
        }
        let failing = "WARN fleet-scheduler is not ready: Bootstrapped: ApplyFailed: FlowSchema a: 404";
        assert_eq!(log_cause_id(&["starting", failing, "another line"]).as_deref(), Some("component-failing"));
        assert_eq!(log_cause_id(&[failing, "INFO fleet-scheduler is ready: leading"]), None);
        let closed = "WARN fleet-scheduler is not ready: etcd does not answer: connection closed";
        let refused = "WARN fleet-scheduler is not ready: etcd does not answer: received fatal alert: UnknownCA";
        assert_eq!(log_cause_id(&[refused, closed]).as_deref(), Some("certificate-untrusted"), "the same, tried again");
        assert_eq!(log_cause_id(&[refused, failing]).as_deref(), Some("component-failing"), "it has got further since");
        let since = [refused, failing, closed];
        assert_eq!(log_cause_id(&since).as_deref(), Some("component-failing"), "it had got further in between");
        assert_eq!(log_cause_id(&["somebody is not ready: yet"]), None, "what other programs say");
        assert_eq!(
            log_cause_id(&["certificate has expired", "lookup a on b: no such host"]).as_deref(),
            Some("name-lookup-failed")
        );
        assert_eq!(
            log_cause_id(&["dial tcp 10.0.0.1:2379: connect: connection refused", "lookup table rebuilt"]),
            None
        );
    }
}
