//! Reasons that a node has no image for a container, by what the node and the registry answered.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::diagnosis::{CauseId, INVALID_IMAGE_NAME};
use super::evidence::{Evidence, event_message, events_of, has_reason};
use super::pod::{waiting_message, waiting_reason};
use super::typed::Typed as _;

/// Texts of containerd, CRI-O and Docker about an image that the registry has for other architectures alone.
const OTHER_ARCHITECTURE: [&str; 4] = [
    "no match for platform in manifest",
    "no image found in manifest list for architecture",
    "no image found in image index for architecture",
    "no matching manifest for",
];
/// Text of a kernel about a program of another architecture.
const NOT_EXECUTABLE: &str = "exec format error";

/// An image that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unusable {
    pub(crate) cause: CauseId,
    /// State of the container: the answer that was given, naming the image.
    pub(crate) what: String,
    pub(crate) remedy: String,
}

/// Returns the reason that the image of a container could not be pulled; none while it was not tried, and where it was
/// pulled.
pub(crate) fn find_pull_failure(pod: &Pod, container: &ContainerStatus, evidence: &Evidence) -> Option<Unusable> {
    let reason = waiting_reason(container)?;
    CauseId::ImagePullFailed.find_attempt(reason)?;
    let image = container.image.as_str();
    // During the back-off the waiting message says nothing; the registry's answer is in the event.
    let answer = events_of(pod.event_subject(), evidence)
        .filter(|event| has_reason(event, &["Failed"]))
        .map(event_message)
        .find(|message| message.contains(image) && message.contains("pull"))
        .or_else(|| waiting_message(container))
        .unwrap_or("no answer");
    let missing = ["not found", "manifest unknown", "name unknown", "couldn't parse image", "invalid reference"];
    let denied = ["unauthorized", "denied", "forbidden", "authentication", "authorization"];
    let (cause, remedy) = if has_word_or_code(answer, image, &OTHER_ARCHITECTURE, &[]) {
        (CauseId::ImageArchitecture, for_architecture(image))
    } else if reason == INVALID_IMAGE_NAME || has_word_or_code(answer, image, &missing, &["404"]) {
        let remedy = format!(
            "check the repository and the tag of `{image}`, and that the registry has it for this architecture"
        );
        (CauseId::ImageNotFound, remedy)
    } else if has_word_or_code(answer, image, &denied, &["401", "403"]) {
        let namespace = pod.namespace().unwrap_or_default();
        let remedy = format!(
            "create an image pull Secret for the registry of `{image}` in namespace {namespace} and name it in the \
             values"
        );
        (CauseId::ImagePullDenied, remedy)
    } else {
        (CauseId::ImagePullFailed, format!("check that the nodes can reach the registry of `{image}`"))
    };
    Some(Unusable { cause, what: format!("image `{image}` cannot be pulled: {answer}"), remedy })
}

/// Returns the reason that a container with this image cannot run, where its runtime's message, or what it ended with
/// or printed last, shows that the image was pulled and is of another architecture than the node.
pub(crate) fn find_foreign_architecture(image: &str, said: &str) -> Option<Unusable> {
    let line = said.lines().rev().find(|line| line.to_lowercase().contains(NOT_EXECUTABLE))?;
    let what = format!("image `{image}` does not support the architecture of its node: {}", line.trim());
    Some(Unusable { cause: CauseId::ImageArchitecture, what, remedy: for_architecture(image) })
}

fn for_architecture(image: &str) -> String {
    format!(
        "push `{image}` for the architecture of the nodes too (mirror the whole image index), or choose matching nodes with `nodeSelector`"
    )
}

/// Returns whether a registry's answer has one of these words or codes. The image that it names may have words like
/// them, and a digest or a port the digits of a code.
fn has_word_or_code(answer: &str, image: &str, words: &[&str], codes: &[&str]) -> bool {
    let answer = if image.is_empty() { answer.to_owned() } else { answer.replace(image, "") };
    let lower = answer.to_lowercase();
    let mut parts = lower.split(|c: char| c.is_whitespace() || c == '=');
    words.iter().any(|word| lower.contains(word))
        || parts.any(|part| codes.contains(&part.trim_matches(|c: char| !c.is_ascii_alphanumeric())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cause(answer: &str) -> (CauseId, String) {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "p"}})).unwrap();
        let container = json!({"name": "c", "image": "r/denied:404", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": answer}}});
        let found = find_pull_failure(&pod, &serde_json::from_value(container).unwrap(), &Evidence::default()).unwrap();
        (found.cause, found.remedy)
    }

    #[test]
    fn an_image_for_other_architectures_is_not_a_missing_one() {
        for answer in [
            r#"failed to pull and unpack image "r/denied:404": no match for platform in manifest sha256:1f: not found"#,
            r#"choosing image instance: no image found in image index for architecture "amd64", variant "", OS "linux""#,
            "no matching manifest for linux/amd64 in the manifest list entries",
        ] {
            let (cause, remedy) = cause(answer);
            assert_eq!(cause, CauseId::ImageArchitecture, "{answer}");
            assert!(remedy.contains("whole image index"), "{remedy}");
        }
        assert_eq!(cause(r#"failed to resolve "r/denied:404": not found"#).0, CauseId::ImageNotFound);
        assert_eq!(cause(r#"failed to resolve "r/denied:404": 401 Unauthorized"#).0, CauseId::ImagePullDenied);
        assert_eq!(cause(r#"failed to resolve "r/denied:404": i/o timeout"#).0, CauseId::ImagePullFailed);
    }

    #[test]
    fn a_program_of_another_architecture_is_known_by_what_the_kernel_says() {
        let said = "begin\nexec /usr/local/bin/etcd: exec format error\n";
        let found = find_foreign_architecture("i", said).unwrap();
        assert_eq!(found.cause, CauseId::ImageArchitecture);
        assert_eq!(
            found.what,
            "image `i` does not support the architecture of its node: exec /usr/local/bin/etcd: exec format error"
        );
        assert!(
            find_foreign_architecture("i", "crun: executable file `/etcd`: Exec format error: OCI runtime error")
                .is_some()
        );
        assert_eq!(find_foreign_architecture("i", "segmentation fault"), None);
    }
}
