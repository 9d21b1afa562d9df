//! `ferofs patch apply`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs::patch::{
    ApplyError, ApplyProgress, FileMedium, Patch, PatchFault, PatchReader, apply_with,
};
use ferofs::read::{Cancel, Count, Hex};

use indicatif::HumanBytes;
use serde_json::json;

use super::args::TrailingArgs;
use crate::args::other_format::unusable_update;
use crate::args::signature::RequiredSignature;
use crate::cmd::verity::sidecar::warn_of_seal;
use crate::exit::{About, Failure, Outcome};
use crate::print::output::{OUTPUT, OutputArgs, wants_summary};
use crate::print::output::{json_text, print_line};
use crate::print::progress::Display;
use crate::signals::{GRACE_PERIOD_IN_PLACE, cancel_on_signals};

/// Apply a patch to an image, in place
///
/// The change is atomic: after a power failure the image shows either the old tree or the new one.
/// Of a file with several patches, one after another, those that fit the state of the image are
/// applied in their order; each is a change of its own. After an interruption the same command
/// continues: what was written and is right is not made again.
#[derive(clap::Args)]
pub(super) struct ApplyArgs {
    /// The image: a file or a block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The patch or patches, or - for standard input
    #[arg(value_name = "PATCH")]
    patch: PathBuf,

    #[command(flatten)]
    signature: RequiredSignature,

    #[command(flatten)]
    trailing: TrailingArgs,

    /// Print the summary as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,

    #[command(flatten)]
    shown: OutputArgs,
}

pub(super) fn run(args: &ApplyArgs) -> Outcome {
    args.shown.apply();
    let is_stream = args.patch.as_os_str() == "-";
    let patch_name = if is_stream { Path::new("standard input") } else { &args.patch };
    let patches = match is_stream {
        true => PatchReader::stream(std::io::stdin()),
        false => PatchReader::open(&args.patch),
    };
    let patches = patches.map_err(|error| unusable_update(error, patch_name))?;
    let mut patches = match args.signature.is_given() {
        true => Input::Signed(Box::new(signed(args, patches, patch_name)?)),
        false => Input::All(patches),
    };
    let medium = FileMedium::open(&args.image).about(&args.image)?;
    warn_of_seal(&args.image)?;
    let cancel = Cancel::default();
    cancel_on_signals(&cancel, GRACE_PERIOD_IN_PLACE)?;
    let progress = Arc::new(ApplyProgress::default());
    let shown = Arc::clone(&progress);
    let display = Display::on_terminal(move |bar| bar.set_message(state(&shown)));
    let trailing = args.trailing.trailing();
    let applied = match &mut patches {
        Input::All(patches) => {
            patches.apply(&medium, trailing, &progress, &cancel).map(|applied| applied.count)
        }
        Input::Signed(patch) => {
            apply_with(&medium, patch, trailing, &progress, &cancel).map(|()| 1)
        }
    };
    drop(display);
    let count = match applied {
        Err(error) if error.is_about_patch() => return Err(unusable_update(error, patch_name)),
        applied => applied.about(&args.image)?,
    };
    let [appended, resumed] = [&progress.appended, &progress.resumed].map(Count::get);
    if args.json {
        let object = json!({ "patches": count, "appended": appended, "resumed": resumed });
        print_line!("{}", json_text(&object))?;
    } else if wants_summary() {
        if resumed > 0 {
            let (resumed, appended) = (HumanBytes(resumed), HumanBytes(appended));
            print_line!(
                "continued an interrupted change: {resumed} of {appended} were written already"
            )?;
        }
        match count {
            1 => print_line!("the image has the new tree, which the next mount shows")?,
            _ => print_line!(
                "applied {count} patches: the image has the last tree, which the next mount shows"
            )?,
        }
    }
    Ok(0)
}

/// How far applying is.
fn state(progress: &ApplyProgress) -> String {
    let [appended, written, resumed] =
        [&progress.appended, &progress.written, &progress.resumed].map(Count::get);
    let done = format!("{} of {} written", HumanBytes(written), HumanBytes(appended));
    match (appended, resumed) {
        (0, _) => "checking the image".into(),
        (_, 0) => done,
        _ => format!("{done}, {} of these before an interruption", HumanBytes(resumed)),
    }
}

/// The patches to apply.
enum Input {
    /// The patches that fit.
    All(PatchReader),
    /// One patch, whose signature was checked.
    Signed(Box<Patch>),
}

/// The only patch, whose signature is right.
fn signed(args: &ApplyArgs, mut patches: PatchReader, name: &Path) -> Result<Patch, Failure> {
    let patch = match patches.only_patch() {
        Err(ApplyError::Patch(PatchFault::Several)) => {
            let reason = "a signature is for one patch, and the file has several: apply each with its own signature";
            return Err(Failure::about(name, reason));
        }
        patch => patch.map_err(|error| unusable_update(error, name))?,
    };
    args.signature.check(&Hex(&patch.digest()).to_string())?;
    Ok(patch)
}
