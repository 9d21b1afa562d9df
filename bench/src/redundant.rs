//! `cargo xtask bench redundant [--only FAMILY]... [--publish]`: the smallest images of trees with
//! many versions of the same files, compared with mksquashfs and compressed archives. The sizes do
//! not depend on the machine. `--publish` writes the figures that have aims into
//! docs/results/redundant.md.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use ferofs_devtools::install::{self, ZSTD};
use ferofs_tests::{Run, scratch};

use crate::common::options::SizeArgs;
use crate::common::programs::{Programs, TIMEOUT, Tool, succeed};
use crate::common::report::{Report, Table, Wanted};
use crate::trees::{self, VERSIONS};

/// The family of snapshots.
const NIGHTLY: &str = "nightly";
/// The family with an aim in bytes.
const PYTHON: &str = "python";
/// Bytes that the family `python` may have with the preset: 0.88 of what mksquashfs needed when the
/// aim was set.
const PYTHON_MB: f64 = 22.0;
/// An image may have this many times the bytes of an archive with the window of 8 MiB.
const TO_ARCHIVE: f64 = 1.15;
/// The similar order may take this many times the processor time of the order of the tree.
const ORDER_TIME: f64 = 1.3;

pub(crate) fn redundant(parts: &SizeArgs) -> Result<()> {
    parts.check(&VERSIONS.map(|family| family.name))?;
    install::install(&[ZSTD])?;
    let programs = Programs::install()?;
    let work_dir = scratch();
    let image = work_dir.path().join("image");
    let mut report = Report::new("redundant", &programs.versions())?;
    let (mut worst_48bit, mut worst_order) = (0.0, 0.0);
    for family in VERSIONS {
        let name = family.name;
        if !parts.has(name) {
            continue;
        }
        let tree = family.get()?;
        let images = build_images(&tree, &image, &programs).context(name)?;
        let content = compress(&tree).context(name)?;
        report.add(&sizes(name, &images, &content));
        aims(name, &images, &content, &mut report)?;
        let sizes = images.with_48bit().map(|(without, with)| with as f64 / without as f64);
        worst_48bit = sizes.fold(worst_48bit, f64::max);
        let (in_tree_order, preset) = images.preset()?;
        worst_order = f64::max(worst_order, preset.cpu / in_tree_order.cpu);
        if name == NIGHTLY {
            add_snapshots(&tree, work_dir.path(), &programs, &mut report)?;
        }
    }
    report.aim("the worst family: with `48bit` / without", worst_48bit, Wanted::AtMost(1.0), "");
    let order = "the worst family: CPU time, similar order / tree's";
    report.aim(order, worst_order, Wanted::AtMost(ORDER_TIME), "");
    report.print_aims();
    if parts.publish {
        report.publish_aims(1, "")?;
    }
    Ok(())
}

/// Sizes, processor time and memory of all programs.
fn sizes(family: &str, images: &Images, content: &Content) -> Table {
    let mut rows = Vec::new();
    let squashfs = images.squashfs.size as f64;
    let mut row = |what: String, size: u64, cpu: f64, peak: u64| {
        let ratio = format!("{:.2}", size as f64 / squashfs);
        rows.push(vec![
            what,
            size.to_string(),
            ratio,
            format!("{cpu:.1}"),
            format!("{:.0}", peak as f64 / 1e6),
        ]);
    };
    for built in std::iter::once(&images.squashfs).chain(&images.ferofs) {
        row(built.what.clone(), built.size, built.cpu, built.peak);
    }
    for (window, archive) in &content.archives {
        let what = format!("tar in the order {}, `zstd -15 --long={window}`", content.best_order);
        row(what, archive.size, archive.cpu.as_secs_f64(), archive.peak);
    }
    Table {
        title: format!("{family}: sizes"),
        text: format!(
            "The tree has {} bytes of files. \"Ratio\" is the size relative to that of mksquashfs.",
            content.all
        ),
        head: vec!["", "bytes", "ratio", "CPU s", "peak MB"],
        rows,
    }
}

/// What the project wants of a family.
fn aims(family: &str, images: &Images, content: &Content, report: &mut Report) -> Result<()> {
    let size = images.preset()?.1.size as f64;
    let mut at_most = |what: String, measured: f64, limit: f64, unit: &'static str| {
        report.aim(format!("{family}: {what}"), measured, Wanted::AtMost(limit), unit);
    };
    at_most("image / that of mksquashfs".into(), size / images.squashfs.size as f64, 1.0, "");
    if family == PYTHON {
        at_most("image".into(), size / 1e6, PYTHON_MB, " MB");
    }
    let [window, ..] = ARCHIVE_WINDOWS;
    let archive = content.archives.get(&window).context("no archive")?.size as f64;
    at_most(format!("image / `zstd -15 --long={window}`"), size / archive, TO_ARCHIVE, "");
    Ok(())
}

/// Options of mksquashfs that fit the settings below.
const SQUASHFS_OPTIONS: &str = "-comp zstd -Xcompression-level 15 -b 1M";

/// Options of `ferofs build`, each a line of the table. Each `48bit` follows the same options
/// without it.
const SETTINGS: [&str; 4] = [
    "-z zstd,15 -C 1M -E all-fragments --order similar",
    "-z zstd,15 -C 1M -E all-fragments,48bit --order similar",
    "--preset backup --order tree",
    PRESET,
];
const PRESET: &str = "--preset backup";

/// One image.
struct Built {
    /// The program and its options.
    what: String,
    size: u64,
    cpu: f64,
    peak: u64,
}

/// All images of a tree.
struct Images {
    squashfs: Built,
    /// In the order of [`SETTINGS`].
    ferofs: Vec<Built>,
}

impl Images {
    /// Sizes without and with `48bit`, of settings that are else the same.
    fn with_48bit(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ferofs
            .windows(2)
            .filter(|pair| pair[1].what.contains("48bit"))
            .map(|pair| (pair[0].size, pair[1].size))
    }

    /// The images of the preset: in the order of the tree, and in the similar order.
    fn preset(&self) -> Result<(&Built, &Built)> {
        match self.ferofs.as_slice() {
            [.., tree, similar] => Ok((tree, similar)),
            _ => anyhow::bail!("the preset was not measured"),
        }
    }
}

/// Builds all images of `tree`, one after the other at `image`.
fn build_images(tree: &Path, image: &Path, programs: &Programs) -> Result<Images> {
    let built = |tool: Tool, options: &str| -> Result<Built> {
        let _ = fs::remove_file(image);
        let outcome = programs.build(tool, options, tree, image)?;
        let size = fs::metadata(image)?.len();
        let what = format!("{} `{options}`", tool.name());
        Ok(Built { what, size, cpu: outcome.cpu.as_secs_f64(), peak: outcome.peak })
    };
    let squashfs = built(Tool::Mksquashfs, SQUASHFS_OPTIONS)?;
    let ferofs =
        SETTINGS.iter().map(|options| built(Tool::Ferofs, options)).collect::<Result<_>>()?;
    fs::remove_file(image)?;
    Ok(Images { squashfs, ferofs })
}

/// Windows of zstd for archives, as powers of two.
const ARCHIVE_WINDOWS: [u32; 2] = [23, 27];

/// A compressed stream.
#[derive(Clone, Copy, Debug)]
struct Compressed {
    size: u64,
    cpu: Duration,
    peak: u64,
}

/// What was measured for a tree.
struct Content {
    /// Bytes of all files.
    all: u64,
    /// The order of files that gives the smaller archive with the first of [`ARCHIVE_WINDOWS`].
    best_order: &'static str,
    /// Archives in that order, by window.
    archives: BTreeMap<u32, Compressed>,
}

/// Measures `tree`, whose versions are its directories.
fn compress(tree: &Path) -> Result<Content> {
    let mut paths = Vec::new();
    let mut all = 0;
    trees::each_file(tree, &mut |path, len| {
        all += len;
        paths.push(path.strip_prefix(tree)?.to_owned());
        Ok(())
    })?;
    let mut without_version = paths.clone();
    without_version.sort_by_cached_key(|path| path_without_version(path));
    let [first, later @ ..] = ARCHIVE_WINDOWS;
    let of_tree = compressed(tree, &paths, first)?;
    let of_paths = compressed(tree, &without_version, first)?;
    let (best_order, order, best) = match of_tree.size < of_paths.size {
        true => ("of the tree", &paths, of_tree),
        false => ("of paths without the version", &without_version, of_paths),
    };
    let mut archives = BTreeMap::from([(first, best)]);
    for window in later {
        archives.insert(window, compressed(tree, order, window)?);
    }
    Ok(Content { all, best_order, archives })
}

/// The path below the directory of the version, without other components that are the version's
/// name.
fn path_without_version(path: &Path) -> PathBuf {
    let mut components = path.components();
    let version = components.next();
    components.filter(|component| Some(*component) != version).collect()
}

/// Compresses an archive of a list of paths. The measured time and memory are those of zstd alone.
fn compressed(tree: &Path, paths: &[PathBuf], window: u32) -> Result<Compressed> {
    let dir = scratch();
    let (list, stream, archive) =
        (dir.path().join("list"), dir.path().join("stream"), dir.path().join("archive"));
    let mut names = Vec::new();
    for path in paths {
        names.extend_from_slice(path.as_os_str().as_encoded_bytes());
        names.push(0);
    }
    fs::write(&list, names)?;
    let tar =
        Run::limited("tar", None, TIMEOUT).args(["--null", "--no-recursion", "-cf"]).arg(&stream);
    succeed("tar", tar.arg("-T").arg(&list).dir(tree))?;
    let window = format!("--long={window}");
    let run = Run::limited("zstd", None, TIMEOUT).args(["-q", "-15", &window, "-o"]);
    let outcome = succeed("zstd", run.arg(&archive).arg(&stream))?;
    let size = fs::metadata(&archive)?.len();
    Ok(Compressed { size, cpu: outcome.cpu, peak: outcome.peak })
}

/// Options of `ferofs build`: with the whole window over all versions, and with small clusters in
/// the order of the tree.
const SNAPSHOT_SETTINGS: [&str; 2] = [PRESET, "-z zstd,9 -C 64K -E 48bit,fragments --order tree"];

/// The image of all snapshots may be at most this many times that of all at once.
const RATIO: f64 = 1.1;

/// Measures what the image of the first directory in `tree` is after each further one was added.
fn add_snapshots(
    tree: &Path,
    work_dir: &Path,
    programs: &Programs,
    report: &mut Report,
) -> Result<()> {
    let mut nights: Vec<PathBuf> =
        fs::read_dir(tree)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    nights.sort();
    let (first, later) = nights.split_first().context("no snapshots")?;
    let image = work_dir.join("snapshots");
    let size = || fs::metadata(&image).map(|metadata| metadata.len());
    let build = |sources: &[PathBuf], settings: &str| {
        let run =
            Run::limited(&programs.ferofs, None, TIMEOUT).args(["build", "--quiet", "--versions"]);
        succeed(settings, run.args(settings.split(' ')).args(sources).arg(&image))
    };
    let mut rows = Vec::new();
    for settings in SNAPSHOT_SETTINGS {
        build(&nights, settings)?;
        let at_once = size()?;
        build(std::slice::from_ref(first), settings)?;
        let start = size()?;
        let (mut content, mut metadata, mut cpu) = (0, 0, 0.0);
        for night in later {
            let archive = work_dir.join("step.tar");
            let name = night.file_name().context("a snapshot has no name")?;
            let tar = Run::limited("tar", None, TIMEOUT)
                .arg("-cf")
                .arg(&archive)
                .arg("-C")
                .arg(tree)
                .arg(name);
            succeed("tar", tar)?;
            let add = Run::limited(&programs.ferofs, None, TIMEOUT)
                .args("patch add --json --loose-parents".split(' '));
            let outcome = succeed("ferofs patch add", add.args([&image, &archive]))?;
            let growth: serde_json::Value = serde_json::from_slice(&outcome.stdout)?;
            content += growth["growth"]["content"].as_u64().unwrap_or(0);
            metadata += growth["growth"]["metadata"].as_u64().unwrap_or(0);
            cpu += outcome.cpu.as_secs_f64();
            fs::remove_file(&archive)?;
        }
        let end = size()?;
        let ratio = end as f64 / at_once as f64;
        let bytes = [at_once, start, end].map(|bytes| bytes.to_string());
        let mut row = vec![format!("`{settings}`")];
        row.extend(bytes);
        row.extend([
            format!("{ratio:.2}"),
            content.to_string(),
            metadata.to_string(),
            format!("{cpu:.1}"),
        ]);
        rows.push(row);
        report.aim(
            format!("snapshots one by one, compared with all at once, `{settings}`"),
            ratio,
            Wanted::AtMost(RATIO),
            "",
        );
    }
    report.add(&Table {
        title: "Thirty snapshots, one by one".into(),
        text: "The table shows what an image of thirty nights grows to when each night is added with `ferofs patch add --loose-parents`, compared with \
               an image of all nights at once. Bytes, and the processor time of all additions in seconds."
            .into(),
        head: vec![
            "settings",
            "all at once",
            "the first",
            "one by one",
            "ratio",
            "content added",
            "metadata added",
            "CPU s",
        ],
        rows,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::Path;

    #[test]
    fn versions_of_a_file_have_the_same_path() {
        for version in ["v1", "v2"] {
            let path = format!("{version}/usr/src/{version}/include/x.h");
            assert_eq!(path_without_version(Path::new(&path)), Path::new("usr/src/include/x.h"));
        }
    }
}
