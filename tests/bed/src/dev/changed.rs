//! Which test targets on clusters a change touches: by the rooms that they exercise, and by what those import.

use std::collections::{BTreeMap, BTreeSet};

use super::test::{ENGINE, ETCD, INSTALL, ON_CLUSTERS, PACKAGER, RUNTIME};

/// The page with the table of rooms and what each may import.
const ROOMS: &str = include_str!("../../../../CONTRIBUTING.md");

/// The rooms that a target begins at: those whose programs it runs, or whose functions it calls.
fn roots(target: &str) -> &'static [&'static str] {
    match target {
        INSTALL => &["bin"],
        ENGINE | PACKAGER => &["control_plane", "workload_cluster"],
        RUNTIME => &["scheduler", "agent", "check"],
        ETCD => &["etcd", "scheduler"],
        _ => &[],
    }
}

/// What all of them are made of.
const OF_ALL: [&str; 6] = ["build.rs", "Cargo.toml", "Cargo.lock", ".cargo/", "src/lib.rs", "tests/bed/"];

/// What a target reads or runs beside the sources.
const READS: [(&str, &[&str]); 3] = [
    (INSTALL, &["docs/coming-from-helm.md", "docs/operator-workflow.md", "docs/quick-start.md", "examples/"]),
    (ENGINE, &["docs/kubeconfig.md"]),
    (RUNTIME, &["charts/", "docs/placement.md", "docs/security.md"]),
];

/// The rooms that each room imports, of the table.
fn imports() -> BTreeMap<&'static str, Vec<&'static str>> {
    let table = ROOMS.split("\n## ").find(|section| section.starts_with("Rooms")).unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(room, imports)| (room, imports.split('`').skip(1).step_by(2).collect())).collect()
}

/// The rooms that a target exercises.
fn rooms_of(target: &str) -> BTreeSet<&'static str> {
    let imports = imports();
    let mut found = BTreeSet::new();
    let mut open = roots(target).to_vec();
    while let Some(room) = open.pop() {
        if found.insert(room) {
            open.extend(imports.get(room).into_iter().flatten());
        }
    }
    found
}

/// The room that a file belongs to; charts and values are compiled into that of the packager.
fn room(file: &str) -> Option<&str> {
    if file.starts_with("charts/") || file.starts_with("values/") {
        return Some("chart");
    }
    file.strip_prefix("src/")?.split_once('/').map(|(room, _)| room)
}

fn touches(file: &str, target: &str) -> bool {
    let begins = |part: &&str| file.starts_with(*part);
    OF_ALL.iter().any(begins)
        || file.starts_with(&format!("tests/{target}/"))
        || READS.iter().any(|(reader, parts)| *reader == target && parts.iter().any(begins))
        || room(file).is_some_and(|room| rooms_of(target).contains(room))
}

/// The targets on clusters for changed files, each once.
pub(super) fn touched<'f>(files: impl IntoIterator<Item = &'f str>) -> Vec<&'static str> {
    let files: Vec<&str> = files.into_iter().collect();
    ON_CLUSTERS.into_iter().filter(|target| files.iter().any(|file| touches(file, target))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn checkout() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The texts of a target's sources.
    fn sources(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let of = |path: PathBuf| match path.extension() {
            None if path.is_dir() => sources(&path),
            Some(kind) if kind == "rs" => vec![std::fs::read_to_string(path).unwrap()],
            _ => Vec::new(),
        };
        entries.flat_map(of).collect()
    }

    #[test]
    fn a_change_chooses_targets_by_room() {
        assert_eq!(touched(["docs/explain/quota.md", "CHANGELOG.md", "tests/cli/main.rs", "src"]), [""; 0]);
        assert_eq!(touched(["src/cli/signals.rs"]), [INSTALL]);
        assert_eq!(touched(["src/bin/Containerfile"]), [INSTALL]);
        assert_eq!(touched(["src/scheduler/events.rs", "tests/packager/main.rs"]), [INSTALL, PACKAGER, RUNTIME, ETCD]);
        assert_eq!(touched(["src/placement/decide/mod.rs"]), [INSTALL, RUNTIME, ETCD]);
        assert_eq!(touched(["src/daemon/admin.rs"]), [INSTALL, RUNTIME, ETCD]);
        assert_eq!(touched(["src/check/quota/mod.rs"]), [INSTALL, ENGINE, PACKAGER, RUNTIME]);
        assert_eq!(touched(["src/k8s/request/retry.rs"]), ON_CLUSTERS);
        assert_eq!(touched(["src/etcd/snapshot.rs"]), ON_CLUSTERS);
        assert_eq!(touched(["src/chart/mod.rs"]), [INSTALL, ENGINE, PACKAGER]);
        assert_eq!(touched(["values/nodeport.yaml"]), [INSTALL, ENGINE, PACKAGER]);
        assert_eq!(touched(["docs/placement.md"]), [RUNTIME]);
        assert_eq!(touched(["charts/versions.yaml"]), [INSTALL, ENGINE, PACKAGER, RUNTIME]);
        for of_all in ["src/pki/mod.rs", "build.rs", "Cargo.lock"] {
            assert_eq!(touched([of_all]), ON_CLUSTERS, "{of_all}");
        }
    }

    #[test]
    fn every_room_is_in_the_table_and_runs_in_the_tests_of_installs() {
        for entry in std::fs::read_dir(checkout().join("src")).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let inside = if entry.path().is_dir() { format!("src/{name}/mod.rs") } else { format!("src/{name}") };
            assert!(touched([inside.as_str()]).contains(&INSTALL), "{inside}");
        }
    }

    #[test]
    fn what_the_sources_of_a_target_name_chooses_it() {
        for target in ON_CLUSTERS {
            let text = sources(&checkout().join("tests").join(target)).join("\n");
            let word = |rest: &str| {
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c)));
                rest[..end.unwrap_or(rest.len())].to_owned()
            };
            let named = |marker: &str| -> Vec<String> {
                text.match_indices(marker).map(|(at, _)| word(&text[at + marker.len()..])).collect()
            };
            let rooms = named("fleetctl::").into_iter().filter(|room| imports().contains_key(room.as_str()));
            let rooms: Vec<String> = rooms.map(|room| format!("src/{room}/mod.rs")).collect();
            let folders = ["charts/", "docs/", "examples/", "values/"];
            let read = folders.iter().flat_map(|folder| {
                let quoted = [format!("\"{folder}"), format!("\"/{folder}")];
                quoted.into_iter().flat_map(|marker| named(&marker)).map(move |rest| format!("{folder}{rest}"))
            });
            for file in rooms.iter().cloned().chain(read) {
                assert!(touched([file.as_str()]).contains(&target), "tests/{target} names {file}");
            }
            assert!(target == INSTALL || rooms.len() > 3, "{target}: {rooms:?}");
        }
    }
}
