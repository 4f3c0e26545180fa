//! Values: chart defaults, files, `--set` and dedicated flags, laid over one another, checked, and traceable to their origin.
//!
//! | order | layer | among themselves |
//! |---|---|---|
//! | 1 | chart defaults: `values.yaml` of the line, then the images of its row in the table | |
//! | 2 | `--values` files | in the order given |
//! | 3 | `--set`, `--set-string`, `--set-file`, `--set-json` | in the order given, whichever of the four |
//! | 4 | dedicated flags such as `--image-tag` | in the order given |
//!
//! Mappings merge key by key; lists and scalars replace; a `null` deletes what lay below.

mod assign;
mod builder;
mod images;
mod lock;
mod network_peers;
mod pod_fields;
mod schema;
pub mod suggest;
mod tree;
mod validate;
mod values_file_schema;

pub use assign::SetKind;
pub use builder::{ValuesBuilder, read_file};
pub use images::is_tag;
pub use lock::{ImageLock, still_locked};
pub use network_peers::{check_peers, is_range};
pub use pod_fields::{PodFields, check_annotations, check_node_selector, check_pods, check_proxy, proxy_ports};
pub use schema::schema_of_line;
pub use tree::{OriginOf, ValuesTree};
pub use values_file_schema::written_schema;

pub(super) use images::{VersionImage, version_of_tag};
pub(super) use pod_fields::OWN_LABELS;
pub(super) use schema::{Schema, Views, plain_json};
pub(super) use tree::digest_value;
