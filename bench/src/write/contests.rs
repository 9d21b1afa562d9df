//! The contests: what is compared, on which trees. Slow ones have one round and small trees, so
//! that all together take at most 25 minutes.

use std::path::Path;

use anyhow::Result;
use ferofs_tests::{Outcome, Run, need};

use crate::common::programs::{Programs, TIMEOUT, Tool, succeed};

/// What ferofs and each of its peers do with each of the trees.
pub(super) struct Contest {
    pub(super) name: &'static str,
    pub(super) trees: &'static [&'static str],
    pub(super) rounds: usize,
    pub(super) ours: Job,
    pub(super) peers: &'static [Job],
}

/// The contests that compare ferofs with itself: no preset may need more time and more bytes than
/// another one, and `--estimate` should say what the presets need.
pub(super) const PRESETS: &str = "presets";
pub(super) const ESTIMATE: &str = "estimate";
pub(super) const TREES_OF_PRESETS: [&str; 2] = ["container", "sqlalchemy"];

#[derive(Clone, Copy)]
pub(super) enum Job {
    /// Makes an image with these options.
    Build(Tool, &'static str),
    /// Extracts, with this program, the image that such a build makes.
    Extract(Extractor, Tool, &'static str),
}

#[derive(Clone, Copy)]
pub(super) enum Extractor {
    Ferofs,
    FsckErofs,
    Unsquashfs,
}

const ALL: &[&str] = &["desktop", "kernel", "android", "numpy", "container", "sqlalchemy"];
const WITH_DESKTOP: &[&str] = &["desktop", "android", "numpy", "container", "sqlalchemy"];
const MEDIUM: &[&str] = &["android", "numpy", "container", "sqlalchemy"];
const SMALL: &[&str] = &["sqlalchemy", "part"];

const LZ4: &str = "-zlz4";
const SQUASHFS_LZ4: &str = "-comp lz4 -b 128K";

/// Placed to the byte, against squashfs with the same level and window.
macro_rules! bytes {
    ($level:literal, $trees:expr, $rounds:expr) => {
        build(
            concat!("zstd ", $level, " 48bit"),
            $trees,
            $rounds,
            concat!("-z zstd,", $level, " -C 128K -E 48bit,fragments"),
            &[Job::Build(
                Tool::Mksquashfs,
                concat!("-comp zstd -Xcompression-level ", $level, " -b 128K"),
            )],
        )
    };
}

pub(super) const CONTESTS: [Contest; 15] = [
    build("lz4", ALL, 3, "--preset fast", &[Job::Build(Tool::MkfsErofs, LZ4)]),
    build(
        "default",
        &["desktop", "sqlalchemy"],
        3,
        "",
        &[
            Job::Build(Tool::MkfsErofs, "-zlz4 -C65536 -Efragments"),
            Job::Build(Tool::Mksquashfs, SQUASHFS_LZ4),
        ],
    ),
    build("uncompressed", ALL, 3, "-z none", &[Job::Build(Tool::MkfsErofs, "")]),
    build(
        "lz4hc 4K",
        MEDIUM,
        3,
        "-z lz4hc,9 -C 4K",
        &[Job::Build(Tool::MkfsErofs, "-zlz4hc,9 -C4096")],
    ),
    build(
        "lz4hc 128K",
        MEDIUM,
        3,
        "-z lz4hc,12 -C 128K -E fragments",
        &[Job::Build(Tool::MkfsErofs, "-zlz4hc,12 -C131072 -Efragments")],
    ),
    build(
        "zstd 3 blocks",
        MEDIUM,
        3,
        "-z zstd,3 -C 128K -E fragments",
        &[
            Job::Build(Tool::MkfsErofs, "-zzstd,3 -C131072 -Efragments"),
            Job::Build(Tool::Mksquashfs, "-comp zstd -Xcompression-level 3 -b 128K"),
        ],
    ),
    bytes!("3", WITH_DESKTOP, 3),
    bytes!("6", MEDIUM, 3),
    bytes!("12", WITH_DESKTOP, 1),
    bytes!("15", SMALL, 1),
    bytes!("19", SMALL, 1),
    bytes!("22", SMALL, 1),
    build(
        "smallest",
        SMALL,
        1,
        "--preset smallest",
        &[Job::Build(Tool::Mksquashfs, "-comp xz -b 1M"), Job::Build(Tool::Mkdwarfs, "")],
    ),
    build(
        "dedupe",
        &["numpy", "container", "sqlalchemy"],
        1,
        "--preset fast -E dedupe",
        &[Job::Build(Tool::MkfsErofs, "-zlz4 -Ededupe")],
    ),
    Contest {
        name: "extract",
        trees: &["kernel", "android", "numpy", "container"],
        rounds: 3,
        ours: Job::Extract(Extractor::Ferofs, Tool::MkfsErofs, LZ4),
        peers: &[
            Job::Extract(Extractor::FsckErofs, Tool::MkfsErofs, LZ4),
            Job::Extract(Extractor::Unsquashfs, Tool::Mksquashfs, SQUASHFS_LZ4),
        ],
    },
];

const fn build(
    name: &'static str,
    trees: &'static [&'static str],
    rounds: usize,
    ours: &'static str,
    peers: &'static [Job],
) -> Contest {
    Contest { name, trees, rounds, ours: Job::Build(Tool::Ferofs, ours), peers }
}

impl Job {
    /// Whether this machine has the program: DwarFS is compared only where somebody installed it.
    pub(super) fn is_possible(&self) -> bool {
        !matches!(self, Self::Build(Tool::Mkdwarfs, _)) || need::find_tool("mkdwarfs").is_some()
    }

    /// The command, without paths.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Build(tool, options) => {
                format!("{} {options}", tool.name()).trim_end().to_owned()
            }
            Self::Extract(Extractor::Ferofs, ..) => "ferofs extract".into(),
            Self::Extract(Extractor::FsckErofs, ..) => "fsck.erofs --extract".into(),
            Self::Extract(Extractor::Unsquashfs, ..) => "unsquashfs".into(),
        }
    }

    /// Does the job from `source`: a tree, or an image, to `to`.
    pub(super) fn run(&self, programs: &Programs, source: &Path, to: &Path) -> Result<Outcome> {
        let run = |program: &Path| Run::limited(program, None, TIMEOUT);
        let run = match self {
            Self::Build(tool, options) => return programs.build(*tool, options, source, to),
            Self::Extract(Extractor::Ferofs, ..) => {
                run(&programs.ferofs).arg("extract").args([source, to])
            }
            Self::Extract(Extractor::FsckErofs, ..) => run(&programs.peer("fsck.erofs"))
                .arg(format!("--extract={}", to.display()))
                .args(["--preserve", "--xattrs"])
                .arg(source),
            Self::Extract(Extractor::Unsquashfs, ..) => run(&programs.peer("unsquashfs"))
                .args(["-quiet", "-no-progress", "-dest"])
                .args([to, source]),
        };
        succeed(&self.name(), run)
    }
}
