//! Extended attributes of the whole tree: equal sets are kept once, attributes that many inodes have are
//! shared where that saves bytes. Source: FORMAT.md 4.

use std::collections::HashMap;

use ferofs_format::FormatError;
use ferofs_format::xattr::{self, Entry, NameFilter, NamePrefix, Region};

/// The most shared attributes of one inode.
const SHARED_MAX: usize = 255;

/// A set of attributes that inodes have in common; the default is the empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetId(u32);

#[derive(Debug, Default)]
pub(crate) struct XattrTable {
    /// Sets as on disk when nothing is shared: entries one after the other. Set N is at N - 1.
    sets: Vec<(Box<[u8]>, u64)>,
    ids: HashMap<Box<[u8]>, u32>,
}

/// The attributes of every set as they go to disk.
#[derive(Debug, Default)]
pub(crate) struct XattrPlan {
    regions: Vec<Box<[u8]>>,
    /// The shared area: its attributes are found by their distance from its start.
    pub(crate) shared: Vec<u8>,
}

/// Encodes a set: attributes by full name, those that EROFS cannot hold left out.
pub(crate) fn encode_set(mut attributes: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Vec<u8>, FormatError> {
    attributes.sort_unstable();
    let mut out = Vec::new();
    for (name, value) in &attributes {
        if let Some((prefix, rest)) = NamePrefix::split(name) {
            Entry { index: prefix.into(), name: rest, value }.write(&mut out)?;
        }
    }
    // What fits without sharing also fits with it.
    if !out.is_empty() {
        xattr::icount(xattr::HEADER_SIZE + out.len())?;
    }
    Ok(out)
}

fn entries(mut set: &[u8]) -> impl Iterator<Item = (Entry<'_>, &[u8])> {
    std::iter::from_fn(move || {
        let entry = Entry::parse(set).ok()?;
        let (bytes, rest) = set.split_at_checked(entry.size())?;
        set = rest;
        Some((entry, bytes))
    })
}

impl XattrTable {
    /// The id of the encoded `set`, used once more.
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

    /// Decides what is shared.
    pub(crate) fn plan(&self) -> Result<XattrPlan, FormatError> {
        let mut uses: HashMap<&[u8], u64> = HashMap::new();
        for (set, count) in &self.sets {
            for (_, bytes) in entries(set) {
                *uses.entry(bytes).or_default() += count;
            }
        }
        let mut shared: Vec<(u64, &[u8])> = uses
            .into_iter()
            .filter(|(bytes, n)| pays(bytes.len(), *n))
            .map(|(bytes, n)| (n, bytes))
            .collect();
        shared.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let mut plan = XattrPlan::default();
        let mut ids: HashMap<&[u8], u32> = HashMap::new();
        for (_, bytes) in shared {
            let Ok(id) = u32::try_from(plan.shared.len() / xattr::UNIT) else { break };
            ids.insert(bytes, id);
            plan.shared.extend_from_slice(bytes);
        }
        for (set, _) in &self.sets {
            plan.regions.push(region(set, &ids)?.into());
        }
        Ok(plan)
    }
}

/// Whether `uses` references and one copy are shorter than as many copies.
fn pays(size: usize, uses: u64) -> bool {
    let size = size as u64;
    uses >= 2 && size + uses * (xattr::UNIT as u64) < size * uses
}

fn region(set: &[u8], ids: &HashMap<&[u8], u32>) -> Result<Vec<u8>, FormatError> {
    let mut filter = NameFilter::EMPTY;
    let (mut shared, mut inline) = (Vec::new(), Vec::new());
    for (entry, bytes) in entries(set) {
        if let Some(prefix) = NamePrefix::from_index(entry.index.raw()) {
            filter = filter.with(prefix, entry.name);
        }
        match ids.get(bytes) {
            Some(id) if shared.len() < SHARED_MAX => shared.push(*id),
            _ => inline.push(entry),
        }
    }
    let mut out = Vec::new();
    Region::write(filter, &shared, &inline, &mut out)?;
    Ok(out)
}

impl XattrPlan {
    /// The region that follows an inode with this set.
    pub(crate) fn region(&self, set: SetId) -> &[u8] {
        match set.0.checked_sub(1) {
            Some(index) => &self.regions[index as usize],
            None => &[],
        }
    }

    /// Whether no inode has attributes.
    pub(crate) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &[u8])]) -> Vec<u8> {
        encode_set(pairs.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.to_vec())).collect()).unwrap()
    }

    #[test]
    fn shares_only_what_saves() {
        let mut table = XattrTable::default();
        let common = ("security.selinux", b"system_u:object_r:usr_t:s0".as_slice());
        let first = table.intern(&set(&[common, ("user.one", b"1")]));
        let second = table.intern(&set(&[common, ("user.two", b"2")]));
        assert_ne!(first, second);
        assert_eq!(table.intern(&set(&[("user.one", b"1"), common])), first);
        let plan = table.plan().unwrap();
        // user.one has two users too, but twelve bytes and two references are no gain over... 2 * 8.
        let (entry, _) = entries(&plan.shared).next().unwrap();
        assert_eq!(entry.value, common.1);
        for id in [first, second] {
            let region = Region::parse(plan.region(id)).unwrap();
            assert_eq!(region.shared().collect::<Vec<_>>(), [0]);
            assert_eq!(region.entries().count(), 1);
        }
        assert!(plan.region(SetId::default()).is_empty());
    }

    #[test]
    fn leaves_out_foreign_names() {
        assert_eq!(set(&[("system.nfs4_acl", b"x"), ("plain", b"y")]), b"");
    }
}
