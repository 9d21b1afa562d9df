//! Holds the xattrs of the whole tree, each set once, and decides how they are stored: which xattrs
//! are shared between inodes, and which names use a long prefix. Source: FORMAT.md 4.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use ferofs_format::xattr::{
    self, Entry, LongPrefix, NAME_MAX, NameFilter, NameIndex, NamePrefix, Region,
};
use ferofs_format::{BlockSize, FormatError};

use crate::error::Error;
use crate::options::attributes::XattrOptions;
use crate::tree::compact::NodeId;

/// The largest size of an inode's xattrs in bytes: the inode counts them in units of 4 bytes, in 16
/// bits. More is an error.
const REGION_MAX: usize = xattr::HEADER_SIZE + (u16::MAX as usize - 1) * xattr::UNIT;

/// Xattrs as pairs of full name and value.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// The number of a set of xattrs; the default is the empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetId(u32);

/// All sets of xattrs of a tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct XattrTable {
    /// Each set as entries on disk, without shared xattrs and long prefixes, and the number of
    /// inodes that use it. Set N is at index N - 1.
    sets: Vec<(Box<[u8]>, u64)>,
    ids: HashMap<Box<[u8]>, u32>,
}

/// The encoded xattrs of every set.
#[derive(Debug, Default)]
pub(crate) struct XattrPlan {
    regions: Vec<Box<[u8]>>,
    /// The root's region, if an option makes it longer than that of its set.
    root: Option<Box<[u8]>>,
    /// The area of the shared xattrs. An id is an offset in this area, in units of 4 bytes.
    pub shared: Vec<u8>,
    /// Whether no inode has xattrs.
    pub is_empty: bool,
}

/// An xattr or a set of xattrs that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    what: &'static str,
    value: usize,
    limit: usize,
}

impl TooLarge {
    /// The error about the file at `path`.
    pub(crate) fn of(self, path: impl AsRef<Path>) -> Error {
        Error::DoesNotFit {
            path: path.as_ref().to_owned(),
            what: self.what,
            value: self.value as u64,
            limit: self.limit as u64,
        }
    }
}

/// Encodes a set. Leaves out xattrs whose prefix EROFS cannot store.
pub(crate) fn encode_set(mut attributes: Attributes) -> Result<Vec<u8>, TooLarge> {
    attributes.sort_unstable();
    let mut out = Vec::new();
    for (name, value) in &attributes {
        let Some((prefix, rest)) = NamePrefix::split(name) else { continue };
        let entry = Entry { index: prefix.into(), name: rest, value };
        entry.write(&mut out).map_err(|_| match rest.len() > NAME_MAX {
            true => TooLarge {
                what: "an extended attribute's name of",
                value: rest.len(),
                limit: NAME_MAX,
            },
            false => TooLarge {
                what: "an extended attribute of",
                value: value.len(),
                limit: xattr::VALUE_MAX,
            },
        })?;
    }
    check_size(&out).map(|()| out)
}

/// Checks the size without shared xattrs and long prefixes, which only make a set smaller.
fn check_size(set: &[u8]) -> Result<(), TooLarge> {
    let value = xattr::HEADER_SIZE + set.len();
    if value <= REGION_MAX {
        return Ok(());
    }
    Err(TooLarge { what: "a set of extended attributes of", value, limit: REGION_MAX })
}

/// The entries of an encoded set, each with its bytes.
fn entries(mut set: &[u8]) -> impl Iterator<Item = (Entry<'_>, &[u8])> {
    std::iter::from_fn(move || {
        let entry = Entry::parse(set).ok()?;
        let (bytes, rest) = set.split_at_checked(entry.size())?;
        set = rest;
        Some((entry, bytes))
    })
}

impl XattrTable {
    /// Adds the encoded `set` for one inode, and returns its id.
    pub(crate) fn intern(&mut self, set: &[u8]) -> SetId {
        if set.is_empty() {
            return SetId::default();
        }
        let id = match self.ids.get(set) {
            Some(id) => *id,
            None => {
                self.sets.push((set.into(), 0));
                let id = self.sets.len() as u32;
                self.ids.insert(set.into(), id);
                id
            }
        };
        self.sets[id as usize - 1].1 += 1;
        SetId(id)
    }

    /// Sets the xattr `name` of one inode to `value`, or removes it; `set` is the inode's current
    /// set. Returns its new one.
    pub(crate) fn replace(
        &mut self,
        set: SetId,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<SetId, TooLarge> {
        let mut attributes: Vec<_> = entries(self.encoded(set))
            .filter_map(|(entry, _)| Some((entry.full_name(&[])?, entry.value.to_vec())))
            .filter(|(old, _)| old != name)
            .collect();
        attributes.extend(value.map(|value| (name.to_vec(), value.to_vec())));
        let encoded = encode_set(attributes)?;
        Ok(self.exchange(set, &encoded))
    }

    /// As [`Self::replace`], for the digest's xattr, whose whole name is the long prefix `name`,
    /// which has this `number` in the image's table.
    pub(crate) fn add_digest(
        &mut self,
        set: SetId,
        number: u8,
        name: &LongPrefix,
        value: &[u8],
    ) -> Result<SetId, TooLarge> {
        let Some(index) = NameIndex::long(number) else { return Ok(set) };
        let mut encoded = Vec::new();
        // A digest is short, so this cannot fail.
        let _ = Entry { index, name: b"", value }.write(&mut encoded);
        for (entry, bytes) in entries(self.encoded(set)) {
            if entry.index.raw() != name.base || entry.name != name.infix {
                encoded.extend_from_slice(bytes);
            }
        }
        check_size(&encoded)?;
        Ok(self.exchange(set, &encoded))
    }

    /// The xattrs of `set`; `table` has the image's long prefixes.
    pub(crate) fn attributes(&self, set: SetId, table: &[LongPrefix]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let full = |entry: Entry<'_>| Some((entry.full_name(table)?, entry.value.to_vec()));
        entries(self.encoded(set)).filter_map(|(entry, _)| full(entry)).collect()
    }

    fn encoded(&self, set: SetId) -> &[u8] {
        set.0.checked_sub(1).map_or(&[], |index| &self.sets[index as usize].0)
    }

    /// Counts one use less of `old` and one more of `new`.
    fn exchange(&mut self, old: SetId, new: &[u8]) -> SetId {
        if let Some(index) = old.0.checked_sub(1) {
            self.sets[index as usize].1 -= 1;
        }
        self.intern(new)
    }

    /// Plans a change of an image: stores all xattrs with their inodes, except those that the image
    /// already shares; `ids` has their ids, by encoded entry. With `in_metabox`, see
    /// [`Self::plan`].
    pub(crate) fn plan_on(
        &self,
        options: &XattrOptions,
        ids: &HashMap<Vec<u8>, u32>,
        in_metabox: bool,
    ) -> Result<XattrPlan, FormatError> {
        let table = options.table();
        let ids: HashMap<&[u8], u32> =
            ids.iter().map(|(bytes, id)| (bytes.as_slice(), *id)).collect();
        let mut plan = XattrPlan {
            is_empty: self.sets.iter().all(|(_, uses)| *uses == 0),
            ..XattrPlan::default()
        };
        let none = HashMap::new();
        for (set, _) in &self.sets {
            let set = with_prefixes(set, &table);
            let inline = in_metabox && is_mixed(&set, |bytes| ids.contains_key(bytes));
            let ids = if inline { &none } else { &ids };
            plan.regions.push(region(&set, ids, &table, options.name_filter)?.into());
        }
        Ok(plan)
    }

    /// Plans a whole image; `root` is the root directory's set.
    ///
    /// With `in_metabox`, an inode's xattrs are either all shared or all stored with the inode.
    /// Otherwise Linux (seen in 6.18) can read a shared xattr from a page of the metabox: after it
    /// read xattrs in the metabox, it keeps that page if the shared xattr's page outside the
    /// metabox has the same number.
    pub(crate) fn plan(
        &self,
        options: &XattrOptions,
        root: SetId,
        in_metabox: bool,
    ) -> Result<XattrPlan, FormatError> {
        let table = options.table();
        let sets: Vec<_> =
            self.sets.iter().map(|(set, uses)| (with_prefixes(set, &table), *uses)).collect();
        let mut uses: HashMap<&[u8], u64> = HashMap::new();
        for (set, count) in &sets {
            for (_, bytes) in entries(set) {
                *uses.entry(bytes).or_default() += count;
            }
        }
        let pays = |size: usize, uses: u64| match options.inline_limit {
            Some(limit) => uses > limit.into(),
            None => pays(size, uses),
        };
        let mut shared: Vec<(u64, &[u8])> = uses
            .into_iter()
            .filter(|(bytes, n)| pays(bytes.len(), *n))
            .map(|(bytes, n)| (n, bytes))
            .collect();
        shared.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let mut inline = vec![false; sets.len()];
        if in_metabox {
            let can_share: HashSet<&[u8]> = shared.iter().map(|(_, bytes)| *bytes).collect();
            inline = sets
                .iter()
                .map(|(set, _)| is_mixed(set, |bytes| can_share.contains(bytes)))
                .collect();
            // What fills the root's xattrs up is stored with its inode.
            let root = root.0.checked_sub(1).filter(|_| options.root_min > 0);
            if let Some(inline) = root.and_then(|set| inline.get_mut(set as usize)) {
                *inline = true;
            }
            let whole = sets.iter().zip(&inline).filter(|(_, inline)| !**inline);
            let used: HashSet<&[u8]> =
                whole.flat_map(|((set, _), _)| entries(set).map(|(_, bytes)| bytes)).collect();
            shared.retain(|(_, bytes)| used.contains(bytes));
        }
        let mut plan =
            XattrPlan { is_empty: sets.iter().all(|(_, uses)| *uses == 0), ..XattrPlan::default() };
        let mut ids: HashMap<&[u8], u32> = HashMap::new();
        for (_, bytes) in shared {
            let Ok(id) = u32::try_from(plan.shared.len() / xattr::UNIT) else { break };
            ids.insert(bytes, id);
            plan.shared.extend_from_slice(bytes);
        }
        let none = HashMap::new();
        for ((set, _), inline) in sets.iter().zip(inline) {
            let ids = if inline { &none } else { &ids };
            plan.regions.push(region(set, ids, &table, options.name_filter)?.into());
        }
        if options.root_min > 0 {
            let mut region = plan.region_of(root).to_vec();
            if region.is_empty() {
                region.resize(xattr::HEADER_SIZE, 0);
                region[..4].copy_from_slice(&NameFilter::EMPTY.raw().to_le_bytes());
            }
            let unit = xattr::UNIT;
            // Zeroes are entries with an undefined prefix and no name, which readers ignore.
            region.resize(region.len().max(options.root_min.next_multiple_of(unit)), 0);
            xattr::icount(region.len())?;
            plan.root = Some(region.into());
        }
        Ok(plan)
    }
}

/// Whether not all xattrs of `set` can be shared.
fn is_mixed(set: &[u8], can_share: impl Fn(&[u8]) -> bool) -> bool {
    let shared = entries(set).filter(|(_, bytes)| can_share(bytes)).count();
    shared > xattr::SHARED_MAX || shared < entries(set).count()
}

/// Encodes `set` again with the longest prefix of `table` for each name.
fn with_prefixes(set: &[u8], table: &[LongPrefix]) -> Vec<u8> {
    if table.is_empty() {
        return set.to_vec();
    }
    let mut out = Vec::with_capacity(set.len());
    for (entry, bytes) in entries(set) {
        let full = if entry.index.raw() & 0x80 == 0 { entry.full_name(&[]) } else { None };
        let split = full.as_deref().and_then(|full| xattr::split_name(full, table));
        let written = split.map(|(index, name)| Entry { index, name, ..entry }.write(&mut out));
        if !matches!(written, Some(Ok(()))) {
            out.extend_from_slice(bytes);
        }
    }
    out
}

/// Whether one shared copy of `size` bytes and `uses` references need fewer bytes than `uses`
/// copies.
fn pays(size: usize, uses: u64) -> bool {
    let size = size as u64;
    uses >= 2 && size + uses * (xattr::UNIT as u64) < size * uses
}

/// Encodes what follows an inode with `set`: shared xattrs by their id in `ids`, and the others
/// inline.
fn region(
    set: &[u8],
    ids: &HashMap<&[u8], u32>,
    table: &[LongPrefix],
    name_filter: bool,
) -> Result<Vec<u8>, FormatError> {
    let mut filter = NameFilter::EMPTY;
    let (mut shared, mut inline) = (Vec::new(), Vec::new());
    for (entry, bytes) in entries(set) {
        let raw = entry.index.raw();
        filter = match table.get(usize::from(raw & 0x7f)).filter(|_| raw & 0x80 != 0) {
            Some(long) => filter.with_base(long.base, &[&long.infix, entry.name].concat()),
            None => filter.with_base(raw, entry.name),
        };
        match ids.get(bytes) {
            Some(id) if shared.len() < xattr::SHARED_MAX => shared.push(*id),
            _ => inline.push(entry),
        }
    }
    let mut out = Vec::new();
    let filter = if name_filter { filter } else { NameFilter::new(0) };
    Region::write(filter, &shared, &inline, &mut out)?;
    Ok(out)
}

impl XattrPlan {
    /// The bytes that follow the inode of `node`, which has this set.
    pub(crate) fn region(&self, node: NodeId, set: SetId) -> &[u8] {
        match &self.root {
            Some(region) if node == NodeId::ROOT => region,
            _ => self.region_of(set),
        }
    }

    /// Whether the blocks of the shared xattrs have a whole block from the start of each of them
    /// on, so that the image can end with them.
    pub(crate) fn has_block_from_each_shared(&self, block: BlockSize) -> bool {
        let last = entries(&self.shared).last().map_or(0, |(_, bytes)| bytes.len());
        let end = self.shared.len().next_multiple_of(block.bytes());
        self.shared.len() - last + block.bytes() <= end.max(block.bytes())
    }

    fn region_of(&self, set: SetId) -> &[u8] {
        match set.0.checked_sub(1) {
            Some(index) => &self.regions[index as usize],
            None => &[],
        }
    }
}
