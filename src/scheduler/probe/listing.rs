//! All objects of a kind: listed as clients list them, counted against their keys, and one by one where a list fails.

use kube::Client;
use kube::api::{GetParams, ListParams, Request};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::kinds::ServedKind;
use crate::api::rehearsal::RehearsalReport;
use crate::etcd::EtcdClient;
use crate::k8s::connect::daemon_client::describe_error;

/// Objects in a page.
const PAGE: u32 = 500;
/// Most objects of a kind that are read one by one, and most of them that are named.
const MOST_TRIED: usize = 20_000;
const MOST_NAMED: usize = 20;

/// A page of a list. An API server decodes whole objects to give their metadata.
#[derive(Debug, Deserialize)]
struct Page {
    metadata: PageMetadata,
    /// It is `null` where there are none.
    items: Option<Vec<IgnoredAny>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    r#continue: String,
}

/// Reads all objects of a kind.
///
/// # Errors
/// An etcd that goes away.
pub(super) async fn read_kind(
    client: &Client,
    etcd: &EtcdClient,
    kind: &ServedKind,
    report: &mut RehearsalReport,
) -> anyhow::Result<()> {
    match list_kind(client, kind).await {
        Ok((count, revision)) => {
            report.kinds += 1;
            report.objects += count;
            let keys = etcd.count_keys(&kind.folder, revision).await?;
            if keys != count {
                report.add_fault(&kind.title(), &format!("{count} are listed, but etcd has {keys}"));
            }
        }
        Err(error) => {
            let why = describe_error(&error);
            if name_unreadable(client, etcd, kind, report).await? == 0 {
                report.add_fault(&kind.title(), &format!("they cannot be listed: {why}"));
            }
        }
    }
    Ok(())
}

/// Lists a kind page by page. Returns the number of objects, and the revision that all pages are of.
async fn list_kind(client: &Client, kind: &ServedKind) -> kube::Result<(u64, i64)> {
    let requests = Request::new(kind.url_path(None));
    let mut params = ListParams::default().limit(PAGE);
    let mut count = 0;
    loop {
        let request = requests.list_metadata(&params).map_err(kube::Error::BuildRequest)?;
        let page: Page = client.request(request).await?;
        count += page.items.map_or(0, |items| items.len()) as u64;
        if page.metadata.r#continue.is_empty() {
            return Ok((count, page.metadata.resource_version.parse().unwrap_or_default()));
        }
        params.continue_token = Some(page.metadata.r#continue);
    }
}

/// Reads the objects of a kind one by one, and names the keys of those that cannot be read. Returns their number.
async fn name_unreadable(
    client: &Client,
    etcd: &EtcdClient,
    kind: &ServedKind,
    report: &mut RehearsalReport,
) -> anyhow::Result<usize> {
    let (mut pages, mut tried, mut unreadable) = (etcd.list_keys(&kind.folder), 0, 0);
    while let Some(keys) = pages.next_page().await? {
        for key in &keys {
            tried += 1;
            if let Err(why) = read_object(client, kind, key).await {
                report.add_fault(key, &why);
                unreadable += 1;
            }
            if tried == MOST_TRIED || unreadable == MOST_NAMED {
                return Ok(unreadable);
            }
        }
    }
    Ok(unreadable)
}

/// Reads the object of a key; else, returns the reason.
async fn read_object(client: &Client, kind: &ServedKind, key: &str) -> Result<(), String> {
    let rest = key.strip_prefix(&kind.folder).unwrap_or(key);
    let (namespace, name) = match rest.split_once('/') {
        Some((namespace, name)) if kind.is_namespaced => (Some(namespace), name),
        _ => (None, rest),
    };
    let request = Request::new(kind.url_path(namespace)).get_metadata(name, &GetParams::default());
    let request = request.map_err(|error| error.to_string())?;
    match client.request::<IgnoredAny>(request).await {
        Ok(_) => Ok(()),
        // It has gone since.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(describe_error(&error)),
    }
}
