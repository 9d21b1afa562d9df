//! `cargo xtask bench redundant [--only FAMILY]...`: the smallest images of trees with many versions of the same files, compared with
//! mksquashfs, mkfs.erofs and compressed archives. The sizes do not depend on the machine.

mod families;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, EROFS_UTILS, SQUASHFS};
use ferofs_devtools::{peers, shell, units};
use ferofs_tests::{Run, scratch};

/// A command that takes longer than this fails the benchmark: it hangs.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Options of `ferofs build`, each a line of the table.
const SETTINGS: [&str; 7] = [
    "-z zstd,15 -C 1M -E all-fragments --order tree",
    "-z zstd,15 -C 1M -E all-fragments --order similar",
    "-z zstd,15 -C 1M -E all-fragments,48bit --order similar",
    "-z zstd,15 -C 1M -E all-fragments -m 64K --compress-directories --order similar",
    "-z zstd,15 -C 1M -E all-fragments,48bit -m 64K --compress-directories --order similar",
    "-z lzma,6 -C 1M -E all-fragments -m 64K --compress-directories --order similar",
    "--preset backup",
];

pub(crate) fn redundant(options: &[&str]) -> Result<()> {
    let mut only = Vec::new();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--only" => only.push(*options.next().context("--only needs a family")?),
            unknown => bail!("unknown option {unknown}"),
        }
    }
    if let Some(unknown) =
        only.iter().find(|name| families::FAMILIES.iter().all(|(family, _)| family != *name))
    {
        bail!("no such family: {unknown}");
    }
    install::install(&[EROFS_UTILS, SQUASHFS])?;
    let bin = peers::installed(&scratch::target_dir());
    let peer = |name: &str| bin.as_ref().map_or_else(|| PathBuf::from(name), |bin| bin.join(name));
    let ferofs = shell::build_ferofs("release")?;
    let trees = scratch::target_dir().join("bench-redundant");
    let work_dir = scratch();
    for (name, make) in families::FAMILIES {
        if !only.is_empty() && !only.contains(&name) {
            continue;
        }
        let tree = trees.join(name);
        let complete = trees.join(format!("{name}.complete"));
        if !complete.exists() {
            let _ = fs::remove_dir_all(&tree);
            fs::create_dir_all(&tree)?;
            make(&tree)?;
            fs::write(&complete, "")?;
        }
        println!("\n{name}\n{:<90} {:>10} {:>8}", "", "size", "CPU s");
        let image = work_dir.path().join("image");
        let line = |what: &str, run: Run| -> Result<()> {
            let outcome = run.try_run()?;
            if outcome.code != 0 {
                bail!("{what}: {}", outcome.stderr);
            }
            let size = fs::metadata(&image).with_context(|| what.to_owned())?.len();
            fs::remove_file(&image)?;
            println!("{what:<90} {size:>10} {:>8.1}", outcome.cpu.as_secs_f64());
            Ok(())
        };
        let squashfs = "-comp zstd -Xcompression-level 15 -b 1M -noappend -no-progress -quiet";
        let run = Run::limited(peer("mksquashfs"), None, TIMEOUT).args([&tree, &image]);
        line(&format!("mksquashfs {squashfs}"), run.args(squashfs.split(' ')))?;
        let erofs = "-zzstd,level=15 -C1048576 -Eall-fragments --quiet";
        let run = Run::limited(peer("mkfs.erofs"), None, TIMEOUT).args(erofs.split(' '));
        line(&format!("mkfs.erofs {erofs}"), run.args([&image, &tree]))?;
        for settings in SETTINGS {
            let run = Run::limited(&ferofs, None, TIMEOUT).arg("build").args(settings.split(' '));
            line(&format!("ferofs build {settings}"), run.args([&tree, &image]))?;
        }
        for (order, sort) in [("by path", "-k1"), ("by path without the version", "-t/ -k3")] {
            for window in [20, 23, 30] {
                let size = archive(&tree, sort, window)?;
                println!("{:<90} {size:>10}", format!("tar {order} | zstd -15 --long={window}"));
            }
        }
        println!("{:<90} {:>10}", "content", units::size(content_size(&tree)?));
    }
    Ok(())
}

/// Bytes of an archive of all files in the order that `sort` gives to their paths (`./VERSION/PATH`), compressed.
fn archive(tree: &Path, sort: &str, window: u32) -> Result<u64> {
    let script = format!(
        "find . -type f -o -type l | LC_ALL=C sort {sort} | tar --no-recursion -cf - -T - | zstd -q -15 --long={window} -c | wc -c"
    );
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(tree).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(output.stdout)?;
    text.trim().parse().with_context(|| format!("{script} printed {text}"))
}

fn content_size(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { content_size(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
