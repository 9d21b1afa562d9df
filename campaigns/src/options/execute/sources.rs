//! Creates the source of a build: a directory, archives of several forms, layers, or earlier
//! images.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use anyhow::Result;
use ferofs_tests::compare::Field;
use ferofs_tests::model::{File, Kind, Model, Name, join, parent};
use ferofs_tests::oci;
use ferofs_tests::rng::Rng;

use super::perform::{Account, words};
use super::workspace::{Finding, Stop, Workspace};
use crate::options::generate::sequence::{Packed, Source};
use crate::options::generate::settings::Interface;

/// The source of a build.
pub(crate) struct Sources {
    pub(crate) options: Vec<OsString>,
    pub(crate) paths: Vec<OsString>,
    pub(crate) input: Option<String>,
    pub(crate) devices: Vec<String>,
    pub(crate) model: Model,
    pub(crate) ignore: Vec<Field>,
    /// Whether directories with whiteouts get the attribute that overlayfs requires after all
    /// options.
    pub(crate) marks_whiteouts: bool,
    /// The block size of an image that refers to other images.
    pub(crate) block: Option<u32>,
}

impl Account<'_> {
    /// Creates the source from the tree or from the existing image. `None` if this image cannot be
    /// a source.
    pub(crate) fn sources(
        &mut self,
        interface: Interface,
        source: Source,
        seed: u64,
    ) -> Result<Option<Sources>, Stop> {
        let mut sources = Sources {
            options: Vec::new(),
            paths: Vec::new(),
            input: None,
            devices: Vec::new(),
            model: self.model.clone(),
            ignore: Vec::new(),
            marks_whiteouts: false,
            block: None,
        };
        let rng = &mut Rng::new(seed);
        match source {
            Source::Directory => {
                let model = self.model.clone();
                self.write_tree("tree", &model)?;
                if interface == Interface::Build && rng.chance(10) {
                    sources.options = words(&["--from", "dir"]);
                }
                sources.paths = words(&["tree"]);
            }
            Source::Tar { packed, own, index } => {
                self.tar_source(interface, packed, own, index, &mut sources, rng)?
            }
            Source::Layers { index } => {
                sources.paths = self
                    .layers(&mut sources.model, Packed::Plain, rng)?
                    .into_iter()
                    .map(OsString::from)
                    .collect();
                if index {
                    sources.options = words(&["--index-only"]);
                    sources.devices = sources
                        .paths
                        .iter()
                        .map(|path| path.to_string_lossy().into_owned())
                        .collect();
                }
            }
            Source::Oci { archive } => {
                let packed = rng.pick(&[Packed::Plain, Packed::Gzip, Packed::Zstd]);
                let layers = self.layers(&mut sources.model, packed, rng)?;
                layout(self.workspace, &layers)?;
                sources.paths = words(&["oci"]);
                if archive {
                    self.workspace.allow("oci.tar");
                    self.workspace.tool(
                        "tar",
                        &["-cf", "oci.tar", "-C", "oci", "oci-layout", "blobs", "index.json"],
                        None,
                    )?;
                    sources.paths = words(&["oci.tar"]);
                }
                sources.options = match interface {
                    Interface::Build if rng.chance(50) => words(&["--platform", "linux/s390x"]),
                    Interface::Build => words(&["--image-name", "s390x", "--from", "oci"]),
                    Interface::Mkfs => words(&["--oci=f,platform=linux/s390x"]),
                };
            }
            Source::Erofs { layers, index } => {
                let Some(image) = self
                    .image
                    .clone()
                    .filter(|image| image.offset == 0 && image.devices.is_empty())
                else {
                    return Ok(None);
                };
                self.sources += 1;
                let lower = format!("lower{}.erofs", self.sources);
                self.workspace.allow(&lower);
                fs::copy(self.workspace.path("image"), self.workspace.path(&lower))?;
                self.workspace.log.push(format!("cp image {lower}"));
                sources.ignore = image.ignore;
                sources.paths = words(&[&lower]);
                if layers {
                    let upper = self.model.addition(rng);
                    self.write_tree("upper", &upper)?;
                    self.workspace.allow("upper.erofs");
                    let block = image.block.to_string();
                    if !self.run_for(
                        &words(&["build", "-q", "-b", &block, "upper", "upper.erofs"]),
                        None,
                        "upper.erofs",
                    )? {
                        return Ok(None);
                    }
                    sources.paths = words(&[&lower, "upper.erofs"]);
                    sources.model = self.model.overlaid(&upper);
                    let strip = interface == Interface::Build || rng.chance(50);
                    if strip {
                        sources.model.drop_overlay();
                    } else {
                        sources.model.mark_origins();
                    }
                    if interface == Interface::Mkfs && strip {
                        sources.options.push("--ovlfs-strip=1".into());
                    }
                }
                match interface {
                    Interface::Build if index => sources.options.push("--index-only".into()),
                    Interface::Build => sources.options.extend(words(&["--from", "erofs"])),
                    Interface::Mkfs if !index => sources.options.push("--clean=data".into()),
                    Interface::Mkfs => {}
                }
                if index {
                    sources.block = Some(image.block);
                    sources.devices = sources
                        .paths
                        .iter()
                        .map(|path| path.to_string_lossy().into_owned())
                        .collect();
                }
            }
        }
        // Builds set what overlayfs requires on the directories of whiteouts. mkfs.erofs takes devices
        // of archives for whiteouts only if it is asked for.
        let has_devices = matches!(source, Source::Tar { .. }) && interface == Interface::Mkfs;
        match source {
            Source::Directory => sources.marks_whiteouts = true,
            _ if has_devices && sources.options.iter().all(|option| option != "--aufs") => {}
            _ => sources.model.mark_origins(),
        }
        Ok(Some(sources))
    }

    fn tar_source(
        &mut self,
        interface: Interface,
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
                self.workspace.allow(&tar);
                let command = image.words(&["extract", "-q", "--tar", &tar], "image");
                let outcome = self.workspace.ferofs(&command, None)?;
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
                self.write_tree("tree", &model)?;
                pack_tar(self.workspace, "tree", &tar, packed == Packed::Sparse)?;
            }
        }
        if own && self.image.is_some() {
            sources.model.drop_sockets();
        } else {
            archived(&mut sources.model);
        }
        let file = pack(self.workspace, &tar, packed)?;
        sources.options = match interface {
            Interface::Build if index => words(&["--index-only"]),
            Interface::Build if rng.chance(30) => words(&["--from", "tar"]),
            Interface::Build => Vec::new(),
            Interface::Mkfs => {
                words(&[if index { "--tar=i" } else { rng.pick(&["--tar=f", "--tar"]) }])
            }
        };
        if rng.chance(10) {
            sources.options.push("--aufs".into());
        }
        if interface == Interface::Mkfs {
            match packed {
                Packed::Gzip => sources.options.push("--ungzip".into()),
                Packed::Xz => sources.options.push("--unxz".into()),
                _ if rng.chance(10) => {
                    sources.options.push(rng.pick(&["--sort=none", "--sort=path"]).into())
                }
                _ => {}
            }
        }
        if packed == Packed::Pipe {
            sources.input = Some(file);
            sources.paths = if interface == Interface::Build { words(&["-"]) } else { Vec::new() };
        } else {
            if index {
                sources.devices = vec![file.clone()];
            }
            sources.paths = vec![file.into()];
        }
        Ok(())
    }

    /// Creates archives for layers, and the merged tree.
    fn layers(
        &mut self,
        model: &mut Model,
        packed: Packed,
        rng: &mut Rng,
    ) -> Result<Vec<String>, Stop> {
        let lower = model.clone();
        self.write_tree("tree", &lower)?;
        pack_tar(self.workspace, "tree", "layer0.tar", false)?;
        archived(model);
        let mut names = vec![pack(self.workspace, "layer0.tar", packed)?];
        for number in 1..=rng.pick(&[0, 1, 1, 2]) {
            let mut upper = model.addition(rng);
            let removed: Vec<Name> = model
                .names
                .keys()
                .filter(|name| !name.is_empty() && rng.chance(12))
                .cloned()
                .collect();
            let mut merged = model.clone();
            let mut whiteouts = upper.clone();
            archived(&mut upper);
            for name in removed {
                let dir = parent(&name).to_vec();
                let last = &name[if dir.is_empty() { 0 } else { dir.len() + 1 }..];
                let in_upper = whiteouts.at(&dir).is_some_and(|file| file.kind.is_directory());
                // Names of 255 bytes are too long for the whiteout prefix.
                if !in_upper || last.len() > 250 || whiteouts.names.contains_key(&name) {
                    continue;
                }
                merged.remove(&name);
                whiteouts.add(
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
            self.write_tree(&dir, &whiteouts)?;
            pack_tar(self.workspace, &dir, &file, false)?;
            names.push(pack(self.workspace, &file, packed)?);
            *model = merged.overlaid(&upper);
        }
        Ok(names)
    }
}

/// The tree in an archive by GNU tar: no sockets, and no hard links of devices and fifos.
pub(crate) fn archived(model: &mut Model) {
    model.drop_sockets();
    let Model { names, files } = model;
    for number in names.values_mut() {
        if matches!(files[*number].kind, Kind::Fifo | Kind::Character(..) | Kind::Block(..)) {
            files.push(files[*number].clone());
            *number = files.len() - 1;
        }
    }
}

/// Makes the archive `file` of the directory `dir`, with everything that a tar archive can contain.
pub(crate) fn pack_tar(
    workspace: &mut Workspace,
    dir: &str,
    file: &str,
    sparse: bool,
) -> Result<(), Stop> {
    workspace.allow(file);
    let mut words = vec![
        "--format=pax",
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "--sort=name",
        "--warning=no-file-ignored",
    ];
    if sparse {
        words.push("-S");
    }
    words.extend(["-cf", file, "-C", dir, "."]);
    workspace.tool("tar", &words, None)?;
    Ok(())
}

/// Compresses `file` and returns the name of the result.
pub(crate) fn pack(workspace: &mut Workspace, file: &str, packed: Packed) -> Result<String, Stop> {
    let (tool, suffix) = match packed {
        Packed::Gzip => ("gzip", "gz"),
        Packed::Xz => ("xz", "xz"),
        Packed::Zstd => ("zstd", "zst"),
        Packed::Plain | Packed::Sparse | Packed::Pipe => return Ok(file.to_owned()),
    };
    let name = format!("{file}.{suffix}");
    let outcome = workspace.tool(tool, &["-c", "-1", file], None)?;
    workspace.file(&name, &outcome.stdout)?;
    Ok(name)
}

/// Makes an image layout in the directory `oci` with one image of these layers, and an empty image
/// for another architecture.
pub(crate) fn layout(workspace: &mut Workspace, layers: &[String]) -> Result<(), Stop> {
    let layout = oci::Layout::new(workspace.directory("oci")?)?;
    let mut listed = Vec::new();
    for layer in layers {
        let packed = match layer.rsplit('.').next() {
            Some("gz") => "+gzip",
            Some("zst") => "+zstd",
            _ => "",
        };
        let bytes = fs::read(workspace.path(layer))?;
        listed.push(layout.add(&format!("{}{packed}", oci::LAYER), &bytes, "")?);
    }
    let image = |machine: &str, layers: &[String]| {
        layout.image(machine, layers, &[oci::platform(machine), oci::name(machine)].concat())
    };
    layout.index(&[image("riscv64", &[])?, image("s390x", &listed)?])?;
    Ok(())
}
