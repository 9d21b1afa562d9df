//! Ends work cleanly on SIGINT and SIGTERM.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{Failure, INTERRUPTED};
use crate::print::output::message;

/// How long work may take to end after a signal. What waits longer waits for somebody else, such as the writer of a pipe.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// The same for what changes an image in place, and puts back what it changed.
pub(crate) const GRACE_IN_PLACE: Duration = Duration::from_secs(10);

/// The first SIGINT or SIGTERM ends the work cleanly; after `grace`, or with a second signal, the process ends in any case.
pub(crate) fn cancel_on_signals(cancel: &Arc<AtomicBool>, grace: Duration) -> Result<(), Failure> {
    const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
    for signal in SIGNALS {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(cancel))?;
        signal_hook::flag::register(signal, Arc::clone(cancel))?;
    }
    let mut signals = Signals::new(SIGNALS)?;
    // Without this thread a second signal is needed.
    let _ = thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            thread::sleep(grace);
            message!("interrupted");
            signal_hook::low_level::exit(INTERRUPTED);
        }
    });
    Ok(())
}
