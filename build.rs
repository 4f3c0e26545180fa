//! Checks what `include_dir!` embeds (the charts, the presets of values, the pages of `explain`), as the macro does not: a
//! new file leads to a new build, and a file that is not text or has an unexpected extension stops it. Refuses a chart
//! that holds a kind which some Kubernetes version of its row does not serve.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use granit_parser::{Event, Parser};

#[path = "src/api/kinds.rs"]
#[allow(dead_code, unreachable_pub, clippy::struct_field_names, reason = "the library uses the rest of it")]
mod kinds;

/// The folders that are embedded, and the extensions that each may hold.
const FOLDERS: [(&str, &[&str]); 3] = [("charts", &["yaml"]), ("values", &["yaml", "json"]), ("docs/explain", &["md"])];

/// A Kubernetes minor that serves what only newer clusters do.
const NEWEST: u32 = 36;

/// Files for people that may lie beside the data; the program does not find them at run time.
const IGNORED: [&str; 2] = ["README.md", ".gitkeep"];

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            println!("cargo::rerun-if-changed={}", path.display());
            found.push(path);
        }
    }
}

/// Stops the build if a folder that is embedded holds anything but text with one of the extensions, and watches all of it:
/// a new file leads to a new build, in which the macro finds it.
fn check_folder(root: &Path, folder: &str, extensions: &[&str]) {
    // Also watched while it does not exist, so that its creation is noticed.
    println!("cargo::rerun-if-changed={folder}");
    let mut found = Vec::new();
    files_below(&root.join(folder), &mut found);
    for path in found {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if IGNORED.contains(&name.as_ref()) {
            continue;
        }
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        assert!(
            extensions.contains(&extension.as_ref()),
            "{} does not belong into {folder}/: only files ending in {extensions:?} are embedded",
            path.display()
        );
        if let Err(error) = fs::read_to_string(&path) {
            panic!("{}: {error}", path.display());
        }
    }
}

/// The documents of a text without markup: the line that each begins at, and all as a list in JSON. Templates that are
/// the same for every input are read here once, and not in each run.
fn documents(path: &Path) -> Option<(Vec<usize>, String)> {
    let text = fs::read_to_string(path).expect("a readable template");
    if ["{{", "{%", "{#"].iter().any(|markup| text.contains(markup)) {
        return None;
    }
    let (mut lines, mut objects) = (Vec::new(), Vec::new());
    let mut before = 0;
    for document in text.split_inclusive("\n---") {
        let begins = document.lines().position(|line| line.starts_with("apiVersion:") || line.starts_with("kind:"));
        let object: serde_json::Value = serde_saphyr::from_str(document.trim_end_matches("---"))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if !object.is_null() {
            lines.push(before + begins.unwrap_or_default() + 1);
            objects.push(object);
        }
        before += document.matches('\n').count();
    }
    Some((lines, serde_json::to_string(&objects).expect("JSON of JSON")))
}

/// The list of what [`documents`] gives for the table of versions, for each `chart.yaml`, and for each file that the control
/// plane applies inside, by its path below `charts/`.
fn list_documents(root: &Path) -> String {
    let mut found = Vec::new();
    files_below(&root.join("charts"), &mut found);
    found.sort();
    let mut code = String::from("pub(super) static DOCUMENTS: &[(&str, &[usize], &str)] = &[\n");
    let same = |path: &&PathBuf| {
        path.ends_with("chart.yaml")
            || path.ends_with("charts/versions.yaml")
            || path.parent().is_some_and(|folder| folder.ends_with("bootstrap"))
    };
    for path in found.iter().filter(same) {
        let below = path.strip_prefix(root.join("charts")).expect("a path below its folder");
        if let Some((lines, json)) = documents(path) {
            let below = below.to_string_lossy().replace('\\', "/");
            writeln!(code, "    ({below:?}, &{lines:?}, {json:?}),").expect("writing to text");
        }
    }
    code.push_str("];\n");
    code
}

/// What a git command prints, or nothing outside a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new("git").args(arguments).env("TZ", "UTC").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Gives `--version` of a release the commit and its time. The commit's time, not the build's: the same source gives the
/// same binary. Other profiles are not stamped, so that a commit alone leads to no new build.
fn stamp() {
    let ask = |arguments: &[&str]| git(arguments).filter(|_| is_release());
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = ask(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = ask(&["rev-parse", "--short=8", "HEAD"]).unwrap_or_else(|| "00000000".to_owned());
    let time = ask(&["log", "-1", "--date=format-local:%Y%m%d%H%M%S", "--format=%cd"]);
    println!("cargo::rustc-env=FLEETCTL_GIT={commit}");
    println!("cargo::rustc-env=FLEETCTL_BUILT={}", time.unwrap_or_else(|| "00000000000000".to_owned()));
}

/// Whether this is the build that users get; the profiles of Cargo.toml differ in this.
fn is_release() -> bool {
    env::var("OPT_LEVEL").is_ok_and(|level| level == "3")
}

/// Links a release for a fixed address, as Go links its programs: the loader of a position-independent program first writes
/// twenty thousand addresses into a hundred pages, a sixth of the time that `--version` takes. Only with the linkers that
/// Rust uses by itself.
fn link() {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let own_linker = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    let is_static = env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|features| features.contains("crt-static"));
    let is_gnu = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is_gnu && is_release() && !own_linker && !is_static {
        println!("cargo::rustc-link-arg-bin=fleetctl=-no-pie");
    }
}

/// YAML without types: all that the table and `chart.yaml` need.
enum Yaml {
    Text(String),
    List(Vec<Self>),
    Map(BTreeMap<String, Self>),
}

impl Yaml {
    fn parse(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let events: Result<Vec<Event<'_>>, _> =
            Parser::new_from_str(&text).map(|event| event.map(|(event, _)| event)).collect();
        let events = events.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let is_data = |event: &Event<'_>| event.is_node() || matches!(event, Event::SequenceEnd | Event::MappingEnd);
        let mut events = events.into_iter().filter(is_data).collect::<Vec<_>>().into_iter();
        Self::node(&mut events).unwrap_or_else(|| panic!("{} is empty", path.display()))
    }

    /// The next node; nothing at the end of a list, a mapping or the document.
    fn node(events: &mut std::vec::IntoIter<Event<'_>>) -> Option<Self> {
        Some(match events.next()? {
            Event::Scalar(text, ..) => Self::Text(text.into_owned()),
            Event::SequenceStart(..) => Self::List(std::iter::from_fn(|| Self::node(events)).collect()),
            Event::MappingStart(..) => {
                let mut map = BTreeMap::new();
                while let Some(key) = Self::node(events) {
                    let key = key.text().expect("keys are text").to_owned();
                    map.insert(key, Self::node(events).expect("a value behind a key"));
                }
                Self::Map(map)
            }
            Event::SequenceEnd | Event::MappingEnd => return None,
            _ => panic!("aliases have no place here"),
        })
    }

    fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(map) => map.get(key),
            _ => None,
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }
}

/// The minor of `v1.29` or `v1.29.4`.
fn minor(version: &str) -> u32 {
    let part = version.split('.').nth(1).and_then(|part| part.parse().ok());
    part.unwrap_or_else(|| panic!("`{version}` is no Kubernetes version"))
}

/// The templates of a line, flattened: by name in the chart, the file that holds it.
fn flatten(kind_folder: &Path, line: &str) -> BTreeMap<String, PathBuf> {
    let folder = kind_folder.join(line);
    let manifest = Yaml::parse(&folder.join("chart.yaml"));
    let mut files = match manifest.get("extends").and_then(Yaml::text) {
        Some(below) => flatten(kind_folder, below),
        None => BTreeMap::new(),
    };
    for name in manifest.get("remove").map(Yaml::items).unwrap_or_default() {
        files.remove(name.text().unwrap_or_default());
    }
    for part in ["templates", "bootstrap"] {
        let mut found = Vec::new();
        files_below(&folder.join(part), &mut found);
        for path in found {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.insert(format!("{part}/{name}"), path);
        }
    }
    files
}

/// Stops the build if a template holds a kind that one of the minors does not serve.
///
/// One that asks `facts` what the cluster serves is rendered where that is so: it holds kinds of any minor up to the newest.
///
/// Templates have to write `apiVersion` and `kind` out, at the beginning of a line, so that they can be read here. Where
/// a document has several under conditions, one of them has to do.
fn check_template(path: &Path, minors: &[u32], row: &str) {
    let text = fs::read_to_string(path).expect("a readable template");
    let asks = text.contains("facts.admissionPolicies");
    let minors = if asks { &[NEWEST][..] } else { minors };
    for document in text.split("\n---") {
        let values = |key: &str| -> Vec<&str> {
            document.lines().filter_map(|line| line.strip_prefix(key)).map(str::trim).collect()
        };
        let (versions, kinds) = (values("apiVersion:"), values("kind:"));
        for kind in kinds {
            for &minor in minors {
                let checks: Vec<Result<(), String>> =
                    versions.iter().map(|version| kinds::check_served(version, kind, minor)).collect();
                if let (false, Some(Err(problem))) = (checks.iter().any(Result::is_ok), checks.first()) {
                    panic!("{} (service version {row}): {problem}", path.display());
                }
            }
        }
    }
}

fn check_charts(root: &Path) {
    let charts = root.join("charts");
    let table = charts.join("versions.yaml");
    if !table.exists() {
        return;
    }
    let table = Yaml::parse(&table);
    // What is in `bootstrap/` lives in the control plane's own API server.
    let of_hub = |image: &str| table.get("hub")?.get("images")?.get(image)?.get("tag")?.text().map(minor);
    let own: Vec<u32> = of_hub("apiserver").into_iter().collect();
    assert!(!own.is_empty(), "charts/versions.yaml: `hub` has no image `apiserver`");
    for row in table.get("lines").map(Yaml::items).unwrap_or_default() {
        let version = row.get("version").and_then(Yaml::text).expect("a version in every row");
        let hosting: Vec<u32> = row
            .get("kubernetes")
            .map(Yaml::items)
            .unwrap_or_default()
            .iter()
            .filter_map(Yaml::text)
            .map(minor)
            .collect();
        let Some(Yaml::Map(lines)) = row.get("charts") else { continue };
        for (kind, line) in lines {
            for (name, path) in flatten(&charts.join(kind), line.text().unwrap_or_default()) {
                let minors = if name.starts_with("bootstrap/") { &own } else { &hosting };
                check_template(&path, minors, version);
            }
        }
    }
}

fn main() {
    stamp();
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/api/kinds.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    for (folder, extensions) in FOLDERS {
        check_folder(&root, folder, extensions);
    }
    fs::write(out.join("documents.rs"), list_documents(&root)).expect("a writable OUT_DIR");
    check_charts(&root);
    link();
}
