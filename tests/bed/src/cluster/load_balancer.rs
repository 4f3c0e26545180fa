//! A small cloud: gives Services of type LoadBalancer an address of the bed's network.
//!
//! kube-proxy answers on any address in a Service's status, so it is enough to choose one, to put it on the node's
//! interface, and to write it down. The loop runs as a process of its own and ends with the cluster.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::cluster::Cluster;
use crate::cluster::network;
use crate::say::say;

/// Serves a cluster until this process is ended.
pub(crate) fn serve(cluster: &Cluster) -> Result<()> {
    let holder = cluster.supervisor().record("holder")?.process.context("the cluster's namespaces are not there")?.pid;
    let (kubeconfig, pool) = (cluster.kubeconfig(), cluster.load_balancer_ips());
    crate::cluster::client::block_on(|| async move {
        let client = crate::cluster::client::client(&kubeconfig).await?;
        let services = Api::<Service>::all(client.clone());
        let mut changes =
            pin!(watcher(services.clone(), watcher::Config::default()).default_backoff().touched_objects());
        // Unknown at first: an earlier run may have left addresses on the interface.
        let mut present = None;
        loop {
            if let Err(error) = reconcile(&client, &services, &pool, holder, &mut present).await {
                say(format!("{error:#}"));
                present = None;
            }
            // A change wakes it; so does time, in case a write failed.
            let _ = tokio::time::timeout(Duration::from_secs(5), changes.next()).await;
        }
    })
}

async fn reconcile(
    client: &Client,
    services: &Api<Service>,
    pool: &[String],
    holder: i32,
    present: &mut Option<BTreeSet<String>>,
) -> Result<()> {
    let list = services.list(&ListParams::default()).await?;
    let (balanced, others): (Vec<_>, Vec<_>) = list.items.into_iter().partition(wants_address);
    let taken: BTreeSet<String> = balanced.iter().filter_map(address).collect();
    let mut free = pool.iter().filter(|ip| !taken.contains(*ip));
    let mut wanted = taken.clone();
    for service in balanced.iter().filter(|service| address(service).is_none()) {
        let Some(ip) = free.next() else {
            say(format!("no address is left for {}: the cluster has {}", service.name_any(), pool.len()));
            break;
        };
        add(holder, ip)?;
        wanted.insert(ip.clone());
        write_status(client, service, json!([{"ip": ip}])).await?;
        say(format!("{}/{} has {ip}", service.namespace().unwrap_or_default(), service.name_any()));
    }
    // A Service that no longer is of this type gives its address back.
    for service in others.iter().filter(|service| address(service).is_some()) {
        write_status(client, service, json!(null)).await?;
    }
    for ip in pool {
        match (wanted.contains(ip), present.as_ref().map(|present| present.contains(ip))) {
            (true, Some(false) | None) => add(holder, ip)?,
            (false, Some(true) | None) => remove(holder, ip)?,
            _ => {}
        }
    }
    *present = Some(wanted);
    Ok(())
}

fn wants_address(service: &Service) -> bool {
    service
        .spec
        .as_ref()
        .is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none())
        && service.metadata.deletion_timestamp.is_none()
}

fn address(service: &Service) -> Option<String> {
    service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?.ip.clone()
}

async fn write_status(client: &Client, service: &Service, ingress: serde_json::Value) -> Result<()> {
    let api = Api::<Service>::namespaced(client.clone(), &service.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
    api.patch_status(&service.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

fn add(holder: i32, ip: &str) -> Result<()> {
    network::inside(holder, &format!("ip addr replace {ip}/32 dev eth0")).map(drop)
}

fn remove(holder: i32, ip: &str) -> Result<()> {
    network::inside(holder, &format!("ip addr del {ip}/32 dev eth0 2>/dev/null || true")).map(drop)
}
