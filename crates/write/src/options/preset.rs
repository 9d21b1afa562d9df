//! Presets and levels: [`Settings`] for a purpose, and by size.

use std::str::FromStr;

use ferofs_format::BlockSize;

use super::Options;
use super::settings::Settings;
use crate::error::settings::{SettingsError, SettingsProblem};
use crate::error::{Error, Result};

/// The purpose of an image, for [`Options::set_preset`] and `ferofs build --preset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// What `ferofs build` does without options. Built nearly as fast as [`Self::Fast`], and a fifth
    /// smaller. Linux 6.1.
    Default,
    /// Fast to build and to read. Linux 5.4.
    Fast,
    /// Half as large as [`Self::Default`], built in some times its time. Random reads decode much
    /// data. Linux 6.10.
    Small,
    /// For archives that are read as a whole. Built slowly; random reads decode megabytes. Linux
    /// 6.17.
    Smallest,
    /// For system partitions of phones, which have little memory and read at random. Linux 5.4.
    Android,
    /// For many versions of the same trees. Whole trees are read at a useful speed, single files
    /// slowly. Linux 6.17.
    Backup,
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 6] =
        [Self::Default, Self::Fast, Self::Small, Self::Smallest, Self::Android, Self::Backup];

    /// The name, and the options of `ferofs build` that give the same.
    const fn facts(self) -> (&'static str, &'static str) {
        match self {
            Self::Default => ("default", "-z lz4 -C 64K -E fragments"),
            Self::Fast => ("fast", "-z lz4"),
            Self::Small => ("small", "-z zstd,12 -C 1M -E fragments"),
            Self::Smallest => (
                "smallest",
                "-z lzma,6 -C 1M -E all-fragments -m 64K --compress-directories --order similar",
            ),
            Self::Android => ("android", "-z lz4hc,9"),
            Self::Backup => (
                "backup",
                "-z zstd,15 -C 1M -E all-fragments,48bit --compress-large lzma,6 -m 64K --compress-directories --order similar",
            ),
        }
    }

    /// The name for users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// The settings, for an image with blocks of this size.
    ///
    /// # Errors
    /// None of this version.
    pub fn settings(self, block: BlockSize) -> Result<Settings, SettingsError> {
        fitted(self.facts().1, block)
    }
}

impl FromStr for Preset {
    type Err = SettingsError;

    fn from_str(name: &str) -> Result<Self, SettingsError> {
        let preset = Self::ALL.into_iter().find(|preset| preset.name() == name);
        let unknown = SettingsProblem::Wrong("there is no such preset");
        preset.ok_or_else(|| SettingsError::new("--preset", name, unknown))
    }
}

/// The settings of the levels `-0` to `-9`: each is smaller than the one before it, and is built
/// more slowly. docs/guide/settings.md has the measurements.
const LEVELS: [&str; 10] = [
    "",
    Preset::Fast.facts().1,
    Preset::Default.facts().1,
    "-z zstd,1 -C 1M -E fragments",
    "-z zstd,3 -C 1M -E fragments",
    "-z zstd,6 -C 1M -E fragments",
    Preset::Small.facts().1,
    "-z zstd,17 -C 1M -E fragments",
    "-z zstd,19 -C 1M -E fragments",
    "-z lzma,6 -C 1M -E all-fragments",
];

/// The settings of `-0` (uncompressed) to `-9` of `ferofs build`, for an image with blocks of this
/// size.
///
/// # Errors
/// There is no such level.
pub fn level_settings(level: u8, block: BlockSize) -> Result<Settings, SettingsError> {
    let unknown = SettingsProblem::Wrong("the levels are 0 to 9");
    let line = LEVELS.get(usize::from(level));
    fitted(line.ok_or_else(|| SettingsError::new("level", &level.to_string(), unknown))?, block)
}

/// Parses settings. Other block sizes than 4096 can reach the limits of clusters.
fn fitted(line: &str, block: BlockSize) -> Result<Settings, SettingsError> {
    let mut settings: Settings = line.parse()?;
    let smallest = block.bytes() as u32;
    settings.cluster =
        settings.cluster.map(|size| size.clamp(smallest, smallest.saturating_mul(256)));
    Ok(settings)
}

impl Options {
    /// Sets the compression, the order of content and the width of addresses for a purpose. What is
    /// set later changes it.
    ///
    /// # Errors
    /// [`Error::Settings`], which no preset of this version causes.
    pub fn set_preset(&mut self, preset: Preset) -> Result<()> {
        let settings = preset.settings(self.image.block_size);
        settings.and_then(|settings| settings.apply(self)).map_err(Error::Settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_and_levels_are_valid_and_printed_as_they_are_written() {
        let lines = Preset::ALL.map(|preset| preset.facts().1);
        for line in lines.into_iter().chain(LEVELS).filter(|line| !line.is_empty()) {
            let settings: Settings = line.parse().unwrap();
            assert_eq!(settings.to_string(), line);
            let mut options = Options::new("source");
            settings.apply(&mut options).unwrap();
            options.data.compression.unwrap().check(BlockSize::DEFAULT).unwrap();
        }
        for preset in Preset::ALL {
            assert_eq!(preset.name().parse(), Ok(preset));
        }
        assert!("smal".parse::<Preset>().is_err());
    }

    #[test]
    fn the_cluster_size_of_a_preset_fits_the_block_size() {
        let size = |preset: Preset, bytes| {
            preset.settings(BlockSize::from_bytes(bytes).unwrap()).unwrap().cluster
        };
        assert_eq!(size(Preset::Default, 512), Some(64 << 10));
        assert_eq!(size(Preset::Default, 65536), Some(64 << 10));
        assert_eq!(size(Preset::Small, 512), Some(128 << 10));
    }
}
