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
const MOST_TRIED: u64 = 20_000;
const MOST_NAMED: u64 = 20;

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
                report.add_fault(&kind.title(), &format!("the API server lists {count} objects, but etcd has {keys}"));
            }
        }
        Err(error) => {
            let why = describe_error(&error);
            if !name_unreadable(client, etcd, kind, report).await? {
                report.add_fault(&kind.title(), &format!("the API server cannot list these objects: {why}"));
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

/// Objects of a kind that were read one by one.
#[derive(Debug, Default)]
struct ReadObjects {
    tried: u64,
    unreadable: u64,
    /// Those for which there was no time.
    untried: u64,
}

impl ReadObjects {
    /// Notes that the object of a key cannot be read: the first ones are named, the others are counted.
    fn note_unreadable(&mut self, key: &str, why: &str, report: &mut RehearsalReport) {
        self.unreadable += 1;
        if self.unreadable <= MOST_NAMED {
            report.add_fault(key, why);
        } else {
            report.count_fault();
        }
    }

    /// Notes that the object of a key is not read; false as long as it should be.
    fn skips_key(&mut self) -> bool {
        let skips = self.tried == MOST_TRIED;
        *(if skips { &mut self.untried } else { &mut self.tried }) += 1;
        skips
    }

    /// Names the number of those that were not read. Returns whether any cannot be read.
    fn end_reading(&self, title: &str, report: &mut RehearsalReport) -> bool {
        if self.untried > 0 {
            report.add_fault(title, &format!("{} more objects were not read one by one", self.untried));
        }
        self.unreadable > 0
    }
}

/// Reads the objects of a kind one by one, and names the keys of those that cannot be read. Returns whether there are any.
async fn name_unreadable(
    client: &Client,
    etcd: &EtcdClient,
    kind: &ServedKind,
    report: &mut RehearsalReport,
) -> anyhow::Result<bool> {
    let (mut pages, mut read) = (etcd.list_keys(&kind.folder), ReadObjects::default());
    while let Some(keys) = pages.next_page().await? {
        for key in &keys {
            if read.skips_key() {
                continue;
            }
            if let Err(why) = read_object(client, kind, key).await {
                read.note_unreadable(key, &why, report);
            }
        }
    }
    Ok(read.end_reading(&kind.title(), report))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_objects_beyond_the_first_twenty_are_counted() {
        let (mut read, mut report) = (ReadObjects::default(), RehearsalReport::default());
        for number in 0..MOST_NAMED + 5 {
            read.note_unreadable(&format!("/registry/secrets/shop/s{number}"), "it cannot be decoded", &mut report);
        }
        assert_eq!((report.findings.len(), report.faults), (20, 25));
        assert!(read.end_reading("secrets", &mut report));
        assert_eq!(report.faults, 25, "all were read");
    }

    #[test]
    fn objects_that_were_not_read_are_a_fault() {
        let (mut read, mut report) = (ReadObjects::default(), RehearsalReport::default());
        assert!(!read.end_reading("secrets", &mut report));
        let skipped = (0..MOST_TRIED + 3).filter(|_| read.skips_key()).count();
        assert!(skipped == 3 && !read.end_reading("secrets", &mut report), "the list itself has failed");
        assert_eq!(report.findings[0].why, "3 more objects were not read one by one");
    }
}
