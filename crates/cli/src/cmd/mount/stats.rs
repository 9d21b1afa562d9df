//! `ferofs stats`: shows the counters of a FUSE mount. The daemon provides them as an extended attribute of the root.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::exit::{Failure, Outcome};

/// Size of the buffer for the counters, in bytes: the largest extended attribute in Linux.
const MAX_LEN: usize = 64 << 10;

/// Show the counters of a FUSE mount
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory on which the image is mounted
    dir: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let text = fetch(&args.dir)?;
    let counters = text.lines().filter_map(|line| line.split_once(' '));
    let mut out = io::stdout().lock();
    if args.json {
        let object =
            counters.filter_map(|(name, value)| Some((name.to_owned(), value.parse::<u64>().ok()?.into())));
        writeln!(out, "{}", serde_json::Value::Object(object.collect()))?;
    } else {
        for (name, value) in counters {
            writeln!(out, "{:<20}{value:>20}", name.replace('_', " "))?;
        }
    }
    Ok(0)
}

fn fetch(dir: &Path) -> Result<String, Failure> {
    let mut value = vec![0; MAX_LEN];
    let len =
        rustix::fs::getxattr(dir, ferofs_fuse::STATS_XATTR, &mut value[..]).map_err(|error| match error {
            rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP => {
                Failure::about(dir, "not the root of a FUSE mount of ferofs")
            }
            error => Failure::about(dir, io::Error::from(error)),
        })?;
    value.truncate(len);
    Ok(String::from_utf8_lossy(&value).into_owned())
}
