//! Parses the options about compression, such as `-z lz4hc,12:zstd,level=3`, `-C 128K` and `-m 16K:zstd`, and the file of
//! `--compress-hints`. For `ferofs build`, `ferofs patch` and `mkfs.erofs`.

use ferofs::build::{Algorithm, BlockSize, Compression, Hint, MetadataCompression, Method, Params};
use regex::bytes::Regex;

use crate::args::byte_size;

/// The names that [`methods`] knows, separated by commas.
macro_rules! compressor_names {
    () => {
        "lz4, lz4hc, lzma, deflate, libdeflate, zstd"
    };
}
pub(crate) use compressor_names;

/// Names of compressors, for messages.
pub(crate) const COMPRESSORS: &str = "lz4, lz4hc, lzma, deflate (also called libdeflate) or zstd";

/// Names that other tools have for these algorithms, and the names here.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("xz", "lzma"),
    ("gzip", "deflate"),
    ("gz", "deflate"),
    ("zlib", "deflate"),
    ("zst", "zstd"),
    ("zstandard", "zstd"),
];

/// Why the value of `-z` or `-m` is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CompressionError {
    #[error("unknown compressor{0}; the compressors are {COMPRESSORS}")]
    Compressor(String),
    #[error("{0:?} is not a number")]
    Number(String),
    #[error("dictsize={0}: {1}")]
    Size(String, String),
    #[error(
        "unknown option {0} of a compressor; the options are level=N and dictsize=BYTES, and lc=N, lp=N and pb=N of lzma"
    )]
    Unknown(String),
    #[error("{0} does not take lc, lp and pb")]
    NotLzma(&'static str),
    #[error("dictsize of deflate must be 1 to 32768")]
    DeflateWindow,
    #[error("dictsize of zstd must be a power of two")]
    Dictionary,
    #[error("dictsize of lz4 must be 1024 to 65536")]
    Distance,
    #[error("{0}")]
    Params(ferofs::build::ParamsError),
}

/// One compressor of `-z`, before its values are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Compressor {
    algorithm: Algorithm,
    level: Option<u8>,
    dictionary: Option<u32>,
    bits: LzmaBits,
}

/// The bits of LZMA's models; `None` is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LzmaBits {
    /// Literal context.
    lc: Option<u8>,
    /// Literal position.
    lp: Option<u8>,
    /// Position.
    pb: Option<u8>,
}

/// Parses compressors separated by colons. If a compressor has no `dictsize`, its window follows from the size of the
/// largest pcluster, `pcluster` bytes.
///
/// # Errors
/// The part of the text that is wrong.
pub(crate) fn methods(text: &str, pcluster: u32) -> Result<Vec<Params>, CompressionError> {
    text.split(':').map(|part| compressor(part)?.params(pcluster)).collect()
}

fn compressor(text: &str) -> Result<Compressor, CompressionError> {
    let mut parts = text.split(',');
    let (algorithm, level) = match parts.next().unwrap_or_default() {
        "lz4" => (Algorithm::Lz4, None),
        "lz4hc" => (Algorithm::Lz4, Some(9)),
        "lzma" => (Algorithm::Lzma, None),
        "deflate" | "libdeflate" => (Algorithm::Deflate, None),
        "zstd" => (Algorithm::Zstd, None),
        name => {
            let here = OTHER_NAMES.iter().find(|(other, _)| *other == name);
            let names = compressor_names!().split(", ");
            let nearest = || crate::args::nearest(name, names.clone());
            let hint = here.map(|(_, here)| format!("; {name} is called {here} here"));
            // `zstd19`, or the part `19` of `zstd:19`.
            let before_level =
                name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '=' || c == '-');
            let is_level =
                before_level.is_empty() || names.clone().any(|known| known == before_level);
            let level = (is_level && !name.is_empty())
                .then(|| "; a comma precedes the level: zstd,19".to_owned());
            return Err(CompressionError::Compressor(hint.or(level).unwrap_or_else(nearest)));
        }
    };
    let mut compressor =
        Compressor { algorithm, level, dictionary: None, bits: LzmaBits::default() };
    for part in parts {
        let number = |text: &str| {
            text.parse().map(Some).map_err(|_| CompressionError::Number(text.to_owned()))
        };
        match part.split_once('=') {
            None => compressor.level = number(part)?,
            Some(("level", level)) => compressor.level = number(level)?,
            Some(("lc", bits)) => compressor.bits.lc = number(bits)?,
            Some(("lp", bits)) => compressor.bits.lp = number(bits)?,
            Some(("pb", bits)) => compressor.bits.pb = number(bits)?,
            Some(("dictsize", size)) => {
                let wrong = |reason| CompressionError::Size(size.to_owned(), reason);
                compressor.dictionary = Some(byte_size::argument(size).map_err(wrong)?);
            }
            Some((option, _)) => return Err(CompressionError::Unknown(option.to_owned())),
        }
    }
    // As in Zstandard's library and erofs-utils, level 0 is the default level.
    if algorithm == Algorithm::Zstd && compressor.level == Some(0) {
        compressor.level = None;
    }
    Ok(compressor)
}

impl Compressor {
    fn params(self, pcluster: u32) -> Result<Params, CompressionError> {
        let mut params =
            Params::new(self.algorithm, self.level).map_err(CompressionError::Params)?;
        if self.algorithm != Algorithm::Lzma && self.bits != LzmaBits::default() {
            return Err(CompressionError::NotLzma(self.algorithm.name()));
        }
        match &mut params.method {
            // A reader allocates the window for each thread, so the window is not larger than useful: a few times the
            // pcluster.
            Method::Lzma(lzma) => {
                let default = pcluster.saturating_mul(8).clamp(32 << 10, 8 << 20);
                lzma.dict_size = self.dictionary.unwrap_or(default);
                lzma.lc = self.bits.lc.unwrap_or(lzma.lc);
                lzma.lp = self.bits.lp.unwrap_or(lzma.lp);
                lzma.pb = self.bits.pb.unwrap_or(lzma.pb);
            }
            Method::Zstd(zstd) => {
                let default =
                    pcluster.saturating_mul(16).next_power_of_two().clamp(64 << 10, 1 << 20);
                let size = self.dictionary.unwrap_or(default);
                if !size.is_power_of_two() {
                    return Err(CompressionError::Dictionary);
                }
                zstd.window_log = size.trailing_zeros() as u8;
            }
            // The window of LZ4 is the largest distance of a match. 64K means the default: 65535, the largest offset that LZ4
            // can encode.
            Method::Lz4(lz4) => match self.dictionary {
                None | Some(65536) => {}
                Some(size) => {
                    lz4.max_distance =
                        u16::try_from(size).map_err(|_| CompressionError::Distance)?
                }
            },
            // libdeflate's window is always 32 KiB. Every reader of EROFS supports it, so a smaller one would save nothing.
            Method::Deflate(_) if !(1..=32 << 10).contains(&self.dictionary.unwrap_or(1)) => {
                return Err(CompressionError::DeflateWindow);
            }
            Method::Deflate(_) => {}
        }
        params.check().map_err(CompressionError::Params)?;
        Ok(params)
    }
}

/// The values of all options about compression.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CompressionOptions<'a> {
    /// `-z`.
    pub(crate) compressors: Option<&'a str>,
    /// `-C`.
    pub(crate) pcluster: Option<u32>,
    /// The content of the file of `--compress-hints`.
    pub(crate) hints: Option<&'a str>,
    /// `--max-extent-bytes`.
    pub(crate) max_extent: Option<u32>,
    /// `-m`: the cluster size of the metabox, and its compressor.
    pub(crate) metadata: Option<&'a str>,
    /// The option that compresses directories, if it is given: the command lines have different names for it.
    pub(crate) directories: Option<&'static str>,
    /// `--compress-large`.
    pub(crate) large: Option<&'a str>,
}

impl CompressionOptions<'_> {
    /// Converts the values to options of the library; `None` without `-z`.
    ///
    /// # Errors
    /// The wrong option and the reason.
    pub(crate) fn compression(
        &self,
        block: BlockSize,
    ) -> Result<Option<Compression>, (&'static str, String)> {
        let Some(compressors) = self.compressors else {
            let others = [
                ("-m", self.metadata.is_some()),
                (self.directories.unwrap_or_default(), self.directories.is_some()),
                ("--compress-large", self.large.is_some()),
            ];
            if let Some((option, _)) = others.iter().find(|(_, given)| *given) {
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
        let hints = hints
            .map_err(|(line, reason)| ("--compress-hints", format!("line {line}: {reason}")))?;
        let hints = hints.unwrap_or_default();
        let metadata = self
            .metadata
            .map(|text| metadata(text).ok_or_else(|| ("-m", WRONG_METADATA.to_owned())));
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
        compression.directories = self.directories.is_some();
        if let Some((pcluster, method)) = metadata {
            let mut number = 0;
            if let Some(text) = method {
                number = compression.methods.len();
                compression
                    .methods
                    .extend(self::methods(text, largest).map_err(|e| ("-m", e.to_string()))?);
            }
            compression.metadata = Some(MetadataCompression::new(number, pcluster));
        }
        if let Some(text) = self.large {
            if text == "none" {
                let reason = format!(
                    "takes {COMPRESSORS}, not none: --compress-hints with the size 0 stores files uncompressed"
                );
                return Err(("--compress-large", reason));
            }
            let large =
                self::methods(text, largest).map_err(|e| ("--compress-large", e.to_string()))?;
            if large.len() > 1 {
                return Err(("--compress-large", "takes one compressor".to_owned()));
            }
            compression.large_files = Some(compression.methods.len());
            compression.methods.extend(large);
        }
        Ok(Some(compression))
    }
}

const WRONG_METADATA: &str = "not SIZE or SIZE:COMPRESSOR, for example 16384:zstd";

/// Splits the value of `-m` into the cluster size and the compressor after the colon.
fn metadata(text: &str) -> Option<(u32, Option<&str>)> {
    let (size, method) =
        text.split_once(':').map_or((text, None), |(size, method)| (size, Some(method)));
    Some((byte_size::parse(size)?, method))
}

/// Parses the file of `--compress-hints`: lines of `SIZE [NUMBER] REGEX`; lines that start with `#` are comments.
///
/// # Errors
/// The number of the wrong line and the reason.
pub(crate) fn hints(text: &str, block: BlockSize) -> Result<Vec<Hint>, (usize, &'static str)> {
    let mut hints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let refuse = |reason| (number + 1, reason);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let size = words
            .next()
            .and_then(byte_size::parse)
            .ok_or_else(|| refuse("the size of the pcluster is missing or wrong"))?;
        if !u64::from(size).is_multiple_of(block.bytes64()) {
            return Err(refuse("the size is no multiple of the block size"));
        }
        let (first, second) = (
            words.next().ok_or_else(|| refuse("the regular expression is missing"))?,
            words.next(),
        );
        let (method, pattern) = match second {
            Some(pattern) => {
                (first.parse().map_err(|_| refuse("the algorithm is not a number"))?, pattern)
            }
            None => (0, first),
        };
        if words.next().is_some() {
            return Err(refuse("too many words"));
        }
        let pattern = Regex::new(pattern).map_err(|_| refuse("not a regular expression"))?;
        hints.push(Hint { pattern, pcluster: Some(size), method });
    }
    Ok(hints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_compressors_with_their_options() {
        let one = |text| methods(text, 4096).map(|methods| methods[0].method);
        let Ok(Method::Zstd(zstd)) = one("zstd,level=7,dictsize=128K") else { panic!("no zstd") };
        assert_eq!((zstd.level, zstd.window_log), (7, 17));
        let Ok(Method::Lzma(lzma)) = one("lzma,109") else { panic!("no lzma") };
        assert_eq!((lzma.level, lzma.dict_size), (109, 32 << 10));
        assert_eq!(methods("lz4hc:lzma:deflate,9", 1 << 20).unwrap().len(), 3);
        assert_eq!(one("deflate,9,dictsize=0x1000"), one("deflate,9"));
        assert_eq!(one("deflate,dictsize=64K").unwrap_err(), CompressionError::DeflateWindow);
        let Ok(Method::Lzma(lzma)) = one("lzma,level=9,lc=0,lp=2,pb=0") else { panic!("no lzma") };
        assert_eq!((lzma.level, lzma.lc, lzma.lp, lzma.pb), (9, 0, 2, 0));
        let Ok(Method::Lzma(lzma)) = one("lzma,lp=1") else { panic!("no lzma") };
        assert_eq!((lzma.lc, lzma.lp, lzma.pb), (3, 1, 2));
        assert_eq!(one("lzma,lp=2").unwrap_err().to_string(), "lc + lp is 5; it must be 0 to 4");
        assert_eq!(one("zstd,lc=1").unwrap_err(), CompressionError::NotLzma("zstd"));
        assert_eq!(one("zstd,level=0"), one("zstd"));
        let Ok(Method::Lz4(lz4)) = one("lz4hc,9,dictsize=16K") else { panic!("no LZ4") };
        assert_eq!((lz4.level, lz4.max_distance), (9, 16 << 10));
        assert_eq!(one("lz4,dictsize=64K"), one("lz4"));
        assert_eq!(one("lz4,dictsize=128K").unwrap_err(), CompressionError::Distance);
        assert_eq!(
            one("lz4,dictsize=1").unwrap_err().to_string(),
            "max_distance is 1; it must be 1024 to 65535"
        );
        assert_eq!(
            one("lz5").unwrap_err(),
            CompressionError::Compressor("; the nearest is lz4".into())
        );
        let xz = one("xz").unwrap_err().to_string();
        assert!(xz.starts_with("unknown compressor; xz is called lzma here; "), "{xz}");
        for text in ["zstd19", "lz4hc12", "zstd=19", "19"] {
            let error = one(text).unwrap_err().to_string();
            assert!(
                error.starts_with("unknown compressor; a comma precedes the level: zstd,19; "),
                "{error}"
            );
        }
        assert_eq!(one("zstd,x").unwrap_err().to_string(), "\"x\" is not a number");
        assert_eq!(one("zstd,99").unwrap_err().to_string(), "zstd has no level 99: 1 to 22");
        assert_eq!(one("zstd,dictsize=3000").unwrap_err(), CompressionError::Dictionary);
        let large = one("zstd,dictsize=1T").unwrap_err().to_string();
        assert_eq!(large, "dictsize=1T: too large: at most 4294967295");
    }

    #[test]
    fn a_refused_option_has_the_name_that_the_user_gave() {
        let directories = Some("--compress-directories");
        let options = CompressionOptions { directories, ..CompressionOptions::default() };
        assert_eq!(
            options.compression(BlockSize::DEFAULT).unwrap_err().0,
            "--compress-directories"
        );
        let large = Some("none");
        let options =
            CompressionOptions { compressors: Some("lz4"), large, ..CompressionOptions::default() };
        let (option, reason) = options.compression(BlockSize::DEFAULT).unwrap_err();
        assert!(option == "--compress-large" && reason.contains("not none"), "{reason}");
    }

    #[test]
    fn hints_are_checked_line_by_line() {
        let block = BlockSize::DEFAULT;
        let good = hints("# comment\n\n65536 \\.so$\n 1M 1 ^etc/\n0 \\.jpg$\n", block).unwrap();
        assert_eq!(good.len(), 3);
        assert_eq!((good[1].pcluster, good[1].method), (Some(1 << 20), 1));
        for (bad, line) in [
            ("x .*", 1),
            ("\n4095 .*", 2),
            ("4096", 1),
            ("4096 a b", 1),
            ("4096 1 b c", 1),
            ("4096 (", 1),
        ] {
            assert_eq!(hints(bad, block).unwrap_err().0, line, "{bad}");
        }
    }
}
