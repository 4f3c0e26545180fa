//! Progress of an install or uninstall; the command line shows it.

use std::sync::Arc;

use crate::api::remedy::Remedy;
use crate::apply::Foreign;
use crate::k8s::{Event, Events};

/// Steps, what they wait for, and warnings. One step is under way at a time.
pub trait Progress: Send + Sync {
    /// A step begins; the one before has ended well.
    fn step(&self, title: &str);
    /// Tells what the step waits for now.
    fn update(&self, text: &str);
    /// The step has ended well, with a detail worth a few words or nothing.
    fn done(&self, detail: &str);
    /// The step has failed, and what undoes the run begins as a step of its own.
    fn undo(&self, title: &str);
    /// Something that does not stop the run.
    fn warn(&self, text: &str);
    /// The same, with commands or flags among its words.
    fn advise(&self, advice: &Remedy);
    /// Takes an event of the engine as data; tells it in words unless an implementation wants the data.
    fn event(&self, event: &Event) {
        tell(self, event);
    }
}

/// The engine's events as progress.
pub fn events(progress: &Arc<dyn Progress>) -> Events {
    let progress = Arc::clone(progress);
    Events::new(move |numbered| progress.event(&numbered.event))
}

/// Tells, before anything is written, what others made and the run will adopt.
pub fn preview_adoption(progress: &dyn Progress, adopted: &[Foreign]) {
    for foreign in adopted {
        progress.warn(&format!("{} is {} and will be adopted", foreign.object, foreign.owner()));
    }
}

/// Tells, before anything is written, that the record is lost of which a plan has `found` objects by their labels.
pub fn record_lost(progress: &dyn Progress, found: usize) {
    if found > 0 {
        progress.event(&Event::RecordLost { found });
    }
}

/// Tells an event of the engine in words: what is waited for, and what somebody should know.
pub fn tell<P: Progress + ?Sized>(progress: &P, event: &Event) {
    match event {
        Event::Waiting { object, message, .. } => progress.update(&format!("{object}: {message}")),
        Event::Warning { object, message } => progress.warn(&format!("{object}: {message}")),
        Event::Retrying { request, error, .. } => progress.update(&format!("{request} is sent again: {error}")),
        Event::Lock { holder, taken_over: true } => {
            progress.warn(&format!("took over the lock of {holder}, which ended without letting go"));
        }
        Event::Lock { holder, taken_over: false } => {
            progress.update(&format!("waiting for {holder}, which is at work"));
        }
        Event::Stuck { object, message } => progress.warn(&format!("{object} does not go away: {message}")),
        Event::RecordLost { found } => {
            let found = match found {
                1 => "1 object was found by its labels".to_owned(),
                many => format!("{many} objects were found by their labels"),
            };
            progress.warn(&format!("the record of this installation is lost; {found}"));
        }
        Event::Ready { object, note: Some(note), .. } => progress.warn(&format!("{object} {note}")),
        Event::Object { .. } | Event::Ready { .. } => {}
    }
}
