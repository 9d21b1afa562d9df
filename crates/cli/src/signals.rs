//! Ends work cleanly on SIGINT and SIGTERM.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use ferofs::read::Cancel;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::exit::{Failure, INTERRUPTED};
use crate::print::output::message;

/// How long a command may take to stop after a signal. A command that takes longer is blocked in a
/// system call, for example a read from a pipe.
pub(crate) const GRACE_PERIOD: Duration = Duration::from_secs(1);
/// The same for a command that changes an image in place: it must first undo its changes, or make
/// them durable.
pub(crate) const GRACE_PERIOD_IN_PLACE: Duration = Duration::from_secs(10);

/// Lets writes beyond the limit on the size of files (`ulimit -f`) fail with an error, instead of
/// ending the process without a message.
pub(crate) fn report_file_size_limit() {
    // A handler, because children would inherit that the signal is ignored. Without it, the limit
    // ends the process as before.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Makes SIGINT and SIGTERM cancel the work of `cancel`. The process ends `grace` after the first
/// signal, or at a second signal, even if the work did not stop.
pub(crate) fn cancel_on_signals(cancel: &Cancel, grace: Duration) -> Result<(), Failure> {
    cancel_and_clean_up(cancel, grace, || ())
}

/// As [`cancel_on_signals`]. Calls `clean_up` before it ends the process.
pub(crate) fn cancel_and_clean_up(
    cancel: &Cancel,
    grace: Duration,
    clean_up: fn(),
) -> Result<(), Failure> {
    const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
    let flag = Arc::<AtomicBool>::from(cancel.clone());
    let registered = || -> io::Result<Signals> {
        for signal in SIGNALS {
            signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, flag.clone())?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Signals::new(SIGNALS)
    };
    let failed = |error| Failure::complete(ferofs::IoError::unnamed("handle signals", error));
    let mut signals = registered().map_err(failed)?;
    // If the thread cannot be started, only a second signal ends the process.
    let _ = thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            thread::sleep(grace);
            message!("interrupted");
            clean_up();
            signal_hook::low_level::exit(INTERRUPTED);
        }
    });
    Ok(())
}
