//! `-E`: extended options, read into a set with types. `^name` switches one off. Both `ferofs build` and `mkfs.erofs` read
//! them here.

use ferofs::build::{Compression, Fragments as Packing, Index, InodeForm, Options};

use crate::args::byte_size;
use crate::args::suggestion::nearest;

/// Why a text is no extended option, or does not go with the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {reason}")]
pub(crate) struct ExtendedError {
    pub(crate) option: String,
    pub(crate) reason: String,
}

fn error(option: &str, reason: impl Into<String>) -> ExtendedError {
    ExtendedError { option: option.to_owned(), reason: reason.into() }
}

/// The extended options of one command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extended {
    pub(crate) fragments: Option<Fragments>,
    pub(crate) fragment_dedupe: FragmentDedupe,
    pub(crate) dedupe: bool,
    pub(crate) tail_packing: bool,
    pub(crate) wide: bool,
    pub(crate) dot_omitted: bool,
    pub(crate) legacy_compress: bool,
    pub(crate) inode_form: InodeForm,
    pub(crate) chunk_entries: Option<ChunkEntries>,
    pub(crate) inline_data: bool,
    pub(crate) checksum: bool,
    pub(crate) name_filter: bool,
    pub(crate) plain_prefixes: bool,
}

/// Tails, or whole files, in the packed inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragments {
    /// Whole files.
    pub(crate) all: bool,
    /// Pclusters of the packed inode, in bytes.
    pub(crate) pcluster: Option<u32>,
}

/// Which fragments are stored once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FragmentDedupe {
    None,
    /// Those of equal files.
    Inodes,
    #[default]
    Full,
}

/// How tables of chunks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkEntries {
    /// 4-byte addresses.
    BlockMap,
    /// 8-byte indexes with a device.
    Indexes,
}

impl Default for Extended {
    fn default() -> Self {
        Self {
            fragments: None,
            fragment_dedupe: FragmentDedupe::default(),
            dedupe: false,
            tail_packing: false,
            wide: false,
            dot_omitted: false,
            legacy_compress: false,
            inode_form: InodeForm::Smallest,
            chunk_entries: None,
            inline_data: true,
            checksum: true,
            name_filter: true,
            plain_prefixes: false,
        }
    }
}

/// Every name, for suggestions.
const NAMES: [&str; 19] = [
    "48bit",
    "all-fragments",
    "dedupe",
    "dot-omitted",
    "force-chunk-indexes",
    "force-inode-blockmap",
    "force-inode-compact",
    "force-inode-extended",
    "fragdedupe",
    "fragments",
    "inline_data",
    "legacy-compress",
    "no-fragments",
    "noinline_data",
    "nosbcrc",
    "plain-xattr-prefixes",
    "sbcrc",
    "xattr-name-filter",
    "ztailpacking",
];

impl Extended {
    /// Reads the values of all `-E`, each of them one or more options.
    pub(crate) fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, ExtendedError> {
        let mut extended = Self::default();
        for option in
            values.into_iter().flat_map(|value| value.split(',')).filter(|option| !option.is_empty())
        {
            extended.set(option)?;
        }
        Ok(extended)
    }

    fn set(&mut self, option: &str) -> Result<(), ExtendedError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let (name, on) = match name.strip_prefix('^') {
            Some(name) => (name, false),
            None => (name, true),
        };
        let refuse = |reason: String| error(option, reason);
        let flag = |to: &mut bool, on| match value {
            None => {
                *to = on;
                Ok(())
            }
            Some(_) => Err(refuse("takes no value".into())),
        };
        match name {
            "48bit" => flag(&mut self.wide, on),
            "dedupe" => flag(&mut self.dedupe, on),
            "dot-omitted" => flag(&mut self.dot_omitted, on),
            "legacy-compress" => flag(&mut self.legacy_compress, on),
            "ztailpacking" => flag(&mut self.tail_packing, on),
            "inline_data" => flag(&mut self.inline_data, on),
            "noinline_data" => flag(&mut self.inline_data, !on),
            "sbcrc" => flag(&mut self.checksum, on),
            "nosbcrc" => flag(&mut self.checksum, !on),
            "xattr-name-filter" => flag(&mut self.name_filter, on),
            "plain-xattr-prefixes" => flag(&mut self.plain_prefixes, on),
            "force-inode-compact" | "force-inode-extended" => {
                let form = if name.ends_with("compact") { InodeForm::Compact } else { InodeForm::Extended };
                self.inode_form = if on { form } else { InodeForm::Smallest };
                flag(&mut true, true)
            }
            "force-inode-blockmap" | "force-chunk-indexes" => {
                let entries =
                    if name.ends_with("indexes") { ChunkEntries::Indexes } else { ChunkEntries::BlockMap };
                self.chunk_entries = on.then_some(entries);
                flag(&mut true, true)
            }
            "fragments" | "all-fragments" => {
                let pcluster = value
                    .map(|size| byte_size::parse(size).ok_or_else(|| refuse("not a number of bytes".into())));
                let all = name == "all-fragments" || self.fragments.is_some_and(|f| f.all);
                let pcluster = pcluster.transpose()?.or(self.fragments.and_then(|f| f.pcluster));
                self.fragments = on.then_some(Fragments { all, pcluster });
                Ok(())
            }
            "no-fragments" => {
                self.fragments = None;
                flag(&mut true, true)
            }
            "fragdedupe" => {
                self.fragment_dedupe = match (on, value) {
                    (false, None) => FragmentDedupe::None,
                    (true, None | Some("full")) => FragmentDedupe::Full,
                    (true, Some("inode")) => FragmentDedupe::Inodes,
                    _ => return Err(refuse("takes inode or full".into())),
                };
                Ok(())
            }
            _ => {
                let near = nearest(name, NAMES);
                Err(refuse(format!("no such extended option{near}")))
            }
        }
    }

    /// Forgets what is about compressed content.
    pub(crate) fn forget_compression(&mut self) {
        self.tail_packing = false;
        self.fragments = None;
    }

    /// Tells `options` all that is not about chunks: these, and `-z`, must be there already.
    pub(crate) fn apply(&self, options: &mut Options) -> Result<(), ExtendedError> {
        if self.inode_form != InodeForm::Smallest {
            options.inodes.form = self.inode_form;
            options.inodes.keep_mtime &= self.inode_form != InodeForm::Compact;
        }
        options.inodes.inline_data &= self.inline_data;
        options.inodes.dot_omitted = self.dot_omitted;
        options.image.checksum &= self.checksum;
        options.xattrs.name_filter &= self.name_filter;
        let Some(compression) = &mut options.data.compression else {
            let asked = [(self.tail_packing, "ztailpacking"), (self.fragments.is_some(), "fragments")];
            return match asked.iter().find(|(asked, _)| *asked) {
                Some((_, name)) => Err(error(name, "needs a compressor (-z)")),
                None => Ok(()),
            };
        };
        self.compress(compression);
        Ok(())
    }

    fn compress(&self, compression: &mut Compression) {
        compression.inline_tails = self.tail_packing;
        compression.dedupe = self.dedupe;
        compression.index = match (self.wide, self.legacy_compress) {
            (true, _) => Index::Extents,
            (false, true) => Index::Full,
            (false, false) => Index::Compact,
        };
        if let Some(fragments) = self.fragments {
            compression.fragments = if fragments.all { Packing::All } else { Packing::Tails };
            compression.fragment_pcluster = fragments.pcluster;
        }
    }

    /// Sets the options that `--zfeature-bits` stands for.
    pub(crate) fn set_bits(&mut self, bits: u32) -> Result<(), ExtendedError> {
        const BITS: [&str; 8] = [
            "legacy-compress",
            "ztailpacking",
            "fragments",
            "all-fragments",
            "dedupe",
            "fragdedupe",
            "48bit",
            "dot-omitted",
        ];
        if bits >> BITS.len() != 0 {
            return Err(error(&bits.to_string(), "bits go from 0 to 7"));
        }
        BITS.iter()
            .enumerate()
            .filter(|(bit, _)| bits >> bit & 1 == 1)
            .try_for_each(|(_, name)| self.set(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> Result<Extended, String> {
        Extended::parse(values.iter().copied()).map_err(|error| error.to_string())
    }

    #[test]
    fn options_come_in_lists_and_again() {
        let extended = parse(&["fragments,dedupe,force-inode-compact", "ztailpacking"]).unwrap();
        assert_eq!(extended.fragments, Some(Fragments { all: false, pcluster: None }));
        assert!(extended.dedupe && extended.tail_packing && extended.inode_form == InodeForm::Compact);
        let core = parse(&["all-fragments=1048576,fragdedupe=inode"]).unwrap();
        assert_eq!(core.fragments, Some(Fragments { all: true, pcluster: Some(1 << 20) }));
        assert_eq!(core.fragment_dedupe, FragmentDedupe::Inodes);
        assert_eq!(parse(&["^fragdedupe"]).unwrap().fragment_dedupe, FragmentDedupe::None);
        assert!(!parse(&["^inline_data"]).unwrap().inline_data);
        assert!(!parse(&["noinline_data,nosbcrc"]).unwrap().checksum);
        assert!(!parse(&["^xattr-name-filter"]).unwrap().name_filter);
        assert_eq!(parse(&["force-chunk-indexes"]).unwrap().chunk_entries, Some(ChunkEntries::Indexes));
    }

    #[test]
    fn unknown_ones_are_named_with_their_neighbour() {
        assert_eq!(
            parse(&["fragmnts"]),
            Err("fragmnts: no such extended option; the nearest is fragments".into())
        );
        assert_eq!(parse(&["zzz"]), Err("zzz: no such extended option".into()));
        assert_eq!(parse(&["dedupe=1"]), Err("dedupe=1: takes no value".into()));
        assert_eq!(parse(&["fragments=x"]), Err("fragments=x: not a number of bytes".into()));
    }

    #[test]
    fn bits_are_names() {
        let mut extended = Extended::default();
        extended.set_bits(6).unwrap();
        assert!(extended.tail_packing && extended.fragments.is_some() && !extended.dedupe);
        assert!(extended.set_bits(256).is_err());
    }
}
