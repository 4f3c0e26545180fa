//! The table of service versions, `charts/versions.yaml`: Kubernetes minors, charts and component images of each line.
//!
//! ```yaml
//! hub:                                 # the control plane's own API server and its store, of one version in all lines
//!   images:                            # what the charts run, by component
//!     etcd: {repository: registry.k8s.io/etcd, tag: 3.5.6-0}
//!     apiserver: {repository: registry.k8s.io/kube-apiserver, tag: v1.25.16}
//!     controllerManager: {repository: registry.k8s.io/kube-controller-manager, tag: v1.25.16}
//! lines:                               # a list, newest line first
//! - version: v0.6                      # the line
//!   kubernetes: [v1.24, v1.25]         # hosting and workload clusters that it supports, oldest first
//!   default: v0.6.1                    # the newest patch of the line, used when only the line is asked for
//!   charts:                            # which chart line installs it; a kind is absent while it has none
//!     control-plane: v0.6
//!     agent: v0.6
//!   images:                            # what the charts run besides
//!     scheduler: {repository: fleetscheduler/fleet-scheduler, tag: v0.6.1}
//!     agent: {repository: fleetscheduler/fleet-agent, tag: v0.6.1}
//!   deprecated: why, and what to use   # optional
//!   notes: one sentence for people     # optional
//! ```

pub mod agent_skew;
pub mod select;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::api::version::{KubeMinor, ServiceLine, ServiceVersion};

use super::diagnostic::Diagnostics;
use super::yaml::node::{Data, Node, Sources};
use super::yaml::read;
use super::{Files, Kind};

/// The path of the table below `charts/`.
const PATH: &str = "versions.yaml";

/// The key of the list of lines.
const LINES: &str = "lines";

/// The component whose image says which Kubernetes minor a control plane's own API server is of.
pub const API_SERVER: &str = "apiserver";

/// An image by repository and tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Registry and name, without a tag: `registry.k8s.io/etcd`.
    pub repository: String,
    /// The tag: `3.5.6-0`.
    pub tag: String,
}

/// One line of service versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The line: `v0.6`.
    pub version: ServiceLine,
    /// The Kubernetes minors that it supports, oldest first.
    pub kubernetes: Vec<KubeMinor>,
    /// The newest patch of the line: `v0.6.1`.
    pub default: ServiceVersion,
    /// The chart line that installs it, by kind; absent while there is none.
    #[serde(default)]
    pub charts: BTreeMap<Kind, ServiceLine>,
    /// The images of its components: `etcd`, `apiserver`, `controllerManager`, `scheduler`, `agent`. Those that all lines
    /// have in common stand once in the table, and are in every row that was read from it.
    #[serde(default)]
    pub images: BTreeMap<String, Image>,
    /// Reason that it should no longer be used, and what to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<String>,
    /// A note for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}

impl Row {
    /// The Kubernetes minor of the control plane's own API server.
    pub fn control_plane_minor(&self) -> Option<KubeMinor> {
        self.images.get(API_SERVER)?.tag.parse().ok()
    }

    /// Returns whether this line supports a cluster of that Kubernetes minor.
    pub fn supports_minor(&self, minor: KubeMinor) -> bool {
        self.kubernetes.contains(&minor)
    }

    /// The tag that a component has in one version of the line, and whether the image is the service's own. Those are the
    /// images whose tag in the table is the newest version of the line; what comes from elsewhere, such as etcd, stays.
    pub fn image_tag(&self, component: &str, version: &ServiceVersion) -> Option<(String, bool)> {
        let tag = &self.images.get(component)?.tag;
        let is_own = *tag == self.default.to_string();
        Some((if is_own { version.to_string() } else { tag.clone() }, is_own))
    }

    /// The supported minors for people: `v1.26 to v1.29`, or `v1.24`.
    pub fn format_minor_range(&self) -> String {
        match (self.kubernetes.iter().min(), self.kubernetes.iter().max()) {
            (Some(oldest), Some(newest)) if oldest == newest => oldest.to_string(),
            (Some(oldest), Some(newest)) => format!("{oldest} to {newest}"),
            _ => "no Kubernetes version".to_owned(),
        }
    }
}

/// Error of a table of versions.
#[derive(Debug, thiserror::Error)]
pub enum VersionsError {
    /// There is no file.
    #[error("charts/versions.yaml is missing")]
    Missing,
    /// It cannot be read; the text has line and column.
    #[error("charts/versions.yaml: {0}")]
    Syntax(String),
    /// It can be read but contradicts itself.
    #[error("charts/versions.yaml: {line}: {problem}")]
    Row {
        /// The line of the row.
        line: ServiceLine,
        /// The problem, as a sentence without a full stop.
        problem: String,
    },
    /// It has no rows.
    #[error("charts/versions.yaml has no rows")]
    Empty,
}

/// The table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    hub: Hub,
    lines: Vec<Row>,
}

/// The API server that control planes bring, in all lines.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hub {
    images: BTreeMap<String, Image>,
}

/// The table, newest line first.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Versions {
    rows: Vec<Row>,
    /// The text, and the images in it with their places, so that a value that comes from here can be traced; those of a
    /// row are read when they are asked for.
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    images: BTreeMap<ServiceLine, OnceLock<BTreeMap<String, Node>>>,
}

impl Versions {
    /// Reads a table and checks that it does not contradict itself.
    ///
    /// # Errors
    /// [`VersionsError`], naming the place or the row.
    pub fn parse(text: &str) -> Result<Self, VersionsError> {
        let mut sources = Sources::default();
        let source = sources.add_source(format!("charts/{PATH}"), text);
        let read = read::read_source(&sources, source);
        let Some(node) = read.map_err(|found| VersionsError::Syntax(Diagnostics(found).to_string()))? else {
            return Err(VersionsError::Empty);
        };
        let Data::Map(_) = node.data else {
            return Err(VersionsError::Syntax("a mapping with `hub` and `lines` is expected".to_owned()));
        };
        if let Some(Node { data: Data::List(rows), .. }) = node.find_at_path(&[LINES.to_owned()]) {
            // Each by itself first, for the place of what is wrong in it.
            for row in rows {
                serde_json::from_value::<Row>(row.to_json()).map_err(|error| {
                    VersionsError::Syntax(format!("{}: {error}", sources.place_at(row.origin).format_position()))
                })?;
            }
        }
        let table = serde_json::from_value(node.to_json());
        Self::of_table(table.map_err(|error| VersionsError::Syntax(error.to_string()))?, text)
    }

    /// The table that was read from `text`, checked.
    fn of_table(table: Table, text: &str) -> Result<Self, VersionsError> {
        let Table { hub, lines: mut rows } = table;
        if rows.is_empty() {
            return Err(VersionsError::Empty);
        }
        for (index, row) in rows.iter().enumerate() {
            if row.default.service_line() != row.version {
                return Err(row_error(row, format!("its default {} belongs to another line", row.default)));
            }
            if row.kubernetes.is_empty() || !row.kubernetes.is_sorted_by(|a, b| a < b) {
                return Err(row_error(
                    row,
                    "its Kubernetes versions must be a list, oldest first, each version once".to_owned(),
                ));
            }
            if let Some(newer) = rows[..index].iter().find(|newer| newer.version <= row.version) {
                return Err(row_error(
                    row,
                    format!("it is below {}, but rows are sorted newest first, each version once", newer.version),
                ));
            }
            if let Some(name) = hub.images.keys().find(|name| row.images.contains_key(*name)) {
                return Err(row_error(row, format!("its image `{name}` is already in `hub`, for all lines")));
            }
        }
        for row in &mut rows {
            row.images.extend(hub.images.clone());
        }
        let images = rows.iter().map(|row| (row.version, OnceLock::new())).collect();
        Ok(Self { rows, text: text.to_owned(), images })
    }

    /// A table of one row, which has no text of its own.
    pub(super) fn from_row(row: Row) -> Self {
        let text = super::output::format_yaml(&BTreeMap::from([(LINES, [&row])]));
        Self::parse(&text).unwrap_or_else(|_| Self { rows: vec![row], text: String::new(), images: BTreeMap::new() })
    }

    /// Reads the table out of a set of chart files.
    ///
    /// # Errors
    /// [`VersionsError`].
    pub fn from_files(files: &Files) -> Result<Self, VersionsError> {
        let text = files.get(PATH).ok_or(VersionsError::Missing)?;
        let Some(read) = files.parsed_documents(PATH) else { return Self::parse(text) };
        Self::of_table(read.parse_only_document().map_err(|error| VersionsError::Syntax(error.to_string()))?, text)
    }

    /// All rows, newest line first.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// An image of a line as it stands in the table, and the table's text, which its places point into.
    pub(super) fn image_node(&self, line: ServiceLine, name: &str) -> Option<(&str, &Node)> {
        let images = self.images.get(&line)?.get_or_init(|| self.images_of(line).unwrap_or_default());
        Some((&self.text, images.get(name)?))
    }

    /// The images of a row and those of all lines, with their places.
    fn images_of(&self, line: ServiceLine) -> Option<BTreeMap<String, Node>> {
        let index = self.rows.iter().position(|row| row.version == line)?;
        let mut sources = Sources::default();
        let source = sources.add_source(format!("charts/{PATH}"), isolate_row(&self.text, index, self.rows.len()));
        let table = read::read_source(&sources, source).ok()??;
        let Data::List(rows) = &table.find_at_path(&[LINES.to_owned()])?.data else { return None };
        let row = rows.iter().find(|node| {
            node.find_at_path(&["version".to_owned()]).is_some_and(|text| text.to_json() == line.to_string())
        });
        let of_row = row?.find_at_path(&["images".to_owned()]);
        let of_all = table.find_at_path(&["hub".to_owned(), "images".to_owned()]);
        let mut found = BTreeMap::new();
        for images in [of_all, of_row].into_iter().flatten() {
            let Data::Map(images) = &images.data else { continue };
            found.extend(images.entries.iter().map(|(name, entry)| (name.clone(), entry.node.clone())));
        }
        Some(found)
    }

    /// The row of a line.
    pub fn find_row(&self, line: ServiceLine) -> Option<&Row> {
        self.rows.iter().find(|row| row.version == line)
    }

    /// The newest line.
    pub fn newest_row(&self) -> &Row {
        &self.rows[0]
    }

    /// The newest line that supports a Kubernetes minor.
    pub fn newest_for(&self, minor: KubeMinor) -> Option<&Row> {
        self.rows.iter().find(|row| row.supports_minor(minor))
    }

    /// Returns the distance of two lines in rows of the table: 0 for the same line, 1 for neighbours; `None` if one of
    /// them is not in the table.
    pub fn row_distance(&self, a: ServiceLine, b: ServiceLine) -> Option<usize> {
        let [a, b] = [a, b].map(|line| self.rows.iter().position(|row| row.version == line));
        Some(a?.abs_diff(b?))
    }

    /// All lines for people, oldest first: `v0.6, v0.7, …`.
    pub fn format_service_lines(&self) -> String {
        let lines: Vec<String> = self.rows.iter().rev().map(|row| row.version.to_string()).collect();
        lines.join(", ")
    }
}

fn row_error(row: &Row, problem: String) -> VersionsError {
    VersionsError::Row { line: row.version, problem }
}

/// Beginning of a row in the text of the table.
const ROW: &str = "- ";

/// The text with blanks in place of all of its `count` rows but one, so that places in the rest stay where they are. All of
/// it, where the rows do not begin with a dash each.
fn isolate_row(text: &str, index: usize, count: usize) -> String {
    if text.lines().filter(|line| line.starts_with(ROW)).count() != count {
        return text.to_owned();
    }
    let mut row = 0;
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        row += usize::from(line.starts_with(ROW));
        if row == 0 || row == index + 1 {
            kept.push_str(line);
        } else {
            kept.extend(line.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        }
    }
    kept
}

/// Returns the table compiled into this program.
///
/// # Panics
/// If `charts/versions.yaml` is missing or wrong; a test holds that it is not.
pub fn embedded_versions() -> &'static Versions {
    embedded_table()
}

fn embedded_table() -> &'static Arc<Versions> {
    static TABLE: OnceLock<Arc<Versions>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let table = Versions::from_files(&Files::from_embedded());
        Arc::new(table.expect("a test holds that the table is right"))
    })
}

/// Returns the table compiled into this program, shared, for charts to keep.
pub(super) fn shared_table() -> Arc<Versions> {
    Arc::clone(embedded_table())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The six rows of the specification, without images.
    pub(in crate::chart) const TABLE: &str = include_str!("../testdata/versions.yaml");

    pub(in crate::chart) fn table() -> Versions {
        Versions::parse(TABLE).unwrap()
    }

    fn line(text: &str) -> ServiceLine {
        text.parse().unwrap()
    }

    fn newest_line(table: &Versions, minor: u32) -> Option<String> {
        table.newest_for(KubeMinor::new(1, minor)).map(|row| row.version.to_string())
    }

    #[test]
    fn rows_are_found_by_line_and_by_kubernetes_minor() {
        let table = table();
        assert_eq!(table.find_row(line("v0.6")).unwrap().default.to_string(), "v0.6.1");
        assert_eq!(table.find_row(line("v0.6")).unwrap().format_minor_range(), "v1.24 to v1.25");
        assert!(table.find_row(line("v0.5")).is_none());
        assert_eq!(newest_line(&table, 31).as_deref(), Some("v1.1"));
        assert_eq!(newest_line(&table, 28).as_deref(), Some("v0.9"));
        assert_eq!(newest_line(&table, 25).as_deref(), Some("v0.7"));
        assert_eq!(newest_line(&table, 24).as_deref(), Some("v0.6"));
        assert_eq!(newest_line(&table, 23), None);
        assert_eq!(newest_line(&table, 32), None);
        assert_eq!(table.newest_row().version, line("v1.1"));
        assert_eq!(table.row_distance(line("v0.9"), line("v1.0")), Some(1));
        assert_eq!(table.row_distance(line("v0.6"), line("v1.1")), Some(5));
    }

    #[test]
    fn an_image_is_found_where_it_stands_in_whichever_style_the_rows_are_written() {
        let rows = "# über\nlines:\n- version: v0.7\n  kubernetes: [v1.25]\n  default: v0.7.0\n  images:\n    etcd: {repository: r, tag: a}\n\
                    - {version: v0.6, kubernetes: [v1.24], default: v0.6.1, images: {etcd: {repository: r, tag: b}}}\n";
        let flow =
            "{lines: [{version: v0.6, kubernetes: [v1.24], default: v0.6.1, images: {etcd: {repository: r, tag: b}}}]}";
        let hub = "hub:\n  images:\n    etcd: {repository: r, tag: c}\nlines:\n- {version: v0.7, kubernetes: [v1.25], default: v0.7.1}\n\
                   - {version: v0.6, kubernetes: [v1.24], default: v0.6.1}\n";
        let cases =
            [(rows, "v0.7", "a"), (rows, "v0.6", "b"), (flow, "v0.6", "b"), (hub, "v0.7", "c"), (hub, "v0.6", "c")];
        for (text, of, tag) in cases {
            let table = Versions::parse(text).unwrap();
            let (found, node) = table.image_node(line(of), "etcd").unwrap();
            assert_eq!(node.to_json(), serde_json::json!({"repository": "r", "tag": tag}));
            let place = &found[node.origin.start as usize..node.origin.end as usize];
            assert!(place.contains(&format!("tag: {tag}")), "{place}");
            assert!(table.image_node(line(of), "none").is_none());
        }
    }

    #[test]
    fn a_table_that_contradicts_itself_is_refused_with_its_row() {
        let cases = [
            ("", "has no rows"),
            ("lines: []", "has no rows"),
            ("[]", "a mapping with `hub` and `lines` is expected"),
            (
                "lines:\n- {version: v0.6, kubernetes: [v1.24], default: v0.7.0}",
                "v0.6: its default v0.7.0 belongs to another line",
            ),
            ("lines:\n- {version: v0.6, kubernetes: [v1.25, v1.24], default: v0.6.1}", "oldest first"),
            ("lines:\n- {version: v0.6, kubernetes: [], default: v0.6.1}", "must be a list"),
            (
                "lines:\n- {version: v0.6, kubernetes: [v1.24], default: v0.6.1}\n- {version: v0.7, kubernetes: [v1.24], default: v0.7.0}",
                "v0.7: it is below v0.6",
            ),
            ("lines:\n- {version: v0.6, kubernetes: [v1.24], default: v0.6.1, image: {}}", "image"),
            (
                "hub: {images: {etcd: {repository: r, tag: a}}}\nlines:\n- {version: v0.6, kubernetes: [v1.24], default: v0.6.1, images: {etcd: {repository: r, tag: b}}}",
                "v0.6: its image `etcd` is already in `hub`",
            ),
            ("hub: {image: {}}\nlines: []", "image"),
            ("lines:\n- {version: six, kubernetes: [v1.24], default: v0.6.1}", "`six` is not a service version"),
        ];
        for (text, part) in cases {
            let error = Versions::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_compiled_in_table_has_the_rows_of_the_specification() {
        if Files::from_embedded().get(PATH).is_none() {
            return;
        }
        let [specified, all] = [&table(), embedded_versions()]
            .map(|table| table.rows().iter().map(|row| (row.version, row.kubernetes.clone())).collect::<Vec<_>>());
        let (newer, of_specification) = all.split_at(all.len() - specified.len());
        assert_eq!(of_specification, specified);
        let newest = ((31..=37).map(|minor| KubeMinor::new(1, minor))).collect::<Vec<_>>();
        assert_eq!(newer, [("v1.2".parse().unwrap(), newest)]);
        // What the build script has read of it is what stands there.
        assert_eq!(
            embedded_versions().rows(),
            Versions::parse(Files::from_embedded().get(PATH).unwrap()).unwrap().rows()
        );
        for row in embedded_versions().rows() {
            for (kind, line) in &row.charts {
                assert!(super::super::Chart::load_embedded(*kind, *line).is_ok(), "{kind} {line} has no chart");
            }
        }
    }
}
