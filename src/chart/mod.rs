//! The packager: find a chart, merge values, validate, render, list objects. The room knows neither clusters nor the network.
//!
//! ```no_run
//! use fleetctl::chart::versions::select::{Request, select_row};
//! use fleetctl::chart::{Chart, Kind, RenderInput, SetKind, embedded_versions, output, read_file};
//! # fn schema() -> serde_json::Value { serde_json::json!(true) }
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // Which version: `--version`, else `--image-tag`, else v0.6.1.
//! let request = Request { image_tag: Some("v0.6.1"), ..Request::default() };
//! let selection = select_row(embedded_versions(), request)?;
//! let chart = Chart::load_embedded(Kind::ControlPlane, selection.row.charts[&Kind::ControlPlane])?;
//!
//! // Values: chart defaults < files < sets < dedicated flags, in the order of the calls within each group.
//! // Errors of all of them come at once, out of `build`, as `Diagnostics` that print like a compiler's.
//! let values = chart
//!     .values_of(&selection.version)
//!     .file_result("my.yaml", read_file("my.yaml"))
//!     .set(SetKind::Value, "etcd.replicas=3")
//!     .flag("--image-tag", "images.scheduler.tag", "v0.6.1")
//!     .build(schema)?; // a closure: the JSON Schema of the type below, only made if the user gave values
//! // let typed: control_plane::values::Values = values.deserialize()?;
//!
//! // Objects: pure, the same input gives the same bytes. `values` are the typed ones as JSON again, so that every
//! // optional one is there as null: templates ask `is none`, and anything undefined is an error.
//! let rendered = chart.render(&RenderInput {
//!     values: values.to_json(),
//!     release: serde_json::json!({"name": "prod", "namespace": "fleet", "line": chart.line()}),
//!     facts: serde_json::json!({}),
//!     pki: std::collections::BTreeMap::new(),
//! })?;
//! for object in &rendered.objects {
//!     // In the order in which they are applied; `object.stage` rises.
//!     let text = output::object_yaml(&object.json);
//! }
//! # Ok(()) }
//! ```
//!
//! # A chart
//!
//! `charts/<kind>/<line>/` with kind `control-plane` or `agent` and line `v0.6` …:
//!
//! | file | |
//! |---|---|
//! | `chart.yaml` | `kind`, `line`; `description`; `extends:` the line below; `remove:` files of it that are gone (`templates/x.yaml`); `stages:` a list of `{name, title, templates: [x.yaml, …]}`; `images:` a map from an image of the row to the value that takes it (left out: `images.<name>` for all) |
//! | `values.yaml` | the defaults, merged over those of the line below |
//! | `templates/*.yaml` | each in exactly one stage, rendered in that order |
//! | `bootstrap/*.yaml` | rendered first, in the order of their names; templates get the objects of each file as a JSON list, so that `data: {{ bootstrap }}` of a ConfigMap holds them all |
//! | `_*.yaml` in both | macros and parts for the others, not rendered themselves; those of `templates/` serve `bootstrap/` too |
//!
//! # A template
//!
//! YAML with minijinja's `{{ }}`, `{% %}` and `{# #}`. It sees `values`, `release`, `facts`, `pki` and, in
//! `templates/`, `bootstrap`. Values are never printed into text, so no quotes or indentation are needed:
//!
//! - `key: {{ e }}` takes the value with its type, be it a list, a mapping or null; `<<: {{ e }}` merges a mapping.
//! - `key: a-{{ e }}` and `key: "{{ e }}"` are text, for which `e` must be text, a number or a boolean.
//! - A key may be a value if that is text. Comments, anchors, tags, `apiVersion`, `kind`, a whole object and the keys at
//!   its top may not.
//! - Filters on values: `b64encode digest json default join length string lower upper trim replace split first last sort
//!   unique merge keys items`. On the outcome of a macro or `include`: `indent` alone. `default` stands in for null only:
//!   what is undefined is an error, always.
//! - Tests: `none boolean string number integer mapping sequence odd even in startingwith endingwith`.
//!   Functions: `range dict namespace`. Macros, `import`, `include`, `set`, `for`, `if`, `call` as usual;
//!   `extends`, `block`, `autoescape`, `safe` and `{{-` are refused.
//! - A document that comes out empty is skipped. Line breaks after a block tag and spaces before it are dropped.
//!
//! # Other modules
//!
//! | | |
//! |---|---|
//! | [`versions::select`] | `--version`, `--image-tag`, `auto`; how far apart agent and control plane may be |
//! | [`inspect::explain`] | where a field of an object comes from: template, values, what they overrode |
//! | [`inspect::show`], [`inspect::readme`] | values as commented YAML, the images of all pods; the documentation of a chart |
//! | [`patch`] | patches of rendered objects |
//! | [`inspect::lint`] | what can be known about rendered objects without a cluster |
//! | [`mask`] | masking of Secrets |
//! | [`output`] | YAML that every reader understands alike, JSON |
//! | [`Files`], [`embedded_presets`], [`values_file`] | what is embedded |
//!
//! The program adds two keywords to schemas: `x-secret: true` marks a value that is never shown, and `x-since: v0.8` one that
//! older service versions do not know.

// A diagnostic is larger than clippy likes an error to be. It is made once in a failing run, and boxing it would only
// make the code that fills it longer.
#![allow(clippy::result_large_err)]

mod depth;
mod diagnostic;
mod fast;
mod files;
pub mod inspect;
mod load;
pub mod manifests;
pub mod mask;
pub mod output;
pub mod patch;
pub mod render;
#[cfg(test)]
pub(crate) mod testing;
pub mod values;
pub mod versions;
mod yaml;

pub use diagnostic::{Diagnostic, Diagnostics, Place, Severity};
pub use files::{Files, Preset, embedded_presets, values_file};
pub use load::{Chart, ChartError, Kind, KindError, Stage};
pub use render::{Object, RenderInput, Rendered};
pub use values::{SetKind, ValuesBuilder, ValuesTree, is_tag, read_file};
pub use versions::{Image, Row, Versions, embedded_versions};

pub(crate) use yaml::node::show_path;

#[cfg(test)]
pub(crate) mod tests;
