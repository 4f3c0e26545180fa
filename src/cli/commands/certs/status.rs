//! `certs status`: every certificate of a control plane with its holders.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};

use crate::api::names::ControlPlaneName;
use crate::api::values::lifetime;
use crate::certificates::summary::{EXPIRY_HELP, EXPIRY_METRIC};
use crate::chart::output;
use crate::cli::args::global::Global;
use crate::cli::connect::{connect_cluster, find_home};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::table::{Columns, table_row};
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_name;
use crate::control_plane::certificate_status::{AGENT, CertificateRow, CertificateState, observe_certificates};
use crate::control_plane::kubeconfig::write_shared::list_kubeconfig_files;

pub(super) const EXAMPLES: &str = "\
The command only reads. Exit code 7 if a certificate has expired or, with `--fail-under`, expires within that time. For
pods it lists the certificates that the last run of CronJob `fleet-keys` saw, and for agents the certificates that they
report. Agents renew their certificates themselves, so these count for the exit code only if they have expired. If the
hosting cluster does not answer, the command lists the kubeconfig and the address of the API; all other certificates are
`unknown`.

Examples:
  fleetctl certs status demo
  fleetctl certs status demo --context hosting --fail-under 30d
  fleetctl certs status demo -o prometheus";

/// List every certificate of a control plane with its holders
#[derive(Debug, Args)]
pub(crate) struct CertsStatusArgs {
    /// Name of the control plane
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: String,

    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: CertsFormat,

    /// Exit with code 7 if a certificate expires within this time, such as `30d` or `12h`
    #[arg(long, value_name = "DURATION", value_parser = parse_limit)]
    fail_under: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CertsFormat {
    Table,
    Json,
    Yaml,
    /// Text format of Prometheus
    Prometheus,
}

fn parse_limit(text: &str) -> Result<Duration, String> {
    lifetime::parse_lifetime(text, Duration::from_secs(1)).map_err(|error| error.to_string())
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &CertsStatusArgs) -> Result<Exit, CliError> {
    let name: ControlPlaneName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let home = find_home()?;
    let connected = match connect_cluster(global).await {
        Ok(connected) => Ok(connected),
        Err(error) if global.context.is_none() && ["NoKubeconfig", "NoSuchContext"].contains(&error.reason) => {
            Err(error.headline)
        }
        Err(error) => return Err(error),
    };
    let hosting = connected.as_ref().map(|connected| &connected.client).map_err(Clone::clone);
    let merged = list_kubeconfig_files(global.kubeconfig.as_deref(), &home.kubeconfig_path(&name));
    let now = Timestamp::now();
    let rows = observe_certificates(hosting, &home, &merged, &name, &global.namespace, now).await;
    if rows.is_empty() {
        return Err(super::not_installed(&name, global));
    }
    let text = match args.output {
        CertsFormat::Table => format_table(&rows, now),
        CertsFormat::Json => output::format_json(&rows),
        CertsFormat::Yaml => output::format_yaml(&rows),
        CertsFormat::Prometheus => format_prometheus(&rows),
    };
    let exit = if ends_within(&rows, args.fail_under, now) { Exit::Unhealthy } else { Exit::Ok };
    ui.write_last_result(&text, exit)
}

/// Returns whether a certificate has expired, or expires within a time. Agents renew their own ones, which are short.
fn ends_within(rows: &[CertificateRow], within: Option<Duration>, now: Timestamp) -> bool {
    let within = SignedDuration::try_from(within.unwrap_or_default()).unwrap_or(SignedDuration::MAX);
    rows.iter().any(|row| {
        let limit = if row.certificate == AGENT { SignedDuration::ZERO } else { within };
        row.not_after.is_some_and(|end| end.duration_since(now) <= limit)
    })
}

const fn state_word(state: CertificateState) -> &'static str {
    match state {
        CertificateState::Ok => "ok",
        CertificateState::Soon => "soon",
        CertificateState::Expired => "expired",
        CertificateState::NotServed => "not-served",
        CertificateState::Unknown => "unknown",
    }
}

fn format_table(rows: &[CertificateRow], now: Timestamp) -> String {
    let mut lines = vec![table_row(["CERTIFICATE", "HOLDER", "EXPIRES", "DAYS", "STATE", "REASON"])];
    lines.extend(rows.iter().map(|row| {
        let date = row.not_after.map_or_else(|| "-".to_owned(), |end| end.strftime("%F").to_string());
        let days = row
            .not_after
            .map_or_else(|| "-".to_owned(), |end| (end.as_second() - now.as_second()).div_euclid(86_400).to_string());
        let reason = row.reason.as_deref().unwrap_or_default();
        table_row([&row.certificate, &row.holder, &date, &days, state_word(row.state), reason])
    }));
    Columns::from_rows(&lines).format_lines(&lines)
}

fn format_prometheus(rows: &[CertificateRow]) -> String {
    let mut text = format!("# HELP {EXPIRY_METRIC} {EXPIRY_HELP}\n# TYPE {EXPIRY_METRIC} gauge\n");
    for (row, end) in rows.iter().filter_map(|row| Some((row, row.not_after?))) {
        let [certificate, holder] = [&row.certificate, &row.holder]
            .map(|text| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n"));
        // Writing to a String cannot fail.
        let _ =
            writeln!(text, "{EXPIRY_METRIC}{{certificate=\"{certificate}\",holder=\"{holder}\"}} {}", end.as_second());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn rows(now: Timestamp) -> Vec<CertificateRow> {
        let rows = [
            ("Secret apiserver-certs", Some(40), CertificateState::Soon),
            ("https://192.0.2.1:6443", None, CertificateState::Unknown),
        ];
        let rows = rows.map(|(holder, days, state)| CertificateRow {
            certificate: "apiserver.crt".to_owned(),
            holder: holder.to_owned(),
            serial: None,
            not_after: days.map(|days: u64| now + Duration::from_secs(days * DAY)),
            state,
            reason: days.is_none().then(|| "connection refused".to_owned()),
        });
        rows.into()
    }

    #[test]
    fn a_limit_is_reached_by_the_first_certificate_to_end() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        assert!(!ends_within(&rows(now), None, now));
        assert!(!ends_within(&rows(now), Some(Duration::from_secs(39 * DAY)), now));
        assert!(ends_within(&rows(now), Some(Duration::from_secs(40 * DAY)), now));
        assert!(ends_within(&rows(now), None, now + Duration::from_secs(41 * DAY)));
        assert!(parse_limit("30").is_err() && parse_limit("30d").is_ok());
    }

    #[test]
    fn certificates_are_lines_of_a_table_and_of_the_text_format() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        assert_eq!(
            format_table(&rows(now), now),
            "CERTIFICATE     HOLDER                   EXPIRES      DAYS   STATE     REASON\n\
             apiserver.crt   Secret apiserver-certs   2027-02-24   40     soon\n\
             apiserver.crt   https://192.0.2.1:6443   -            -      unknown   connection refused\n"
        );
        let text = format_prometheus(&rows(now));
        assert!(
            text.ends_with("{certificate=\"apiserver.crt\",holder=\"Secret apiserver-certs\"} 1803456000\n"),
            "{text}"
        );
    }
}
