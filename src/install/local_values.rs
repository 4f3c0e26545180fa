//! The values that this machine has installed with, which the record of an installation in its cluster is compared with.
//!
//! Whoever may edit Secrets in the namespace can write the record; nobody writes this file through the cluster. It has no secrets.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::release_spec::LARGEST_VALUES;
use crate::api::util::file;
use crate::api::util::file::{FileError, PRIVATE};

/// Largest size of the file, in bytes.
const LARGEST: u64 = LARGEST_VALUES as u64 + 4096;

/// Values of the last install of one installation from this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LocalValues {
    /// Address of the API server of its cluster: others may have an installation of this name.
    pub server: String,
    /// Namespace of its components.
    pub namespace: String,
    /// The values, as a record keeps them: an RFC 7396 patch of the chart's, without secrets.
    pub values: Value,
}

impl LocalValues {
    /// Reads the values of the installation at this place. None where there is no such file, or it is about another place: what
    /// is recorded is then confirmed by nothing.
    ///
    /// # Errors
    /// A file that cannot be read, or is not what an install writes.
    pub fn read_values_file(file: &Path, server: &str, namespace: &str) -> Result<Option<Value>, FileError> {
        let Some(text) = file::read_text(file, LARGEST)? else { return Ok(None) };
        let read: Self = serde_json::from_str(&text).map_err(|_| FileError::Unexpected {
            path: file.to_owned(),
            found: if text.trim_matches(['\0', '\n', ' ']).is_empty() { "empty" } else { "damaged" },
            expected: "the values of an install as JSON",
        })?;
        Ok((read.server == server && read.namespace == namespace).then_some(read.values))
    }

    /// Writes the file as a whole, for its owner alone.
    ///
    /// # Errors
    /// [`FileError`]; the file is then as it was.
    pub fn write_values_file(&self, file: &Path) -> Result<(), FileError> {
        if let Some(folder) = file.parent() {
            file::private_folder(folder)?;
        }
        let text = serde_json::to_string(self).unwrap_or_default();
        file::replace_file(file, text.as_bytes(), PRIVATE)
    }

    /// Removes the file, where there is one.
    pub fn remove_values_file(file: &Path) {
        let _ = std::fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_read_back_of_the_same_place_alone() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("demo").join("values");
        let values = json!({"placement": {"allowRBACKinds": true}});
        let mut local =
            LocalValues { server: "https://a".to_owned(), namespace: "fleet".to_owned(), values: values.clone() };
        assert_eq!(LocalValues::read_values_file(&file, "https://a", "fleet").unwrap(), None);
        local.write_values_file(&file).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(LocalValues::read_values_file(&file, "https://a", "fleet").unwrap(), Some(values));
        for (server, namespace) in [("https://b", "fleet"), ("https://a", "other")] {
            assert_eq!(LocalValues::read_values_file(&file, server, namespace).unwrap(), None);
        }
        local.server = "https://b".to_owned();
        local.write_values_file(&file).unwrap();
        assert_eq!(LocalValues::read_values_file(&file, "https://a", "fleet").unwrap(), None);
        for (text, found) in [("{", "is damaged"), ("", "is empty")] {
            std::fs::write(&file, text).unwrap();
            let error = LocalValues::read_values_file(&file, "https://b", "fleet").unwrap_err();
            assert!(error.to_string().contains(found), "{error}");
        }
        LocalValues::remove_values_file(&file);
        assert!(!file.exists());
    }
}
