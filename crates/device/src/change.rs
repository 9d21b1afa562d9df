//! `apply`, `rollback` and `repair`: the commands that change an image.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use ferofs::patch::{
    self, ApplyProgress, FileMedium, PatchReader, Repaired, TrailingData, apply_with,
};
use ferofs::read::{Cancel, Hex};
use ferofs::signature;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::SignatureArgs;
use crate::failure::{About, Failure, Outcome, print, summary};

/// The exit code that a shell gives to a program that SIGINT ended.
const INTERRUPTED: i32 = 128 + 2;

/// Applies the patches in `patch`, or in standard input for `-`. A signature is for the only patch.
pub(crate) fn apply(
    image: &Path,
    patch: &Path,
    grow_over: bool,
    signature: Option<&SignatureArgs>,
) -> Outcome {
    let (name, patches) = if patch.as_os_str() == "-" {
        (Path::new("standard input"), PatchReader::stream(std::io::stdin()))
    } else {
        (patch, PatchReader::open(patch))
    };
    let mut patches = patches.about(name)?;
    let signed = signature.map(|signature| {
        let patch = patches.only_patch().about(name)?;
        signature.check(&patch.digest())?;
        Ok(patch)
    });
    let signed = signed.transpose()?;
    let medium = FileMedium::open(image).about(image)?;
    let cancel = cancel_on_signals()?;
    let (trailing, progress) = (trailing(grow_over), ApplyProgress::default());
    let applied = match &signed {
        Some(patch) => apply_with(&medium, patch, trailing, &progress, &cancel).map(|()| 1),
        None => patches.apply(&medium, trailing, &progress, &cancel).map(|applied| applied.count),
    };
    match applied {
        Err(error) if error.is_about_patch() => Err(Failure::about(name, error)),
        applied => match applied.about(image)? {
            1 => summary("the image has the new tree, which the next mount shows"),
            count => summary(&format!(
                "applied {count} patches: the image has the last tree, which the next mount shows"
            )),
        },
    }
}

impl SignatureArgs {
    /// Fails if the file is not a signature of `digest` by one of the certificates.
    pub(crate) fn check(&self, digest: &[u8]) -> Result<(), Failure> {
        signature::check(&Hex(digest).to_string(), &self.file, &self.certs)
            .map_err(Failure::without_subject)
    }
}

/// Makes an earlier state current again.
pub(crate) fn rollback(image: &Path, to: Option<u64>, grow_over: bool) -> Outcome {
    let medium = FileMedium::open(image).about(image)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = i64::try_from(now).unwrap_or(i64::MAX);
    let state = patch::rollback(&medium, to, trailing(grow_over), time).about(image)?;
    summary(&format!("state {state} is current again"))
}

/// Restores a damaged superblock, and removes what an interrupted change left.
pub(crate) fn repair(image: &Path) -> Outcome {
    let medium = FileMedium::open(image).about(image)?;
    match patch::repair(&medium).about(image)? {
        Repaired::Nothing => print("nothing to repair"),
        Repaired::Leftovers => print("removed the remains of an interrupted change"),
        Repaired::Superblock(state) => print(&format!("restored the superblock of state {state}")),
    }
}

const fn trailing(grow_over: bool) -> TrailingData {
    if grow_over { TrailingData::Overwrite } else { TrailingData::Keep }
}

/// Work that SIGINT and SIGTERM cancel. The second signal ends the process at once.
pub(crate) fn cancel_on_signals() -> Result<Cancel, Failure> {
    let cancel = Cancel::default();
    let flag = Arc::<AtomicBool>::from(cancel.clone());
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(Failure::without_subject)?;
    }
    Ok(cancel)
}
