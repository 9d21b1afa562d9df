//! `cargo xtask bench patch [--only NAME]... [--publish]`: patches of real updates, compared with
//! bsdiff, xdelta3, zstd and casync on the two images.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferofs_devtools::install::{self, TIME};
use ferofs_tests::{Run, scratch};

use crate::common::deltas::{self, Others, TIMEOUT, size};
use crate::common::options::SizeArgs;
use crate::common::programs::{self, succeed};
use crate::common::report::{Report, number};
use crate::trees::updates;

/// Encodings: options of `ferofs build` and `ferofs patch create`.
const LZ4: &str = "-z lz4";
const ZSTD_64K: &str = "-z zstd,9 -C 64K";

/// The updates, each with encodings.
const UPDATES: [(&str, &[&str]); 6] = [
    ("Django", &[LZ4, ZSTD_64K]),
    ("numpy", &[LZ4, ZSTD_64K]),
    ("scipy", &[LZ4]),
    ("ruff", &[LZ4]),
    ("Debian", &[LZ4, ZSTD_64K]),
    ("kernel", &["-z lz4hc,9"]),
];

/// Measures the updates that `--only` names, or all of them.
pub(crate) fn patch(parts: &SizeArgs) -> Result<()> {
    parts.check(&UPDATES.map(|(name, ..)| name))?;
    install::install(&[&deltas::TOOLS[..], &[TIME]].concat())?;
    let ferofs = programs::ferofs()?;
    let tools = [("ferofs", ferofs.as_path(), "--version"), ("xdelta3", "xdelta3".as_ref(), "-V")];
    let report =
        Report::new("patch", &[&tools[..], &[("zstd", "zstd".as_ref(), "--version")]].concat())?;
    let work_dir = scratch();
    let mut rows = Vec::new();
    for (name, encodings) in UPDATES.iter().filter(|(name, _)| parts.has(name)) {
        let trees = updates::trees(name)?;
        for encoding in *encodings {
            let (ratio, cells) =
                measure(&ferofs, work_dir.path(), encoding, &trees).context(*name)?;
            rows.push((ratio, [vec![(*name).to_owned(), format!("`{encoding}`")], cells].concat()));
        }
    }
    let head = [
        "update",
        "encoding",
        "patch / delta",
        "old image",
        "patch",
        "delta",
        "casync",
        "growth",
        "memory",
        "create, s",
        "apply, s",
    ];
    let text = "“Delta” is the smallest of bsdiff, xdelta3 `-9` and zstd `-19` against the old image; casync counts the chunks that the old image \
                lacks; “growth” is that of the image; “memory” is what `apply` takes, in MB.";
    deltas::show(&report, parts.publish, head.to_vec(), text, rows)
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
    let create =
        run(ferofs).args(["patch", "create"]).args([path("image").as_path(), new]).args(&options);
    let created = succeed("ferofs patch create", create.arg("-o").arg(path("patch")))?;
    fs::copy(path("image"), path("patched"))?;
    let timed = run(Path::new(TIME.program))
        .args(["--format", "%M", "--output"])
        .arg(path("memory"))
        .arg(ferofs);
    let applied = succeed(
        "ferofs patch apply",
        timed.args(["patch", "apply"]).args([path("patched"), path("patch")]),
    )?;
    let memory: f64 = fs::read_to_string(path("memory"))?.trim().parse()?;
    let others = Others::measure(&path("image"), &path("rebuilt"), dir)?;
    let bound = others.least();
    let (patch, start) = (size(&path("patch"))?, size(&path("image"))?);
    let ratio = patch as f64 / bound as f64;
    let mut cells = vec![format!("{ratio:.2}")];
    let growth = size(&path("patched"))? - start;
    cells.extend([start, patch, bound, others.casync, growth].map(|bytes| number(bytes as f64)));
    cells.push(number(memory * 1024.0 / 1e6));
    cells.extend([created, applied].map(|outcome| number(outcome.cpu.as_secs_f64())));
    Ok((ratio, cells))
}
