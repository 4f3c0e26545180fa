//! Records by which Kubernetes minor the objects of the control plane are stored, for the guard of its API server: see
//! [`crate::api::kubernetes_record`]. A newer minor counts once the API server has answered as nothing else for five
//! minutes: until then a change that fails can be undone. The first record is written at once.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

use crate::api::kubernetes_record::{self, KEY, NAME, NAMESPACE};
use crate::api::labels::SCHEDULER_MANAGER;
use crate::api::version::KubeMinor;
use crate::daemon::log::OnChange;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};

/// Time between two looks at the version of the API server.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Time for which it must be of one minor before that is recorded.
const STEADY: Duration = Duration::from_secs(300);

/// Minor version that the API server is known to serve.
#[derive(Debug, Default)]
struct Served {
    /// Its minor, and the time since which it has been of that.
    serves: Option<(KubeMinor, Instant)>,
}

impl Served {
    /// Takes note of the minor of an answer. Returns whether it is to be recorded in place of `recorded`.
    fn is_to_record(&mut self, minor: KubeMinor, recorded: Option<KubeMinor>, now: Instant) -> bool {
        let since = match self.serves {
            Some((before, since)) if before == minor => since,
            _ => now,
        };
        self.serves = Some((minor, since));
        recorded.is_none_or(|recorded| minor > recorded && now.duration_since(since) >= STEADY)
    }
}

/// Keeps the record; never returns.
pub(super) async fn maintain_kubernetes_record(client: Client) {
    let logged = OnChange::default();
    let mut seen = Served::default();
    let mut recorded = None;
    loop {
        let outcome = update_kubernetes_record(&client, &mut seen, &mut recorded)
            .await
            .map_or_else(|e| e.to_string(), |()| String::new());
        if logged.record_if_changed("record", &outcome) && !outcome.is_empty() {
            tracing::warn!(error = outcome, "recording the Kubernetes version failed");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Compares the version of the API server with the record, which is read only where they differ.
async fn update_kubernetes_record(
    client: &Client,
    seen: &mut Served,
    recorded: &mut Option<KubeMinor>,
) -> Result<(), CallError> {
    let version = call_with_timeout(client.apiserver_version()).await?;
    let Ok(minor) = format!("{}.{}", version.major, version.minor).parse() else { return Ok(()) };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    if *recorded != Some(minor) {
        let found = call_with_timeout(api.get_opt(NAME)).await?;
        *recorded = found.and_then(|map| kubernetes_record::find_recorded_minor(map.data?.get(KEY)?.as_bytes()));
    }
    if !seen.is_to_record(minor, *recorded, Instant::now()) {
        return Ok(());
    }
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": { "app.kubernetes.io/part-of": "fleet" },
        },
        "data": { KEY: kubernetes_record::format_record(minor) },
    });
    call_with_timeout(api.patch(NAME, &PatchParams::apply(SCHEDULER_MANAGER).force(), &Patch::Apply(&map))).await?;
    tracing::info!(version = %minor, "recorded the Kubernetes version that stores the control plane's objects");
    *recorded = Some(minor);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_minor_is_recorded_once_nothing_else_has_answered_for_a_while() {
        let start = Instant::now();
        let mut seen = Served::default();
        for (second, served, recorded, expected) in [
            (0, 36, None, true),
            (1000, 36, Some(36), false),
            (1030, 37, Some(36), false),
            // A replica of before.
            (1200, 36, Some(36), false),
            (1230, 37, Some(36), false),
            (1500, 37, Some(36), false),
            (1530, 37, Some(36), true),
            // What was stored stays stored.
            (9999, 36, Some(37), false),
        ] {
            let (served, recorded) = (KubeMinor::new(1, served), recorded.map(|minor| KubeMinor::new(1, minor)));
            let is_recorded = seen.is_to_record(served, recorded, start + Duration::from_secs(second));
            assert_eq!(is_recorded, expected, "{second}: {served} instead of {recorded:?}");
        }
    }
}
