//! The flat map from file name to text that keys and certificates travel in. Its contents never reach a log.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::PkiError;

/// Text that may be secret: wiped from memory when dropped, hidden from `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Takes the text over.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself. The caller must write it only to a Secret or a file of mode 0600.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// File name → text: PEM blocks, kubeconfigs and the encryption configuration, sorted by name.
///
/// `Debug` shows the names only.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Files(BTreeMap<String, SecretText>);

impl Files {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// The text of one file.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(SecretText::expose)
    }

    /// The text of one file.
    ///
    /// # Errors
    /// [`PkiError::Missing`].
    pub fn require_file(&self, name: &str) -> Result<&str, PkiError> {
        self.get(name).ok_or_else(|| PkiError::Missing { entry: name.to_owned() })
    }

    /// Puts a file in; what was there before is wiped.
    pub fn insert(&mut self, name: impl Into<String>, text: impl Into<SecretText>) {
        self.0.insert(name.into(), text.into());
    }

    /// Takes a file out.
    pub fn remove(&mut self, name: &str) -> Option<SecretText> {
        self.0.remove(name)
    }

    /// Returns whether a file of that name is there.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The file names, sorted.
    pub fn file_names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Names and texts, sorted by name. See [`SecretText::expose`].
    pub fn expose_all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.expose()))
    }

    /// Adds the files of another map; the other's win.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl FromIterator<(String, String)> for Files {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(name, text)| (name, SecretText::new(text))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_names_but_no_contents() {
        let files = Files::from_iter([("ca.key".to_owned(), "CANARY".to_owned())]);
        let text = format!("{files:?} {:?}", SecretText::new("CANARY".to_owned()));
        assert!(text.contains("ca.key"));
        assert!(!text.contains("CANARY"));
    }
}
