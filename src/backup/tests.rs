//! Archives in memory: written, read back, cut, flipped and forged.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

use super::write::write_with_work;
use super::*;
use crate::pki::SecretText;

/// Work of a passphrase that takes no time.
const LITTLE_WORK: u8 = 2;

/// A file of the form that etcd streams: whole pages, and the SHA-256 of them.
fn snapshot_file(pages: usize) -> Vec<u8> {
    let mut file: Vec<u8> = (0..pages * 512).map(|at| u8::try_from(at * 7919 % 251).unwrap()).collect();
    let hash = Sha256::digest(&file);
    file.extend_from_slice(&hash);
    file
}

fn header(snapshot_bytes: usize) -> Header {
    Header {
        format: FORMAT,
        control_plane: "demo".to_owned(),
        namespace: "fleet".to_owned(),
        taken: "2027-03-12T10:15:00Z".parse().unwrap(),
        install_uid: Some("00ff".to_owned()),
        control_plane_uid: None,
        versions: Versions { fleetctl: "1.2.0".to_owned(), etcd: "3.5.35".to_owned(), ..Versions::default() },
        members: vec![MemberName { id: "ff".to_owned(), name: "etcd-0".to_owned() }],
        read_from: "etcd-0".to_owned(),
        quorum: true,
        quota_bytes: None,
        revision: RevisionRange { from: 7, to: 9 },
        snapshot_bytes: snapshot_bytes as u64,
        keys: true,
        fingerprints: BTreeMap::new(),
        clusters: Some(vec![ClusterId { name: "west".to_owned(), id: None }]),
        patches: None,
    }
}

fn contents(snapshot_bytes: usize) -> Contents {
    Contents {
        header: header(snapshot_bytes),
        keys: ["fleet-pki", "fleet-registry"].map(make_sample_key).into(),
        values: Some("etcd:\n  replicas: 3\n".to_owned()),
        record: Some("{\"format\": 1}".to_owned()),
    }
}

fn make_sample_key(secret: &str) -> KeyFile {
    let manifest = format!("kind: Secret\nmetadata: {{name: {secret}}}\ndata: {{ca.key: CANARY}}\n");
    KeyFile { secret: secret.to_owned(), manifest: SecretText::new(manifest) }
}

fn write(seal: &Seal, snapshot: &[u8]) -> Vec<u8> {
    let (archive, written) =
        write_with_work(Vec::new(), seal, LITTLE_WORK, &contents(snapshot.len()), snapshot).unwrap();
    assert_eq!(hash_file(archive.as_slice()).unwrap(), (written.bytes, written.sha256));
    archive
}

fn identity() -> Identity {
    Identity::generate()
}

fn opened_by(identity: &Identity) -> Opening {
    Opening { identities: vec![identity.clone()], passphrase: None }
}

/// What is wrong with an archive that is not sealed, with its place.
fn damage(archive: &[u8]) -> (Option<String>, String) {
    damage_of(verify_archive(archive, &Opening::default()))
}

fn damage_of(verified: Result<Verified, ArchiveError>) -> (Option<String>, String) {
    match verified {
        Err(ArchiveError::Damaged { place, why }) => (place.part, why),
        other => panic!("not damaged: {other:?}"),
    }
}

#[test]
fn an_archive_is_read_back_by_each_kind_of_key() {
    let snapshot = snapshot_file(300);
    let (one, two) = (identity(), identity());
    let passphrase = "correct horse".to_owned();
    let sealed = Seal::Recipients(vec![one.to_recipient(), two.to_recipient()]);
    let by_passphrase = Opening { identities: vec![identity()], passphrase: Some(SecretText::new(passphrase.clone())) };
    for (seal, opening) in [
        (&sealed, opened_by(&one)),
        (&sealed, opened_by(&two)),
        (&Seal::Passphrase(SecretText::new(passphrase)), by_passphrase),
        (&Seal::Open, Opening::default()),
    ] {
        let archive = write(seal, &snapshot);
        let verified = verify_archive(archive.as_slice(), &opening).unwrap();
        assert_eq!(verified.header, header(snapshot.len()));
        assert_eq!(read_archive_header(archive.as_slice(), &opening).unwrap(), verified.header);
        let names: Vec<&str> = verified.parts.iter().map(|part| part.name.as_str()).collect();
        let expected = [
            "header.json",
            "keys/fleet-pki.yaml",
            "keys/fleet-registry.yaml",
            "values.yaml",
            "record.json",
            "snapshot.db",
        ];
        assert_eq!(names, expected);
        assert_eq!(verified.bytes, archive.len() as u64);
        let is_sealed = !matches!(seal, Seal::Open);
        assert_eq!(is_sealed, archive.starts_with(b"age-encryption.org/v1\n"));
    }
}

#[test]
fn a_key_of_somebody_else_and_none_open_nothing() {
    let snapshot = snapshot_file(2);
    let archive = write(&Seal::Recipients(vec![identity().to_recipient()]), &snapshot);
    let passphrase = write(&Seal::Passphrase(SecretText::new("right".to_owned())), &snapshot);
    let wrong = Opening { identities: vec![identity()], passphrase: Some(SecretText::new("wrong".to_owned())) };
    for (archive, opening) in
        [(&archive, &wrong), (&passphrase, &wrong), (&archive, &Opening::default()), (&passphrase, &Opening::default())]
    {
        let found = verify_archive(archive.as_slice(), opening).unwrap_err();
        assert_eq!(found.reason(), "KeysMissing", "{found}");
    }
}

#[test]
fn a_passphrase_that_takes_more_work_than_usual_is_not_tried() {
    let snapshot = snapshot_file(2);
    let seal = Seal::Passphrase(SecretText::new("right".to_owned()));
    let archive = write(&seal, &snapshot);
    // The work is text in the seal; the check of the seal comes after the work.
    let text = String::from_utf8_lossy(&archive[..200]).into_owned();
    let at = text.find(" 2\n").unwrap() + 1;
    let heavy = [&archive[..at], b"40", &archive[at + 1..]].concat();
    let opening = Opening { identities: Vec::new(), passphrase: Some(SecretText::new("right".to_owned())) };
    let (_, why) = damage_of(verify_archive(heavy.as_slice(), &opening));
    assert!(why.contains("more memory"), "{why}");
}

/// Returns what is in an archive without a seal.
fn unpack(archive: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(archive).read_to_end(&mut plain).ok().map(|_| plain)
}

#[test]
fn one_flipped_byte_anywhere_is_found() {
    let snapshot = snapshot_file(4);
    let one = identity();
    // Opening a seal takes the time of a hundred archives.
    for (seal, opening, step) in
        [(Seal::Recipients(vec![one.to_recipient()]), opened_by(&one), 7), (Seal::Open, Opening::default(), 1)]
    {
        let archive = write(&seal, &snapshot);
        let plain = unpack(&archive);
        for at in (0..archive.len()).step_by(step).chain([archive.len() - 1]) {
            let mut flipped = archive.clone();
            flipped[at] ^= 1;
            let found = verify_archive(flipped.as_slice(), &opening);
            // The time in gzip's head, or the length of a code that stands nowhere, change nothing of what is read.
            let is_unused = matches!(seal, Seal::Open) && unpack(&flipped).is_some_and(|read| Some(read) == plain);
            assert!(is_unused || found.is_err(), "{at} of {}", archive.len());
        }
    }
}

#[test]
fn one_flipped_byte_of_each_part_is_found() {
    let plain = unpack(&write(&Seal::Open, &snapshot_file(4))).unwrap();
    let mut unpacked = tar::Archive::new(plain.as_slice());
    let places = unpacked.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        (name, usize::try_from(entry.raw_file_position()).unwrap(), usize::try_from(entry.size()).unwrap())
    });
    let places: Vec<(String, usize, usize)> = places.collect();
    assert_eq!(places.len(), 7, "{places:?}");
    for (name, begin, size) in &places {
        // Its name in its head, and its first, middle and last byte: the sum of gzip fits again.
        for at in [begin - 512, *begin, begin + size / 2, begin + size - 1] {
            let mut flipped = plain.clone();
            flipped[at] ^= 1;
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&flipped).unwrap();
            let (part, why) = damage(&packed.finish().unwrap());
            // What the others say may not fit together before it is their turn to be compared.
            let is_named = !["header.json", "footer.json"].contains(&name.as_str()) && at >= *begin;
            assert!(!is_named || part.as_ref() == Some(name), "byte {at} of {name} is said to be in {part:?}: {why}");
        }
    }
}

/// Packs entries as an archive, with a footer over all of them if that is asked for.
fn forge(entries: &[(&str, &[u8])], with_footer: bool) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let parts = entries.iter().map(|(name, bytes)| forge_part(&mut builder, name, bytes)).collect();
    if with_footer {
        let footer = serde_json::to_vec(&Footer { parts }).unwrap();
        let mut head = tar::Header::new_gnu();
        head.set_path("footer.json").unwrap();
        head.set_size(footer.len() as u64);
        head.set_cksum();
        builder.append(&head, footer.as_slice()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// Appends an entry, whatever its name is.
fn forge_part(builder: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> Part {
    let mut head = tar::Header::new_gnu();
    // As it is: tar itself writes no name that leads elsewhere.
    head.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    head.set_size(bytes.len() as u64);
    head.set_mode(0o600);
    head.set_cksum();
    builder.append(&head, bytes).unwrap();
    let (bytes, sha256) = hash_file(bytes).unwrap();
    Part { name: name.to_owned(), bytes, sha256 }
}

/// Entries as an archive has them.
fn usual<'e>(head: &'e [u8], snapshot: &'e [u8]) -> Vec<(&'e str, &'e [u8])> {
    vec![
        ("header.json", head),
        ("keys/fleet-pki.yaml", b"kind: Secret"),
        ("values.yaml", b"{}"),
        ("record.json", b"{}"),
        ("snapshot.db", snapshot),
    ]
}

#[test]
fn a_byte_of_each_part_is_held_against_the_footer() {
    let snapshot = snapshot_file(4);
    let head = serde_json::to_vec(&header(snapshot.len())).unwrap();
    let whole = usual(&head, &snapshot);
    verify_archive(forge(&whole, true).as_slice(), &Opening::default()).unwrap();
    // The footer of the whole one behind changed parts: sums of gzip and tar fit, so nothing else finds them.
    let parts: Vec<Part> = whole
        .iter()
        .map(|(name, bytes)| {
            let (bytes, sha256) = hash_file(*bytes).unwrap();
            Part { name: (*name).to_owned(), bytes, sha256 }
        })
        .collect();
    let footer = serde_json::to_vec(&Footer { parts }).unwrap();
    for changed in 0..whole.len() {
        let mut bytes = whole[changed].1.to_vec();
        let at = if changed == 0 { bytes.iter().position(|byte| *byte == b'm').unwrap() } else { bytes.len() / 2 };
        bytes[at] ^= 1;
        let mut entries = whole.clone();
        entries[changed].1 = &bytes;
        entries.push(("footer.json", &footer));
        let (part, why) = damage(&forge(&entries, false));
        assert_eq!(part.as_deref(), Some(whole[changed].0), "{why}");
    }
}

#[test]
fn an_archive_that_is_cut_is_none() {
    let snapshot = snapshot_file(100);
    let one = identity();
    for (seal, opening) in
        [(Seal::Recipients(vec![one.to_recipient()]), opened_by(&one)), (Seal::Open, Opening::default())]
    {
        let archive = write(&seal, &snapshot);
        // Also behind each line of what age writes before the rest.
        let lines = archive.iter().take(1000).enumerate().filter_map(|(at, byte)| (*byte == b'\n').then_some(at + 1));
        let ends = (0..archive.len()).step_by(archive.len() / 40).chain([archive.len() - 1]).chain(lines);
        for end in ends {
            assert!(verify_archive(&archive[..end], &opening).is_err(), "{end} of {}", archive.len());
        }
        let longer = [archive.as_slice(), b"x"].concat();
        assert!(verify_archive(longer.as_slice(), &opening).is_err(), "a byte behind the end");
    }
}

/// A stream that breaks after some bytes.
struct Breaking<'s>(&'s [u8]);

impl Read for Breaking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "gone"));
        }
        self.0.read(buffer)
    }
}

/// The error of writing an archive with a snapshot of `size` bytes from a stream that breaks.
fn write_broken_stream(size: usize, stream: impl Read) -> String {
    match write_archive(Vec::new(), &Seal::Open, &contents(size), stream) {
        Err(WriteError::Stream(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_that_breaks_or_has_another_size_is_no_archive() {
    let snapshot = snapshot_file(40);
    let size = snapshot.len();
    for tenth in 0..10 {
        let end = size * tenth / 10;
        assert_eq!(write_broken_stream(size, Breaking(&snapshot[..end])), "gone", "{end}");
        let ended = write_broken_stream(size, &snapshot[..end]);
        assert_eq!(ended, format!("{end} of {size} bytes arrived"));
    }
    let longer = [snapshot.as_slice(), b"x"].concat();
    assert!(write_broken_stream(size, longer.as_slice()).contains("bytes arrived"));
    let mut flipped = snapshot.clone();
    flipped[1000] ^= 1;
    assert!(write_broken_stream(size, flipped.as_slice()).contains("SHA-256"));
}

/// A target without room.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_target_without_room_is_told_from_a_broken_stream() {
    let snapshot = snapshot_file(2000);
    let found = write_archive(Full(20), &Seal::Open, &contents(snapshot.len()), snapshot.as_slice()).err().unwrap();
    assert!(matches!(&found, WriteError::Output(error) if error.kind() == io::ErrorKind::StorageFull), "{found:?}");
}

/// What is found wrong with a usual archive that has other entries between its header and its snapshot.
fn find_damage_between(whole: &[(&str, &[u8])], more: &[(&str, &[u8])]) -> String {
    damage(&forge(&[&whole[..1], more, &whole[4..]].concat(), true)).1
}

#[test]
fn forged_archives_are_refused_before_they_are_read() {
    let snapshot = snapshot_file(4);
    let head = serde_json::to_vec(&header(snapshot.len())).unwrap();
    let whole = usual(&head, &snapshot);
    assert_eq!(
        find_damage_between(&whole, &[("../../etc/passwd", b"x")]),
        "`../../etc/passwd` is not part of a backup"
    );
    assert_eq!(find_damage_between(&whole, &[("keys/..yaml", b"x")]), "`keys/..yaml` is not part of a backup");
    assert!(find_damage_between(&whole, &[("keys/\u{1b}[2J.yaml", b"x")]).contains("\\u{1b}"));
    assert_eq!(find_damage_between(&whole, &[("values.yaml", &b"x"[..]); 2]), "the parts are in the wrong order");
    assert_eq!(find_damage_between(&whole, &[("keys/a.yaml", &b"x"[..]); 2]), "it contains part keys/a.yaml twice");
    assert_eq!(damage(&forge(&whole[1..], true)).1, "the parts are in the wrong order");
    assert_eq!(damage(&forge(&whole[..4], true)).1, "no snapshot precedes it");
    assert_eq!(damage(&forge(&whole, false)).1, "it has no footer");
    let names: Vec<String> = (0..100).map(|number| format!("keys/s{number}.yaml")).collect();
    let many: Vec<(&str, &[u8])> =
        whole[..1].iter().copied().chain(names.iter().map(|name| (name.as_str(), &b"x"[..]))).collect();
    assert!(damage(&forge(&many, true)).1.contains("more than 64 parts"));
    let short = header(snapshot.len() - 512);
    let short = serde_json::to_vec(&short).unwrap();
    assert!(damage(&forge(&usual(&short, &snapshot), true)).1.contains("the header gives another size"));
    assert!(damage(b"what is this").1.contains("not a backup"));
    assert!(damage(b"").1.contains("not a backup"));
    assert!(
        damage(&[b"age-encryption.org/v1\n-> X25519 ".as_slice(), &vec![b'a'; 100_000]].concat())
            .1
            .contains("incomplete or too long")
    );
}

#[test]
fn a_format_of_the_future_is_not_guessed_at() {
    let head = br#"{"format": 2, "everything": "else"}"#;
    let (part, why) = damage(&forge(&usual(head, &snapshot_file(1)), true));
    assert_eq!(part.as_deref(), Some("header.json"));
    assert!(why.contains("format 2; this program reads up to format 1"), "{why}");
}

#[test]
fn a_part_that_only_says_it_is_large_is_not_read() {
    let mut archive = GzEncoder::new(Vec::new(), Compression::fast());
    let mut head = tar::Header::new_gnu();
    head.set_path("header.json").unwrap();
    head.set_size(1 << 40);
    head.set_cksum();
    archive.write_all(head.as_bytes()).unwrap();
    let (part, why) = damage(&archive.finish().unwrap());
    assert_eq!(part.as_deref(), Some("header.json"));
    assert!(why.contains("the limit is"), "{why}");
}

#[test]
fn zeros_that_unpack_behind_the_footer_are_counted() {
    let snapshot = snapshot_file(4);
    let head = serde_json::to_vec(&header(snapshot.len())).unwrap();
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(forge(&usual(&head, &snapshot), true).as_slice()).read_to_end(&mut plain).unwrap();
    let mut again = GzEncoder::new(Vec::new(), Compression::fast());
    again.write_all(&plain).unwrap();
    again.write_all(&vec![0; 200_000]).unwrap();
    assert!(damage(&again.finish().unwrap()).1.contains("data after the footer"));
}

#[test]
fn a_secret_key_in_the_place_of_a_recipient_is_recognised() {
    let one = identity();
    let text = one.to_text();
    assert_eq!(text.expose().parse::<Recipient>(), Err(RecipientError::Secret));
    assert_eq!("age1nothing".parse::<Recipient>(), Err(RecipientError::Unreadable));
    assert_eq!(one.to_recipient().to_string().parse(), Ok(one.to_recipient()));
    let file = format!("# created: today\n\n{}\n", text.expose());
    let read = Identity::parse_file(&file).unwrap();
    assert_eq!(read[0].to_recipient(), one.to_recipient());
    assert!(Identity::parse_file("# nothing\n").is_none() && Identity::parse_file("ssh-ed25519 AAAA\n").is_none());
}

/// The names that `tar` lists in a stream.
fn list_with_tar(unsealed: &[u8]) -> Vec<String> {
    let mut tar = Command::new("tar").arg("-tzf-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = tar.stdin.take().unwrap();
    input.write_all(unsealed).unwrap();
    drop(input);
    let ended = tar.wait_with_output().unwrap();
    assert!(ended.status.success());
    String::from_utf8(ended.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn any_reader_of_age_and_tar_lists_the_parts() {
    let snapshot = snapshot_file(40);
    let one = identity();
    let archive = write(&Seal::Recipients(vec![one.to_recipient()]), &snapshot);
    let key: age::x25519::Identity = one.to_text().expose().parse().unwrap();
    let unsealed = age::decrypt(&key, &archive).unwrap();
    let names = list_with_tar(&unsealed);
    assert_eq!((names.len(), names.last().map(String::as_str)), (7, Some("footer.json")));
    let mut unpacked = tar::Archive::new(flate2::read::GzDecoder::new(Cursor::new(unsealed)));
    let mut entries = unpacked.entries().unwrap().map(Result::unwrap);
    let mut found = entries.find(|entry| entry.path_bytes() == b"snapshot.db".as_slice()).unwrap();
    let mut stored = Vec::new();
    found.read_to_end(&mut stored).unwrap();
    assert_eq!(stored, snapshot);
}

/// A store that is made while it is read, with etcd's hash behind it. Its pages cannot be packed.
struct MadeStore {
    block: Vec<u8>,
    at: usize,
    rest: u64,
    hash: Sha256,
    end: Option<io::Cursor<Vec<u8>>>,
}

impl MadeStore {
    fn new(bytes: u64) -> Self {
        let mut state = 1_u64;
        let block = (0..1 << 18).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u8::try_from(state >> 56).unwrap()
        });
        let block = block.collect();
        Self { block, at: 0, rest: bytes, hash: Sha256::new(), end: None }
    }
}

impl Read for MadeStore {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest == 0 {
            let hash = &self.hash;
            return self.end.get_or_insert_with(|| io::Cursor::new(hash.clone().finalize().to_vec())).read(buffer);
        }
        let most = usize::try_from(self.rest).unwrap_or(usize::MAX).min(self.block.len() - self.at).min(buffer.len());
        let piece = &self.block[self.at..self.at + most];
        buffer[..most].copy_from_slice(piece);
        self.hash.update(piece);
        self.at = (self.at + most) % self.block.len();
        self.rest -= most as u64;
        Ok(most)
    }
}

/// Writes and verifies a sealed archive of a store of `STORE_MIB`, and prints the peak of this process. Alone in its process:
/// `STORE_MIB=2048 cargo test --release --lib backup::tests::large_store -- --exact --ignored --nocapture`.
#[test]
#[expect(clippy::print_stdout, reason = "another process reads it")]
#[ignore = "alone in its process: memory_does_not_grow_with_the_store runs it"]
fn large_store() {
    let mib: u64 = std::env::var("STORE_MIB").unwrap_or_else(|_| "2048".to_owned()).parse().unwrap();
    let one = identity();
    let bytes = mib << 20;
    let mut contents = contents(0);
    contents.header.snapshot_bytes = bytes + 32;
    let seal = Seal::Recipients(vec![one.to_recipient()]);
    let file = tempfile::tempfile().unwrap();
    let (mut file, written) = write_archive(file, &seal, &contents, MadeStore::new(bytes)).unwrap();
    assert!(written.bytes > bytes, "the store cannot be packed");
    io::Seek::rewind(&mut file).unwrap();
    let verified = verify_archive(file, &opened_by(&one)).unwrap();
    assert_eq!(verified.sha256, written.sha256);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM:")).unwrap());
}

#[test]
fn memory_does_not_grow_with_the_store() {
    let (small, larger) = (measure_peak_kib("1"), measure_peak_kib("16"));
    assert!(larger < small + 4 * 1024 && larger <= 64 * 1024, "{small} and {larger} KiB");
}

/// The peak of a process that runs [`large_store`], in KiB.
fn measure_peak_kib(mib: &str) -> u64 {
    let program = std::env::current_exe().unwrap();
    let arguments = ["backup::tests::large_store", "--exact", "--ignored", "--nocapture"];
    let ran = Command::new(program).args(arguments).env("STORE_MIB", mib).output().unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    let peak = text.lines().find_map(|line| line.split("VmHWM:").nth(1)).unwrap_or_else(|| panic!("{text}"));
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}
