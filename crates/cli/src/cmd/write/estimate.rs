//! `ferofs build --estimate SOURCE`: what each preset would give, as a table with bars, or as JSON.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs::build::{Estimate, Estimator, Options, Preset, Settings};
use indicatif::HumanBytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::args::settings::refused;
use crate::cmd::linux::Requirement;
use crate::exit::{About, Outcome, warn};
use crate::print::output::{json_text, print_line};
use crate::print::progress::Display;
use crate::signals::{GRACE_PERIOD, cancel_on_signals};

/// Characters of the longest bar: with the other columns, a line fits into a terminal of 80
/// columns.
const BAR: usize = 14;

/// One line of the table.
struct Row {
    name: &'static str,
    settings: Settings,
    linux: Requirement,
    estimate: Estimate,
}

/// The settings to estimate.
pub(super) struct Request {
    /// The options of the command line.
    pub(super) options: Options,
    /// The settings that the command line asks for.
    pub(super) given: Settings,
    pub(super) quiet: bool,
    pub(super) json: bool,
}

pub(super) fn run(request: Request) -> Outcome {
    let started = Instant::now();
    let Request { options, given, quiet, json } = request;
    cancel_on_signals(&options.run.cancel, GRACE_PERIOD)?;
    let doing = Arc::new(Mutex::new("listing the source".to_owned()));
    let show = |what: String| *doing.lock() = what;
    let shown = Arc::clone(&doing);
    let draw = move |bar: &indicatif::ProgressBar| {
        bar.set_message(shown.lock().clone());
    };
    let display = if quiet { None } else { Display::on_terminal(draw) };
    let mut warnings = Vec::new();
    let estimator = Estimator::new(&options, &mut warnings).without_subject()?;
    let block = options.image.block_size;
    let mut forms = Vec::new();
    for preset in Preset::ALL {
        let mut settings = preset.settings(block).map_err(refused)?;
        settings.hints.clone_from(&given.hints);
        settings.max_extent = given.max_extent;
        forms.push((preset.name(), settings));
    }
    // The settings of the command line, if they are not those of a preset.
    if !forms.iter().any(|(_, settings)| settings.to_string() == given.to_string()) {
        forms.push(("as given", given));
    }
    let options = forms.iter().map(|(_, settings)| {
        let mut options = options.clone();
        settings.apply(&mut options).map(|()| options)
    });
    let options: Vec<Options> = options.collect::<Result<_, _>>().map_err(refused)?;
    show("encoding samples".to_owned());
    let estimates = options.iter().map(|options| estimator.estimate(options));
    let estimates: Vec<Estimate> = estimates.collect::<Result<_, _>>().without_subject()?;
    let rows: Vec<Row> = forms
        .into_iter()
        .zip(options.iter().zip(estimates))
        .map(|((name, settings), (options, estimate))| Row {
            name,
            settings,
            linux: Requirement::of(options).with_features(estimate.incompat),
            estimate,
        })
        .collect();
    drop(display);
    warnings.iter().try_for_each(warn)?;
    let took = started.elapsed();
    match json {
        true => print_line!("{}", json_text(&to_json(&estimator, &rows, took)))?,
        false => print_line!("{}", table(&estimator, &rows, took))?,
    }
    Ok(0)
}

/// A table of all rows: size and time as numbers and as bars.
fn table(estimator: &Estimator, rows: &[Row], took: Duration) -> String {
    let bytes_in = estimator.bytes_in();
    let largest = rows.iter().map(|row| row.estimate.size).max().unwrap_or(0) as f64;
    let longest = rows.iter().map(|row| row.estimate.time.as_secs_f64()).fold(0.0, f64::max);
    let mut text = format!(
        "{} in {} files; each line is an estimate\n\n{:<9} {:>11} {:>6} {:BAR$} {:>9} {:BAR$} Linux\n",
        HumanBytes(bytes_in),
        estimator.files(),
        "preset",
        "size",
        "%",
        "",
        "time",
        "",
    );
    for Row { name, linux, estimate, .. } in rows {
        let percent = percent(estimate.size, bytes_in);
        let seconds = estimate.time.as_secs_f64();
        let line = format!(
            "{name:<9} {:>11} {percent:>6} {:BAR$} {:>9} {:BAR$} {}",
            HumanBytes(estimate.size).to_string(),
            bar(estimate.size as f64, largest),
            duration(seconds),
            bar(seconds, longest),
            linux.version,
        );
        let _ = writeln!(text, "{line}");
    }
    if let Some(Row { name, settings, .. }) = rows.last().filter(|row| row.name == "as given") {
        let _ = writeln!(text, "\n{name}: {settings}");
    }
    let _ = write!(text, "\nEstimated in {} from samples.", duration(took.as_secs_f64()));
    text
}

/// The part that `size` is of `bytes_in`, in percent; nothing if the metadata is nearly all of the
/// image, so that it says nothing.
fn percent(size: u64, bytes_in: u64) -> String {
    let percent = size as f64 * 100.0 / bytes_in as f64;
    if percent < 1000.0 { format!("{percent:.1}") } else { String::new() }
}

/// A bar whose length says how `value` compares to `most`, in eighths of a character.
fn bar(value: f64, most: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths =
        if most > 0.0 { (value / most * (BAR * 8) as f64).round().max(1.0) as usize } else { 0 };
    let eighths = eighths.min(BAR * 8);
    let mut bar = "█".repeat(eighths / 8);
    bar.push_str(PARTS.get(eighths % 8).copied().unwrap_or_default());
    bar
}

/// `0.8 s`, `25 s`, `3:20 min`, `1:05 h`.
fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..100 => format!("{whole} s"),
        100..6000 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole / 60 % 60),
    }
}

/// One object. Programs read it: fields may be added, but not removed or renamed.
fn to_json(estimator: &Estimator, rows: &[Row], took: Duration) -> Value {
    let estimates: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "name": row.name,
                "options": row.settings.to_string(),
                "bytes_out": row.estimate.size,
                "seconds": row.estimate.time.as_secs_f64(),
                "processor_seconds": row.estimate.processor_time.as_secs_f64(),
                "linux": row.linux.version.to_string(),
                "linux_page_size": row.linux.page,
                "sampled": row.estimate.sampled,
            })
        })
        .collect();
    json!({
        "files": estimator.files(),
        "bytes_in": estimator.bytes_in(),
        "seconds": took.as_secs_f64(),
        "estimates": estimates,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!(bar(1.0, 1.0), "█".repeat(BAR));
        assert_eq!(bar(0.5, 1.0), "█".repeat(BAR / 2));
        assert_eq!(bar(0.0, 1.0), "▏");
        assert_eq!(bar(0.0, 0.0), "");
    }

    #[test]
    fn a_large_percentage_is_left_out() {
        assert_eq!(
            [(1, 2), (3, 1), (1 << 30, 9), (4096, 0)].map(|(a, b)| percent(a, b)),
            ["50.0", "300.0", "", ""]
        );
    }

    #[test]
    fn times_have_a_unit_of_their_size() {
        assert_eq!(
            [0.84, 25.2, 200.0, 3900.0].map(duration),
            ["0.8 s", "25 s", "3:20 min", "65:00 min"]
        );
        assert_eq!(duration(7500.0), "2:05 h");
    }
}
