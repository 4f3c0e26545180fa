//! Keeps the record of a mass loss in a ConfigMap, so that the next leader continues with it.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Monitor;
use crate::api::labels::SCHEDULER_MANAGER;
use crate::api::mass_loss::{KEY, MassLossRecord, NAME, NAMESPACE};
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};

impl Monitor {
    /// Reads the record that a former leader left.
    pub(super) async fn read_mass_loss(&self) -> Result<Option<MassLossRecord>, CallError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let found = call_with_timeout(maps.get_opt(NAME)).await?;
        Ok(found.and_then(|map| MassLossRecord::from_text(map.data?.get(KEY)?)))
    }

    /// Writes the record, or that there is none.
    pub(super) async fn write_mass_loss(&self, record: Option<&MassLossRecord>) -> Result<(), CallError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let data = record.map_or_else(|| json!({}), |record| json!({ KEY: record.to_text() }));
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": NAME, "namespace": NAMESPACE, "labels": { "app.kubernetes.io/part-of": "fleet" } },
            "data": data,
        });
        let params = PatchParams::apply(SCHEDULER_MANAGER).force();
        call_with_timeout(maps.patch(NAME, &params, &Patch::Apply(&map))).await?;
        Ok(())
    }
}
