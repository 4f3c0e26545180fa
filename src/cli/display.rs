//! How a run is shown as it goes: a live view on a terminal, plain lines elsewhere, events under `-o json`.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::ui::{Mark, Ui};
use crate::apply::Event;
use crate::install::progress::{Progress, tell};

/// Shows the steps of a run: one live line on a terminal, plain lines elsewhere; each ends with a mark.
#[derive(Debug)]
pub(super) struct Display {
    ui: Ui,
    step: Mutex<Option<Step>>,
}

#[derive(Debug)]
struct Step {
    title: String,
    bar: Option<ProgressBar>,
    started: Instant,
    last: String,
}

impl Display {
    /// A display without a step yet.
    pub(super) fn new(ui: &Ui) -> Self {
        Self { ui: ui.clone(), step: Mutex::new(None) }
    }

    /// Ends the step under way, well or not.
    pub(super) fn close(&self, well: bool) {
        self.finish(if well { Mark::Good } else { Mark::Bad }, "");
    }

    fn current(&self) -> MutexGuard<'_, Option<Step>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, mark: Mark, detail: &str) {
        let Some(step) = self.current().take() else { return };
        if let Some(bar) = &step.bar {
            bar.finish_and_clear();
        }
        let seconds = step.started.elapsed().as_secs_f64();
        let ended = || json!({"step": step.title, "ok": mark != Mark::Bad, "detail": detail, "seconds": seconds});
        if self.ui.event("step-ended", ended) {
            return;
        }
        let took = if seconds >= 0.95 { format!(" ({seconds:.0} s)") } else { String::new() };
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        self.ui.note(&format!("{} {}{detail}{took}", self.ui.mark(mark), step.title));
    }
}

impl Progress for Display {
    fn step(&self, title: &str) {
        self.finish(Mark::Good, "");
        self.ui.event("step", || json!({"step": title}));
        let bar = self.ui.live.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed:.dim}") {
                bar.set_style(style);
            }
            bar.set_message(title.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        let step = Step { title: title.to_owned(), bar, started: Instant::now(), last: String::new() };
        *self.current() = Some(step);
    }

    fn update(&self, text: &str) {
        let mut current = self.current();
        let Some(step) = current.as_mut().filter(|step| step.last != text) else { return };
        text.clone_into(&mut step.last);
        if self.ui.event("update", || json!({"message": text})) {
            return;
        }
        match &step.bar {
            Some(bar) => bar.set_message(format!("{}: {text}", step.title)),
            None => self.ui.note(&format!("  {text}")),
        }
    }

    fn done(&self, detail: &str) {
        self.finish(Mark::Good, detail);
    }

    fn warn(&self, text: &str) {
        let current = self.current();
        match current.as_ref().and_then(|step| step.bar.as_ref()) {
            Some(bar) => bar.suspend(|| self.ui.warn(text)),
            None => self.ui.warn(text),
        }
    }

    fn event(&self, event: &Event) {
        if !self.ui.event("", || json!(event)) {
            tell(self, event);
        }
    }
}
