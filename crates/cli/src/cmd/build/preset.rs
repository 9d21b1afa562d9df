//! The compression that a command line asks for: a preset or a level, changed by `-z`, `-C` and `-E`. For `ferofs build` and the commands that
//! build images for registries.

use std::fmt;

use clap::ValueEnum;
use ferofs::build::{BlockSize, ContentOrder};

use crate::args::byte_size;
use crate::args::compression::CompressionOptions;
use crate::args::features::{ExtendedError, ExtendedOptions};

/// The purpose of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// The settings of `ferofs build` without other options: LZ4, pclusters of 64 KiB, fragments. Built nearly as fast as fast, and a fifth
    /// smaller. Linux 6.1
    Default,
    /// Fast to build and to read: LZ4, pclusters of one block. Linux 5.4
    Fast,
    /// Half as large as default, built in some times its time: Zstandard level 12, pclusters of 1 MiB, fragments. Random reads decode
    /// much data. Linux 6.10
    Small,
    /// For archives that are read as a whole: LZMA, pclusters of 1 MiB, all files as fragments in the order of similarity, compressed
    /// metadata. Built slowly; random reads decode megabytes. Linux 6.17
    Smallest,
    /// For system partitions of phones: LZ4HC level 9, pclusters of one block, because phones have little memory and
    /// read at random. Linux 5.4
    Android,
    /// For many versions of the same trees: Zstandard level 15, pclusters of 1 MiB, fragments in the order of similarity, large files by LZMA,
    /// compressed metadata. Whole trees are read at a useful speed, single files slowly. Linux 6.17
    Backup,
}

/// The order in which the content of files is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// As a program reads the whole tree
    Tree,
    /// Versions of a file are adjacent, which large pclusters of fragments need to compress them as one. Directories with mostly the same names
    /// are versions of each other
    Similar,
    /// similar if half of the content has versions, and there are fragments; else tree
    Auto,
}

impl Order {
    pub(crate) const fn content_order(self) -> ContentOrder {
        match self {
            Self::Tree => ContentOrder::Tree,
            Self::Similar => ContentOrder::Similar,
            Self::Auto => ContentOrder::Auto,
        }
    }
}

/// Values of the options that a preset or a level sets. Options on the command line change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `-z`.
    compress: &'static str,
    /// `-C`, in bytes; `None`: one block.
    cluster: Option<u32>,
    /// `-E`.
    features: &'static [&'static str],
    redundant: Option<Redundant>,
}

/// Further settings, of presets for redundant trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Redundant {
    /// `--compress-large`.
    large: Option<&'static str>,
    /// `-m`, with `--compress-directories`.
    metadata: &'static str,
    /// `--order`.
    order: Order,
}

impl Redundant {
    const fn new(large: Option<&'static str>) -> Option<Self> {
        Some(Self { large, metadata: "64K", order: Order::Similar })
    }
}

impl Preset {
    pub(crate) const fn settings(self) -> Settings {
        let (compress, cluster, features, redundant): (_, _, &[_], _) = match self {
            Self::Default => ("lz4", Some(64 << 10), &["fragments"], None),
            Self::Fast => ("lz4", None, &[], None),
            Self::Small => ("zstd,12", Some(1 << 20), &["fragments"], None),
            Self::Smallest => ("lzma,6", Some(1 << 20), &["all-fragments"], Redundant::new(None)),
            Self::Android => ("lz4hc,9", None, &[], None),
            Self::Backup => (
                "zstd,15",
                Some(1 << 20),
                &["all-fragments", "48bit"],
                Redundant::new(Some("lzma,6")),
            ),
        };
        Settings { compress, cluster, features, redundant }
    }
}

/// The settings of the levels `-0` to `-9`: each is smaller than the one before it, and is built more slowly. docs/guide/settings.md has the
/// measurements.
const LEVELS: [Settings; 10] = {
    const fn zstd(compress: &'static str) -> Settings {
        Settings { compress, cluster: Some(1 << 20), features: &["fragments"], redundant: None }
    }
    [
        Settings { compress: "none", ..Preset::Fast.settings() },
        Preset::Fast.settings(),
        Preset::Default.settings(),
        zstd("zstd,1"),
        zstd("zstd,3"),
        zstd("zstd,6"),
        Preset::Small.settings(),
        zstd("zstd,17"),
        zstd("zstd,19"),
        Settings {
            compress: "lzma,6",
            cluster: Some(1 << 20),
            features: &["all-fragments"],
            redundant: None,
        },
    ]
};

/// The level that one of the options `-0` to `-9` selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level(Option<u8>);

impl Level {
    pub(crate) fn settings(self) -> Option<Settings> {
        LEVELS.get(usize::from(self.0?)).copied()
    }
}

const LEVEL_OPTIONS: [(char, &str); 10] = [
    ('0', "level0"),
    ('1', "level1"),
    ('2', "level2"),
    ('3', "level3"),
    ('4', "level4"),
    ('5', "level5"),
    ('6', "level6"),
    ('7', "level7"),
    ('8', "level8"),
    ('9', "level9"),
];

// By hand: ten flags that give one number.
impl clap::Args for Level {
    fn augment_args(command: clap::Command) -> clap::Command {
        let flags = LEVEL_OPTIONS.map(|(option, id)| {
            let flag = clap::Arg::new(id).short(option).action(clap::ArgAction::SetTrue).hide(option != '1');
            flag.help("Instead: -0 (stored) to -9 (smallest, slowest)")
                .long_help("Use a level instead of a preset: -0 (stored) to -9 (smallest, slowest). -z, -C and -E change it as they change a preset")
                .conflicts_with("preset")
        });
        let group = clap::ArgGroup::new("level").args(LEVEL_OPTIONS.map(|(_, id)| id));
        command.args(flags).group(group)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Level {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let number = LEVEL_OPTIONS.iter().zip(0..).find(|((_, id), _)| matches.get_flag(id));
        Ok(Self(number.map(|(_, number)| number)))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The values of `-z`, `-C` and `-E` that apply, from the command line and from a preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// `-z`; `None`: data is stored uncompressed.
    pub(crate) compressors: Option<String>,
    /// `-C`, in bytes.
    pub(crate) cluster: Option<u32>,
    /// `-E`.
    pub(crate) features: Vec<String>,
    /// `--compress-large`.
    pub(crate) large: Option<String>,
    /// `-m`.
    pub(crate) metadata: Option<String>,
    /// `--compress-directories`.
    pub(crate) directories: bool,
    /// `--order`.
    pub(crate) order: Option<Order>,
    /// `--chunk-size`, in bytes.
    pub(crate) chunk_size: Option<u64>,
}

/// Names of `-E` that are about the compression of files only.
const COMPRESSION_FEATURES: [&str; 7] = [
    "all-fragments",
    "dedupe",
    "fragdedupe",
    "fragments",
    "legacy-compress",
    "no-fragments",
    "ztailpacking",
];

impl Form {
    /// Combines a preset or a level with `-z` (`compress`), `-C` (`cluster`) and `-E` (`features`): each replaces or extends only its own part of the
    /// preset. Without compression (`-z none`), nothing of the preset applies.
    pub(crate) fn new(
        preset: Option<Settings>,
        compress: Option<&str>,
        cluster: Option<u32>,
        features: &[String],
        block: BlockSize,
    ) -> Self {
        let compress =
            compress.or(preset.map(|preset| preset.compress)).filter(|name| *name != "none");
        let preset = preset.filter(|_| compress.is_some());
        // The limits of the format, which other block sizes than 4096 reach.
        let (smallest, largest) =
            (block.bytes() as u32, (block.bytes() as u32).saturating_mul(256));
        let preset_cluster =
            preset.and_then(|preset| preset.cluster).map(|size| size.clamp(smallest, largest));
        let redundant = preset.and_then(|preset| preset.redundant);
        let preset_features = preset.map_or(&[][..], |preset| preset.features);
        Self {
            compressors: compress.map(str::to_owned),
            cluster: cluster.or(preset_cluster),
            features: preset_features
                .iter()
                .map(|name| (*name).to_owned())
                .chain(features.iter().cloned())
                .collect(),
            large: redundant.and_then(|redundant| redundant.large).map(str::to_owned),
            metadata: redundant.map(|redundant| redundant.metadata.to_owned()),
            directories: redundant.is_some(),
            order: redundant.map(|redundant| redundant.order),
            chunk_size: None,
        }
    }

    /// The form of an image whose files are stored in chunks of `size` bytes, which are not compressed: without the options that have no effect.
    pub(crate) fn in_chunks(self, size: u64) -> Self {
        let chunk_size = Some(size);
        if self.metadata.is_some() || self.directories {
            return Self { chunk_size, ..self };
        }
        let has_effect = |feature: &&str| {
            let name = feature.split('=').next().unwrap_or_default();
            !COMPRESSION_FEATURES.contains(&name.trim_start_matches('^'))
        };
        let features =
            self.features.iter().flat_map(|features| features.split(',')).filter(has_effect);
        let features = features.map(str::to_owned).collect();
        Self { compressors: None, cluster: None, large: None, features, chunk_size, ..self }
    }

    /// Adds the features with which patches grow an image least, before those that the command line has (`given`), which win: no tails of files
    /// behind inodes, which are copied whenever an attribute changes.
    pub(crate) fn keep_tails_apart(&mut self, given: &[String]) {
        let own = self.features.len().saturating_sub(given.len());
        let tails: &[&str] = match self.compressors {
            None => &["^inline_data"],
            // All of the tails are in them already, or whole files.
            Some(_) if self.features.iter().take(own).any(|name| name.contains("fragments")) => &[],
            Some(_) => &["^ztailpacking", "fragments"],
        };
        self.features.splice(own..own, tails.iter().map(|name| (*name).to_owned()));
    }

    /// The options about compression, without those that no preset sets.
    pub(crate) fn compression(&self) -> CompressionOptions<'_> {
        CompressionOptions {
            compressors: self.compressors.as_deref(),
            pcluster: self.cluster,
            metadata: self.metadata.as_deref(),
            directories: self.directories.then_some("--compress-directories"),
            large: self.large.as_deref(),
            ..CompressionOptions::default()
        }
    }

    /// Parses the values of `-E`.
    pub(crate) fn extended(&self) -> Result<ExtendedOptions, ExtendedError> {
        ExtendedOptions::parse(self.features.iter().map(String::as_str))
    }
}

/// The options that give the same form: `-z zstd,19 -C 256K -E fragments`.
impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-z {}", self.compressors.as_deref().unwrap_or("none"))?;
        if let Some(size) = self.cluster {
            write!(f, " -C {}", byte_size::exact(size.into()))?;
        }
        if !self.features.is_empty() {
            write!(f, " -E {}", self.features.join(","))?;
        }
        if let Some(large) = &self.large {
            write!(f, " --compress-large {large}")?;
        }
        if let Some(metadata) = &self.metadata {
            write!(f, " -m {metadata}")?;
        }
        if self.directories {
            write!(f, " --compress-directories")?;
        }
        if let Some(size) = self.chunk_size {
            write!(f, " --chunk-size {}", byte_size::exact(size))?;
        }
        if let Some(name) = self.order.as_ref().and_then(Order::to_possible_value) {
            write!(f, " --order {}", name.get_name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(
        preset: Preset,
        compress: Option<&str>,
        cluster: Option<u32>,
        features: &[&str],
    ) -> String {
        let features: Vec<String> = features.iter().map(|name| (*name).to_owned()).collect();
        Form::new(Some(preset.settings()), compress, cluster, &features, BlockSize::DEFAULT)
            .to_string()
    }

    #[test]
    fn images_for_updates_keep_tails_apart_unless_the_features_are_given() {
        let form = |preset: Option<Preset>, compress: Option<&str>, given: &[&str]| {
            let given: Vec<String> = given.iter().map(|name| (*name).to_owned()).collect();
            let preset = preset.map(Preset::settings);
            let mut form = Form::new(preset, compress, None, &given, BlockSize::DEFAULT);
            form.keep_tails_apart(&given);
            form.extended().unwrap()
        };
        let kept =
            |form: ExtendedOptions| (form.fragments.is_some(), form.tail_packing, form.inline_data);
        assert_eq!(kept(form(Some(Preset::Fast), None, &[])), (true, false, true));
        assert_eq!(kept(form(None, Some("zstd"), &["dedupe"])), (true, false, true));
        assert_eq!(kept(form(Some(Preset::Default), None, &[])), (true, false, true));
        assert!(form(Some(Preset::Backup), None, &[]).fragments.unwrap().all);
        assert_eq!(kept(form(None, Some("none"), &[])), (false, false, false));
        // Given options win.
        assert_eq!(kept(form(Some(Preset::Fast), None, &["^fragments"])), (false, false, true));
        assert_eq!(
            kept(form(None, Some("lz4"), &["^fragments", "ztailpacking"])),
            (false, true, true)
        );
        assert_eq!(kept(form(None, Some("none"), &["inline_data"])), (false, false, true));
    }

    #[test]
    fn an_option_changes_only_its_own_part_of_a_preset() {
        assert_eq!(form(Preset::Small, None, None, &[]), "-z zstd,12 -C 1M -E fragments");
        assert_eq!(
            form(Preset::Small, None, None, &["dedupe"]),
            "-z zstd,12 -C 1M -E fragments,dedupe"
        );
        assert_eq!(form(Preset::Small, Some("zstd,3"), None, &[]), "-z zstd,3 -C 1M -E fragments");
        assert_eq!(
            form(Preset::Small, None, Some(64 << 10), &[]),
            "-z zstd,12 -C 64K -E fragments"
        );
        assert_eq!(form(Preset::Small, Some("none"), None, &[]), "-z none");
        let backup = "-C 1M -E all-fragments,48bit --compress-large lzma,6 -m 64K --compress-directories --order similar";
        assert_eq!(form(Preset::Backup, None, None, &[]), format!("-z zstd,15 {backup}"));
        assert_eq!(form(Preset::Backup, Some("none"), None, &[]), "-z none");
        let smallest =
            "-z lzma,6 -C 1M -E all-fragments -m 64K --compress-directories --order similar";
        assert_eq!(form(Preset::Smallest, None, None, &[]), smallest);
    }

    #[test]
    fn files_in_chunks_are_not_compressed() {
        let chunks = |preset: Preset, features: &[&str]| {
            let features: Vec<String> = features.iter().map(|name| (*name).to_owned()).collect();
            let form =
                Form::new(Some(preset.settings()), None, None, &features, BlockSize::DEFAULT);
            form.in_chunks(64 << 10).to_string()
        };
        assert_eq!(chunks(Preset::Small, &["^dedupe,48bit"]), "-z none -E 48bit --chunk-size 64K");
        // Metadata is.
        let smallest = "-z lzma,6 -C 1M -E all-fragments -m 64K --compress-directories --chunk-size 64K --order similar";
        assert_eq!(chunks(Preset::Smallest, &[]), smallest);
    }

    #[test]
    fn every_level_is_a_valid_form() {
        for settings in LEVELS {
            let form = Form::new(Some(settings), None, None, &[], BlockSize::DEFAULT);
            assert!(form.extended().is_ok(), "{form}");
            if let Some(compressors) = &form.compressors {
                crate::args::compression::methods(compressors, form.cluster.unwrap_or(4096))
                    .unwrap();
            }
        }
    }

    #[test]
    fn a_feature_of_a_preset_can_be_turned_off() {
        let features = ["^fragments".to_owned()];
        let form =
            Form::new(Some(Preset::Small.settings()), None, None, &features, BlockSize::DEFAULT);
        assert_eq!(form.extended().unwrap().fragments, None);
    }

    #[test]
    fn the_cluster_size_of_a_preset_fits_the_block_size() {
        let size = |bytes| {
            let block = BlockSize::from_bytes(bytes).unwrap();
            Form::new(Some(Preset::Default.settings()), None, None, &[], block).cluster
        };
        assert_eq!((size(512), size(65536)), (Some(64 << 10), Some(64 << 10)));
    }
}
