//! Lists how the metadata of a new image differs from that of an old one, so that `apply` can
//! predict it. Patches and deltas use the same list; they differ in which inodes they pair.

use std::collections::HashMap;

use ferofs_format::Nid;
use ferofs_format::area::MetadataSize;
use ferofs_format::inode::FileType;
use ferofs_format::map::Address;
use ferofs_read::{DataLayout, Image, Inode};
use ferofs_update::format::prediction::{
    ADDRESS, DirForm, Edit, Fields, Places, Relocated, Relocations, Rules, SIZE, Shifts,
    SourceCode, Target, addresses, fields, moved_inode, old_entries, stored_size,
};

use crate::error::Result;

/// A new inode.
#[derive(Clone, Copy)]
pub(super) struct NewInode {
    /// The old inode that it resembles.
    pub(super) old: Option<Nid>,
    pub(super) nid: Nid,
    pub(super) size: MetadataSize,
}

/// How content that both images have moves.
#[derive(Default)]
pub(super) struct MovedContent {
    /// Positions, in bytes; also of directories, if these are not in an area.
    pub(super) data: Shifts,
    /// Offsets in the packed inode.
    pub(super) packed: Shifts,
}

impl MovedContent {
    /// Where the content of these inodes moves.
    pub(super) fn of(old: &Image, new: &Image, inodes: &[NewInode], rules: Rules) -> Result<Self> {
        let (mut data, mut packed) = (Vec::new(), Vec::new());
        // Without a valid map, nothing of it is predicted.
        let of = |image: &Image, inode: &Inode| addresses(image, inode).unwrap_or_default();
        for NewInode { old: old_nid, nid, .. } in inodes {
            let Some(old_nid) = old_nid else { continue };
            let (old_inode, new_inode) = (old.inode(*old_nid)?, new.inode(*nid)?);
            let has_names =
                matches!(old_inode.file_type(), FileType::Directory | FileType::Symlink);
            if has_names && rules.area.is_some() {
                continue;
            }
            for both in of(old, &old_inode).into_iter().zip(of(new, &new_inode)) {
                match both {
                    (Address::Data(old), Address::Data(new)) => data.push((old.get(), new.get())),
                    (Address::Packed(old), Address::Packed(new)) => packed.push((old, new)),
                    _ => {}
                }
            }
        }
        Ok(Self { data: Shifts::of(data), packed: Shifts::of(packed) })
    }

    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.packed.is_empty()
    }
}

/// The old fields and the new ones of an inode.
type Both = (Fields, Fields);

/// The list for these new `inodes`, in the order in which they are placed.
pub(super) fn relocations(
    old: &Image,
    new: &Image,
    inodes: &[NewInode],
    rules: Rules,
    moved: MovedContent,
) -> Result<Relocations> {
    // An inode like one without a valid map is not predicted.
    let source = |inode: &NewInode| -> Result<Option<Inode>> {
        let old_inode = inode.old.map(|nid| old.inode(nid)).transpose()?;
        Ok(old_inode.filter(|inode| stored_size(old, inode).is_ok()))
    };
    // As `apply` sees it: of several new inodes that resemble an old one, the first takes its place.
    let mut relocated: HashMap<Nid, Nid> = HashMap::with_capacity(inodes.len());
    let mut numbers: HashMap<Nid, u32> = HashMap::with_capacity(inodes.len());
    for (number, inode) in (0..).zip(inodes) {
        numbers.insert(inode.nid, number);
        if let Some(source) = source(inode)? {
            relocated.entry(source.nid()).or_insert(inode.nid);
        }
    }
    let (mut list, mut differ) = (Relocations { rules, ..Relocations::default() }, Vec::new());
    list.inodes.reserve_exact(inodes.len());
    let mut places = Places::new(old, new.superblock(), rules);
    for (number, one) in (0..).zip(inodes) {
        let (source, inode) = (source(one)?, new.inode(one.nid)?);
        let code = source.as_ref().map(|source| places.code(source.nid(), source.is_dir()));
        let code = code.unwrap_or(SourceCode::None);
        let source = places.source(code)?;
        let mut relocation = Relocated { source: code, ..Relocated::default() };
        let (mut size, mut names) = (MetadataSize::default(), None);
        if let Some(source) = &source {
            names = edits([old, new], [source, &inode], &relocated, &numbers)?;
            relocation.form = form([source, &inode], names.as_deref(), &moved);
            let version = inode.on_disk().version.size();
            let edits = names.iter().flatten();
            size = places.size(source, version, relocation.form, edits)?;
        }
        let more = |actual: u64, predicted: u64| actual.wrapping_sub(predicted).cast_signed();
        relocation.len = more(one.size.len, size.len);
        relocation.blocks = more(one.size.blocks, size.blocks);
        relocation.inline = one.size.inline as u32;
        let predicted = places.predict(source.as_ref(), one.size)?;
        let ino = inode.on_disk().ino;
        relocation.nid = more(one.nid.get(), predicted.nid.get());
        relocation.ino = ino.wrapping_sub(predicted.ino).cast_signed().into();
        places.pass(source.as_ref(), one.nid, ino);
        let form = relocation.form;
        list.inodes.push(relocation);
        let Some(source) = source else {
            differ.push(Both::default());
            continue;
        };
        let before = moved_inode(&source, old, &moved.data, form, predicted.first);
        let before = fields(&before, old.superblock());
        let mut after = fields(inode.on_disk(), new.superblock());
        if form != DirForm::AsStored {
            // It follows from the entries.
            after[SIZE] = before[SIZE];
            list.edits.extend(names.into_iter().flatten().map(|edit| (number, edit)));
        }
        if form == DirForm::Chunks {
            after[ADDRESS] = first_new_block(old, new, &inode)?.unwrap_or(before[ADDRESS]);
        }
        differ.push((before, after));
    }
    set_values(&mut list, &differ);
    (list.data, list.packed) = (moved.data, moved.packed);
    Ok(list)
}

/// What the new directory has that its old one has not, and the other way; `None` for other files,
/// and for directories that are too large.
fn edits(
    [old, new]: [&Image; 2],
    [old_inode, new_inode]: [&Inode; 2],
    relocated: &HashMap<Nid, Nid>,
    numbers: &HashMap<Nid, u32>,
) -> Result<Option<Vec<Edit>>> {
    if !old_inode.is_dir() || !new_inode.is_dir() {
        return Ok(None);
    }
    let both = (old_entries(old, old_inode)?, old_entries(new, new_inode)?);
    let (Some(before), Some(after)) = both else { return Ok(None) };
    let mut names: HashMap<&[u8], _> =
        after.iter().map(|entry| (entry.name.as_slice(), entry)).collect();
    let mut edits = Vec::new();
    for (number, entry) in (0..).zip(&before) {
        let predicted = relocated.get(&entry.nid).copied().unwrap_or(entry.nid);
        let stays = names
            .get(entry.name.as_slice())
            .is_some_and(|new| new.nid == predicted && new.file_type == entry.file_type);
        if stays {
            names.remove(entry.name.as_slice());
        } else {
            edits.push(Edit::Removed(number));
        }
    }
    let mut added: Vec<_> = names.into_values().collect();
    added.sort_by(|a, b| a.name.cmp(&b.name));
    edits.extend(added.into_iter().filter_map(|entry| {
        let target = match numbers.get(&entry.nid) {
            Some(number) => Target::New(*number),
            None => Target::Old(entry.nid.get()),
        };
        let name = entry.name.clone();
        entry.file_type.map(|file_type| Edit::Added { name, file_type, target })
    }));
    Ok(Some(edits))
}

/// How the content of a directory with these `edits` is predicted.
fn form([old, new]: [&Inode; 2], edits: Option<&[Edit]>, moved: &MovedContent) -> DirForm {
    let Some(edits) = edits else { return DirForm::AsStored };
    let is_same = edits.is_empty()
        && old.layout() == new.layout()
        && old.size() == new.size()
        && old.on_disk().dot_omitted == new.on_disk().dot_omitted;
    match new.layout() {
        // Old blocks stay only where content does.
        DataLayout::ChunkBased if moved.is_empty() => DirForm::Chunks,
        DataLayout::FlatPlain if !is_same => DirForm::Blocks,
        DataLayout::FlatInline if !is_same => DirForm::Tail,
        _ => DirForm::AsStored,
    }
}

/// The address of the first block of the directory `inode` that is after the old image.
fn first_new_block(old: &Image, new: &Image, inode: &Inode) -> Result<Option<u64>> {
    let block = new.superblock().block_size;
    Ok(addresses(new, inode)?.into_iter().find_map(|address| match address {
        Address::Data(pos) if pos.block(block).get() >= old.superblock().blocks => {
            Some(pos.block(block).get())
        }
        _ => None,
    }))
}

/// Lists the fields that differ: those for which that gives fewer different values as what is added
/// to the old ones.
fn set_values(list: &mut Relocations, inodes: &[Both]) {
    for field in 0..Fields::default().len() {
        let pairs = inodes.iter().map(|(old, new)| (old[field], new[field]));
        let differ = pairs.filter(|(old, new)| old != new);
        let (mut last, mut changes) = ((0, 0), [0; 2]);
        for (old, new) in differ {
            let (value, added) = (new, new.wrapping_sub(old));
            changes[0] += usize::from(value != last.0);
            changes[1] += usize::from(added != last.1);
            last = (value, added);
        }
        list.relative |= u32::from(changes[1] < changes[0]) << field;
    }
    for (inode, (old, new)) in list.inodes.iter_mut().zip(inodes) {
        for (field, (old, new)) in
            (0..).zip(old.iter().zip(new)).filter(|(_, (old, new))| old != new)
        {
            let is_relative = list.relative >> field & 1 != 0;
            let value = if is_relative { new.wrapping_sub(*old) } else { *new };
            list.values.push((field, value));
            inode.values += 1;
        }
    }
}
