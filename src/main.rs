//! The `warploom` command; everything is in [`warploom::cli`].

use std::process::ExitCode;

/// Whether the process was started without a standard output (`warploom .. >&-`).
///
/// The standard library opens /dev/null in its place before `main`, where every write succeeds. So the question is asked before: by a
/// function of `.init_array`, which the loader calls.
#[cfg(target_os = "linux")]
mod start {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    static IS_CLOSED: AtomicBool = AtomicBool::new(false);

    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;

    extern "C" fn look() {
        // A descriptor that is open can be duplicated.
        let is_open = std::io::stdout().as_fd().try_clone_to_owned().is_ok();
        IS_CLOSED.store(!is_open, Ordering::Relaxed);
    }

    pub fn is_closed() -> bool {
        IS_CLOSED.load(Ordering::Relaxed)
    }
}

#[cfg(not(target_os = "linux"))]
mod start {
    pub fn is_closed() -> bool {
        false
    }
}

fn main() -> ExitCode {
    warploom::cli::main(start::is_closed())
}
