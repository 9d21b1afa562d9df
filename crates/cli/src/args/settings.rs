//! Values and help of the options for the form of an image, which several commands have, and
//! messages about wrong ones.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ferofs::build::{
    ContentOrder, Features, ParamsError, Preset, Settings, SettingsError, SettingsProblem,
    SourceFormat, compressor_names,
};

use crate::args::nearest;
use crate::exit::Failure;

/// The first line of the help of `-z`.
pub(crate) fn compress_help() -> String {
    format!("{}, none", compressor_names().join(", "))
}

/// The value of `--preset`.
pub(crate) fn presets() -> impl TypedValueParser<Value = Preset> {
    named(Preset::ALL.map(|preset| {
        let help = match preset {
            Preset::Default => {
                "The settings of `ferofs build` without other options: LZ4, pclusters of 64 KiB, fragments. Built nearly as fast as fast, and a fifth smaller. Linux 6.1"
            }
            Preset::Fast => "Fast to build and to read: LZ4, pclusters of one block. Linux 5.4",
            Preset::Small => {
                "Half as large as default, built in some times its time: Zstandard level 12, pclusters of 1 MiB, fragments. Random reads decode much data. Linux 6.10"
            }
            Preset::Smallest => {
                "For archives that are read as a whole: LZMA, pclusters of 1 MiB, all files as fragments in the order of similarity, compressed metadata. Built slowly; random reads decode megabytes. Linux 6.17"
            }
            Preset::Android => {
                "For system partitions of phones: LZ4HC level 9, pclusters of one block, because phones have little memory and read at random. Linux 5.4"
            }
            Preset::Backup => {
                "For many versions of the same trees: Zstandard level 15, pclusters of 1 MiB, fragments in the order of similarity, large files by LZMA, compressed metadata. Whole trees are read at a useful speed, single files slowly. fsck.erofs before 1.10 extracts files that end with zeroes too short. Linux 6.17"
            }
            _ => "",
        };
        (preset, preset.name(), help)
    }))
}

/// The value of `--order`.
pub(crate) fn orders() -> impl TypedValueParser<Value = ContentOrder> {
    named(ContentOrder::ALL.map(|order| {
        let help = match order {
            ContentOrder::Tree => "As a program reads the whole tree",
            ContentOrder::Similar => {
                "Versions of a file are adjacent, which large pclusters of fragments need to compress them as one. Directories with mostly the same names are versions of each other"
            }
            ContentOrder::Auto => {
                "similar if half of the content has versions, and there are fragments; else tree"
            }
            _ => "",
        };
        (order, order.name(), help)
    }))
}

/// The value of `--from`.
pub(crate) fn source_formats() -> impl TypedValueParser<Value = SourceFormat> {
    named(SourceFormat::ALL.map(|format| {
        let (name, help) = format.name();
        (format, name, help)
    }))
}

/// A value with a name and help.
fn named<T: Clone + Send + Sync + 'static, const N: usize>(
    values: [(T, &'static str, &'static str); N],
) -> impl TypedValueParser<Value = T> {
    let names = values.clone().map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).try_map(move |given: String| {
        let found = values.iter().find(|(_, name, _)| *name == given);
        found.map(|(value, ..)| value.clone()).ok_or("unknown")
    })
}

/// The settings of a preset with the compressor of `-z` instead of its own. Without compression
/// (`-z none`), nothing of the preset applies.
///
/// # Errors
/// The compressor is wrong.
pub(crate) fn with_compressor(
    preset: Settings,
    compress: Option<&str>,
) -> Result<Settings, SettingsError> {
    let mut settings = if compress == Some("none") { Settings::default() } else { preset };
    compress.map_or(Ok(()), |text| settings.set("-z", text))?;
    Ok(settings)
}

/// The end of the message about a wrong setting: the nearest name instead of one that is unknown.
pub(crate) fn nearest_name(error: &SettingsError) -> String {
    match &error.problem {
        SettingsProblem::UnknownFeature => {
            let name = error.value.split('=').next().unwrap_or_default();
            nearest(name.trim_start_matches('^'), Features::NAMES)
        }
        SettingsProblem::Params(ParamsError::Compressor { name, hint }) if hint.is_empty() => {
            nearest(name, compressor_names())
        }
        _ => String::new(),
    }
}

/// The failure because of a wrong setting.
pub(crate) fn refused(error: SettingsError) -> Failure {
    Failure::wrong_option(format!("{error}{}", nearest_name(&error)))
}
