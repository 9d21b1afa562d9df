//! `cargo xtask bench patch [--only NAME]... [--publish]`: patches of real updates, compared with xdelta3, zstd and casync on the two images.
//!
//! The pairs of versions are fetched from PyPI and from Debian. Debian's archive keeps only some versions of a package: the benchmark takes
//! the two newest that apt knows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, CASYNC, TIME, XDELTA, ZSTD};
use ferofs_devtools::shell;
use ferofs_tests::{Run, scratch};

use crate::common::options::SizeArgs;
use crate::common::programs::{self, succeed};
use crate::common::report::{Report, Table, number};
use crate::trees::{self, debian, wheel};

/// A command that takes longer than this fails the benchmark: it hangs.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Encodings: options of `ferofs build` and `ferofs patch create`.
const LZ4: &str = "-z lz4";
const ZSTD_64K: &str = "-z zstd,9 -C 64K";

/// Where the trees before and after an update come from.
enum Pair {
    /// Two wheels of a Python package.
    Wheels(&'static str, [&'static str; 2]),
    /// The two newest versions of each of these Debian packages.
    Debian(&'static str),
    /// These directories of the two newest versions of Debian's kernel source: the complete source takes an hour.
    Kernel(&'static [&'static str]),
}

/// Packages of Debian that many systems have.
const DEBIAN: &str = "openssl libssl3 perl-base libc6 systemd curl libcurl4 python3.11-minimal libpython3.11-minimal \
    libpython3.11-stdlib libxml2";

/// A name, the versions, and the encodings.
type Update = (&'static str, Pair, &'static [&'static str]);

const UPDATES: [Update; 6] = [
    ("Django", Pair::Wheels("Django", ["5.0.1", "5.0.2"]), &[LZ4, ZSTD_64K]),
    ("numpy", Pair::Wheels("numpy", ["2.0.0", "2.0.1"]), &[LZ4, ZSTD_64K]),
    ("scipy", Pair::Wheels("scipy", ["1.14.0", "1.14.1"]), &[LZ4]),
    // A program in Rust of 30 MB.
    ("ruff", Pair::Wheels("ruff", ["0.6.8", "0.6.9"]), &[LZ4]),
    ("Debian", Pair::Debian(DEBIAN), &[LZ4, ZSTD_64K]),
    ("kernel", Pair::Kernel(&["fs", "kernel", "mm", "net", "include"]), &["-z lz4hc,9"]),
];

/// Measures the updates that `--only` names, or all of them.
pub(crate) fn patch(parts: &SizeArgs) -> Result<()> {
    parts.check(&UPDATES.map(|(name, ..)| name))?;
    install::install(&[XDELTA, CASYNC, ZSTD, TIME])?;
    let ferofs = programs::ferofs()?;
    let tools = [("ferofs", ferofs.as_path(), "--version"), ("xdelta3", "xdelta3".as_ref(), "-V")];
    let report = Report::new("patch", &[&tools[..], &[("zstd", "zstd".as_ref(), "--version")]].concat())?;
    let work_dir = scratch();
    let mut rows = Vec::new();
    for (name, pair, encodings) in UPDATES.iter().filter(|(name, ..)| parts.has(name)) {
        let trees = trees::complete(&format!("update-{name}"), |dir| pair.make(dir))?;
        for encoding in *encodings {
            let [old, new] = ["old", "new"].map(|part| trees.join(part));
            let (ratio, cells) = measure(&ferofs, work_dir.path(), encoding, &[old, new]).context(*name)?;
            rows.push((ratio, [vec![(*name).to_owned(), format!("`{encoding}`")], cells].concat()));
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let table = Table {
        title: "Updates".into(),
        text: "“Delta” is the smaller of xdelta3 `-9` and zstd `-19` against the old image; casync counts the chunks that the old image lacks; “growth” is \
               that of the image; “memory” is what `apply` takes, in MB; seconds are processor seconds. Sizes are bytes. The worst ratios come first."
            .into(),
        head: vec![
            "update", "encoding", "patch / delta", "old image", "patch", "delta", "casync", "growth", "memory", "create, s",
            "apply, s",
        ],
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    };
    report.add(&table);
    if parts.publish {
        report.publish("one run each; sizes do not depend on the machine.", table, 1, 2)?;
    }
    Ok(())
}

impl Pair {
    /// Makes the trees before and after the update, `old` and `new` in `dir`.
    fn make(&self, dir: &Path) -> Result<()> {
        for (number, tree) in ["old", "new"].map(|part| dir.join(part)).iter().enumerate() {
            match self {
                Self::Wheels(package, versions) => {
                    wheel(&format!("{package}=={}", versions[number]), "3.12", tree)?;
                }
                Self::Debian(packages) => debian(&versions(packages, number)?, tree)?,
                Self::Kernel(dirs) => {
                    let package = dir.join("package");
                    debian(&versions("linux-source-6.1", number)?, &package)?;
                    fs::create_dir(tree)?;
                    let mut tar = Command::new("tar");
                    tar.arg("-xf").arg(package.join("usr/src/linux-source-6.1.tar.xz")).arg("-C").arg(tree);
                    shell::run(tar.args(dirs.iter().map(|dir| format!("linux-source-6.1/{dir}"))))?;
                    fs::remove_dir_all(&package)?;
                }
            }
        }
        Ok(())
    }
}

/// The packages with their newest version (`number` 1), or with the one before it.
fn versions(packages: &str, number: usize) -> Result<Vec<String>> {
    let named = |package: &str| {
        let madison = Run::limited("apt-cache", None, TIMEOUT).args(["madison", package]);
        let known = succeed("apt-cache", madison)?.stdout;
        let known = String::from_utf8_lossy(&known).into_owned();
        let mut versions: Vec<&str> =
            known.lines().filter_map(|line| Some(line.split('|').nth(1)?.trim())).collect();
        // The newest comes first.
        versions.dedup();
        let version = match (number, &versions[..]) {
            (0, [_, before, ..]) => before,
            (_, [newest, ..]) => newest,
            _ => bail!("apt knows no package {package}: apt-get update"),
        };
        Ok(format!("{package}={version}"))
    };
    packages.split(' ').map(named).collect()
}

/// The ratio and the cells of one line of the table.
fn measure(
    ferofs: &Path,
    dir: &Path,
    options: &str,
    [old, new]: &[PathBuf; 2],
) -> Result<(f64, Vec<String>)> {
    let path = |name: &str| dir.join(name);
    let run = |program: &Path| Run::limited(program, None, TIMEOUT);
    let options: Vec<&str> = options.split(' ').collect();
    for (tree, image) in [(old, "image"), (new, "rebuilt")] {
        let build = run(ferofs).args(["build", "--quiet", "--preset", "fast"]).args(&options);
        succeed("ferofs build", build.arg(tree).arg(path(image)))?;
    }
    let create = run(ferofs).args(["patch", "create"]).args([path("image").as_path(), new]).args(&options);
    let created = succeed("ferofs patch create", create.arg("-o").arg(path("patch")))?;
    fs::copy(path("image"), path("patched"))?;
    let timed =
        run(Path::new(TIME.program)).args(["--format", "%M", "--output"]).arg(path("memory")).arg(ferofs);
    let applied =
        succeed("ferofs patch apply", timed.args(["patch", "apply"]).args([path("patched"), path("patch")]))?;
    let memory: f64 = fs::read_to_string(path("memory"))?.trim().parse()?;
    let images = [path("image"), path("rebuilt")];
    succeed(
        "xdelta3",
        run(Path::new("xdelta3")).args(["-e", "-9", "-f", "-s"]).args(&images).arg(path("xdelta")),
    )?;
    let zstd = run(Path::new("zstd")).args(["-q", "-f", "-19", "--long=27"]);
    let zstd = zstd.arg(format!("--patch-from={}", path("image").display()));
    succeed("zstd", zstd.arg(path("rebuilt")).arg("-o").arg(path("zdelta")))?;
    let bound = size(&path("xdelta"))?.min(size(&path("zdelta"))?);
    let (patch, start) = (size(&path("patch"))?, size(&path("image"))?);
    let ratio = patch as f64 / bound as f64;
    let mut cells = vec![format!("{ratio:.2}")];
    let growth = size(&path("patched"))? - start;
    cells.extend([start, patch, bound, casync(dir)?, growth].map(|bytes| number(bytes as f64)));
    cells.push(number(memory * 1024.0 / 1e6));
    cells.extend([created, applied].map(|outcome| number(outcome.cpu.as_secs_f64())));
    Ok((ratio, cells))
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
        succeed("casync", casync.arg(dir.join(format!("{image}.caibx"))).arg(dir.join(image)))?;
        for folder in files(&store)? {
            for chunk in files(&folder)? {
                *total += size(&chunk)?;
            }
        }
    }
    let [before, after] = sizes;
    Ok(after - before + size(&dir.join("rebuilt.caibx"))?)
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

fn size(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).with_context(|| path.display().to_string())?.len())
}
