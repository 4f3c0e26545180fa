//! Progress of an install or uninstall; the command line shows it.

use std::sync::Arc;

use crate::api::remedy::Remedy;
use crate::apply::Foreign;
use crate::k8s::{Event, Events};

/// Steps, what they wait for, and warnings. One step is in progress at a time.
pub trait Progress: Send + Sync {
    /// A step begins; the one before has ended well.
    fn begin_step(&self, title: &str);
    /// Tells what the step waits for now.
    fn update_step(&self, text: &str);
    /// The step has ended well, with a detail worth a few words or nothing.
    fn finish_step(&self, detail: &str);
    /// The step has failed, and what undoes the run begins as a step of its own.
    fn begin_undo(&self, title: &str);
    /// Something that does not stop the run.
    fn report_warning(&self, text: &str);
    /// The same, with commands or flags among its words.
    fn report_advice(&self, advice: &Remedy);
    /// Takes an event of the engine as data; by default reports it as text.
    fn report_event(&self, event: &Event) {
        report_event_in_words(self, event);
    }
}

/// The engine's events as progress.
pub fn progress_events(progress: &Arc<dyn Progress>) -> Events {
    let progress = Arc::clone(progress);
    Events::new(move |numbered| progress.report_event(&numbered.event))
}

/// Reports, before anything is written, the foreign objects that the run will adopt.
pub fn preview_adoption(progress: &dyn Progress, adopted: &[Foreign]) {
    for foreign in adopted {
        progress.report_warning(&format!("{} is {} and will be adopted", foreign.object, foreign.describe_owner()));
    }
}

/// Reports, before anything is written, that the record is lost, and that a plan has `found` objects by their labels.
pub fn record_lost(progress: &dyn Progress, found: usize) {
    if found > 0 {
        progress.report_event(&Event::RecordLost { found });
    }
}

/// Reports an event of the engine as text: the current wait, or a warning.
pub fn report_event_in_words<P: Progress + ?Sized>(progress: &P, event: &Event) {
    match event {
        Event::Waiting { object, message, .. } => progress.update_step(&format!("{object}: {message}")),
        Event::Warning { object, message } => progress.report_warning(&format!("{object}: {message}")),
        Event::Retrying { request, error, .. } => progress.update_step(&format!("retrying {request}: {error}")),
        Event::Lock { holder, taken_over: true } => {
            progress.report_warning(&format!("acquired the lock of {holder}, which ended without releasing it"));
        }
        Event::Lock { holder, taken_over: false } => {
            progress.update_step(&format!("waiting for {holder}, which has the lock"));
        }
        Event::Stuck { object, message } => progress.report_warning(&format!("{object} is not deleted yet: {message}")),
        Event::RecordLost { found } => {
            let found = match found {
                1 => "1 object was found by its labels".to_owned(),
                many => format!("{many} objects were found by their labels"),
            };
            progress.report_warning(&format!("the record of this installation is lost; {found}"));
        }
        Event::Ready { object, note: Some(note), .. } => progress.report_warning(&format!("{object} {note}")),
        Event::Object { .. } | Event::Ready { .. } => {}
    }
}

/// Progress of which nothing is shown.
#[cfg(test)]
pub struct Silent;

#[cfg(test)]
impl Progress for Silent {
    fn begin_step(&self, _: &str) {}
    fn update_step(&self, _: &str) {}
    fn finish_step(&self, _: &str) {}
    fn begin_undo(&self, _: &str) {}
    fn report_warning(&self, _: &str) {}
    fn report_advice(&self, _: &Remedy) {}
}
