//! What the next install makes of what an uninstall has kept: as far as it is refused, no cluster is needed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::Sandbox;
use crate::check::empty;
use crate::server::{list, serve, use_cluster};

/// The Secret of a control plane `demo` that was removed.
fn record(release: &Value) -> Value {
    let owner = json!({"kind": "control-plane", "name": "demo", "namespace": "fleet"});
    let record = json!({"format": 1, "owner": owner, "installUid": "u", "phase": "removed", "release": release,
        "namespaceCreated": true, "written": "2026-01-31T12:00:00Z", "inventory": []});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleetctl.demo", "uid": "u", "resourceVersion": "1"},
        "data": {"record": STANDARD.encode(record.to_string())}})
}

#[test]
fn the_node_port_of_an_earlier_install_is_refused_before_any_write_where_another_service_has_it() {
    let facts = json!({"exposure": "NodePort", "server": "https://192.0.2.10:31234", "host": "192.0.2.10"});
    let release = json!({"chart": "control-plane/v0.6", "version": "v0.6.1", "valuesDigest": "d", "facts": facts});
    let record = record(&release);
    let server = serve(move |method, path| match path.split('?').next() {
        Some("/api/v1/namespaces/fleet/secrets/fleetctl.demo") => (200, record.clone()),
        Some("/api/v1/services") => list(&[
            json!({"metadata": {"name": "front", "namespace": "web"}, "spec": {"ports": [{"port": 80, "nodePort": 31234}]}}),
        ]),
        _ => empty(method, path),
    });
    let sandbox = Sandbox::new();
    use_cluster(&sandbox, &server);
    let said = |more: &[&str]| sandbox.run(&[&["check", "demo", "--pre", "-o", "short"], more].concat()).stdout;
    let refused =
        "failed node-port: node port 31234, which agents and kubeconfigs of demo call, is held by Service web/front";
    assert!(said(&[]).contains(refused), "{}", said(&[]));
    // The way out that is told; and where no node port is wanted, it is of no matter.
    for other in ["exposure.nodePort=31235", "exposure.type=LoadBalancer"] {
        assert!(!said(&["--set", other]).contains("failed node-port"), "{other}");
    }
}
