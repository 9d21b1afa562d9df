//! Interruptions of applying a delta: a kill at any system call, an error of a write or a read, and
//! power cuts, after which any part of what was written since the last sync is missing. The file in
//! the slot stays as it was, and `--resume` completes each of them, also after further
//! interruptions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use ferofs_tests::rng::Rng;
use libc::c_long;
use tempfile::TempDir;

use super::{Campaign, CaseResult, HANG, PART, Pair, is_clean};
use crate::faults::syscalls::{Fault, call_of};
use crate::faults::tracer::{Injection, Traced, trace};

/// Bytes that reach the disk together.
const PAGE: usize = 4096;

/// How often applying a delta makes each system call: for each program.
pub(super) type Calls = Vec<Vec<(c_long, u64)>>;

pub(super) fn calls(pairs: &[Pair], programs: &[Vec<PathBuf>], dir: &Path) -> Result<Vec<Calls>> {
    let of_program = |pair: &Pair, program: &Vec<PathBuf>| {
        let out = TempDir::new_in(dir)?;
        let traced = trace(command(pair, program, &out.path().join("out"), false), None, HANG)?;
        if traced.hung || !traced.status.success() {
            bail!("traced, {program:?} ends with {}: {}", traced.status, traced.stderr);
        }
        let mut calls: Vec<_> = traced.calls.into_iter().collect();
        calls.sort_unstable();
        Ok(calls)
    };
    let of_pair =
        |pair| programs.iter().map(|program| of_program(pair, program)).collect::<Result<Calls>>();
    pairs.iter().map(of_pair).collect()
}

fn command(pair: &Pair, program: &[PathBuf], out: &Path, resume: bool) -> Command {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).args(resume.then_some("--resume"));
    command.args([&pair.dir.join("old"), &pair.dir.join("delta"), out]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

#[derive(Clone, Copy)]
enum Kind {
    Error(i32),
    Kill,
    PowerCut,
}

impl Campaign {
    /// Interrupts applying the delta of a pair up to three times, and then completes it.
    pub(super) fn interruption(
        &self,
        number: usize,
        program: usize,
        rng: &mut Rng,
    ) -> Result<CaseResult> {
        let (pair, calls) = (&self.pairs[number], &self.calls[number][program]);
        let program = &self.programs[program];
        let dir = TempDir::new_in(self.dir.path())?;
        let [out, part] = ["out", PART].map(|name| dir.path().join(name));
        // The slot is empty, or has another image.
        match rng.below(3) {
            0 => {}
            1 => fs::write(&out, &pair.old)?,
            _ => fs::write(&out, [&pair.old[..], &[7; 9_000_000]].concat())?,
        }
        let kind = [Kind::Error(libc::EIO), Kind::Error(libc::ENOSPC), Kind::Kill, Kind::PowerCut]
            [rng.below(4) as usize];
        let name = match kind {
            Kind::Error(libc::EIO) => "interruption by EIO",
            Kind::Error(_) => "interruption by ENOSPC",
            Kind::Kill => "interruption by kill",
            Kind::PowerCut => "interruption by a power cut",
        };
        let (mut wrong, mut outcome) = (Vec::new(), "not reached");
        for round in 0..1 + rng.below(3) {
            let [slot, before] = [&out, &part].map(|file| fs::read(file).ok());
            let injection = injection(calls, kind, rng);
            let traced = trace(command(pair, program, &out, round > 0), Some(injection), HANG)?;
            if traced.injected {
                outcome = "right after resuming";
            }
            wrong.extend(judge(&traced, kind));
            if traced.status.success() {
                if fs::read(&out)? != pair.new {
                    wrong.push("it succeeds with other bytes".to_owned());
                }
                break;
            }
            // Only the sync of its name can fail when the image is complete.
            let after = fs::read(&out).ok();
            if after != slot && after.as_ref() != Some(&pair.new) {
                wrong.push("the file in the slot was changed".to_owned());
            }
            if matches!(kind, Kind::PowerCut) {
                cut_power(&part, before.as_deref(), &traced.unsynced, rng)?;
            }
        }
        let ended = trace(command(pair, program, &out, true), None, HANG)?;
        if !ended.status.success() {
            wrong.push(format!("--resume does not complete it: {}", ended.stderr.trim()));
        } else if fs::read(&out)? != pair.new {
            wrong.push("completed by --resume, it has other bytes".to_owned());
        }
        if !wrong.is_empty() {
            outcome = "wrong";
        }
        let delta = pair.delta.clone();
        Ok(CaseResult { name: name.to_owned(), outcome, wrong, used: [0; 2], delta })
    }
}

/// A random call of those that can be interrupted so.
fn injection(calls: &[(c_long, u64)], kind: Kind, rng: &mut Rng) -> Injection {
    let fault = match kind {
        Kind::Error(errno) => Fault::Error(errno),
        Kind::Kill | Kind::PowerCut => Fault::Kill,
    };
    let fails = |number| call_of(number).is_some_and(|call| call.faults.contains(&fault));
    // Kinds of calls have equal chances, as writes and syncs are few among all.
    let can_fail: Vec<_> =
        calls.iter().filter(|(number, _)| fault == Fault::Kill || fails(*number)).collect();
    let (number, count) = *can_fail[rng.below(can_fail.len() as u64) as usize];
    Injection { number, nth: rng.below(count), fault }
}

fn judge(traced: &Traced, kind: Kind) -> Vec<String> {
    let (mut wrong, said) = (Vec::new(), traced.stderr.trim());
    if traced.hung {
        wrong.push("it hangs".to_owned());
    }
    match traced.status.code() {
        Some(0) if traced.syncs < 3 => {
            wrong.push("a power cut can remove the name of the new file".to_owned());
        }
        Some(0) if !traced.unsynced.is_empty() => {
            wrong.push("it succeeds before all is synced".to_owned())
        }
        Some(0) => {}
        Some(_) if is_clean(said) => {}
        None if !matches!(kind, Kind::Error(_)) => {}
        _ => wrong.push(format!("it ends with {}: {said}", traced.status)),
    }
    wrong
}

/// Takes away any part of what was written since the last sync, the positions and lengths in
/// `unsynced`. The file was `before`.
fn cut_power(
    out: &Path,
    before: Option<&[u8]>,
    unsynced: &[(u64, u64)],
    rng: &mut Rng,
) -> Result<()> {
    let Ok(mut bytes) = fs::read(out) else { return Ok(()) };
    let old = before.unwrap_or_default();
    // Each page may be lost, or nearly none, or nearly all.
    let of = [2, 2, 20][rng.below(3) as usize];
    let lost_if_zero = rng.below(2) == 0;
    let mut kept_end = old.len();
    for (position, len) in unsynced {
        for at in (*position..position + len).step_by(PAGE) {
            let end = (at as usize + PAGE).min((position + len) as usize).min(bytes.len());
            let Some(page) = bytes.get_mut(at as usize..end) else { continue };
            if (rng.below(of) == 0) == lost_if_zero {
                let old = old.get(at as usize..).unwrap_or_default().iter().copied();
                page.iter_mut()
                    .zip(old.chain(std::iter::repeat(0)))
                    .for_each(|(byte, old)| *byte = old);
            } else {
                kept_end = kept_end.max(end);
            }
        }
    }
    match (before, rng.below(8)) {
        // Its name was not synced.
        (None, 0) => return Ok(fs::remove_file(out)?),
        // Its length was not.
        (_, 1..4) if !unsynced.is_empty() => bytes.truncate(kept_end),
        _ => {}
    }
    Ok(fs::write(out, bytes)?)
}
