//! What is read of an archive beside its snapshot: Secrets and the record.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;

use super::ArchiveSource;
use super::error::RestoreError;
use crate::backup::{SNAPSHOT, read_archive};
use crate::inventory::Record;
use crate::pki::SecretText;

/// Where the Secrets of an archive are.
const KEY_PARTS: &str = "keys/";
/// The record of the installation.
const RECORD_PART: &str = "record.json";

/// The parts of an archive but the snapshot, by their names.
pub(super) struct SmallParts(BTreeMap<String, SecretText>);

/// Reads an archive, and retains what is small of it.
pub(super) async fn read_small_parts(source: &ArchiveSource) -> Result<SmallParts, RestoreError> {
    let (path, opening) = (source.path.clone(), Arc::clone(&source.opening));
    let reading = tokio::task::spawn_blocking(move || {
        let mut parts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let read = read_archive(File::open(path)?, &opening, &mut |name, bytes| {
            if name != SNAPSHOT {
                parts.entry(name.to_owned()).or_default().extend_from_slice(bytes);
            }
            Ok(())
        });
        read.map_err(io::Error::other).map(|_| parts)
    });
    let read = reading.await.map_err(io::Error::other).flatten();
    let parts = read.map_err(|error| unusable("the backup", &error))?;
    let texts = parts.into_iter().map(|(name, bytes)| match String::from_utf8(bytes) {
        Ok(text) => Ok((name, SecretText::new(text))),
        Err(_) => Err(unusable(&name, &"it is not text")),
    });
    Ok(SmallParts(texts.collect::<Result<_, _>>()?))
}

impl SmallParts {
    /// The Secrets.
    pub(super) fn parse_secrets(&self) -> Result<Vec<Secret>, RestoreError> {
        let parts = self.0.iter().filter(|(name, _)| name.starts_with(KEY_PARTS));
        // No line of a key stands in an error.
        parts
            .map(|(name, text)| {
                serde_saphyr::from_slice(text.expose().as_bytes()).map_err(|_| unusable(name, &"it is not a Secret"))
            })
            .collect()
    }

    /// The record, if fleetctl had installed the control plane.
    pub(super) fn parse_record(&self) -> Result<Option<Record>, RestoreError> {
        let Some(text) = self.0.get(RECORD_PART) else { return Ok(None) };
        serde_json::from_str(text.expose()).map(Some).map_err(|error| unusable(RECORD_PART, &error))
    }
}

fn unusable(what: &str, why: &dyn std::fmt::Display) -> RestoreError {
    RestoreError::Unsuitable(format!("{what} cannot be used: {why}"))
}
