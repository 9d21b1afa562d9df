//! The extended options of `-E`; `^NAME` turns one off.

use std::fmt;

use ferofs_format::byte_size;

use super::Options;
use super::compression::{Fragments, IndexKind};
use super::image::InodeForm;
use crate::error::settings::{SettingsError, SettingsProblem};

/// The extended options: features of the format, and forms of inodes and indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// `fragments` and `all-fragments`.
    pub fragments: Fragments,
    /// Their value: the most bytes of a pcluster of the packed inode.
    pub fragment_cluster: Option<u32>,
    /// `dedupe`.
    pub dedupe: bool,
    /// `holes`.
    pub holes: bool,
    /// `ztailpacking`.
    pub tail_packing: bool,
    /// `48bit`.
    pub layout_48bit: bool,
    /// `dot-omitted`.
    pub dot_omitted: bool,
    /// `legacy-compress`.
    pub legacy_compress: bool,
    /// `force-inode-compact` and `force-inode-extended`.
    pub inode_form: InodeForm,
    /// `force-inode-blockmap` (4 bytes) and `force-chunk-indexes` (8 bytes).
    pub chunk_entry: Option<u8>,
    /// `inline_data`.
    pub inline_data: bool,
    /// `sbcrc`.
    pub checksum: bool,
    /// `xattr-name-filter`.
    pub name_filter: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            fragments: Fragments::None,
            fragment_cluster: None,
            dedupe: false,
            holes: false,
            tail_packing: false,
            layout_48bit: false,
            dot_omitted: false,
            legacy_compress: false,
            inode_form: InodeForm::Smallest,
            chunk_entry: None,
            inline_data: true,
            checksum: true,
            name_filter: true,
        }
    }
}

/// The options that set a field to the value here.
type Flag = (&'static str, fn(&mut Features) -> &mut bool, bool);

const FLAGS: [Flag; 11] = [
    ("dedupe", |features| &mut features.dedupe, true),
    ("holes", |features| &mut features.holes, true),
    ("ztailpacking", |features| &mut features.tail_packing, true),
    ("48bit", |features| &mut features.layout_48bit, true),
    ("dot-omitted", |features| &mut features.dot_omitted, true),
    ("legacy-compress", |features| &mut features.legacy_compress, true),
    ("noinline_data", |features| &mut features.inline_data, false),
    ("inline_data", |features| &mut features.inline_data, true),
    ("nosbcrc", |features| &mut features.checksum, false),
    ("sbcrc", |features| &mut features.checksum, true),
    ("xattr-name-filter", |features| &mut features.name_filter, true),
];

impl Features {
    /// All names.
    pub const NAMES: [&str; 20] = [
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

    /// Sets the options in `list`, which are separated by commas.
    ///
    /// # Errors
    /// The first option that is unknown or has a wrong value.
    pub fn set(&mut self, list: &str) -> Result<(), SettingsError> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| {
            let result = self.set_one(option);
            result.map_err(|problem| SettingsError::new("-E", option, problem))
        })
    }

    fn set_one(&mut self, option: &str) -> Result<(), SettingsProblem> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let (name, on) = match name.strip_prefix('^') {
            Some(name) => (name, false),
            None => (name, true),
        };
        match name {
            "fragments" | "all-fragments" => {
                let wrong = SettingsProblem::Wrong("not a number of bytes");
                let size = value.map(|size| byte_size::parse(size).ok_or(wrong)).transpose()?;
                (self.fragments, self.fragment_cluster) = match (on, self.fragments) {
                    (false, _) => (Fragments::None, None),
                    (true, Fragments::Tails | Fragments::None) if name == "fragments" => {
                        (Fragments::Tails, size.or(self.fragment_cluster))
                    }
                    (true, _) => (Fragments::All, size.or(self.fragment_cluster)),
                };
                return Ok(());
            }
            // No effect: the builder stores identical files once, with or without fragments.
            "fragdedupe" => {
                return match (on, value) {
                    (_, None) | (true, Some("full" | "inode")) => Ok(()),
                    _ => Err(SettingsProblem::Wrong("takes inode or full")),
                };
            }
            _ => {}
        }
        match (FLAGS.iter().find(|(flag, ..)| *flag == name), name) {
            (Some((_, field, is)), _) => *field(self) = *is == on,
            (_, "no-fragments") => {
                (self.fragments, self.fragment_cluster) = (Fragments::None, None);
            }
            // No effect: the builder always stores the table of prefixes outside the packed inode.
            (_, "plain-xattr-prefixes") => {}
            (_, "force-inode-compact") if on => self.inode_form = InodeForm::Compact,
            (_, "force-inode-extended") if on => self.inode_form = InodeForm::Extended,
            (_, "force-inode-compact" | "force-inode-extended") => {
                self.inode_form = InodeForm::Smallest;
            }
            (_, "force-inode-blockmap") => self.chunk_entry = on.then_some(4),
            (_, "force-chunk-indexes") => self.chunk_entry = on.then_some(8),
            _ => return Err(SettingsProblem::UnknownFeature),
        }
        match value {
            None => Ok(()),
            Some(_) => Err(SettingsProblem::Wrong("takes no value")),
        }
    }

    /// Sets the options that `--zfeature-bits` of mkfs.erofs selects: bit N selects the Nth name.
    ///
    /// # Errors
    /// A bit selects nothing.
    pub fn set_bits(&mut self, bits: u32) -> Result<(), SettingsError> {
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
            let undefined = SettingsProblem::Wrong("only bits 0 to 7 are defined");
            return Err(SettingsError::new("--zfeature-bits", &bits.to_string(), undefined));
        }
        let mut selected = BITS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
        selected.try_for_each(|(_, name)| self.set(name))
    }

    /// Turns off what is for compressed data only.
    pub fn ignore_compression(&mut self) {
        (self.fragments, self.fragment_cluster) = (Fragments::None, None);
        (self.tail_packing, self.dedupe, self.legacy_compress) = (false, false, false);
    }

    /// Compressed tails become fragments, unless all of them are already.
    pub(crate) fn keep_tails_apart(&mut self) {
        if self.fragments == Fragments::None {
            (self.fragments, self.tail_packing) = (Fragments::Tails, false);
        }
    }

    /// Sets all of them in `options`, whose compression must already be set.
    ///
    /// # Errors
    /// A feature needs a compressor.
    pub fn apply(&self, options: &mut Options) -> Result<(), SettingsError> {
        if self.inode_form != InodeForm::Smallest {
            options.inodes.form = self.inode_form;
            options.inodes.keep_mtime &= self.inode_form != InodeForm::Compact;
        }
        options.inodes.inline_data &= self.inline_data;
        options.inodes.dot_omitted |= self.dot_omitted;
        options.image.checksum &= self.checksum;
        options.image.wide_addresses = self.layout_48bit;
        options.xattrs.name_filter &= self.name_filter;
        if let Some(chunks) = &mut options.data.chunks {
            chunks.force_indexes = self.chunk_entry == Some(8);
        }
        let Some(compression) = &mut options.data.compression else {
            let has_fragments = self.fragments != Fragments::None;
            let given = [(self.tail_packing, "ztailpacking"), (has_fragments, "fragments")];
            let needs = SettingsProblem::Wrong("needs a compressor (-z)");
            return match given.iter().find(|(given, _)| *given) {
                Some((_, name)) => Err(SettingsError::new("-E", name, needs)),
                None => Ok(()),
            };
        };
        compression.inline_tails = self.tail_packing;
        compression.dedupe = self.dedupe;
        compression.holes = self.holes || self.layout_48bit;
        compression.index = match (self.layout_48bit, self.legacy_compress) {
            (true, _) => IndexKind::Extents,
            (false, true) => IndexKind::Full,
            (false, false) => IndexKind::Compact,
        };
        compression.fragments = self.fragments;
        compression.fragment_pcluster = self.fragment_cluster;
        Ok(())
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut own, mut usual) = (self.clone(), Self::default());
        let mut names = Vec::new();
        let size = self.fragment_cluster.map(|size| format!("={}", byte_size::exact(size.into())));
        let size = size.unwrap_or_default();
        match self.fragments {
            Fragments::None => {}
            Fragments::Tails => names.push(format!("fragments{size}")),
            Fragments::All => names.push(format!("all-fragments{size}")),
        }
        for (name, field, is) in FLAGS {
            let value = std::mem::replace(field(&mut own), *field(&mut usual));
            if value != *field(&mut usual) {
                names.push(format!("{}{name}", if value == is { "" } else { "^" }));
            }
        }
        let forms = [
            (self.inode_form == InodeForm::Compact, "force-inode-compact"),
            (self.inode_form == InodeForm::Extended, "force-inode-extended"),
            (self.chunk_entry == Some(4), "force-inode-blockmap"),
            (self.chunk_entry == Some(8), "force-chunk-indexes"),
        ];
        names.extend(forms.iter().filter(|(is, _)| *is).map(|(_, name)| (*name).to_owned()));
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<Features, String> {
        let mut features = Features::default();
        features.set(list).map(|()| features).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_are_parsed_and_printed() {
        for (list, printed) in [
            ("fragments,dedupe,force-inode-compact", "fragments,dedupe,force-inode-compact"),
            ("all-fragments=1048576", "all-fragments=1M"),
            ("all-fragments=64K,fragments", "all-fragments=64K"),
            ("fragments=64K,no-fragments", ""),
            ("^inline_data", "noinline_data"),
            (
                "noinline_data,nosbcrc,^xattr-name-filter",
                "noinline_data,nosbcrc,^xattr-name-filter",
            ),
            ("inline_data,sbcrc,xattr-name-filter", ""),
            (
                "force-chunk-indexes,force-inode-extended",
                "force-inode-extended,force-chunk-indexes",
            ),
            ("force-inode-extended,^force-inode-extended", ""),
            // Without effect, but checked.
            ("fragdedupe,^fragdedupe,fragdedupe=inode,fragdedupe=full,plain-xattr-prefixes", ""),
        ] {
            let features = parse(list).unwrap();
            assert_eq!(features.to_string(), printed, "{list}");
            assert_eq!(parse(printed), Ok(features));
        }
        for name in Features::NAMES {
            parse(name).unwrap();
        }
    }

    #[test]
    fn a_wrong_option_is_reported() {
        for (wrong, error) in [
            ("dedupe,fragmnts", "-E fragmnts: unknown extended option"),
            ("dedupe=1", "-E dedupe=1: takes no value"),
            ("fragments=x", "-E fragments=x: not a number of bytes"),
            ("fragdedupe=x", "-E fragdedupe=x: takes inode or full"),
            ("^fragdedupe=full", "-E ^fragdedupe=full: takes inode or full"),
            ("plain-xattr-prefixes=1", "-E plain-xattr-prefixes=1: takes no value"),
        ] {
            assert_eq!(parse(wrong), Err(error.to_owned()));
        }
    }

    #[test]
    fn each_bit_selects_one_option() {
        let mut features = Features::default();
        features.set_bits(6).unwrap();
        assert_eq!(features.to_string(), "fragments,ztailpacking");
        assert!(features.set_bits(256).is_err());
    }
}
