//! Recordings of a fleet: files with names, labels and numbers, plain or compressed.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use serde::{Deserialize, Serialize};

use crate::api::placeable::{Kinds, Placeable, WAVE_REST};
use crate::api::util::file;
use crate::api::util::text::visible_line;
use crate::chart::output;
use crate::cli::output::error::CliError;
use crate::placement::simulate::FleetState;

/// Format that is written, and the newest that is read.
const FORMAT: u64 = 1;
/// Largest recording, also when it is no longer compressed.
const LARGEST: u64 = 512 << 20;
/// First bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Most kinds that are taken from a recording.
const MOST_KINDS: usize = 100;

/// First fields of a recording, whatever its format.
#[derive(Deserialize)]
struct Header {
    #[serde(rename = "fleetRecording")]
    format: u64,
}

/// A recording.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording<S> {
    #[serde(rename = "fleetRecording")]
    format: u64,
    fleet: S,
}

/// Writes a stripped state; the same state is always the same bytes.
pub(super) fn write_recording(path: &Path, state: &FleetState) -> Result<(), CliError> {
    let text = output::format_json(&Recording { format: FORMAT, fleet: state });
    let mut bytes = text.into_bytes();
    if path.extension().is_some_and(|ending| ending == "gz") {
        // Neither a time nor a name is in it.
        let mut writer = GzBuilder::new().write(Vec::new(), Compression::best());
        let written = writer.write_all(&bytes).and_then(|()| writer.finish());
        bytes = written.map_err(|error| unwritable_recording(path, &error))?;
    }
    file::replace_file(path, &bytes, 0o644).map_err(|error| unwritable_recording(path, &error))
}

fn unwritable_recording(path: &Path, error: &(dyn std::error::Error + 'static)) -> CliError {
    CliError::usage("BadRecording", format!("cannot write the recording {}", path.display())).because(error)
}

/// Reads a recording.
pub(super) fn read_recording(path: &Path) -> Result<FleetState, CliError> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|opened| opened.take(LARGEST + 1).read_to_end(&mut bytes));
    read.map_err(file::wrap_io_error("read", path)).map_err(|error| unreadable_recording(path, &error))?;
    if bytes.starts_with(&GZIP) {
        let mut plain = Vec::new();
        let read = GzDecoder::new(bytes.as_slice()).take(LARGEST + 1).read_to_end(&mut plain);
        read.map_err(|error| unreadable_recording(path, &error))?;
        bytes = plain;
    }
    if bytes.len() as u64 > LARGEST {
        return Err(bad_recording(format!("the recording {shown} is larger than {} MiB", LARGEST >> 20)));
    }
    let header: Header = serde_json::from_slice(&bytes).map_err(|error| malformed_recording(path, &error))?;
    if header.format != FORMAT {
        let headline = format!(
            "the recording {shown} has format {}, and this version of fleetctl reads format {FORMAT}",
            header.format
        );
        return Err(bad_recording(headline).hint("or use a newer version of fleetctl"));
    }
    let recording: Recording<FleetState> =
        serde_json::from_slice(&bytes).map_err(|error| malformed_recording(path, &error))?;
    let mut state = recording.fleet;
    state.strip_again();
    Ok(state)
}

fn unreadable_recording(path: &Path, error: &(dyn std::error::Error + 'static)) -> CliError {
    bad_recording(format!("cannot read the recording {}", path.display())).because(error)
}

/// The messages of the parser end with line and column, and quote at most a name.
fn malformed_recording(path: &Path, error: &serde_json::Error) -> CliError {
    bad_recording(format!("{} is not a recording of a fleet", path.display())).cause(visible_line(&error.to_string()))
}

fn bad_recording(headline: String) -> CliError {
    CliError::usage("BadRecording", headline)
        .hint("record the fleet again: `fleetctl simulate --context NAME --record FILE`")
        .hint_of_reason()
}

/// Returns the kinds that a state's control plane places.
pub(super) fn read_kinds(state: &FleetState) -> Kinds {
    let added = state.added_kinds.iter().take(MOST_KINDS).filter_map(|(kind, namespaced)| {
        let [group, version, kind] = kind.split('/').collect::<Vec<_>>()[..] else { return None };
        let placeable = Placeable {
            group: group.to_owned().leak(),
            version: version.to_owned().leak(),
            kind: kind.to_owned().leak(),
            plural: format!("{}s", kind.to_lowercase()).leak(),
            namespaced: *namespaced,
            wave: WAVE_REST,
        };
        Some(&*Box::leak(Box::new(placeable)))
    });
    Kinds::with_added(added.collect())
}
