//! Finds the appended extents of changed and new files and of the metabox, and how to encode each
//! one again from its content, byte for byte.
//!
//! Consecutive extents of one file form a unit. A unit ends where the builder's compressor started
//! again, because what an LZ4 extent holds can depend on content after it.

use std::collections::{HashMap, HashSet};

use crate::tree::{Kind, NodeId};
use ferofs_codec::{Algorithm, Params, Reencoding, codec};
use ferofs_format::{FileOffset, Nid};
use ferofs_read::{ExtentData, Image, Location};

use super::Segments;
use crate::error::Result;
use crate::incremental::create::context::{CreateContext, NAMED_MAX, name_hash, names_like};
use crate::incremental::create::decide::{ReuseDecision, ReuseDecisions};
use crate::incremental::create::metadata::WrittenMetadata;
use ferofs_update::format::piece::PIECE_LEN;
use ferofs_update::format::plan::{ExtentKind, Unit, UnitExtent};
use ferofs_update::format::reencode::Encoders;

/// Whose content an extent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    File(NodeId),
    /// The metabox, with new inodes.
    Metabox,
}

/// An appended extent.
#[derive(Clone, Copy, Debug)]
struct Appended {
    /// Where it is in the new image.
    at: u64,
    /// Bytes there.
    size: u64,
    owner: Owner,
    /// Where its content starts in the file.
    offset: u64,
    /// Bytes of content.
    len: u64,
    /// `None`: it is stored as it is.
    algorithm: Option<Algorithm>,
}

/// Consecutive extents of one file, or of the metabox.
#[derive(Debug)]
pub(crate) struct FoundUnit {
    /// Where its first extent is in the new image.
    pub(crate) at: u64,
    /// Bytes there.
    pub(crate) size: u64,
    pub(crate) owner: Owner,
    /// Where its content starts in the file.
    pub(crate) offset: u64,
    /// Bytes of content.
    pub(crate) len: u64,
    extents: Vec<Appended>,
}

/// Finds all units of the new `image`, in the order of their positions.
pub(crate) fn find(
    context: &CreateContext<'_>,
    image: &Image,
    decisions: &ReuseDecisions,
    kept: &[Option<Nid>],
    written: &WrittenMetadata,
    segments: &Segments,
) -> Result<Vec<FoundUnit>> {
    let (tree, start) = (context.inputs.tree, context.area.size());
    let (mut owners, mut seen, mut found) = (Vec::new(), HashSet::new(), Vec::new());
    for id in tree.ids().filter(|id| kept[id.index()].is_none()) {
        // The extents of a file with the same content are old ones, and its tail is in the old
        // metadata.
        let is_new = !matches!(
            decisions.by_node[id.index()],
            ReuseDecision::SameContent(_) | ReuseDecision::KeepInode(_)
        );
        if !is_new || !matches!(tree.node(id).kind, Kind::Regular { .. }) {
            continue;
        }
        owners.push((Owner::File(id), written.nid(id)));
    }
    if written.metabox.is_some() {
        owners.extend(image.superblock().metabox.map(|nid| (Owner::Metabox, nid)));
    }
    for (owner, nid) in owners {
        let inode = image.inode(nid)?;
        for extent in image.extents(&inode, FileOffset::new(0))? {
            let extent = extent?;
            let (at, size, algorithm) = match extent.data {
                ExtentData::Stored { at } => (at, extent.len, None),
                ExtentData::Encoded { at, encoded_len, algorithm, partial: false } => {
                    (at, encoded_len, Some(algorithm))
                }
                _ => continue,
            };
            let at = match at {
                Location::Device(_, at) => at.get(),
                Location::Metadata(place) if !place.in_metabox => place.pos.get(),
                Location::Metadata(_) => continue,
            };
            if at >= start && seen.insert(at) {
                let (offset, len) = (extent.start.get(), extent.len);
                found.push(Appended { at, size, owner, offset, len, algorithm });
            }
        }
    }
    found.sort_unstable_by_key(|extent| extent.at);
    Ok(join(found, segments))
}

/// Joins consecutive extents of a file to units, and divides long ones.
fn join(found: Vec<Appended>, segments: &Segments) -> Vec<FoundUnit> {
    let mut units: Vec<FoundUnit> = Vec::new();
    let mut end = 0;
    for extent in found {
        // Extents that overlap share bytes: the first has them.
        if extent.at < end {
            continue;
        }
        end = extent.at + extent.size;
        let most = PIECE_LEN as u64;
        if extent.algorithm.is_none() && extent.len > most {
            let starts = (0..extent.len).step_by(PIECE_LEN);
            let parts = starts.map(|start| (start, (extent.len - start).min(most)));
            units.extend(parts.map(|(start, len)| {
                let (at, offset) = (extent.at + start, extent.offset + start);
                FoundUnit::new(Appended { at, offset, len, size: len, ..extent })
            }));
            continue;
        }
        match units.last_mut() {
            Some(unit)
                if unit.owner == extent.owner
                    && unit.offset + unit.len == extent.offset
                    && unit.at + unit.size == extent.at
                    && unit.len + extent.len <= most
                    && unit.size + extent.size <= most
                    && !matches!(extent.owner, Owner::File(node) if segments.starts_at(node, extent.offset)) =>
            {
                unit.len += extent.len;
                unit.size += extent.size;
                unit.extents.push(extent);
            }
            _ => units.push(FoundUnit::new(extent)),
        }
    }
    units
}

/// A unit as the patch describes it, and its payload.
pub(crate) struct CheckedUnit {
    /// `None`: the payload is the appended bytes.
    pub(crate) unit: Option<Unit>,
    pub(crate) payload: Vec<u8>,
}

impl FoundUnit {
    fn new(extent: Appended) -> Self {
        let Appended { at, size, owner, offset, len, .. } = extent;
        Self { at, size, owner, offset, len, extents: vec![extent] }
    }

    /// As [`encode_again`].
    pub(crate) fn check(
        &self,
        content: Vec<u8>,
        appended: &[u8],
        methods: &[Params],
        encoders: &mut Encoders,
        shape: Shape,
    ) -> Result<CheckedUnit> {
        let of = |extent: &Appended| StoredExtent {
            len: extent.len as usize,
            size: extent.size as usize,
            algorithm: extent.algorithm,
        };
        let extents: Vec<StoredExtent> = self.extents.iter().map(of).collect();
        encode_again(&extents, content, appended, methods, encoders, shape)
    }
}

/// An extent of a unit, as the image has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredExtent {
    /// Bytes of content.
    pub(crate) len: usize,
    /// Bytes in the image.
    pub(crate) size: usize,
    /// `None`: it is stored as it is.
    pub(crate) algorithm: Option<Algorithm>,
}

/// Bytes of blocks, and of the largest pclusters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) block: u32,
    pub(crate) pcluster: u32,
}

/// Encodes the content again as [`Patch`](ferofs_update::Patch) will, and lets the payload carry
/// each extent that does not become the same bytes. `appended` is what the image has.
pub(crate) fn encode_again(
    stored: &[StoredExtent],
    content: Vec<u8>,
    appended: &[u8],
    methods: &[Params],
    encoders: &mut Encoders,
    Shape { block, pcluster }: Shape,
) -> Result<CheckedUnit> {
    let carry_all = || CheckedUnit { unit: None, payload: appended.to_vec() };
    let Some(algorithm) = stored.iter().find_map(|extent| extent.algorithm) else {
        return Ok(carry_all());
    };
    let mut out = Vec::new();
    let mut best: Option<(usize, Unit, Vec<u8>)> = None;
    for (method, params) in methods.iter().enumerate() {
        if params.algorithm != algorithm {
            continue;
        }
        let method = method as u8;
        let (mut extents, mut carried) = (Vec::with_capacity(stored.len()), Vec::new());
        let (mut at, mut from) = (0, 0);
        let mut encoded_again = 0;
        let mut candidates = candidates(algorithm, pcluster);
        encoders.begin(method)?;
        for extent in stored {
            let StoredExtent { len, size, .. } = *extent;
            let own = appended.get(from..from + size).unwrap_or_default();
            let usual = UnitExtent {
                kind: ExtentKind::Stored,
                len: len as u32,
                size: size as u32,
                capacity: 0,
            };
            let mut chosen = None;
            if extent.algorithm.is_none() {
                chosen = Some(usual);
            } else {
                for number in 0..candidates.len() {
                    let (kind, capacity) = candidates[number];
                    let capacity = match (kind, capacity) {
                        (ExtentKind::Fill, AS_BUILDER) => {
                            builder_capacity(content.len() - at, block, pcluster)
                        }
                        (_, capacity) => capacity,
                    };
                    let capacity = if kind == ExtentKind::Fill && capacity == usual.size {
                        0
                    } else {
                        capacity
                    };
                    let attempt = UnitExtent { kind, capacity, ..usual };
                    out.clear();
                    let consumed = encoders.encode_one(method, &attempt, &content, at, &mut out)?;
                    if consumed == Some(len) && out == own {
                        let len = if kind == ExtentKind::Fill { 0 } else { attempt.len };
                        chosen = Some(UnitExtent { len, ..attempt });
                        encoded_again += size;
                        // What was right for one extent is mostly right for the next one. If extents
                        // depend on earlier ones, all attempts but the first start anew.
                        if !codec(algorithm).extents_depend {
                            candidates.swap(0, number);
                        }
                        break;
                    }
                }
            }
            if chosen.is_none() {
                carried.extend_from_slice(own);
                encoders.begin(method)?;
            }
            extents.push(chosen.unwrap_or(UnitExtent { kind: ExtentKind::Carried, ..usual }));
            at += len;
            from += size;
        }
        if best.as_ref().is_none_or(|(most, ..)| encoded_again > *most) {
            let unit = Unit { method, content_len: content.len() as u32, extents };
            best = Some((encoded_again, unit, carried));
        }
    }
    match best {
        Some((encoded_again, unit, carried)) if encoded_again > 0 => {
            let mut payload = content;
            payload.extend_from_slice(&carried);
            Ok(CheckedUnit { unit: Some(unit), payload })
        }
        _ => Ok(carry_all()),
    }
}

/// Instead of a capacity: what the builder gives its compressor.
const AS_BUILDER: u32 = u32::MAX;

/// The bytes of output for the rest of a file, as the builder chooses them: the extent must be at
/// least one block smaller than its content.
fn builder_capacity(rest: usize, block: u32, pcluster: u32) -> u32 {
    let rest = u32::try_from(rest).unwrap_or(u32::MAX);
    match rest <= block {
        // An inline tail.
        true => block,
        false => pcluster.min((rest - 1) / block * block),
    }
}

/// The ways to encode an extent that `check` tries: how, and the compressor's capacity.
fn candidates(algorithm: Algorithm, pcluster: u32) -> Vec<(ExtentKind, u32)> {
    let way = |way: &Reencoding| match way {
        Reencoding::Exact => (ExtentKind::Exact, 0),
        Reencoding::ExactInPcluster => (ExtentKind::Exact, pcluster),
        Reencoding::Fill => (ExtentKind::Fill, 0),
        Reencoding::FillAsBuilder => (ExtentKind::Fill, AS_BUILDER),
    };
    codec(algorithm).reencodings.iter().map(way).collect()
}

/// The old file that each node's content resembles.
pub(crate) fn old_files(
    context: &CreateContext<'_>,
    decisions: &ReuseDecisions,
    units: &[FoundUnit],
) -> HashMap<NodeId, Nid> {
    let survey = context.inputs.survey;
    let mut found = HashMap::new();
    let mut by_name: HashMap<u64, Vec<usize>> = HashMap::new();
    for unit in units {
        let Owner::File(node) = unit.owner else { continue };
        if found.contains_key(&node) {
            continue;
        }
        if let ReuseDecision::ChangedContent(nid) = decisions.by_node[node.index()] {
            found.insert(node, nid);
            continue;
        }
        if by_name.is_empty() {
            for (number, file) in survey.files.iter().enumerate() {
                if file.file_type == ferofs_format::inode::FileType::Regular && file.size > 0 {
                    for name in file.names {
                        by_name.entry(name).or_default().push(number);
                    }
                }
            }
        }
        let size = context.inputs.tree.node(node).size;
        let names = names_like(&context.inputs.tree.path_bytes(node));
        let named =
            names.iter().find_map(|name| by_name.get(&name_hash(name))).into_iter().flatten();
        let nearest =
            named.take(NAMED_MAX).min_by_key(|number| survey.files[**number].size.abs_diff(size));
        if let Some(number) = nearest {
            found.insert(node, survey.files[*number].nid);
        }
    }
    found
}
