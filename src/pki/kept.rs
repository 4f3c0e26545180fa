//! A set of keys that is kept in a folder. Beside it lies a note of what was found good, so that a set is not verified
//! again, signature by signature, each time it is used: saves 2.7 of 12.1 ms of CPU of `template control-plane`.

use std::path::Path;

use jiff::Timestamp;

use super::folder::{read_regular, write_new_folder};
use super::{
    Authorities, Completed, Files, FolderError, Lifetimes, PkiError, Subject, ensure_key_set, facts_of, read_folder,
    write_file, write_folder,
};
use crate::api::util::digest::full_digest;

/// The file of the note. A name with a dot in front is no part of a set.
///
/// Whoever can write it can write the keys too, so it gives nobody a power that he has not got.
const NOTE: &str = ".checked";

/// Reason that a set in a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// An error of the folder or of a file in it.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// An error of the keys and certificates in it.
    #[error(transparent)]
    Keys(#[from] PkiError),
}

/// As [`ensure_key_set`], for the set in a folder; what was made is written there. A new set appears at once: of several runs that
/// find none, all use that of the fastest.
///
/// # Errors
/// [`KeptError`]; nothing was written then, unless it is the writing that failed.
pub fn ensure_kept(
    folder: &Path,
    subject: &Subject,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<Completed, KeptError> {
    let found = read_folder(folder)?;
    // A note that cannot be read counts as missing; it is rewritten.
    let noted = read_regular(&folder.join(NOTE)).ok().flatten();
    if noted
        .and_then(|text| Note::parse(&text))
        .is_some_and(|note| note.is_valid_at(now) && note.digest == digest_key_set(&found, subject, lifetimes))
    {
        return Ok(Completed {
            files: found,
            new_authorities: false,
            renewed_authorities: Vec::new(),
            issued: Vec::new(),
            rewritten: Vec::new(),
        });
    }
    let completed = ensure_key_set(&found, subject, now, lifetimes)?;
    let mut written = completed.is_unchanged();
    if completed.new_authorities {
        // A note without a set is of no use, and would keep the new one from its place.
        let _ = std::fs::remove_file(folder.join(NOTE));
        written = write_new_folder(folder, &completed.files)?;
        // Another run was faster.
        if !written && Authorities::any_in(&read_folder(folder)?) {
            return ensure_kept(folder, subject, now, lifetimes);
        }
    }
    if !written {
        write_folder(folder, &completed.files)?;
    }
    // What lies there besides is part of what the next run finds.
    let mut kept = found;
    kept.extend(completed.files.clone());
    if let Some(until) = good_until(&kept, lifetimes).filter(|until| *until > now) {
        let note = Note {
            digest: digest_key_set(&kept, subject, lifetimes),
            since: now.as_second(),
            until: until.as_second(),
        };
        write_file(folder, NOTE, &note.to_text())?;
    }
    Ok(completed)
}

/// Record of a set that was found good, and of the time for which it is.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    /// SHA-256, in hexadecimal, of the set and of what was asked of it.
    digest: String,
    /// Start of that time, in seconds since 1970; `until` is its end. A clock that was set back behind the start asks
    /// for a new judgement.
    since: i64,
    until: i64,
}

impl Note {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let digest = words.next()?.to_owned();
        let (since, until) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(Self { digest, since, until })
    }

    fn to_text(&self) -> String {
        format!("{} {} {}\n", self.digest, self.since, self.until)
    }

    fn is_valid_at(&self, now: Timestamp) -> bool {
        (self.since..self.until).contains(&now.as_second())
    }
}

/// Returns the digest of a set and of what is asked of it. The program's version is in it too: another one may ask for
/// more.
fn digest_key_set(files: &Files, subject: &Subject, lifetimes: &Lifetimes) -> String {
    let mut all = format!("{} {subject:?} {lifetimes:?}", env!("CARGO_PKG_VERSION"));
    for (name, text) in files.expose_all() {
        all.push_str(&format!(" {name:?} {}", full_digest(text.as_bytes())));
    }
    full_digest(all.as_bytes())
}

/// The moment when the first certificate needs another look.
fn good_until(files: &Files, lifetimes: &Lifetimes) -> Option<Timestamp> {
    let ends =
        facts_of(files).into_iter().map(|(_, facts)| facts.ok()?.not_after.checked_sub(lifetimes.renew_before).ok());
    ends.collect::<Option<Vec<_>>>()?.into_iter().min()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::pki::{Endpoint, San};

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn subject(host: &str) -> Subject {
        Subject {
            control_plane: "demo".to_owned(),
            namespace: "fleet".to_owned(),
            public: Endpoint { host: San::Dns(host.to_owned()), port: 443 },
            internal: Subject::internal_endpoint("fleet"),
            extra_sans: Vec::new(),
        }
    }

    fn now() -> Timestamp {
        "2026-03-01T00:00:00Z".parse().unwrap()
    }

    /// A folder with a set for `a.example`, judged once.
    fn kept() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let made = ensure_kept(folder.path(), &subject("a.example"), now(), &Lifetimes::default()).unwrap();
        assert!(made.new_authorities);
        folder
    }

    fn again(folder: &tempfile::TempDir, now: Timestamp) -> Result<Completed, KeptError> {
        ensure_kept(folder.path(), &subject("a.example"), now, &Lifetimes::default())
    }

    #[test]
    fn a_set_that_was_found_good_is_taken_as_it_is() {
        let folder = kept();
        let full =
            ensure_key_set(&read_folder(folder.path()).unwrap(), &subject("a.example"), now(), &Lifetimes::default());
        let noted = again(&folder, now()).unwrap();
        assert!(noted.is_unchanged());
        assert_eq!(noted.files, full.unwrap().files);
        // It is the note that was believed: with one that fits, even a set that is none passes.
        let nonsense = Files::from_iter([("ca.crt".to_owned(), "none".to_owned())]);
        let empty = tempfile::tempdir().unwrap();
        write_folder(empty.path(), &nonsense).unwrap();
        let seconds = now().as_second();
        let digest = digest_key_set(&nonsense, &subject("a.example"), &Lifetimes::default());
        write_file(empty.path(), NOTE, &Note { digest, since: seconds, until: seconds + 1 }.to_text()).unwrap();
        assert!(again(&empty, now()).unwrap().is_unchanged());
    }

    #[test]
    fn a_set_is_judged_again_when_a_file_the_subject_or_the_time_is_another() {
        let folder = kept();
        let path = folder.path().join("apiserver.crt");
        let good = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, good.replace('A', "B")).unwrap();
        assert_eq!(
            again(&folder, now()).unwrap().issued.len(),
            1,
            "a certificate that is no longer one is issued anew"
        );

        std::fs::remove_file(folder.path().join("etcd-ca.key")).unwrap();
        assert!(matches!(again(&folder, now()), Err(KeptError::Keys(PkiError::Missing { .. }))));

        let folder = kept();
        let moved = ensure_kept(folder.path(), &subject("b.example"), now(), &Lifetimes::default()).unwrap();
        assert!(!moved.is_unchanged(), "another address needs another certificate");

        let folder = kept();
        let late = now() + 306 * DAY;
        assert_eq!(again(&folder, late).unwrap().issued.len(), 9, "leaves near their end are issued anew");
    }

    #[test]
    fn a_note_covers_the_time_until_the_first_certificate_needs_another_look() {
        let folder = kept();
        let note = Note::parse(&std::fs::read_to_string(folder.path().join(NOTE)).unwrap()).unwrap();
        assert!(note.is_valid_at(now()) && note.is_valid_at(now() + 304 * DAY));
        assert!(!note.is_valid_at(now() + 306 * DAY) && !note.is_valid_at(now() - Duration::from_secs(1)));
    }

    #[test]
    fn a_note_that_cannot_be_read_is_none() {
        let folder = kept();
        for text in [b"".as_slice(), b"abc", b"abc 1", b"abc 1 x", b"abc 1 2 3", b"\xff"] {
            std::fs::write(folder.path().join(NOTE), text).unwrap();
            assert!(again(&folder, now()).unwrap().is_unchanged(), "{text:?}");
            assert!(Note::parse(&std::fs::read_to_string(folder.path().join(NOTE)).unwrap()).is_some(), "{text:?}");
        }
    }

    #[test]
    fn of_runs_that_begin_at_once_all_use_the_set_of_the_fastest() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("pki");
        let start = Barrier::new(4);
        let sets: Vec<Files> = thread::scope(|scope| {
            let runs = [(); 4].map(|()| {
                scope.spawn(|| {
                    start.wait();
                    ensure_kept(&folder, &subject("a.example"), now(), &Lifetimes::default()).unwrap().files
                })
            });
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        let kept = read_folder(&folder).unwrap();
        assert!(sets.iter().all(|set| *set == kept));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_note_that_outlived_its_set_keeps_no_new_one_from_its_place() {
        let folder = kept();
        let before = std::fs::metadata(folder.path()).unwrap().ino();
        for name in read_folder(folder.path()).unwrap().file_names() {
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
        assert!(again(&folder, now()).unwrap().new_authorities);
        let after = std::fs::metadata(folder.path()).unwrap().ino();
        assert_ne!(after, before, "a folder with the whole set took the place of the one that was there");
        assert!(again(&folder, now()).unwrap().is_unchanged());
    }

    #[test]
    fn a_file_of_others_stays_beside_a_new_set() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("README"), "mine").unwrap();
        assert!(again(&folder, now()).unwrap().new_authorities);
        assert_eq!(std::fs::read_to_string(folder.path().join("README")).unwrap(), "mine");
        assert!(again(&folder, now()).unwrap().is_unchanged());
    }

    #[test]
    fn the_note_is_no_part_of_the_set() {
        let folder = kept();
        assert!(folder.path().join(NOTE).exists());
        assert!(!read_folder(folder.path()).unwrap().contains(NOTE));
    }
}
