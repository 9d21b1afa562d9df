//! Does the steps of a case, and keeps account of what the image must show.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use anyhow::Result;
use ferofs_tests::Outcome;
use ferofs_tests::compare::Field;
use ferofs_tests::rng::Rng;

use super::archive;
use super::judge::{self, Image, Judges};
use super::model::{File, Kind, Model, Name, join, parent};
use super::random::Choose;
use super::refusal;
use super::sequence::{Packed, Source, Step, Target};
use super::settings::{Front, Settings};
use super::stage::{Finding, Stage, Stop};
use super::tree;

/// What came of a case that has no finding.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Images that were made and judged.
    pub(super) images: u64,
    /// Known reasons for which a command refused, with how often.
    pub(super) refused: BTreeMap<&'static str, u64>,
}

/// A case while it runs.
struct Account<'a> {
    stage: &'a mut Stage,
    judges: &'a Judges,
    /// Ask all judges each time.
    all: bool,
    rng: Rng,
    /// What the image must show; before there is one, what is to be in it.
    model: Model,
    image: Option<Image>,
    /// What each state of the image shows, by its number.
    states: Vec<Model>,
    /// What the directory `want` has.
    planted: Option<Model>,
    /// Number of sources made, for names of their own: an image may have one of them as its device.
    sources: u64,
    tally: Tally,
}

/// Does the steps.
pub(super) fn perform(
    stage: &mut Stage,
    judges: &Judges,
    model: &Model,
    steps: &[Step],
    all: bool,
    rng: Rng,
) -> Result<Tally, Stop> {
    stage.clear()?;
    let mut account = Account {
        stage,
        judges,
        all,
        rng,
        model: model.clone(),
        image: None,
        states: Vec::new(),
        planted: None,
        sources: 0,
        tally: Tally::default(),
    };
    for step in steps {
        account.step(step)?;
    }
    Ok(account.tally)
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

impl Account<'_> {
    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Build { front, source, settings, twice, seed } => {
                self.build(*front, *source, settings, *twice, *seed)
            }
            _ if self.image.is_none() => Ok(()),
            Step::Extract { settings, again, metadata } => self.extract(settings, *again, *metadata),
            // Patches are for images alone in their file.
            _ if self.image.as_ref().is_some_and(|image| image.offset != 0 || !image.devices.is_empty()) => {
                Ok(())
            }
            Step::Add { front, tar, settings, seed } => self.add(*front, *tar, settings, *seed),
            Step::Patch { target, settings, seed } => self.patch(*target, settings, *seed),
            Step::Rollback { first } => self.rollback(*first),
            Step::Squash { settings } => self.squash(settings),
        }
    }

    /// Writes the files that settings name.
    fn files_of(&mut self, settings: &Settings) -> Result<()> {
        for (name, content) in settings.0.iter().filter_map(|setting| setting.file.as_ref()) {
            self.stage.file(name, content)?;
        }
        Ok(())
    }

    /// What the image shows after settings did their work on `model`, and what need not agree.
    fn effects(settings: &Settings, model: &mut Model) -> Vec<Field> {
        settings.0.iter().filter_map(|setting| setting.effect.apply(model)).collect()
    }

    /// Runs a command of ours that makes `output`. False if it refused for a known reason.
    fn made(&mut self, words: &[OsString], input: Option<&str>, output: &str) -> Result<bool, Stop> {
        let outcome = self.stage.ferofs(words, input)?;
        if outcome.code == 0 {
            return Ok(true);
        }
        if self.stage.path(output).exists() && output == "new" {
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
        match refusal::known(&outcome.stderr) {
            Some(reason) if outcome.code == 1 || outcome.code == 2 => {
                *self.tally.refused.entry(reason).or_default() += 1;
                Ok(())
            }
            _ => {
                Err(Finding::new("refused", format!("exit {}: {}", outcome.code, outcome.stderr.trim()))
                    .into())
            }
        }
    }

    fn plant(&mut self, name: &str, model: &Model) -> Result<()> {
        let dir = self.stage.directory(name)?;
        Ok(model.plant(&dir)?)
    }

    /// Compares the image with what it must show.
    fn judge(&mut self) -> Result<(), Stop> {
        self.tally.images += 1;
        if self.planted.as_ref() != Some(&self.model) {
            let model = self.model.clone();
            self.plant("want", &model)?;
            self.planted = Some(model);
        }
        let Some(image) = &self.image else { return Ok(()) };
        self.judges.judge(self.stage, image, "image", self.all, &mut self.rng)
    }

    fn build(
        &mut self,
        front: Front,
        source: Source,
        settings: &Settings,
        twice: bool,
        seed: u64,
    ) -> Result<(), Stop> {
        let old = self.image.clone();
        let Some(sources) = self.sources(front, source, seed)? else { return Ok(()) };
        self.files_of(settings)?;
        let mut model = sources.model;
        let mut image =
            Image { block: 4096, ignore: sources.ignore, devices: sources.devices, ..Image::default() };
        image.ignore.extend(Self::effects(settings, &mut model));
        image.offset = settings.value("--offset").and_then(|value| value.parse().ok()).unwrap_or(0);
        image.metabox = settings.has("-m");
        image.block = settings.value("-b").and_then(|value| value.parse().ok()).unwrap_or(4096);
        for (option, name) in [("--chunk-device", "device"), ("--blobdev", "device")] {
            if settings.has(option) {
                self.stage.allow(name);
                let _ = fs::remove_file(self.stage.path(name));
                image.devices = vec![name.to_owned()];
            }
        }
        if settings.has("--block-list-file") {
            self.stage.allow("blocks");
        }
        let command = |output: &str, settings: &Settings| match front {
            Front::Build => [
                words(&["build"]),
                settings.words(),
                sources.options.clone(),
                sources.paths.clone(),
                words(&[output]),
            ]
            .concat(),
            Front::Mkfs => [
                words(&["mkfs.erofs"]),
                settings.words(),
                sources.options.clone(),
                words(&[output]),
                sources.paths.clone(),
            ]
            .concat(),
        };
        self.stage.allow("new");
        if !self.made(&command("new", settings), sources.input.as_deref(), "new")? {
            // The old image's devices may have been written over.
            if old.is_some_and(|image| !image.devices.is_empty()) || !image.devices.is_empty() {
                self.image = None;
            }
            return Ok(());
        }
        if twice {
            self.same_bits(&command, settings, sources.input.as_deref())?;
        }
        fs::rename(self.stage.path("new"), self.stage.path("image"))?;
        self.stage.allow("image");
        self.stage.log.push("mv new image".into());
        // A device that nothing was put into may not be needed.
        image.devices.retain(|device| self.stage.path(device).exists());
        self.image = Some(image);
        self.model = model.clone();
        self.states = vec![model];
        self.judge()
    }

    /// Builds once more, by another number of workers.
    fn same_bits(
        &mut self,
        command: &impl Fn(&str, &Settings) -> Vec<OsString>,
        settings: &Settings,
        input: Option<&str>,
    ) -> Result<(), Stop> {
        let mut other = settings.clone();
        other.0.retain(|setting| setting.words.first().is_none_or(|word| word != "--workers"));
        let workers = if settings.value("--workers").as_deref() == Some("1") { "4" } else { "1" };
        other.add(&["--workers", workers]);
        self.stage.allow("again");
        if !self.made(&command("again", &other), input, "again")? {
            return Err(Finding::new("workers", "the second build refuses what the first does").into());
        }
        let (one, two) = (fs::read(self.stage.path("new"))?, fs::read(self.stage.path("again"))?);
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
        let _ = fs::remove_dir_all(self.stage.path("out"));
        self.stage.allow("out");
        let mut command = [words(&["extract"]), settings.words()].concat();
        if metadata {
            self.stage.allow("meta.json");
            command.extend(words(&["--metadata", "meta.json"]));
        }
        command.extend(image.words(&[], "image"));
        command.push("out".into());
        let outcome = self.stage.ferofs(&command, None)?;
        if outcome.code != 0 {
            return Err(
                Finding::new("extract", format!("exit {}: {}", outcome.code, outcome.stderr.trim())).into()
            );
        }
        if let Some(option) = again {
            command.insert(1, option.into());
            let outcome = self.stage.ferofs(&command, None)?;
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
        self.plant("kept", &model)?;
        judge::directories("extract", self.stage, "kept", "out", &image)
    }

    fn add(&mut self, front: Front, tar: bool, settings: &Settings, seed: u64) -> Result<(), Stop> {
        let mut settings = settings.clone();
        if front == Front::Mkfs {
            let taken = ["-z", "-C", "--workers"];
            settings.0.retain(|setting| {
                setting.words.first().is_some_and(|word| taken.iter().any(|known| word == known))
            });
        }
        let mut upper = tree::addition(&self.model, &mut Rng::new(seed));
        self.plant("upper", &upper)?;
        let mut source = "upper";
        if tar {
            archive::tar(self.stage, "upper", "upper.tar", false)?;
            archived(&mut upper);
            source = "upper.tar";
        }
        Self::effects(&settings, &mut upper);
        let command = match front {
            Front::Build => [words(&["patch", "add"]), settings.words(), words(&["image", source])].concat(),
            Front::Mkfs => {
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
        if !self.made(&command, None, "image")? {
            // What refused must have changed nothing.
            return self.judge();
        }
        self.model = self.model.overlaid(&upper);
        self.states.push(self.model.clone());
        self.judge()
    }

    fn patch(&mut self, target: Target, settings: &Settings, seed: u64) -> Result<(), Stop> {
        let mut next = tree::update(&self.model, &mut Rng::new(seed));
        self.plant("next", &next)?;
        let source = match target {
            Target::Directory => "next",
            Target::Tar => {
                archive::tar(self.stage, "next", "next.tar", false)?;
                archived(&mut next);
                "next.tar"
            }
            Target::Image => {
                self.stage.allow("next.erofs");
                let _ = fs::remove_file(self.stage.path("next.erofs"));
                let mut simple = Settings::default();
                simple.add(&["-z", Rng::new(seed).pick(&["none", "lz4", "zstd,3", "deflate,3"])]);
                simple.add(&["-C", Rng::new(seed + 1).pick(&["4096", "16384", "65536"])]);
                simple.add(&[
                    "-E",
                    Rng::new(seed + 2).pick(&["48bit", "fragments", "dot-omitted", "ztailpacking", "sbcrc"]),
                ]);
                let command =
                    [words(&["build", "-q"]), simple.words(), words(&["next", "next.erofs"])].concat();
                if !self.made(&command, None, "next.erofs")? {
                    return Ok(());
                }
                "next.erofs"
            }
        };
        Self::effects(settings, &mut next);
        self.stage.allow("update");
        let _ = fs::remove_file(self.stage.path("update"));
        let command =
            [words(&["patch", "create"]), settings.words(), words(&["image", source, "-o", "update"])]
                .concat();
        if !self.made(&command, None, "update")? {
            return self.judge();
        }
        self.must(&["patch", "show", "--files", "update"])?;
        if self.rng.chance(if self.all { 100 } else { 10 }) {
            self.plant("want", &next)?;
            self.planted = Some(next.clone());
            let image = self.image.clone().unwrap_or_default();
            judge::overlay(self.stage, "image", "update", &image)?;
        }
        self.must(&["patch", "apply", "image", "update"])?;
        if let Some(image) = &mut self.image {
            image.loose |= settings.has("--loose-parents");
        }
        self.model = next;
        self.states.push(self.model.clone());
        self.judge()
    }

    /// Runs a command that has no reason to refuse.
    fn must(&mut self, command: &[&str]) -> Result<(), Stop> {
        let outcome = self.stage.ferofs(&words(command), None)?;
        if outcome.code != 0 {
            return Err(
                Finding::new("refused", format!("exit {}: {}", outcome.code, outcome.stderr.trim())).into()
            );
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
        self.judge()
    }

    fn squash(&mut self, settings: &Settings) -> Result<(), Stop> {
        self.stage.allow("new");
        let command = [words(&["patch", "squash"]), settings.words(), words(&["image", "new"])].concat();
        if !self.made(&command, None, "new")? {
            return Ok(());
        }
        fs::rename(self.stage.path("new"), self.stage.path("image"))?;
        self.stage.log.push("mv new image".into());
        self.states = vec![self.model.clone()];
        self.judge()
    }
}

/// What a build reads.
struct Sources {
    options: Vec<OsString>,
    paths: Vec<OsString>,
    input: Option<String>,
    devices: Vec<String>,
    model: Model,
    ignore: Vec<Field>,
}

impl Account<'_> {
    /// Makes what the build reads, from the tree, or from the image that is there. None if this image cannot be a source.
    fn sources(&mut self, front: Front, source: Source, seed: u64) -> Result<Option<Sources>, Stop> {
        let mut sources = Sources {
            options: Vec::new(),
            paths: Vec::new(),
            input: None,
            devices: Vec::new(),
            model: self.model.clone(),
            ignore: Vec::new(),
        };
        let rng = &mut Rng::new(seed);
        match source {
            Source::Directory => {
                let model = self.model.clone();
                self.plant("tree", &model)?;
                if front == Front::Build && rng.chance(10) {
                    sources.options = words(&["--from", "dir"]);
                }
                sources.paths = words(&["tree"]);
            }
            Source::Tar { packed, own, index } => {
                self.tar_source(front, packed, own, index, &mut sources, rng)?
            }
            Source::Layers { index } => {
                sources.paths = self
                    .layers(&mut sources.model, Packed::Plain, rng)?
                    .into_iter()
                    .map(OsString::from)
                    .collect();
                if index {
                    sources.options = words(&["--index-only"]);
                    sources.devices =
                        sources.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
                }
            }
            Source::Oci { archive } => {
                let packed = rng.pick(&[Packed::Plain, Packed::Gzip, Packed::Zstd]);
                let layers = self.layers(&mut sources.model, packed, rng)?;
                archive::layout(self.stage, &layers)?;
                sources.paths = words(&["oci"]);
                if archive {
                    self.stage.allow("oci.tar");
                    self.stage.tool(
                        "tar",
                        &["-cf", "oci.tar", "-C", "oci", "oci-layout", "blobs", "index.json"],
                        None,
                    )?;
                    sources.paths = words(&["oci.tar"]);
                }
                sources.options = match front {
                    Front::Build if rng.chance(50) => words(&["--platform", "linux/s390x"]),
                    Front::Build => words(&["--image-name", "s390x", "--from", "oci"]),
                    Front::Mkfs => words(&["--oci=f,platform=linux/s390x"]),
                };
            }
            Source::Erofs { layers, index } => {
                let Some(image) =
                    self.image.clone().filter(|image| image.offset == 0 && image.devices.is_empty())
                else {
                    return Ok(None);
                };
                self.sources += 1;
                let lower = format!("lower{}.erofs", self.sources);
                self.stage.allow(&lower);
                fs::copy(self.stage.path("image"), self.stage.path(&lower))?;
                self.stage.log.push(format!("cp image {lower}"));
                sources.ignore = image.ignore;
                sources.paths = words(&[&lower]);
                if layers {
                    let upper = tree::addition(&self.model, rng);
                    self.plant("upper", &upper)?;
                    self.stage.allow("upper.erofs");
                    let block = image.block.to_string();
                    if !self.made(
                        &words(&["build", "-q", "-b", &block, "upper", "upper.erofs"]),
                        None,
                        "upper.erofs",
                    )? {
                        return Ok(None);
                    }
                    sources.paths = words(&[&lower, "upper.erofs"]);
                    sources.model = self.model.overlaid(&upper);
                    let strip = front == Front::Build || rng.chance(50);
                    if strip {
                        sources.model.drop_overlay();
                    }
                    if front == Front::Mkfs && strip {
                        sources.options.push("--ovlfs-strip=1".into());
                    }
                }
                match front {
                    Front::Build if index => sources.options.push("--index-only".into()),
                    Front::Build => sources.options.extend(words(&["--from", "erofs"])),
                    Front::Mkfs if !index => sources.options.push("--clean=data".into()),
                    Front::Mkfs => {}
                }
                if index {
                    sources.devices =
                        sources.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
                }
            }
        }
        Ok(Some(sources))
    }

    fn tar_source(
        &mut self,
        front: Front,
        packed: Packed,
        own: bool,
        index: bool,
        sources: &mut Sources,
        rng: &mut Rng,
    ) -> Result<(), Stop> {
        self.sources += 1;
        let tar = format!("t{}.tar", self.sources);
        match self.image.clone().filter(|_| own) {
            Some(image) => {
                self.stage.allow(&tar);
                let command = image.words(&["extract", "-q", "--tar", &tar], "image");
                let outcome = self.stage.ferofs(&command, None)?;
                if outcome.code != 0 {
                    return Err(Finding::new(
                        "extract",
                        format!("--tar: exit {}: {}", outcome.code, outcome.stderr.trim()),
                    )
                    .into());
                }
                sources.ignore = image.ignore;
            }
            None => {
                let model = self.model.clone();
                self.plant("tree", &model)?;
                archive::tar(self.stage, "tree", &tar, packed == Packed::Sparse)?;
            }
        }
        if own && self.image.is_some() {
            without_sockets(&mut sources.model);
        } else {
            archived(&mut sources.model);
        }
        let file = archive::pack(self.stage, &tar, packed)?;
        sources.options = match front {
            Front::Build if index => words(&["--index-only"]),
            Front::Build if rng.chance(30) => words(&["--from", "tar"]),
            Front::Build => Vec::new(),
            Front::Mkfs => words(&[if index { "--tar=i" } else { rng.pick(&["--tar=f", "--tar"]) }]),
        };
        if rng.chance(10) {
            sources.options.push("--aufs".into());
        }
        if front == Front::Mkfs {
            match packed {
                Packed::Gzip => sources.options.push("--ungzip".into()),
                Packed::Xz => sources.options.push("--unxz".into()),
                _ if rng.chance(10) => sources.options.push(rng.pick(&["--sort=none", "--sort=path"]).into()),
                _ => {}
            }
        }
        if packed == Packed::Pipe {
            sources.input = Some(file);
            sources.paths = if front == Front::Build { words(&["-"]) } else { Vec::new() };
        } else {
            if index {
                sources.devices = vec![file.clone()];
            }
            sources.paths = vec![file.into()];
        }
        Ok(())
    }

    /// Makes archives that are layers, and what they show together.
    fn layers(&mut self, model: &mut Model, packed: Packed, rng: &mut Rng) -> Result<Vec<String>, Stop> {
        let lower = model.clone();
        self.plant("tree", &lower)?;
        archive::tar(self.stage, "tree", "layer0.tar", false)?;
        archived(model);
        let mut names = vec![archive::pack(self.stage, "layer0.tar", packed)?];
        for number in 1..=rng.pick(&[0, 1, 1, 2]) {
            let mut upper = tree::addition(model, rng);
            let removed: Vec<Name> =
                model.names.keys().filter(|name| !name.is_empty() && rng.chance(12)).cloned().collect();
            let mut merged = model.clone();
            let mut signs = upper.clone();
            archived(&mut upper);
            for name in removed {
                let dir = parent(&name).to_vec();
                let last = &name[if dir.is_empty() { 0 } else { dir.len() + 1 }..];
                let in_upper = signs.at(&dir).is_some_and(|file| file.kind.is_directory());
                // Names of 255 bytes have no room for the sign.
                if !in_upper || last.len() > 250 || signs.names.contains_key(&name) {
                    continue;
                }
                merged.remove(&name);
                signs.add(
                    join(&dir, &[b".wh.", last].concat()),
                    File {
                        kind: Kind::Regular(Vec::new()),
                        mode: 0o644,
                        uid: 0,
                        gid: 0,
                        time: (0, 0),
                        xattrs: BTreeMap::new(),
                    },
                );
            }
            let (dir, file) = (format!("layer{number}"), format!("layer{number}.tar"));
            self.plant(&dir, &signs)?;
            archive::tar(self.stage, &dir, &file, false)?;
            names.push(archive::pack(self.stage, &file, packed)?);
            *model = merged.overlaid(&upper);
        }
        Ok(names)
    }
}

/// What a tar cannot have.
fn without_sockets(model: &mut Model) {
    let sockets = model.list(|kind| *kind == Kind::Socket);
    sockets.iter().for_each(|name| model.remove(name));
}

/// What GNU tar leaves of a tree: no sockets, and no hard links of devices and fifos.
fn archived(model: &mut Model) {
    without_sockets(model);
    let Model { names, files } = model;
    for number in names.values_mut() {
        if matches!(files[*number].kind, Kind::Fifo | Kind::Character(..) | Kind::Block(..)) {
            files.push(files[*number].clone());
            *number = files.len() - 1;
        }
    }
}
