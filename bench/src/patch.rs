//! `cargo xtask bench patch [DIR] [--files N]`, or `--real`: the size of a patch and the time to create and apply it, compared with deltas of the
//! images by xdelta3 and bsdiff, and with a new image.
//!
//! Three changes: one byte in a file of 100 MB; a few hundred of N (50,000) files of DIR (/usr), as in a point release; a
//! directory of 10,000 files renamed. Unchanged files of the new tree are hard links to the old tree's, which saves copying.

mod deltas;
mod real;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::{Outcome, Run, scratch};

use ferofs_devtools::install::{self, BSDIFF, XDELTA};
use ferofs_devtools::shell;

use self::deltas::{Deltas, deltas};

/// A command that takes longer than this fails the benchmark: it hangs.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Bytes of the one large file.
const LARGE: usize = 100_000_000;
/// The update changes one of this many files.
const UPDATE_STEP: usize = 150;
const ENCODINGS: [(&str, &[&str]); 3] =
    [("none", &["-z", "none"]), ("lz4 4K", &["-z", "lz4"]), ("zstd 64K", &["-z", "zstd", "-C", "64K"])];

pub(crate) fn patch(options: &[&str]) -> Result<()> {
    let (mut dir, mut files) = (PathBuf::from("/usr"), 50_000);
    let (mut is_real, mut only, mut data) = (false, Vec::new(), None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--files" => files = options.next().context("--files needs a number")?.parse()?,
            "--real" => is_real = true,
            "--only" => only.push(*options.next().context("--only needs a name")?),
            "--data" => data = Some(Path::new(*options.next().context("--data needs a directory")?)),
            name if !name.starts_with('-') => dir = PathBuf::from(name),
            unknown => bail!("unknown option {unknown}"),
        }
    }
    if is_real {
        return real::real(&only, data);
    }
    install::install(&[XDELTA, BSDIFF])?;
    let ferofs = shell::build_ferofs("release")?;
    let work_dir = scratch();
    println!(
        "{:<8} {:<9} {:>11} {:>10} {:>10} {:>13} {:>13} {:>11} {:>13} {:>11} {:>11} {:>13}",
        "change",
        "encoding",
        "new data",
        "patch",
        "growth",
        "create",
        "apply",
        "xdelta3",
        "time",
        "bsdiff",
        "image",
        "build"
    );
    type MakeTrees<'a> = (&'a str, Box<dyn Fn(&Path, &Path, &Path) -> Result<()> + 'a>);
    let changes: [MakeTrees<'_>; 3] = [
        ("byte", Box::new(change_byte)),
        ("update", Box::new(|old, new, only| update_files(&dir, files, old, new, only))),
        ("rename", Box::new(rename_dir)),
    ];
    for (name, make_trees) in changes {
        let [old, new, only] =
            ["old", "new", "only"].map(|part| work_dir.path().join(format!("{name}-{part}")));
        make_trees(&old, &new, &only)?;
        for (encoding, options) in ENCODINGS {
            let trees = [old.as_path(), &new, &only];
            println!("{name:<8} {encoding:<9} {}", measure(&ferofs, work_dir.path(), options, trees)?);
        }
        for tree in [old, new, only] {
            fs::remove_dir_all(tree)?;
        }
    }
    Ok(())
}

/// One line of the table. `old` and `new` are the trees before and after the change; `only` has the new and changed files alone.
fn measure(ferofs: &Path, work_dir: &Path, options: &[&str], [old, new, only]: [&Path; 3]) -> Result<String> {
    let path = |name: &str| work_dir.join(name);
    let build = |tree: &Path, image: &str| {
        let build = Run::limited(ferofs, None, TIMEOUT).arg("build").args(options).arg(tree).arg(path(image));
        succeed(build)
    };
    build(old, "image")?;
    let rebuilt = build(new, "rebuilt")?;
    build(only, "only")?;
    // Without the 8 KiB that an image of no data has.
    let new_data = size(&path("only"))?.saturating_sub(8192);
    let patch = |action: &str| Run::limited(ferofs, None, TIMEOUT).args(["patch", action]);
    let created = succeed(patch("create").arg(path("image")).arg(new).arg("-o").arg(path("patch")))?;
    fs::copy(path("image"), path("patched"))?;
    let applied = succeed(patch("apply").args([path("patched"), path("patch")]))?;
    let growth = size(&path("patched"))? - size(&path("image"))?;
    let Deltas { xdelta, xdelta_run, bsdiff } = deltas(work_dir)?;
    Ok(format!(
        "{new_data:>11} {:>10} {growth:>10} {:>13} {:>13} {xdelta:>11} {:>13} {bsdiff:>11} {:>11} {:>13}",
        size(&path("patch"))?,
        times(&created),
        times(&applied),
        times(&xdelta_run),
        size(&path("rebuilt"))?,
        times(&rebuilt),
    ))
}

/// Wall-clock seconds, which depend on the disk, and processor seconds.
fn times(outcome: &Outcome) -> String {
    format!("{:.2} / {:.2}", outcome.wall.as_secs_f64(), outcome.cpu.as_secs_f64())
}

fn succeed(run: Run) -> Result<Outcome> {
    let outcome = run.try_run()?;
    if outcome.code != 0 {
        bail!("{}", outcome.stderr);
    }
    Ok(outcome)
}

fn size(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).with_context(|| path.display().to_string())?.len())
}

fn change_byte(old: &Path, new: &Path, only: &Path) -> Result<()> {
    for dir in [old, new, only] {
        fs::create_dir(dir)?;
    }
    fs::write(old.join("file"), Content::Mixed.bytes(LARGE, &mut Rng::new(1)))?;
    succeed(Run::new("cp").arg("-a").args([old.join("file"), new.join("file")]))?;
    let file = File::options().write(true).open(new.join("file"))?;
    let mut byte = [0];
    File::open(old.join("file"))?.read_exact_at(&mut byte, LARGE as u64 / 2)?;
    file.write_all_at(&[byte[0] ^ 1], LARGE as u64 / 2)?;
    Ok(())
}

fn rename_dir(old: &Path, new: &Path, only: &Path) -> Result<()> {
    let mut rng = Rng::new(2);
    fs::create_dir_all(old.join("before"))?;
    fs::create_dir(only)?;
    for number in 0..10_000 {
        let bytes = Content::Text.bytes(rng.below(4000) as usize, &mut rng);
        fs::write(old.join(format!("before/file-{number}")), bytes)?;
    }
    succeed(Run::new("cp").arg("-al").args([old, new]))?;
    Ok(fs::rename(new.join("before"), new.join("after"))?)
}

/// Changes some of `count` files as a new build changes programs, deletes some and adds some.
fn update_files(dir: &Path, count: usize, old: &Path, new: &Path, only: &Path) -> Result<()> {
    let mut pending = vec![dir.to_owned()];
    let (mut files, mut bytes) = (Vec::new(), 0);
    while let Some(dir) = pending.pop() {
        let mut entries: Vec<_> = fs::read_dir(&dir)?.collect::<std::io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                pending.push(entry.path());
            } else if metadata.is_file()
                && metadata.len() < 1 << 20
                && files.len() < count
                && bytes < 700 << 20
            {
                bytes += metadata.len();
                files.push(entry.path());
            }
        }
    }
    let mut rng = Rng::new(3);
    let path_in = |tree: &Path, file: &Path| tree.join(file.strip_prefix(dir).unwrap_or(file));
    for file in &files {
        let to = path_in(old, file);
        fs::create_dir_all(to.parent().context("a file has a directory")?)?;
        fs::copy(file, to)?;
    }
    succeed(Run::new("cp").arg("-al").args([old, new]))?;
    fs::create_dir(only)?;
    let chosen: Vec<&PathBuf> = files.iter().step_by(UPDATE_STEP).collect();
    for (number, file) in chosen.iter().enumerate() {
        let to = path_in(new, file);
        let mut content = fs::read(&to)?;
        fs::remove_file(&to)?;
        if number % 10 == 9 {
            continue;
        }
        // Short insertions, 4 to 64 KB apart, that shift all later bytes.
        let mut offset = rng.below(4000) as usize;
        while offset < content.len() {
            let change = Content::Noise.bytes(1 + rng.below(64) as usize, &mut rng);
            content.splice(offset..offset, change);
            offset += 4000 + rng.below(60_000) as usize;
        }
        File::create(&to)?.write_all(&content)?;
        fs::write(only.join(number.to_string()), &content)?;
        if number % 10 == 8 {
            fs::write(to.with_extension("new"), &content[content.len() / 2..])?;
            fs::write(only.join(format!("{number}-new")), &content[content.len() / 2..])?;
        }
    }
    eprintln!("{} files, {bytes} bytes; {} of them change", files.len(), chosen.len());
    Ok(())
}
