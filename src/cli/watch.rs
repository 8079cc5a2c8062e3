//! Runs a scheduled program in sequence, or its lowered kernels by threads, while somebody watches: `run --print`, `run --step`.

use super::look::{Elements, Places, Writes};
use super::show;
use super::step::Stepper;
use super::threads::{self, Position, Program};
use super::walk::Walker;
use crate::array::Array;
use crate::error::Result;
use crate::loom::Schedule;
use crate::lower;
use crate::sim::{self, Mode, Options, Sight, Stats, View};
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
        return sim::run_func_watched(&func, &options, arrays, move |moment| stepper.at(moment));
    }
    let writes = Rc::new(RefCell::new(Writes::of(&func, elements)?));
    let (seen, places) = (writes.clone(), Places::of(&func));
    show::line("the scheduled program, in sequence: blocks and threads are loops");
    let ran = sim::run_func_watched(&func, &options, arrays, move |moment| {
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

/// Runs the lowered kernels, showing each write of the given elements by a block and a thread, or by all, or without any elements
/// stepping through the block; `None` where the user has ended the run.
pub fn run_lowered(
    schedule: &Schedule,
    elements: &[Elements],
    (block, thread): (Option<Position>, Option<Position>),
    arrays: &mut [Array],
) -> Result<Option<Stats>> {
    let lowered = lower::lower(&schedule.scheduled()?, &schedule.target)?;
    let (program, options) = (Program::of(&lowered), Options::new(Mode::Real));
    let has = |at: Position| program.kernels.iter().any(|k| at.0.iter().zip(k.grid).all(|(n, all)| *n < all));
    if let Some(block) = block.filter(|b| !has(*b)) {
        return Err(threads::no_block(block, &program));
    }
    show::line("the lowered kernels, by threads");
    if elements.is_empty() {
        let walker = Rc::new(RefCell::new(Walker::new(program)));
        let (seen, view) = (walker.clone(), View::walk(block.map_or([0; 3], |b| b.0)));
        let ran = sim::run_lowered_watched(&lowered, &options, arrays, view, move |s| seen.borrow_mut().at(s));
        walker.borrow_mut().flush();
        return ran;
    }
    let writes = Rc::new(RefCell::new(threads::Writes::of(&program, &lowered, elements, (block, thread))?));
    let (seen, view) = (writes.clone(), View::writes(writes.borrow().buffers()));
    let ran = sim::run_lowered_watched(&lowered, &options, arrays, view, move |scene| {
        if let Sight::Wrote(write) = scene.sight
            && let Some(line) = seen.borrow_mut().line(&program, scene, &write)
        {
            show::line(line);
        }
        ControlFlow::Continue(())
    });
    threads::sum(&writes.borrow());
    ran
}
