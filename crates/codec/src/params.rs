//! The parameters of compressors: their valid ranges, and their form as text, such as
//! `zstd,19,dictsize=128K`. The module of each algorithm has its [`Codec`].

use std::fmt;
use std::str::FromStr;

use ferofs_format::{Algorithm, byte_size};

use crate::error::ParamsError;
use crate::fit::{Compressor, MAX_DECODED};
use crate::{ALIASES, codec, compressor_names};

/// The default of [`Params::window`]: 1 MiB, the size of the largest output, so that every valid
/// output is accepted.
const DEFAULT_WINDOW: usize = 1 << 20;
/// The smallest accepted [`Params::window`]: 64 KiB, the window in the EROFS paper.
const MIN_WINDOW: usize = 64 << 10;

/// The smallest and default part of [`Filling::Trials`]. Less unused space needs many more trials.
pub(crate) const LEAST_UNUSED: u16 = 2;
/// The largest part of [`Filling::Trials`].
const MOST_UNUSED: u16 = 64;

/// Names that other tools have for these algorithms, and the names here.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("xz", "lzma"),
    ("gzip", "deflate"),
    ("gz", "deflate"),
    ("zlib", "deflate"),
    ("zst", "zstd"),
    ("zstandard", "zstd"),
];

/// What differs between algorithms. Builders and patches test these properties, and name no
/// algorithm.
pub struct Codec {
    /// Ways to encode an extent again to the same bytes, the most frequent one first.
    pub reencodings: &'static [Reencoding],
    /// The bytes of an extent depend on the extents before it.
    pub extents_depend: bool,
    /// `Some` if [`Filling::Bytes`] and [`Filling::Blocks`] fill outputs in one pass. Builders use
    /// [`Filling::Blocks`] up to this level: anyone who picks a higher one can afford the trials.
    pub one_pass_level: Option<u8>,
    /// The level that only stores: the encoded bytes are longer than the content.
    pub storing_level: Option<u8>,
    /// Linux decodes a stream only if it ends at some places of a page:
    /// [`LinuxChecker::deflate_padding`](crate::LinuxChecker::deflate_padding).
    pub needs_place: bool,
    /// The tables of the encoder are so small that each thread can have its own.
    pub has_small_tables: bool,
    /// The levels that exist, those first that builders use most.
    pub(crate) levels: &'static [u8],
    /// The levels, for messages.
    pub level_range: &'static str,
    pub(crate) default_level: u8,
    /// The fastest algorithm and level whose sizes change from content to content as those of the
    /// slow levels do.
    pub(crate) fast: (Algorithm, u8),
    /// The dictionary that `dictsize` gives, in bytes; `None` if it is out of range.
    pub(crate) dictionary: fn(u32) -> Option<u32>,
    /// The values of `dictsize`, for messages.
    pub dictionary_range: &'static str,
    /// The default dictionary of a level.
    pub(crate) level_dictionary: fn(u8) -> u32,
    /// The default dictionary for clusters of at most this many bytes. A reader allocates it for
    /// each thread, so it is not larger than useful.
    pub(crate) cluster_dictionary: fn(u32) -> u32,
    pub(crate) encoder: fn(&Params) -> Result<Box<dyn Compressor>, ParamsError>,
    /// See [`encoder_version`](crate::encoder_version).
    pub(crate) version: fn(&Params) -> u32,
    /// See [`encoder_memory`](crate::encoder_memory): for contents of so many bytes, of which each
    /// trial takes so many.
    pub(crate) memory: fn(&Params, u64, u64) -> u64,
    /// Nanoseconds for each call with an output of so many bytes, which clears tables, and for each
    /// byte of input: see [`encoder_time`](crate::encoder_time).
    pub(crate) time: fn(&Params, usize) -> (u64, u64),
}

/// A way to encode an extent again to the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reencoding {
    /// The extent's length is given. The output has the extent's size.
    Exact,
    /// The extent's length is given. The output has the size of a pcluster.
    ExactInPcluster,
    /// Fill an output of the extent's size.
    Fill,
    /// Fill an output as large as the builder gave its compressor.
    FillAsBuilder,
}

/// How algorithms whose libraries encode an input of a given length (DEFLATE, Zstandard) fill an
/// output of a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// By trials of several lengths.
    Trials {
        /// The part of the output, in 1/1024, that clusters may leave unused on average: 2 to 64.
        /// With more, fewer trials are needed.
        unused: u16,
    },
    /// In one pass if the algorithm can do that (Zstandard): most clusters leave less than a
    /// quarter unused, for which they should take no space, and may take less input than the
    /// output's size. DEFLATE makes trials.
    Bytes,
    /// In one pass that ends shortly before the end of a block, if the algorithm can do that and
    /// the output is large: the blocks after it should take no space. Otherwise by trials.
    Blocks {
        /// log2 of the size of a block in bytes: 9 to 16.
        log: u8,
    },
}

/// Added to a level of LZ4: liblz4 encodes, so that the bytes are those of other programs. Needs
/// the feature `liblz4-encode`. [`Params::new`] accepts no such level, as the crate's own encoders
/// make smaller images.
pub const LIBLZ4: u8 = 128;

/// The bits of LZMA's models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LzmaBits {
    /// Literal context bits, 0 to 4.
    pub lc: u8,
    /// Literal position bits, 0 to 4; `lc + lp` is at most 4.
    pub lp: u8,
    /// Position bits, 0 to 4.
    pub pb: u8,
}

impl Default for LzmaBits {
    fn default() -> Self {
        Self { lc: 3, lp: 0, pb: 2 }
    }
}

/// The parameters of a compressor.
///
/// Their text is that of `ferofs build -z`: a name, and then a level, `dictsize` and LZMA's bits
/// as far as they differ from the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// LZ4: 0 is the fast level; 1 to 12 as in lz4hc; [`LIBLZ4`] and more: liblz4's own level, for
    /// images of other builders. LZMA: 0 to 9; 100 to 109 are their extreme variants. DEFLATE: 0 to
    /// 12, as in libdeflate. Zstandard: 1 to 22.
    pub level: u8,
    /// Matches reach back at most this many bytes, for which a decoder needs memory. LZ4: 1024 to
    /// 65535. LZMA: 4 KiB to 8 MiB. DEFLATE: 32 KiB. Zstandard: a power of two from 1 KiB to 1 MiB.
    /// 0, as texts without `dictsize` give it: not yet known, see [`Self::for_clusters`].
    pub dictionary: u32,
    /// The default for other algorithms than LZMA.
    pub bits: LzmaBits,
    /// The most input bytes of one cluster: 64 KiB to 12 MiB. A cluster may take more, up to four
    /// times the output.
    pub window: usize,
    /// How [`Compressor::fit`](crate::Compressor::fit) fills an output. LZ4 and MicroLZMA always
    /// fill it in one pass.
    pub filling: Filling,
}

impl Params {
    /// The default parameters of `algorithm` at `level`; `None` is the default level.
    ///
    /// # Errors
    /// [`ParamsError::Level`].
    pub fn new(algorithm: Algorithm, level: Option<u8>) -> Result<Self, ParamsError> {
        let codec = codec(algorithm);
        let level = level.unwrap_or(codec.default_level);
        let params = Self {
            algorithm,
            level,
            dictionary: (codec.level_dictionary)(level),
            bits: LzmaBits::default(),
            window: DEFAULT_WINDOW,
            filling: Filling::Trials { unused: LEAST_UNUSED },
        };
        if level >= LIBLZ4 { Err(params.no_level()) } else { params.check().map(|()| params) }
    }

    /// The levels of `algorithm`, those first that builders use most; also those from [`LIBLZ4`]
    /// on.
    #[must_use]
    pub fn levels(algorithm: Algorithm) -> &'static [u8] {
        codec(algorithm).levels
    }

    /// Chooses the dictionary, if it is not yet known, for clusters of at most `cluster` bytes.
    #[must_use]
    pub fn for_clusters(self, cluster: u32) -> Self {
        let dictionary = match self.dictionary {
            0 => (codec(self.algorithm).cluster_dictionary)(cluster),
            known => known,
        };
        Self { dictionary, ..self }
    }

    /// The same with the window of an image that has data of this algorithm.
    #[must_use]
    pub fn with_window(self, window: Option<u32>) -> Self {
        let Some(window) = window else { return self };
        Self { dictionary: (codec(self.algorithm).dictionary)(window).unwrap_or(window), ..self }
    }

    /// Fast parameters whose sizes change from content to content as those of these parameters do.
    /// LZMA has no fast level; Zstandard stands for it.
    #[must_use]
    pub fn fast(self) -> Self {
        let (algorithm, level) = codec(self.algorithm).fast;
        match Self::new(algorithm, Some(level)) {
            Ok(fast) if algorithm != self.algorithm => {
                Self { window: self.window, filling: self.filling, ..fast }
            }
            _ => Self { level: self.level.min(level), ..self },
        }
    }

    pub(crate) fn no_level(&self) -> ParamsError {
        let (algorithm, range) = (self.algorithm.name(), codec(self.algorithm).level_range);
        ParamsError::Level { algorithm, level: self.level, range }
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// The first parameter out of range.
    pub fn check(&self) -> Result<(), ParamsError> {
        let within = |field, value: u64, range: std::ops::RangeInclusive<u64>| match range
            .contains(&value)
        {
            true => Ok(()),
            false => Err(ParamsError::Range { field, value, range }),
        };
        within("window", self.window as u64, MIN_WINDOW as u64..=MAX_DECODED as u64)?;
        match self.filling {
            Filling::Trials { unused } => {
                within("unused", unused.into(), LEAST_UNUSED.into()..=MOST_UNUSED.into())?;
            }
            Filling::Bytes => {}
            Filling::Blocks { log } => within("log", log.into(), 9..=16)?,
        }
        let codec = codec(self.algorithm);
        let is_built = self.level < LIBLZ4 || cfg!(any(feature = "liblz4-encode", test));
        if !codec.levels.contains(&self.level) || !is_built {
            return Err(self.no_level());
        }
        if (codec.dictionary)(self.dictionary) != Some(self.dictionary) {
            return Err(self.no_dictionary(self.dictionary.to_string()));
        }
        let LzmaBits { lc, lp, pb } = self.bits;
        if self.algorithm != Algorithm::Lzma && self.bits != LzmaBits::default() {
            return Err(ParamsError::NotLzma(self.algorithm.name()));
        }
        for (field, bits) in [("lc", lc), ("lp", lp), ("pb", pb)] {
            within(field, bits.into(), 0..=4)?;
        }
        if lc + lp > 4 { Err(ParamsError::LcLp(lc + lp)) } else { Ok(()) }
    }

    fn no_dictionary(&self, given: String) -> ParamsError {
        let range = codec(self.algorithm).dictionary_range;
        ParamsError::Dictionary { algorithm: self.algorithm.name(), given, range }
    }
}

impl FromStr for Params {
    type Err = ParamsError;

    fn from_str(text: &str) -> Result<Self, ParamsError> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let names = Algorithm::ALL.map(|known| (known.name(), known, None)).into_iter();
        let known = names.chain(ALIASES).find(|(known, ..)| *known == name);
        let (_, algorithm, mut level) = known.ok_or_else(|| unknown(name))?;
        let (mut dictionary, mut bits) = (None, LzmaBits::default());
        for part in parts {
            let (option, value) = part.split_once('=').unwrap_or(("level", part));
            let number = || value.parse().map_err(|_| ParamsError::Number(value.to_owned()));
            match option {
                "level" => level = Some(number()?),
                "lc" => bits.lc = number()?,
                "lp" => bits.lp = number()?,
                "pb" => bits.pb = number()?,
                "dictsize" => dictionary = Some(value),
                _ => return Err(ParamsError::Option(option.to_owned())),
            }
        }
        let codec = codec(algorithm);
        // As in Zstandard's library and erofs-utils, level 0 is the default level.
        let level = level.filter(|level| *level != 0 || codec.levels.contains(&0));
        let mut params = Self { bits, ..Self::new(algorithm, level)? };
        if let Some(text) = dictionary {
            let size = byte_size::parse(text).and_then(codec.dictionary);
            params.dictionary = size.ok_or_else(|| params.no_dictionary(text.to_owned()))?;
        }
        params.check()?;
        params.dictionary = dictionary.map_or(0, |_| params.dictionary);
        Ok(params)
    }
}

/// The error about a name that no compressor has.
fn unknown(name: &str) -> ParamsError {
    // `zstd19`, or the part `19` of `zstd:19`.
    let before_level = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '=' || c == '-');
    let is_level = before_level.is_empty() || compressor_names().contains(&before_level);
    let hint = match OTHER_NAMES.iter().find(|(other, _)| *other == name) {
        Some((_, here)) => format!("; {name} is called {here} here"),
        None if is_level && !name.is_empty() => "; a comma precedes the level: zstd,19".to_owned(),
        None => String::new(),
    };
    ParamsError::Compressor { name: name.to_owned(), hint }
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.algorithm, self.level) {
            (Algorithm::Lz4, 0) => f.write_str("lz4")?,
            (Algorithm::Lz4, level) => write!(f, "lz4hc,{level}")?,
            (algorithm, level) => write!(f, "{},{level}", algorithm.name())?,
        }
        if !matches!(self.dictionary, 0 | 65535) {
            write!(f, ",dictsize={}", byte_size::exact(self.dictionary.into()))?;
        }
        let (LzmaBits { lc, lp, pb }, usual) = (self.bits, LzmaBits::default());
        if self.bits == usual { Ok(()) } else { write!(f, ",lc={lc},lp={lp},pb={pb}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_level_names_the_range() {
        for (text, words) in [
            ("lz4,13", "lz4 has no level 13: 0 (fast) to 12"),
            ("lzma,10", "lzma has no level 10: 0 to 9, or 100 to 109 (extreme)"),
            ("deflate,13", "deflate has no level 13: 0 to 12"),
            ("lzma,110", "lzma has no level 110: 0 to 9, or 100 to 109 (extreme)"),
            ("zstd,23", "zstd has no level 23: 1 to 22"),
        ] {
            assert_eq!(text.parse::<Params>().unwrap_err().to_string(), words);
        }
        assert!(Params::new(Algorithm::Zstd, Some(0)).is_err());
        assert!(Params::new(Algorithm::Lz4, Some(LIBLZ4)).is_err());
    }

    #[test]
    fn other_parameters_have_ranges() {
        let good = Params::new(Algorithm::Lz4, None).unwrap();
        let words = |params: Params| params.check().unwrap_err().to_string();
        assert_eq!(
            words(Params { window: 65535, ..good }),
            "window is 65535; it must be 65536 to 12582912"
        );
        assert_eq!(
            words(Params { dictionary: 1023, ..good }),
            "dictsize=1023: lz4 takes 1024 to 65536"
        );
        assert!(Params { dictionary: 0, ..good }.check().is_err());
    }

    #[test]
    fn texts_are_parsed_and_printed() {
        let parse = |text: &str| text.parse::<Params>().unwrap().for_clusters(4096);
        let all = |text| {
            let Params { level, dictionary, bits: LzmaBits { lc, lp, pb }, .. } = parse(text);
            (level, dictionary, [lc, lp, pb])
        };
        assert_eq!(all("zstd,level=7,dictsize=128K"), (7, 128 << 10, [3, 0, 2]));
        assert_eq!(all("lzma,109"), (109, 32 << 10, [3, 0, 2]));
        assert_eq!(all("lzma,level=9,lc=0,lp=2,pb=0"), (9, 32 << 10, [0, 2, 0]));
        assert_eq!(all("lzma,lp=1"), (6, 32 << 10, [3, 1, 2]));
        assert_eq!(all("lz4hc,9,dictsize=16K"), (9, 16 << 10, [3, 0, 2]));
        for (text, same) in [
            ("deflate,9,dictsize=0x1000", "libdeflate,9"),
            ("zstd,level=0", "zstd"),
            ("lz4,dictsize=64K", "lz4"),
        ] {
            assert_eq!(parse(text), parse(same));
        }
        for text in ["lz4", "lz4hc,9", "lzma,6", "zstd,3,dictsize=128K", "lzma,9,lc=0,lp=2,pb=0"] {
            assert_eq!(text.parse::<Params>().unwrap().to_string(), text);
        }
        for (clusters, lzma, zstd) in [
            (4096, 32 << 10, 64 << 10),
            (64 << 10, 512 << 10, 1 << 20),
            (u32::MAX, 8 << 20, 1 << 20),
        ] {
            let of = |text: &str| text.parse::<Params>().unwrap().for_clusters(clusters).dictionary;
            assert_eq!((of("lzma"), of("zstd"), of("lz4")), (lzma, zstd, 65535));
        }
    }

    #[test]
    fn wrong_texts_say_what_is_right() {
        let known = format!("the compressors are {}", compressor_names().join(", "));
        for (text, words) in [
            ("lz5", format!("unknown compressor; {known}")),
            ("xz", format!("unknown compressor; xz is called lzma here; {known}")),
            ("lzma,lp=2", "lc + lp is 5; it must be 0 to 4".to_owned()),
            ("zstd,lc=1", "zstd does not take lc, lp and pb".to_owned()),
            ("zstd,x", "\"x\" is not a number".to_owned()),
            (
                "zstd,dictsize=3000",
                "dictsize=3000: zstd takes a power of two from 1024 to 1048576".to_owned(),
            ),
            ("deflate,dictsize=64K", "dictsize=64K: deflate takes 1 to 32768".to_owned()),
            ("lz4,dictsize=128K", "dictsize=128K: lz4 takes 1024 to 65536".to_owned()),
            ("lzma,dictsize=1T", "dictsize=1T: lzma takes 4096 to 8388608".to_owned()),
        ] {
            assert_eq!(text.parse::<Params>().unwrap_err().to_string(), words);
        }
        for text in ["zstd19", "lz4hc12", "zstd=19", "19"] {
            let error = text.parse::<Params>().unwrap_err().to_string();
            let words = "unknown compressor; a comma precedes the level: zstd,19; ";
            assert!(error.starts_with(words), "{error}");
        }
    }
}
