//! The Kubernetes minor by which the objects of a control plane are stored, recorded among these objects themselves: in the
//! ConfigMap `fleet-kubernetes-version` of the namespace `kube-system`. The leading scheduler writes it; before an API server
//! starts, `fleet-scheduler guard` reads it out of etcd.
//!
//! There the ConfigMap is protobuf, in which texts stand as they are. The minor is found by the words around it, in a form
//! that nothing else of a ConfigMap has: `kubernetes=v1.36;`.

use super::readiness_log;
use super::version::KubeMinor;

/// Namespace of the ConfigMap: one that every API server creates by itself.
pub const NAMESPACE: &str = "kube-system";
/// Name of the ConfigMap.
pub const NAME: &str = "fleet-kubernetes-version";
/// The one key of its data.
pub const KEY: &str = "record";
/// The key in etcd, where the API server has the prefix that it has by default.
pub const ETCD_KEY: &str = "/registry/configmaps/kube-system/fleet-kubernetes-version";

const BEFORE: &[u8] = b"kubernetes=";
const AFTER: u8 = b';';
/// No minor is longer than this as a text.
const LONGEST: usize = 16;

/// Prefix of the reason for which an API server is not started.
pub const HELD: &str = "version guard: ";

/// Reason that an API server must not start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Held {
    /// The API server leaves out a minor.
    #[error(
        "{HELD}Kubernetes {wanted} is more than one minor newer than {stored}, which wrote the objects in etcd: \
         upgrade an API server one minor at a time"
    )]
    Skips {
        /// The minor that the objects are stored by.
        stored: KubeMinor,
        /// The minor of the API server.
        wanted: KubeMinor,
    },
    /// The API server is older than the one before.
    #[error(
        "{HELD}Kubernetes {wanted} is older than {stored}, which wrote the objects in etcd: an older API server \
         cannot read all of them"
    )]
    Older {
        /// The minor that the objects are stored by.
        stored: KubeMinor,
        /// The minor of the API server.
        wanted: KubeMinor,
    },
}

/// Judges whether an API server of the minor `wanted` may start on objects that are stored by `stored`.
///
/// # Errors
/// [`Held`]
pub fn check_minor_change(stored: KubeMinor, wanted: KubeMinor) -> Result<(), Held> {
    if wanted < stored {
        Err(Held::Older { stored, wanted })
    } else if wanted > stored.next_minor() {
        Err(Held::Skips { stored, wanted })
    } else {
        Ok(())
    }
}

/// The record of a minor.
pub fn format_record(minor: KubeMinor) -> String {
    format!("{}{minor}{}", String::from_utf8_lossy(BEFORE), char::from(AFTER))
}

/// Returns the minor of the first record in `bytes`: a stored ConfigMap, or the text of its one key.
pub fn find_recorded_minor(bytes: &[u8]) -> Option<KubeMinor> {
    let mut starts = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(BEFORE)).map(|at| at + BEFORE.len());
    starts.find_map(|start| of_record(&bytes[start..]))
}

fn of_record(rest: &[u8]) -> Option<KubeMinor> {
    let end = rest.iter().take(LONGEST).position(|byte| *byte == AFTER)?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

/// The reason that a line of a log gives for an API server that is not started.
pub fn parse_held_reason(line: &str) -> Option<String> {
    let message = readiness_log::log_message(line);
    let (_, reason) = message.split_once(HELD)?;
    Some(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_among_other_bytes() {
        let minor = KubeMinor::new(1, 36);
        assert_eq!(format_record(minor), "kubernetes=v1.36;");
        assert_eq!(find_recorded_minor(format_record(minor).as_bytes()), Some(minor));
        let stored =
            [b"k8s\0\n\x0f\x12\x04kubernetes=\xff;\x12\x11", format_record(minor).as_bytes(), b"\x1a\0"].concat();
        assert_eq!(find_recorded_minor(&stored), Some(minor));
        for none in ["", "kubernetes=", "kubernetes=v1.36", "kubernetes=;", "kubernetes=0123456789012345678;"] {
            assert_eq!(find_recorded_minor(none.as_bytes()), None, "{none}");
        }
        assert_eq!(ETCD_KEY, format!("/registry/configmaps/{NAMESPACE}/{NAME}"));
    }

    #[test]
    fn the_reason_is_read_from_both_formats_of_a_log() {
        let json = r#"{"level":"ERROR","message":"version guard: Kubernetes v1.38 is \"new\""}"#;
        assert_eq!(parse_held_reason(json).as_deref(), Some("Kubernetes v1.38 is \"new\""));
        assert_eq!(parse_held_reason("2026-01-01T00:00:00Z ERROR x: version guard: y").as_deref(), Some("y"));
        assert_eq!(parse_held_reason(r#"{"message":"other","error":"version guard: y"}"#), None);
    }

    fn make_minor(minor: u32) -> KubeMinor {
        KubeMinor::new(1, minor)
    }

    #[test]
    fn an_api_server_goes_up_one_minor_at_a_time_and_never_down() {
        for wanted in [36, 37] {
            assert_eq!(check_minor_change(make_minor(36), make_minor(wanted)), Ok(()));
        }
        assert_eq!(
            check_minor_change(make_minor(36), make_minor(38)),
            Err(Held::Skips { stored: make_minor(36), wanted: make_minor(38) })
        );
        assert_eq!(
            check_minor_change(make_minor(36), make_minor(35)),
            Err(Held::Older { stored: make_minor(36), wanted: make_minor(35) })
        );
        let said = check_minor_change(make_minor(36), make_minor(38)).unwrap_err().to_string();
        assert!(parse_held_reason(&said).is_some_and(|reason| reason.starts_with("Kubernetes v1.38")), "{said}");
    }
}
