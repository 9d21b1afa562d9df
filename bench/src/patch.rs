//! `cargo xtask bench patch [--only NAME]... [--data DIR]`: patches of real updates, compared with xdelta3, zstd, bsdiff and casync
//! on the two images.
//!
//! The pairs of versions are fetched from PyPI and from Debian, and stay in DIR. Debian's archive keeps only some versions of a package: the
//! benchmark takes the two newest that apt knows.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, BSDIFF, CASYNC, TIME, UNZIP, XDELTA, ZSTD};
use ferofs_devtools::shell;
use ferofs_tests::{Outcome, Run, scratch};

/// A command that takes longer than this fails the benchmark: it hangs.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Bytes of the largest image that bsdiff gets: it needs 17 times as much memory, and minutes.
const BSDIFF_MAX: u64 = 40 << 20;
/// Encodings: a name, and options of `ferofs build` and `ferofs patch create`.
const ENCODINGS: [(&str, &[&str]); 3] =
    [("lz4", &["-z", "lz4"]), ("lz4hc", &["-z", "lz4hc,9"]), ("zstd 64K", &["-z", "zstd,9", "-C", "64K"])];

/// Where the trees before and after an update come from.
enum Pair {
    /// Two wheels of a Python package.
    Wheels(&'static str, [&'static str; 2]),
    /// The two newest versions of each of these Debian packages.
    Debian(&'static [&'static str]),
    /// These directories of the two newest versions of Debian's kernel source: the complete source takes an hour.
    Kernel(&'static [&'static str]),
}

const PAIRS: [(&str, Pair); 6] = [
    ("django", Pair::Wheels("Django", ["5.0.1", "5.0.2"])),
    ("numpy", Pair::Wheels("numpy", ["2.0.0", "2.0.1"])),
    ("scipy", Pair::Wheels("scipy", ["1.14.0", "1.14.1"])),
    // A program in Rust of 30 MB.
    ("ruff", Pair::Wheels("ruff", ["0.6.8", "0.6.9"])),
    (
        "debian",
        Pair::Debian(&[
            "openssl",
            "libssl3",
            "perl-base",
            "libc6",
            "systemd",
            "curl",
            "libcurl4",
            "python3.11-minimal",
            "libpython3.11-minimal",
            "libpython3.11-stdlib",
            "libxml2",
        ]),
    ),
    ("kernel", Pair::Kernel(&["fs", "kernel", "mm", "net", "include"])),
];

/// Measures the pairs that `--only` names, or all of them.
pub(crate) fn patch(options: &[&str]) -> Result<()> {
    let (mut only, mut data) = (Vec::new(), None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let value = options.next().with_context(|| format!("{option} needs a value"))?;
        match *option {
            "--only" => only.push(*value),
            "--data" => data = Some(Path::new(*value)),
            unknown => bail!("unknown option {unknown}"),
        }
    }
    install::install(&[XDELTA, BSDIFF, CASYNC, ZSTD, UNZIP, TIME])?;
    let ferofs = shell::build_ferofs("release")?;
    let work_dir = scratch();
    let data = data.unwrap_or(work_dir.path());
    println!(
        "| pair | encoding | old image | patch | bound | ratio | xdelta3 | zstd | bsdiff | casync | growth | create, s | apply, s | copy, s | memory, KB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (name, pair) in PAIRS.iter().filter(|(name, _)| only.is_empty() || only.contains(name)) {
        let trees = pair.fetch(&data.join(name)).with_context(|| format!("fetch {name}"))?;
        for (encoding, options) in ENCODINGS {
            println!("| {name} | {encoding} | {} |", measure(&ferofs, work_dir.path(), options, &trees)?);
        }
    }
    Ok(())
}

impl Pair {
    /// The trees before and after the update, in `dir`.
    fn fetch(&self, dir: &Path) -> Result<[PathBuf; 2]> {
        let trees = ["old", "new"].map(|part| dir.join(part));
        if trees.iter().all(|tree| tree.is_dir()) {
            return Ok(trees);
        }
        // An interrupted run can have left a part.
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        for (number, tree) in trees.iter().enumerate() {
            let fetched = dir.join(format!("fetched-{number}"));
            fs::create_dir_all(&fetched)?;
            let parts = dir.join(format!("parts-{number}"));
            fs::create_dir_all(&parts)?;
            match self {
                Self::Wheels(package, versions) => {
                    let pip = Run::limited("pip", None, TIMEOUT).args(["download", "--quiet", "--no-deps"]);
                    let pip =
                        pip.args(["--only-binary", ":all:", "--python-version", "3.12", "--platform", "any"]);
                    let pip = pip.args([
                        "--platform",
                        "manylinux2014_x86_64",
                        "--platform",
                        "manylinux_2_17_x86_64",
                    ]);
                    succeed(pip.arg("-d").arg(&fetched).arg(format!("{package}=={}", versions[number])))?;
                    for wheel in files(&fetched)? {
                        succeed(
                            Run::limited("unzip", None, TIMEOUT)
                                .args(["-q", "-o"])
                                .arg(wheel)
                                .arg("-d")
                                .arg(&parts),
                        )?;
                    }
                    fs::rename(&parts, tree)?;
                }
                Self::Debian(packages) => {
                    packages.iter().try_for_each(|package| debian(package, number, &fetched, &parts))?;
                    fs::rename(&parts, tree)?;
                }
                Self::Kernel(dirs) => {
                    debian("linux-source-6.1", number, &fetched, &parts)?;
                    fs::create_dir(dir.join("part"))?;
                    let archive = parts.join("usr/src/linux-source-6.1.tar.xz");
                    let tar = Run::limited("tar", None, TIMEOUT)
                        .arg("-xf")
                        .arg(archive)
                        .arg("-C")
                        .arg(dir.join("part"));
                    succeed(tar.args(dirs.iter().map(|dir| format!("linux-source-6.1/{dir}"))))?;
                    fs::remove_dir_all(&parts)?;
                    fs::rename(dir.join("part"), tree)?;
                }
            }
            fs::remove_dir_all(&fetched)?;
        }
        Ok(trees)
    }
}

/// Unpacks the newest version of a Debian package (`number` 1), or the one before it, into `tree`.
fn debian(package: &str, number: usize, fetched: &Path, tree: &Path) -> Result<()> {
    let known = succeed(Run::limited("apt-cache", None, TIMEOUT).args(["madison", package]))?.stdout;
    let known = String::from_utf8_lossy(&known).into_owned();
    let mut versions: Vec<String> =
        known.lines().filter_map(|line| Some(line.split('|').nth(1)?.trim().to_owned())).collect();
    // The newest comes first.
    versions.dedup();
    let version = match (number, &versions[..]) {
        (0, [_, before, ..]) => before,
        (_, [newest, ..]) => newest,
        _ => bail!("apt knows no package {package}: apt-get update"),
    };
    succeed(Run::limited("apt-get", None, TIMEOUT).dir(fetched).args([
        "download",
        "--quiet",
        &format!("{package}={version}"),
    ]))?;
    for deb in files(fetched)? {
        succeed(Run::limited("dpkg-deb", None, TIMEOUT).arg("-x").arg(&deb).arg(tree))?;
        fs::remove_file(deb)?;
    }
    Ok(())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// One line of the table.
fn measure(ferofs: &Path, dir: &Path, options: &[&str], [old, new]: &[PathBuf; 2]) -> Result<String> {
    let path = |name: &str| dir.join(name);
    let run = |program: &Path| Run::limited(program, None, TIMEOUT);
    for (tree, image) in [(old, "image"), (new, "rebuilt")] {
        succeed(
            run(ferofs)
                .args(["build", "--quiet", "--preset", "fast"])
                .args(options)
                .arg(tree)
                .arg(path(image)),
        )?;
    }
    let create = run(ferofs).args(["patch", "create"]).args([path("image").as_path(), new]).args(options);
    let created = succeed(create.arg("-o").arg(path("patch")))?;
    fs::copy(path("image"), path("patched"))?;
    let timed =
        run(Path::new(TIME.program)).args(["--format", "%M", "--output"]).arg(path("memory")).arg(ferofs);
    let applied = succeed(timed.args(["patch", "apply"]).args([path("patched"), path("patch")]))?;
    let memory = fs::read_to_string(path("memory"))?;
    let growth = size(&path("patched"))? - size(&path("image"))?;
    // What applying writes, copied: with a sync, as applying syncs, too.
    let start = size(&path("image"))?;
    let dd = run(Path::new("dd")).args(["bs=1M", "iflag=skip_bytes", "conv=fsync", "status=none"]);
    let dd = dd.arg(format!("skip={start}")).arg(format!("if={}", path("patched").display()));
    let copied = succeed(dd.arg(format!("of={}", path("copy").display())))?;

    let images = [path("image"), path("rebuilt")];
    succeed(run(Path::new("xdelta3")).args(["-e", "-9", "-f", "-s"]).args(&images).arg(path("xdelta")))?;
    let xdelta = size(&path("xdelta"))?;
    let bsdiff = match size(&images[1])? < BSDIFF_MAX {
        false => "-".to_owned(),
        true => {
            succeed(run(Path::new("bsdiff")).args(&images).arg(path("bsdelta")))?;
            size(&path("bsdelta"))?.to_string()
        }
    };
    let zstd = Run::limited("zstd", None, TIMEOUT).args(["-q", "-f", "-19", "--long=27"]);
    let zstd = zstd.arg(format!("--patch-from={}", path("image").display()));
    succeed(zstd.arg(path("rebuilt")).arg("-o").arg(path("zdelta")))?;
    let zstd = size(&path("zdelta"))?;
    let patch = size(&path("patch"))?;
    let bound = xdelta.min(zstd);
    Ok(format!(
        "{start} | {patch} | {bound} | {:.2} | {xdelta} | {zstd} | {bsdiff} | {} | {growth} | {} | {} | {} | {}",
        patch as f64 / bound as f64,
        casync(dir)?,
        seconds(&created),
        seconds(&applied),
        seconds(&copied),
        memory.trim(),
    ))
}

/// Bytes of the chunks of the new image that the old one does not have: what a device with the old image fetches.
fn casync(dir: &Path) -> Result<u64> {
    let store = dir.join("store");
    if store.exists() {
        fs::remove_dir_all(&store)?;
    }
    let mut sizes = [0, 0];
    for (image, total) in ["image", "rebuilt"].into_iter().zip(&mut sizes) {
        let casync = Run::limited("casync", None, TIMEOUT).arg("make");
        let casync = casync.arg(format!("--store={}", store.display()));
        succeed(casync.arg(dir.join(format!("{image}.caibx"))).arg(dir.join(image)))?;
        for folder in files(&store)? {
            for chunk in files(&folder)? {
                *total += size(&chunk)?;
            }
        }
    }
    let [before, after] = sizes;
    Ok(after - before + size(&dir.join("rebuilt.caibx"))?)
}

/// Wall-clock seconds, which depend on the disk, and processor seconds.
fn seconds(outcome: &Outcome) -> String {
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
