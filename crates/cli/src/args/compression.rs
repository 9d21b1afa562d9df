//! Compression as people write it: `-z lz4hc,12:zstd,level=3`, `-C 128K`, `-m 16K:zstd`, and files of hints. Both `ferofs build` and `mkfs.erofs` read it here.

use ferofs::build::{Algorithm, BlockSize, Compression, Hint, MetadataCompression, Method, Params};
use regex::bytes::Regex;

use crate::args::byte_size;

/// Names of compressors, as `--help` lists them.
pub(crate) const COMPRESSORS: &str = "lz4, lz4hc, lzma, deflate, libdeflate or zstd";

/// Why a text is no such setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingError {
    #[error("no such compressor{0}; there are {COMPRESSORS}")]
    Compressor(String),
    #[error("{0} is no number")]
    Number(String),
    #[error("compressors have no option {0}; there are level=N and dictsize=BYTES")]
    Unknown(String),
    #[error("{0} has no dictionary")]
    NoDictionary(&'static str),
    #[error("a dictionary of Zstandard is a power of two")]
    Dictionary,
    #[error("LZ4 looks back 1024 to 65536 bytes")]
    Distance,
    #[error("{0}")]
    Params(ferofs::build::ParamsError),
}

/// One compressor of `-z`, as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Compressor {
    algorithm: Algorithm,
    level: Option<u8>,
    dictionary: Option<u32>,
}

/// The methods that `text` names, with dictionaries made for pclusters of up to `pcluster` bytes where none is
/// given.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn methods(text: &str, pcluster: u32) -> Result<Vec<Params>, SettingError> {
    text.split(':').map(|part| compressor(part)?.params(pcluster)).collect()
}

fn compressor(text: &str) -> Result<Compressor, SettingError> {
    let mut parts = text.split(',');
    let (algorithm, level) = match parts.next().unwrap_or_default() {
        "lz4" => (Algorithm::Lz4, None),
        "lz4hc" => (Algorithm::Lz4, Some(9)),
        "lzma" => (Algorithm::Lzma, None),
        "deflate" | "libdeflate" => (Algorithm::Deflate, None),
        "zstd" => (Algorithm::Zstd, None),
        name => {
            let names = ["lz4", "lz4hc", "lzma", "deflate", "libdeflate", "zstd"];
            return Err(SettingError::Compressor(crate::args::suggestion::nearest(name, names)));
        }
    };
    let mut compressor = Compressor { algorithm, level, dictionary: None };
    for part in parts {
        let no_number = |text: &str| SettingError::Number(text.to_owned());
        match part.split_once('=') {
            None => compressor.level = Some(part.parse().map_err(|_| no_number(part))?),
            Some(("level", level)) => compressor.level = Some(level.parse().map_err(|_| no_number(level))?),
            Some(("dictsize", size)) => {
                compressor.dictionary = Some(byte_size::parse(size).ok_or_else(|| no_number(size))?);
            }
            Some((option, _)) => return Err(SettingError::Unknown(option.to_owned())),
        }
    }
    Ok(compressor)
}

impl Compressor {
    fn params(self, pcluster: u32) -> Result<Params, SettingError> {
        let mut params = Params::new(self.algorithm, self.level).map_err(SettingError::Params)?;
        match &mut params.method {
            // Readers set aside this much for each thread: no more than is of use.
            Method::Lzma(lzma) => {
                let usual = pcluster.saturating_mul(8).clamp(32 << 10, 8 << 20);
                lzma.dict_size = self.dictionary.unwrap_or(usual);
            }
            Method::Zstd(zstd) => {
                let usual = pcluster.saturating_mul(16).next_power_of_two().clamp(64 << 10, 1 << 20);
                let size = self.dictionary.unwrap_or(usual);
                if !size.is_power_of_two() {
                    return Err(SettingError::Dictionary);
                }
                zstd.window_log = size.trailing_zeros() as u8;
            }
            // LZ4's window is how far matches reach back; 64K is meant for all that its offsets can say.
            Method::Lz4(lz4) => match self.dictionary {
                None | Some(65536) => {}
                Some(size) => lz4.max_distance = u16::try_from(size).map_err(|_| SettingError::Distance)?,
            },
            Method::Deflate(_) if self.dictionary.is_some() => {
                return Err(SettingError::NoDictionary(self.algorithm.name()));
            }
            Method::Deflate(_) => {}
        }
        params.check().map_err(SettingError::Params)?;
        Ok(params)
    }
}

/// Everything that was said about compression.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setting<'a> {
    /// `-z`.
    pub(crate) compressors: Option<&'a str>,
    /// `-C`.
    pub(crate) pcluster: Option<u32>,
    /// The content of a file of hints.
    pub(crate) hints: Option<&'a str>,
    /// `--max-extent-bytes`.
    pub(crate) max_extent: Option<u32>,
    /// `-m`: the metabox' cluster size, and its compressor.
    pub(crate) metadata: Option<&'a str>,
    /// `--zD`.
    pub(crate) directories: bool,
}

impl Setting<'_> {
    /// What the library is asked for; `None` without compressors.
    ///
    /// # Errors
    /// The option that is wrong, and why.
    pub(crate) fn compression(
        &self,
        block: BlockSize,
    ) -> Result<Option<Compression>, (&'static str, String)> {
        let Some(compressors) = self.compressors else {
            let metadata = [("-m", self.metadata.is_some()), ("--zD", self.directories)];
            if let Some((option, _)) = metadata.iter().find(|(_, asked)| *asked) {
                return Err((option, "needs a compressor (-z)".to_owned()));
            }
            return match self.pcluster {
                Some(size) if u64::from(size) != block.bytes64() => {
                    Err(("-C", "a pcluster size needs a compressor (-z)".to_owned()))
                }
                _ => Ok(None),
            };
        };
        let hints = self.hints.map(|text| hints(text, block)).transpose();
        let hints = hints.map_err(|(line, reason)| ("--compress-hints", format!("line {line}: {reason}")))?;
        let hints = hints.unwrap_or_default();
        let metadata = self.metadata.map(|text| metadata(text).ok_or_else(|| ("-m", NO_METADATA.to_owned())));
        let metadata = metadata.transpose()?;
        let sizes = hints.iter().filter_map(|hint| hint.pcluster).chain(self.pcluster);
        let sizes = sizes.chain(metadata.map(|(size, _)| size));
        let largest = sizes.max().unwrap_or(0).max(block.bytes() as u32);
        let methods = methods(compressors, largest).map_err(|e| ("-z", e.to_string()))?;
        let Some(first) = methods.first() else { return Ok(None) };
        let mut compression = Compression::new(*first);
        compression.methods = methods;
        compression.pcluster = self.pcluster;
        compression.hints = hints;
        compression.max_extent = self.max_extent;
        compression.directories = self.directories;
        if let Some((pcluster, method)) = metadata {
            let mut number = 0;
            if let Some(text) = method {
                number = compression.methods.len();
                compression.methods.extend(self::methods(text, largest).map_err(|e| ("-m", e.to_string()))?);
            }
            compression.metadata = Some(MetadataCompression { method: number, pcluster });
        }
        Ok(Some(compression))
    }
}

const NO_METADATA: &str = "not a cluster size, or one with a compressor, such as 16384:zstd";

/// A cluster size, and what follows a colon.
fn metadata(text: &str) -> Option<(u32, Option<&str>)> {
    let (size, method) = text.split_once(':').map_or((text, None), |(size, method)| (size, Some(method)));
    Some((byte_size::parse(size)?, method))
}

/// A file of hints: lines of `PCLUSTER [METHOD] REGEX`, where `#` starts a comment.
///
/// # Errors
/// The number of the line that is none, and why.
pub(crate) fn hints(text: &str, block: BlockSize) -> Result<Vec<Hint>, (usize, &'static str)> {
    let mut hints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let refuse = |reason| (number + 1, reason);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let size = words.next().and_then(byte_size::parse).ok_or_else(|| refuse("no size of a pcluster"))?;
        if !u64::from(size).is_multiple_of(block.bytes64()) {
            return Err(refuse("the size is no multiple of the block size"));
        }
        let (first, second) = (words.next().ok_or_else(|| refuse("no pattern"))?, words.next());
        let (method, pattern) = match second {
            Some(pattern) => (first.parse().map_err(|_| refuse("the algorithm is no number"))?, pattern),
            None => (0, first),
        };
        if words.next().is_some() {
            return Err(refuse("too many words"));
        }
        let pattern = Regex::new(pattern).map_err(|_| refuse("no regular expression"))?;
        hints.push(Hint { pattern, pcluster: Some(size), method });
    }
    Ok(hints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_compressors_as_people_write_them() {
        let one = |text| methods(text, 4096).map(|methods| methods[0].method);
        let Ok(Method::Zstd(zstd)) = one("zstd,level=7,dictsize=128K") else { panic!("no zstd") };
        assert_eq!((zstd.level, zstd.window_log), (7, 17));
        let Ok(Method::Lzma(lzma)) = one("lzma,109") else { panic!("no lzma") };
        assert_eq!((lzma.level, lzma.dict_size), (109, 32 << 10));
        assert_eq!(methods("lz4hc:lzma:deflate,9", 1 << 20).unwrap().len(), 3);
        assert_eq!(one("deflate,dictsize=1").unwrap_err(), SettingError::NoDictionary("deflate"));
        let Ok(Method::Lz4(lz4)) = one("lz4hc,9,dictsize=16K") else { panic!("no LZ4") };
        assert_eq!((lz4.level, lz4.max_distance), (9, 16 << 10));
        assert_eq!(one("lz4,dictsize=64K"), one("lz4"));
        assert_eq!(one("lz4,dictsize=128K").unwrap_err(), SettingError::Distance);
        assert_eq!(
            one("lz4,dictsize=1").unwrap_err().to_string(),
            "max_distance is 1; it must be 1024 to 65535"
        );
        assert_eq!(one("lz5").unwrap_err(), SettingError::Compressor("; the nearest is lz4".into()));
        assert_eq!(one("zstd,x").unwrap_err().to_string(), "x is no number");
        assert_eq!(one("zstd,99").unwrap_err().to_string(), "zstd has no level 99: 1 to 22");
        assert_eq!(one("zstd,dictsize=3000").unwrap_err(), SettingError::Dictionary);
    }

    #[test]
    fn hints_are_checked_line_by_line() {
        let block = BlockSize::DEFAULT;
        let good = hints("# comment\n\n65536 \\.so$\n 1M 1 ^etc/\n0 \\.jpg$\n", block).unwrap();
        assert_eq!(good.len(), 3);
        assert_eq!((good[1].pcluster, good[1].method), (Some(1 << 20), 1));
        for (bad, line) in
            [("x .*", 1), ("\n4095 .*", 2), ("4096", 1), ("4096 a b", 1), ("4096 1 b c", 1), ("4096 (", 1)]
        {
            assert_eq!(hints(bad, block).unwrap_err().0, line, "{bad}");
        }
    }
}
