//! Writing an archive as a stream: what is in memory does not grow with the store.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType};

use super::error::WriteError;
use super::manifest::{Footer, Header, Part};
use super::part::{PartKind, PartReader, key_part_name};
use super::seal::{Seal, Sealed, WORK};
use crate::api::util::digest::format_digest;
use crate::pki::SecretText;

/// Everything of an archive but the snapshot.
#[derive(Debug)]
pub struct Contents {
    /// What the archive is of.
    pub header: Header,
    /// Secrets with keys; none in an archive without keys.
    pub keys: Vec<KeyFile>,
    /// Values of the installation, as YAML.
    pub values: Option<String>,
    /// Record of the installation, as JSON.
    pub record: Option<String>,
}

/// A Secret as a manifest.
#[derive(Debug, Clone)]
pub struct KeyFile {
    /// Name of the Secret.
    pub secret: String,
    /// The manifest, as YAML.
    pub manifest: SecretText,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Size of the archive, in bytes.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

type Archive<W> = Builder<GzEncoder<Sealed<HashedOutput<W>>>>;

/// Writes an archive. `snapshot` has to give exactly as many bytes as the header announces, and to end with etcd's own hash.
/// Nothing that was written is an archive if this fails.
///
/// # Errors
/// [`WriteError`]; a broken snapshot is apart from a target that refuses.
pub fn write_archive<W: Write>(
    output: W,
    seal: &Seal,
    contents: &Contents,
    snapshot: impl Read,
) -> Result<(W, Written), WriteError> {
    write_with_work(output, seal, WORK, contents, snapshot)
}

/// As [`write_archive`], with another work of a passphrase.
pub(super) fn write_with_work<W: Write>(
    output: W,
    seal: &Seal,
    work: u8,
    contents: &Contents,
    snapshot: impl Read,
) -> Result<(W, Written), WriteError> {
    let sealed = seal.begin_stream(HashedOutput { inner: output, hash: Sha256::new(), bytes: 0 }, work)?;
    // Reading etcd is faster than every higher level.
    let mut archive = Builder::new(GzEncoder::new(sealed, Compression::fast()));
    let time = contents.header.taken.as_second().try_into().unwrap_or_default();
    let mut parts = Vec::new();
    let header = to_json(&contents.header)?;
    parts.push(add_small_part(&mut archive, PartKind::Header, PartKind::Header.name(), &header, time)?);
    for key in &contents.keys {
        let (name, manifest) = (key_part_name(&key.secret), key.manifest.expose().as_bytes());
        parts.push(add_small_part(&mut archive, PartKind::Key, &name, manifest, time)?);
    }
    for (kind, text) in [(PartKind::Values, &contents.values), (PartKind::Record, &contents.record)] {
        if let Some(text) = text {
            parts.push(add_small_part(&mut archive, kind, kind.name(), text.as_bytes(), time)?);
        }
    }
    parts.push(add_snapshot(&mut archive, snapshot, contents.header.snapshot_bytes, time)?);
    let footer = to_json(&Footer { parts })?;
    add_small_part(&mut archive, PartKind::Footer, PartKind::Footer.name(), &footer, time)?;
    let finished = archive.into_inner().and_then(GzEncoder::finish).and_then(Sealed::finish);
    let mut output = finished.map_err(WriteError::Output)?;
    output.flush().map_err(WriteError::Output)?;
    let written = Written { bytes: output.bytes, sha256: format_digest(&output.hash.finalize()) };
    Ok((output.inner, written))
}

fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, WriteError> {
    serde_json::to_vec_pretty(value).map_err(|error| WriteError::Output(error.into()))
}

fn add_small_part<W: Write>(
    archive: &mut Archive<W>,
    kind: PartKind,
    name: &str,
    bytes: &[u8],
    time: u64,
) -> Result<Part, WriteError> {
    let head = build_entry_head(kind, name, bytes.len() as u64, time)?;
    let mut part = PartReader::new(bytes);
    archive.append(&head, &mut part).map_err(WriteError::Output)?;
    Ok(part.into_part(name))
}

fn add_snapshot<W: Write>(
    archive: &mut Archive<W>,
    snapshot: impl Read,
    size: u64,
    time: u64,
) -> Result<Part, WriteError> {
    let kind = PartKind::Snapshot;
    let head = build_entry_head(kind, kind.name(), size, time)?;
    let mut part = PartReader::of_snapshot(snapshot.take(size.saturating_add(1)), size);
    let appended = archive.append(&head, &mut part);
    if let Some(error) = part.failed.take() {
        return Err(WriteError::Stream(error));
    }
    appended.map_err(WriteError::Output)?;
    if part.bytes != size {
        return Err(invalid_stream_error(&format!("{} of {size} bytes arrived", part.bytes)));
    }
    part.check_snapshot().map_err(invalid_stream_error)?;
    Ok(part.into_part(kind.name()))
}

fn invalid_stream_error(why: &str) -> WriteError {
    WriteError::Stream(io::Error::new(io::ErrorKind::InvalidData, why))
}

fn build_entry_head(kind: PartKind, name: &str, bytes: u64, time: u64) -> Result<tar::Header, WriteError> {
    let most = kind.most_bytes();
    if bytes > most {
        return Err(WriteError::TooLarge { part: name.to_owned(), bytes, most });
    }
    let mut head = tar::Header::new_gnu();
    head.set_path(name).map_err(WriteError::Output)?;
    head.set_entry_type(EntryType::Regular);
    head.set_size(bytes);
    head.set_mode(0o600);
    head.set_mtime(time);
    head.set_cksum();
    Ok(head)
}

/// The target, counted and hashed.
struct HashedOutput<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for HashedOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
