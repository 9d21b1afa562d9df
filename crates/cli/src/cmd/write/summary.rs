//! The progress of a build, and its summary as text and as JSON.

use ferofs::build::{Activity, Progress, Settings, Stage, Summary, Timings};
use ferofs::read::Uuid;
use ferofs::seal::BuiltSeal;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::cmd::linux::Requirement;

/// The summary as a few lines of text. `form` is the settings of the image, and what Linux needs to
/// mount it.
pub(super) fn text(summary: &Summary, form: Option<(&Settings, Requirement)>) -> String {
    let times = [
        (summary.walk_time, "listing"),
        (summary.data_time, "data"),
        (summary.metadata_time, "metadata and sync"),
        (summary.verify_time, "verifying"),
    ];
    let total: f64 = times.iter().map(|(time, _)| time.as_secs_f64()).sum();
    let parts: Vec<String> = times
        .iter()
        .filter(|(time, _)| !time.is_zero())
        .map(|(time, what)| format!("{:.1} s {what}", time.as_secs_f64()))
        .collect();
    let shared = match summary.bytes_shared {
        0 => String::new(),
        bytes => format!(", {} of it shared", HumanBytes(bytes)),
    };
    let kept = match summary.bytes_kept {
        0 => String::new(),
        bytes => format!(", {} of it as in the earlier image", HumanBytes(bytes)),
    };
    let form =
        form.map_or(String::new(), |(settings, linux)| format!("\n{settings}; {linux} mounts it"));
    format!(
        "{} files in {} directories\n{} became {} ({:.1} %){kept}{shared}\n{total:.1} s: {}{form}",
        summary.inodes - summary.directories,
        summary.directories,
        HumanBytes(summary.bytes_in),
        HumanBytes(summary.bytes_out),
        percent(summary),
        parts.join(", "),
    )
}

/// A table of the time that each activity took, summed over all threads.
pub(super) fn timings(summary: &Summary, timings: &Timings) -> String {
    let mut table = format!(
        "{} workers\n{:<10} {:>9} {:>12} {:>14}",
        summary.workers, "", "seconds", "bytes", "per second"
    );
    for activity in Activity::ALL {
        let spent = timings.spent(activity);
        let seconds = spent.time.as_secs_f64();
        let (bytes, rate) = match spent.bytes {
            0 => (String::new(), String::new()),
            bytes if seconds > 0.0 => (
                HumanBytes(bytes).to_string(),
                HumanBytes((bytes as f64 / seconds) as u64).to_string(),
            ),
            bytes => (HumanBytes(bytes).to_string(), String::new()),
        };
        table += &format!("\n{:<10} {seconds:>9.2} {bytes:>12} {rate:>14}", name(activity));
    }
    // Workers wait for each other, for the disk, and for the thread that writes.
    let own = [Activity::Read, Activity::Hash, Activity::Find, Activity::Encode];
    let busy: f64 = own.iter().map(|activity| timings.spent(*activity).time.as_secs_f64()).sum();
    let idle = (summary.data_time.as_secs_f64() * summary.workers as f64 - busy).max(0.0);
    table + &format!("\n{:<10} {idle:>9.2}", "idle")
}

const fn name(activity: Activity) -> &'static str {
    match activity {
        Activity::Read => "read",
        Activity::Hash => "hash",
        Activity::Find => "dedupe",
        Activity::Encode => "compress",
        Activity::Order => "order",
        Activity::Write => "write",
        Activity::Sync => "sync",
    }
}

/// The summary as one JSON object. Programs read it: fields may be added, but not removed or
/// renamed.
pub(super) fn json(
    summary: &Summary,
    seal: Option<&BuiltSeal>,
    timings: &Timings,
    form: Option<(&Settings, Requirement)>,
) -> Value {
    let warnings: Vec<String> = summary.warnings.iter().map(ToString::to_string).collect();
    json!({
        "uuid": Uuid(summary.uuid).to_string(),
        "inodes": summary.inodes,
        "directories": summary.directories,
        "files": summary.files,
        "bytes_in": summary.bytes_in,
        "bytes_out": summary.bytes_out,
        "bytes_shared": summary.bytes_shared,
        "bytes_kept": summary.bytes_kept,
        "files_kept": summary.files_kept,
        "percent": percent(summary),
        "seconds": {
            "walk": summary.walk_time.as_secs_f64(),
            "data": summary.data_time.as_secs_f64(),
            "metadata": summary.metadata_time.as_secs_f64(),
            "verify": summary.verify_time.as_secs_f64(),
        },
        "options": form.map(|(settings, _)| settings.to_string()),
        "linux": form.map(|(_, linux)| linux.version.to_string()),
        "linux_page_size": form.map(|(_, linux)| linux.page),
        "workers": summary.workers,
        "timings": Activity::ALL.iter().map(|activity| {
            let spent = timings.spent(*activity);
            let spent = json!({ "seconds": spent.time.as_secs_f64(), "bytes": spent.bytes });
            (name(*activity).to_owned(), spent)
        }).collect::<serde_json::Map<_, _>>(),
        "warnings": warnings,
        "verity": seal.map(|seal| json!({
            "roothash": seal.root.to_string(),
            "hashoffset": seal.position,
            "datablocks": seal.data_blocks,
            "uuid": seal.uuid.to_string(),
        })),
    })
}

/// Shows how far a build is, for its progress line.
pub(super) fn show_progress(bar: &ProgressBar, progress: &Progress) {
    match progress.stage() {
        Stage::Walk => bar.set_message(format!("{} files found", progress.found.get())),
        Stage::Data => {
            if bar.length().is_none() {
                let template = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
                bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| {
                    // Cannot happen: the template is a valid constant.
                    ProgressStyle::default_bar()
                }));
            }
            bar.set_length(progress.bytes_total.get());
            bar.set_position(progress.bytes_done.get());
        }
        Stage::Metadata => bar.set_message("writing metadata"),
        Stage::Verify => {
            bar.set_style(ProgressStyle::default_spinner());
            bar.set_message("comparing with the source");
        }
    }
}

/// The size of the image in percent of the size of the data.
fn percent(summary: &Summary) -> f64 {
    if summary.bytes_in == 0 {
        100.0
    } else {
        summary.bytes_out as f64 * 100.0 / summary.bytes_in as f64
    }
}
