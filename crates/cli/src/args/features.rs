//! Parses the extended options of `-E`; `^NAME` turns one off. For `ferofs build` and `mkfs.erofs`.

use ferofs::build::{Compression, Fragments as Packing, IndexKind, InodeForm, Options};

use crate::args::byte_size;
use crate::args::nearest;

/// An extended option that is unknown, has a wrong value, or needs another option.
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
pub(crate) struct ExtendedOptions {
    pub(crate) fragments: Option<Fragments>,
    pub(crate) dedupe: bool,
    pub(crate) holes: bool,
    pub(crate) tail_packing: bool,
    pub(crate) layout_48bit: bool,
    pub(crate) dot_omitted: bool,
    pub(crate) legacy_compress: bool,
    pub(crate) inode_form: InodeForm,
    pub(crate) chunk_entries: Option<ChunkEntries>,
    pub(crate) inline_data: bool,
    pub(crate) checksum: bool,
    pub(crate) name_filter: bool,
}

/// The data that is stored in the packed inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragments {
    /// Whole files; `false`: only tails.
    pub(crate) all: bool,
    /// Largest compressed size of a pcluster of the packed inode, in bytes.
    pub(crate) pcluster: Option<u32>,
}

/// The form of chunk indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkEntries {
    /// 4 bytes: a block address.
    BlockMap,
    /// 8 bytes: a device and a block address.
    Indexes,
}

impl Default for ExtendedOptions {
    fn default() -> Self {
        Self {
            fragments: None,
            dedupe: false,
            holes: false,
            tail_packing: false,
            layout_48bit: false,
            dot_omitted: false,
            legacy_compress: false,
            inode_form: InodeForm::Smallest,
            chunk_entries: None,
            inline_data: true,
            checksum: true,
            name_filter: true,
        }
    }
}

/// All names, to suggest the nearest one for an unknown name.
pub(crate) const NAMES: [&str; 20] = [
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
    "holes",
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

impl ExtendedOptions {
    /// Parses the values of all `-E`; each value is one option, or several separated by commas.
    pub(crate) fn parse<'a>(
        values: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ExtendedError> {
        let mut extended = Self::default();
        for option in values
            .into_iter()
            .flat_map(|value| value.split(','))
            .filter(|option| !option.is_empty())
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
        let no_value = || match value {
            None => Ok(()),
            Some(_) => Err(refuse("takes no value".into())),
        };
        let flag = |to: &mut bool, on| {
            *to = on;
            no_value()
        };
        match name {
            "48bit" => flag(&mut self.layout_48bit, on),
            "dedupe" => flag(&mut self.dedupe, on),
            "dot-omitted" => flag(&mut self.dot_omitted, on),
            "holes" => flag(&mut self.holes, on),
            "legacy-compress" => flag(&mut self.legacy_compress, on),
            "ztailpacking" => flag(&mut self.tail_packing, on),
            "inline_data" => flag(&mut self.inline_data, on),
            "noinline_data" => flag(&mut self.inline_data, !on),
            "sbcrc" => flag(&mut self.checksum, on),
            "nosbcrc" => flag(&mut self.checksum, !on),
            "xattr-name-filter" => flag(&mut self.name_filter, on),
            // No effect: the builder always stores the table of prefixes outside the packed inode.
            "plain-xattr-prefixes" => no_value(),
            "force-inode-compact" | "force-inode-extended" => {
                let form = if name.ends_with("compact") {
                    InodeForm::Compact
                } else {
                    InodeForm::Extended
                };
                self.inode_form = if on { form } else { InodeForm::Smallest };
                no_value()
            }
            "force-inode-blockmap" | "force-chunk-indexes" => {
                let entries = if name.ends_with("indexes") {
                    ChunkEntries::Indexes
                } else {
                    ChunkEntries::BlockMap
                };
                self.chunk_entries = on.then_some(entries);
                no_value()
            }
            "fragments" | "all-fragments" => {
                let pcluster = value.map(|size| {
                    byte_size::parse(size).ok_or_else(|| refuse("not a number of bytes".into()))
                });
                let all = name == "all-fragments" || self.fragments.is_some_and(|f| f.all);
                let pcluster = pcluster.transpose()?.or(self.fragments.and_then(|f| f.pcluster));
                self.fragments = on.then_some(Fragments { all, pcluster });
                Ok(())
            }
            "no-fragments" => {
                self.fragments = None;
                no_value()
            }
            // No effect: the builder stores identical files once, with or without fragments.
            "fragdedupe" => match (on, value) {
                (_, None) | (true, Some("full" | "inode")) => Ok(()),
                _ => Err(refuse("takes inode or full".into())),
            },
            _ => {
                let near = nearest(name, NAMES);
                Err(refuse(format!("unknown extended option{near}")))
            }
        }
    }

    /// Resets the options that only apply to compressed data.
    pub(crate) fn ignore_compression(&mut self) {
        self.tail_packing = false;
        self.fragments = None;
    }

    /// Sets everything in `options` except chunks. The compression of `options` must already be set.
    pub(crate) fn apply(&self, options: &mut Options) -> Result<(), ExtendedError> {
        if self.inode_form != InodeForm::Smallest {
            options.inodes.form = self.inode_form;
            options.inodes.keep_mtime &= self.inode_form != InodeForm::Compact;
        }
        options.inodes.inline_data &= self.inline_data;
        options.inodes.dot_omitted = self.dot_omitted;
        options.image.checksum &= self.checksum;
        options.image.wide_addresses = self.layout_48bit;
        options.xattrs.name_filter &= self.name_filter;
        let Some(compression) = &mut options.data.compression else {
            let given =
                [(self.tail_packing, "ztailpacking"), (self.fragments.is_some(), "fragments")];
            return match given.iter().find(|(given, _)| *given) {
                Some((_, name)) => Err(error(name, "needs a compressor (-z)")),
                None => Ok(()),
            };
        };
        self.apply_to_compression(compression);
        Ok(())
    }

    fn apply_to_compression(&self, compression: &mut Compression) {
        compression.inline_tails = self.tail_packing;
        compression.dedupe = self.dedupe;
        compression.holes = self.holes;
        compression.index = match (self.layout_48bit, self.legacy_compress) {
            (true, _) => IndexKind::Extents,
            (false, true) => IndexKind::Full,
            (false, false) => IndexKind::Compact,
        };
        if let Some(fragments) = self.fragments {
            compression.fragments = if fragments.all { Packing::All } else { Packing::Tails };
            compression.fragment_pcluster = fragments.pcluster;
        }
    }

    /// Sets the options that `--zfeature-bits` selects: bit N selects the Nth name.
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
            return Err(error(&bits.to_string(), "only bits 0 to 7 are defined"));
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

    fn parse(values: &[&str]) -> Result<ExtendedOptions, String> {
        ExtendedOptions::parse(values.iter().copied()).map_err(|error| error.to_string())
    }

    #[test]
    fn options_may_be_in_one_list_or_in_several() {
        let extended = parse(&["fragments,dedupe,force-inode-compact", "ztailpacking"]).unwrap();
        assert_eq!(extended.fragments, Some(Fragments { all: false, pcluster: None }));
        assert!(
            extended.dedupe && extended.tail_packing && extended.inode_form == InodeForm::Compact
        );
        let all = parse(&["all-fragments=1048576"]).unwrap();
        assert_eq!(all.fragments, Some(Fragments { all: true, pcluster: Some(1 << 20) }));
        assert!(!parse(&["^inline_data"]).unwrap().inline_data);
        assert!(!parse(&["noinline_data,nosbcrc"]).unwrap().checksum);
        assert!(!parse(&["^xattr-name-filter"]).unwrap().name_filter);
        assert_eq!(
            parse(&["force-chunk-indexes"]).unwrap().chunk_entries,
            Some(ChunkEntries::Indexes)
        );
    }

    #[test]
    fn options_without_effect_are_checked() {
        for option in [
            "fragdedupe",
            "^fragdedupe",
            "fragdedupe=inode",
            "fragdedupe=full",
            "plain-xattr-prefixes",
        ] {
            assert_eq!(parse(&[option]), Ok(ExtendedOptions::default()), "{option}");
        }
        for wrong in ["fragdedupe=x", "^fragdedupe=full", "plain-xattr-prefixes=1"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_option_is_reported_with_the_nearest_name() {
        assert_eq!(
            parse(&["fragmnts"]),
            Err("fragmnts: unknown extended option; the nearest is fragments".into())
        );
        assert_eq!(parse(&["zzz"]), Err("zzz: unknown extended option".into()));
        assert_eq!(parse(&["dedupe=1"]), Err("dedupe=1: takes no value".into()));
        assert_eq!(parse(&["fragments=x"]), Err("fragments=x: not a number of bytes".into()));
    }

    #[test]
    fn each_bit_selects_one_option() {
        let mut extended = ExtendedOptions::default();
        extended.set_bits(6).unwrap();
        assert!(extended.tail_packing && extended.fragments.is_some() && !extended.dedupe);
        assert!(extended.set_bits(256).is_err());
    }
}
