//! Runs a scheduled program in sequence while somebody watches: `run --print`, `run --step`.

use super::look::{Elements, Places, Writes};
use super::show;
use super::step::Stepper;
use crate::array::Array;
use crate::error::Result;
use crate::loom::Schedule;
use crate::machine::{self, Mode, Options, Stats};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Runs the scheduled program, showing each write of the given elements, or without any stepping through it; `None` where the
/// user has ended the run.
pub fn run(schedule: &Schedule, elements: &[Elements], arrays: &mut [Array]) -> Result<Option<Stats>> {
    let func = schedule.scheduled()?;
    let options = Options::new(Mode::Real);
    if elements.is_empty() {
        let mut stepper = Stepper::new(&func);
        return machine::run_func_watched(&func, &options, arrays, move |moment| stepper.at(moment));
    }
    let writes = Rc::new(RefCell::new(Writes::of(&func, elements)?));
    let (seen, places) = (writes.clone(), Places::of(&func));
    show::line("the scheduled program, in sequence: blocks and threads are loops");
    let ran = machine::run_func_watched(&func, &options, arrays, move |moment| {
        if let Some(line) = seen.borrow_mut().line(&places, moment) {
            show::line(line);
        }
        ControlFlow::Continue(())
    });
    let writes = writes.borrow();
    for name in writes.never() {
        show::line(format_args!("nothing has written {name}"));
    }
    show::line(show::count(writes.total() as usize, "write"));
    ran
}
