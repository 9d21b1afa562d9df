//! `ferofs stats`: shows the counters of a FUSE mount. The daemon provides them as an extended
//! attribute of the root.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::exit::{Failure, Outcome};
use crate::print::output::{OUTPUT, json_text};

/// The name of the number that changes when the fetcher was asked.
pub(crate) const NUMBER: &str = "fetcher_asked";
/// The name of the fetcher's state.
pub(crate) const STATE: &str = "fetcher_state";
/// The state of a fetcher that does not answer in time.
pub(crate) const SILENT: &str = "silent";

/// Size of the buffer for the counters, in bytes: the largest extended attribute in Linux.
const MAX_LEN: usize = 64 << 10;
/// How long the fetcher of an image on a server may take for its counters.
const FETCHER_TIME: Duration = Duration::from_millis(900);
/// The pause before the counters are read again.
const PAUSE: Duration = Duration::from_millis(5);

/// Show the counters of a FUSE mount
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory on which the image is mounted
    dir: PathBuf,

    /// Print one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let text = fetch_new(&args.dir)?;
    let counters =
        text.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name != NUMBER);
    let mut out = io::stdout().lock();
    if args.json {
        let value =
            |text: &str| text.parse::<u64>().map_or_else(|_| text.into(), serde_json::Value::from);
        let object = counters.map(|(name, text)| (name.to_owned(), value(text)));
        writeln!(out, "{}", json_text(&serde_json::Value::Object(object.collect())))?;
    } else {
        for (name, value) in counters {
            writeln!(out, "{:<28}{value:>20}", name.replace('_', " "))?;
        }
    }
    Ok(0)
}

/// The counters, for an image on a server with those that the fetcher had after this call.
fn fetch_new(dir: &Path) -> Result<String, Failure> {
    let mut text = fetch(dir)?;
    let Some(first) = number(&text) else { return Ok(text) };
    let end = Instant::now() + FETCHER_TIME;
    while number(&text) == Some(first) {
        if Instant::now() >= end {
            let is_other = |line: &&str| !line.starts_with(STATE);
            let mut lines: Vec<&str> = text.lines().filter(is_other).collect();
            let silent = format!("{STATE} {SILENT}");
            lines.push(&silent);
            return Ok(lines.join("\n"));
        }
        std::thread::sleep(PAUSE);
        text = fetch(dir)?;
    }
    Ok(text)
}

/// The number that changes when the daemon has asked the fetcher.
fn number(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(NUMBER)?.trim().parse().ok())
}

fn fetch(dir: &Path) -> Result<String, Failure> {
    let mut value = vec![0; MAX_LEN];
    let len =
        rustix::fs::getxattr(dir, ferofs_fuse::STATS_XATTR, &mut value[..]).map_err(|error| {
            match error {
                rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP => {
                    Failure::about(dir, "not the root of a FUSE mount of ferofs")
                }
                error => Failure::about(dir, io::Error::from(error)),
            }
        })?;
    value.truncate(len);
    Ok(String::from_utf8_lossy(&value).into_owned())
}
