//! What an image has where: the extents of all its files in the order of their positions, and the
//! fragments in the packed inode.

use std::collections::HashSet;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;

use ferofs_format::{Algorithm, FileOffset, Nid};
use ferofs_read::{ExtentData, Image, Location};

use crate::error::Result;
use crate::incremental::create::context::{NAMED_MAX, name_hash, names_like};

/// An extent of a file, the packed inode or the metabox.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileExtent {
    /// Its position in the image.
    pub(super) at: usize,
    /// Bytes there.
    pub(super) size: usize,
    /// An index into [`ImageContent::files`].
    pub(super) file: usize,
    /// Where its content starts in the file.
    pub(super) offset: u64,
    /// Bytes of content.
    pub(super) len: usize,
    /// `None`: it is stored as it is.
    pub(super) algorithm: Option<Algorithm>,
    /// Whether it follows its inode, in the metadata.
    pub(super) is_inline: bool,
}

/// A range of the packed inode that is content of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub(super) packed: u64,
    pub(super) len: u64,
    pub(super) file: usize,
    pub(super) offset: u64,
}

/// A file, or another inode with content.
#[derive(Clone, Debug)]
pub(super) struct ContentFile {
    pub(super) nid: Nid,
    pub(super) size: u64,
    pub(super) is_dir: bool,
    /// The [hashes](name_hash) of the path, and of the [names](names_like) under which other
    /// versions of it are found.
    names: [u64; 4],
    /// The number of its fragment.
    fragment: Option<u32>,
}

impl ContentFile {
    pub(super) fn new(nid: Nid, path: &Path, size: u64, is_dir: bool) -> Self {
        let path = path.as_os_str().as_bytes();
        let [like, name, like_name] = names_like(path).map(|name| name_hash(&name));
        Self { nid, size, is_dir, names: [name_hash(path), like, name, like_name], fragment: None }
    }
}

/// See the module.
pub(super) struct ImageContent {
    pub(super) files: Vec<ContentFile>,
    /// In the order of their positions, none over another.
    pub(super) extents: Vec<FileExtent>,
    /// In the order of the packed inode.
    pub(super) fragments: Vec<Fragment>,
    /// The number of the packed inode.
    packed: Option<usize>,
    metabox: Option<usize>,
    /// The numbers of the files by the hash of their paths, and by those of their other names;
    /// sorted. Made for the old image only.
    by_name: OnceLock<[Vec<(u64, u32)>; 2]>,
}

/// The numbers of the files that have a name with this hash.
fn named(by_name: &[(u64, u32)], hash: u64) -> impl Iterator<Item = usize> {
    let first = by_name.partition_point(|(own, _)| *own < hash);
    let named = by_name[first..].iter().take_while(move |(own, _)| *own == hash);
    named.map(|(_, number)| *number as usize)
}

impl ImageContent {
    pub(super) fn of(image: &Image) -> Result<Self> {
        let mut files = Vec::new();
        for entry in image.walk() {
            let entry = entry?;
            let inode = entry.inode?;
            if entry.first && inode.size() > 0 {
                let (nid, size) = (inode.nid(), inode.size());
                files.push(ContentFile::new(nid, &entry.path, size, inode.is_dir()));
            }
        }
        // They have no path, but the same place in both images.
        for (nid, name) in
            [(image.superblock().packed, "/packed"), (image.superblock().metabox, "/metabox")]
        {
            if let Some(nid) = nid {
                let size = image.inode(nid)?.size();
                files.push(ContentFile::new(nid, Path::new(name), size, false));
            }
        }
        let (mut extents, mut fragments) = (Vec::new(), Vec::new());
        for (number, file) in files.iter().enumerate() {
            let inode = image.inode(file.nid)?;
            for extent in image.extents(&inode, FileOffset::new(0))? {
                let extent = extent?;
                let offset = extent.start.get();
                let (at, size, algorithm) = match extent.data {
                    ExtentData::Stored { at } => (at, extent.len, None),
                    ExtentData::Encoded { at, encoded_len, algorithm, partial: false } => {
                        (at, encoded_len, Some(algorithm))
                    }
                    ExtentData::Fragment { offset: packed } => {
                        let (packed, len) = (packed.get(), extent.len);
                        fragments.push(Fragment { packed, len, file: number, offset });
                        continue;
                    }
                    _ => continue,
                };
                let (at, is_inline) = match at {
                    Location::Device(device, at) if device.get() == 0 => (at.get(), false),
                    // Content that follows its inode as it is counts as metadata.
                    Location::Metadata(place) if !place.in_metabox && algorithm.is_some() => {
                        (place.pos.get(), true)
                    }
                    _ => continue,
                };
                let (at, size, len) = (at as usize, size as usize, extent.len as usize);
                extents.push(FileExtent {
                    at,
                    size,
                    file: number,
                    offset,
                    len,
                    algorithm,
                    is_inline,
                });
            }
        }
        extents.sort_by_key(|extent| (extent.at, std::cmp::Reverse(extent.size)));
        let mut end = 0;
        extents.retain(|extent| {
            let is_free = extent.at >= end && extent.size > 0;
            end = end.max(extent.at + extent.size);
            is_free
        });
        fragments.sort_by_key(|fragment| (fragment.packed, fragment.file));
        for (number, fragment) in (0..).zip(&fragments) {
            files[fragment.file].fragment = Some(number);
        }
        extents.shrink_to_fit();
        let number = |nid: Option<Nid>| files.iter().position(|file| Some(file.nid) == nid);
        let (packed, metabox) =
            (number(image.superblock().packed), number(image.superblock().metabox));
        Ok(Self { files, extents, fragments, packed, metabox, by_name: OnceLock::new() })
    }

    /// Whether it is content of a directory.
    pub(super) fn is_dir(&self, extent: &FileExtent) -> bool {
        self.files[extent.file].is_dir
    }

    pub(super) fn is_metabox(&self, extent: &FileExtent) -> bool {
        self.metabox == Some(extent.file)
    }

    /// The file at the path of `other`, or the one with the most similar name and the nearest size.
    pub(super) fn like(&self, other: &ContentFile) -> Option<usize> {
        let [by_path, by_name] = self.by_name.get_or_init(|| {
            [0..1, 1..4].map(|kinds| {
                let of =
                    |(number, file): (u32, &ContentFile)| file.names.map(|hash| (hash, number));
                let files = (0..).zip(&self.files).map(of);
                let mut found: Vec<_> =
                    files.flat_map(|names| names[kinds.clone()].to_vec()).collect();
                found.sort_unstable();
                found.dedup();
                found
            })
        });
        let nearest = |hash: &u64| {
            let named = named(by_name, *hash).take(NAMED_MAX);
            named.min_by_key(|number| self.files[*number].size.abs_diff(other.size))
        };
        let same = named(by_path, other.names[0]).next();
        same.or_else(|| other.names[1..].iter().find_map(nearest))
    }

    /// A range of a file, as one of the packed inode if a fragment has all of it: such ranges are
    /// next to each other.
    pub(super) fn in_packed(&self, file: usize, start: u64, end: u64) -> (usize, u64, u64) {
        let fragment = self.files[file].fragment.map(|number| &self.fragments[number as usize]);
        match (fragment, self.packed) {
            (Some(fragment), Some(packed))
                if start >= fragment.offset && end <= fragment.offset + fragment.len =>
            {
                let shift = |at: u64| fragment.packed + (at - fragment.offset);
                (packed, shift(start), shift(end))
            }
            _ => (file, start, end),
        }
    }

    /// The ranges of the image of `len` bytes that no extent has, and inline extents: metadata.
    pub(super) fn metadata(&self, len: usize) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut at = 0;
        for extent in self.extents.iter().filter(|extent| !extent.is_inline) {
            if extent.at > at {
                found.push((at as u64, extent.at as u64));
            }
            at = extent.at + extent.size;
        }
        if at < len {
            found.push((at as u64, len as u64));
        }
        found
    }

    /// The extent that has the byte `at`.
    pub(super) fn extent_at(&self, at: usize) -> Option<&FileExtent> {
        let number = self.extents.partition_point(|extent| extent.at + extent.size <= at);
        self.extents.get(number).filter(|extent| extent.at <= at)
    }

    /// Bytes of pclusters in the `range` of the image. Inline ones count as metadata.
    pub(super) fn encoded_len(&self, range: &Range<usize>) -> usize {
        let first = self.extents.partition_point(|extent| extent.at + extent.size <= range.start);
        let own = self.extents[first..].iter().take_while(|extent| extent.at < range.end);
        let encoded = own.filter(|extent| extent.algorithm.is_some() && !extent.is_inline);
        let end = |extent: &FileExtent| range.end.min(extent.at + extent.size);
        encoded.map(|extent| end(extent) - extent.at.max(range.start)).sum()
    }

    /// Decoded bytes of the longest encoded extent.
    pub(super) fn longest_extent(&self) -> usize {
        let encoded = self.extents.iter().filter(|extent| extent.algorithm.is_some());
        encoded.map(|extent| extent.len).max().unwrap_or(0)
    }

    /// The algorithms of the extents.
    pub(super) fn algorithms(&self) -> HashSet<Algorithm> {
        self.extents.iter().filter_map(|extent| extent.algorithm).collect()
    }
}
