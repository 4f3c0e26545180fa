//! Status of Pods: the worst phase, and what the copy in that phase says of its containers and addresses.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::ContainerStatus;
use serde_json::{Map, Value, json};

use super::Serving;
use super::conditions;
use super::copy::CopyStatus;
use super::typed;
use crate::api::placeable::CONTAINER_STATUS_FIELDS;

/// Most containers of a list.
const CONTAINERS: usize = 20;
/// Phases, the worst first.
const PHASES: [&str; 5] = ["Failed", "Unknown", "Pending", "Running", "Succeeded"];

impl Serving<'_> {
    pub(super) fn aggregate_pod(&self, status: &mut Map<String, Value>) {
        let all = conditions::merge_conditions(&self.copies);
        conditions::insert_conditions(status, all);
        let worst = PHASES.into_iter().find_map(|phase| {
            let copy = self.copies.iter().find(|copy| copy.text_field("phase") == Some(phase))?;
            Some((phase, *copy))
        });
        let Some((phase, copy)) = worst else { return };
        status.insert("phase".to_owned(), phase.into());
        if let Some(reason) = copy.status_field("reason").and_then(typed::read_reason) {
            status.insert("reason".to_owned(), reason.into());
        }
        let message = copy.status_field("message").map(typed::read_message).filter(|message| !message.is_empty());
        status.extend(message.map(|message| ("message".to_owned(), message.into())));
        status.extend(copy.time_field("startTime").map(|start| ("startTime".to_owned(), start.into())));
        insert_addresses(copy, status);
        for field in ["initContainerStatuses", "containerStatuses"] {
            let containers = copy.status_field(field).and_then(Value::as_array).into_iter().flatten();
            let containers: Vec<Value> = containers.take(CONTAINERS).filter_map(sanitize_container_status).collect();
            if !containers.is_empty() {
                status.insert(field.to_owned(), containers.into());
            }
        }
    }
}

/// Puts in the addresses of a pod: one of each family, in the form in which an API server stores them.
fn insert_addresses(copy: &CopyStatus, status: &mut Map<String, Value>) {
    let several = copy.status_field("podIPs").and_then(Value::as_array).into_iter().flatten().map(|one| &one["ip"]);
    let listed = several.chain(copy.status_field("podIP")).filter_map(Value::as_str);
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in listed.take(4).filter_map(parse_address) {
        if !addresses.iter().any(|other| other.is_ipv4() == address.is_ipv4()) {
            addresses.push(address);
        }
    }
    if let Some(first) = addresses.first() {
        status.insert("podIP".to_owned(), first.to_string().into());
        let all: Vec<Value> = addresses.iter().map(|address| json!({ "ip": address.to_string() })).collect();
        status.insert("podIPs".to_owned(), all.into());
    }
}

/// Parses an address as API servers take it: none of the IPv4 ones that are written as IPv6.
pub(super) fn parse_address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    let is_mapped = matches!(address, IpAddr::V6(six) if six.to_ipv4_mapped().is_some());
    (!is_mapped).then_some(address)
}

/// Returns the fields of a container's status that a reader needs; `None` for one that is not of its type.
fn sanitize_container_status(found: &Value) -> Option<Value> {
    let fields = found.as_object()?.iter().filter(|(name, _)| CONTAINER_STATUS_FIELDS.contains(&name.as_str()));
    let mut picked: Value =
        fields.map(|(name, value)| (name.clone(), bound_texts(name, value))).collect::<Map<_, _>>().into();
    for name in ["image", "imageID"] {
        if picked.get(name).is_none() {
            picked[name] = "".into();
        }
    }
    let typed: ContainerStatus = serde_json::from_value(picked).ok()?;
    (typed.restart_count >= 0 && !typed.name.is_empty()).then(|| serde_json::to_value(typed).ok())?
}

/// Returns a value with its texts bounded and visible, and its times as Kubernetes writes them.
fn bound_texts(name: &str, value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), bound_texts(name, value))).collect::<Map<_, _>>().into()
        }
        Value::String(_) if ["startedAt", "finishedAt"].contains(&name) => {
            typed::read_time(value).map_or(Value::Null, Value::from)
        }
        Value::String(_) => typed::read_message(value).into(),
        other => other.clone(),
    }
}
