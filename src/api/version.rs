//! Versions: of the service (`v0.6.1`, line `v0.6`) and of Kubernetes (`1.29`), compared by major and minor.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A version text that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct VersionError {
    /// The text that was given.
    pub text: String,
    /// Description of what was expected, as a noun phrase with an example.
    pub expected: &'static str,
}

fn leading_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, &text[end..]))
}

/// A Kubernetes version by major and minor, as far as support is concerned.
///
/// Vendor suffixes do not matter: `v1.29.4-gke.100`, `1.29+` and `v1.29.2+k3s1` are all 1.29.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubeMinor {
    /// `1` in `1.29`.
    pub major: u32,
    /// `29` in `1.29`.
    pub minor: u32,
}

impl KubeMinor {
    /// A version from its two numbers.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The minor that follows.
    #[must_use]
    pub const fn next_minor(self) -> Self {
        Self { major: self.major, minor: self.minor + 1 }
    }
}

impl FromStr for KubeMinor {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let error =
            || VersionError { text: text.to_owned(), expected: "a Kubernetes version such as `1.29` or `v1.29.4`" };
        let bare = text.strip_prefix('v').unwrap_or(text);
        let (major, rest) = leading_number(bare).ok_or_else(error)?;
        let rest = rest.strip_prefix('.').ok_or_else(error)?;
        let (minor, rest) = leading_number(rest).ok_or_else(error)?;
        let suffix_is_known = rest.is_empty() || rest.starts_with(['.', '+', '-']);
        if suffix_is_known { Ok(Self { major, minor }) } else { Err(error()) }
    }
}

impl fmt::Display for KubeMinor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}", self.major, self.minor)
    }
}

/// A line of service versions: `v0.6` stands for v0.6.0, v0.6.1 and so on. Charts and support are per line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceLine {
    /// `0` in `v0.6`.
    pub major: u32,
    /// `6` in `v0.6`.
    pub minor: u32,
}

impl FromStr for ServiceLine {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let version: ServiceVersion = text.parse()?;
        Ok(version.service_line())
    }
}

impl fmt::Display for ServiceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}", self.major, self.minor)
    }
}

/// A version of the service: `v0.6.1`, or `v0.6` for the newest of its line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceVersion {
    line: ServiceLine,
    /// Text that follows the line: `.1`, `.1-rc.2` or nothing.
    rest: String,
}

impl ServiceVersion {
    /// The line that the version belongs to.
    pub fn service_line(&self) -> ServiceLine {
        self.line
    }
}

impl FromStr for ServiceVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let error = || VersionError { text: text.to_owned(), expected: "a service version such as `v0.6.1` or `v1.1`" };
        let bare = text.strip_prefix('v').unwrap_or(text);
        let (major, rest) = leading_number(bare).ok_or_else(error)?;
        let rest = rest.strip_prefix('.').ok_or_else(error)?;
        let (minor, rest) = leading_number(rest).ok_or_else(error)?;
        if !rest.is_empty() {
            let full = format!("{major}.{minor}{rest}");
            let read = semver::Version::parse(&full).map_err(|_| error())?;
            // It is the tag of images as well, and no tag has a `+`.
            if !read.build.is_empty() {
                return Err(error());
            }
        }
        Ok(Self { line: ServiceLine { major, minor }, rest: rest.to_owned() })
    }
}

impl fmt::Display for ServiceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.line, self.rest)
    }
}

macro_rules! text_serde {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
text_serde!(KubeMinor, ServiceLine, ServiceVersion);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_versions_compare_by_major_and_minor_whatever_the_vendor_adds() {
        for text in ["1.29", "v1.29", "v1.29.4", "v1.29.4-gke.100", "1.29+", "v1.29.2+k3s1", "v1.29.0-eks-036c24b"] {
            assert_eq!(text.parse::<KubeMinor>().unwrap(), KubeMinor::new(1, 29), "{text}");
        }
        for text in ["", "1", "v", "1.", "x1.2", "1.2x", "1.29 ", "1.x", "latest"] {
            assert!(text.parse::<KubeMinor>().is_err(), "{text}");
        }
    }

    #[test]
    fn service_versions_know_their_line() {
        let version: ServiceVersion = "v0.6.1".parse().unwrap();
        assert_eq!(version.service_line().to_string(), "v0.6");
        assert_eq!(version.to_string(), "v0.6.1");
        assert_eq!("1.1".parse::<ServiceVersion>().unwrap().to_string(), "v1.1");
        for text in ["", "latest", "v1", "v0.6.", "v0.6.x", "v0.6.1.2", "sha256:abc", "v0.6-rc", "v1.1.0+x"] {
            assert!(text.parse::<ServiceVersion>().is_err(), "{text}");
        }
    }
}
