//! Choice of the service version to install: `--version`, else `--image-tag`, else the default; with `--version auto`,
//! the newest that the cluster supports.

use crate::api::version::{KubeMinor, ServiceLine, ServiceVersion};

use super::{Row, Versions};
use crate::chart::values::version_of_tag;

/// The version that is installed when nothing is asked for (the specification's default).
pub const DEFAULT_VERSION: &str = "v0.6.1";

/// Version that the user asked for, as typed, and the Kubernetes minor of the cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// `--version`: a line (`v0.6`), a version (`v0.6.1`) or `auto`.
    pub version: Option<&'a str>,
    /// `--image-tag`: anything that an image reference may end in.
    pub image_tag: Option<&'a str>,
    /// The cluster's Kubernetes minor, or `--kube-version`; needed for `auto` only.
    pub server: Option<KubeMinor>,
}

/// Input that decided the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectedBy {
    /// `--version`.
    Version,
    /// `--version auto` and the cluster's Kubernetes version.
    Auto,
    /// The major.minor of `--image-tag`.
    ImageTag,
    /// Neither flag: the default.
    Default,
}

/// The chosen row and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection<'t> {
    /// The row of the table.
    pub row: &'t Row,
    /// The version: as asked for, or the newest patch of the line.
    pub version: ServiceVersion,
    /// Input that decided the row.
    pub by: SelectedBy,
}

/// Reason that no version could be chosen. All are usage errors, except [`SelectError::NoneSupports`] (a preflight
/// one).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// `--version` cannot be read.
    #[error(
        "`--version {text}` is not a service version: use a line such as `v0.6`, a version such as `v0.6.1`, or `auto`"
    )]
    NotAVersion {
        /// Argument of `--version`.
        text: String,
    },
    /// `--version` has a `+`, which no tag of an image can have.
    #[error("`--version {text}` cannot be an image tag, which must not contain `+`: use a version such as `{without}`")]
    NoTag {
        /// Argument of `--version`.
        text: String,
        /// The part of it before the `+`.
        without: String,
    },
    /// The line is not in the table.
    #[error("service version {line} (from `{flag} {text}`) is unknown; known versions: {known}")]
    UnknownLine {
        /// The line that was asked for.
        line: ServiceLine,
        /// The flag that asked for it.
        flag: &'static str,
        /// Its argument.
        text: String,
        /// The known lines, for people.
        known: String,
    },
    /// The two flags disagree.
    #[error(
        "`--version {version}` and `--image-tag {image_tag}` are of different versions ({version_line} and \
         {tag_line}): give only one of them, or matching ones"
    )]
    Disagree {
        /// `--version` as given, or as `auto` found it.
        version: String,
        /// Its line.
        version_line: ServiceLine,
        /// `--image-tag` as given.
        image_tag: String,
        /// Its line.
        tag_line: ServiceLine,
    },
    /// `--image-tag` names no service version, and there is no `--version`.
    #[error(
        "`--image-tag {image_tag}` does not name a service version: add `--version`, for example `--version {example}`"
    )]
    TagNeedsVersion {
        /// `--image-tag` as given.
        image_tag: String,
        /// A line that could be meant.
        example: ServiceLine,
    },
    /// `auto` without a cluster.
    #[error("`--version auto` needs a cluster or `--kube-version`")]
    AutoNeedsCluster,
    /// `auto` with a cluster that no line supports.
    #[error("no service version supports Kubernetes {server}; supported versions: {oldest} to {newest}")]
    NoneSupports {
        /// The cluster's minor.
        server: KubeMinor,
        /// The oldest supported minor of any line.
        oldest: KubeMinor,
        /// The newest supported minor of any line.
        newest: KubeMinor,
    },
}

fn not_a_version(text: &str) -> SelectError {
    match text.split_once('+') {
        Some((without, _)) if without.parse::<ServiceVersion>().is_ok() => {
            SelectError::NoTag { text: text.to_owned(), without: without.to_owned() }
        }
        _ => SelectError::NotAVersion { text: text.to_owned() },
    }
}

fn row_of<'t>(table: &'t Versions, line: ServiceLine, flag: &'static str, text: &str) -> Result<&'t Row, SelectError> {
    table.find_row(line).ok_or_else(|| SelectError::UnknownLine {
        line,
        flag,
        text: text.to_owned(),
        known: table.format_service_lines(),
    })
}

/// `v0.6` stands for the newest patch of its line; anything longer for itself.
fn concrete_version(row: &Row, asked: ServiceVersion) -> ServiceVersion {
    if asked.to_string() == asked.service_line().to_string() { row.default.clone() } else { asked }
}

fn select_auto_row(table: &Versions, server: Option<KubeMinor>) -> Result<&Row, SelectError> {
    let server = server.ok_or(SelectError::AutoNeedsCluster)?;
    table.newest_for(server).ok_or_else(|| {
        let minors = table.rows().iter().flat_map(|row| &row.kubernetes).copied();
        SelectError::NoneSupports {
            server,
            oldest: minors.clone().min().unwrap_or(server),
            newest: minors.max().unwrap_or(server),
        }
    })
}

/// Chooses the row: that of `--version`, else that of `--image-tag`, else that of [`DEFAULT_VERSION`].
///
/// It does not check that the cluster supports the version; a check before the first write does.
///
/// # Errors
/// [`SelectError`]: a version that cannot be read or is unknown, flags that disagree, a tag that names no version.
pub fn select_row<'t>(table: &'t Versions, request: Request<'_>) -> Result<Selection<'t>, SelectError> {
    let tagged = request.image_tag.and_then(version_of_tag);
    let (row, version, by) = match request.version {
        Some("auto") => {
            let row = select_auto_row(table, request.server)?;
            (row, row.default.clone(), SelectedBy::Auto)
        }
        Some(text) => {
            let asked: ServiceVersion = text.parse().map_err(|_| not_a_version(text))?;
            let row = row_of(table, asked.service_line(), "--version", text)?;
            (row, concrete_version(row, asked), SelectedBy::Version)
        }
        None => match (request.image_tag, tagged.clone()) {
            (Some(text), Some(asked)) => {
                let row = row_of(table, asked.service_line(), "--image-tag", text)?;
                (row, concrete_version(row, asked), SelectedBy::ImageTag)
            }
            (Some(text), None) => {
                let example = table.newest_row().version;
                return Err(SelectError::TagNeedsVersion { image_tag: text.to_owned(), example });
            }
            (None, _) => {
                let asked: ServiceVersion = DEFAULT_VERSION
                    .parse()
                    .map_err(|_| SelectError::NotAVersion { text: DEFAULT_VERSION.to_owned() })?;
                (row_of(table, asked.service_line(), "--version", DEFAULT_VERSION)?, asked, SelectedBy::Default)
            }
        },
    };
    if let (Some(tag), Some(image_tag)) = (tagged, request.image_tag)
        && tag.service_line() != row.version
    {
        return Err(SelectError::Disagree {
            version: if by == SelectedBy::Auto { row.version.to_string() } else { version.to_string() },
            version_line: row.version,
            image_tag: image_tag.to_owned(),
            tag_line: tag.service_line(),
        });
    }
    Ok(Selection { row, version, by })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::versions::tests::table;

    fn choose(version: Option<&str>, image_tag: Option<&str>, server: Option<u32>) -> Result<String, SelectError> {
        let table = table();
        let server = server.map(|minor| KubeMinor::new(1, minor));
        let chosen = select_row(&table, Request { version, image_tag, server })?;
        Ok(format!("{} {} {:?}", chosen.row.version, chosen.version, chosen.by))
    }

    #[test]
    fn the_row_is_that_of_the_version_else_of_the_tag_else_of_the_default() {
        let cases = [
            (None, None, "v0.6 v0.6.1 Default"),
            (Some("v0.7"), None, "v0.7 v0.7.2 Version"),
            (Some("0.7.0"), None, "v0.7 v0.7.0 Version"),
            (None, Some("v0.8.0"), "v0.8 v0.8.0 ImageTag"),
            (None, Some("0.6"), "v0.6 v0.6.1 ImageTag"),
            (None, Some("v1.1.0-rc.1"), "v1.1 v1.1.0-rc.1 ImageTag"),
            (None, Some("v0.8.0@sha256:abc"), "v0.8 v0.8.0 ImageTag"),
            (Some("v0.6"), Some("latest"), "v0.6 v0.6.1 Version"),
            (Some("v0.6"), Some("sha256:abc"), "v0.6 v0.6.1 Version"),
            (Some("v0.6.1"), Some("v0.6.0"), "v0.6 v0.6.1 Version"),
        ];
        for (version, tag, expected) in cases {
            assert_eq!(choose(version, tag, None).unwrap(), expected, "{version:?} {tag:?}");
        }
    }

    #[test]
    fn auto_takes_the_newest_line_that_supports_the_cluster() {
        assert_eq!(choose(Some("auto"), None, Some(31)).unwrap(), "v1.1 v1.1.0 Auto");
        assert_eq!(choose(Some("auto"), None, Some(25)).unwrap(), "v0.7 v0.7.2 Auto");
        assert_eq!(choose(Some("auto"), None, None), Err(SelectError::AutoNeedsCluster));
        for minor in [23, 32, 37] {
            let error = choose(Some("auto"), None, Some(minor)).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("no service version supports Kubernetes v1.{minor}; supported versions: v1.24 to v1.31")
            );
        }
    }

    #[test]
    fn flags_that_disagree_or_say_nothing_are_refused_with_what_would_work() {
        insta::assert_snapshot!(
            [
                (Some("v0.7"), Some("v0.6.1")),
                (Some("auto"), Some("v0.6.1")),
                (None, Some("latest")),
                (None, Some("sha256:abc")),
                (Some("v0.5"), None),
                (None, Some("v2.0.0")),
                (Some("newest"), None),
                (Some("v1.1.0+x"), None),
                (Some("newest+x"), None),
                (Some(""), None),
            ]
            .map(|(version, tag)| choose(version, tag, Some(31)).unwrap_err().to_string())
            .join("\n"),
            @r"
        `--version v0.7.2` and `--image-tag v0.6.1` are of different versions (v0.7 and v0.6): give only one of them, or matching ones
        `--version v1.1` and `--image-tag v0.6.1` are of different versions (v1.1 and v0.6): give only one of them, or matching ones
        `--image-tag latest` does not name a service version: add `--version`, for example `--version v1.1`
        `--image-tag sha256:abc` does not name a service version: add `--version`, for example `--version v1.1`
        service version v0.5 (from `--version v0.5`) is unknown; known versions: v0.6, v0.7, v0.8, v0.9, v1.0, v1.1
        service version v2.0 (from `--image-tag v2.0.0`) is unknown; known versions: v0.6, v0.7, v0.8, v0.9, v1.0, v1.1
        `--version newest` is not a service version: use a line such as `v0.6`, a version such as `v0.6.1`, or `auto`
        `--version v1.1.0+x` cannot be an image tag, which must not contain `+`: use a version such as `v1.1.0`
        `--version newest+x` is not a service version: use a line such as `v0.6`, a version such as `v0.6.1`, or `auto`
        `--version ` is not a service version: use a line such as `v0.6`, a version such as `v0.6.1`, or `auto`
        "
        );
    }
}
