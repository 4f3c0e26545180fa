//! Events of a run as data for whoever shows it, with the `type` that each has under `-o json`. Nothing here is printed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::object::ObjectRef;

/// Action that was taken on one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    /// It was not there, and is now.
    Created,
    /// It was there, and some of our fields are new.
    Changed,
    /// It was there and not ours, and is ours now.
    Adopted,
    /// It was written and nothing moved.
    Unchanged,
    /// It is gone or on its way.
    Deleted,
    /// It got its former fields back.
    Restored,
    /// It was left where it is on purpose.
    Kept,
}

/// An event of the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Event {
    /// One object was written or deleted.
    Object {
        /// The object that was written or deleted.
        object: ObjectRef,
        /// Action that was taken.
        done: Done,
    },
    /// The server warned about an object (Pod Security, a deprecated version), or it or a field of it is left as it is.
    Warning {
        /// The object that the warning is about.
        object: ObjectRef,
        /// The server's sentence, or what is left, and why.
        message: String,
    },
    /// An object is waited for, and its state has changed, or what keeps it. Of one object never sent twice in a row with
    /// the same text.
    Waiting {
        /// The object that is waited for.
        object: ObjectRef,
        /// Cause that keeps it, if that is known, else its state in a few words, such as `0 of 1 pods ready`, with the
        /// latest warning that came since the wait began.
        message: String,
        /// Seconds since the wait began.
        seconds: u64,
    },
    /// An object that was waited for is there.
    Ready {
        /// The object that was waited for.
        object: ObjectRef,
        /// Seconds since the wait began.
        seconds: u64,
        /// Note on an object of which nothing is known but that it exists, for want of a rule for its kind.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A request failed more than once and is sent again.
    Retrying {
        /// The verb and path, without the query.
        request: String,
        /// Number of tries so far.
        tries: u32,
        /// Error of the last try.
        error: String,
    },
    /// Another run holds the lock and is waited for, or a dead one's lock was taken over.
    Lock {
        /// Its holder.
        holder: String,
        /// True if it was taken over.
        taken_over: bool,
    },
    /// Neither a record nor a journal of the installation is there, and objects of it are.
    RecordLost {
        /// Number of objects found by their labels.
        found: usize,
    },
    /// Something keeps an object from going away.
    Stuck {
        /// The object that is to go away.
        object: ObjectRef,
        /// The finalizer, or the condition of the namespace.
        message: String,
    },
}

impl Event {
    /// Returns whether the event is a warning, which is shown even with `--quiet`.
    pub const fn is_warning(&self) -> bool {
        matches!(
            self,
            Self::Warning { .. }
                | Self::Stuck { .. }
                | Self::RecordLost { .. }
                | Self::Lock { taken_over: true, .. }
                | Self::Ready { note: Some(_), .. }
        )
    }
}

/// An event with its place in the order of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Numbered {
    /// Counts up from 1 without a gap within one [`Events`].
    pub sequence: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

type Sink = dyn Fn(Numbered) + Send + Sync;

/// Receiver of events. Clones share one sequence.
#[derive(Clone)]
pub struct Events {
    sink: Arc<Sink>,
    sequence: Arc<AtomicU64>,
}

impl Events {
    /// Sends every event to `sink`, in order, on the task where it happens.
    pub fn new(sink: impl Fn(Numbered) + Send + Sync + 'static) -> Self {
        Self { sink: Arc::new(sink), sequence: Arc::new(AtomicU64::new(0)) }
    }

    /// Drops every event.
    pub fn none() -> Self {
        Self::new(|_| {})
    }

    pub(crate) fn send_event(&self, event: Event) {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        (self.sink)(Numbered { sequence, event });
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::none()
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn events_are_numbered_and_are_flat_json() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let events = Events::new(move |event| sink.lock().unwrap().push(event));
        let object = ObjectRef {
            group: String::new(),
            kind: "Secret".into(),
            namespace: Some("fleet".into()),
            name: "a".into(),
        };
        events.send_event(Event::Object { object: object.clone(), done: Done::Created });
        events.clone().send_event(Event::Ready { object, seconds: 3, note: None });
        let seen = seen.lock().unwrap();
        assert_eq!(seen.iter().map(|e| e.sequence).collect::<Vec<_>>(), [1, 2]);
        let json = serde_json::to_value(&seen[1]).unwrap();
        assert_eq!(
            (json["type"].as_str(), json["seconds"].as_u64(), json["sequence"].as_u64()),
            (Some("ready"), Some(3), Some(2))
        );
        assert!(json.get("note").is_none(), "{json}");
    }
}
