//! The counters of an image on a server, for `ferofs stats`: how much of it is stored, and what the
//! fetcher has done.
//!
//! The threads that answer requests must not wait for the fetcher. So they give the counters as
//! they were last known, and wake a thread that asks for newer ones. The command reads the counters
//! again until their number has changed.

use std::fmt::Write;
use std::sync::Arc;
use std::thread::Builder;

use ferofs_fuse::MoreStats;
use ferofs_serve::cache::Entry;
use ferofs_serve::channel::Client;
use ferofs_serve::fetch::FetchStats;
use parking_lot::{Condvar, Mutex};

use crate::cmd::mount::stats::{NUMBER, SILENT, STATE};
use crate::print::output::message;
use crate::servers::mount::prefetch::Background;

/// What the thread asks, and what it has learnt.
struct Counters {
    entry: Arc<Entry>,
    client: Arc<Client>,
    background: Arc<Background>,
    is_offline: bool,
    state: Mutex<State>,
    wanted: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_wanted: bool,
    /// How often the fetcher was asked.
    number: u64,
    /// Lines about the entry in the cache.
    entry: String,
    /// Lines about the fetcher.
    fetcher: String,
}

/// Starts the thread. Returns the function that gives the lines.
pub(crate) fn start(
    entry: &Arc<Entry>,
    client: &Arc<Client>,
    background: Arc<Background>,
    is_offline: bool,
) -> MoreStats {
    let counters = Arc::new(Counters {
        entry: Arc::clone(entry),
        client: Arc::clone(client),
        background,
        is_offline,
        state: Mutex::default(),
        wanted: Condvar::new(),
    });
    let asking = Arc::clone(&counters);
    if let Err(error) = Builder::new().name("counters".into()).spawn(move || asking.run()) {
        message!("counters: {error}");
    }
    Box::new(move || counters.text())
}

impl Counters {
    /// The lines as they were last known.
    fn text(&self) -> String {
        let mut state = self.state.lock();
        state.is_wanted = true;
        self.wanted.notify_one();
        format!("{NUMBER} {}\n{}{}", state.number, state.entry, state.fetcher)
    }

    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            while !state.is_wanted {
                self.wanted.wait(&mut state);
            }
            state.is_wanted = false;
            drop(state);
            let entry = self.of_entry();
            self.state.lock().entry = entry;
            let answer = self.client.stats();
            let mut state = self.state.lock();
            state.number += 1;
            match answer {
                Ok(stats) => state.fetcher = of_fetcher(&stats),
                // The counters stay as they were last known.
                Err(failure) => {
                    let (_, counters) = state.fetcher.split_once('\n').unwrap_or_default();
                    let name = if failure.is_timeout { SILENT } else { "ended" };
                    state.fetcher = format!("{STATE} {name}\n{counters}");
                }
            }
        }
    }

    fn of_entry(&self) -> String {
        let (size, ready) = (self.entry.size(), self.entry.ready());
        // A cache that cannot be read has nothing.
        let stored = self.entry.stored_bytes().unwrap_or(0);
        let mode = match self.is_offline {
            _ if stored == size => "complete",
            true => "offline",
            false => "lazy",
        };
        let Background { name, ranges, bytes, missing } = &*self.background;
        let mut text = format!("remote_mode {mode}\nprefetch {name}\n");
        for (name, number) in [
            ("remote_bytes", size),
            ("remote_stored_bytes", stored),
            ("remote_ready_bytes", ready),
            ("prefetch_ranges", ranges.get()),
            ("prefetch_bytes", bytes.get()),
            ("prefetch_missing_files", missing.get()),
        ] {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name} {number}");
        }
        text
    }
}

fn of_fetcher(stats: &FetchStats) -> String {
    let mut text = format!("{STATE} running\n");
    for (name, number) in [
        ("demanded_bytes", stats.demanded),
        ("announced_bytes", stats.announced),
        ("background_bytes", stats.background),
        ("background_left_bytes", stats.background_left),
        ("fetched_bytes", stats.fetched),
        ("reused_bytes", stats.reused),
        ("verified_bytes", stats.verified),
        ("stored_bytes", stats.stored),
        ("requests", stats.requests),
        ("retries", stats.retries),
        ("mean_microseconds", stats.mean_micros()),
        ("median_microseconds", stats.percentile(50)),
        ("p90_microseconds", stats.percentile(90)),
        ("p99_microseconds", stats.percentile(99)),
        ("longest_microseconds", stats.longest_micros),
        ("timeouts", stats.timeouts),
        ("connection_errors", stats.connection_errors),
        ("server_errors", stats.server_errors),
        ("digest_errors", stats.digest_errors),
        ("unstored_bytes", stats.cache_errors),
        ("removed_bytes", stats.removed),
        ("failures", stats.failures),
    ] {
        // Writing to a string does not fail.
        let _ = writeln!(text, "fetcher_{name} {number}");
    }
    text
}
