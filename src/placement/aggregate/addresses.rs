//! Addresses of Services and Ingresses: those of all copies, each once.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Serving;
use super::pod::parse_address;
use super::typed::LIST;
use crate::api::names::is_subdomain;
use crate::placement::canonical::to_canonical_json;

/// Most ports of an address.
const PORTS: usize = 20;

impl Serving<'_> {
    /// The addresses of all copies, each once. While the source moves, those of both sides.
    pub(super) fn aggregate_addresses(&self, status: &mut Map<String, Value>) {
        let has_mode = self.source.kind == "Service";
        let mut seen = BTreeSet::new();
        let mut all: Vec<(String, Value)> = Vec::new();
        for copy in self.source.copies {
            let ingress = copy.status.as_ref().and_then(|status| status.pointer("/loadBalancer/ingress"));
            let found = ingress.and_then(Value::as_array).into_iter().flatten().take(10 * LIST);
            all.extend(
                found.filter_map(|one| sanitize_address(one, has_mode)).map(|one| (to_canonical_json(&one), one)),
            );
        }
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all.retain(|(text, _)| seen.insert(text.clone()));
        let ingress: Vec<Value> = all.into_iter().map(|(_, address)| address).take(LIST).collect();
        status.insert("loadBalancer".to_owned(), json!({ "ingress": ingress }));
    }
}

/// Returns the fields of an address that the API server takes; `None` for one that is none.
fn sanitize_address(found: &Value, has_mode: bool) -> Option<Value> {
    let mut address = Map::new();
    if let Some(ip) = found["ip"].as_str().filter(|ip| parse_address(ip).is_some()) {
        address.insert("ip".to_owned(), ip.into());
        let mode = found["ipMode"].as_str().filter(|mode| has_mode && ["VIP", "Proxy"].contains(mode));
        address.extend(mode.map(|mode| ("ipMode".to_owned(), mode.into())));
    }
    if let Some(host) = found["hostname"].as_str().filter(|host| is_subdomain(host) && parse_address(host).is_none()) {
        address.insert("hostname".to_owned(), host.into());
    }
    if address.is_empty() {
        return None;
    }
    let ports = found.get("ports").and_then(Value::as_array).into_iter().flatten().filter_map(sanitize_port);
    let ports: Vec<Value> = ports.take(PORTS).collect();
    if !ports.is_empty() {
        address.insert("ports".to_owned(), ports.into());
    }
    Some(Value::Object(address))
}

fn sanitize_port(port: &Value) -> Option<Value> {
    let number = port.get("port").and_then(Value::as_i64).filter(|number| (1..=65535).contains(number))?;
    let protocol = port.get("protocol").and_then(Value::as_str);
    let protocol = protocol.filter(|protocol| ["TCP", "UDP", "SCTP"].contains(protocol))?;
    Some(json!({ "port": number, "protocol": protocol }))
}
