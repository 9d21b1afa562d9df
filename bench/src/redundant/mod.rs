//! `cargo xtask bench redundant [--only FAMILY]... [--publish]`: the smallest images of trees with many versions of the same files, compared
//! with mksquashfs and compressed archives. The sizes do not depend on the machine. `--publish` writes the figures that have
//! aims into docs/results/redundant.md.

mod content;
mod images;
mod snapshots;

use anyhow::{Context, Result};
use ferofs_devtools::install::{self, ZSTD};
use ferofs_tests::scratch;

use self::content::{ARCHIVE_WINDOWS, Content};
use self::images::Images;
use crate::common::options::Options;
use crate::common::programs::Programs;
use crate::common::report::{Report, Table, Wanted};
use crate::trees::VERSIONS;

/// The family of snapshots.
const NIGHTLY: &str = "nightly";
/// The family with an aim in bytes.
const PYTHON: &str = "python";
/// Bytes that the family `python` may have with the preset: 0.88 of what mksquashfs needed when the aim was set.
const PYTHON_MB: f64 = 22.0;
/// An image may have this many times the bytes of an archive with the window of 8 MiB.
const TO_ARCHIVE: f64 = 1.15;
/// The similar order may take this many times the processor time of the order of the tree.
const ORDER_TIME: f64 = 1.3;

pub(crate) fn redundant(options: &[&str]) -> Result<()> {
    let options = Options::parse(options, &VERSIONS.map(|family| family.name), &[], |_, _| {})?;
    install::install(&[ZSTD])?;
    let programs = Programs::install()?;
    let work_dir = scratch();
    let image = work_dir.path().join("image");
    let mut report = Report::new("redundant", &programs.versions())?;
    let (mut worst_48bit, mut worst_order) = (0.0, 0.0);
    for family in VERSIONS {
        let name = family.name;
        if !options.has_part(name) {
            continue;
        }
        let tree = family.get()?;
        let images = images::measure(&tree, &image, &programs).context(name)?;
        let content = content::measure(&tree).context(name)?;
        report.add(&sizes(name, &images, &content));
        aims(name, &images, &content, &mut report)?;
        let sizes = images.with_48bit().map(|(without, with)| with as f64 / without as f64);
        worst_48bit = sizes.fold(worst_48bit, f64::max);
        let (in_tree_order, preset) = images.preset()?;
        worst_order = f64::max(worst_order, preset.cpu / in_tree_order.cpu);
        if name == NIGHTLY {
            snapshots::measure(&tree, work_dir.path(), &programs, &mut report)?;
        }
    }
    report.aim("the worst family: with `48bit` / without", worst_48bit, Wanted::AtMost(1.0), "");
    let order = "the worst family: CPU time, similar order / tree's";
    report.aim(order, worst_order, Wanted::AtMost(ORDER_TIME), "");
    report.print_aims();
    if options.publish {
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
