//! Metric of the ends of certificates, read from the mounted ConfigMap that each renewal writes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::certificates::summary::{EXPIRY_HELP, EXPIRY_METRIC, HeldCertificate};
use crate::daemon::metrics::Metrics;

/// Time between two reads: a volume follows its ConfigMap within a minute or two.
const POLL: Duration = Duration::from_secs(60);

/// Keeps the metric as the file says.
pub(super) async fn follow_certificates(file: PathBuf, metrics: Metrics) {
    loop {
        publish_certificates(&file, &metrics);
        tokio::time::sleep(POLL).await;
    }
}

/// Sets the metric. While there is no list, as before the first renewal, it is unchanged.
fn publish_certificates(file: &Path, metrics: &Metrics) {
    let Ok(text) = std::fs::read(file) else { return };
    let list: Vec<HeldCertificate> = match serde_json::from_slice(&text) {
        Ok(list) => list,
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "the list of certificates cannot be read");
            return;
        }
    };
    let labels: Vec<_> = list
        .iter()
        .map(|held| [("certificate", held.certificate.as_str()), ("holder", held.holder.as_str())])
        .collect();
    #[allow(clippy::cast_precision_loss)] // Seconds far below 2^52.
    let ends = list.iter().map(|held| held.not_after.as_second() as f64);
    metrics.replace_gauge(EXPIRY_METRIC, EXPIRY_HELP, labels.iter().map(<[_; 2]>::as_slice).zip(ends));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish_holder(file: &Path, metrics: &Metrics, pod: &str) {
        let held = serde_json::json!([{"certificate": "apiserver.crt", "holder": pod, "serial": "01",
            "notAfter": "2027-01-15T08:00:00Z"}]);
        std::fs::write(file, held.to_string()).unwrap();
        publish_certificates(file, metrics);
    }

    #[test]
    fn each_holder_has_a_value_and_one_that_is_gone_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("certificates.json");
        let metrics = Metrics::default();
        publish_certificates(&file, &metrics);
        assert_eq!(metrics.format_metrics(), "");
        publish_holder(&file, &metrics, "Pod apiserver-1:6443");
        std::fs::write(&file, "no list").unwrap();
        publish_certificates(&file, &metrics);
        assert!(metrics.format_metrics().contains("apiserver-1"), "what cannot be read changes nothing");
        publish_holder(&file, &metrics, "Pod apiserver-2:6443");
        let shown = metrics.format_metrics();
        let line = "fleet_certificate_expiry_timestamp_seconds{certificate=\"apiserver.crt\",holder=\"Pod apiserver-2:6443\"} 1800000000\n";
        assert!(shown.ends_with(line) && !shown.contains("apiserver-1"), "{shown}");
    }
}
