//! The steps of a case: build an image, then change, extract or build it again.

use ferofs_tests::model::Model;
use ferofs_tests::rng::Rng;

use super::settings::{self, Interface, Settings};

/// One step. A seed in it selects the change of the tree that the step makes.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Builds the image.
    Build { interface: Interface, source: Source, settings: Settings, twice: bool, seed: u64 },
    /// `patch add`, or `mkfs.erofs --incremental`: a small tree over that of the image.
    Add { interface: Interface, tar: bool, settings: Settings, seed: u64 },
    /// `patch create`, `show` and `apply`: to a changed tree.
    Patch { target: Target, settings: Settings, seed: u64 },
    /// `patch log` and `rollback`: to the state before, or to the first one.
    Rollback { first: bool },
    /// `patch squash`.
    Squash { settings: Settings },
    /// `extract` to a directory.
    Extract { settings: Settings, again: Option<&'static str>, metadata: bool },
}

/// The source of a build.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    Directory,
    Tar {
        packed: Packed,
        own: bool,
        index: bool,
    },
    /// Several archives, each a layer over those before.
    Layers {
        index: bool,
    },
    Oci {
        archive: bool,
    },
    /// The existing image, alone or with a layer over it.
    Erofs {
        layers: bool,
        index: bool,
    },
}

/// How the command gets an archive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Packed {
    Plain,
    Sparse,
    Pipe,
    Gzip,
    Xz,
    Zstd,
}

/// The new tree of a patch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    Directory,
    Tar,
    Image,
}

/// Generates random steps for a first tree.
pub(crate) fn random(model: &Model, rng: &mut Rng) -> Vec<Step> {
    let mut steps = vec![first(model, rng)];
    let more = rng.pick(&[0, 0, 0, 0, 1, 1, 2, 3]);
    for _ in 0..more {
        steps.push(further(model, rng));
    }
    steps
}

fn interface(rng: &mut Rng) -> Interface {
    if rng.chance(65) { Interface::Build } else { Interface::Mkfs }
}

fn build(source: Source, model: &Model, rng: &mut Rng) -> Step {
    let interface = match source {
        // Only one of the two programs can do these.
        Source::Layers { .. } => Interface::Build,
        _ => interface(rng),
    };
    let mut settings = match source {
        Source::Tar { index: true, .. }
        | Source::Layers { index: true }
        | Source::Erofs { index: true, .. } => index(rng),
        _ => settings::image(interface, model, rng),
    };
    // Archives have no source directory that these could be relative to.
    let twice = rng.chance(20) && !settings.has("-T") && !settings.has("-U");
    if twice {
        settings.add(&["-T", "1650000000", "-U", settings::UUID]);
        if interface == Interface::Mkfs {
            settings.add(&["--mkfs-time"]);
        }
    }
    Step::Build { interface, source, settings, twice, seed: rng.next_u64() }
}

/// Settings of an image whose data stays in its sources.
fn index(rng: &mut Rng) -> Settings {
    let mut settings = Settings::default();
    if rng.chance(50) {
        settings::workers(&mut settings, rng);
    }
    for feature in ["48bit", "dot-omitted"] {
        if rng.chance(15) {
            settings.add(&["-E", feature]);
        }
    }
    settings
}

fn archive(rng: &mut Rng) -> Packed {
    rng.pick(&[
        Packed::Plain,
        Packed::Plain,
        Packed::Sparse,
        Packed::Pipe,
        Packed::Gzip,
        Packed::Xz,
        Packed::Zstd,
    ])
}

fn first(model: &Model, rng: &mut Rng) -> Step {
    let source = match rng.below(100) {
        0..72 => Source::Directory,
        72..82 => Source::Tar { packed: archive(rng), own: false, index: false },
        82..88 => Source::Tar {
            packed: rng.pick(&[Packed::Plain, Packed::Sparse]),
            own: false,
            index: true,
        },
        88..92 => Source::Layers { index: false },
        92..94 => Source::Layers { index: true },
        _ => Source::Oci { archive: rng.chance(40) },
    };
    build(source, model, rng)
}

fn further(model: &Model, rng: &mut Rng) -> Step {
    let seed = rng.next_u64();
    match rng.below(100) {
        0..22 => Step::Add {
            interface: interface(rng),
            tar: rng.chance(40),
            settings: settings::patch("add", model, rng),
            seed,
        },
        22..46 => {
            let target =
                rng.pick(&[Target::Directory, Target::Directory, Target::Tar, Target::Image]);
            Step::Patch { target, settings: settings::patch("create", model, rng), seed }
        }
        46..56 => Step::Rollback { first: rng.chance(40) },
        56..66 => Step::Squash { settings: settings::patch("squash", model, rng) },
        66..78 => {
            let again = rng.pick(&[None, None, Some("--overwrite"), Some("--skip-existing")]);
            Step::Extract { settings: settings::extract(rng), again, metadata: rng.chance(30) }
        }
        78..86 => build(Source::Tar { packed: archive(rng), own: true, index: false }, model, rng),
        86..94 => build(Source::Erofs { layers: false, index: false }, model, rng),
        94..96 => build(Source::Erofs { layers: true, index: false }, model, rng),
        96..98 => build(Source::Erofs { layers: rng.chance(50), index: true }, model, rng),
        _ => build(Source::Tar { packed: Packed::Plain, own: true, index: true }, model, rng),
    }
}
