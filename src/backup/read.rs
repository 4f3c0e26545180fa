//! Reading an archive: opened, unpacked and compared with its footer as a stream.
//!
//! An archive comes from anywhere. Names and the order of parts are those that are written, sizes and counts are bounded
//! before a byte of a part is read, and nothing is written anywhere.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

use age::{DecryptError, Decryptor};
use flate2::bufread::GzDecoder;
use serde::de::DeserializeOwned;
use tar::{Archive, EntryType};

use super::error::{ArchiveError, Place};
use super::manifest::{FORMAT, Footer, Header, Part};
use super::part::{MOST_PARTS, PartKind, PartReader};
use super::seal::Opening;
use super::source::{Source, Track};
use crate::api::util::text::visible_word;

/// Size of the pieces in which parts are read.
const PIECE_BYTES: usize = 64 * 1024;
/// Beginning of a sealed file, of any version of age.
const SEALED: &[u8] = b"age-encryption.org/";
/// Beginning of a gzip file.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Largest size of what age writes before its data, in bytes: 100 recipients take 20 KiB.
const MOST_SEAL_BYTES: u64 = 64 * 1024;
/// Largest size of what follows the footer inside the archive, in bytes: tar fills its last block with zeros.
const MOST_PADDING_BYTES: u64 = 64 * 1024;

/// An archive that is whole.
#[derive(Debug)]
pub struct Verified {
    /// What it is of.
    pub header: Header,
    /// Its parts, without the footer.
    pub parts: Vec<Part>,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
}

/// Reads a whole archive and compares each part with the footer, and the snapshot with etcd's own hash.
///
/// # Errors
/// [`ArchiveError`] with the part and the offset.
pub fn verify_archive(input: impl Read, opening: &Opening) -> Result<Verified, ArchiveError> {
    read_archive(input, opening, &mut |_, _| Ok(()))
}

/// As [`verify_archive`], and hands on the bytes of each part with its name. Nothing of them is proved before the archive has
/// ended.
///
/// # Errors
/// [`ArchiveError`]; [`ArchiveError::Output`] with the error of `take`.
pub fn read_archive(
    input: impl Read,
    opening: &Opening,
    take: &mut dyn FnMut(&str, &[u8]) -> io::Result<()>,
) -> Result<Verified, ArchiveError> {
    let source = Source::new(input);
    let track = Rc::clone(&source.track);
    let mut reading = Reading { track: &track, place: Place::default(), take };
    let unsealed = reading.unseal(source, opening)?;
    let mut archive = Archive::new(GzDecoder::new(unsealed));
    let (header, parts) = reading.read_parts(&mut archive)?;
    reading.read_end(archive.into_inner())?;
    let track = track.borrow();
    Ok(Verified { header, parts, bytes: track.bytes, sha256: track.format_sha256() })
}

/// Reads the header of an archive, and nothing behind it.
///
/// # Errors
/// [`ArchiveError`].
pub fn read_archive_header(input: impl Read, opening: &Opening) -> Result<Header, ArchiveError> {
    let source = Source::new(input);
    let track = Rc::clone(&source.track);
    let mut reading = Reading { track: &track, place: Place::default(), take: &mut |_, _| Ok(()) };
    let unsealed = reading.unseal(source, opening)?;
    let mut archive = Archive::new(GzDecoder::new(unsealed));
    let mut entries = archive.entries().map_err(|error| reading.failed(error))?.raw(true);
    let first = entries.next().ok_or_else(|| reading.damaged("it is empty"))?;
    let entry = first.map_err(|error| reading.failed(error))?;
    let (kind, name) = reading.check_archive_entry(&entry, None)?;
    let (_, text) = reading.read_entry(entry, kind, &name)?;
    reading.parse_header(&text)
}

/// Size and SHA-256 of a file as it is, sealed or not.
///
/// # Errors
/// A source that ends in an error.
pub fn hash_file(input: impl Read) -> Result<(u64, String), ArchiveError> {
    let mut part = PartReader::new(input);
    io::copy(&mut part, &mut io::sink()).map_err(ArchiveError::Read)?;
    let part = part.into_part("");
    Ok((part.bytes, part.sha256))
}

/// The place that is read, for errors, and who gets what is read.
struct Reading<'t> {
    track: &'t RefCell<Track>,
    place: Place,
    take: &'t mut dyn FnMut(&str, &[u8]) -> io::Result<()>,
}

impl Reading<'_> {
    fn damaged(&self, why: impl Into<String>) -> ArchiveError {
        let place = Place { file_offset: self.track.borrow().bytes, ..self.place.clone() };
        ArchiveError::Damaged { place, why: why.into() }
    }

    /// The error behind one of a layer: of the file, else of what is in it.
    fn failed(&self, error: io::Error) -> ArchiveError {
        if let Some(error) = self.track.borrow_mut().failed.take() {
            return ArchiveError::Read(error);
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("the file is truncated"),
            _ => self.damaged(format!("it cannot be unpacked: {}", visible_word(&error.to_string()))),
        }
    }

    /// Opens the seal, where there is one.
    fn unseal<'a, R: Read + 'a>(
        &self,
        source: Source<R>,
        opening: &Opening,
    ) -> Result<Box<dyn BufRead + 'a>, ArchiveError> {
        let mut input = BufReader::new(source);
        let begin = input.fill_buf().map_err(|error| self.failed(error))?;
        if begin.starts_with(GZIP) {
            return Ok(Box::new(input));
        }
        if !begin.starts_with(SEALED) {
            return Err(self.damaged("it is not a backup of a control plane"));
        }
        // age reads its head whole, however long it is.
        let mut head = Vec::new();
        loop {
            let start = head.len();
            let rest = MOST_SEAL_BYTES.saturating_sub(start as u64);
            input.by_ref().take(rest).read_until(b'\n', &mut head).map_err(|error| self.failed(error))?;
            if !head[start..].ends_with(b"\n") {
                return Err(self.damaged("its age header is incomplete or too long"));
            }
            if head[start..].starts_with(b"---") {
                break;
            }
        }
        let decryptor = Decryptor::new(Cursor::new(head).chain(input)).map_err(|error| self.unopened(error))?;
        if opening.is_empty() {
            let why = if decryptor.is_scrypt() {
                "it is sealed with a passphrase, but no passphrase was given"
            } else {
                "it is sealed for recipients, but no identity was given"
            };
            return Err(ArchiveError::KeysMissing(why));
        }
        let identities = opening.to_identities();
        let opened = decryptor.decrypt(identities.iter().map(AsRef::as_ref)).map_err(|error| self.unopened(error))?;
        Ok(Box::new(BufReader::new(opened)))
    }

    fn unopened(&self, error: DecryptError) -> ArchiveError {
        match error {
            DecryptError::NoMatchingKeys | DecryptError::DecryptionFailed | DecryptError::KeyDecryptionFailed => {
                ArchiveError::KeysMissing("none of the given keys opens it, or its age header is damaged")
            }
            DecryptError::ExcessiveWork { .. } => {
                self.damaged("opening it with a passphrase needs more memory than fleetctl allows")
            }
            DecryptError::Io(error) => self.failed(error),
            DecryptError::UnknownFormat => self.damaged("it is sealed in a format that fleetctl does not support"),
            DecryptError::InvalidMac | DecryptError::InvalidHeader => self.damaged("its age header is damaged"),
        }
    }

    /// Reads all parts, and compares them with the footer.
    fn read_parts<R: Read>(&mut self, archive: &mut Archive<R>) -> Result<(Header, Vec<Part>), ArchiveError> {
        let mut header: Option<Header> = None;
        let mut parts: Vec<Part> = Vec::new();
        let mut last = None;
        let entries = archive.entries().map_err(|error| self.failed(error))?;
        // Raw: names of any length and other extensions are entries of their own, which no archive has.
        for entry in entries.raw(true) {
            let entry = entry.map_err(|error| self.failed(error))?;
            if parts.len() >= MOST_PARTS {
                return Err(self.damaged(format!("it has more than {MOST_PARTS} parts")));
            }
            let (kind, name) = self.check_archive_entry(&entry, last)?;
            if parts.iter().any(|part| part.name == name) {
                return Err(self.damaged(format!("it contains part {name} twice")));
            }
            last = Some(kind);
            let (part, text) = self.read_entry(entry, kind, &name)?;
            match kind {
                PartKind::Header => header = Some(self.parse_header(&text)?),
                PartKind::Snapshot if header.as_ref().is_some_and(|header| header.snapshot_bytes != part.bytes) => {
                    return Err(self.damaged(format!("it has {} bytes, but the header gives another size", part.bytes)));
                }
                PartKind::Footer => {
                    let footer: Footer = self.parse_json(&text)?;
                    self.compare_parts(&footer.parts, &parts)?;
                    let header = header.ok_or_else(|| self.damaged("no header precedes it"))?;
                    return Ok((header, parts));
                }
                _ => {}
            }
            parts.push(part);
        }
        self.place = Place::default();
        Err(self.damaged("it has no footer"))
    }

    /// Checks an entry before anything of it is read: what it is, and whether it may come here.
    fn check_archive_entry<R: Read>(
        &mut self,
        entry: &tar::Entry<'_, R>,
        last: Option<PartKind>,
    ) -> Result<(PartKind, String), ArchiveError> {
        self.place = Place::default();
        let path = entry.path_bytes();
        let name = String::from_utf8_lossy(&path).into_owned();
        let shown = visible_word(&name).into_owned();
        let kind = PartKind::from_name(&name).filter(|_| entry.header().entry_type() == EntryType::Regular);
        let kind = kind.ok_or_else(|| self.damaged(format!("`{shown}` is not part of a backup")))?;
        self.place.part = Some(name.clone());
        let in_order = match last {
            None => kind == PartKind::Header,
            Some(last) => kind > last || (kind, last) == (PartKind::Key, PartKind::Key),
        };
        if !in_order {
            return Err(self.damaged("the parts are in the wrong order"));
        }
        if kind == PartKind::Footer && last != Some(PartKind::Snapshot) {
            return Err(self.damaged("no snapshot precedes it"));
        }
        if entry.size() > kind.most_bytes() {
            return Err(self.damaged(format!("it has {} bytes; the limit is {}", entry.size(), kind.most_bytes())));
        }
        Ok((kind, name))
    }

    /// Reads an entry; the text of a header or a footer is retained.
    fn read_entry<R: Read>(
        &mut self,
        entry: tar::Entry<'_, R>,
        kind: PartKind,
        name: &str,
    ) -> Result<(Part, Vec<u8>), ArchiveError> {
        let size = entry.size();
        let mut part = match kind {
            PartKind::Snapshot => PartReader::of_snapshot(entry, size),
            _ => PartReader::new(entry),
        };
        let mut text = Vec::new();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = part.read(&mut piece);
            self.place.offset = part.bytes;
            let read = match read {
                Ok(0) => break,
                Ok(count) => &piece[..count],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(error)),
            };
            if matches!(kind, PartKind::Header | PartKind::Footer) {
                text.extend_from_slice(read);
            }
            (self.take)(name, read).map_err(ArchiveError::Output)?;
        }
        if part.bytes != size {
            return Err(self.damaged("the file is truncated"));
        }
        part.check_snapshot().map_err(|why| self.damaged(why))?;
        Ok((part.into_part(name), text))
    }

    fn parse_json<T: DeserializeOwned>(&self, text: &[u8]) -> Result<T, ArchiveError> {
        serde_json::from_slice(text)
            .map_err(|error| self.damaged(format!("it cannot be read: {}", visible_word(&error.to_string()))))
    }

    /// Reads a header, if this program knows its format.
    fn parse_header(&self, text: &[u8]) -> Result<Header, ArchiveError> {
        let any: serde_json::Value = self.parse_json(text)?;
        let format = any.get("format").and_then(serde_json::Value::as_u64);
        if format.is_some_and(|format| format > u64::from(FORMAT)) {
            let format = format.unwrap_or_default();
            let why = format!(
                "it has format {format}; this program reads up to format {FORMAT}; use a newer version of fleetctl"
            );
            return Err(self.damaged(why));
        }
        self.parse_json(text)
    }

    fn compare_parts(&mut self, announced: &[Part], read: &[Part]) -> Result<(), ArchiveError> {
        if let Some((_, part)) = announced.iter().zip(read).find(|(announced, read)| announced != read) {
            self.place = Place { part: Some(part.name.clone()), offset: part.bytes, ..Place::default() };
            return Err(self.damaged("size and SHA-256 do not match the footer"));
        }
        if announced.len() != read.len() {
            let why = format!("it names {} parts, but {} were read", announced.len(), read.len());
            return Err(self.damaged(why));
        }
        Ok(())
    }

    /// Reads what is behind the footer: only so the sums of gzip and the end of the seal are checked.
    fn read_end<R: BufRead>(&mut self, mut unpacked: GzDecoder<R>) -> Result<(), ArchiveError> {
        self.place = Place::default();
        let mut rest = Vec::new();
        let read = unpacked.by_ref().take(MOST_PADDING_BYTES + 1).read_to_end(&mut rest);
        read.map_err(|error| self.failed(error))?;
        if rest.len() as u64 > MOST_PADDING_BYTES || rest.iter().any(|byte| *byte != 0) {
            return Err(self.damaged("there is data after the footer"));
        }
        let mut behind = unpacked.into_inner();
        let behind = behind.fill_buf().map_err(|error| self.failed(error))?;
        if behind.is_empty() { Ok(()) } else { Err(self.damaged("there is data after the end of the archive")) }
    }
}
