//! Executes the steps of a case, updates the tree that the image must show, and knows which
//! refusals are right.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use anyhow::Result;
use ferofs_tests::compare::Field;
use ferofs_tests::{Model, Outcome, Rng};

use super::oracles::{self, Image, Oracles};
use super::sources::{self, archived};
use super::workspace::{Finding, Stop, Workspace};
use crate::options::effect::Effect;
use crate::options::generate::sequence::{Source, Step, Target};
use crate::options::generate::settings::{Interface, Settings};

/// The result of a case without a finding.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Images that were built and compared.
    pub(crate) images: u64,
    /// Known reasons for refusals, with their number.
    pub(crate) refused: BTreeMap<&'static str, u64>,
}

/// The state of a running case.
pub(crate) struct Account<'a> {
    pub(crate) workspace: &'a mut Workspace,
    oracles: &'a Oracles,
    /// Use all oracles for each image.
    all: bool,
    pub(crate) rng: Rng,
    /// The tree that the image must show; before the first build, its source.
    pub(crate) model: Model,
    pub(crate) image: Option<Image>,
    /// The tree of each state of the image, by the number of the state.
    states: Vec<Model>,
    /// The image has digests of files as attributes, which updates of it and images built from it
    /// have, too.
    digests: bool,
    /// The tree in the directory `want`.
    written: Option<Model>,
    /// The number of sources up to now. Each gets its own name, because an image may use it as a
    /// device.
    pub(crate) sources: u64,
    tally: Tally,
}

/// Executes the steps.
pub(crate) fn perform(
    workspace: &mut Workspace,
    oracles: &Oracles,
    model: &Model,
    steps: &[Step],
    all: bool,
    rng: Rng,
) -> Result<Tally, Stop> {
    workspace.clear()?;
    let mut account = Account {
        workspace,
        oracles,
        all,
        rng,
        model: model.clone(),
        image: None,
        states: Vec::new(),
        digests: false,
        written: None,
        sources: 0,
        tally: Tally::default(),
    };
    for step in steps {
        account.step(step)?;
    }
    Ok(account.tally)
}

pub(crate) fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

impl Account<'_> {
    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Build { interface, source, settings, twice, seed } => {
                self.build(*interface, *source, settings, *twice, *seed)
            }
            _ if self.image.is_none() => Ok(()),
            Step::Extract { settings, again, metadata } => {
                self.extract(settings, *again, *metadata)
            }
            // Patches are for images alone in their file.
            _ if self
                .image
                .as_ref()
                .is_some_and(|image| image.offset != 0 || !image.devices.is_empty()) =>
            {
                Ok(())
            }
            Step::Add { interface, tar, settings, seed } => {
                self.add(*interface, *tar, settings, *seed)
            }
            Step::Patch { target, settings, seed } => self.patch(*target, settings, *seed),
            Step::Rollback { first } => self.rollback(*first),
            Step::Squash { settings } => self.squash(settings),
        }
    }

    /// Writes the files that settings need.
    fn files_of(&mut self, settings: &Settings) -> Result<()> {
        for (name, content) in settings.0.iter().filter_map(|setting| setting.file.as_ref()) {
            self.workspace.file(name, content)?;
        }
        Ok(())
    }

    /// The tree that the image shows after the effects of the settings on `model`, and the fields
    /// to ignore.
    fn effects(settings: &Settings, model: &mut Model) -> Vec<Field> {
        settings.0.iter().filter_map(|setting| setting.effect.apply(model)).collect()
    }

    /// Gives the files of `model` their digests, if the image has `digests`.
    fn add_digests(digests: bool, model: &mut Model) {
        if digests {
            Effect::FileDigest(b"user.sha").apply(model);
        }
    }

    /// Runs a ferofs command that writes `output`. False if it refused for a known reason.
    pub(crate) fn run_for(
        &mut self,
        words: &[OsString],
        input: Option<&str>,
        output: &str,
    ) -> Result<bool, Stop> {
        let outcome = self.workspace.ferofs(words, input)?;
        if outcome.code == 0 {
            return Ok(true);
        }
        if self.workspace.path(output).exists() && output == "new" {
            return Err(Finding::new(
                "leftover",
                format!("{output} is left behind: {}", outcome.stderr.trim()),
            )
            .into());
        }
        self.refused(&outcome)?;
        Ok(false)
    }

    fn refused(&mut self, outcome: &Outcome) -> Result<(), Stop> {
        match known(&outcome.stderr) {
            Some(reason) if outcome.code == 1 || outcome.code == 2 => {
                *self.tally.refused.entry(reason).or_default() += 1;
                Ok(())
            }
            _ => Err(Finding::new(
                "refused",
                format!("exit {}: {}", outcome.code, outcome.stderr.trim()),
            )
            .into()),
        }
    }

    pub(crate) fn write_tree(&mut self, name: &str, model: &Model) -> Result<()> {
        let dir = self.workspace.directory(name)?;
        Ok(model.write_to(&dir)?)
    }

    /// Compares the image with the tree that it must show.
    fn compare_image(&mut self) -> Result<(), Stop> {
        self.tally.images += 1;
        if self.written.as_ref() != Some(&self.model) {
            let model = self.model.clone();
            self.write_tree("want", &model)?;
            self.written = Some(model);
        }
        let Some(image) = &self.image else { return Ok(()) };
        self.oracles.compare_image(self.workspace, image, "image", self.all, &mut self.rng)
    }

    fn build(
        &mut self,
        interface: Interface,
        source: Source,
        settings: &Settings,
        twice: bool,
        seed: u64,
    ) -> Result<(), Stop> {
        let old = self.image.clone();
        let Some(sources) = self.sources(interface, source, seed)? else { return Ok(()) };
        self.files_of(settings)?;
        let mut model = sources.model;
        let mut image = Image {
            block: 4096,
            ignore: sources.ignore,
            devices: sources.devices,
            ..Image::default()
        };
        image.ignore.extend(Self::effects(settings, &mut model));
        if sources.marks_whiteouts {
            model.mark_origins();
        }
        let own = settings.has("--inode-digests") || settings.has("--xattr-inode-digest");
        let keeps = self.digests && matches!(source, Source::Erofs { .. });
        let digests = own || keeps && !settings.has("--no-xattrs") && !settings.has("-x-1");
        Self::add_digests(digests, &mut model);
        image.offset = settings.value("--offset").and_then(|value| value.parse().ok()).unwrap_or(0);
        image.erofs_utils_misreads = ["-m", "--chunk-size", "--chunksize", "48bit"]
            .iter()
            .any(|option| settings.has(option))
            || matches!(settings.value("--preset").as_deref(), Some("backup" | "smallest"));
        let block = settings.value("-b").and_then(|value| value.parse().ok());
        image.block = sources.block.or(block).unwrap_or(4096);
        for (option, name) in [("--chunk-device", "device"), ("--blobdev", "device")] {
            if settings.has(option) {
                self.workspace.allow(name);
                let _ = fs::remove_file(self.workspace.path(name));
                image.devices = vec![name.to_owned()];
            }
        }
        if settings.has("--block-list-file") {
            self.workspace.allow("blocks");
        }
        let command = |output: &str, settings: &Settings| match interface {
            Interface::Build => [
                words(&["build", "--force"]),
                settings.words(),
                sources.options.clone(),
                sources.paths.clone(),
                words(&[output]),
            ]
            .concat(),
            Interface::Mkfs => [
                words(&["mkfs.erofs"]),
                settings.words(),
                sources.options.clone(),
                words(&[output]),
                sources.paths.clone(),
            ]
            .concat(),
        };
        self.workspace.allow("new");
        if !self.run_for(&command("new", settings), sources.input.as_deref(), "new")? {
            // The old image's devices may have been written over.
            if old.is_some_and(|image| !image.devices.is_empty()) || !image.devices.is_empty() {
                self.image = None;
            }
            return Ok(());
        }
        // Without an option for the time, images have the current time.
        if twice && settings.has("-T") {
            self.check_other_workers(&command, settings, sources.input.as_deref())?;
        }
        fs::rename(self.workspace.path("new"), self.workspace.path("image"))?;
        self.workspace.allow("image");
        self.workspace.log.push("mv new image".into());
        // A device without data may not be needed.
        image.devices.retain(|device| self.workspace.path(device).exists());
        self.image = Some(image);
        self.digests = digests;
        self.model = model.clone();
        self.states = vec![model];
        self.compare_image()
    }

    /// Builds again with another number of workers.
    fn check_other_workers(
        &mut self,
        command: &impl Fn(&str, &Settings) -> Vec<OsString>,
        settings: &Settings,
        input: Option<&str>,
    ) -> Result<(), Stop> {
        let mut other = settings.clone();
        let stays = |word: &OsString| word != "--workers";
        other.0.retain(|setting| setting.words.first().is_none_or(stays));
        let workers = if settings.value("--workers").as_deref() == Some("1") { "4" } else { "1" };
        other.add(&["--workers", workers]);
        self.workspace.allow("again");
        // A build keeps the bytes before the image's offset in an existing file.
        let _ = fs::remove_file(self.workspace.path("again"));
        if !self.run_for(&command("again", &other), input, "again")? {
            return Err(Finding::new(
                "workers",
                "the second build refuses settings that the first one accepts",
            )
            .into());
        }
        let (one, two) =
            (fs::read(self.workspace.path("new"))?, fs::read(self.workspace.path("again"))?);
        if one != two {
            let at = one.iter().zip(&two).position(|(one, two)| one != two);
            return Err(Finding::new(
                "workers",
                format!("images differ, lengths {} and {}, at {at:?}", one.len(), two.len()),
            )
            .into());
        }
        Ok(())
    }

    fn extract(
        &mut self,
        settings: &Settings,
        again: Option<&'static str>,
        metadata: bool,
    ) -> Result<(), Stop> {
        let Some(image) = self.image.clone() else { return Ok(()) };
        let _ = fs::remove_dir_all(self.workspace.path("out"));
        self.workspace.allow("out");
        let mut command = [words(&["extract"]), settings.words()].concat();
        if metadata {
            self.workspace.allow("meta.json");
            command.extend(words(&["--metadata", "meta.json"]));
        }
        command.extend(image.words(&[], "image"));
        command.push("out".into());
        let outcome = self.workspace.ferofs(&command, None)?;
        if outcome.code != 0 {
            return Err(Finding::new(
                "extract",
                format!("exit {}: {}", outcome.code, outcome.stderr.trim()),
            )
            .into());
        }
        if let Some(option) = again {
            command.insert(1, option.into());
            let outcome = self.workspace.ferofs(&command, None)?;
            if outcome.code != 0 {
                return Err(Finding::new(
                    "extract",
                    format!("{option}: exit {}: {}", outcome.code, outcome.stderr.trim()),
                )
                .into());
            }
        }
        let mut model = self.model.clone();
        Self::effects(settings, &mut model);
        self.write_tree("kept", &model)?;
        oracles::directories("extract", self.workspace, "kept", "out", &image)
    }

    fn add(
        &mut self,
        interface: Interface,
        tar: bool,
        settings: &Settings,
        seed: u64,
    ) -> Result<(), Stop> {
        let mut settings = settings.clone();
        if interface == Interface::Mkfs {
            let taken = ["-z", "-C", "--workers"];
            settings.0.retain(|setting| {
                setting.words.first().is_some_and(|word| taken.iter().any(|known| word == known))
            });
        }
        let mut upper = self.model.addition(&mut Rng::new(seed));
        self.write_tree("upper", &upper)?;
        let mut source = "upper";
        if tar {
            sources::pack_tar(self.workspace, "upper", "upper.tar", false)?;
            archived(&mut upper);
            source = "upper.tar";
        }
        Self::effects(&settings, &mut upper);
        Self::add_digests(self.digests, &mut upper);
        let command = match interface {
            Interface::Build => {
                [words(&["patch", "add"]), settings.words(), words(&["image", source])].concat()
            }
            Interface::Mkfs => {
                let mut command = words(&[
                    "mkfs.erofs",
                    "--quiet",
                    if seed.is_multiple_of(2) { "--incremental" } else { "--incremental=data" },
                ]);
                command.extend(settings.words());
                if tar {
                    command.push("--tar=f".into());
                }
                command.extend(words(&["image", source]));
                command
            }
        };
        if !self.run_for(&command, None, "image")? {
            // A command that refused must have changed nothing.
            return self.compare_image();
        }
        if let Some(image) = &mut self.image {
            image.loose_parents |= settings.has("--loose-parents");
        }
        self.model = self.model.overlaid(&upper);
        if !tar || interface == Interface::Build {
            self.model.mark_origins();
        }
        self.states.push(self.model.clone());
        self.compare_image()
    }

    fn patch(&mut self, target: Target, settings: &Settings, seed: u64) -> Result<(), Stop> {
        let mut next = self.model.update(&mut Rng::new(seed));
        self.write_tree("next", &next)?;
        let source = match target {
            Target::Directory => "next",
            Target::Tar => {
                sources::pack_tar(self.workspace, "next", "next.tar", false)?;
                archived(&mut next);
                "next.tar"
            }
            Target::Image => {
                self.workspace.allow("next.erofs");
                let _ = fs::remove_file(self.workspace.path("next.erofs"));
                let mut simple = Settings::default();
                simple.add(&["-z", Rng::new(seed).pick(&["none", "lz4", "zstd,3", "deflate,3"])]);
                simple.add(&["-C", Rng::new(seed + 1).pick(&["4096", "16384", "65536"])]);
                simple.add(&[
                    "-E",
                    Rng::new(seed + 2).pick(&[
                        "48bit",
                        "fragments",
                        "dot-omitted",
                        "ztailpacking",
                        "sbcrc",
                    ]),
                ]);
                let command =
                    [words(&["build", "-q"]), simple.words(), words(&["next", "next.erofs"])]
                        .concat();
                if !self.run_for(&command, None, "next.erofs")? {
                    return Ok(());
                }
                "next.erofs"
            }
        };
        Self::effects(settings, &mut next);
        next.mark_origins();
        Self::add_digests(self.digests, &mut next);
        self.workspace.allow("update");
        let _ = fs::remove_file(self.workspace.path("update"));
        let command = [
            words(&["patch", "create"]),
            settings.words(),
            words(&["image", source, "-o", "update"]),
        ]
        .concat();
        if !self.run_for(&command, None, "update")? {
            return self.compare_image();
        }
        self.must(&["patch", "show", "--files", "update"])?;
        if self.rng.chance(if self.all { 100 } else { 10 }) {
            self.write_tree("want", &next)?;
            self.written = Some(next.clone());
            let image = self.image.clone().unwrap_or_default();
            oracles::overlay(self.workspace, "image", "update", &image)?;
        }
        self.must(&["patch", "apply", "image", "update"])?;
        if let Some(image) = &mut self.image {
            image.loose_parents |= settings.has("--loose-parents");
        }
        self.model = next;
        self.states.push(self.model.clone());
        self.compare_image()
    }

    /// Runs a command that must not refuse.
    fn must(&mut self, command: &[&str]) -> Result<(), Stop> {
        let outcome = self.workspace.ferofs(&words(command), None)?;
        if outcome.code != 0 {
            return Err(Finding::new(
                "refused",
                format!("exit {}: {}", outcome.code, outcome.stderr.trim()),
            )
            .into());
        }
        Ok(())
    }

    fn rollback(&mut self, first: bool) -> Result<(), Stop> {
        if self.states.len() < 2 {
            return Ok(());
        }
        self.must(&["patch", "log", "image"])?;
        self.must(&["patch", "log", "--json", "image"])?;
        let (options, state): (&[&str], usize) =
            if first { (&["--to", "0"], 0) } else { (&[], self.states.len() - 2) };
        self.must(&[&["patch", "rollback"], options, &["image"]].concat())?;
        self.model = self.states[state].clone();
        self.states.push(self.model.clone());
        self.compare_image()
    }

    fn squash(&mut self, settings: &Settings) -> Result<(), Stop> {
        self.workspace.allow("new");
        let command =
            [words(&["patch", "squash"]), settings.words(), words(&["image", "new"])].concat();
        if !self.run_for(&command, None, "new")? {
            return Ok(());
        }
        fs::rename(self.workspace.path("new"), self.workspace.path("image"))?;
        self.workspace.log.push("mv new image".into());
        self.states = vec![self.model.clone()];
        self.compare_image()
    }
}

/// A part of the message, and a short reason.
const KNOWN: &[(&str, &str)] = &[
    ("not a multiple of the block size", "a cluster size or -m below the block size"),
    ("for compact inodes", "values that inodes of 32 bytes cannot have"),
    ("but IDs are from 0 to 4294967294", "an offset that leads beyond the largest ID"),
    ("chunk size: not a power of two from a block", "chunks smaller than a block"),
    ("give -b", "--incremental into an image with another block size than -b"),
    ("needs a compressor (-z)", "compressed metadata without a compressor"),
    ("there is nothing to patch: both trees are the same", "a patch that changes nothing"),
    ("leaves out the labels of --file-contexts", "options that exclude each other"),
    ("cannot be used with", "options that exclude each other"),
    ("cannot be used multiple times", "an option that is given twice"),
    ("bytes name no device", "a device for chunks, whose addresses name no device"),
    ("or smaller than a block", "chunks smaller than a block"),
    ("the size is not a multiple of the block size", "hints of clusters below the block size"),
    ("largest extent: less than a block", "extents below the block size"),
    (
        "no free slot for another root directory",
        "a small image that has no free slot for another root",
    ),
];

/// The short reason, if the message of the command has a known one.
pub(crate) fn known(said: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(text, _)| said.contains(text)).map(|(_, reason)| *reason)
}
