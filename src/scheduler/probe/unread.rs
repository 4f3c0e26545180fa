//! Keys that no kind reads: their CustomResourceDefinition is missing, or an API server of another version has written them.

use std::collections::{BTreeMap, BTreeSet};

use super::kinds::{REGISTRY, ServedKind};
use crate::api::rehearsal::RehearsalReport;
use crate::etcd::EtcdClient;

/// Folders of what an API server keeps for itself.
const INTERNAL: [&str; 3] = ["masterleases/", "peerserverleases/", "ranges/"];

/// Looks for keys that belong to no kind. Returns the revision that was read.
///
/// # Errors
/// An etcd that goes away.
pub(super) async fn find_unread_keys(
    etcd: &EtcdClient,
    kinds: &[ServedKind],
    report: &mut RehearsalReport,
) -> anyhow::Result<i64> {
    let folders: BTreeSet<&str> = kinds.iter().map(|kind| kind.folder.as_str()).collect();
    let mut unread: BTreeMap<String, u64> = BTreeMap::new();
    let mut pages = etcd.list_keys(REGISTRY);
    while let Some(keys) = pages.next_page().await? {
        for folder in keys.iter().filter_map(|key| find_unread_folder(key, &folders)) {
            *unread.entry(folder).or_default() += 1;
        }
    }
    for (folder, count) in unread {
        let keys = if count == 1 { "1 key".to_owned() } else { format!("{count} keys") };
        report.add_fault(&folder, &format!("{keys} of a kind that is not served: its definition is missing"));
    }
    Ok(pages.revision())
}

/// The folder of a key that no kind reads.
fn find_unread_folder(key: &str, folders: &BTreeSet<&str>) -> Option<String> {
    let rest = key.strip_prefix(REGISTRY)?;
    let (first, behind) = rest.split_once('/')?;
    let one = format!("{REGISTRY}{first}/");
    let two = behind.split_once('/').map(|(second, _)| format!("{one}{second}/"));
    let is_read = [Some(one.as_str()), two.as_deref()].into_iter().flatten().any(|folder| folders.contains(folder));
    if is_read || INTERNAL.iter().any(|internal| rest.starts_with(internal)) {
        return None;
    }
    Some(two.filter(|_| first.contains('.')).unwrap_or(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_no_kind_are_found_by_their_folder() {
        let folders = BTreeSet::from(["/registry/pods/", "/registry/services/specs/", "/registry/shop.example/carts/"]);

        for read in [
            "/registry/pods/shop/web",
            "/registry/services/specs/shop/web",
            "/registry/shop.example/carts/shop/one",
            "/registry/ranges/serviceips",
            "/registry/health",
            "compact_rev_key",
        ] {
            assert_eq!(find_unread_folder(read, &folders), None, "{read}");
        }
        for folder in ["/registry/shop.example/lists/", "/registry/podtemplates/"] {
            assert_eq!(find_unread_folder(&format!("{folder}shop/one"), &folders).unwrap(), folder);
        }
    }
}
