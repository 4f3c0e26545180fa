//! Holds images against the service version: a tag of another service line is an error, whichever source it comes from;
//! another image than that of the version's row is a warning.

use crate::api::version::{ServiceLine, ServiceVersion};
use crate::chart::diagnostic::Diagnostic;
use crate::chart::yaml::node::{Data, Node, Sources};

/// The tag that a service version runs at one value.
#[derive(Debug, Clone)]
pub(in crate::chart) struct VersionImage {
    /// The path of the image's mapping: `scheduler.image`.
    pub(in crate::chart) path: String,
    /// The tag in the version's row: `v0.6.1`.
    pub(in crate::chart) tag: String,
    /// The image is the service's own, so its tag is a service version.
    pub(in crate::chart) is_own: bool,
}

/// Returns whether a tag runs what `expected` runs: the same, perhaps with a digest behind it.
pub fn is_tag(tag: &str, expected: &str) -> bool {
    tag.split_once('@').map_or(tag, |(name, _)| name) == expected
}

/// The service version that a tag names: `v0.6.1`, `0.6` and `v1.1.0-rc.1`, also with a digest behind; not `latest` or a
/// bare digest. That no tag has a `+` is for the schema of the values to say.
pub(in crate::chart) fn version_of_tag(tag: &str) -> Option<ServiceVersion> {
    tag.split_once(['@', '+']).map_or(tag, |(name, _)| name).parse().ok()
}

/// Compares the tags in `root` with those of the version; tags from sources below `user_from` are the version's own.
pub(super) fn check_image_tags(
    root: &Node,
    images: &[VersionImage],
    line: Option<ServiceLine>,
    sources: &Sources,
    user_from: u32,
) -> Vec<Diagnostic> {
    let Some(line) = line else { return Vec::new() };
    let compared = images.iter().filter_map(|image| {
        let path: Vec<String> = image.path.split('.').chain(["tag"]).map(str::to_owned).collect();
        let node = root.find_at_path(&path).filter(|node| node.origin.source >= user_from)?;
        let Data::Text(tag) = &node.data else { return None };
        let problem = compare_tag(image, tag, line)?;
        Some(problem.at(sources.place_at(node.origin)).path(format!("{}.tag", image.path)))
    });
    compared.collect()
}

fn compare_tag(image: &VersionImage, tag: &str, line: ServiceLine) -> Option<Diagnostic> {
    let VersionImage { path, tag: expected, is_own } = image;
    if tag.is_empty() || is_tag(tag, expected) {
        return None;
    }
    if let Some(other) = version_of_tag(tag).filter(|version| *is_own && version.service_line() != line) {
        let message = format!(
            "`{path}.tag` belongs to service version {}, but the selected version is {line}",
            other.service_line()
        );
        return Some(
            Diagnostic::error("other-version", message)
                .label(format!("not an image of {line}"))
                .help(format!("leave out `{path}` to use the image of the version: `{expected}`"))
                .help(format!("or choose the version of this image: `--version {other}`")),
        );
    }
    if tag.starts_with("sha256:") {
        let message = format!(
            "`{path}.tag` is only a digest, which cannot be compared with `{expected}` of service version {line}"
        );
        return Some(
            Diagnostic::warning("other-image", message)
                .help(format!("write the tag before the digest: `{expected}@sha256:…`")),
        );
    }
    let message = format!("`{path}.tag` differs from the tag of service version {line}: `{expected}`");
    Some(
        Diagnostic::warning("other-image", message)
            .label(format!("`{expected}` if left out"))
            .help(format!("leave out `{path}` to use the image of the version")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(tag: &str, is_own: bool) -> Option<&'static str> {
        let expected = if is_own { "v0.7.1" } else { "3.5.35-0" };
        let image = VersionImage { path: "a.image".to_owned(), tag: expected.to_owned(), is_own };
        compare_tag(&image, tag, "v0.7".parse().unwrap()).map(|problem| problem.code)
    }

    #[test]
    fn a_tag_is_compared_with_that_of_the_version() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (tag, expected) in [
            ("v0.7.1", None),
            (&format!("v0.7.1@{digest}"), None),
            ("v0.6.1", Some("other-version")),
            ("0.6", Some("other-version")),
            ("v1.1.0-rc.1", Some("other-version")),
            (&format!("v0.6.1@{digest}"), Some("other-version")),
            ("v0.7.0", Some("other-image")),
            ("latest", Some("other-image")),
            (&digest, Some("other-image")),
        ] {
            assert_eq!(code(tag, true), expected, "{tag}");
        }
        assert_eq!(code("3.5.35-0", false), None);
        // What is not the service's own has versions of its own.
        assert_eq!(code("3.5.6-0", false), Some("other-image"));
        assert_eq!(code("v0.6.1", false), Some("other-image"));
    }
}
