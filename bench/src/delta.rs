//! `cargo xtask bench delta [--only NAME]... [--publish]`: exact deltas of real updates, compared
//! with bsdiff, xdelta3, zstd and casync on the same two images, which ferofs and mkfs.erofs make.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ferofs_devtools::install::{self, TIME};
use ferofs_devtools::shell;
use ferofs_tests::{Run, scratch};

use crate::common::deltas::{self, Others, TIMEOUT, size};
use crate::common::options::SizeArgs;
use crate::common::programs::{Programs, Tool, succeed};
use crate::common::report::{Report, number};
use crate::trees::updates;

/// Encodings: the program that makes both images, and its options.
type Encoding = (Tool, &'static str);
const DEFAULT: Encoding = (Tool::Ferofs, "--preset default");
const LZ4_4K: Encoding = (Tool::Ferofs, "-z lz4 -C 4K -E ^fragments");
const LZ4HC_64K: Encoding = (Tool::Ferofs, "-z lz4hc,9 -C 64K");
const ZSTD_64K: Encoding = (Tool::Ferofs, "-z zstd,9 -C 64K");
const ZSTD_128K: Encoding = (Tool::Ferofs, "-z zstd,12 -C 128K -E 48bit,fragments");
const SMALL: Encoding = (Tool::Ferofs, "--preset small");
const BACKUP: Encoding = (Tool::Ferofs, "--preset backup");
const LZMA: Encoding = (Tool::Ferofs, "-z lzma,6 -C 64K");
const MKFS_LZ4: Encoding = (Tool::MkfsErofs, "-zlz4");
const MKFS_ZSTD: Encoding = (Tool::MkfsErofs, "-zzstd,9 -C65536 -Efragments");

/// The updates, each with encodings. A small one has all.
const UPDATES: [(&str, &[Encoding]); 13] = [
    ("Django", &[DEFAULT, LZ4_4K, LZ4HC_64K, ZSTD_64K, ZSTD_128K, LZMA, MKFS_LZ4, MKFS_ZSTD]),
    ("SQLAlchemy", &[DEFAULT, LZMA, MKFS_ZSTD]),
    ("cryptography", &[DEFAULT, LZ4HC_64K, ZSTD_128K]),
    ("pillow", &[DEFAULT]),
    ("numpy", &[LZ4_4K, ZSTD_64K]),
    ("pandas", &[ZSTD_128K]),
    ("scipy", &[DEFAULT]),
    ("ruff", &[LZ4HC_64K]),
    ("Debian", &[MKFS_ZSTD]),
    ("stdlib", &[LZ4_4K, ZSTD_128K, SMALL, BACKUP, MKFS_ZSTD]),
    ("kernel", &[LZ4HC_64K]),
    ("headers", &[LZ4_4K]),
    ("modules", &[DEFAULT]),
];

/// Measures the updates that `--only` names, or all of them.
pub(crate) fn delta(parts: &SizeArgs) -> Result<()> {
    parts.check(&updates::names())?;
    install::install(&[&deltas::TOOLS[..], &[TIME]].concat())?;
    let programs = Programs::install()?;
    let device = shell::build_program("ferofs-device", "ferofs-device", "release")?;
    let tools =
        [("xdelta3", PathBuf::from("xdelta3"), "-V"), ("zstd", PathBuf::from("zstd"), "--version")];
    let report = Report::new("delta", &[&programs.versions()[..2], &tools].concat())?;
    let work_dir = scratch();
    let mut rows = Vec::new();
    for (name, encodings) in UPDATES.iter().filter(|(name, _)| parts.has(name)) {
        let trees = updates::trees(name)?;
        for (tool, options) in *encodings {
            let measured = measure(&programs, &device, work_dir.path(), *tool, options, &trees);
            let (ratio, cells) =
                measured.with_context(|| format!("{name}: {} {options}", tool.name()))?;
            let names = vec![(*name).to_owned(), format!("`{} {options}`", tool.name())];
            rows.push((ratio, [names, cells].concat()));
        }
    }
    let head = [
        "update",
        "images",
        "delta / other",
        "new image",
        "delta",
        "other",
        "casync",
        "memory",
        "create, s",
        "apply, s",
        "cp, s",
    ];
    let text = "“Other” is the smallest of bsdiff, xdelta3 `-9` and zstd `-19 --long=27` against the old image; casync counts the chunks that the \
                old image lacks; “memory” is what `ferofs-device` took to apply it, and what the delta states, in MB.";
    deltas::show(&report, parts.publish, head.to_vec(), text, rows)
}

/// The ratio and the cells of one line of the table.
fn measure(
    programs: &Programs,
    device: &Path,
    dir: &Path,
    tool: Tool,
    options: &str,
    trees: &[PathBuf; 2],
) -> Result<(f64, Vec<String>)> {
    let path = |name: &str| dir.join(name);
    let (old, new) = (path("old"), path("new"));
    for (tree, image) in trees.iter().zip([&old, &new]) {
        if image.exists() {
            fs::remove_file(image)?;
        }
        programs.build(tool, options, tree, image)?;
    }
    let ferofs = || Run::limited(&programs.ferofs, None, TIMEOUT);
    let create = ferofs().args(["delta", "create", "--force"]).args([&old, &new]);
    let created = succeed("ferofs delta create", create.arg("-o").arg(path("delta")))?;
    let shown = succeed(
        "ferofs delta show",
        ferofs().args(["delta", "show", "--json"]).arg(path("delta")),
    )?;
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout)?;
    let stated = shown["memory"].as_u64().context("delta show --json has no memory")?;
    let timed = Run::limited(Path::new(TIME.program), None, TIMEOUT);
    let timed = timed.args(["--format", "%M", "--output"]).arg(path("memory")).arg(device);
    let apply = timed.args(["delta", "--force"]).args([&old, &path("delta"), &path("result")]);
    let applied = succeed("ferofs-device delta", apply)?;
    let memory = fs::read_to_string(path("memory"))?.trim().parse::<f64>()? * 1024.0;
    ensure!(fs::read(&new)? == fs::read(path("result"))?, "the result is not the new image");
    let copied =
        succeed("cp", Run::limited(Path::new("cp"), None, TIMEOUT).args([&new, &path("copy")]))?;
    let others = Others::measure(&old, &new, dir)?;
    let (delta, bound) = (size(&path("delta"))?, others.least());
    let ratio = delta as f64 / bound as f64;
    let mut cells = vec![format!("{ratio:.2}")];
    cells.extend([size(&new)?, delta, bound, others.casync].map(|bytes| number(bytes as f64)));
    cells.push(format!("{} of {}", number(memory / 1e6), number(stated as f64 / 1e6)));
    cells.extend([created, applied, copied].map(|outcome| number(outcome.cpu.as_secs_f64())));
    Ok((ratio, cells))
}
