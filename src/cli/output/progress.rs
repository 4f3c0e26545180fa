//! Display of a run as it goes: a live view on a terminal, plain lines elsewhere, events under `-o json` (those of objects
//! have their types in `k8s::run_event`).
//!
//! What is awaited tells of itself in words of API servers and pods, so every line is made visible here.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::terminal::{Mark, Ui};
use crate::api::remedy::Remedy;
use crate::api::util::text::{visible_lines, visible_list};
use crate::install::progress::{Progress, report_event_in_words};
use crate::k8s::{Event, Events, ObjectRef};

/// Time after which a line is drawn again for the elapsed time that it shows.
const TICK: Duration = Duration::from_millis(120);

/// Shows the steps of a run: on a terminal the step in progress, and below it a line for each object that is still
/// waited for; elsewhere a line a change. A step ends with a mark.
#[derive(Debug)]
pub(crate) struct Display {
    ui: Ui,
    step: Mutex<Option<Step>>,
    waiting: Mutex<Vec<(ObjectRef, ProgressBar)>>,
}

#[derive(Debug)]
struct Step {
    title: String,
    bar: ProgressBar,
    started: Instant,
    last: String,
    /// Whether it undoes what the steps before it did.
    undoes: bool,
}

impl Display {
    /// A display without a step yet.
    pub(crate) fn new(ui: &Ui) -> Self {
        Self { ui: ui.clone(), step: Mutex::default(), waiting: Mutex::default() }
    }

    /// Ends the step in progress, well or not.
    pub(crate) fn close_step(&self, well: bool) {
        for (_, bar) in lock_unpoisoned(&self.waiting).drain(..) {
            self.take_away(&bar);
        }
        self.end_step_line(if well { Mark::Good } else { Mark::Bad }, "");
    }

    /// Returns whether the step in progress undoes the run.
    pub(crate) fn is_undoing(&self) -> bool {
        lock_unpoisoned(&self.step).as_ref().is_some_and(|step| step.undoes)
    }

    fn start_step_line(&self, title: &str, undoes: bool) {
        let title = &*visible_list(title);
        let told = self.ui.write_event("step", false, || json!({"step": title}));
        // Other steps are told as they end, and by what they wait for; this one may be silent for minutes.
        if undoes && !told && !self.ui.live {
            self.ui.print_note(title);
        }
        // Above what has been waited for since before it began.
        let bar = self.ui.lines.insert(0, ProgressBar::no_length());
        let bar = self.draw_line(bar, "{spinner} {wide_msg} {elapsed:.dim}", title.to_owned());
        let step = Step { title: title.to_owned(), bar, started: Instant::now(), last: String::new(), undoes };
        *lock_unpoisoned(&self.step) = Some(step);
    }

    /// Draws a line, which has its place among the others already.
    fn draw_line(&self, bar: ProgressBar, template: &str, message: String) -> ProgressBar {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(message);
        if self.ui.live {
            bar.enable_steady_tick(TICK);
        }
        bar
    }

    fn take_away(&self, bar: &ProgressBar) {
        bar.finish_and_clear();
        self.ui.lines.remove(bar);
    }

    fn end_step_line(&self, mark: Mark, detail: &str) {
        let Some(step) = lock_unpoisoned(&self.step).take() else { return };
        self.take_away(&step.bar);
        let seconds = step.started.elapsed().as_secs_f64();
        let is_ok = mark != Mark::Bad;
        if self.ui.write_event(
            "step-ended",
            false,
            || json!({"step": step.title, "ok": is_ok, "detail": detail, "seconds": seconds}),
        ) {
            return;
        }
        let took = if seconds >= 0.95 { format!(" ({seconds:.0} s)") } else { String::new() };
        let detail = if detail.is_empty() { String::new() } else { format!(": {}", visible_list(detail)) };
        let line = format!("{} {}{detail}{took}", self.ui.mark(mark), step.title);
        self.ui.print_note(&line);
    }

    /// Shows the present state of an object that is waited for.
    fn show_waiting(&self, object: &ObjectRef, message: &str) {
        let text = format!("{object}: {message}");
        if !self.ui.live {
            return self.update_step(&text);
        }
        let mut waiting = lock_unpoisoned(&self.waiting);
        match waiting.iter().find(|(known, _)| known == object) {
            Some((_, bar)) => bar.set_message(visible_list(&text).into_owned()),
            None => {
                let bar = self.ui.lines.add(ProgressBar::no_length());
                waiting.push((
                    object.clone(),
                    self.draw_line(bar, "    {wide_msg} {elapsed:.dim}", visible_list(&text).into_owned()),
                ));
            }
        }
    }

    fn remove_waiting(&self, object: &ObjectRef) {
        for (_, bar) in lock_unpoisoned(&self.waiting).extract_if(.., |(known, _)| known == object) {
            self.take_away(&bar);
        }
    }
}

/// Receiver of the retries of reads: a line for each error, since one outage meets many reads.
pub(crate) fn retry_events(ui: &Ui) -> Events {
    let (ui, reported) = (ui.clone(), Mutex::new(BTreeSet::new()));
    Events::new(move |numbered| {
        let Event::Retrying { error, .. } = &numbered.event else { return };
        if !lock_unpoisoned(&reported).insert(error.clone()) {
            return;
        }
        if !ui.write_event("", false, || json!(numbered.event)) {
            ui.print_note(&format!("no answer from the API server yet, trying again: {}", visible_list(error)));
        }
    })
}

fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Progress for Display {
    fn begin_step(&self, title: &str) {
        self.end_step_line(Mark::Good, "");
        self.start_step_line(title, false);
    }

    fn update_step(&self, text: &str) {
        let mut current = lock_unpoisoned(&self.step);
        let Some(step) = current.as_mut().filter(|step| step.last != text) else { return };
        text.clone_into(&mut step.last);
        if self.ui.write_event("update", false, || json!({"message": text})) {
            return;
        }
        let text = visible_list(text);
        if self.ui.live {
            step.bar.set_message(format!("{}: {text}", step.title));
        } else {
            self.ui.print_note(&format!("  {text}"));
        }
    }

    fn finish_step(&self, detail: &str) {
        self.end_step_line(Mark::Good, detail);
    }

    fn begin_undo(&self, title: &str) {
        self.close_step(false);
        self.start_step_line(title, true);
    }

    fn report_warning(&self, text: &str) {
        self.ui.warn(&visible_lines(text));
    }

    fn report_advice(&self, advice: &Remedy) {
        self.report_warning(&self.ui.format_remedy(advice));
    }

    fn report_event(&self, event: &Event) {
        if self.ui.write_event("", event.is_warning(), || json!(event)) {
            return;
        }
        match event {
            Event::Waiting { object, message, .. } => self.show_waiting(object, message),
            Event::Ready { object, .. } => {
                self.remove_waiting(object);
                report_event_in_words(self, event);
            }
            _ => report_event_in_words(self, event),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::k8s::Done;

    /// Whether it was warned.
    #[derive(Default)]
    struct Warned(AtomicBool);

    impl Progress for Warned {
        fn begin_step(&self, _: &str) {}
        fn update_step(&self, _: &str) {}
        fn finish_step(&self, _: &str) {}
        fn begin_undo(&self, _: &str) {}
        fn report_advice(&self, _: &Remedy) {}
        fn report_warning(&self, _: &str) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_is_a_warning_in_words_is_one_as_an_event() {
        let object = ObjectRef { group: String::new(), kind: "Pod".into(), namespace: None, name: "p".into() };
        let text = "t".to_owned();
        for (event, warns) in [
            (Event::Object { object: object.clone(), done: Done::Created }, false),
            (Event::Warning { object: object.clone(), message: text.clone() }, true),
            (Event::Waiting { object: object.clone(), message: text.clone(), seconds: 0 }, false),
            (Event::Ready { object: object.clone(), seconds: 0, note: None }, false),
            (Event::Ready { object: object.clone(), seconds: 0, note: Some(text.clone()) }, true),
            (Event::Retrying { request: text.clone(), tries: 2, error: text.clone() }, false),
            (Event::Lock { holder: text.clone(), taken_over: false }, false),
            (Event::Lock { holder: text.clone(), taken_over: true }, true),
            (Event::RecordLost { found: 2 }, true),
            (Event::Stuck { object, message: text }, true),
        ] {
            let warned = Warned::default();
            report_event_in_words(&warned, &event);
            assert_eq!((event.is_warning(), warned.0.into_inner()), (warns, warns), "{event:?}");
        }
    }
}
