//! Images of one small file: their size, and how long a build, a check and a mount take.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use super::Bench;
use super::process;
use crate::common::report::{Table, Wanted, number};
use crate::common::rounds::run_quietly;

/// Runs of each command.
const ROUNDS: usize = 21;

pub(super) fn tiny(bench: &mut Bench) -> Result<()> {
    let (source, image, mount) =
        (bench.images.join("one"), bench.images.join("tiny"), bench.images.join("mount"));
    fs::create_dir_all(&source)?;
    fs::create_dir_all(&mount)?;
    fs::write(source.join("file"), "Hello\n")?;
    let timed = |command: &mut Command| {
        let start = Instant::now();
        run_quietly(command)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    let ferofs = || Command::new(&bench.ferofs);
    let build =
        process::median(ROUNDS, || timed(ferofs().args(["build", "--quiet"]).args([&source, &image])))?;
    let size = fs::metadata(&image)?.len();
    let check = process::median(ROUNDS, || timed(ferofs().arg("check").arg(&image)))?;
    let kernel = process::median(ROUNDS, || {
        let time =
            timed(Command::new("mount").args(["-t", "erofs", "-o", "loop,ro"]).args([&image, &mount]))?;
        run_quietly(Command::new("umount").arg(&mount))?;
        Ok(time)
    })?;
    let fuse = process::median(ROUNDS, || {
        let time = timed(ferofs().args(["mount", "--fuse"]).args([&image, &mount]))?;
        run_quietly(ferofs().arg("umount").arg(&mount))?;
        Ok(time)
    })?;
    let mkfs = process::median(ROUNDS, || {
        timed(Command::new(bench.peers.join("mkfs.erofs")).arg("--quiet").args([&image, &source]))
    })?;
    let theirs = fs::metadata(&image)?.len();
    bench.report.aim("image of one small file", size as f64, Wanted::AtMost(4096.0), " bytes");
    bench.report.add(&Table {
        title: "One small file".into(),
        text: format!("The table shows medians of {ROUNDS} runs in milliseconds, with starting the program."),
        head: vec!["", "ferofs", "mkfs.erofs"],
        rows: vec![
            vec!["bytes of the image".into(), number(size as f64), number(theirs as f64)],
            vec!["build".into(), number(build), number(mkfs)],
            vec!["check".into(), number(check), String::new()],
            vec!["mount through FUSE".into(), number(fuse), String::new()],
            vec!["mount by the kernel (mount -o loop)".into(), number(kernel), String::new()],
        ],
    });
    Ok(())
}
