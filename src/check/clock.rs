//! Check for clocks that differ: certificates and tokens are valid from and until a time.

use kube::Client;

use super::CheckResult;

/// Returns the whole seconds by which the server's clock is ahead of the local one, by the `Date` of an answer; `None`
/// where it told no time.
pub(super) async fn read_clock_ahead(client: &Client) -> Option<i64> {
    let request = http::Request::get("/version").body(kube::client::Body::empty()).ok()?;
    let answer = client.send(request).await.ok()?;
    let date = answer.headers().get(http::header::DATE)?.to_str().ok()?;
    let server = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    Some(server.as_second() - jiff::Timestamp::now().as_second())
}

/// Seconds before the local clock's time from which certificates are valid: five minutes.
const CLOCK_ALLOWANCE: i64 = 5 * 60;
/// Seconds by which equal clocks can seem to differ, for the resolution of the `Date` header and a slow answer.
const CLOCK_NOISE: i64 = 5;

/// Evaluates the clock of a cluster in which certificates are used that this machine issues.
pub(super) fn evaluate_issuer_clock(ahead: Option<i64>) -> CheckResult {
    let Some(ahead) = ahead else {
        return CheckResult::new_warning(
            "the API server sent no `Date` header",
            "compare the clocks of this machine and of the cluster",
        );
    };
    let what = describe_difference(ahead);
    let remedy = "synchronize both clocks, for example with NTP: certificates that this machine issues would not be \
                  valid in the cluster yet";
    match ahead.abs() {
        0..=CLOCK_NOISE => CheckResult::Passed("agrees with the clock of this machine".to_owned()),
        _ if ahead < -CLOCK_ALLOWANCE + CLOCK_NOISE => CheckResult::new_failure(what, remedy),
        _ => CheckResult::new_warning(what, "synchronize both clocks, for example with NTP"),
    }
}

/// Says by how much the clocks differ.
fn describe_difference(ahead: i64) -> String {
    let way = if ahead > 0 { "ahead of" } else { "behind" };
    format!("the cluster's clock is {} s {way} the clock of this machine", ahead.abs())
}

/// Evaluates the clock of a workload cluster, whose agent gets its certificates from a control plane elsewhere.
pub(super) fn evaluate_agent_clock(ahead: Option<i64>) -> CheckResult {
    let Some(ahead) = ahead else { return CheckResult::Passed("the API server sent no `Date` header".to_owned()) };
    if ahead.abs() <= CLOCK_ALLOWANCE {
        return CheckResult::Passed("agrees with the clock of this machine".to_owned());
    }
    CheckResult::new_warning(
        describe_difference(ahead),
        "synchronize the clocks of the cluster, of its control plane and of this machine, for example with NTP: \
         certificates that are not valid yet, or have expired, are refused",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warns_of_clock(ahead: Option<i64>) -> bool {
        matches!(evaluate_agent_clock(ahead), CheckResult::Warned(_))
    }

    #[test]
    fn an_agents_cluster_may_be_minutes_apart() {
        assert_eq!([Some(0), Some(300), Some(-300), None].map(warns_of_clock), [false; 4]);
        assert_eq!([Some(301), Some(-7200)].map(warns_of_clock), [true; 2]);
    }
}
