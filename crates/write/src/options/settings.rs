//! The settings of an image's form: compression, features and order, as the options of commands
//! state them.

use std::fmt;
use std::str::FromStr;

use ferofs_codec::Params;
use ferofs_format::{BlockSize, byte_size};

use super::Options;
use super::compression::{Compression, Hint, MetadataCompression};
use super::data::ContentOrder;
use super::features::Features;
use crate::error::settings::{SettingsError, SettingsProblem};

/// How content is encoded, and in which order.
///
/// Its text has the options of `ferofs build`: `-z zstd,12 -C 1M -E fragments`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Settings {
    /// `-z`; none: content is stored uncompressed.
    pub methods: Vec<Params>,
    /// `-C`: the most bytes of a pcluster; `None`: one block.
    pub cluster: Option<u32>,
    /// `-E`.
    pub features: Features,
    /// `--compress-large`.
    pub large: Option<Params>,
    /// `-m`: the most bytes of a pcluster of metadata, and its algorithm.
    pub metadata: Option<(u32, Option<Params>)>,
    /// `--compress-directories`.
    pub directories: bool,
    /// `--order`.
    pub order: Option<ContentOrder>,
    /// `--chunk-size`, for the text only.
    pub chunk_size: Option<u64>,
    /// `--compress-hints`. They are not in the text.
    pub hints: Vec<Hint>,
    /// `--max-extent-bytes`. It is not in the text.
    pub max_extent: Option<u32>,
}

impl Settings {
    /// Sets one of the options in the text: `-z`, `-C`, `-E`, `-m`, `--compress-large`, `--order`.
    /// Features are added to those that are set.
    ///
    /// # Errors
    /// The option is unknown, or does not take this value.
    pub fn set(&mut self, option: &str, value: &str) -> Result<(), SettingsError> {
        use SettingsProblem::{NotNone, Wrong};
        let of = |text: &str| text.parse::<Params>().map_err(SettingsProblem::Params);
        let (option, result) = match option {
            "-z" => {
                let names = value.split(':').filter(|_| value != "none");
                (
                    "-z",
                    names
                        .map(of)
                        .collect::<Result<Vec<_>, _>>()
                        .map(|methods| self.methods = methods),
                )
            }
            "-C" => {
                let size = byte_size::parse(value).ok_or(Wrong("not a number of bytes"));
                ("-C", size.map(|size| self.cluster = Some(size)))
            }
            "-E" => return self.features.set(value),
            "-m" => {
                let (size, name) =
                    value.split_once(':').map_or((value, None), |(size, name)| (size, Some(name)));
                let size = byte_size::parse(size)
                    .ok_or(Wrong("not SIZE or SIZE:COMPRESSOR, for example 16384:zstd"));
                let both = size.and_then(|size| Ok((size, name.map(of).transpose()?)));
                ("-m", both.map(|both| self.metadata = Some(both)))
            }
            "--compress-large" => {
                let params = match value.split_once(':') {
                    _ if value == "none" => Err(NotNone),
                    Some(_) => Err(Wrong("takes one compressor")),
                    None => of(value),
                };
                ("--compress-large", params.map(|params| self.large = Some(params)))
            }
            "--order" => (
                "--order",
                ContentOrder::from_name(value)
                    .map(|order| self.order = Some(order))
                    .ok_or(Wrong("there is no such order")),
            ),
            _ => ("settings", Err(Wrong("unknown option"))),
        };
        result.map_err(|problem| SettingsError::new(option, value, problem))
    }

    /// The settings of an image whose files are stored in chunks of `size` bytes, which are not
    /// compressed: without the options that have no effect.
    #[must_use]
    pub fn in_chunks(mut self, size: u64) -> Self {
        self.chunk_size = Some(size);
        if self.metadata.is_none() && !self.directories {
            self.features.ignore_compression();
            (self.methods, self.cluster, self.large) = (Vec::new(), None, None);
        }
        self
    }

    /// Chooses the features with which patches grow an image least: no tails of files after
    /// inodes, which are copied whenever an attribute changes. Call it before
    /// [features](Self::set) are set that should win.
    pub fn keep_tails_apart(&mut self) {
        match self.methods.is_empty() {
            true => self.features.inline_data = false,
            false => self.features.keep_tails_apart(),
        }
    }

    /// The compression of content; `None`: it is stored uncompressed.
    ///
    /// # Errors
    /// An option needs a compressor.
    pub fn compression(&self, block: BlockSize) -> Result<Option<Compression>, SettingsError> {
        let Some(first) = self.methods.first() else {
            let is_other = |size: u32| u64::from(size) != block.bytes64();
            let others = [
                ("-m", self.metadata.is_some()),
                ("--compress-directories", self.directories),
                ("--compress-large", self.large.is_some()),
                ("-C", self.cluster.is_some_and(is_other)),
            ];
            let needs = SettingsProblem::Wrong("needs a compressor (-z)");
            return match others.iter().find(|(_, given)| *given) {
                Some((option, _)) => Err(SettingsError::new(option, "", needs)),
                None => Ok(None),
            };
        };
        let mut compression = Compression::new(*first);
        compression.methods.clone_from(&self.methods);
        compression.pcluster = self.cluster;
        compression.hints.clone_from(&self.hints);
        compression.max_extent = self.max_extent;
        compression.directories = self.directories;
        let mut add = |params: Params| {
            compression.methods.push(params);
            compression.methods.len() - 1
        };
        let metadata = self.metadata.map(|(size, params)| (params.map_or(0, &mut add), size));
        let large = self.large.map(&mut add);
        compression.metadata =
            metadata.map(|(method, size)| MetadataCompression::new(method, size));
        compression.large_files = large;
        Ok(Some(compression))
    }

    /// Sets the compression, the order of content and the features of `options`.
    ///
    /// # Errors
    /// An option needs a compressor.
    pub fn apply(&self, options: &mut Options) -> Result<(), SettingsError> {
        options.data.compression = self.compression(options.image.block_size)?;
        options.data.order = self.order.unwrap_or_default();
        self.features.apply(options)
    }
}

impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(line: &str) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        let mut words = line.split_whitespace();
        while let Some(option) = words.next() {
            match option {
                "--compress-directories" => settings.directories = true,
                _ => settings.set(option, words.next().unwrap_or_default())?,
            }
        }
        Ok(settings)
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<String> = self.methods.iter().map(Params::to_string).collect();
        let methods = methods.join(":");
        write!(f, "-z {}", if methods.is_empty() { "none" } else { &methods })?;
        if let Some(size) = self.cluster {
            write!(f, " -C {}", byte_size::exact(size.into()))?;
        }
        let features = self.features.to_string();
        if !features.is_empty() {
            write!(f, " -E {features}")?;
        }
        if let Some(large) = &self.large {
            write!(f, " --compress-large {large}")?;
        }
        if let Some((size, params)) = &self.metadata {
            write!(f, " -m {}", byte_size::exact((*size).into()))?;
            params.map_or(Ok(()), |params| write!(f, ":{params}"))?;
        }
        if self.directories {
            write!(f, " --compress-directories")?;
        }
        if let Some(size) = self.chunk_size {
            write!(f, " --chunk-size {}", byte_size::exact(size))?;
        }
        self.order.map_or(Ok(()), |order| write!(f, " --order {}", order.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preset;

    fn changed(preset: Preset, options: &str) -> Settings {
        let mut settings = preset.settings(BlockSize::DEFAULT).unwrap();
        let mut words = options.split_whitespace();
        while let (Some(option), Some(value)) = (words.next(), words.next()) {
            settings.set(option, value).unwrap();
        }
        settings
    }

    #[test]
    fn an_option_changes_only_its_own_part_of_a_preset() {
        for (options, text) in [
            ("-E dedupe", "-z zstd,12 -C 1M -E fragments,dedupe"),
            ("-z zstd,3", "-z zstd,3 -C 1M -E fragments"),
            ("-C 64K", "-z zstd,12 -C 64K -E fragments"),
            ("-E ^fragments", "-z zstd,12 -C 1M"),
            ("-m 16K:lzma,1", "-z zstd,12 -C 1M -E fragments -m 16K:lzma,1"),
        ] {
            assert_eq!(changed(Preset::Small, options).to_string(), text);
        }
    }

    #[test]
    fn files_in_chunks_are_not_compressed() {
        let chunks = |preset, options| changed(preset, options).in_chunks(64 << 10).to_string();
        assert_eq!(chunks(Preset::Small, "-E dedupe,48bit"), "-z none -E 48bit --chunk-size 64K");
        // Metadata is.
        let smallest = "-z lzma,6 -C 1M -E all-fragments -m 64K --compress-directories --chunk-size 64K --order similar";
        assert_eq!(chunks(Preset::Smallest, ""), smallest);
    }

    #[test]
    fn images_for_updates_keep_tails_apart_unless_the_features_are_given() {
        let kept = |line: &str, given: &str| {
            let mut settings: Settings = line.parse().unwrap();
            settings.keep_tails_apart();
            settings.set("-E", given).unwrap();
            settings.features.to_string()
        };
        for (line, given, features) in [
            ("-z lz4", "", "fragments"),
            ("-z zstd", "dedupe", "fragments,dedupe"),
            ("-z lz4 -E ztailpacking", "", "fragments"),
            ("-z lz4 -E all-fragments", "", "all-fragments"),
            ("-z none", "", "noinline_data"),
            // Given options win.
            ("-z lz4", "^fragments,ztailpacking", "ztailpacking"),
            ("-z none", "inline_data", ""),
        ] {
            assert_eq!(kept(line, given), features, "{line} {given}");
        }
    }

    #[test]
    fn wrong_settings_name_the_option_and_the_reason() {
        for (line, words) in [
            ("-z lz4 -m 4096:lz5", "-m 4096:lz5: unknown compressor; the compressors are "),
            ("-m x", "-m x: not SIZE or SIZE:COMPRESSOR"),
            ("-z lz4 --compress-large none", "--compress-large none: takes lz4, "),
            ("-z lz4 --compress-large lz4:zstd", "--compress-large lz4:zstd: takes one compressor"),
            ("-z zstd,99", "-z zstd,99: zstd has no level 99: 1 to 22"),
            ("-C", "-C: not a number of bytes"),
            ("-E fragmnts", "-E fragmnts: unknown extended option"),
            ("--order x", "--order x: "),
            ("-m 4096", "-m: needs a compressor (-z)"),
            ("--compress-directories", "--compress-directories: needs a compressor (-z)"),
            ("-C 64K", "-C: needs a compressor (-z)"),
            ("-E ztailpacking", "-E ztailpacking: needs a compressor (-z)"),
        ] {
            let applied = line
                .parse::<Settings>()
                .and_then(|settings| settings.apply(&mut Options::new("source")));
            let error = applied.unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }
}
