//! Image locks: the digest of each image by its reference, so that what runs is what was looked at, whatever becomes of a
//! tag.
//!
//! This program asks no registry: digests are looked up by whatever reaches one, and held against the images here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::chart::diagnostic::{Diagnostic, Diagnostics, Place};
use crate::chart::output;
use crate::chart::yaml::node::{Data, Sources};
use crate::chart::yaml::read;

use super::tree::RECORDED;
use super::{ValuesBuilder, ValuesTree};

/// The flag that takes a lock.
const FLAG: &str = "--image-lock";

/// Digests of images, `sha256:…`, by their references with tag: `registry.k8s.io/etcd:3.5.35-0`.
#[derive(Debug, Clone, Default)]
pub struct ImageLock {
    name: String,
    digests: BTreeMap<String, String>,
}

impl ImageLock {
    /// Reads a lock: YAML or JSON with `images`, a mapping from references to digests.
    ///
    /// # Errors
    /// Text that is not a lock, at its place.
    pub fn parse_lock(name: &str, bytes: &[u8]) -> Result<Self, Diagnostics> {
        let mut sources = Sources::default();
        let source = sources.add_source(name, read::decode_text(name, bytes)?);
        let root = read::read_source(&sources, source).map_err(Diagnostics)?;
        let root =
            root.ok_or_else(|| image_lock_error(None, &format!("{name} is empty, so it is not an image lock")))?;
        let at_root = Some(sources.place_at(root.origin));
        let Data::Map(top) = &root.data else {
            return Err(image_lock_error(at_root, "this is not an image lock: it has no `images`"));
        };
        let Some(Data::Map(images)) = top.entries.get("images").map(|entry| &entry.node.data) else {
            return Err(image_lock_error(at_root, "this is not an image lock: it has no mapping `images`"));
        };
        let mut lock = Self { name: name.to_owned(), ..Self::default() };
        for (reference, entry) in &images.entries {
            match &entry.node.data {
                Data::Text(digest) if is_digest(digest) => {
                    lock.digests.insert(reference.clone(), digest.clone());
                }
                _ => {
                    let place = sources.place_at(entry.node.origin);
                    return Err(image_lock_error(
                        Some(place),
                        &format!("the image `{reference}` has no digest of the form `sha256:…`"),
                    ));
                }
            }
        }
        Ok(lock)
    }

    /// Reads digests as tools print them, a line for each image: `IMAGE@sha256:…`, or the two with a space between, in either
    /// order.
    ///
    /// # Errors
    /// Every line that is neither, and an image with two digests.
    pub fn of_lines(name: &str, bytes: &[u8]) -> Result<Self, Diagnostics> {
        let text = read::decode_text(name, bytes)?;
        let mut lock = Self { name: name.to_owned(), ..Self::default() };
        let mut problems = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let content = line.trim();
            let at = start + line.find(content).unwrap_or_default();
            start += line.len();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let problem = if let Some((image, digest)) = parse_digest_line(content) {
                let former = lock.digests.insert(image.to_owned(), digest.to_owned());
                if former.is_none_or(|former| former == digest) {
                    continue;
                }
                let message = format!("the image `{image}` has two digests");
                Diagnostic::error("image-digest", message).label("differs from the digest above")
            } else {
                Diagnostic::error("image-digest", "this line does not contain an image and its digest")
                    .label("expected `IMAGE:TAG sha256:…`")
            };
            problems.push(problem.at(Place::in_text(name, &text, at, at + content.len())));
        }
        if problems.is_empty() { Ok(lock) } else { Err(Diagnostics(problems)) }
    }

    /// The lock of these images, and nothing else: each reference with its digest, its own or that of this list.
    ///
    /// # Errors
    /// The images of which no digest is known.
    pub fn of_images<'i>(&self, images: impl IntoIterator<Item = &'i str>) -> Result<Self, Diagnostics> {
        let mut lock = Self { name: self.name.clone(), ..Self::default() };
        let mut problems = Vec::new();
        for image in images {
            let (reference, own) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
            match own.or_else(|| self.digests.get(reference).map(String::as_str)) {
                Some(digest) => drop(lock.digests.insert(reference.to_owned(), digest.to_owned())),
                None => problems.push(self.missing_digest(reference)),
            }
        }
        if problems.is_empty() { Ok(lock) } else { Err(Diagnostics(problems)) }
    }

    fn missing_digest(&self, reference: &str) -> Diagnostic {
        let message = format!("the digest of `{reference}` is missing in {}", self.name);
        Diagnostic::error("image-digest", message).help(format!(
            "look it up on a machine that reaches the registry, for example with `crane digest {reference}`"
        ))
    }

    /// References and digests, sorted.
    pub fn digest_entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.digests.iter().map(|(reference, digest)| (reference.as_str(), digest.as_str()))
    }

    /// The lock as JSON.
    pub fn to_json(&self) -> Value {
        json!({ "images": self.digests })
    }

    /// The lock as YAML, as [`ImageLock::parse_lock`] takes it.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "# Digests of images, for `{FLAG}`.");
        text + &output::object_yaml(&self.to_json())
    }

    /// Puts the digests behind the tags of the images that the values choose.
    ///
    /// # Errors
    /// Images that the lock does not hold, and images with another digest than it has.
    pub fn apply_digests(&self, mut builder: ValuesBuilder) -> Result<ValuesBuilder, Diagnostics> {
        let tree = builder.peek_tree()?;
        let registry = find_dotted_text(&tree, "imageRegistry")?;
        let mut problems = Vec::new();
        for path in builder.image_paths() {
            let [repository, tag] = ["repository", "tag"].map(|key| find_dotted_text(&tree, &format!("{path}.{key}")));
            let (Some(repository), Some(tag)) = (repository?, tag?) else { continue };
            let (name, own) = tag.split_once('@').map_or((tag.as_str(), None), |(name, digest)| (name, Some(digest)));
            if is_digest(name) {
                continue;
            }
            let reference = format!("{repository}:{name}");
            let mirrored = registry.as_ref().map(|registry| format!("{registry}/{reference}"));
            let found = mirrored.iter().chain([&reference]).find_map(|reference| self.digests.get(reference));
            match (found, own) {
                (None, _) => problems.push(self.missing_digest(&reference).path(format!("{path}.tag"))),
                // One that is recorded is of an earlier look.
                (Some(digest), Some(own)) if digest != own && !is_recorded(&tree, &path) => {
                    let message =
                        format!("the digest of `{reference}` in {} differs from the one in the values", self.name);
                    let problem =
                        Diagnostic::error("image-digest", message).help(format!("the image lock has {digest}"));
                    let parts: Vec<&str> = path.split('.').chain(["tag"]).collect();
                    problems.push(tree.locate_diagnostic(&parts, problem));
                }
                (Some(digest), _) => {
                    let flag = format!("{FLAG} {}", self.name);
                    builder = builder.flag(&flag, &format!("{path}.tag"), &format!("{name}@{digest}"));
                }
            }
        }
        if problems.is_empty() { Ok(builder) } else { Err(Diagnostics(problems)) }
    }
}

fn image_lock_error(place: Option<Place>, message: &str) -> Diagnostics {
    let problem = Diagnostic::error("image-lock", message.to_owned()).at(place);
    Diagnostics::from(problem.help("create one: `fleetctl show images control-plane --digests FILE`"))
}

/// The text of a value, of which the path has dots between its parts.
fn find_dotted_text(tree: &ValuesTree, path: &str) -> Result<Option<String>, Diagnostics> {
    tree.text_at_path(&path.split('.').map(str::to_owned).collect::<Vec<_>>())
}

/// Refuses values in which an image has no digest that an earlier install had locked to one; `images` are the paths of those.
///
/// # Errors
/// The images without a digest.
pub fn still_locked(builder: &ValuesBuilder, images: &[String]) -> Result<(), Diagnostics> {
    if images.is_empty() {
        return Ok(());
    }
    let tree = builder.peek_tree()?;
    let mut problems = Vec::new();
    for path in images {
        let [repository, tag] = ["repository", "tag"].map(|key| find_dotted_text(&tree, &format!("{path}.{key}")));
        let (repository, tag) = (repository?.unwrap_or_default(), tag?.unwrap_or_default());
        if !tag.contains('@') && !is_digest(&tag) {
            let message = format!("`{repository}:{tag}` has no digest, but the installed image is locked to one");
            let problem = Diagnostic::error("image-digest", message).path(format!("{path}.tag"));
            problems.push(problem.help(format!(
                "use an image lock of this version, `{FLAG} FILE`; `fleetctl show images control-plane --digests \
                 FILE` creates it"
            )));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(Diagnostics(problems)) }
}

/// Returns whether the tag of an image is that of an earlier install.
fn is_recorded(tree: &ValuesTree, image: &str) -> bool {
    let path: Vec<String> = image.split('.').chain(["tag"]).map(str::to_owned).collect();
    tree.find_origin(&path).is_some_and(|origin| origin.place.source == RECORDED)
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// An image and its digest out of a line.
fn parse_digest_line(line: &str) -> Option<(&str, &str)> {
    let (one, other) = line.split_once(char::is_whitespace).or_else(|| line.split_once('@'))?;
    let (one, other) = (one.trim(), other.trim());
    let (image, digest) = if is_digest(one) { (other, one) } else { (one, other) };
    // `docker` prints both at once, as `IMAGE:TAG IMAGE@sha256:…`.
    let digest = digest.rsplit_once('@').map_or(digest, |(_, digest)| digest);
    let is_image = !image.is_empty() && !image.contains(char::is_whitespace) && !image.contains('@');
    (is_image && is_digest(digest)).then_some((image, digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::{chart, schema};

    const ONE: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OTHER: &str = "sha256:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn lines_of_tools_are_read_and_others_are_told_with_their_place() {
        for line in [
            format!("r.io/etcd:1 {ONE}"),
            format!("# x\n\n  {ONE}\tr.io/etcd:1\n"),
            format!("r.io/etcd:1@{ONE}"),
            format!("r.io/etcd:1 r.io/etcd@{ONE}"),
        ] {
            let lock = ImageLock::of_lines("d.txt", line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(lock.digest_entries().collect::<Vec<_>>(), [("r.io/etcd:1", ONE)], "{line}");
        }
        let text = format!("a:1 {ONE}\nb:1\na:1 {OTHER}\nc:1 sha256:12\n");
        let Err(Diagnostics(problems)) = ImageLock::of_lines("d.txt", text.as_bytes()) else { panic!("{text}") };
        let places: Vec<String> =
            problems.iter().map(|problem| problem.place.as_ref().unwrap().format_position()).collect();
        assert_eq!(places, ["d.txt:2:1", "d.txt:3:1", "d.txt:4:1"]);
    }

    #[test]
    fn a_lock_reads_back_and_holds_each_image_or_says_which_is_missing() {
        let lines = ImageLock::of_lines("d.txt", format!("a:1 {ONE}\nb:1 {ONE}\n").as_bytes()).unwrap();
        let pinned = format!("c:1@{OTHER}");
        let lock = lines.of_images(["a:1", &pinned]).unwrap();
        assert_eq!(lock.digest_entries().collect::<Vec<_>>(), [("a:1", ONE), ("c:1", OTHER)]);
        let again = ImageLock::parse_lock("images.lock", lock.to_yaml().as_bytes()).unwrap();
        assert_eq!(again.to_json(), lock.to_json());
        let error = lines.of_images(["a:1", "d:1"]).unwrap_err().to_string();
        assert!(
            error.contains("the digest of `d:1` is missing in d.txt") && error.contains("crane digest d:1"),
            "{error}"
        );
        for (text, part) in [
            ("", "is empty"),
            ("[]", "has no `images`"),
            ("images: []", "no mapping `images`"),
            ("images: {a: latest}", "images.lock:1:13"),
        ] {
            let error = ImageLock::parse_lock("images.lock", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    fn format_reference(image: &Value) -> String {
        format!("{}:{}", image["repository"].as_str().unwrap(), image["tag"].as_str().unwrap())
    }

    /// The tags of two images under a lock.
    fn find_locked_tags(lock: &ImageLock, builder: ValuesBuilder) -> Result<[String; 2], Diagnostics> {
        let values = lock.apply_digests(builder)?.build(schema)?.to_json();
        Ok(["etcd", "scheduler"].map(|name| values["images"][name]["tag"].as_str().unwrap().to_owned()))
    }

    fn set_etcd_tag(values: &ValuesBuilder, tag: &str) -> ValuesBuilder {
        values.clone().set(crate::chart::SetKind::Value, &format!("images.etcd.tag={tag}"))
    }

    #[test]
    fn the_images_of_the_values_get_their_digests() {
        let chart = chart("v0.6");
        let version = "v0.6.1".parse().unwrap();
        let values = chart.values_of(&version);
        let images = values.clone().build(schema).unwrap().to_json()["images"].clone();
        let text: String =
            ["etcd", "scheduler"].map(|name| format!("{} {ONE}\n", format_reference(&images[name]))).concat();
        let lock = ImageLock::of_lines("l", text.as_bytes()).unwrap();
        for tag in find_locked_tags(&lock, values.clone()).unwrap() {
            assert!(tag.ends_with(&format!("@{ONE}")), "{tag}");
        }
        let error = find_locked_tags(&lock, set_etcd_tag(&values, "9.9")).unwrap_err().to_string();
        assert!(error.contains(":9.9` is missing in l"), "{error}");
        let own = images["etcd"]["tag"].as_str().unwrap();
        let error = find_locked_tags(&lock, set_etcd_tag(&values, &format!("{own}@{OTHER}"))).unwrap_err().to_string();
        assert!(error.contains("differs from") && error.contains("--set:1:"), "{error}");
        assert_eq!(find_locked_tags(&lock, set_etcd_tag(&values, OTHER)).unwrap()[0], OTHER, "a digest alone stays");
    }
}
