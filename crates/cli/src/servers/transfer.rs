//! A transfer to or from a server: its progress on a terminal, and the result of a push.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs::escape::Escaped;
use ferofs::read::Count;
use ferofs_serve::http::Client;
use ferofs_serve::oci::{PushOptions, Pushed, Reference, push};
use indicatif::HumanBytes;
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome};
use crate::print::output::{json_text, message};
use crate::print::progress::Display;

/// The time for a request without a blob.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// When a request without a blob, which starts now, must have its answer.
pub(super) fn deadline() -> Instant {
    Instant::now() + REQUEST_TIME
}

/// The progress of a transfer. The line is removed when this is dropped.
pub(super) struct Transfer {
    counters: Arc<[Count; 2]>,
    _display: Option<Display>,
}

impl Transfer {
    /// Starts to show how many bytes are `verb`: "sent".
    pub(super) fn start(verb: &'static str) -> Self {
        let counters = Arc::<[Count; 2]>::default();
        let shown = Arc::clone(&counters);
        let display = Display::on_terminal(move |bar| {
            let [done, size] = &*shown;
            let (done, size) = (done.get(), size.get());
            bar.set_message(format!("{} of {} {verb}", HumanBytes(done), HumanBytes(size)));
        });
        Self { counters, _display: display }
    }

    pub(super) fn set(&self, done: u64, size: u64) {
        let [known_done, known_size] = &*self.counters;
        known_done.set(done);
        known_size.set(size);
    }
}

/// Stores an image with these layers as `to`, and prints its name, or, if `is_json`, an object with
/// the result and with what `more` adds.
pub(super) fn store(
    client: Client,
    layers: &[PathBuf],
    to: &Reference,
    options: &PushOptions,
    is_json: bool,
    more: impl FnOnce(&Pushed) -> Value,
) -> Outcome {
    let transfer = Transfer::start("sent");
    let pushed = push(client, layers, to, options, &|done, size| transfer.set(done, size));
    drop(transfer);
    let pushed = pushed.map_err(Failure::complete)?;
    if pushed.root.is_none() && options.base.is_none() && layers.len() == 1 {
        let hint =
            "seal it with `ferofs verity format`, or build it with --verity, and push it again";
        message!("{}: no root hash, which mounts need: {hint}", Escaped::path(&layers[0]));
    }
    let name = format!("oci://{}/{}@{}", to.host, to.repository, pushed.manifest);
    let mut out = std::io::stdout().lock();
    if !is_json {
        writeln!(out, "{name}")?;
        return Ok(0);
    }
    let mut object = json!({
        "location": name,
        "manifest": pushed.manifest,
        "layers": pushed.layers,
        "size": pushed.size,
        "sent": pushed.sent,
        "roothash": pushed.root.map(|root| root.to_string()),
    });
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more(&pushed)) {
        object.extend(more);
    }
    writeln!(out, "{}", json_text(&object))?;
    Ok(0)
}
